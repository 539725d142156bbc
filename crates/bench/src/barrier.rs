//! The time of a barrier, beside that of other systems in the same run.

use portolan_boot::launch::{JobSpec, RANKS_MAX};
use portolan_hosts::failure::Result;
use portolan_hosts::lab::Lab;

use super::conduct::{Progress, hear, unexpected};
use super::control::{Answer, Line, Order};
use super::mpi::{Kind, Mpi};
use super::options::{Common, Link};
use super::plan::wrong;
use super::report::{Report, Row};
use super::slice::SLICE_MS_MAX;
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check, job, through_shm};

/// Barriers of our first slice.
const FIRST_COUNT: u64 = 64;
/// Most barriers of a slice.
const COUNT_MAX: u64 = 10_000_000;

/// A system's slices.
#[derive(Default)]
struct Column {
    /// Mean time of a barrier, us.
    values: Vec<Option<f64>>,
    /// Barriers of all slices.
    n: u64,
}

impl Column {
    fn keep(&mut self, round: usize, (us, count): (f64, u64)) {
        if round > 0 {
            self.values.push(Some(us));
            self.n += count;
        }
    }

    fn row(&self, like: &Row) -> Option<Row> {
        let seen: Vec<f64> = self.values.iter().flatten().copied().collect();
        let q = Quartiles::of(&seen)?;
        let row = Row {
            n: self.n,
            ..like.clone()
        };
        Some(row.with(&q))
    }
}

/// Measures `ranks` ranks, and as many processes of each of `vs`.
pub fn bench(common: Common, ranks: u32, vs: &[Kind]) -> Result<Found> {
    if !(2..=RANKS_MAX).contains(&ranks) {
        return wrong(format!("-n {ranks}: a barrier has 2 to {RANKS_MAX} ranks"));
    }
    check(common.json.as_deref(), 2)?;
    let lab = common.lab.as_deref().map(Lab::open).transpose()?;
    if !vs.is_empty() && (lab.is_some() || common.link == Link::Udp) {
        return wrong(
            "--vs: other systems are started on this host and use its shared memory: leave out --lab and --link udp",
        );
    }
    let shm = through_shm(&common, lab.as_ref())?;
    let mut peers = vs
        .iter()
        .map(|&kind| Mpi::build(kind))
        .collect::<Result<Vec<_>>>()?;
    let mut spec = common.spec(ranks, false, shm)?;
    if let Some(lab) = &lab {
        spec.hosts = JobSpec::blocks(ranks, lab.hosts().min(ranks));
        spec.link = portolan_boot::LinkChoice::Auto;
    }
    let mut watch = Watch::begin(common.lab.as_deref());
    let slice_ns = common.slice_ms.unwrap_or(SLICE_MS_MAX) * 1_000_000;
    let (link, (ours, theirs)) = job::with_lines(
        spec,
        lab.as_ref(),
        job::Helpers::All,
        &mut watch.host,
        |lines| run(lines, &mut peers, ranks, common.slices(), slice_ns),
    )?;
    let setting = common.setting(link, ranks);
    let like = Row {
        metric: "latency_us".to_owned(),
        method: format!(
            "mean time of a barrier, in interleaved slices of {} ms",
            slice_ns / 1_000_000
        ),
        ..setting.row()
    };
    let mut rows: Vec<Row> = ours.row(&like).into_iter().collect();
    let mut ratios = Vec::new();
    for (peer, column) in peers.iter().zip(&theirs) {
        let over = peer.kind().name().to_owned();
        rows.extend(column.row(&Row {
            system: over.clone(),
            metric: like.metric.clone(),
            method: format!("{}; {}", peer.method(), like.method),
            ranks,
            ..Row::default()
        }));
        let q = paired(&ours.values, &column.values);
        ratios.extend(q.map(|q| like.over(&like.metric, &over).with(&q)));
    }
    let report = Report {
        ratios,
        ..watch.report("barrier", rows)
    };
    Ok((common.json, report))
}

/// A round gives each system a slice; the first one warms up.
fn run(
    lines: &mut [Line],
    peers: &mut [Mpi],
    ranks: u32,
    slices: usize,
    slice_ns: u64,
) -> Result<(Column, Vec<Column>)> {
    let mut ours = Column::default();
    let mut theirs: Vec<Column> = peers.iter().map(|_| Column::default()).collect();
    let mut count = FIRST_COUNT;
    let mut progress = Progress::new(slices);
    for round in 0..=slices {
        progress.show(round);
        let us = meet(lines, count)? as f64 / 1e3 / count as f64;
        ours.keep(round, (us, count));
        count = ((slice_ns as f64 / 1e3 / us) as u64).clamp(FIRST_COUNT, COUNT_MAX);
        for (peer, column) in peers.iter_mut().zip(&mut theirs) {
            column.keep(round, peer.barrier(ranks, slice_ns)?);
        }
    }
    progress.done();
    Ok((ours, theirs))
}

/// Has all ranks meet `count` times; gives the time that rank 0 saw, ns.
fn meet(lines: &mut [Line], count: u64) -> Result<u64> {
    for line in &mut *lines {
        line.say(&Order::Barriers(count))?;
    }
    let mut elapsed = Vec::new();
    for line in lines {
        match hear(line)? {
            Answer::Met(ns) => elapsed.push(ns),
            other => return unexpected(&other),
        }
    }
    Ok(elapsed.first().copied().unwrap_or_default().max(1))
}
