//! How much of a matched message's time is hidden behind computing, of the
//! sender and of the receiver.

use super::conduct::Progress;
use super::control::Line;
use super::cost;
use super::failure::Result;
use super::how::How;
use super::job::{Helpers, with_lines};
use super::matched::{Act, Exchange, Exchanged, Pace, Way, exchange};
use super::netpipe::SIZE_MAX;
use super::options::Common;
use super::plan::{slice_of, wrong};
use super::report::{Report, Row};
use super::stats::Quartiles;
use super::watch::Watch;
use super::{Found, check, lab_of_two, through_shm};

/// Rounds of the loop by which its speed is found.
const FIRST_ROUNDS: u64 = 1_000_000;
/// Slices of a side in a round: the message, computing, both.
const PARTS: usize = 3;

/// One of both sides, and its slices.
struct Side {
    sends: bool,
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
    const fn new(sends: bool) -> Self {
        Self {
            sends,
            pace: Pace { us: None },
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
        let sends = self.sends;
        let mut of = |message, rounds| -> Result<[Exchanged; 2]> {
            let act = Act::Beside {
                sends,
                message,
                rounds,
            };
            let slice = Exchange {
                act,
                size,
                way: Way::default(),
                pushed_share: None,
                warm_up,
                count,
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
        self.pace.note((warm_up, count), &both);
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

    fn rows(&self, like: &Row) -> Vec<Row> {
        let computes = if self.sends { "sender" } else { "receiver" };
        let row = |metric: &str, values: &[f64], method: &str| {
            let row = Row {
                metric: metric.to_owned(),
                how: How {
                    computes: Some(computes.to_owned()),
                    ..How::default()
                },
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
            row("message_us", &self.message_us, "post and wait"),
            row(
                "computing_us",
                &self.computing_us,
                "a loop without a message",
            ),
            row("both_us", &self.both_us, "post, compute, wait"),
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
pub fn bench(common: Common, size: usize) -> Result<Found> {
    if !(1..=SIZE_MAX).contains(&size) {
        return wrong(format!("--size {size}: give 1 to {SIZE_MAX} bytes"));
    }
    check(common.json.as_deref(), 2)?;
    let lab = lab_of_two(&common)?;
    let shm = through_shm(&common, lab.as_ref())?;
    let slices = common.slices();
    let mut sides = [true, false].map(Side::new);
    let slice_ns = match common.slice_ms {
        Some(ms) => ms * 1_000_000,
        None => slice_of(PARTS * sides.len(), slices),
    };
    let spec = common.spec(2, lab.is_some(), shm)?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let measure = |lines: &mut [Line]| {
        let mut progress = Progress::new(slices);
        for round in 0..=slices {
            progress.show(round);
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
    let report: Report = watch.report("overlap", rows);
    Ok((common.json, report))
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
