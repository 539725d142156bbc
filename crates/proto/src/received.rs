//! Packets received by a path: the replay window, and the acknowledgement that
//! is owed for them.

mod inflow;

use portolan_wire::{Ack, BITMAP_WORDS_MAX, PacketNo};

use crate::base::{Unusual, WINDOW_SPAN};
use inflow::Inflow;

/// Unit of the delay field, ns.
pub(crate) const DELAY_UNIT_NS: u64 = 64;

/// Divisor: an acknowledgement leaves at once when more packets than this
/// fraction of the rest of the grant are unacknowledged.
const GRANT_PARTS: u64 = 2;

/// Bits of the replay window: twice the send window.
const REPLAY_BITS: u64 = 2 * WINDOW_SPAN as u64;

/// Which acknowledgement is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owed {
    /// No acknowledgement.
    #[default]
    Nothing,
    /// One that may ride on an answer of the application.
    Delayed,
    /// One that must leave in this pass.
    Now,
}

/// What came of the chunks of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// The packet had no chunk.
    Empty,
    /// Each chunk was taken, or is held.
    Taken,
    /// A chunk found no room: the packet is reported as missing, so that its chunks
    /// are sent again.
    Refused,
}

/// What was received by one path. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Received {
    /// One above the largest number received; and the lowest that is missing.
    pub next: u64,
    pub base: u64,
    /// Lowest number whose receipt is known: lower ones are dropped as replays,
    /// but not acknowledged.
    unsure_to: u64,
    /// When the largest number arrived, ns.
    largest_at: u64,
    /// Packets that carried the congestion mark.
    marks: u32,
    owed: Owed,
    /// Packets with chunks since the last acknowledgement left.
    unacked: u32,
    /// Packets with chunks since [`Received::take_came`].
    came: u32,
    /// Limit of packet numbers that was granted, all 64 bits.
    granted: u64,
    inflow: Inflow,
    seen: [u64; REPLAY_BITS as usize / 64],
}

impl Default for Received {
    fn default() -> Self {
        Self {
            next: 0,
            base: 0,
            unsure_to: 0,
            largest_at: 0,
            marks: 0,
            owed: Owed::Nothing,
            unacked: 0,
            came: 0,
            granted: 0,
            inflow: Inflow::default(),
            seen: [0; REPLAY_BITS as usize / 64],
        }
    }
}

impl Received {
    /// State of a path that was parked with `next`, and `missing` numbers below
    /// it of which some were not received. `marks` is where their count begins.
    pub fn resume(next: u64, missing: u16, marks: u32) -> Self {
        Self {
            next,
            base: next - u64::from(missing),
            unsure_to: next,
            granted: next,
            marks,
            seen: [u64::MAX; REPLAY_BITS as usize / 64],
            ..Self::default()
        }
    }

    /// The peer's first packet has this number, and it may send `window` packets.
    pub const fn begin(&mut self, first: u64, window: u64) {
        self.next = first;
        self.base = first;
        self.granted = first.saturating_add(window);
    }

    /// Numbers right below `next` of which some may be missing.
    pub const fn missing(&self) -> u16 {
        (self.next - self.base) as u16
    }

    /// The packet number whose low bits are in a header (P2.8).
    #[inline]
    pub fn number(&self, low: u32) -> u64 {
        PacketNo(self.next).nearest(low).0
    }

    const fn place(number: u64) -> (usize, u64) {
        let bit = number % REPLAY_BITS;
        ((bit / 64) as usize, 1 << (bit % 64))
    }

    /// Whether a number was received before or is too old to tell (P2.9, P2.10).
    #[inline]
    pub const fn is_replay(&self, number: u64) -> bool {
        if number >= self.next {
            return false;
        }
        if self.next - number > REPLAY_BITS {
            return true;
        }
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }

    /// Whether a number is known to have been received.
    const fn has(&self, number: u64) -> bool {
        number >= self.unsure_to && self.is_replay(number)
    }

    /// Whether nothing is missing.
    #[inline]
    pub const fn is_whole(&self) -> bool {
        self.base == self.next
    }

    /// Counts the congestion mark of a packet.
    #[inline]
    pub const fn mark(&mut self, marked: bool) {
        self.marks = self.marks.wrapping_add(marked as u32);
    }

    /// Notes a packet that was read. `ack_wanted`: it asks for an
    /// acknowledgement. Returns which one is owed for it (P6.2, P6.5, P6.7).
    #[inline]
    pub fn note(&mut self, now: u64, number: u64, contents: Contents, ack_wanted: bool) -> Owed {
        let gap = self.note_number(now, number, contents != Contents::Refused);
        self.owe_for(contents, gap, ack_wanted)
    }

