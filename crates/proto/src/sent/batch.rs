//! Acknowledgements of which congestion control is told together.

/// Packets from which it is told.
const PACKETS: u32 = 8;
/// Time since the first of them from which it is told, ns.
const NS: u64 = 100_000;

/// What acknowledgements have shown that congestion control was not told yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Batch {
    /// Packets acknowledged.
    pub acked: u32,
    /// Packets with messages that came from the peer.
    pub came: u32,
    /// Smallest round trip without the receiver's delay, ns.
    pub shortest: Option<u64>,
    /// Last round trip with the receiver's delay, ns.
    pub last: Option<u64>,
    /// Time of the first, ns.
    since: u64,
}

impl Batch {
    /// Adds what an acknowledgement has shown: packets acknowledged and come, and the round trip
    /// with and without the receiver's delay, ns.
    #[inline]
    pub fn add(&mut self, now: u64, acked: u32, came: u32, whole: Option<u64>, rtt: Option<u64>) {
        if self.is_empty() {
            self.since = now;
        }
        self.acked = self.acked.saturating_add(acked);
        self.came = self.came.saturating_add(came);
        self.last = whole.or(self.last);
        self.shortest = match (self.shortest, rtt) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// Whether there is nothing to tell.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.acked == 0
    }

    /// Whether there is so much to tell, or for so long, that it is told now.
    #[inline]
    pub const fn is_due(&self, now: u64) -> bool {
        self.acked >= PACKETS || now.saturating_sub(self.since) >= NS
    }
}
