//! Peers of an endpoint outside of a job, which come and go.
//!
//! The protocol assigns a peer its number, and this endpoint is rank 0: a peer's rank is its
//! number in the protocol plus one. A number is released when nothing of its last holder can
//! arrive any more, and nothing of it waits for the program.

use std::os::fd::OwnedFd;

use portolan_link::shm::{Ringer, SegmentError};
use portolan_proto::congestion::Mode;
use portolan_proto::{NetAddress, PeerId, PeerState};
use portolan_wire::{EndpointId, Life};

use super::Engine;
use crate::core::CoreState;
use crate::environment::{Clock, Network};
use crate::lanes::Lane;
use crate::outbound::NewPeer;
use crate::values::{Death, Event, Misuse};

/// How long a peer that has closed is still answered if it repeats that, ns: several times its
/// own retry interval.
const LINGER_NS: u64 = 200_000_000;

/// Maximum number of strangers that are evicted at once when the table is full.
const EVICTED: usize = 4;

/// Reasons for the lane to a peer.
const ADDED: &str = "added by its address";
const CAME: &str = "it introduced itself";

/// Returns a rank's number in the protocol.
const fn peer_of(rank: u32) -> PeerId {
    PeerId(rank - 1)
}

/// Why memory is not shared with a peer of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalRefused {
    /// There is no room for it now.
    NotNow,
    /// The peer is reached by the network.
    Never,
}

impl<N: Network, C: Clock> Engine<N, C> {
    /// Adds a peer that has a public key, or finds it; returns its number. A dead peer begins
    /// anew, unless it has closed and something of it is still to be received. `near`: it is on
    /// this host, and shares memory. `None`: there is no room for it.
    pub fn add_peer(&mut self, it: &NewPeer, near: bool) -> Option<u32> {
        if let Some(rank) = self.closed_with_messages(it.id) {
            self.departed.retain(|(other, _)| *other != rank);
            self.io
                .net
                .as_mut()?
                .tables()
                .view()
                .acknowledge(peer_of(rank));
            self.set_known(rank, true);
            return Some(rank);
        }
        let mut view = self.io.net.as_mut()?.tables().view();
        if let Some(peer) = view.peer_of(it.id) {
            let rank = peer.0 + 1;
            view.acknowledge(peer);
            view.relocate(peer, it.to, it.mode);
            view.revive(peer, it.to, it.mode);
            if self.core.lanes.dead(rank).is_some() {
                self.begin_rank(rank, near, ADDED);
            }
            self.set_known(rank, true);
            return Some(rank);
        }
        let rank = self.record_peer(it)?;
        self.begin_rank(rank, near, ADDED);
        self.set_known(rank, true);
        Some(rank)
    }

    /// Returns a peer that has closed, with messages still to be received. Its key does not
    /// come again.
    fn closed_with_messages(&mut self, id: EndpointId) -> Option<u32> {
        let known = self.io.net.as_mut()?.tables().view().peer_of(id);
        let departed: Vec<u32> = self.departed.iter().map(|(rank, _)| *rank).collect();
        let mut all = known.map(|peer| peer.0 + 1).into_iter().chain(departed);
        all.find(|&rank| {
            self.core.lanes.dead(rank) == Some(Death::Closed)
                && self.identity(rank).is_some_and(|(its, _)| its == id)
                && (self.core.holds_of(rank) || self.io.matched.holds_of(rank))
        })
    }

    /// Sets whether the program has ever added the holder of a number. That stays until the
    /// number is released.
    fn set_known(&mut self, rank: u32, known: bool) {
        for part in self.io.matched.all_mut() {
            part.exchange.set_known(rank, known);
        }
        if let Some(index) = self.io.shm.as_ref().and_then(|shm| shm.index_of(rank)) {
            self.tell_reach(rank, index);
        }
    }

    /// Tells a peer of this host whether it may access our memory directly.
    fn tell_reach(&mut self, rank: u32, index: u16) {
        let may = self.io.matched.own.exchange.may_reach(rank);
        if let Some(shm) = &mut self.io.shm {
            shm.link.outlet().set_barred(index, !may);
        }
    }

