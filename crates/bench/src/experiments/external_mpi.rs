//! What other MPIs make of shared memory, beside what it takes to copy it.

use std::path::PathBuf;

use clap::Args;
use portolan_hosts::failure::{Context, Result};
use portolan_hosts::ranks::allowed_cores;

use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::options::{Sizes, slices};
use crate::peers::memcpy::Memcpy;
use crate::peers::mpi::{self, Kind};
use crate::peers::netpipe::{self, Buffers, Case, Measured, SIZE_MAX, TRIALS};
use crate::report::dimensions::Dimension;
use crate::report::stats::{SLICES_MIN, Series};
use crate::report::table::{Ratio, Row};
use crate::slice::SLICE_MS_MAX;

const MEMCPY: &str = "memcpy";
/// Whichever MPI was faster in a slice.
const BEST: &str = "best-mpi";

/// A case: memcpy's slices, and each peer's: times of a message one way, us.
struct Cell {
    case: Case,
    memcpy: Series,
    peers: Vec<Series>,
}

impl Cell {
    /// Bytes per microsecond, which are MB/s.
    fn mb_s(&self, us: &Series) -> Series {
        us.map(|us| self.case.size as f64 / us)
    }
}

fn keep(series: &mut Series, measured: Measured) {
    series.keep(measured.one_way_us, measured.messages);
}

/// Each once, in order.
pub fn once<T: PartialEq + Copy>(all: &[T]) -> Vec<T> {
    let first = |(at, it): (usize, &T)| (!all[..at].contains(it)).then_some(*it);
    all.iter().enumerate().filter_map(first).collect()
}

/// All sizes with all buffers; each once.
pub fn cases(sizes: &[usize], buffers: &[Buffers]) -> Vec<Case> {
    let of = |buffers| move |size| Case { size, buffers };
    let sizes = once(sizes);
    let with = |&buffers: &Buffers| sizes.iter().copied().map(of(buffers));
    once(buffers).iter().flat_map(with).collect()
}

/// The systems that are measured beside each other, with all cases.
pub struct ExternalMpis {
    peers: Vec<netpipe::Netpipe>,
    memcpy: Option<Memcpy>,
    cells: Vec<Cell>,
    slice_ns: u64,
}

impl ExternalMpis {
    /// These MPIs and, where asked for, memcpy: on these cores, in slices of
    /// that length.
    ///
    /// # Errors
    /// Where a program is missing.
    pub fn find(
        mpis: &[mpi::Kind],
        memcpy: bool,
        cores: [u32; 2],
        cases: &[Case],
        slice_ns: u64,
    ) -> Result<Self> {
        let peers = once(mpis)
            .into_iter()
            .map(|kind| netpipe::Netpipe::find(kind, cores))
            .collect::<Result<Vec<_>>>()?;
        let cell = |&case: &Case| Cell {
            case,
            memcpy: Series::default(),
            peers: peers.iter().map(|_| Series::default()).collect(),
        };
        Ok(Self {
            cells: cases.iter().map(cell).collect(),
            memcpy: memcpy.then(|| Memcpy::new(cores[1])),
            peers,
            slice_ns,
        })
    }

    /// Gives each a slice of a case. The first round finds out how each is
    /// fastest, and does not count.
    ///
    /// # Errors
    /// Where one cannot be measured.
    pub fn slice(&mut self, case: Case, counts: bool) -> Result<()> {
        let Some(cell) = self.cells.iter_mut().find(|cell| cell.case == case) else {
            return Ok(());
        };
        if let Some(memcpy) = &mut self.memcpy {
            let copied = memcpy.slice(case, self.slice_ns)?;
            if counts {
                keep(&mut cell.memcpy, copied);
            }
        }
        for (peer, column) in self.peers.iter_mut().zip(&mut cell.peers) {
            let measured = peer.slice(case, self.slice_ns)?;
            if counts {
                keep(column, measured);
            }
        }
        Ok(())
    }

    /// What was measured.
    pub fn rows(&self) -> Vec<Row> {
        let mut all = Vec::new();
        for cell in &self.cells {
            let slices = format!(
                "best of {TRIALS} trials in each of the interleaved slices of {} ms",
                self.slice_ns / 1_000_000
            );
            let how = format!("copies by one core; {slices}");
            all.extend(rows(cell, MEMCPY, &how, 1, &cell.memcpy));
            for (peer, column) in self.peers.iter().zip(&cell.peers) {
                let how = format!(
                    "{}; half of the mean round trip, {slices}",
                    peer.method(cell.case)
                );
                let name = peer.kind().name();
                all.extend(rows(cell, name, &how, 2, column));
            }
        }
        all
    }

    /// Bandwidths of a case, slice by slice: of each MPI, of whichever of
    /// several was the fastest, and of memcpy.
    pub fn bandwidths(&self, case: Case) -> Vec<(&'static str, Series)> {
        let Some(cell) = self.cells.iter().find(|cell| cell.case == case) else {
            return Vec::new();
        };
        let mut all = self.mpis(cell);
        if self.memcpy.is_some() {
            all.push((MEMCPY, cell.mb_s(&cell.memcpy)));
        }
        all
    }

    fn mpis(&self, cell: &Cell) -> Vec<(&'static str, Series)> {
        let names = self.peers.iter().map(|peer| peer.kind().name());
        let values = cell.peers.iter().map(|us| cell.mb_s(us));
        with_best(names.zip(values).collect())
    }

