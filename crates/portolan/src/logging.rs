//! What is told of changes of state, on standard error, where the user asks for
//! it.

use std::io::Write;

use portolan_sys::tell::plain;

use crate::environment::nearest;

/// The variable that says how much is told, as `info` or
/// `portolan_engine=debug,portolan_boot=trace`.
pub(crate) const VARIABLE: &str = "PORTOLAN_LOG";

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// Begins to tell, if `PORTOLAN_LOG` is set and nobody in this process has
/// a logger of its own; [`crate::Endpoint::open`] does it. Nothing is ever
/// told on the way of a message.
pub fn begin_log() {
    if let Ok(text) = std::env::var(VARIABLE) {
        let mut builder = env_logger::Builder::new();
        // A logger of the program's own goes over ours, and gets the same.
        let _ = builder
            .parse_filters(&Filters::read(&text).right)
            .format(|out, record| {
                // Parts of it may come from other processes.
                let said = record.args().to_string();
                let (level, target) = (record.level(), record.target());
                writeln!(out, "[{level:<5} {target}] {}", plain(&said))
            })
            .try_init();
    }
}

/// What the variable asks for.
pub(crate) struct Filters {
    /// What can be understood of it: of the rest the logger would complain by
    /// itself, and panic where standard error is full.
    right: String,
    /// A sentence for each part that makes no sense.
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

/// What is wrong with `LEVEL`, `PART` or `PART=LEVEL`.
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
