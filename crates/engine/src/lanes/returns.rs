//! Ranks that have died and may have come back: how often each was restarted, and of which
//! deaths the program knows.

use std::collections::BTreeMap;

use portolan_proto::congestion::Mode;
use portolan_wire::Address;

use crate::values::Death;

/// A rank that was restarted, and where it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarted {
    /// The rank, as before.
    pub rank: u32,
    /// Its new address.
    pub address: Address,
    /// Number of restarts.
    pub restarts: u32,
    /// Number of this return in the job, from 1. All ranks must be told of the same returns in
    /// the same order.
    pub since: u32,
    /// Congestion mode of the path to it.
    pub mode: Mode,
    /// Why it is reached by its lane, for people to read.
    pub reason: std::borrow::Cow<'static, str>,
}

/// What is known of a rank that has died or was restarted.
#[derive(Clone, Copy, Debug)]
struct Known {
    restarts: u32,
    since: u32,
    /// Came back after this endpoint was opened.
    back: bool,
    /// Number of its last death here, 0 for none, and the reason.
    death: u64,
    why: Death,
}

/// All such ranks. Returns are counted through the whole job, in one order for all ranks. The
/// *turn* of some ranks is the number of the last return among them: ranks that know of the
/// same returns compute the same.
#[derive(Debug, Default)]
pub struct Returns {
    known: BTreeMap<u32, Known>,
    /// Number of the last return.
    turn: u32,
    /// Number of the last death, and of the last that a call has reported.
    deaths: u64,
    told: u64,
}

impl Returns {
    /// Takes from the job's table how often a rank was restarted, and the number of its last
    /// return.
    pub fn found(&mut self, rank: u32, restarts: u32, since: u32) {
        if restarts > 0 {
            let known = self.get(rank);
            (known.restarts, known.since) = (restarts, since);
            self.turn = self.turn.max(since);
        }
    }

    fn get(&mut self, rank: u32) -> &mut Known {
        self.known.entry(rank).or_insert(Known {
            restarts: 0,
            since: 0,
            back: false,
            death: 0,
            why: Death::Ended,
        })
    }

    pub fn died(&mut self, rank: u32, why: Death) {
        self.deaths += 1;
        let death = self.deaths;
        let known = self.get(rank);
        (known.death, known.why) = (death, why);
    }

    /// Notes that a rank is back.
    pub fn back(&mut self, rank: u32, restarts: u32, since: u32) {
        self.found(rank, restarts, since);
        self.get(rank).back = true;
    }

    /// Returns how often a rank was restarted.
    pub fn restarts(&self, rank: u32) -> u32 {
        self.known.get(&rank).map_or(0, |known| known.restarts)
    }

    /// Returns the number of a rank's last return.
    pub fn since(&self, rank: u32) -> u32 {
        self.known.get(&rank).map_or(0, |known| known.since)
    }

    /// Returns the turn of the whole job.
    pub const fn turn(&self) -> u32 {
        self.turn
    }

    fn among<'a>(&'a self, ranks: &'a [u32]) -> impl Iterator<Item = (u32, &'a Known)> {
        let known = self.known.iter().map(|(rank, known)| (*rank, known));
        known.filter(|(rank, _)| ranks.contains(rank))
    }

    /// Returns the turn of some ranks.
    pub fn turn_of(&self, ranks: &[u32]) -> u32 {
        let turns = self.among(ranks).map(|(_, known)| known.since);
        turns.max().unwrap_or(0)
    }

    /// Returns which of some ranks came back last, and why it had died.
    pub fn latest(&self, ranks: &[u32]) -> Option<(u32, Death)> {
        let back = self.among(ranks).filter(|(_, known)| known.back);
        let (rank, known) = back.max_by_key(|(_, known)| known.since)?;
        Some((rank, known.why))
    }

    /// Returns why a rank had died that is back.
    pub fn why(&self, rank: u32) -> Option<Death> {
        let known = self.known.get(&rank).filter(|known| known.back);
        known.map(|known| known.why)
    }

    /// Returns one of some ranks that has died and is back, before any call has reported its
    /// death.
    pub fn untold(&self, ranks: &[u32]) -> Option<(u32, Death)> {
        let (rank, known) = self
            .among(ranks)
            .find(|(_, known)| known.back && known.death > self.told)?;
        Some((rank, known.why))
    }

    /// Whether a call has reported a rank's last death.
    pub fn was_told(&self, rank: u32) -> bool {
        let known = self.known.get(&rank);
        known.is_some_and(|known| known.death <= self.told)
    }

    /// Notes that a call has reported all deaths until now.
    pub const fn tell_all(&mut self) {
        self.told = self.deaths;
    }

    /// Notes that a call has reported the death of a rank, and those before it.
    pub fn tell_of(&mut self, rank: u32) {
        let death = self.known.get(&rank).map_or(0, |known| known.death);
        self.told = self.told.max(death);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_know_of_the_same_returns_find_the_same_turn() {
        let (mut old, mut new) = (Returns::default(), Returns::default());
        for (rank, since) in [(2, 1), (1, 2)] {
            old.died(rank, Death::HostLost);
            old.back(rank, 1, since);
        }
        // A rank that starts later reads it in the table.
        for (rank, since) in [(1, 2), (2, 1)] {
            new.found(rank, 1, since);
        }
        for ranks in [&[0, 1, 2][..], &[0, 2], &[0, 1], &[0, 3]] {
            assert_eq!(old.turn_of(ranks), new.turn_of(ranks), "{ranks:?}");
        }
        assert_eq!([old.turn(), new.turn()], [2, 2]);
        assert_eq!(old.turn_of(&[0, 3]), 0);
        assert_eq!(old.latest(&[0, 2]), Some((2, Death::HostLost)));
        assert_eq!(
            new.latest(&[0, 2]),
            None,
            "nobody came back since it is here"
        );
    }

    #[test]
    fn a_death_is_told_once_though_the_rank_is_back() {
        let mut returns = Returns::default();
        returns.died(1, Death::HostLost);
        assert_eq!(returns.untold(&[0, 1]), None, "it is still dead");
        returns.back(1, 1, 1);
        assert_eq!(returns.untold(&[0, 2]), None);
        assert_eq!(returns.untold(&[0, 1]), Some((1, Death::HostLost)));
        returns.tell_all();
        assert_eq!(returns.untold(&[0, 1]), None);
        returns.died(1, Death::Killed(9));
        returns.tell_of(1);
        returns.back(1, 2, 2);
        assert_eq!(returns.untold(&[0, 1]), None, "told while it was dead");
    }
}
