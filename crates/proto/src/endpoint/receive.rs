//! Packets from the network: finds connection and key, drops replays, opens the rest. What
//! their chunks say: parts of messages, refusals, stopped flows.

use portolan_seal::{Seal, Tag};
use portolan_wire::{
    Ack, Body, Chunk, Flags, HEADER_BYTES, Head, Header, MessageNo, PacketType, Priority,
    TAG_BYTES, WireError,
};

use crate::base::{
    ConnIndex, DeathReason, Event, FrameIndex, Heard, NetAddress, PATHS_MAX, PathIndex, PeerEvent,
    PeerId, Unusual, Verdict,
};
use crate::endpoint::{Endpoint, Rx};
use crate::inbound::{ChunkOutcome, Meet, NextHeld, Placing, Spare};
use crate::keys::{nonce, rx_slot};
use crate::memory::CHUNKS_AT;
use crate::received::{Contents, Owed};
use crate::tables::{Listed, PEER_BITS, PeerState};

impl<S: Seal> Endpoint<'_, S> {
    /// Handles a packet from the network, decrypting it in place. `ce`: the
    /// packet carried the congestion mark. Before the tag is checked, fields
    /// only select connection, key and replay window. [`Rx`] hands out the
    /// messages; `None` for connect packets, and for those that were dropped.
    #[inline]
    pub fn handle_packet<'p>(
        &mut self,
        now: u64,
        from: NetAddress,
        ce: bool,
        packet: &'p mut [u8],
        spare: &'p mut Spare,
    ) -> Option<Rx<'p>> {
        let header = match Header::parse(packet) {
            Ok(header) => header,
            Err(WireError::Version(_)) => {
                self.core.counters.drops.version += 1;
                return None;
            }
            Err(_) => {
                self.core.counters.drops.malformed += 1;
                return None;
            }
        };
        match header.kind {
            PacketType::Data => self.handle_data(now, from, header, ce, packet, spare),
            // Keeps P2.30.
            _ if header.path != 0 || header.flags != Flags::NONE => {
                self.core.counters.drops.malformed += 1;
                None
            }
            PacketType::Connect => {
                self.handle_connect(now, from, packet);
                None
            }
            PacketType::Introduction => {
                self.handle_introduction(now, from, packet);
                None
            }
            PacketType::Challenge => {
                self.handle_challenge(packet);
                None
            }
        }
    }

    /// Notes for each packet of a peer whether it came by a detour. Several in
    /// a row are reported to the peer, which may know another way.
    #[inline]
    pub fn note_detour(&mut self, peer: PeerId, detour: bool) {
        let conn = self
            .peers
            .get(peer.index())
            .map_or(ConnIndex::NONE, |p| p.conn);
        if let Some(c) = self.conns.get_mut(conn.index()) {
            c.paths.note_detour(detour);
            c.unusual |= c.paths.unusual();
        }
    }

    /// The peer that a connection number of ours was offered to.
    #[inline(always)]
    pub(super) fn peer_numbered(&self, connection: u32) -> Option<PeerId> {
        let peer = PeerId(connection & ((1 << PEER_BITS) - 1));
        if peer.0 >= self.core.peer_count {
            return None;
        }
        (self.peers[peer].connection(peer) == connection).then_some(peer)
    }

    /// The connection that a number of ours stands for.
    fn find_connection(&mut self, now: u64, connection: u32) -> Option<ConnIndex> {
        let peer = self.peer_numbered(connection)?;
        let p = &self.peers[peer];
        match p.state {
            PeerState::Up | PeerState::Dead(DeathReason::Closed | DeathReason::Removed) => {
                // Keys must be derived to check the tag: not at any rate.
                if p.conn.is_none() && !self.core.connect_tokens.spend(now) {
                    self.core.counters.drops.limited += 1;
                    return None;
                }
                self.activate(now, peer)
            }
            PeerState::New | PeerState::Connecting if p.conn.is_some() => {
                self.conns[p.conn].handshake.is_keyed().then_some(p.conn)
            }
            _ => None,
        }
    }

    /// Keeps P2.3, P2.4, P2.9, P12.5.
    fn handle_data<'p>(
        &mut self,
        now: u64,
        from: NetAddress,
        header: Header,
        ce: bool,
        packet: &'p mut [u8],
        spare: &'p mut Spare,
    ) -> Option<Rx<'p>> {
        let length = packet.len();
        let Some(conn) = self.find_connection(now, header.connection) else {
            self.core.counters.drops.unknown += 1;
            return None;
        };
        if length < HEADER_BYTES + TAG_BYTES || usize::from(header.path) >= PATHS_MAX {
            self.core.counters.drops.malformed += 1;
            return None;
        }
        let known = self.conns[conn].paths.get(header.path);
        let Some(path) = known.or_else(|| self.open_path(conn, header.path)) else {
            self.core.counters.drops.no_room += 1;
            return None;
        };
        let p = &self.paths[path];
        let number = p.received.number(header.number);
        if p.received.is_replay(number) {
            self.core.counters.drops.replay += 1;
            return None;
        }
        let keys = &self.conns[conn].kept.keys;
        let (current, bit) = (keys.receiving, header.flags.has(Flags::KEY_PHASE));
        let phase = keys.phase_of(&p.phases, bit, number);
        let (clear, rest) = packet.split_at_mut(HEADER_BYTES);
        let (body, tag) = rest.split_at_mut(length - HEADER_BYTES - TAG_BYTES);
        let tag: &Tag = (&*tag).try_into().expect("the length was checked");
        if self
            .seal
            .open(
                rx_slot(conn, phase),
                nonce(header.path, number),
                clear,
                body,
                tag,
            )
            .is_err()
        {
            self.core.counters.drops.bad_tag += 1;
            if known.is_none() {
                self.release_path(path);
            }
            if !self.conns[conn].handshake.is_proven() && self.is_quiet(conn) {
                self.deactivate(conn);
            }
            return None;
        }
        if self.conns[conn].handshake.prove() {
            self.core.connect_tokens.refund();
        }
        self.core.counters.packets_received += 1;
        self.core.counters.bytes_received += length as u64;
        if phase == current + 1 {
            self.conns[conn].kept.keys.receiving = phase;
            for other in self.conns[conn].paths.iter() {
                let first = (other == path).then_some(number);
                self.path_mut(other).phases.begin_receiving(first);
            }
            self.install_rx(conn, phase + 1);
        }
        if known.is_none() {
            self.keep_path(conn, header.path);
        }
        self.note_source(conn, path, from);
        if phase == current {
            self.path_mut(path).phases.note(number);
        }
        let heard = Heard {
            peer: self.conns[conn].peer,
            path: header.path,
            detour: header.flags.has(Flags::DETOUR),
        };
        let wanted = header.flags.has(Flags::ACK_WANTED);
        let at = self.take_header(now, path, header, number, ce, body)?;
        let place = (conn, path, number);
        let chunks = &body[at..];
        Some(Rx::of_packet(now, heard, place, wanted, chunks, spare))
    }

    /// Handles an opened packet's header and acknowledgement. Returns where its
    /// chunks begin; `None` if it is malformed (P2.24).
    #[inline]
    fn take_header(
        &mut self,
        now: u64,
        path: PathIndex,
        header: Header,
        number: u64,
        ce: bool,
        body: &[u8],
    ) -> Option<usize> {
        let p = &mut self.paths[path];
        let conn = p.conn;
        let c = &mut self.conns[conn];
        c.silence.heard(now);
        c.silence.used(now);
        c.paths.heard(path);
        c.handshake.set_confirmed(true);
        c.busy = true;
        let peer = c.peer;
        p.received.mark(ce);
        if matches!(
            self.peers[peer].state,
            PeerState::New | PeerState::Connecting
        ) {
            self.become_up(now, conn);
        }
        if number >= self.paths[path].received.next {
            let full = [Flags::REQUESTS_FULL, Flags::REPLIES_FULL].map(|f| header.flags.has(f));
            self.peer_full(now, conn, full);
        }
        if !header.flags.has(Flags::HAS_ACK) {
            return Some(0);
        }
        let Ok((ack, bytes)) = Ack::parse(body) else {
            self.core.counters.drops.malformed += 1;
            self.conns[conn].busy = false;
            return None;
        };
        self.take_ack(now, conn, &ack);
        self.go_on_after_refusals(conn);
        Some(bytes)
    }

    /// Counts a packet that was read, and schedules its acknowledgement.
    #[inline]
    pub(super) fn count_packet(
        &mut self,
        now: u64,
        (conn, path, number): (ConnIndex, PathIndex, u64),
        contents: Contents,
        ack_wanted: bool,
    ) {
        let received = &mut self.path_mut(path).received;
        let owed = received.note(now, number, contents, ack_wanted);
        self.schedule_ack(conn, owed);
    }

    /// Schedules the acknowledgement that a packet has brought about.
    #[inline]
    pub(super) fn schedule_ack(&mut self, conn: ConnIndex, owed: Owed) {
        match owed {
            Owed::Nothing => {}
            Owed::Delayed => self.make_deferred(conn),
            Owed::Now => {
                self.conns[conn].unusual |= Unusual::ACK_NOW;
                self.list_ready(conn);
            }
        }
    }

    /// Handles a chunk that is no part of a message, out of a packet of `bytes` (P7.8).
    pub(super) fn handle_control(
        &mut self,
        now: u64,
        path: PathIndex,
        bytes: usize,
        chunk: &Chunk<'_>,
    ) -> ChunkOutcome {
        let conn = self.paths[path].conn;
        match *chunk {
            Chunk::Refuse {
                priority,
                flow,
                message,
            } => return self.handle_refuse(now, conn, priority, flow, message),
            Chunk::Close { alive } => self.handle_close(path, alive),
            Chunk::Ping => {
                if self.path_mut(path).sent.mtu.heard(now, bytes) {
                    self.make_ready(conn);
                }
            }
            Chunk::Networks(networks) => self.handle_networks(now, conn, networks),
            Chunk::Stopped { serial, flows } => {
                return self.handle_stopped(now, conn, serial, flows);
            }
            Chunk::Head(_) | Chunk::Body(_) => return ChunkOutcome::Bad,
        }
        ChunkOutcome::Yes
    }

    /// Handles a close: the peer is dead from now on, but its close is
    /// acknowledged. `alive`: the peer's endpoint does not close, it has only
    /// removed us (P10.2).
    fn handle_close(&mut self, path: PathIndex, alive: bool) {
        let conn = self.paths[path].conn;
        let peer = self.conns[conn].peer;
        if matches!(self.peers[peer].state, PeerState::Dead(_)) {
            self.owe_now(path);
            return;
        }
        // Whatever the peer acknowledged before has arrived.
        self.settle_deferred_ack(conn);
        self.drop_sending(conn);
        let why = if alive {
            DeathReason::Removed
        } else {
            DeathReason::Closed
        };
        self.peers[peer].state = PeerState::Dead(why);
        self.owe_now(path);
        self.tell_peer(peer, PeerEvent::Dead(why));
        self.go_on_after_refusals(conn);
    }
}

