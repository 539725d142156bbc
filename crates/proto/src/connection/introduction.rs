//! Introductions: becoming known to a peer that has not added us, and admitting strangers.
//!
//! Where peers come and go, an endpoint cannot know whether another knows it. So each of its
//! connect packets travels in an introduction, until it is answered. A receiver that knows the
//! sender takes the connect packet out. One that does not asks for the echo of a nonce, which costs
//! a few hashes and no memory. Only a valid echo leads to work with keys.

use portolan_seal::{Seal, identity};
use portolan_wire::{
    CHALLENGE_BYTES, CONNECT_BYTES, Challenge, ConnectIds, INTRODUCTION_BYTES, IntroductionParts,
    TAG_BYTES,
};

use crate::base::{ConnIndex, DeathReason, FrameIndex, NetAddress, PeerEvent, PeerId, Transmit};
use crate::congestion::Mode;
use crate::endpoint::Endpoint;
use crate::memory::{CHUNKS_AT, MemoryOwner, Need, Use};
use crate::tables::PeerState;

/// Divisor of the silence: a removed peer has that long to take what was sent to it.
const PARTING_PARTS: u64 = 8;

/// Nonce that a stranger must echo in an epoch (P4.19).
fn nonce_for<S: Seal>(
    seal: &S,
    epoch: u64,
    from: NetAddress,
    parts: &IntroductionParts<'_>,
) -> u64 {
    let (epoch, port) = (epoch.to_le_bytes(), from.port.to_le_bytes());
    // A stranger that comes anew soon has another connection number, and so gets another nonce.
    let connection = parts.connection.to_le_bytes();
    let words: [&[u8]; 5] = [&epoch, &from.ip, &port, &connection, parts.key];
    seal.fingerprint(&words)
}

