//! How much of a matched message's time is hidden behind computing, of the
//! sender and of the receiver.

use portolan_hosts::failure::Result;
use portolan_hosts::lab::Lab;

use super::conduct::{Progress, introduce};
use super::control::{Line, Order};
use super::cost;
use super::how::How;
use super::job::{Helpers, with_lines};
use super::matched::{Act, Exchange, Exchanged, exchange};
use super::netpipe::SIZE_MAX;
use super::options::Common;
use super::pace::{Pace, fit};
use super::plan::{Peer, slice_of, wrong};
use super::rank::Site;
use super::report::{Ratio, Report, Row};
use super::stats::{Quartiles, paired};
use super::summary::KERNEL_TCP;
use super::watch::Watch;
use super::{Found, check, lab_of_two, through_shm};

/// Rounds of the loop by which its speed is found.
const FIRST_ROUNDS: u64 = 1_000_000;
/// Parts of a side's slice: the message, computing, both.
const PARTS: u64 = 3;

/// One of both sides, and its slices.
struct Side {
    sends: bool,
    tcp: bool,
    /// Of the three parts together.
    pace: Pace,
    /// Rounds of the loop in a microsecond.
    speed: Option<f64>,
    message_us: Vec<f64>,
    computing_us: Vec<f64>,
    both_us: Vec<f64>,
    hidden: Vec<f64>,
    cpu_us: Vec<f64>,
    n: u64,
}

impl Side {
    const fn new((sends, tcp): (bool, bool)) -> Self {
        Self {
            sends,
            tcp,
            pace: Pace::new(),
            speed: None,
            message_us: Vec::new(),
            computing_us: Vec::new(),
            both_us: Vec::new(),
            hidden: Vec::new(),
            cpu_us: Vec::new(),
            n: 0,
        }
    }

    fn slice(
        &mut self,
        lines: &mut [Line],
        size: usize,
        slice_ns: u64,
        counts: bool,
    ) -> Result<()> {
        let (warm_up, count) = self.pace.count(slice_ns);
        let Self { sends, tcp, .. } = *self;
        let mut of = |message, rounds| -> Result<[Exchanged; 2]> {
            let act = Act::Beside {
                sends,
                message,
                tcp,
                rounds,
            };
            let slice = Exchange {
                warm_up,
                count,
                ..Exchange::of(act, size)
            };
            exchange(lines, &slice)
        };
        let [alone, _] = of(true, 0)?;
        let speed = match self.speed {
            Some(speed) => speed,
            None => FIRST_ROUNDS as f64 / of(false, FIRST_ROUNDS)?[0].us,
        };
        let rounds = ((alone.us * speed) as u64).max(1);
        let [computing, _] = of(false, rounds)?;
        let [both, other] = of(true, rounds)?;
        self.speed = Some(rounds as f64 / computing.us);
        let elapsed_us = alone.elapsed_us + computing.elapsed_us + both.elapsed_us;
        self.pace.note((warm_up, count), elapsed_us);
        if counts {
            self.message_us.push(alone.us);
            self.computing_us.push(computing.us);
            self.both_us.push(both.us);
            self.hidden.push(hidden(alone.us, computing.us, both.us));
            let cpu_ns = both.cost.cpu_ns + other.cost.cpu_ns;
            self.cpu_us.push(cpu_ns as f64 / 1e3 / count as f64);
            self.n += count;
        }
        Ok(())
    }

    /// What its rows have in common.
    fn row(&self, like: &Row) -> Row {
        let computes = if self.sends { "sender" } else { "receiver" };
        let how = How {
            computes: Some(computes.to_owned()),
            ..How::default()
        };
        if self.tcp {
            return Row {
                system: KERNEL_TCP.to_owned(),
                size: like.size,
                how,
                ranks: like.ranks,
                ..Row::default()
            };
        }
        Row {
            how,
            ..like.clone()
        }
    }

    /// Its figures over the same of another system's.
    fn over(&self, other: &Self, like: &Row) -> Vec<Ratio> {
        let figures = [
            ("message_us", &self.message_us, &other.message_us),
            ("both_us", &self.both_us, &other.both_us),
            ("hidden", &self.hidden, &other.hidden),
            (cost::OF_MESSAGE, &self.cpu_us, &other.cpu_us),
        ];
        let some = |values: &[f64]| values.iter().copied().map(Some).collect::<Vec<_>>();
        let ratio = |(metric, ours, theirs): (&str, &Vec<f64>, &Vec<f64>)| {
            let q = paired(&some(ours), &some(theirs))?;
            Some(self.row(like).over(metric, KERNEL_TCP).with(&q))
        };
        figures.into_iter().filter_map(ratio).collect()
    }

