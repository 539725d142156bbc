//! Sequence numbers and the two priorities.

/// The number of one packet on one path: 64 bits, never reused, the low 32
/// of which travel. It is also the AEAD nonce's counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNo(pub u64);

impl PacketNo {
    /// The 32 bits that travel.
    #[inline]
    #[must_use]
    pub const fn low(self) -> u32 {
        self.0 as u32
    }

    /// The full number nearest to `self` whose low 32 bits are `low` (P2.8).
    #[inline]
    #[must_use]
    pub const fn nearest(self, low: u32) -> Self {
        let delta = low.wrapping_sub(self.0 as u32) as i32;
        // There are no numbers below zero or past the end: stay in the lap.
        match self.0.checked_add_signed(delta as i64) {
            Some(n) => Self(n),
            None => Self(self.0 - self.low() as u64 + low as u64),
        }
    }

    /// The following number.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The number of a message within its (sender, receiver, priority, flow).
/// Wraps; two numbers compare by their distance (RFC 1982).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MessageNo(pub u32);

impl MessageNo {
    /// Signed distance from `other` to `self`; positive when `self` is later (P5.1).
    #[inline]
    #[must_use]
    pub const fn since(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// The following number.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// The two priorities. A reply is never blocked behind requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Ordinary messages.
    #[default]
    Request = 0,
    /// Answers: send queue, pool and receive ring keep room for them.
    Reply = 1,
}

impl Priority {
    /// Both, replies first: the order in which they leave.
    pub const BY_URGENCY: [Self; 2] = [Self::Reply, Self::Request];

    /// 0 for requests, 1 for replies.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}
