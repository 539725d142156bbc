//! Matched messages to a receiver that waits already, and to one that does not
//! yet (Push-Pull Messaging, figures 7 and 8): push-zero, push-pull and
//! push-all, by what a sender may push before it is asked.

use clap::Args;
use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::Result;
use portolan_hosts::lab::Lab;

use crate::control::ControlLine;
use crate::experiment::{Experiment, Findings, Stage, rounds};
use crate::experiments::external_mpi::once;
use crate::options::{Common, Sizes, Thresholds};
use crate::pace::{Timed, fit_timed};
use crate::peers::netpipe::SIZE_MAX;
use crate::plan::slice_of;
use crate::ranks::matched::{Act, ExchangeSlice, PushMode};
use crate::report::dimensions::Dimension;
use crate::report::table::{Ratio, Row};

/// The metric: time of an exchange, us.
const METRIC: &str = "exchange_us";
/// Whichever of push-zero and push-all was faster in a slice.
const BETTER: &str = "better-push";
/// A receiver who was there before.
const EARLY: &str = "early-receiver";
/// What is told over it.
const BANDWIDTH: &str = "bandwidth_mb_s";

/// What each sender may push before it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushedBuffer {
    /// As the endpoint has it.
    Default,
    /// So many bytes.
    Bytes(u64),
}

impl std::str::FromStr for PushedBuffer {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text == "default" {
            return Ok(Self::Default);
        }
        let least = portolan::PUSHED_MIN;
        match text.parse::<Bytes>() {
            Ok(Bytes(bytes)) if bytes as u64 >= least => Ok(Self::Bytes(bytes as u64)),
            _ => Err(format!(
                "give {least} bytes or more, for example 4K or 1M, or default"
            )),
        }
    }
}

impl PushedBuffer {
    fn name(self) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Bytes(bytes) => bytes.to_string(),
        }
    }
}

/// How much longer one of them computes: what was pushed is there by then.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lead {
    /// In addition for each byte, ns.
    ns_per_byte: f64,
}

impl Lead {
    /// For messages without bytes, ns.
    const NS: f64 = 200_000.0;
    /// By shared memory for each byte, ns: 100 MB/s are little.
    const SHM_NS: f64 = 10.0;
    /// By a line of unknown rate: 200 Mbit/s or more.
    const LINE_BITS_PER_S: u64 = 200_000_000;
    /// Of a line's rate, what messages have at least.
    const LINE_SHARE: f64 = 0.8;

    fn of(shm: bool, bits_per_s: Option<u64>) -> Self {
        let line = bits_per_s.unwrap_or(Self::LINE_BITS_PER_S) as f64;
        let ns_per_byte = match shm {
            true => Self::SHM_NS,
            false => 8e9 / (line * Self::LINE_SHARE),
        };
        Self { ns_per_byte }
    }

    fn ns(self, size: usize) -> u64 {
        (Self::NS + self.ns_per_byte * size as f64) as u64
    }
}

/// What is sent before it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strategy {
    Zero,
    Pull,
    All,
}

impl Strategy {
    const ALL: [Self; 3] = [Self::Zero, Self::Pull, Self::All];

    const fn name(self) -> &'static str {
        match self {
            Self::Zero => "push-zero",
            Self::Pull => "push-pull",
            Self::All => "push-all",
        }
    }

    fn push(self, thresholds: &Thresholds) -> PushMode {
        let of = |whole, bytes| PushMode {
            whole: Some(whole),
            first: Some(bytes),
            second: Some(bytes),
            ..PushMode::default()
        };
        match self {
            Self::Zero => of(0, 0),
            Self::Pull => thresholds.push(),
            Self::All => of(u64::MAX, u64::MAX),
        }
    }
}

/// A figure, and its slices.
struct Cell {
    size: usize,
    strategy: Strategy,
    late: bool,
    /// How much longer one of them computes, ns.
    later_ns: u64,
    timed: Timed,
}

impl Cell {
    fn new(size: usize, strategy: Strategy, late: bool, lead: Lead) -> Self {
        Self {
            size,
            strategy,
            late,
            later_ns: lead.ns(size),
            timed: Timed::new(),
        }
    }

