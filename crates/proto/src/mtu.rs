//! The path's packet size: both interfaces' limits are exchanged at connect,
//! then padded probes confirm a size before anything else uses it (RFC 8899).

use portolan_seal::Seal;
use portolan_wire::{HEADER_BYTES, TAG_BYTES};

use crate::endpoint::Endpoint;
use crate::host::PeerId;
use crate::tables::NONE;

/// UDP payload that every path takes: 1,280 bytes of IPv6 less 48 of headers.
pub(crate) const BASE: u16 = 1232;
/// Probes of one size before a smaller one is tried.
const TRIES: u8 = 6;
/// Probes of the size in use that are lost, though what left after them arrived,
/// before it is given up, once it is suspected.
const VERIFY_TRIES: u8 = 3;
/// Half the first wait for a probe's acknowledgement, ns; doubled from try to
/// try, so that all six outlast any queue in a LAN and a host that is late, and
/// one that was merely lost costs little time with small packets.
const PROBE_WAIT_NS: u64 = 2_000_000;
/// After a failure the full size is tried again so much later (RFC 8899's
/// raise timer), ns.
const RAISE_NS: u64 = 600_000_000_000;
/// The same after a silence or a burst of losses, which need not have been the
/// path's fault, ns. Where it was, the search then fails.
const RETRY_NS: u64 = 1_000_000_000;
/// Packets above [`BASE`] lost in a row that make a black hole likely.
const BLACK_HOLE: u8 = 24;

/// Packet size of one path, and the search for a larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mtu {
    pub(crate) confirmed: u16,
    /// What both interfaces take.
    limit: u16,
    /// Size being tried; 0: none.
    probing: u16,
    tries: u8,
    lost_in_row: u8,
    /// The size tried is the one in use: it is given up if that fails.
    verifying: bool,
    missed: u8,
    next_at: u64,
}

impl Mtu {
    pub const BASE: Self = Self {
        confirmed: BASE,
        limit: BASE,
        probing: 0,
        tries: 0,
        lost_in_row: 0,
        verifying: false,
        missed: 0,
        next_at: u64::MAX,
    };

    /// Largest packet that may be sent.
    pub const fn current(&self) -> u16 {
        self.confirmed
    }

    /// What both interfaces take.
    pub const fn limit(&self) -> u16 {
        self.limit
    }

    /// Whether a larger size than the one in use is being looked for.
    pub const fn is_searching(&self) -> bool {
        self.probing != 0 && !self.verifying
    }

    /// When the next probe is due.
    pub const fn due(&self) -> u64 {
        self.next_at
    }

    /// A new path whose interfaces both take `limit`.
    pub fn begin(&mut self, now: u64, limit: u16) {
        let limit = limit.max(BASE);
        *self = Self {
            limit,
            ..Self::BASE
        };
        if limit > BASE {
            self.probing = limit;
            self.next_at = now;
        }
    }

    /// A path that was in use before, with the size then confirmed.
    pub fn resume(&mut self, confirmed: u16, limit: u16) {
        *self = Self {
            confirmed: confirmed.max(BASE),
            limit,
            ..Self::BASE
        };
    }

    /// If the path may take more than is confirmed, that is soon looked for.
    pub fn search_soon(&mut self, now: u64) {
        if self.confirmed < self.limit {
            self.next_at = now.saturating_add(RETRY_NS);
        }
    }

    /// The size to probe now; the next try is armed.
    fn probe(&mut self, now: u64) -> u16 {
        if self.probing == 0 {
            self.probing = self.limit;
            self.tries = 0;
        }
        if self.verifying {
            if self.missed >= VERIFY_TRIES {
                self.give_up(now);
                return 0;
            }
            self.tries = (self.tries + 1).min(TRIES);
            self.next_at = now + (PROBE_WAIT_NS << self.tries);
            return self.probing;
        }
        if self.tries == TRIES {
            // Half way down; small steps are not worth their probes.
            self.tries = 0;
            self.probing = self.confirmed + (self.probing - self.confirmed) / 2;
            if self.probing - self.confirmed < 32 {
                self.probing = 0;
                self.next_at = now.saturating_add(RAISE_NS);
                return 0;
            }
        }
        self.tries += 1;
        self.next_at = now + (PROBE_WAIT_NS << self.tries);
        self.probing
    }

