//! Matched messages to a receiver that waits already, and to one that does not
//! yet (Push-Pull Messaging, figures 7 and 8): push-zero, push-pull and
//! push-all, by what a sender may push before it is asked.

use super::conduct::Progress;
use super::control::Line;
use super::failure::Result;
use super::how::How;
use super::job::{Helpers, with_lines};
use super::matched::{Act, Exchange, Pace, Way, exchange};
use super::mpis::once;
use super::netpipe::SIZE_MAX;
use super::options::{EarlyLate, Thresholds};
use super::plan::{slice_of, wrong};
use super::report::{Ratio, Report, Row};
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check, lab_of_two, through_shm};
use crate::choices::Bytes;

/// The metric: time of an exchange, us.
const METRIC: &str = "exchange_us";
/// Whichever of push-zero and push-all was faster in a slice.
const BETTER: &str = "better-push";
/// The one who computes longer does so for this long and, for each byte, for
/// this long more, ns: what was pushed is there by then on a line of 200 Mbit/s.
const LATER_NS: u64 = 200_000;
const LATER_NS_PER_BYTE: u64 = 50;

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

    fn way(self, thresholds: &Thresholds) -> Way {
        let of = |whole, bytes| Way {
            whole: Some(whole),
            first: Some(bytes),
            second: Some(bytes),
            ..Way::default()
        };
        match self {
            Self::Zero => of(0, 0),
            Self::Pull => thresholds.way(),
            Self::All => of(u64::MAX, u64::MAX),
        }
    }
}

/// A figure, and its slices.
struct Cell {
    size: usize,
    strategy: Strategy,
    late: bool,
    pace: Pace,
    us: Vec<Option<f64>>,
    n: u64,
}

impl Cell {
    const fn new(size: usize, strategy: Strategy, late: bool) -> Self {
        Self {
            size,
            strategy,
            late,
            pace: Pace { us: None },
            us: Vec::new(),
            n: 0,
        }
    }

    /// How much longer one of them computes, ns.
    const fn later_ns(&self) -> u64 {
        LATER_NS + LATER_NS_PER_BYTE * self.size as u64
    }

    fn row(&self, like: &Row) -> Row {
        let receiver = if self.late { "late" } else { "early" };
        Row {
            metric: METRIC.to_owned(),
            size: Some(self.size),
            how: How {
                push: Some(self.strategy.name().to_owned()),
                receiver: Some(receiver.to_owned()),
                ..like.how.clone()
            },
            n: self.n,
            method: format!(
                "from the later one's call until the receiver has it: it computed {} us longer; \
                 mean of the middle 80 % of each interleaved slice",
                self.later_ns() / 1_000
            ),
            ..like.clone()
        }
    }
}

/// A job's figures, each in turns.
fn run(
    lines: &mut [Line],
    asked: &EarlyLate,
    buffer: PushedBuffer,
    cells: &mut [Cell],
    slice_ns: u64,
) -> Result<()> {
    let slices = asked.common.slices();
    // The whole job has the same pushed buffer: what was granted by a larger
    // one would stay granted.
    let mut share = match buffer {
        PushedBuffer::Default => None,
        PushedBuffer::Bytes(bytes) => Some(bytes),
    };
    let mut progress = Progress::new(slices);
    for round in 0..=slices {
        progress.show(round);
        for cell in &mut *cells {
            let (early_ns, late_ns) = (0, cell.later_ns());
            let (receiver_ns, sender_ns) = if cell.late {
                (late_ns, early_ns)
            } else {
                (early_ns, late_ns)
            };
            let (warm_up, count) = cell.pace.count(slice_ns);
            let slice = Exchange {
                act: Act::Timed {
                    receiver_ns,
                    sender_ns,
                },
                size: cell.size,
                way: cell.strategy.way(&asked.thresholds),
                pushed_share: share.take(),
                warm_up,
                count,
            };
            let [said, _] = exchange(lines, &slice)?;
            cell.pace.note((warm_up, count), &said);
            if round > 0 {
                cell.us.push(Some(said.us));
                cell.n += count;
            }
        }
    }
    progress.done();
    Ok(())
}

/// A job for each pushed buffer.
pub fn bench(asked: EarlyLate) -> Result<Found> {
    let common = &asked.common;
    let sizes = once(&asked.sizes.iter().map(|size| size.0).collect::<Vec<_>>());
    if let Some(size) = sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
        return wrong(format!("--size {size}: give 1 to {SIZE_MAX} bytes"));
    }
    check(common.json.as_deref(), 2)?;
    let lab = lab_of_two(common)?;
    let shm = through_shm(common, lab.as_ref())?;
    let buffers = once(&asked.pushed);
    let figures = sizes.len() * Strategy::ALL.len() * 2;
    let slice_ns = match common.slice_ms {
        Some(ms) => ms * 1_000_000,
        None => slice_of(figures * buffers.len(), common.slices()),
    };
    let mut watch = Watch::begin(common.lab.as_deref());
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for buffer in buffers {
        let mut cells = Vec::new();
        for &size in &sizes {
            for late in [false, true] {
                cells.extend(Strategy::ALL.map(|strategy| Cell::new(size, strategy, late)));
            }
        }
        let spec = common.spec(2, lab.is_some(), shm)?;
        let (link, ()) = with_lines(spec, lab.as_ref(), Helpers::All, &mut watch.host, |lines| {
            run(lines, &asked, buffer, &mut cells, slice_ns)
        })?;
        let like = Row {
            how: How {
                pushed_buffer: Some(buffer.name()),
                ..How::default()
            },
            ..common.setting(link, 2).row()
        };
        for cell in &cells {
            let values: Vec<f64> = cell.us.iter().flatten().copied().collect();
            rows.extend(Quartiles::of(&values).map(|q| cell.row(&like).with(&q)));
        }
        for three in cells.chunks(Strategy::ALL.len()) {
            ratios.extend(over(three, &like));
        }
    }
    let report = Report {
        ratios,
        ..watch.report("early-late", rows)
    };
    Ok((asked.common.json, report))
}

/// Push-pull over the two others, and over the better one of each slice.
fn over(three: &[Cell], like: &Row) -> Vec<Ratio> {
    let [zero, pull, all] = three else {
        return Vec::new();
    };
    let better: Vec<Option<f64>> = (zero.us.iter().zip(&all.us))
        .map(|(a, b)| Some(a.as_ref()?.min(*b.as_ref()?)))
        .collect();
    [
        (Strategy::Zero.name(), &zero.us),
        (Strategy::All.name(), &all.us),
        (BETTER, &better),
    ]
    .into_iter()
    .filter_map(|(over, theirs)| {
        let q = paired(&pull.us, theirs)?;
        Some(pull.row(like).over(METRIC, over).with(&q))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_pull_stands_over_the_better_of_each_slice() {
        let cell = |strategy, us: [f64; 2]| Cell {
            us: us.map(Some).into(),
            ..Cell::new(100, strategy, true)
        };
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
        assert_eq!(found[0].how.text(), "push-pull, late");
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
