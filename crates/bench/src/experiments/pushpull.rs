//! Matched messages there and back by size: the four curves of Push-Pull
//! Messaging's figure 6, beside the same message by a port and beside other
//! MPIs; and the search for BTP(1) and BTP(2).

use clap::Args;
use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::Result;

use crate::control::ControlLine;
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::experiments::external_mpi::{ExternalMpis, cases, once, two_cores};
use crate::options::{Common, Thresholds, check_sizes};
use crate::pace::Timed;
use crate::peers::mpi;
use crate::peers::netpipe::{Buffers, Case, SIZE_MAX};
use crate::plan::{SWEEP, slice_of};
use crate::ranks::matched::{Act, ExchangeSlice, PushMode};
use crate::report::dimensions::Dimension;
use crate::report::table::{Ratio, Row};

/// Sizes of a sweep, bytes: up to 1 MiB.
const SIZES: &[usize] = SWEEP.split_at(9).0;
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
    /// Memory is prepared after the first packet or the request has left
    Masking,
    /// The request leaves when the offer arrives, not when all pushed bytes have
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

    fn push(self, thresholds: &Thresholds) -> PushMode {
        PushMode {
            masking: Some(matches!(self, Self::Masking | Self::Both)),
            overlap: Some(matches!(self, Self::Overlap | Self::Both)),
            ..thresholds.push()
        }
    }
}

/// Who copies a message within a host, as `--copies` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Copies {
    /// Pushed whole: through the ring or, from `copy_min` on, out of the sender's memory, whichever
    /// proves faster
    Pushed,
    /// Pulled: through the ring or out of the sender's memory, whichever proves faster
    Pulled,
    /// Pulled: each side copies one half, if both can access the other's memory
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

    fn push(self) -> PushMode {
        let (whole, share) = match self {
            Self::Pushed => (u64::MAX, u64::MAX),
            Self::Pulled => (0, u64::MAX),
            Self::Shared => (0, 0),
        };
        PushMode {
            whole: Some(whole),
            first: Some(0),
            second: Some(0),
            share: Some(share),
            ..PushMode::default()
        }
    }
}

