//! Matched messages there and back by what the endpoint allows its threads: one
//! that calls, any but one at a time, many at once.

use clap::Args;
use portolan::{Endpoint, Selector};
use portolan_hosts::choices::{Bytes, Link};
use portolan_hosts::failure::{Failure, Result};
use portolan_sys::ticks::ticks;
use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::job::Job;
use crate::options::{Common, check_sizes};
use crate::pace::Timed;
use crate::peers::netpipe::SIZE_MAX;
use crate::plan::slice_of;
use crate::ranks::matched::{Act, ExchangeSlice};
use crate::ranks::portolan::ours;
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::table::{Ratio, Row};

/// Tag of the first thread's messages; those of the others follow.
const TAG: u64 = 128;

/// Which threads may call the endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Calling {
    /// The thread that opened it
    #[default]
    Single,
    /// Any thread, one at a time
    Serialized,
    /// Any thread, at any time
    Multiple,
}

impl Calling {
    /// As the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Serialized => "serialized",
            Self::Multiple => "multiple",
        }
    }
}

impl From<Calling> for portolan::Threads {
    fn from(mode: Calling) -> Self {
        match mode {
            Calling::Single => Self::Single,
            Calling::Serialized => Self::Serialized,
            Calling::Multiple => Self::Multiple,
        }
    }
}

/// One of two ranks, whose threads all call its endpoint.
pub struct Callers<'a> {
    pub endpoint: &'a Endpoint,
    pub peer: u32,
    /// Sends first.
    pub leads: bool,
    /// How many.
    pub count: u32,
    /// Bytes of a message.
    pub size: usize,
}

impl Callers<'_> {
    /// Each thread's messages go there and back so often; gives the ticks of all
    /// round trips.
    pub fn run(&self, times: u64) -> Result<Vec<u64>> {
        if self.count == 1 {
            // Others may not call, or not be known to.
            return self.one(0, times);
        }
        std::thread::scope(|scope| {
            let start = |caller| scope.spawn(move || self.one(caller, times));
            let threads: Vec<_> = (0..self.count).map(start).collect();
            let ended = threads.into_iter().map(|thread| {
                let panicked = |_| Err(Failure::new("a thread of the bench has panicked"));
                thread.join().unwrap_or_else(panicked)
            });
            let all: Vec<Vec<u64>> = ended.collect::<Result<_>>()?;
            Ok(all.concat())
        })
    }

    fn one(&self, caller: u32, times: u64) -> Result<Vec<u64>> {
        let tag = TAG + u64::from(caller);
        let selector = Selector::from(self.peer, tag);
        let message = vec![0x5a; self.size];
        let mut room = vec![1; self.size];
        let mut samples = Vec::new();
        let send = || {
            let sent = self.endpoint.send_tagged(self.peer, tag, &message);
            sent.map_err(ours)
        };
        for _ in 0..times {
            let start = ticks();
            if self.leads {
                send()?;
            }
            let received = self.endpoint.receive_tagged(&selector, &mut room);
            received.map_err(ours)?;
            if !self.leads {
                send()?;
            }
            samples.push(ticks() - start);
        }
        Ok(samples)
    }
}

/// A figure, and its slices.
struct Cell {
    mode: Calling,
    callers: u32,
    timed: Timed,
    rate: Series,
}

impl Cell {
    fn new(mode: Calling, callers: u32) -> Self {
        Self {
            mode,
            callers,
            timed: Timed::new(),
            rate: Series::default(),
        }
    }

    fn row(&self, like: &Row) -> Row {
        let row = like.clone().at(Dimension::Threads, self.mode.name());
        row.at(Dimension::Callers, self.callers)
    }

    fn rows(&self, like: &Row) -> Vec<Row> {
        self.row(like).figures([
            (
                "latency_us",
                &self.timed.us,
                "half of the round trip, mean of the middle 80 % of each interleaved slice",
            ),
            (
                "rate_msg_s",
                &self.rate,
                "messages of all threads, there and back, of each interleaved slice",
            ),
        ])
    }

    /// Over the thread that alone may call.
    fn over(&self, single: &Self, like: &Row) -> Vec<Ratio> {
        let row = self.row(like);
        let figures = [
            ("latency_us_threads", &self.timed.us, &single.timed.us),
            ("rate_msg_s_threads", &self.rate, &single.rate),
        ];
        row.all_over(&like.system, figures)
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Threading {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "8")]
    size: Bytes,
    /// Threads of each rank that call at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    callers: u32,
}

impl Experiment for Threading {
    /// A job for each mode; all are there at once and get their turns.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self {
            common,
            size: Bytes(size),
            callers,
        } = self;
        check_sizes([*size], 1..=SIZE_MAX)?;
        if common.network.link == Link::Xdp {
            return wrong(
                "bench threads runs three jobs at once, and the host ports of a queue belong to one \
                 job: use --link udp",
            );
        }
        let lab = stage.lab_of_two()?;
        let slices = common.slices();
        let mut cells = [
            Cell::new(Calling::Single, 1),
            Cell::new(Calling::Serialized, 1),
            Cell::new(Calling::Multiple, 1),
            Cell::new(Calling::Multiple, *callers),
        ];
        let slice_ns = common.slice_ns(slice_of(cells.len(), slices));
        let spec = common.spec(lab.as_ref(), 2)?;
        let modes = [Calling::Single, Calling::Serialized, Calling::Multiple];
        let jobs = modes.map(|threads| Job {
            threads,
            ..Job::new(spec.clone())
        });
        let ([link, ..], ()) = stage.jobs(jobs, |mut jobs| {
            rounds(slices, |counts| {
                for cell in &mut cells {
                    let lines = &mut jobs[cell.mode as usize];
                    let messages = 2 * u64::from(cell.callers);
                    let slice = ExchangeSlice::of(Act::Threads(cell.callers), *size);
                    let slice = (slice, messages);
                    let (slice, said) = cell.timed.slice(lines, slice_ns, slice, counts)?;
                    if counts {
                        let all = messages * (slice.warm_up + slice.count);
                        let rate = all as f64 * 1e6 / said.elapsed_us;
                        cell.rate.keep(rate, messages * slice.count);
                    }
                }
                Ok(())
            })
        })?;
        let row = common.setting(link, 2).row().at(Dimension::Size, *size);
        let [single, others @ ..] = &cells;
        let over = |cell: &Cell| cell.over(single, &row);
        Ok(Findings {
            rows: cells.iter().flat_map(|cell| cell.rows(&row)).collect(),
            ratios: others.iter().flat_map(over).collect(),
            remarks: Vec::new(),
        })
    }
}
