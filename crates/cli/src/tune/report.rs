//! What `portolan tune` tells: a table to read, and JSON.

use std::fmt::Write as _;
use std::path::PathBuf;

use portolan::tuned::Link;
use portolan_hosts::failure::Result;
use portolan_hosts::table::table;
use serde::{Deserialize, Serialize};

/// A threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// The setting.
    pub setting: String,
    /// Bytes.
    pub default: u64,
    /// Bytes.
    pub found: u64,
    /// Time of what was measured with it over that with what was in use, where
    /// that is worth a change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    /// What was measured, and what came of it.
    pub why: String,
}

impl Finding {
    pub fn new(setting: &str, default: u64, found: u64, gain: Option<f64>, what: &str) -> Self {
        let gain = gain.filter(|_| found != default);
        let why = match gain {
            Some(gain) => format!("takes {gain:.2} of the time: {what}"),
            None => format!("nothing takes 0.95 of its time: {what}"),
        };
        Self {
            setting: setting.to_owned(),
            default,
            found,
            gain,
            why,
        }
    }
}

/// A host's file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kept {
    /// Whose.
    pub host: String,
    /// Which.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Why it was not written or removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Kept {
    pub fn new(host: &str, done: Result<PathBuf>) -> Self {
        let (file, error) = match done {
            Ok(file) => (Some(file), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            host: host.to_owned(),
            file,
            error,
        }
    }
}

/// All that came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    /// The link between rank 0 and rank 1.
    pub link: String,
    /// Processes that took part.
    pub ranks: u32,
    pub findings: Vec<Finding>,
    /// Files that were written, or removed.
    pub kept: Vec<Kept>,
}

impl Found {
    pub fn new(link: Link, ranks: u32) -> Self {
        Self {
            link: link.name().to_owned(),
            ranks,
            findings: Vec::new(),
            kept: Vec::new(),
        }
    }

    /// What differs from the defaults.
    pub fn values(&self) -> Vec<(String, u64)> {
        let other = self.findings.iter().filter(|it| it.found != it.default);
        other.map(|it| (it.setting.clone(), it.found)).collect()
    }

    /// What stands before it in the file.
    pub fn notes(&self) -> Vec<String> {
        let version = env!("CARGO_PKG_VERSION");
        let Self { link, ranks, .. } = self;
        let mut notes = vec![format!(
            "portolan tune {version}: link {link}, {ranks} ranks"
        )];
        for it in &self.findings {
            notes.push(format!("{}: {}", it.setting, it.why));
        }
        if self.values().is_empty() {
            notes.push("the defaults stay".to_owned());
        }
        notes
    }

    /// The table; `kept`: what stands before each file.
    pub fn text(&self, kept: &str) -> String {
        let mut text = String::new();
        if !self.findings.is_empty() {
            let line = |it: &Finding| {
                vec![
                    it.setting.clone(),
                    it.default.to_string(),
                    it.found.to_string(),
                ]
            };
            let lines = self.findings.iter().map(line).collect();
            let _ = writeln!(text, "link {}, {} ranks\n", self.link, self.ranks);
            text.push_str(&table("llr", 2, &["setting", "default", "found"], lines));
            text.push('\n');
            for it in &self.findings {
                let _ = writeln!(text, "{}: {}", it.setting, it.why);
            }
        }
        for Kept { host, file, error } in &self.kept {
            if let Some(file) = file {
                let _ = writeln!(text, "{host}: {kept} {}", file.display());
            }
            if let Some(error) = error {
                let _ = writeln!(text, "{host}: {error}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_kept_and_explained() {
        let mut found = Found::new(Link::Udp, 2);
        found.findings = vec![
            Finding::new("push_net_whole", 16_384, 32_768, Some(0.8), "a"),
            Finding::new("push_net_first", 1_024, 1_024, Some(0.8), "b"),
        ];
        assert_eq!(found.values(), [("push_net_whole".to_owned(), 32_768)]);
        let text = found.text("kept in");
        assert!(
            text.contains("push_net_whole: takes 0.80 of the time: a"),
            "{text}"
        );
        assert!(
            text.contains("push_net_first: nothing takes 0.95"),
            "{text}"
        );
        assert!(found.notes()[0].contains("link udp, 2 ranks"));
        assert!(!found.notes().concat().contains("defaults stay"));
        found.findings.remove(0);
        assert!(found.notes().concat().contains("defaults stay"));
    }
}
