//! What further networks add: two pairs of ranks on the same two hosts of a
//! lab, one with the first network alone and one with all, in turns.

use portolan_hosts::failure::Result;
use portolan_hosts::lab::Lab;

use super::conduct::{Cell, Conductor, Progress};
use super::control::Line;
use super::job::{two, with_two_jobs};
use super::loss::NoLoss;
use super::options::{Common, Link};
use super::plan::{Asked, Kind, Plan, wrong};
use super::portolan::payload_max;
use super::rank::Site;
use super::report::{Ratio, Report, Row};
use super::stats::paired;
use super::watch::Watch;
use super::{Found, check, summary, through_shm};

/// The word for every network, and the name of a lab's first.
const ALL: &str = "all";
const FIRST: &str = "eth0";

/// Measures streams of messages of `size` bytes.
pub fn bench(common: Common, size: usize) -> Result<Found> {
    check(common.json.as_deref(), 2)?;
    let Some(lab) = common.lab.as_deref().map(Lab::open).transpose()? else {
        return wrong(
            "bench networks needs hosts with two networks: add --lab NAME (portolan lab up NAME \
             --switches 2 --rate 200mbit --buffer 64k makes one)",
        );
    };
    if lab.hosts() < 2 || !lab.has_two_switches() {
        return wrong(format!(
            "bench networks needs two hosts on two switches, and lab {} has fewer: make one with \
             --hosts 2 --switches 2",
            lab.name()
        ));
    }
    if common.link == Link::Xdp {
        return wrong(
            "bench networks runs two jobs at once, and the host ports of a queue belong to one \
             job: use --link udp",
        );
    }
    through_shm(&common, Some(&lab))?;
    let interfaces = networks(common.interface.as_deref())?;
    let spec = |interface: &String| {
        let with = Common {
            interface: Some(interface.clone()),
            ..common.clone()
        };
        with.spec(2, true, false)
    };
    let specs = [spec(&interfaces[0])?, spec(&interfaces[1])?];
    let plan = Plan::new(&Asked::in_lab(Kind::Bandwidth, size, &common))?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let (links, cells) =
        with_two_jobs(specs, &lab, &mut watch.host, |jobs| run(&plan, &lab, jobs))?;
    let mut rows = Vec::new();
    for ((cells, link), interface) in cells.iter().zip(links).zip(&interfaces) {
        let setting = common.setting(link, 2);
        let of_job = summary::rows(cells, &plan, &setting);
        rows.extend(of_job.into_iter().map(|row| Row {
            interface: Some(interface.clone()),
            ..row
        }));
    }
    let ratios = ratio(&rows, &cells).into_iter().collect();
    let report = Report {
        ratios,
        ..watch.report("networks", rows)
    };
    Ok((common.json, report))
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

/// Gives both pairs their turns.
fn run(plan: &Plan, lab: &Lab, [first, every]: [&mut [Line]; 2]) -> Result<[Vec<Cell>; 2]> {
    let sites = || [0, 1].map(|host| Site::in_lab(lab, host));
    let payload = Some(payload_max(lab));
    let mut nothing = [NoLoss, NoLoss];
    let [for_first, for_every] = &mut nothing;
    let mut first = Conductor::new(plan, two(first)?, for_first, sites(), payload);
    let mut every = Conductor::new(plan, two(every)?, for_every, sites(), payload);
    let mut cells = [first.begin()?, every.begin()?];
    let mut progress = Progress::new(plan.slices);
    for round in 0..=plan.slices {
        progress.show(round);
        first.round(round, &mut cells[0])?;
        every.round(round, &mut cells[1])?;
    }
    progress.done();
    Ok(cells)
}

/// What all networks carry over what the first does.
fn ratio(rows: &[Row], [first, every]: &[Vec<Cell>; 2]) -> Option<Ratio> {
    let (row, first, every) = (rows.first()?, first.first()?, every.first()?);
    let q = paired(&every.values, &first.values)?;
    Some(row.over("bandwidth_mb_s_networks", &row.system).with(&q))
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
