//! What is confirmed of the packets that a path has sent.

use portolan_wire::{Ack, PacketNo};

use crate::received::DELAY_UNIT_NS;

/// What [`Sent`](super::Sent) reads in an acknowledgement.
pub(crate) trait Confirms {
    /// Limit of packet numbers: the one nearest to `known`.
    fn limit(&self, known: u64) -> u64;

    /// The largest number that was received, and the lowest that may be missing: those nearest to
    /// `next`, the next that leaves.
    fn covers(&self, next: u64) -> (u64, u64);

    /// Whether a number was received that is not below `base`, the lowest that may be missing.
    fn has(&self, number: u64, base: u64) -> bool;

    /// Time since the largest number was received, ns.
    fn delay_ns(&self) -> u64;
}

impl Confirms for Ack {
    #[inline]
    fn limit(&self, known: u64) -> u64 {
        PacketNo(known).nearest(self.packet_limit).0
    }

    #[inline]
    fn covers(&self, next: u64) -> (u64, u64) {
        let next = PacketNo(next);
        (next.nearest(self.largest).0, next.nearest(self.base).0)
    }

    #[inline]
    fn has(&self, number: u64, base: u64) -> bool {
        let bit = number.wrapping_sub(base);
        bit / 64 < u64::from(self.words) && self.bitmap[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    #[inline]
    fn delay_ns(&self) -> u64 {
        u64::from(self.delay) * DELAY_UNIT_NS
    }
}
