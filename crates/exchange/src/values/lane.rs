//! Lanes to other ranks, as the caller describes them.

/// Bytes that every sender may push at first, and always has room for.
pub const PUSHED_MIN: u64 = 4096;

/// Bytes charged for a pushed message beside its payload.
pub(crate) const OVERHEAD: u64 = 128;

/// How much of a message leaves before the receiver asks for it, bytes (Push-Pull Messaging,
/// section 2). Messages up to `whole` are pushed whole while the receiver's credit lasts. Of a
/// longer one `first` bytes leave with the offer, BTP(1), and up to `second` more right behind,
/// BTP(2); the receiver pulls the rest.
///
/// Push-zero is all zeros; push-all is `whole` at its largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Push {
    /// Longest message that is pushed whole.
    pub whole: u64,
    /// Bytes of a longer message that its offer carries.
    pub first: u64,
    /// Bytes that follow the offer at once, while the receiver's request is on
    /// its way.
    pub second: u64,
    /// The receiver's request leaves when the offer arrives (push-and-acknowledge overlapping),
    /// not when all pushes have arrived.
    pub overlap: bool,
    /// Memory is made ready after the first packet of a message or the request has left
    /// (address translation overhead masking), not before.
    pub masking: bool,
}

impl Push {
    /// Values for a network.
    pub const DEFAULT: Self = Self {
        whole: 64 << 10,
        first: 1 << 10,
        second: 15 << 10,
        overlap: true,
        masking: true,
    };

    /// Largest charge of one message, bytes: pushed whole, or both pushes of a longer one.
    /// Push-Pull Messaging counts max(BTP(1), BTP(2)), as the receiver's request comes between
    /// them. Here both are kept if the request is late.
    #[must_use]
    pub const fn most(&self) -> u64 {
        let two = self.first.saturating_add(self.second);
        let most = if self.whole > two { self.whole } else { two };
        most.saturating_add(OVERHEAD)
    }
}

impl Default for Push {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What carries messages to a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Shared memory, or the rank is this process.
    #[default]
    Host,
    /// The network.
    Network,
}

/// Terms of one kind of lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaneTerms {
    /// How messages are pushed.
    pub push: Push,
    /// Messages share queues on their path with other senders' bytes. Default false.
    pub queues: bool,
    /// Least bytes of one request for a matched message. Default 0: [`crate::Config::pull_chunk`]
    /// alone decides.
    pub pull_min: u64,
    /// Ranks on this lane may reach into each other's memory: [`crate::Task::CopyFrom`] and
    /// [`crate::Task::CopyTo`] are worth a try. Default false.
    pub direct: bool,
}
