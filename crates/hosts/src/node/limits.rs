//! How often a user may ask.

use std::time::{Duration, Instant};

/// A bucket of tokens that fills at a rate and holds twice what a second gives.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// When it will be full.
    full: Instant,
}

impl Bucket {
    /// A full one.
    pub fn new(now: Instant) -> Self {
        Self { full: now }
    }

    /// Takes a token, if one is left.
    pub fn take(&mut self, now: Instant, per_second: u32) -> bool {
        let one = Duration::from_secs(1) / per_second;
        let full = self.full.max(now) + one;
        let left = full - now <= Duration::from_secs(2);
        if left {
            self.full = full;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        let mut taken = |now: Instant, tries: u32| {
            let take = |_: &u32| bucket.take(now, 10);
            (0..tries).filter(take).count()
        };
        assert_eq!(taken(start, 100), 20);
        assert_eq!(taken(start + Duration::from_millis(99), 5), 0);
        assert_eq!(taken(start + Duration::from_millis(500), 100), 5);
        assert_eq!(taken(start + Duration::from_secs(60), 100), 20);
    }
}
