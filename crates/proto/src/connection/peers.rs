//! Peers: adding them, finding them, and the lives that they begin.

use portolan_seal::Seal;
use portolan_wire::{EndpointId, Life};

use crate::base::{NetAddress, PeerId};
use crate::congestion::Mode;
use crate::endpoint::Endpoint;
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
    pub(crate) fn take_number(&mut self) -> Option<PeerId> {
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
    pub(crate) fn give_number(&mut self, peer: PeerId) {
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
    pub(crate) fn record(
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
    pub(crate) fn locate(&mut self, peer: PeerId, to: NetAddress, mode: Mode) {
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
    pub(crate) fn begin_life(&mut self, peer: PeerId, life: Life) {
        let nonce_mine = self.core.random();
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
    pub(crate) fn guess_peer(&self, id: EndpointId) -> Option<PeerId> {
        // Peers that come and go have no such place, and may have left an older entry.
        let numbered = !self.core.config.introduces;
        let known = &self.peers[..self.core.peer_count as usize];
        let base = known.first().filter(|_| numbered)?.id.0;
        let guess = id.0.wrapping_sub(base) as usize;
        let right = known.get(guess).is_some_and(|p| p.id == id);
        right.then_some(PeerId::new(guess))
    }

    /// Peer with an id, wherever it is. Called at connects and additions only.
    pub(crate) fn find_peer(&self, id: EndpointId) -> Option<PeerId> {
        let known = &self.peers[..self.core.peer_count as usize];
        let search = || known.iter().position(|p| p.id == id).map(PeerId::new);
        if self.core.config.introduces {
            return self.peer_of(id);
        }
        self.guess_peer(id).or_else(search)
    }
}
