//! What connected peers on another host cost two ranks on one: the latency
//! through shared memory of a pair alone, and of a pair whose job has a third
//! rank elsewhere, with host ports between. The third sends the two a word
//! every now and then; in turns.

use std::time::Duration;

use portolan::SendError;
use portolan_hosts::failure::{Result, fail};
use portolan_hosts::lab::Lab;

use super::conduct::{Cell, Conductor, Progress, expect_ready, hear, unexpected};
use super::control::{Answer, Line, Order};
use super::job::{two, with_two_jobs};
use super::loss::NoLoss;
use super::options::{Common, Link};
use super::plan::{Asked, Kind, Plan, wrong};
use super::portolan::{Ours, PLAY, ours};
use super::rank::Site;
use super::report::{Ratio, Report, Row};
use super::stats::paired;
use super::watch::Watch;
use super::{Found, check, summary};

/// Time between two words of the rank elsewhere.
const NUDGE: Duration = Duration::from_millis(5);

impl Ours {
    /// Sends each of `whom` a word every now and then until the bench says
    /// stop, and then says by which link.
    pub fn nudge(&self, whom: &[u32], line: &mut Line) -> Result<()> {
        line.say(&Answer::Ready)?;
        loop {
            for &rank in whom {
                match self.endpoint.try_send(rank, PLAY, &[0; 8]) {
                    Ok(_) | Err(SendError::NoCredit) => {}
                    Err(error) => return Err(ours(error)),
                }
            }
            self.endpoint.progress().map_err(ours)?;
            std::thread::sleep(NUDGE);
            match line.try_hear()? {
                None => {}
                Some(Order::Stop) => return line.say(&Answer::Nudged(self.link()?)),
                Some(order) => {
                    return fail(format!("the bench sent {order:?} to a peer elsewhere"));
                }
            }
        }
    }
}

/// Measures messages of `size` bytes.
pub fn bench(common: Common, size: usize) -> Result<Found> {
    check(common.json.as_deref(), 2)?;
    let Some(lab) = common.lab.as_deref().map(Lab::open).transpose()? else {
        return wrong(
            "bench lanes needs another host for the peer: add --lab NAME (portolan lab up NAME \
             makes one)",
        );
    };
    if lab.hosts() < 2 {
        return wrong(format!(
            "lab {} has one host and bench lanes needs two: make one with --hosts 2",
            lab.name()
        ));
    }
    if !matches!(common.link, Link::Auto | Link::Xdp) {
        return wrong(
            "bench lanes has shared memory within a host and xdp between: leave out --link",
        );
    }
    let alone = common.spec(2, false, true)?;
    let mut beside = common.spec(3, false, false)?;
    beside.hosts = vec![2, 1];
    beside.link = portolan_boot::LinkChoice::Auto;
    let plan = Plan::new(&Asked {
        xdp: false,
        shm: true,
        ..Asked::in_lab(Kind::Latency, size, &common)
    })?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let (links, cells) =
        with_two_jobs([alone, beside], &lab, &mut watch.host, |[alone, beside]| {
            run(&plan, &lab, alone, beside)
        })?;
    let mut rows = Vec::new();
    for (((cells, link), ranks), beside) in cells
        .iter()
        .zip(links)
        .zip([2, 3])
        .zip([None, Some("an xdp peer".to_owned())])
    {
        if link != "shm" {
            return fail(format!("two ranks on one host talk by {link}, not shm"));
        }
        let setting = common.setting(link, ranks);
        let of_job = summary::rows(cells, &plan, &setting);
        rows.extend(of_job.into_iter().map(|row| Row {
            beside: beside.clone(),
            ..row
        }));
    }
    let ratios = ratio(&rows, &cells).into_iter().collect();
    let report = Report {
        ratios,
        ..watch.report("lanes", rows)
    };
    Ok((common.json, report))
}

/// Gives both pairs their turns.
fn run(plan: &Plan, lab: &Lab, alone: &mut [Line], beside: &mut [Line]) -> Result<[Vec<Cell>; 2]> {
    let [leader, follower, elsewhere] = beside else {
        return fail("two ranks are on one host and one elsewhere");
    };
    let sites = || {
        [0, 1].map(|_| Site {
            one_host: true,
            ..Site::in_lab(lab, 0)
        })
    };
    let mut nothing = [NoLoss, NoLoss];
    let [for_alone, for_beside] = &mut nothing;
    let mut alone = Conductor::new(plan, two(alone)?, for_alone, sites(), None);
    let mut beside = Conductor::new(plan, [leader, follower], for_beside, sites(), None);
    let mut cells = [alone.begin()?, beside.begin()?];
    let mut progress = Progress::new(plan.slices);
    for round in 0..=plan.slices {
        progress.show(round);
        alone.round(round, &mut cells[0])?;
        elsewhere.say(&Order::Nudge(vec![0, 1]))?;
        expect_ready(elsewhere)?;
        beside.round(round, &mut cells[1])?;
        elsewhere.say(&Order::Stop)?;
        match hear(elsewhere)? {
            Answer::Nudged(link) if link == "xdp" => {}
            Answer::Nudged(link) => {
                return fail(format!(
                    "the peer elsewhere is connected by {link} and not by xdp: `portolan run -v` \
                     says why there is no host port"
                ));
            }
            other => return unexpected(&other),
        }
    }
    progress.done();
    Ok(cells)
}

/// The latency with a peer elsewhere over that without.
fn ratio(rows: &[Row], [alone, beside]: &[Vec<Cell>; 2]) -> Option<Ratio> {
    let (row, alone, beside) = (rows.first()?, alone.first()?, beside.first()?);
    let q = paired(&beside.values, &alone.values)?;
    Some(row.over("latency_us_beside", &row.system).with(&q))
}
