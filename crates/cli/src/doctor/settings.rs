//! What was tuned for this host, and the settings that a job started here would
//! have by the environment, files and defaults.

use std::fmt;

use portolan::tuned::{self, Link, Tuned, TunedError};
use portolan::{Origin, SETTINGS, SettingError, Settings, networks};

use super::Finding;
use crate::run::is_of_other_launchers;

/// Looks at what was tuned, then at settings: those that somebody gives, or all.
pub fn look(all: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut tuned = Vec::new();
    for link in Link::ALL {
        match tuned::find(link) {
            Ok(found) => {
                findings.push(file(link, found.as_ref()));
                tuned.push((link, found));
            }
            Err(error) => findings.push(Finding::slower(
                &subject(link),
                format!("{} is not used: {}", error.path.display(), error.why),
                TunedError::REMEDY,
            )),
        }
    }
    match Settings::gather([], []) {
        Ok(settings) => findings.extend(values(&settings, &tuned, all)),
        Err(error) => findings.push(wrong("settings", error)),
    }
    findings
}

fn wrong(subject: &str, error: impl fmt::Display) -> Finding {
    let remedy = "correct it: no job can be joined with it";
    Finding::missing(subject, error.to_string(), remedy)
}

/// A value that only jobs of other launchers have.
pub fn wrong_elsewhere(subject: &str, error: &impl fmt::Display) -> Finding {
    let remedy = "correct it: no job that mpiexec or srun starts can be joined with it; `portolan \
                  run` does not look at it";
    Finding::missing(subject, error.to_string(), remedy)
}

fn subject(link: Link) -> String {
    format!("tuned-{link}")
}

fn file(link: Link, found: Option<&Tuned>) -> Finding {
    let said = match found {
        None => "nothing was tuned for this link (portolan tune)".to_owned(),
        Some(tuned) => {
            let values = tuned
                .values()
                .map(|(name, value)| format!("{name} = {value}"));
            let values: Vec<String> = values.collect();
            let values = match &values[..] {
                [] => "the defaults stay".to_owned(),
                some => some.join(", "),
            };
            format!("{}: {values}", tuned.path().display())
        }
    };
    Finding::ok(&subject(link), said)
}

/// A finding for each setting: its value, and where that comes from; by link
/// where that differs.
fn values(settings: &Settings, tuned: &[(Link, Option<Tuned>)], all: bool) -> Vec<Finding> {
    let said = |name: &str, settings: &Settings| {
        let mut all = settings.iter();
        let found = all.find(|(known, ..)| *known == name);
        found.map(|(_, value, origin)| (value.to_owned(), origin))
    };
    let mut findings = Vec::new();
    let all_wrong = settings.wrong();
    for row in SETTINGS {
        let is_it = |error: &&SettingError| matches!(error, SettingError::Value { name, .. } if *name == row.name);
        let subject = format!("setting-{}", row.name);
        if let Some(error) = all_wrong.iter().find(is_it) {
            // `portolan run` has an option for it, which always counts.
            let has_option = row.name == "join_ms";
            findings.push(if has_option || is_of_other_launchers(row.name) {
                wrong_elsewhere(&subject, error)
            } else {
                wrong(&subject, error)
            });
            continue;
        }
        let Some((value, origin)) = said(row.name, settings) else {
            continue;
        };
        if row.name == "interface"
            && !value.is_empty()
            && let Err(why) = networks(&value)
        {
            let found = format!("setting interface ({origin}): {why}");
            let remedy = "correct it: no job with other hosts, or with --link udp, can be joined \
                          with it";
            findings.push(Finding::missing(&subject, found, remedy));
            continue;
        }
        let mut text = format!("{value} {} ({origin})", row.unit);
        let mut is_default = origin == Origin::Default;
        for (link, found) in tuned {
            let Some(found) = found else { continue };
            let mut of_link = settings.clone();
            of_link.adopt(found);
            if let Some((value, Origin::Tuned)) = said(row.name, &of_link) {
                text.push_str(&format!("; {link}: {value} (tuned)"));
                is_default = false;
            }
        }
        if is_default && !all {
            continue;
        }
        findings.push(Finding::ok(&subject, text));
    }
    findings
}
