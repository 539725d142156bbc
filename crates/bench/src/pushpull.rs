//! Matched messages there and back by size: the four curves of Push-Pull
//! Messaging's figure 6, beside the same message by a port and beside other
//! MPIs; and the search for BTP(1) and BTP(2).

use portolan_hosts::failure::{Context, Result};

use super::conduct::Progress;
use super::control::Line;
use super::how::How;
use super::job::{Helpers, with_lines};
use super::matched::{Act, Exchange, Way};
use super::mpi;
use super::mpis::{Others, cases, once};
use super::netpipe::{Buffers, Case, SIZE_MAX};
use super::options::{Pushpull, Thresholds};
use super::pace::Pace;
use super::plan::{slice_of, wrong};
use super::report::{Ratio, Report, Row};
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check, lab_of_two, through_shm};

/// Sizes of a sweep, bytes.
const SIZES: [usize; 9] = [
    8,
    64,
    512,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
];
/// The size for which thresholds are sought, bytes.
const SOUGHT: usize = 64 << 10;
/// What is tried for BTP(1) and BTP(2), bytes. The first pair is push-zero.
const FIRST: [u64; 3] = [0, 256, 1 << 10];
const SECOND: [u64; 5] = [0, 4 << 10, 15 << 10, 32 << 10, 64 << 10];

/// What is done while packets are on their way, as `--modes` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// One step after the other
    None,
    /// Memory is made ready after the first packet or the request has left
    Masking,
    /// The request leaves when the offer arrives, not when all that was pushed has
    Overlap,
    /// Masking and overlap
    Both,
}

impl Mode {
    const ALL: [Self; 4] = [Self::None, Self::Masking, Self::Overlap, Self::Both];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Masking => "masking",
            Self::Overlap => "overlap",
            Self::Both => "both",
        }
    }

    fn way(self, thresholds: &Thresholds) -> Way {
        Way {
            masking: Some(matches!(self, Self::Masking | Self::Both)),
            overlap: Some(matches!(self, Self::Overlap | Self::Both)),
            ..thresholds.way()
        }
    }
}

/// Who copies a message within a host, as `--copies` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Copies {
    /// Pushed whole: through the ring or, from `copy_min` on, out of the sender's memory as the lane
    /// finds faster
    Pushed,
    /// Asked for, and through the ring or out of the sender's memory as the lane finds faster
    Pulled,
    /// Asked for, one half copied by each side where both can reach the other's memory
    Shared,
}

impl Copies {
    const fn name(self) -> &'static str {
        match self {
            Self::Pushed => "pushed",
            Self::Pulled => "pulled",
            Self::Shared => "shared",
        }
    }

    fn way(self) -> Way {
        let (whole, share) = match self {
            Self::Pushed => (u64::MAX, u64::MAX),
            Self::Pulled => (0, u64::MAX),
            Self::Shared => (0, 0),
        };
        Way {
            whole: Some(whole),
            first: Some(0),
            second: Some(0),
            share: Some(share),
            ..Way::default()
        }
    }
}

impl Thresholds {
    /// Messages pushed so.
    pub fn way(&self) -> Way {
        Way {
            whole: self.whole.map(|bytes| bytes.0 as u64),
            first: self.first.map(|bytes| bytes.0 as u64),
            second: self.second.map(|bytes| bytes.0 as u64),
            ..Way::default()
        }
    }
}

/// A peer, as `--vs` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Beside {
    /// Open MPI, by NetPIPE
    Openmpi,
    /// MPICH, by NetPIPE
    Mpich,
    /// One core that copies as many bytes
    Memcpy,
}

impl Beside {
    const fn mpi(self) -> Option<mpi::Kind> {
        match self {
            Self::Openmpi => Some(mpi::Kind::Openmpi),
            Self::Mpich => Some(mpi::Kind::Mpich),
            Self::Memcpy => None,
        }
    }
}

/// One of our figures, and its slices.
struct Cell {
    case: Case,
    act: Act,
    way: Way,
    how: How,
    pace: Pace,
    /// Time of a message one way, us.
    us: Vec<Option<f64>>,
    /// Messages of all slices.
    n: u64,
    /// `whole`, `first` and `second` as they were.
    push: [u64; 3],
}

impl Cell {
    fn new(case: Case, act: Act, way: Way, how: How) -> Self {
        Self {
            case,
            act,
            way,
            how,
            pace: Pace::new(),
            us: Vec::new(),
            n: 0,
            push: [0; 3],
        }
    }

