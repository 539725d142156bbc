//! Which link carries messages to each rank, and why.

mod returns;

use std::collections::HashMap;

use portolan_proto::PeerId;

pub use self::returns::{Restarted, Returns};
use crate::values::{Death, SpaceId};

/// How a rank is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The rank is this process.
    Myself,
    /// Shared memory, to the endpoint with this index on the host.
    Shm(u16),
    /// The network.
    Net(PeerId),
    /// On this host: whether memory is shared is decided at the first send.
    Unmet(PeerId),
    /// On this host: whether memory is shared is being decided.
    Meeting(PeerId),
    /// No longer reachable.
    Dead(Death),
}

/// Number of peers by lane.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaneCount {
    /// By shared memory.
    pub shm: u32,
    /// By the network.
    pub net: u32,
    /// Dead peers.
    pub dead: u32,
}

impl LaneCount {
    /// Adds `by` to the count of a lane.
    const fn add(&mut self, lane: Lane, by: i32) {
        let count = match lane {
            Lane::Shm(_) => &mut self.shm,
            Lane::Net(_) => &mut self.net,
            Lane::Dead(_) => &mut self.dead,
            Lane::Myself | Lane::Unmet(_) | Lane::Meeting(_) => return,
        };
        *count = count.saturating_add_signed(by);
    }
}

/// Spaces that a rank has left: a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// Spaces whose exchange sends nothing more.
    messages: u16,
    /// Spaces whose barriers it does not reach any more.
    barriers: u16,
}

/// The lanes of all ranks.
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Index into `reasons`, for each rank.
    why: Vec<u32>,
    reasons: Vec<Box<str>>,
    /// Ranks that shared memory with us from the start, dead or alive.
    near: Vec<bool>,
    /// Peers come and go: their deaths end no wait that does not name one.
    standalone: bool,
    alive: u32,
    /// Name of the network's link.
    network: &'static str,
    /// Number of peers by lane.
    pub count: LaneCount,
    /// Deaths, and in which spaces no wait has reported them yet: a bit for each.
    unreported: Vec<(u32, Death, u16)>,
    /// Open spaces: a bit for each.
    spaces: u16,
    /// Live ranks that have left some spaces.
    left: HashMap<u32, Left>,
    /// Ranks that have died and may have come back.
    pub returns: Returns,
}

impl Lanes {
    /// Makes an empty table with memory for the lanes of `ranks` ranks; `network` is the name
    /// of the network's link.
    pub fn with_capacity(ranks: usize, network: &'static str) -> Self {
        Self {
            standalone: false,
            lanes: Vec::with_capacity(ranks),
            why: Vec::with_capacity(ranks),
            reasons: Vec::new(),
            near: Vec::with_capacity(ranks),
            alive: 0,
            network,
            count: LaneCount::default(),
            unreported: Vec::new(),
            spaces: SpaceId::PROGRAM.bit(),
            left: HashMap::new(),
            returns: Returns::default(),
        }
    }

    /// Notes that peers come and go from now on.
    pub const fn set_standalone(&mut self) {
        self.standalone = true;
    }

    /// Raises the number of ranks; the new ones are unassigned.
    pub(crate) fn grow(&mut self, ranks: u32, reason: &str) {
        while (self.lanes.len() as u32) < ranks {
            self.push(Lane::Dead(Death::Nobody), reason);
        }
    }

    /// Assigns a lane to a number that was dead or unassigned.
    pub(crate) fn renew(&mut self, rank: u32, lane: Lane, reason: &str) {
        self.change(rank, lane, reason);
        self.near[rank as usize] = false;
        self.alive += 1;
    }

    /// Replaces the lane of a rank.
    pub(crate) fn change(&mut self, rank: u32, lane: Lane, reason: &str) {
        let was = std::mem::replace(&mut self.lanes[rank as usize], lane);
        self.count.add(was, -1);
        self.count.add(lane, 1);
        self.why[rank as usize] = self.number_of(reason);
    }

    /// Notes that a send found a rank of this host; returns true the first time.
    pub(crate) fn wants_to_meet(&mut self, rank: u32) -> bool {
        match self.lanes.get_mut(rank as usize) {
            Some(lane @ &mut Lane::Unmet(peer)) => {
                *lane = Lane::Meeting(peer);
                true
            }
            _ => false,
        }
    }

    /// Marks the number of a dead rank as unassigned.
    pub(crate) fn set_removed(&mut self, rank: u32) {
        if let Some(lane @ Lane::Dead(_)) = self.lanes.get_mut(rank as usize) {
            *lane = Lane::Dead(Death::Nobody);
        }
    }

