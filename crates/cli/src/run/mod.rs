//! `portolan run`: starts a job on this host or on the hosts of a lab.

mod guard;
mod local;
mod output;
mod rank;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use portolan_boot::launch::{Event, JobSpec, LaunchError, OnDeath, Place, Running, Starter, Stop};
use portolan_boot::{Congestion, LinkChoice, Security, Suite};
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM};

use crate::failure::{Failure, Result};
use crate::lab::Lab;
use guard::Guard;
pub use guard::guard;
pub use local::Local;
use output::Output;
pub use rank::{RankArguments, allowed_cores, become_rank, execute};

/// The hidden command that becomes a rank.
pub const RANK_COMMAND: &str = "internal-rank";
/// The hidden command that outlives a killed launcher.
pub const GUARD_COMMAND: &str = "internal-guard";

const EXIT_CODES: &str = "\
Exit code: that of the first rank that fails (128 + N if signal N ended it), else 0.
1: the job could not be started or joined; 2: bad arguments; 126: the program cannot
be executed; 127: the program was not found; 128 + N: ended by signal N (130: Ctrl-C).";

#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Arguments {
    /// Number of ranks, 1 to 4096
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    ranks: u64,
    /// Run on the hosts of this lab, in blocks
    #[arg(long, value_name = "NAME")]
    lab: Option<String>,
    /// Link between ranks
    #[arg(long, value_enum, default_value_t)]
    link: Link,
    /// Seal packets on the network
    #[arg(long, value_enum, default_value_t)]
    security: Sealing,
    /// How to share the network
    #[arg(long, value_enum, default_value_t)]
    congestion: Sharing,
    /// Bind each rank to a core, round robin
    #[arg(long, value_enum, default_value_t)]
    bind: Bind,
    /// What to do with the other ranks when one dies
    #[arg(long, value_enum, default_value_t)]
    on_death: Death,
    /// How long ranks wait for others to join, 0 for ever
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    join_timeout: u64,
    /// Pass a setting to the ranks (docs/operations.md has them)
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Do not put the rank before each line of output
    #[arg(long)]
    no_prefix: bool,
    /// Say where ranks run, how each ended, and which link carried what and why
    #[arg(short, long)]
    verbose: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROG"
    )]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Link {
    /// Shared memory within a host, UDP between hosts
    #[default]
    Auto,
    /// Shared memory only
    Shm,
    /// UDP only
    Udp,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Sealing {
    /// Encrypted and authenticated
    #[default]
    Encrypt,
    /// Only a checksum
    None,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Sharing {
    /// lan on a directly connected subnet, else shared
    #[default]
    Auto,
    /// Led by queueing delay
    Lan,
    /// Fair to TCP
    Shared,
}

#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
enum Bind {
    /// To one core each
    #[default]
    Core,
    /// Not at all
    None,
}

#[derive(Clone, Copy, Default, ValueEnum)]
enum Death {
    /// Tell them and end them
    #[default]
    End,
    /// Only tell them
    Notify,
}

/// Runs a job; gives its exit code.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let spec = spec(&arguments)?;
    let hosts = match &arguments.lab {
        None => None,
        Some(name) => {
            Lab::check_entry()?;
            Some(Lab::open(name)?)
        }
    };
    rank::check_program(&arguments.program[0])?;
    let places = (spec.size(), spec.hosts.len());
    let stops = stops()?;
    let mut starter = Program::new(&arguments, hosts)?;
    let mut running = Running::start(spec, &mut starter).map_err(|error| match error {
        LaunchError::Size(_) | LaunchError::ShmAcrossHosts => Failure::usage(error.to_string()),
        error => Failure::new(error.to_string()),
    })?;
    let (output, broken) = Output::start(running.take_outputs(), !arguments.no_prefix)
        .map_err(Failure::io("collecting the ranks' output"))?;
    let mut stops = stops;
    stops.push(Stop {
        descriptor: broken,
        code: 128 + SIGPIPE,
        why: "nobody reads the output".to_owned(),
    });
    let verbose = arguments.verbose;
    let mut ended = 0_u32;
    let mut lanes = BTreeMap::new();
    let code = running
        .wait(stops, &mut |event| {
            ended += u32::from(matches!(event, Event::Ended { .. }));
            starter.local.heed(&event);
            report(&event, verbose);
            if let Event::Lanes { rank, lanes: told } = event {
                lanes.insert(rank, told);
            }
        })
        .map_err(Failure::io("watching the ranks"))?;
    output.finish();
    starter.guard.dismiss();
    if verbose {
        let (ranks, hosts) = places;
        for (rank, lanes) in lanes.iter().filter(|(_, lanes)| !lanes.is_empty()) {
            let lanes: Vec<String> = lanes.iter().map(ToString::to_string).collect();
            eprintln!("portolan: lanes of rank {rank}: {}", lanes.join("; "));
        }
        eprintln!("portolan: {ended} of {ranks} ranks on {hosts} hosts ended, exit code {code}");
    }
    Ok(u8::try_from(code).unwrap_or(1).into())
}

fn spec(arguments: &Arguments) -> Result<JobSpec> {
    let usage = |n| Failure::usage(LaunchError::Size(n).to_string());
    let ranks = u32::try_from(arguments.ranks).map_err(|_| usage(arguments.ranks))?;
    if ranks == 0 || ranks > portolan_boot::launch::RANKS_MAX {
        return Err(usage(ranks.into()));
    }
    let hosts = match &arguments.lab {
        None => 1,
        Some(name) => Lab::open(name)?.hosts().min(ranks),
    };
    let mut spec = JobSpec::new(JobSpec::blocks(ranks, hosts));
    spec.link = match arguments.link {
        Link::Auto => LinkChoice::Auto,
        Link::Shm => LinkChoice::Shm,
        Link::Udp => LinkChoice::Udp,
    };
    spec.security = match arguments.security {
        Sealing::Encrypt => Security::Encrypt,
        Sealing::None => Security::None,
    };
    spec.congestion = match arguments.congestion {
        Sharing::Auto => Congestion::Auto,
        Sharing::Lan => Congestion::Lan,
        Sharing::Shared => Congestion::Shared,
    };
    spec.on_death = match arguments.on_death {
        Death::End => OnDeath::End,
        Death::Notify => OnDeath::Notify,
    };
    spec.suite = if has_aes() {
        Suite::Aes128Gcm
    } else {
        Suite::ChaCha20Poly1305
    };
    spec.join_timeout =
        (arguments.join_timeout > 0).then(|| Duration::from_secs(arguments.join_timeout));
    for setting in &arguments.settings {
        let (name, value) = setting
            .split_once('=')
            .ok_or_else(|| Failure::usage(format!("--set {setting}: give it as NAME=VALUE")))?;
        spec.settings.insert(name.to_owned(), value.to_owned());
    }
    if arguments.bind == Bind::Core {
        let cores = rank::allowed_cores().map_err(Failure::io("asking for the allowed cores"))?;
        spec.cores = (0..ranks as usize)
            .map(|rank| Some(cores[rank % cores.len()]))
            .collect();
    }
    Ok(spec)
}

/// Whether this host, and so every host of the job, encrypts AES in hardware.
pub fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes");
}

