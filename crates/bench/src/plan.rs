//! What will be measured, worked out from the arguments before anything
//! starts, so that what cannot be done is said at once.

use portolan_hosts::failure::Result;

use crate::control::{ANSWER_BYTES, Pattern, SystemKind};
use crate::experiment::wrong;
use crate::experiments::paired::Paired;
use crate::loss::Column;
use crate::options::{Common, Link, Measure};
use crate::peers::bare::RAW_MAX;
use crate::ranks::asleep::Wait;
use crate::report::stats::SLICES_MIN;
use crate::slice::SLICE_MS_MAX;
use portolan_hosts::choices::value_name;

/// Which bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Half a round trip.
    Latency,
    /// Bytes per time.
    Bandwidth,
    /// Small messages per time.
    Rate,
    /// Half a round trip, for long.
    Jitter,
}

impl Kind {
    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Jitter => "jitter",
        }
    }

    /// Whether round trips are timed one by one.
    #[must_use]
    pub fn times_each(self) -> bool {
        matches!(self, Self::Latency | Self::Jitter)
    }

    /// Its figure.
    #[must_use]
    pub fn metric(self) -> &'static str {
        match self {
            Self::Latency | Self::Jitter => "latency_us",
            Self::Bandwidth => "bandwidth_mb_s",
            Self::Rate => "rate_msg_s",
        }
    }
}

/// A peer, as `--vs` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Peer {
    /// Polled kernel UDP sockets, without a protocol
    Udp,
    /// Polled kernel TCP sockets
    Tcp,
    /// TLS 1.3 with AES-128-GCM over polled kernel TCP sockets, by rustls
    Tls,
    /// Bare AF_XDP, without a protocol
    RawXdp,
    /// A sequence word in a bare shared-memory ring
    ShmFloor,
    /// The best pipelined copy through shared memory
    ShmCopy,
    /// ucx_perftest
    Ucx,
}

/// Sizes of a sweep, bytes.
pub const SWEEP: [usize; 10] = [
    8,
    64,
    512,
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];
/// Largest message that is measured.
const SIZE_MAX: usize = 64 << 20;
/// Time for all slices together by default, nanoseconds: what is left of 45 s
/// after starting and stopping, with room for slices that wait for ten
/// operations.
const BUDGET_NS: u64 = 33_000_000_000;
/// Settings that are 0 where a wait sleeps at once.
pub const SLEEPS_AT_ONCE: [&str; 2] = ["spin_passes", "yield_us"];
/// Slices of 100 ms in which a minute is measured.
const JITTER_SLICES: usize = 600;
/// What a pair of `ucx_perftest` processes takes to start and to connect.
const UCX_START_NS: u64 = 150_000_000;

/// Where the two ranks are.
#[derive(Clone, Copy, Debug)]
pub struct Whereabouts {
    /// They talk through shared memory.
    pub shm: bool,
    /// They are on hosts of a lab.
    pub lab: bool,
}

/// What will be measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which bench.
    pub kind: Kind,
    /// How messages follow each other.
    pub pattern: Pattern,
    /// Sizes, ascending.
    pub sizes: Vec<usize>,
    /// In the order asked for; a clean one without `--loss`, or before `--harm`.
    pub columns: Vec<Column>,
    /// `--loss` or `--harm` was given: offload is off in every column.
    pub lossy: bool,
    /// How ranks wait for messages.
    pub wait: Wait,
    /// Ourselves first, then the peers.
    pub systems: Vec<SystemKind>,
    /// Of endpoints outside of the job.
    pub settings: Vec<(String, String)>,
    /// Slices that count.
    pub slices: usize,
    /// Length of a slice, nanoseconds.
    pub slice_ns: u64,
}

