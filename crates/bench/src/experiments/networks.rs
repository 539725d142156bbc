//! What further networks add: two pairs of ranks on the same two hosts of a
//! lab, one with the first network alone and one with all, in turns.

use clap::Args;
use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::Result;

use crate::conduct::{Cell, Conductor};
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::job::{Job, two};
use crate::loss::NoLoss;
use crate::options::{Common, Link};
use crate::plan::{Kind, Plan, Whereabouts};
use crate::ranks::portolan::payload_max;
use crate::report::dimensions::Dimension;
use crate::report::summary;

/// The word for every network, and the name of a lab's first.
const ALL: &str = "all";
const FIRST: &str = "eth0";

/// As it was asked for.
#[derive(Args)]
pub struct Networks {
    #[command(flatten)]
    pub common: Common,
    /// Message size, bytes, or with K or M
    #[arg(long, value_name = "BYTES", default_value = "1M")]
    size: Bytes,
}

impl Experiment for Networks {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self { common, size } = self;
        let lab = stage.needs_lab(
            2,
            "needs hosts with two networks",
            "--hosts 2 --switches 2 --rate 200mbit --buffer 64k",
        )?;
        if !lab.has_two_switches() {
            return wrong(format!(
                "bench networks needs two hosts on two switches, and lab {} has fewer: make one \
                 with --hosts 2 --switches 2",
                lab.name()
            ));
        }
        if common.network.link == Link::Xdp {
            return wrong(
                "bench networks runs two jobs at once, and the host ports of a queue belong to one \
                 job: use --link udp",
            );
        }
        let interfaces = networks(common.network.interface.as_deref())?;
        let job = |interface: &String| -> Result<Job> {
            let mut with = common.clone();
            with.network.interface = Some(interface.clone());
            Ok(Job::new(with.spec(Some(&lab), 2)?))
        };
        let jobs = [job(&interfaces[0])?, job(&interfaces[1])?];
        let at = Whereabouts {
            shm: false,
            lab: true,
        };
        let plan = Plan::of_two(Kind::Bandwidth, size.0, common, at)?;
        let sites = [0, 1].map(|host| stage.site(host));
        let (links, all) = stage.jobs(jobs, |lines| {
            let mut none = [NoLoss, NoLoss];
            let mut pairs = Vec::new();
            for (lines, loss) in lines.into_iter().zip(&mut none) {
                let payload = Some(payload_max(&lab));
                pairs.push(Conductor::new(
                    &plan,
                    two(lines)?,
                    loss,
                    sites.clone(),
                    payload,
                ));
            }
            let begun = pairs.iter_mut().map(Conductor::begin);
            let mut all = begun.collect::<Result<Vec<Vec<Cell>>>>()?;
            rounds(plan.slices, |counts| {
                let mut each = pairs.iter_mut().zip(&mut all);
                each.try_for_each(|(pair, cells)| pair.round(counts, cells))
            })?;
            Ok(all)
        })?;
        let mut found = Findings::default();
        for ((cells, link), interface) in all.iter().zip(links).zip(interfaces) {
            let rows = summary::findings(cells, &plan, &common.setting(link, 2)).rows;
            let with = rows
                .into_iter()
                .map(|row| row.at(Dimension::Interface, interface.as_str()));
            found.rows.extend(with);
        }
        // What all networks carry over what the first does.
        let (row, [first, every]) = (&found.rows[0], [&all[0][0], &all[1][0]]);
        let metric = "bandwidth_mb_s_networks";
        let ratio = row.over(metric, &every.values, &row.system, &first.values);
        found.ratios.extend(ratio);
        Ok(found)
    }
}

/// The first of the networks asked for, and all of them.
fn networks(asked: Option<&str>) -> Result<[String; 2]> {
    let all = asked.unwrap_or(ALL);
    let first = match all.split_once(',') {
        Some((first, _)) => first,
        None if all == ALL => FIRST,
        None => {
            return wrong(format!(
                "--interface {all}: name two networks or more, or leave it out for all of them"
            ));
        }
    };
    Ok([first, all].map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_network_is_set_against_all() {
        let of = |asked| networks(asked).unwrap();
        assert_eq!(of(None), ["eth0", "all"]);
        assert_eq!(of(Some("all")), ["eth0", "all"]);
        assert_eq!(of(Some("eth1,eth0")), ["eth1", "eth1,eth0"]);
        assert!(networks(Some("eth0")).is_err());
    }
}