    fn matched(case: Case, name: &str, way: Way) -> Self {
        let how = How {
            push: Some(name.to_owned()),
            ..How::default()
        };
        Self::new(case, Act::Matched(case.buffers), way, how)
    }

    fn slice(&mut self, lines: &mut [Line], slice_ns: u64, counts: bool) -> Result<()> {
        let slice = Exchange {
            way: self.way,
            ..Exchange::of(self.act, self.case.size)
        };
        let (slice, [said, _]) = self.pace.slice(lines, slice_ns, slice)?;
        self.push = said.push;
        if counts {
            self.us.push(Some(said.us));
            self.n += 2 * slice.count;
        }
        Ok(())
    }

    fn mb_s(&self) -> Vec<Option<f64>> {
        let of = |us: &Option<f64>| Some(self.case.size as f64 / (*us)?);
        self.us.iter().map(of).collect()
    }

    /// What its rows have in common.
    fn row(&self, ours: &Row, slice_ns: u64) -> Row {
        let by_port = self.act == Act::Port;
        let system = if by_port {
            format!("{}-port", ours.system)
        } else {
            ours.system.clone()
        };
        let pushed = match self.push {
            _ if by_port => String::new(),
            [whole, first, second] => {
                format!(", whole {whole}, first {first}, second {second} bytes")
            }
        };
        Row {
            system,
            size: Some(self.case.size),
            buffers: Some(self.case.buffers.name().to_owned()),
            how: self.how.clone(),
            n: self.n,
            method: format!(
                "half of the round trip, mean of the middle 80 % of each of the interleaved \
                 slices of {} ms{pushed}",
                slice_ns / 1_000_000
            ),
            ..ours.clone()
        }
    }

    fn rows(&self, ours: &Row, slice_ns: u64) -> Vec<Row> {
        let figures = [
            ("latency_us", self.us.clone()),
            ("bandwidth_mb_s", self.mb_s()),
        ];
        let row = |(metric, values): (&str, Vec<Option<f64>>)| {
            let values: Vec<f64> = values.into_iter().flatten().collect();
            let row = Row {
                metric: metric.to_owned(),
                ..self.row(ours, slice_ns)
            };
            Some(row.with(&Quartiles::of(&values)?))
        };
        figures.into_iter().filter_map(row).collect()
    }

    /// The ratio in which the others of its case stand over it, if they do.
    fn base(&self) -> Option<&'static str> {
        let How {
            push,
            first,
            second,
            ..
        } = &self.how;
        match (push.as_deref(), first, second) {
            (Some(name), ..) if name == Mode::None.name() => Some("latency_us_push"),
            (Some(name), ..) if name == Copies::Pulled.name() => Some("latency_us_copies"),
            (None, Some(0), Some(0)) => Some("latency_us_thresholds"),
            _ => None,
        }
    }

    fn over(&self, metric: &str, ours: &Row, over: &str) -> Ratio {
        let row = self.row(ours, 0);
        Ratio {
            buffers: row.buffers.clone(),
            ..row.over(metric, over)
        }
    }
}

