//! Newcomers to a job that runs: ranks of hosts that have left it, started
//! again on this one.

use std::rc::Rc;

use super::super::agent_protocol::FromHost;
use super::super::rank::With;
use super::super::{RankPlace, Starter};
use super::Host;
use crate::job::PeerInfo;
use crate::message::{How, ToRank};

/// Most newcomers with a futex word; the end of further ones is noticed once
/// their processes are gone.
const WATCHED_MAX: u32 = 64;

impl Host {
    /// Returns the number of ranks that may hold a futex word here.
    pub(super) fn words(&self) -> u32 {
        self.plan.ranks + self.plan.spare.min(WATCHED_MAX)
    }

    /// Starts a rank that began on another host.
    pub fn restart(&mut self, rank: u32, restarts: u32, starter: &mut dyn Starter) {
        let local_index = u16::try_from(self.ranks.len()).expect("at most RANKS_MAX");
        let host_index = self.plan.host_index;
        let core = starter.spare_core(host_index, local_index);
        let place = RankPlace {
            rank,
            host_index,
            local_index,
            core,
            restarts,
        };
        let neighbour = |r: &super::Rank| r.ended.is_none() && r.place.core == core;
        let shares = core.is_some() && self.ranks.iter().any(neighbour);
        self.drained = false;
        if let Err(error) = self.start_rank(place, shares, starter) {
            let why = error.to_string();
            self.say(FromHost::NotStarted { rank, why });
        }
        let ports = starter.host_ports(&self.wanted());
        self.grant(ports);
    }

    /// Returns the index of a rank that runs here.
    pub(super) fn find(&self, rank: u32) -> Option<usize> {
        let runs = |r: &super::Rank| r.place.rank == rank && r.ended.is_none();
        self.ranks.iter().position(runs)
    }

    /// Reports dead and departed ranks to a newcomer, before its table. From
    /// now on it gets what all get.
    pub(super) fn tell_gone(&mut self, to: u32, gone: &[(u32, Option<How>)]) {
        let Some(index) = self.find(to) else { return };
        self.ranks[index].joined = true;
        let mut all = gone.to_vec();
        // Deaths that the job has yet to learn of.
        let here = |r: &super::Rank| Some((r.place.rank, Some(r.cause?)));
        all.extend(self.ranks.iter().filter_map(here));
        for (rank, how) in all {
            let message = match how {
                Some(how) => ToRank::Died { rank, how },
                None => ToRank::Left { rank },
            };
            self.send(index, message.encode().into(), With::nothing());
        }
    }

    /// Sends a part of the table to a newcomer.
    pub(super) fn send_table_to(&mut self, to: u32, first: u32, peers: &[PeerInfo]) {
        if let Some(index) = self.find(to) {
            let peers = peers.to_vec();
            let bytes = ToRank::Table { first, peers }.encode().into();
            self.send(index, bytes, With::nothing());
        }
    }

    /// Notifies ranks that have joined that a rank is back.
    pub(super) fn tell_back(&mut self, rank: u32, peer: PeerInfo) {
        let bytes: Rc<[u8]> = ToRank::Back { rank, peer }.encode().into();
        for index in 0..self.ranks.len() {
            let to = &self.ranks[index];
            if to.joined && to.ended.is_none() && to.place.rank != rank {
                self.send(index, bytes.clone(), With::nothing());
            }
        }
    }

    /// Notifies newcomers that a rank has left: it may not know them.
    pub(super) fn tell_left(&mut self, rank: u32) {
        let bytes: Rc<[u8]> = ToRank::Left { rank }.encode().into();
        for index in 0..self.ranks.len() {
            let to = &self.ranks[index];
            let hears = to.place.restarts > 0 && to.joined && to.ended.is_none();
            if hears && to.place.rank != rank {
                self.send(index, bytes.clone(), With::nothing());
            }
        }
    }
}
