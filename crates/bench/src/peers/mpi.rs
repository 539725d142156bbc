//! Debian's MPIs as peers: a small C program, built by the peer's own
//! compiler, and run by its own launcher.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use portolan_hosts::failure::{Context, Failure, Result, fail};
use portolan_sys::children::Start;

use crate::peers::program::{Fastest, Ran, ends_with_us, first_error, launch};

const SOURCE: &str = include_str!("mpi.c");
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
    /// Which of its variants is used, and the time of its figure.
    fastest: Fastest<(), f64>,
}

impl Mpi {
    /// Builds the program of each.
    ///
    /// # Errors
    /// Where a compiler is missing, or fails.
    pub fn build_all(kinds: &[Kind]) -> Result<Vec<Self>> {
        kinds.iter().map(|kind| Self::build(*kind)).collect()
    }

    fn build(kind: Kind) -> Result<Self> {
        let (name, compiler) = (kind.name(), kind.compiler());
        let path = std::env::temp_dir().join(format!("portolan-{name}-{}", std::process::id()));
        let built = compile(compiler, SOURCE, &path);
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
                "--vs {name}: {compiler} cannot build a program: {}; is all of it installed (Debian: apt install {})? Or leave {name} out",
                first_error(&output.stderr),
                kind.packages()
            ));
        }
        Ok(Self {
            kind,
            program: program.context(format!("opening {}", path.display()))?,
            fastest: Fastest::new(),
        })
    }

    /// Which one it is.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How it is started, in words.
    pub fn method(&self) -> String {
        let options = self.kind.variants()[self.fastest.variant(())].join(" ");
        format!("{} {options}", self.kind.launcher())
            .trim_end()
            .to_owned()
    }

    /// Mean time of a barrier of `ranks` processes, in microseconds, over
    /// about `slice_ns`; and how many there were.
    pub fn barrier(&mut self, ranks: u32, slice_ns: u64) -> Result<(f64, u64)> {
        let Self {
            kind,
            program,
            fastest,
        } = self;
        let mean_us = |variant, count| -> Result<f64> {
            Ok(run(*kind, program, variant, ranks, count)?.told / count as f64 / 1e3)
        };
        let first = |variant| mean_us(variant, FIRST_COUNT);
        let chosen = fastest.of((), kind.variants().len(), first, |us| *us)?;
        let count = (slice_ns as f64 / 1e3 / chosen.last) as u64;
        let count = count.clamp(FIRST_COUNT, COUNT_MAX);
        chosen.last = mean_us(chosen.variant, count)?;
        Ok((chosen.last, count))
    }

    /// Time from starting the launcher until rank 0 has a message from every
    /// other one, and until the launcher has ended, in milliseconds.
    pub fn start(&mut self, ranks: u32) -> Result<[f64; 2]> {
        let Self {
            kind,
            program,
            fastest,
        } = self;
        let times = |variant| Ok(run(*kind, program, variant, ranks, 0)?.times_ms());
        let first = |variant| Ok(times(variant)?[0]);
        let chosen = fastest.of((), kind.variants().len(), first, |ms| *ms)?;
        times(chosen.variant)
    }
}

/// Runs `ranks` processes once, which do so many barriers.
fn run(kind: Kind, program: &File, variant: usize, ranks: u32, count: u64) -> Result<Ran> {
    let (own, name) = (std::process::id(), kind.name());
    let mut command = ends_with_us(kind.launcher())?;
    command
        .args(["-n", &ranks.to_string()])
        .args(kind.variants()[variant])
        .arg(format!("/proc/{own}/fd/{}", program.as_raw_fd()))
        .arg(count.to_string())
        // Open MPI refuses root otherwise; a container often has no other user.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let what = format!("{name} with {ranks} processes");
    launch(&mut command, &what).context(format!("--vs {name} (or leave it out)"))
}

/// Builds a program of C.
pub fn compile(compiler: impl AsRef<OsStr>, source: &str, to: &Path) -> io::Result<Output> {
    let mut child = Command::new(compiler)
        .args(["-O2", "-x", "c", "-", "-o"])
        .arg(to)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .start()?;
    let said = child
        .stdin
        .take()
        .map(|mut it| it.write_all(source.as_bytes()));
    let output = child.wait_with_output()?;
    // A compiler that failed may not have read it all; it says why.
    match said {
        Some(Err(error)) if output.status.success() => Err(error),
        _ => Ok(output),
    }
}
