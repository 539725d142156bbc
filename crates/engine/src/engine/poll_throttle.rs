//! How often the network is polled while messages come through shared memory.
//!
//! A poll that finds nothing costs up to half a microsecond, several times what a message
//! through shared memory takes. While such messages come and the network is quiet, it is polled
//! every 10 us; while it is not quiet, at each eighth message of a row too.

use crate::environment::Clock;

/// Interval between two polls, ns.
const EVERY_NS: u64 = 10_000;
/// Polls in a row that found nothing, after which the network is quiet.
const QUIET: u8 = 16;
/// Passes without a message through shared memory, after which none is
/// expected.
const EMPTY: u8 = 64;
/// Messages through shared memory in a row after which a network that is not quiet is polled: a
/// pass takes one.
const ROW: usize = 8;
/// Shortest interval between polls by which the counter's rate is measured, ns.
const MEASURE_NS: u64 = 1_000;

/// When the network was polled. Plain data.
#[derive(Clone, Copy, Debug)]
pub struct PollThrottle {
    /// Polls in a row that found nothing.
    quiet: u8,
    /// Passes in a row that brought nothing through shared memory.
    empty: u8,
    /// Messages through shared memory in a row, without an empty pass or a poll in between.
    row: usize,
    /// The last poll: on the clock, ns, and on the processor's counter; and [`EVERY_NS`] in
    /// ticks of that counter.
    at_ns: u64,
    at: u64,
    every: u64,
}

impl PollThrottle {
    pub const fn new() -> Self {
        Self {
            quiet: 0,
            empty: EMPTY,
            row: 0,
            at_ns: 0,
            at: 0,
            every: 0,
        }
    }

    /// Whether polling the network can wait. `moved`: how much shared memory has brought.
    #[inline(always)]
    pub fn can_wait(&mut self, moved: usize, clock: &impl Clock) -> bool {
        if moved == 0 {
            self.row = 0;
            self.empty = self.empty.saturating_add(1);
        } else {
            self.row += moved;
            self.empty = 0;
        }
        if self.quiet < QUIET || self.empty >= EMPTY {
            // Handlers may take long: then the row ends by the time.
            return (1..ROW).contains(&self.row)
                && (self.row == moved || self.every == 0 || self.is_recent(clock));
        }
        // A message after an empty pass, and its answer, are not delayed by reading the
        // counter.
        (moved > 0 && self.row == moved) || self.is_recent(clock)
    }

    /// Whether the last poll that was noted is less than [`EVERY_NS`] ago.
    #[inline(always)]
    fn is_recent(&self, clock: &impl Clock) -> bool {
        clock.ticks().wrapping_sub(self.at) < self.every
    }

    /// Notes that the network was polled; `found`: it had something.
    #[inline(always)]
    pub fn looked(&mut self, now_ns: u64, found: bool, clock: &impl Clock) {
        self.row = 0;
        if found {
            self.quiet = 0;
            if self.empty < EMPTY {
                (self.at_ns, self.at) = (now_ns, clock.ticks());
            }
            return;
        }
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet >= QUIET && self.empty < EMPTY {
            self.measure(now_ns, clock.ticks());
        }
    }

    fn measure(&mut self, now_ns: u64, now: u64) {
        let ns = now_ns.saturating_sub(self.at_ns);
        if self.at_ns != 0 && ns >= MEASURE_NS {
            let ticks = u128::from(now.wrapping_sub(self.at));
            let every = ticks * u128::from(EVERY_NS) / u128::from(ns);
            self.every = u64::try_from(every).unwrap_or(0);
        }
        (self.at_ns, self.at) = (now_ns, now);
    }

    /// Makes the next passes poll the network, after a pause or a sleep.
    pub fn reset(&mut self) {
        self.quiet = 0;
        self.row = ROW;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::CountingClock;

    /// Shared memory is busy, the network was quiet for long.
    fn quiet(clock: &CountingClock) -> PollThrottle {
        let mut throttle = PollThrottle::new();
        throttle.can_wait(1, clock);
        throttle.measure(1_000_000, clock.ticks());
        // A counter of 2^30 ticks in a microsecond: no time passes.
        throttle.measure(1_001_000, throttle.at.wrapping_add(1 << 30));
        throttle.at = clock.ticks();
        throttle.quiet = QUIET;
        throttle
    }

    #[test]
    fn a_quiet_network_waits_while_shared_memory_is_busy() {
        let clock = CountingClock::default();
        let mut throttle = quiet(&clock);
        assert_eq!(throttle.every, 10 << 30);
        assert!((0..10).all(|pass| throttle.can_wait(pass % 2, &clock)));
        // The interval has passed: polled at once, or after one pass that brings something.
        throttle.at = throttle.at.wrapping_sub(throttle.every);
        assert!(!throttle.can_wait(0, &clock));
        assert!(throttle.can_wait(1, &clock) && !throttle.can_wait(1, &clock));
    }

    #[test]
    fn it_does_not_wait_once_it_has_something_or_shared_memory_is_quiet() {
        let clock = CountingClock::default();
        let mut throttle = quiet(&clock);
        let waits = |throttle: &mut PollThrottle, moved| {
            let passes = (0..200).take_while(|_| throttle.can_wait(moved, &clock));
            passes.count()
        };
        for _ in 0..3 {
            throttle.looked(2_000_000, true, &clock);
            assert_eq!(waits(&mut throttle, 1), ROW - 1, "of a row, each eighth");
            assert_eq!(waits(&mut throttle, 0), 0);
        }
        throttle.looked(2_000_000, true, &clock);
        throttle.at = throttle.at.wrapping_sub(throttle.every);
        assert_eq!(waits(&mut throttle, 1), 1, "the interval has passed");
        throttle.looked(2_000_000, true, &clock);
        assert_eq!(waits(&mut throttle, ROW), 0, "a row in one pass");
        let mut throttle = quiet(&clock);
        throttle.reset();
        assert_eq!(waits(&mut throttle, 1), 0);
        let mut throttle = quiet(&clock);
        assert_eq!(waits(&mut throttle, 0), usize::from(EMPTY) - 1);
    }

    #[test]
    fn looks_in_vain_make_it_quiet() {
        let clock = CountingClock::default();
        let mut throttle = PollThrottle::new();
        for look in 1..=u64::from(QUIET) {
            throttle.can_wait(1, &clock);
            throttle.looked(look * MEASURE_NS, false, &clock);
        }
        // The counter's rate is not known before the second poll.
        assert!(!throttle.can_wait(0, &clock));
        assert_eq!(throttle.every, 0);
        throttle.looked(100 * MEASURE_NS, false, &clock);
        assert!(throttle.every > 0);
    }
}
