//! Making connections, and their keys. Either side may begin, both may at once.
//!
//! A connect packet is sealed under a key of both lives and carries a nonce of
//! its sender and, once known, the echo of the receiver's. A side that sees its
//! own nonce come back knows that the other is alive in this life; both nonces
//! go into the data keys, so an authentic data packet proves the same. A packet
//! that is not `settled` asks for an answer. Nothing of an earlier life can be
//! replayed: its data keys had another nonce of ours.

use portolan_seal::{BadTag, Seal, Secret, SuiteId, Tag};
use portolan_wire::{
    CONNECT_BYTES, CONNECT_CLEAR_BYTES, Connect, ConnectIds, EndpointId, Flags, Header, Life,
    MessageNo, PacketNo, PacketType, TAG_BYTES,
};

use crate::base::{ConnIndex, DeathReason, Event, FIRST_PACKET_MAX, NetAddress, PeerEvent, PeerId};
use crate::endpoint::Endpoint;
use crate::keys::{CONNECT_SLOT, Keys, Ready, SLOTS, Settled, key_slots, nonce, rx_slot, tx_slot};
use crate::memory::{CHUNKS_AT, Need, Use};
use crate::tables::{Conn, Listed, PEER_BITS, PENDING, Peer, PeerState, Pending};

/// Packets that a peer may send before the first acknowledgement grants more:
/// where few peers are active, and where many are.
const FIRST_WINDOW: u16 = 10;
const FIRST_WINDOW_CROWD: u16 = 2;
const CROWD: u32 = 16;

/// Fields in which our offers differ.
struct Ours {
    peer: PeerId,
    life: Life,
    nonce: u64,
    echo: u64,
    connection: u32,
    settled: bool,
}

/// Divisor: this fraction of the connections, and one more, is not used to seek peers.
const FOUND_PARTS: u32 = 8;