// Packets that came back, because the port that they were sent to is closed.

impl<S: Seal> Endpoint<'_, S> {
    /// Handles an ICMP error: the port of a packet's receiver is closed. `quote` is the packet's
    /// beginning. Anyone can send such an error, but a sender that does not see our packets has to
    /// guess the connection's number, and that of a packet that was not acknowledged yet. So one
    /// error is a hint, which brings an early ping. A peer is given up sooner only if errors keep
    /// coming and it is silent all that time (P6.10).
    #[cold]
    pub fn port_unreachable(&mut self, now: u64, quote: &[u8]) {
        let Ok(header) = Header::parse(quote) else {
            return;
        };
        if header.kind != PacketType::Data || !self.core.search_tokens.spend(now) {
            return;
        }
        let mut all = (0..self.core.places.conns_used as usize).map(ConnIndex::new);
        // Peers choose their numbers, so two may have chosen the same.
        let found = all.find_map(|conn| {
            let c = &self.conns[conn];
            let may_be = c.listed != Listed::Free
                && c.kept.connection_theirs == header.connection
                && self.peers[c.peer].state == PeerState::Up;
            let path = self.conns[conn].paths.get(header.path).filter(|_| may_be)?;
            let sent = &self.paths[path].sent;
            (sent.is_unacknowledged(header.number)).then_some((conn, path))
        });
        let Some((conn, path)) = found else {
            return;
        };
        if self.conns[conn].silence.note_closed(now) {
            self.path_mut(path).sent.probes.owe_ping();
            self.make_ready(conn);
        }
    }
}

