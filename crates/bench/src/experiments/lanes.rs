//! What connected peers on another host cost two ranks on one: the latency
//! through shared memory of a pair alone, and of a pair whose job has a third
//! rank elsewhere, with host ports between. The third sends the two a word
//! every now and then; in turns.

use std::time::Duration;

use clap::Args;
use portolan::SendError;
use portolan_boot::LinkChoice;
use portolan_hosts::choices::bytes;
use portolan_hosts::failure::{Result, fail};

use crate::conduct::{Cell, Conductor, answer, expect_ready};
use crate::control::{Answer, ControlLine, Order};
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::job::{Job, two};
use crate::loss::NoLoss;
use crate::options::{Common, Link};
use crate::plan::{Kind, Plan, Whereabouts};
use crate::ranks::portolan::{Ours, PLAY, ours};
use crate::ranks::rank::Site;
use crate::report::dimensions::Dimension;
use crate::report::summary;

/// Time between two words of the rank elsewhere.
const PAUSE: Duration = Duration::from_millis(5);

impl Ours {
    /// Sends each of `whom` a word every now and then until the bench says
    /// stop, and then says by which link.
    pub fn trickle(&self, whom: &[u32], line: &mut ControlLine) -> Result<()> {
        line.say(&Answer::Ready)?;
        loop {
            for &rank in whom {
                match self.endpoint.try_send(rank, PLAY, &[0; 8]) {
                    Ok(_) | Err(SendError::NoCredit) => {}
                    Err(error) => return Err(ours(error)),
                }
            }
            self.endpoint.progress().map_err(ours)?;
            std::thread::sleep(PAUSE);
            if line.stops()? {
                return line.say(&Answer::Trickled(self.link()?));
            }
        }
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Lanes {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes
    #[arg(long, value_name = "BYTES", default_value_t = 8, value_parser = bytes)]
    size: usize,
}

impl Experiment for Lanes {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self { common, size } = self;
        let lab = stage.needs_lab(2, "needs another host for the peer", "--hosts 2")?;
        if !matches!(common.network.link, Link::Auto | Link::Xdp) {
            return wrong(
                "bench lanes has shared memory within a host and xdp between: leave out --link",
            );
        }
        let job = |hosts: &[u32], link| -> Result<Job> {
            let mut spec = common.spec(Some(&lab), hosts.iter().sum())?;
            (spec.hosts, spec.link) = (hosts.to_vec(), link);
            Ok(Job::new(spec))
        };
        let jobs = [job(&[2], LinkChoice::Shm)?, job(&[2, 1], LinkChoice::Auto)?];
        let at = Whereabouts {
            shm: true,
            lab: true,
        };
        let plan = Plan::of_two(Kind::Latency, *size, common, at)?;
        let site = Site {
            one_host: true,
            ..stage.site(0)
        };
        let (links, all) = stage.jobs(jobs, |[alone, beside]| run(&plan, &site, alone, beside))?;
        let mut found = Findings::default();
        let others = [(2, None), (3, Some("an xdp peer"))];
        for ((cells, link), (ranks, beside)) in all.iter().zip(links).zip(others) {
            if link != "shm" {
                return fail(format!("two ranks on one host talk by {link}, not shm"));
            }
            let rows = summary::findings(cells, &plan, &common.setting(link, ranks)).rows;
            let with = rows
                .into_iter()
                .map(|row| row.at_some(Dimension::Beside, beside));
            found.rows.extend(with);
        }
        // The latency with a peer elsewhere over that without.
        let (row, [alone, beside]) = (&found.rows[0], [&all[0][0], &all[1][0]]);
        let ratio = row.over(
            "latency_us_beside",
            &beside.values,
            &row.system,
            &alone.values,
        );
        found.ratios.extend(ratio);
        Ok(found)
    }
}

/// Gives both pairs their turns.
fn run(
    plan: &Plan,
    site: &Site,
    alone: &mut [ControlLine],
    beside: &mut [ControlLine],
) -> Result<[Vec<Cell>; 2]> {
    let [leader, follower, elsewhere] = beside else {
        return fail("two ranks are on one host and one elsewhere");
    };
    let sites = || [site.clone(), site.clone()];
    let mut none = [NoLoss, NoLoss];
    let [for_alone, for_beside] = &mut none;
    let mut alone = Conductor::new(plan, two(alone)?, for_alone, sites(), None);
    let mut beside = Conductor::new(plan, [leader, follower], for_beside, sites(), None);
    let mut cells = [alone.begin()?, beside.begin()?];
    rounds(plan.slices, |counts| {
        alone.round(counts, &mut cells[0])?;
        elsewhere.say(&Order::Trickle(vec![0, 1]))?;
        expect_ready(elsewhere)?;
        beside.round(counts, &mut cells[1])?;
        elsewhere.say(&Order::Stop)?;
        let link = answer!(elsewhere, Trickled);
        if link == "xdp" {
            return Ok(());
        }
        fail(format!(
            "the peer elsewhere is connected by {link} and not by xdp: `portolan run -v` says why \
             there is no host port"
        ))
    })?;
    Ok(cells)
}
