//! Debian's MPIs as peers: a small C program, built by the peer's own
//! compiler, and run by its own launcher.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_hosts::ranks::RANK_COMMAND;
use portolan_sys::clock::now_ns;
use rustix::process::{Pid, Signal, kill_process};

const SOURCE: &str = include_str!("mpi.c");
/// What rank 0 prints begins with it.
pub const MARK: &str = "portolan-bench ";
/// Longest that one run may take.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// So long it has to end when it is asked to.
const GRACE: Duration = Duration::from_secs(10);
/// Barriers of the first run; the next ones go by its speed.
const FIRST_COUNT: u64 = 64;
/// Most barriers of one run.
const COUNT_MAX: u64 = 10_000_000;

/// An MPI, as `--vs` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Open MPI
    Openmpi,
    /// MPICH
    Mpich,
}

impl Kind {
    /// Its name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Openmpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    const fn compiler(self) -> &'static str {
        match self {
            Self::Openmpi => "mpicc.openmpi",
            Self::Mpich => "mpicc.mpich",
        }
    }

    /// Its launcher.
    pub const fn launcher(self) -> &'static str {
        match self {
            Self::Openmpi => "mpirun.openmpi",
            Self::Mpich => "mpirun.mpich",
        }
    }

    const fn packages(self) -> &'static str {
        match self {
            Self::Openmpi => "openmpi-bin libopenmpi-dev",
            Self::Mpich => "mpich libmpich-dev",
        }
    }

    /// Ways to start its processes. All are tried, the fastest is measured.
    const fn variants(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Openmpi => &[
                &["--oversubscribe"],
                &["--oversubscribe", "--bind-to", "none"],
                &["--oversubscribe", "--mca", "mpi_yield_when_idle", "1"],
            ],
            Self::Mpich => &[
                &[],
                &["-bind-to", "core"],
                &["-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1"],
                &[
                    "-genv",
                    "MPIR_CVAR_POLLS_BEFORE_YIELD",
                    "1",
                    "-bind-to",
                    "core",
                ],
            ],
        }
    }
}

/// An MPI that can be run.
pub struct Mpi {
    kind: Kind,
    /// Its program: a file without a name, which goes with this process.
    program: File,
    /// The fastest of its variants, once tried, with the time of its barrier.
    chosen: Option<(usize, f64)>,
}

impl Mpi {
    /// Builds the program.
    ///
    /// # Errors
    /// Where its compiler is missing, or fails.
    pub fn build(kind: Kind) -> Result<Self> {
        let (name, compiler) = (kind.name(), kind.compiler());
        let path = std::env::temp_dir().join(format!("portolan-{name}-{}", std::process::id()));
        let built = compile(compiler, &path);
        let program = File::open(&path);
        let _ = fs::remove_file(&path);
        let output = built.map_err(|error| {
            Failure::new(format!(
                "--vs {name}: cannot run {compiler}: {error}; install it (Debian: apt install {}) or leave {name} out",
                kind.packages(),
            ))
        })?;
        if !output.status.success() {
            return fail(format!(
                "--vs {name}: {compiler} cannot build a program: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ));
        }
        Ok(Self {
            kind,
            program: program.context(format!("opening {}", path.display()))?,
            chosen: None,
        })
    }

    /// Which one it is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How it is started, in words.
    pub fn method(&self) -> String {
        let place = self.chosen.map_or(0, |(place, _)| place);
        let options = self.kind.variants()[place].join(" ");
        format!("{} {options}", self.kind.launcher())
            .trim_end()
            .to_owned()
    }

    /// Mean time of a barrier of `ranks` processes, in microseconds, over
    /// about `slice_ns`; and how many there were.
    pub fn barrier(&mut self, ranks: u32, slice_ns: u64) -> Result<(f64, u64)> {
        if self.chosen.is_none() {
            self.chosen = Some(self.fastest(|mpi, place| {
                Ok(mpi.run(place, ranks, FIRST_COUNT)?.told_ns / FIRST_COUNT as f64 / 1e3)
            })?);
        }
        let (place, us) = self.chosen.expect("was chosen");
        let count = ((slice_ns as f64 / 1e3 / us) as u64).clamp(FIRST_COUNT, COUNT_MAX);
        let us = self.run(place, ranks, count)?.told_ns / count as f64 / 1e3;
        self.chosen = Some((place, us));
        Ok((us, count))
    }

    /// Time from starting the launcher until rank 0 has a message from every
    /// other one, and until the launcher has ended, in milliseconds.
    pub fn start(&mut self, ranks: u32) -> Result<[f64; 2]> {
        let time = |mpi: &Self, place| Ok(mpi.run(place, ranks, 0)?.times_ms());
        if self.chosen.is_none() {
            self.chosen = Some(self.fastest(|mpi, place| Ok(time(mpi, place)?[0]))?);
        }
        time(self, self.chosen.expect("was chosen").0)
    }

    /// The variant with the smallest figure; those that do not run are left
    /// out, unless none does.
    fn fastest(&self, figure: impl Fn(&Self, usize) -> Result<f64>) -> Result<(usize, f64)> {
        let mut best: Option<(usize, f64)> = None;
        let mut trouble = None;
        for place in 0..self.kind.variants().len() {
            match figure(self, place) {
                Ok(value) if best.is_none_or(|(_, least)| value < least) => {
                    best = Some((place, value));
                }
                Ok(_) => {}
                Err(failure) => trouble = Some(failure),
            }
        }
        best.ok_or_else(|| trouble.expect("there is a variant"))
    }

    fn run(&self, place: usize, ranks: u32, count: u64) -> Result<Ran> {
        let own = std::env::current_exe().context("finding the portolan command")?;
        let name = self.kind.name();
        let program = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.program.as_raw_fd()
        );
        let mut command = Command::new(own);
        command
            .args([RANK_COMMAND, "--parent", &std::process::id().to_string()])
            .args(["--", self.kind.launcher(), "-n", &ranks.to_string()])
            .args(self.kind.variants()[place])
            .arg(program)
            .arg(count.to_string())
            // Open MPI refuses root otherwise; a container often has no other user.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        launch(&mut command).context(name)?.map_err(|trouble| {
            Failure::new(match trouble {
                Trouble::Late => format!(
                    "{name} does not end within {} s: leave it out of --vs",
                    PATIENCE.as_secs()
                ),
                Trouble::Said(why) => format!("{name} cannot run {ranks} processes here: {why}"),
            })
        })
    }
}

