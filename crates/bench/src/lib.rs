//! `portolan bench`: measures ourselves beside others in one run.
//!
//! This process only conducts: it starts the ranks, gives each system its
//! turn for a slice, and reckons up. The ranks (`rank`) measure, all systems
//! by the same loops (`drive`).
#![forbid(unsafe_code)]
// They panic when their reader is gone or the disk is full: `print` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod asleep;
mod bare;
mod barrier;
mod busy;
mod conduct;
mod control;
mod cost;
mod course;
mod death;
mod drive;
mod early_late;
mod fairness;
mod figure;
mod flood;
mod floor;
mod forged;
mod forger;
mod host;
mod how;
mod idle;
mod incast;
mod job;
mod kernel;
mod lanes;
mod logp;
mod loss;
mod matched;
mod matching;
mod memcpy;
mod memory;
mod mpi;
mod mpis;
mod netpipe;
mod networks;
mod options;
mod outage;
mod overlap;
mod pace;
mod patience;
mod plan;
mod portolan;
mod pour;
mod pushpull;
mod rank;
mod reach;
mod report;
mod ring;
mod rma;
mod slice;
mod sockets;
mod spray;
mod stalled;
mod start;
mod stats;
mod summary;
mod tcp_flow;
mod threads;
mod ucx;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use portolan_hosts::failure::{Context, Result};
use portolan_hosts::lab::Lab;
use portolan_hosts::print::print;

use asleep::Wait;
use busy::Busy;
use conduct::Conductor;
use job::Helpers;
use loss::{LabHarm, LabLoss, Loss, NoLoss};
use options::{Bench, Common, Link};
use plan::{Asked, Kind, Plan, wrong};
use rank::Site;
use watch::Watch;

pub use self::portolan::ours;
pub use busy::{BENCH_LOOP_COMMAND, LoopArguments, busy_loop};
pub use death::BENCH_DEATH_COMMAND;
pub use host::Host;
pub use job::BENCH_RANK_COMMAND;
pub use matched::compute_until;
pub use memory::{BENCH_MEMORY_COMMAND, MemoryArguments, process as memory_process};
pub use options::{Arguments, RankArguments};
pub use report::{Ratio, Report, Row, table};
pub use start::BENCH_FIRST_COMMAND;
pub use stats::Quartiles;

/// What a bench found, and the file that is to have it too.
type Found = (Option<PathBuf>, Report);

/// Runs a bench.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let (json, report) = match arguments.bench {
        Bench::Latency(it) => paired(Kind::Latency, it, None)?,
        Bench::Bandwidth { measure, pattern } => paired(Kind::Bandwidth, measure, pattern)?,
        Bench::Rate(it) => paired(Kind::Rate, it, None)?,
        Bench::Jitter(it) => paired(Kind::Jitter, it, None)?,
        Bench::Stalled { common, size } => stalled(common, size)?,
        Bench::Barrier { common, ranks, vs } => barrier::bench(common, ranks, &vs)?,
        Bench::Ring(it) => ring::bench(it)?,
        Bench::Incast(it) => incast::bench(incast::Shape::Incast, it)?,
        Bench::Alltoall(it) => incast::bench(incast::Shape::Alltoall, it)?,
        Bench::Idle {
            common,
            ranks,
            seconds,
        } => idle::bench(common, ranks, seconds)?,
        Bench::Networks { common, size } => networks::bench(common, size.0)?,
        Bench::Lanes { common, size } => lanes::bench(common, size)?,
        Bench::Fairness(it) => fairness::bench(it)?,
        Bench::Outage(it) => outage::bench(it)?,
        Bench::Forged(it) => forged::bench(it)?,
        Bench::Start(it) => start::bench(it)?,
        Bench::Death(it) => death::bench(it)?,
        Bench::Spray { common, messages } => spray::bench(common, messages)?,
        Bench::Match(it) => matching::bench(it)?,
        Bench::Netpipe(it) => mpis::bench(it)?,
        Bench::Pushpull(it) => pushpull::bench(it)?,
        Bench::EarlyLate(it) => early_late::bench(it)?,
        Bench::Overlap { common, size, vs } => overlap::bench(common, size.0, &vs)?,
        Bench::Rma { common, sizes } => rma::bench(common, &sizes)?,
        Bench::Threads(it) => threads::bench(it)?,
        Bench::Memory { json } => memory::bench(json)?,
        Bench::Logp { common } => logp::bench(common)?,
    };
    if let Some(file) = &json {
        let json = serde_json::to_vec_pretty(&report)?;
        std::fs::write(file, json).context(format!("writing {}", file.display()))?;
    }
    print(report.text())?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes a rank of a bench.
