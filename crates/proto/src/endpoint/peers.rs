//! Peers: adding them, finding them, and the lives that they begin; introductions.

use portolan_seal::{Seal, identity};
use portolan_wire::{
    CHALLENGE_BYTES, CONNECT_BYTES, Challenge, ConnectIds, EndpointId, INTRODUCTION_BYTES,
    IntroductionParts, Life, TAG_BYTES,
};

use crate::base::{ConnIndex, DeathReason, FrameIndex, NetAddress, PeerEvent, PeerId, Transmit};
use crate::congestion::Mode;
use crate::endpoint::Endpoint;
use crate::memory::{CHUNKS_AT, MemoryOwner, Need, Use};
use crate::tables::{Parked, Peer, PeerBits, PeerState};

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AddPeerError {
    /// There are [`crate::Config::peers`] already.
    #[error("no room for another peer: raise the setting `peers`")]
    Full,
    /// A peer with this id is there already.
    #[error("peer {0} has this id already")]
    Exists(PeerId),
}

impl<S: Seal> Endpoint<'_, S> {
    /// Adds a peer; it need not be up, nothing is sent yet. `mode` is used unless the configuration
    /// fixes one. The number may be one that was [freed](Self::free_peer).
    ///
    /// # Errors
    /// [`AddPeerError`].
    pub fn add_peer(
        &mut self,
        id: EndpointId,
        life: Life,
        to: NetAddress,
        mode: Mode,
    ) -> Result<PeerId, AddPeerError> {
        if let Some(peer) = self.find_peer(id) {
            return Err(AddPeerError::Exists(peer));
        }
        let peer = self.take_number().ok_or(AddPeerError::Full)?;
        self.record(peer, id, life, to, mode);
        Ok(peer)
    }

    /// Takes a number that no peer has: one that was freed, or the next.
    pub(super) fn take_number(&mut self) -> Option<PeerId> {
        let free = self.core.free_peers.pop_front(self.peers);
        if free.is_some() {
            self.core.free_peer_count -= 1;
            return free;
        }
        let peer = PeerId(self.core.peer_count);
        self.peers.get(peer.index())?;
        self.core.peer_count += 1;
        self.peers[peer] = Peer::default();
        Some(peer)
    }

    /// Frees a peer's number.
    pub(super) fn give_number(&mut self, peer: PeerId) {
        let Peer {
            place, lot, events, ..
        } = self.peers[peer];
        self.core.events.count -= u32::from(!events.is_empty());
        self.seal.forget(peer.0);
        self.peers[peer] = Peer {
            place,
            lot,
            state: PeerState::Free,
            ..Peer::default()
        };
        self.core.free_peers.push_back(self.peers, peer);
        self.core.free_peer_count += 1;
    }

    /// Records the peer that has a number from now on.
    pub(super) fn record(
        &mut self,
        peer: PeerId,
        id: EndpointId,
        life: Life,
        to: NetAddress,
        mode: Mode,
    ) {
        let Peer { place, lot, .. } = self.peers[peer];
        self.peers[peer] = Peer {
            id,
            place,
            lot,
            bits: PeerBits::new(self.core.config.congestion.unwrap_or(mode)),
            ..Peer::default()
        };
        self.lead(peer, to);
        self.begin_life(peer, life);
    }

    /// Unused numbers: more peers cannot come before the caller has freed numbers, or has made the
    /// table longer.
    #[must_use]
    pub fn unused_peers(&self) -> usize {
        self.peers.len() - self.core.peer_count as usize + self.core.free_peer_count as usize
    }

    /// Peer with an id that was added, or has introduced itself, and was not removed: a live one,
    /// or else a dead one that was added.
    #[must_use]
    pub fn peer_of(&self, id: EndpointId) -> Option<PeerId> {
        let known = &self.peers[..self.core.peer_count as usize];
        let is_there = |p: &Peer| p.id == id && !p.bits.parting() && p.state != PeerState::Free;
        let is_dead = |p: &Peer| matches!(p.state, PeerState::Dead(_));
        let live = known.iter().position(|p| is_there(p) && !is_dead(p));
        let dead = || {
            let mut all = known.iter();
            all.position(|p| is_there(p) && !p.bits.stranger())
        };
        live.or_else(dead).map(PeerId::new)
    }

    /// Whether a peer is a stranger: it introduced itself and was not added since, or the caller
    /// has declared it one.
    #[must_use]
    pub fn is_stranger(&self, peer: PeerId) -> bool {
        self.peers
            .get(peer.index())
            .is_some_and(|p| p.bits.stranger())
    }

    /// The stranger that has been silent for longest, if that is long enough to remove it where
    /// there is no room.
    #[must_use]
    pub fn silent_stranger(&self, now: u64) -> Option<PeerId> {
        self.most_silent(now, |p| p.bits.stranger() && !p.bits.parting())
    }

    /// Among the peers that `may_go`, the stranger that was idle for longest. One that waits for
    /// [`accept`](Self::accept) stays.
    #[must_use]
    pub fn quietest_stranger(&self, may_go: impl Fn(PeerId) -> bool) -> Option<PeerId> {
        let known = &self.peers[..self.core.peer_count as usize];
        let all = (0..).map(PeerId).zip(known);
        let is_there = |state| {
            matches!(
                state,
                PeerState::New | PeerState::Connecting | PeerState::Up
            )
        };
        let strangers = all.filter(|(peer, p)| {
            p.bits.stranger() && !p.bits.parting() && is_there(p.state) && may_go(*peer)
        });
        let used = |p: &Peer| {
            self.conns
                .get(p.conn.index())
                .map_or(0, |c| c.silence.used_at())
        };
        let quietest = strangers.min_by_key(|(_, p)| used(p));
        quietest.map(|(peer, _)| peer)
    }

    /// Whether strangers are accepted.
    #[must_use]
    pub fn accepts_strangers(&self) -> bool {
        self.core.config.strangers && !self.core.closing
    }

    /// Declares a peer a stranger: it introduced itself to the caller, or the caller no longer has
    /// a name for it.
    pub fn set_stranger(&mut self, peer: PeerId) {
        self.peers[peer].bits.set_stranger(true);
    }

    /// Marks a peer that introduced itself as added by the caller.
    pub fn acknowledge(&mut self, peer: PeerId) {
        self.peers[peer].bits.set_stranger(false);
    }

    /// Changes a peer's address, unless the peer has proven where it is.
    pub fn relocate(&mut self, peer: PeerId, to: NetAddress, mode: Mode) {
        if matches!(
            self.peers[peer].state,
            PeerState::New | PeerState::Connecting
        ) {
            self.locate(peer, to, mode);
        }
    }

    /// Records a peer's address. `mode` is used unless the configuration fixes one.
    pub(super) fn locate(&mut self, peer: PeerId, to: NetAddress, mode: Mode) {
        let mode = self.core.config.congestion.unwrap_or(mode);
        let p = &mut self.peers[peer];
        p.bits = p.bits.on_way(mode);
        self.lead(peer, to);
    }

    /// Lets a dead peer begin anew, in the same life: with another nonce, so that nothing from
    /// before can arrive.
    pub fn revive(&mut self, peer: PeerId, to: NetAddress, mode: Mode) {
        if !matches!(self.peers[peer].state, PeerState::Dead(_)) {
            return;
        }
        // A peer that has closed may still have active state.
        self.detach(peer);
        self.locate(peer, to, mode);
        self.begin_life(peer, self.peers[peer].life);
    }

    /// From now on the caller alone changes a peer's life ([`Endpoint::peer_returned`]): packets of
    /// another life, such as one that was wrongly taken for dead, are ignored.
    pub fn pin_incarnation(&mut self, peer: PeerId) {
        self.peers[peer].bits.set_fixed();
    }

    /// Starts a peer's record for a life: counters, a nonce, a connection number (P4.7).
    pub(super) fn begin_life(&mut self, peer: PeerId, life: Life) {
        let nonce_mine = self.core.random.draw();
        let was = self.peers[peer].lot;
        let mut lot = Peer::lot(self.new_connection(peer));
        if lot == was {
            // Packets for the life before find no peer.
            lot ^= 1;
        }
        self.close_told(peer);
        let p = &mut self.peers[peer];
        *p = Peer {
            id: p.id,
            life,
            to: p.to,
            bits: p.bits.of_new_life(),
            nonce_mine,
            lot,
            place: p.place,
            events: p.events,
            ..Peer::default()
        };
        if let Some(words) = self.parked.get_mut(p.place as usize) {
            let config = &self.core.config;
            *words = Parked::new(config).to_words();
        }
    }

    /// Peer with an id, if it has the place that launchers give it: they number ids in the order in
    /// which peers are added.
    pub(super) fn guess_peer(&self, id: EndpointId) -> Option<PeerId> {
        // Peers that come and go have no such place, and may have left an older entry.
        let numbered = !self.core.config.introduces;
        let known = &self.peers[..self.core.peer_count as usize];
        let base = known.first().filter(|_| numbered)?.id.0;
        let guess = id.0.wrapping_sub(base) as usize;
        let right = known.get(guess).is_some_and(|p| p.id == id);
        right.then_some(PeerId::new(guess))
    }

    /// Peer with an id, wherever it is. Called at connects and additions only.
    pub(super) fn find_peer(&self, id: EndpointId) -> Option<PeerId> {
        let known = &self.peers[..self.core.peer_count as usize];
        let search = || known.iter().position(|p| p.id == id).map(PeerId::new);
        if self.core.config.introduces {
            return self.peer_of(id);
        }
        self.guess_peer(id).or_else(search)
    }
}

