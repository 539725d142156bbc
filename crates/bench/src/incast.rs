//! Many to one (`incast`) and all to all (`alltoall`): long messages between
//! the hosts of a lab, beside kernel TCP in the same lab.

use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::{Failure, Result, fail};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::now_ns;

use super::conduct::{Progress, hear, introduce, unexpected};
use super::control::{Answer, Line, Order, SystemKind};
use super::cost;
use super::flood::{Flooded, Matched, Role, Turn};
use super::job::{Helpers, with_lines};
use super::options::Flooding;
use super::plan::{Peer, wrong};
use super::rank::Site;
use super::report::{Ratio, Report, Row};
use super::slice::SLICE_MS_MAX;
use super::stats::{Quartiles, below, paired};
use super::summary::KERNEL_TCP;
use super::watch::Watch;
use super::{Found, check, through_shm};

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
    goodput: Vec<Option<f64>>,
    /// Median time of a message in a slice, us.
    medians: Vec<Option<f64>>,
    /// 99th percentile of a slice, us.
    p99: Vec<Option<f64>>,
    /// Processor time of all ranks for a million bytes, us.
    cpu_us: Vec<Option<f64>>,
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
        let bytes = (times.len() * size) as f64;
        self.goodput.push(Some(bytes * 1e3 / ns as f64));
        let cpu_us = cpu_ns as f64 / 1e3 / (bytes / 1e6);
        self.cpu_us.push(Some(cpu_us).filter(|us| us.is_finite()));
        times.sort_by(f64::total_cmp);
        self.medians.push(Quartiles::of(&times).map(|q| q.median));
        self.p99.push(below(&times, 9_900));
        self.times.append(&mut times);
    }

    fn rows(&self, like: &Row, ideal: Option<&Ideal>) -> Result<Vec<Row>> {
        let row = |metric: &str, values: &[Option<f64>], method: &str| -> Result<Row> {
            let seen: Vec<f64> = values.iter().flatten().copied().collect();
            let q = Quartiles::of(&seen).ok_or_else(|| Failure::new("no slice has a message"))?;
            let row = Row {
                metric: metric.to_owned(),
                n: self.times.len() as u64,
                method: method.to_owned(),
                ..like.clone()
            };
            Ok(row.with(&q))
        };
        let mut time = row(
            "message_us",
            &self.medians,
            "from the send until its sender knew that it was there; one under way for each pair",
        )?;
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        time.p99 = below(&times, 9_900);
        time.p99_5 = below(&times, 9_950);
        time.p99_9 = below(&times, 9_990);
        time.p99_99 = below(&times, 9_999);
        let goodput = row(
            "goodput_mb_s",
            &self.goodput,
            "bytes of all senders, from the first send to the last arrival",
        )?;
        let cpu = row(
            cost::OF_MEGABYTE,
            &self.cpu_us,
            "processor time of all ranks, which poll in turns, for a million bytes",
        )?;
        let mut rows = vec![goodput, time, cpu];
        if let Some(ideal) = ideal {
            let over = |row: &Row, metric: &str, by: f64, method: &str| Row {
                metric: metric.to_owned(),
                p50: row.p50 / by,
                q1: row.q1 / by,
                q3: row.q3 / by,
                p99: row.p99.map(|us| us / by),
                p99_5: row.p99_5.map(|us| us / by),
                p99_9: row.p99_9.map(|us| us / by),
                p99_99: row.p99_99.map(|us| us / by),
                method: method.to_owned(),
                ..row.clone()
            };
            let share = over(
                &rows[0],
                "link_share",
                ideal.mb_s,
                "goodput_mb_s over the rate of the receivers' lines",
            );
            let slowness = over(
                &rows[1],
                "message_slowness",
                ideal.message_us,
                "message_us over the time of a message while all senders to its receiver have \
                 equal shares of the line",
            );
            rows.extend([share, slowness]);
        }
        Ok(rows)
    }

    /// The shares of the line, and the slowest messages, of each slice.
    fn ratios(&self, like: &Row, ideal: &Ideal) -> impl Iterator<Item = Ratio> {
        let of = |values: &[Option<f64>], by: f64, metric: &str, over: &str| {
            let q = paired(values, &vec![Some(by); values.len()])?;
            Some(like.over(metric, over).with(&q))
        };
        let share = of(&self.goodput, ideal.mb_s, "goodput_mb_s", LINE);
        let p99 = of(&self.p99, ideal.message_us, "message_us_p99", FAIR_SHARE);
        share.into_iter().chain(p99)
    }
}