pub fn rank(arguments: &RankArguments) -> Result<ExitCode> {
    rank::main(!arguments.no_helper, arguments.threads).map(|()| ExitCode::SUCCESS)
}

/// Becomes a rank of the start bench.
pub fn first_message() -> Result<ExitCode> {
    rank::first_message().map(|()| ExitCode::SUCCESS)
}

/// Becomes a rank of the death bench; `memory` is what the victim uses, bytes.
pub fn death(memory: usize) -> Result<ExitCode> {
    death::rank(memory).map(|()| ExitCode::SUCCESS)
}

/// What can be found wrong before anything starts.
fn check(json: Option<&Path>, ranks: usize) -> Result<()> {
    if let Some(file) = json {
        writable(file)?;
    }
    let cores = portolan_hosts::ranks::allowed_cores()
        .context("asking for the allowed cores")?
        .len();
    if cores < 2 && ranks > 1 {
        return wrong(
            "two processes that poll on one core measure its scheduler: give the bench at least 2 cores",
        );
    }
    Ok(())
}

/// Opens the file for writing, so that a run is not lost for a wrong name.
fn writable(file: &Path) -> Result<()> {
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(file);
    opened.map(drop).context(format!(
        "--json {}: cannot be written, choose another place",
        file.display()
    ))
}

/// The lab of a bench of two ranks, if it is to run in one.
fn lab_of_two(common: &Common) -> Result<Option<Lab>> {
    let lab = common.lab.as_deref().map(Lab::open).transpose()?;
    if let Some(lab) = lab.as_ref().filter(|lab| lab.hosts() < 2) {
        return wrong(format!(
            "lab {} has one host and the bench needs two: make one with --hosts 2",
            lab.name()
        ));
    }
    Ok(lab)
}

/// Whether the ranks will talk through shared memory.
fn through_shm(common: &Common, lab: Option<&Lab>) -> Result<bool> {
    match (common.link, lab) {
        (Link::Shm, Some(_)) => wrong(
            "--link shm reaches no other host, and a lab's hosts are others: leave out --lab or --link",
        ),
        (Link::Xdp, None) => wrong("--link xdp goes between hosts: add --lab NAME"),
        (Link::Udp | Link::Xdp, _) | (Link::Auto, Some(_)) => Ok(false),
        (Link::Shm | Link::Auto, None) => Ok(true),
    }
}

/// The links that a bench of every link goes through.
fn links(common: &Common, lab: Option<&Lab>) -> &'static [Link] {
    match (common.link, lab) {
        (Link::Auto, None) => &[Link::Shm, Link::Udp],
        (Link::Auto | Link::Udp, _) => &[Link::Udp],
        (Link::Shm, _) => &[Link::Shm],
        (Link::Xdp, _) => &[Link::Xdp],
    }
}

