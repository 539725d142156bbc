//! `portolan doctor`: what this host can do, which link would be used for
//! whom and why, and what to change.

mod host;
mod mpi;
mod networks;
mod peers;
mod ports;
mod settings;

use std::path::PathBuf;
use std::process::ExitCode;

use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::file::Output;
use portolan_hosts::print::print;
use portolan_hosts::table::table;
use portolan_sys::features::Disabled;
use serde::Serialize;

use self::ports::Ports;

const EXIT_CODES: &str = "\
Exit code: 0 if all is well, 1 if something is missing or slower than it could be,
2 for bad arguments.";

/// Of `portolan doctor`.
#[derive(clap::Args)]
#[command(after_help = EXIT_CODES)]
pub struct Arguments {
    /// Report which link would be used to these hosts (names or addresses), and why
    #[arg(long, value_name = "HOST[,HOST...]", value_delimiter = ',')]
    to: Vec<String>,
    /// Try host ports on network cards too, for a moment; some cards reset their
    /// link then
    #[arg(long)]
    host_ports: bool,
    /// List the settings that have their defaults too
    #[arg(long)]
    settings: bool,
    /// Write the findings to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How things are with one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    /// As it should be.
    Ok,
    /// Portolan does without, at a price.
    Slower,
    /// Something cannot be done.
    Missing,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slower => "slower",
            Self::Missing => "missing",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
struct Finding {
    /// What; the name stays the same for ever.
    subject: String,
    state: State,
    /// What was found, and what that means.
    found: String,
    /// What changes it, where something does.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(subject: &str, found: impl Into<String>) -> Self {
        Self {
            subject: subject.to_owned(),
            state: State::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    fn slower(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: State::Slower,
            remedy: Some(remedy.into()),
            ..Self::ok(subject, found)
        }
    }

    fn missing(subject: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state: State::Missing,
            ..Self::slower(subject, found, remedy)
        }
    }
}

/// Looks at everything, prints it; the exit code says whether all is well.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let disabled = Disabled::from_env().map_err(|error| Failure::usage(error.to_string()))?;
    let output = arguments.json.as_deref().map(Output::open).transpose()?;
    let mut findings = host::look(disabled);
    findings.extend(mpi::look());
    findings.extend(settings::look(arguments.settings));
    let mut ports = Ports::look(&disabled, arguments.host_ports);
    findings.extend(networks::look(&ports));
    findings.extend(networks::own());
    findings.extend(ports.finding.take());
    findings.extend(peers::look(&arguments.to, disabled, &ports));
    if let Some(output) = output {
        let json = serde_json::json!({ "findings": findings }).to_string();
        output.write(json.as_bytes())?;
    }
    print(text(&findings))?;
    let all_ok = findings.iter().all(|it| it.state == State::Ok);
    Ok(if all_ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    for it in findings {
        // As wide as the longest state, whichever were found.
        let state = format!("{:<7}", it.state.name());
        lines.push(vec![state, it.subject.clone(), it.found.clone()]);
        if let Some(remedy) = &it.remedy {
            lines.push(vec![String::new(), String::new(), format!("-> {remedy}")]);
        }
    }
    let table = table("l", 2, &[], lines);
    match findings.iter().filter(|it| it.state != State::Ok).count() {
        0 => format!("{table}\nall is well\n"),
        bad => format!("{table}\n{bad} of {} could be better\n", findings.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_stands_below_what_it_changes() {
        let text = text(&[
            Finding::ok("kernel", "Linux 6.1"),
            Finding::slower("gso", "off: slower", "switch it on"),
        ]);
        assert_eq!(
            text,
            "ok       kernel  Linux 6.1\n\
             slower   gso     off: slower\n                 -> switch it on\n\n\
             1 of 2 could be better\n"
        );
    }
}