    /// Notes a packet with messages that were taken, the next one where nothing is missing: as
    /// [`Received::note`].
    #[inline]
    pub fn note_next(&mut self, now: u64, ack_wanted: bool) -> Owed {
        let (word, bit) = Self::place(self.next);
        self.seen[word] |= bit;
        self.next += 1;
        self.base = self.next;
        self.largest_at = now;
        self.owe_for(Contents::Taken, false, ack_wanted)
    }

    /// Which acknowledgement is owed for a packet that was noted, and may have shown a new gap.
    #[inline]
    fn owe_for(&mut self, contents: Contents, gap: bool, ack_wanted: bool) -> Owed {
        if contents == Contents::Taken {
            self.unacked += 1;
            self.came = self.came.saturating_add(1);
        }
        let owed = match contents {
            // A peer that asks must learn that we live.
            Contents::Refused if gap || ack_wanted => Owed::Now,
            Contents::Refused => Owed::Nothing,
            _ if gap || (contents == Contents::Taken && self.uses_up_grant()) => Owed::Now,
            _ if ack_wanted => Owed::Delayed,
            _ => Owed::Nothing,
        };
        self.owe(owed);
        owed
    }

    /// Notes the number of a packet; returns whether that shows a new gap.
    fn note_number(&mut self, now: u64, number: u64, taken: bool) -> bool {
        let mut gap = false;
        if number >= self.next {
            gap = number > self.next;
            let skipped = number - self.next;
            if skipped >= REPLAY_BITS {
                self.seen.fill(0);
            } else {
                for n in self.next..=number {
                    let (word, bit) = Self::place(n);
                    self.seen[word] &= !bit;
                }
            }
            self.next = number + 1;
            self.largest_at = now;
        }
        if taken {
            let (word, bit) = Self::place(number);
            self.seen[word] |= bit;
        }
        // Only as far back as a bitmap reaches: the sender's window is no wider.
        self.base = self.base.max(self.next.saturating_sub(WINDOW_SPAN as u64));
        while self.base < self.next && self.has(self.base) {
            self.base += 1;
        }
        gap
    }

    /// Whether so much of the grant is used up that an acknowledgement leaves at once (P6.3).
    #[inline]
    const fn uses_up_grant(&self) -> bool {
        let granted = self.granted.saturating_sub(self.next);
        self.unacked as u64 * GRANT_PARTS > granted
    }

    /// What is unusual about it.
    #[inline]
    pub fn unusual(&self) -> Unusual {
        Unusual::ACK_NOW.when(self.owed == Owed::Now)
    }

    /// Acknowledgement that is owed.
    #[inline]
    pub const fn owed(&self) -> Owed {
        self.owed
    }

    /// Notes that an acknowledgement is owed, at least this urgently.
    #[inline]
    pub fn owe(&mut self, owed: Owed) {
        self.owed = self.owed.max(owed);
    }

    /// Whether an acknowledgement would say something new (P6.6).
    #[inline]
    pub fn has_news(&self) -> bool {
        self.owed != Owed::Nothing || self.unacked > 0
    }

    /// Packets with chunks since the last call.
    #[inline]
    pub const fn take_came(&mut self) -> u32 {
        core::mem::replace(&mut self.came, 0)
    }

    /// Whether packets come spread over time, beside a receive buffer of
    /// `share` packets: [`Inflow::is_spread`].
    #[inline]
    pub fn is_spread(&mut self, now: u64, share: u64) -> bool {
        self.inflow.is_spread(now, self.next, share)
    }