    fn rows(&self, like: &Row) -> Vec<Row> {
        let like = &self.row(like);
        let row = |metric: &str, values: &[f64], method: &str| {
            let row = Row {
                metric: metric.to_owned(),
                n: self.n,
                method: format!("{method}; means of the middle 80 % of each interleaved slice"),
                ..like.clone()
            };
            Some(row.with(&Quartiles::of(values)?))
        };
        let rows = [
            row(
                "hidden",
                &self.hidden,
                "(message + computing - both) / the shorter of message and computing",
            ),
            row(
                "message_us",
                &self.message_us,
                if self.tcp {
                    "nonblocking calls; of what is sent, until 8 bytes come back"
                } else {
                    "post and wait"
                },
            ),
            row(
                "computing_us",
                &self.computing_us,
                "a loop without a message",
            ),
            row(
                "both_us",
                &self.both_us,
                if self.tcp {
                    "one nonblocking call, computing, more calls until the end"
                } else {
                    "post, compute, wait"
                },
            ),
            row(
                cost::OF_MESSAGE,
                &self.cpu_us,
                "processor time of both processes for a message with computing, the computing too",
            ),
        ];
        rows.into_iter().flatten().collect()
    }
}

/// The share of the shorter one that took no time of its own.
fn hidden(message: f64, computing: f64, both: f64) -> f64 {
    (message + computing - both) / message.min(computing)
}

/// Measures both sides in turns.
pub fn bench(common: Common, size: usize, vs: &[Peer]) -> Result<Found> {
    if !(1..=SIZE_MAX).contains(&size) {
        return wrong(format!("--size {size}: give 1 to {SIZE_MAX} bytes"));
    }
    if vs.iter().any(|peer| *peer != Peer::Tcp) {
        return wrong("bench overlap runs beside --vs tcp only");
    }
    check(common.json.as_deref(), 2)?;
    let lab = lab_of_two(&common)?;
    let shm = through_shm(&common, lab.as_ref())?;
    let slices = common.slices();
    let systems: &[bool] = if vs.is_empty() {
        &[false]
    } else {
        &[false, true]
    };
    let of_system = |&tcp: &bool| [(true, tcp), (false, tcp)].map(Side::new);
    let mut sides: Vec<Side> = systems.iter().flat_map(of_system).collect();
    let slice_ns = match common.slice_ms {
        Some(ms) => ms * 1_000_000,
        None => slice_of(PARTS as usize * sides.len(), slices),
    };
    let slice_ns = slice_ns * PARTS;
    let spec = common.spec(2, lab.is_some(), shm)?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let measure = |lines: &mut [Line]| {
        if !vs.is_empty() {
            connect(lines, lab.as_ref(), size)?;
        }
        let mut progress = Progress::new(slices);
        for round in 0..=slices {
            progress.show(round);
            fit(
                sides.iter_mut().map(|side| &mut side.pace),
                slice_ns,
                slices,
            );
            for side in &mut sides {
                side.slice(lines, size, slice_ns, round > 0)?;
            }
        }
        progress.done();
        Ok(())
    };
    let (link, ()) = with_lines(spec, lab.as_ref(), Helpers::All, &mut watch.host, measure)?;
    let like = Row {
        size: Some(size),
        ..common.setting(link, 2).row()
    };
    let rows = sides.iter().flat_map(|side| side.rows(&like)).collect();
    let (ours, theirs) = sides.split_at(2);
    let over = |(ours, theirs): (&Side, &Side)| ours.over(theirs, &like);
    let report = Report {
        ratios: ours.iter().zip(theirs).flat_map(over).collect(),
        ..watch.report("overlap", rows)
    };
    Ok((common.json, report))
}

/// Connects both ranks by TCP.
fn connect(lines: &mut [Line], lab: Option<&Lab>, size_max: usize) -> Result<()> {
    let here = || Site {
        host: "127.0.0.1".to_owned(),
        one_host: true,
    };
    for (rank, line) in (0..).zip(&mut *lines) {
        let site = lab.map_or_else(here, |lab| Site::in_lab(lab, rank));
        line.say(&Order::Sockets { site, size_max })?;
    }
    introduce(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_no_time_of_its_own_is_hidden() {
        assert_eq!(hidden(10.0, 10.0, 10.0), 1.0);
        assert_eq!(hidden(10.0, 10.0, 20.0), 0.0);
        assert_eq!(hidden(10.0, 20.0, 25.0), 0.5);
        assert!(hidden(10.0, 10.0, 22.0) < 0.0);
    }
}
