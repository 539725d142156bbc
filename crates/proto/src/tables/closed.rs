//! Whether a peer's port is closed.

/// Errors must keep coming for this part of the silence. A port that is opened again
/// sooner is not taken for closed.
const LASTING_PARTS: u64 = 20;

/// When ICMP errors first and last said so since the peer was heard; ns, `u64::MAX` if
/// none has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Closed {
    pub since: u64,
    pub last: u64,
}

impl Closed {
    pub const NO: Self = Self {
        since: u64::MAX,
        last: u64::MAX,
    };

    /// Whether that has gone on for long, and the peer was not heard meanwhile.
    pub const fn is_lasting(&self, heard_at: u64, silence: u64) -> bool {
        let long = silence / LASTING_PARTS;
        self.since != u64::MAX && self.since >= heard_at && self.last - self.since >= long
    }
}
