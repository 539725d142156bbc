//! What other MPIs make of shared memory, beside what it takes to copy it.

use portolan_hosts::failure::{Context, Result};

use super::conduct::Progress;
use super::memcpy::Memcpy;
use super::mpi;
use super::netpipe::{Buffers, Case, Measured, Netpipe, SIZE_MAX, TRIALS, best};
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
pub struct Others {
    peers: Vec<Netpipe>,
    memcpy: Option<Memcpy>,
    cells: Vec<Cell>,
    slice_ns: u64,
}

impl Others {
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
            .map(|kind| Netpipe::find(kind, cores))
            .collect::<Result<Vec<_>>>()?;
        let cell = |&case: &Case| Cell {
            case,
            memcpy: Column::default(),
            peers: peers.iter().map(|_| Column::default()).collect(),
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
                cell.memcpy.keep(copied);
            }
        }
        for (peer, column) in self.peers.iter_mut().zip(&mut cell.peers) {
            let measured = peer.slice(case, self.slice_ns)?;
            if counts {
                column.keep(measured);
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
            all.extend(rows(cell, MEMCPY, how, 1, &cell.memcpy));
            for (peer, column) in self.peers.iter().zip(&cell.peers) {
                let how = format!(
                    "{}; half of the mean round trip, {slices}",
                    peer.method(cell.case)
                );
                let name = peer.kind().name();
                all.extend(rows(cell, name, how, 2, column));
            }
        }
        all
    }

    /// Bandwidths of a case, slice by slice: of each MPI, of whichever of
    /// several was the fastest, and of memcpy.
    pub fn bandwidths(&self, case: Case) -> Vec<(&'static str, Vec<Option<f64>>)> {
        let Some(cell) = self.cells.iter().find(|cell| cell.case == case) else {
            return Vec::new();
        };
        let mut all = self.mpis(cell);
        if self.memcpy.is_some() {
            all.push((MEMCPY, cell.memcpy.mb_s(case.size)));
        }
        all
    }

    fn mpis(&self, cell: &Cell) -> Vec<(&'static str, Vec<Option<f64>>)> {
        let names = self.peers.iter().map(|peer| peer.kind().name());
        let values = cell.peers.iter().map(|peer| peer.mb_s(cell.case.size));
        with_best(names.zip(values).collect())
    }

    /// memcpy over each of them.
    fn ratios(&self) -> Vec<Ratio> {
        let of_cell = |cell: &Cell| ratios(cell, self.mpis(cell));
        self.cells.iter().flat_map(of_cell).collect()
    }
}

/// With the best of several.
fn with_best(
    mut peers: Vec<(&'static str, Vec<Option<f64>>)>,
) -> Vec<(&'static str, Vec<Option<f64>>)> {
    if peers.len() > 1 {
        let values: Vec<_> = peers.iter().map(|(_, values)| values.clone()).collect();
        peers.push((BEST, best(&values)));
    }
    peers
}

/// Gives each system a slice of every case in turn.
pub fn bench(arguments: options::Netpipe) -> Result<Found> {
    let sizes: Vec<usize> = arguments.sizes.iter().map(|size| size.0).collect();
    if let Some(size) = sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
        return wrong(format!("--size {size}: give 1 to {SIZE_MAX} bytes"));
    }
    check(arguments.json.as_deref(), 2)?;
    let allowed = portolan_hosts::ranks::allowed_cores().context("asking for the allowed cores")?;
    let cores = [allowed[0], allowed[1]];
    let slice_ns = arguments.slice_ms.unwrap_or(SLICE_MS_MAX) * 1_000_000;
    if arguments.buffers.contains(&Buffers::Fresh) {
        return wrong("--buffers fresh: NetPIPE has warm and cold ones only");
    }
    let cases = cases(&sizes, &arguments.buffers);
    let mut others = Others::find(&arguments.vs, true, cores, &cases, slice_ns)?;
    let mut watch = Watch::begin(None);
    watch.host.pinned = cores.map(|core| Some(core as usize)).into();
    let mut progress = Progress::new(arguments.slices);
    for round in 0..=arguments.slices {
        progress.show(round);
        for &case in &cases {
            others.slice(case, round > 0)?;
        }
    }
    progress.done();
    let mut report = watch.report("netpipe", others.rows());
    report.ratios = others.ratios();
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

/// memcpy over each of these.
fn ratios(cell: &Cell, peers: Vec<(&str, Vec<Option<f64>>)>) -> Vec<Ratio> {
    let Case { size, buffers } = cell.case;
    let ours = cell.memcpy.mb_s(size);
    let over = |(over, values): (&str, Vec<Option<f64>>)| {
        let ratio = Ratio {
            metric: "bandwidth_mb_s".to_owned(),
            size: Some(size),
            buffers: Some(buffers.name().to_owned()),
            system: MEMCPY.to_owned(),
            over: over.to_owned(),
            ..Ratio::default()
        };
        Some(ratio.with(&paired(&ours, &values)?))
    };
    peers.into_iter().filter_map(over).collect()
}

#[cfg(test)]
mod tests {
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
        let of = |at: usize| cell.peers[at].mb_s(1_000);
        let both = with_best(vec![("openmpi", of(0)), ("mpich", of(1))]);
        let found = ratios(&cell, both);
        let medians: Vec<(&str, f64)> = (found.iter())
            .map(|ratio| (ratio.over.as_str(), ratio.median))
            .collect();
        assert_eq!(medians, [("openmpi", 3.0), ("mpich", 3.0), (BEST, 2.0)]);
        assert!(found.iter().all(|it| it.buffers.as_deref() == Some("cold")));
        assert_eq!(with_best(vec![("openmpi", of(0))]).len(), 1);
        let rows = rows(&cell, "mpich", String::new(), 2, &cell.peers[1]);
        assert_eq!((rows[0].p50, rows[1].p50, rows[0].n), (312.5, 5.0, 2));
    }

    #[test]
    fn what_is_asked_for_twice_is_measured_once() {
        assert_eq!(once(&[8, 64, 8, 1, 64]), [8, 64, 1]);
    }
}
