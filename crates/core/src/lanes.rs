//! Which link carries messages to each rank, and why.

mod returns;

use std::collections::HashMap;

use portolan_proto::PeerId;

pub use self::returns::{Restarted, Returns};
use crate::values::{Death, SpaceId};

/// The way to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// The rank is this process.
    Myself,
    /// Shared memory, to the endpoint with this index on the host.
    Shm(u16),
    /// The network.
    Net(PeerId),
    /// It is on this host, and whether memory is shared with it shows when something is
    /// first sent to it.
    Unmet(PeerId),
    /// That is being found out.
    Meeting(PeerId),
    /// None any more.
    Dead(Death),
}

/// How many peers each lane leads to.
#[derive(Clone, Copy, Debug, Default)]
pub struct LaneCount {
    /// By shared memory.
    pub shm: u32,
    /// By the network.
    pub net: u32,
    /// To nobody any more.
    pub dead: u32,
}

impl LaneCount {
    /// Counts a lane, or one that is no more.
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

/// Spaces that a rank is done with: a bit for each.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// No message of its exchange comes any more.
    messages: u16,
    /// It comes to no barrier any more.
    barriers: u16,
}

/// All of them, by rank.
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Of each rank, which of `reasons`.
    why: Vec<u32>,
    reasons: Vec<Box<str>>,
    /// Whose memory we share, dead or alive.
    near: Vec<bool>,
    /// Peers come and go: that ends no wait that does not name one.
    standalone: bool,
    alive: u32,
    /// Name of the network's link.
    network: &'static str,
    /// How many peers each lane leads to.
    pub count: LaneCount,
    /// Deaths, and in which spaces no wait has reported them yet: a bit for each.
    unreported: Vec<(u32, Death, u16)>,
    /// Those that are open.
    spaces: u16,
    /// Ranks that live and are done with some spaces.
    left: HashMap<u32, Left>,
    /// Ranks that have died and may have come back.
    pub returns: Returns,
}

impl Lanes {
    /// None yet, with memory for those of so many ranks; `network` is the name of
    /// the network's link.
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

    /// Peers come and go from now on.
    pub const fn set_standalone(&mut self) {
        self.standalone = true;
    }

    /// There are so many ranks from now on; the new ones are nobody's yet.
    pub(crate) fn grow(&mut self, ranks: u32, reason: &str) {
        while (self.lanes.len() as u32) < ranks {
            self.push(Lane::Dead(Death::Nobody), reason);
        }
    }

    /// Whose number was somebody else's, or who was dead, has a lane again.
    pub(crate) fn renew(&mut self, rank: u32, lane: Lane, reason: &str) {
        self.change(rank, lane, reason);
        self.near[rank as usize] = false;
        self.alive += 1;
    }

    /// One that lives has another lane from now on.
    pub(crate) fn change(&mut self, rank: u32, lane: Lane, reason: &str) {
        let was = std::mem::replace(&mut self.lanes[rank as usize], lane);
        self.count.add(was, -1);
        self.count.add(lane, 1);
        self.why[rank as usize] = self.number_of(reason);
    }

    /// Something is to be sent to a rank of this host; true where nobody has asked for that
    /// before.
    pub(crate) fn wants_to_meet(&mut self, rank: u32) -> bool {
        match self.lanes.get_mut(rank as usize) {
            Some(lane @ &mut Lane::Unmet(peer)) => {
                *lane = Lane::Meeting(peer);
                true
            }
            _ => false,
        }
    }

    /// Who has a number is dead, and nobody looks for it by that any more.
    pub(crate) fn set_removed(&mut self, rank: u32) {
        if let Some(lane @ Lane::Dead(_)) = self.lanes.get_mut(rank as usize) {
            *lane = Lane::Dead(Death::Nobody);
        }
    }

    /// Adds that of the next rank. Many share a reason, and mostly with the
    /// one before: it is kept once.
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

    /// The way to a rank.
    #[inline(always)]
    pub fn get(&self, rank: u32) -> Option<Lane> {
        self.lanes.get(rank as usize).copied()
    }

    /// The protocol's name of a rank that is reached by the network.
    #[inline(always)]
    pub fn peer(&self, rank: u32) -> Option<PeerId> {
        match self.get(rank) {
            Some(Lane::Net(peer)) => Some(peer),
            _ => None,
        }
    }

    /// Whether all these ranks shared memory from the start. Each of them
    /// finds the same.
    pub fn all_near(&self, ranks: &[u32]) -> bool {
        ranks
            .iter()
            .all(|rank| self.near.get(*rank as usize) == Some(&true))
    }

    /// Gives the spaces that it had left before: there nobody need be told.
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

    /// A rank's exchange of a space says nothing more. False: that is known, or it is dead.
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

    /// A rank comes to no barrier of a space any more.
    pub(crate) fn leave_barriers(&mut self, rank: u32, space: SpaceId) {
        if self.dead(rank).is_none() {
            self.left.entry(rank).or_default().barriers |= space.bit();
        }
    }

    /// Whether that has been said.
    pub(crate) fn has_left_barriers(&self, rank: u32, space: SpaceId) -> bool {
        (self.left.get(&rank)).is_some_and(|left| left.barriers & space.bit() != 0)
    }

    /// A rank that was dead is back in another life, and reached by the network.
    pub(crate) fn set_back(&mut self, it: &Restarted, peer: PeerId) {
        self.renew(it.rank, Lane::Net(peer), &it.reason);
        self.returns.back(it.rank, it.restarts, it.since);
        self.forget_settled();
    }

    /// A call has told of all deaths until now.
    pub fn tell_all(&mut self) {
        self.returns.tell_all();
        self.forget_settled();
    }

    /// No wait ends for a death that a call has told of when the rank is back: who goes on
    /// with it would take that for another death.
    fn forget_settled(&mut self) {
        let (lanes, returns) = (&self.lanes, &self.returns);
        self.unreported.retain(|(rank, ..)| {
            matches!(lanes[*rank as usize], Lane::Dead(_)) || !returns.was_told(*rank)
        });
    }

    /// Waits in a space are told of deaths from now on, and of those that others were not
    /// told of yet.
    pub(crate) fn tell_space(&mut self, space: SpaceId) {
        self.spaces |= space.bit();
        for (rank, _, untold) in &mut self.unreported {
            // Not of those that live and left another space.
            if matches!(self.lanes[*rank as usize], Lane::Dead(_)) {
                *untold |= space.bit();
            }
        }
    }

    /// A death that ends waits in a space: one that was no orderly close, or that of the
    /// last other rank.
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

    /// Why nothing more of a rank comes in a space, if that is so.
    pub fn ended(&self, rank: u32, space: SpaceId) -> Option<Death> {
        let left = self.has_left(rank, space.bit());
        self.dead(rank).or(left.then_some(Death::Closed))
    }

    /// Why a rank is dead, if it is.
    pub fn dead(&self, rank: u32) -> Option<Death> {
        match self.get(rank)? {
            Lane::Dead(why) => Some(why),
            _ => None,
        }
    }

    /// Name of the link and the reason for it.
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
        // Its lane, which reason, whether it is near; its rank by number as a
        // peer; what is kept of it, by budget; keys where no secret joins all.
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
        // A barrier tells before the return or after it.
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
            // Of one that is not back waits still tell.
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
