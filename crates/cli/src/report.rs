//! `portolan report`: one HTML page of what benches have written with `--json`, and of
//! the profiles of BSPlib programs. It needs nothing else: no network, no script, no
//! other file.

mod metric;
mod page;
mod plot;
mod read;
mod supersteps;

use std::path::PathBuf;
use std::process::ExitCode;

use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::file::Output;
use portolan_hosts::print::{print, tell};

const EXIT_CODES: &str = "\
Exit code: 0 if the page has all files, 1 if it could not be written or a file
was left out, 2 for bad arguments.";

/// Of `portolan report`.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Arguments {
    /// Folder with the JSON files of benches (portolan bench NAME --json DIR/NAME.json), or
    /// with a profile (bsprun --profile DIR)
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Write the page to this file [default: DIR/report.html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the page; says where.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let directory = &arguments.directory;
    let (reports, mut strange) = read::all(directory)?;
    let (profile, damaged) = supersteps::read(directory)?;
    strange.extend(damaged);
    if reports.is_empty() && profile.is_none() {
        let mut text = format!(
            "no bench has written to {}: portolan bench latency --json {0}/latency.json does; nor \
             has a program of BSPlib: bsprun --profile {0} does",
            directory.display()
        );
        for (file, why) in strange {
            text.push_str(&format!("; {file}: {why}"));
        }
        return Err(Failure::new(text));
    }
    for (file, why) in &strange {
        tell(format_args!("portolan: left out {file}: {why}"));
    }
    let default = || directory.join("report.html");
    let output = arguments.output.clone().unwrap_or_else(default);
    let html = page::page(&reports, profile.as_ref())?;
    Output::open(&output)?.write(html.as_bytes())?;
    print(format_args!("{}\n", output.display()))?;
    Ok(if strange.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