/// What is measured, in the order of its turns.
fn plan(asked: &Pushpull, shm: bool) -> Result<Vec<Cell>> {
    let mut sizes: Vec<usize> = asked.sizes.iter().map(|size| size.0).collect();
    if let Some(size) = sizes.iter().find(|size| !(1..=SIZE_MAX).contains(*size)) {
        return wrong(format!("--size {size}: give 1 to {SIZE_MAX} bytes"));
    }
    if !asked.vs.is_empty() && !shm {
        return wrong(
            "--vs measures shared memory of this host: use --link shm without --lab, or leave it out",
        );
    }
    if !asked.vs.is_empty() && asked.buffers.contains(&Buffers::Fresh) {
        return wrong("--buffers fresh: the peers have warm and cold ones only, leave out --vs");
    }
    let thresholds = &asked.thresholds;
    if asked.sweep {
        if shm {
            return wrong(
                "--sweep finds what to push by the network: use --link udp, or --lab NAME",
            );
        }
        if sizes.is_empty() {
            sizes.push(SOUGHT);
        }
        let cases = cases(&sizes, &asked.buffers);
        let whole = thresholds.whole.map_or(0, |bytes| bytes.0);
        if let Some(size) = sizes.iter().find(|size| **size <= whole) {
            return wrong(format!(
                "--sweep --size {size} --whole {whole}: messages of up to --whole are pushed whole, \
                 so nothing changes: leave out --whole"
            ));
        }
        let grid = FIRST
            .iter()
            .flat_map(|first| SECOND.map(|second| (*first, second)));
        let cell = |case: Case, (first, second)| {
            let way = Way {
                whole: Some(whole as u64),
                first: Some(first),
                second: Some(second),
                ..Way::default()
            };
            let how = How {
                first: Some(first),
                second: Some(second),
                ..How::default()
            };
            Cell::new(case, Act::Matched(case.buffers), way, how)
        };
        let of_case = |&case: &Case| grid.clone().map(move |pair| cell(case, pair));
        return Ok(cases.iter().flat_map(of_case).collect());
    }
    if sizes.is_empty() {
        sizes = SIZES.to_vec();
    }
    if !asked.copies.is_empty() && !shm {
        return wrong("--copies are ways of shared memory: use --link shm without --lab");
    }
    let modes = match once(&asked.modes)[..] {
        [] if shm => vec![Mode::Both],
        [] => Mode::ALL.to_vec(),
        ref asked => asked.to_vec(),
    };
    let ways: Vec<(&str, Way)> = if asked.copies.is_empty() {
        let of = |mode: &Mode| (mode.name(), mode.way(thresholds));
        modes.iter().map(of).collect()
    } else {
        let of = |copies: &Copies| (copies.name(), copies.way());
        once(&asked.copies).iter().map(of).collect()
    };
    let mut cells = Vec::new();
    for case in cases(&sizes, &asked.buffers) {
        let of_case = |(name, way): &(&str, Way)| Cell::matched(case, name, *way);
        cells.extend(ways.iter().map(of_case));
        // A port has its own buffer.
        if case.buffers == Buffers::Warm {
            cells.push(Cell::new(case, Act::Port, Way::default(), How::default()));
        }
    }
    Ok(cells)
}

/// Gives each figure its turns.
pub fn bench(asked: Pushpull) -> Result<Found> {
    let common = &asked.common;
    check(common.json.as_deref(), 2)?;
    let lab = lab_of_two(common)?;
    let shm = through_shm(common, lab.as_ref())?;
    let mut cells = plan(&asked, shm)?;
    let slices = common.slices();
    let slice_ns = match common.slice_ms {
        Some(ms) => ms * 1_000_000,
        None => slice_of(cells.len(), slices),
    };
    let spec = common.spec(2, lab.is_some(), shm)?;
    let allowed = portolan_hosts::ranks::allowed_cores().context("asking for the allowed cores")?;
    let mpis: Vec<mpi::Kind> = asked.vs.iter().filter_map(|it| it.mpi()).collect();
    let memcpy = asked.vs.contains(&Beside::Memcpy);
    let sizes = once(&cells.iter().map(|cell| cell.case.size).collect::<Vec<_>>());
    let all_cases = cases(&sizes, &asked.buffers);
    let cores = [allowed[0], allowed[1]];
    let mut others = Others::find(&mpis, memcpy, cores, &all_cases, slice_ns)?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let measure = |lines: &mut [Line]| {
        let mut progress = Progress::new(slices);
        for round in 0..=slices {
            progress.show(round);
            let mut last = None;
            for cell in &mut cells {
                cell.slice(lines, slice_ns, round > 0)?;
                if last.replace(cell.case) != Some(cell.case) {
                    others.slice(cell.case, round > 0)?;
                }
            }
        }
        progress.done();
        Ok(())
    };
    let (link, ()) = with_lines(spec, lab.as_ref(), Helpers::All, &mut watch.host, measure)?;
    let ours = common.setting(link, 2).row();
    let mut rows: Vec<Row> = (cells.iter())
        .flat_map(|cell| cell.rows(&ours, slice_ns))
        .collect();
    rows.extend(others.rows());
    let remarks = if asked.sweep {
        bests(&cells)
    } else {
        Vec::new()
    };
    let report = Report {
        ratios: ratios(&cells, &others, &ours),
        remarks,
        ..watch.report("pushpull", rows)
    };
    Ok((asked.common.json, report))
}