// Hands parts of messages to `Inbound`, and carries out what it decides.

impl<S: Seal> Endpoint<'_, S> {
    /// Examines the head of a message from the network.
    #[inline]
    pub(super) fn meet_head<'p>(&mut self, conn: ConnIndex, head: &Head<'p>) -> Meet<'p> {
        if head.flow >= self.core.config.flows || head.total > Body::UNIT << 32 {
            return Meet::Took(ChunkOutcome::Bad);
        }
        let c = &self.conns[conn];
        if c.silence.finished {
            return Meet::Took(ChunkOutcome::Yes);
        }
        let counters = &mut self.core.counters;
        match c.inbound.meet_head(&self.memory, head, counters) {
            Meet::Offer if self.refusal_blocks(conn, head.priority, head.flow) => Meet::Hold,
            meet => meet,
        }
    }

    /// Applies the answer to the first part of the next message of a flow;
    /// returns false for not now.
    #[inline]
    pub(super) fn answered(&mut self, conn: ConnIndex, head: &Head<'_>, verdict: Verdict) -> bool {
        if verdict == Verdict::Refuse {
            self.refuse(conn, head.priority, head.flow, head.message);
        }
        let inbound = &mut self.conns[conn].inbound;
        match inbound.answered(head, verdict, &mut self.core.counters) {
            None => return false,
            Some(true) => {}
            // The rest is awaited.
            Some(false) => self.arm_keepalive(conn),
        }
        true
    }

    /// Examines a further part of a message from the network.
    #[inline]
    pub(super) fn meet_body(
        &mut self,
        conn: ConnIndex,
        body: &Body<'_>,
    ) -> Result<Placing, ChunkOutcome> {
        if body.flow >= self.core.config.flows {
            return Err(ChunkOutcome::Bad);
        }
        let c = &self.conns[conn];
        if c.silence.finished {
            return Err(ChunkOutcome::Yes);
        }
        let placing = c.inbound.meet_body(body, &mut self.core.counters)?;
        placing.ok_or_else(|| self.hold(conn, Chunk::Body(*body)))
    }

    /// Ends the handing out of a part of the active message. Only new bytes
    /// return credit: a repeat used up none (P7.7).
    #[inline]
    pub(super) fn placed(&mut self, conn: ConnIndex, body: &Body<'_>, at: &Placing) {
        if !at.fresh {
            self.core.counters.duplicates += 1;
        } else if at.credit {
            self.note_taken(conn, body.priority, body.flow);
        }
        self.advance(conn, body.priority, body.flow);
    }

    /// Holds a chunk that comes too early.
    pub(super) fn hold(&mut self, conn: ConnIndex, chunk: Chunk<'_>) -> ChunkOutcome {
        let limit = self.hold_limit();
        let inbound = &mut self.conns[conn].inbound;
        match inbound.hold(&mut self.memory, conn, limit, chunk) {
            Ok(true) => {
                self.arm_keepalive(conn);
                self.core.counters.held += 1;
            }
            Ok(false) => self.core.counters.duplicates += 1,
            Err(outcome) => {
                self.note_lack();
                return outcome;
            }
        }
        ChunkOutcome::Yes
    }

    /// Marks a flow whose held chunks may have their turn: the [`crate::Rx`]
    /// that is at work on the connection takes them up, or else the next
    /// [`Endpoint::resume`].
    #[inline]
    pub(super) fn advance(&mut self, conn: ConnIndex, priority: Priority, flow: u16) {
        let c = &mut self.conns[conn];
        if c.inbound.advance(priority, flow) {
            self.core.resumable |= !c.busy;
        }
    }

    /// Copies the held chunk of a flow whose turn has come to `spare`: the
    /// caller may use the frames meanwhile. Returns its frame, and for a
    /// further part how to place it.
    pub(super) fn next_held(
        &mut self,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
        spare: &mut Spare,
    ) -> Option<(FrameIndex, Option<Placing>)> {
        let inbound = &mut self.conns[conn].inbound;
        match inbound.next_held(&mut self.memory, priority, flow, spare) {
            NextHeld::Nothing => None,
            NextHeld::Waits => {
                self.arm_keepalive(conn);
                None
            }
            NextHeld::Head(frame) => {
                let blocked = self.refusal_blocks(conn, priority, flow);
                (!blocked).then_some((frame, None))
            }
            NextHeld::Body(frame, at) => Some((frame, Some(at))),
        }
    }

    /// Makes a connection's flows resumable if one was answered "not now";
    /// returns the peer if any flow is resumable.
    pub(super) fn begin_resume(&mut self, now: u64, conn: ConnIndex) -> Option<PeerId> {
        let c = &mut self.conns[conn];
        if c.inbound.advance_refused(self.core.config.flows) {
            c.silence.used(now);
        }
        c.inbound.resumable()?;
        c.busy = true;
        Some(c.peer)
    }

    /// Hands out what is held and may be taken now, also what was answered with
    /// [`Verdict::NotNow`]. Call after binding a port or freeing memory, and
    /// when [`Endpoint::is_resumable`].
    pub fn resume<'p>(&mut self, now: u64, spare: &'p mut Spare) -> Rx<'p> {
        self.core.resumable = false;
        Rx::of_held(now, spare)
    }

    /// Whether held chunks may be taken now for which no packet comes.
    #[inline]
    #[must_use]
    pub const fn is_resumable(&self) -> bool {
        self.core.resumable
    }
}

