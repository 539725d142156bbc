//! How operations on matched messages end, for the program.

use std::fmt;

use portolan_exchange::{Completion, Memory, OpError};

use super::memory::{Gather, Scatter};
use crate::error::{Death, Misuse, WaitError};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MatchError {
    /// A peer that the call depends on is dead.
    PeerDead {
        /// Which.
        rank: u32,
        /// Why.
        why: Death,
    },
    /// The message was longer than the buffer, which is full of its beginning.
    Truncated(Completion),
    /// Longer than any message can be.
    TooLong,
    /// There is no such operation, or its end was taken already.
    NoSuchOperation,
    /// The time was up; the operation goes on.
    TimedOut,
    /// See [`Misuse`].
    Misuse(Misuse),
}

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerDead { rank, why } => write!(f, "rank {rank} is dead: {why}"),
            Self::Truncated(c) => write!(
                f,
                "the message has {} bytes and the buffer {}: probe for it first, or give it room",
                c.total, c.bytes
            ),
            Self::TooLong => f.write_str("a message is at most 2^38 bytes long"),
            Self::NoSuchOperation => {
                f.write_str("there is no such operation, or its end was taken already")
            }
            Self::TimedOut => f.write_str("the time was up"),
            Self::Misuse(m) => m.fmt(f),
        }
    }
}

impl std::error::Error for MatchError {}

impl From<Misuse> for MatchError {
    fn from(m: Misuse) -> Self {
        Self::Misuse(m)
    }
}

impl From<WaitError> for MatchError {
    fn from(e: WaitError) -> Self {
        match e {
            WaitError::PeerDead { rank, why } => Self::PeerDead { rank, why },
            WaitError::TimedOut => Self::TimedOut,
            WaitError::Misuse(m) => Self::Misuse(m),
            // Matched messages are not refused.
            WaitError::Refused => Self::Misuse(Misuse::Closed),
        }
    }
}

/// `why`: of the other side's death, if it is dead.
pub(super) fn check(done: &Completion, why: Option<Death>) -> Result<(), MatchError> {
    match done.result {
        Ok(()) => Ok(()),
        Err(OpError::Truncated) => Err(MatchError::Truncated(*done)),
        Err(OpError::PeerDead) => Err(MatchError::PeerDead {
            rank: done.peer,
            why: why.unwrap_or(Death::Silent),
        }),
        // The others are of one-sided memory.
        Err(_) => Err(Misuse::Closed.into()),
    }
}
