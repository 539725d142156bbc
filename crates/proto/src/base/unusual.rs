//! One word for what is unusual.

use core::ops::{BitOr, BitOrAssign};

/// What keeps the next small message to a peer from leaving at once, or makes the next packet
/// other than expected: a set of reasons. Queue, window, credit, clocks, and acknowledgements that
/// may ride along are no reasons: they are compared.
///
/// Where there is none, the next packet needs no look at the values for any of them.
///
/// A value says by a method `unusual` which reasons hold of it. The word of a connection has each
/// reason that holds, and perhaps some that held before: those go once they have been looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Unusual(u16);

impl Unusual {
    pub const NOTHING: Self = Self(0);
    /// Frames wait for a resend.
    pub const RESEND: Self = Self(1);
    /// Chunks of the protocol's own wait.
    pub const CONTROL: Self = Self(1 << 1);
    /// Flows are stopped, by either side, or the peer has yet to hear of a change.
    pub const STOPPED: Self = Self(1 << 2);
    /// Chunks found no room, at either side.
    pub const FULL: Self = Self(1 << 3);
    /// Refusals of messages are to be sent, or may come again.
    pub const REFUSAL: Self = Self(1 << 4);
    /// A ping or a probe is owed.
    pub const PROBE: Self = Self(1 << 5);
    /// An acknowledgement must leave now.
    pub const ACK_NOW: Self = Self(1 << 6);
    /// The key phase is about to end.
    pub const REKEY: Self = Self(1 << 7);
    /// There are several paths, or detours or networks to report.
    pub const PATHS: Self = Self(1 << 8);
    /// Connecting has not ended.
    pub const CONNECT: Self = Self(1 << 9);
    /// The peer takes or sends nothing more.
    pub const ENDING: Self = Self(1 << 10);

    /// This reason if `holds`.
    #[inline]
    pub const fn when(self, holds: bool) -> Self {
        if holds { self } else { Self::NOTHING }
    }

    /// Whether there is no reason.
    #[inline]
    pub const fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `others` are reasons here too.
    pub const fn covers(self, others: Self) -> bool {
        others.0 & !self.0 == 0
    }
}

impl BitOr for Unusual {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Unusual {
    #[inline]
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}
