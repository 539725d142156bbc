//! Reading acknowledgements: what arrived, what is missing, what to resend.

mod ack;
mod split;

use portolan_seal::{Seal, Tag};
use portolan_wire::{Ack, PacketNo, TAG_BYTES};

use crate::base::{ConnIndex, FrameIndex, LongIndex, Outcome, PathIndex, WINDOW_SPAN};
use crate::congestion::AckSample;
use crate::endpoint::{Endpoint, Need};
use crate::keys::{nonce, tx_slot};
use crate::path::{SLOT_ACKED, SLOT_FRAMES, SLOT_LATE, SLOT_LOST, SLOT_NOTHING, SLOT_PROBE};
use crate::received::DELAY_UNIT_NS;
use crate::tables::{CHUNKS_AT, FrameMeta, GivenUp, Listed, Use};

/// Silence in spite of probes after which the packet size is suspected, ns:
/// longer than other work keeps a host from answering.
const SUSPECT_SIZE_NS: u64 = 500_000_000;
/// Divisor of `silence_ns`, which bounds that time: smaller packets must have
/// time to show that the peer lives.
const SUSPECT_SIZE_PARTS: u64 = 4;
/// Probes in a row that resend a packet. Later ones are pings: where losses
/// come in bursts, each takes one packet out of the burst.
const RESENDS: u8 = 8;
/// Packet numbers over which given-up packets are watched for a late arrival;
/// the reordering bound comes on top.
const WATCH: u64 = 128;

