//! Many to one (`incast`) and all to all (`alltoall`): long messages between
//! the hosts of a lab, beside kernel TCP in the same lab.

use clap::Args;
use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::{Result, fail};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;

use crate::conduct::{answer, answers, introduce, say_all};
use crate::control::{ControlLine, Order, SystemKind};
use crate::experiment::{Experiment, Findings, Stage, rounds};
use crate::options::{Common, check_sizes, check_tcp_only};
use crate::plan::Peer;
use crate::ranks::flood::{Flooded, Matched, Role, Turn};
use crate::ranks::rank::Site;
use crate::report::cost;
use crate::report::dimensions::Dimension;
use crate::report::stats::{Quartiles, Series, below};
use crate::report::summary::KERNEL_TCP;
use crate::report::table::{Ratio, Row, Tail};
use crate::slice::SLICE_MS_MAX;

/// Bounds of a message's size, bytes: longer than a packet of any kind, so
/// that it is pulled; and so short that a slice has some.
const SIZES: std::ops::RangeInclusive<usize> = 16 << 10..=4 << 20;
/// Time between the order and the start of a slice, nanoseconds: all have
/// heard it by then.
const LEAD_NS: u64 = 5_000_000;

/// What the line is called that goodput is a share of, in ratios.
const LINE: &str = "line";
/// Likewise the time of a message where all senders have equal shares of it.
const FAIR_SHARE: &str = "fair-share";
/// Messages of each sender in a slice, where the slice's length is free: with
/// seven senders the median of the slices' slowest is the 99th percentile.
const MESSAGES: u64 = 10;
/// Longest slice, nanoseconds.
const SLICE_NS_MAX: u64 = 2_000_000_000;
/// All slices together, nanoseconds.
const BUDGET_NS: u64 = 40_000_000_000;

/// Who sends to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All others to rank 0.
    Incast,
    /// Each to all others.
    Alltoall,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Incast => "incast",
            Self::Alltoall => "alltoall",
        }
    }

    /// Hosts that receive, and senders to each.
    fn counts(self, ranks: u32) -> [u32; 2] {
        match self {
            Self::Incast => [1, ranks - 1],
            Self::Alltoall => [ranks, ranks - 1],
        }
    }

    fn sends(self, from: u32, to: u32) -> bool {
        from != to && (self == Self::Alltoall || to == 0)
    }
}

/// What the lines could do.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ideal {
    /// Millions of bytes per second that all receivers' lines carry.
    mb_s: f64,
    /// Time of a message while all senders to its receiver have equal shares of
    /// the line, us.
    message_us: f64,
}

impl Ideal {
    fn of(shape: Shape, ranks: u32, size: usize, bits_per_s: u64) -> Self {
        let [receivers, senders] = shape.counts(ranks).map(f64::from);
        let line_mb_s = bits_per_s as f64 / 8e6;
        Self {
            mb_s: line_mb_s * receivers,
            message_us: senders * size as f64 / line_mb_s,
        }
    }

    /// How long a slice should be, of so many.
    fn slice_ns(&self, slices: usize, systems: usize) -> u64 {
        let wanted = (self.message_us * 1e3) as u64 * MESSAGES;
        let rounds = ((slices + 1) * systems) as u64;
        let most = (BUDGET_NS / rounds).min(SLICE_NS_MAX);
        wanted.min(most).max(SLICE_MS_MAX * 1_000_000)
    }
}

/// A system's slices.
#[derive(Default)]
struct Column {
    /// Millions of bytes per second, of all senders.
    goodput: Series,
    /// Median time of a message in a slice, us.
    medians: Series,
    /// 99th percentile of a slice, us.
    p99: Series,
    /// Processor time of all ranks for a million bytes, us.
    cpu_us: Series,
    /// Times of all messages, us.
    times: Vec<f64>,
    /// Packets that the switch's full ports dropped, in all slices.
    dropped: u64,
}

