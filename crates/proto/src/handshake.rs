//! How far the making of a connection has come, on our side.

use crate::base::Unusual;
use portolan_wire::{Challenge, TAG_BYTES};

/// First wait for an answer, ns, doubled each time: ten round trips between
/// hosts that have to wake up.
const WAIT_NS: u64 = 1_000_000;
/// Longest wait between two connect packets, ns.
const WAIT_NS_MAX: u64 = 200_000_000;

/// No introduction waits for a challenge.
const NO_MARK: [u8; TAG_BYTES] = [0; TAG_BYTES];

/// State of a handshake. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Handshake {
    /// When the next connect packet is due, ns; `u64::MAX`: none is.
    pub due: u64,
    tries: u8,
    /// Mark of the last introduction, and the nonce that the next one echoes.
    mark: [u8; TAG_BYTES],
    challenge: u64,
    /// The peer's offer is known, data keys are installed.
    keyed: bool,
    /// The peer is known to have the data keys.
    confirmed: bool,
    /// A packet verified since the peer became active.
    proven: bool,
}

impl Handshake {
    /// Handshake that has not begun; with a peer that `is_up`, one that is over.
    pub const fn new(is_up: bool) -> Self {
        Self {
            due: u64::MAX,
            tries: 0,
            mark: NO_MARK,
            challenge: 0,
            keyed: is_up,
            confirmed: is_up,
            proven: false,
        }
    }

    /// We seek the peer from now on.
    pub const fn begin(&mut self) {
        self.tries = 0;
    }

    /// A connect packet leaves now; returns when the next is due (P4.1).
    pub fn tried(&mut self, now: u64) -> u64 {
        let wait = (WAIT_NS << self.tries.min(10)).min(WAIT_NS_MAX);
        self.tries = self.tries.saturating_add(1);
        self.due = now + wait;
        self.due
    }

    /// No more connect packets are due.
    pub const fn stop(&mut self) {
        self.due = u64::MAX;
    }

    /// What is unusual about it.
    #[inline]
    pub const fn unusual(&self) -> Unusual {
        Unusual::CONNECT.when(self.is_under_way() || !self.confirmed)
    }

    /// Whether connect packets are due.
    pub const fn is_under_way(&self) -> bool {
        self.due != u64::MAX
    }

    /// An introduction with this mark leaves now.
    pub const fn introduced(&mut self, mark: [u8; TAG_BYTES]) {
        self.mark = mark;
    }

    /// Takes a challenge; returns whether it answers our last introduction.
    /// Each is answered once: anyone who has seen it knows its mark. An offer
    /// from before the peer forgot us is void (P4.18).
    pub fn challenged(&mut self, challenge: &Challenge) -> bool {
        if self.mark == NO_MARK || self.mark != challenge.mark {
            return false;
        }
        self.mark = NO_MARK;
        self.challenge = challenge.nonce;
        self.keyed = false;
        true
    }

    /// Nonce of the last challenge; 0: there was none.
    pub const fn challenge(&self) -> u64 {
        self.challenge
    }

    /// Data keys are installed.
    pub const fn key(&mut self) {
        self.keyed = true;
    }

    /// Whether data keys are installed.
    #[inline]
    pub const fn is_keyed(&self) -> bool {
        self.keyed
    }

    /// Notes whether the peer is known to have the data keys.
    #[inline]
    pub const fn set_confirmed(&mut self, confirmed: bool) {
        self.confirmed = confirmed;
    }

    /// Whether the peer is known to have the data keys.
    pub const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Notes that a packet verified; returns whether it is the first since the
    /// peer became active.
    #[inline]
    pub const fn prove(&mut self) -> bool {
        !core::mem::replace(&mut self.proven, true)
    }

    /// Whether a packet verified since the peer became active.
    pub const fn is_proven(&self) -> bool {
        self.proven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Checks P4.1.
    #[test]
    fn connect_packets_leave_more_and_more_rarely() {
        let mut handshake = Handshake::new(false);
        assert!(!handshake.is_under_way());
        for ms in [1, 2, 4, 8, 16, 32, 64, 128, 200, 200] {
            assert_eq!(handshake.tried(MS), (1 + ms) * MS);
        }
        for _ in 0..300 {
            assert_eq!(handshake.tried(0), 200 * MS);
        }
        assert!(handshake.is_under_way());
        handshake.begin();
        assert_eq!(handshake.tried(0), MS);
        handshake.stop();
        assert!(!handshake.is_under_way());
    }

    /// Checks P4.18.
    #[test]
    fn each_introduction_takes_one_challenge() {
        let mut handshake = Handshake::new(false);
        let challenge = |mark| Challenge {
            connection: 0,
            mark,
            nonce: 7,
        };
        // None is expected, whatever it names.
        assert!(!handshake.challenged(&challenge(NO_MARK)));
        handshake.introduced([1; TAG_BYTES]);
        handshake.key();
        assert!(!handshake.challenged(&challenge([2; TAG_BYTES])));
        assert!(handshake.is_keyed());
        assert_eq!(handshake.challenge(), 0);
        assert!(handshake.challenged(&challenge([1; TAG_BYTES])));
        assert!(!handshake.is_keyed());
        assert_eq!(handshake.challenge(), 7);
        assert!(!handshake.challenged(&challenge([1; TAG_BYTES])));
    }

    #[test]
    fn a_peer_that_is_up_has_the_keys_but_has_proven_nothing() {
        let mut handshake = Handshake::new(true);
        assert!(handshake.is_keyed() && handshake.is_confirmed());
        assert!(!handshake.is_proven() && handshake.prove());
        assert!(handshake.is_proven() && !handshake.prove());
        handshake.set_confirmed(false);
        assert!(!handshake.is_confirmed());
        let handshake = Handshake::new(false);
        assert!(!handshake.is_keyed() && !handshake.is_confirmed());
    }

    #[test]
    fn connecting_is_unusual_until_it_is_over_and_confirmed() {
        let up = Handshake::new(true);
        assert!(up.unusual().is_nothing());
        let mut doubtful = up;
        doubtful.set_confirmed(false);
        assert_eq!(doubtful.unusual(), Unusual::CONNECT);
        let again = Handshake { due: 5, ..up };
        assert_eq!(again.unusual(), Unusual::CONNECT);
    }
}