impl<S: Seal> Endpoint<'_, S> {
    /// Begins to connect, if that has not been done.
    #[cold]
    pub(super) fn begin_connect(&mut self, now: u64, conn: ConnIndex) {
        let c = &mut self.conns[conn];
        let p = &mut self.peers[c.peer];
        if p.state == PeerState::New {
            p.state = PeerState::Connecting;
            c.handshake.begin();
            c.silence.wait_anew(now);
            self.connect_due(now, conn);
        }
    }

    /// Whether one more peer may be sought. A peer without a free connection
    /// does not answer; if all peers used theirs to seek each other, none ever
    /// would. So some are left to peers that seek us.
    pub(super) fn may_connect(&self) -> bool {
        let active = self.core.config.connections();
        let most = active.saturating_sub(1 + active / FOUND_PARTS).max(1);
        // Mostly all may be active at once.
        if active >= self.core.config.peers || self.core.places.conns_used < most {
            return true;
        }
        let used = &self.conns[..self.core.places.conns_used as usize];
        let seeks = |c: &&Conn| {
            c.listed != Listed::Free && self.peers[c.peer].state == PeerState::Connecting
        };
        (used.iter().filter(seeks).count() as u32) < most
    }

    /// Sends a connect packet and arms the next one.
    pub(super) fn connect_due(&mut self, now: u64, conn: ConnIndex) {
        let c = &mut self.conns[conn];
        let peer = c.peer;
        let due = c.handshake.tried(now);
        self.arm(due);
        self.send_connect(peer, false);
    }

    /// Sends our offer to a peer in its known life.
    pub(super) fn send_connect(&mut self, peer: PeerId, settled: bool) {
        let p = &self.peers[peer];
        self.queue_connect(&Ours {
            peer,
            life: p.life,
            nonce: p.nonce_mine,
            echo: self.nonce_to_echo(peer),
            connection: p.connection(peer),
            settled,
        });
    }

    /// Packets that a peer may send before it has heard of our buffers.
    const fn first_window(&self) -> u16 {
        if self.core.senders.count < CROWD {
            FIRST_WINDOW
        } else {
            FIRST_WINDOW_CROWD
        }
    }

    /// Nonce that a connect packet to a peer echoes; 0: none yet.
    fn nonce_to_echo(&self, peer: PeerId) -> u64 {
        match self.nonce_theirs(peer) {
            0 => (self.conns.get(self.peers[peer].conn.index()))
                .map_or(0, |c| c.handshake.challenge()),
            theirs => theirs,
        }
    }

    fn queue_connect(&mut self, ours: &Ours) {
        // Without a frame now, the timer tries again.
        let Some(frame) = self.take_frame(Need::Control, Use::Passing, ConnIndex::NONE) else {
            return;
        };
        self.memory.cargo[frame].set_peer(ours.peer);
        let config = self.core.config;
        let number = PacketNo(self.core.connect_number);
        self.core.connect_number += 1;
        let me = (self.core.me.id, self.core.me.life);
        let they = (self.peers[ours.peer].id, ours.life);
        let header = Header {
            kind: PacketType::Connect,
            flags: Flags::NONE,
            path: 0,
            connection: 0,
            number: number.low(),
        };
        let ids = ConnectIds {
            from: me.0,
            from_life: me.1,
            to: they.0,
            to_life: they.1,
            number,
        };
        let body = Connect {
            nonce: ours.nonce,
            echo: ours.echo,
            first_packet: PacketNo(config.first_packet),
            connection: ours.connection,
            first_message: MessageNo(config.first_message),
            credit: [self.hold_limit(); 2],
            window: self.first_window(),
            packet_max: self.core.packet_max,
            flows: config.flows,
            settled: ours.settled,
        };
        let slot = self.install_connect_key(ours.peer, [me, they]);
        let at = self.memory.at(frame) + CHUNKS_AT;
        let packet = &mut self.memory.bytes[at..at + CONNECT_BYTES + TAG_BYTES];
        packet[..portolan_wire::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        ids.write(packet);
        body.write(&mut packet[CONNECT_CLEAR_BYTES..]);
        let (clear, rest) = packet.split_at_mut(CONNECT_CLEAR_BYTES);
        let (body, tag) = rest.split_at_mut(CONNECT_BYTES - CONNECT_CLEAR_BYTES);
        tag.copy_from_slice(&self.seal.seal(slot, nonce(0, number.0), clear, body));
        let seeks = self.peers[ours.peer].state == PeerState::Connecting;
        let len = if self.core.config.introduces && seeks && !ours.settled {
            self.wrap_connect(ours.peer, frame, ours.echo, ours.connection)
        } else {
            CONNECT_BYTES + TAG_BYTES
        };
        self.memory.cargo[frame].len = len as u32;
        self.core
            .queues
            .connects
            .push_back(self.memory.cargo, frame);
    }

    /// Handles a connect packet (P2.26, P4.12).
    pub(super) fn handle_connect(&mut self, now: u64, from: NetAddress, packet: &mut [u8]) {
        let length = packet.len();
        let ids = match ConnectIds::parse(packet) {
            Ok(ids) if length == CONNECT_BYTES + TAG_BYTES => ids,
            _ => {
                self.core.counters.drops.malformed += 1;
                return;
            }
        };
        let me = (self.core.me.id, self.core.me.life);
        let meant = (ids.to, ids.to_life);
        if ids.to != me.0 {
            self.core.counters.drops.unknown += 1;
            return;
        }
        let guess = self.guess_peer(ids.from);
        // Anyone can invent ids, and a search takes longer the more peers there are.
        if guess.is_none() && !self.core.search_tokens.spend(now) {
            self.core.counters.drops.limited += 1;
            return;
        }
        let Some(peer) = guess.or_else(|| self.find_peer(ids.from)) else {
            self.core.counters.drops.unknown += 1;
            return;
        };
        if !self.core.connect_tokens.spend(now) {
            self.core.counters.drops.limited += 1;
            return;
        }
        let Ok(offer) = self.open_offer(peer, &ids, packet) else {
            return;
        };
        self.core.connect_tokens.refund();
        if guess.is_none() {
            self.core.search_tokens.refund();
        }
        let Some(offer) = offer else { return };
        if meant != me {
            self.introduce(peer, ids.from_life);
        } else if self.knows(peer, ids.from_life) {
            self.handle_offer(now, peer, &offer);
        } else if self.may_begin(peer, ids.from_life) {
            self.handle_new_life(now, peer, ids.from_life, from, &offer);
        } else {
            self.core.counters.drops.unknown += 1;
        }
    }

    /// Opens a connect packet, and counts it. Returns its offer, `None` if that
    /// makes no sense (P2.27, P2.28).
    pub(super) fn open_offer(
        &mut self,
        peer: PeerId,
        ids: &ConnectIds,
        packet: &mut [u8],
    ) -> Result<Option<Connect>, BadTag> {
        let length = packet.len();
        let ends = [(ids.from, ids.from_life), (ids.to, ids.to_life)];
        let mut copy = [0; CONNECT_BYTES - CONNECT_CLEAR_BYTES];
        copy.copy_from_slice(&packet[CONNECT_CLEAR_BYTES..CONNECT_BYTES]);
        let slot = self.install_connect_key(peer, ends);
        let (clear, rest) = packet.split_at_mut(CONNECT_CLEAR_BYTES);
        let (body, tag) = rest.split_at_mut(CONNECT_BYTES - CONNECT_CLEAR_BYTES);
        let tag: &Tag = (&*tag).try_into().expect("the length was checked");
        let number = nonce(0, ids.number.0);
        let opened = self.seal.open(slot, number, clear, body, tag);
        self.core.counters.drops.bad_tag += u64::from(opened.is_err());
        // Neither what somebody recorded in an earlier life of ours, nor a stranger's.
        let is_for_us = ids.to_life == self.core.me.life && ids.from == self.peers[peer].id;
        if opened.is_err() && is_for_us {
            self.find_suite(peer, ends, |suite, key| {
                let body = &mut copy.clone();
                suite.opens(key, number, clear, body, tag)
            });
        }
        opened?;
        let offer = Connect::parse(body).ok().filter(|offer| {
            let first = offer.first_packet.0;
            offer.flows == self.core.config.flows && first <= FIRST_PACKET_MAX
        });
        if offer.is_none() {
            self.core.counters.drops.malformed += 1;
            return Ok(None);
        }
        self.core.counters.packets_received += 1;
        self.core.counters.bytes_received += length as u64;
        Ok(offer)
    }

    /// Finds another suite under whose connect key a packet of a peer `opens`, and
    /// reports it: two that differ in their suites would else be silent to each other.
    #[cold]
    fn find_suite(
        &mut self,
        peer: PeerId,
        ends: Direction,
        opens: impl Fn(SuiteId, &Secret) -> bool,
    ) {
        let Some(ours) = self.seal.suite() else {
            return;
        };
        for (at, theirs) in SuiteId::ALL.into_iter().enumerate() {
            let untold = self.core.events.suites & 1 << at == 0;
            if theirs != ours && theirs != SuiteId::None && untold {
                let key = self.connect_key(peer, ends, theirs.name());
                let event = Event::OtherSuite { peer, ours, theirs };
                if opens(theirs, &key) && self.core.events.push(event) {
                    self.core.events.suites |= 1 << at;
                }
            }
        }
    }

    /// Whether a life is the peer's known one, and not dead. A life that we
    /// gave up may never have heard of us and is then like a new one: neither
    /// side has anything of the other's.
    fn knows(&self, peer: PeerId, life: Life) -> bool {
        let p = &self.peers[peer];
        p.life == life && !matches!(p.state, PeerState::Dead(_))
    }

    /// Whether a peer may begin a life that is unknown or dead. A life that has
    /// closed does not come back, and two that have closed must not wake each
    /// other again and again; nor does one that the caller said has ended.
    /// Where lives are fixed, the caller alone reports another (P4.9, P4.10).
    fn may_begin(&self, peer: PeerId, life: Life) -> bool {
        let p = &self.peers[peer];
        if self.core.config.introduces {
            // The peer introduces itself anew.
            return false;
        }
        if p.life != life {
            return !p.bits.fixed();
        }
        !matches!(
            p.state,
            PeerState::Dead(DeathReason::Closed | DeathReason::Told | DeathReason::Removed)
        )
    }

    /// Answers a peer that seeks an earlier life of ours by an offer of this
    /// one. The packet may be old, so it has no other effect (P4.11).
    fn introduce(&mut self, peer: PeerId, life: Life) {
        let p = &self.peers[peer];
        if p.life != life {
            return;
        }
        match p.state {
            PeerState::New | PeerState::Connecting => self.send_connect(peer, false),
            // Our part of the handshake may have been lost.
            PeerState::Up => self.send_connect(peer, true),
            PeerState::Dead(DeathReason::Closed | DeathReason::Removed)
            | PeerState::Come
            | PeerState::Free => {}
            // Given up here, but the peer lives and seeks a life that is over.
            PeerState::Dead(_) => self.send_connect(peer, false),
        }
    }

    /// Handles an offer of the known life (P4.2, P4.3, P4.4, P4.5, P4.6).
    pub(super) fn handle_offer(&mut self, now: u64, peer: PeerId, offer: &Connect) {
        let p = &self.peers[peer];
        match p.state {
            PeerState::Dead(_) | PeerState::Come | PeerState::Free => {}
            PeerState::Up if offer.nonce != self.nonce_theirs(peer) => {
                self.core.counters.drops.replay += 1;
            }
            PeerState::Up => {
                if offer.settled && offer.echo == p.nonce_mine && p.conn.is_some() {
                    let c = &mut self.conns[p.conn];
                    // Only once: a recorded packet must not feign life.
                    if !c.handshake.is_confirmed() {
                        c.handshake.set_confirmed(true);
                        c.silence.heard(now);
                    }
                }
                if !offer.settled {
                    self.send_connect(peer, true);
                }
            }
            PeerState::New | PeerState::Connecting => {
                let proven = offer.echo == p.nonce_mine;
                let Some(conn) = self.accept_offer(now, peer, offer) else {
                    return;
                };
                if proven {
                    self.conns[conn].handshake.set_confirmed(offer.settled);
                    self.become_up(now, conn);
                    if !offer.settled {
                        self.send_connect(peer, true);
                    }
                } else {
                    self.send_connect(peer, false);
                }
            }
        }
    }

    /// Handles an offer of an unknown life: the peer must echo a nonce of ours
    /// before that replaces the known one (P4.8).
    fn handle_new_life(
        &mut self,
        now: u64,
        peer: PeerId,
        life: Life,
        from: NetAddress,
        offer: &Connect,
    ) {
        let known = self
            .core
            .pending
            .iter()
            .position(|q| q.nonce != 0 && q.peer == peer && q.life == life);
        let Some(i) = known else {
            let fresh = Pending {
                peer,
                life,
                nonce: self.core.random.draw(),
                connection: self.new_connection(peer),
            };
            let i = self.core.pending_next as usize % PENDING;
            self.core.pending_next = self.core.pending_next.wrapping_add(1);
            self.core.pending[i] = fresh;
            self.answer_pending(i, offer);
            return;
        };
        let pending = self.core.pending[i];
        if offer.echo != pending.nonce {
            self.answer_pending(i, offer);
            return;
        }
        self.core.pending[i] = Pending::NONE;
        let was = self.peers[peer].state;
        self.detach(peer);
        if matches!(was, PeerState::Up | PeerState::Connecting) {
            self.tell_peer(peer, PeerEvent::Dead(DeathReason::Restarted));
        }
        self.begin_life(peer, life);
        let p = &mut self.peers[peer];
        p.nonce_mine = pending.nonce;
        p.lot = Peer::lot(pending.connection);
        // Path 0 does not move to the network of a further path.
        let by = self.network_to(from.ip);
        if by == 0 || by == self.peers[peer].bits.network() {
            self.lead(peer, from);
        }
        self.handle_offer(now, peer, offer);
    }

    fn answer_pending(&mut self, i: usize, offer: &Connect) {
        let Pending {
            peer,
            life,
            nonce,
            connection,
        } = self.core.pending[i];
        let echo = offer.nonce;
        let settled = false;
        self.queue_connect(&Ours {
            peer,
            life,
            nonce,
            echo,
            connection,
            settled,
        });
    }

    /// A new connection number for packets from a peer: its index, and random bits.
    pub(super) fn new_connection(&mut self, peer: PeerId) -> u32 {
        (self.core.random.draw() as u32) << PEER_BITS | peer.0
    }

    /// Takes over a peer's offer, once; returns its connection (P2.5, P7.4).
    pub(super) fn accept_offer(
        &mut self,
        now: u64,
        peer: PeerId,
        offer: &Connect,
    ) -> Option<ConnIndex> {
        let conn = self.activate(now, peer)?;
        let c = &self.conns[conn];
        // A peer that was removed, or has removed us, begins anew in the same
        // life: then its earlier offer is void.
        let same = !self.core.config.introduces || c.kept.nonce_theirs == offer.nonce;
        if c.handshake.is_keyed() && same {
            return Some(conn);
        }
        let window = u64::from(self.first_window());
        let hold = self.hold_limit();
        let ours = self.own_packet_max(self.network_of(peer, 0));
        let c = &mut self.conns[conn];
        let p = &mut self.paths[conn.first_path()];
        let k = &mut c.kept;
        k.nonce_theirs = offer.nonce;
        k.connection_theirs = offer.connection;
        p.sent.grant(offer.window);
        c.outbound.begin(offer.credit);
        c.inbound.begin(offer.first_message, hold);
        p.received.begin(offer.first_packet.0, window);
        p.phases.begin_receiving(Some(offer.first_packet.0));
        c.silence.heard(now);
        p.sent.mtu.begin(now, ours, offer.packet_max);
        c.handshake.key();
        self.install_keys(conn);
        // Something may be awaited of the peer, and it may die before it is up.
        self.arm_keepalive(conn);
        Some(conn)
    }

    /// Marks a peer as up: it has proven that it lives now.
    pub(super) fn become_up(&mut self, now: u64, conn: ConnIndex) {
        let c = &mut self.conns[conn];
        c.handshake.stop();
        let waits = c.outbound.has_queue();
        // No keepalive could leave until now: it is armed anew.
        c.silence.up(now, waits);
        let peer = c.peer;
        self.paths[conn.first_path()].sent.probes.start(now);
        self.peers[peer].state = PeerState::Up;
        if self.core.closing {
            // The peer was not up when the others were sent a close.
            c.silence.wait_anew(now);
            self.owe_close(peer);
        }
        self.tell_networks(now, conn);
        self.make_ready(conn);
        self.arm_keepalive(conn);
        self.tell_peer(peer, PeerEvent::Up);
    }

    /// Id and life at both ends, ours first.
    #[must_use]
    pub fn lives(&self, peer: PeerId) -> [(EndpointId, Life); 2] {
        let p = &self.peers[peer];
        [(self.core.me.id, self.core.me.life), (p.id, p.life)]
    }
}

