//! Peers of an endpoint outside of a job, which come and go.
//!
//! The protocol gives a peer its number, and this endpoint is number 0: a peer's rank is its
//! number in the protocol, and one more. A number is given back when nothing of its last
//! holder can arrive any more, and nothing of that waits for the program.

use std::os::fd::OwnedFd;

use portolan_link::shm::{Ringer, SegmentError};
use portolan_proto::congestion::Mode;
use portolan_proto::{NetAddress, PeerId, PeerState};
use portolan_wire::{EndpointId, Life};

use super::Engine;
use crate::core::Core;
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

/// Why memory is not shared with one of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNear {
    /// There is no place for it now.
    NotNow,
    /// It goes by the network.
    Never,
}

impl<N: Network, C: Clock> Engine<N, C> {
    /// Adds a peer that has a public key, or finds it: gives its number. One that is dead
    /// begins anew, unless it has closed and something of it is still to be received. `near`:
    /// it is on this host, and shares memory. `None`: there is no room for it.
    pub fn add_peer(&mut self, it: &NewPeer, near: bool) -> Option<u32> {
        if let Some(rank) = self.closed_with_messages(it.id) {
            self.departed.retain(|(other, _)| *other != rank);
            self.net
                .as_mut()?
                .tables()
                .view()
                .acknowledge(peer_of(rank));
            self.set_known(rank, true);
            return Some(rank);
        }
        let mut view = self.net.as_mut()?.tables().view();
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

    /// A peer that has closed, of which something is still to be received. Its key does not come
    /// again.
    fn closed_with_messages(&mut self, id: EndpointId) -> Option<u32> {
        let known = self.net.as_mut()?.tables().view().peer_of(id);
        let departed: Vec<u32> = self.departed.iter().map(|(rank, _)| *rank).collect();
        let mut all = known.map(|peer| peer.0 + 1).into_iter().chain(departed);
        all.find(|&rank| {
            self.core.lanes.dead(rank) == Some(Death::Closed)
                && self.identity(rank).is_some_and(|(its, _)| its == id)
                && (self.core.holds_of(rank) || self.matched.holds_of(rank))
        })
    }

    /// Whether the program has ever added whoever has a number. It stays so until the number
    /// is given back.
    fn set_known(&mut self, rank: u32, known: bool) {
        for part in self.matched.all_mut() {
            part.exchange.set_known(rank, known);
        }
        if let Some(index) = self.shm.as_ref().and_then(|shm| shm.index_of(rank)) {
            self.tell_reach(rank, index);
        }
    }

    /// One of this host learns whether it may reach into our memory itself.
    fn tell_reach(&mut self, rank: u32, index: u16) {
        let may = self.matched.own.exchange.may_reach(rank);
        if let Some(shm) = &mut self.shm {
            shm.link.outlet().set_barred(index, !may);
        }
    }

    /// One of this host wants to share memory: gives its number, if it may send, and whether
    /// it had none. One that nobody has added has introduced itself by that, once it is
    /// [met](Engine::meet).
    ///
    /// # Errors
    /// [`NotNear`].
    pub fn let_near(&mut self, it: &NewPeer) -> Result<(u32, bool), NotNear> {
        if let Some((rank, Lane::Shm(_))) = self.lane_of(it.id) {
            // It has removed us, though we have not read that.
            self.gone(rank, Death::Removed);
        }
        let Some(net) = &mut self.net else {
            return Err(NotNear::Never);
        };
        let mut view = net.tables().view();
        let known = view.peer_of(it.id);
        if known.is_none() && !view.accepts_strangers() {
            return Err(NotNear::Never);
        }
        if let Some(peer) = known {
            let rank = peer.0 + 1;
            if self.core.lanes.dead(rank).is_some() {
                view.revive(peer, it.to, it.mode);
                self.begin_rank(rank, true, CAME);
            }
            return Ok((rank, false));
        }
        // Those that had to go for it may have to hear that first.
        let rank = self.record_peer(it).ok_or(NotNear::NotNow)?;
        if let Some(net) = &mut self.net {
            net.tables().view().set_stranger(peer_of(rank));
        }
        self.begin_rank(rank, true, CAME);
        Ok((rank, true))
    }

    /// One that had no number and wanted to share memory was met, or has gone again.
    pub fn settle_near(&mut self, rank: u32, met: bool) {
        if met {
            self.core.emit_to_all(Event::PeerCome { rank }, 0);
            return;
        }
        self.core.set_dead(rank, Death::Nobody);
        self.lose_near(rank, Death::Nobody);
    }

    /// A number by which a rank of this host may write to us from now on. `None`: it shares
    /// no memory with us, or there is no number left.
    pub fn expect_near(&mut self, rank: u32) -> Option<u16> {
        match self.core.lanes.get(rank) {
            Some(Lane::Unmet(_) | Lane::Meeting(_)) => {}
            _ => return None,
        }
        let shm = self.shm.as_mut()?;
        let index = shm.free_index()?;
        shm.begin(index, rank);
        Some(index)
    }

    /// It does not after all.
    pub fn forget_near(&mut self, index: u16) {
        if let Some(shm) = &mut self.shm {
            shm.unbegin(index);
        }
    }

    /// The memory of one that was [expected](Engine::expect_near) is mapped: what is its, and
    /// the descriptor that wakes it. It calls us `us`, and is process `pid`, as
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
        let shm = self.shm.as_mut().ok_or(SegmentError::NoIndex(index))?;
        shm.link.connect(index, its, us)?;
        shm.link.set_process(index, pid);
        if let Some(rank) = shm.ranks().get(usize::from(index)).copied() {
            self.tell_reach(rank, index);
        }
        Ok(())
    }

