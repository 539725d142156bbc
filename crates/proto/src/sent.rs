//! Packets sent by a path: which are in flight, whether one more may leave, and
//! what acknowledgements and silence say of them.

mod batch;
mod confirms;
mod mtu;
mod one;
mod probes;
mod reordering;
#[cfg(test)]
pub(crate) mod tests;

use core::ops::Range;

use portolan_wire::PacketNo;

use crate::base::{FrameIndex, Unusual, WINDOW_SPAN};
use crate::congestion::{AckSample, Congestion, Mode, Pacer, Rtt};
use batch::Batch;
pub(crate) use confirms::Confirms;
pub(crate) use mtu::Mtu;
pub(crate) use one::Left;
pub(crate) use probes::Probes;
use reordering::Reordering;

/// Slot of the send window: nothing to resend under this number.
const NOTHING: FrameIndex = FrameIndex::NONE;
/// Acknowledged.
const ACKED: FrameIndex = FrameIndex::beyond(1);
/// Given up; its chunks went on under another number.
const LOST: FrameIndex = FrameIndex::beyond(2);
/// A probe of the path's packet size.
const SIZE_PROBE: FrameIndex = FrameIndex::beyond(3);
/// Given up because no answer came in time; perhaps only late.
const LATE: FrameIndex = FrameIndex::beyond(4);
/// Slots below this are frames.
const FRAMES: FrameIndex = FrameIndex::beyond(8);

/// Round trips from this on are long, ns: bursts are small, as many
/// acknowledgements at once must not release one that overflows a buffer; and
/// acknowledgements are asked for more often.
const LONG_NS: u64 = 1_000_000;

/// Acknowledgements asked for per window: usually; where round trips are long,
/// though packets come in order, so that half a window does not wait for a slow
/// answer; and where packets were lost lately.
const ASKS: u32 = 2;
const ASKS_LONG: u32 = 8;
const ASKS_LOSSY: u32 = 16;

/// Packet numbers over which given-up packets are watched for a late arrival;
/// the reordering bound comes on top.
const WATCH: u64 = 128;

/// What was sent by one path. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sent {
    /// Number of the next packet.
    pub next: u64,
    /// Numbers below this may be used: what the receiver granted.
    pub limit: u64,
    /// Lowest number whose slot may still hold a frame.
    pub lowest: u64,
    /// One above the largest number that was acknowledged.
    pub acked_to: u64,
    pub flying: u32,
    pub flying_bytes: u64,
    /// Packets with chunks since the last that asked for an acknowledgement.
    since_ask: u32,
    /// Congestion marks by the peer's count, as far as they were read.
    marks_seen: u32,
    /// Lowest and highest number that was given up and may still have arrived;
    /// none if `watch_from` is `u64::MAX`.
    watch_from: u64,
    watch_last: u64,
    pub probes: Probes,
    pub mtu: Mtu,
    /// How far out of order packets arrive.
    reordering: Reordering,
    /// What neither the round trip nor congestion control was told yet.
    batch: Batch,
    rtt: Rtt,
    congestion: Congestion,
    pacer: Pacer,
    /// By packet number modulo [`WINDOW_SPAN`].
    slots: [FrameIndex; WINDOW_SPAN],
}

/// How an acknowledgement is gone through: [`Sent::begin_report`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report {
    /// Largest number received, and the lowest that may be missing.
    largest: u64,
    base: u64,
    /// Lowest number that it says something of.
    oldest: u64,
    /// Numbers to go through, with `largest`.
    from: u64,
    /// Missing packets are given up this many numbers behind the largest, or if
    /// sent before `overdue`, ns.
    reorder: u64,
    overdue: u64,
    /// Longest and usual time for an answer, ns.
    patience: u64,
    usual: u64,
    /// State before the acknowledgement.
    acked_to: u64,
    /// The receiver refuses packets for want of room: nothing is reordered.
    refuses: bool,
}

/// What an acknowledgement says of one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing new.
    Nothing,
    /// The frame has arrived.
    Arrived(FrameIndex),
    /// The packet was given up as lost, and has arrived.
    Spurious,
    /// The packet was given up for the time alone, and has arrived. With the
    /// acknowledgement's delay, ns, the time since it left is a round trip.
    Late(Option<u64>),
    /// The frame is to be given up: [`Sent::lost`].
    Missing(FrameIndex),
}