    /// Adds the lane of the next rank. Many share a reason, mostly with the previous one: it is
    /// kept once.
    pub fn push(&mut self, lane: Lane, reason: &str) {
        let why = self.number_of(reason);
        self.why.push(why);
        self.near.push(matches!(lane, Lane::Myself | Lane::Shm(_)));
        self.alive += u32::from(matches!(lane, Lane::Shm(_) | Lane::Net(_)));
        self.count.add(lane, 1);
        self.lanes.push(lane);
    }

    fn number_of(&mut self, reason: &str) -> u32 {
        let known = self.reasons.iter().rposition(|known| **known == *reason);
        let number = known.unwrap_or_else(|| {
            self.reasons.push(reason.into());
            self.reasons.len() - 1
        });
        number as u32
    }

    /// Returns the lane of a rank.
    #[inline(always)]
    pub fn get(&self, rank: u32) -> Option<Lane> {
        self.lanes.get(rank as usize).copied()
    }

    /// Returns the protocol's number of a rank that is reached by the network.
    #[inline(always)]
    pub fn peer(&self, rank: u32) -> Option<PeerId> {
        match self.get(rank) {
            Some(Lane::Net(peer)) => Some(peer),
            _ => None,
        }
    }

    /// Whether all these ranks shared memory from the start. Each of them gets the same result.
    pub fn all_near(&self, ranks: &[u32]) -> bool {
        ranks
            .iter()
            .all(|rank| self.near.get(*rank as usize) == Some(&true))
    }

    /// Marks a rank dead. Returns the spaces that it had left before: those need no report.
    pub(crate) fn set_dead(&mut self, rank: u32, why: Death) -> u16 {
        let lane = &mut self.lanes[rank as usize];
        self.count.add(*lane, -1);
        *lane = Lane::Dead(why);
        self.count.add(*lane, 1);
        self.alive -= 1;
        let Left { messages: left, .. } = self.left.remove(&rank).unwrap_or_default();
        if !self.standalone {
            self.unreported.push((rank, why, self.spaces & !left));
            self.returns.died(rank, why);
        }
        left
    }

    /// Notes that a rank's exchange of a space sends nothing more. False: that is known, or it
    /// is dead.
    pub(crate) fn leave(&mut self, rank: u32, space: SpaceId) -> bool {
        let bit = space.bit();
        if self.dead(rank).is_some() || self.has_left(rank, bit) {
            return false;
        }
        self.left.entry(rank).or_default().messages |= bit;
        if !self.standalone {
            self.unreported.push((rank, Death::Closed, bit));
        }
        true
    }

    fn has_left(&self, rank: u32, spaces: u16) -> bool {
        (self.left.get(&rank)).is_some_and(|left| left.messages & spaces != 0)
    }

    /// Notes that a rank reaches no barrier of a space any more.
    pub(crate) fn leave_barriers(&mut self, rank: u32, space: SpaceId) {
        if self.dead(rank).is_none() {
            self.left.entry(rank).or_default().barriers |= space.bit();
        }
    }

    /// Whether a rank has announced that it reaches no barrier of a space any more.
    pub(crate) fn has_left_barriers(&self, rank: u32, space: SpaceId) -> bool {
        (self.left.get(&rank)).is_some_and(|left| left.barriers & space.bit() != 0)
    }

    /// Notes that a dead rank is back in another life, and reached by the network.
    pub(crate) fn set_back(&mut self, it: &Restarted, peer: PeerId) {
        self.renew(it.rank, Lane::Net(peer), &it.reason);
        self.returns.back(it.rank, it.restarts, it.since);
        self.forget_settled();
    }

    /// Notes that a call has reported all deaths until now.
    pub fn tell_all(&mut self) {
        self.returns.tell_all();
        self.forget_settled();
    }

    /// Drops reported deaths of ranks that are back: a wait that ends for one would seem to
    /// report another death.
    fn forget_settled(&mut self) {
        let (lanes, returns) = (&self.lanes, &self.returns);
        self.unreported.retain(|(rank, ..)| {
            matches!(lanes[*rank as usize], Lane::Dead(_)) || !returns.was_told(*rank)
        });
    }

    /// Reports deaths to waits in a space from now on, also those not yet reported to others.
    pub(crate) fn tell_space(&mut self, space: SpaceId) {
        self.spaces |= space.bit();
        for (rank, _, untold) in &mut self.unreported {
            // Not live ranks that left another space.
            if matches!(self.lanes[*rank as usize], Lane::Dead(_)) {
                *untold |= space.bit();
            }
        }
    }

