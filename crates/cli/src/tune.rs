//! `portolan tune`: finds the thresholds of matched messages by measuring, and
//! keeps them in a file for each host and link.
//!
//! The ranks of a job of `portolan run` measure (`rank`, `step`), on whatever
//! hosts and links that can have; this process only starts it, and tells.

mod choose;
mod rank;
mod report;
mod step;
mod values;

use std::io::{BufRead, BufReader, IsTerminal};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::ValueEnum;
use portolan::tuned::Link as TunedLink;
use portolan_hosts::choices::Link;
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::file::Output;
use portolan_hosts::lab::Lab;
use portolan_hosts::print::{hide_progress, print, show_progress};
use portolan_sys::children::Start;
use portolan_sys::tell::plain;

use self::rank::{MARK, Said, forget, link_of};
pub use self::rank::{RankArguments, TUNE_RANK_COMMAND};
use self::report::Found;
use crate::run::check_interface;

/// Most hosts of a lab that take part: as many as one receiver is flooded by.
const LAB_HOSTS_MAX: u32 = 8;

const NOTES: &str = "\
What is measured:
- Without --lab and --hosts, shared memory between two ranks of this host. Instead of window and
  chunk of pulls, it finds the length from which both sides copy.
- With --link udp and neither of these, this host's network path to itself. No path to another host
  is like it, so nothing is saved.
- With more than two hosts, pushing and pulling also while all other hosts send to the first.

It takes half a minute. On links of some 100 Mbit/s it takes twice as long, and two minutes there
with eight hosts. Nothing else should run meanwhile.

Values that differ from the defaults are saved in HOST-LINK.conf on each host that took part, in
the folder that PORTOLAN_TUNED names, else in $XDG_CONFIG_HOME/portolan/tuned.d
(~/.config/portolan/tuned.d). With --system they are saved in /etc/portolan/tuned.d, for users
without a file of their own. Every job uses them where nothing else gives these settings;
`portolan doctor` shows them.

Exit code: 0 if the values were found and saved (or removed), 1 if not, 2 for bad arguments;
if the job of the ranks failed, its code.";

