//! One-sided memory by size: puts and gets, beside messages by a port.

use clap::Args;
use portolan_hosts::failure::Result;

use crate::control::ControlLine;
use crate::experiment::{Experiment, Findings, Stage, rounds};
use crate::options::{Common, Sizes};
use crate::pace::{Timed, fit_timed};
use crate::peers::netpipe::SIZE_MAX;
use crate::plan::slice_of;
use crate::ranks::matched::{Act, ExchangeSlice};
use crate::ranks::rma_regions::MARK_BYTES;
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::table::{Ratio, Row};

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
    /// Of a get the round trip, of what one rank does alone its time, else one
    /// way.
    timed: Timed,
}

impl Cell {
    fn new(act: Act, size: usize) -> Self {
        Self {
            act,
            size,
            timed: Timed::new(),
        }
    }

    /// What is told of it; `None` where it is no figure of this act's.
    fn values(&self, metric: &str) -> Option<Series> {
        let us = &self.timed.us;
        match (metric, self.act) {
            (LATENCY, Act::Put | Act::Port)
            | (ROUND_TRIP, Act::Get)
            | (REGISTER, Act::Register) => Some(us.clone()),
            (ROUND_TRIP, Act::Port) => Some(us.map(|us| 2.0 * us)),
            (BANDWIDTH, Act::Put | Act::Get | Act::Port) => Some(self.timed.mb_s(self.size)),
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

    /// What its rows have in common.
    fn row(&self, ours: &Row) -> Row {
        let row = Row {
            system: self.system(&ours.system),
            ..ours.clone()
        };
        row.at(Dimension::Size, self.size)
    }

    fn rows(&self, ours: &Row, slice_ns: u64) -> Vec<Row> {
        let time = match self.act {
            Act::Put => {
                "half of a round trip in which each side waits until the other's put shows in its \
                 memory"
            }
            Act::Get => "from posting the get until its end",
            Act::Register => "registering memory of this size and ending that, with all rights",
            _ => "half of the round trip of messages by a port",
        };
        let method = format!(
            "{time}, mean of the middle 80 % of each of the interleaved slices of {} ms",
            slice_ns / 1_000_000
        );
        let row = self.row(ours);
        let figure = |metric| row.figure(metric, &self.values(metric)?, method.as_str());
        [LATENCY, ROUND_TRIP, REGISTER, BANDWIDTH]
            .into_iter()
            .filter_map(figure)
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
        let (row, port_system) = (cell.row(ours), port.system(&ours.system));
        let over = |metric| {
            let (values, of_port) = (cell.values(metric)?, port.values(metric)?);
            row.over(metric, &values, &port_system, &of_port)
        };
        all.extend(
            [LATENCY, ROUND_TRIP, BANDWIDTH]
                .into_iter()
                .filter_map(over),
        );
    }
    all
}

/// Its own words for `--size`.
const SIZES_HELP: &str =
    "Sizes of an access, 8 bytes or more, or with K or M; several are measured in turns";

/// As it was asked for.
#[derive(Args)]
#[command(mut_arg("sizes", |sizes| sizes.help(SIZES_HELP)))]
pub struct Rma {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    sizes: Sizes,
}

impl Experiment for Rma {
    /// Gives each figure its turns.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let common = &self.common;
        let sizes = self.sizes.within(MARK_BYTES..=SIZE_MAX)?;
        let lab = stage.lab_of_two()?;
        let of_size = |size: &usize| ACTS.map(|act| Cell::new(act, *size));
        let mut cells: Vec<Cell> = sizes.iter().flat_map(of_size).collect();
        let slices = common.slices();
        let slice_ns = common.slice_ns(slice_of(cells.len(), slices));
        let spec = common.spec(lab.as_ref(), 2)?;
        let (link, ()) = stage.job(spec, |lines: &mut [ControlLine]| {
            rounds(slices, |counts| {
                fit_timed(cells.iter_mut().map(|it| &mut it.timed), slice_ns, slices);
                for cell in &mut cells {
                    let both = matches!(cell.act, Act::Put | Act::Port);
                    let slice = (ExchangeSlice::of(cell.act, cell.size), 1 + u64::from(both));
                    cell.timed.slice(lines, slice_ns, slice, counts)?;
                }
                Ok(())
            })
        })?;
        let ours = common.setting(link, 2).row();
        let rows = cells.iter().flat_map(|cell| cell.rows(&ours, slice_ns));
        Ok(Findings {
            rows: rows.collect(),
            ratios: ratios(&cells, &ours),
            remarks: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_get_stands_over_a_round_trip_and_a_put_over_one_way() {
        let of = |act, size, us| {
            let mut cell = Cell::new(act, size);
            cell.timed.us = Series::from([us]);
            cell
        };
        let cell = |act, us| of(act, 100, us);
        // Messages of another size are no match.
        let other = of(Act::Port, 99, 77.0);
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
