//! What the caller says of the ways to other ranks.

/// Bytes that every sender may push at first, and always has room for.
pub const PUSHED_MIN: u64 = 4096;

/// What a pushed message counts beside its bytes.
pub(crate) const OVERHEAD: u64 = 128;

/// How much of a message leaves before it is asked for, bytes (Push-Pull
/// Messaging, section 2). Messages up to `whole` are pushed whole while the
/// receiver's credit lasts. Of a longer one `first` bytes leave with the offer,
/// BTP(1), and up to `second` more right behind, BTP(2); the receiver pulls the rest.
///
/// Push-zero is all zeros; push-all is `whole` at its largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Push {
    /// Longest message that is pushed whole.
    pub whole: u64,
    /// Bytes of a longer one that its offer carries.
    pub first: u64,
    /// Bytes that follow the offer at once, while the receiver's request is on
    /// its way.
    pub second: u64,
    /// The request leaves when the offer arrives (push-and-acknowledge
    /// overlapping), not when all that was pushed has.
    pub overlap: bool,
    /// Memory is made ready after the first packet of a message or the request has left
    /// (address translation overhead masking), not before.
    pub masking: bool,
}

impl Push {
    /// What suits a network.
    pub const DEFAULT: Self = Self {
        whole: 64 << 10,
        first: 1 << 10,
        second: 15 << 10,
        overlap: true,
        masking: true,
    };

    /// What one message counts at most of what is pushed, bytes: whole, or the
    /// two pushes of a longer one, max(BTP(1), BTP(2)) of Push-Pull Messaging where
    /// the receiver's request comes between them. Here both are kept if it is late.
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

/// How messages travel by a kind of lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LaneTerms {
    /// How they are pushed.
    pub push: Push,
    /// They meet others' bytes in queues on their way. Default no.
    pub queues: bool,
    /// Bytes that one request asks for at least, of a matched message. Default 0:
    /// [`crate::Config::pull_chunk`] alone says how many.
    pub pull_min: u64,
    /// Its ranks may reach into each other's memory: [`crate::Task::CopyFrom`] and
    /// [`crate::Task::CopyTo`] are worth a try. Default no.
    pub direct: bool,
}
