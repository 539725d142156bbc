//! Tests the launcher's decision on random cuts in virtual time: ranks give
//! each other up, reports and orders are delayed and reordered.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::{LOOK_AGAIN, Reports, SETTLE};

/// Pseudo-random numbers from a seed.
pub(crate) struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub fn millis(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }
}

/// Cuts: from host, to host, begin, end.
pub(crate) struct Plan(Vec<(u16, u16, Duration, Duration)>);

impl Plan {
    /// Up to three cuts, each one way or both: a pair, two sets of hosts, or
    /// one host and all others. Each begins between 1 and `last` seconds and
    /// lasts 20 at most.
    pub fn random(hosts: u16, last: u64, chance: &mut Chance) -> Self {
        let mut cuts = Vec::new();
        for _ in 0..=chance.below(3) {
            let from = Duration::from_secs(1) + chance.millis(1000 * (last - 1));
            let until = from + Duration::from_secs(1) + chance.millis(19_000);
            let both = chance.below(2) == 0;
            let pick = |chance: &mut Chance| chance.below(hosts.into()) as u16;
            let side: BTreeSet<u16> = match chance.below(3) {
                0 => [pick(chance)].into(),
                1 => (0..hosts).filter(|_| chance.below(2) == 0).collect(),
                _ => {
                    let (one, other) = (pick(chance), pick(chance));
                    cuts.push((one, other, from, until));
                    cuts.extend(both.then_some((other, one, from, until)));
                    continue;
                }
            };
            let others = || (0..hosts).filter(|host| !side.contains(host));
            for (one, other) in side
                .iter()
                .flat_map(|one| others().map(|other| (*one, other)))
            {
                cuts.push((one, other, from, until));
                cuts.extend(both.then_some((other, one, from, until)));
            }
        }
        Self(cuts)
    }

    pub fn passes(&self, from: u16, to: u16, at: Duration) -> bool {
        let stops = |&(one, other, since, until): &(u16, u16, Duration, Duration)| {
            (one, other) == (from, to) && (since..until).contains(&at)
        };
        !self.0.iter().any(stops)
    }
}

const SILENCE: Duration = Duration::from_secs(3);
/// Longest delay of a report or an order, ms.
const LATE: u64 = 400;
const STEP: Duration = Duration::from_millis(50);

/// A rank; `dead` holds those that it has given up or that were reported dead.
#[derive(Default)]
struct Rank {
    ended: bool,
    dead: BTreeSet<u16>,
    /// Hosts that it waits for in vain, and since when.
    waits: BTreeMap<u16, Duration>,
}

enum PartitionNotice {
    /// To the launcher: a host has given up another.
    Report(u16, u16),
    /// To a host: another is dead, or it is to end itself.
    Died(u16, u16),
}

/// Runs one rank a host; each needs an answer of each other from time to time.
fn run(hosts: u16, seed: u64) {
    let mut chance = Chance::new(seed);
    let plan = Plan::random(hosts, 12, &mut chance);
    // A host whose agent falls silent is lost a while later.
    let mute = (chance.below(4) == 0).then(|| {
        let host = chance.below(hosts.into()) as u16;
        (host, Duration::from_secs(1) + chance.millis(12_000))
    });
    let start = Instant::now();
    let mut ranks: Vec<Rank> = (0..hosts).map(|_| Rank::default()).collect();
    let (mut reports, mut out) = (Reports::default(), BTreeSet::new());
    let mut under_way: Vec<(Duration, PartitionNotice)> = Vec::new();
    let mut since_cut: Option<Duration> = None;
    for now in (0..1000).map(|step| step * STEP) {
        let is_mute = |host: u16| mute.is_some_and(|(it, at)| it == host && now >= at);
        let mut sent = Vec::new();
        for host in 0..hosts {
            for peer in 0..hosts {
                let is_over = ranks[peer as usize].ended || is_mute(peer);
                let rank = &mut ranks[host as usize];
                if rank.ended || is_mute(host) || peer == host || rank.dead.contains(&peer) {
                    continue;
                }
                // A rank does not need each other all the time.
                let asks = chance.below(8) == 0 || rank.waits.contains_key(&peer);
                let answers = plan.passes(host, peer, now) && plan.passes(peer, host, now);
                if answers && !is_over {
                    rank.waits.remove(&peer);
                } else if asks && now >= *rank.waits.entry(peer).or_insert(now) + SILENCE {
                    rank.dead.insert(peer);
                    sent.push(PartitionNotice::Report(host, peer));
                }
            }
        }
        let (came, left) = under_way.into_iter().partition(|(at, _)| *at <= now);
        under_way = left;
        let came: Vec<(Duration, PartitionNotice)> = came;
        for (_, way) in came {
            match way {
                PartitionNotice::Report(from, about)
                    if !out.contains(&from) && !out.contains(&about) =>
                {
                    reports.add(from, about, start + now);
                    since_cut.get_or_insert(now);
                }
                PartitionNotice::Report(..) => {}
                PartitionNotice::Died(to, host) if to == host => ranks[to as usize].ended = true,
                PartitionNotice::Died(to, host) => _ = ranks[to as usize].dead.insert(host),
            }
        }
        let lost = mute.filter(|(_, at)| now >= *at + SILENCE * 5 / 6);
        let mut leavers: Vec<u16> = lost.map(|(host, _)| host).into_iter().collect();
        leavers.retain(|host| !out.contains(host));
        out.extend(&leavers);
        let decided = reports.decide(start + now, |host| !out.contains(&host), is_mute);
        for (host, unreached) in decided {
            assert!(!unreached.is_empty());
            leavers.push(host);
        }
        if reports.due().is_none() {
            since_cut = None;
        }
        // A decision is delayed no longer than this.
        let bound = SETTLE + SILENCE + 2 * LOOK_AGAIN;
        assert!(since_cut.is_none_or(|at| now - at <= bound), "seed {seed}");
        out.extend(&leavers);
        for host in leavers {
            sent.extend((0..hosts).map(|to| PartitionNotice::Died(to, host)));
        }
        // Each has a delay of its own.
        under_way.extend(sent.into_iter().map(|way| (now + chance.millis(LATE), way)));
    }
    assert!(under_way.is_empty(), "seed {seed}");
    // One host goes on, unless all others leave and then it is lost.
    assert!(mute.is_some() || out.len() < hosts.into(), "seed {seed}");
    for (host, rank) in (0..).zip(&ranks) {
        assert_eq!(rank.ended, out.contains(&host), "seed {seed}");
        assert!(
            rank.ended || rank.dead == out,
            "seed {seed}: {host} knows {:?}",
            rank.dead
        );
    }
}

#[test]
fn all_that_are_left_agree_and_are_soon_told() {
    for seed in 0..10_000 {
        run([2, 3, 5, 8][seed as usize % 4], seed);
    }
}
