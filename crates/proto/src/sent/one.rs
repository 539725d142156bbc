//! Acknowledgements that name nothing that is missing and settle one frame at most, as where single
//! small messages go back and forth.

use portolan_wire::Ack;

use super::{ACKED, Confirms, FRAMES, SIZE_PROBE, Sent};
use crate::base::{FrameIndex, WINDOW_SPAN};

/// A packet that has left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Left {
    pub number: u64,
    pub bytes: usize,
    /// When it left, ns.
    pub at: u64,
}

impl Sent {
    /// Whether no frame has the slot of the next number.
    #[inline]
    pub fn has_slot(&self) -> bool {
        self.frame(self.next).is_none()
    }

    /// Counts a packet with chunks that leaves by itself, and so asks for an acknowledgement. Returns
    /// as [`Sent::count`].
    #[inline]
    pub const fn count_one(&mut self, now: u64) -> bool {
        self.since_ask = 0;
        self.count(now)
    }

    /// Where an acknowledgement names nothing that is missing, and settles one
    /// frame at most: its largest number, and the frame with its number.
    /// `None`: [go through](Self::begin_report) its numbers.
    #[inline(always)]
    pub fn settles_one(&self, ack: &Ack) -> Option<(u64, Option<(u64, FrameIndex)>)> {
        let (largest, base) = ack.covers(self.next);
        if largest >= self.next
            || base != largest + 1
            || ack.ce != self.marks_seen
            || self.watch_from != u64::MAX
            || self.lowest < self.acked_to
        {
            return None;
        }
        // A lower number's slot belongs to a later one by now.
        let oldest = self.next.saturating_sub(WINDOW_SPAN as u64);
        let mut found = None;
        for number in self.lowest.max(oldest)..=largest {
            match self.slots[(number % WINDOW_SPAN as u64) as usize] {
                SIZE_PROBE => return None,
                frame if frame < FRAMES => match found {
                    None => found = Some((number, frame)),
                    Some(_) => return None,
                },
                _ => {}
            }
        }
        Some((largest, found))
    }

    /// Takes an acknowledgement up to `largest` that [settles](Self::settles_one) this packet, or
    /// none, as going through its numbers would.
    #[inline(always)]
    pub fn settle_one(&mut self, now: u64, ack: &Ack, largest: u64, packet: Option<Left>) {
        self.limit = self.limit.max(ack.limit(self.limit));
        if let Some(it) = packet {
            *self.slot(it.number) = ACKED;
            self.reordering.took(now.saturating_sub(it.at));
            self.acked(now, it.bytes);
        }
        // Up to there nothing is in flight.
        self.lowest = self.lowest.max(largest + 1);
        self.advance();
        self.acked_to = self.acked_to.max(largest + 1);
        self.reordering.advance(largest);
    }

    /// Takes one packet that was settled into congestion control, as [`Sent::adapt`] would: its round
    /// trip, if it was the largest, the receiver's delay in that, ns, and how many packets came from
    /// the peer meanwhile.
    #[inline(always)]
    pub fn adapt_one(&mut self, now: u64, rtt: Option<u64>, delay: Option<u64>, came: u32) {
        let own = rtt.zip(delay);
        let own = own.map(|(rtt, delay)| rtt.saturating_sub(delay));
        self.put_off(now, 1, came, rtt, own);
    }
}
