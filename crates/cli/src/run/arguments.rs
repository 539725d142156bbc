//! What `portolan run` is asked for.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueEnum;
use portolan_boot::launch::{LaunchError, RANKS_MAX};
use portolan_hosts::choices::Network;
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::mpi::Mpi;

const EXIT_CODES: &str = "\
Several programs in one job: `portolan run -n 2 -- A : -n 3 B` (with a lone `:` between them).

Exit code: 0 if all ranks end with 0, else that of the first rank that fails
(128 + N if signal N ended it). Further codes:
  1        the job could not be started or joined, or a host was lost
  2        bad arguments
  124      --timeout
  126      the program cannot be executed
  127      the program was not found
  128 + N  signal N ended the job (130: Ctrl-C)";

/// What an MPI's own launcher does in its way.
const NOT_FOR_MPI: [&str; 15] = [
    "partitions",
    "ssh",
    "prefix",
    "connect_timeout",
    "fan_out",
    "bind",
    "report_bindings",
    "on_death",
    "respawn",
    "join_timeout",
    "host_silence",
    "stopped_limit",
    "timeout",
    "output",
    "trace",
];

#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Arguments {
    /// Number of ranks, 1 to 4096 [default: all slots, where hosts are listed]
    #[arg(
        short = 'n',
        long = "ranks",
        alias = "np",
        value_name = "N",
        allow_negative_numbers = true
    )]
    pub ranks: Option<u64>,
    /// Hosts to run on, with their slots (1 each unless given), as in a:2,b:2
    #[arg(long, value_name = "HOST[:SLOTS],...", conflicts_with = "hostfile")]
    pub hosts: Option<String>,
    /// File with one host per line: `name`, `name:slots` or `name slots=N`
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// Leave these hosts out of the list
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    pub exclude: Vec<String>,
    /// Separate these hosts from all others: no common key, no messages; may be
    /// repeated
    #[arg(long = "partition", value_name = "NAME=HOST,...")]
    pub partitions: Vec<String>,
    /// Run on the hosts of this lab, in blocks
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// Run a program of this MPI: by its own launcher, with its messages over Portolan
    #[arg(long, value_enum, conflicts_with_all = NOT_FOR_MPI)]
    pub mpi: Option<Mpi>,
    /// Program that reaches other hosts, with options, as in 'ssh -p 2222'
    /// [default: PORTOLAN_SSH, else ssh]
    #[arg(long, value_name = "PROG")]
    pub ssh: Option<String>,
    /// Prefix of Portolan's installation on other hosts (DIR/bin/portolan)
    /// [default: their PATH]
    #[arg(long, value_name = "DIR")]
    pub prefix: Option<PathBuf>,
    /// How long to wait for other hosts to answer
    #[arg(long, value_name = "SECONDS", default_value_t = 8,
          value_parser = clap::value_parser!(u64).range(1..=3600), allow_negative_numbers = true)]
    pub connect_timeout: u64,
    /// Connections that the launcher and each agent open; further hosts are
    /// reached through those
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=4096), allow_negative_numbers = true)]
    pub fan_out: u32,
    /// Set a variable in the ranks' environment; without a value, pass on its
    /// value here
    #[arg(short = 'x', long = "env", value_name = "NAME[=VALUE]")]
    pub environment: Vec<OsString>,
    #[command(flatten)]
    pub network: Network,
    /// Bind each rank to a core, round robin on its host
    #[arg(long, value_enum, default_value_t)]
    pub bind: Bind,
    /// Print the host and core of each rank
    #[arg(long)]
    pub report_bindings: bool,
    /// What to do with the other ranks when one dies
    #[arg(long, value_enum, default_value_t)]
    pub on_death: Death,
    /// Start the ranks of a lost or excluded host again on other hosts, each at
    /// most N times
    #[arg(long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(0..=1000), allow_negative_numbers = true)]
    pub respawn: u32,
    /// How long ranks wait for the others to join, and for a peer's first answer;
    /// 0 for ever
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        allow_negative_numbers = true
    )]
    pub join_timeout: u64,
    /// A remote host that is silent for this long is lost
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 2500,
          value_parser = clap::value_parser!(u64).range(1000..=3_600_000), allow_negative_numbers = true)]
    pub host_silence: u64,
    /// How long a stopped rank (SIGSTOP) counts as alive [default: for ever]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    pub stopped_limit: Option<u64>,
    /// End the job after this long, with exit code 124
    #[arg(long, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..), allow_negative_numbers = true)]
    pub timeout: Option<u64>,
    /// Pass a setting to the ranks (docs/operations.md lists them)
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
    /// Write each rank's output to DIR/RANK.out and DIR/RANK.err
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Write a timeline of all ranks to DIR/trace.json, for Perfetto
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// Do not put the rank before each line of output
    #[arg(long)]
    pub no_prefix: bool,
    /// Print where ranks run, how each ended, and which link carried what, and why
    #[arg(short, long)]
    pub verbose: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROG")]
    pub program: Vec<OsString>,
}

#[derive(Clone, Copy, Default, PartialEq, ValueEnum)]
pub enum Bind {
    /// Each rank to one core
    #[default]
    Core,
    /// Do not bind
    None,
}

#[derive(Clone, Copy, Default, ValueEnum)]
pub enum Death {
    /// Notify them, then end them
    #[default]
    End,
    /// Only notify them
    Notify,
}

