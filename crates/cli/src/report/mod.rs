//! `portolan report`: one HTML page of what benches have written with
//! `--json`. It needs nothing else: no network, no script, no other file.

mod page;
mod plot;
mod read;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::failure::{Failure, Result};

/// Of `portolan report`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where the benches' JSON files are (portolan bench NAME --json DIR/NAME.json)
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The page [default: DIR/report.html]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the page; says where.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let directory = &arguments.directory;
    let (reports, strange) = read::all(directory)?;
    if reports.is_empty() {
        let mut text = format!(
            "no bench has written to {}: portolan bench latency --json {0}/latency.json does",
            directory.display()
        );
        for (file, why) in strange {
            text.push_str(&format!("\n{file}: {why}"));
        }
        return Err(Failure::new(text));
    }
    for (file, why) in strange {
        say!("portolan: left out {file}: {why}");
    }
    let default = || directory.join("report.html");
    let output = arguments.output.clone().unwrap_or_else(default);
    let html = page::html(&reports)?;
    std::fs::write(&output, html).map_err(Failure::io(format!("writing {}", output.display())))?;
    println!("{}", output.display());
    Ok(ExitCode::SUCCESS)
}
