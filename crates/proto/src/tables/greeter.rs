//! Which nonces strangers are to echo: none is remembered before it was echoed.
//!
//! A nonce is a keyed hash of the stranger's address and sealed key, and of the present
//! epoch. So the same comes out when it is echoed. Each lets one in once: those that did are
//! remembered for as long as their epoch counts, so that a recording of a whole introduction
//! lets nobody in.

use super::Tokens;

/// How long an epoch lasts, ns. A nonce is good in its own and in the next.
const EPOCH_NS: u64 = 4_000_000_000;
/// Strangers that are let in in one; then the next begins.
const ADMITTED: usize = 256;

/// The state of that. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Greeter {
    epoch: u64,
    ends_at: u64,
    /// Nonces that were used, of this epoch and the one before, and how many.
    used: [[u64; ADMITTED]; 2],
    count: [usize; 2],
    /// Challenges that may still be sent: each costs some hashes and a packet.
    pub challenges: Tokens,
    /// Introductions with a good echo that may still be opened. They are strangers' whatever
    /// comes of it: none of these is given back.
    pub admissions: Tokens,
}

impl Greeter {
    pub const NEW: Self = Self {
        epoch: 0,
        ends_at: 0,
        used: [[0; ADMITTED]; 2],
        count: [0; 2],
        challenges: Tokens::full(8 * Tokens::USUAL),
        admissions: Tokens::FULL,
    };

    /// The epochs whose nonces are good at a time, the present one first.
    pub fn epochs(&mut self, now: u64) -> [u64; 2] {
        if now >= self.ends_at {
            // Nobody came for as long as that: what the one before gave is out of date too.
            if now.saturating_sub(self.ends_at) >= EPOCH_NS {
                self.turn();
            }
            self.turn();
            self.ends_at = now.saturating_add(EPOCH_NS);
        }
        [self.epoch, self.epoch - 1]
    }

    fn turn(&mut self) {
        self.epoch += 1;
        self.used[self.epoch as usize % 2] = [0; ADMITTED];
        self.count[self.epoch as usize % 2] = 0;
    }

    /// Lets one in by a nonce of an epoch; false if it has let one in before.
    pub fn admit(&mut self, epoch: u64, nonce: u64) -> bool {
        let at = epoch as usize % 2;
        if self.used[at][..self.count[at]].contains(&nonce) {
            return false;
        }
        if self.count[at] == ADMITTED {
            // No room to remember it. That of the present one begins anew.
            if epoch == self.epoch {
                self.turn();
            }
            return false;
        }
        self.used[at][self.count[at]] = nonce;
        self.count[at] += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nonce_lets_one_in_once_and_not_for_long() {
        let mut g = Greeter::NEW;
        let [first, before] = g.epochs(1);
        assert_eq!(before + 1, first);
        assert!(g.admit(first, 7) && !g.admit(first, 7) && g.admit(first, 8));
        let [next, still] = g.epochs(1 + EPOCH_NS);
        assert_eq!((next, still), (first + 1, first));
        assert!(!g.admit(still, 7) && g.admit(still, 9) && g.admit(next, 7));
        // After a long pause no earlier one counts.
        assert!(g.epochs(1 + 10 * EPOCH_NS).iter().all(|it| *it > next));
        // Full: the next begins, and what was used in this one is still known.
        let [full, _] = g.epochs(1 + 10 * EPOCH_NS);
        for nonce in 1..=ADMITTED as u64 {
            assert!(g.admit(full, nonce));
        }
        assert!(!g.admit(full, 1000));
        let [next, last] = g.epochs(1 + 10 * EPOCH_NS);
        assert_eq!((next, last), (full + 1, full));
        assert!(!g.admit(full, 5) && g.admit(next, 1000));
    }
}
