//! How long a wait that has found nothing looks again (spins), how often it then lets
//! others run (yields), and when it sleeps.
//!
//! Where other programs want the same core a yield may cost a whole slice of
//! theirs: 4 ms on Linux 6.18, where a wake-up takes 5 to 60 us. And whoever spins while
//! the peer waits for its core spends a share of its own that it will miss when both could run.

use portolan_sys::slice;

/// A yield that took longer would better have been a sleep, ns.
const YIELD_NS_MAX: u64 = 100_000;
/// No yields for this long after the first that cost too much, ns; each further
/// one doubles it, so that all such yields together take a small share of the time.
const PAUSE_NS: [u64; 2] = [200_000_000, 1_600_000_000];
/// Longest spin of an endpoint whose last yield cost too much, ns: about two wake-ups. A
/// look takes 25 ns by shared memory and 500 ns by a socket.
const SPIN_NS: u64 = 100_000;
/// Then the clock is read every so many looks.
const LOOKS: u32 = 16;
/// Slices of a thread that waits beside busy programs, ns: with them it runs sooner
/// after it was woken. The shortest that Linux has.
const SLICE_NS: u64 = 100_000;

/// What waits of an endpoint have learnt of others on their core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    spins: u32,
    yields: u32,
    /// Whether slices may be shortened.
    shortens: bool,
    /// How long yields would pause next, ns.
    pause_ns: u64,
    /// They do until then, ns of the monotonic clock; 0: the last one was cheap.
    paused_until: u64,
    /// When the present spin began, once the clock was read, ns.
    since: u64,
}

impl Backoff {
    /// For waits that spin and yield at most so often before they sleep.
    pub const fn new(spins: u32, yields: u32, shortens: bool) -> Self {
        Self {
            spins,
            yields,
            shortens,
            pause_ns: PAUSE_NS[0],
            paused_until: 0,
            since: 0,
        }
    }

    /// Whether a wait that has found nothing `idle` times looks again at once. `now` reads
    /// the clock, ns.
    #[inline(always)]
    pub fn spins(&mut self, idle: u32, now: impl FnOnce() -> u64) -> bool {
        idle <= self.spins && (self.paused_until == 0 || self.spins_beside(idle, now))
    }

    #[inline(never)]
    fn spins_beside(&mut self, idle: u32, now: impl FnOnce() -> u64) -> bool {
        if !idle.is_multiple_of(LOOKS) {
            return true;
        }
        let now = now();
        if idle == LOOKS {
            self.since = now;
        }
        now.saturating_sub(self.since) < SPIN_NS
    }

    /// How often a wait may yield from `now` on, ns.
    pub const fn yields(&self, now: u64) -> u32 {
        if now < self.paused_until {
            0
        } else {
            self.yields
        }
    }

    /// A yield is over; false if it took so long that no further one should follow.
    #[inline]
    pub fn yielded(&mut self, before: u64, after: u64) -> bool {
        let cheap = after.saturating_sub(before) <= YIELD_NS_MAX;
        if cheap {
            (self.paused_until, self.pause_ns) = (0, PAUSE_NS[0]);
        } else {
            self.pause(after);
        }
        cheap
    }

    #[cold]
    fn pause(&mut self, now: u64) {
        self.paused_until = now.saturating_add(self.pause_ns);
        self.pause_ns = (2 * self.pause_ns).min(PAUSE_NS[1]);
        if self.shortens {
            // Where that is not permitted, we wait longer for the core.
            let _ = slice::shorten(SLICE_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_yield_that_costs_a_slice_is_rarely_repeated() {
        let mut backoff = Backoff::new(2_000, 16, false);
        let (mut now, mut lost) = (0, 0);
        // Waits of a millisecond; each yield takes four.
        while now < 10_000 * MS {
            if backoff.yields(now) > 0 {
                lost += 4;
                now += 4 * MS;
                assert!(!backoff.yielded(now - 4 * MS, now));
                assert_eq!(backoff.yields(now), 0);
            }
            now += MS;
        }
        assert!((4..100).contains(&lost), "{lost} ms of 10 s");
        // The core is ours again: the next one that is tried shows it.
        now += PAUSE_NS[1];
        assert_eq!(backoff.yields(now), 16);
        assert!(backoff.yielded(now, now + 500));
        assert_eq!(backoff.yields(now + 500), 16);
    }

    #[test]
    fn beside_others_a_spin_ends_by_time() {
        let looks = |backoff: &mut Backoff, ns: u64| {
            let mut idle = 1;
            while backoff.spins(idle, || u64::from(idle) * ns) {
                idle += 1;
            }
            u64::from(idle)
        };
        let mut backoff = Backoff::new(2_000, 16, false);
        assert_eq!(looks(&mut backoff, 500), 2_001);
        assert!(!backoff.yielded(0, 4 * MS));
        // 100 us of 500 ns each, looked at every 16; all of them where they are short.
        assert!((200..=232).contains(&looks(&mut backoff, 500)));
        assert_eq!(looks(&mut backoff, 10), 2_001);
        assert!(backoff.yielded(0, 500));
        assert_eq!(looks(&mut backoff, 500), 2_001);
    }

    #[test]
    fn where_settings_allow_neither_there_is_none() {
        let mut backoff = Backoff::new(0, 0, true);
        assert!(!backoff.spins(1, || 0));
        assert_eq!(backoff.yields(0), 0);
    }
}
