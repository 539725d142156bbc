//! The silence of others, as counted by one who may itself not run for a
//! while: stopped, or on a busy host.

use std::time::{Duration, Instant};

/// Looks for what was heard and what is due.
pub(crate) struct Looks {
    /// Two of them are not further apart while this process runs.
    every: Duration,
    last: Instant,
}

impl Looks {
    pub const fn new(every: Duration, now: Instant) -> Self {
        Self { every, last: now }
    }

    /// Looks at `now`. Gives how much later that is than it should have been:
    /// for so long this process did not run, which is nobody's silence.
    pub fn late(&mut self, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(self.last);
        self.last = now;
        gap.saturating_sub(self.every)
    }
}
