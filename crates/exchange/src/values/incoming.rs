//! What comes from other ranks, and what becomes of it.

use super::Kind;

/// The first part of a message of another exchange's, or all of it.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Rank that sent it.
    pub from: u32,
    /// What it is.
    pub kind: Kind,
    /// Argument words, 8 bytes each, little-endian.
    pub args: &'a [u8],
    /// Bytes of its whole payload.
    pub total: u64,
    /// The first of them.
    pub payload: &'a [u8],
}

impl Incoming<'_> {
    pub(crate) const fn is_whole(&self) -> bool {
        self.payload.len() as u64 == self.total
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// All of it was taken.
    Whole,
    /// The rest of its payload goes where [`crate::Exchange::room`] says, or by
    /// [`crate::Exchange::write_part`]; then [`crate::Exchange::arrived`]. The number is never 0.
    Part(u64),
    /// Not now: offer it again when [`crate::Exchange::take_freed`] says so. Replies, and
    /// parts of what was taken before it, must go on arriving meanwhile: it may
    /// wait for those.
    NotNow,
    /// It makes no sense, or comes from somebody dead.
    Refused,
}
