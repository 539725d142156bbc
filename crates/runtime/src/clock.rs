//! The clocks of this host.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan_engine::Clock;
use portolan_sys::clock::now_ns;
use portolan_sys::ticks::{at_once, ticks};

/// Longest time by the counter alone, ns: bounds for how long a step remains unnoticed.
const ANCHOR_NS: u64 = 100_000_000;
/// Shortest time between two anchors, ns. Both clocks are read within some 20 ns, which is then
/// 4 millionths of the rate.
const MEASURE_NS: u64 = 10_000_000;
/// A larger difference between the counter and the kernel is a step, ns, unless it is less than a
/// 1,024th of the time since the anchor: the kernel may slew its clock by half of that.
const STEP_NS: u64 = 1_000_000;
/// Fraction bits of a rate.
const FRACTION: u32 = 32;
/// Rates of counters that there are, 100 MHz to 16 GHz. Others come from a step while no rate was
/// known.
const RATES: RangeInclusive<u64> = 1 << (FRACTION - 4)..=10 << FRACTION;

/// The engine's clock. Only the thread that holds the endpoint reads it.
#[derive(Debug)]
pub(crate) struct HostClock(Source);

#[derive(Debug)]
enum Source {
    Kernel,
    Ticks(TickClock),
    /// The time in place of the kernel's, ns: a measurement goes on by it as it likes.
    Given(Arc<AtomicU64>),
}

impl HostClock {
    /// `counts`: the processor's counter is what the kernel's clock counts.
    pub fn new(given: Option<Arc<AtomicU64>>, counts: bool) -> Self {
        Self(match given {
            Some(given) => Source::Given(given),
            None if counts => Source::Ticks(TickClock::new(ticks, now_ns)),
            None => Source::Kernel,
        })
    }

    /// Looks for a step of time, after a sleep.
    pub fn check(&self) {
        if let Source::Ticks(clock) = &self.0 {
            clock.check(ticks, now_ns);
        }
    }
}

impl Clock for HostClock {
    #[inline(always)]
    fn now(&self) -> u64 {
        match &self.0 {
            Source::Kernel => now_ns(),
            Source::Ticks(clock) => clock.now(ticks, now_ns),
            Source::Given(given) => given.load(Ordering::Relaxed),
        }
    }

    #[inline(always)]
    fn ticks(&self) -> u64 {
        match &self.0 {
            Source::Given(given) => given.load(Ordering::Relaxed),
            _ => ticks(),
        }
    }

    fn waited_for_core(&self) -> Option<(u64, u64)> {
        portolan_sys::process::waited_for_core()
    }
}

/// The kernel's time by the processor's counter, at a third of the cost. Without a rate, which is
/// so for 10 ms from the start and from each step on, it is read from the kernel.
#[derive(Debug)]
struct TickClock {
    anchor: Cell<Anchor>,
    /// Time that was told last, ns. An earlier one is never told: after a step back time stands
    /// still until the kernel's clock has caught up.
    told: Cell<u64>,
}

impl TickClock {
    fn new(ticks: impl Fn() -> u64, kernel: impl Fn() -> u64) -> Self {
        let (ticks, ns) = at_once(ticks, kernel);
        Self {
            anchor: Cell::new(Anchor::new(ns, ticks)),
            told: Cell::new(ns),
        }
    }

    #[inline(always)]
    fn now(&self, ticks: impl Fn() -> u64, kernel: impl Fn() -> u64) -> u64 {
        let ns = match self.anchor.get().at(ticks()) {
            Some(ns) => ns,
            None => self.ask(ticks, kernel),
        };
        let ns = ns.max(self.told.get());
        self.told.set(ns);
        ns
    }

    /// Reads the kernel's time, and takes an anchor if one is due.
    #[cold]
    #[inline(never)]
    fn ask(&self, ticks: impl Fn() -> u64, kernel: impl Fn() -> u64) -> u64 {
        let now = kernel();
        if self.anchor.get().is_due(now) {
            self.renew(ticks, kernel)
        } else {
            now
        }
    }

    fn check(&self, ticks: impl Fn() -> u64, kernel: impl Fn() -> u64) {
        let (count, now) = (ticks(), kernel());
        // An interruption between the two reads looks like a step too.
        if self.anchor.get().has_stepped(now, count) {
            self.renew(ticks, kernel);
        }
    }

    fn renew(&self, ticks: impl Fn() -> u64, kernel: impl Fn() -> u64) -> u64 {
        let (ticks, ns) = at_once(ticks, kernel);
        self.anchor.set(self.anchor.get().renewed(ns, ticks));
        ns
    }
}

