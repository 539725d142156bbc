//! The paths of a pair: which there are, and by which the next packet leaves.

use crate::base::{PATHS_MAX, PathIndex, Unusual};

/// Packets that leave by one path before another is considered: enough for
/// one unit of segmentation offload, few beside a window.
const STRIPE: u8 = 16;

/// Packets in a row that come by a detour before that is reported to the peer:
/// single ones take it on purpose.
const DETOURS: u8 = 4;

/// The paths of one pair. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Paths {
    first: PathIndex,
    /// Paths beside the first, by path number less 1.
    further: [PathIndex; PATHS_MAX - 1],
    /// Path of the packets being sent, and the number of them in a row.
    current: PathIndex,
    striped: u8,
    /// Path of the last packet received.
    heard_by: PathIndex,
    /// Packets of the peer in a row that came by a detour, at most [`DETOURS`].
    detours: u8,
    /// Our networks are still to be sent to the peer: no frame was free yet.
    pub networks_owed: bool,
}

/// A path that may carry the next packet with chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// The path carries messages.
    pub usable: bool,
    /// The next packet is a probe.
    pub probes: bool,
    /// The window allows a packet.
    pub open: bool,
    /// When the pacer allows it, ns.
    pub ready_at: u64,
    /// Probes without an answer.
    pub quiet: u8,
    /// Used part of the window, of 2^16.
    pub load: u64,
}

impl Candidate {
    const fn is_free(&self, now: u64) -> bool {
        self.usable && self.open && self.ready_at <= now
    }
}

/// A path that may carry an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answerer {
    /// The path carries messages.
    pub usable: bool,
    /// The path has a destination.
    pub leads: bool,
    /// Some probe had no answer.
    pub doubtful: bool,
}

impl Paths {
    /// Paths of a pair that has one.
    pub const fn new(first: PathIndex) -> Self {
        Self {
            first,
            further: [PathIndex::NONE; PATHS_MAX - 1],
            current: first,
            striped: 0,
            heard_by: first,
            detours: 0,
            networks_owed: false,
        }
    }

    /// What is unusual about them.
    #[inline]
    pub fn unusual(&self) -> Unusual {
        Unusual::PATHS.when(self.has_more() || self.networks_owed || self.reports_detours())
    }

