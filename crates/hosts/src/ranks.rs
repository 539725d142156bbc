//! Ranks on this host, or on the hosts of a lab: how they are started, and what
//! the user is told of them.

pub mod cgroup;
mod local;
mod rank;
mod tell;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use portolan_boot::launch::Stop;
use portolan_sys::signals::is_ignored;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::failure::{Failure, Result};
pub use local::{Local, disabled};
pub use rank::{
    RankArguments, allowed_cores, become_rank, bind_to, check_program, core_in_turn, end_with,
    execute, execute_with,
};
pub use tell::Teller;

/// The hidden command that becomes a rank.
pub const RANK_COMMAND: &str = "internal-rank";

/// Signals that end the job. One that was ignored at the start stays ignored, for the ranks too:
/// `nohup` asks for that with SIGHUP, and a script with SIGINT for what it starts with `&`.
pub fn stops() -> Result<Vec<Stop>> {
    let signals = [
        (SIGINT, "interrupted (SIGINT)"),
        (SIGTERM, "terminated (SIGTERM)"),
        (SIGHUP, "the terminal is gone (SIGHUP)"),
        (SIGQUIT, "quit (SIGQUIT)"),
    ];
    let stop = |(signal, why): (i32, &str)| {
        let (ours, handlers) = UnixStream::pair()?;
        signal_hook::low_level::pipe::register(signal, handlers)?;
        Ok(Stop {
            descriptor: OwnedFd::from(ours),
            code: 128 + signal,
            why: why.to_owned(),
        })
    };
    signals
        .into_iter()
        .filter(|(signal, _)| !is_ignored(*signal))
        .map(stop)
        .collect::<io::Result<_>>()
        .map_err(Failure::io("catching signals"))
}
