//! From cells to a report: rows, claims and remarks.

use hdrhistogram::Histogram;

use crate::conduct::Cell;
use crate::control::{Pattern, SystemKind};
use crate::experiment::Findings;
use crate::loss::Column;
use crate::peers::{tcp, tls};
use crate::plan::{Kind, Plan};
use crate::ranks::asleep::Wait;
use crate::report::dimensions::Dimension;
use crate::report::stats::{LinearFit, Quartiles, Series, half_power};
use crate::report::table::{Ratio, Row, Tail};

/// The kernel's TCP in JSON.
pub const KERNEL_TCP: &str = "kernel-tcp";

/// What is said of the run as a whole.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The link between the ranks.
    pub link: String,
    /// `encrypt` or `none`.
    pub security: String,
    /// `auto`, `lan` or `shared`.
    pub congestion: String,
    /// Processes of the job.
    pub ranks: u32,
}

impl Setting {
    /// What all rows of ours have in common.
    pub fn row(&self) -> Row {
        self.row_of(SystemKind::Portolan, &self.link)
    }

    /// The same of endpoints outside of the job.
    pub fn standalone_row(&self) -> Row {
        self.row_of(SystemKind::Standalone, &self.link)
    }

    fn row_of(&self, system: SystemKind, link: &str) -> Row {
        Row::of(self.name(system), self.ranks)
            .at(Dimension::Link, link)
            .at(Dimension::Security, self.security.as_str())
            .at(Dimension::Congestion, self.congestion.as_str())
    }

    /// A system's name in JSON; it stays the same for ever.
    pub fn name(&self, system: SystemKind) -> String {
        match system {
            SystemKind::Portolan => format!("portolan-{}", self.link),
            SystemKind::Standalone => "portolan-standalone".to_owned(),
            SystemKind::KernelUdp => "kernel-udp".to_owned(),
            SystemKind::KernelTcp => KERNEL_TCP.to_owned(),
            SystemKind::KernelTls => "kernel-tls".to_owned(),
            SystemKind::RawXdp => "raw-xdp".to_owned(),
            SystemKind::ShmFloor | SystemKind::ShmLine => "shm-floor".to_owned(),
            SystemKind::ShmCopy => "shm-copy".to_owned(),
            SystemKind::Ucx => "ucx".to_owned(),
        }
    }
}

/// How a figure was got, in a few words.
fn method(cell: &Cell, plan: &Plan) -> String {
    let how = match (cell.op.pattern, plan.kind) {
        (Pattern::Pingpong, Kind::Latency | Kind::Jitter) => "half of each round trip",
        (Pattern::Pingpong, _) => "size over half of the mean round trip",
        (Pattern::Ping, _) => "size over the mean time until 8 bytes come back",
        (Pattern::Burst, _) => "64 messages over the mean time until 8 bytes come back",
        (Pattern::Stream, _) => "what arrived, from the first send to the last arrival",
    };
    let how = match &cell.note {
        Some(note) => note.clone(),
        None if cell.system == SystemKind::KernelTls => format!("{}: {how}", tls::METHOD),
        None => how.to_owned(),
    };
    let asleep = match plan.wait {
        Wait::Poll => "",
        Wait::Block => ", both sides asleep until a message comes",
        Wait::Call => ", both sides in blocking calls",
    };
    let offload = if plan.lossy { ", offload off" } else { "" };
    let bursts = match plan.columns[cell.column].burst {
        Some(bursts) => format!(", losses in bursts of {bursts} packets"),
        None => String::new(),
    };
    format!(
        "{how}{asleep}; interleaved slices of {} ms{offload}{bursts}",
        plan.slice_ns / 1_000_000
    )
}

/// What is said of how ranks waited; nothing where they polled.
fn told(wait: Wait) -> Option<String> {
    match wait {
        Wait::Poll => None,
        Wait::Block => Some("block".to_owned()),
        Wait::Call => Some("call".to_owned()),
    }
}

/// What all rows of a cell have in common.
pub fn row(cell: &Cell, plan: &Plan, setting: &Setting) -> Row {
    let row = match cell.system {
        SystemKind::Portolan => setting.row(),
        SystemKind::Standalone => setting.standalone_row(),
        system @ (SystemKind::KernelTcp | SystemKind::KernelTls) => {
            Row::of(setting.name(system), setting.ranks)
                .at_some(Dimension::Congestion, tcp::congestion(plan.lossy))
        }
        system => Row::of(setting.name(system), setting.ranks),
    };
    let column = &plan.columns[cell.column];
    let bandwidth = plan.kind == Kind::Bandwidth;
    row.at(Dimension::Size, cell.op.size)
        .at_some(Dimension::Loss, plan.lossy.then_some(column.loss))
        .at_some(Dimension::Bursts, column.burst.map(|it| it.to_string()))
        .at_some(Dimension::Beside, column.beside())
        .at_some(Dimension::Harm, column.harm.map(|harm| harm.to_string()))
        .at_some(Dimension::Pattern, bandwidth.then(|| name(cell.op.pattern)))
        .at_some(Dimension::Wait, told(plan.wait))
}

