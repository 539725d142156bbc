//! How many exchanges make a slice, by how long the last ones took.

use portolan_hosts::failure::Result;

use crate::control::ControlLine;
use crate::ranks::matched::{ExchangeSlice, Exchanged, exchange};
use crate::report::stats::Series;
use crate::slice::{CAP_NS, OPERATIONS_MIN};

/// Time for all rounds of a bench, nanoseconds: what is left of 45 s after
/// starting, stopping and the first round, which knows no times yet.
const BUDGET_NS: u64 = 36_000_000_000;

/// The pace of one figure.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time of one of the last slice; none before the first.
    us: Option<f64>,
    /// Exchanges that a slice has however long they take.
    least: u64,
}

impl Pace {
    /// Nothing is known yet.
    pub const fn new() -> Self {
        Self {
            us: None,
            least: OPERATIONS_MIN,
        }
    }

    /// Exchanges for a slice of `slice_ns`: before those that count, and these.
    pub fn count(&self, slice_ns: u64) -> (u64, u64) {
        let Some(us) = self.us else {
            return (1, OPERATIONS_MIN);
        };
        let within = |ns: u64| (ns as f64 / 1e3 / us) as u64;
        let least = self.least.min(within(CAP_NS)).max(1);
        let count = within(slice_ns).max(least);
        // So few are long enough to need none.
        let warm_up = if count > 2 { count.div_ceil(20) } else { 0 };
        (warm_up, count)
    }

    /// So long they took, all of them.
    pub fn note(&mut self, count: (u64, u64), elapsed_us: f64) {
        self.us = Some((elapsed_us / (count.0 + count.1) as f64).max(0.05));
    }

    /// Lets both ranks do a slice of `slice_ns`. Gives it with how often they did
    /// it, and what they say.
    fn slice(
        &mut self,
        lines: &mut [ControlLine],
        slice_ns: u64,
        slice: ExchangeSlice,
    ) -> Result<(ExchangeSlice, [Exchanged; 2])> {
        let (warm_up, count) = self.count(slice_ns);
        let slice = ExchangeSlice {
            warm_up,
            count,
            ..slice
        };
        let said = exchange(lines, &slice)?;
        self.note((warm_up, count), said[0].elapsed_us);
        Ok((slice, said))
    }

    /// Time of a slice that has at least so many exchanges.
    fn slice_us(&self, slice_ns: u64, least: u64) -> f64 {
        let (warm_up, count) = Self { least, ..*self }.count(slice_ns);
        self.us.unwrap_or(0.0) * (warm_up + count) as f64
    }
}

/// A figure of exchanges in the making.
pub struct Timed {
    pace: Pace,
    /// Time of one, us, as rank 0 says it.
    pub us: Series,
}

impl Timed {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self {
            pace: Pace::new(),
            us: Series::default(),
        }
    }

    /// Lets both ranks do a slice of `slice_ns`, which perhaps counts, so many
    /// messages an exchange. Gives it, and what rank 0 says.
    pub fn slice(
        &mut self,
        lines: &mut [ControlLine],
        slice_ns: u64,
        (slice, messages): (ExchangeSlice, u64),
        counts: bool,
    ) -> Result<(ExchangeSlice, Exchanged)> {
        let (slice, [said, _]) = self.pace.slice(lines, slice_ns, slice)?;
        if counts {
            self.us.keep(said.us, messages * slice.count);
        }
        Ok((slice, said))
    }

    /// Bandwidth with messages of `size` bytes, MB/s.
    pub fn mb_s(&self, size: usize) -> Series {
        self.us.map(|us| size as f64 / us)
    }
}

/// Before a round: likewise of these figures.
pub fn fit_timed<'a>(all: impl Iterator<Item = &'a mut Timed>, slice_ns: u64, slices: usize) {
    fit(all.map(|timed| &mut timed.pace), slice_ns, slices);
}

/// Before a round: slices have as many exchanges as there is time for, ten at
/// most, where longer ones of `slice_ns` do not have more; all figures' alike.
pub fn fit<'a>(paces: impl Iterator<Item = &'a mut Pace>, slice_ns: u64, slices: usize) {
    let paces: Vec<&mut Pace> = paces.collect();
    let round_us = BUDGET_NS as f64 / 1e3 / (slices + 1) as f64;
    let fits = |least: &u64| {
        let all: f64 = paces.iter().map(|it| it.slice_us(slice_ns, *least)).sum();
        all <= round_us
    };
    let least = (1..=OPERATIONS_MIN).rev().find(fits).unwrap_or(1);
    for pace in paces {
        pace.least = least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(each_us: f64) -> Pace {
        let mut pace = Pace::new();
        pace.note((1, 10), 11.0 * each_us);
        pace
    }

    #[test]
    fn a_slice_has_ten_exchanges_unless_they_take_seconds() {
        assert_eq!(Pace::new().count(1_000_000), (1, 10));
        let count = |each_us| noted(each_us).count(1_000_000);
        assert_eq!(count(1.0), (50, 1_000));
        assert_eq!(count(5_000.0), (1, 10));
        assert_eq!(count(1_000_000.0), (0, 2));
        assert_eq!(count(9_000_000.0), (0, 1));
    }

    #[test]
    fn slices_have_fewer_exchanges_where_ten_of_each_take_too_long() {
        let counts = |each_us: &[f64], slices| {
            let mut paces: Vec<Pace> = each_us.iter().map(|us| noted(*us)).collect();
            fit(paces.iter_mut(), 1_000_000, slices);
            let counts: Vec<u64> = paces.iter().map(|it| it.count(1_000_000).1).collect();
            counts
        };
        // 20 rounds of 1.8 s: of one that takes 0.3 s five and one before them, or
        // less where others take time as well.
        assert_eq!(counts(&[300_000.0], 19), [5]);
        assert_eq!(counts(&[300_000.0, 10.0], 19), [4, 100]);
        assert_eq!(counts(&[300_000.0; 2], 19), [2; 2]);
        assert_eq!(counts(&[300_000.0; 3], 19), [2; 3]);
        assert_eq!(counts(&[300_000.0; 9], 19), [1; 9]);
        assert_eq!(counts(&[3_000.0; 3], 19), [10; 3]);
        // Fewer rounds have more time.
        assert_eq!(counts(&[300_000.0], 1), [6]);
    }
}
