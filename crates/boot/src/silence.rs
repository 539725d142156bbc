//! The silence of others, as counted by one who may itself not run for a
//! while: stopped, or on a busy host.

use std::time::{Duration, Instant};

/// Finds how long this process did not run, by when it looks at what is due.
pub(crate) struct StallDetector {
    /// Two of them are not further apart while this process runs.
    every: Duration,
    last: Instant,
}

impl StallDetector {
    pub const fn new(every: Duration, now: Instant) -> Self {
        Self { every, last: now }
    }

    /// A look at `now`. Gives how much later that is than it should have been:
    /// for so long this process did not run, which is nobody's silence.
    pub fn late(&mut self, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(self.last);
        self.last = now;
        gap.saturating_sub(self.every)
    }
}