fn name(pattern: Pattern) -> String {
    format!("{pattern:?}").to_lowercase()
}

/// The row of each cell's figure.
fn rows(cells: &[Cell], plan: &Plan, setting: &Setting) -> Vec<Row> {
    let of_cell = |cell: &Cell| {
        let tail = |below: usize| {
            let share = below as f64 / 1e4;
            (plan.kind.times_each() && !cell.round_trips.is_empty())
                .then(|| cell.round_trips.value_at_quantile(share) as f64 / 10.0 / 1e3 / 2.0)
        };
        let metric = match cell.system {
            SystemKind::ShmLine => "line_latency_us",
            _ => plan.kind.metric(),
        };
        let row = row(cell, plan, setting);
        Some(Row {
            tail: Tail::of(tail),
            histogram: (plan.kind == Kind::Jitter).then(|| histogram(&cell.round_trips)),
            kept: kept(cell, cells, plan).map(|q| q.median),
            packets_ratio: packets(cell, plan).map(|q| q.median),
            ..row.figure(metric, &cell.values, method(cell, plan))?
        })
    };
    cells.iter().filter_map(of_cell).collect()
}

/// Buckets of a histogram within a factor of two.
const BUCKETS: f64 = 4.0;

/// How many round trips took how long one way: upper ends of buckets in us,
/// each 2^(1/4) of the one before, and counts.
fn histogram(round_trips: &Histogram<u64>) -> Vec<(f64, u64)> {
    round_trips
        .iter_log(100, 2_f64.powf(1.0 / BUCKETS))
        .map(|bucket| {
            let us = bucket.value_iterated_to() as f64 / 10.0 / 1e3 / 2.0;
            (us, bucket.count_since_last_iteration())
        })
        .skip_while(|(_, count)| *count == 0)
        .collect()
}

/// A row of a TCP flow with the kernel's congestion control, which those of a lab's
/// hosts inherit.
pub fn tcp_row(ranks: u32) -> Row {
    Row::of(KERNEL_TCP, ranks).at_some(Dimension::Congestion, tcp::congestion(true))
}

/// Data packets sent against those needed, where messages fill packets.
fn packets(cell: &Cell, plan: &Plan) -> Option<Quartiles> {
    let bandwidth = plan.kind == Kind::Bandwidth;
    bandwidth.then(|| cell.packets.quartiles()).flatten()
}

/// The same system and size without loss.
fn lossless<'a>(cell: &Cell, cells: &'a [Cell], plan: &Plan) -> Option<&'a Cell> {
    if plan.columns[cell.column].is_clean() {
        return None;
    }
    let base = plan.columns.iter().position(Column::is_clean)?;
    cells
        .iter()
        .find(|other| other.column == base && other.system == cell.system && other.op == cell.op)
}

/// Bandwidth against (1 - loss) x that of the same slice without loss.
fn kept(cell: &Cell, cells: &[Cell], plan: &Plan) -> Option<Quartiles> {
    if plan.kind != Kind::Bandwidth {
        return None;
    }
    let arrives = 1.0 - plan.columns[cell.column].loss / 100.0;
    let base = &lossless(cell, cells, plan)?.values;
    cell.values.over(&base.map(|mb_s| mb_s * arrives))
}

/// Ourselves and each peer, at each size and in each column.
pub fn besides(cells: &[Cell]) -> impl Iterator<Item = (&Cell, &Cell)> {
    let is_ours = |cell: &&Cell| cell.system == SystemKind::Portolan;
    let is_peer = |cell: &&Cell| !matches!(cell.system, SystemKind::Portolan | SystemKind::ShmLine);
    cells.iter().filter(is_ours).flat_map(move |ours| {
        let beside = move |other: &&Cell| other.column == ours.column && other.op == ours.op;
        let peers = cells.iter().filter(is_peer).filter(beside);
        peers.map(move |peer| (ours, peer))
    })
}

