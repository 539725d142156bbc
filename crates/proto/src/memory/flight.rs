//! How a frame last left, and how before.

use portolan_wire::HEADER_BYTES;

use crate::base::{FrameIndex, PathIndex, indexed};

/// The transmissions of a frame. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flight {
    /// Path of the last transmission, and the packet number there.
    pub(crate) path: PathIndex,
    pub(crate) number: u64,
    /// When that was, ns.
    pub(crate) sent_at: u64,
    /// Key phase in which the frame was sealed.
    pub(crate) phase: u32,
    /// Header that the frame was sealed with.
    pub(crate) header: [u8; HEADER_BYTES],
    /// Bytes between header and chunks when the frame was sealed.
    pub(crate) ack_len: u16,
    /// The link reads the frame: its bytes must not change.
    pub(crate) in_link: bool,
    /// Sent before, under another number.
    pub(crate) again: bool,
    /// The first and the last transmission that was given up, with at least the
    /// present chunks.
    pub(crate) given_up: [GivenUp; 2],
}

/// A transmission that was given up, though it may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GivenUp {
    pub path: PathIndex,
    pub number: u64,
    pub sent_at: u64,
}

impl GivenUp {
    /// None was given up.
    pub const NEVER: Self = Self {
        path: PathIndex::NONE,
        number: 0,
        sent_at: 0,
    };
}

impl Default for GivenUp {
    fn default() -> Self {
        Self::NEVER
    }
}

impl Flight {
    /// Forgets all transmissions. What the next one sets stays as it was.
    #[inline]
    pub(crate) const fn begin(&mut self) {
        self.again = false;
        self.given_up = [GivenUp::NEVER; 2];
        self.ack_len = 0;
    }

    /// When the frame left as packet `number` of a path, if that was given up:
    /// once that packet has arrived, the frame need not leave again.
    pub(crate) fn left_as(&self, path: PathIndex, number: u64) -> Option<u64> {
        let mut given_up = self.given_up.iter();
        let it = given_up.find(|it| (it.path, it.number) == (path, number))?;
        Some(it.sent_at)
    }
}

indexed!(Flight, FrameIndex);
