//! Many to one (`incast`) and all to all (`alltoall`): long messages between
//! the hosts of a lab, beside kernel TCP in the same lab.

use portolan_sys::clock::now_ns;

use super::conduct::{Progress, expect_ready, hear, unexpected};
use super::control::{Answer, Line, Order, SystemKind};
use super::cost;
use super::failure::{Failure, Result, fail};
use super::flood::{Flooded, Role, Turn};
use super::job::{Helpers, with_lines};
use super::options::Common;
use super::plan::{Peer, wrong};
use super::rank::Site;
use super::report::{Report, Row};
use super::slice::SLICE_MS_MAX;
use super::stats::{Quartiles, paired};
use super::summary::KERNEL_TCP;
use super::watch::Watch;
use super::{Found, check, through_shm};
use crate::lab::Lab;

/// Bounds of a message's size, bytes: longer than a packet of any kind, so
/// that it is pulled; and so short that a slice has some.
const SIZES: std::ops::RangeInclusive<usize> = 16 << 10..=4 << 20;
/// Time between the order and the start of a slice, nanoseconds: all have
/// heard it by then.
const LEAD_NS: u64 = 5_000_000;

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

    fn sends(self, from: u32, to: u32) -> bool {
        from != to && (self == Self::Alltoall || to == 0)
    }
}

/// A system's slices.
#[derive(Default)]
struct Column {
    /// Millions of bytes per second, of all senders.
    goodput: Vec<Option<f64>>,
    /// Median time of a message in a slice, us.
    medians: Vec<Option<f64>>,
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
        self.medians.push(Quartiles::of(&times).map(|q| q.median));
        self.times.append(&mut times);
    }

    fn rows(&self, like: &Row) -> Result<[Row; 3]> {
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
        let below = |of_10_000: usize| {
            let place = (times.len() * of_10_000).div_ceil(10_000);
            times.get(place.saturating_sub(1)).copied()
        };
        time.p99 = below(9_900);
        time.p99_5 = below(9_950);
        time.p99_9 = below(9_990);
        time.p99_99 = below(9_999);
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
        Ok([goodput, time, cpu])
    }
}

/// Measures a shape between all hosts of a lab.
pub fn bench(shape: Shape, common: Common, size: usize, vs: &[Peer]) -> Result<Found> {
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
    let slice_ns = common.slice_ms.unwrap_or(SLICE_MS_MAX) * 1_000_000;
    let measure = |lines: &mut [Line]| {
        prepare(shape, &lab, size, lines)?;
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
        rows.extend(column.rows(&like)?);
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
    if !lab.has_rate() {
        remarks.push(format!(
            "lab {} has no rate, so no switch is filled: make one with --rate 200mbit --buffer 64k",
            lab.name()
        ));
    }
    let report = Report {
        ratios,
        remarks,
        ..watch.report(name, rows)
    };
    Ok((common.json, report))
}

/// Connects all pairs.
fn prepare(shape: Shape, lab: &Lab, size: usize, lines: &mut [Line]) -> Result<()> {
    let ranks = lab.hosts();
    for (rank, line) in (0..).zip(&mut *lines) {
        line.say(&Order::Flood(Role {
            to: (0..ranks).filter(|&to| shape.sends(rank, to)).collect(),
            from: (0..ranks).filter(|&from| shape.sends(from, rank)).collect(),
            size,
            site: Site::in_lab(lab, rank),
        }))?;
    }
    let mut offers = Vec::new();
    for line in &mut *lines {
        match hear(line)? {
            Answer::Offer(offer) => offers.push(offer),
            other => return unexpected(&other),
        }
    }
    for line in &mut *lines {
        line.say(&Order::Meet(offers.clone()))?;
    }
    lines.iter_mut().try_for_each(expect_ready)
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
        let [goodput, time, cpu] = column.rows(&like).unwrap();
        // 30 us for 3,000 bytes.
        assert_eq!(cpu.p50, 10_000.0);
        assert_eq!((goodput.p50, goodput.n), (30.0, 3));
        assert_eq!((time.p50, time.p99), (2.0, Some(3.0)));
    }
}