    /// Admits a peer of this host that wants to share memory: returns its number, if it may
    /// send, and whether it had none. A peer that was not added has thereby introduced itself,
    /// once it is [met](Engine::meet).
    ///
    /// # Errors
    /// [`LocalRefused`].
    pub fn accept_local(&mut self, it: &NewPeer) -> Result<(u32, bool), LocalRefused> {
        if let Some((rank, Lane::Shm(_))) = self.lane_of(it.id) {
            // The peer has removed us, though we have not read that.
            self.handle_peer_death(rank, Death::Removed);
        }
        let Some(net) = &mut self.io.net else {
            return Err(LocalRefused::Never);
        };
        let mut view = net.tables().view();
        let known = view.peer_of(it.id);
        if known.is_none() && !view.accepts_strangers() {
            return Err(LocalRefused::Never);
        }
        if let Some(peer) = known {
            let rank = peer.0 + 1;
            if self.core.lanes.dead(rank).is_some() {
                view.revive(peer, it.to, it.mode);
                self.begin_rank(rank, true, CAME);
            }
            return Ok((rank, false));
        }
        // Strangers that were evicted for it may have to be told first.
        let rank = self.record_peer(it).ok_or(LocalRefused::NotNow)?;
        if let Some(net) = &mut self.io.net {
            net.tables().view().set_stranger(peer_of(rank));
        }
        self.begin_rank(rank, true, CAME);
        Ok((rank, true))
    }

    /// Settles a peer that had no number and wanted to share memory: it was met, or has gone
    /// again.
    pub fn finish_accept_local(&mut self, rank: u32, met: bool) {
        if met {
            self.core.emit_to_all(Event::PeerCome { rank }, 0);
            return;
        }
        self.core.set_dead(rank, Death::Nobody);
        self.lose_near(rank, Death::Nobody);
    }

    /// Reserves an index by which a rank of this host may write to us from now on. `None`: it
    /// shares no memory with us, or there is no index left.
    pub fn expect_near(&mut self, rank: u32) -> Option<u16> {
        match self.core.lanes.get(rank) {
            Some(Lane::Unmet(_) | Lane::Meeting(_)) => {}
            _ => return None,
        }
        let shm = self.io.shm.as_mut()?;
        let index = shm.free_index()?;
        shm.begin(index, rank);
        Some(index)
    }

    /// Frees an index that [`Engine::expect_near`] reserved.
    pub fn forget_near(&mut self, index: u16) {
        if let Some(shm) = &mut self.io.shm {
            shm.unbegin(index);
        }
    }

    /// Maps the memory of a peer that was [expected](Engine::expect_near). `its`: that memory,
    /// and the descriptor that wakes the peer. `us`: our index there. `pid`: its process, as
    /// [`ShmPort::set_process`](portolan_link::shm::ShmPort::set_process) asks.
    ///
    /// # Errors
    /// [`SegmentError`]; nothing has changed.
    pub fn map_near(
        &mut self,
        index: u16,
        its: (OwnedFd, Ringer),
        (us, pid): (u16, u32),
    ) -> Result<(), SegmentError> {
        let shm = self.io.shm.as_mut().ok_or(SegmentError::NoIndex(index))?;
        shm.link.connect(index, its, us)?;
        shm.link.set_process(index, pid);
        if let Some(rank) = shm.ranks().get(usize::from(index)).copied() {
            self.tell_reach(rank, index);
        }
        Ok(())
    }

    /// Unmaps a peer that will never learn its index: nothing arrives from it.
    pub fn unmap_near(&mut self, index: u16) {
        if let Some(shm) = &mut self.io.shm {
            shm.abandon(index);
        }
    }

    /// Returns the number of a peer, and how it is reached.
    fn lane_of(&mut self, id: EndpointId) -> Option<(u32, Lane)> {
        let rank = self.io.net.as_mut()?.tables().view().peer_of(id)?.0 + 1;
        Some((rank, self.core.lanes.get(rank)?))
    }

    /// Returns a peer's id and life.
    pub fn identity(&mut self, rank: u32) -> Option<(EndpointId, Life)> {
        self.io
            .net
            .as_mut()?
            .tables()
            .view()
            .peer_identity(peer_of(rank))
    }

    /// Marks a peer of this host dead that cannot be reached.
    pub fn lose_near(&mut self, rank: u32, why: Death) {
        self.core.mark_dead(rank, why);
        if let Some(net) = &mut self.io.net {
            net.peer_died(&mut self.core, peer_of(rank), why, &self.io.clock);
        }
    }

    /// Switches a peer that has mapped our memory, or is about to, to shared memory. If it is
    /// dead to us by now, it is told so.
    pub fn meet(&mut self, rank: u32, index: u16) {
        let is_met = matches!(
            self.core.lanes.get(rank),
            Some(Lane::Unmet(_) | Lane::Meeting(_))
        );
        if !is_met {
            if let Some(shm) = &mut self.io.shm {
                shm.part(index);
            }
            return;
        }
        self.core.lanes.change(rank, Lane::Shm(index), "same host");
        let (core, mut on) = self.parts();
        CoreState::meet_matched(&mut on, rank);
        core.note_work();
    }

