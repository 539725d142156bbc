//! Key phases of a pair: with which key a packet is sealed, which one opens it,
//! and when the next phase begins.

use portolan_seal::Nonce;

use crate::base::{ConnIndex, Unusual};

/// Slots of one connection: two phases to send, three to receive.
pub(crate) const SLOTS: usize = 5;

/// Slot of the key of a connect packet; those of connections follow.
pub(crate) const CONNECT_SLOT: usize = 0;

/// Packets beyond the limit of a phase after which a receiver that has
/// acknowledged nothing of the phase is asked again.
const ASK_EVERY: u64 = 32;
/// Packets before the limit from which the end of a phase is near.
const NEAR: u64 = 64;

/// Slots that the seal of an endpoint must have for `conns` entries of
/// [`crate::Tables::conns`].
#[must_use]
pub const fn key_slots(conns: usize) -> usize {
    CONNECT_SLOT + 1 + conns * SLOTS
}

/// Slot of a connection's key to seal with, in a phase.
pub(crate) const fn tx_slot(conn: ConnIndex, phase: u32) -> usize {
    key_slots(conn.index()) + (phase % 2) as usize
}

/// Slot of a connection's key to open with, in a phase.
pub(crate) const fn rx_slot(conn: ConnIndex, phase: u32) -> usize {
    key_slots(conn.index()) + 2 + (phase % 3) as usize
}

/// The nonce of a packet.
pub(crate) const fn nonce(path: u8, number: u64) -> Nonce {
    Nonce {
        path: path as u32,
        number,
    }
}

/// Key phases of a pair, in both directions; they outlive its active state.
/// Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Keys {
    pub sending: u32,
    pub receiving: u32,
    /// Packets that were sealed in the phase of sending.
    pub sealed: u32,
}

/// Where the present phases begin on one path. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PhaseStart {
    /// First number that was or will be sent in the phase.
    sent: u64,
    /// First number of the peer's phase that was received.
    received: u64,
}

/// What one path has settled, as far as a new phase asks for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    /// One above the largest number that was acknowledged.
    pub acked_to: u64,
    /// Lowest number that may still be in flight; `u64::MAX`: none is.
    pub lowest: u64,
    /// The path carries messages.
    pub usable: bool,
}

/// Whether a path lets the next phase begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Yes,
    /// Packets of an earlier phase are in flight.
    No,
    /// The peer has acknowledged nothing of this phase yet.
    Unconfirmed,
}

impl Keys {
    /// Counts a packet that is sealed now; returns its phase.
    #[inline]
    pub const fn seal(&mut self) -> u32 {
        self.sealed = self.sealed.saturating_add(1);
        self.sending
    }

    /// What is unusual about it, where a phase may have `limit` packets.
    #[inline]
    pub fn unusual(&self, limit: u64) -> Unusual {
        Unusual::REKEY.when(self.sealed as u64 + NEAR >= limit)
    }

    /// Packets beyond the limit of this phase, once that is reached (P3.15).
    #[inline]
    pub const fn over(&self, limit: u64) -> Option<u64> {
        (self.sealed as u64).checked_sub(limit)
    }

    /// Whether a peer that has acknowledged nothing of this phase is asked now,
    /// with that many packets beyond the limit.
    pub const fn asks(over: u64) -> bool {
        over.is_multiple_of(ASK_EVERY)
    }

    /// Begins the next phase of sending; returns it.
    pub const fn begin(&mut self) -> u32 {
        self.sealed = 0;
        self.sending += 1;
        self.sending
    }

    /// The phase whose key sealed a packet of a path, by its bit and number (P3.17).
    #[inline]
    pub const fn phase_of(&self, start: &PhaseStart, bit: bool, number: u64) -> u32 {
        let current = self.receiving;
        if (current & 1 == 1) == bit {
            current
        } else if number < start.received && current > 0 {
            current - 1
        } else {
            current + 1
        }
    }
}

impl PhaseStart {
    /// Start on a path that goes on with these numbers: nothing of an earlier
    /// phase is under way.
    pub const fn at(sent: u64, received: u64) -> Self {
        Self { sent, received }
    }

    /// Notes the number from which on the phase of sending is used.
    pub const fn begin_sending(&mut self, next: u64) {
        self.sent = next;
    }

    /// Notes the first number of the phase of receiving. `None`: it began on
    /// another path, and none was received on this one.
    pub const fn begin_receiving(&mut self, first: Option<u64>) {
        self.received = match first {
            Some(first) => first,
            None => u64::MAX,
        };
    }

    /// Notes a packet of the present phase of receiving.
    #[inline]
    pub const fn note(&mut self, number: u64) {
        if self.received == u64::MAX {
            self.received = number;
        }
    }

    /// Whether packets of the present phase of receiving have come.
    #[inline]
    pub const fn is_noted(&self) -> bool {
        self.received != u64::MAX
    }

    /// Whether the path lets the next phase of sending begin: what the phase
    /// before sealed is settled, so that no sealed frame needs a key older than
    /// the last; and the receiver has this phase's, as it has acknowledged
    /// something that was sealed in it (P3.16).
    pub const fn is_ready(&self, settled: Settled) -> Ready {
        let Settled {
            acked_to,
            lowest,
            usable,
        } = settled;
        if acked_to <= self.sent && usable {
            Ready::Unconfirmed
        } else if lowest < self.sent {
            Ready::No
        } else {
            Ready::Yes
        }
    }
}

#[cfg(test)]
mod tests {
    use portolan_seal::{AnySeal, Seal, SuiteId};

