//! Acknowledgements: what arrived, what is missing, what to resend; those that we owe, and the
//! room that they grant.

use portolan_seal::{Seal, Tag};
use portolan_wire::{Ack, Priority, TAG_BYTES};

use crate::base::{ConnIndex, FrameIndex, PathIndex, Unusual, WINDOW_SPAN};
use crate::congestion::AckSample;
use crate::endpoint::Endpoint;
use crate::inbound::Inbound;
use crate::keys::{nonce, tx_slot};
use crate::memory::{CHUNKS_AT, Flight, GivenUp, Need, Use};
use crate::path::Path;
use crate::received::{DELAY_UNIT_NS, Owed};
use crate::sent::{Finding, Report};
use crate::tables::{Listed, Senders, State};

/// Silence in spite of probes after which the packet size is suspected, ns:
/// longer than other work keeps a host from answering.
const SUSPECT_SIZE_NS: u64 = 500_000_000;
/// Divisor of `silence_ns`, which bounds that time: smaller packets must have
/// time to show that the peer lives.
const SUSPECT_SIZE_PARTS: u64 = 4;
/// Probes in a row that resend a packet. Later ones are pings: where losses
/// come in bursts, each takes one packet out of the burst.
const RESENDS: u8 = 8;

/// The receiver's own part of a round trip, ns, if both sides had a core all that time.
#[inline]
pub(super) fn delay_of(core: &State, now: u64, ack: &Ack) -> Option<u64> {
    let is_known = ack.delay < u16::MAX && now >= core.starved_until;
    is_known.then_some(u64::from(ack.delay) * DELAY_UNIT_NS)
}

