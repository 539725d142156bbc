//! Decides which hosts leave a job whose hosts do not all reach each other. The
//! decision follows from who reaches whom: no clock is read here and nothing is
//! sent, so that a model can test it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time after the first report of a cut in which further ones are collected, so
/// that the wrong host does not leave.
pub(crate) const SETTLE: Duration = Duration::from_secs(1);

/// Interval at which a decision is retried while a host has just fallen silent.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Pairs of hosts that do not reach each other: one has given the other up,
/// which is never taken back. The lower number comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(BTreeSet<(u16, u16)>);

impl Cuts {
    /// Adds a cut; false if it was known. A host has none against itself.
    pub fn add(&mut self, one: u16, other: u16) -> bool {
        one != other && self.0.insert((one.min(other), one.max(other)))
    }

    pub fn contains(&self, one: u16, other: u16) -> bool {
        self.0.contains(&(one.min(other), one.max(other)))
    }

    /// Returns the hosts that `host` does not reach.
    pub fn of(&self, host: u16) -> impl Iterator<Item = u16> {
        let other = move |&(one, other): &(u16, u16)| match host {
            _ if host == one => Some(other),
            _ if host == other => Some(one),
            _ => None,
        };
        self.0.iter().filter_map(other)
    }

    /// Returns the hosts that must leave so that the others of those that
    /// `stay` all reach each other. Takes the host that most others cannot
    /// reach, of equals the one with the highest number, and so on.
    pub fn leavers(&self, stay: impl Fn(u16) -> bool) -> Vec<u16> {
        let mut left = self.0.clone();
        left.retain(|&(one, other)| stay(one) && stay(other));
        let mut leavers = Vec::new();
        while !left.is_empty() {
            let mut missed = BTreeMap::<u16, usize>::new();
            for host in left.iter().flat_map(|&(one, other)| [one, other]) {
                *missed.entry(host).or_default() += 1;
            }
            let worst = missed.iter().max_by_key(|(host, by)| (**by, **host));
            let worst = *worst.expect("a cut has two sides").0;
            left.retain(|&(one, other)| one != worst && other != worst);
            leavers.push(worst);
        }
        leavers
    }

    /// Returns the part of `hosts` that news from `own` reaches if each host
    /// passes it on; `own` is one of them.
    pub fn part_of(&self, own: u16, hosts: &BTreeSet<u16>) -> BTreeSet<u16> {
        let mut part = BTreeSet::from([own]);
        let mut fresh = vec![own];
        while let Some(from) = fresh.pop() {
            let reached = |to: &&u16| !part.contains(to) && !self.contains(from, **to);
            let reached: Vec<u16> = hosts.iter().filter(reached).copied().collect();
            part.extend(&reached);
            fresh.extend(reached);
        }
        part
    }
}

/// Whether a part of `hosts` goes on without the rest: if it has more than half
/// of them, or one half and the lowest.
pub(crate) fn goes_on(part: &BTreeSet<u16>, hosts: &BTreeSet<u16>) -> bool {
    let has_lowest = hosts.first().is_some_and(|lowest| part.contains(lowest));
    2 * part.len() + usize::from(has_lowest) > hosts.len()
}

/// Reports of cuts at the launcher, which hears all hosts.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    cuts: Cuts,
    decide_at: Option<Instant>,
    /// The last cut, until a host had to leave.
    unsettled: Option<(u16, u16)>,
}

impl Reports {
    /// Adds a host's report that it does not reach another; false if that was known.
    pub fn add(&mut self, from: u16, about: u16, now: Instant) -> bool {
        let is_new = self.cuts.add(from, about);
        if is_new {
            self.decide_at.get_or_insert(now + SETTLE);
            self.unsettled = Some((from, about));
        }
        is_new
    }

    /// Returns, once, two hosts of which one has given up the other, if it was
    /// never decided who leaves: their ranks had ended before.
    pub fn take_unsettled(&mut self) -> Option<(u16, u16)> {
        self.unsettled.take()
    }

    /// When a decision is due.
    pub fn due(&self) -> Option<Instant> {
        self.decide_at
    }

