//! Which link carries messages to each rank, and why.

use std::borrow::Cow;

use portolan_proto::PeerId;

use crate::describe::LaneCount;
use crate::error::Death;
use crate::returns::Returns;

/// The way to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// The rank is this process.
    Myself,
    /// Shared memory, to the endpoint with this index on the host.
    Shm(u16),
    /// The network.
    Net(PeerId),
    /// None any more.
    Dead(Death),
}

/// All of them, by rank.
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    reasons: Vec<Cow<'static, str>>,
    /// Whose memory we share, dead or alive.
    near: Vec<bool>,
    alive: u32,
    pub count: LaneCount,
    /// Deaths that no wait has reported yet.
    unreported: Vec<(u32, Death)>,
    pub returns: Returns,
}

impl Lanes {
    pub fn new(lanes: Vec<(Lane, Cow<'static, str>)>, returns: Returns) -> Self {
        let alive = lanes
            .iter()
            .filter(|(l, _)| matches!(l, Lane::Shm(_) | Lane::Net(_)))
            .count() as u32;
        let near = lanes
            .iter()
            .map(|(l, _)| matches!(l, Lane::Myself | Lane::Shm(_)))
            .collect();
        let mut count = LaneCount::default();
        lanes.iter().for_each(|(lane, _)| count.add(*lane, 1));
        let (lanes, reasons) = lanes.into_iter().unzip();
        Self {
            lanes,
            reasons,
            near,
            alive,
            count,
            unreported: Vec::new(),
            returns,
        }
    }

    #[inline(always)]
    pub fn get(&self, rank: u32) -> Option<Lane> {
        self.lanes.get(rank as usize).copied()
    }

    /// Whether all these ranks shared memory from the start. Each of them
    /// finds the same.
    pub fn all_near(&self, ranks: &[u32]) -> bool {
        ranks
            .iter()
            .all(|rank| self.near.get(*rank as usize) == Some(&true))
    }

    pub fn set_dead(&mut self, rank: u32, why: Death) {
        let lane = &mut self.lanes[rank as usize];
        self.count.add(*lane, -1);
        *lane = Lane::Dead(why);
        self.count.add(*lane, 1);
        self.alive -= 1;
        self.unreported.push((rank, why));
        self.returns.died(rank, why);
    }

    /// A rank that was dead is back, and reached by the network.
    pub fn set_back(&mut self, rank: u32, peer: PeerId, reason: Cow<'static, str>) {
        let lane = &mut self.lanes[rank as usize];
        self.count.add(*lane, -1);
        *lane = Lane::Net(peer);
        self.count.add(*lane, 1);
        self.reasons[rank as usize] = reason;
        self.near[rank as usize] = false;
        self.alive += 1;
    }

    /// A death that ends waits: one that was no orderly close, or that of the
    /// last other rank.
    pub fn next_report(&mut self) -> Option<(u32, Death)> {
        let alone = self.alive == 0;
        let at = self
            .unreported
            .iter()
            .position(|(_, why)| alone || *why != Death::Closed)?;
        let (rank, why) = self.unreported.remove(at);
        self.returns.tell_of(rank);
        Some((rank, why))
    }

    #[inline(always)]
    pub fn has_reports(&self) -> bool {
        !self.unreported.is_empty()
    }

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
            Lane::Net(_) => "udp",
            Lane::Dead(_) => "dead",
        };
        Some((name, &self.reasons[rank as usize]))
    }
}
