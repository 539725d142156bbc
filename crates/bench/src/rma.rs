//! One-sided memory by size: puts and gets, beside messages by a port.

use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::Result;

use super::conduct::Progress;
use super::control::Line;
use super::job::{Helpers, with_lines};
use super::matched::{Act, Exchange};
use super::mpis::once;
use super::netpipe::SIZE_MAX;
use super::options::Common;
use super::pace::{Pace, fit};
use super::plan::{slice_of, wrong};
use super::reach::MARK_BYTES;
use super::report::{Ratio, Report, Row};
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check, lab_of_two, through_shm};

/// What is done with each size, in this order.
const ACTS: [Act; 4] = [Act::Put, Act::Get, Act::Register, Act::Port];

const LATENCY: &str = "latency_us";
const ROUND_TRIP: &str = "round_trip_us";
const REGISTER: &str = "register_us";
const BANDWIDTH: &str = "bandwidth_mb_s";

/// One act with one size, and its slices.
struct Cell {
    act: Act,
    size: usize,
    pace: Pace,
    /// Of a get the round trip, of what one rank does alone its time, else one
    /// way; of each slice that counts.
    us: Vec<f64>,
    n: u64,
}

impl Cell {
    const fn new(act: Act, size: usize) -> Self {
        Self {
            act,
            size,
            pace: Pace::new(),
            us: Vec::new(),
            n: 0,
        }
    }

    fn slice(&mut self, lines: &mut [Line], slice_ns: u64, counts: bool) -> Result<()> {
        let slice = Exchange::of(self.act, self.size);
        let (slice, [said, _]) = self.pace.slice(lines, slice_ns, slice)?;
        if counts {
            self.us.push(said.us);
            let both = matches!(self.act, Act::Put | Act::Port);
            self.n += slice.count * (1 + u64::from(both));
        }
        Ok(())
    }

    /// What is told of it; `None` where it is no figure of this act's.
    fn values(&self, metric: &str) -> Option<Vec<Option<f64>>> {
        let of = |value: fn(f64, f64) -> f64| {
            let size = self.size as f64;
            Some(self.us.iter().map(|us| Some(value(*us, size))).collect())
        };
        match (metric, self.act) {
            (LATENCY, Act::Put | Act::Port)
            | (ROUND_TRIP, Act::Get)
            | (REGISTER, Act::Register) => of(|us, _| us),
            (ROUND_TRIP, Act::Port) => of(|us, _| 2.0 * us),
            (BANDWIDTH, Act::Put | Act::Get | Act::Port) => of(|us, size| size / us),
            _ => None,
        }
    }

    fn system(&self, ours: &str) -> String {
        let what = match self.act {
            Act::Put => "put",
            Act::Get => "get",
            Act::Register => "register",
            _ => "port",
        };
        format!("{ours}-{what}")
    }

    fn row(&self, ours: &Row, metric: &str, slice_ns: u64) -> Row {
        let time = match self.act {
            Act::Put => {
                "half of a round trip in which each side waits until the other's put shows in its \
                 memory"
            }
            Act::Get => "from posting the get until its end",
            Act::Register => "registering memory of this size and ending that, with all rights",
            _ => "half of the round trip of messages by a port",
        };
        Row {
            system: self.system(&ours.system),
            metric: metric.to_owned(),
            size: Some(self.size),
            n: self.n,
            method: format!(
                "{time}, mean of the middle 80 % of each of the interleaved slices of {} ms",
                slice_ns / 1_000_000
            ),
            ..ours.clone()
        }
    }

    fn rows(&self, ours: &Row, slice_ns: u64) -> Vec<Row> {
        let row = |metric| {
            let values: Vec<f64> = self.values(metric)?.into_iter().flatten().collect();
            Some((self.row(ours, metric, slice_ns)).with(&Quartiles::of(&values)?))
        };
        [LATENCY, ROUND_TRIP, REGISTER, BANDWIDTH]
            .into_iter()
            .filter_map(row)
            .collect()
    }
}

