//! How operations on matched messages end, for the program.

use portolan_core::{Death, Gather, Misuse, Scatter, WaitError};
use portolan_exchange::{Completion, Memory, OpError};

/// An operation that has ended, and its memory.
#[derive(Debug)]
pub struct Ended {
    /// How it ended.
    pub completion: Completion,
    /// What it sent from or received in.
    pub memory: Option<Memory<Gather, Scatter>>,
}

impl Ended {
    /// The bytes that a receive in one owned buffer has got; empty for all else.
    #[must_use]
    pub fn into_received(self) -> Vec<u8> {
        let Some(Memory::Sink(scatter)) = self.memory else {
            return Vec::new();
        };
        let first = scatter.into_buffers().into_iter().next();
        let mut bytes = first.and_then(crate::Buffer::into_vec).unwrap_or_default();
        bytes.truncate(usize::try_from(self.completion.bytes).unwrap_or(usize::MAX));
        bytes
    }
}

/// Why a blocking call on matched messages failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum MatchError {
    /// A peer that the call depends on is dead.
    #[error("rank {rank} is dead: {why}")]
    PeerDead {
        /// Which.
        rank: u32,
        /// Why.
        why: Death,
    },
    /// The message was longer than the buffer, which is full of its beginning.
    #[error(
        "the message has {} bytes and the buffer {}: probe for it first, or give it room",
        .0.total,
        .0.bytes
    )]
    Truncated(Completion),
    /// The receiver refused the message: it closed the port or its endpoint.
    #[error("the receiver has closed the port")]
    Refused,
    /// Longer than any message can be.
    #[error("a message is at most 2^38 bytes long")]
    TooLong,
    /// There is no such operation, or its end was taken already.
    #[error("there is no such operation, or its end was taken already")]
    NoSuchOperation,
    /// The time was up; the operation goes on.
    #[error("the time was up")]
    TimedOut,
    /// See [`Misuse`].
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl From<WaitError> for MatchError {
    fn from(e: WaitError) -> Self {
        match e {
            WaitError::PeerDead { rank, why } => Self::PeerDead { rank, why },
            WaitError::TimedOut => Self::TimedOut,
            WaitError::Misuse(m) => Self::Misuse(m),
            WaitError::Refused => Self::Refused,
        }
    }
}

/// `why`: of the other side's death, if it is dead.
pub(super) fn check(done: &Completion, why: Option<Death>) -> Result<(), MatchError> {
    match done.result {
        Ok(()) => Ok(()),
        Err(OpError::Refused) => Err(MatchError::Refused),
        Err(OpError::Truncated) => Err(MatchError::Truncated(*done)),
        Err(OpError::PeerDead) => Err(MatchError::PeerDead {
            rank: done.peer,
            why: why.unwrap_or(Death::Silent),
        }),
        // The others are of one-sided memory.
        Err(_) => Err(Misuse::Closed.into()),
    }
}
