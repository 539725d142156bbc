//! Peers: adding them, finding them, and the lives that they begin.

use portolan_seal::Seal;
use portolan_wire::{EndpointId, Life};

use crate::base::{NetAddress, PeerId};
use crate::congestion::Mode;
use crate::endpoint::Endpoint;
use crate::path::KeptPath;
use crate::tables::{Kept, Peer, PeerBits};

/// Why a peer was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AddPeerError {
    /// [`crate::Config::peers`] are there already.
    #[error("no room for another peer: raise the setting `peers`")]
    Full,
    /// A peer with this id is there already.
    #[error("peer {0} has this id already")]
    Exists(PeerId),
}

impl<S: Seal> Endpoint<'_, S> {
    /// Adds a peer; it need not be up, nothing is sent yet. `mode` is used
    /// unless the configuration fixes one.
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
        let peer = PeerId(self.core.peer_count);
        if peer.0 >= self.core.config.peers {
            return Err(AddPeerError::Full);
        }
        self.core.peer_count += 1;
        self.peers[peer] = Peer {
            id,
            bits: PeerBits::new(self.core.config.congestion.unwrap_or(mode)),
            ..Peer::default()
        };
        self.lead(peer, to);
        self.begin_life(peer, life);
        Ok(peer)
    }

    /// From now on the caller alone says in which life a peer is
    /// ([`Endpoint::peer_returned`]): whoever speaks up in another, such as one
    /// that was taken for dead and is not, is not listened to.
    pub fn pin_incarnation(&mut self, peer: PeerId) {
        self.peers[peer].bits.set_fixed();
    }

    /// Starts a peer's record for a life: counters, a nonce, a connection number.
    pub(crate) fn begin_life(&mut self, peer: PeerId, life: Life) {
        let nonce_mine = self.core.random();
        let lot = Peer::lot(self.new_connection(peer));
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
            *words = Kept::new(config).to_words(KeptPath::new(config.first_packet));
        }
    }

    /// The peer with an id, where it has the place that launchers give it: they
    /// number ids in the order in which peers are added.
    pub(crate) fn guess_peer(&self, id: EndpointId) -> Option<PeerId> {
        let known = &self.peers[..self.core.peer_count as usize];
        let base = known.first()?.id.0;
        let guess = id.0.wrapping_sub(base) as usize;
        let right = known.get(guess).is_some_and(|p| p.id == id);
        right.then_some(PeerId::new(guess))
    }

    /// The peer with an id, wherever it is. Looked up at connects only.
    pub(crate) fn find_peer(&self, id: EndpointId) -> Option<PeerId> {
        let known = &self.peers[..self.core.peer_count as usize];
        let search = || known.iter().position(|p| p.id == id).map(PeerId::new);
        self.guess_peer(id).or_else(search)
    }
}