/// Every mode over none of them, every way to copy over pulling, all over the
/// port, and over the peers; of a sweep,
/// every pair of thresholds over push-zero.
fn ratios(cells: &[Cell], others: &Others, ours: &Row) -> Vec<Ratio> {
    let mut all = Vec::new();
    for cell in cells.iter().filter(|cell| cell.act != Act::Port) {
        let of_case = |found: fn(&Cell) -> bool| {
            let fits = |it: &&Cell| it.case == cell.case && found(it);
            cells.iter().find(fits)
        };
        let plain = of_case(|it| it.base().is_some()).filter(|plain| plain.how != cell.how);
        if let Some((plain, metric)) = plain.and_then(|it| Some((it, it.base()?))) {
            let q = paired(&cell.us, &plain.us);
            all.extend(q.map(|q| cell.over(metric, ours, &ours.system).with(&q)));
        }
        if let Some(port) = of_case(|it| it.act == Act::Port) {
            let q = paired(&cell.us, &port.us);
            let over = format!("{}-port", ours.system);
            all.extend(q.map(|q| cell.over("latency_us", ours, &over).with(&q)));
        }
        let mb_s = cell.mb_s();
        for (over, theirs) in others.bandwidths(cell.case) {
            // Of one size times are as bandwidths the other way round.
            for (metric, q) in [
                ("latency_us", paired(&theirs, &mb_s)),
                ("bandwidth_mb_s", paired(&mb_s, &theirs)),
            ] {
                all.extend(q.map(|q| cell.over(metric, ours, over).with(&q)));
            }
        }
    }
    all
}

/// The fastest thresholds of each case.
fn bests(cells: &[Cell]) -> Vec<String> {
    let median = |cell: &Cell| {
        let values: Vec<f64> = cell.us.iter().flatten().copied().collect();
        Quartiles::of(&values).map_or(f64::INFINITY, |q| q.median)
    };
    let cases = once(&cells.iter().map(|cell| cell.case).collect::<Vec<_>>());
    let best = |case: &Case| {
        let of_case = cells.iter().filter(|cell| cell.case == *case);
        let best = of_case.min_by(|a, b| median(a).total_cmp(&median(b)))?;
        Some(format!(
            "{} bytes, {} buffers: fastest with --first {} --second {}, {:.2} us",
            case.size,
            case.buffers.name(),
            best.how.first?,
            best.how.second?,
            median(best)
        ))
    };
    cases.iter().filter_map(best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(act: Act, how: How, us: f64) -> Cell {
        let case = Case {
            size: 1_000,
            buffers: Buffers::Warm,
        };
        Cell {
            us: vec![Some(us)],
            ..Cell::new(case, act, Way::default(), how)
        }
    }

    fn nobody() -> Others {
        Others::find(&[], false, [0, 0], &[], 0).unwrap()
    }

    fn ours() -> Row {
        Row {
            system: "portolan-udp".to_owned(),
            ..Row::default()
        }
    }

    fn of(mode: Mode) -> How {
        How {
            push: Some(mode.name().to_owned()),
            ..How::default()
        }
    }

    #[test]
    fn modes_stand_over_none_and_over_the_port() {
        let matched = Act::Matched(Buffers::Warm);
        let cells = [
            cell(matched, of(Mode::None), 4.0),
            cell(matched, of(Mode::Both), 3.0),
            cell(Act::Port, How::default(), 2.0),
        ];
        let found = ratios(&cells, &nobody(), &ours());
        let found: Vec<_> = (found.iter())
            .map(|it| {
                (
                    it.metric.as_str(),
                    it.how.text(),
                    it.over.as_str(),
                    it.median,
                )
            })
            .collect();
        let port = "portolan-udp-port";
        assert_eq!(
            found,
            [
                ("latency_us", "none".to_owned(), port, 2.0),
                ("latency_us_push", "both".to_owned(), "portolan-udp", 0.75),
                ("latency_us", "both".to_owned(), port, 1.5),
            ]
        );
        let rows = cells[2].rows(&ours(), 1_000_000);
        assert_eq!((rows[0].system.as_str(), rows[0].p50), (port, 2.0));
        assert_eq!(
            (rows[1].metric.as_str(), rows[1].p50),
            ("bandwidth_mb_s", 500.0)
        );
    }

    #[test]
    fn the_fastest_thresholds_are_said() {
        let matched = Act::Matched(Buffers::Warm);
        let swept = |first, second, us| {
            let how = How {
                first: Some(first),
                second: Some(second),
                ..How::default()
            };
            cell(matched, how, us)
        };
        let cells = [swept(0, 0, 4.0), swept(256, 0, 2.0), swept(0, 4096, 3.0)];
        let said = bests(&cells);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("--first 256 --second 0, 2.00 us"),
            "{said:?}"
        );
        let found = ratios(&cells, &nobody(), &ours());
        let medians: Vec<f64> = found.iter().map(|it| it.median).collect();
        assert_eq!(medians, [0.5, 0.75]);
    }
}
