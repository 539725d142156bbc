//! The clock that everything above takes its `now` from, and that of the time
//! which this process has used.

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

/// The kernel's clocksource (`tsc`, `kvm-clock`, ...); `None` where /sys does not say.
#[must_use]
pub fn source() -> Option<String> {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    Some(std::fs::read_to_string(path).ok()?.trim_end().to_owned())
}

/// Whether [`now_ns`] counts what [`ticks`](crate::ticks::ticks) counts, the TSC: the kernel has
/// found its rate constant, and its count the same on all cores.
#[must_use]
pub fn is_tsc() -> bool {
    cfg!(target_arch = "x86_64") && source().is_some_and(|source| source == "tsc")
}

/// Nanoseconds of processor time that all threads of this process have used so
/// far, the kernel's work on their behalf included. A system call.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    // It starts at 0 and is never set back either.
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_processor_time() {
        let (from, used) = (now_ns(), process_cpu_ns());
        while process_cpu_ns() - used < 5_000_000 {
            std::hint::spin_loop();
        }
        // Tests beside this one count too: no more than all cores can give.
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as u64;
        assert!(cores * (now_ns() - from) >= 5_000_000);
    }

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
