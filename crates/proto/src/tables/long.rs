//! Long messages under way.

use portolan_wire::MessageNo;

use crate::base::{Linked, LongIndex, Outcome, Release, SourceId, indexed};

/// Whose the memory of a long message is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    /// The protocol's.
    #[default]
    Lent,
    /// The caller's, who has not asked yet.
    Untold,
    /// The caller's.
    Back,
}

/// A long message under way. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Long {
    /// Link in the free list, or of those whose end is to be told.
    pub(crate) next: LongIndex,
    pub(crate) source: SourceId,
    pub(crate) total: u64,
    /// Bytes that were copied into frames.
    pub(crate) cut: u64,
    /// Frames with parts of it that are not acknowledged.
    pub(crate) frames: u32,
    pub(crate) message: MessageNo,
    pub(crate) release: Release,
    /// How it ended, once its memory is to be given back.
    pub(crate) outcome: Outcome,
    pub(crate) memory: Memory,
    /// No frame has a part of it any more.
    pub(crate) ended: bool,
}

impl Linked for Long {
    type Index = LongIndex;

    fn next(&mut self) -> &mut LongIndex {
        &mut self.next
    }
}

indexed!(Long, LongIndex);