    /// Whether there are others than the first.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.further != [PathIndex::NONE; PATHS_MAX - 1]
    }

    /// All paths, the first one first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = PathIndex> + use<> {
        let further = self.further.into_iter().filter(|path| path.is_some());
        core::iter::once(self.first).chain(further)
    }

    /// The path of a number, if there is one.
    #[inline]
    pub fn get(&self, id: u8) -> Option<PathIndex> {
        if id == 0 {
            return Some(self.first);
        }
        let path = *self.further.get(usize::from(id) - 1)?;
        path.is_some().then_some(path)
    }

    /// Adds a further path; `PathIndex::NONE` removes it.
    pub const fn set(&mut self, id: u8, path: PathIndex) {
        self.further[id as usize - 1] = path;
    }

    /// Path of the packets being sent.
    #[inline]
    pub const fn current(&self) -> PathIndex {
        self.current
    }

    /// Counts a packet with chunks that leaves by the current path.
    #[inline]
    pub const fn count(&mut self) {
        self.striped = self.striped.saturating_add(1);
    }

    /// From now on packets leave by this path.
    pub const fn turn_to(&mut self, path: PathIndex) {
        self.current = path;
        self.striped = 0;
    }

    /// The path by which the next packet with chunks is to leave, where there
    /// are several. If it has to wait for its window or its pacer, so do all
    /// others. Only a probe leaves the current path as it is.
    pub fn choose(&mut self, now: u64, of: impl Fn(PathIndex) -> Candidate) -> PathIndex {
        let present = of(self.current);
        if self.striped < STRIPE && present.is_free(now) && present.quiet == 0 {
            return self.current;
        }
        let all = || self.iter().map(|path| (path, of(path)));
        if let Some((path, _)) = all().find(|(_, it)| it.probes) {
            return path;
        }
        // Paths that answer come first; then the one with the fewest unanswered
        // probes, as nothing else asks it again where its last answer was lost.
        // Then the one with the least of its window used.
        let free = all().filter(|(_, it)| it.is_free(now));
        let least = free.min_by_key(|(_, it)| (it.quiet, it.load));
        let open = || all().filter(|(_, it)| it.usable && it.open);
        let soonest = || open().min_by_key(|(_, it)| it.ready_at);
        let usable = || all().find(|(_, it)| it.usable);
        let best = least.or_else(soonest).or_else(usable);
        let best = best.map_or(self.first, |(path, _)| path);
        self.turn_to(best);
        best
    }

    /// Path by which an acknowledgement of packets leaves whose path has this
    /// mate: by the network by which they come, if it is in use or no other
    /// answers. Where those in use have failed, nothing else would show that
    /// this one works.
    pub fn choose_for_ack(&self, mate: u8, of: impl Fn(PathIndex) -> Answerer) -> PathIndex {
        let mate = self.get(mate);
        let find = |wanted: fn(Answerer) -> bool| self.iter().find(|&path| wanted(of(path)));
        mate.filter(|&path| of(path).usable)
            .or_else(|| find(|it| it.usable && !it.doubtful))
            .or_else(|| mate.filter(|&path| of(path).leads))
            .or_else(|| find(|it| it.usable))
            .unwrap_or(self.first)
    }

    /// Notes the path of a packet that was received.
    #[inline]
    pub const fn heard(&mut self, path: PathIndex) {
        self.heard_by = path;
    }

    /// Path that the peer uses.
    pub const fn heard_by(&self) -> PathIndex {
        self.heard_by
    }

    /// Notes for each packet of the peer whether it came by a detour.
    #[inline]
    pub fn note_detour(&mut self, detour: bool) {
        let count = self.detours.saturating_add(1).min(DETOURS);
        self.detours = if detour { count } else { 0 };
    }

    /// Whether the last packet of the peer came by no detour.
    #[inline]
    pub const fn is_straight(&self) -> bool {
        self.detours == 0
    }

    /// Whether detours are to be reported to the peer.
    #[inline]
    pub const fn reports_detours(&self) -> bool {
        self.detours == DETOURS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(i: usize) -> PathIndex {
        PathIndex::new(i)
    }

    /// Paths 10 (number 0), 21 (number 1) and 23 (number 3).
    fn three() -> Paths {
        let mut paths = Paths::new(index(10));
        paths.set(1, index(21));
        paths.set(3, index(23));
        paths
    }

    const FREE: Candidate = Candidate {
        usable: true,
        probes: false,
        open: true,
        ready_at: 0,
        quiet: 0,
        load: 0,
    };

    /// The choice at time 100 among paths 10, 21 and 23, of which 10 is current
    /// and has carried `striped` packets.
    fn chosen(striped: u8, candidates: [Candidate; 3]) -> usize {
        let mut paths = three();
        (0..striped).for_each(|_| paths.count());
        let of = |path: PathIndex| {
            let at = [10, 21, 23].iter().position(|&i| i == path.index());
            candidates[at.expect("a path of ours")]
        };
        paths.choose(100, of).index()
    }

    #[test]
    fn paths_are_found_by_number() {
        let mut paths = three();
        assert!(paths.has_more() && !Paths::new(index(10)).has_more());
        assert!(paths.iter().map(PathIndex::index).eq([10, 21, 23]));
        let numbers = [0, 1, 2, 3, 4, 255].map(|id| paths.get(id).map(PathIndex::index));
        assert_eq!(numbers, [Some(10), Some(21), None, Some(23), None, None]);
        paths.set(1, PathIndex::NONE);
        paths.set(3, PathIndex::NONE);
        assert!(!paths.has_more() && paths.get(1).is_none());
    }

    #[test]
    fn packets_go_on_by_one_path_for_a_while() {
        let loaded = Candidate { load: 9, ..FREE };
        assert_eq!(chosen(STRIPE - 1, [loaded, FREE, FREE]), 10);
        assert_eq!(chosen(STRIPE, [loaded, FREE, FREE]), 21);
        // Not by one that does not answer, or has to wait.
        let quiet = Candidate { quiet: 1, ..FREE };
        assert_eq!(chosen(0, [quiet, FREE, FREE]), 21);
        let paced = Candidate {
            ready_at: 101,
            ..FREE
        };
        assert_eq!(chosen(0, [paced, FREE, FREE]), 21);
        let full = Candidate {
            open: false,
            ..FREE
        };
        assert_eq!(chosen(0, [full, FREE, FREE]), 21);
        let mut paths = three();
        (0..255).for_each(|_| paths.count());
        paths.count();
        paths.turn_to(index(23));
        assert_eq!((paths.current(), paths.striped), (index(23), 0));
    }

    #[test]
    fn a_probe_comes_first_and_then_the_path_that_answers_with_the_least_load() {
        let probes = Candidate {
            usable: false,
            probes: true,
            ..FREE
        };
        assert_eq!(chosen(STRIPE, [FREE, FREE, probes]), 23);
        let loaded = |load| Candidate { load, ..FREE };
        assert_eq!(chosen(STRIPE, [loaded(3), loaded(2), loaded(2)]), 21);
        let quiet = |quiet| Candidate { quiet, ..loaded(1) };
        assert_eq!(chosen(STRIPE, [quiet(2), quiet(3), quiet(1)]), 23);
        assert_eq!(chosen(STRIPE, [quiet(1), loaded(9), quiet(1)]), 21);
        let unused = Candidate {
            usable: false,
            ..FREE
        };
        assert_eq!(chosen(STRIPE, [unused, loaded(9), unused]), 21);
    }

    #[test]
    fn where_all_wait_the_first_to_be_ready_is_chosen() {
        let paced = |ready_at| Candidate { ready_at, ..FREE };
        assert_eq!(chosen(0, [paced(103), paced(102), paced(101)]), 23);
        // None is open: one that carries messages.
        let full = Candidate {
            open: false,
            ..paced(101)
        };
        let unused = Candidate {
            usable: false,
            ..FREE
        };
        assert_eq!(chosen(0, [unused, full, full]), 21);
        assert_eq!(chosen(0, [full, paced(300), unused]), 21);
        assert_eq!(chosen(0, [unused, unused, unused]), 10);
    }

    #[test]
    fn an_acknowledgement_leaves_by_the_network_of_the_packets() {
        let good = Answerer {
            usable: true,
            leads: true,
            doubtful: false,
        };
        let doubtful = Answerer {
            doubtful: true,
            ..good
        };
        let unused = Answerer {
            usable: false,
            ..good
        };
        let nowhere = Answerer {
            leads: false,
            ..unused
        };
        let chosen = |mate, all: [Answerer; 3]| {
            let of = |path: PathIndex| {
                let at = [10, 21, 23].iter().position(|&i| i == path.index());
                all[at.expect("a path of ours")]
            };
            three().choose_for_ack(mate, of).index()
        };
        assert_eq!(chosen(1, [good, doubtful, good]), 21);
        assert_eq!(chosen(1, [doubtful, unused, good]), 23);
        // All in use have failed: it may show that this one works.
        assert_eq!(chosen(1, [doubtful, unused, doubtful]), 21);
        assert_eq!(chosen(1, [unused, nowhere, doubtful]), 23);
        assert_eq!(chosen(2, [unused, good, good]), 21);
        assert_eq!(chosen(2, [nowhere, nowhere, nowhere]), 10);
    }

    #[test]
    fn detours_in_a_row_are_reported() {
        let mut paths = three();
        for _ in 0..3 {
            paths.note_detour(true);
            assert!(!paths.reports_detours());
        }
        for _ in 0..300 {
            paths.note_detour(true);
            assert!(paths.reports_detours());
        }
        paths.note_detour(false);
        assert!(!paths.reports_detours());
        assert_eq!(paths.heard_by(), index(10));
        paths.heard(index(21));
        assert_eq!(paths.heard_by(), index(21));
    }

    #[test]
    fn several_paths_and_what_is_to_be_reported_are_unusual() {
        let one = Paths::new(index(10));
        assert!(one.unusual().is_nothing());
        assert_eq!(three().unusual(), Unusual::PATHS);
        let owed = Paths {
            networks_owed: true,
            ..one
        };
        assert_eq!(owed.unusual(), Unusual::PATHS);
        let mut around = one;
        (0..DETOURS).for_each(|_| around.note_detour(true));
        assert_eq!(around.unusual(), Unusual::PATHS);
    }
}