/// Measures a shape between all hosts of a lab.
pub fn bench(shape: Shape, asked: Flooding) -> Result<Found> {
    let Flooding {
        common,
        size: Bytes(size),
        matched,
        vs,
    } = asked;
    let name = shape.name();
    if !SIZES.contains(&size) {
        let (least, most) = (SIZES.start(), SIZES.end());
        return wrong(format!("--size {size}: give {least} to {most} bytes"));
    }
    if vs.iter().any(|peer| *peer != Peer::Tcp) {
        return wrong(format!("bench {name} runs beside --vs tcp only"));
    }
    let Some(lab) = common.lab.as_deref().map(Lab::open).transpose()? else {
        return wrong(format!(
            "bench {name} fills a switch: add --lab NAME (portolan lab up NAME --hosts 8 --rate \
             200mbit --buffer 64k makes one)"
        ));
    };
    let ranks = lab.hosts();
    if ranks < 3 {
        return wrong(format!(
            "lab {} has {ranks} hosts and bench {name} needs three: make one with --hosts 8",
            lab.name()
        ));
    }
    check(common.json.as_deref(), ranks as usize)?;
    let shm = through_shm(&common, Some(&lab))?;
    let spec = common.spec(ranks, true, shm)?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let mut systems = vec![SystemKind::Portolan];
    if !vs.is_empty() {
        systems.push(SystemKind::KernelTcp);
    }
    let ideal = lab.rate_bits_per_s();
    let ideal = ideal.map(|bits_per_s| Ideal::of(shape, ranks, size, bits_per_s));
    let slice_ns = match (common.slice_ms, &ideal) {
        (Some(ms), _) => ms * 1_000_000,
        (None, Some(ideal)) => ideal.slice_ns(common.slices(), systems.len()),
        (None, None) => SLICE_MS_MAX * 1_000_000,
    };
    let measure = |lines: &mut [Line]| {
        prepare(shape, &lab, size, matched, lines)?;
        run(&lab, &systems, size, common.slices(), slice_ns, lines)
    };
    let (link, columns) = with_lines(spec, Some(&lab), Helpers::All, &mut watch.host, measure)?;
    let setting = common.setting(link, ranks);
    let like = Row {
        size: Some(size),
        ..setting.row()
    };
    let (mut rows, mut remarks, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for (place, column) in columns.iter().enumerate() {
        let like = if place == 0 {
            like.clone()
        } else {
            Row {
                system: KERNEL_TCP.to_owned(),
                size: Some(size),
                ranks,
                ..Row::default()
            }
        };
        rows.extend(column.rows(&like, ideal.as_ref())?);
        if let Some(ideal) = &ideal {
            ratios.extend(column.ratios(&like, ideal));
        }
        remarks.push(format!(
            "{}: the switch's full ports dropped {} packets; every message arrived",
            like.system, column.dropped
        ));
    }
    if let [ours, theirs] = &columns[..] {
        for (metric, ours, theirs) in [
            ("goodput_mb_s", &ours.goodput, &theirs.goodput),
            ("message_us", &ours.medians, &theirs.medians),
            (cost::OF_MEGABYTE, &ours.cpu_us, &theirs.cpu_us),
        ] {
            let q = paired(ours, theirs);
            ratios.extend(q.map(|q| like.over(metric, KERNEL_TCP).with(&q)));
        }
    }
    if ideal.is_none() {
        remarks.push(format!(
            "lab {} has no rate, so no switch is filled: make one with --rate 200mbit --buffer 64k",
            lab.name()
        ));
    }
    let kind = match matched {
        None => name.to_owned(),
        Some(Matched::Sync) => format!("{name}-matched"),
        Some(Matched::Plain) => format!("{name}-matched-plain"),
    };
    let report = Report {
        ratios,
        remarks,
        ..watch.report(&kind, rows)
    };
    Ok((common.json, report))
}

/// Connects all pairs.
fn prepare(
    shape: Shape,
    lab: &Lab,
    size: usize,
    matched: Option<Matched>,
    lines: &mut [Line],
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
    lines: &mut [Line],
) -> Result<Vec<Column>> {
    let mut columns: Vec<Column> = systems.iter().map(|_| Column::default()).collect();
    // Sent and received since the start.
    let mut counts = vec![[0, 0]; systems.len()];
    let mut progress = Progress::new(slices);
    for round in 0..=slices {
        progress.show(round);
        for ((column, counts), &system) in columns.iter_mut().zip(&mut counts).zip(systems) {
            let dropped = lab.dropped()?;
            let start_ns = now_ns() + LEAD_NS;
            let turn = Turn {
                system,
                start_ns,
                end_ns: start_ns + slice_ns,
            };
            for line in &mut *lines {
                line.say(&Order::Turn(turn))?;
            }
            let mut flooded = Vec::new();
            for line in &mut *lines {
                match hear(line)? {
                    Answer::Flooded(one) => flooded.push(one),
                    other => return unexpected(&other),
                }
            }
            for line in &mut *lines {
                line.say(&Order::Stop)?;
            }
            counts[0] += flooded
                .iter()
                .map(|one| one.times_ns.len() as u64)
                .sum::<u64>();
            counts[1] = 0;
            let mut cpu_ns = 0;
            for line in &mut *lines {
                match hear(line)? {
                    Answer::Drained(came) => counts[1] += came.iter().sum::<u64>(),
                    other => return unexpected(&other),
                }
                match hear(line)? {
                    Answer::Spent(cost) => cpu_ns += cost.cpu_ns,
                    other => return unexpected(&other),
                }
            }
            if counts[0] != counts[1] {
                return fail(format!(
                    "{} messages were sent by {system:?} and {} came",
                    counts[0], counts[1]
                ));
            }
            if round > 0 {
                column.keep(&turn, &flooded, cpu_ns, size);
                column.dropped += lab.dropped()? - dropped;
            }
        }
    }
    progress.done();
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
        let rows = column.rows(&like, Some(&ideal)).unwrap();
        let [goodput, time, cpu, share, slowness] = &rows[..] else {
            panic!("{rows:?}");
        };
        // 30 us for 3,000 bytes.
        assert_eq!(cpu.p50, 10_000.0);
        assert_eq!((goodput.p50, goodput.n), (30.0, 3));
        assert_eq!((time.p50, time.p99), (2.0, Some(3.0)));
        assert_eq!((share.p50, share.p99), (0.75, None));
        assert_eq!((slowness.p50, slowness.p99), (0.04, Some(0.06)));
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