// Reports refused messages to their sender: each once, in order.
//
// Each flow has at most one packet of refusals in flight, so they arrive in order of their
// messages, and the peer knows a repeat by its number. Messages behind a refusal that has yet to
// leave are held.

/// Wait before a refusal that found no frame is tried again, ns.
const RETRY_NS: u64 = 1_000_000;
/// Bytes of refusals in one packet: 16 of them, half of what the peer's event queue holds.
const PACKET_BYTES: u32 = 128;
/// Longest time for which repeats of a refusal are expected, ns.
const REPEATS_NS_MAX: u64 = 10_000_000_000;

impl<S: Seal> Endpoint<'_, S> {
    /// The caller refused a message for good: queues the report to its sender (P5.3).
    pub(super) fn refuse(
        &mut self,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
        message: MessageNo,
    ) {
        let peer = self.conns[conn].peer;
        if self.peers[peer].state != PeerState::Up {
            return;
        }
        let inbound = &mut self.conns[conn].inbound;
        inbound.refusals.owe(priority, flow, message);
        self.note_unusual(conn);
        self.send_refusal(conn, priority, flow);
    }

    /// Whether a flow must wait for its refusal to leave; tries to queue that first (P5.4).
    pub(super) fn refusal_blocks(
        &mut self,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
    ) -> bool {
        let waits = |e: &Self| e.conns[conn].inbound.refusals.is_owed(priority, flow);
        if waits(self) {
            self.send_refusal(conn, priority, flow);
        }
        waits(self)
    }

    fn send_refusal(&mut self, conn: ConnIndex, priority: Priority, flow: u16) {
        let c = &self.conns[conn];
        let now = c.silence.last_moment();
        let chunk = Chunk::Refuse {
            priority,
            flow,
            message: c.inbound.refusals.owed(priority, flow),
        };
        if c.inbound.refusals.is_flying(priority, flow) {
            // If the packet before has not left, this refusal joins it.
            let frame = c.outbound.control.tail;
            if frame.is_some() && self.memory.cargo[frame].refuses(priority, flow) {
                let at = self.memory.at(frame) + CHUNKS_AT;
                let cargo = &mut self.memory.cargo[frame];
                if cargo.len < PACKET_BYTES {
                    cargo.len +=
                        chunk.write(&mut self.memory.bytes[at + cargo.len as usize..]) as u32;
                    self.conns[conn].inbound.refusals.queued(priority, flow);
                }
            }
            return;
        }
        let frame = self.queue_control(now, conn, &chunk);
        let r = &mut self.conns[conn].inbound.refusals;
        let Some(frame) = frame else {
            r.retry_at = now + RETRY_NS;
            self.arm(now + RETRY_NS);
            return;
        };
        r.queued(priority, flow);
        let cargo = &mut self.memory.cargo[frame];
        cargo.refusal = true;
        cargo.priority = priority;
        cargo.flow = flow;
    }

    /// Retries refusals that found no frame.
    pub(super) fn retry_refusals(&mut self, now: u64, conn: ConnIndex) {
        let c = &mut self.conns[conn];
        c.silence.used(now);
        c.inbound.refusals.retry();
        self.go_on_after_refusals(conn);
    }

    /// Lets flows go on whose refusal was acknowledged.
    #[inline]
    pub(super) fn go_on_after_refusals(&mut self, conn: ConnIndex) {
        if self.conns[conn].inbound.refusals.has_acked() {
            self.go_on_with_flows(conn);
        }
    }

    #[cold]
    fn go_on_with_flows(&mut self, conn: ConnIndex) {
        while let Some((priority, flow)) = self.conns[conn].inbound.refusals.take_acked() {
            if !self.refusal_blocks(conn, priority, flow) {
                self.advance(conn, priority, flow);
            }
        }
    }

    /// Handles the peer's refusal of a message of ours (P5.5).
    pub(super) fn handle_refuse(
        &mut self,
        now: u64,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
        message: MessageNo,
    ) -> ChunkOutcome {
        let c = &mut self.conns[conn];
        if self.peers[c.peer].state != PeerState::Up {
            return ChunkOutcome::Yes;
        }
        // The peer stops repeating when it counts us as dead.
        let until = now.saturating_add(self.core.config.silence_ns.min(REPEATS_NS_MAX));
        c.inbound.refusals.repeats_until = until;
        c.unusual |= c.inbound.unusual();
        self.arm(until);
        let c = &mut self.conns[conn];
        let Some(told) = c.inbound.refusals.told(priority, flow) else {
            return ChunkOutcome::Bad;
        };
        let new = message.since(*told) > 0;
        let peer = c.peer;
        let event = Event::Refused {
            peer,
            priority,
            flow,
            message,
        };
        if !new {
            return ChunkOutcome::Yes;
        }
        if !self.tell(event) {
            return ChunkOutcome::NoRoom(priority);
        }
        if let Some(told) = self.conns[conn].inbound.refusals.told(priority, flow) {
            *told = message;
        }
        ChunkOutcome::Yes
    }
}