impl<S: Seal> Endpoint<'_, S> {
    /// Takes an acknowledgement. One that reports no loss, and that nothing
    /// waits for, is read later: an answer goes first.
    #[inline]
    pub(super) fn take_ack(&mut self, now: u64, conn: ConnIndex, ack: &Ack) {
        self.settle_deferred_ack(conn);
        let c = &mut self.conns[conn];
        if c.outbound.has_queue()
            || ack.words > 0
            || c.inbound.refusals.are_flying()
            || c.inbound.stops.are_flying()
        {
            self.handle_ack(now, conn, ack);
        } else {
            self.defer_ack(now, conn, ack);
        }
    }

    /// Keeps an acknowledgement that arrived at `now` until nothing else is to do.
    #[inline]
    pub(super) fn defer_ack(&mut self, now: u64, conn: ConnIndex, ack: &Ack) {
        self.conns[conn].deferred_ack = Some((now, *ack));
        self.make_deferred(conn);
    }

    /// Reads an acknowledgement that was deferred.
    #[inline]
    pub(super) fn settle_deferred_ack(&mut self, conn: ConnIndex) {
        if let Some((at, ack)) = self.conns[conn].deferred_ack.take() {
            self.handle_ack(at, conn, &ack);
        }
    }

    /// Reads an acknowledgement of our packets, which may let others leave.
    fn handle_ack(&mut self, now: u64, conn: ConnIndex, ack: &Ack) {
        self.read_ack(now, conn, ack);
        self.after_read(now, conn);
    }

    /// Lists a connection of which an acknowledgement was read.
    #[inline]
    pub(super) fn after_read(&mut self, now: u64, conn: ConnIndex) {
        match self.conns[conn].listed {
            Listed::Deferred if !self.conns[conn].outbound.has_queue() => {}
            Listed::None if self.has_nothing(now, conn, true) => {
                let due = self.sizes_due(conn);
                self.arm(due);
            }
            _ => self.list_ready(conn),
        }
    }

    /// Keeps P2.12, P2.18.
    #[inline]
    fn read_ack(&mut self, now: u64, conn: ConnIndex, ack: &Ack) {
        let Some(path) = self.conns[conn].paths.get(ack.path) else {
            return;
        };
        let covers = self.path_mut(path).sent.read(ack);
        self.conns[conn].outbound.grant(ack.credit);
        if let Some(covers) = covers {
            self.settle(now, path, ack, covers);
        }
    }

    /// Goes through the packet numbers that an acknowledgement covers: the
    /// largest, and the lowest that may be missing.
    fn settle(&mut self, now: u64, path: PathIndex, ack: &Ack, covers: (u64, u64)) {
        let p = &mut self.paths[path];
        let conn = p.conn;
        let c = &self.conns[conn];
        let mut sample = AckSample {
            app_limited: !c.outbound.has_queue(),
            ce_packets: p.sent.new_marks(ack.ce, covers.0),
            ..AckSample::default()
        };
        let refuses = c.outbound.is_refused();
        let slack = self.core.config.probe_slack_ns;
        let report = p.sent.begin_report(now, covers, refuses, slack);
        let mut again = false;
        for number in report.numbers() {
            let flights = &*self.memory.flights;
            let sent = &mut self.paths[path].sent;
            match sent.find(now, ack, &report, number, |frame| flights[frame].sent_at) {
                Finding::Nothing => {}
                Finding::Spurious => {
                    self.core.counters.spurious += 1;
                    sample.spurious_packets += 1;
                    self.spare_copies(now, path, number, &mut sample);
                }
                Finding::Late(delay) => {
                    self.core.counters.spurious += 1;
                    let left = self.spare_copies(now, path, number, &mut sample);
                    if let (Some(left), Some(delay)) = (left, delay) {
                        let took = now.saturating_sub(left).saturating_sub(delay);
                        self.paths[path].sent.came_late(took);
                    }
                }
                Finding::Arrived(frame) => {
                    again |= self.memory.flights[frame].again;
                    let is_largest = number == report.largest();
                    self.frame_acked(now, path, frame, is_largest, &mut sample);
                }
                Finding::Missing(frame) => {
                    sample.lost_packets += u32::from(self.frame_lost(now, path, frame, false));
                }
            }
        }
        let c = &self.conns[conn];
        if c.silence.finished {
            self.go_on_finished(now, conn);
        }
        self.after_ack(now, path, ack, &report, &mut sample, again);
    }

    /// Updates the path after an acknowledgement. `again`: a resent packet was
    /// among those acknowledged.
    fn after_ack(
        &mut self,
        now: u64,
        path: PathIndex,
        ack: &Ack,
        report: &Report,
        sample: &mut AckSample,
        again: bool,
    ) {
        let p = self.path_mut(path);
        let conn = p.conn;
        p.sent.advance();
        // A search for the packet size may have ended.
        let search_at = p.sent.mtu.due();
        self.arm(search_at);
        let waits = self.waits_for_room(conn);
        if waits && again {
            self.open_round(conn);
        }
        let new = self.paths[path].sent.end_report(report.largest());
        if new && self.conns[conn].paths.has_more() {
            self.path_answered(now, path, report.largest());
        }
        self.adapt(now, path, ack, sample, waits, again);
    }

    /// Takes what an acknowledgement has shown into congestion control, clocks and silence.
    /// `waits`: for room at the peer.
    fn adapt(
        &mut self,
        now: u64,
        path: PathIndex,
        ack: &Ack,
        sample: &mut AckSample,
        waits: bool,
        again: bool,
    ) {
        let delay = delay_of(self.core, now, ack);
        let p = &mut self.paths[path];
        let conn = p.conn;
        if sample.acked_packets == 0 && sample.lost_packets == 0 {
            p.sent.put_back_marks(sample.ce_packets);
            return;
        }
        sample.came_packets = p.received.take_came();
        p.sent.adapt(now, sample, delay, waits);
        if sample.acked_packets > 0 {
            if !waits || again {
                p.sent.probes.restart(now);
            }
            let flying = self.flying(conn);
            let c = &mut self.conns[conn];
            if flying == 0 && !c.outbound.has_queue() {
                c.silence.wait_no_more();
            } else {
                c.silence.wait_anew(now);
            }
        }
        self.arm_probe(now, path);
    }

    fn frame_acked(
        &mut self,
        now: u64,
        path: PathIndex,
        frame: FrameIndex,
        is_largest: bool,
        sample: &mut AckSample,
    ) {
        let bytes = self.memory.packet_bytes(frame);
        let sent_at = self.memory.flights[frame].sent_at;
        let cargo = &self.memory.cargo[frame];
        let refusal = cargo.refusal.then_some((cargo.priority, cargo.flow));
        let (close, stops) = (cargo.close, cargo.stops);
        let p = self.path_mut(path);
        let conn = p.conn;
        p.sent.acked(now, bytes);
        sample.acked_packets += 1;
        let took = now.saturating_sub(sent_at);
        if is_largest {
            sample.rtt_ns = Some(took);
        }
        if self.memory.cargo[frame].rest[0] != 0 {
            self.go_on_with_rest(conn, frame);
            return;
        }
        let c = &mut self.conns[conn];
        c.outbound.settled(&mut self.memory, frame);
        if let Some((priority, flow)) = refusal {
            c.inbound.refusals.acknowledged(priority, flow);
        }
        if stops {
            self.stops_acked(conn);
        }
        if close {
            self.close_acked(conn);
        }
    }

    /// Gives a packet up: its chunks will leave again under a new number.
    /// `late`: for no other reason than the time. Returns false if the link
    /// still reads the frame, and none is left for a copy (P6.1).
    pub(super) fn frame_lost(
        &mut self,
        now: u64,
        path: PathIndex,
        frame: FrameIndex,
        late: bool,
    ) -> bool {
        let bytes = self.memory.packet_bytes(frame);
        let number = self.memory.flights[frame].number;
        let conn = self.path_mut(path).conn;
        let Some(frame) = self.unsealed(conn, frame) else {
            return false;
        };
        let sent = &mut self.path_mut(path).sent;
        sent.lost(now, number, bytes, late);
        let given_up = GivenUp {
            path,
            number,
            sent_at: self.memory.flights[frame].sent_at,
        };
        let outbound = &mut self.conns[conn].outbound;
        outbound.lost(&mut self.memory, frame, given_up);
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
            for copy in self.paths[by].sent.numbers() {
                let sent = &mut self.paths[by].sent;
                if let Some(frame) = sent.frame(copy)
                    && let Some(sent_at) = self.memory.flights[frame].left_as(path, number)
                {
                    left = Some(sent_at);
                    sent.settle(copy);
                    self.frame_acked(now, by, frame, false, sample);
                }
            }
        }
        loop {
            let outbound = &mut self.conns[conn].outbound;
            let Some(frame) = outbound.take_arrived(&mut self.memory, path, number) else {
                break left;
            };
            left = self.memory.flights[frame].left_as(path, number);
            let bytes = self.memory.packet_bytes(frame);
            self.paths[path].sent.count_again(bytes);
            self.frame_acked(now, path, frame, false, sample);
        }
    }

    /// Opens a sealed frame with the number that it was sent under. If the link
    /// still reads the frame, its chunks go on in a copy. Returns the frame
    /// that has them.
    fn unsealed(&mut self, conn: ConnIndex, frame: FrameIndex) -> Option<FrameIndex> {
        let size = self.core.config.frame_bytes as usize;
        let mut to = frame;
        if self.memory.flights[frame].in_link {
            let other = self.take_frame(Need::Control, Use::Queued, conn)?;
            let at = self.memory.at(frame);
            self.memory
                .bytes
                .copy_within(at..at + size, self.memory.at(other));
            self.memory.cargo[other] = self.memory.cargo[frame];
            self.memory.flights[other] = Flight {
                in_link: false,
                ..self.memory.flights[frame]
            };
            self.memory.free(frame);
            to = other;
        }
        let flight = self.memory.flights[to];
        let at = self.memory.at(to) + CHUNKS_AT;
        let len = self.memory.cargo[to].len as usize;
        let (start, end) = (at - flight.ack_len as usize, at + len);
        let (body, rest) = self.memory.bytes[start..].split_at_mut(end - start);
        let tag: &Tag = (&rest[..TAG_BYTES])
            .try_into()
            .expect("frames keep room for a tag");
        let slot = tx_slot(conn, flight.phase);
        let id = self.paths[flight.path].way.id;
        self.seal
            .open(slot, nonce(id, flight.number), &flight.header, body, tag)
            .expect("what this endpoint sealed, under a key that it keeps");
        self.memory.flights[to].ack_len = 0;
        Some(to)
    }

    /// The probe timer fired: resends the oldest packet, or sends a ping if
    /// nothing is in flight or resends were in vain (P6.15).
    pub(super) fn probe(&mut self, now: u64, path: PathIndex) {
        let p = &mut self.paths[path];
        let conn = p.conn;
        let c = &self.conns[conn];
        p.sent.probe(now, c.outbound.is_refused());
        let suspect = SUSPECT_SIZE_NS.min(self.core.config.silence_ns / SUSPECT_SIZE_PARTS);
        if c.silence.waits_for_ns(now) >= suspect {
            p.sent.mtu.unanswered(now);
        }
        self.core.counters.probes_sent += 1;
        let peer = c.peer;
        let confirmed = c.handshake.is_confirmed();
        if self.give_up_path(now, path) {
            self.make_ready(conn);
            return;
        }
        let sent = &self.paths[path].sent;
        let resends = sent.probes.backoff() <= RESENDS;
        let oldest = sent.oldest().filter(|_| resends);
        let lost = oldest.is_some_and(|frame| self.frame_lost(now, path, frame, true));
        if self.waits_for_room(conn) {
            self.open_round(conn);
            self.path_mut(path).sent.probes.owe_probe();
        } else if lost && !self.conns[conn].paths.has_more() {
            self.path_mut(path).sent.probes.owe_probe();
        } else {
            // With several paths, the resend leaves by any of them.
            self.path_mut(path).sent.probes.owe_ping();
        }
        if !confirmed {
            // The peer may not have our part of the handshake.
            self.send_connect(peer, true);
        }
        self.make_ready(conn);
    }

    /// Frees a slot for a new number; its packet is given up. Returns false if
    /// the link still reads that: then the number cannot be used.
    pub(super) fn clear_slot(&mut self, now: u64, path: PathIndex, number: u64) -> bool {
        let old = self.paths[path].sent.frame(number);
        old.is_none_or(|frame| self.frame_lost(now, path, frame, false))
    }
}

