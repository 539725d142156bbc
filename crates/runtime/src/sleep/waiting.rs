//! In which call a thread waits, for whom and since when, for observers.

/// Call in which a thread of the program waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Call {
    /// No call.
    #[default]
    None = 0,
    /// A condition of the program's.
    Condition = 1,
    /// An operation.
    Operation = 2,
    /// A send that found no credit, or whose memory is still being read.
    Send = 3,
    /// A barrier.
    Barrier = 4,
    /// A broadcast that found no credit.
    Broadcast = 5,
    /// Closing the endpoint.
    Close = 6,
    /// A receive.
    Receive = 7,
}

/// Names of [`Call`]'s numbers.
pub const CALLS: [&str; 8] = [
    "none",
    "condition",
    "operation",
    "send",
    "barrier",
    "broadcast",
    "close",
    "receive",
];

/// No rank in particular.
pub(crate) const ANYBODY: u32 = u32::MAX;

/// Why and since when a thread waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub call: Call,
    /// The awaited rank, or [`ANYBODY`].
    pub rank: u32,
    /// Since when, ns of the monotonic clock; set once the wait has spun in vain.
    pub since: u64,
}

impl Waiting {
    pub const NONE: Self = Self::of(Call::None, ANYBODY);

    pub const fn of(call: Call, rank: u32) -> Self {
        Self {
            call,
            rank,
            since: 0,
        }
    }
}
