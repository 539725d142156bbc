//! Whether a peer's port is closed.

/// Divisor of the silence: errors must keep coming for that long. A port that is opened again
/// sooner does not count as closed.
const LASTING_PARTS: u64 = 20;

/// Times of the first and the last ICMP error since the peer was heard, ns; `u64::MAX`: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Closed {
    since: u64,
    last: u64,
}

impl Closed {
    pub const NO: Self = Self {
        since: u64::MAX,
        last: u64::MAX,
    };

    /// Notes an error; returns whether it is the first since the peer was heard.
    pub const fn note(&mut self, now: u64, unheard_since: u64) -> bool {
        let first = self.since == u64::MAX || self.since < unheard_since;
        if first {
            self.since = now;
        }
        self.last = now;
        first
    }

    /// Whether errors have kept coming for long, and the peer was not heard meanwhile.
    pub const fn is_lasting(&self, unheard_since: u64, silence: u64) -> bool {
        let long = silence / LASTING_PARTS;
        self.since != u64::MAX && self.since >= unheard_since && self.last - self.since >= long
    }
}
