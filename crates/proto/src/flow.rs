//! Flow control: credit, stopped flows, refused messages, and chunks that find no room.

mod credit;
mod receiver_not_ready;
mod refusal;
mod stops;