    /// Returns the hosts that leave now, and which hosts each did not reach.
    /// `runs`: ranks of the job run there. `is_silent`: nothing was heard of
    /// the host for a moment; it may be about to be lost, which would explain
    /// the reports.
    pub fn decide(
        &mut self,
        now: Instant,
        runs: impl Fn(u16) -> bool,
        is_silent: impl Fn(u16) -> bool,
    ) -> Vec<(u16, Vec<u16>)> {
        if self.decide_at.is_none_or(|at| now < at) {
            return Vec::new();
        }
        let Cuts(cuts) = &mut self.cuts;
        cuts.retain(|&(one, other)| runs(one) && runs(other));
        if cuts
            .iter()
            .any(|&(one, other)| is_silent(one) || is_silent(other))
        {
            self.decide_at = Some(now + LOOK_AGAIN);
            return Vec::new();
        }
        self.decide_at = None;
        let cuts = std::mem::take(&mut self.cuts);
        let leavers = cuts.leavers(|_| true);
        if !leavers.is_empty() {
            self.unsettled = None;
        }
        leavers
            .into_iter()
            .map(|host| (host, cuts.of(host).collect()))
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(pairs: &[(u16, u16)]) -> Cuts {
        let mut cuts = Cuts::default();
        pairs.iter().for_each(|&(a, b)| _ = cuts.add(a, b));
        cuts
    }

    #[test]
    fn whom_most_cannot_reach_leaves_and_of_equals_the_highest() {
        let leavers = |pairs| cuts(pairs).leavers(|_| true);
        assert_eq!(leavers(&[]), [0; 0]);
        assert_eq!(leavers(&[(3, 3)]), [0; 0]);
        assert_eq!(leavers(&[(1, 0)]), [1]);
        assert_eq!(leavers(&[(0, 1), (2, 0), (0, 2)]), [0]);
        assert_eq!(leavers(&[(0, 1), (1, 2), (0, 2)]), [2, 1]);
        assert_eq!(leavers(&[(0, 3), (1, 2)]), [3, 2]);
        // Cuts of a host that has left no longer count.
        assert_eq!(leavers(&[(0, 4), (1, 4), (2, 4), (0, 3)]), [4, 3]);
        assert_eq!(cuts(&[(0, 1), (0, 2)]).leavers(|host| host != 0), [0; 0]);
    }

    #[test]
    fn one_part_goes_on() {
        let hosts: BTreeSet<u16> = (0..4).collect();
        let apart = cuts(&[(0, 2), (0, 3), (1, 2), (1, 3)]);
        assert_eq!(apart.part_of(1, &hosts), [0, 1].into());
        assert_eq!(apart.part_of(3, &hosts), [2, 3].into());
        // Through a third host.
        let hosts: BTreeSet<u16> = (0..3).collect();
        assert_eq!(cuts(&[(0, 1)]).part_of(0, &hosts), hosts);
        for hosts in (1..12).map(|count| (0..count).collect::<BTreeSet<u16>>()) {
            for mask in 0..1 << hosts.len() {
                let is_in = |host: &&u16| mask >> **host & 1 == 1;
                let (part, rest): (BTreeSet<u16>, BTreeSet<u16>) = hosts.iter().partition(is_in);
                assert_ne!(goes_on(&part, &hosts), goes_on(&rest, &hosts), "{part:?}");
            }
        }
    }

    #[test]
    fn reports_are_waited_for_and_a_host_that_is_being_lost_explains_them() {
        let start = Instant::now();
        let mut reports = Reports::default();
        reports.add(0, 0, start);
        assert_eq!(reports.due(), None);
        reports.add(2, 0, start);
        let due = start + SETTLE;
        reports.add(1, 0, due - LOOK_AGAIN);
        assert_eq!(reports.due(), Some(due));
        assert_eq!(reports.decide(due - LOOK_AGAIN, |_| true, |_| false), []);
        assert_eq!(reports.decide(due, |_| true, |host| host == 0), []);
        let later = reports.due().unwrap();
        assert_eq!(
            reports.decide(later, |_| true, |host| host == 9),
            [(0, vec![1, 2])]
        );
        assert_eq!(reports.due(), None);
        assert_eq!(reports.take_unsettled(), None);
        // No ranks run on the unreached host any more.
        reports.add(2, 1, later);
        let later = reports.due().unwrap();
        assert_eq!(reports.decide(later, |host| host != 2, |_| true), []);
        assert_eq!(reports.due(), None);
        assert_eq!(reports.take_unsettled(), Some((2, 1)));
        assert_eq!(reports.take_unsettled(), None);
    }
}
