//! Turns queues into packets. Whatever can change while a frame waits is
//! written when it leaves: number, acknowledgement, key phase, tag.

use portolan_seal::Seal;
use portolan_wire::{
    ARGS_MAX, Body, Chunk, Flags, HEAD_BYTES, HEADER_BYTES, Head, Header, MessageNo, PacketNo,
    PacketType, Priority, TAG_BYTES,
};

use crate::base::{
    ConnIndex, FrameIndex, Message, PACKET_BASE, PathIndex, PeerId, Release, SendError, SourceId,
    Sources, Transmit, Unusual,
};
use crate::endpoint::Endpoint;
use crate::keys::{nonce, tx_slot};
use crate::memory::{CHUNKS_AT, Long, Memory, Need, Use};
use crate::outbound::Pick;
use crate::received::Owed;
use crate::tables::{Kept, Listed, PeerState};

/// Packets in a row to one peer before another has its turn: one unit of
/// segmentation offload.
const BURST: u32 = 44;
/// Packets of replies that may be in flight beyond the window: requests that
/// find no room at the peer must not hold them back.
const SPARE: u32 = 4;

impl<S: Seal> Endpoint<'_, S> {
    /// Returns the next packet to send, sealed in its frame. Call until `None`
    /// after sending and after receiving, and [`Endpoint::transmitted`] for
    /// each.
    ///
    /// `flush_delayed_acks`: acknowledgements that might ride on an answer of the
    /// application leave too. Pass false in a pass that delivered something,
    /// so that the application gets to answer, and true in the next.
    #[inline]
    pub fn poll_transmit(
        &mut self,
        now: u64,
        flush_delayed_acks: bool,
        sources: &impl Sources,
    ) -> Option<Transmit> {
        if !self.may_transmit(flush_delayed_acks) {
            return None;
        }
        if !self.core.queues.connects.is_empty() {
            return self.connect_leaves();
        }
        let frame = self.next_frame(now, flush_delayed_acks, sources)?;
        // Here, so that it is written once: copies of it cost more than the rest of a packet.
        Some(self.transmit(frame))
    }

    /// The next packet of those that make connections.
    #[cold]
    fn connect_leaves(&mut self) -> Option<Transmit> {
        let frame = self.core.queues.connects.pop_front(self.memory.cargo)?;
        self.memory.flights[frame].in_link = true;
        let cargo = &self.memory.cargo[frame];
        let (peer, len) = (cargo.peer(), cargo.len as usize);
        if peer == PeerId::NONE {
            return Some(self.challenge_leaves(frame));
        }
        self.core.counters.packets_sent += 1;
        self.core.counters.bytes_sent += len as u64;
        Some(Transmit {
            to: self.peers[peer].to,
            peer,
            path: 0,
            network: self.network_of(peer, 0),
            frame,
            start: self.memory.at(frame) + CHUNKS_AT,
            len,
            ecn: true,
            connect: true,
        })
    }

    /// The frame of the next packet, which is sealed.
    fn next_frame(
        &mut self,
        now: u64,
        flush_delayed_acks: bool,
        sources: &impl Sources,
    ) -> Option<FrameIndex> {
        if flush_delayed_acks {
            while let Some(conn) = self.core.queues.deferred.pop_front(self.conns) {
                self.conns[conn].listed = Listed::None;
                self.list_ready(conn);
            }
        }
        self.wake_starved();
        self.tell_room();
        loop {
            let conn = self.core.queues.ready.head;
            if conn.is_none() {
                return None;
            }
            self.memory.pool.refused_above = u32::MAX;
            let found = if self.has_nothing(now, conn, flush_delayed_acks) {
                None
            } else {
                self.next_packet(now, conn, flush_delayed_acks, sources)
            };
            if !self.conns[conn].unusual.is_nothing() {
                self.conns[conn].unusual = self.find_unusual(conn);
            }
            if found.is_some() {
                self.core.queues.burst += 1;
                if self.core.queues.burst >= BURST {
                    self.core.queues.burst = 0;
                    self.core.queues.ready.pop_front(self.conns);
                    self.core.queues.ready.push_back(self.conns, conn);
                    return found;
                }
                // Mostly nothing is left: this spares the caller a call.
                if !self.has_nothing(now, conn, flush_delayed_acks) {
                    return found;
                }
            }
            self.core.queues.burst = 0;
            self.core.queues.ready.pop_front(self.conns);
            let c = &self.conns[conn];
            if c.outbound.has_queue() {
                // Credit that is waited for needs probes.
                self.arm_probe(now, c.paths.current());
            }
            self.end_turn(conn);
            if found.is_some() {
                return found;
            }
        }
    }

    /// Ends the turn of a connection, which is in no list: notes what it waits for.
    #[inline]
    pub(super) fn end_turn(&mut self, conn: ConnIndex) {
        let waits = self.conns[conn].deferred_ack.is_some();
        if waits || self.owed(conn) == Owed::Delayed {
            self.conns[conn].listed = Listed::Deferred;
            self.core.queues.deferred.push_back(self.conns, conn);
        } else if self.memory.pool.refused_above != u32::MAX {
            self.conns[conn].listed = Listed::Starved;
            self.core.queues.starved.push_back(self.conns, conn);
            let above = &mut self.core.queues.starved_above;
            *above = self.memory.pool.refused_above.min(*above);
        } else {
            self.conns[conn].listed = Listed::None;
            let due = self.sizes_due(conn);
            self.arm(due);
        }
    }

    /// Whether [`Endpoint::poll_transmit`] may have a packet; false is certain.
    /// In constant time.
    #[inline]
    #[must_use]
    pub const fn may_transmit(&self, flush_delayed_acks: bool) -> bool {
        self.core.may_transmit(flush_delayed_acks)
    }

    /// How the packet in a frame leaves.
    #[inline]
    fn transmit(&self, frame: FrameIndex) -> Transmit {
        let p = &self.paths[self.memory.flights[frame].path];
        let peer = self.conns[p.conn].peer;
        let to = match p.way.id {
            0 => self.peers[peer].to,
            _ => p.way.to(),
        };
        Transmit {
            to,
            peer,
            path: p.way.id,
            network: self.network_of(peer, p.way.id),
            frame,
            start: self.memory.packet_at(frame),
            len: self.memory.packet_bytes(frame),
            ecn: true,
            connect: false,
        }
    }

    /// The next packet of one connection.
    fn next_packet(
        &mut self,
        now: u64,
        conn: ConnIndex,
        flush_delayed_acks: bool,
        sources: &impl Sources,
    ) -> Option<FrameIndex> {
        let state = self.peers[self.conns[conn].peer].state;
        let late = self.conns[conn].deferred_ack.is_some();
        if late && (flush_delayed_acks || !self.window_open(self.conns[conn].paths.current(), 0)) {
            self.settle_deferred_ack(conn);
        }
        if state == PeerState::Up {
            if !self.conns[conn].unusual.is_nothing() || self.core.closes_owed > 0 {
                self.look_at_unusual(now, conn);
            }
            if self.conns[conn].outbound.has_queue()
                && let Some(data) = self.next_data(now, conn, sources)
            {
                return Some(data);
            }
        } else if !matches!(state, PeerState::Dead(_)) {
            return None;
        }
        if !self.conns[conn].paths.has_more() {
            return self.next_bare(now, conn.first_path(), state, flush_delayed_acks);
        }
        let mut paths = self.conns[conn].paths.iter();
        paths.find_map(|path| self.next_bare(now, path, state, flush_delayed_acks))
    }

    /// Does what is due for unusual reasons before the next packet.
    #[cold]
    fn look_at_unusual(&mut self, now: u64, conn: ConnIndex) {
        self.maybe_rekey(conn);
        if self.core.closes_owed > 0 {
            self.queue_close(now, conn);
        }
        if self.conns[conn].paths.networks_owed {
            self.tell_networks(now, conn);
        }
        if self.conns[conn].inbound.stops.are_owed() {
            self.tell_stops(now, conn);
        }
    }

    /// The next packet with messages of one connection that has some.
    #[inline]
    fn next_data(
        &mut self,
        now: u64,
        conn: ConnIndex,
        sources: &impl Sources,
    ) -> Option<FrameIndex> {
        let path = self.way(now, conn);
        let probe = self.paths[path].sent.probes.owes_probe();
        let open = probe || self.window_open(path, 0);
        if !open && !self.window_open(path, SPARE) {
            return None;
        }
        let at = self.paths[path].sent.ready_at(now);
        if at > now && !probe {
            self.conns[conn].paced_until = at;
            self.arm(at);
            return None;
        }
        let frame = self.pick(path, !open, sources)?;
        self.depart_data(now, path, frame);
        Some(frame)
    }

    /// The next packet without messages that concerns one path.
    #[inline]
    fn next_bare(
        &mut self,
        now: u64,
        path: PathIndex,
        state: PeerState,
        flush_delayed_acks: bool,
    ) -> Option<FrameIndex> {
        if state == PeerState::Up && !self.paths[path].way.is_usable() {
            self.try_path(now, path);
        }
        let p = &self.paths[path];
        let owed = p.received.owed();
        if owed == Owed::Now || (flush_delayed_acks && owed == Owed::Delayed) {
            let by = self.ack_way(p.conn, path);
            return self.depart_bare(now, by, path, 0);
        }
        if state != PeerState::Up {
            return None;
        }
        if p.sent.probes.owes_ping()
            && let Some(ping) = self.depart_bare(now, path, path, 1)
        {
            return Some(ping);
        }
        let size = self.mtu_probe_due(now, path)?;
        self.depart_bare(now, path, path, size as usize - HEADER_BYTES - TAG_BYTES)
    }

    /// When the packet size of one of a connection's paths is to be probed.
    #[inline]
    pub(super) fn sizes_due(&self, conn: ConnIndex) -> u64 {
        let first = self.paths[conn.first_path()].sent.mtu.due();
        if !self.conns[conn].paths.has_more() {
            return first;
        }
        let due = |path: PathIndex| self.paths[path].sent.mtu.due();
        self.conns[conn]
            .paths
            .iter()
            .map(due)
            .min()
            .unwrap_or(first)
    }

    /// Whether the window with `spare` more, the receive buffer and the bitmap
    /// allow one more packet.
    pub(super) fn window_open(&self, path: PathIndex, spare: u32) -> bool {
        self.paths[path].sent.is_open(spare)
    }

    /// Takes the frame that leaves next by a path, with its chunks complete;
    /// with `replies`, only one of replies.
    fn pick(
        &mut self,
        path: PathIndex,
        replies: bool,
        sources: &impl Sources,
    ) -> Option<FrameIndex> {
        let p = &self.paths[path];
        let room = self.memory.chunk_room(p.sent.mtu.current());
        let conn = p.conn;
        let c = &mut self.conns[conn];
        let pick = (c.outbound).pick(&mut self.memory, conn, room, replies, sources);
        // A frame that was cut has left the rest behind.
        c.unusual |= Unusual::RESEND.when(!c.outbound.resend.is_empty());
        self.note_lack();
        let Pick { frame, resent, cut } = pick?;
        self.core.counters.resent += u64::from(resent);
        self.core.counters.cut += u64::from(cut);
        Some(frame)
    }

    /// Sends a frame of chunks.
    #[inline]
    fn depart_data(&mut self, now: u64, path: PathIndex, frame: FrameIndex) {
        let chunks = u32::from(self.memory.cargo[frame].chunks);
        let conn = self.paths[path].conn;
        let more = self.conns[conn].outbound.has_allowed(&self.memory);
        if !more {
            self.ask_others(conn, path);
        }
        let hold = self.hold_limit();
        let c = &mut self.conns[conn];
        let p = &mut self.paths[path];
        c.paths.count();
        let ask = p.sent.ask(c.outbound.asks(chunks, !more, hold));
        if ask {
            c.outbound.asked();
        }
        c.silence.wait(now);
        // Where the peer has refused something, this packet may shorten the wait.
        let runs = p.sent.count(now) && !c.outbound.is_refused();
        let about = self.told_by(conn, path);
        self.depart(now, path, about, frame, ask);
        self.memory.cargo[frame].usage = Use::Flying;
        let flight = &mut self.memory.flights[frame];
        flight.sent_at = now;
        let number = flight.number;
        let bytes = self.memory.packet_bytes(frame) as u32;
        self.path_mut(path).sent.left(now, number, frame, bytes);
        self.core.counters.data_packets_sent += 1;
        if !runs {
            self.arm_probe(now, path);
        }
    }

    /// Sends a packet without messages: an acknowledgement (`chunks` 0) of
    /// packets on the path `about`, a ping (1), or a probe of packet size with
    /// that many bytes of chunks.
    fn depart_bare(
        &mut self,
        now: u64,
        path: PathIndex,
        about: PathIndex,
        chunks: usize,
    ) -> Option<FrameIndex> {
        let conn = self.paths[path].conn;
        let frame = self.take_frame(Need::Control, Use::Passing, conn)?;
        if chunks > 0 {
            let out = &mut self.memory.frame(frame)[CHUNKS_AT..];
            let ping = Chunk::Ping.write(out);
            let len = chunks.max(ping);
            out[ping..len].fill(0);
            self.memory.cargo[frame].len = len as u32;
        } else {
            self.core.counters.acks_sent += 1;
        }
        self.depart(now, path, about, frame, chunks > 0);
        let number = self.memory.flights[frame].number;
        let p = self.path_mut(path);
        match chunks {
            0 => {}
            1 => p.sent.probes.pinged(),
            _ => p.sent.size_probe_left(number),
        }
        Some(frame)
    }

    /// Seals a frame as a packet of a path: sets number, header, tag, and an
    /// acknowledgement of packets on the path `about`, if one is owed there
    /// (P2.6, P3.4, P6.6, P6.12).
    fn depart(
        &mut self,
        now: u64,
        path: PathIndex,
        about: PathIndex,
        frame: FrameIndex,
        ask: bool,
    ) {
        let conn = self.paths[path].conn;
        let mut number = self.paths[path].sent.next;
        while !self.clear_slot(now, path, number) {
            number += 1;
        }
        let p = &mut self.paths[path];
        p.sent.take_number(number);
        let (id, packet) = (p.way.id, p.sent.mtu.current());
        let len = self.memory.cargo[frame].len as usize;
        let mut ack_len = 0;
        let bare = len == 0;
        if bare || self.paths[about].received.has_news() {
            let room = self.memory.chunk_room(packet);
            let ack = self.make_ack(now, about);
            if bare || len + ack.bytes() <= room {
                ack_len = self.memory.write_ack(frame, &ack);
                self.ack_left(about, ack.credit);
            }
        }
        let limit = self.phase_limit();
        let c = &mut self.conns[conn];
        let (full, detour) = (c.inbound.full, c.paths.reports_detours());
        let flags = Flags::NONE
            .with(Flags::ACK_WANTED, ask)
            .with(Flags::REQUESTS_FULL, full[0])
            .with(Flags::REPLIES_FULL, full[1])
            .with(Flags::DETOUR, detour);
        let place = Place {
            conn,
            path,
            id,
            number,
        };
        let (memory, keys) = (&mut self.memory, &mut c.kept);
        seal_frame(self.seal, memory, keys, place, flags, frame, ack_len);
        c.unusual |= c.kept.keys.unusual(limit);
        self.core.counters.packets_sent += 1;
        self.core.counters.bytes_sent += self.memory.packet_bytes(frame) as u64;
    }
}

