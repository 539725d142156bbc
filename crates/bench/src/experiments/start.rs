//! The time that a job takes to start: from the launcher's first instruction
//! until rank 0 has a message from every other rank.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use portolan_boot::launch::RANKS_MAX;
use portolan_hosts::failure::{Context, Result};

use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::options::{Link, slices};
use crate::peers::mpi::{Kind, Mpi};
use crate::peers::program::launch;
use crate::report::dimensions::Dimension;
use crate::report::stats::{SLICES_MIN, Series};
use crate::report::table::Row;
use portolan_hosts::choices::value_name;

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

/// As it was asked for.
#[derive(Args)]
pub struct Start {
    /// Numbers of ranks
    #[arg(
        short = 'n',
        long,
        value_name = "N[,N...]",
        value_delimiter = ',',
        default_values_t = [2, 16, 64]
    )]
    ranks: Vec<u32>,
    /// Start them on the hosts of this lab, and the same over udp for comparison
    #[arg(long, value_name = "NAME", conflicts_with = "vs")]
    pub lab: Option<String>,
    /// Link (transport) between the ranks
    #[arg(long, value_enum, default_value_t)]
    link: Link,
    /// Peers to benchmark against in the same run
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    vs: Vec<Kind>,
    /// Starts measured for each figure
    #[arg(long, value_name = "N", default_value_t = SLICES_MIN, value_parser = slices)]
    slices: usize,
    /// Write rows and ratios to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Experiment for Start {
    /// Starts jobs of every size in turn, and those of the other systems.
    fn run(&self, _stage: &mut Stage) -> Result<Findings> {
        if let Some(n) = self.ranks.iter().find(|n| !(2..=RANKS_MAX).contains(*n)) {
            return wrong(format!(
                "-n {n}: give 2 to {RANKS_MAX} ranks, with commas between"
            ));
        }
        let lab = self.lab.as_deref();
        let mut own = vec![self.link];
        own.extend(Some(Link::Udp).filter(|udp| lab.is_some() && *udp != self.link));
        let mut peers = Mpi::build_all(&self.vs)?;
        // By number of ranks, system (ourselves first) and metric.
        let of_ranks = || vec![[Series::default(), Series::default()]; own.len() + peers.len()];
        let mut all: Vec<_> = self.ranks.iter().map(|_| of_ranks()).collect();
        rounds(self.slices, |counts| {
            for (&ranks, all) in self.ranks.iter().zip(&mut all) {
                let ours = own.iter().map(|link| ours(ranks, *link, lab));
                let mut times = ours.collect::<Result<Vec<_>>>()?;
                for peer in &mut peers {
                    times.push(peer.start(ranks)?);
                }
                let each = all.iter_mut().flatten().zip(times.into_iter().flatten());
                // The first round warms up the page cache.
                each.take(if counts { usize::MAX } else { 0 })
                    .for_each(|(series, time)| series.keep(time, 1));
            }
            Ok(())
        })?;
        let by_link = |&link: &Link| {
            let system = match (lab, link) {
                (None, _) | (_, Link::Auto) => "portolan".to_owned(),
                _ => format!("portolan-{}", value_name(&link)),
            };
            (system, format!("portolan {}", words(link, lab).join(" ")))
        };
        let of_peer = |peer: &Mpi| (peer.kind().name().to_owned(), peer.method());
        let systems = own.iter().map(by_link).chain(peers.iter().map(of_peer));
        let systems: Vec<(String, String)> = systems.collect();
        let mut found = Findings::default();
        for (place, (metric, what)) in METRICS.into_iter().enumerate() {
            for (&ranks, all) in self.ranks.iter().zip(&all) {
                let ours = (Row::of(systems[0].0.as_str(), ranks), &all[0][place]);
                for (number, ((system, how), series)) in systems.iter().zip(all).enumerate() {
                    let (row, series) = (Row::of(system.as_str(), ranks), &series[place]);
                    let figure = row.figure(metric, series, format!("{how}; {what}"));
                    found.rows.extend(figure.map(|row| Row {
                        worst: series.seen().into_iter().reduce(f64::max),
                        ..row
                    }));
                    let over = || ours.0.over(metric, ours.1, system, series);
                    let ratio = (number > 0).then(over).flatten();
                    let likewise = ratio.map(|it| it.likewise(Dimension::Ranks, &row));
                    found.ratios.extend(likewise);
                }
            }
        }
        Ok(found)
    }
}

/// Words of the command that tell our own systems apart.
fn words(link: Link, lab: Option<&str>) -> Vec<String> {
    let mut words = vec!["run".to_owned(), "--link".to_owned(), value_name(&link)];
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
    let what = format!("portolan run with a job of {ranks} ranks");
    Ok(launch(&mut command, &what)?.times_ms())
}