/// A program with its arguments and how many ranks run it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// None: all that the hosts have slots for.
    pub ranks: Option<u32>,
    pub program: Vec<OsString>,
}

impl Arguments {
    /// The job's programs in order of their ranks, at least one.
    ///
    /// # Errors
    /// A part between two `:` that is none.
    pub fn blocks(&self) -> Result<Vec<Block>> {
        let mut parts = self.program.split(|word| word == ":");
        let first = Block {
            ranks: self.ranks.map(rank_count).transpose()?,
            program: parts.next().unwrap_or_default().to_vec(),
        };
        let mut blocks = vec![first];
        for part in parts {
            blocks.push(block(part)?);
        }
        let empty = |b: &Block| b.program.first().is_none_or(|name| name.is_empty());
        if blocks.iter().any(empty) {
            return Err(Failure::usage(
                "the program's name is empty: give it after --, as in \
                 `portolan run -n 2 -- ./program`",
            ));
        }
        if blocks.len() > 1 && blocks[0].ranks.is_none() {
            return Err(Failure::usage(
                "several programs: give the number of ranks of each, as in \
                 `portolan run -n 2 -- A : -n 3 B`",
            ));
        }
        Ok(blocks)
    }

    /// Variables for the ranks' environment.
    ///
    /// # Errors
    /// One that is not set here, or no name.
    pub fn variables(&self) -> Result<Vec<(OsString, OsString)>> {
        self.environment.iter().map(variable).collect()
    }
}

/// Reads `-n N [--] PROG ARGS`.
fn block(words: &[OsString]) -> Result<Block> {
    let wrong = |why: &str| {
        let words: Vec<_> = words.iter().map(|w| w.to_string_lossy()).collect();
        Failure::usage(format!(
            "after a lone `:` stands {:?}, {why}: give the number of ranks and the program, as in \
             `: -n 3 B`",
            words.join(" ")
        ))
    };
    let (number, program) = match words {
        [option, number, program @ ..]
            if ["-n", "-np", "--np", "--ranks"]
                .iter()
                .any(|it| option == it) =>
        {
            (number.to_string_lossy().into_owned(), program)
        }
        [option, program @ ..] => {
            let option = option.to_string_lossy();
            let number = option
                .strip_prefix("--ranks=")
                .or_else(|| option.strip_prefix("-n").filter(|n| !n.is_empty()));
            let number = number.ok_or_else(|| wrong("which does not begin with -n"))?;
            (number.to_owned(), program)
        }
        [] => return Err(wrong("which is nothing")),
    };
    let ranks = number
        .parse()
        .map_err(|_| wrong("whose -n has no number"))?;
    let program = match program {
        [dashes, program @ ..] if dashes == "--" => program,
        program => program,
    };
    if program.is_empty() {
        return Err(wrong("which has no program"));
    }
    Ok(Block {
        ranks: Some(rank_count(ranks)?),
        program: program.to_vec(),
    })
}

/// A number of ranks that can be.
pub fn rank_count(ranks: u64) -> Result<u32> {
    match u32::try_from(ranks) {
        Ok(ranks) if (1..=RANKS_MAX).contains(&ranks) => Ok(ranks),
        _ => Err(Failure::usage(LaunchError::Size(ranks).to_string())),
    }
}

fn variable(word: &OsString) -> Result<(OsString, OsString)> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let bytes = word.as_bytes();
    let (name, value) = match bytes.iter().position(|&b| b == b'=') {
        Some(at) => (&bytes[..at], Some(&bytes[at + 1..])),
        None => (bytes, None),
    };
    let name = OsString::from_vec(name.to_vec());
    let shown = word.to_string_lossy();
    if name.is_empty() || name == portolan_boot::JOB_VARIABLE {
        return Err(Failure::usage(format!(
            "-x {shown}: give it as NAME=VALUE, or NAME to pass on its value here; \
             {} is set for each rank",
            portolan_boot::JOB_VARIABLE
        )));
    }
    let value = match value {
        Some(value) => OsString::from_vec(value.to_vec()),
        None => std::env::var_os(&name).ok_or_else(|| {
            Failure::usage(format!(
                "-x {shown}: it is not set here; set it, or give it as -x {shown}=VALUE"
            ))
        })?,
    };
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_block_is_a_number_and_a_program() {
        for text in [
            "-n 3 B c",
            "-n3 B c",
            "-np 3 B c",
            "--ranks=3 B c",
            "-n 3 -- B c",
        ] {
            let got = block(&words(text)).unwrap();
            let program = words("B c");
            let ranks = Some(3);
            assert_eq!(got, Block { ranks, program }, "{text}");
        }
        for text in ["B", "-n B c", "-n 3", "-n 3 --", "-n 0 B", ""] {
            assert!(block(&words(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn variables_have_names() {
        let pair = |n: &str, v: &str| (OsString::from(n), OsString::from(v));
        let of = |word: &str| variable(&OsString::from(word));
        assert_eq!(of("A=b=c").unwrap(), pair("A", "b=c"));
        assert_eq!(of("A=").unwrap(), pair("A", ""));
        assert!(of("PATH").is_ok());
        for wrong in ["=x", "", "PORTOLAN_JOB=fd:3", "PORTOLAN_NOT_SET_ANYWHERE"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