// Acknowledgements that are owed, and those that leave.

impl<S: Seal> Endpoint<'_, S> {
    /// Notes that an acknowledgement must leave in this pass.
    pub(super) fn owe_now(&mut self, path: PathIndex) {
        let p = self.path_mut(path);
        p.received.owe(Owed::Now);
        let conn = p.conn;
        self.make_ready(conn);
    }

    /// Notes that news of credit or room must leave in this pass: by the path
    /// that the peer uses, for others may lead nowhere.
    pub(super) fn owe_news(&mut self, conn: ConnIndex) {
        self.owe_now(self.conns[conn].paths.heard_by());
    }

    /// Makes the acknowledgement that leaves now, and records what it grants.
    pub(super) fn make_ack(&mut self, now: u64, path: PathIndex) -> Ack {
        self.count_senders(now);
        let limit = self.hold_limit();
        let p = &mut self.paths[path];
        ack_of(self.core, now, &self.conns[p.conn].inbound, p, limit)
    }

    /// Notes that an acknowledgement with this credit has left with a packet.
    pub(super) fn ack_left(&mut self, path: PathIndex, credit: [u32; 2]) {
        let p = self.path_mut(path);
        p.received.acknowledged();
        let conn = p.conn;
        self.conns[conn].inbound.advertised = credit;
    }

    /// The first part of a frame was acknowledged: the next one leaves, once
    /// the link has returned the frame.
    #[cold]
    pub(super) fn go_on_with_rest(&mut self, conn: ConnIndex, frame: FrameIndex) {
        let outbound = &mut self.conns[conn].outbound;
        if outbound.go_on_with_rest(&mut self.memory, frame) {
            self.make_ready(conn);
        }
    }
}