impl Default for Sent {
    fn default() -> Self {
        Self {
            next: 0,
            limit: 0,
            lowest: 0,
            acked_to: 0,
            flying: 0,
            flying_bytes: 0,
            since_ask: 0,
            marks_seen: 0,
            watch_from: u64::MAX,
            watch_last: 0,
            probes: Probes::default(),
            mtu: Mtu::BASE,
            reordering: Reordering::default(),
            batch: Batch::EMPTY,
            rtt: Rtt::new(),
            congestion: Congestion::new(Mode::Lan, 1232, WINDOW_SPAN as u32),
            pacer: Pacer::new(),
            slots: [NOTHING; WINDOW_SPAN],
        }
    }
}

impl Sent {
    /// State of a path that goes on with number `next`, of which `limit` was
    /// granted.
    pub fn resume(next: u64, limit: u64, congestion: Congestion) -> Self {
        Self {
            next,
            limit,
            lowest: next,
            acked_to: next,
            congestion,
            ..Self::default()
        }
    }

    /// The peer accepts `window` packets more.
    pub const fn grant(&mut self, window: u16) {
        self.limit = self.next + window as u64;
    }

    const fn slot(&mut self, number: u64) -> &mut FrameIndex {
        &mut self.slots[(number % WINDOW_SPAN as u64) as usize]
    }

    /// The frame that is in flight under a number; of one that is not in use
    /// yet, under the number that has its slot.
    pub fn frame(&self, number: u64) -> Option<FrameIndex> {
        let slot = self.slots[(number % WINDOW_SPAN as u64) as usize];
        (slot < FRAMES).then_some(slot)
    }

    /// Frames in flight, in no order.
    pub fn frames(&self) -> impl Iterator<Item = FrameIndex> {
        self.slots.iter().copied().filter(|&slot| slot < FRAMES)
    }

    /// Numbers that may be in flight.
    pub const fn numbers(&self) -> Range<u64> {
        self.lowest..self.next
    }

    /// Whether a packet whose number has these low bits is unacknowledged.
    pub fn is_unacknowledged(&self, low: u32) -> bool {
        let number = PacketNo(self.next).nearest(low).0;
        (self.acked_to..self.next).contains(&number)
    }

    /// Whether the window with `spare` more, the receive buffer and the bitmap
    /// allow one more packet with chunks (P7.1, P7.2).
    #[inline]
    pub fn is_open(&self, spare: u32) -> bool {
        self.flying < self.congestion.window() + spare
            // Acknowledgements take numbers too, and are not held back by the
            // limit: those of a busy other direction must not use it up.
            && (self.next < self.limit || self.flying == 0)
            && self.next - self.lowest.min(self.next) < WINDOW_SPAN as u64
    }

    /// When the pacer lets the next packet leave, ns.
    #[inline]
    pub fn ready_at(&self, now: u64) -> u64 {
        self.pacer.ready_at(now)
    }

    /// What is unusual about it.
    #[inline]
    pub const fn unusual(&self) -> Unusual {
        Unusual::PROBE.when(self.probes.owes_ping() || self.probes.owes_probe())
    }

    /// Packets that congestion control allows in flight.
    #[inline]
    pub fn window(&self) -> u32 {
        self.congestion.window()
    }

    /// Used part of the window, of 2^16.
    pub fn load(&self) -> u64 {
        (u64::from(self.flying) << 16) / u64::from(self.window().max(1))
    }

    /// Smoothed round trip, ns, once one was measured.
    pub const fn round_trip(&self) -> Option<u64> {
        self.rtt.smoothed()
    }

    /// Whether round trips are long.
    fn is_long(&self) -> bool {
        self.rtt.smoothed().is_some_and(|rtt| rtt >= LONG_NS)
    }

    /// Longest time that an answer may take, ns: [`Rtt::probe_after`], with the
    /// lateness seen in reordering.
    #[inline]
    pub fn answer_after(&self, slack_ns: u64, backoff: u8) -> u64 {
        let slack = slack_ns.saturating_add(self.reordering.late_ns());
        self.rtt.probe_after(slack, backoff)
    }

    /// Whether the next packet with chunks, which leaves now, asks for an
    /// acknowledgement; `urgent`: it does in any case.
    #[inline]
    pub fn ask(&mut self, urgent: bool) -> bool {
        self.since_ask += 1;
        let granted = self.limit.saturating_sub(self.acked_to);
        let granted = granted.min(u64::from(u32::MAX)) as u32;
        let window = self.congestion.window().min(granted).max(1);
        // Where packets get lost, acknowledgements do too, and a stall costs a
        // probe: ask more often.
        let parts = if self.watch_from != u64::MAX {
            ASKS_LOSSY
        } else if self.is_long() && self.reordering.late_ns() == 0 {
            ASKS_LONG
        } else {
            ASKS
        };
        let ask = self.probes.take_probe()
            || urgent
            || self.flying + 1 >= window
            || self.since_ask * parts >= window;
        if ask {
            self.since_ask = 0;
        }
        ask
    }

