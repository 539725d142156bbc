//! `portolan top`: looks at running jobs.

use std::process::ExitCode;
use std::time::Duration;

use portolan_boot::control::{self, Answer, ControlError, HostView, JobName, Look, Request};

use crate::failure::{Failure, Result};

/// A job that is asked answers within this time: its launcher waits two
/// seconds for a host.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

/// Of `portolan top`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Id of the job or its beginning; may be left out where only one runs
    #[arg(value_name = "JOB")]
    job: Option<String>,
    /// List this user's jobs on this host
    #[arg(long)]
    list: bool,
}

/// Looks at jobs.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    if arguments.list {
        return list();
    }
    let job = control::find(arguments.job.as_deref()).map_err(explain)?;
    for host in hosts(&job, Look::Places)? {
        for rank in host.ranks {
            println!(
                "rank {} host {} process {} {}",
                rank.rank, host.name, rank.pid, rank.phase
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(error: ControlError) -> Failure {
    match error {
        ControlError::NoJob(_) | ControlError::Several(_) => Failure::usage(error.to_string()),
        error => Failure::new(error.to_string()),
    }
}

/// Asks a job; says on standard error which hosts did not answer.
fn hosts(job: &JobName, look: Look) -> Result<Vec<HostView>> {
    let answers = control::ask(job, &Request::Look(look), ANSWER_WAIT).map_err(explain)?;
    let mut hosts = Vec::new();
    for answer in answers {
        match answer {
            Answer::Host(view) => hosts.push(view),
            Answer::Silent { name, .. } => {
                eprintln!("portolan: host {name} does not answer, or is lost");
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
        match hosts(&job, Look::Places) {
            Ok(hosts) => {
                let ranks: usize = hosts.iter().map(|host| host.ranks.len()).sum();
                let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
                println!("{job}  {ranks} ranks on {}", names.join(", "));
            }
            Err(failure) => println!("{job}  {failure}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}
