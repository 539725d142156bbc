//! Packets received by a path: the replay window, and the acknowledgement built
//! from it.

use portolan_wire::{Ack, BITMAP_WORDS_MAX};

use super::{Path, REPLAY_BITS};
use crate::base::WINDOW_SPAN;

/// Unit of the delay field, ns.
pub(crate) const DELAY_UNIT_NS: u64 = 64;

/// Divisor: an acknowledgement leaves at once when more packets than this
/// fraction of the rest of the grant are unacknowledged.
const GRANT_PARTS: u64 = 2;

impl Path {
    const fn place(number: u64) -> (usize, u64) {
        let bit = number % REPLAY_BITS;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    /// Whether a number was received before or is too old to tell.
    pub(crate) const fn is_replay(&self, number: u64) -> bool {
        if number >= self.rx_next {
            return false;
        }
        if self.rx_next - number > REPLAY_BITS {
            return true;
        }
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }

    /// Whether a number is known to have been received.
    const fn has(&self, number: u64) -> bool {
        number >= self.unsure_to && self.is_replay(number)
    }

    /// Notes that a packet came; returns whether it shows a new gap. If not
    /// `taken`, its chunks found no room: the packet is a gap itself, which
    /// acknowledgements show as missing, so that its chunks are sent again.
    pub(crate) fn note(&mut self, now: u64, number: u64, taken: bool) -> bool {
        let mut gap = false;
        if number >= self.rx_next {
            gap = number > self.rx_next;
            let skipped = number - self.rx_next;
            if skipped >= REPLAY_BITS {
                self.seen.fill(0);
            } else {
                for n in self.rx_next..=number {
                    let (word, bit) = Self::place(n);
                    self.seen[word] &= !bit;
                }
            }
            self.rx_next = number + 1;
            self.largest_at = now;
        }
        if taken {
            let (word, bit) = Self::place(number);
            self.seen[word] |= bit;
        }
        // Only as far back as a bitmap reaches: the sender's window is no wider.
        self.base = self
            .base
            .max(self.rx_next.saturating_sub(WINDOW_SPAN as u64));
        while self.base < self.rx_next && self.has(self.base) {
            self.base += 1;
        }
        gap
    }

    /// The acknowledgement as of now, without limits and credit.
    pub(crate) fn ack(&self, now: u64) -> Ack {
        let largest = self.rx_next.wrapping_sub(1);
        let delay = now.saturating_sub(self.largest_at) / DELAY_UNIT_NS;
        let mut ack = Ack {
            path: self.id,
            delay: delay.min(u64::from(u16::MAX)) as u16,
            ce: self.ce,
            largest: largest as u32,
            base: self.base as u32,
            words: 0,
            ..Ack::default()
        };
        let span = (self.rx_next - self.base) as usize;
        if span > 0 {
            ack.words = span.div_ceil(64).min(BITMAP_WORDS_MAX) as u8;
            for i in 0..span {
                if self.has(self.base + i as u64) {
                    ack.bitmap[i / 64] |= 1 << (i % 64);
                }
            }
        }
        ack
    }

    /// Whether so much of the grant is used up that an acknowledgement leaves at once.
    #[inline]
    pub(crate) const fn uses_up_grant(&self) -> bool {
        let granted = self.granted.saturating_sub(self.rx_next);
        self.unacked as u64 * GRANT_PARTS > granted
    }
}