impl Column {
    fn keep(&mut self, turn: &Turn, flooded: &[Flooded], cpu_ns: u64, size: usize) {
        let times = flooded.iter().flat_map(|one| &one.times_ns);
        let mut times: Vec<f64> = times.map(|ns| *ns as f64 / 1e3).collect();
        let last_ns = flooded.iter().map(|one| one.last_ns).max().unwrap_or(0);
        let ns = last_ns.saturating_sub(turn.start_ns).max(1);
        let (n, bytes) = (times.len() as u64, (times.len() * size) as f64);
        self.goodput.keep(bytes * 1e3 / ns as f64, n);
        times.sort_by(f64::total_cmp);
        let cpu_us = cpu_ns as f64 / 1e3 / (bytes / 1e6);
        let of_messages = [
            (&mut self.cpu_us, Some(cpu_us).filter(|us| us.is_finite())),
            (&mut self.medians, Quartiles::of(&times).map(|q| q.median)),
            (&mut self.p99, below(&times, 9_900)),
        ];
        for (series, value) in of_messages {
            series.values.push(value);
            series.n += n;
        }
        self.times.append(&mut times);
    }

    fn rows(&self, row: &Row, ideal: Option<&Ideal>) -> Vec<Row> {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        let tailed = |row: Row, by: f64| Row {
            tail: Tail::of(|share| Some(below(&times, share)? / by)),
            ..row
        };
        let goodput = row.figure(
            "goodput_mb_s",
            &self.goodput,
            "bytes of all senders, from the first send to the last arrival",
        );
        let time = row.figure(
            "message_us",
            &self.medians,
            "from the send until its sender knew that it was there; one under way for each pair",
        );
        let cpu = row.figure(
            cost::OF_MEGABYTE,
            &self.cpu_us,
            "processor time of all ranks, which poll in turns, for a million bytes",
        );
        let share = ideal.and_then(|ideal| {
            row.figure(
                "link_share",
                &self.goodput.map(|mb_s| mb_s / ideal.mb_s),
                "goodput_mb_s over the rate of the receivers' lines",
            )
        });
        let slowness = ideal.and_then(|ideal| {
            let row = row.figure(
                "message_slowness",
                &self.medians.map(|us| us / ideal.message_us),
                "message_us over the time of a message while all senders to its receiver have \
                 equal shares of the line",
            );
            Some(tailed(row?, ideal.message_us))
        });
        let time = time.map(|row| tailed(row, 1.0));
        let rows = [goodput, time, cpu, share, slowness];
        rows.into_iter().flatten().collect()
    }

    /// The shares of the line, and the slowest messages, of each slice.
    fn ratios(&self, row: &Row, ideal: &Ideal) -> impl Iterator<Item = Ratio> {
        let of = |values: &Series, by: f64, metric: &str, over: &str| {
            let q = values.map(|value| value / by).quartiles()?;
            Some(row.ratio(metric, over).with(&q))
        };
        let share = of(&self.goodput, ideal.mb_s, "goodput_mb_s", LINE);
        let p99 = of(&self.p99, ideal.message_us, "message_us_p99", FAIR_SHARE);
        share.into_iter().chain(p99)
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Flooding {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "64K")]
    size: Bytes,
    /// Send matched messages instead of messages to ports [default of HOW: sync]
    #[arg(long, value_enum, value_name = "HOW", num_args = 0..=1, default_missing_value = "sync")]
    matched: Option<Matched>,
    /// Peers to benchmark against in the same run: tcp
    #[arg(long, value_enum, value_name = "PEER", value_delimiter = ',')]
    vs: Vec<Peer>,
}

/// One of the shapes, as it was asked for.
pub struct Incast {
    pub shape: Shape,
    pub asked: Flooding,
}

