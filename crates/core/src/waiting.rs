//! What waits, and is counted while it does: to leave, to be acknowledged, for its other
//! parts, to be taken, for its port.

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
