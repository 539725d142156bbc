//! Packets from the network: finds connection and key, drops replays, opens the rest.

mod reassembly;
mod rx;
mod unreachable;

use portolan_seal::{Seal, Tag};
use portolan_wire::{Ack, Chunk, Flags, HEADER_BYTES, Header, PacketType, TAG_BYTES, WireError};

use crate::base::{
    ConnIndex, DeathReason, Heard, NetAddress, PATHS_MAX, PathIndex, PeerEvent, PeerId,
};
use crate::endpoint::Endpoint;
use crate::inbound::{ChunkOutcome, Spare};
use crate::keys::{nonce, rx_slot};
use crate::tables::{PEER_BITS, PeerState};

pub use rx::Rx;

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
            PacketType::Connect => {
                self.handle_connect(now, from, packet);
                None
            }
            PacketType::Data => self.handle_data(now, from, header, ce, packet, spare),
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
        }
    }

    /// The peer that a connection number of ours was offered to.
    #[inline(always)]
    pub(crate) fn peer_numbered(&self, connection: u32) -> Option<PeerId> {
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

    /// Handles a chunk that is no part of a message, out of a packet of `bytes` (P7.8).
    pub(crate) fn handle_control(
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