/// The figure with losses in bursts against that of the same slice with as many
/// single losses.
fn against_single(cell: &Cell, cells: &[Cell], plan: &Plan) -> Option<Quartiles> {
    let column = plan.columns[cell.column];
    column.burst?;
    let single = Column::losing(column.loss, None);
    let alike = |other: &&Cell| {
        plan.columns[other.column] == single && other.system == cell.system && other.op == cell.op
    };
    cell.values.over(&cells.iter().find(alike)?.values)
}

/// Every figure, what becomes of a sweep, and claims: ourselves over each peer,
/// each column with loss over the one without, and losses in bursts over single
/// ones.
pub fn findings(cells: &[Cell], plan: &Plan, setting: &Setting) -> Findings {
    let mut found = Findings {
        rows: rows(cells, plan, setting),
        ..Findings::default()
    };
    found.extend(curves(cells, plan, setting));
    let (ratios, metric) = (&mut found.ratios, plan.kind.metric());
    let of = |metric: &str, cell: &Cell, over: &Cell, q: Option<Quartiles>| {
        q.map(|q| ratio(metric, cell, over, plan, setting).with(&q))
    };
    for (ours, peer) in besides(cells) {
        ratios.extend(of(metric, ours, peer, ours.values.over(&peer.values)));
    }
    for cell in cells {
        let bursts = format!("{metric}_bursts");
        let packets = packets(cell, plan).filter(|_| plan.lossy);
        ratios.extend(of("goodput_kept", cell, cell, kept(cell, cells, plan)));
        ratios.extend(of(&bursts, cell, cell, against_single(cell, cells, plan)));
        ratios.extend(of("packets_ratio", cell, cell, packets));
    }
    found
}

/// The figure beside what else goes on over that of the same slice alone.
pub fn beside(cells: &[Cell], plan: &Plan, setting: &Setting) -> Vec<Ratio> {
    let metric = format!("{}_beside", plan.kind.metric());
    let disturbed = |cell: &&Cell| plan.columns[cell.column].beside().is_some();
    let of_cell = |cell: &Cell| {
        let q = cell.values.over(&lossless(cell, cells, plan)?.values)?;
        Some(ratio(&metric, cell, cell, plan, setting).with(&q))
    };
    cells.iter().filter(disturbed).filter_map(of_cell).collect()
}

/// What a ratio of `ours` over another cell says of both.
pub fn ratio(metric: &str, ours: &Cell, over: &Cell, plan: &Plan, setting: &Setting) -> Ratio {
    let row = row(ours, plan, setting);
    [
        Dimension::Loss,
        Dimension::Bursts,
        Dimension::Harm,
        Dimension::Beside,
        Dimension::Wait,
    ]
    .into_iter()
    .fold(
        row.ratio(metric, &setting.name(over.system)),
        |ratio, dimension| ratio.likewise(dimension, &row),
    )
}

/// Half-power point and linear fit of each system of a sweep: rows of their
/// own, and a remark to read.
fn curves(cells: &[Cell], plan: &Plan, setting: &Setting) -> Findings {
    let mut found = Findings::default();
    if plan.kind != Kind::Bandwidth || plan.sizes.len() < 3 {
        return found;
    }
    for &system in &plan.systems {
        let of_system: Vec<&Cell> = cells.iter().filter(|cell| cell.system == system).collect();
        let curve = |slice: usize| -> Option<Vec<(f64, f64)>> {
            of_system
                .iter()
                .map(|cell| Some((cell.op.size as f64, (*cell.values.values.get(slice)?)?)))
                .collect()
        };
        let curves: Vec<Vec<(f64, f64)>> = (0..plan.slices).filter_map(curve).collect();
        let times = |curve: &Vec<(f64, f64)>| -> Option<LinearFit> {
            LinearFit::fit(
                &curve
                    .iter()
                    .map(|&(size, mb_s)| (size, size / mb_s))
                    .collect::<Vec<_>>(),
            )
        };
        let lines: Vec<LinearFit> = curves.iter().filter_map(times).collect();
        let half: Vec<f64> = curves.iter().filter_map(|it| half_power(it)).collect();
        let of_lines = |of: fn(&LinearFit) -> f64| lines.iter().map(of).collect::<Vec<f64>>();
        let row = Row::of(setting.name(system), setting.ranks);
        let row = row.at(Dimension::Pattern, name(plan.pattern));
        let mut medians = Vec::new();
        for (metric, values) in [
            ("half_power_bytes", half),
            ("fit_start_us", of_lines(|line| line.start_us)),
            ("fit_bandwidth_mb_s", of_lines(|line| line.mb_s)),
            (
                "fit_half_power_bytes",
                of_lines(|line| line.start_us * line.mb_s),
            ),
        ] {
            let method =
                "over all sizes of a slice; fit of the relative error of the time per message";
            if let Some(row) = row.figure(metric, &Series::from(values), method) {
                medians.push(row.p50);
                found.rows.push(row);
            }
        }
        if let [half, start, bandwidth, fitted] = medians[..] {
            found.remarks.push(format!(
                "{}: half of the best bandwidth from {half:.0} bytes on; time per message fits {start:.2} us + size / {bandwidth:.0} MB/s, half-power point {fitted:.0} bytes",
                setting.name(system)
            ));
        }
    }
    found
}

