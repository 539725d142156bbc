//! The processor's own counter: a third of the cost of the clock (12 ns), but
//! a bare count without a unit.

use crate::clock::now_ns;

/// Reads the counter. Meaningful on one machine only, and only where it runs
/// at a constant rate on all cores (every x86-64 of the last fifteen years).
/// Not ordered with the instructions around it.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction exists on every x86-64 and touches no memory.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let count: u64;
        // SAFETY: reads a register that Linux opens to user space.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack));
        }
        count
    }
}

/// Two clocks at one moment, as near as can be: of several looks the one in which
/// this thread was interrupted least.
#[must_use]
pub fn at_once(clock: impl Fn() -> u64, other: impl Fn() -> u64) -> (u64, u64) {
    let look = |_| {
        let (before, other, after) = (clock(), other(), clock());
        (after.wrapping_sub(before), before, other)
    };
    let (width, before, other) = (0..8).map(look).min().unwrap_or_default();
    (before + width / 2, other)
}

/// Nanoseconds of one tick, measured against the clock during `for_ns`
/// nanoseconds of spinning (10 ms give about four digits).
#[must_use]
pub fn ns_per_tick(for_ns: u64) -> f64 {
    let (first, start) = at_once(ticks, now_ns);
    loop {
        while now_ns() - start < for_ns {}
        let (last, now) = at_once(ticks, now_ns);
        let count = last.wrapping_sub(first);
        if count > 0 {
            return (now - start) as f64 / count as f64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_advance_at_a_finite_rate() {
        let before = ticks();
        let rate = ns_per_tick(1_000_000);
        assert!(ticks() > before);
        assert!(rate.is_finite() && rate > 0.0, "{rate}");
    }
}
