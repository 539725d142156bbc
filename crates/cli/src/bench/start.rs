//! The time that a job takes to start: from the launcher's first instruction
//! until rank 0 has a message from every other rank.

use std::process::Command;

use clap::ValueEnum;

use super::conduct::Progress;
use super::failure::{Context, Result, fail};
use super::mpi::{Mpi, PATIENCE, Trouble, launch};
use super::options::Start;
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
    let link = arguments
        .link
        .to_possible_value()
        .map(|value| value.get_name().to_owned())
        .unwrap_or_default();
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
            values: vec![Default::default(); 1 + peers.len()],
        })
        .collect();
    let watch = Watch::begin(None);
    let mut progress = Progress::new(arguments.slices);
    // The first round warms up the page cache.
    for round in 0..=arguments.slices {
        progress.show(round);
        for cell in &mut cells {
            let mut times = vec![ours(cell.ranks, &link)?];
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
    let systems: Vec<(String, String)> =
        std::iter::once(("portolan".to_owned(), format!("portolan run --link {link}")))
            .chain(
                peers
                    .iter()
                    .map(|peer| (peer.kind().name().to_owned(), peer.method())),
            )
            .collect();
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
                let seen: Vec<f64> = values[place].iter().flatten().copied().collect();
                let Some(q) = Quartiles::of(&seen) else {
                    continue;
                };
                let row = Row {
                    system: system.clone(),
                    metric: metric.to_owned(),
                    n: q.count as u64,
                    method: format!("{how}; {what}"),
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

/// One of our own starts, in the form of [`Mpi::start`].
fn ours(ranks: u32, link: &str) -> Result<[f64; 2]> {
    let own = std::env::current_exe().context("finding the portolan command")?;
    let mut command = Command::new(&own);
    command
        .args(["run", "--no-prefix", "--link", link, "-n"])
        .arg(ranks.to_string())
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
