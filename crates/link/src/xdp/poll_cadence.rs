//! When the kernel's socket is looked at beside the fast path.

/// While packets come by the fast path the kernel's socket is looked at this
/// often, ns: a look that finds nothing costs 0.3 to 0.5 us.
const KERNEL_EVERY_NS: u64 = 50_000;
/// So long after its last packet the fast path no longer counts as that, ns.
const FAST_FOR_NS: u64 = 1_000_000;

/// What was found where, and when. Times are ns of a monotonic clock; 0: it is
/// not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollCadence {
    /// When the last packet came by the fast path.
    fast_at: u64,
    /// When the kernel's socket was last looked at, and whether it had some.
    kernel_at: u64,
    kernel_busy: bool,
    /// It had none when a sleep ended.
    kernel_quiet: bool,
}

impl PollCadence {
    /// Whether to look at the kernel's socket before the fast path: in the order
    /// in which packets mostly come.
    #[inline]
    #[must_use]
    pub const fn kernel_first(&self) -> bool {
        self.kernel_busy
    }

    /// Whether to look at the kernel's socket at all.
    #[inline]
    #[must_use]
    pub const fn kernel_is_due(&self, now: u64) -> bool {
        let fast = !self.fast_is_silent(now);
        let recent = now.wrapping_sub(self.kernel_at) < KERNEL_EVERY_NS;
        !(fast && recent)
    }

    /// Whether nothing comes by the fast path.
    #[inline]
    #[must_use]
    pub const fn fast_is_silent(&self, now: u64) -> bool {
        now.wrapping_sub(self.fast_at) >= FAST_FOR_NS || now == 0
    }

    /// When it is due at the latest, if nothing more comes by the fast path.
    #[must_use]
    pub const fn kernel_due_at(&self) -> u64 {
        self.kernel_at.saturating_add(KERNEL_EVERY_NS)
    }

    /// A sleep has ended, for the kernel's socket rang or it did not.
    pub const fn woken(&mut self, by_kernel: bool) {
        self.kernel_busy |= by_kernel;
        self.kernel_quiet = !by_kernel;
    }

    /// A look at both begins.
    #[inline]
    pub const fn begin(&mut self, now: u64) {
        if self.kernel_quiet {
            self.kernel_quiet = false;
            self.kernel_at = now;
        }
    }

    /// Packets came by the fast path.
    #[inline]
    pub const fn saw_fast(&mut self, now: u64) {
        self.fast_at = now;
    }

    /// The kernel's socket was looked at and had so many packets.
    #[inline]
    pub const fn saw_kernel(&mut self, now: u64, found: usize) {
        self.kernel_at = now;
        self.kernel_busy = found > 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_looked_at_rarely_while_the_fast_path_delivers() {
        let mut cadence = PollCadence::default();
        let start = 10 * FAST_FOR_NS;
        assert!(cadence.kernel_is_due(0) && cadence.kernel_is_due(start));
        cadence.saw_kernel(start, 0);
        assert!(
            cadence.kernel_is_due(start),
            "nothing came by the fast path"
        );
        cadence.saw_fast(start);
        assert_eq!(cadence.kernel_due_at(), start + KERNEL_EVERY_NS);
        assert!(!cadence.kernel_is_due(start + KERNEL_EVERY_NS - 1));
        assert!(cadence.kernel_is_due(start + KERNEL_EVERY_NS));
        // The fast path has fallen silent.
        cadence.saw_kernel(start + FAST_FOR_NS - 1, 0);
        assert!(cadence.kernel_is_due(start + FAST_FOR_NS));
    }

    #[test]
    fn after_a_sleep_the_kernel_is_looked_at_if_it_rang() {
        let start = 10 * FAST_FOR_NS;
        for by_kernel in [false, true] {
            let mut cadence = PollCadence::default();
            cadence.woken(by_kernel);
            cadence.begin(start);
            cadence.saw_fast(start);
            assert_eq!(cadence.kernel_first(), by_kernel);
            assert_eq!(cadence.kernel_is_due(start), by_kernel);
        }
    }

    #[test]
    fn where_packets_came_last_is_looked_at_first() {
        let mut cadence = PollCadence::default();
        assert!(!cadence.kernel_first());
        cadence.saw_kernel(5, 1);
        assert!(cadence.kernel_first());
        cadence.saw_kernel(6, 0);
        assert!(!cadence.kernel_first());
    }
}
