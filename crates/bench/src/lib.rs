//! `portolan bench`: measures ourselves beside others in one run.
//!
//! This process only conducts: it starts the ranks, gives each system its
//! turn for a slice, and reckons up. The ranks (`rank`) measure, all systems
//! by the same loops (`drive`).
#![forbid(unsafe_code)]
// They panic when their reader is gone or the disk is full: `print` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod busy;
mod conduct;
mod control;
mod experiment;
mod experiments;
mod job;
mod loss;
mod options;
mod pace;
mod peers;
mod plan;
mod ranks;
mod report;
mod slice;

use std::process::ExitCode;

use portolan_hosts::failure::Result;
use portolan_hosts::print::print;

pub use busy::{BENCH_LOOP_COMMAND, LoopArguments, busy_loop};
pub use experiments::death::BENCH_DEATH_COMMAND;
pub use experiments::memory::{BENCH_MEMORY_COMMAND, MemoryArguments, process as memory_process};
pub use experiments::start::BENCH_FIRST_COMMAND;
pub use job::BENCH_RANK_COMMAND;
pub use options::{Arguments, RankArguments};
pub use ranks::matched::compute_until;
pub use ranks::portolan::ours;
pub use report::dimensions::Dimension;
pub use report::machine::Machine;
pub use report::stats::Quartiles;
pub use report::table::{Ratio, Report, Row};

/// Runs a bench.
///
/// # Errors
/// What was asked for cannot be measured; something fails.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let (place, experiment) = arguments.bench.experiment();
    print(experiment::conduct(place, experiment.as_ref())?.text())?;
    Ok(ExitCode::SUCCESS)
}

/// Becomes a rank of a bench.
///
/// # Errors
/// The bench is gone.
pub fn rank(arguments: &RankArguments) -> Result<ExitCode> {
    ranks::rank::main(!arguments.no_helper, arguments.threads).map(|()| ExitCode::SUCCESS)
}

/// Becomes a rank of the start bench.
///
/// # Errors
/// The job cannot be joined; its messages do not come.
pub fn first_message() -> Result<ExitCode> {
    ranks::rank::first_message().map(|()| ExitCode::SUCCESS)
}

/// Becomes a rank of the death bench; `memory` is what the victim uses, bytes.
///
/// # Errors
/// The job cannot be joined; nobody hears of the death.
pub fn death(memory: usize) -> Result<ExitCode> {
    experiments::death::rank(memory).map(|()| ExitCode::SUCCESS)
}
