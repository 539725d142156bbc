//! How long a wait that has found nothing polls (spins), how long it then yields the core to
//! others, and when it sleeps.
//!
//! A yield to a program that computes costs a slice of that program: 4 ms on Linux 6.18, where a
//! wake-up takes 5 to 60 us. A yield to ranks of the same job costs what they need for a poll, or
//! to fall asleep, which is worth it: the awaited rank may be among them. The two differ by their
//! length. And a thread that spins while the peer waits for its core spends a share of its own that
//! it will miss when both could run.

use portolan_sys::slice;

/// Longest yield that is worth it if no other rank shares the core, ns.
const YIELD_NS_MAX: u64 = 100_000;
/// Pause of yields after a longer one, ns: initial and maximum. A single one decides little. Each
/// further one soon after makes the pause four times as long, so that all of them together take a
/// small share of the time.
const PAUSE_NS: [u64; 2] = [20_000_000, 1_600_000_000];
/// Time after a pause from which a long yield counts as single again, ns.
const CALM_NS: u64 = 1_000_000_000;
/// Longest spin of an endpoint whose last yield cost too much, ns: about two wake-ups. A poll takes
/// 25 ns by shared memory and 500 ns by a socket.
const SPIN_NS: u64 = 100_000;
/// Polls between two readings of the clock in such a spin.
const LOOKS: u32 = 16;
/// Slice of a thread that waits beside busy programs, ns: with it the thread runs sooner after a
/// wake-up. The shortest that Linux has.
const SLICE_NS: u64 = 100_000;

/// What an endpoint's waits have learnt of other processes on their core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    spins: u32,
    /// How long a wait yields, ns.
    yield_ns: u64,
    /// Duration above which a yield went to a program that computes, ns.
    yield_ns_max: u64,
    /// Whether slices may be shortened.
    shortens: bool,
    /// Length of the last pause, ns.
    pause_ns: u64,
    /// From then on a yield that costs too much counts as single, ns of the monotonic clock.
    calm_at: u64,
    /// End of the pause, ns of the monotonic clock; 0: the last yield was cheap.
    paused_until: u64,
    /// When the present spin began, once the clock was read, ns.
    since: u64,
}

impl Backoff {
    /// For waits that poll `spins` times and then yield for `yield_ns` before they sleep, on a core
    /// with `others` more ranks of the job, where a program runs for `slice_ns` at a time.
    pub fn new(spins: u32, yield_ns: u64, others: u32, slice_ns: u64, shortens: bool) -> Self {
        let shared = (u64::from(others) * slice_ns / 2).min(slice_ns / 4 * 3);
        Self {
            spins,
            yield_ns: yield_ns.saturating_mul(u64::from(others) + 1),
            yield_ns_max: shared.max(YIELD_NS_MAX),
            shortens,
            pause_ns: PAUSE_NS[0],
            calm_at: 0,
            paused_until: 0,
            since: 0,
        }
    }

    /// Whether a wait that has found nothing `idle` times polls again at once. `now` reads the
    /// clock, ns.
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

    /// Returns until when a wait that begins to yield at `now` may go on, ns.
    pub const fn yields_until(&self, now: u64) -> u64 {
        if now < self.paused_until {
            now
        } else {
            now.saturating_add(self.yield_ns)
        }
    }

    /// Records a yield. Returns false if it took so long that no further one should follow.
    #[inline]
    pub fn yielded(&mut self, before: u64, after: u64) -> bool {
        let cheap = after.saturating_sub(before) <= self.yield_ns_max;
        if cheap {
            self.paused_until = 0;
        } else {
            self.pause(after);
        }
        cheap
    }

    #[cold]
    fn pause(&mut self, now: u64) {
        self.pause_ns = if now >= self.calm_at {
            PAUSE_NS[0]
        } else {
            (4 * self.pause_ns).min(PAUSE_NS[1])
        };
        self.paused_until = now.saturating_add(self.pause_ns);
        self.calm_at = self.paused_until.saturating_add(CALM_NS);
        if self.shortens {
            // If that is not permitted, this thread waits longer for the core.
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
        let mut backoff = Backoff::new(2_000, 50_000, 3, 3 * MS, false);
        let (mut now, mut lost) = (0, 0);
        // Waits of a millisecond; most yields take four.
        while now < 10_000 * MS {
            if backoff.yields_until(now) > now {
                lost += 4;
                now += 4 * MS;
                assert!(backoff.yielded(now, now + 500));
                assert!(!backoff.yielded(now - 4 * MS, now));
                assert_eq!(backoff.yields_until(now), now);
            }
            now += MS;
        }
        assert!((4..100).contains(&lost), "{lost} ms of 10 s");
        // The core is free again: the next yield shows it.
        now += PAUSE_NS[1] + CALM_NS;
        assert_eq!(backoff.yields_until(now), now + 200_000);
        assert!(backoff.yielded(now, now + 500));
        // A single one does not decide for long.
        assert!(!backoff.yielded(now, now + 4 * MS));
        assert!(backoff.yields_until(now + 25 * MS) > now + 25 * MS);
    }

    #[test]
    fn a_yield_to_ranks_of_the_job_may_take_longer() {
        let takes =
            |others, slice_ns, ns| Backoff::new(0, 50_000, others, slice_ns, false).yielded(0, ns);
        for slice_ns in [1_400_000, 3 * MS] {
            assert!(takes(0, slice_ns, YIELD_NS_MAX));
            assert!(!takes(0, slice_ns, 2 * YIELD_NS_MAX));
            assert!(takes(1, slice_ns, slice_ns / 2));
            assert!(takes(3, slice_ns, slice_ns / 4 * 3));
            // A whole slice is always too long.
            assert!(!takes(100, slice_ns, slice_ns));
        }
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
        let mut backoff = Backoff::new(2_000, 50_000, 0, 3 * MS, false);
        assert_eq!(looks(&mut backoff, 500), 2_001);
        assert!(!backoff.yielded(0, 4 * MS));
        // 100 us of polls of 500 ns, the clock read every 16; all polls if they are short.
        assert!((200..=232).contains(&looks(&mut backoff, 500)));
        assert_eq!(looks(&mut backoff, 10), 2_001);
        assert!(backoff.yielded(0, 500));
        assert_eq!(looks(&mut backoff, 500), 2_001);
    }

    #[test]
    fn where_settings_allow_neither_there_is_none() {
        let mut backoff = Backoff::new(0, 0, 3, 3 * MS, true);
        assert!(!backoff.spins(1, || 0));
        assert_eq!(backoff.yields_until(7), 7);
    }
}