/// A moment on both clocks, and the rate from there on.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    ns: u64,
    ticks: u64,
    /// Nanoseconds of a tick, with [`FRACTION`] bits of fraction; 0: unknown.
    rate: u64,
    /// For how many ticks the rate holds: those of [`ANCHOR_NS`], or 0.
    holds: u64,
}

impl Anchor {
    const fn new(ns: u64, ticks: u64) -> Self {
        Self {
            ns,
            ticks,
            rate: 0,
            holds: 0,
        }
    }

    /// Returns the time at a count, ns, unless it has to be asked for.
    #[inline(always)]
    const fn at(&self, ticks: u64) -> Option<u64> {
        // Far too many if the counter is behind the anchor.
        let since = ticks.wrapping_sub(self.ticks);
        if since >= self.holds {
            return None;
        }
        // At most `ANCHOR_NS << FRACTION`, which is 59 bits.
        Some(self.ns + ((since * self.rate) >> FRACTION))
    }

    const fn is_due(&self, ns: u64) -> bool {
        ns.saturating_sub(self.ns) >= MEASURE_NS
    }

    /// Whether the kernel's time differs from that by the counter by more than drift.
    fn has_stepped(&self, ns: u64, ticks: u64) -> bool {
        let since = u128::from(ticks.wrapping_sub(self.ticks)) * u128::from(self.rate);
        let by_ticks = u128::from(self.ns) + (since >> FRACTION);
        let slew = ns.saturating_sub(self.ns) >> 10;
        self.rate != 0 && by_ticks.abs_diff(ns.into()) > STEP_NS.max(slew).into()
    }

