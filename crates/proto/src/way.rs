//! Where a path leads, whether it carries messages, and when one that does not
//! is tried.

use crate::base::{NetAddress, Unusual};

/// First wait before a path is tried again, ns, doubled from try to try.
const TRIAL_NS: u64 = 2_000_000;
/// Longest wait between two tries while something waits to be sent, ns.
const TRIAL_NS_MAX: u64 = 100_000_000;

/// The way of a path. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Way {
    /// Path number, as in packets: our network that it leaves by, unless that
    /// is path 0's.
    pub id: u8,
    /// Our path that leaves by the network on which the peer's packets with
    /// this number come.
    pub mate: u8,
    /// Destination of a further path; that of path 0 is in the peer's entry.
    to: NetAddress,
    /// The path has a destination; otherwise only the peer sends under its number.
    leads: bool,
    /// Validated and not given up: the path carries messages.
    pub usable: bool,
    /// While the path is not usable: an answer came to a packet numbered
    /// `proof_from` or above, or any answer is a proof.
    proven: bool,
    proof_from: u64,
    /// While the path is not usable: when it is tried next, ns, and the number
    /// of tries.
    trial_at: u64,
    trials: u8,
}

impl Way {
    /// The way of path 0, which is always in use at first.
    pub const FIRST: Self = Self {
        id: 0,
        mate: 0,
        to: NetAddress {
            ip: [0; 16],
            port: 0,
        },
        leads: true,
        usable: true,
        proven: true,
        proof_from: 0,
        trial_at: 0,
        trials: 0,
    };

    /// The way of a further path, which is to be validated; `to`: its
    /// destination, if known.
    pub fn further(id: u8, to: Option<NetAddress>) -> Self {
        Self {
            id,
            mate: id,
            to: to.unwrap_or_default(),
            leads: to.is_some(),
            usable: false,
            ..Self::FIRST
        }
    }

    /// Sets the destination of a path that had none, which is to be validated
    /// now and tried again later.
    pub const fn lead(&mut self, now: u64, to: NetAddress) {
        self.leads = true;
        self.to = to;
        self.trial_at = now.saturating_add(TRIAL_NS);
    }

    /// Destination; that of path 0 is in the peer's entry.
    #[inline]
    pub const fn to(&self) -> NetAddress {
        self.to
    }

    /// Whether the path has a destination.
    pub const fn leads(&self) -> bool {
        self.leads
    }

    /// What is unusual about it.
    #[inline]
    pub const fn unusual(&self) -> Unusual {
        Unusual::PATHS.when(!self.usable)
    }

    /// Whether the path carries messages (P12.2).
    #[inline]
    pub const fn is_usable(&self) -> bool {
        self.usable
    }

    /// Takes an answer to packet `largest`; returns whether that newly proves a
    /// path that was given up.
    pub const fn answered(&mut self, largest: u64) -> bool {
        let proves = !self.usable && !self.proven && largest >= self.proof_from;
        self.proven |= proves;
        proves
    }

    /// Puts a proven path to use; returns false if it is not proven, or in use (P12.2).
    pub const fn put_to_use(&mut self) -> bool {
        if !self.proven || self.usable {
            return false;
        }
        self.usable = true;
        self.trial_at = u64::MAX;
        self.trials = 0;
        true
    }

    /// Gives a path up that was in use. Answers to packets from number `next`
    /// on prove that it is back.
    pub const fn give_up(&mut self, now: u64, next: u64) {
        self.usable = false;
        self.proven = false;
        self.proof_from = next;
        self.trials = 0;
        self.trial_at = now;
    }

    /// When the path is to be tried, ns; `u64::MAX`: never.
    pub const fn trial_at(&self) -> u64 {
        if self.usable || !self.leads {
            u64::MAX
        } else {
            self.trial_at
        }
    }

    /// Counts a try that is made now; returns when the next is due.
    pub fn tried(&mut self, now: u64) -> u64 {
        let wait = (TRIAL_NS << self.trials.min(10)).min(TRIAL_NS_MAX);
        self.trials = self.trials.saturating_add(1);
        self.trial_at = now.saturating_add(wait);
        self.trial_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_first_path_is_in_use_and_never_tried() {
        let mut way = Way::FIRST;
        assert!(way.is_usable() && way.leads() && !way.put_to_use());
        assert_eq!((way.id, way.trial_at()), (0, u64::MAX));
        assert!(!way.answered(5));
    }

    /// Checks P12.2.
    #[test]
    fn a_further_path_is_used_after_any_answer() {
        let to = NetAddress {
            ip: [7; 16],
            port: 9,
        };
        let mut way = Way::further(2, None);
        assert_eq!((way.id, way.mate, way.leads()), (2, 2, false));
        assert_eq!(way.trial_at(), u64::MAX);
        way.lead(5 * MS, to);
        assert_eq!((way.to(), way.leads()), (to, true));
        assert_eq!(way.trial_at(), 7 * MS);
        assert_eq!(Way::further(2, Some(to)).trial_at(), 0);
        // The first answer proves it: nothing is noted beside.
        assert!(!way.is_usable() && !way.answered(0));
        assert!(way.put_to_use() && way.is_usable() && !way.put_to_use());
        assert_eq!(way.trial_at(), u64::MAX);
    }

    #[test]
    fn a_path_that_was_given_up_comes_back_with_an_answer_to_a_later_packet() {
        let mut way = Way::FIRST;
        way.give_up(3, 100);
        assert_eq!((way.is_usable(), way.trial_at()), (false, 3));
        assert!(!way.answered(99) && !way.put_to_use());
        assert!(way.answered(100) && !way.answered(101));
        assert!(way.put_to_use());
    }

    #[test]
    fn tries_become_rarer_until_the_path_is_used() {
        let mut way = Way::FIRST;
        way.give_up(0, 0);
        for ms in [2, 4, 8, 16, 32, 64, 100, 100] {
            assert_eq!(way.tried(MS), (1 + ms) * MS);
            assert_eq!(way.trial_at(), (1 + ms) * MS);
        }
        for _ in 0..300 {
            assert_eq!(way.tried(0), 100 * MS);
        }
        assert!(way.answered(0) && way.put_to_use());
        way.give_up(0, 0);
        assert_eq!(way.tried(0), 2 * MS);
    }

    #[test]
    fn a_path_out_of_use_is_unusual() {
        assert!(Way::FIRST.unusual().is_nothing());
        assert_eq!(Way::further(1, None).unusual(), Unusual::PATHS);
    }
}