    /// Owes a ping if packets are in flight that were not asked about, as
    /// nothing more leaves for now.
    pub const fn ask_about_rest(&mut self) {
        if self.since_ask > 0 && self.flying > 0 {
            self.since_ask = 0;
            self.probes.owe_ping();
        }
    }

    /// Counts a packet with chunks as in flight; it has no number yet. Returns
    /// whether the probe clock runs on as it was. The clock runs since the first
    /// packet in flight, or since the last answer.
    #[inline]
    pub const fn count(&mut self, now: u64) -> bool {
        let first = self.flying == 0;
        if first {
            self.probes.start(now);
        }
        self.flying += 1;
        !first && self.probes.is_calm()
    }

    /// Notes that a frame that was [counted](Self::count) has left under a number.
    #[inline]
    pub fn left(&mut self, now: u64, number: u64, frame: FrameIndex, bytes: u32) {
        *self.slot(number) = frame;
        self.flying_bytes += u64::from(bytes);
        self.pacer.sent(now, bytes);
        self.congestion.on_sent(now, bytes, self.flying);
    }

    /// Notes that a probe of the packet size has left under a number.
    pub const fn size_probe_left(&mut self, number: u64) {
        *self.slot(number) = SIZE_PROBE;
    }

    /// Takes a number for a packet. Its slot holds no frame.
    #[inline]
    pub const fn take_number(&mut self, number: u64) {
        *self.slot(number) = NOTHING;
        self.next = number + 1;
    }

    /// Takes the limit of numbers and the congestion marks that an
    /// acknowledgement reports (P2.12, P2.17).
    ///
    /// Returns the largest and lowest number that it speaks of; `None` if
    /// nothing was received yet, or it names numbers that were never sent.
    #[inline]
    pub fn read(&mut self, ack: &impl Confirms) -> Option<(u64, u64)> {
        self.limit = self.limit.max(ack.limit(self.limit));
        let (largest, base) = ack.covers(self.next);
        (largest < self.next && base <= largest + 1).then_some((largest, base))
    }

    /// Packets marked since the last acknowledgement, by the peer's count (P2.13).
    pub const fn new_marks(&mut self, marks: u32, largest: u64) -> u32 {
        let new = marks.wrapping_sub(self.marks_seen);
        if new <= WINDOW_SPAN as u32 {
            self.marks_seen = marks;
            return new;
        }
        // An older acknowledgement came late; or this is the first, or the peer
        // was parked and counts anew.
        if largest >= self.acked_to {
            self.marks_seen = marks;
        }
        0
    }

    /// Begins to go through the numbers that an acknowledgement speaks of.
    #[inline]
    pub fn begin_report(
        &self,
        now: u64,
        (largest, base): (u64, u64),
        refuses: bool,
        slack_ns: u64,
    ) -> Report {
        let oldest = largest.saturating_sub(WINDOW_SPAN as u64 - 1);
        let from = (self.watch_from.min(self.lowest)).max(oldest.min(self.lowest));
        let patience = self.answer_after(slack_ns, 0);
        Report {
            largest,
            base,
            oldest,
            // A lower number's slot belongs to a later one by now.
            from: from.max(self.next.saturating_sub(WINDOW_SPAN as u64)),
            // A receiver without room reports what it refused: nothing is reordered.
            reorder: if refuses {
                0
            } else {
                u64::from(self.reordering.packets())
            },
            overdue: now.saturating_sub(patience),
            patience,
            usual: self.rtt.smoothed().unwrap_or(0),
            acked_to: self.acked_to,
            refuses,
        }
    }

