//! Corrects silence timers for time in which this process did not run itself:
//! stopped, or on a busy host.

use std::time::{Duration, Instant};

/// Finds how long this process did not run, from the times of its regular calls.
pub(crate) struct StallDetector {
    /// Longest interval between two calls while this process runs.
    every: Duration,
    last: Instant,
}

impl StallDetector {
    pub const fn new(every: Duration, now: Instant) -> Self {
        Self { every, last: now }
    }

    /// Records a call at `now`. Returns by how much it is late: this process
    /// did not run for that long, which is not a peer's silence.
    pub fn late(&mut self, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(self.last);
        self.last = now;
        gap.saturating_sub(self.every)
    }
}