/// Where a packet belongs.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub conn: ConnIndex,
    pub path: PathIndex,
    /// Number of the path, as in packets, and of the packet.
    pub id: u8,
    pub number: u64,
}

/// Seals a frame, in which an acknowledgement of `ack_len` bytes stands before the chunks, as a
/// packet with these flags, and those of the key phase and the acknowledgement.
#[inline(always)]
pub(super) fn seal_frame(
    seal: &mut impl Seal,
    memory: &mut Memory<'_>,
    kept: &mut Kept,
    to: Place,
    flags: Flags,
    frame: FrameIndex,
    ack_len: usize,
) {
    let phase = kept.keys.seal();
    let header = Header {
        kind: PacketType::Data,
        flags: flags
            .with(Flags::KEY_PHASE, phase & 1 == 1)
            .with(Flags::HAS_ACK, ack_len > 0),
        path: to.id,
        connection: kept.connection_theirs,
        number: PacketNo(to.number).low(),
    }
    .to_bytes();
    let body_len = ack_len + memory.cargo[frame].len as usize;
    let flight = &mut memory.flights[frame];
    flight.in_link = true;
    flight.number = to.number;
    flight.path = to.path;
    flight.phase = phase;
    flight.header = header;
    flight.ack_len = ack_len as u16;
    let start = memory.packet_at(frame);
    let packet = &mut memory.bytes[start..][..HEADER_BYTES + body_len + TAG_BYTES];
    let (head, rest) = packet.split_at_mut(HEADER_BYTES);
    head.copy_from_slice(&header);
    let (body, tag) = rest.split_at_mut(body_len);
    let slot = tx_slot(to.conn, phase);
    let sealed = seal.seal(slot, nonce(to.id, to.number), &header, body);
    tag.copy_from_slice(&sealed);
}