/// Of `portolan tune`.
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Arguments {
    /// Measure between the hosts of this lab
    #[arg(long, value_name = "NAME", conflicts_with = "hosts")]
    lab: Option<String>,
    /// Measure between these hosts, as for `portolan run --hosts`
    #[arg(long, value_name = "HOST,...")]
    hosts: Option<String>,
    /// Program that reaches them, as for `portolan run --ssh`
    #[arg(long, value_name = "PROG", requires = "hosts")]
    ssh: Option<String>,
    /// Prefix of Portolan's installation on them (DIR/bin/portolan) [default: where it is here]
    #[arg(long, value_name = "DIR", requires = "hosts")]
    prefix: Option<PathBuf>,
    /// Link (transport) between the ranks
    #[arg(long, value_enum, default_value_t)]
    link: Link,
    /// Networks for messages, as for `portolan run`
    #[arg(long, value_name = "NAME|CIDR,...")]
    interface: Option<String>,
    /// Save nothing
    #[arg(long, conflicts_with = "forget")]
    dry_run: bool,
    /// Measure nothing; remove the saved values, of --link or of all links
    #[arg(long)]
    forget: bool,
    /// Save (or remove) the values for all users of the hosts
    #[arg(long)]
    system: bool,
    /// Rounds of each comparison; their median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Write the findings to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Becomes a rank.
pub fn rank(arguments: &RankArguments) -> Result<ExitCode> {
    rank::main(arguments).map(|()| ExitCode::SUCCESS)
}

/// Tunes or forgets, and tells.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let apart = arguments.lab.is_some() || arguments.hosts.is_some();
    match (arguments.link, apart) {
        (Link::Shm, true) => {
            return Err(Failure::usage(
                "--link shm reaches no other host: leave out --lab, --hosts or --link",
            ));
        }
        (Link::Xdp, false) if !arguments.forget => {
            return Err(Failure::usage(
                "--link xdp goes between hosts: add --lab NAME or --hosts A,B",
            ));
        }
        _ => {}
    }
    if let Some(networks) = &arguments.interface {
        check_interface(networks)?;
    }
    let output = arguments.json.as_deref().map(Output::open).transpose()?;
    // By the network to itself a host is slower than to another, or faster.
    let loopback = arguments.link == Link::Udp && !apart && !arguments.forget;
    let found = if arguments.forget && !apart {
        forget_here(arguments)?
    } else {
        measure(arguments, arguments.dry_run || loopback)?
    };
    let kept = match arguments.forget {
        true => "removed",
        false => "kept in",
    };
    if let Some(output) = output {
        output.write(&serde_json::to_vec_pretty(&found)?)?;
    }
    let mut text = found.text(kept);
    if arguments.forget && found.kept.is_empty() {
        text.push_str("nothing was kept\n");
    }
    if arguments.dry_run || loopback {
        let why = match arguments.dry_run {
            true => "--dry-run",
            false => "this host talked to itself; other hosts: --hosts A,B",
        };
        text.push_str(&format!("nothing was kept ({why})"));
        let settings = found.values().into_iter();
        let settings: Vec<String> = settings
            .map(|(name, value)| format!("--set {name}={value}"))
            .collect();
        text.push_str(&match &settings[..] {
            [] => "; the defaults suit\n".to_owned(),
            some => format!("; to use it: portolan run {} -- PROG\n", some.join(" ")),
        });
    }
    print(lines_of_others(&text))?;
    let failed = found.kept.iter().any(|it| it.error.is_some());
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Lines in which words of other hosts' processes stand, as a terminal may have
/// them.
fn lines_of_others(text: &str) -> String {
    text.lines()
        .map(|line| format!("{}\n", plain(line)))
        .collect()
}

fn name_of(link: Link) -> String {
    let value = link.to_possible_value();
    value.map_or_else(String::new, |it| it.get_name().to_owned())
}

/// Removes this host's files, which needs no job.
fn forget_here(arguments: &Arguments) -> Result<Found> {
    let links = match arguments.link {
        Link::Auto => TunedLink::ALL.to_vec(),
        link => vec![link_of(&name_of(link))?],
    };
    let mut found = Found::new(links[0], 1);
    found.kept = forget(arguments.system, &links);
    Ok(found)
}

/// Lets a job measure, or forget on its hosts.
fn measure(arguments: &Arguments, dry_run: bool) -> Result<Found> {
    let mut command = job(arguments, dry_run)?;
    let mut ranks = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .start()
        .map_err(Failure::io("starting portolan run"))?;
    let mut found = None;
    let mut broken = None;
    let terminal = std::io::stderr().is_terminal();
    if let Some(out) = ranks.stdout.take() {
        for line in BufReader::new(out).lines() {
            let line = match line {
                Ok(line) => line,
                Err(error) => {
                    broken = Some(Failure::new(format!("hearing of the ranks: {error}")));
                    break;
                }
            };
            let Some(said) = line.strip_prefix(MARK) else {
                print(lines_of_others(&line))?;
                continue;
            };
            match serde_json::from_str(said) {
                Ok(Said::Found(it)) => found = Some(it),
                Ok(Said::Progress(done, of)) if terminal => {
                    show_progress(done, of, &format!("step {done} of about {of}"));
                }
                Ok(Said::Progress(..)) => {}
                Err(error) => broken = Some(error.into()),
            }
        }
    }
    if terminal {
        hide_progress();
    }
    let ended = ranks.wait().map_err(Failure::io("waiting for the ranks"))?;
    match (ended.code(), broken, found) {
        (Some(0), None, Some(found)) => Ok(found),
        (Some(0), Some(failure), _) => Err(failure),
        // The job has said why.
        (code, _, _) => {
            let code = code
                .and_then(|code| u8::try_from(code).ok())
                .filter(|it| *it > 0);
            Err(Failure::with_code(
                code.unwrap_or(1),
                "the ranks that were to measure failed: nothing was found",
            ))
        }
    }
}

/// The job of the ranks.
fn job(arguments: &Arguments, dry_run: bool) -> Result<Command> {
    let own = std::env::current_exe().map_err(Failure::io("finding the portolan command"))?;
    let mut command = Command::new(&own);
    let link = name_of(arguments.link);
    command.args(["run", "--no-prefix", "--link", &link]);
    let mut program = own;
    if let Some(name) = &arguments.lab {
        let hosts = Lab::open(name)?.hosts();
        if hosts < 2 {
            return Err(Failure::usage(format!(
                "lab {name} has one host and it takes two: make one with --hosts 2"
            )));
        }
        let hosts = hosts.min(LAB_HOSTS_MAX).to_string();
        command.args(["--lab", name, "-n", &hosts]);
    } else if let Some(hosts) = &arguments.hosts {
        command.args(["--hosts", hosts]);
        if let Some(ssh) = &arguments.ssh {
            command.args(["--ssh", ssh]);
        }
        if let Some(prefix) = &arguments.prefix {
            command.arg("--prefix").arg(prefix);
            program = prefix.join("bin/portolan");
        }
    } else {
        command.args(["-n", "2"]);
    }
    if let Some(networks) = &arguments.interface {
        command.args(["--interface", networks]);
    }
    command.arg("--").arg(program).arg(TUNE_RANK_COMMAND);
    command.args(["--rounds", &arguments.rounds.to_string()]);
    if arguments.link != Link::Auto {
        command.args(["--link", &link]);
    }
    for (given, flag) in [
        (dry_run, "--dry-run"),
        (arguments.forget, "--forget"),
        (arguments.system, "--system"),
    ] {
        if given {
            command.arg(flag);
        }
    }
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_others_do_not_steer_the_terminal() {
        let text = lines_of_others("kept on \u{1b}[2Jh1\r: no\nnothing more\n");
        assert_eq!(text, "kept on \\u{1b}[2Jh1\\r: no\nnothing more\n");
    }
}
