//! Which nonces strangers are to echo: none is remembered before it was echoed.
//!
//! A nonce is a keyed hash of the stranger's address and sealed key, and of the present
//! epoch. So the same comes out when it is echoed. Each lets one in once: those that did are
//! remembered for as long as their epoch counts, so that a recording of a whole introduction
//! lets nobody in.

use super::{PeerSnapshot, Tokens};

/// How long an epoch lasts, ns. A nonce is good in its own and in the next.
const EPOCH_NS: u64 = 4_000_000_000;
/// Strangers that are let in in one; then the next begins.
const ADMITTED: usize = 64;

/// The state of that, but for the nonces themselves. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Greeter {
    epoch: u64,
    ends_at: u64,
    /// Nonces that were used, of this epoch and the one before.
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
        count: [0; 2],
        challenges: Tokens::full(8 * Tokens::USUAL),
        admissions: Tokens::FULL,
    };

    /// Entries of [`super::Tables::parked`] that hold the nonces: not among what every packet
    /// needs.
    pub const PLACES: usize = (2 * ADMITTED * size_of::<u64>()).div_ceil(size_of::<PeerSnapshot>());

    /// Whether one more can be let in by a nonce of an epoch.
    const fn has_room(&self, epoch: u64) -> bool {
        self.count[epoch as usize % 2] < ADMITTED
    }

    /// The epochs whose nonces are good at a time, the present one first.
    pub fn epochs(&mut self, now: u64) -> impl Iterator<Item = u64> + use<'_> {
        if now >= self.ends_at {
            // Nobody came for as long as that: what the one before gave is out of date too.
            if now.saturating_sub(self.ends_at) >= EPOCH_NS {
                self.turn();
            }
            self.turn();
            self.ends_at = now.saturating_add(EPOCH_NS);
        }
        [self.epoch, self.epoch - 1]
            .into_iter()
            .filter(|epoch| self.has_room(*epoch))
    }

    /// The epoch that nonces are given out in.
    pub fn present(&mut self, now: u64) -> u64 {
        self.epochs(now).next().unwrap_or_default()
    }

    fn turn(&mut self) {
        self.epoch += 1;
        self.count[self.epoch as usize % 2] = 0;
    }

    /// Lets one in by a nonce of an epoch that is good; false if it has let one in before.
    /// `places`: where the nonces are.
    pub fn admit(&mut self, epoch: u64, nonce: u64, places: &mut [PeerSnapshot]) -> bool {
        let at = epoch as usize % 2;
        let used = &mut places.as_flattened_mut()[at * ADMITTED..][..ADMITTED];
        if !self.has_room(epoch) || used[..self.count[at]].contains(&nonce) {
            return false;
        }
        used[self.count[at]] = nonce;
        self.count[at] += 1;
        if epoch == self.epoch && !self.has_room(epoch) {
            // There is always one with room.
            self.turn();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::super::NOT_PARKED;
    use super::*;

    fn good(g: &mut Greeter, now: u64) -> Vec<u64> {
        g.epochs(now).collect()
    }

    #[test]
    fn a_nonce_lets_one_in_once_and_not_for_long() {
        let (mut g, mut places) = (Greeter::NEW, [NOT_PARKED; Greeter::PLACES]);
        let mut admit = |g: &mut Greeter, epoch, nonce| g.admit(epoch, nonce, &mut places);
        let first = g.present(1);
        assert_eq!(good(&mut g, 1), [first, first - 1]);
        assert!(admit(&mut g, first, 7) && !admit(&mut g, first, 7) && admit(&mut g, first, 8));
        let later = 1 + EPOCH_NS;
        assert_eq!(good(&mut g, later), [first + 1, first]);
        assert!(!admit(&mut g, first, 7) && admit(&mut g, first, 9) && admit(&mut g, first + 1, 7));
        // After a long pause no earlier one counts.
        let now = 1 + 10 * EPOCH_NS;
        assert!(good(&mut g, now).iter().all(|it| *it > first + 1));
    }

    #[test]
    fn a_full_epoch_makes_way_for_the_next() {
        let (mut g, mut places) = (Greeter::NEW, [NOT_PARKED; Greeter::PLACES]);
        let mut epoch = g.present(1);
        for nonce in 1..=10 * ADMITTED as u64 {
            let present = g.present(1);
            assert!(g.admit(present, nonce, &mut places), "{nonce}");
            // What was used as long as it counts is known.
            assert!(!g.admit(present, nonce, &mut places), "{nonce}");
            assert!(good(&mut g, 1).contains(&g.epoch));
            epoch = epoch.max(present);
        }
        assert_eq!(epoch, 10);
    }
}
