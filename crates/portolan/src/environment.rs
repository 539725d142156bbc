//! Environment variables named `PORTOLAN_...` that have no effect: misspelt ones,
//! and those that are not UTF-8.

use std::ffi::OsStr;

use portolan_sys::environment::{WHY_IGNORED, ignored, vars_os};

use crate::logging;
use crate::settings::SETTINGS;

/// Prefix of all variables.
const OURS: &str = "PORTOLAN_";
/// Prefix of variables that only tests use.
const OF_TESTS: &str = "PORTOLAN_TEST_";
/// Variables that are no settings, without the prefix.
const OTHERS: &[&str] = &[
    "CONFIG",
    "DISABLE",
    "JOB",
    "LOCAL_RANK",
    "LOG",
    "NODE",
    "RANK",
    "RESTARTS",
    "SIZE",
    "SSH",
    "TUNED",
];
/// Least Jaro similarity, of 1, at which a known word is suggested for another.
const LIKENESS: f64 = 0.8;

/// Checks the environment for mistakes that no other check reports. Returns a
/// sentence for each.
pub fn check_environment() -> Vec<String> {
    let mut all: Vec<_> = vars_os().collect();
    all.sort();
    let wrong = all
        .iter()
        .flat_map(|(name, value)| check_variable(name, value));
    let mut names = known().into_iter().map(|own| format!("{OURS}{own}"));
    let in_vain = names.find(|name| ignored(name).is_some());
    let in_vain = in_vain.map(|name| format!("{name} does not count: {WHY_IGNORED}"));
    wrong.chain(in_vain).collect()
}

/// The known variables, without the prefix.
fn known() -> Vec<String> {
    let settings = SETTINGS.iter().map(|row| row.name.to_uppercase());
    settings
        .chain(OTHERS.iter().map(ToString::to_string))
        .collect()
}

/// Checks one variable, which may be meant for another process, as
/// [`check_environment`] does.
pub fn check_variable(name: &OsStr, value: &OsStr) -> Vec<String> {
    let shown = name.to_string_lossy();
    let Some(own) = shown.strip_prefix(OURS) else {
        return Vec::new();
    };
    if shown.starts_with(OF_TESTS) {
        return Vec::new();
    }
    let known = known();
    if !known.iter().any(|it| it == own) {
        let remedy = match nearest(own, &known) {
            Some(near) => format!("{OURS}{near} does, or unset it"),
            None => "unset it (`portolan doctor --settings` lists what there is)".to_owned(),
        };
        return vec![format!("{shown:?} says nothing to Portolan: {remedy}")];
    }
    match value.to_str() {
        None => vec![format!("{shown} is not UTF-8 and is not used: correct it")],
        Some(text) if shown == logging::VARIABLE => logging::Filters::read(text).wrong,
        Some(_) => Vec::new(),
    }
}

/// The known word that is most similar, if it is similar enough.
pub(crate) fn nearest<'a>(word: &str, known: &'a [String]) -> Option<&'a str> {
    let likeness = |it: &String| strsim::jaro(word, it);
    let best = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) >= LIKENESS).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    fn said(name: &str, value: &str) -> Vec<String> {
        check_variable(name.as_ref(), value.as_ref())
    }

    #[test]
    fn what_is_known_is_left_alone() {
        for (name, value) in [
            ("PORTOLAN_PORT", "7"),
            ("PORTOLAN_RANK", "0"),
            ("PORTOLAN_TUNED", ""),
            ("PORTOLAN_TEST_MARK", "x"),
            ("PORTOLAN", "x"),
            ("PATH", "/bin"),
            ("PORTOLAN_LOG", ""),
            ("PORTOLAN_LOG", "info"),
            ("PORTOLAN_LOG", "Debug,portolan_boot=trace,tokio::time=off"),
            ("PORTOLAN_LOG", "portolan_runtime,warn/refused"),
        ] {
            assert_eq!(said(name, value), [""; 0], "{name}={value}");
        }
    }

    #[test]
    fn what_was_meant_is_named() {
        for (name, value, part) in [
            ("PORTOLAN_SECURTY", "none", "PORTOLAN_SECURITY does"),
            ("PORTOLAN_DISABLED", "gso", "PORTOLAN_DISABLE does"),
            ("PORTOLAN_QQ", "", "doctor --settings"),
            ("PORTOLAN_\u{1b}[31m", "", "\\u{1b}"),
            ("PORTOLAN_LOG", "inof", "\"inof\" is no level: info is"),
            ("PORTOLAN_LOG", "x", "error, warn, info"),
            ("PORTOLAN_LOG", "portolan_boot=debg", "debug is"),
            ("PORTOLAN_LOG", "a=b=c", "\"b=c\""),
            ("PORTOLAN_LOG", "info/a/b", "one /"),
        ] {
            let said = said(name, value);
            assert!(
                said.len() == 1 && said[0].contains(part),
                "{name}={value}: {said:?}"
            );
        }
        let value = OsString::from_vec(vec![b'1', 0xff]);
        let said = check_variable("PORTOLAN_PORT".as_ref(), &value);
        assert!(said[0].contains("not UTF-8"), "{said:?}");
    }
}