// Stopped flows: a flow whose messages are not taken must not use up what all flows of a pair
// share.
//
// The receiver names all stopped flows of a peer in one chunk with a serial number; at most one
// such chunk is in flight. The sender keeps messages of a stopped flow until a later chunk omits
// the flow. The caller that stops a flow takes what was in flight until then, and keeps it.
//
// Credit for those messages is returned once the peer has acknowledged the stop: from then on
// nothing more of the flow leaves. For a peer that obeys, one stop thus admits at most twice the
// credit of a priority. Beyond that no credit is returned until the flow goes on.

impl<S: Seal> Endpoint<'_, S> {
    /// Asks a peer to send nothing more of a flow, or to go on. Messages that left before the peer
    /// learns of it still arrive: the caller takes them.
    pub fn set_stopped(
        &mut self,
        now: u64,
        peer: PeerId,
        priority: Priority,
        flow: u16,
        stopped: bool,
    ) {
        let conn = self
            .peers
            .get(peer.index())
            .map_or(ConnIndex::NONE, |p| p.conn);
        let Some(c) = self.conns.get_mut(conn.index()) else {
            // Without active state nothing is stopped.
            return;
        };
        let dead = matches!(self.peers[peer].state, PeerState::Dead(_));
        if flow >= self.core.config.flows
            || dead
            || stopped == c.inbound.stops.holds_back(priority, flow)
        {
            return;
        }
        c.silence.used(now);
        let (p, f) = (priority.index(), flow as usize);
        if stopped {
            c.inbound.stops.stop(p, f);
        } else {
            c.inbound.stops.go_on(p, f);
            self.give_withheld(conn, p, 1 << f);
        }
        self.make_ready(conn);
    }

    /// Queues a chunk with the present stops, if there is a frame for it.
    #[cold]
    pub(super) fn tell_stops(&mut self, now: u64, conn: ConnIndex) {
        let (serial, flows) = self.conns[conn].inbound.stops.next_chunk();
        let Some(frame) = self.queue_control(now, conn, &Chunk::Stopped { serial, flows }) else {
            return;
        };
        self.memory.cargo[frame].stops = true;
        self.conns[conn].inbound.stops.queued(serial, flows);
    }

    /// The peer has acknowledged a stopped chunk: of flows that it names nothing more leaves, so
    /// what has arrived of them counts as taken (P7.13).
    #[cold]
    pub(super) fn stops_acked(&mut self, conn: ConnIndex) {
        let fresh = self.conns[conn].inbound.stops.acked();
        for (p, flows) in fresh.into_iter().enumerate() {
            self.give_withheld(conn, p, flows);
        }
        if self.conns[conn].inbound.stops.are_owed() {
            self.make_ready(conn);
        }
    }

    /// Returns the credit that was withheld for some flows.
    fn give_withheld(&mut self, conn: ConnIndex, p: usize, flows: u16) {
        let limit = self.hold_limit();
        if self.conns[conn].inbound.give_withheld(limit, p, flows) {
            self.owe_news(conn);
        }
    }

    /// A chunk of a flow was taken for good.
    #[inline]
    pub(super) fn note_taken(&mut self, conn: ConnIndex, priority: Priority, flow: u16) {
        let limit = self.hold_limit();
        let inbound = &mut self.conns[conn].inbound;
        if inbound.note_taken(limit, priority, flow, &mut self.core.counters) {
            self.owe_news(conn);
        }
    }

    /// Takes over the set of flows that the peer has stopped (P7.14).
    #[cold]
    pub(super) fn handle_stopped(
        &mut self,
        now: u64,
        conn: ConnIndex,
        serial: u16,
        flows: [u16; 2],
    ) -> ChunkOutcome {
        if (flows[0] | flows[1]).checked_shr(self.core.config.flows.into()) > Some(0) {
            return ChunkOutcome::Bad;
        }
        let c = &mut self.conns[conn];
        if !c.outbound.stop(serial, flows) {
            // A repeat, or overtaken by a later one.
            return ChunkOutcome::Yes;
        }
        let waits = c.outbound.has_queue();
        if waits {
            c.silence.wait(now);
        }
        if !waits && self.flying(conn) == 0 {
            // The peer makes us wait: keepalives show whether it lives.
            self.conns[conn].silence.wait_no_more();
        }
        if self.conns[conn].outbound.stopped.any() {
            self.arm_keepalive(conn);
        }
        self.make_ready(conn);
        ChunkOutcome::Yes
    }
}