    /// What an acknowledgement says of one of the [numbers](Report::numbers);
    /// `sent_at`: when a frame was last sent, ns.
    #[inline]
    pub fn find(
        &mut self,
        now: u64,
        ack: &impl Confirms,
        report: &Report,
        number: u64,
        sent_at: impl Fn(FrameIndex) -> u64,
    ) -> Finding {
        let Report { largest, base, .. } = *report;
        let arrived = number >= report.oldest && (number < base || ack.has(number, base));
        let slot = *self.slot(number);
        match (arrived, slot) {
            (true, LOST) => {
                *self.slot(number) = ACKED;
                let overtaken_by = report.acked_to.saturating_sub(number + 1);
                let late = report.patience.saturating_sub(report.usual);
                self.reordering.given_up_too_early(overtaken_by, late);
                Finding::Spurious
            }
            // Late: no sign of reordering, but of how long the timer has to
            // wait, for packets that are never given up are the quickest.
            (true, LATE) => {
                *self.slot(number) = ACKED;
                // The delay in the acknowledgement is that of the largest.
                Finding::Late((number == largest).then(|| ack.delay_ns()))
            }
            (true, SIZE_PROBE) => {
                *self.slot(number) = ACKED;
                self.mtu.probe_acked(now, number);
                Finding::Nothing
            }
            (true, frame) if frame < FRAMES => {
                *self.slot(number) = ACKED;
                let took = now.saturating_sub(sent_at(frame));
                self.reordering.took(took);
                if number < report.acked_to && !report.refuses {
                    let late = took.saturating_sub(report.usual);
                    let overtaken_by = report.acked_to - number - 1;
                    self.reordering.came_late(overtaken_by, late);
                }
                Finding::Arrived(frame)
            }
            (false, SIZE_PROBE) if number + report.reorder < largest => {
                *self.slot(number) = ACKED;
                self.mtu.probe_lost(number);
                Finding::Nothing
            }
            // The largest itself is missing only if it was refused.
            (false, frame)
                if frame < FRAMES
                    && (number + report.reorder < largest
                        || number == largest
                        || sent_at(frame) < report.overdue) =>
            {
                Finding::Missing(frame)
            }
            _ => Finding::Nothing,
        }
    }

    /// A packet of `bytes` in flight was acknowledged.
    #[inline]
    pub fn acked(&mut self, now: u64, bytes: usize) {
        self.flying -= 1;
        self.flying_bytes -= bytes as u64;
        self.mtu.acked(now, bytes);
    }

    /// The frame under a number, whose chunks arrived by another packet, is no
    /// longer needed; it still counts as in flight.
    pub const fn settle(&mut self, number: u64) {
        *self.slot(number) = ACKED;
    }

    /// Counts a packet of `bytes` that was given up as in flight, since it has
    /// arrived after all.
    pub const fn count_again(&mut self, bytes: usize) {
        self.flying += 1;
        self.flying_bytes += bytes as u64;
    }

    /// A packet that only came late measures the round trip.
    pub fn came_late(&mut self, round_trip: u64) {
        self.rtt.sample(round_trip);
    }

    /// A packet of `bytes` in flight is given up: its chunks leave again under
    /// another number. `late`: for no other reason than the time.
    pub fn lost(&mut self, now: u64, number: u64, bytes: usize, late: bool) {
        *self.slot(number) = if late { LATE } else { LOST };
        self.watch_from = self.watch_from.min(number);
        self.watch_last = self.watch_last.max(number);
        self.flying -= 1;
        self.flying_bytes -= bytes as u64;
        self.mtu.lost(now, bytes);
    }

    /// Moves the window's lower edge past settled numbers.
    #[inline]
    pub fn advance(&mut self) {
        while self.lowest < self.next {
            let slot = *self.slot(self.lowest);
            if slot < FRAMES || slot == SIZE_PROBE && self.lowest >= self.acked_to {
                break;
            }
            self.lowest += 1;
        }
    }

    /// Ends the report of an acknowledgement up to `largest`; returns whether
    /// that is new.
    #[inline]
    pub fn end_report(&mut self, largest: u64) -> bool {
        let new = largest >= self.acked_to;
        self.acked_to = self.acked_to.max(largest + 1);
        self.reordering.advance(largest);
        let watch = WATCH + u64::from(self.reordering.packets());
        let watched = largest.saturating_sub(watch);
        self.watch_from = if self.watch_last < watched {
            u64::MAX
        } else {
            self.watch_from.max(watched)
        };
        new
    }

    /// An acknowledgement has shown nothing but marks: they count with the next
    /// packets that are reported.
    pub const fn put_back_marks(&mut self, marks: u32) {
        self.marks_seen = self.marks_seen.wrapping_sub(marks);
    }