impl Thresholds {
    /// Messages pushed so.
    pub fn push(&self) -> PushMode {
        PushMode {
            whole: self.whole.map(|bytes| bytes.0 as u64),
            first: self.first.map(|bytes| bytes.0 as u64),
            second: self.second.map(|bytes| bytes.0 as u64),
            ..PushMode::default()
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
    push: PushMode,
    /// What tells it from the others of its case.
    name: Name,
    timed: Timed,
    /// `whole`, `first` and `second` as they were.
    pushed: [u64; 3],
}

/// How a figure's messages are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    /// In a mode, or copied so.
    Called(&'static str),
    /// With these for BTP(1) and BTP(2).
    Thresholds(u64, u64),
    /// By a port.
    Port,
}

impl Cell {
    fn new(case: Case, act: Act, push: PushMode, name: Name) -> Self {
        Self {
            case,
            act,
            push,
            name,
            timed: Timed::new(),
            pushed: [0; 3],
        }
    }

    fn matched(case: Case, name: Name, push: PushMode) -> Self {
        Self::new(case, Act::Matched(case.buffers), push, name)
    }

    fn slice(&mut self, lines: &mut [ControlLine], slice_ns: u64, counts: bool) -> Result<()> {
        let slice = ExchangeSlice {
            push: self.push,
            ..ExchangeSlice::of(self.act, self.case.size)
        };
        let (_, said) = self.timed.slice(lines, slice_ns, (slice, 2), counts)?;
        self.pushed = said.push;
        Ok(())
    }

    /// Where it stands.
    fn row(&self, ours: &Row) -> Row {
        let row = ours.clone().at(Dimension::Size, self.case.size);
        let row = row.at(Dimension::Buffers, self.case.buffers.name());
        match self.name {
            Name::Called(name) => row.at(Dimension::Push, name),
            Name::Thresholds(first, second) => row
                .at(Dimension::First, first)
                .at(Dimension::Second, second),
            Name::Port => Row {
                system: format!("{}-port", ours.system),
                ..row
            },
        }
    }

    fn rows(&self, ours: &Row, slice_ns: u64) -> Vec<Row> {
        let pushed = match (self.name, self.pushed) {
            (Name::Port, _) => String::new(),
            (_, [whole, first, second]) => {
                format!(", whole {whole}, first {first}, second {second} bytes")
            }
        };
        let method = format!(
            "half of the round trip, mean of the middle 80 % of each of the interleaved slices of {} \
             ms{pushed}",
            slice_ns / 1_000_000
        );
        let (us, mb_s) = (&self.timed.us, &self.timed.mb_s(self.case.size));
        let method = method.as_str();
        self.row(ours)
            .figures([("latency_us", us, method), ("bandwidth_mb_s", mb_s, method)])
    }

    /// The ratio in which the others of its case stand over it, if they do.
    fn base(&self) -> Option<&'static str> {
        match self.name {
            Name::Called(name) if name == Mode::None.name() => Some("latency_us_push"),
            Name::Called(name) if name == Copies::Pulled.name() => Some("latency_us_copies"),
            Name::Thresholds(0, 0) => Some("latency_us_thresholds"),
            _ => None,
        }
    }
}

/// What is measured, in the order of its turns.
fn plan(asked: &Pushpull, shm: bool) -> Result<Vec<Cell>> {
    let mut sizes: Vec<usize> = asked.sizes.iter().map(|size| size.0).collect();
    check_sizes(sizes.iter().copied(), 1..=SIZE_MAX)?;
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
            let push = PushMode {
                whole: Some(whole as u64),
                first: Some(first),
                second: Some(second),
                ..PushMode::default()
            };
            Cell::matched(case, Name::Thresholds(first, second), push)
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
    let pushes: Vec<(&'static str, PushMode)> = if asked.copies.is_empty() {
        let of = |mode: &Mode| (mode.name(), mode.push(thresholds));
        modes.iter().map(of).collect()
    } else {
        let of = |copies: &Copies| (copies.name(), copies.push());
        once(&asked.copies).iter().map(of).collect()
    };
    let mut cells = Vec::new();
    for case in cases(&sizes, &asked.buffers) {
        let of_case = |(name, push)| Cell::matched(case, Name::Called(name), push);
        cells.extend(pushes.iter().copied().map(of_case));
        // A port has its own buffer.
        if case.buffers == Buffers::Warm {
            cells.push(Cell::new(case, Act::Port, PushMode::default(), Name::Port));
        }
    }
    Ok(cells)
}

/// As it was asked for.
#[derive(Args)]
pub struct Pushpull {
    #[command(flatten)]
    pub common: Common,
    /// Message sizes, bytes, or with K or M; several are measured in turns [default: 8 to 1M; with
    /// --sweep 64K]
    #[arg(long = "size", value_name = "BYTES[,BYTES...]", value_delimiter = ',')]
    sizes: Vec<Bytes>,
    /// Which memory messages use
    #[arg(
        long,
        value_enum,
        value_name = "WHERE[,WHERE]",
        value_delimiter = ',',
        default_value = "warm"
    )]
    buffers: Vec<Buffers>,
    #[command(flatten)]
    thresholds: Thresholds,
    /// What is done while packets are in flight [default: all four if the network is used, else
    /// both]
    #[arg(long, value_enum, value_name = "MODE[,MODE...]", value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Over shared memory: copy the same messages by these methods, whatever the settings say
    #[arg(
        long,
        value_enum,
        value_name = "WAY[,WAY...]",
        value_delimiter = ',',
        conflicts_with_all = ["whole", "first", "second", "modes"]
    )]
    copies: Vec<Copies>,
    /// Try many --first with many --second, and report the best of each size
    #[arg(long, conflicts_with_all = ["first", "second", "modes", "copies", "vs"])]
    sweep: bool,
    /// Peers to benchmark against in the same run, on this host
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    vs: Vec<Beside>,
}

impl Experiment for Pushpull {
    /// Gives each figure its turns.
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let common = &self.common;
        let lab = stage.lab_of_two()?;
        let mut cells = plan(self, common.shm(lab.as_ref())?)?;
        let slices = common.slices();
        let slice_ns = common.slice_ns(slice_of(cells.len(), slices));
        let spec = common.spec(lab.as_ref(), 2)?;
        let mpis: Vec<mpi::Kind> = self.vs.iter().filter_map(|it| it.mpi()).collect();
        let memcpy = self.vs.contains(&Beside::Memcpy);
        let sizes = once(&cells.iter().map(|cell| cell.case.size).collect::<Vec<_>>());
        let all_cases = cases(&sizes, &self.buffers);
        let mut others = ExternalMpis::find(&mpis, memcpy, two_cores()?, &all_cases, slice_ns)?;
        let (link, ()) = stage.job(spec, |lines| {
            rounds(slices, |counts| {
                let mut last = None;
                for cell in &mut cells {
                    cell.slice(lines, slice_ns, counts)?;
                    if last.replace(cell.case) != Some(cell.case) {
                        others.slice(cell.case, counts)?;
                    }
                }
                Ok(())
            })
        })?;
        let ours = common.setting(link, 2).row();
        let founds = cells.iter().flat_map(|cell| cell.rows(&ours, slice_ns));
        Ok(Findings {
            rows: founds.chain(others.rows()).collect(),
            ratios: ratios(&cells, &others, &ours),
            remarks: if self.sweep {
                bests(&cells)
            } else {
                Vec::new()
            },
        })
    }
}