    /// It will never know what it is called: nothing comes from it.
    pub fn unmap_near(&mut self, index: u16) {
        if let Some(shm) = &mut self.shm {
            shm.abandon(index);
        }
    }

    /// The number of a peer that lives, and how it is reached.
    fn lane_of(&mut self, id: EndpointId) -> Option<(u32, Lane)> {
        let rank = self.net.as_mut()?.tables().view().peer_of(id)?.0 + 1;
        Some((rank, self.core.lanes.get(rank)?))
    }

    /// How a peer's key names it.
    pub fn identity(&mut self, rank: u32) -> Option<(EndpointId, Life)> {
        self.net
            .as_mut()?
            .tables()
            .view()
            .peer_identity(peer_of(rank))
    }

    /// One of this host cannot be reached.
    pub fn lose_near(&mut self, rank: u32, why: Death) {
        self.core.mark_dead(rank, why);
        if let Some(net) = &mut self.net {
            net.peer_died(&mut self.core, peer_of(rank), why, &self.clock);
        }
    }

    /// It has mapped ours, or is about to: all goes by shared memory from now on. One that is
    /// dead to us by now hears that.
    pub fn meet(&mut self, rank: u32, index: u16) {
        let is_met = matches!(
            self.core.lanes.get(rank),
            Some(Lane::Unmet(_) | Lane::Meeting(_))
        );
        if !is_met {
            if let Some(shm) = &mut self.shm {
                shm.part(index);
            }
            return;
        }
        self.core.lanes.change(rank, Lane::Shm(index), "same host");
        let (core, mut on) = self.parts();
        Core::meet_matched(&mut on, rank);
        core.attention = true;
    }

    /// No memory is shared with a rank of this host, and why not.
    pub fn pass_by(&mut self, rank: u32, why: &str) {
        if let Some(Lane::Unmet(peer) | Lane::Meeting(peer)) = self.core.lanes.get(rank) {
            log::info!("rank {}: rank {rank} by the network: {why}", self.core.rank);
            self.core.lanes.change(rank, Lane::Net(peer), why);
            self.core.attention = true;
        }
    }

    /// A peer by shared memory has parted, and nothing more is read of it.
    pub(super) fn part_near(&mut self, rank: u32, index: u16, why: Death) {
        if let Some(shm) = &mut self.shm {
            shm.part(index);
        }
        let state = self.net.as_mut().map(|net| {
            let view = net.tables().view();
            view.peer_state(peer_of(rank))
        });
        if why == Death::Removed && state == Some(PeerState::Up) {
            // It has come again by the network before we have read that.
            self.core.mark_dead(rank, why);
            self.begin_rank(rank, false, CAME);
            self.core.emit_to_all(Event::PeerCome { rank }, 0);
            return;
        }
        self.lose_near(rank, why);
    }

    fn record_peer(&mut self, it: &NewPeer) -> Option<u32> {
        let mut added = self.net.as_mut()?.tables().add_peer(it).ok();
        if added.is_none() {
            self.keep_places();
            added = self.net.as_mut()?.tables().add_peer(it).ok();
        }
        self.keep_places();
        Some(added?.0 + 1)
    }

