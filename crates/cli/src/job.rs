//! `portolan job`: changes a job that runs.

use std::process::ExitCode;

use portolan_boot::control::{self, Request};
use portolan_hosts::failure::Result;
use portolan_hosts::print::print;

use crate::top::ANSWER_WAIT;

const NOTES: &str = "\
Run it on any host of the job, as the user who started it, or as root.
`portolan top --list` and `portolan run -v` print a job's id.

Exit code: 0 if it was done, 1 if the job refused or does not answer,
2 for bad arguments, or if no job or several jobs match.";

/// Of `portolan job`.
#[derive(clap::Args)]
#[command(after_help = NOTES)]
pub struct Arguments {
    /// Id of the job, or its beginning
    #[arg(value_name = "JOB")]
    job: String,
    #[command(subcommand)]
    change: Change,
}

#[derive(clap::Subcommand)]
enum Change {
    /// End the ranks of a host; the other ranks are notified and go on. With
    /// `run --respawn` the ended ranks are started again on other hosts
    Exclude {
        /// The host, as the list of hosts names it
        host: String,
    },
}

/// Changes a job.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let job = control::find(Some(&arguments.job))?;
    let Change::Exclude { host } = &arguments.change;
    let request = Request::Exclude { host: host.clone() };
    control::ask(&job, &request, ANSWER_WAIT)?;
    print(format_args!("host {host} leaves job {job}\n"))?;
    Ok(ExitCode::SUCCESS)
}