impl Plan {
    /// Works it out.
    ///
    /// # Errors
    /// What cannot be measured, and what can instead.
    pub fn new(asked: &Paired, at: Whereabouts) -> Result<Self> {
        let Paired {
            kind,
            pattern,
            measure,
        } = asked;
        let (kind, common) = (*kind, &measure.common);
        let lossy = !(measure.losses.is_empty() && measure.harms.is_empty());
        check_loss(measure, lossy, at)?;
        let slices = common.slices.unwrap_or(match kind {
            Kind::Jitter => JITTER_SLICES,
            _ => SLICES_MIN,
        });
        let pattern = match kind {
            Kind::Latency | Kind::Jitter => Pattern::Pingpong,
            Kind::Bandwidth => pattern.unwrap_or(Pattern::Stream),
            Kind::Rate => Pattern::Stream,
        };
        if let Some(loops) = twice(&measure.busy) {
            return wrong(format!(
                "--busy names {loops} twice: give each number of loops once"
            ));
        }
        let polls = measure.busy.is_empty();
        let wait = (measure.wait).unwrap_or(if polls { Wait::Poll } else { Wait::Call });
        let sizes = match (measure.size, kind) {
            (Some(size), _) => vec![size],
            (None, Kind::Latency | Kind::Rate | Kind::Jitter) => vec![ANSWER_BYTES],
            (None, Kind::Bandwidth) if lossy => vec![1 << 20],
            (None, Kind::Bandwidth) => SWEEP.to_vec(),
        };
        if !(ANSWER_BYTES..=SIZE_MAX).contains(&sizes[0]) {
            return wrong(format!(
                "--size {}: give {ANSWER_BYTES} to {SIZE_MAX} bytes (every system carries a sequence word of {ANSWER_BYTES})",
                sizes[0]
            ));
        }
        let mut systems = vec![SystemKind::Portolan];
        if measure.standalone {
            systems.push(SystemKind::Standalone);
        }
        let mut settings = common.standalone_settings(at.shm);
        if wait == Wait::Block {
            settings.extend(SLEEPS_AT_ONCE.map(|it| (it.to_owned(), "0".to_owned())));
        }
        for peer in &measure.vs {
            for system in systems_of(*peer, asked, at, pattern, wait)? {
                if !systems.contains(&system) {
                    systems.push(system);
                }
            }
        }
        let mut columns = losing(measure);
        if columns.is_empty() {
            columns.push(Column::CLEAN);
            columns.extend(measure.harms.iter().copied().map(Column::doing));
            columns.extend(measure.busy.iter().copied().map(Column::busy));
        }
        let slice_ns = common.slice_ns(match kind {
            Kind::Jitter => SLICE_MS_MAX * 1_000_000,
            _ => slice_within_budget(&systems, sizes.len() * columns.len(), slices),
        });
        Ok(Self {
            kind,
            pattern,
            sizes,
            columns,
            lossy,
            wait,
            systems,
            settings,
            slices,
            slice_ns,
        })
    }

    /// Messages of `size` bytes between two ranks, ourselves alone.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn of_two(kind: Kind, size: usize, common: &Common, at: Whereabouts) -> Result<Self> {
        let measure = Measure {
            common: common.clone(),
            size: Some(size),
            ..Measure::default()
        };
        let asked = Paired {
            kind,
            pattern: None,
            measure,
        };
        Self::new(&asked, at)
    }

    /// The largest message.
    #[must_use]
    pub fn size_max(&self) -> usize {
        self.sizes.last().copied().unwrap_or(ANSWER_BYTES)
    }
}

/// A number that stands twice in a list.
fn twice(numbers: &[u32]) -> Option<u32> {
    let mut all = (1..).zip(numbers);
    all.find_map(|(next, number)| numbers[next..].contains(number).then_some(*number))
}

/// A column for each loss; singly and in bursts where both were asked for.
fn losing(asked: &Measure) -> Vec<Column> {
    let mut columns = Vec::new();
    for &loss in &asked.losses {
        let singly = (asked.both && loss > 0.0).then(|| Column::losing(loss, None));
        columns.extend(singly);
        columns.push(Column::losing(loss, asked.bursts));
    }
    columns
}

fn check_loss(asked: &Measure, lossy: bool, at: Whereabouts) -> Result<()> {
    if lossy && !at.lab {
        return wrong(
            "--loss and --harm happen at a lab's switch: add --lab NAME (portolan lab up NAME --hosts 2 makes one)",
        );
    }
    match asked
        .losses
        .iter()
        .find(|loss| !(0.0..100.0).contains(*loss))
    {
        Some(loss) => wrong(format!(
            "--loss {loss}: give percentages from 0 to below 100, with commas between"
        )),
        None => Ok(()),
    }
}

