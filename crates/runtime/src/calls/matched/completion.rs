//! Ends of operations on matched messages, for the program.

use portolan_engine::{Death, Gather, Misuse, Scatter, WaitError};
use portolan_exchange::{Completion, Memory, OpError};

/// An operation that has ended, and its memory.
#[derive(Debug)]
#[non_exhaustive]
pub struct Ended {
    /// How it ended.
    pub completion: Completion,
    /// Memory that it sent from or received in.
    pub memory: Option<Memory<Gather, Scatter>>,
}

impl Ended {
    /// Returns the bytes that a receive in one owned buffer has got; empty for all else.
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

/// Turns how an operation ended into a result. `why`: of the other side's death, if it is dead.
pub(super) fn check(done: &Completion, why: Option<Death>) -> Result<(), WaitError> {
    match done.result {
        Ok(()) => Ok(()),
        Err(OpError::Refused) => Err(WaitError::Refused),
        Err(OpError::Truncated) => Err(WaitError::Truncated(*done)),
        Err(OpError::PeerDead) => Err(WaitError::PeerDead {
            rank: done.peer,
            why: why.unwrap_or(Death::Silent),
        }),
        // Closed, cancelled, or an error of one-sided memory.
        Err(_) => Err(Misuse::Closed.into()),
    }
}
