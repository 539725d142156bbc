//! `portolan top`: looks at running jobs. What it shows was read in the ranks'
//! memory by whoever watches them; no rank is asked or disturbed.

mod counters;
mod dump;
mod prometheus;
mod view;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use portolan_boot::control::{self, Answer, ControlError, HostView, JobName, Look, Request};
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::print::{Reader, counted, print, tell};

use counters::Sample;

/// A job that is asked answers within this time: its launcher waits two
/// seconds for a host.
pub const ANSWER_WAIT: Duration = Duration::from_secs(5);

const NOTES: &str = "\
Run it on any host of the job, as the user who started it, or as root. Without --once,
--dump or --list it goes on until the job ends, or Ctrl-C. `portolan run -v` prints a job's id.

Exit code: 0 if everything was shown or the job has ended, 1 if the job does not answer,
2 for bad arguments, or if no job or several jobs match.";

/// Of `portolan top`.
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Arguments {
    /// Id of the job, or its beginning; may be left out if only one job runs
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// List this user's jobs on this host
    #[arg(long, conflicts_with_all = ["once", "dump", "prometheus", "json"])]
    list: bool,
    /// Show the counts since each rank opened its endpoint, once
    #[arg(long)]
    once: bool,
    /// Show the state of each rank: what it waits for, and what is in flight to whom
    #[arg(long, conflicts_with = "prometheus")]
    dump: bool,
    /// Print a line of JSON at each interval
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,
    /// Write this file for Prometheus, anew at each interval
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,
    /// Interval, seconds
    #[arg(long, value_name = "S", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
}

/// Looks at jobs.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        return list();
    }
    let job = control::find(arguments.job.as_deref())?;
    if arguments.dump {
        let hosts = hosts(&job, Look::State)?;
        let text = if arguments.json {
            format!("{}\n", view::json(&job, &hosts))
        } else {
            dump::text(&job, &hosts)
        };
        print(text)?;
        return Ok(ExitCode::SUCCESS);
    }
    watch(&job, arguments)
}

/// Looks again and again, until the job ends.
fn watch(job: &JobName, arguments: &Arguments) -> Result<ExitCode> {
    let interval = Duration::from_secs(arguments.interval);
    let terminal = io::stdout().is_terminal() && !arguments.once;
    let mut before: Option<Sample> = None;
    loop {
        let started = Instant::now();
        let hosts = match ask(job, Look::Counters) {
            Err(ControlError::Ended) if before.is_some() => {
                tell(format_args!("portolan: the job has ended"));
                return Ok(ExitCode::SUCCESS);
            }
            answer => answer?,
        };
        let sample = Sample::of(&hosts);
        let mut reader = Reader::Reads;
        if let Some(file) = &arguments.prometheus {
            prometheus::write(file, &prometheus::text(job, &hosts))?;
        } else if arguments.json {
            reader = print(format_args!("{}\n", view::json(job, &hosts)))?;
        } else if arguments.once {
            print(view::text(job, &hosts, &sample, None))?;
        } else if let Some(before) = &before {
            let text = view::text(job, &hosts, &sample, Some(before));
            reader = print(if terminal { view::screen(&text) } else { text })?;
        }
        if arguments.once || reader == Reader::HasGone {
            return Ok(ExitCode::SUCCESS);
        }
        before = Some(sample);
        std::thread::sleep(interval.saturating_sub(started.elapsed()));
    }
}

fn hosts(job: &JobName, look: Look) -> Result<Vec<HostView>> {
    Ok(ask(job, look)?)
}

/// Asks a job; says on standard error which hosts did not answer.
fn ask(job: &JobName, look: Look) -> std::result::Result<Vec<HostView>, ControlError> {
    let mut hosts = Vec::new();
    for answer in control::ask(job, &Request::Look(look), ANSWER_WAIT)? {
        match answer {
            Answer::Host(view) => hosts.push(view),
            Answer::Silent { name, .. } => {
                tell(format_args!(
                    "portolan: host {name} does not answer, or is lost"
                ));
            }
            Answer::Refused(_) | Answer::End => {}
        }
    }
    hosts.sort_by_key(|host| host.host_index);
    Ok(hosts)
}

fn list() -> Result<ExitCode> {
    let jobs = control::jobs().map_err(Failure::io("reading the kernel's list of sockets"))?;
    for job in jobs {
        // Another user's is asked only by who means it.
        if !job.is_own() {
            let uid = job.uid;
            print(format_args!(
                "{job}  of user {uid}: portolan top {uid}/{job}\n"
            ))?;
            continue;
        }
        match hosts(&job, Look::Places) {
            Ok(hosts) => {
                let ranks: usize = hosts.iter().map(|host| host.ranks.len()).sum();
                let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
                let ranks = counted(ranks, "rank");
                print(format_args!("{job}  {ranks} on {}\n", names.join(", ")))?;
            }
            Err(failure) => {
                print(format_args!("{job}  {failure}\n"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
