//! What an endpoint costs while nothing happens: its program is away, and the
//! helper thread has it, or sleeps in a wait of the library.

use std::sync::atomic::Ordering::Relaxed;
use std::thread::{scope, sleep};
use std::time::Duration;

use portolan::WaitError;
use portolan_boot::launch::JobSpec;
use portolan_hosts::failure::{Result, fail};
use portolan_hosts::lab::Lab;
use portolan_sys::clock::{now_ns, process_cpu_ns};
use serde::{Deserialize, Serialize};

use super::conduct::{Progress, hear, unexpected};
use super::control::{Answer, Line, Order};
use super::options::{Common, Link};
use super::plan::wrong;
use super::portolan::{Ours, PLAY, ours};
use super::report::Row;
use super::stats::Quartiles;
use super::watch::Watch;
use super::{Found, check, job, links, through_shm};

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
const PATIENCE: Duration = Duration::from_secs(10);

/// Where an idle program is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// Asleep outside of the library.
    Away,
    /// Asleep in a wait of the library.
    Waiting,
}

const PLACES: [(Place, &str); 2] = [
    (Place::Away, "away_cpu_percent"),
    (Place::Waiting, "waiting_cpu_percent"),
];

/// What a rank is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repose {
    /// Where to be.
    pub place: Place,
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
    pub fn repose(&mut self, repose: &Repose) -> Result<Rested> {
        self.talk()?;
        let watched = Duration::from_nanos(repose.ns);
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
            match repose.place {
                Place::Away => sleep(all),
                Place::Waiting => match self.endpoint.wait_timeout(all, || false) {
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
    fn talk(&mut self) -> Result<()> {
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
            .wait_timeout(PATIENCE, || others().all(came))
            .map_err(ours)
    }
}

/// Watches idle ranks, over each link in turn, each place for `seconds`.
pub fn bench(common: Common, ranks: u32, seconds: f64) -> Result<Found> {
    if ranks < 2 {
        return wrong(format!(
            "-n {ranks}: give 2 or more, which talk to each other"
        ));
    }
    if !(seconds > 0.0 && seconds <= 3_600.0) {
        return wrong(format!(
            "--seconds {seconds}: give more than 0, at most 3600"
        ));
    }
    check(common.json.as_deref(), 1)?;
    let lab = common.lab.as_deref().map(Lab::open).transpose()?;
    let mut watch = Watch::begin(common.lab.as_deref());
    let slice_ns = match common.slice_ms {
        Some(ms) => ms * 1_000_000,
        None => (seconds * 1e9) as u64 / common.slices() as u64,
    };
    // Between hosts an endpoint may have a host port, too.
    let all = match (common.link, &lab) {
        (Link::Auto, Some(_)) => &[Link::Udp, Link::Xdp],
        (_, lab) => links(&common, lab.as_ref()),
    };
    let mut rows = Vec::new();
    for &link in all {
        let of_link = Common {
            link,
            ..common.clone()
        };
        let shm = through_shm(&of_link, lab.as_ref())?;
        let mut spec = of_link.spec(ranks, lab.is_some(), shm)?;
        if let Some(lab) = &lab {
            spec.hosts = JobSpec::blocks(ranks, lab.hosts().min(ranks));
        }
        let work = |lines: &mut [Line]| run(lines, common.slices(), slice_ns);
        let (link, percents) =
            job::with_lines(spec, lab.as_ref(), job::Helpers::All, &mut watch.host, work)?;
        let like = of_link.setting(link, ranks).row();
        for ((_, metric), percents) in PLACES.iter().zip(&percents) {
            let Some(q) = Quartiles::of(percents) else {
                continue;
            };
            let row = Row {
                metric: (*metric).to_owned(),
                n: q.count as u64 * u64::from(ranks),
                method: format!(
                    "processor time of the busiest rank, all its threads, in slices of {} ms",
                    slice_ns / 1_000_000
                ),
                ..like.clone()
            };
            rows.push(row.with(&q));
        }
    }
    Ok((common.json, watch.report("idle", rows)))
}

/// Percent of a core that the busiest rank used, of each place a value a slice.
fn run(lines: &mut [Line], slices: usize, slice_ns: u64) -> Result<[Vec<f64>; PLACES.len()]> {
    let mut percents = PLACES.map(|_| Vec::new());
    let mut progress = Progress::new(slices);
    for round in 0..=slices {
        progress.show(round);
        for ((place, _), percents) in PLACES.iter().zip(&mut percents) {
            let repose = Repose {
                place: *place,
                ns: slice_ns,
            };
            for line in &mut *lines {
                line.say(&Order::Repose(repose))?;
            }
            let mut most = 0.0_f64;
            for line in &mut *lines {
                match hear(line)? {
                    Answer::Rested(rested) => most = most.max(rested.percent()),
                    other => return unexpected(&other),
                }
            }
            if round > 0 {
                percents.push(most);
            }
        }
    }
    progress.done();
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
