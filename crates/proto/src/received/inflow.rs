//! How packets arrive by a path: all at once, or spread over time.

/// Length of a period over which the rate of a path is measured, ns.
const PERIOD_NS: u64 = 10_000_000;
/// Periods in a row that must be alike before the rate counts as steady.
const PERIODS: u8 = 4;
/// Longest time for which other work keeps a receiver from reading, ns.
const ABSENCE_NS: u64 = 4_000_000;

/// How steadily packets come by a path. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Inflow {
    /// Start of the period, ns, and the next packet number then.
    began: u64,
    from: u64,
    /// Number of periods alike.
    alike: u8,
}

impl Inflow {
    /// Takes in the next packet number at `now`. Returns true if packets come
    /// so slowly that `share` packets of buffer last through an absence, and
    /// yet are not few: then more than `share` may be in flight, as most are on
    /// the way and not in the buffer.
    pub fn is_spread(&mut self, now: u64, next: u64, share: u64) -> bool {
        let ns = now.saturating_sub(self.began);
        if ns >= PERIOD_NS {
            let came = next.saturating_sub(self.from);
            let few = came.saturating_mul(4 * PERIOD_NS) < share.saturating_mul(ns);
            let fits = came.saturating_mul(ABSENCE_NS) <= share.saturating_mul(ns);
            self.alike = if fits && !few {
                (self.alike + 1).min(PERIODS)
            } else {
                0
            };
            (self.began, self.from) = (now, next);
        }
        self.alike == PERIODS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a steady flow of `per_period` packets in 10 ms is spread, period
    /// by period.
    fn periods(per_period: u64, share: u64) -> [bool; 6] {
        let mut inflow = Inflow::default();
        let mut spread = [false; 6];
        for (period, spread) in (1..).zip(&mut spread) {
            *spread = inflow.is_spread(period * PERIOD_NS, period * per_period, share);
        }
        spread
    }

    #[test]
    fn what_comes_slowly_for_a_while_is_spread() {
        let late = [false, false, false, true, true, true];
        // A quarter of 184 in a period is not few; 460 are 184 in 4 ms.
        for (per_period, expected) in [(45, [false; 6]), (46, late), (460, late), (461, [false; 6])]
        {
            assert_eq!(periods(per_period, 184), expected, "{per_period}");
        }
    }

    #[test]
    fn a_rush_or_a_silence_ends_it() {
        let mut inflow = Inflow::default();
        let mut next = 0;
        let mut after = |ms: u64, packets: u64| {
            next += packets;
            inflow.is_spread(ms * 1_000_000, next, 184)
        };
        assert_eq!(
            [10, 20, 30, 40].map(|ms| after(ms, 100)),
            [false, false, false, true]
        );
        // Nothing is concluded before a period is over.
        assert!(after(45, 1_000));
        assert!(!after(50, 0));
        assert_eq!(
            [60, 70, 80, 90].map(|ms| after(ms, 100)),
            [false, false, false, true]
        );
        assert!(!after(1_000, 100));
    }
}
