//! `portolan job`: changes a job that runs.

use std::process::ExitCode;
use std::time::Duration;

use portolan_boot::control::{self, Answer, ControlError, Request};

use crate::failure::{Failure, Result};

/// A job that is told answers within this time.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

const NOTES: &str = "\
Run it on any host of the job, as the user who started it, or as root.
`portolan top --list` and `portolan run -v` tell a job's id.

Exit code: 0 when it was done, 1 when the job refused or does not answer,
2 for bad arguments, or where no job or several could be meant.";

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
    /// End the ranks of a host; the others are told, and go on
    Exclude {
        /// As it stands in the list of hosts
        host: String,
    },
}

/// Changes a job.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let failed = |error: ControlError| match error {
        ControlError::NoJob(_) | ControlError::Several(_) => Failure::usage(error.to_string()),
        error => Failure::new(error.to_string()),
    };
    let job = control::find(Some(&arguments.job)).map_err(failed)?;
    let Change::Exclude { host } = &arguments.change;
    let request = Request::Exclude { host: host.clone() };
    for answer in control::ask(&job, &request, ANSWER_WAIT).map_err(failed)? {
        if let Answer::Refused(why) = answer {
            return Err(Failure::new(why));
        }
    }
    println!("host {host} leaves job {job}");
    Ok(ExitCode::SUCCESS)
}
