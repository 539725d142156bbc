//! Whether a peer's port is closed.

/// The peer's port is closed, if packets come back for as long as this part of the
/// silence: one that is opened again soon is not.
const LASTING_PARTS: u64 = 20;

/// Since when what we send to a peer comes back, and when something did last; ns,
/// `u64::MAX` if nothing has.
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