impl<S: Seal> Endpoint<'_, S> {
    /// Takes an acknowledgement. One that reports no loss, and that nothing
    /// waits for, is read later: an answer goes first.
    #[inline]
    pub(crate) fn take_ack(&mut self, now: u64, conn: ConnIndex, ack: &Ack) {
        self.settle_deferred_ack(conn);
        let c = &mut self.conns[conn];
        if c.has_queue() || ack.words > 0 || c.refusals.are_flying() || c.stops.are_flying() {
            self.handle_ack(now, conn, ack);
        } else {
            c.deferred_ack = Some((now, *ack));
            self.make_deferred(conn);
        }
    }

    /// Reads an acknowledgement that was deferred.
    #[inline]
    pub(crate) fn settle_deferred_ack(&mut self, conn: ConnIndex) {
        if let Some((at, ack)) = self.conns[conn].deferred_ack.take() {
            self.handle_ack(at, conn, &ack);
        }
    }

    /// Reads an acknowledgement of our packets, which may let others leave.
    fn handle_ack(&mut self, now: u64, conn: ConnIndex, ack: &Ack) {
        self.read_ack(now, conn, ack);
        match self.conns[conn].listed {
            Listed::Deferred if !self.conns[conn].has_queue() => {}
            Listed::None if self.has_nothing(now, conn, true) => {
                let due = self.sizes_due(conn);
                self.arm(due);
            }
            _ => self.make_ready(conn),
        }
    }

    #[inline]
    fn read_ack(&mut self, now: u64, conn: ConnIndex, ack: &Ack) {
        let Some(path) = self.conns[conn].paths.get(ack.path) else {
            return;
        };
        let p = self.path_mut(path);
        let next = PacketNo(p.next_number);
        let limit = PacketNo(p.packet_limit).nearest(ack.packet_limit).0;
        p.packet_limit = p.packet_limit.max(limit);
        let k = &mut self.conns[conn].kept;
        for (mine, new) in k.credit.iter_mut().zip(ack.credit) {
            if new.wrapping_sub(*mine) as i32 > 0 {
                *mine = new;
            }
        }
        let largest = next.nearest(ack.largest).0;
        let base = next.nearest(ack.base).0;
        // Nothing received yet, or numbers that were never sent.
        if largest >= next.0 || base > largest + 1 {
            return;
        }
        self.settle(now, path, ack, largest, base);
    }

    /// Goes through the packet numbers that an acknowledgement covers.
    fn settle(&mut self, now: u64, path: PathIndex, ack: &Ack, largest: u64, base: u64) {
        let p = &mut self.paths[path];
        let conn = p.conn;
        let c = &self.conns[conn];
        let mut sample = AckSample {
            app_limited: !c.has_queue(),
            ce_packets: p.new_marks(ack.ce, largest),
            ..AckSample::default()
        };
        let oldest = largest.saturating_sub(WINDOW_SPAN as u64 - 1);
        let from = p.lost_from.min(p.lowest).max(oldest.min(p.lowest));
        // A lower number's slot belongs to a later one by now.
        let from = from.max(p.next_number.saturating_sub(WINDOW_SPAN as u64));
        // A receiver without room reports what it refused: nothing is reordered.
        let refuses = c.peer_full != [false; 2];
        let reorder = if refuses {
            0
        } else {
            u64::from(p.reordering.packets())
        };
        let patience = p.answer_after(self.core.config.probe_slack_ns, 0);
        let overdue = now.saturating_sub(patience);
        let (acked_to, usual) = (p.acked_to, p.rtt.smoothed().unwrap_or(0));
        let mut again = false;
        for number in from..=largest {
            let bit = number.wrapping_sub(base);
            let arrived = number >= oldest
                && (number < base
                    || (bit / 64 < u64::from(ack.words)
                        && ack.bitmap[(bit / 64) as usize] >> (bit % 64) & 1 == 1));
            let p = &mut self.paths[path];
            let slot = *p.slot(number);
            match (arrived, slot) {
                (true, SLOT_LOST) => {
                    *p.slot(number) = SLOT_ACKED;
                    let overtaken_by = acked_to.saturating_sub(number + 1);
                    p.reordering
                        .given_up_too_early(overtaken_by, patience.saturating_sub(usual));
                    self.core.counters.spurious += 1;
                    sample.spurious_packets += 1;
                    self.spare_copies(now, path, number, &mut sample);
                }
                // Late: no sign of reordering, but of how long the timer has to
                // wait, for packets that are never given up are the quickest.
                (true, SLOT_LATE) => {
                    *p.slot(number) = SLOT_ACKED;
                    self.core.counters.spurious += 1;
                    let left = self.spare_copies(now, path, number, &mut sample);
                    // The delay in the acknowledgement is that of the largest.
                    if let Some(left) = left.filter(|_| number == largest) {
                        let kept = u64::from(ack.delay) * DELAY_UNIT_NS;
                        let took = now.saturating_sub(left).saturating_sub(kept);
                        self.paths[path].rtt.sample(took);
                    }
                }
                (true, SLOT_PROBE) => {
                    *p.slot(number) = SLOT_ACKED;
                    p.mtu.probe_acked(now, number);
                }
                (true, frame) if frame < SLOT_FRAMES => {
                    *p.slot(number) = SLOT_ACKED;
                    let took = now.saturating_sub(self.meta[frame].sent_at);
                    p.reordering.took(took);
                    if number < acked_to && !refuses {
                        p.reordering
                            .came_late(acked_to - number - 1, took.saturating_sub(usual));
                    }
                    again |= self.meta[frame].again;
                    self.frame_acked(now, path, frame, number == largest, &mut sample);
                }
                (false, SLOT_PROBE) if number + reorder < largest => {
                    *p.slot(number) = SLOT_ACKED;
                    p.mtu.probe_lost(number);
                }
                // The largest itself is missing only if it was refused.
                (false, frame)
                    if frame < SLOT_FRAMES
                        && (number + reorder < largest
                            || number == largest
                            || self.meta[frame].sent_at < overdue) =>
                {
                    sample.lost_packets += u32::from(self.frame_lost(now, path, frame));
                }
                _ => {}
            }
        }
        let c = &self.conns[conn];
        if c.finished {
            self.go_on_finished(now, conn);
        }
        self.after_ack(now, path, ack, largest, &mut sample, again);
    }

    /// Updates the path after an acknowledgement. `again`: a resent packet was
    /// among those acknowledged.
    fn after_ack(
        &mut self,
        now: u64,
        path: PathIndex,
        ack: &Ack,
        largest: u64,
        sample: &mut AckSample,
        again: bool,
    ) {
        self.advance_lowest(path);
        // A search for the packet size may have ended.
        let search_at = self.path_mut(path).mtu.due();
        self.arm(search_at);
        let conn = self.path_mut(path).conn;
        let waits = self.waits_for_room(conn);
        if waits && again {
            self.open_round(conn);
        }
        let p = &mut self.paths[path];
        let new = largest >= p.acked_to;
        p.acked_to = p.acked_to.max(largest + 1);
        p.reordering.advance(largest);
        sample.late_ns = p.reordering.late_ns().min(p.rtt.variation4());
        sample.mean_ns = p.reordering.mean_ns();
        let watch = WATCH + u64::from(p.reordering.packets());
        let watched = largest.saturating_sub(watch);
        p.lost_from = if p.lost_last < watched {
            u64::MAX
        } else {
            p.lost_from.max(watched)
        };
        if new && self.conns[conn].paths.has_more() {
            self.path_answered(now, path, largest);
        }
        let is_starved = now < self.core.starved_until;
        let p = &mut self.paths[path];
        if sample.acked_packets == 0 && sample.lost_packets == 0 {
            // Marks count with the next packets that are reported.
            p.ce_seen = p.ce_seen.wrapping_sub(sample.ce_packets);
            return;
        }
        if let Some(rtt) = sample.rtt_ns {
            // The timer must expect the peer's own delay; the queue does not.
            p.rtt.sample(rtt);
            let is_known = ack.delay < u16::MAX && !is_starved;
            let of_queue = rtt.saturating_sub(u64::from(ack.delay) * DELAY_UNIT_NS);
            sample.rtt_ns = is_known.then_some(of_queue);
        }
        sample.in_flight_packets = p.flying;
        sample.came_packets = p.received.take_came();
        if waits {
            // The receiver refused it; the network did not lose it.
            sample.lost_packets = 0;
        }
        if sample.lost_packets > 0 {
            p.lost_at = now;
        }
        p.congestion.on_ack(now, sample);
        p.pacer.set_rate(p.congestion.rate());
        p.pacer.set_smooth(sample.mean_ns > 0 || p.is_long());
        if sample.acked_packets > 0 {
            if !waits || again {
                p.backoff = 0;
                p.asks = 0;
                p.probe_from = now;
            }
            let flying = self.flying(conn);
            let c = &mut self.conns[conn];
            if flying == 0 && !c.has_queue() {
                c.silence.wait_no_more();
            } else {
                c.silence.wait_anew(now);
            }
        }
        self.arm_probe(now, path);
    }

    /// Moves the window's lower edge past settled numbers.
    pub(crate) fn advance_lowest(&mut self, path: PathIndex) {
        let p = self.path_mut(path);
        while p.lowest < p.next_number && *p.slot(p.lowest) >= SLOT_FRAMES {
            if *p.slot(p.lowest) == SLOT_PROBE && p.lowest >= p.acked_to {
                break;
            }
            p.lowest += 1;
        }
    }

    fn frame_acked(
        &mut self,
        now: u64,
        path: PathIndex,
        frame: FrameIndex,
        is_largest: bool,
        sample: &mut AckSample,
    ) {
        let meta = &mut self.meta[frame];
        let bytes = meta.packet_bytes();
        let sent_at = meta.sent_at;
        let refusal = meta.refusal.then_some((meta.priority, meta.flow));
        let (close, stops) = (meta.close, meta.stops);
        let reply = meta.is_reply();
        let p = self.path_mut(path);
        let conn = p.conn;
        p.flying -= 1;
        p.flying_bytes -= bytes as u64;
        p.mtu.acked(now, bytes);
        sample.acked_packets += 1;
        let took = now.saturating_sub(sent_at);
        if is_largest {
            sample.rtt_ns = Some(took);
        }
        if self.meta[frame].rest[0] != 0 {
            self.go_on_with_rest(conn, frame);
            return;
        }
        let c = &mut self.conns[conn];
        c.queued -= 1;
        c.queued_replies -= u32::from(reply);
        if let Some((priority, flow)) = refusal {
            c.refusals.acknowledged(priority, flow);
        }
        let long = core::mem::replace(&mut self.meta[frame].long, LongIndex::NONE);
        self.free_frame(frame);
        if long.is_some() {
            self.long_frame_done(long, Outcome::Done);
        }
        if stops {
            self.stops_acked(conn);
        }
        if close {
            self.close_acked(conn);
        }
    }

    /// Gives a packet up: its chunks will leave again under a new number.
    /// Returns false if the link still reads the frame, and none is left for a
    /// copy.
    pub(crate) fn frame_lost(&mut self, now: u64, path: PathIndex, frame: FrameIndex) -> bool {
        let meta = &self.meta[frame];
        let (bytes, number) = (meta.packet_bytes(), meta.number);
        let conn = self.path_mut(path).conn;
        let Some(frame) = self.unsealed(conn, frame) else {
            return false;
        };
        let p = self.path_mut(path);
        *p.slot(number) = SLOT_LOST;
        p.lost_from = p.lost_from.min(number);
        p.lost_last = p.lost_last.max(number);
        p.flying -= 1;
        p.flying_bytes -= bytes as u64;
        p.mtu.lost(now, bytes);
        self.meta[frame].usage = Use::Queued;
        let meta = &mut self.meta[frame];
        let given_up = GivenUp {
            path,
            number,
            sent_at: meta.sent_at,
        };
        if meta.given_up[0] == GivenUp::NEVER {
            meta.given_up[0] = given_up;
        }
        meta.given_up[1] = given_up;
        self.conns[conn].resend.push_back(self.meta, frame);
        self.make_ready(conn);
        true
    }

    /// A packet that was given up has arrived after all: settles its copies,
    /// sent or queued. A peer that has what it wants may be gone before it
    /// acknowledges one. Returns when the packet left, if known.
    #[cold]
    fn spare_copies(
        &mut self,
        now: u64,
        path: PathIndex,
        number: u64,
        sample: &mut AckSample,
    ) -> Option<u64> {
        let conn = self.path_mut(path).conn;
        let mut left = None;
        for by in self.conns[conn].paths.iter() {
            let p = self.path_mut(by);
            for copy in p.lowest..p.next_number {
                let slot = self.paths[by].slot(copy);
                let frame = *slot;
                if frame < SLOT_FRAMES
                    && let Some(sent_at) = self.meta[frame].left_as(path, number)
                {
                    left = Some(sent_at);
                    *slot = SLOT_ACKED;
                    self.frame_acked(now, by, frame, false, sample);
                }
            }
        }
        loop {
            let c = &mut self.conns[conn];
            let waits = c
                .resend
                .take_where(self.meta, |m| m.left_as(path, number).is_some());
            let Some(frame) = waits else { break left };
            left = self.meta[frame].left_as(path, number);
            // As if in flight.
            let p = &mut self.paths[path];
            p.flying += 1;
            p.flying_bytes += self.meta[frame].packet_bytes() as u64;
            self.frame_acked(now, path, frame, false, sample);
        }
    }

    /// Gives a packet up for no other reason than the time.
    pub(crate) fn frame_late(&mut self, now: u64, path: PathIndex, frame: FrameIndex) -> bool {
        let number = self.meta[frame].number;
        let lost = self.frame_lost(now, path, frame);
        if lost {
            *self.path_mut(path).slot(number) = SLOT_LATE;
        }
        lost
    }

    /// Opens a sealed frame with the number that it was sent under. If the link
    /// still reads the frame, its chunks go on in a copy. Returns the frame
    /// that has them.
    fn unsealed(&mut self, conn: ConnIndex, frame: FrameIndex) -> Option<FrameIndex> {
        let size = self.core.config.frame_bytes as usize;
        let mut to = frame;
        if self.meta[frame].in_link {
            let other = self.take_frame(Need::Control, Use::Queued, conn)?;
            let at = self.frame_at(frame);
            self.frames.copy_within(at..at + size, self.frame_at(other));
            let old = self.meta[frame];
            self.meta[other] = FrameMeta {
                in_link: false,
                ..old
            };
            self.free_frame(frame);
            to = other;
        }
        let meta = self.meta[to];
        let at = self.frame_at(to) + CHUNKS_AT;
        let (start, end) = (at - meta.ack_len as usize, at + meta.len as usize);
        let (body, rest) = self.frames[start..].split_at_mut(end - start);
        let tag: &Tag = (&rest[..TAG_BYTES])
            .try_into()
            .expect("frames keep room for a tag");
        let slot = tx_slot(conn, meta.phase);
        let id = self.paths[meta.path].way.id;
        self.seal
            .open(slot, nonce(id, meta.number), &meta.header, body, tag)
            .expect("what this endpoint sealed, under a key that it keeps");
        self.meta[to].ack_len = 0;
        Some(to)
    }

    /// The probe timer fired: resends the oldest packet, or sends a ping if
    /// nothing is in flight or resends were in vain.
    pub(crate) fn probe(&mut self, now: u64, path: PathIndex) {
        self.advance_lowest(path);
        let p = &mut self.paths[path];
        let conn = p.conn;
        let c = &self.conns[conn];
        p.backoff = p.backoff.saturating_add(1);
        p.quiet = p.quiet.saturating_add(1);
        p.probe_from = now;
        // As long as no answer has come at all, the timer is a guess.
        if c.peer_full == [false; 2] && p.rtt.smoothed().is_some() {
            p.congestion.on_timeout(now);
        }
        let suspect = SUSPECT_SIZE_NS.min(self.core.config.silence_ns / SUSPECT_SIZE_PARTS);
        if c.silence.waits_for_ns(now) >= suspect {
            p.mtu.unanswered(now);
        }
        self.core.counters.probes_sent += 1;
        let peer = c.peer;
        let confirmed = c.handshake.is_confirmed();
        if self.give_up_path(now, path) {
            self.make_ready(conn);
            return;
        }
        let p = &mut self.paths[path];
        let resends = p.backoff <= RESENDS;
        let oldest = (p.lowest..p.next_number)
            .map(|n| *p.slot(n))
            .find(|&frame| resends && frame < SLOT_FRAMES);
        let lost = oldest.is_some_and(|frame| self.frame_late(now, path, frame));
        if self.waits_for_room(conn) {
            self.open_round(conn);
            self.path_mut(path).probe_owed = true;
        } else if lost && !self.conns[conn].paths.has_more() {
            self.path_mut(path).probe_owed = true;
        } else {
            // With several paths, the resend leaves by any of them.
            self.path_mut(path).ping_owed = true;
        }
        if !confirmed {
            // The peer may not have our part of the handshake.
            self.send_connect(peer, true);
        }
        self.make_ready(conn);
    }

    /// Frees a slot for a new number; its packet is given up. Returns false if
    /// the link still reads that: then the number cannot be used.
    pub(crate) fn clear_slot(&mut self, now: u64, path: PathIndex, number: u64) -> bool {
        let old = *self.path_mut(path).slot(number);
        if old < SLOT_FRAMES && !self.frame_lost(now, path, old) {
            return false;
        }
        *self.path_mut(path).slot(number) = SLOT_NOTHING;
        true
    }
}
