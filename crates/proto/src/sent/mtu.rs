//! The path's packet size: both interfaces' limits are exchanged at connect,
//! then padded probes confirm a size before anything else uses it (RFC 8899).
//! Interfaces change: the search starts over when ours takes more or less, and
//! when a probe of the peer shows that the path takes more than is in use.

use crate::base::PACKET_BASE;

/// Probes of one size before a smaller one is tried.
const TRIES: u8 = 6;
/// Probes of a suspected size in use that must be lost, while later packets
/// arrive, before it is given up.
const VERIFY_TRIES: u8 = 3;
/// Half the first wait for a probe's acknowledgement, ns; doubled from try to
/// try, so that six outlast any queue in a LAN and a late host, while a single
/// lost probe costs little time with small packets.
const PROBE_WAIT_NS: u64 = 2_000_000;
/// Wait before a search is repeated that did not reach what the interfaces
/// take, ns, doubled from one to the next: its cause, such as a silence or a
/// burst of losses, is mostly over soon.
const RETRY_NS: u64 = 1_000_000_000;
/// Longest wait between two searches, ns (RFC 8899's raise timer).
const RAISE_NS: u64 = 600_000_000_000;
/// Packets above [`PACKET_BASE`] lost in a row that make a black hole likely.
const BLACK_HOLE: u8 = 24;

/// Packet size of one path, and the search for a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mtu {
    pub(crate) confirmed: u16,
    /// Largest packet that our interface takes now, and that the peer's takes
    /// as far as is known.
    own: u16,
    theirs: u16,
    /// Size being tried; 0: none.
    probing: u16,
    /// Number of the first packet of that size; `u64::MAX`: none has left.
    first: u64,
    tries: u8,
    /// Searches in a row that did not reach what both interfaces take.
    in_vain: u8,
    lost_in_row: u8,
    /// The size tried is the one in use: it is given up if its probes fail.
    verifying: bool,
    missed: u8,
    next_at: u64,
}

impl Mtu {
    pub const BASE: Self = Self {
        confirmed: PACKET_BASE,
        own: PACKET_BASE,
        theirs: PACKET_BASE,
        probing: 0,
        first: u64::MAX,
        tries: 0,
        in_vain: 0,
        lost_in_row: 0,
        verifying: false,
        missed: 0,
        next_at: u64::MAX,
    };

    /// Largest packet that may be sent (P9.1).
    pub const fn current(&self) -> u16 {
        self.confirmed
    }

    /// Largest packet that the peer's interface takes, as far as is known.
    pub const fn theirs(&self) -> u16 {
        self.theirs
    }

    /// Largest packet that both interfaces take.
    fn limit(&self) -> u16 {
        self.own.min(self.theirs).max(PACKET_BASE)
    }

    /// Whether a search for a larger size than the one in use is running.
    pub const fn is_searching(&self) -> bool {
        self.probing != 0 && !self.verifying
    }

    /// When the next probe is due.
    pub const fn due(&self) -> u64 {
        self.next_at
    }

    /// Starts a new path between interfaces that take `own` and `theirs`.
    pub fn begin(&mut self, now: u64, own: u16, theirs: u16) {
        *self = Self {
            own,
            theirs,
            ..Self::BASE
        };
        self.go_on(now);
    }

    /// Resumes a path that was in use before, with the size then confirmed.
    pub fn resume(&mut self, confirmed: u16, own: u16, theirs: u16) {
        *self = Self {
            confirmed: confirmed.min(own).max(PACKET_BASE),
            own,
            theirs,
            ..Self::BASE
        };
    }

    /// Starts a search soon, if the path may take more than is confirmed.
    pub fn search_soon(&mut self, now: u64) {
        self.in_vain = 0;
        self.end(now);
    }

    /// Starts to probe sizes from `size` downwards.
    fn start(&mut self, now: u64, size: u16) {
        self.probing = size;
        self.first = u64::MAX;
        self.tries = 0;
        self.verifying = false;
        self.next_at = now;
    }

    /// Ends a search; the next is due later, if the path may take more.
    fn end(&mut self, now: u64) {
        self.probing = 0;
        self.verifying = false;
        if self.confirmed < self.limit() {
            let wait = (RETRY_NS << self.in_vain).min(RAISE_NS);
            self.in_vain = (self.in_vain + 1).min(10);
            self.next_at = now.saturating_add(wait);
        } else {
            self.in_vain = 0;
            self.next_at = u64::MAX;
        }
    }

    /// Sets the size of packets that our interface takes now.
    pub fn set_own(&mut self, now: u64, own: u16) {
        if own == self.own {
            return;
        }
        self.own = own;
        if self.confirmed > self.limit() {
            self.shrink(own);
        }
        self.in_vain = 0;
        self.go_on(now);
    }

    /// The peer has sent a probe of `bytes`: its interface takes that, and so
    /// does the path, at least towards us. Packets other than probes would say
    /// that again and again, where the other direction takes less. Returns
    /// whether that size is tried now.
    pub fn heard(&mut self, now: u64, bytes: usize) -> bool {
        let bytes = bytes.min(usize::from(u16::MAX)) as u16;
        self.theirs = self.theirs.max(bytes);
        let size = bytes.min(self.own);
        let news = size > self.confirmed && size != self.probing;
        if news {
            self.in_vain = 0;
            self.start(now, size);
        }
        news
    }

