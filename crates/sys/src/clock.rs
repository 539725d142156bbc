//! The clock that everything above takes its `now` from.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, by the vdso (about 36 ns a call: read it
/// at most once a pass). It does not count while the machine is suspended.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    // The kernel starts this clock at 0 and never sets it back.
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let mut last = now_ns();
        for _ in 0..1_000 {
            let now = now_ns();
            assert!(now >= last);
            last = now;
        }
        assert!(last > 0);
    }
}