impl Incast {
    /// Its name in reports.
    pub fn name(&self) -> String {
        let name = self.shape.name();
        match self.asked.matched {
            None => name.to_owned(),
            Some(Matched::Sync) => format!("{name}-matched"),
            Some(Matched::Plain) => format!("{name}-matched-plain"),
        }
    }
}

impl Experiment for Incast {
    /// Between all hosts of a lab.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Flooding {
            common,
            size: Bytes(size),
            matched,
            vs,
        } = &self.asked;
        let (shape, size) = (self.shape, *size);
        check_sizes([size], SIZES)?;
        check_tcp_only(shape.name(), vs)?;
        let options = "--hosts 8 --rate 200mbit --buffer 64k";
        let lab = stage.needs_lab(3, "fills a switch", options)?;
        let ranks = lab.hosts();
        let spec = common.spec(Some(&lab), ranks)?;
        let systems = [SystemKind::Portolan, SystemKind::KernelTcp];
        let systems = &systems[..1 + usize::from(!vs.is_empty())];
        let ideal = lab.rate_bits_per_s();
        let ideal = ideal.map(|bits_per_s| Ideal::of(shape, ranks, size, bits_per_s));
        let slices = common.slices();
        let usual_ns = ideal.map(|ideal| ideal.slice_ns(slices, systems.len()));
        let slice_ns = common.slice_ns(usual_ns.unwrap_or(SLICE_MS_MAX * 1_000_000));
        let (link, columns) = stage.job(spec, |lines| {
            prepare(shape, &lab, size, *matched, lines)?;
            run(&lab, systems, size, slices, slice_ns, lines)
        })?;
        let ours = common.setting(link, ranks).row();
        let rows = [ours, Row::of(KERNEL_TCP, ranks)].map(|row| row.at(Dimension::Size, size));
        let mut found = Findings::default();
        for (column, row) in columns.iter().zip(&rows) {
            found.rows.extend(column.rows(row, ideal.as_ref()));
            if let Some(ideal) = &ideal {
                found.ratios.extend(column.ratios(row, ideal));
            }
            found.remarks.push(format!(
                "{}: the switch's full ports dropped {} packets; every message arrived",
                row.system, column.dropped
            ));
        }
        if let [ours, theirs] = &columns[..] {
            let figures = [
                ("goodput_mb_s", &ours.goodput, &theirs.goodput),
                ("message_us", &ours.medians, &theirs.medians),
                (cost::OF_MEGABYTE, &ours.cpu_us, &theirs.cpu_us),
            ];
            found.ratios.extend(rows[0].all_over(KERNEL_TCP, figures));
        }
        if ideal.is_none() {
            found.remarks.push(format!(
                "lab {} has no rate, so no switch is filled: make one with --rate 200mbit --buffer 64k",
                lab.name()
            ));
        }
        Ok(found)
    }
}

/// Connects all pairs.
fn prepare(
    shape: Shape,
    lab: &Lab,
    size: usize,
    matched: Option<Matched>,
    lines: &mut [ControlLine],
) -> Result<()> {
    let ranks = lab.hosts();
    for (rank, line) in (0..).zip(&mut *lines) {
        line.say(&Order::Flood(Role {
            to: (0..ranks).filter(|&to| shape.sends(rank, to)).collect(),
            from: (0..ranks).filter(|&from| shape.sends(from, rank)).collect(),
            size,
            matched,
            site: Site::in_lab(lab, rank),
        }))?;
    }
    introduce(lines)
}

