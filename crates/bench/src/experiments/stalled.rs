//! What a receiver that makes no call does to everybody else, and what a flow that nobody
//! takes from does to the others of its pair.
//!
//! Four ranks: 0 sends to 1, 1 sends to 2, and in every other slice 0 sends
//! to 3 too, which has bound its port, makes no call and has no helper. 0, 1
//! and 2 are awake all the time, 3 sleeps outside the library all the time.
//! After each slice all receive until nothing is on its way.
//!
//! With `--flow` two jobs of two ranks take turns. In both, 0 sends to 1. In one of them 0
//! has more than that for 1: in another flow, for a port that 1 does not bind before the end.

use clap::Args;
use portolan_hosts::choices::bytes;
use portolan_hosts::failure::{Result, fail};
use portolan_sys::clock::now_ns;
use serde::{Deserialize, Serialize};

use crate::conduct::{answer, answers, say_all};
use crate::control::{ControlLine, Order};
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::job::{Helpers, Job};
use crate::options::Common;
use crate::report::dimensions::Dimension;
use crate::report::stats::{Quartiles, Series};
use crate::report::table::Row;

/// Ranks of the bench.
const RANKS: u32 = 4;
/// The rank that stalls.
const STALLED: u32 = 3;
/// Largest message: one packet, so that messages are what is counted.
const SIZE_MAX: usize = 1024;
/// Time between the order and the start of a slice, nanoseconds: all have
/// heard it by then.
const LEAD_NS: u64 = 2_000_000;
/// Time that what a slice has left gets to arrive, nanoseconds.
const DRAIN_NS: u64 = 5_000_000_000;

/// A rank's part of a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// To whom it sends, in turns.
    pub to: Vec<u32>,
    /// To whom it sends in a flow that nobody takes from, once for many turns.
    pub untaken_to: Option<u32>,
    /// Bytes of a message.
    pub size: usize,
    /// More ranks are awake than there are cores: yield often, so that they
    /// take turns of microseconds and not of the scheduler's milliseconds.
    pub crowded: bool,
    /// Start, on the monotonic clock.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

/// What a rank did in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Played {
    /// Messages sent, by receiver, since the bench began.
    pub sent: Vec<u64>,
    /// Messages received in this slice, by sender.
    pub received: Vec<u64>,
    /// Messages sent since the bench began that nobody takes.
    pub untaken: u64,
}

/// As it was asked for.
#[derive(Args)]
pub struct Stalled {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = bytes)]
    size: usize,
    /// Stall a flow rather than a rank: what is sent in it nobody takes
    #[arg(long)]
    flow: bool,
}

impl Experiment for Stalled {
    /// Over each link in turn.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let size = self.size;
        if size > SIZE_MAX {
            return wrong(format!("--size {size}: give at most {SIZE_MAX} bytes"));
        }
        let slice_ns = self.common.whole_slice_ns();
        let mut all = Findings::default();
        for common in self.common.each_link(stage.lab.as_ref()) {
            let ranks = if self.flow { 2 } else { RANKS };
            let spec = || common.spec(stage.lab.as_ref(), ranks);
            let slices = common.slices();
            let (link, found) = if self.flow {
                let jobs = [Job::new(spec()?), Job::new(spec()?)];
                let ([link, _], found) =
                    stage.jobs(jobs, |mut jobs| run_flow(&mut jobs, size, slices, slice_ns))?;
                (link, found)
            } else {
                let job = Job::with_helpers(spec()?, Helpers::AllBut(STALLED));
                let ([link], found) =
                    stage.jobs([job], |[lines]| run(lines, size, slices, slice_ns))?;
                (link, found)
            };
            let row = common.setting(link, ranks).row().at(Dimension::Size, size);
            let method = format!(
                "messages received in interleaved slices of {} ms",
                slice_ns / 1_000_000
            );
            all.extend(if self.flow {
                found.of_flow(&row, &method)
            } else {
                found.findings(&row, &method)
            });
        }
        Ok(all)
    }
}

/// What the slices gave: messages per second, without and with traffic.
#[derive(Default)]
struct Found {
    /// From 0 to 1.
    sender: [Series; 2],
    /// From 1 to 2.
    other: [Series; 2],
    /// Sent to the stalled rank in slices with traffic.
    towards: Vec<f64>,
}

/// Runs the slices over the lines to the four ranks.
fn run(lines: &mut [ControlLine], size: usize, slices: usize, slice_ns: u64) -> Result<Found> {
    let crowded = std::thread::available_parallelism().map_or(1, usize::from) < STALLED as usize;
    let mut found = Found::default();
    let mut stalled_before = 0;
    rounds(slices, |counts| {
        for traffic in [false, true] {
            let start_ns = now_ns() + LEAD_NS;
            let end_ns = start_ns + slice_ns;
            let to_of = |rank: u32| match rank {
                0 if traffic => vec![1, STALLED],
                0 => vec![1],
                1 => vec![2],
                _ => vec![],
            };
            let awake = &mut lines[..STALLED as usize];
            for (rank, line) in (0..).zip(&mut *awake) {
                line.say(&Order::Play(Part {
                    to: to_of(rank),
                    untaken_to: None,
                    size,
                    crowded,
                    start_ns,
                    end_ns,
                }))?;
            }
            let played = answers!(awake, Played);
            drain(lines, &played)?;
            let sent = played[0].sent[STALLED as usize];
            if counts {
                let per_second = |count: u64| count as f64 * 1e9 / slice_ns as f64;
                let of = usize::from(traffic);
                let (sender, other) = (played[1].received[0], played[2].received[1]);
                found.sender[of].keep(per_second(sender), sender);
                found.other[of].keep(per_second(other), other);
            }
            if counts && traffic {
                found.towards.push((sent - stalled_before) as f64);
            }
            stalled_before = sent;
        }
        Ok(())
    })?;
    Ok(found)
}