// Limits of what a peer may send: chunks by our pool, packets by our receive buffer.

/// Time without data after which a peer has no share of the receive buffer, ns.
const SENDER_QUIET_NS: u64 = 10_000_000;

impl<S: Seal> Endpoint<'_, S> {
    /// Chunks of one priority that one peer may have undelivered here.
    pub(super) const fn hold_limit(&self) -> u32 {
        let (hold, quarter) = (self.core.config.hold_frames, self.core.config.frames / 4);
        if hold < quarter { hold } else { quarter }
    }

    /// Counts the peers that send to us, now and then.
    #[inline]
    pub(super) fn count_senders(&mut self, now: u64) {
        if self.core.senders.is_due(now) {
            self.count_senders_anew(now);
        }
    }

    #[cold]
    fn count_senders_anew(&mut self, now: u64) {
        let senders = self.conns[..self.core.places.conns_used as usize]
            .iter()
            .filter(|c| {
                c.listed != Listed::Free
                    && c.inbound.last_data_at != 0
                    && now.saturating_sub(c.inbound.last_data_at) < SENDER_QUIET_NS
            })
            .count();
        let packets = self.core.config.receive_packets;
        self.core.senders = Senders::new((senders as u32).max(1), packets, now);
    }
}

/// The acknowledgement that leaves now for a path whose senders were
/// [counted](Endpoint::count_senders); records what it grants. `limit`: chunks of one priority
/// that the peer may have undelivered here.
#[inline(always)]
pub(super) fn ack_of(core: &State, now: u64, inbound: &Inbound, p: &mut Path, limit: u32) -> Ack {
    // A lone sender whose packets come spread over time has twice its share.
    let Senders { count, share, .. } = core.senders;
    let room = if p.received.is_spread(now, share) && count == 1 {
        (2 * share).min(WINDOW_SPAN as u64)
    } else {
        share
    };
    let mut ack = p.received.ack(now, room);
    if now < core.starved_until {
        ack.delay = u16::MAX;
    }
    ack.path = p.way.id;
    ack.credit = inbound.credit(limit);
    ack
}