    /// Returns a death that ends waits in a space: one that was no orderly close, or that of
    /// the last other rank.
    pub fn next_report(&mut self, space: SpaceId) -> Option<(u32, Death)> {
        let bit = space.bit();
        let left = self.left.keys().filter(|rank| self.has_left(**rank, bit));
        let alone = self.alive as usize == left.count();
        let ends = |(_, why, untold): &(u32, Death, u16)| {
            untold & bit != 0 && (alone || *why != Death::Closed)
        };
        let at = self.unreported.iter().position(ends)?;
        let (rank, why, untold) = &mut self.unreported[at];
        let (rank, why) = (*rank, *why);
        *untold &= !bit;
        if *untold == 0 {
            self.unreported.remove(at);
        }
        self.returns.tell_of(rank);
        Some((rank, why))
    }

    /// Whether there is a death that no wait has reported yet, in some space.
    #[inline(always)]
    pub fn has_reports(&self) -> bool {
        !self.unreported.is_empty()
    }

    /// Returns why nothing more of a rank arrives in a space, if that is so.
    pub fn ended(&self, rank: u32, space: SpaceId) -> Option<Death> {
        let left = self.has_left(rank, space.bit());
        self.dead(rank).or(left.then_some(Death::Closed))
    }

    /// Returns why a rank is dead, if it is.
    pub fn dead(&self, rank: u32) -> Option<Death> {
        match self.get(rank)? {
            Lane::Dead(why) => Some(why),
            _ => None,
        }
    }

    /// Returns the name of the link, and the reason for it.
    pub fn describe(&self, rank: u32) -> Option<(&'static str, &str)> {
        let name = match self.get(rank)? {
            Lane::Myself => "self",
            Lane::Shm(_) => "shm",
            Lane::Net(_) => self.network,
            Lane::Unmet(_) | Lane::Meeting(_) => "undecided",
            Lane::Dead(_) => "dead",
        };
        let why = self.why[rank as usize];
        Some((name, &self.reasons[why as usize]))
    }
}

#[cfg(test)]
mod tests {
    use portolan_proto::{Peer, PeerSnapshot};
    use portolan_seal::Pair;
    use portolan_wire::{Address, EndpointId, Life};

    use super::*;

    #[test]
    fn a_peer_fits_the_bytes_that_are_promised() {
        // Lane, reason, whether it is near; rank by peer number; charges in two budgets; keys
        // without a job secret.
        let engine = size_of::<Lane>() + size_of::<u32>() + size_of::<bool>();
        let engine = engine + size_of::<u32>() + 2 * size_of::<usize>() + size_of::<Pair>();
        let never = engine + size_of::<Peer>();
        assert!(never < 256, "{never}");
        let quiet = never + size_of::<PeerSnapshot>();
        assert!(quiet <= 512, "{quiet}");
    }

    #[test]
    fn a_death_that_was_told_ends_no_wait_once_the_rank_is_back() {
        let it = Restarted {
            rank: 1,
            address: Address {
                port: 0,
                ip: [0; 16],
                id: EndpointId(1),
                life: Life(2),
                host: 0,
            },
            restarts: 1,
            since: 1,
            mode: portolan_proto::congestion::Mode::Lan,
            reason: "again".into(),
        };
        // A barrier reports before the return or after it.
        for before in [true, false] {
            let mut lanes = Lanes::with_capacity(3, "udp");
            for peer in 0..3 {
                lanes.push(Lane::Net(PeerId(peer)), "");
            }
            for rank in [1, 2] {
                lanes.set_dead(rank, Death::HostLost);
            }
            if before {
                lanes.tell_all();
                lanes.set_back(&it, PeerId(1));
            } else {
                lanes.set_back(&it, PeerId(1));
                lanes.tell_all();
            }
            // Waits still report a death if the rank is not back.
            assert_eq!(
                lanes.next_report(SpaceId::PROGRAM),
                Some((2, Death::HostLost))
            );
            assert_eq!(lanes.next_report(SpaceId::PROGRAM), None);
            lanes.set_dead(1, Death::Silent);
            lanes.tell_all();
            assert_eq!(
                lanes.next_report(SpaceId::PROGRAM),
                Some((1, Death::Silent))
            );
        }
    }

    #[test]
    fn a_reason_that_many_share_is_kept_once() {
        let mut lanes = Lanes::with_capacity(1_000, "udp");
        for peer in 0..1_000 {
            let reason = ["another host", "same host"][usize::from(peer % 10 == 3)];
            lanes.push(Lane::Net(PeerId(peer)), reason);
        }
        assert_eq!(lanes.reasons.len(), 2);
        assert_eq!(lanes.describe(12), Some(("udp", "another host")));
        assert_eq!(lanes.describe(13), Some(("udp", "same host")));
        assert_eq!(lanes.describe(1_000), None);
        assert_eq!((lanes.alive, lanes.count.net), (1_000, 1_000));
    }
}
