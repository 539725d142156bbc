//! What a look shows: as a table, as JSON.

use std::fmt::Write as _;

use portolan_boot::control::{HostView, JobName, Phase, RankView};
use portolan_hosts::print::counted;
use portolan_hosts::table::table;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use super::counters::{Sample, numbers, waiting};

/// What the XDP program does with packets to a host port.
const STEERED: [&str; 1] = ["steered"];
const PASSED: [&str; 2] = ["passed_other_queue", "passed_too_long"];
const FILTERED: [&str; 3] = ["filtered_version", "filtered_malformed", "filtered_unknown"];

/// What a process does, in a word.
pub fn process(rank: &RankView) -> &'static str {
    match rank.process {
        Some('R') => "running",
        Some('S') => "sleeping",
        Some('D') => "in the kernel",
        Some('T' | 't') => "stopped",
        Some('Z' | 'X') => "ending",
        Some(_) => "idle",
        None => "gone",
    }
}

/// A span of time, short.
pub fn span(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// A number in five characters or so.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e10 => format!("{:.0}G", v / 1e9),
        v if v >= 1e7 => format!("{:.0}M", v / 1e6),
        v if v >= 1e4 => format!("{:.0}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// The table's columns, as wide as they are at least: most are steady while the
/// screen is renewed. Those of host ports are shown if a rank has one.
const HEAD: [&str; 15] = [
    " rank",
    "host      ",
    " process",
    "is           ",
    "    sent",
    "    recv",
    "  B sent",
    "  B recv",
    "  shm/net",
    " resent",
    "nocredit",
    " steered",
    "  passed",
    " dropped",
    " waits",
];

/// All ranks: rates since `before`, or counts where there is none.
pub fn text(job: &JobName, hosts: &[HostView], sample: &Sample, before: Option<&Sample>) -> String {
    let ranks = || {
        hosts
            .iter()
            .flat_map(|host| host.ranks.iter().map(move |rank| (host, rank)))
    };
    let per = match before {
        Some(_) => "per second",
        None => "since its start",
    };
    let (count, hosts) = (
        counted(ranks().count(), "rank"),
        counted(hosts.len(), "host"),
    );
    let ports = ranks().any(|(_, rank)| sample.total(rank.rank, STEERED[0]).is_some());
    let line = |(host, rank)| line(host, rank, (sample, before), ports);
    let table = table("rlrlrrrrrrrrrrl", 1, &HEAD, ranks().map(line).collect());
    format!("job {job}: {count} on {hosts}, {per}\n{table}")
}

fn line(
    host: &HostView,
    rank: &RankView,
    (sample, before): (&Sample, Option<&Sample>),
    ports: bool,
) -> Vec<String> {
    let value = |name: &&str| match before {
        Some(before) => sample.rate(before, rank.rank, name),
        None => sample.total(rank.rank, name).map(|n| n as f64),
    };
    let sum = |names: &[&str]| {
        let sum: Option<f64> = names.iter().map(value).sum();
        sum.map_or_else(|| "-".to_owned(), short)
    };
    let number = |name: &str| sum(&[name]);
    let steering = |names: &[&str]| match ports {
        true => sum(names),
        false => String::new(),
    };
    let peers = |name| sample.total(rank.rank, name).unwrap_or(0);
    let is = match rank.phase {
        Phase::Joined => process(rank).to_owned(),
        phase => phase.to_string(),
    };
    let waits = match (&rank.unread, waiting(host, rank)) {
        (Some(why), _) => why.to_string(),
        (None, Some(wait)) => {
            let whom = wait
                .rank
                .map_or(String::new(), |rank| format!(" for {rank}"));
            format!("{}{whom}, {}", wait.call, span(wait.ns))
        }
        (None, None) => String::new(),
    };
    vec![
        rank.rank.to_string(),
        host.name.clone(),
        rank.pid.to_string(),
        is,
        number("sent"),
        number("received"),
        number("bytes_sent"),
        number("bytes_received"),
        format!("{}/{}", peers("shm_peers"), peers("udp_peers")),
        number("resent"),
        number("no_credit"),
        steering(&STEERED),
        steering(&PASSED),
        steering(&FILTERED),
        format!(" {waits}"),
    ]
}

/// The text on a cleared terminal, as far as it has room.
pub fn screen(text: &str) -> String {
    let size = tcgetwinsize(std::io::stdout()).ok();
    let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row.max(2), size.ws_col.max(20)));
    let mut shown = "\x1b[H\x1b[2J".to_owned();
    let lines: Vec<&str> = text.lines().collect();
    for line in lines.iter().take(usize::from(rows) - 1) {
        let line: String = line.chars().take(usize::from(columns)).collect();
        let _ = writeln!(shown, "{line}");
    }
    shown
}

/// All that was seen.
pub fn json(job: &JobName, hosts: &[HostView]) -> Value {
    let rank = |host: &HostView, rank: &RankView| {
        let wait = waiting(host, rank);
        let tables = rank
            .tables
            .iter()
            .filter(|table| !super::counters::TABLES.contains(&table.name.as_str()));
        let state: serde_json::Map<String, Value> = tables
            .map(|table| {
                let entry = |(index, row): &(u32, Vec<u64>)| {
                    let mut entry: serde_json::Map<String, Value> = table
                        .fields
                        .iter()
                        .cloned()
                        .zip(row.iter().map(|n| json!(n)))
                        .collect();
                    entry.insert("index".to_owned(), json!(index));
                    Value::from(entry)
                };
                (table.name.clone(), table.rows.iter().map(entry).collect())
            })
            .collect();
        let mut value = json!({
            "rank": rank.rank,
            "pid": rank.pid,
            "core": rank.core,
            "restarts": rank.restarts,
            "phase": rank.phase.to_string(),
            "process": process(rank),
            "counters": numbers(rank),
            "waits": wait.map(|w| json!({"in": w.call, "for": w.rank, "ns": w.ns})),
            "unread": rank.unread.map(|why| why.to_string()),
        });
        if !state.is_empty() {
            value["state"] = state.into();
        }
        value
    };
    let host = |host: &HostView| {
        let ranks: Vec<Value> = host.ranks.iter().map(|r| rank(host, r)).collect();
        json!({"host": host.name, "now_ns": host.now_ns, "ranks": ranks})
    };
    json!({"job": job.to_string(), "hosts": hosts.iter().map(host).collect::<Vec<_>>()})
}