// Receiver not ready: the receiver reports it, the sender waits.
//
// Credit bounds the chunks of one peer that are held here, but the pool is
// shared: many peers together may send more than it holds. A chunk that then
// comes before its turn is refused: its packet shows as missing in the bitmap,
// and the header's flags say why.

/// Divisor: room is reported once this fraction of the pool is free for it, so
/// that more than one packet follows.
const ANNOUNCE_PARTS: u32 = 32;

impl<S: Seal> Endpoint<'_, S> {
    /// Receiver: notes that a chunk was refused for want of room (P6.12).
    pub(super) fn note_full(&mut self, conn: ConnIndex, priority: Priority) {
        if self.conns[conn].inbound.note_full(priority) {
            self.core.full = true;
            self.owe_news(conn);
        }
    }

    /// Receiver: once there is room, reports it to peers whose chunks were refused (P6.13).
    #[inline]
    pub(super) fn tell_room(&mut self) {
        if self.core.full {
            self.announce_room();
        }
    }

    #[cold]
    fn announce_room(&mut self) {
        let frames = self.core.config.frames.div_ceil(ANNOUNCE_PARTS);
        let mut room = [false; 2];
        for priority in Priority::BY_URGENCY {
            room[priority.index()] = self.memory.pool.can_hold(priority, frames);
        }
        if room == [false; 2] {
            return;
        }
        let limit = self.hold_limit();
        self.core.full = false;
        for conn in (0..self.core.places.conns_used as usize).map(ConnIndex::new) {
            let c = &mut self.conns[conn];
            if c.listed == Listed::Free {
                continue;
            }
            let told = c.inbound.tell_room(room, limit);
            self.core.full |= c.inbound.full != [false; 2];
            if told {
                self.owe_news(conn);
            }
        }
    }

    /// Sender: takes over the priorities for which the peer's latest packet
    /// reports no room (P6.14).
    #[inline]
    pub(super) fn peer_full(&mut self, now: u64, conn: ConnIndex, full: [bool; 2]) {
        let c = &mut self.conns[conn];
        let freed = c.outbound.set_full(full);
        c.unusual |= Unusual::FULL.when(full != [false; 2]);
        if freed {
            for path in self.conns[conn].paths.iter() {
                self.path_mut(path).sent.probes.restart(now);
                self.arm_probe(now, path);
            }
            self.make_ready(conn);
        }
    }

    /// Sender: whether packets to be sent again wait for room at the peer.
    pub(super) fn waits_for_room(&self, conn: ConnIndex) -> bool {
        self.conns[conn].outbound.waits_for_room(&self.memory)
    }

    /// Sender: lets each packet that now waits for room leave once.
    pub(super) fn open_round(&mut self, conn: ConnIndex) {
        self.conns[conn].outbound.open_round(&self.memory);
        self.make_ready(conn);
    }
}