/// The systems that stand for `peer`.
fn systems_of(
    peer: Peer,
    asked: &Paired,
    at: Whereabouts,
    pattern: Pattern,
    wait: Wait,
) -> Result<Vec<SystemKind>> {
    let name = value_name(&peer);
    if matches!(peer, Peer::ShmFloor | Peer::ShmCopy) && !at.shm {
        return wrong(format!(
            "--vs {name} measures shared memory within one host: use --link shm without --lab, or leave it out"
        ));
    }
    let Measure { common, size, .. } = &asked.measure;
    if peer == Peer::RawXdp && common.network.link != Link::Xdp {
        return wrong("--vs raw-xdp measures host ports: use it with --link xdp --lab NAME");
    }
    if wait.may_sleep() && !matches!(peer, Peer::Udp | Peer::Tcp | Peer::Tls) {
        return wrong(format!(
            "--vs {name} only polls: use --vs udp,tcp,tls, or --wait poll"
        ));
    }
    Ok(match (peer, asked.kind) {
        (Peer::RawXdp, Kind::Bandwidth) => {
            return wrong("--vs raw-xdp carries single packets: for bandwidth use --vs tcp");
        }
        (Peer::RawXdp, _) if size.is_some_and(|size| size > RAW_MAX) => {
            return wrong(format!(
                "--vs raw-xdp carries single packets: give a --size of at most {RAW_MAX}"
            ));
        }
        (Peer::RawXdp, _) => vec![SystemKind::RawXdp],
        (Peer::Udp, _) => vec![SystemKind::KernelUdp],
        (Peer::Tcp, _) => vec![SystemKind::KernelTcp],
        (Peer::Tls, _) => vec![SystemKind::KernelTls],
        (Peer::ShmFloor, Kind::Latency | Kind::Jitter) => {
            vec![SystemKind::ShmFloor, SystemKind::ShmLine]
        }
        (Peer::ShmFloor, Kind::Rate) => vec![SystemKind::ShmFloor],
        (Peer::ShmFloor, Kind::Bandwidth) => {
            return wrong("--vs shm-floor carries single words: for bandwidth use --vs shm-copy");
        }
        (Peer::ShmCopy, Kind::Bandwidth) if pattern == Pattern::Stream => vec![SystemKind::ShmCopy],
        (Peer::ShmCopy, _) => {
            return wrong(
                "--vs shm-copy is a stream of bytes: use it with bandwidth --pattern stream",
            );
        }
        (Peer::Ucx, _) => {
            crate::peers::ucx::check()?;
            if matches!(pattern, Pattern::Ping | Pattern::Burst) {
                return wrong(
                    "ucx_perftest has no such test: use --pattern pingpong or stream, or leave ucx out of --vs",
                );
            }
            vec![SystemKind::Ucx]
        }
    })
}

/// The longest slice with which all slices together keep to the budget.
fn slice_within_budget(systems: &[SystemKind], columns: usize, slices: usize) -> u64 {
    let rounds = (slices + 1) as u64;
    let starts = if systems.contains(&SystemKind::Ucx) {
        rounds * columns as u64 * UCX_START_NS
    } else {
        0
    };
    let budget_ns = BUDGET_NS.saturating_sub(starts);
    slice_within(budget_ns, columns * systems.len(), slices)
}

/// The longest slice with which so many figures of a bench of two ranks keep
/// to the time that it has.
pub fn slice_of(figures: usize, slices: usize) -> u64 {
    slice_within(BUDGET_NS, figures, slices)
}

fn slice_within(budget_ns: u64, figures: usize, slices: usize) -> u64 {
    // One more round warms up.
    let all = (figures * (slices + 1)) as u64;
    (budget_ns / all.max(1)).clamp(2_000_000, SLICE_MS_MAX * 1_000_000)
}

#[cfg(test)]
mod tests {
    use portolan_hosts::lab::Burst;

    use super::*;

    const HERE: Whereabouts = Whereabouts {
        shm: true,
        lab: false,
    };
    const LAB: Whereabouts = Whereabouts {
        shm: false,
        lab: true,
    };

    fn asked(kind: Kind, measure: Measure) -> Paired {
        Paired {
            kind,
            pattern: None,
            measure,
        }
    }

    fn plan(kind: Kind, measure: Measure, at: Whereabouts) -> Plan {
        Plan::new(&asked(kind, measure), at).unwrap()
    }

    #[test]
    fn defaults_follow_the_bench() {
        let latency = plan(Kind::Latency, Measure::default(), HERE);
        assert_eq!(
            (latency.pattern, latency.sizes.as_slice()),
            (Pattern::Pingpong, &[8][..])
        );
        assert_eq!(
            (latency.slices, latency.slice_ns, latency.lossy),
            (21, 100_000_000, false)
        );
        let sweep = plan(Kind::Bandwidth, Measure::default(), HERE);
        assert_eq!(
            (sweep.pattern, sweep.sizes.len()),
            (Pattern::Stream, SWEEP.len())
        );
        let losses = Measure {
            losses: vec![0.0, 5.0],
            ..Measure::default()
        };
        let lossy = plan(Kind::Bandwidth, losses, LAB);
        assert_eq!(
            (lossy.sizes.as_slice(), lossy.columns.as_slice()),
            (
                &[1 << 20][..],
                &[0.0, 5.0].map(|loss| Column::losing(loss, None))[..]
            )
        );
    }