    /// The link refused a packet of `bytes`: at most `max` can leave; 0: the
    /// limit is unknown (P9.2).
    pub fn refused(&mut self, now: u64, bytes: u16, max: u16) {
        let most = if max == 0 {
            bytes.saturating_sub(1)
        } else {
            max
        };
        let shrinks = self.confirmed > most;
        if shrinks {
            self.shrink(if max == 0 { PACKET_BASE } else { max });
            self.in_vain = 0;
        }
        // Packets that left before the first refusal may be refused as well.
        if !shrinks && self.probing <= most {
            return;
        }
        if most <= self.confirmed {
            self.end(now);
        } else {
            self.start(now, most.min(self.limit()));
            if max == 0 {
                // Half way down at once.
                self.tries = TRIES;
            }
        }
    }

    /// Returns the size to probe now, in packet `number` or a later one, or 0;
    /// arms the next try.
    pub fn probe(&mut self, now: u64, number: u64) -> u16 {
        if self.probing == 0 {
            self.start(now, self.limit());
        }
        if self.verifying {
            if self.missed >= VERIFY_TRIES {
                self.give_up(now);
                return 0;
            }
            self.first = self.first.min(number);
            self.tries = (self.tries + 1).min(TRIES);
            self.next_at = now + (PROBE_WAIT_NS << self.tries);
            return self.probing;
        }
        if self.tries == TRIES {
            // Half way down; small steps are not worth their probes.
            self.tries = 0;
            self.probing = self.confirmed + (self.probing - self.confirmed) / 2;
            self.first = u64::MAX;
            if self.probing - self.confirmed < 32 {
                self.end(now);
                return 0;
            }
        }
        self.first = self.first.min(number);
        self.tries += 1;
        self.next_at = now + (PROBE_WAIT_NS << self.tries);
        self.probing
    }

    /// Probe `number` was acknowledged. One of a size that was tried before
    /// says nothing of the present one.
    pub fn probe_acked(&mut self, now: u64, number: u64) {
        if self.probing != 0 && number >= self.first {
            self.confirmed = self.confirmed.max(self.probing);
            self.lost_in_row = 0;
            self.end(now);
        }
    }

    /// A packet of a size was acknowledged.
    pub fn acked(&mut self, now: u64, bytes: usize) {
        if bytes > PACKET_BASE as usize {
            self.lost_in_row = 0;
            if self.verifying {
                self.end(now);
            }
        }
    }

    /// Probe `number` was lost, while later packets arrived.
    pub const fn probe_lost(&mut self, number: u64) {
        if number >= self.first {
            self.missed = self.missed.saturating_add(1);
        }
    }

    /// A packet of a size was lost. Many in a row may mean that the path
    /// shrank, or that a queue overflowed or the peer had no room. Probes of
    /// the size in use decide: they are few, and no receiver refuses them (P9.2).
    pub fn lost(&mut self, now: u64, bytes: usize) {
        if bytes <= PACKET_BASE as usize || self.verifying {
            return;
        }
        self.lost_in_row = self.lost_in_row.saturating_add(1);
        if self.lost_in_row >= BLACK_HOLE && bytes <= self.confirmed as usize {
            self.lost_in_row = 0;
            self.start(now, self.confirmed);
            self.verifying = true;
            self.missed = 0;
        }
    }

    /// No answer came for a while, perhaps because of the size. The search
    /// starts over soon, for the peer may only have been stopped (P9.2).
    pub fn unanswered(&mut self, now: u64) {
        if self.confirmed > PACKET_BASE {
            self.give_up(now);
        }
    }

    fn give_up(&mut self, now: u64) {
        self.shrink(PACKET_BASE);
        self.search_soon(now);
    }

    /// The path does not answer and may have shrunk: its size must be confirmed
    /// before it is used again.
    pub const fn rest(&mut self) {
        let (own, theirs) = (self.own, self.theirs);
        *self = Self {
            own,
            theirs,
            ..Self::BASE
        };
    }

    /// The path answers again, or another size is possible: starts the search
    /// from the largest size.
    pub fn go_on(&mut self, now: u64) {
        if self.confirmed < self.limit() {
            self.start(now, self.limit());
        } else {
            self.end(now);
        }
    }

    fn shrink(&mut self, to: u16) {
        self.confirmed = self.confirmed.min(to).max(PACKET_BASE);
        self.lost_in_row = 0;
        self.probing = 0;
        self.verifying = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that are probed when none of them arrives.
    fn probed(limit: u16) -> ([(u16, u8); 8], usize) {
        let mut mtu = Mtu::BASE;
        mtu.begin(0, limit, limit);
        let (mut sizes, mut n) = ([(0, 0); 8], 0);
        loop {
            let size = mtu.probe(mtu.due(), 0);
            if size == 0 {
                assert_eq!(mtu.current(), PACKET_BASE);
                return (sizes, n);
            }
            if n == 0 || sizes[n - 1].0 != size {
                n += 1;
            }
            sizes[n - 1] = (size, sizes[n - 1].1 + 1);
        }
    }

    #[test]
    fn sizes_are_halved_down_to_steps_of_32() {
        let (sizes, n) = probed(PACKET_BASE + 64);
        assert_eq!(
            sizes[..n],
            [(PACKET_BASE + 64, TRIES), (PACKET_BASE + 32, TRIES)]
        );
        let (sizes, n) = probed(PACKET_BASE + 63);
        assert_eq!(sizes[..n], [(PACKET_BASE + 63, TRIES)]);
        let (sizes, n) = probed(9_000);
        assert_eq!(
            (sizes[..n].len(), sizes[1].0),
            (8, PACKET_BASE + (9_000 - PACKET_BASE) / 2)
        );
    }
}