    /// Switches a rank of this host to the network. `why`: why no memory is shared with it.
    pub fn fall_back_to_network(&mut self, rank: u32, why: &str) {
        if let Some(Lane::Unmet(peer) | Lane::Meeting(peer)) = self.core.lanes.get(rank) {
            log::info!("{} by the network: {why}", self.core.named(rank));
            self.core.lanes.change(rank, Lane::Net(peer), why);
            self.core.note_work();
        }
    }

    /// Handles the end of a peer by shared memory, of which nothing more is read.
    pub(super) fn detach_local(&mut self, rank: u32, index: u16, why: Death) {
        if let Some(shm) = &mut self.io.shm {
            shm.part(index);
        }
        let state = self.io.net.as_mut().map(|net| {
            let view = net.tables().view();
            view.peer_state(peer_of(rank))
        });
        if why == Death::Removed && state == Some(PeerState::Up) {
            // The peer has come again by the network before we have read that.
            self.core.mark_dead(rank, why);
            self.begin_rank(rank, false, CAME);
            self.core.emit_to_all(Event::PeerCome { rank }, 0);
            return;
        }
        self.lose_near(rank, why);
    }

    fn record_peer(&mut self, it: &NewPeer) -> Option<u32> {
        let mut added = self.io.net.as_mut()?.tables().add_peer(it).ok();
        if added.is_none() {
            self.evict_peers();
            added = self.io.net.as_mut()?.tables().add_peer(it).ok();
        }
        self.evict_peers();
        Some(added?.0 + 1)
    }

    /// Checks that a peer has this number.
    fn check_peer(&self, rank: u32) -> Result<(), Misuse> {
        match self.core.lanes.get(rank) {
            Some(Lane::Net(_) | Lane::Unmet(_) | Lane::Meeting(_) | Lane::Shm(_)) => Ok(()),
            Some(Lane::Dead(why)) if why != Death::Nobody => Ok(()),
            _ => Err(Misuse::BadRank),
        }
    }

    /// Releases the program's name for a peer; operations go on, and the peer is not told. From
    /// now on it is a stranger: it is evicted if others need its place.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: no peer has this number.
    pub fn release_peer(&mut self, rank: u32) -> Result<(), Misuse> {
        self.check_peer(rank)?;
        if let Some(net) = &mut self.io.net {
            net.tables().view().set_stranger(peer_of(rank));
        }
        if self.core.lanes.dead(rank).is_some() {
            self.has_departed(rank);
        }
        Ok(())
    }

    /// Removes a peer for the program: operations with it end.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: no peer has this number.
    pub fn remove_peer(&mut self, rank: u32) -> Result<(), Misuse> {
        self.check_peer(rank)?;
        self.part_from(rank);
        // A dead peer has departed, but may still repeat its last packets.
        self.core.lanes.set_removed(rank);
        self.has_departed(rank);
        Ok(())
    }

    /// Tells a peer that it was removed. Error handlers are not told.
    fn part_from(&mut self, rank: u32) {
        if let (Some(Lane::Shm(index)), Some(shm)) = (self.core.lanes.get(rank), &mut self.io.shm) {
            shm.part(index);
        }
        let now = self.io.clock.now();
        if let Some(net) = &mut self.io.net {
            net.remove_peer(&mut self.core, now, peer_of(rank), &self.io.clock);
        }
        // Only now: nothing is read any more from the memory of what was sent to it.
        self.core.set_dead(rank, Death::Nobody);
        self.flush();
    }

    /// Admits a peer that has introduced itself: from now on it may send.
    pub fn accept_stranger(&mut self, rank: u32, mode: impl FnOnce(NetAddress) -> Mode) {
        let Some(net) = &mut self.io.net else { return };
        let peer = peer_of(rank);
        let Some(address) = net.tables().view().peer_address(peer) else {
            return;
        };
        self.evict_peers();
        self.begin_rank(rank, false, CAME);
        self.core.emit_to_all(Event::PeerCome { rank }, 0);
        let now = self.io.clock.now();
        if let Some(net) = &mut self.io.net {
            net.set_now(now);
            net.tables().view().accept(now, peer, mode(address));
            net.sender().dirty = true;
        }
        self.flush();
    }

    /// Handles that nothing more arrives from a peer. Its number is free once nothing needs it,
    /// unless the program has added it, and has yet to remove it.
    pub fn has_departed(&mut self, rank: u32) {
        let now = self.io.clock.now();
        // The peer may have closed by the network before memory was shared with it again.
        if let Some(shm) = &mut self.io.shm
            && self.core.lanes.dead(rank).is_some()
            && let Some(index) = shm.index_of(rank)
        {
            shm.part(index);
        }
        let removed = self.core.lanes.dead(rank) == Some(Death::Nobody);
        if let Some(net) = &mut self.io.net {
            let (view, peer) = (net.tables().view(), peer_of(rank));
            // The peer may have come again at once.
            let is_gone = matches!(view.peer_state(peer), PeerState::Dead(_));
            let is_known = self.departed.iter().any(|(other, _)| *other == rank);
            if is_gone && !is_known && (removed || view.is_stranger(peer)) {
                self.departed.push_back((rank, now));
            }
        }
        self.free_departed(now);
    }

