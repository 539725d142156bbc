//! Matched messages there and back by what the endpoint allows its threads: one
//! that calls, any but one at a time, many at once.

use portolan::{Endpoint, Selector};
use portolan_hosts::choices::{Bytes, Link};
use portolan_hosts::failure::{Failure, Result};
use portolan_sys::ticks::ticks;
use serde::{Deserialize, Serialize};

use super::conduct::Progress;
use super::control::Line;
use super::how::How;
use super::job::{Helpers, with_lines_of};
use super::matched::{Act, Exchange};
use super::netpipe::SIZE_MAX;
use super::options::Threading;
use super::pace::Pace;
use super::plan::{slice_of, wrong};
use super::portolan::ours;
use super::report::{Ratio, Report, Row};
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check, lab_of_two, through_shm};

/// Tag of the first thread's messages; those of the others follow.
const TAG: u64 = 128;

/// Which threads may call the endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum Calling {
    /// The one that opened it
    #[default]
    Single,
    /// Any, one at a time
    Serialized,
    /// Any at any time
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
    pace: Pace,
    us: Vec<Option<f64>>,
    rate: Vec<Option<f64>>,
    n: u64,
}

impl Cell {
    const fn new(mode: Calling, callers: u32) -> Self {
        Self {
            mode,
            callers,
            pace: Pace::new(),
            us: Vec::new(),
            rate: Vec::new(),
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
        let slice = Exchange::of(Act::Threads(self.callers), size);
        let (slice, [said, _]) = self.pace.slice(lines, slice_ns, slice)?;
        if counts {
            let messages = 2 * u64::from(self.callers) * (slice.warm_up + slice.count);
            self.us.push(Some(said.us));
            self.rate
                .push(Some(messages as f64 * 1e6 / said.elapsed_us));
            self.n += 2 * u64::from(self.callers) * slice.count;
        }
        Ok(())
    }

    fn row(&self, like: &Row) -> Row {
        Row {
            how: How {
                threads: Some(self.mode.name().to_owned()),
                callers: Some(self.callers),
                ..How::default()
            },
            n: self.n,
            ..like.clone()
        }
    }

    fn rows(&self, like: &Row) -> Vec<Row> {
        let figures = [
            (
                "latency_us",
                &self.us,
                "half of the round trip, mean of the middle 80 % of each interleaved slice",
            ),
            (
                "rate_msg_s",
                &self.rate,
                "messages of all threads, there and back, of each interleaved slice",
            ),
        ];
        let row = |(metric, values, method): (&str, &Vec<Option<f64>>, &str)| {
            let values: Vec<f64> = values.iter().flatten().copied().collect();
            let row = Row {
                metric: metric.to_owned(),
                method: method.to_owned(),
                ..self.row(like)
            };
            Some(row.with(&Quartiles::of(&values)?))
        };
        figures.into_iter().filter_map(row).collect()
    }

    /// Over the thread that alone may call.
    fn over(&self, single: &Self, like: &Row) -> Vec<Ratio> {
        let row = self.row(like);
        let figures = [
            ("latency_us_threads", &self.us, &single.us),
            ("rate_msg_s_threads", &self.rate, &single.rate),
        ];
        let ratio = |(metric, ours, theirs): (&str, &Vec<_>, &Vec<_>)| {
            let q = paired(ours, theirs)?;
            Some(row.over(metric, &like.system).with(&q))
        };
        figures.into_iter().filter_map(ratio).collect()
    }
}

/// A job for each mode; all are there at once and get their turns.
pub fn bench(asked: Threading) -> Result<Found> {
    let Threading {
        common,
        size: Bytes(size),
        callers,
    } = asked;
    if !(1..=SIZE_MAX).contains(&size) {
        return wrong(format!("--size {size}: give 1 to {SIZE_MAX} bytes"));
    }
    if common.link == Link::Xdp {
        return wrong(
            "bench threads runs three jobs at once, and the host ports of a queue belong to one \
             job: use --link udp",
        );
    }
    check(common.json.as_deref(), 2)?;
    let lab = lab_of_two(&common)?;
    let shm = through_shm(&common, lab.as_ref())?;
    let slices = common.slices();
    let mut cells = [
        Cell::new(Calling::Single, 1),
        Cell::new(Calling::Serialized, 1),
        Cell::new(Calling::Multiple, 1),
        Cell::new(Calling::Multiple, callers),
    ];
    let slice_ns = match common.slice_ms {
        Some(ms) => ms * 1_000_000,
        None => slice_of(cells.len(), slices),
    };
    let mut watch = Watch::begin(common.lab.as_deref());
    let spec = || common.spec(2, lab.is_some(), shm);
    let all = Helpers::All;
    let lab = lab.as_ref();
    // Ranks of the same number are on the same core.
    let mut same = [watch.host.clone(), watch.host.clone()];
    let [same_2, same_3] = &mut same;
    let mut measure = |single: &mut [Line], serialized: &mut [Line], multiple: &mut [Line]| {
        let mut progress = Progress::new(slices);
        for round in 0..=slices {
            progress.show(round);
            for cell in &mut cells {
                let lines = match cell.mode {
                    Calling::Single => &mut *single,
                    Calling::Serialized => &mut *serialized,
                    Calling::Multiple => &mut *multiple,
                };
                cell.slice(lines, size, slice_ns, round > 0)?;
            }
        }
        progress.done();
        Ok(())
    };
    let (second, third) = (spec()?, spec()?);
    let (link, _) = with_lines_of(
        spec()?,
        lab,
        (all, Calling::Single),
        &mut watch.host,
        |one| {
            with_lines_of(second, lab, (all, Calling::Serialized), same_2, |two| {
                with_lines_of(third, lab, (all, Calling::Multiple), same_3, |three| {
                    measure(one, two, three)
                })
            })
        },
    )?;
    let like = Row {
        size: Some(size),
        ..common.setting(link, 2).row()
    };
    let [single, others @ ..] = &cells;
    let report = Report {
        ratios: (others.iter())
            .flat_map(|cell| cell.over(single, &like))
            .collect(),
        ..watch.report(
            "threads",
            cells.iter().flat_map(|cell| cell.rows(&like)).collect(),
        )
    };
    Ok((common.json, report))
}
