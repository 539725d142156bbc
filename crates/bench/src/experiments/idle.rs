//! What an endpoint costs while nothing happens: its program is away, and the
//! helper thread has it, or sleeps in a wait of the library.

use std::sync::atomic::Ordering::Relaxed;
use std::thread::{scope, sleep};
use std::time::Duration;

use clap::Args;
use portolan::WaitError;
use portolan_hosts::failure::{Result, fail};
use portolan_sys::clock::{now_ns, process_cpu_ns};
use serde::{Deserialize, Serialize};

use crate::conduct::{answer, say_all};
use crate::control::{ControlLine, Order};
use crate::experiment::{Experiment, Findings, Stage, rounds, wrong};
use crate::options::{Common, Link};
use crate::ranks::portolan::{Ours, PLAY, ours};
use crate::report::stats::Series;

/// Time in which each state is watched by default, s.
pub const SECONDS: f64 = 5.0;
/// Messages to each other rank before each slice.
const MESSAGES: u64 = 100;
/// From the last of them to the slice: the helper has taken over, what was
/// owed has left, and a wait has stopped to spin.
const SETTLE: Duration = Duration::from_millis(100);
/// So much longer than the slice nothing happens, for whoever watches late.
const MARGIN: Duration = Duration::from_millis(20);
/// Longest that the messages may take to arrive.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Where an idle program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdlePlace {
    /// Asleep outside of the library.
    Away,
    /// Asleep in a wait of the library.
    Waiting,
}

const PLACES: [(IdlePlace, &str); 2] = [
    (IdlePlace::Away, "away_cpu_percent"),
    (IdlePlace::Waiting, "waiting_cpu_percent"),
];

/// What a rank is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idling {
    /// Where to be.
    pub place: IdlePlace,
    /// For how long that is watched, ns.
    pub ns: u64,
}

/// What it used meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rested {
    /// Processor time of all threads, ns.
    pub cpu_ns: u64,
    /// Time that went by, ns.
    pub elapsed_ns: u64,
}

impl Rested {
    fn percent(&self) -> f64 {
        self.cpu_ns as f64 * 100.0 / self.elapsed_ns.max(1) as f64
    }
}

impl Ours {
    /// Talks to all others, then does nothing.
    pub fn idle(&mut self, part: &Idling) -> Result<Rested> {
        self.send_to_all()?;
        let watched = Duration::from_nanos(part.ns);
        scope(|threads| {
            // Two calls of a wait would spin twice: somebody else looks at
            // the clock.
            let watch = threads.spawn(move || {
                sleep(SETTLE);
                let (from, used) = (now_ns(), process_cpu_ns());
                sleep(watched);
                Rested {
                    cpu_ns: process_cpu_ns() - used,
                    elapsed_ns: now_ns() - from,
                }
            });
            let all = SETTLE + watched + MARGIN;
            match part.place {
                IdlePlace::Away => sleep(all),
                IdlePlace::Waiting => match self.endpoint.wait_timeout(all, || false) {
                    Ok(()) | Err(WaitError::TimedOut) => {}
                    Err(error) => return Err(ours(error)),
                },
            }
            match watch.join() {
                Ok(rested) => Ok(rested),
                Err(_) => fail("the thread that watches an idle rank has panicked"),
            }
        })
    }

    /// Sends to all other ranks, and takes what they send.
    fn send_to_all(&mut self) -> Result<()> {
        self.absorbed += MESSAGES;
        let own = self.endpoint.rank();
        let others = || (0..self.endpoint.size()).filter(|rank| *rank != own);
        for _ in 0..MESSAGES {
            for rank in others() {
                self.endpoint.send(rank, PLAY, &[0x5a; 8]).map_err(ours)?;
            }
        }
        let came = |rank: u32| self.received[rank as usize].load(Relaxed) >= self.absorbed;
        self.endpoint
            .wait_timeout(TIMEOUT, || others().all(came))
            .map_err(ours)
    }
}

/// As it was asked for.
#[derive(Args)]
pub struct Idle {
    #[command(flatten)]
    pub common: Common,
    /// Number of ranks
    #[arg(short = 'n', long, value_name = "N", default_value_t = 2)]
    ranks: u32,
    /// How long each state is measured, seconds; with --slice-ms, slices of that length instead
    #[arg(long, value_name = "S", default_value_t = SECONDS, conflicts_with = "slice_ms")]
    seconds: f64,
}

impl Experiment for Idle {
    fn run(&self, stage: &mut Stage) -> Result<Findings> {
        let Self {
            common,
            ranks,
            seconds,
        } = self;
        if *ranks < 2 {
            return wrong(format!(
                "-n {ranks}: give 2 or more, which talk to each other"
            ));
        }
        if !(*seconds > 0.0 && *seconds <= 3_600.0) {
            return wrong(format!(
                "--seconds {seconds}: give more than 0, at most 3600"
            ));
        }
        let slices = common.slices();
        let slice_ns = common.slice_ns((seconds * 1e9) as u64 / slices as u64);
        // Between hosts an endpoint may have a host port, too.
        let all = match (common.network.link, &stage.lab) {
            (Link::Auto, Some(_)) => common.with_links(&[Link::Udp, Link::Xdp]),
            (_, lab) => common.each_link(lab.as_ref()),
        };
        let mut found = Findings::default();
        for common in all {
            let spec = common.spec(stage.lab.as_ref(), *ranks)?;
            let work = |lines: &mut [ControlLine]| watch(lines, slices, slice_ns);
            let (link, percents) = stage.job(spec, work)?;
            let row = common.setting(link, *ranks).row();
            for ((_, metric), percents) in PLACES.iter().zip(&percents) {
                let method = format!(
                    "processor time of the busiest rank, all its threads, in slices of {} ms",
                    slice_ns / 1_000_000
                );
                found.rows.extend(row.figure(metric, percents, method));
            }
        }
        Ok(found)
    }
}

/// Percent of a core that the busiest rank used, of each place a value a slice.
fn watch(
    lines: &mut [ControlLine],
    slices: usize,
    slice_ns: u64,
) -> Result<[Series; PLACES.len()]> {
    let mut percents = PLACES.map(|_| Series::default());
    rounds(slices, |counts| {
        for ((place, _), percents) in PLACES.iter().zip(&mut percents) {
            let part = Idling {
                place: *place,
                ns: slice_ns,
            };
            say_all(lines, &Order::Idle(part))?;
            let mut most = 0.0_f64;
            for line in &mut *lines {
                most = most.max(answer!(line, Rested).percent());
            }
            if counts {
                percents.keep(most, lines.len() as u64);
            }
        }
        Ok(())
    })?;
    Ok(percents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_core_is_a_hundred_percent() {
        let rested = Rested {
            cpu_ns: 3_000_000,
            elapsed_ns: 300_000_000,
        };
        assert_eq!(rested.percent(), 1.0);
        assert_eq!(Rested::default().percent(), 0.0);
    }
}
