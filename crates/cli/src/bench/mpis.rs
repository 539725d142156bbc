//! What other MPIs make of shared memory, beside what it takes to copy it.

use super::conduct::Progress;
use super::failure::{Context, Result};
use super::memcpy::Memcpy;
use super::netpipe::{Case, Measured, Netpipe, SIZE_MAX, TRIALS, best};
use super::options;
use super::plan::wrong;
use super::report::{Ratio, Row};
use super::slice::SLICE_MS_MAX;
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check};

const MEMCPY: &str = "memcpy";
/// Whichever MPI was faster in a slice.
const BEST: &str = "best-mpi";

/// A system's slices of a case.
#[derive(Default)]
struct Column {
    /// Time of a message one way, us.
    us: Vec<f64>,
    /// Messages of all slices.
    n: u64,
}

impl Column {
    fn keep(&mut self, measured: Measured) {
        self.us.push(measured.one_way_us);
        self.n += measured.messages;
    }

    /// Bytes per microsecond, which are MB/s.
    fn mb_s(&self, size: usize) -> Vec<Option<f64>> {
        self.us.iter().map(|us| Some(size as f64 / us)).collect()
    }
}

/// A case: memcpy's slices, and each peer's.
struct Cell {
    case: Case,
    memcpy: Column,
    peers: Vec<Column>,
}

/// Each once, in order.
fn once<T: PartialEq + Copy>(all: &[T]) -> Vec<T> {
    let first = |(at, it): (usize, &T)| (!all[..at].contains(it)).then_some(*it);
    all.iter().enumerate().filter_map(first).collect()
}

/// Gives each system a slice of every case in turn.
pub fn bench(arguments: options::Netpipe) -> Result<Found> {
    let sizes: Vec<usize> = arguments.sizes.iter().map(|size| size.0).collect();
    if let Some(size) = sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
        return wrong(format!("--size {size}: give 1 to {SIZE_MAX} bytes"));
    }
    check(arguments.json.as_deref(), 2)?;
    let allowed = crate::run::allowed_cores().context("asking for the allowed cores")?;
    let cores = [allowed[0], allowed[1]];
    let found = once(&arguments.vs);
    let mut peers = found
        .iter()
        .map(|&kind| Netpipe::find(kind, cores))
        .collect::<Result<Vec<_>>>()?;
    let mut memcpy = Memcpy::new(cores[1]);
    let mut cells = Vec::new();
    for &buffers in &once(&arguments.buffers) {
        for &size in &once(&sizes) {
            cells.push(Cell {
                case: Case { size, buffers },
                memcpy: Column::default(),
                peers: peers.iter().map(|_| Column::default()).collect(),
            });
        }
    }
    let mut watch = Watch::begin(None);
    watch.host.pinned = cores.map(|core| Some(core as usize)).into();
    let slice_ns = arguments.slice_ms.unwrap_or(SLICE_MS_MAX) * 1_000_000;
    let mut progress = Progress::new(arguments.slices);
    // The first round finds out how each is fastest.
    for round in 0..=arguments.slices {
        progress.show(round);
        for cell in &mut cells {
            let copied = memcpy.slice(cell.case, slice_ns)?;
            if round > 0 {
                cell.memcpy.keep(copied);
            }
            for (peer, column) in peers.iter_mut().zip(&mut cell.peers) {
                let measured = peer.slice(cell.case, slice_ns)?;
                if round > 0 {
                    column.keep(measured);
                }
            }
        }
    }
    progress.done();
    let mut report = watch.report("netpipe", Vec::new());
    for cell in &cells {
        let slices = format!(
            "best of {TRIALS} trials in each of the interleaved slices of {} ms",
            slice_ns / 1_000_000
        );
        let how = format!("copies by one core; {slices}");
        report.rows.extend(rows(cell, MEMCPY, how, 1, &cell.memcpy));
        for (peer, column) in peers.iter().zip(&cell.peers) {
            let how = format!(
                "{}; half of the mean round trip, {slices}",
                peer.method(cell.case)
            );
            let name = peer.kind().name();
            report.rows.extend(rows(cell, name, how, 2, column));
        }
        let names: Vec<&str> = peers.iter().map(|peer| peer.kind().name()).collect();
        report.ratios.extend(ratios(cell, &names));
    }
    Ok((arguments.json, report))
}

/// A system's bandwidth and latency.
fn rows(cell: &Cell, system: &str, how: String, ranks: u32, column: &Column) -> Vec<Row> {
    let Case { size, buffers } = cell.case;
    let like = Row {
        system: system.to_owned(),
        size: Some(size),
        buffers: Some(buffers.name().to_owned()),
        n: column.n,
        method: how,
        ranks,
        ..Row::default()
    };
    let mb_s: Vec<f64> = column.mb_s(size).into_iter().flatten().collect();
    [("bandwidth_mb_s", &mb_s), ("latency_us", &column.us)]
        .into_iter()
        .filter_map(|(metric, values)| {
            let row = Row {
                metric: metric.to_owned(),
                ..like.clone()
            };
            Some(row.with(&Quartiles::of(values)?))
        })
        .collect()
}

/// memcpy over each peer, and over the best of several.
fn ratios(cell: &Cell, names: &[&str]) -> Vec<Ratio> {
    let Case { size, buffers } = cell.case;
    let ours = cell.memcpy.mb_s(size);
    let theirs: Vec<_> = cell.peers.iter().map(|peer| peer.mb_s(size)).collect();
    let mut over: Vec<(&str, Vec<Option<f64>>)> =
        names.iter().copied().zip(theirs.iter().cloned()).collect();
    if over.len() > 1 {
        over.push((BEST, best(&theirs)));
    }
    over.into_iter()
        .filter_map(|(over, values)| {
            let ratio = Ratio {
                metric: "bandwidth_mb_s".to_owned(),
                size: Some(size),
                buffers: Some(buffers.name().to_owned()),
                system: MEMCPY.to_owned(),
                over: over.to_owned(),
                ..Ratio::default()
            };
            Some(ratio.with(&paired(&ours, &values)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::netpipe::Buffers;
    use super::*;

    #[test]
    fn memcpy_is_set_against_each_and_the_best_of_each_slice() {
        let column = |us: [f64; 2]| Column {
            us: us.into(),
            n: 2,
        };
        let cell = Cell {
            case: Case {
                size: 1_000,
                buffers: Buffers::Cold,
            },
            memcpy: column([1.0, 2.0]),
            peers: vec![column([4.0, 4.0]), column([2.0, 8.0])],
        };
        let found = ratios(&cell, &["openmpi", "mpich"]);
        let medians: Vec<(&str, f64)> = (found.iter())
            .map(|ratio| (ratio.over.as_str(), ratio.median))
            .collect();
        assert_eq!(medians, [("openmpi", 3.0), ("mpich", 3.0), (BEST, 2.0)]);
        assert!(found.iter().all(|it| it.buffers.as_deref() == Some("cold")));
        assert_eq!(ratios(&cell, &["openmpi"]).len(), 1);
        let rows = rows(&cell, "mpich", String::new(), 2, &cell.peers[1]);
        assert_eq!((rows[0].p50, rows[1].p50, rows[0].n), (312.5, 5.0, 2));
    }

    #[test]
    fn what_is_asked_for_twice_is_measured_once() {
        assert_eq!(once(&[8, 64, 8, 1, 64]), [8, 64, 1]);
    }
}
