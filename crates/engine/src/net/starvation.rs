//! Whether the thread that makes passes gets its core: while it does not run it hears no peer.

use crate::environment::Clock;

/// The dead-peer timeout divided by this is the interval between checks.
const LOOKS: u64 = 32;

/// What checks of one thread's clock have shown.
#[derive(Debug)]
pub struct Starvation {
    every_ns: u64,
    looked_at: u64,
    /// The thread that checked last, and how long it had waited for a core by then, ns.
    waited: Option<(u64, u64)>,
    /// The end of the last interval in which the thread waited for most of the time, ns.
    starved_at: Option<u64>,
}

impl Starvation {
    /// Begins to check. `silence_ns`: dead-peer timeout.
    pub const fn new(silence_ns: u64, now: u64) -> Self {
        Self {
            every_ns: silence_ns / LOOKS,
            looked_at: now,
            waited: None,
            starved_at: None,
        }
    }

    /// Checks, when it is time. Returns the length of the interval that ends `now` if this
    /// thread waited for a core for over half of it, ns.
    pub fn look(&mut self, now: u64, clock: &dyn Clock) -> Option<u64> {
        let interval = now.saturating_sub(self.looked_at);
        if interval < self.every_ns {
            return None;
        }
        self.looked_at = now;
        let before = std::mem::replace(&mut self.waited, clock.waited_for_core());
        // Another thread's wait says nothing.
        let ((thread, from), (same, to)) = before.zip(self.waited)?;
        if thread != same || to.saturating_sub(from) <= interval / 2 {
            return None;
        }
        self.starved_at = Some(now);
        Some(interval)
    }

    /// Whether the thread was starved within the dead-peer timeout before `now`.
    pub fn is_recent(&self, now: u64) -> bool {
        let recent = |at| now.saturating_sub(at) <= LOOKS * self.every_ns;
        self.starved_at.is_some_and(recent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread, and how long it has waited for a core, ns.
    struct Waits(Option<(u64, u64)>);

    impl Clock for Waits {
        fn now(&self) -> u64 {
            0
        }

        fn ticks(&self) -> u64 {
            0
        }

        fn waited_for_core(&self) -> Option<(u64, u64)> {
            self.0
        }
    }

    #[test]
    fn a_thread_that_waits_for_over_half_of_an_interval_is_starved() {
        let mut it = Starvation::new(3_200, 0);
        let mut look = |now, waits| it.look(now, &Waits(waits));
        assert_eq!(look(100, Some((1, 5))), None, "the first look");
        assert_eq!(look(150, Some((1, 50))), None, "too soon");
        assert_eq!(look(200, Some((1, 55))), None, "half of the time");
        assert_eq!(look(300, Some((1, 106))), Some(100));
        assert_eq!(look(400, Some((2, 900))), None, "another thread");
        assert_eq!(look(500, None), None, "the kernel does not tell");
        assert_eq!(look(600, Some((2, 9_000))), None);
        assert!(it.is_recent(3_500) && !it.is_recent(3_501));
    }
}