    /// Where it stands.
    fn row(&self, like: &Row) -> Row {
        let receiver = if self.late { "late" } else { "early" };
        like.clone()
            .at(Dimension::Size, self.size)
            .at(Dimension::Push, self.strategy.name())
            .at(Dimension::Receiver, receiver)
    }

    fn figure(&self, like: &Row) -> Option<Row> {
        let method = format!(
            "from the later one's call until the receiver has it: it computed {} us longer; mean of \
             the middle 80 % of each interleaved slice",
            self.later_ns / 1_000
        );
        self.row(like).figure(METRIC, &self.timed.us, method)
    }
}

/// A job's figures, each in turns; `buffers`: so many jobs share the time.
fn run(
    lines: &mut [ControlLine],
    asked: &EarlyLate,
    buffer: PushedBuffer,
    cells: &mut [Cell],
    slice_ns: u64,
    buffers: usize,
) -> Result<()> {
    let slices = asked.common.slices();
    // The whole job has the same pushed buffer: what was granted by a larger
    // one would stay granted.
    let mut share = match buffer {
        PushedBuffer::Default => None,
        PushedBuffer::Bytes(bytes) => Some(bytes),
    };
    rounds(slices, |counts| {
        let all = cells.iter_mut().map(|cell| &mut cell.timed);
        fit_timed(all, slice_ns, slices * buffers);
        for cell in &mut *cells {
            let (receiver_ns, sender_ns) = match cell.late {
                true => (cell.later_ns, 0),
                false => (0, cell.later_ns),
            };
            let act = Act::Timed {
                receiver_ns,
                sender_ns,
            };
            let slice = ExchangeSlice {
                push: cell.strategy.push(&asked.thresholds),
                pushed_share: share.take(),
                ..ExchangeSlice::of(act, cell.size)
            };
            cell.timed.slice(lines, slice_ns, (slice, 1), counts)?;
        }
        Ok(())
    })
}

/// Sizes that are measured by default.
const SIZES: &str = "1,64,512,2K,4K,8K,16K,64K";

/// As it was asked for.
#[derive(Args)]
#[command(mut_arg("sizes", |sizes| sizes.default_value(SIZES)))]
pub struct EarlyLate {
    #[command(flatten)]
    pub common: Common,
    #[command(flatten)]
    sizes: Sizes,
    /// How much a sender may push before the receiver asks: bytes, or default
    #[arg(
        long,
        value_name = "BYTES[,default]",
        value_delimiter = ',',
        default_value = "4K,default"
    )]
    pushed: Vec<PushedBuffer>,
    /// Thresholds of push-pull
    #[command(flatten)]
    thresholds: Thresholds,
}

impl Experiment for EarlyLate {
    /// A job for each pushed buffer.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let common = &self.common;
        let sizes = self.sizes.within(1..=SIZE_MAX)?;
        let lab = stage.lab_of_two()?;
        let buffers = once(&self.pushed);
        let figures = sizes.len() * Strategy::ALL.len() * 2;
        let slice_ns = common.slice_ns(slice_of(figures * buffers.len(), common.slices()));
        let rate = lab.as_ref().and_then(Lab::rate_bits_per_s);
        let lead = Lead::of(common.shm(lab.as_ref())?, rate);
        let mut found = Findings::default();
        for &buffer in &buffers {
            let mut cells = Vec::new();
            for &size in &sizes {
                for late in [false, true] {
                    let cell = |strategy| Cell::new(size, strategy, late, lead);
                    cells.extend(Strategy::ALL.map(cell));
                }
            }
            let spec = common.spec(lab.as_ref(), 2)?;
            let (link, ()) = stage.job(spec, |lines| {
                run(lines, self, buffer, &mut cells, slice_ns, buffers.len())
            })?;
            let row = common.setting(link, 2).row();
            let row = row.at(Dimension::PushedBuffer, buffer.name());
            (found.rows).extend(cells.iter().filter_map(|cell| cell.figure(&row)));
            for three in cells.chunks(Strategy::ALL.len()) {
                found.ratios.extend(over(three, &row));
            }
            for six in cells.chunks(2 * Strategy::ALL.len()) {
                found.ratios.extend(over_early(six, &row));
            }
        }
        Ok(found)
    }
}

