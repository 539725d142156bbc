//! What flows and peers may send: credit, flows that are stopped, messages
//! that are refused, and chunks that find no room.

mod credit;
mod receiver_not_ready;
mod refusal;
mod stops;
