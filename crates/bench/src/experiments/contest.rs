//! Systems that do the same over and over, in turns: `barrier` and `ring`.

use std::ops::RangeInclusive;

use portolan_hosts::failure::Result;

use crate::experiment::{Findings, rounds};
use crate::report::stats::Series;
use crate::report::table::Row;

/// Gives so many systems slices of `slice_ns`; gives the mean times of each, us.
/// `turn` does what the system of this place does, so often, and gives its mean
/// time and how often it did it.
///
/// # Errors
/// That of a turn.
pub fn contest(
    systems: usize,
    (slices, slice_ns): (usize, u64),
    bounds: RangeInclusive<u64>,
    mut turn: impl FnMut(usize, u64) -> Result<(f64, u64)>,
) -> Result<Vec<Series>> {
    let mut all = vec![(Series::default(), *bounds.start()); systems];
    rounds(slices, |counts| {
        for (place, (series, count)) in all.iter_mut().enumerate() {
            let (us, n) = turn(place, *count)?;
            if counts {
                series.keep(us, n);
            }
            let next = (slice_ns as f64 / 1e3 / us) as u64;
            *count = next.clamp(*bounds.start(), *bounds.end());
        }
        Ok(())
    })?;
    Ok(all.into_iter().map(|(series, _)| series).collect())
}

/// A figure of each system, with how it was measured, and that of the first over
/// those of the others.
pub fn findings(metric: &str, systems: &[(Row, String)], all: &[Series]) -> Findings {
    let mut found = Findings::default();
    for ((row, method), series) in systems.iter().zip(all) {
        found
            .rows
            .extend(row.figure(metric, series, method.as_str()));
    }
    if let ([(ours, _), others @ ..], [first, series @ ..]) = (systems, all) {
        let over = |((row, _), series): (&(Row, String), &Series)| {
            ours.over(metric, first, &row.system, series)
        };
        found.ratios = others.iter().zip(series).filter_map(over).collect();
    }
    found
}
