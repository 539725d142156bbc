//! What messages cost the processes that exchange them: processor time, and
//! how often they went to sleep.

use portolan_sys::clock::process_cpu_ns;
use portolan_sys::process::thread_sleeps;
use serde::{Deserialize, Serialize};

use crate::conduct::Cell;
use crate::control::{Op, Pattern};
use crate::plan::{Kind, Plan};
use crate::report::figure::Slice;
use crate::report::stats::Series;
use crate::report::summary::{Setting, besides, ratio, row};
use crate::report::table::{Ratio, Row};

/// Processor time of a message, us.
pub const OF_MESSAGE: &str = "cpu_us";
/// Processor time of a million bytes, us.
pub const OF_MEGABYTE: &str = "cpu_us_per_mb";
/// Sleeps of a message.
const SLEEPS: &str = "sleeps";

/// Metrics that stand in a column beside the figure that they belong to, with
/// the column's title.
pub const COLUMNS: [(&str, &str); 3] = [
    (OF_MESSAGE, "cpu us"),
    (OF_MEGABYTE, "cpu us/MB"),
    (SLEEPS, "sleeps"),
];

/// What a process has spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Processor time of all threads, ns.
    pub cpu_ns: u64,
    /// How often the thread that measures gave up its core to wait.
    pub sleeps: u64,
}

impl Cost {
    /// Since the process and the thread began.
    #[must_use]
    pub fn now() -> Self {
        Self {
            cpu_ns: process_cpu_ns(),
            sleeps: thread_sleeps(),
        }
    }

    /// Since then, by the same thread.
    #[must_use]
    pub fn until_now(&self) -> Self {
        let now = Self::now();
        Self {
            cpu_ns: now.cpu_ns - self.cpu_ns,
            sleeps: now.sleeps - self.sleeps,
        }
    }
}

/// What both processes spent of one figure, where it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Processor time, us: of a message or, where bytes are counted, of a
    /// million of them.
    cpu_us: Series,
    /// Sleeps of a message.
    sleeps: Series,
}

impl Costs {
    /// Another slice.
    pub fn keep(&mut self, kind: Kind, op: &Op, slice: &Slice) {
        let ways = if op.pattern == Pattern::Pingpong {
            2
        } else {
            1
        };
        // What has arrived: nothing else is worth its cost.
        let bytes = slice.followed.bytes * ways;
        let messages = bytes as f64 / op.size as f64;
        let units = match kind {
            Kind::Bandwidth => bytes as f64 / 1e6,
            Kind::Latency | Kind::Rate | Kind::Jitter => messages,
        };
        let both = slice.led.cost.zip(slice.followed.cost);
        let both = both.filter(|_| bytes > 0);
        let cpu_us = both.map(|(a, b)| (a.cpu_ns + b.cpu_ns) as f64 / 1e3 / units);
        let sleeps = both.map(|(a, b)| (a.sleeps + b.sleeps) as f64 / messages);
        self.cpu_us.values.push(cpu_us);
        self.sleeps.values.push(sleeps);
    }
}

/// How processor time is counted, and of what it is.
fn cpu_of(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Bandwidth => (OF_MEGABYTE, "a million bytes"),
        Kind::Latency | Kind::Rate | Kind::Jitter => (OF_MESSAGE, "a message"),
    }
}

/// A row of each cost of each cell.
pub fn rows(cells: &[Cell], plan: &Plan, setting: &Setting) -> Vec<Row> {
    let (metric, unit) = cpu_of(plan.kind);
    let cpu = format!("processor time of both processes for {unit} that arrived");
    let sleeps = "how often both processes slept for a message that arrived";
    let of_cell = |cell: &Cell| {
        let row = row(cell, plan, setting);
        let cpu = row.figure(metric, &cell.costs.cpu_us, cpu.as_str());
        let sleeps = row.figure(SLEEPS, &cell.costs.sleeps, sleeps);
        let rows = [cpu, sleeps.filter(|_| plan.wait.may_sleep())];
        let n = cell.values.n;
        rows.into_iter().flatten().map(move |row| Row { n, ..row })
    };
    cells.iter().flat_map(of_cell).collect()
}