// Queuing messages: small ones are copied into frames at once, long ones are
// cut from the caller's memory as the window opens.

impl<S: Seal> Endpoint<'_, S> {
    /// Largest payload beside `args` words that [`Endpoint::send`] takes for a
    /// peer at present, bytes.
    #[inline]
    #[must_use]
    pub fn inline_max(&self, peer: PeerId, args: usize) -> usize {
        let conn = self
            .peers
            .get(peer.index())
            .map_or(ConnIndex::NONE, |p| p.conn);
        let packet = match conn {
            ConnIndex::NONE => PACKET_BASE,
            conn => self.packet_size(conn),
        };
        self.memory.chunk_room(packet) - HEAD_BYTES - 8 * args.min(ARGS_MAX)
    }

    /// Checks that every send makes first; returns the peer's connection.
    #[inline]
    fn admit(&mut self, now: u64, peer: PeerId, m: &Message<'_>) -> Result<ConnIndex, SendError> {
        if peer.0 >= self.core.peer_count {
            return Err(SendError::BadPeer);
        }
        if m.flow >= self.core.config.flows {
            return Err(SendError::BadFlow);
        }
        if m.args.len() > ARGS_MAX {
            return Err(SendError::TooManyArgs);
        }
        let p = &self.peers[peer];
        let state = p.state;
        if matches!(state, PeerState::Dead(_)) || self.core.closing {
            return Err(SendError::PeerDead);
        }
        let conn = match p.conn {
            ConnIndex::NONE if state == PeerState::New && !self.may_connect() => {
                return Err(SendError::NoCredit);
            }
            ConnIndex::NONE => self.activate(now, peer).ok_or(SendError::NoCredit)?,
            conn => conn,
        };
        if state != PeerState::Up && self.saves_for_others() {
            // Connecting begins all the same.
            self.begin_connect(now, conn);
            return Err(SendError::NoCredit);
        }
        let c = &mut self.conns[conn];
        c.silence.used(now);
        let most = self.core.config.queue_frames;
        if c.outbound.takes(m.priority, m.flow, most) {
            Ok(conn)
        } else {
            Err(SendError::NoCredit)
        }
    }

    /// Queues a message that fits one packet; its bytes are copied. It leaves
    /// with the next [`Endpoint::poll_transmit`], together with others that
    /// wait in its flow.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn send(
        &mut self,
        now: u64,
        peer: PeerId,
        m: &Message<'_>,
    ) -> Result<MessageNo, SendError> {
        let conn = self.admit(now, peer, m)?;
        let bytes = chunk_bytes(m);
        let room = self.memory.chunk_room(self.packet_size(conn));
        if bytes > room {
            return Err(SendError::TooLong);
        }
        let outbound = &self.conns[conn].outbound;
        let frame = match outbound.tail(&self.memory, m.priority, m.flow, bytes, room) {
            Some(frame) => frame,
            None => self.queue_frame(conn, m).ok_or(SendError::NoCredit)?,
        };
        let message = self.add_message(conn, frame, m);
        self.queued(now, conn);
        Ok(message)
    }

    /// Writes a message behind what a frame of its flow has.
    #[inline]
    fn add_message(&mut self, conn: ConnIndex, frame: FrameIndex, m: &Message<'_>) -> MessageNo {
        let message = self.next_message(conn, m);
        write_message(&mut self.memory, frame, m, message);
        message
    }

    /// Queues a message of any length. Its bytes are read from `source` by
    /// [`crate::Sources::read`] as the window opens; [`crate::Event::Released`]
    /// reports when the memory is the caller's again. `m.payload` is not used.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued, nothing will be released.
    pub fn send_long(
        &mut self,
        now: u64,
        peer: PeerId,
        m: &Message<'_>,
        total: u64,
        source: SourceId,
        release: Release,
    ) -> Result<MessageNo, SendError> {
        let conn = self.admit(now, peer, m)?;
        if total > Body::UNIT << 32 {
            return Err(SendError::TooLong);
        }
        let keep = match m.priority {
            Priority::Request => self.core.config.longs.div_ceil(8),
            Priority::Reply => 0,
        };
        let waiting = &self.conns[conn].outbound.tx[m.priority.index()][m.flow as usize];
        if !self.memory.pool.grants_long(keep.max(waiting.frames)) {
            self.note_lack();
            return Err(SendError::NoCredit);
        }
        let frame = self.queue_frame(conn, m).ok_or(SendError::NoCredit)?;
        let message = self.next_message(conn, m);
        let long = self.memory.take_long(Long {
            source,
            total,
            frames: 1,
            message,
            release,
            ..Long::default()
        });
        // The payload is filled in when the frame leaves: then the size of the
        // path's packets is known.
        let at = self.memory.at(frame) + CHUNKS_AT;
        let bytes = HEAD_BYTES + 8 * m.args.len();
        write_head(
            &mut self.memory.bytes[at..at + bytes],
            &Message { payload: &[], ..*m },
            message,
            total,
        );
        let cargo = &mut self.memory.cargo[frame];
        cargo.long = long;
        cargo.len = bytes as u32;
        cargo.chunks = 1;
        self.queued(now, conn);
        Ok(message)
    }

    fn queue_frame(&mut self, conn: ConnIndex, m: &Message<'_>) -> Option<FrameIndex> {
        let outbound = &mut self.conns[conn].outbound;
        let frame = outbound.push(&mut self.memory, conn, m.priority, m.flow);
        if frame.is_none() {
            self.note_lack();
        }
        frame
    }

    fn next_message(&mut self, conn: ConnIndex, m: &Message<'_>) -> MessageNo {
        self.core.counters.messages_sent += 1;
        self.conns[conn].outbound.number(m.priority, m.flow)
    }

    #[inline(always)]
    fn queued(&mut self, now: u64, conn: ConnIndex) {
        if self.peers[self.conns[conn].peer].state == PeerState::New {
            self.begin_connect(now, conn);
        }
        let c = &mut self.conns[conn];
        c.silence.wait(now);
        self.list_ready(conn);
    }

    /// Queues a chunk of the protocol's own towards a peer.
    pub(super) fn queue_control(
        &mut self,
        now: u64,
        conn: ConnIndex,
        chunk: &Chunk<'_>,
    ) -> Option<FrameIndex> {
        let outbound = &mut self.conns[conn].outbound;
        let Some(frame) = outbound.push_control(&mut self.memory, conn, chunk) else {
            self.note_lack();
            return None;
        };
        // The peer is waited for, even if its limits keep the chunk back.
        self.conns[conn].silence.wait(now);
        self.make_ready(conn);
        Some(frame)
    }
}

