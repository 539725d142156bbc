//! Operations on the memory of other ranks, and the state of each target.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::values::{Action, AtomicKind, OpError, OpId, Place, PutEnd, Signal};

/// Kind of an operation on another rank's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RmaOp {
    Put {
        end: PutEnd,
        signal: Option<Signal>,
    },
    Get,
    /// The operation, and how the program calls it.
    Atomic(AtomicKind, Action),
    /// Number of puts before it that end locally.
    Flush(u64),
}

impl RmaOp {
    pub const fn action(&self) -> Action {
        match self {
            Self::Put { .. } => Action::Put,
            Self::Get => Action::Get,
            Self::Atomic(_, action) => *action,
            Self::Flush(_) => Action::Flush,
        }
    }
}

/// Progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteStage {
    /// Nothing has left.
    Waiting,
    /// An answer is due.
    Left,
    /// The result is known: the target's answer, or the last that was needed.
    Answered(Result<(), OpError>),
}

/// An operation on the memory of another rank.
#[derive(Debug)]
pub(crate) struct Remote<S, K> {
    pub rma: RmaOp,
    /// Memory of a put.
    pub source: Option<S>,
    /// Memory of a get, or of an atomic operation.
    pub sink: Option<K>,
    /// Operands and comparands of an atomic operation that has not left.
    pub values: Vec<u8>,
    pub to: u32,
    pub place: Place,
    pub total: u64,
    pub stage: RemoteStage,
    /// Whether [`TargetState`] counts it.
    pub counted: bool,
    /// Number of fences towards the target before it.
    pub epoch: u64,
    /// The caller is to access the target's memory directly.
    pub direct: bool,
    /// Number of messages in flight that read the memory.
    pub lent: u32,
    /// Get: bytes of each request but the last.
    pub chunk: u64,
    /// Get: offset up to which bytes were requested.
    pub asked: u64,
    /// Get: offset up to which answers have begun to arrive.
    pub came: u64,
    /// Get: number of bytes that have arrived.
    pub answered: u64,
    /// Get: number of requests whose answers have not begun.
    pub asks: u32,
    /// Get: why a request was refused.
    pub fault: Option<OpError>,
    /// Old value that an atomic operation found, if it fits 8 bytes.
    pub found: Option<u64>,
}

/// Operations towards a rank that may not have been executed there.
#[derive(Debug, Default)]
pub(crate) struct TargetState {
    /// Number of operations that have not ended.
    pub open: u64,
    /// Number of launched gets that have not ended.
    pub gets: u64,
    /// Number of puts begun that end locally.
    pub silent: u64,
    /// Number of locally ending puts whose outcome a flush has shown.
    pub flushed: u64,
    /// Error of the first locally ending put that failed, until a flush reports it.
    pub fault: Option<OpError>,
    /// Number of fences so far.
    pub epoch: u64,
    /// Number of fences before the last operation that was launched.
    pub launched: u64,
    /// Number of fences before the last message that has left.
    pub sent: u64,
    /// Operations that wait behind a fence for earlier gets.
    pub held: VecDeque<OpId>,
}

impl TargetState {
    /// Whether an operation behind `epoch` fences may be launched. A target may read the bytes of
    /// a get late, so earlier gets must have been answered first.
    pub const fn passes(&self, epoch: u64) -> bool {
        epoch <= self.launched || self.gets == 0
    }

    /// Whether one operation has not ended, and all others are known to be done.
    pub const fn has_one(&self) -> bool {
        self.open == 1 && self.silent == self.flushed
    }

    /// Whether all operations are known to be done.
    pub const fn is_quiet(&self) -> bool {
        self.open == 0 && self.silent == self.flushed
    }
}

/// Errors by status word of an answer, from 1 on; 0 is success.
const STATUS: [OpError; 6] = [
    OpError::BadKey,
    OpError::NotPermitted,
    OpError::OutOfBounds,
    OpError::Unaligned,
    OpError::NoPort,
    OpError::Forbidden,
];

pub(crate) fn to_status(result: Result<(), OpError>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(why) => {
            let at = STATUS.iter().position(|status| *status == why);
            at.map_or(1, |at| at as u64 + 1)
        }
    }
}

/// `None`: unknown status word.
pub(crate) fn of_status(word: u64) -> Option<Result<(), OpError>> {
    match word.checked_sub(1) {
        None => Some(Ok(())),
        Some(at) => STATUS.get(usize::try_from(at).ok()?).map(|why| Err(*why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_travels() {
        assert_eq!(of_status(to_status(Ok(()))), Some(Ok(())));
        for why in STATUS {
            assert_eq!(of_status(to_status(Err(why))), Some(Err(why)));
        }
        assert_eq!(of_status(7), None);
        assert_eq!(of_status(u64::MAX), None);
    }
}
