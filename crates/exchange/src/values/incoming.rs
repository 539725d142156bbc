//! Messages from other ranks, and how they were taken.

use super::Kind;

/// A message from another exchange: its first part, or all of it.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    /// Rank of the sender.
    pub from: u32,
    /// Kind of the message.
    pub kind: Kind,
    /// Argument words, 8 bytes each, little-endian.
    pub args: &'a [u8],
    /// Length of the whole payload, bytes.
    pub total: u64,
    /// First bytes of the payload.
    pub payload: &'a [u8],
}

impl Incoming<'_> {
    pub(crate) const fn is_whole(&self) -> bool {
        self.payload.len() as u64 == self.total
    }
}

/// How [`crate::Exchange::arrive`] took a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncomingOutcome {
    /// The whole message was taken.
    Whole,
    /// The rest of the payload goes where [`crate::Exchange::room`] says, or by
    /// [`crate::Exchange::write_part`]; then call [`crate::Exchange::arrived`]. The number is
    /// never 0.
    Part(u64),
    /// Not now: offer the message again when [`crate::Exchange::take_freed`] returns true.
    /// Replies, and parts of messages taken before, must go on arriving meanwhile: this one may
    /// wait for them.
    NotNow,
    /// Invalid, or the sender is dead.
    Refused,
}