    /// The probe of this connection was acknowledged.
    pub fn probe_acked(&mut self) {
        self.confirmed = self.confirmed.max(self.probing);
        self.probing = 0;
        self.lost_in_row = 0;
        self.verifying = false;
        self.next_at = u64::MAX;
    }

    /// A packet of a size was acknowledged.
    pub const fn acked(&mut self, bytes: usize) {
        if bytes > BASE as usize {
            self.lost_in_row = 0;
            if self.verifying {
                self.verifying = false;
                self.probing = 0;
                self.next_at = u64::MAX;
            }
        }
    }

    /// A probe was lost, and what left after it arrived.
    pub const fn probe_lost(&mut self) {
        self.missed = self.missed.saturating_add(1);
    }

    /// A packet of a size was lost; many in a row may mean that the path
    /// shrank, or that a queue ran over or the peer had no room. Probes of the
    /// size in use tell: they are few, and no receiver refuses them.
    pub fn lost(&mut self, now: u64, bytes: usize) {
        if bytes <= BASE as usize || self.verifying {
            return;
        }
        self.lost_in_row = self.lost_in_row.saturating_add(1);
        if self.lost_in_row >= BLACK_HOLE && bytes <= self.confirmed as usize {
            self.lost_in_row = 0;
            self.probing = self.confirmed;
            self.tries = 0;
            self.verifying = true;
            self.missed = 0;
            self.next_at = now;
        }
    }

    /// Nothing answered for a while: perhaps because of the size. The search
    /// starts over soon, for the peer may only have been stopped.
    pub fn unanswered(&mut self, now: u64) {
        if self.confirmed > BASE {
            self.give_up(now);
        }
    }

    fn give_up(&mut self, now: u64) {
        self.shrink(BASE);
        self.next_at = now.saturating_add(RETRY_NS);
    }

    /// The path does not answer. It may have shrunk: what it takes must be
    /// confirmed before it is used again.
    pub const fn rest(&mut self) {
        let limit = self.limit;
        *self = Self {
            limit,
            ..Self::BASE
        };
    }

    /// The path answers again: its size is searched from the largest on.
    pub const fn go_on(&mut self, now: u64) {
        if self.limit > self.confirmed {
            self.probing = self.limit;
            self.tries = 0;
            self.next_at = now;
        }
    }

    fn shrink(&mut self, to: u16) {
        self.confirmed = self.confirmed.min(to).max(BASE);
        self.lost_in_row = 0;
        self.probing = 0;
        self.verifying = false;
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// The link could not send a packet by a path because it was too big: from
    /// now on at most `max` bytes, or the size that every path takes if `max` is 0.
    pub fn packet_too_big(&mut self, peer: PeerId, path: u8, max: usize) {
        let Some(p) = self.peers.get(peer.0 as usize) else {
            return;
        };
        if p.conn != NONE
            && let Some(path) = self.path_of(p.conn, path)
        {
            let p = self.path_mut(path);
            let to = if max == 0 {
                BASE
            } else {
                max.min(u16::MAX as usize) as u16
            };
            p.mtu.limit = p.mtu.limit.min(to.max(BASE));
            p.mtu.shrink(to);
        }
    }

    /// Size of the probe to send now, if one is due.
    pub(crate) fn mtu_probe_due(&mut self, now: u64, path: u32) -> Option<u16> {
        let p = self.path_mut(path);
        if now < p.mtu.next_at {
            return None;
        }
        let size = p.mtu.probe(now);
        let room = self.chunk_room(u16::MAX) + HEADER_BYTES + TAG_BYTES;
        (size > 0).then_some(size.min(room as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes that are probed when none of them arrives.
    fn probed(limit: u16) -> ([(u16, u8); 8], usize) {
        let mut mtu = Mtu::BASE;
        mtu.begin(0, limit);
        let (mut sizes, mut n) = ([(0, 0); 8], 0);
        loop {
            let size = mtu.probe(mtu.due());
            if size == 0 {
                assert_eq!(mtu.current(), BASE);
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
        let (sizes, n) = probed(BASE + 64);
        assert_eq!(sizes[..n], [(BASE + 64, TRIES), (BASE + 32, TRIES)]);
        let (sizes, n) = probed(BASE + 63);
        assert_eq!(sizes[..n], [(BASE + 63, TRIES)]);
        let (sizes, n) = probed(9_000);
        assert_eq!(
            (sizes[..n].len(), sizes[1].0),
            (8, BASE + (9_000 - BASE) / 2)
        );
    }
}
