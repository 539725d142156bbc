//! Names of what is held.

/// A number that no other entry of the same matcher has had, and its slot.
/// Ordered by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket {
    pub number: u64,
    pub slot: u32,
}

/// Names a posted receive until it is matched or cancelled, and nothing after:
/// never a later one. Those posted earlier are less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceiveTicket(pub(crate) Ticket);

/// Names an unexpected message until it is matched or claimed, and nothing
/// after: never a later one. Those that arrived earlier are less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageTicket(pub(crate) Ticket);

/// Where a receive stands among others: before those that are posted after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReceivePlace(pub(crate) u64);