impl<S: Seal> Endpoint<'_, S> {
    /// Wraps the connect packet in a frame into an introduction; returns the length. Without public
    /// keys the packet stays as it is.
    pub(crate) fn wrap_connect(
        &mut self,
        peer: PeerId,
        frame: FrameIndex,
        echo: u64,
        connection: u32,
    ) -> usize {
        let plain = CONNECT_BYTES + TAG_BYTES;
        let Some(key) = self.seal.introduce(peer.0) else {
            return plain;
        };
        let at = self.memory.at(frame) + CHUNKS_AT;
        let out = &mut self.memory.bytes[at..at + INTRODUCTION_BYTES];
        let (marked, into) = IntroductionParts::write(out, connection, echo, &key);
        let Some(mark) = self.seal.mark(peer.0, marked) else {
            return plain;
        };
        into.copy_from_slice(&mark);
        if let Some(conn) = self.conns.get_mut(self.peers[peer].conn.index()) {
            conn.handshake.introduced(mark);
        }
        INTRODUCTION_BYTES
    }

    /// Handles an introduction.
    pub(crate) fn handle_introduction(&mut self, now: u64, from: NetAddress, packet: &mut [u8]) {
        let ours = self.core.config.introduces
            && IntroductionParts::marked(packet)
                .is_ok_and(|(bytes, mark)| self.seal.has_own_mark(bytes, mark));
        if !ours {
            self.core.counters.drops.unknown += 1;
            return;
        }
        let mark = *packet.last_chunk().expect("it has a mark");
        let parts = IntroductionParts::parse(packet);
        let Ok((parts, ids)) = parts.and_then(|it| {
            let ids = ConnectIds::parse(it.connect)?;
            Ok((it, ids))
        }) else {
            self.core.counters.drops.malformed += 1;
            return;
        };
        if (ids.to, ids.to_life) != (self.core.me.id, self.core.me.life) {
            self.core.counters.drops.unknown += 1;
            return;
        }
        let known = self.peer_of(ids.from);
        match known.map(|peer| (peer, self.peers[peer].state)) {
            Some((peer, PeerState::Up)) if self.continues(now, peer, &ids, &parts) => return,
            // A peer that is up here has forgotten us, and begins anew.
            Some((_, PeerState::Up | PeerState::Dead(_))) => {}
            Some(_) => return self.handle_connect(now, from, parts.connect),
            None if !self.core.config.strangers || self.core.closing => {
                self.core.counters.drops.stranger += 1;
                return;
            }
            None => {}
        }
        let Some(epoch) = self.find_epoch(now, from, &parts) else {
            self.challenge(now, from, &parts, mark);
            return;
        };
        // Two multiplications on the curve, which anyone who knows our address can cause.
        if !self.core.greeter.admissions.spend(now) {
            self.core.counters.drops.limited += 1;
            return;
        }
        let Some(key) = self.seal.introduced(parts.key) else {
            self.core.counters.drops.bad_tag += 1;
            return;
        };
        if identity(&key) != (ids.from.0, ids.from_life.0) {
            self.core.counters.drops.bad_tag += 1;
            return;
        }
        self.admit_stranger(now, from, (epoch, known), &key, &ids, parts);
    }

    /// Whether an introduction of a peer that is up belongs to the present connection, or makes no
    /// sense; if so it was dealt with.
    fn continues(
        &mut self,
        now: u64,
        peer: PeerId,
        ids: &ConnectIds,
        parts: &IntroductionParts<'_>,
    ) -> bool {
        if !self.core.connect_tokens.spend(now) {
            self.core.counters.drops.limited += 1;
            return true;
        }
        // Opened in a copy: the packet may be needed again.
        let mut connect = [0; CONNECT_BYTES + TAG_BYTES];
        connect.copy_from_slice(parts.connect);
        let Ok(Some(offer)) = self.open_offer(peer, ids, &mut connect) else {
            return true;
        };
        self.core.connect_tokens.refund();
        let same = offer.nonce == self.nonce_theirs(peer);
        if same {
            self.handle_offer(now, peer, &offer);
        }
        same
    }

    /// The epoch whose nonce an introduction echoes, if it does.
    fn find_epoch(
        &mut self,
        now: u64,
        from: NetAddress,
        parts: &IntroductionParts<'_>,
    ) -> Option<u64> {
        if parts.echo == 0 {
            return None;
        }
        let seal = &*self.seal;
        let mut epochs = self.core.greeter.epochs(now);
        epochs.find(|&epoch| nonce_for(seal, epoch, from, parts) == parts.echo)
    }

    /// Asks a stranger for the echo of a nonce. Keeps no state.
    fn challenge(
        &mut self,
        now: u64,
        from: NetAddress,
        parts: &IntroductionParts<'_>,
        mark: [u8; TAG_BYTES],
    ) {
        if !self.core.greeter.challenges.spend(now) {
            self.core.counters.drops.limited += 1;
            return;
        }
        let Some(frame) = self.take_frame(Need::Control, Use::Passing, ConnIndex::NONE) else {
            return;
        };
        let epoch = self.core.greeter.present(now);
        let nonce = nonce_for(&*self.seal, epoch, from, parts);
        let at = self.memory.at(frame) + CHUNKS_AT;
        Challenge {
            connection: parts.connection,
            mark,
            nonce,
        }
        .write(&mut self.memory.bytes[at..]);
        self.memory.meta[frame].set_peer(PeerId::NONE);
        self.memory.meta[frame].len = CHALLENGE_BYTES as u32;
        // Behind the packet: no entry holds this address.
        let to = &mut self.memory.bytes[at + CHALLENGE_BYTES..][..18];
        to[..16].copy_from_slice(&from.ip);
        to[16..].copy_from_slice(&from.port.to_le_bytes());
        self.core.connects.push_back(self.memory.meta, frame);
    }

    /// Sends a challenge to the address that stands behind it.
    pub(crate) fn challenge_leaves(&mut self, frame: FrameIndex) -> Transmit {
        self.core.counters.packets_sent += 1;
        self.core.counters.bytes_sent += CHALLENGE_BYTES as u64;
        let start = self.memory.at(frame) + CHUNKS_AT;
        let (ip, port) = self.memory.bytes[start + CHALLENGE_BYTES..][..18].split_at(16);
        let to = NetAddress {
            ip: ip.try_into().expect("16 bytes"),
            port: u16::from_le_bytes([port[0], port[1]]),
        };
        Transmit {
            to,
            peer: PeerId::NONE,
            path: 0,
            network: self.network_to(to.ip),
            frame,
            start,
            len: CHALLENGE_BYTES,
            ecn: false,
            connect: false,
        }
    }

    /// Handles a challenge: the peer does not know us, or no longer does, and asks for an echo.
    /// (P4.18)
    pub(crate) fn handle_challenge(&mut self, packet: &[u8]) {
        let Ok(challenge) = Challenge::parse(packet) else {
            self.core.counters.drops.malformed += 1;
            return;
        };
        let sought = self.peer_numbered(challenge.connection);
        let sought = sought.filter(|peer| self.peers[*peer].state == PeerState::Connecting);
        let conn = sought.map_or(ConnIndex::NONE, |peer| self.peers[peer].conn);
        let c = self.conns.get_mut(conn.index());
        let Some(c) = c.and_then(|c| c.handshake.challenged(&challenge).then_some(c)) else {
            self.core.counters.drops.unknown += 1;
            return;
        };
        let peer = c.peer;
        c.kept.nonce_theirs = 0;
        self.remove_keys(conn);
        self.core.counters.packets_received += 1;
        self.core.counters.bytes_received += packet.len() as u64;
        self.send_connect(peer, false);
    }

    /// Admits a stranger that echoed our nonce, if it holds the key that it claims.
    fn admit_stranger(
        &mut self,
        now: u64,
        from: NetAddress,
        (epoch, known): (u64, Option<PeerId>),
        key: &[u8; 32],
        ids: &ConnectIds,
        parts: IntroductionParts<'_>,
    ) {
        let has_its_own = known.is_some_and(|peer| self.peers[peer].conn.is_some());
        // The nonce is not spent before there is room for the stranger.
        if !has_its_own && !self.has_connection() {
            self.core.counters.drops.no_room += 1;
            return;
        }
        let Some(peer) = known.or_else(|| self.take_number()) else {
            self.core.counters.drops.no_room += 1;
            return;
        };
        if known.is_none() {
            self.seal.meet(peer.0, key);
        }
        let offer = self.open_offer(peer, ids, parts.connect).ok().flatten();
        let offer = offer.filter(|offer| {
            let echoes = offer.echo == parts.echo;
            self.core.counters.drops.malformed += u64::from(!echoes);
            let nonces = &mut self.parked[self.core.config.peers as usize..];
            let fresh = echoes && self.core.greeter.admit(epoch, parts.echo, nonces);
            self.core.counters.drops.replay += u64::from(echoes && !fresh);
            fresh
        });
        let Some(offer) = offer else {
            if known.is_none() {
                self.give_number(peer);
            }
            return;
        };
        self.core.greeter.challenges.refund();
        // In force until `accept`.
        let mode = Mode::Shared;
        if known.is_some() {
            // The peer has removed us, though we have not heard that.
            self.mark_dead(peer, DeathReason::Removed);
            self.revive(peer, from, mode);
        } else {
            self.record(peer, ids.from, ids.from_life, from, mode);
            self.peers[peer].bits.set_stranger(true);
        }
        self.peers[peer].nonce_mine = parts.echo;
        (self.accept_offer(now, peer, &offer)).expect("there is a connection for it");
        self.peers[peer].state = PeerState::Come;
        self.tell_peer(peer, PeerEvent::Come);
    }

    /// Accepts a peer that has [come](PeerEvent::Come): from now on it may send. `mode` is used
    /// unless the configuration fixes one.
    pub fn accept(&mut self, now: u64, peer: PeerId, mode: Mode) {
        let p = &mut self.peers[peer];
        if p.state != PeerState::Come {
            return;
        }
        let mode = self.core.config.congestion.unwrap_or(mode);
        p.bits = p.bits.on_way(mode);
        let conn = p.conn;
        self.become_up(now, conn);
        self.send_connect(peer, true);
    }

    /// Removes a peer. Messages from it that are not delivered are dropped. Messages to it still
    /// arrive, unless long ones are under way: then none does. The peer is sent a close, and is
    /// [dead](PeerEvent::Dead) once it has acknowledged that; then its number can be
    /// [freed](Self::free_peer).
    pub fn remove_peer(&mut self, now: u64, peer: PeerId) {
        let p = &mut self.peers[peer];
        if p.bits.parting() || p.state == PeerState::Free {
            return;
        }
        p.bits.set_parting();
        let (state, conn) = (p.state, p.conn);
        if conn.is_some() {
            self.drop_received(conn);
            self.conns[conn].silence.finished = true;
        }
        if state != PeerState::Up {
            self.mark_dead(peer, DeathReason::Told);
            return;
        }
        let Some(conn) = Some(conn)
            .filter(|it| it.is_some())
            .or_else(|| self.activate(now, peer))
        else {
            // No room to send a close: the peer finds that no answer comes.
            self.mark_dead(peer, DeathReason::Told);
            return;
        };
        let c = &mut self.conns[conn];
        c.silence.finished = true;
        c.silence.part_by = now.saturating_add(self.core.config.silence_ns / PARTING_PARTS);
        if self.lends(conn) {
            self.drop_sending(conn);
        }
        // When closing, the peer gets a close anyway.
        if !self.core.closing {
            self.owe_close(peer);
        }
        self.part(now, conn);
    }

    /// Whether a connection's peer was removed, and may not know it yet. Nothing more is taken from
    /// it.
    pub(crate) fn is_parting(&self, conn: ConnIndex) -> bool {
        self.peers[self.conns[conn].peer].bits.parting()
    }

    /// Whether a connection still sends from the memory of a long message.
    fn lends(&self, conn: ConnIndex) -> bool {
        let frames = self.memory.meta.iter().filter(|m| m.usage != Use::Free);
        let mut mine = frames.filter(|m| m.conn == conn && m.long.is_some());
        let mut cut = self.conns[conn].outbound.tx.iter().flatten();
        cut.any(|tx| tx.long.is_some())
            || mine.any(|m| self.memory.longs[m.long].memory == MemoryOwner::Lent)
    }

    /// Goes on with a removal: the close is queued once all that was sent before is acknowledged,
    /// or its time is up.
    #[cold]
    pub(crate) fn part(&mut self, now: u64, conn: ConnIndex) {
        let c = &self.conns[conn];
        if !c.outbound.is_settled() && now < c.silence.part_by {
            return;
        }
        if !c.outbound.is_settled() && self.peers[c.peer].bits.close_owed() {
            // The peer takes nothing.
            self.drop_sending(conn);
        }
        self.queue_close(now, conn);
        let c = &mut self.conns[conn];
        c.silence.wait(now);
        let way = c.paths.current();
        self.make_ready(conn);
        self.arm_probe(now, way);
    }

    /// Frees the number of a dead peer: another may get it.
    pub fn free_peer(&mut self, peer: PeerId) {
        if matches!(self.peers[peer].state, PeerState::Dead(_)) {
            self.detach(peer);
            self.close_told(peer);
            self.give_number(peer);
        }
    }
}
