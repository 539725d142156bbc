//! How soon others know that a rank was killed: on its host and on another,
//! with little and with much memory in use.

use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use portolan::{Binding, Config, Endpoint, Event, SendOptions, WaitError};
use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::print::print;
use portolan_sys::clock::now_ns;
use portolan_sys::process::own_pid;
use rustix::process::{Pid, Signal, kill_process};

use super::conduct::Progress;
use super::mpi::{MARK, Trouble, hear_of};
use super::options::Death;
use super::plan::wrong;
use super::portolan::ours;
use super::report::Row;
use super::stats::Quartiles;
use super::watch::Watch;
use super::{Found, check};

/// The hidden command that is a rank of this bench.
pub const BENCH_DEATH_COMMAND: &str = "internal-bench-death";

/// It kills, on the host of the one that is killed; the third is elsewhere if
/// there are two hosts.
const KILLER: u32 = 0;
const VICTIM: u32 = 1;
const OTHER: u32 = 2;

const PORT: u16 = 1;
/// A job of this bench takes so long at most: it touches gigabytes.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a rank waits for a death that nobody tells.
const DEATH_PATIENCE: Duration = Duration::from_secs(10);

/// Starts jobs in which a rank is killed, with each size of memory in turn.
pub fn bench(arguments: Death) -> Result<Found> {
    check(arguments.json.as_deref(), 1)?;
    if arguments.slices == 0 {
        return wrong("--slices 0: give 1 or more");
    }
    let sizes = &arguments.memory;
    let mut seen = vec![[Vec::new(), Vec::new()]; sizes.len()];
    let watch = Watch::begin(arguments.lab.as_deref());
    let mut progress = Progress::new(arguments.slices);
    for round in 0..=arguments.slices {
        progress.show(round);
        for (size, seen) in sizes.iter().zip(&mut seen) {
            let us = one(&arguments, size.0)?;
            // The first round warms up the page cache.
            if round > 0 {
                seen.iter_mut().zip(us).for_each(|(all, us)| all.push(us));
            }
        }
    }
    progress.done();
    let mut rows = Vec::new();
    let two_hosts = arguments.lab.is_some() || arguments.hosts.is_some();
    let elsewhere = if two_hosts { "other-host" } else { "same-host" };
    for (size, seen) in sizes.iter().zip(&seen) {
        for (pair, all) in ["same-host", elsewhere].into_iter().zip(seen) {
            let Some(q) = Quartiles::of(all) else {
                continue;
            };
            let row = Row {
                system: "portolan".to_owned(),
                metric: "death_us".to_owned(),
                size: Some(size.0),
                pair: Some(pair.to_owned()),
                n: q.count as u64,
                method: "from SIGKILL until a waiting rank's error handler runs; \
                         `size` is the memory of the one killed"
                    .to_owned(),
                ranks: 3,
                ..Row::default()
            };
            rows.push(row.with(&q));
        }
    }
    Ok((arguments.json, watch.report("death", rows)))
}

/// One job: times at the killer and at the third rank, us.
fn one(arguments: &Death, memory: usize) -> Result<[f64; 2]> {
    let own = std::env::current_exe().context("finding the portolan command")?;
    let mut command = Command::new(&own);
    command.args(["run", "--no-prefix", "--on-death", "notify"]);
    match (&arguments.lab, &arguments.hosts) {
        (Some(lab), _) => _ = command.args(["-n", "3", "--lab", lab]),
        (_, Some(hosts)) => _ = command.args(["--hosts", hosts]),
        _ => _ = command.args(["-n", "3"]),
    }
    if let Some(ssh) = &arguments.ssh {
        command.arg("--ssh").arg(ssh);
    }
    let words: [OsString; 4] = [
        "--".into(),
        own.into(),
        BENCH_DEATH_COMMAND.into(),
        memory.to_string().into(),
    ];
    match hear_of(command.args(words), PATIENCE, told).context("portolan run")? {
        Ok(us) => Ok(us),
        Err(Trouble::Late) => fail("the job did not end in time"),
        Err(Trouble::Said(why)) => fail(format!("the job failed: {why}")),
    }
}

/// What the killer printed, us.
fn told(text: &str) -> Option<[f64; 2]> {
    let line = text.lines().find_map(|line| line.strip_prefix(MARK))?;
    let mut words = line.split_whitespace();
    let mut us = || Some(words.next()?.parse::<f64>().ok()? / 1e3);
    Some([us()?, us()?])
}

/// A rank of this bench; `memory` is what the victim uses, bytes.
pub fn rank(memory: usize) -> Result<()> {
    let ep = Endpoint::open(Config::default()).map_err(ours)?;
    if ep.size() != 3 {
        return fail("this bench has three ranks, two of them on the first host");
    }
    if ep.rank() == VICTIM {
        let mut touched = vec![0_u8; memory];
        touched.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
        std::hint::black_box(&touched);
        say(&ep, KILLER, own_pid().into())?;
        loop {
            std::thread::sleep(DEATH_PATIENCE);
        }
    }
    // What came last from a living rank, and when the victim was found dead.
    let (word, dead_at) = (Word::default(), Word::default());
    let heard = word.clone();
    ep.bind(
        PORT,
        Binding::to(move |_, message| heard.set(message.arg(0))),
    )
    .map_err(ours)?;
    let found = dead_at.clone();
    ep.on_error(move |_, event| {
        if matches!(event, Event::PeerDead { rank: VICTIM, .. }) {
            found.set(now_ns());
        }
    })
    .map_err(ours)?;
    let killed_at = if ep.rank() == KILLER {
        let pid = word.wait(&ep, PATIENCE)?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("no process to kill"))?;
        // The other waits already.
        let killed_at = now_ns();
        kill_process(pid, Signal::KILL).context("killing a rank")?;
        dead_at.wait(&ep, DEATH_PATIENCE)?;
        say(&ep, OTHER, killed_at)?;
        killed_at
    } else {
        dead_at.wait(&ep, PATIENCE)?;
        word.wait(&ep, DEATH_PATIENCE)?
    };
    let took = dead_at.get().saturating_sub(killed_at);
    if ep.rank() == OTHER {
        say(&ep, KILLER, took)?;
    } else {
        word.set(0);
        print(format_args!(
            "{MARK}{took} {}\n",
            word.wait(&ep, DEATH_PATIENCE)?
        ))?;
    }
    ep.close().map_err(ours)
}

/// What a handler has set; 0 for nothing yet.
#[derive(Clone, Default)]
struct Word(Arc<AtomicU64>);

impl Word {
    fn set(&self, word: u64) {
        self.0.store(word, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until it is set, whoever dies meanwhile; gives it.
    fn wait(&self, ep: &Endpoint, limit: Duration) -> Result<u64> {
        loop {
            match ep.wait_timeout(limit, || self.get() != 0) {
                Ok(()) => return Ok(self.get()),
                Err(WaitError::PeerDead { .. }) => {}
                Err(error) => return Err(ours(error)),
            }
        }
    }
}

fn say(ep: &Endpoint, to: u32, word: u64) -> Result<()> {
    let options = SendOptions {
        args: &[word],
        ..SendOptions::default()
    };
    ep.send_with(to, PORT, &options, &[]).map_err(ours)?;
    Ok(())
}