/// Reads the claim about the 99th percentile of round trips under loss.
pub fn tail_remarks(rows: &[Row]) -> Vec<String> {
    let ours = || {
        let of = |row: &Row| row.dimensions.number(Dimension::Loss);
        let ours = rows
            .iter()
            .filter(|row| row.dimensions.get(Dimension::Link).is_some());
        ours.filter_map(move |row| Some((row, of(row)?)))
    };
    let Some((free, _)) = ours().find(|(_, loss)| *loss == 0.0) else {
        return Vec::new();
    };
    let Some(free_p99_5) = free.tail.p99_5 else {
        return Vec::new();
    };
    let judged = |(row, loss): (&Row, f64)| {
        let (round_trip, bound) = (2.0 * row.tail.p99?, 4.0 * free.p50 + 100.0);
        let judged = match (2.0 * free_p99_5 < 50.0, round_trip <= bound) {
            (false, _) => "too unquiet a machine to judge",
            (true, true) => "kept",
            (true, false) => "exceeded",
        };
        Some(format!(
            "{}: p99 of the round trip at {loss} % loss {round_trip:.1} us; two loss-free ones + 100 us are {bound:.1} us ({judged}; loss-free p99.5 {:.1} us, below 50 to judge)",
            row.system,
            2.0 * free_p99_5
        ))
    };
    ours()
        .filter(|(_, loss)| *loss > 0.0)
        .filter_map(judged)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Op;
    use crate::ranks::drive::new_histogram;
    use crate::report::dimensions::Dimensions;

    fn plan(kind: Kind, sizes: &[usize], losses: &[f64], systems: &[SystemKind]) -> Plan {
        Plan {
            kind,
            pattern: if kind == Kind::Latency {
                Pattern::Pingpong
            } else {
                Pattern::Stream
            },
            sizes: sizes.to_vec(),
            columns: losses
                .iter()
                .map(|&loss| Column::losing(loss, None))
                .collect(),
            lossy: losses.len() > 1,
            wait: Wait::Poll,
            settings: Vec::new(),
            systems: systems.to_vec(),
            slices: 21,
            slice_ns: 100_000_000,
        }
    }

    fn cell(plan: &Plan, system: SystemKind, size: usize, column: usize, value: f64) -> Cell {
        let op = Op {
            pattern: plan.pattern,
            size,
        };
        let mut cell = Cell::new(system, column, op, 0);
        cell.values = Series::from(vec![value; plan.slices]);
        cell
    }

    fn setting() -> Setting {
        Setting {
            link: "udp".into(),
            security: "encrypt".into(),
            congestion: "auto".into(),
            ranks: 2,
        }
    }

    #[test]
    fn peers_are_divisors_and_the_line_is_none() {
        let systems = [
            SystemKind::Portolan,
            SystemKind::ShmFloor,
            SystemKind::ShmLine,
        ];
        let plan = plan(Kind::Latency, &[8], &[0.0], &systems);
        let mut cells: Vec<Cell> = [0.12, 0.1, 0.06]
            .iter()
            .zip(systems)
            .map(|(&v, system)| cell(&plan, system, 8, 0, v))
            .collect();
        cells[0].round_trips.record_n(2_400, 1_000).unwrap();
        let Findings { rows, ratios, .. } = findings(&cells, &plan, &setting());
        assert_eq!(ratios.len(), 1);
        let loss = ratios[0].dimensions.get(Dimension::Loss);
        assert_eq!(
            (ratios[0].over.as_str(), ratios[0].noisy, loss),
            ("shm-floor", false, None)
        );
        assert!((ratios[0].median - 1.2).abs() < 1e-12);
        assert_eq!((rows[0].p50, rows[0].slices), (0.12, 21));
        assert!((rows[0].tail.p99.unwrap() - 0.12).abs() < 1e-3);
        assert_eq!(
            (
                rows[2].system.as_str(),
                rows[2].metric.as_str(),
                rows[2].tail.p99
            ),
            ("shm-floor", "line_latency_us", None)
        );
        assert_eq!(new_histogram().len(), 0);
    }

    #[test]
    fn loss_is_set_against_the_column_without() {
        let systems = [SystemKind::Portolan, SystemKind::KernelTcp];
        let plan = plan(Kind::Bandwidth, &[1 << 20], &[0.0, 20.0], &systems);
        let mut cells = Vec::new();
        for (column, values) in [[1000.0, 900.0], [600.0, 1.0]].iter().enumerate() {
            for (&value, system) in values.iter().zip(systems) {
                cells.push(cell(&plan, system, 1 << 20, column, value));
            }
        }
        cells[2].packets = Series::from([1.05; 21]);
        let Findings { rows, ratios, .. } = findings(&cells, &plan, &setting());
        let at = |it: &Dimensions| it.number(Dimension::Loss);
        let found = |metric: &str, system: &str| {
            ratios
                .iter()
                .find(|r| {
                    r.metric == metric && r.system == system && at(&r.dimensions) == Some(20.0)
                })
                .map(|r| r.median)
        };
        assert_eq!(found("goodput_kept", "portolan-udp"), Some(0.75));
        assert_eq!(found("bandwidth_mb_s", "portolan-udp"), Some(600.0));
        assert_eq!(found("packets_ratio", "portolan-udp"), Some(1.05));
        assert_eq!(
            (rows[2].kept, rows[2].packets_ratio, at(&rows[2].dimensions)),
            (Some(0.75), Some(1.05), Some(20.0))
        );
        assert_eq!((rows[0].kept, at(&rows[0].dimensions)), (None, Some(0.0)));
    }

    #[test]
    fn bursts_are_set_against_as_many_single_losses() {
        let mut plan = plan(
            Kind::Bandwidth,
            &[1 << 20],
            &[0.0, 5.0, 5.0],
            &[SystemKind::Portolan],
        );
        plan.columns[2].burst = Some("3-64".parse().unwrap());
        let values = [100.0, 90.0, 72.0].into_iter().enumerate();
        let cells: Vec<Cell> = values
            .map(|(column, value)| cell(&plan, SystemKind::Portolan, 1 << 20, column, value))
            .collect();
        let ratios = findings(&cells, &plan, &setting()).ratios;
        let bursts: Vec<&Ratio> = ratios
            .iter()
            .filter(|r| r.metric == "bandwidth_mb_s_bursts")
            .collect();
        assert_eq!(bursts.len(), 1);
        let at = &bursts[0].dimensions;
        assert_eq!(
            (bursts[0].median, at.number(Dimension::Loss)),
            (0.8, Some(5.0))
        );
        assert_eq!(at.plain(Dimension::Bursts), "3-64");
    }

    #[test]
    fn a_sweep_is_fitted() {
        let sizes = [8, 1_000, 100_000, 1_000_000];
        let plan = plan(Kind::Bandwidth, &sizes, &[0.0], &[SystemKind::Portolan]);
        let cells: Vec<Cell> = sizes
            .iter()
            .map(|&size| {
                cell(
                    &plan,
                    SystemKind::Portolan,
                    size,
                    0,
                    size as f64 / (2.0 + size as f64 / 500.0),
                )
            })
            .collect();
        let Findings { rows, remarks, .. } = curves(&cells, &plan, &setting());
        let p50 = |metric: &str| rows.iter().find(|row| row.metric == metric).unwrap().p50;
        assert!((p50("fit_start_us") - 2.0).abs() < 1e-6);
        assert!((p50("fit_bandwidth_mb_s") - 500.0).abs() < 1e-6);
        assert!((p50("fit_half_power_bytes") - 1000.0).abs() < 1e-3);
        assert!(
            (900.0..1100.0).contains(&p50("half_power_bytes")),
            "{}",
            p50("half_power_bytes")
        );
        assert_eq!(remarks.len(), 1);
    }

    #[test]
    fn the_tail_under_loss_is_judged_on_a_quiet_machine_only() {
        let row = |loss: f64, p50: f64, p99: f64, p99_5: f64| Row {
            p50,
            tail: Tail {
                p99: Some(p99),
                p99_5: Some(p99_5),
                ..Tail::default()
            },
            ..setting().row().at(Dimension::Loss, loss)
        };
        let judged = |free_p99_5: f64, p99: f64| {
            tail_remarks(&[row(0.0, 6.0, 9.0, free_p99_5), row(1.0, 6.0, p99, 99.0)])
        };
        assert!(judged(10.0, 60.0)[0].contains("(kept"));
        assert!(judged(10.0, 63.0)[0].contains("(exceeded"));
        assert!(judged(25.0, 60.0)[0].contains("unquiet"));
        assert!(tail_remarks(&[row(1.0, 6.0, 60.0, 99.0)]).is_empty());
    }
}