    /// The acknowledgement as of now, which grants `room` packets beyond the
    /// last; the caller adds path and credit. It counts once [`Received::acknowledged`].
    /// (P2.14, P2.15, P2.16, P7.3)
    #[inline]
    pub fn ack(&mut self, now: u64, room: u64) -> Ack {
        self.granted = self.granted.max(self.next.saturating_add(room));
        let largest = self.next.wrapping_sub(1);
        let delay = now.saturating_sub(self.largest_at) / DELAY_UNIT_NS;
        let mut ack = Ack {
            delay: delay.min(u64::from(u16::MAX)) as u16,
            ce: self.marks,
            largest: largest as u32,
            base: self.base as u32,
            packet_limit: self.granted as u32,
            ..Ack::default()
        };
        let span = (self.next - self.base) as usize;
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

    /// An acknowledgement of all that was received has left.
    #[inline]
    pub const fn acknowledged(&mut self) {
        self.owed = Owed::Nothing;
        self.unacked = 0;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// A path whose first packet is `first`, with a grant of 100 packets.
    fn begun(first: u64) -> Received {
        let mut received = Received::resume(0, 0, 0);
        received.begin(first, 100);
        received
    }

    /// Numbers below `ack.largest` that an acknowledgement shows as missing.
    fn missing(ack: &Ack) -> Vec<u32> {
        let bit = |i: u32| ack.bitmap[i as usize / 64] >> (i % 64) & 1 == 1;
        let span = ack.largest.wrapping_add(1).wrapping_sub(ack.base);
        assert_eq!(u32::from(ack.words), span.div_ceil(64));
        (0..span)
            .filter(|&i| !bit(i))
            .map(|i| ack.base.wrapping_add(i))
            .collect()
    }

    fn take(received: &mut Received, number: u64) -> Owed {
        assert!(!received.is_replay(number), "{number}");
        let owed = received.note(0, number, Contents::Taken, false);
        assert!(received.is_replay(number), "{number}");
        owed
    }

    #[test]
    fn the_next_packet_is_noted_as_any_other() {
        let mut usual = begun(10);
        // All bits are set at first: a leap clears them. Then nothing is missing any more.
        let leap = 10 + 2 * REPLAY_BITS;
        for number in (leap + 1 - WINDOW_SPAN as u64..=leap).rev() {
            take(&mut usual, number);
        }
        assert!(usual.is_whole());
        usual.ack(0, 100);
        usual.acknowledged();
        let mut quick = usual;
        for number in leap + 1..leap + 1 + 3 * REPLAY_BITS {
            let asks = number % 3 == 0;
            let owed = usual.note(number, number, Contents::Taken, asks);
            assert_eq!((quick.note_next(number, asks), quick), (owed, usual));
            // Now and then more is granted, after more than half of it was used up.
            if number % 60 == 0 {
                for it in [&mut usual, &mut quick] {
                    it.ack(number, 100);
                    it.acknowledged();
                }
            }
        }
    }

    /// Checks P2.9.
    #[test]
    fn each_number_is_new_once() {
        let mut received = begun(10);
        for number in [10, 12, 11, 15] {
            take(&mut received, number);
        }
        assert_eq!((received.next, received.base), (16, 13));
        assert!(!received.is_replay(13) && !received.is_replay(14));
        assert!(!received.is_replay(16) && !received.is_replay(u64::MAX));
    }

    /// Checks P2.9.
    #[test]
    fn numbers_behind_the_window_are_old() {
        let mut received = begun(0);
        take(&mut received, REPLAY_BITS);
        // Bit 0 was number 0's, and is that of the largest.
        assert!(!received.is_replay(1));
        assert!(received.is_replay(0));
        // A leap over the whole window forgets what was in it.
        take(&mut received, 1);
        take(&mut received, 10 * REPLAY_BITS);
        assert!(!received.is_replay(9 * REPLAY_BITS + 1));
        assert!(received.is_replay(9 * REPLAY_BITS - 1));
    }

    #[test]
    fn a_leap_clears_the_bits_between() {
        let mut received = begun(0);
        for number in 0..REPLAY_BITS {
            take(&mut received, number);
        }
        take(&mut received, 2 * REPLAY_BITS - 2);
        for number in REPLAY_BITS..2 * REPLAY_BITS - 2 {
            assert!(!received.is_replay(number), "{number}");
        }
        assert!(received.is_replay(REPLAY_BITS - 1));
    }

    /// Checks P2.14, P2.15, P2.16.
    #[test]
    fn an_acknowledgement_names_what_is_missing() {
        let mut received = begun(5);
        let ack = received.ack(0, 10);
        assert_eq!((ack.base, ack.largest, missing(&ack)), (5, 4, Vec::new()));
        for number in [5, 6, 8, 9, 80, 82] {
            take(&mut received, number);
        }
        let ack = received.ack(0, 10);
        let expected: Vec<u32> = [7].into_iter().chain(10..80).chain([81]).collect();
        assert_eq!((ack.base, ack.largest), (7, 82));
        assert_eq!(missing(&ack), expected);
        take(&mut received, 7);
        let ack = received.ack(0, 10);
        assert_eq!((ack.base, ack.words), (10, 2));
    }

    /// Checks P2.14.
    #[test]
    fn what_is_too_far_back_is_no_more_missing() {
        let mut received = begun(0);
        take(&mut received, WINDOW_SPAN as u64 + 4);
        let ack = received.ack(0, 0);
        assert_eq!((ack.base, received.base), (5, 5));
        assert_eq!(usize::from(ack.words), WINDOW_SPAN / 64);
        assert_eq!(missing(&ack).len(), WINDOW_SPAN - 1);
    }

    /// Checks P12.4.
    #[test]
    fn numbers_from_before_a_pause_are_replays_and_not_acknowledged() {
        let mut received = Received::resume(1_000, 3, 7);
        assert_eq!((received.next, received.missing()), (1_000, 3));
        assert!(received.is_replay(999) && received.is_replay(997) && received.is_replay(5));
        take(&mut received, 1_000);
        let ack = received.ack(0, 0);
        assert_eq!((ack.base, ack.ce), (997, 7));
        assert_eq!(missing(&ack), [997, 998, 999]);
    }

    /// Checks P2.8.
    #[test]
    fn a_header_s_number_is_the_nearest() {
        let received = begun((1 << 32) + 5);
        assert_eq!(received.number(5), (1 << 32) + 5);
        assert_eq!(received.number(u32::MAX), (1 << 32) - 1);
    }

    /// Checks P6.11.
    #[test]
    fn a_refused_packet_counts_as_missing_and_may_come_again() {
        let mut received = begun(0);
        take(&mut received, 0);
        assert_eq!(received.note(0, 1, Contents::Refused, false), Owed::Nothing);
        assert!(!received.is_replay(1));
        assert_eq!((received.next, received.base), (2, 1));
        // One that asks, or shows a gap, is answered at once.
        assert_eq!(received.note(0, 2, Contents::Refused, true), Owed::Now);
        let mut received = begun(0);
        assert_eq!(received.note(0, 4, Contents::Refused, false), Owed::Now);
        // No chunk of it counts.
        assert_eq!((received.unacked, received.take_came()), (0, 0));
    }

    /// Checks P6.2, P6.5.
    #[test]
    fn an_acknowledgement_is_owed_when_asked_for_and_at_once_for_a_gap() {
        let mut received = begun(0);
        assert_eq!(received.note(0, 0, Contents::Empty, false), Owed::Nothing);
        assert!(!received.has_news());
        assert_eq!(received.note(0, 1, Contents::Taken, false), Owed::Nothing);
        assert!(received.has_news());
        assert_eq!(received.note(0, 2, Contents::Empty, true), Owed::Delayed);
        assert_eq!(received.owed(), Owed::Delayed);
        assert_eq!(received.note(0, 4, Contents::Empty, false), Owed::Now);
        // What is less urgent changes nothing.
        assert_eq!(received.note(0, 3, Contents::Taken, true), Owed::Delayed);
        assert_eq!(received.owed(), Owed::Now);
        received.acknowledged();
        assert_eq!(
            (received.owed(), received.has_news()),
            (Owed::Nothing, false)
        );
    }

    /// Checks P6.3.
    #[test]
    fn the_sender_hears_in_time_that_it_may_send_more() {
        let mut received = begun(0);
        received.ack(0, 0);
        // 100 were granted: the 34th leaves 66, of which it is more than half.
        for number in 0..33 {
            assert_eq!(take(&mut received, number), Owed::Nothing, "{number}");
        }
        assert_eq!(take(&mut received, 33), Owed::Now);
        received.acknowledged();
        assert_eq!(take(&mut received, 34), Owed::Nothing);
        // Where 99 were granted, 33 are exactly half of the rest.
        let mut received = begun(0);
        received.begin(0, 99);
        for number in 0..33 {
            assert_eq!(take(&mut received, number), Owed::Nothing, "{number}");
        }
        assert_eq!(take(&mut received, 33), Owed::Now);
        // Packets without chunks use nothing up.
        let mut received = begun(0);
        for number in 0..200 {
            let owed = received.note(0, number, Contents::Empty, false);
            assert_eq!(owed, Owed::Nothing, "{number}");
        }
    }

    /// Checks P7.3.
    #[test]
    fn a_grant_is_never_taken_back() {
        let mut received = begun(0);
        take(&mut received, 0);
        assert_eq!(received.ack(0, 500).packet_limit, 501);
        assert_eq!(received.ack(0, 10).packet_limit, 501);
        assert_eq!(received.ack(0, 501).packet_limit, 502);
    }

    #[test]
    fn the_delay_is_that_of_the_largest_number() {
        let mut received = begun(0);
        received.note(1_000, 1, Contents::Taken, false);
        received.note(5_000, 0, Contents::Taken, false);
        assert_eq!(received.ack(1_000 + 3 * DELAY_UNIT_NS, 0).delay, 3);
        assert_eq!(received.ack(u64::MAX, 0).delay, u16::MAX);
        assert_eq!(received.ack(0, 0).delay, 0);
    }

    #[test]
    fn marks_and_packets_are_counted() {
        let mut received = Received::resume(0, 0, u32::MAX);
        received.mark(false);
        assert_eq!(received.ack(0, 0).ce, u32::MAX);
        received.mark(true);
        received.mark(true);
        assert_eq!(received.ack(0, 0).ce, 1);
        take(&mut received, 0);
        take(&mut received, 1);
        assert_eq!((received.take_came(), received.take_came()), (2, 0));
    }

    #[test]
    fn an_acknowledgement_that_must_leave_now_is_unusual() {
        let mut received = begun(5);
        assert!(received.unusual().is_nothing());
        received.owe(Owed::Delayed);
        assert!(received.unusual().is_nothing());
        received.owe(Owed::Now);
        assert_eq!(received.unusual(), Unusual::ACK_NOW);
    }
}
