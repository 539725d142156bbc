//! The time of a barrier, beside that of other systems in the same run.

use clap::Args;
use portolan_boot::LinkChoice;
use portolan_boot::launch::RANKS_MAX;
use portolan_hosts::failure::Result;

use crate::conduct::{say_all, took};
use crate::control::Order;
use crate::experiment::{Experiment, Findings, Stage, wrong};
use crate::experiments::contest::{contest, findings};
use crate::options::{Common, Link};
use crate::peers::mpi::{Kind, Mpi};
use crate::report::table::Row;

/// Fewest and most barriers of a slice.
const COUNT_MIN: u64 = 64;
const COUNT_MAX: u64 = 10_000_000;

/// As it was asked for.
#[derive(Args)]
pub struct Barrier {
    #[command(flatten)]
    pub common: Common,
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 8)]
    ranks: u32,
    /// Peers to benchmark against in the same run, on this host
    #[arg(long, value_enum, value_name = "PEER[,PEER...]", value_delimiter = ',')]
    vs: Vec<Kind>,
}

impl Experiment for Barrier {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self { common, ranks, vs } = self;
        let ranks = *ranks;
        if !(2..=RANKS_MAX).contains(&ranks) {
            return wrong(format!("-n {ranks}: a barrier has 2 to {RANKS_MAX} ranks"));
        }
        if !vs.is_empty() && (stage.lab.is_some() || common.network.link == Link::Udp) {
            return wrong(
                "--vs: other systems are started on this host and use its shared memory: leave out --lab and --link udp",
            );
        }
        let mut spec = common.spec(stage.lab.as_ref(), ranks)?;
        // Ranks of one host of the lab share memory.
        if stage.lab.is_some() && common.network.link == Link::Auto {
            spec.link = LinkChoice::Auto;
        }
        let mut peers = Mpi::build_all(vs)?;
        let slice_ns = common.whole_slice_ns();
        let (link, all) = stage.job(spec, |lines| {
            let times = (common.slices(), slice_ns);
            contest(
                1 + peers.len(),
                times,
                COUNT_MIN..=COUNT_MAX,
                |place, count| {
                    if place > 0 {
                        return peers[place - 1].barrier(ranks, slice_ns);
                    }
                    say_all(lines, &Order::Barriers(count))?;
                    Ok((took(lines)? as f64 / 1e3 / count as f64, count))
                },
            )
        })?;
        let method = format!(
            "mean time of a barrier, in interleaved slices of {} ms",
            slice_ns / 1_000_000
        );
        let of_peer = |peer: &Mpi| {
            let row = Row::of(peer.kind().name(), ranks);
            (row, format!("{}; {method}", peer.method()))
        };
        let mut systems = vec![(common.setting(link, ranks).row(), method.clone())];
        systems.extend(peers.iter().map(of_peer));
        Ok(findings("latency_us", &systems, &all))
    }
}