// Introductions: becoming known to a peer that has not added us, and admitting strangers.
//
// Where peers come and go, an endpoint cannot know whether another knows it. So each of its
// connect packets travels in an introduction, until it is answered. A receiver that knows the
// sender takes the connect packet out. One that does not asks for the echo of a nonce, which costs
// a few hashes and no memory. Only a valid echo leads to work with keys.

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
    pub(super) fn wrap_connect(
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
    pub(super) fn handle_introduction(&mut self, now: u64, from: NetAddress, packet: &mut [u8]) {
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
        self.memory.cargo[frame].set_peer(PeerId::NONE);
        self.memory.cargo[frame].len = CHALLENGE_BYTES as u32;
        // Behind the packet: no entry holds this address.
        let to = &mut self.memory.bytes[at + CHALLENGE_BYTES..][..18];
        to[..16].copy_from_slice(&from.ip);
        to[16..].copy_from_slice(&from.port.to_le_bytes());
        self.core
            .queues
            .connects
            .push_back(self.memory.cargo, frame);
    }

    /// Sends a challenge to the address that stands behind it.
    pub(super) fn challenge_leaves(&mut self, frame: FrameIndex) -> Transmit {
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
    pub(super) fn handle_challenge(&mut self, packet: &[u8]) {
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
            self.note_unusual(conn);
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
    pub(super) fn is_parting(&self, conn: ConnIndex) -> bool {
        self.peers[self.conns[conn].peer].bits.parting()
    }

    /// Whether a connection still sends from the memory of a long message.
    fn lends(&self, conn: ConnIndex) -> bool {
        let frames = self.memory.cargo.iter().filter(|m| m.usage != Use::Free);
        let mut mine = frames.filter(|m| m.conn == conn && m.long.is_some());
        let mut cut = self.conns[conn].outbound.tx.iter().flatten();
        cut.any(|tx| tx.long.is_some())
            || mine.any(|m| self.memory.longs[m.long].memory == MemoryOwner::Lent)
    }

    /// Goes on with a removal: the close is queued once all that was sent before is acknowledged,
    /// or its time is up.
    #[cold]
    pub(super) fn part(&mut self, now: u64, conn: ConnIndex) {
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