// Which key is in which slot of the seal, and how each is derived.
//
// Every key is `derive(job secret, info)`; `info` is, in this order and
// little-endian: label (8 bytes), suite name (24 bytes, zero padded),
// sender's id and life, receiver's id and life; for data keys also the
// sender's and the receiver's nonce and the phase (8 bytes each).

const CONNECT_LABEL: &[u8; 8] = b"ptl1conn";
const DATA_LABEL: &[u8; 8] = b"ptl1data";
const LABEL: usize = 8;
const SUITE: usize = 24;

/// One direction of a pair.
pub(crate) type Direction = [(EndpointId, Life); 2];

impl<S: Seal> Endpoint<'_, S> {
    /// Keeps P3.2.
    fn info(
        label: &[u8; LABEL],
        suite: &str,
        ends: Direction,
        rest: &[u64],
        out: &mut [u8; 96],
    ) -> usize {
        out[..LABEL].copy_from_slice(label);
        let name = suite.as_bytes();
        out[LABEL..][..name.len()].copy_from_slice(name);
        let mut at = LABEL + SUITE;
        let ends = [ends[0].0.0, ends[0].1.0, ends[1].0.0, ends[1].1.0];
        for word in ends.iter().chain(rest) {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
            at += 8;
        }
        at
    }

    /// Installs the key of connect packets in a direction; returns its slot.
    pub(super) fn install_connect_key(&mut self, peer: PeerId, ends: Direction) -> usize {
        let key = self.connect_key(peer, ends, self.seal.name());
        self.seal.install(CONNECT_SLOT, &key);
        CONNECT_SLOT
    }

    /// The key of connect packets in a direction, under a suite.
    fn connect_key(&mut self, peer: PeerId, ends: Direction, suite: &str) -> Secret {
        let mut info = [0; 96];
        let n = Self::info(CONNECT_LABEL, suite, ends, &[], &mut info);
        let secret = &self.core.secret.0;
        self.seal.derive_with(peer.0, secret, &info[..n])
    }

    fn data_key(&mut self, conn: ConnIndex, sending: bool, phase: u32) -> Secret {
        let c = &self.conns[conn];
        let peer = c.peer;
        let p = &self.peers[peer];
        let theirs = c.kept.nonce_theirs;
        let me = (self.core.me.id, self.core.me.life);
        let they = (p.id, p.life);
        let (ends, nonces) = if sending {
            ([me, they], [p.nonce_mine, theirs])
        } else {
            ([they, me], [theirs, p.nonce_mine])
        };
        let mut info = [0; 96];
        let rest = [nonces[0], nonces[1], u64::from(phase)];
        let n = Self::info(DATA_LABEL, self.seal.name(), ends, &rest, &mut info);
        self.seal
            .derive_with(peer.0, &self.core.secret.0, &info[..n])
    }

    /// Expands the key to seal with in a phase.
    pub(super) fn install_tx(&mut self, conn: ConnIndex, phase: u32) {
        let key = self.data_key(conn, true, phase);
        self.seal.install(tx_slot(conn, phase), &key);
    }

    /// Expands the key to open with in a phase.
    pub(super) fn install_rx(&mut self, conn: ConnIndex, phase: u32) {
        let key = self.data_key(conn, false, phase);
        self.seal.install(rx_slot(conn, phase), &key);
    }

    /// Expands every key that the connection's present phases need.
    pub(super) fn install_keys(&mut self, conn: ConnIndex) {
        let keys = &self.conns[conn].kept.keys;
        let (tx, rx) = (keys.sending, keys.receiving);
        self.install_tx(conn, tx);
        if tx > 0 {
            self.install_tx(conn, tx - 1);
        }
        self.install_rx(conn, rx);
        self.install_rx(conn, rx + 1);
        if rx > 0 {
            self.install_rx(conn, rx - 1);
        } else {
            self.seal.remove(rx_slot(conn, rx + 2));
        }
    }

    /// Forgets a connection's keys.
    pub(super) fn remove_keys(&mut self, conn: ConnIndex) {
        for slot in 0..SLOTS {
            self.seal.remove(key_slots(conn.index()) + slot);
        }
    }

    /// Begins the next phase to send in, when the old one's packets are all
    /// settled: then no sealed frame needs a key older than the last.
    pub(super) fn maybe_rekey(&mut self, conn: ConnIndex) {
        let limit = self.phase_limit();
        let Some(over) = self.conns[conn].kept.keys.over(limit) else {
            return;
        };
        let mut ready = true;
        for path in self.conns[conn].paths.iter() {
            let p = self.path_mut(path);
            let settled = Settled {
                acked_to: p.sent.acked_to,
                lowest: if p.sent.flying == 0 {
                    u64::MAX
                } else {
                    p.sent.lowest
                },
                usable: p.way.is_usable(),
            };
            let it = p.phases.is_ready(settled);
            // A peer does not acknowledge mere acknowledgements unasked.
            if it == Ready::Unconfirmed && Keys::asks(over) {
                p.sent.probes.owe_ping();
            }
            ready &= it == Ready::Yes;
        }
        if !ready {
            return;
        }
        let next = self.conns[conn].kept.keys.begin();
        for path in self.conns[conn].paths.iter() {
            let p = self.path_mut(path);
            p.phases.begin_sending(p.sent.next);
        }
        self.install_tx(conn, next);
        self.core.counters.rekeys += 1;
    }
}
