//! How often the network is polled while messages come through shared memory.
//!
//! A poll that finds nothing costs up to half a microsecond, several times what a message
//! through shared memory takes. While such messages come and the network is quiet, it is polled
//! every 10 us.

use crate::environment::Clock;

/// Interval between two polls, ns.
const EVERY_NS: u64 = 10_000;
/// Polls in a row that found nothing, after which the network is quiet.
const QUIET: u8 = 16;
/// Passes without a message through shared memory, after which none is
/// expected.
const EMPTY: u8 = 64;
/// Shortest interval between polls by which the counter's rate is measured, ns.
const MEASURE_NS: u64 = 1_000;

/// When the network was polled. Plain data.
#[derive(Clone, Copy, Debug)]
pub struct PollThrottle {
    /// Polls in a row that found nothing.
    quiet: u8,
    /// Passes in a row that brought nothing through shared memory.
    empty: u8,
    /// The previous pass brought something.
    moved: bool,
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
            moved: false,
            at_ns: 0,
            at: 0,
            every: 0,
        }
    }

    /// Whether polling the network can wait. `moved`: shared memory has brought something.
    #[inline(always)]
    pub fn can_wait(&mut self, moved: bool, clock: &impl Clock) -> bool {
        let again = self.moved;
        self.moved = moved;
        self.empty = if moved {
            0
        } else {
            self.empty.saturating_add(1)
        };
        if self.quiet < QUIET || self.empty >= EMPTY {
            return false;
        }
        // A message after an empty pass, and its answer, are not delayed by reading the
        // counter.
        (moved && !again) || clock.ticks().wrapping_sub(self.at) < self.every
    }

    /// Notes that the network was polled; `found`: it had something.
    #[inline(always)]
    pub fn looked(&mut self, now_ns: u64, found: bool, clock: &impl Clock) {
        if found {
            self.quiet = 0;
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::CountingClock;

    /// Shared memory is busy, the network was quiet for long.
    fn quiet(clock: &CountingClock) -> PollThrottle {
        let mut throttle = PollThrottle::new();
        throttle.can_wait(true, clock);
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
        assert!((0..10).all(|pass| throttle.can_wait(pass % 3 == 0, &clock)));
        // The interval has passed: polled at once, or after one pass that brings something.
        throttle.at = throttle.at.wrapping_sub(throttle.every);
        assert!(!throttle.can_wait(false, &clock));
        assert!(throttle.can_wait(true, &clock) && !throttle.can_wait(true, &clock));
    }

    #[test]
    fn it_does_not_wait_once_it_has_something_or_shared_memory_is_quiet() {
        let clock = CountingClock::default();
        let mut throttle = quiet(&clock);
        throttle.looked(2_000_000, true, &clock);
        assert!(!throttle.can_wait(true, &clock));
        let mut throttle = quiet(&clock);
        throttle.reset();
        assert!(!throttle.can_wait(true, &clock));
        let mut throttle = quiet(&clock);
        let waits = (0..200)
            .take_while(|_| throttle.can_wait(false, &clock))
            .count();
        assert_eq!(waits, usize::from(EMPTY) - 1);
    }

    #[test]
    fn looks_in_vain_make_it_quiet() {
        let clock = CountingClock::default();
        let mut throttle = PollThrottle::new();
        for look in 1..=u64::from(QUIET) {
            assert!(!throttle.can_wait(true, &clock));
            throttle.looked(look * MEASURE_NS, false, &clock);
        }
        // The counter's rate is not known before the second poll.
        assert!(!throttle.can_wait(false, &clock));
        assert_eq!(throttle.every, 0);
        throttle.looked(100 * MEASURE_NS, false, &clock);
        assert!(throttle.every > 0);
    }
}