fn run(
    lab: &Lab,
    systems: &[SystemKind],
    size: usize,
    slices: usize,
    slice_ns: u64,
    lines: &mut [ControlLine],
) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = systems.iter().map(|_| Column::default()).collect();
    // Sent and received since the start.
    let mut counts = vec![[0, 0]; systems.len()];
    rounds(slices, |kept| {
        for ((column, counts), &system) in columns.iter_mut().zip(&mut counts).zip(systems) {
            let dropped = lab.dropped()?;
            let start_ns = now_ns() + LEAD_NS;
            let turn = Turn {
                system,
                start_ns,
                end_ns: start_ns + slice_ns,
            };
            say_all(lines, &Order::Turn(turn))?;
            let flooded = answers!(&mut *lines, Flooded);
            say_all(lines, &Order::Stop)?;
            counts[0] += flooded
                .iter()
                .map(|one| one.times_ns.len() as u64)
                .sum::<u64>();
            counts[1] = 0;
            let mut cpu_ns = 0;
            for line in &mut *lines {
                counts[1] += answer!(line, Drained).iter().sum::<u64>();
                cpu_ns += answer!(line, Spent).cpu_ns;
            }
            if counts[0] != counts[1] {
                return fail(format!(
                    "{} messages were sent by {system:?} and {} came",
                    counts[0], counts[1]
                ));
            }
            if kept {
                column.keep(&turn, &flooded, cpu_ns, size);
                column.dropped += lab.dropped()? - dropped;
            }
        }
        Ok(())
    })?;
    Ok(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_send_to_one_or_each_to_all_others() {
        let pairs = |shape: Shape| {
            let pairs = (0..3).flat_map(|from| (0..3).map(move |to| (from, to)));
            pairs.filter(|&(from, to)| shape.sends(from, to)).count()
        };
        assert_eq!((pairs(Shape::Incast), pairs(Shape::Alltoall)), (2, 6));
    }

    #[test]
    fn goodput_counts_all_senders_until_the_last_arrival() {
        let mut column = Column::default();
        let turn = Turn {
            system: SystemKind::Portolan,
            start_ns: 1_000,
            end_ns: 50_000,
        };
        let one = |times_ns: &[u64], last_ns| Flooded {
            times_ns: times_ns.to_vec(),
            last_ns,
        };
        let flooded = [
            one(&[1_000, 3_000], 61_000),
            one(&[2_000], 101_000),
            Flooded::default(),
        ];
        column.keep(&turn, &flooded, 30_000, 1_000);
        let like = Row::default();
        let ideal = Ideal::of(Shape::Incast, 3, 1_000, 320_000_000);
        assert_eq!((ideal.mb_s, ideal.message_us), (40.0, 50.0));
        let rows = column.rows(&like, Some(&ideal));
        let [goodput, time, cpu, share, slowness] = &rows[..] else {
            panic!("{rows:?}");
        };
        // 30 us for 3,000 bytes.
        assert_eq!(cpu.p50, 10_000.0);
        assert_eq!((goodput.p50, goodput.n), (30.0, 3));
        assert_eq!((time.p50, time.tail.p99), (2.0, Some(3.0)));
        assert_eq!((share.p50, share.tail.p99), (0.75, None));
        assert_eq!((slowness.p50, slowness.tail.p99), (0.04, Some(0.06)));
        let ratios: Vec<f64> = (column.ratios(&like, &ideal)).map(|it| it.median).collect();
        assert_eq!(ratios, [0.75, 0.06]);
    }

    #[test]
    fn a_slice_has_ten_messages_of_each_sender_where_there_is_time() {
        let of = |shape, bits_per_s| Ideal::of(shape, 8, 64 << 10, bits_per_s);
        let ideal = of(Shape::Incast, 200_000_000);
        assert_eq!(ideal.slice_ns(21, 2), 10 * 18_350_080);
        // Each of them receives as much.
        assert_eq!(of(Shape::Alltoall, 200_000_000).mb_s, 8.0 * ideal.mb_s);
        let slow = of(Shape::Incast, 1_000_000);
        assert_eq!(slow.slice_ns(1, 1), SLICE_NS_MAX);
        assert_eq!(slow.slice_ns(99, 2), 200_000_000);
        assert_eq!(of(Shape::Incast, 1 << 40).slice_ns(21, 2), 100_000_000);
    }
}