    /// memcpy over each of them.
    fn ratios(&self) -> Vec<Ratio> {
        let of_cell = |cell: &Cell| ratios(cell, self.mpis(cell));
        self.cells.iter().flat_map(of_cell).collect()
    }
}

/// With the best of several.
fn with_best(mut peers: Vec<(&'static str, Series)>) -> Vec<(&'static str, Series)> {
    if let [(_, first), others @ ..] = &peers[..]
        && !others.is_empty()
    {
        let best = |best: Series, (_, other): &(&str, Series)| best.best(other, f64::max);
        peers.push((BEST, others.iter().fold(first.clone(), best)));
    }
    peers
}

/// As it was asked for.
#[derive(Args)]
pub struct Netpipe {
    #[command(flatten)]
    sizes: Sizes,
    /// Which memory messages use
    #[arg(
        long,
        value_enum,
        value_name = "WHERE[,WHERE]",
        value_delimiter = ',',
        default_value = "warm,cold"
    )]
    buffers: Vec<Buffers>,
    /// The MPIs to measure
    #[arg(
        long,
        value_enum,
        value_name = "PEER[,PEER...]",
        value_delimiter = ',',
        default_value = "openmpi,mpich"
    )]
    vs: Vec<Kind>,
    /// Slices of each figure
    #[arg(long, value_name = "N", default_value_t = SLICES_MIN, value_parser = slices)]
    slices: usize,
    /// Length of a slice, milliseconds, at most 100 [default: 100]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=SLICE_MS_MAX))]
    slice_ms: Option<u64>,
    /// Write rows and ratios to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Experiment for Netpipe {
    /// Gives each system a slice of every case in turn.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let sizes = self.sizes.within(1..=SIZE_MAX)?;
        if self.buffers.contains(&Buffers::Fresh) {
            return wrong("--buffers fresh: NetPIPE has warm and cold ones only");
        }
        let cores = two_cores()?;
        let slice_ns = self.slice_ms.unwrap_or(SLICE_MS_MAX) * 1_000_000;
        let cases = cases(&sizes, &self.buffers);
        let mut all = ExternalMpis::find(&self.vs, true, cores, &cases, slice_ns)?;
        stage.machine.pinned = cores.map(|core| Some(core as usize)).into();
        rounds(self.slices, |counts| {
            cases.iter().try_for_each(|case| all.slice(*case, counts))
        })?;
        Ok(Findings {
            rows: all.rows(),
            ratios: all.ratios(),
            remarks: Vec::new(),
        })
    }
}

/// The cores of two processes.
pub fn two_cores() -> Result<[u32; 2]> {
    let allowed = allowed_cores().context("asking for the allowed cores")?;
    Ok([allowed[0], allowed[1]])
}

/// Where rows of a system stand.
fn row(cell: &Cell, system: &str, ranks: u32) -> Row {
    Row::of(system, ranks)
        .at(Dimension::Size, cell.case.size)
        .at(Dimension::Buffers, cell.case.buffers.name())
}

/// A system's bandwidth and latency.
fn rows(cell: &Cell, system: &str, how: &str, ranks: u32, us: &Series) -> Vec<Row> {
    row(cell, system, ranks).figures([
        ("bandwidth_mb_s", &cell.mb_s(us), how),
        ("latency_us", us, how),
    ])
}

/// memcpy over each of these.
fn ratios(cell: &Cell, peers: Vec<(&str, Series)>) -> Vec<Ratio> {
    let row = row(cell, MEMCPY, 1);
    let ours = cell.mb_s(&cell.memcpy);
    let over = |(over, theirs): (&str, Series)| {
        let ratio = row.over("bandwidth_mb_s", &ours, over, &theirs)?;
        Some(ratio.likewise(Dimension::Buffers, &row))
    };
    peers.into_iter().filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memcpy_is_set_against_each_and_the_best_of_each_slice() {
        let cell = Cell {
            case: Case {
                size: 1_000,
                buffers: Buffers::Cold,
            },
            memcpy: Series::from([1.0, 2.0]),
            peers: [[4.0, 4.0], [2.0, 8.0]].map(Series::from).into(),
        };
        let of = |at: usize| cell.mb_s(&cell.peers[at]);
        let both = with_best(vec![("openmpi", of(0)), ("mpich", of(1))]);
        let found = ratios(&cell, both);
        let medians: Vec<(&str, f64)> = (found.iter())
            .map(|ratio| (ratio.over.as_str(), ratio.median))
            .collect();
        assert_eq!(medians, [("openmpi", 3.0), ("mpich", 3.0), (BEST, 2.0)]);
        assert!(
            found
                .iter()
                .all(|it| it.dimensions.plain(Dimension::Buffers) == "cold")
        );
        assert_eq!(with_best(vec![("openmpi", of(0))]).len(), 1);
        let rows = rows(&cell, "mpich", "", 2, &cell.peers[1]);
        assert_eq!((rows[0].p50, rows[1].p50, rows[0].n), (312.5, 5.0, 2));
    }

    #[test]
    fn what_is_asked_for_twice_is_measured_once() {
        assert_eq!(once(&[8, 64, 8, 1, 64]), [8, 64, 1]);
    }
}
