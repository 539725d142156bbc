//! Which hosts leave a job whose hosts do not all reach each other. It follows
//! from who reaches whom: no clock is read here and nothing is sent, so that a
//! model can try it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// After the first word of a cut others of the same one are waited for, so that
/// not the wrong host leaves.
pub(crate) const SETTLE: Duration = Duration::from_secs(1);

/// Whoever decides looks again so often at hosts that have just fallen silent.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Pairs of hosts that do not reach each other: one has given the other up,
/// which is never taken back. The lower number comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cuts(BTreeSet<(u16, u16)>);

impl Cuts {
    /// Adds one; false if it was known. What a host has against itself is none.
    pub fn add(&mut self, one: u16, other: u16) -> bool {
        one != other && self.0.insert((one.min(other), one.max(other)))
    }

    pub fn contains(&self, one: u16, other: u16) -> bool {
        self.0.contains(&(one.min(other), one.max(other)))
    }

    /// Whom a host does not reach.
    pub fn of(&self, host: u16) -> impl Iterator<Item = u16> {
        let other = move |&(one, other): &(u16, u16)| match host {
            _ if host == one => Some(other),
            _ if host == other => Some(one),
            _ => None,
        };
        self.0.iter().filter_map(other)
    }

    /// Those that must leave so that all that are left of those who `stay`
    /// reach each other: the one that most others cannot reach, of equals the
    /// one with the highest number, and so on.
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

    /// Those of `hosts` whom news from `own`, one of them, comes to, if each
    /// passes it on: itself among them.
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

/// Whether a part of `hosts` goes on without the rest: more than half of them
/// do, and of two halves the one with the lowest.
pub(crate) fn goes_on(part: &BTreeSet<u16>, hosts: &BTreeSet<u16>) -> bool {
    let has_lowest = hosts.first().is_some_and(|lowest| part.contains(lowest));
    2 * part.len() + usize::from(has_lowest) > hosts.len()
}

/// What a launcher, which hears all hosts, makes of their reports.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    cuts: Cuts,
    decide_at: Option<Instant>,
    /// The last of them, while nobody had to leave for one.
    unsettled: Option<(u16, u16)>,
}

impl Reports {
    /// A host says that it does not reach another; false if that was known.
    pub fn add(&mut self, from: u16, about: u16, now: Instant) -> bool {
        let is_new = self.cuts.add(from, about);
        if is_new {
            self.decide_at.get_or_insert(now + SETTLE);
            self.unsettled = Some((from, about));
        }
        is_new
    }

    /// Two hosts of which one had given up the other, and it was never decided
    /// who leaves: their ranks had ended before.
    pub fn unsettled(&self) -> Option<(u16, u16)> {
        self.unsettled
    }

    /// When it is time to decide.
    pub fn due(&self) -> Option<Instant> {
        self.decide_at
    }

    /// Which hosts leave now, and whom they did not reach. `runs`: whether ranks
    /// of the job are there. `is_silent`: nothing has been heard of the host for
    /// a moment; it may be about to be lost, which would explain the reports.
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
        // One that is left by then counts for nobody.
        assert_eq!(leavers(&[(0, 4), (1, 4), (2, 4), (0, 3)]), [4, 3]);
        assert_eq!(cuts(&[(0, 1), (0, 2)]).leavers(|host| host != 0), [0; 0]);
    }

    #[test]
    fn one_part_goes_on() {
        let hosts: BTreeSet<u16> = (0..4).collect();
        let apart = cuts(&[(0, 2), (0, 3), (1, 2), (1, 3)]);
        assert_eq!(apart.part_of(1, &hosts), [0, 1].into());
        assert_eq!(apart.part_of(3, &hosts), [2, 3].into());
        // By way of a third.
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
        // Nobody is there any more who could be missed.
        reports.add(2, 1, later);
        let later = reports.due().unwrap();
        assert_eq!(reports.decide(later, |host| host != 2, |_| true), []);
        assert_eq!(reports.due(), None);
    }
}
