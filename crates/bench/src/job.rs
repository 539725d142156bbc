//! The bench's own job: this program again, as so many ranks, each with a
//! line to us as its standard input.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;

use portolan_boot::HostPort;
use portolan_boot::launch::{JobSpec, RankPlace, Running, SharedMemory, Starter, Wanted};
use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::lab::Lab;
use portolan_hosts::ranks::{Local, Teller, disabled, stops};

use crate::conduct::greet;
use crate::control::{ControlLine, Order};
use crate::experiments::threads::Calling;
use crate::report::machine::Machine;

/// The hidden command that is a rank of a bench.
pub const BENCH_RANK_COMMAND: &str = "internal-bench-rank";

/// Which ranks have a helper thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helpers {
    /// Every one.
    All,
    /// Every one but this.
    AllBut(u32),
    /// None.
    None,
}

impl Helpers {
    fn has(self, rank: u32) -> bool {
        match self {
            Self::All => true,
            Self::AllBut(other) => rank != other,
            Self::None => false,
        }
    }
}

/// A job that is to be started.
pub struct Job {
    /// Its ranks, and where.
    pub spec: JobSpec,
    /// Which of them have a helper thread.
    pub helpers: Helpers,
    /// Which threads may call their endpoints.
    pub threads: Calling,
}

impl Job {
    /// With all helper threads; one thread calls.
    pub fn new(spec: JobSpec) -> Self {
        Self {
            spec,
            helpers: Helpers::All,
            threads: Calling::Single,
        }
    }

    /// With these helper threads.
    pub fn with_helpers(spec: JobSpec, helpers: Helpers) -> Self {
        Self {
            helpers,
            ..Self::new(spec)
        }
    }
}

/// The ranks of a bench, running.
struct Ranks {
    /// A line to each, by rank. Taken by who talks to them.
    lines: Vec<ControlLine>,
    launcher: JoinHandle<io::Result<i32>>,
}

/// Starts the ranks of a job, on the hosts of `lab` where there is one.
///
/// # Errors
/// What the launcher says.
fn start(job: Job, lab: Option<Lab>) -> Result<Ranks> {
    let Job {
        spec,
        helpers,
        threads,
    } = job;
    let mut local = Local::new(lab, &disabled()?)?;
    local.set_queue_group(spec.settings.get("group").map(String::as_str));
    let stops = stops()?;
    let (tell, told) = mpsc::channel();
    // A rank ends with the thread that started it, so that thread stays.
    let launcher = std::thread::Builder::new()
        .name("launcher".to_owned())
        .spawn(move || {
            let mut starter = Own {
                local,
                helpers,
                threads,
                lines: Vec::new(),
            };
            let teller = Teller::default();
            let mut told = |event| teller.tell(&event);
            let running = match Running::start(spec, &mut starter, stops, &mut told) {
                Ok(running) => running,
                Err(error) => {
                    // Whoever asked hears it, or is gone.
                    let _ = tell.send(Err(Failure::new(error.to_string())));
                    return Ok(1);
                }
            };
            let _ = tell.send(Ok(std::mem::take(&mut starter.lines)));
            running.wait(&mut starter, &mut told)
        })?;
    match told.recv() {
        Ok(Ok(lines)) => Ok(Ranks {
            lines: lines.into_iter().map(ControlLine::new).collect(),
            launcher,
        }),
        Ok(Err(failure)) => Err(failure),
        Err(_) => fail("the launcher of the bench's ranks has panicked"),
    }
}

impl Ranks {
    /// Waits until all ranks have ended; `done` is what came of the bench.
    /// Lines must be dropped before, or the ranks told to end.
    ///
    /// # Errors
    /// That of `done` first, then that a rank failed.
    fn join<T>(self, done: Result<T>) -> Result<T> {
        drop(self.lines);
        let code = match self.launcher.join() {
            Ok(code) => code.context("watching the bench's ranks")?,
            Err(_) => return fail("the launcher of the bench's ranks has panicked"),
        };
        match (done, u8::try_from(code).unwrap_or(1)) {
            (Err(failure), code) if code > 128 => {
                Err(Failure::with_code(code, failure.to_string()))
            }
            (Ok(_), code) if code > 0 => Err(Failure::with_code(
                code,
                "a rank of the bench failed at its end",
            )),
            (done, _) => done,
        }
    }
}

/// Runs `work` over the lines to the ranks of jobs, which have greeted; then
/// they are told to end. Gives the link between the ranks of each too, and notes
/// their cores.
///
/// # Errors
/// Those of the launcher, of `work`, and of the ranks.
pub fn with_jobs<T, const N: usize>(
    jobs: [Job; N],
    lab: Option<&Lab>,
    machine: &mut Machine,
    work: impl FnOnce([&mut [ControlLine]; N]) -> Result<T>,
) -> Result<([String; N], T)> {
    let mut started = Vec::new();
    let mut lines: [Vec<ControlLine>; N] = std::array::from_fn(|_| Vec::new());
    let done = (|| {
        for (job, lines) in jobs.into_iter().zip(&mut lines) {
            let mut ranks = start(job, lab.cloned())?;
            *lines = std::mem::take(&mut ranks.lines);
            started.push(ranks);
        }
        let mut links = std::array::from_fn(|_| String::new());
        for (lines, link) in lines.iter_mut().zip(&mut links) {
            let met = lines.iter_mut().map(greet).collect::<Result<Vec<_>>>()?;
            machine.pinned = met.iter().map(|(_, core)| *core).collect();
            *link = met
                .into_iter()
                .next()
                .map_or_else(String::new, |(link, _)| link);
        }
        let found = work(lines.each_mut().map(Vec::as_mut_slice))?;
        for line in lines.iter_mut().flatten() {
            line.say(&Order::Bye)?;
        }
        Ok((links, found))
    })();
    drop(lines);
    let end = |done, ranks: Ranks| ranks.join(done);
    started.into_iter().fold(done, end)
}

/// The lines to the first two ranks, who measure.
pub fn two(lines: &mut [ControlLine]) -> Result<[&mut ControlLine; 2]> {
    match lines {
        [leader, follower, ..] => Ok([leader, follower]),
        _ => fail("this bench has two ranks at least"),
    }
}

/// Starts this program as ranks.
struct Own {
    local: Local,
    helpers: Helpers,
    threads: Calling,
    lines: Vec<UnixStream>,
}

impl Starter for Own {
    fn segment(&mut self, _host_index: u16, ranks: u32) -> io::Result<SharedMemory> {
        self.local.segment(ranks)
    }

    fn host_ports(&mut self, wanted: &[Wanted]) -> Vec<std::result::Result<HostPort, String>> {
        self.local
            .host_ports(wanted, |place| place.host_index.into())
    }

    fn address(&mut self, host_index: u16) -> Option<IpAddr> {
        self.local.address(host_index.into())
    }

    fn command(&mut self, place: &RankPlace) -> Command {
        let bench = [self.local.own().as_os_str(), BENCH_RANK_COMMAND.as_ref()];
        let mut command = self.local.command(place, place.host_index.into(), bench);
        if !self.helpers.has(place.rank) {
            command.arg("--no-helper");
        }
        command.args(["--threads", self.threads.name()]);
        // Without a line the rank says so at once.
        let input = match UnixStream::pair() {
            Ok((ours, theirs)) => {
                self.lines.push(ours);
                Stdio::from(OwnedFd::from(theirs))
            }
            Err(_) => Stdio::null(),
        };
        command
            .stdin(input)
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        command
    }

    fn started(&mut self, _place: &RankPlace, _pid: u32) {}
}
