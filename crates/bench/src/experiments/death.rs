//! How soon others know that a rank was killed: on its host and on another,
//! with little and with much memory in use.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;
use portolan::{Binding, Config, Endpoint, Event, SendOptions, WaitError};
use portolan_hosts::choices::Bytes;
use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::print::print;
use portolan_sys::clock::now_ns;
use portolan_sys::process::own_pid;
use rustix::process::{Pid, Signal, kill_process};

use crate::experiment::{Experiment, Findings, Stage, rounds};
use crate::options::slices;
use crate::peers::program::{MARK, hear_of, told};
use crate::ranks::portolan::ours;
use crate::report::dimensions::Dimension;
use crate::report::stats::Series;
use crate::report::table::Row;

/// The hidden command that is a rank of this bench.
pub const BENCH_DEATH_COMMAND: &str = "internal-bench-death";

/// It kills, on the host of the one that is killed; the third is elsewhere if
/// there are two hosts.
const KILLER: u32 = 0;
const VICTIM: u32 = 1;
const OTHER: u32 = 2;

const PORT: u16 = 1;
/// A job of this bench takes so long at most: it touches gigabytes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long a rank waits for a death that nobody tells.
const DEATH_TIMEOUT: Duration = Duration::from_secs(10);

/// As it was asked for.
#[derive(Args)]
pub struct Death {
    /// Memory of the killed rank, bytes, or with K, M or G
    #[arg(
        long,
        value_name = "BYTES[,BYTES...]",
        value_delimiter = ',',
        default_value = "1M,3G"
    )]
    memory: Vec<Bytes>,
    /// Run on two hosts of this lab
    #[arg(long, value_name = "NAME", conflicts_with = "hosts")]
    pub lab: Option<String>,
    /// Run on these hosts, as for `portolan run --hosts`: two ranks on the first
    #[arg(long, value_name = "A:2,B:1")]
    hosts: Option<String>,
    /// Program that reaches them, as for `portolan run --ssh`
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    ssh: Option<String>,
    /// Deaths measured for each size
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = slices)]
    slices: usize,
    /// Write the rows to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Experiment for Death {
    /// Starts jobs in which a rank is killed, with each size of memory in turn.
    fn run(&self, _stage: &mut Stage) -> Result<Findings> {
        let mut seen = vec![[Series::default(), Series::default()]; self.memory.len()];
        rounds(self.slices, |counts| {
            for (size, seen) in self.memory.iter().zip(&mut seen) {
                let us = one(self, size.0)?;
                // The first round warms up the page cache.
                if counts {
                    seen.iter_mut()
                        .zip(us)
                        .for_each(|(all, us)| all.keep(us, 1));
                }
            }
            Ok(())
        })?;
        let two_hosts = self.lab.is_some() || self.hosts.is_some();
        let elsewhere = if two_hosts { "other-host" } else { "same-host" };
        let mut found = Findings::default();
        for (size, seen) in self.memory.iter().zip(&seen) {
            for (pair, all) in ["same-host", elsewhere].into_iter().zip(seen) {
                let row = Row::of("portolan", 3).at(Dimension::Size, size.0);
                let method = "from SIGKILL until a waiting rank's error handler runs; \
                              `size` is the memory of the one killed";
                let row = row.at(Dimension::Pair, pair);
                found.rows.extend(row.figure("death_us", all, method));
            }
        }
        Ok(found)
    }
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
    let us = hear_of(command.args(words), "portolan run", TIMEOUT, told)?;
    Ok(us.map(|ns: f64| ns / 1e3))
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
            std::thread::sleep(DEATH_TIMEOUT);
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
        let pid = word.wait(&ep, TIMEOUT)?;
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| Failure::new("no process to kill"))?;
        // The other waits already.
        let killed_at = now_ns();
        kill_process(pid, Signal::KILL).context("killing a rank")?;
        dead_at.wait(&ep, DEATH_TIMEOUT)?;
        say(&ep, OTHER, killed_at)?;
        killed_at
    } else {
        dead_at.wait(&ep, TIMEOUT)?;
        word.wait(&ep, DEATH_TIMEOUT)?
    };
    let took = dead_at.get().saturating_sub(killed_at);
    if ep.rank() == OTHER {
        say(&ep, KILLER, took)?;
    } else {
        word.set(0);
        print(format_args!(
            "{MARK}{took} {}\n",
            word.wait(&ep, DEATH_TIMEOUT)?
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