    #[test]
    fn harm_is_set_against_none() {
        let harms = ["repeat=50", "corrupt=10+loss=10"].map(|text| text.parse().unwrap());
        let measure = Measure {
            harms: harms.to_vec(),
            ..Measure::default()
        };
        let plan = plan(Kind::Bandwidth, measure, LAB);
        assert_eq!((plan.columns.len(), plan.lossy), (3, true));
        assert!(plan.columns[0].is_clean());
        assert_eq!(plan.columns[1], Column::doing(harms[0]));
        let [repeats, spoils] = [1, 2].map(|column| plan.columns[column].loss);
        assert_eq!(repeats, 0.0);
        assert!((spoils - 19.0).abs() < 1e-9, "{spoils}");
    }

    #[test]
    fn losses_come_singly_and_in_bursts_in_turns() {
        let burst: Burst = "3-64".parse().unwrap();
        let plan = |both| {
            let measure = Measure {
                losses: vec![0.0, 1.0, 5.0],
                bursts: Some(burst),
                both,
                ..Measure::default()
            };
            plan(Kind::Bandwidth, measure, LAB).columns
        };
        let of = |loss, burst| Column::losing(loss, burst);
        let (one, five) = (of(1.0, Some(burst)), of(5.0, Some(burst)));
        assert_eq!(plan(false), [Column::CLEAN, one, five]);
        let singly = [of(1.0, None), of(5.0, None)];
        assert_eq!(plan(true), [Column::CLEAN, singly[0], one, singly[1], five]);
    }

    #[test]
    fn all_slices_together_keep_to_the_budget() {
        for vs in [
            vec![],
            vec![Peer::Udp, Peer::Tcp],
            vec![Peer::ShmCopy, Peer::Udp, Peer::Tcp],
        ] {
            let measure = Measure {
                vs,
                ..Measure::default()
            };
            let plan = plan(Kind::Bandwidth, measure, HERE);
            let cells = (plan.sizes.len() * plan.systems.len() * (plan.slices + 1)) as u64;
            assert!(cells * plan.slice_ns <= BUDGET_NS, "{plan:?}");
        }
    }

    #[test]
    fn the_floor_brings_the_bounced_line_along() {
        let measure = Measure {
            vs: vec![Peer::ShmFloor],
            ..Measure::default()
        };
        let plan = plan(Kind::Latency, measure, HERE);
        assert_eq!(
            plan.systems,
            [
                SystemKind::Portolan,
                SystemKind::ShmFloor,
                SystemKind::ShmLine
            ]
        );
    }

    #[test]
    fn what_cannot_be_measured_is_said_with_a_remedy() {
        let refused = |kind, measure, at| {
            let refused = Plan::new(&asked(kind, measure), at).unwrap_err();
            refused.to_string()
        };
        let losses = |losses: &[f64]| Measure {
            losses: losses.to_vec(),
            ..Measure::default()
        };
        let vs = |vs: &[Peer], wait| Measure {
            vs: vs.to_vec(),
            wait,
            ..Measure::default()
        };
        let harms = Measure {
            harms: vec!["repeat=50".parse().unwrap()],
            ..Measure::default()
        };
        let floor = || vs(&[Peer::Udp, Peer::ShmFloor], None);
        let asleep = vs(&[Peer::Udp, Peer::ShmFloor], Some(Wait::Block));
        let copy = vs(&[Peer::ShmCopy], None);
        for (kind, measure, at, remedies) in [
            (Kind::Latency, losses(&[1.0]), HERE, ["--lab", "--loss"]),
            (Kind::Latency, losses(&[1.0, 100.0]), LAB, ["100", "--loss"]),
            (Kind::Latency, floor(), LAB, ["shm-floor", "--link shm"]),
            (Kind::Rate, copy, HERE, ["bandwidth", "stream"]),
            (Kind::Latency, asleep, HERE, ["--vs udp,tcp,tls", "poll"]),
            (Kind::Bandwidth, harms, HERE, ["--lab", "--harm"]),
        ] {
            let said = refused(kind, measure, at);
            assert!(remedies.iter().all(|part| said.contains(part)), "{said}");
        }
        for size in [0, 7, SIZE_MAX + 1] {
            let measure = Measure {
                size: Some(size),
                ..Measure::default()
            };
            let size = refused(Kind::Latency, measure, HERE);
            assert!(size.contains("--size"), "{size}");
        }
    }
}