    use super::*;

    #[test]
    fn no_two_keys_share_a_slot() {
        let mut taken = [false; 1 + 3 * SLOTS];
        taken[CONNECT_SLOT] = true;
        assert_eq!(key_slots(3), taken.len());
        for conn in (0..3).map(ConnIndex::new) {
            for slot in [5, 6]
                .map(|phase| tx_slot(conn, phase))
                .into_iter()
                .chain([5, 6, 7].map(|phase| rx_slot(conn, phase)))
            {
                assert!(!core::mem::replace(&mut taken[slot], true), "slot {slot}");
            }
            // Three phases on, a key replaces the oldest.
            assert_eq!(tx_slot(conn, 5), tx_slot(conn, 7));
            assert_eq!(rx_slot(conn, 5), rx_slot(conn, 8));
        }
    }

    /// Checks P3.17.
    #[test]
    fn the_key_of_a_packet_follows_from_bit_and_number() {
        let start = PhaseStart::at(0, 100);
        for (receiving, bit) in [(0, false), (1, true), (2, false), (3, true)] {
            let keys = Keys {
                receiving,
                ..Keys::default()
            };
            for number in [0, 99, 100, 101, 5_000] {
                assert_eq!(keys.phase_of(&start, bit, number), receiving);
                // The other bit: older ones come late, newer ones begin a phase.
                let other = if number >= 100 || receiving == 0 {
                    receiving + 1
                } else {
                    receiving - 1
                };
                assert_eq!(keys.phase_of(&start, !bit, number), other);
            }
        }
    }

    /// Checks P3.15.
    #[test]
    fn a_phase_ends_at_its_limit_and_the_next_counts_anew() {
        let mut keys = Keys::default();
        for sealed in 0..10 {
            assert_eq!(keys.over(10), None, "{sealed}");
            assert_eq!(keys.seal(), 0);
        }
        assert_eq!(keys.over(10), Some(0));
        keys.seal();
        assert_eq!(keys.over(10), Some(1));
        assert_eq!((keys.begin(), keys.over(10)), (1, None));
        assert_eq!(keys.seal(), 1);
        assert!(Keys::asks(0) && !Keys::asks(1) && !Keys::asks(31) && Keys::asks(32));
    }

    /// Checks P3.15. A suite's own limit is one that the count of packets reaches.
    #[test]
    fn a_phase_ends_at_the_limit_of_each_suite() {
        for id in SuiteId::ALL.into_iter().filter(|id| *id != SuiteId::None) {
            let limit = AnySeal::with_slots(id, 0).packets_max();
            let mut keys = Keys {
                sealed: u32::try_from(limit - 3).unwrap(),
                ..Keys::default()
            };
            for _ in 0..3 {
                assert_eq!(keys.over(limit), None, "{id:?}");
                assert_eq!(keys.seal(), 0);
                assert_eq!(keys.unusual(limit), Unusual::REKEY);
            }
            // The next phase may have to wait.
            for over in 0..100_000 {
                assert_eq!(keys.over(limit), Some(over), "{id:?}");
                keys.seal();
            }
            assert_eq!((keys.begin(), keys.over(limit)), (1, None));
        }
    }

    /// Checks P3.16.
    #[test]
    fn the_next_phase_waits_for_each_path() {
        let mut start = PhaseStart::at(100, 0);
        let ready = |start: PhaseStart, acked_to, lowest, usable| {
            start.is_ready(Settled {
                acked_to,
                lowest,
                usable,
            })
        };
        assert_eq!(ready(start, 100, 90, true), Ready::Unconfirmed);
        assert_eq!(ready(start, 100, u64::MAX, true), Ready::Unconfirmed);
        assert_eq!(ready(start, 101, 99, true), Ready::No);
        assert_eq!(ready(start, 101, 100, true), Ready::Yes);
        assert_eq!(ready(start, 101, u64::MAX, true), Ready::Yes);
        // One that carries no messages confirms nothing, but may have sealed frames.
        assert_eq!(ready(start, 100, 99, false), Ready::No);
        assert_eq!(ready(start, 100, 100, false), Ready::Yes);
        start.begin_sending(200);
        assert_eq!(ready(start, 150, 150, true), Ready::Unconfirmed);
        assert_eq!(ready(start, 201, 199, true), Ready::No);
    }

    /// Checks P3.17.
    #[test]
    fn a_phase_begins_on_each_path_with_its_first_packet() {
        let keys = Keys {
            receiving: 2,
            ..Keys::default()
        };
        let mut start = PhaseStart::at(0, 100);
        // Begun on another path: all that is of the other bit came late.
        start.begin_receiving(None);
        assert_eq!(keys.phase_of(&start, true, 5_000), 1);
        start.note(300);
        start.note(400);
        assert_eq!(keys.phase_of(&start, true, 299), 1);
        assert_eq!(keys.phase_of(&start, true, 300), 3);
        start.begin_receiving(Some(500));
        assert_eq!(keys.phase_of(&start, true, 499), 1);
    }

    #[test]
    fn the_last_packets_of_a_phase_are_unusual() {
        let sealed = |sealed| Keys {
            sealed,
            ..Keys::default()
        };
        let limit = 1_000;
        let near = (limit - NEAR) as u32;
        assert!(sealed(near - 1).unusual(limit).is_nothing());
        assert_eq!(sealed(near).unusual(limit), Unusual::REKEY);
        assert_eq!(sealed(2_000).unusual(limit), Unusual::REKEY);
    }
}
