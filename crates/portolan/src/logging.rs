//! The log of state changes on standard error, if `PORTOLAN_LOG` asks for it.

use std::io::Write;

use portolan_sys::environment;
use portolan_sys::tell::plain;

use crate::environment::nearest;

/// The environment variable that sets the log level, as `info` or
/// `portolan_runtime=debug,portolan_boot=trace`.
pub(crate) const VARIABLE: &str = "PORTOLAN_LOG";

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Starts logging to standard error if `PORTOLAN_LOG` is set and this process has no
/// logger yet. [`crate::Endpoint::open`] calls it. Sending and receiving a message
/// logs nothing.
pub fn begin_log() {
    if let Some(text) = environment::var(VARIABLE) {
        let mut builder = env_logger::Builder::new();
        // A logger that the program has installed stays, and receives these records.
        let _ = builder
            .parse_filters(&Filters::read(&text).right)
            .format(|out, record| {
                // Parts of the text may come from other processes.
                let said = record.args().to_string();
                let (level, target) = (record.level(), record.target());
                // Each endpoint outside of a job is rank 0 of its own.
                let process = std::process::id();
                writeln!(out, "[{process} {level:<5} {target}] {}", plain(&said))
            })
            .try_init();
    }
}

/// The filters in the variable.
pub(crate) struct Filters {
    /// The valid filters. The logger itself would complain about the rest, and
    /// panic if standard error is full.
    right: String,
    /// A sentence for each invalid part.
    pub wrong: Vec<String>,
}

impl Filters {
    pub fn read(text: &str) -> Self {
        let (parts, pattern) = match text.split_once('/') {
            Some((_, pattern)) if pattern.contains('/') => {
                let wrong = format!("{VARIABLE}: one / at most begins what lines must contain");
                return Self {
                    right: String::new(),
                    wrong: vec![wrong],
                };
            }
            Some((parts, pattern)) => (parts, Some(pattern)),
            None => (text, None),
        };
        let (mut right, mut wrong) = (Vec::new(), Vec::new());
        for part in parts.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            match complaint(part) {
                None => right.push(part),
                Some(text) => wrong.push(text),
            }
        }
        let mut right = right.join(",");
        if let Some(pattern) = pattern {
            right = format!("{right}/{pattern}");
        }
        Self { right, wrong }
    }
}

/// Returns a sentence if `LEVEL`, `PART` or `PART=LEVEL` is invalid.
fn complaint(part: &str) -> Option<String> {
    let level = match part.split_once('=') {
        Some((_, level)) => level.trim(),
        None if part.starts_with("portolan") => return None,
        None => part,
    };
    if LEVELS.iter().any(|it| it.eq_ignore_ascii_case(level)) {
        return None;
    }
    let levels = LEVELS.map(str::to_owned);
    let remedy = match nearest(level, &levels) {
        Some(near) => format!("{near} is"),
        None => "give error, warn, info, debug or trace, or PART=LEVEL as in \
                 portolan_boot=debug"
            .to_owned(),
    };
    Some(format!("{VARIABLE}: {level:?} is no level: {remedy}"))
}
