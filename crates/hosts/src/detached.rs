//! Commands that outlive the process that has asked for them.

use std::env;
use std::process::{Command, ExitCode};

use portolan_sys::children::Start;
use portolan_sys::inherit::close_inherited;
use rustix::process::{chdir, setsid};

use crate::failure::{Failure, Result};

/// Starts this command again with its words and `--detached`, as nobody's child once
/// this process has ended: a program must not find among its children one that it
/// knows nothing of.
///
/// # Errors
/// The kernel's.
pub fn start_again() -> Result<ExitCode> {
    let failed = || Failure::io("starting this command again");
    let own = env::current_exe().map_err(failed())?;
    Command::new(own)
        .args(env::args_os().skip(1))
        .arg("--detached")
        .start()
        .map_err(failed())?;
    Ok(ExitCode::SUCCESS)
}

/// Leaves the session of who asked, of whom nothing is held but standard input, output
/// and error: not its launcher's descriptors, whose other ends would wait for us.
///
/// # Errors
/// The kernel's.
pub fn leave() -> Result<()> {
    close_inherited().map_err(Failure::io("closing what was inherited"))?;
    setsid().map_err(Failure::os("leaving the session"))?;
    chdir("/").map_err(Failure::os("leaving the folder"))
}