/// Bytes of the chunk of a message that fits one packet.
#[inline]
pub(super) const fn chunk_bytes(m: &Message<'_>) -> usize {
    HEAD_BYTES + 8 * m.args.len() + m.payload.len()
}

/// Writes a message behind what a frame of its flow has.
#[inline(always)]
pub(super) fn write_message(
    memory: &mut Memory<'_>,
    frame: FrameIndex,
    m: &Message<'_>,
    message: MessageNo,
) {
    let bytes = chunk_bytes(m);
    let at = memory.at(frame) + CHUNKS_AT;
    let cargo = &mut memory.cargo[frame];
    let out = &mut memory.bytes[at + cargo.len as usize..][..bytes];
    cargo.len += bytes as u32;
    cargo.chunks += 1;
    write_head(out, m, message, m.payload.len() as u64);
    out[HEAD_BYTES + 8 * m.args.len()..].copy_from_slice(m.payload);
}

/// Writes a head chunk with its argument words; the payload is left to the caller.
fn write_head(out: &mut [u8], m: &Message<'_>, message: MessageNo, total: u64) {
    Head {
        priority: m.priority,
        flow: m.flow,
        message,
        port: m.port,
        total,
        args: &[],
        payload: m.payload,
    }
    .write_header(out);
    out[1] = m.args.len() as u8;
    for (i, arg) in m.args.iter().enumerate() {
        out[HEAD_BYTES + 8 * i..][..8].copy_from_slice(&arg.to_le_bytes());
    }
}