    /// Takes what an acknowledgement has shown into congestion control, which is told of some at
    /// a time where nothing was lost or marked and the window limits nothing. `delay`:
    /// the receiver's own part of the round trip, ns, if both had a core all
    /// that time. `refused`: the receiver refused what is missing; the network
    /// did not lose it.
    #[inline]
    pub fn adapt(&mut self, now: u64, sample: &mut AckSample, delay: Option<u64>, refused: bool) {
        let whole = sample.rtt_ns;
        let rtt = whole.zip(delay);
        sample.rtt_ns = rtt.map(|(whole, delay)| whole.saturating_sub(delay));
        if refused {
            sample.lost_packets = 0;
        }
        if sample.lost_packets > 0 {
            self.probes.lost(now);
        }
        let is_calm = sample.lost_packets | sample.ce_packets | sample.spurious_packets == 0;
        if is_calm && sample.app_limited {
            let (acked, came) = (sample.acked_packets, sample.came_packets);
            self.put_off(now, acked, came, whole, sample.rtt_ns);
            return;
        }
        // Each by itself: what was acknowledged before may have ended a recovery.
        self.tell_batch(now);
        self.tell(now, whole, sample);
    }

    /// Adds what an acknowledgement has shown, where nothing was lost or marked and the window limits
    /// nothing, to what is told later: packets acknowledged and come, and the round trip with and
    /// without the receiver's delay, ns.
    #[inline]
    fn put_off(&mut self, now: u64, acked: u32, came: u32, whole: Option<u64>, rtt: Option<u64>) {
        let window = self.congestion.window();
        if self.batch.acked + acked > window {
            self.tell_batch(now);
        }
        self.batch.add(now, acked, came, whole, rtt);
        // Where packets were given up lately or come out of order, each round trip moves the time
        // after which one counts as lost.
        if self.batch.is_due(now, window)
            || self.watch_from != u64::MAX
            || self.reordering.late_ns() != 0
            || self.rtt.smoothed().is_none()
        {
            self.tell_batch(now);
        }
    }

    /// Tells what was put off.
    fn tell_batch(&mut self, now: u64) {
        if self.batch.is_empty() {
            return;
        }
        let batch = core::mem::replace(&mut self.batch, Batch::EMPTY);
        let sample = AckSample {
            acked_packets: batch.acked,
            came_packets: batch.came,
            rtt_ns: batch.shortest(),
            app_limited: true,
            ..AckSample::default()
        };
        self.tell(now, batch.last(), &sample);
    }

    /// Tells the round trip, with the receiver's delay, and congestion control what was shown.
    fn tell(&mut self, now: u64, round_trip: Option<u64>, sample: &AckSample) {
        if let Some(rtt) = round_trip {
            // The timer must expect the peer's own delay; the queue does not.
            self.rtt.sample(rtt);
        }
        let sample = AckSample {
            late_ns: self.reordering.late_ns().min(self.rtt.variation4()),
            mean_ns: self.reordering.mean_ns(),
            in_flight_packets: self.flying,
            ..*sample
        };
        self.congestion.on_ack(now, &sample);
        self.pacer.set_rate(self.congestion.rate());
        let smooth = sample.mean_ns > 0 || self.is_long();
        self.pacer.set_smooth(smooth);
    }

    /// Counts a probe. As long as no answer has come at all, its clock is a
    /// guess, and no sign of congestion; nor is it if the peer `refuses`.
    pub fn probe(&mut self, now: u64, refuses: bool) {
        self.advance();
        self.probes.probe(now);
        self.tell_batch(now);
        if !refuses && self.rtt.smoothed().is_some() {
            self.congestion.on_timeout(now);
        }
    }

    /// The oldest frame in flight.
    pub fn oldest(&self) -> Option<FrameIndex> {
        self.numbers().find_map(|number| self.frame(number))
    }

    /// The path is given up, and the network may have changed when it comes
    /// back: begins anew, with packets of `packet_max` bytes at most.
    pub fn begin_anew(&mut self, packet_max: u16) {
        let mode = self.congestion.mode();
        self.congestion = Congestion::new(mode, packet_max, WINDOW_SPAN as u32);
        self.batch = Batch::EMPTY;
        self.pacer = Pacer::new();
    }

    /// Takes the frame out of a slot, if it has one; any other slot is emptied.
    pub fn take_slot(&mut self, slot: usize) -> Option<FrameIndex> {
        let frame = core::mem::replace(&mut self.slots[slot], NOTHING);
        (frame < FRAMES).then_some(frame)
    }

    /// Nothing is in flight any more; the slots were [emptied](Self::take_slot).
    pub const fn drop_all(&mut self) {
        self.lowest = self.next;
        self.flying = 0;
        self.flying_bytes = 0;
        self.watch_from = u64::MAX;
        self.probes.forget();
    }
}

impl Report {
    /// Numbers to go through.
    pub const fn numbers(&self) -> core::ops::RangeInclusive<u64> {
        self.from..=self.largest
    }

    /// Largest number that was received.
    pub const fn largest(&self) -> u64 {
        self.largest
    }
}