/// Puts and gets over the port, of the same size and slice.
fn ratios(cells: &[Cell], ours: &Row) -> Vec<Ratio> {
    let mut all = Vec::new();
    for cell in cells.iter().filter(|cell| cell.act != Act::Port) {
        let port = |it: &&Cell| it.act == Act::Port && it.size == cell.size;
        let Some(port) = cells.iter().find(port) else {
            continue;
        };
        for metric in [LATENCY, ROUND_TRIP, BANDWIDTH] {
            if let (Some(values), Some(over)) = (cell.values(metric), port.values(metric))
                && let Some(q) = paired(&values, &over)
            {
                let row = cell.row(ours, metric, 0);
                all.push(row.over(metric, &port.system(&ours.system)).with(&q));
            }
        }
    }
    all
}

/// Gives each figure its turns.
pub fn bench(common: Common, sizes: &[Bytes]) -> Result<Found> {
    let sizes = once(&sizes.iter().map(|size| size.0).collect::<Vec<_>>());
    if let Some(size) = (sizes.iter()).find(|size| !(MARK_BYTES..=SIZE_MAX).contains(*size)) {
        return wrong(format!(
            "--size {size}: give {MARK_BYTES} to {SIZE_MAX} bytes"
        ));
    }
    check(common.json.as_deref(), 2)?;
    let lab = lab_of_two(&common)?;
    let shm = through_shm(&common, lab.as_ref())?;
    let of_size = |size: &usize| ACTS.map(|act| Cell::new(act, *size));
    let mut cells: Vec<Cell> = sizes.iter().flat_map(of_size).collect();
    let slices = common.slices();
    let slice_ns = match common.slice_ms {
        Some(ms) => ms * 1_000_000,
        None => slice_of(cells.len(), slices),
    };
    let spec = common.spec(2, lab.is_some(), shm)?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let measure = |lines: &mut [Line]| {
        let mut progress = Progress::new(slices);
        for round in 0..=slices {
            progress.show(round);
            fit(
                cells.iter_mut().map(|cell| &mut cell.pace),
                slice_ns,
                slices,
            );
            for cell in &mut cells {
                cell.slice(lines, slice_ns, round > 0)?;
            }
        }
        progress.done();
        Ok(())
    };
    let (link, ()) = with_lines(spec, lab.as_ref(), Helpers::All, &mut watch.host, measure)?;
    let ours = common.setting(link, 2).row();
    let rows = (cells.iter())
        .flat_map(|cell| cell.rows(&ours, slice_ns))
        .collect();
    let report = Report {
        ratios: ratios(&cells, &ours),
        ..watch.report("rma", rows)
    };
    Ok((common.json, report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_get_stands_over_a_round_trip_and_a_put_over_one_way() {
        let cell = |act, us| Cell {
            us: vec![us],
            n: 1,
            ..Cell::new(act, 100)
        };
        // Messages of another size are no match.
        let other = Cell {
            us: vec![77.0],
            ..Cell::new(Act::Port, 99)
        };
        let cells = [
            other,
            cell(Act::Put, 3.0),
            cell(Act::Get, 5.0),
            cell(Act::Register, 0.5),
            cell(Act::Port, 2.0),
        ];
        let ours = Row {
            system: "portolan-xdp".to_owned(),
            ..Row::default()
        };
        let found: Vec<_> = ratios(&cells, &ours)
            .into_iter()
            .map(|it| (it.system, it.metric, it.over, it.median))
            .collect();
        let of = |act: &str, metric: &str, median| {
            let system = format!("portolan-xdp-{act}");
            (
                system,
                metric.to_owned(),
                "portolan-xdp-port".to_owned(),
                median,
            )
        };
        assert_eq!(
            found,
            [
                of("put", LATENCY, 1.5),
                of("put", BANDWIDTH, 100.0 / 3.0 / 50.0),
                of("get", ROUND_TRIP, 1.25),
                of("get", BANDWIDTH, 0.4),
            ]
        );
        let registers = cells[3].rows(&ours, 1_000_000);
        assert_eq!((registers.len(), registers[0].p50), (1, 0.5));
        let rows = cells[4].rows(&ours, 1_000_000);
        let told: Vec<_> = rows
            .iter()
            .map(|row| (row.metric.as_str(), row.p50))
            .collect();
        assert_eq!(told, [(LATENCY, 2.0), (ROUND_TRIP, 4.0), (BANDWIDTH, 50.0)]);
    }
}
