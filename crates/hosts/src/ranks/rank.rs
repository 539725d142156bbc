//! What becomes a rank: enters its host, binds itself, runs the program.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use portolan_sys::signals;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::cgroup;
use crate::failure::{Failure, Result};
use crate::lab::Lab;

/// Exit code for a program that cannot be executed, as of shells.
const NOT_EXECUTABLE: u8 = 126;
/// Exit code for a program that does not exist, as of shells.
const NOT_FOUND: u8 = 127;

/// Of the hidden command that becomes a rank.
#[derive(clap::Args)]
pub struct RankArguments {
    #[arg(long)]
    parent: u32,
    #[arg(long)]
    core: Option<u32>,
    #[arg(long)]
    group: Option<PathBuf>,
    #[arg(long, requires = "host")]
    lab: Option<String>,
    #[arg(long)]
    host: Option<u32>,
    #[arg(long)]
    ignore_children: bool,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

/// Turns this process into a rank's program; returns only if that fails.
pub fn become_rank(arguments: &RankArguments) -> Result<ExitCode> {
    end_with(arguments.parent)?;
    if arguments.ignore_children {
        signals::ignore_children_in_exec();
    }
    if let Some(group) = &arguments.group {
        // Where it may not, its process group is all there is to find it by.
        let _ = cgroup::enter(group);
    }
    if let Some(core) = arguments.core {
        bind_to(core).map_err(Failure::os(format!(
            "binding to core {core} (--bind none does without)"
        )))?;
    }
    if let (Some(name), Some(host)) = (&arguments.lab, arguments.host) {
        Lab::open(name)?.enter(host)?;
    }
    Err(execute(&arguments.program))
}

/// Has this process killed when its parent, of this number, ends.
pub fn end_with(parent: u32) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::os(
        "asking to end with the process that started this one",
    ))?;
    // It may have died before it was asked for.
    if getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned()) != Some(parent) {
        return Err(Failure::new("the process that started this one is gone"));
    }
    Ok(())
}

/// Replaces this process by `program`; returns only if that fails.
pub fn execute(program: &[OsString]) -> Failure {
    execute_with(program, &[])
}

/// The same with further variables in its environment.
pub fn execute_with(program: &[OsString], variables: &[(OsString, OsString)]) -> Failure {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]);
    let variables = variables.iter().map(|(name, value)| (name, value));
    let error = signals::exec(command.envs(variables));
    not_run(&program[0], &error)
}

fn not_run(program: &OsStr, error: &io::Error) -> Failure {
    let name = program.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::with_code(
            NOT_FOUND,
            format!("program {name} not found: give its path, or a name in PATH"),
        ),
        io::ErrorKind::PermissionDenied => Failure::with_code(
            NOT_EXECUTABLE,
            format!("program {name} cannot be executed: {error}; check its mode (chmod +x)"),
        ),
        io::ErrorKind::IsADirectory => Failure::with_code(
            NOT_EXECUTABLE,
            format!("program {name} is a folder: give the path of a program in it"),
        ),
        _ => Failure::with_code(
            NOT_EXECUTABLE,
            format!("program {name} cannot be executed: {error}"),
        ),
    }
}

/// Looks for the program as exec will with this `PATH`, so that one message says it is missing
/// instead of one for each rank.
pub fn check_program(program: &OsStr, path: Option<&OsStr>) -> Result<()> {
    let candidates: Vec<PathBuf> = if program.as_bytes().contains(&b'/') {
        vec![PathBuf::from(program)]
    } else {
        env::split_paths(path.unwrap_or(OsStr::new("/usr/bin:/bin")))
            .map(|folder| folder.join(program))
            .collect()
    };
    let mut reason = io::Error::from(io::ErrorKind::NotFound);
    for candidate in candidates {
        match executable(&candidate) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => reason = error,
        }
    }
    Err(not_run(program, &reason))
}

fn executable(path: &Path) -> io::Result<()> {
    let about = path.metadata()?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if about.is_file() && about.permissions().mode() & 0o111 != 0 {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

/// The core of the rank with this number on its host, if the kernel tells which
/// there are.
pub fn core_in_turn(local_index: u16) -> Option<u32> {
    let cores = allowed_cores().ok()?;
    cores.get(usize::from(local_index) % cores.len()).copied()
}

/// Binds the calling thread to a core.
pub fn bind_to(core: u32) -> rustix::io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core as usize);
    sched_setaffinity(None, &cores)
}

/// The cores that this process may run on; at least one.
pub fn allowed_cores() -> io::Result<Vec<u32>> {
    let set = sched_getaffinity(None)?;
    let numbers = 0..u32::try_from(CpuSet::MAX_CPU).expect("1024");
    let cores: Vec<u32> = numbers.filter(|&core| set.is_set(core as usize)).collect();
    Ok(if cores.is_empty() { vec![0] } else { cores })
}