/// Push-pull over the two others, and over the better one of each slice.
fn over(three: &[Cell], like: &Row) -> Vec<Ratio> {
    let [zero, pull, all] = three else {
        return Vec::new();
    };
    let [zero, pulled, all] = [zero, pull, all].map(|cell| &cell.timed.us);
    let row = pull.row(like);
    [
        (Strategy::Zero.name(), zero),
        (Strategy::All.name(), all),
        (BETTER, &zero.best(all, f64::min)),
    ]
    .into_iter()
    .filter_map(|(over, theirs)| row.over(METRIC, pulled, over, theirs))
    .collect()
}

/// Push-pull's bandwidth to a late receiver over that to an early one.
fn over_early(of_size: &[Cell], like: &Row) -> Option<Ratio> {
    let mut pulls = of_size.iter().filter(|it| it.strategy == Strategy::Pull);
    let early = pulls.clone().find(|it| !it.late)?;
    let late = pulls.find(|it| it.late)?;
    let [ours, theirs] = [late, early].map(|cell| cell.timed.mb_s(cell.size));
    late.row(like).over(BANDWIDTH, &ours, EARLY, &theirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::stats::Series;

    fn cell(strategy: Strategy, late: bool, us: [f64; 2]) -> Cell {
        let mut cell = Cell::new(100, strategy, late, Lead::of(true, None));
        cell.timed.us = Series::from(us);
        cell
    }

    #[test]
    fn push_pull_stands_over_the_better_of_each_slice() {
        let cell = |strategy, us| cell(strategy, true, us);
        let three = [
            cell(Strategy::Zero, [4.0, 2.0]),
            cell(Strategy::Pull, [3.0, 3.0]),
            cell(Strategy::All, [2.0, 6.0]),
        ];
        let found = over(&three, &Row::default());
        let medians: Vec<(&str, f64)> = (found.iter())
            .map(|it| (it.over.as_str(), it.median))
            .collect();
        assert_eq!(
            medians,
            [("push-zero", 1.125), ("push-all", 1.0), (BETTER, 1.5)]
        );
        assert_eq!(found[0].dimensions.how(), "push-pull, late");
    }

    #[test]
    fn a_late_receiver_stands_over_an_early_one() {
        let six = [
            cell(Strategy::Zero, false, [7.0; 2]),
            cell(Strategy::Pull, false, [2.0, 3.0]),
            cell(Strategy::All, false, [7.0; 2]),
            cell(Strategy::Zero, true, [7.0; 2]),
            cell(Strategy::Pull, true, [4.0, 4.0]),
            cell(Strategy::All, true, [7.0; 2]),
        ];
        let found = over_early(&six, &Row::default()).unwrap();
        assert_eq!((found.median, found.q1, found.q3), (0.625, 0.5625, 0.6875));
        let (metric, over) = (found.metric.as_str(), found.over.as_str());
        assert_eq!((metric, over), (BANDWIDTH, EARLY));
        assert_eq!(found.dimensions.how(), "push-pull, late");
    }

    #[test]
    fn the_late_one_gives_what_was_pushed_the_time_that_the_link_takes() {
        let ns = |shm, rate| Lead::of(shm, rate).ns(1_000_000);
        assert_eq!(ns(true, None), 10_200_000);
        // 40 ms of the line at 200 Mbit/s.
        assert_eq!(ns(false, Some(200_000_000)), 50_200_000);
        assert_eq!(ns(false, None), 50_200_000);
        assert_eq!(ns(false, Some(1_000_000_000)), 10_200_000);
        assert_eq!(Lead::of(false, None).ns(0), 200_000);
    }

    #[test]
    fn a_pushed_buffer_is_bytes_or_the_default() {
        assert_eq!("default".parse(), Ok(PushedBuffer::Default));
        assert_eq!("4K".parse(), Ok(PushedBuffer::Bytes(4096)));
        for text in ["4095", "", "much"] {
            let refused = text.parse::<PushedBuffer>().unwrap_err();
            assert!(refused.contains("4096"), "{text}: {refused}");
        }
    }
}
