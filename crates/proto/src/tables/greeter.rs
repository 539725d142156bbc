//! Nonces that strangers must echo: none is remembered before its echo.
//!
//! A nonce is a keyed hash of the stranger's address and sealed key, and of the present epoch, so
//! that it can be computed again when it is echoed. Each admits one stranger once: used nonces are
//! remembered as long as their epoch is valid, so that a recorded introduction admits none.

use super::{PeerSnapshot, Tokens};

/// Length of an epoch, ns. A nonce is valid in its own epoch and in the next.
const EPOCH_NS: u64 = 4_000_000_000;
/// Strangers admitted in one epoch; then the next begins.
const ADMITTED: usize = 64;

/// State of admission, without the used nonces. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Greeter {
    epoch: u64,
    ends_at: u64,
    /// Number of used nonces, of this epoch and the one before.
    count: [usize; 2],
    /// Challenges that may still be sent: each costs some hashes and a packet.
    pub challenges: Tokens,
    /// Introductions with a valid echo that may still be opened; not refunded, as strangers cause
    /// all of them.
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

    /// Entries of [`super::Tables::parked`] that hold used nonces: apart from what every packet
    /// needs.
    pub const PLACES: usize = (2 * ADMITTED * size_of::<u64>()).div_ceil(size_of::<PeerSnapshot>());

    /// Whether nonces of an epoch can admit one more.
    const fn has_room(&self, epoch: u64) -> bool {
        self.count[epoch as usize % 2] < ADMITTED
    }

    /// Epochs whose nonces are valid at `now`, the present one first.
    pub fn epochs(&mut self, now: u64) -> impl Iterator<Item = u64> + use<'_> {
        if now >= self.ends_at {
            // A whole epoch passed unused: nonces of the one before are out of date too.
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

    /// Epoch of nonces that are issued now.
    pub fn present(&mut self, now: u64) -> u64 {
        self.epochs(now).next().unwrap_or_default()
    }

    fn turn(&mut self) {
        self.epoch += 1;
        self.count[self.epoch as usize % 2] = 0;
    }

    /// Admits a stranger by a nonce of a valid epoch; returns false if the nonce was used before,
    /// or the epoch is full. `places`: memory of used nonces (P4.20).
    pub fn admit(&mut self, epoch: u64, nonce: u64, places: &mut [PeerSnapshot]) -> bool {
        let at = epoch as usize % 2;
        let used = &mut places.as_flattened_mut()[at * ADMITTED..][..ADMITTED];
        if !self.has_room(epoch) || used[..self.count[at]].contains(&nonce) {
            return false;
        }
        used[self.count[at]] = nonce;
        self.count[at] += 1;
        if epoch == self.epoch && !self.has_room(epoch) {
            // Some epoch always has room.
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

    /// Checks P4.20.
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
        // After a long pause no earlier epoch is valid.
        let now = 1 + 10 * EPOCH_NS;
        assert!(good(&mut g, now).iter().all(|it| *it > first + 1));
    }

    /// Checks P4.20.
    #[test]
    fn a_full_epoch_makes_way_for_the_next() {
        let (mut g, mut places) = (Greeter::NEW, [NOT_PARKED; Greeter::PLACES]);
        let mut epoch = g.present(1);
        for nonce in 1..=10 * ADMITTED as u64 {
            let present = g.present(1);
            assert!(g.admit(present, nonce, &mut places), "{nonce}");
            // A used nonce is remembered while its epoch is valid.
            assert!(!g.admit(present, nonce, &mut places), "{nonce}");
            assert!(good(&mut g, 1).contains(&g.epoch));
            epoch = epoch.max(present);
        }
        assert_eq!(epoch, 10);
    }
}