/// Runs the slices over the lines to the two ranks of both jobs, in turns.
fn run_flow(
    jobs: &mut [&mut [ControlLine]; 2],
    size: usize,
    slices: usize,
    slice_ns: u64,
) -> Result<Found> {
    let mut found = Found::default();
    rounds(slices, |counts| {
        for (of, lines) in jobs.iter_mut().enumerate() {
            let start_ns = now_ns() + LEAD_NS;
            for (rank, line) in (0..).zip(&mut **lines) {
                line.say(&Order::Play(Part {
                    to: if rank == 0 { vec![1] } else { vec![] },
                    untaken_to: (rank == 0 && of == 1).then_some(1),
                    size,
                    crowded: false,
                    start_ns,
                    end_ns: start_ns + slice_ns,
                }))?;
            }
            let played = answers!(&mut **lines, Played);
            drain(lines, &played)?;
            if counts {
                let received = played[1].received[0];
                let per_second = received as f64 * 1e9 / slice_ns as f64;
                found.sender[of].keep(per_second, received);
            }
            if counts && of == 1 {
                found.towards.push(played[0].untaken as f64);
            }
        }
        Ok(())
    })?;
    Ok(found)
}

/// Has all ranks receive until everything sent has arrived.
fn drain(lines: &mut [ControlLine], played: &[Played]) -> Result<()> {
    let deadline_ns = now_ns() + DRAIN_NS;
    loop {
        say_all(lines, &Order::Drain)?;
        std::thread::sleep(std::time::Duration::from_millis(2));
        let mut arrived = Vec::new();
        for line in &mut *lines {
            line.say(&Order::Stop)?;
            arrived.push(answer!(line, Drained));
        }
        let missing: u64 = (0..played.len())
            .flat_map(|from| (0..lines.len()).map(move |to| (from, to)))
            .map(|(from, to)| played[from].sent[to] - arrived[to][from])
            .sum();
        if missing == 0 {
            return Ok(());
        }
        if now_ns() > deadline_ns {
            return fail(format!(
                "{missing} messages did not arrive within 5 s of receiving"
            ));
        }
    }
}

impl Found {
    /// The same of a flow that nobody takes from.
    fn of_flow(&self, row: &Row, method: &str) -> Findings {
        let mut found = Findings::default();
        let [without, with] = &self.sender;
        for (traffic, series) in [(false, without), (true, with)] {
            let row = row.clone().at(Dimension::UntakenFlow, traffic);
            found.rows.extend(row.figure("rate_msg_s", series, method));
        }
        let metric = "rate_other_flows";
        let ratio = row.over(metric, with, &row.system, without);
        found.ratios.extend(ratio);
        let remark = |q: Quartiles| {
            format!(
                "{}: the flow took {} messages, then it was stopped",
                row.system, q.median
            )
        };
        found
            .remarks
            .extend(Quartiles::of(&self.towards).map(remark));
        found
    }

    /// As rows and claims; `row` carries what all rows have in common.
    fn findings(&self, row: &Row, method: &str) -> Findings {
        let mut found = Findings::default();
        for (pair, metric, [without, with]) in [
            ("0-1", "rate_sender_to_others", &self.sender),
            ("1-2", "rate_other_pairs", &self.other),
        ] {
            for (traffic, series) in [(false, without), (true, with)] {
                let row = row.clone().at(Dimension::Pair, pair);
                let row = row.at(Dimension::StalledTraffic, traffic);
                found.rows.extend(row.figure("rate_msg_s", series, method));
            }
            let ratio = row.over(metric, with, &row.system, without);
            found.ratios.extend(ratio);
        }
        let remark = |q: Quartiles| {
            format!(
                "{}: the stalled receiver was sent {} messages in a slice, then none fitted any more",
                row.system, q.median
            )
        };
        found
            .remarks
            .extend(Quartiles::of(&self.towards).map(remark));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_divide_slices_with_traffic_by_slices_without() {
        let slices = |rate: f64, n| Series {
            n,
            ..Series::from([rate; 21])
        };
        let found = Found {
            sender: [slices(100.0, 1), slices(90.0, 3)],
            other: [slices(200.0, 2), slices(198.0, 4)],
            towards: vec![64.0; 21],
        };
        let Findings {
            rows,
            ratios,
            remarks,
        } = found.findings(&Row::of("portolan-shm", 4), "");
        assert_eq!(rows.len(), 4);
        assert!(rows.iter().all(|row| row.slices == 21));
        assert_eq!(rows[1].dimensions.cell(Dimension::StalledTraffic), "yes");
        assert_eq!((rows[1].p50, rows[1].n), (90.0, 3));
        let medians: Vec<(&str, f64)> = ratios
            .iter()
            .map(|r| (r.metric.as_str(), r.median))
            .collect();
        assert_eq!(
            medians,
            [("rate_sender_to_others", 0.9), ("rate_other_pairs", 0.99)]
        );
        assert!(remarks[0].contains("64"));
    }
}