    /// Returns the anchor to go on by from a later moment. After a step it has no rate until there
    /// is another.
    fn renewed(self, ns: u64, ticks: u64) -> Self {
        if self.has_stepped(ns, ticks) {
            return Self::new(ns, ticks);
        }
        if !self.is_due(ns) {
            return self;
        }
        let count = u128::from(ticks.wrapping_sub(self.ticks)).max(1);
        let rate = (u128::from(ns - self.ns) << FRACTION) / count;
        match u64::try_from(rate) {
            Ok(rate) if RATES.contains(&rate) => Self {
                ns,
                ticks,
                rate,
                holds: (ANCHOR_NS << FRACTION) / rate,
            },
            _ => Self::new(ns, ticks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    /// Ticks of a microsecond.
    const RATE: u64 = 2_345;

    /// Both clocks of a host, which stand still but for [`Host::pass`].
    struct Host {
        ns: Cell<u64>,
        ticks: Cell<u64>,
        /// Reads of the kernel's clock.
        reads: Cell<u64>,
    }

    impl Host {
        fn new(ticks: u64) -> Self {
            Self {
                ns: Cell::new(3_600_000 * MS),
                ticks: Cell::new(ticks),
                reads: Cell::new(0),
            }
        }

        /// A host and a clock that knows the counter's rate.
        fn measured() -> (Self, TickClock) {
            let host = Self::new(1 << 40);
            let clock = host.clock();
            host.pass(10 * MS);
            host.now(&clock);
            (host, clock)
        }

        fn pass(&self, ns: u64) {
            self.ns.set(self.ns.get() + ns);
            let ticks = u128::from(ns) * u128::from(RATE) / 1_000;
            self.ticks.set(self.ticks.get().wrapping_add(ticks as u64));
        }

        fn kernel(&self) -> u64 {
            self.reads.set(self.reads.get() + 1);
            self.ns.get()
        }

        fn clock(&self) -> TickClock {
            TickClock::new(|| self.ticks.get(), || self.kernel())
        }

        fn now(&self, clock: &TickClock) -> u64 {
            clock.now(|| self.ticks.get(), || self.kernel())
        }

        fn check(&self, clock: &TickClock) {
            clock.check(|| self.ticks.get(), || self.kernel());
        }

        /// Whether a reading is the kernel's.
        fn asks(&self, clock: &TickClock) -> bool {
            let before = self.reads.get();
            self.now(clock);
            self.reads.get() > before
        }
    }

    #[test]
    fn the_rate_is_known_from_10_ms_on() {
        // The counter overflows meanwhile.
        let host = Host::new(u64::MAX - 5 * RATE);
        let clock = host.clock();
        for _ in 0..9 {
            host.pass(MS);
            assert!(host.asks(&clock));
            assert_eq!(host.now(&clock), host.ns.get());
        }
        host.pass(MS);
        assert!(host.asks(&clock) && !host.asks(&clock));
    }

    #[test]
    fn the_time_is_right_within_1_us_and_asked_for_every_100_ms() {
        let (host, clock) = Host::measured();
        host.reads.set(0);
        for _ in 0..999 {
            host.pass(MS / 10 - 1);
            assert!(host.now(&clock).abs_diff(host.ns.get()) <= 1_000);
        }
        assert_eq!(host.reads.get(), 0);
        host.pass(MS);
        assert!(host.asks(&clock) && !host.asks(&clock));
        assert_eq!(host.now(&clock), host.ns.get());
    }

    #[test]
    fn drift_is_no_step_and_time_does_not_go_back() {
        let (host, clock) = Host::measured();
        for slower in [true, false] {
            let mut last = host.now(&clock);
            for _ in 0..3_000 {
                host.pass(MS / 10);
                // 500 millionths, as much as the kernel ever slews.
                let slewed = host.ns.get() - if slower { 50 } else { 0 };
                host.ns.set(slewed + if slower { 0 } else { 50 });
                let now = host.now(&clock);
                assert!(now >= last && now.abs_diff(host.ns.get()) <= 150_000);
                last = now;
            }
        }
        assert!(!host.asks(&clock));
    }

    #[test]
    fn a_step_ends_the_rate_until_it_is_measured_again() {
        for step in [2 * MS as i64, -2 * MS as i64] {
            for after_sleep in [true, false] {
                let (host, clock) = Host::measured();
                host.pass(if after_sleep { MS } else { 101 * MS });
                let before = host.now(&clock);
                host.pass(if after_sleep { MS } else { 101 * MS });
                host.ns.set(host.ns.get().checked_add_signed(step).unwrap());
                if after_sleep {
                    host.check(&clock);
                }
                assert!(host.asks(&clock) && host.asks(&clock), "{step}");
                assert_eq!(host.now(&clock), host.ns.get().max(before), "{step}");
                host.pass(9 * MS);
                assert!(host.asks(&clock), "{step}");
                assert_eq!(host.now(&clock), host.ns.get(), "{step}");
                host.pass(MS);
                assert!(host.asks(&clock) && !host.asks(&clock), "{step}");
            }
        }
    }

    #[test]
    fn a_check_without_a_step_changes_nothing() {
        let (host, clock) = Host::measured();
        host.pass(50 * MS);
        host.ns.set(host.ns.get() + STEP_NS / 2);
        host.check(&clock);
        assert!(!host.asks(&clock));
    }

    #[test]
    fn time_stands_still_while_a_counter_or_the_kernel_is_behind() {
        let (host, clock) = Host::measured();
        host.pass(MS);
        let last = host.now(&clock);
        host.ticks.set(host.ticks.get() - RATE);
        assert_eq!(host.now(&clock), last);
        // Behind the anchor, as on a core that differs.
        host.ticks.set(host.ticks.get() - 1_000 * RATE);
        assert!(host.asks(&clock));
        let last = host.now(&clock);
        host.ns.set(host.ns.get() - 500 * MS);
        assert_eq!(host.now(&clock), last);
    }

    #[test]
    fn counters_of_any_rate_fit() {
        let start = Anchor::new(0, u64::MAX);
        // One tick in 10 ms, none, and all that there are.
        for count in [1, 0, u64::MAX] {
            let anchor = start.renewed(MEASURE_NS, u64::MAX.wrapping_add(count));
            assert_eq!((anchor.rate, anchor.at(anchor.ticks)), (0, None));
        }
        for count in [MEASURE_NS / 10, 16 * MEASURE_NS] {
            let anchor = start.renewed(MEASURE_NS, u64::MAX.wrapping_add(count));
            let end = anchor.ticks.wrapping_add(anchor.holds);
            assert_eq!(anchor.at(end), None);
            let last = anchor.at(end.wrapping_sub(1)).unwrap();
            assert!((ANCHOR_NS..=MEASURE_NS + ANCHOR_NS).contains(&last));
        }
        // A span of years, at the end of the counter.
        let anchor = start.renewed(MEASURE_NS, 23_450_000);
        assert!(anchor.has_stepped(u64::MAX, 23_450_000));
        assert!(anchor.has_stepped(MEASURE_NS, u64::MAX));
        let far = anchor.renewed(u64::MAX, u64::MAX);
        assert_eq!(far.at(u64::MAX), None);
    }

    #[test]
    fn this_host_is_told_its_time() {
        let clock = HostClock::new(None, portolan_sys::clock::is_tsc());
        let end = now_ns() + 120 * MS;
        let mut last = 0;
        while now_ns() < end {
            let before = now_ns();
            let now = clock.now();
            let after = now_ns();
            assert!(now >= last);
            assert!(
                before - MS <= now && now <= after + MS,
                "{before} {now} {after}"
            );
            last = now;
        }
    }
}
