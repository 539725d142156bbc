//! Acknowledgements of which congestion control is told together: of packets whose flight the data
//! to send limited, and not the window.

/// Packets from which it is told.
const PACKETS: u32 = 8;
/// Time since the first of them from which it is told, ns.
const NS: u64 = 100_000;

/// What acknowledgements have shown that congestion control was not told yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Batch {
    /// Packets acknowledged.
    pub acked: u32,
    /// Packets with messages that came from the peer.
    pub came: u32,
    /// Smallest round trip without the receiver's delay, ns; `u64::MAX`: none is known.
    shortest: u64,
    /// Last round trip with the receiver's delay, ns; `u64::MAX`: none is known.
    last: u64,
    /// Time of the first, ns.
    since: u64,
}

impl Batch {
    pub const EMPTY: Self = Self {
        acked: 0,
        came: 0,
        shortest: u64::MAX,
        last: u64::MAX,
        since: 0,
    };

    /// Adds what an acknowledgement has shown: packets acknowledged and come, and the round trip
    /// with and without the receiver's delay, ns.
    #[inline]
    pub fn add(&mut self, now: u64, acked: u32, came: u32, whole: Option<u64>, rtt: Option<u64>) {
        if self.is_empty() {
            self.since = now;
        }
        self.acked = self.acked.saturating_add(acked);
        self.came = self.came.saturating_add(came);
        self.last = whole.unwrap_or(self.last);
        self.shortest = self.shortest.min(rtt.unwrap_or(u64::MAX));
    }

    /// Smallest round trip without the receiver's delay, ns.
    pub fn shortest(&self) -> Option<u64> {
        (self.shortest != u64::MAX).then_some(self.shortest)
    }

    /// Last round trip with the receiver's delay, ns.
    pub fn last(&self) -> Option<u64> {
        (self.last != u64::MAX).then_some(self.last)
    }

    /// Whether there is nothing to tell.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.acked == 0
    }

    /// Whether there is so much to tell, or for so long, that it is told now: a `window` of packets
    /// at most.
    #[inline]
    pub fn is_due(&self, now: u64, window: u32) -> bool {
        self.acked >= PACKETS.min(window) || now.saturating_sub(self.since) >= NS
    }
}