/// A bench of two ranks.
fn paired(
    kind: Kind,
    measure: options::Measure,
    pattern: Option<control::Pattern>,
) -> Result<Found> {
    let options::Measure {
        common,
        size,
        losses,
        bursts,
        both,
        harms,
        busy,
        wait,
        vs,
    } = measure;
    let wait = wait.unwrap_or(if busy.is_empty() {
        Wait::Poll
    } else {
        Wait::Call
    });
    check(common.json.as_deref(), 2)?;
    let lab = lab_of_two(&common)?;
    let shm = through_shm(&common, lab.as_ref())?;
    let plan = Plan::new(&Asked {
        kind,
        size,
        losses,
        bursts,
        both,
        harms,
        busy,
        pattern,
        wait,
        vs,
        slices: common.slices,
        slice_ms: common.slice_ms,
        shm,
        xdp: common.link == Link::Xdp,
        lab: lab.is_some(),
    })?;
    let sites = [0, 1].map(|host| Site {
        host: lab
            .as_ref()
            .map_or("127.0.0.1".to_owned(), |lab| lab.ipv4(host).to_string()),
        one_host: lab.is_none(),
    });
    let payload = lab.as_ref().map(portolan::payload_max);
    let mut watch = Watch::begin(common.lab.as_deref());
    let mut loss: Box<dyn Loss> = match &lab {
        Some(lab) if plan.columns.iter().any(|column| column.harm.is_some()) => {
            Box::new(LabHarm::start(lab)?)
        }
        Some(lab) if plan.lossy => Box::new(LabLoss::start(lab)?),
        _ if plan.columns.iter().any(|column| column.busy > 0) => Box::new(Busy::new()?),
        _ => Box::new(NoLoss),
    };
    let mut spec = common.spec(2, lab.is_some(), shm)?;
    if wait == Wait::Block {
        // A wait sleeps at once.
        for passes in ["spin_passes", "yield_passes"] {
            spec.settings.insert(passes.to_owned(), "0".to_owned());
        }
    }
    let (link, cells) =
        job::with_lines(spec, lab.as_ref(), Helpers::All, &mut watch.host, |lines| {
            Conductor::new(&plan, job::two(lines)?, loss.as_mut(), sites, payload).run()
        })?;
    let setting = common.setting(link, 2);
    let mut rows = summary::rows(&cells, &plan, &setting);
    let (curves, mut remarks) = summary::curves(&cells, &plan, &setting);
    rows.extend(curves);
    rows.extend(cost::rows(&cells, &plan, &setting));
    remarks.extend(summary::tail_remarks(&rows));
    remarks.extend(loss.remarks()?);
    let mut ratios = summary::ratios(&cells, &plan, &setting);
    ratios.extend(summary::beside(&cells, &plan, &setting));
    ratios.extend(cost::ratios(&cells, &plan, &setting));
    let report = Report {
        ratios,
        remarks,
        ..watch.report(kind.name(), rows)
    };
    Ok((common.json, report))
}

/// The bench of four ranks, over each link in turn.
fn stalled(common: Common, size: usize) -> Result<Found> {
    check(common.json.as_deref(), stalled::RANKS as usize)?;
    let lab = common.lab.as_deref().map(Lab::open).transpose()?;
    let mut watch = Watch::begin(common.lab.as_deref());
    if size > stalled::SIZE_MAX {
        return wrong(format!(
            "--size {size}: give at most {} bytes",
            stalled::SIZE_MAX
        ));
    }
    let slice_ns = common.slice_ms.unwrap_or(slice::SLICE_MS_MAX) * 1_000_000;
    let (mut rows, mut ratios, mut remarks) = (Vec::new(), Vec::new(), Vec::new());
    for &link in links(&common, lab.as_ref()) {
        let of_link = Common {
            link,
            ..common.clone()
        };
        let shm = through_shm(&of_link, lab.as_ref())?;
        let mut spec = of_link.spec(stalled::RANKS, lab.is_some(), shm)?;
        if let Some(lab) = &lab {
            spec.hosts = portolan_boot::launch::JobSpec::blocks(
                stalled::RANKS,
                lab.hosts().min(stalled::RANKS),
            );
        }
        let (link, found) = job::with_lines(
            spec,
            lab.as_ref(),
            Helpers::AllBut(stalled::STALLED),
            &mut watch.host,
            |lines| stalled::run(lines, size, common.slices(), slice_ns),
        )?;
        let setting = of_link.setting(link, stalled::RANKS);
        let like = Row {
            size: Some(size),
            method: format!(
                "messages received in interleaved slices of {} ms",
                slice_ns / 1_000_000
            ),
            ..setting.row()
        };
        let (more_rows, more_ratios, more_remarks) = found.report(&like);
        rows.extend(more_rows);
        ratios.extend(more_ratios);
        remarks.extend(more_remarks);
    }
    let report = Report {
        ratios,
        remarks,
        ..watch.report("stalled", rows)
    };
    Ok((common.json, report))
}