    /// Somebody must have this number.
    fn check_peer(&self, rank: u32) -> Result<(), Misuse> {
        match self.core.lanes.get(rank) {
            Some(Lane::Net(_) | Lane::Unmet(_) | Lane::Meeting(_) | Lane::Shm(_)) => Ok(()),
            Some(Lane::Dead(why)) if why != Death::Nobody => Ok(()),
            _ => Err(Misuse::BadRank),
        }
    }

    /// The program has no name for a peer any more. The peer hears nothing of that, and what
    /// goes on with it goes on. From now on it is a stranger: it makes room for others where
    /// they need it.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: nobody has this number.
    pub fn release_peer(&mut self, rank: u32) -> Result<(), Misuse> {
        self.check_peer(rank)?;
        if let Some(net) = &mut self.net {
            net.tables().view().set_stranger(peer_of(rank));
        }
        if self.core.lanes.dead(rank).is_some() {
            self.has_departed(rank);
        }
        Ok(())
    }

    /// The program has no more to do with a peer: operations with it end.
    ///
    /// # Errors
    /// [`Misuse::BadRank`]: nobody has this number.
    pub fn remove_peer(&mut self, rank: u32) -> Result<(), Misuse> {
        self.check_peer(rank)?;
        self.part_from(rank);
        // One that was dead has departed: but its last words may still be repeated.
        self.core.lanes.set_removed(rank);
        self.has_departed(rank);
        Ok(())
    }

    /// A peer is to hear that it was removed. No error handler hears of it.
    fn part_from(&mut self, rank: u32) {
        if let (Some(Lane::Shm(index)), Some(shm)) = (self.core.lanes.get(rank), &mut self.shm) {
            shm.part(index);
        }
        let now = self.clock.now();
        if let Some(net) = &mut self.net {
            net.remove_peer(&mut self.core, now, peer_of(rank), &self.clock);
        }
        // Now that nothing is read any more from the memory of what was sent to it.
        self.core.set_dead(rank, Death::Nobody);
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
        self.begin_rank(rank, false, CAME);
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
        // It may have said so by the network, before memory was shared with it again.
        if let Some(shm) = &mut self.shm
            && self.core.lanes.dead(rank).is_some()
            && let Some(index) = shm.index_of(rank)
        {
            shm.part(index);
        }
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
        let is_free = |it: &Self, at: &usize| {
            let rank = it.departed[*at].0;
            !(it.core.holds_of(rank) || it.matched.holds_of(rank))
        };
        if let Some(at) = (0..self.departed.len()).find(|at| is_free(self, at))
            && let Some((rank, _)) = self.departed.remove(at)
        {
            self.free_number(rank);
            return;
        }
        // Several where there are many, as more will come.
        let now = self.clock.now();
        let several = (self.core.size as usize / 64).clamp(1, EVICTED);
        for at in 0..several {
            if let Some(net) = &mut self.net
                && let Some(peer) = net.tables().view().silent_stranger(now)
            {
                net.peer_died(&mut self.core, peer, Death::Silent, &self.clock);
                continue;
            }
            // Of those by the network and those of this host in turns.
            let by_network = |it: &mut Self| {
                let lanes = &it.core.lanes;
                // A call to one that is being met may be answered yet.
                let may_go = |peer: PeerId| {
                    matches!(lanes.get(peer.0 + 1), Some(Lane::Net(_) | Lane::Unmet(_)))
                };
                let view = it.net.as_mut()?.tables().view();
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

    /// The one by shared memory that nobody has added and that was quiet longest.
    fn quietest_near(&mut self) -> Option<u32> {
        let (net, lanes) = (self.net.as_mut()?, &self.core.lanes);
        let view = net.tables().view();
        let is_stranger =
            |rank| matches!(lanes.get(rank), Some(Lane::Shm(_))) && view.is_stranger(peer_of(rank));
        self.shm.as_ref()?.quietest(is_stranger)
    }

    fn free_number(&mut self, rank: u32) {
        self.core.lanes.set_removed(rank);
        self.set_known(rank, false);
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
    fn begin_rank(&mut self, rank: u32, near: bool, reason: &str) {
        let peer = peer_of(rank);
        self.departed.retain(|(other, _)| *other != rank);
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
        let lane = match &self.shm {
            Some(_) if near => Lane::Unmet(peer),
            _ => Lane::Net(peer),
        };
        self.core.lanes.renew(rank, lane, reason);
    }
}
