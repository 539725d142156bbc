//! Long messages under way.

use portolan_wire::MessageNo;

use crate::base::{Linked, LongIndex, Outcome, Release, SourceId, indexed};

/// Owner of a long message's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum MemoryOwner {
    /// The protocol.
    #[default]
    Lent,
    /// The caller, to whom that was not reported yet.
    Untold,
    /// The caller.
    Back,
}

/// A long message under way. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Long {
    /// Link in the free list, or in that of releases to report.
    pub(crate) next: LongIndex,
    pub(crate) source: SourceId,
    pub(crate) total: u64,
    /// Bytes that were copied into frames.
    pub(crate) cut: u64,
    /// Frames with parts of the message that are not acknowledged.
    pub(crate) frames: u32,
    pub(crate) message: MessageNo,
    pub(crate) release: Release,
    /// How the message ended, once its memory is to be released.
    pub(crate) outcome: Outcome,
    pub(crate) memory: MemoryOwner,
    /// No frame has a part of the message any more.
    pub(crate) ended: bool,
}

impl Linked for Long {
    type Index = LongIndex;

    fn next(&mut self) -> &mut LongIndex {
        &mut self.next
    }
}

indexed!(Long, LongIndex);
