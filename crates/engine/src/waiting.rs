//! Queues, with their accounting: messages to be sent, to be acknowledged, with parts missing,
//! to be taken, or without a bound port.

mod aside;
mod incoming;
mod ops;
mod outbox;
mod unbound;

pub use self::aside::Aside;
pub use self::incoming::{Dest, Filled, Incoming, Incomings, Offer, Parts};
pub use self::ops::{Entry, News, Ops, Teller};
pub use self::outbox::{Outbox, Unsent};
pub use self::unbound::{Row, Unbound};
