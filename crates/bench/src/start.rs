//! The time that a job takes to start: from the launcher's first instruction
//! until rank 0 has a message from every other rank.

use std::process::Command;

use clap::ValueEnum;
use portolan_hosts::failure::{Context, Result, fail};
use portolan_hosts::lab::Lab;

use super::conduct::Progress;
use super::mpi::{Mpi, PATIENCE, Trouble, launch};
use super::options::{Link, Start};
use super::plan::wrong;
use super::report::{Ratio, Report, Row};
use super::stats::{Quartiles, paired};
use super::watch::Watch;
use super::{Found, check};

/// The hidden command that is a rank of this bench.
pub const BENCH_FIRST_COMMAND: &str = "internal-bench-first";

/// Which time.
const METRICS: [(&str, &str); 2] = [
    (
        "start_ms",
        "from starting the launcher until rank 0 has a message from every other rank",
    ),
    (
        "job_ms",
        "from starting the launcher until it has ended; each rank sends one message",
    ),
];

/// One number of ranks: values by system, ourselves first, by metric.
struct Cell {
    ranks: u32,
    values: Vec<[Vec<Option<f64>>; 2]>,
}

/// Starts jobs of every size in turn, and those of the other systems.
pub fn bench(arguments: Start) -> Result<Found> {
    let most = portolan_boot::launch::RANKS_MAX;
    if let Some(n) = arguments.ranks.iter().find(|n| !(2..=most).contains(*n)) {
        return wrong(format!(
            "-n {n}: give 2 to {most} ranks, with commas between"
        ));
    }
    check(arguments.json.as_deref(), 1)?;
    let lab = arguments.lab.as_deref();
    lab.map(Lab::open).transpose()?;
    let mut own = vec![arguments.link];
    own.extend(Some(Link::Udp).filter(|udp| lab.is_some() && *udp != arguments.link));
    let mut peers = arguments
        .vs
        .iter()
        .map(|&kind| Mpi::build(kind))
        .collect::<Result<Vec<_>>>()?;
    let mut cells: Vec<Cell> = arguments
        .ranks
        .iter()
        .map(|&ranks| Cell {
            ranks,
            values: vec![Default::default(); own.len() + peers.len()],
        })
        .collect();
    let watch = Watch::begin(lab);
    let mut progress = Progress::new(arguments.slices);
    // The first round warms up the page cache.
    for round in 0..=arguments.slices {
        progress.show(round);
        for cell in &mut cells {
            let mut times = Vec::new();
            for &link in &own {
                times.push(ours(cell.ranks, link, lab)?);
            }
            for peer in &mut peers {
                times.push(peer.start(cell.ranks)?);
            }
            if round > 0 {
                for (values, times) in cell.values.iter_mut().zip(times) {
                    for (values, time) in values.iter_mut().zip(times) {
                        values.push(Some(time));
                    }
                }
            }
        }
    }
    progress.done();
    let by_link = |&link: &Link| {
        let system = match (lab, link) {
            (None, _) | (_, Link::Auto) => "portolan".to_owned(),
            _ => format!("portolan-{}", name(link)),
        };
        (system, format!("portolan {}", words(link, lab).join(" ")))
    };
    let of_peer = |peer: &Mpi| (peer.kind().name().to_owned(), peer.method());
    let systems = own.iter().map(by_link).chain(peers.iter().map(of_peer));
    let systems: Vec<(String, String)> = systems.collect();
    let (rows, ratios) = report(&cells, &systems);
    let report = Report {
        ratios,
        ..watch.report("start", rows)
    };
    Ok((arguments.json, report))
}

fn report(cells: &[Cell], systems: &[(String, String)]) -> (Vec<Row>, Vec<Ratio>) {
    let (mut rows, mut ratios) = (Vec::new(), Vec::new());
    for (place, (metric, what)) in METRICS.into_iter().enumerate() {
        for cell in cells {
            let ours = &cell.values[0][place];
            for ((system, how), values) in systems.iter().zip(&cell.values) {
                let mut seen: Vec<f64> = values[place].iter().flatten().copied().collect();
                seen.sort_by(f64::total_cmp);
                let Some(q) = Quartiles::of(&seen) else {
                    continue;
                };
                let row = Row {
                    system: system.clone(),
                    metric: metric.to_owned(),
                    n: q.count as u64,
                    method: format!("{how}; {what}"),
                    worst: seen.last().copied(),
                    ranks: cell.ranks,
                    ..Row::default()
                };
                rows.push(row.with(&q));
            }
            for ((over, _), values) in systems.iter().zip(&cell.values).skip(1) {
                if let Some(q) = paired(ours, &values[place]) {
                    let base = Ratio {
                        metric: metric.to_owned(),
                        ranks: Some(cell.ranks),
                        system: systems[0].0.clone(),
                        over: over.clone(),
                        ..Ratio::default()
                    };
                    ratios.push(base.with(&q));
                }
            }
        }
    }
    (rows, ratios)
}

fn name(link: Link) -> String {
    let value = link.to_possible_value();
    value.map_or(String::new(), |it| it.get_name().to_owned())
}

/// Words of the command that tell our own systems apart.
fn words(link: Link, lab: Option<&str>) -> Vec<String> {
    let mut words = vec!["run".to_owned(), "--link".to_owned(), name(link)];
    words.extend(
        lab.into_iter()
            .flat_map(|lab| ["--lab".to_owned(), lab.to_owned()]),
    );
    words
}

/// One of our own starts, in the form of [`Mpi::start`].
fn ours(ranks: u32, link: Link, lab: Option<&str>) -> Result<[f64; 2]> {
    let own = std::env::current_exe().context("finding the portolan command")?;
    let mut command = Command::new(&own);
    command
        .args(words(link, lab))
        .args(["--no-prefix", "-n", &ranks.to_string()])
        .arg("--")
        .arg(&own)
        .arg(BENCH_FIRST_COMMAND);
    match launch(&mut command).context("portolan run")? {
        Ok(ran) => Ok(ran.times_ms()),
        Err(Trouble::Late) => fail(format!(
            "a job of {ranks} ranks did not end within {} s",
            PATIENCE.as_secs()
        )),
        Err(Trouble::Said(why)) => fail(format!("a job of {ranks} ranks failed: {why}")),
    }
}
