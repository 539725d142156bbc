//! The `portolan` command. Each command is a module; this file only picks.
#![forbid(unsafe_code)]
// They panic when their reader is gone or the disk is full: `print` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod command_line;
mod doctor;
mod job;
mod manual;
mod report;
mod run;
mod top;
mod tune;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, Parser, Subcommand};
use portolan_bench as bench;
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::print::tell;
use portolan_hosts::{lab, node, ranks};
use portolan_sys::calls;
use portolan_sys::process::soft_limit;
use portolan_sys::signals::{is_ignored, keep_children};
use rustix::process::Resource;
use signal_hook::consts::SIGXFSZ;

/// Reliable messaging between processes on ordinary Ethernet
#[derive(Parser)]
#[command(name = "portolan", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a parallel job
    Run(Box<run::Arguments>),
    /// Build, use and remove virtual clusters
    Lab(lab::Arguments),
    /// Benchmark against other systems in the same run
    Bench(bench::Arguments),
    /// Report what this host can do, which link would be used, and what to change
    Doctor(doctor::Arguments),
    /// Measure the best thresholds of matched messages, and save them for each host and link
    Tune(tune::Arguments),
    /// Run the service that gives host ports (AF_XDP queues) to users without privilege
    Node(node::Arguments),
    /// Make one HTML page with plots from a folder of benches' JSON files, or of a BSPlib profile
    Report(report::Arguments),
    /// Observe a running job
    Top(top::Arguments),
    /// Change a running job
    Job(job::Arguments),
    /// Write man pages of all commands to a directory
    Man(manual::ManArguments),
    /// Print the completions for a shell
    Completions(manual::CompletionArguments),
    #[command(name = lab::HOST_COMMAND, hide = true)]
    LabHost(lab::HostArguments),
    #[command(name = lab::SHELL_COMMAND, hide = true)]
    LabShell(lab::ShellArguments),
    #[command(name = lab::WIRE_COMMAND, hide = true)]
    LabWire(lab::WireArguments),
    #[command(name = ranks::RANK_COMMAND, hide = true)]
    Rank(ranks::RankArguments),
    #[command(name = run::GUARD_COMMAND, hide = true)]
    Guard { group: Option<std::path::PathBuf> },
    #[command(name = run::AGENT_COMMAND, hide = true)]
    Agent(run::AgentArguments),
    #[command(name = bench::BENCH_RANK_COMMAND, hide = true)]
    BenchRank(bench::RankArguments),
    #[command(name = bench::BENCH_FIRST_COMMAND, hide = true)]
    BenchFirst,
    #[command(name = bench::BENCH_DEATH_COMMAND, hide = true)]
    BenchDeath { memory: usize },
    #[command(name = bench::BENCH_LOOP_COMMAND, hide = true)]
    BenchLoop(bench::LoopArguments),
    #[command(name = tune::TUNE_RANK_COMMAND, hide = true)]
    TuneRank(tune::RankArguments),
    #[command(name = bench::BENCH_MEMORY_COMMAND, hide = true)]
    BenchMemory(bench::MemoryArguments),
}

impl Command {
    /// Whether it tells of strange variables: people call it, and it is not told
    /// by another command that it starts, as `run` is by `tune`.
    fn is_of_users(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Lab(_)
                | Self::Bench(_)
                | Self::Doctor(_)
                | Self::Node(_)
                | Self::Report(_)
                | Self::Top(_)
                | Self::Job(_)
        )
    }
}

/// Whether there is a stack to work on and threads can sleep, which is not found
/// out otherwise.
fn check_process() -> Result<()> {
    const NEEDED: u64 = 512 << 10;
    if let Some(errno) = calls::futex_refused() {
        return Err(Failure::new(calls::remedy(&[("futex", errno)])));
    }
    let limit = soft_limit(Resource::Stack);
    let Some(limit) = limit.filter(|limit| (1..NEEDED).contains(limit)) else {
        return Ok(());
    };
    Err(Failure::new(format!(
        "the stack is limited to {} KiB: raise the limit (ulimit -s 8192)",
        limit >> 10
    )))
}

fn main() -> ExitCode {
    portolan::begin_log();
    // A limit of file sizes (`ulimit -f`) is told as an error, by whoever meets
    // it. A handler, unlike ignoring, ends with the next program's beginning.
    if !is_ignored(SIGXFSZ) {
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
    keep_children();
    let words: Vec<_> = std::env::args_os().collect();
    if let Err(failure) = check_process() {
        tell(format_args!("portolan: {failure}"));
        return failure.into();
    }
    let done = match command_line::read(&mut Arguments::command(), &words) {
        Ok(Arguments { command }) => {
            if command.is_of_users() {
                for what in portolan::check_environment() {
                    tell(format_args!("portolan: {what}"));
                }
            }
            run(command)
        }
        Err(answer) => answer.give(),
    };
    done.unwrap_or_else(|failure| {
        tell(format_args!("portolan: {failure}"));
        failure.into()
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => run::run(*arguments),
        Command::Lab(arguments) => lab::command(arguments),
        Command::LabHost(arguments) => lab::become_host(&arguments),
        Command::LabShell(arguments) => lab::remote_shell(&arguments),
        Command::LabWire(arguments) => lab::become_wire(&arguments),
        Command::Rank(arguments) => ranks::become_rank(&arguments),
        Command::Guard { group } => run::guard(group.as_deref()),
        Command::Agent(arguments) => run::agent(&arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::BenchRank(arguments) => bench::rank(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::TuneRank(arguments) => tune::rank(&arguments),
        Command::Node(arguments) => node::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Job(arguments) => job::run(&arguments),
        Command::Man(arguments) => manual::pages(Arguments::command(), &arguments),
        Command::Completions(arguments) => manual::completions(Arguments::command(), &arguments),
        Command::BenchMemory(arguments) => bench::memory_process(&arguments),
        Command::BenchLoop(arguments) => bench::busy_loop(&arguments),
        Command::BenchFirst => bench::first_message(),
        Command::BenchDeath { memory } => bench::death(memory),
    }
}