/// Our processor time over that of each peer.
pub fn ratios(cells: &[Cell], plan: &Plan, setting: &Setting) -> Vec<Ratio> {
    let of = |(ours, peer): (&Cell, &Cell)| {
        let q = ours.costs.cpu_us.over(&peer.costs.cpu_us)?;
        Some(ratio(cpu_of(plan.kind).0, ours, peer, plan, setting).with(&q))
    };
    besides(cells).filter_map(of).collect()
}

/// Whether a row says what the figure of another costs.
#[must_use]
pub fn is_cost(row: &Row) -> bool {
    COLUMNS.iter().any(|(metric, _)| row.metric == *metric)
}

/// A cost of `figure`, where that is the first of its system at its point.
#[must_use]
pub fn of(rows: &[Row], figure: &Row, metric: &str) -> Option<f64> {
    let alike = |row: &&Row| (&row.system, &row.dimensions) == (&figure.system, &figure.dimensions);
    let first = rows.iter().filter(alike).find(|row| !is_cost(row))?;
    let cost = rows.iter().filter(alike).find(|row| row.metric == metric)?;
    (first == figure).then_some(cost.p50)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Followed, Led};
    use crate::report::dimensions::Dimension;

    fn slice(bytes: u64) -> Slice {
        let cost = |cpu_ns, sleeps| Some(Cost { cpu_ns, sleeps });
        Slice {
            led: Led {
                cost: cost(3_000_000, 70),
                ..Led::default()
            },
            followed: Followed {
                bytes,
                cost: cost(1_000_000, 130),
                ..Followed::default()
            },
            ..Slice::default()
        }
    }

    fn costs(kind: Kind, pattern: Pattern, slice: &Slice) -> (Option<f64>, Option<f64>) {
        let mut costs = Costs::default();
        costs.keep(kind, &Op { pattern, size: 8 }, slice);
        (costs.cpu_us.values[0], costs.sleeps.values[0])
    }

    #[test]
    fn both_ranks_pay_for_what_arrived() {
        // 100 messages there, and as many back.
        let found = costs(Kind::Latency, Pattern::Pingpong, &slice(800));
        assert_eq!(found, (Some(20.0), Some(1.0)));
        let found = costs(Kind::Rate, Pattern::Stream, &slice(800));
        assert_eq!(found, (Some(40.0), Some(2.0)));
        let found = costs(Kind::Bandwidth, Pattern::Stream, &slice(2_000_000));
        assert_eq!(found, (Some(2_000.0), Some(200.0 / 250_000.0)));
    }

    #[test]
    fn what_is_not_known_or_brought_nothing_has_no_cost() {
        let none = costs(Kind::Latency, Pattern::Pingpong, &slice(0));
        assert_eq!(none, (None, None));
        let other = Slice {
            led: Led::default(),
            ..slice(800)
        };
        let none = costs(Kind::Latency, Pattern::Pingpong, &other);
        assert_eq!(none, (None, None));
    }

    #[test]
    fn a_cost_stands_beside_its_first_figure() {
        let row = |system: &str, metric: &str, size: u32, p50| Row {
            metric: metric.to_owned(),
            p50,
            ..Row::of(system, 2).at(Dimension::Size, size)
        };
        let rows = [
            row("ours", "goodput_mb_s", 8, 1.0),
            row("ours", "message_us", 8, 2.0),
            row("tcp", "goodput_mb_s", 8, 3.0),
            row("ours", "goodput_mb_s", 64, 4.0),
            row("ours", OF_MEGABYTE, 8, 5.0),
            row("ours", OF_MEGABYTE, 64, 6.0),
        ];
        let found = rows[..4].iter().map(|row| of(&rows, row, OF_MEGABYTE));
        let found: Vec<Option<f64>> = found.collect();
        assert_eq!(found, [Some(5.0), None, None, Some(6.0)]);
    }
}