    /// Releases numbers of departed peers that nothing needs any more.
    fn free_departed(&mut self, now: u64) {
        for _ in 0..self.departed.len() {
            let Some((rank, since)) = self.departed.pop_front() else {
                return;
            };
            if now.saturating_sub(since) < LINGER_NS {
                self.departed.push_front((rank, since));
                return;
            }
            if self.core.holds_of(rank) || self.io.matched.holds_of(rank) {
                self.departed.push_back((rank, now));
                continue;
            }
            self.free_number(rank);
        }
    }

    /// Frees a number when the table is full: that of the first departed peer. Otherwise
    /// strangers are evicted: at once those that answer nothing, then the one that was quiet
    /// longest, which is told.
    fn make_number_free(&mut self) {
        let is_free = |it: &Self, at: &usize| {
            let rank = it.departed[*at].0;
            !(it.core.holds_of(rank) || it.io.matched.holds_of(rank))
        };
        if let Some(at) = (0..self.departed.len()).find(|at| is_free(self, at))
            && let Some((rank, _)) = self.departed.remove(at)
        {
            self.free_number(rank);
            return;
        }
        // Several if there are many, as more will come.
        let now = self.io.clock.now();
        let several = (self.core.size as usize / 64).clamp(1, EVICTED);
        for at in 0..several {
            if let Some(net) = &mut self.io.net
                && let Some(peer) = net.tables().view().silent_stranger(now)
            {
                net.peer_died(&mut self.core, peer, Death::Silent, &self.io.clock);
                continue;
            }
            // By turns one by the network and one of this host.
            let by_network = |it: &mut Self| {
                let lanes = &it.core.lanes;
                // A peer that is being met may still answer the call.
                let may_go = |peer: PeerId| {
                    matches!(lanes.get(peer.0 + 1), Some(Lane::Net(_) | Lane::Unmet(_)))
                };
                let view = it.io.net.as_mut()?.tables().view();
                view.quietest_stranger(may_go).map(|peer| peer.0 + 1)
            };
            let rank = if at % 2 == 0 {
                by_network(self).or_else(|| self.quietest_near())
            } else {
                self.quietest_near().or_else(|| by_network(self))
            };
            let Some(rank) = rank else { return };
            self.part_from(rank);
            self.core.emit_to_all(Event::dead(rank, Death::Nobody), 0);
        }
    }

    /// Returns the stranger by shared memory that was quiet longest.
    fn quietest_near(&mut self) -> Option<u32> {
        let (net, lanes) = (self.io.net.as_mut()?, &self.core.lanes);
        let view = net.tables().view();
        let is_stranger =
            |rank| matches!(lanes.get(rank), Some(Lane::Shm(_))) && view.is_stranger(peer_of(rank));
        self.io.shm.as_ref()?.quietest(is_stranger)
    }

    fn free_number(&mut self, rank: u32) {
        self.core.lanes.set_removed(rank);
        self.set_known(rank, false);
        if let Some(net) = &mut self.io.net {
            net.tables().view().free_peer(peer_of(rank));
        }
    }

    /// Releases numbers that nothing needs any more, and keeps some free for strangers that
    /// come between two passes.
    pub fn evict_peers(&mut self) {
        let now = self.io.clock.now();
        self.free_departed(now);
        let Some(net) = &mut self.io.net else { return };
        net.tables().evict_peers();
        if net.tables().view().unused_peers() == 0 {
            self.make_number_free();
        }
    }

    /// Assigns a number to a peer.
    fn begin_rank(&mut self, rank: u32, near: bool, reason: &str) {
        let peer = peer_of(rank);
        self.departed.retain(|(other, _)| *other != rank);
        if self.core.lanes.get(rank).is_none() {
            self.core.lanes.grow(rank + 1, reason);
            self.core.grow(rank + 1);
            self.io.matched.grow(rank + 1);
            if let Some(net) = &mut self.io.net {
                net.grow(rank);
            }
        } else {
            let (core, mut on) = self.parts();
            core.forget_life(&mut on, rank);
        }
        let lane = match &self.io.shm {
            Some(_) if near => Lane::Unmet(peer),
            _ => Lane::Net(peer),
        };
        self.core.lanes.renew(rank, lane, reason);
    }
}