/// Builds [`SOURCE`].
fn compile(compiler: &str, to: &Path) -> io::Result<Output> {
    let mut child = Command::new(compiler)
        .args(["-O2", "-x", "c", "-", "-o"])
        .arg(to)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let said = child
        .stdin
        .take()
        .map(|mut it| it.write_all(SOURCE.as_bytes()));
    let output = child.wait_with_output()?;
    // A compiler that failed may not have read it all; it says why.
    match said {
        Some(Err(error)) if output.status.success() => Err(error),
        _ => Ok(output),
    }
}

/// A job that a launcher ran.
pub struct Ran {
    started_ns: u64,
    /// What its rank 0 printed.
    told_ns: f64,
    ended_ns: u64,
}

impl Ran {
    /// From its start until the time that rank 0 told, and until its end,
    /// milliseconds.
    pub fn times_ms(&self) -> [f64; 2] {
        [
            (self.told_ns - self.started_ns as f64) / 1e6,
            (self.ended_ns - self.started_ns) as f64 / 1e6,
        ]
    }
}

/// Why a launcher's job told nothing.
pub enum Trouble {
    /// It had to be killed.
    Late,
    /// It wrote this to standard error.
    Said(String),
}

/// Runs a launcher to its end, and times that.
pub fn launch(command: &mut Command) -> Result<std::result::Result<Ran, Trouble>> {
    let started_ns = now_ns();
    let heard = hear_of(command, PATIENCE, told)?;
    let ended_ns = now_ns();
    Ok(heard.map(|told_ns| Ran {
        started_ns,
        told_ns,
        ended_ns,
    }))
}

/// Runs a launcher to its end, for `patience` at most; `read` finds in its
/// output what rank 0 told.
pub fn hear_of<T>(
    command: &mut Command,
    patience: Duration,
    read: impl Fn(&str) -> Option<T>,
) -> Result<std::result::Result<T, Trouble>> {
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let Some(output) = wait(child, patience)? else {
        return Ok(Err(Trouble::Late));
    };
    let told = read(&String::from_utf8_lossy(&output.stdout));
    Ok(told.ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        Trouble::Said(why.trim().to_owned())
    }))
}

/// What `child` printed; `None` if it had to be ended after `patience`.
pub fn wait(mut child: Child, patience: Duration) -> Result<Option<Output>> {
    if ends_within(&mut child, patience)? {
        return Ok(Some(child.wait_with_output()?));
    }
    // A launcher that is asked takes its processes and files with it.
    kill_process(Pid::from_child(&child), Signal::TERM)?;
    if !ends_within(&mut child, GRACE)? {
        child.kill()?;
        child.wait()?;
    }
    Ok(None)
}

/// Whether `child` has ended by then.
fn ends_within(child: &mut Child, patience: Duration) -> Result<bool> {
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > patience {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(true)
}

/// What rank 0 printed.
fn told(text: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(MARK))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_rank_0_is_found() {
        assert_eq!(told("noise\nportolan-bench 123456\n"), Some(123_456.0));
        assert_eq!(told("portolan-bench\n"), None);
        assert_eq!(told(""), None);
    }

    #[test]
    fn who_does_not_end_is_asked_first() {
        let file = std::env::temp_dir().join(format!("portolan-asked-{}", std::process::id()));
        let script = format!(
            "trap 'echo > {}; exit' TERM; while :; do sleep 0.01; done",
            file.display()
        );
        let run = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        let patience = Duration::from_millis(500);
        assert!(wait(run(&script), patience).unwrap().is_none());
        assert!(file.exists(), "it was not asked");
        fs::remove_file(&file).unwrap();
        assert!(wait(run("exit 3"), PATIENCE).unwrap().is_some());
    }
}
