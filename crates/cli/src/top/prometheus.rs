//! Counters in the text form that Prometheus reads, as a file: for
//! node_exporter's textfile collector.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use portolan_boot::control::{HostView, JobName, Phase};
use portolan_hosts::failure::{Failure, Result};

use super::counters::{GAUGES, numbers, waiting};

/// A label's value, with what must be escaped.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// All counters of all ranks.
pub fn text(job: &JobName, hosts: &[HostView]) -> String {
    let mut series: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for host in hosts {
        for rank in &host.ranks {
            let labels = format!(
                "job_id=\"{job}\",rank=\"{}\",host=\"{}\"",
                rank.rank,
                escape(&host.name)
            );
            let mut add = |name: &str, value: String| {
                let series = series.entry(name.to_owned()).or_default();
                series.push(format!("{{{labels}}} {value}"));
            };
            for (name, value) in numbers(rank) {
                add(name, value.to_string());
            }
            let joined = rank.phase == Phase::Joined;
            add("joined", u8::from(joined).to_string());
            add(
                "stopped",
                u8::from(matches!(rank.process, Some('T' | 't'))).to_string(),
            );
            let waits = waiting(host, rank).map_or(0, |wait| wait.ns);
            add("waiting_seconds", format!("{:.6}", waits as f64 / 1e9));
        }
    }
    let mut text = String::new();
    for (name, values) in series {
        let (name, kind) = if GAUGES.contains(&name.as_str()) {
            (format!("portolan_{name}"), "gauge")
        } else {
            (format!("portolan_{name}_total"), "counter")
        };
        let _ = writeln!(text, "# TYPE {name} {kind}");
        for value in values {
            let _ = writeln!(text, "{name}{value}");
        }
    }
    text
}

/// Replaces a file as a whole: whoever reads it sees the old one or the new.
pub fn write(file: &Path, text: &str) -> Result<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    fs::write(&name, text)
        .and_then(|()| fs::rename(&name, file))
        .inspect_err(|_| drop(fs::remove_file(&name)))
        .map_err(Failure::io(format!("writing {}", file.display())))
}
