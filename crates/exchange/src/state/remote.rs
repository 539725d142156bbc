//! Operations on the memory of other ranks: what they are, and how far those
//! towards a rank have come.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::values::{Action, AtomicKind, OpError, OpId, Place, PutEnd, Signal};

/// What an operation does there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RmaOp {
    Put {
        end: PutEnd,
        signal: Option<Signal>,
    },
    Get,
    /// With what its program calls it.
    Atomic(AtomicKind, Action),
    /// With how many puts that end locally were before it.
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

/// How far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteStage {
    /// Nothing has left.
    Waiting,
    /// An answer is due.
    Left,
    /// The target's word, or the last that was needed.
    Answered(Result<(), OpError>),
}

/// An operation on the memory of another rank.
#[derive(Debug)]
pub(crate) struct Remote<S, K> {
    pub rma: RmaOp,
    /// Of a put.
    pub source: Option<S>,
    /// Of a get, or an atomic operation.
    pub sink: Option<K>,
    /// Of an atomic operation that has not left: operands, and what is compared with.
    pub values: Vec<u8>,
    pub to: u32,
    pub place: Place,
    pub total: u64,
    pub stage: RemoteStage,
    /// It is among those that [`TargetState`] counts.
    pub counted: bool,
    /// Fences towards the target before it.
    pub epoch: u64,
    /// The caller is to try it by its own hand.
    pub direct: bool,
    /// Messages under way that read the memory.
    pub lent: u32,
    /// Of a get: bytes of each request but the last.
    pub chunk: u64,
    /// Asked for up to here...
    pub asked: u64,
    /// ...begun to arrive...
    pub came: u64,
    /// ...and arrived.
    pub answered: u64,
    /// Requests of a get that nothing has begun to answer.
    pub asks: u32,
    /// What a request of a get was refused for.
    pub fault: Option<OpError>,
    /// What an atomic operation found, if that fits.
    pub found: Option<u64>,
}

/// What has been begun towards a rank and may not be there.
#[derive(Debug, Default)]
pub(crate) struct TargetState {
    /// Operations that have not ended.
    pub open: u64,
    /// Gets of those that were launched.
    pub gets: u64,
    /// Puts that end locally: how many were begun...
    pub silent: u64,
    /// ...and of how many the end is known.
    pub flushed: u64,
    /// Why the first of those failed that no flush has told of.
    pub fault: Option<OpError>,
    /// Fences so far...
    pub epoch: u64,
    /// ...before the last operation that was launched...
    pub launched: u64,
    /// ...and before the last message that has left.
    pub sent: u64,
    /// Operations behind a fence that gets have not passed.
    pub held: VecDeque<OpId>,
}

impl TargetState {
    /// Whether fences hold up no operation behind so many of them. A get's answer may
    /// be read from the target's memory late: only that it is here lets others past a
    /// fence.
    pub const fn passes(&self, epoch: u64) -> bool {
        epoch <= self.launched || self.gets == 0
    }

    /// All but one operation that has not ended is known to be done.
    pub const fn has_one(&self) -> bool {
        self.open == 1 && self.silent == self.flushed
    }

    /// All that was begun is known to be done.
    pub const fn is_quiet(&self) -> bool {
        self.open == 0 && self.silent == self.flushed
    }
}

/// What the target of an access says: nothing went wrong, or a word for an error.
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

/// `None`: there is no such word.
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
