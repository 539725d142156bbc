//! Queues, with their accounting: messages to be sent, to be acknowledged, with parts missing,
//! to be taken, or without a bound port.

mod incoming;
mod ops;
mod outbox;
mod stopped_flows;
mod unbound_counts;

pub use self::incoming::{Dest, Filled, Incoming, Incomings, Offer, Parts};
pub use self::ops::{Entry, News, Ops, Teller};
pub use self::outbox::{Outbox, Unsent};
pub use self::stopped_flows::Aside;
pub use self::unbound_counts::{Row, Unbound};