/// Every mode over none of them, every way to copy over pulling, all over the
/// port, and over the peers; of a sweep,
/// every pair of thresholds over push-zero.
fn ratios(cells: &[Cell], others: &ExternalMpis, ours: &Row) -> Vec<Ratio> {
    let mut found = Vec::new();
    for cell in cells.iter().filter(|cell| cell.act != Act::Port) {
        let mut all: Vec<Ratio> = Vec::new();
        let of_case = |found: fn(&Cell) -> bool| {
            let fits = |it: &&Cell| it.case == cell.case && found(it);
            cells.iter().find(fits)
        };
        let row = cell.row(ours);
        let us_over = |metric: &str, other: &Cell| {
            let system = other.row(ours).system;
            row.over(metric, &cell.timed.us, &system, &other.timed.us)
        };
        let plain = of_case(|it| it.base().is_some()).filter(|plain| plain.name != cell.name);
        all.extend(plain.and_then(|plain| us_over(plain.base()?, plain)));
        let port = of_case(|it| it.act == Act::Port);
        all.extend(port.and_then(|port| us_over("latency_us", port)));
        let mb_s = cell.timed.mb_s(cell.case.size);
        for (over, theirs) in others.bandwidths(cell.case) {
            // Of one size times are as bandwidths the other way round.
            let q = theirs.over(&mb_s);
            all.extend(q.map(|q| row.ratio("latency_us", over).with(&q)));
            all.extend(row.over("bandwidth_mb_s", &mb_s, over, &theirs));
        }
        found.extend(
            all.into_iter()
                .map(|it| it.likewise(Dimension::Buffers, &row)),
        );
    }
    found
}

/// The fastest thresholds of each case.
fn bests(cells: &[Cell]) -> Vec<String> {
    let median = |cell: &Cell| {
        let q = cell.timed.us.quartiles();
        q.map_or(f64::INFINITY, |q| q.median)
    };
    let cases = once(&cells.iter().map(|cell| cell.case).collect::<Vec<_>>());
    let best = |case: &Case| {
        let of_case = cells.iter().filter(|cell| cell.case == *case);
        let best = of_case.min_by(|a, b| median(a).total_cmp(&median(b)))?;
        let Name::Thresholds(first, second) = best.name else {
            return None;
        };
        Some(format!(
            "{} bytes, {} buffers: fastest with --first {first} --second {second}, {:.2} us",
            case.size,
            case.buffers.name(),
            median(best)
        ))
    };
    cases.iter().filter_map(best).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::stats::Series;

    fn cell(act: Act, name: Name, us: f64) -> Cell {
        let case = Case {
            size: 1_000,
            buffers: Buffers::Warm,
        };
        let mut cell = Cell::new(case, act, PushMode::default(), name);
        cell.timed.us = Series::from([us]);
        cell
    }

    fn nobody() -> ExternalMpis {
        ExternalMpis::find(&[], false, [0, 0], &[], 0).unwrap()
    }

    fn ours() -> Row {
        Row::of("portolan-udp", 2)
    }

    fn of(mode: Mode) -> Name {
        Name::Called(mode.name())
    }

    #[test]
    fn modes_stand_over_none_and_over_the_port() {
        let matched = Act::Matched(Buffers::Warm);
        let cells = [
            cell(matched, of(Mode::None), 4.0),
            cell(matched, of(Mode::Both), 3.0),
            cell(Act::Port, Name::Port, 2.0),
        ];
        let found = ratios(&cells, &nobody(), &ours());
        let found: Vec<_> = (found.iter())
            .map(|it| {
                (
                    it.metric.as_str(),
                    it.dimensions.how(),
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
        let swept = |first, second, us| cell(matched, Name::Thresholds(first, second), us);
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
