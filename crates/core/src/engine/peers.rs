//! Peers of an endpoint outside of a job, which come and go.
//!
//! The protocol gives a peer its number, and this endpoint is number 0: a peer's rank is its
//! number in the protocol, and one more. A number is given back when nothing of its last
//! holder can arrive any more, and nothing of that waits for the program.

use portolan_proto::congestion::Mode;
use portolan_proto::{NetAddress, PeerId, PeerState};

use super::Engine;
use crate::environment::{Clock, Network};
use crate::lanes::Lane;
use crate::out::NewPeer;
use crate::values::{Death, Event, Misuse};

/// A peer that has closed is answered for so long, should it say so again, ns: several times
/// what it waits before it does.
const LINGER_NS: u64 = 200_000_000;

/// Strangers that are to go at once where there is no place left, at most.
const EVICTED: usize = 4;

/// Why peers are reached as they are.
const ADDED: &str = "added by its address";
const CAME: &str = "it introduced itself";

/// A rank's number in the protocol.
const fn peer_of(rank: u32) -> PeerId {
    PeerId(rank - 1)
}

impl<N: Network, C: Clock> Engine<N, C> {
    /// Adds a peer that has a public key, or finds it: gives its number. One that is dead
    /// begins anew. `None`: there is no room for it.
    pub fn add_peer(&mut self, it: &NewPeer) -> Option<u32> {
        let net = self.net.as_mut()?;
        let mut view = net.tables().view();
        if let Some(peer) = view.peer_of(it.id) {
            let rank = peer.0 + 1;
            view.acknowledge(peer);
            view.relocate(peer, it.to, it.mode);
            view.revive(peer, it.to, it.mode);
            if self.core.lanes.dead(rank).is_some() {
                self.departed.retain(|(other, _)| *other != rank);
                self.begin_rank(rank, ADDED);
            }
            return Some(rank);
        }
        let mut added = net.tables().add_peer(it).ok();
        if added.is_none() {
            self.keep_places();
            added = self.net.as_mut()?.tables().add_peer(it).ok();
        }
        self.keep_places();
        let rank = added?.0 + 1;
        self.begin_rank(rank, ADDED);
        Some(rank)
    }

    /// The program has no more to do with a peer: operations with it end.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: nobody has this number.
    pub fn remove_peer(&mut self, rank: u32) -> Result<(), Misuse> {
        match self.core.lanes.get(rank) {
            Some(Lane::Net(_)) => {}
            Some(Lane::Dead(why)) if why != Death::Nobody => {}
            _ => return Err(Misuse::BadRank),
        }
        self.part_from(peer_of(rank));
        // One that was dead has departed: but its last words may still be repeated.
        self.core.lanes.set_removed(rank);
        self.has_departed(rank);
        Ok(())
    }

    /// A peer is to hear that it was removed. No error handler hears of it.
    fn part_from(&mut self, peer: PeerId) {
        let now = self.clock.now();
        if let Some(net) = &mut self.net {
            net.remove_peer(&mut self.core, now, peer, &self.clock);
        }
        // Now that nothing is read any more from the memory of what was sent to it.
        self.core.set_dead(peer.0 + 1, Death::Nobody);
        self.flush();
    }

    /// A peer has introduced itself: from now on it may send.
    pub fn let_in(&mut self, rank: u32, mode: impl FnOnce(NetAddress) -> Mode) {
        let Some(net) = &mut self.net else { return };
        let peer = peer_of(rank);
        let Some(address) = net.tables().view().peer_address(peer) else {
            return;
        };
        self.keep_places();
        self.departed.retain(|(other, _)| *other != rank);
        self.begin_rank(rank, CAME);
        self.core.emit_to_all(Event::PeerCome { rank }, 0);
        let now = self.clock.now();
        if let Some(net) = &mut self.net {
            net.set_now(now);
            net.tables().view().welcome(now, peer, mode(address));
            net.sender().dirty = true;
        }
        self.flush();
    }

    /// Nothing of a peer comes any more. Its number is free once nothing needs it, unless
    /// the program has added it, and has yet to remove it.
    pub fn has_departed(&mut self, rank: u32) {
        let now = self.clock.now();
        let removed = self.core.lanes.dead(rank) == Some(Death::Nobody);
        if let Some(net) = &mut self.net {
            let (view, peer) = (net.tables().view(), peer_of(rank));
            // It may have come again at once.
            let is_gone = matches!(view.peer_state(peer), PeerState::Dead(_));
            let is_known = self.departed.iter().any(|(other, _)| *other == rank);
            if is_gone && !is_known && (removed || view.is_stranger(peer)) {
                self.departed.push_back((rank, now));
            }
        }
        self.free_departed(now);
    }

    /// Gives back what can be given back.
    fn free_departed(&mut self, now: u64) {
        for _ in 0..self.departed.len() {
            let Some((rank, since)) = self.departed.pop_front() else {
                return;
            };
            if now.saturating_sub(since) < LINGER_NS {
                self.departed.push_front((rank, since));
                return;
            }
            if self.core.holds_of(rank) || self.matched.holds_of(rank) {
                self.departed.push_back((rank, now));
                continue;
            }
            self.free_number(rank);
        }
    }

    /// The table is full: the first that has gone makes room. Else strangers go: those that
    /// answer nothing at once, and then the one that was quiet longest, which is told.
    fn make_number_free(&mut self) {
        if let Some((rank, _)) = self.departed.pop_front() {
            self.free_number(rank);
            return;
        }
        // Several where there are many, as more will come.
        let now = self.clock.now();
        let several = (self.core.size as usize / 64).clamp(1, EVICTED);
        for _ in 0..several {
            let Some(net) = &mut self.net else { return };
            let view = net.tables().view();
            if let Some(peer) = view.silent_stranger(now) {
                net.peer_died(&mut self.core, peer, Death::Silent, &self.clock);
                continue;
            }
            let Some(peer) = view.quietest_stranger() else {
                return;
            };
            let (rank, why) = (peer.0 + 1, Death::Nobody);
            self.part_from(peer);
            self.core.emit_to_all(Event::PeerDead { rank, why }, 0);
        }
    }

    fn free_number(&mut self, rank: u32) {
        self.core.lanes.set_removed(rank);
        if let Some(net) = &mut self.net {
            net.tables().view().free_peer(peer_of(rank));
        }
    }

    /// Gives back what can be given back. Strangers are to find places, though they come
    /// between two passes.
    pub fn keep_places(&mut self) {
        let now = self.clock.now();
        self.free_departed(now);
        let Some(net) = &mut self.net else { return };
        net.tables().keep_places();
        if net.tables().view().unused_peers() == 0 {
            self.make_number_free();
        }
    }

    /// Somebody has a number from now on.
    fn begin_rank(&mut self, rank: u32, reason: &str) {
        let peer = peer_of(rank);
        if self.core.lanes.get(rank).is_none() {
            self.core.lanes.grow(rank + 1, reason);
            self.core.grow(rank + 1);
            self.matched.grow(rank + 1);
            if let Some(net) = &mut self.net {
                net.grow(rank);
            }
        } else {
            let (core, mut on) = self.parts();
            core.forget_life(&mut on, rank);
        }
        self.core.lanes.renew(rank, peer, reason);
    }
}
