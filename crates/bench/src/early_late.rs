//! Matched messages to a receiver that waits already, and to one that does not
//! yet (Push-Pull Messaging, figures 7 and 8): push-zero, push-pull and
//! push-all, by what a sender may push before it is asked.

use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::Result;
use portolan_hosts::lab::Lab;

use super::conduct::Progress;
use super::control::Line;
use super::how::How;
use super::job::{Helpers, with_lines};
use super::matched::{Act, Exchange, Way};
use super::mpis::once;
use super::netpipe::SIZE_MAX;
use super::options::{EarlyLate, Thresholds};
use super::pace::{Pace, fit};
use super::plan::{slice_of, wrong};
use super::report::{Ratio, Report, Row};
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check, lab_of_two, through_shm};

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
    /// How much longer one of them computes, ns.
    later_ns: u64,
    pace: Pace,
    us: Vec<Option<f64>>,
    n: u64,
}

impl Cell {
    fn new(size: usize, strategy: Strategy, late: bool, lead: Lead) -> Self {
        Self {
            size,
            strategy,
            late,
            later_ns: lead.ns(size),
            pace: Pace::new(),
            us: Vec::new(),
            n: 0,
        }
    }

    fn mb_s(&self) -> Vec<Option<f64>> {
        let of = |us: &Option<f64>| Some(self.size as f64 / (*us)?);
        self.us.iter().map(of).collect()
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
                self.later_ns / 1_000
            ),
            ..like.clone()
        }
    }
}

/// A job's figures, each in turns; `buffers`: so many jobs share the time.
fn run(
    lines: &mut [Line],
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
    let mut progress = Progress::new(slices);
    for round in 0..=slices {
        progress.show(round);
        fit(
            cells.iter_mut().map(|cell| &mut cell.pace),
            slice_ns,
            slices * buffers,
        );
        for cell in &mut *cells {
            let (receiver_ns, sender_ns) = match cell.late {
                true => (cell.later_ns, 0),
                false => (0, cell.later_ns),
            };
            let act = Act::Timed {
                receiver_ns,
                sender_ns,
            };
            let slice = Exchange {
                way: cell.strategy.way(&asked.thresholds),
                pushed_share: share.take(),
                ..Exchange::of(act, cell.size)
            };
            let (slice, [said, _]) = cell.pace.slice(lines, slice_ns, slice)?;
            if round > 0 {
                cell.us.push(Some(said.us));
                cell.n += slice.count;
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
    let rate = lab.as_ref().and_then(Lab::rate_bits_per_s);
    let lead = Lead::of(shm, rate);
    let mut watch = Watch::begin(common.lab.as_deref());
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for &buffer in &buffers {
        let mut cells = Vec::new();
        for &size in &sizes {
            for late in [false, true] {
                let cell = |strategy| Cell::new(size, strategy, late, lead);
                cells.extend(Strategy::ALL.map(cell));
            }
        }
        let spec = common.spec(2, lab.is_some(), shm)?;
        let (link, ()) = with_lines(spec, lab.as_ref(), Helpers::All, &mut watch.host, |lines| {
            run(lines, &asked, buffer, &mut cells, slice_ns, buffers.len())
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
        for six in cells.chunks(2 * Strategy::ALL.len()) {
            ratios.extend(over_early(six, &like));
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

/// Push-pull's bandwidth to a late receiver over that to an early one.
fn over_early(of_size: &[Cell], like: &Row) -> Option<Ratio> {
    let mut pulls = of_size.iter().filter(|it| it.strategy == Strategy::Pull);
    let early = pulls.clone().find(|it| !it.late)?;
    let late = pulls.find(|it| it.late)?;
    let q = paired(&late.mb_s(), &early.mb_s())?;
    Some(late.row(like).over(BANDWIDTH, EARLY).with(&q))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn push_pull_stands_over_the_better_of_each_slice() {
        let cell = |strategy, us: [f64; 2]| Cell {
            us: us.map(Some).into(),
            ..Cell::new(100, strategy, true, Lead::of(true, None))
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
    fn a_late_receiver_stands_over_an_early_one() {
        let cell = |strategy, late, us: [f64; 2]| Cell {
            us: us.map(Some).into(),
            ..Cell::new(100, strategy, late, Lead::of(true, None))
        };
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
        assert_eq!(found.how.text(), "push-pull, late");
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