/// Signals that end the job.
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
        .map(stop)
        .collect::<io::Result<_>>()
        .map_err(Failure::io("catching signals"))
}

/// Tells the user what happened in a job.
pub fn report(event: &Event, verbose: bool) {
    match event {
        Event::Ended {
            place,
            pid,
            how,
            orderly,
            expected,
        } => {
            let (rank, host) = (place.rank, place.host_index);
            let failed = how.code() != 0 && !expected;
            if failed || verbose {
                let early = if *orderly {
                    ""
                } else {
                    " without leaving the job"
                };
                eprintln!("portolan: rank {rank} (process {pid}, host {host}) ended{early}: {how}");
            }
        }
        Event::Lanes { .. } => {}
        Event::Waiting { missing, waited } => eprintln!(
            "portolan: waiting since {} s for ranks that have not joined: {missing:?}",
            waited.as_secs()
        ),
        Event::Refused { rank, why } => eprintln!("portolan: rank {rank} was not let in: {why}"),
        Event::Ending { why } => eprintln!("portolan: ending the job: {why}"),
    }
}

/// Starts the user's program.
struct Program {
    program: Vec<OsString>,
    local: Local,
    guard: Guard,
    verbose: bool,
}

impl Program {
    fn new(arguments: &Arguments, lab: Option<Lab>) -> Result<Self> {
        let local = Local::new(lab)?;
        let guard = Guard::start(local.own()).map_err(Failure::io("starting the job's guard"))?;
        Ok(Self {
            program: arguments.program.clone(),
            local,
            guard,
            verbose: arguments.verbose,
        })
    }
}

impl Starter for Program {
    fn segment(&mut self, host_index: u16, ranks: u32) -> io::Result<OwnedFd> {
        self.local.segment(host_index, ranks)
    }

    fn command(&mut self, place: &Place) -> Command {
        let mut command = self.local.command(place, &self.program);
        // Ranks are in background process groups, which may not read from a
        // terminal.
        let gets_input = place.rank == 0 && !io::stdin().is_terminal();
        command
            .stdin(if gets_input {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn started(&mut self, place: &Place, pid: u32) {
        self.guard.watch(pid);
        if self.verbose {
            let Place {
                rank,
                host_index,
                core,
                ..
            } = *place;
            let core = core.map_or_else(|| "any core".to_owned(), |core| format!("core {core}"));
            eprintln!("portolan: rank {rank} is process {pid} on host {host_index}, {core}");
        }
    }
}
