//! Reads what benches have written. The names are those of `docs/benchmarks.md`
//! and stay the same; what a later release adds is passed over.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::failure::{Failure, Result};

/// One file.
#[derive(Clone, Debug, Deserialize)]
pub struct Report {
    /// The bench's name.
    pub bench: String,
    pub host: Host,
    pub rows: Vec<Row>,
    pub ratios: Vec<Ratio>,
    /// Share of the CPU time that the hypervisor gave to others.
    pub steal: f64,
    /// The file's name.
    #[serde(skip)]
    pub file: String,
}

/// Where it was measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Host {
    pub name: String,
    pub kernel: String,
    pub arch: String,
    pub cpu: String,
    pub cores: usize,
    pub memory_mb: u64,
    pub portolan: String,
    pub lab: Option<String>,
}

/// A figure.
#[derive(Clone, Debug, Deserialize)]
pub struct Row {
    pub system: String,
    pub metric: String,
    pub size: Option<u64>,
    pub loss: Option<f64>,
    pub pattern: Option<String>,
    pub messages: Option<u64>,
    pub pair: Option<String>,
    pub stalled_traffic: Option<bool>,
    pub p50: f64,
    pub q1: f64,
    pub q3: f64,
    pub p99: Option<f64>,
    pub p99_9: Option<f64>,
    pub p99_99: Option<f64>,
    pub histogram: Option<Vec<(f64, u64)>>,
    pub n: u64,
    pub method: String,
    pub ranks: u32,
}

/// A claim.
#[derive(Clone, Debug, Deserialize)]
pub struct Ratio {
    pub metric: String,
    pub size: Option<u64>,
    pub loss: Option<f64>,
    pub ranks: Option<u32>,
    pub system: String,
    pub over: String,
    pub median: f64,
    pub q1: f64,
    pub q3: f64,
    pub noisy: bool,
}

/// A file that is no bench's, and why.
type Strange = (String, String);

/// Every report in a directory, by file name; and the JSON files that are none.
pub fn all(directory: &Path) -> Result<(Vec<Report>, Vec<Strange>)> {
    let reading = || Failure::io(format!("reading {}", directory.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        if path.extension().is_some_and(|it| it == "json") {
            files.push(path);
        }
    }
    files.sort();
    let (mut reports, mut strange) = (Vec::new(), Vec::new());
    for path in files {
        let file = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let read = fs::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|text| serde_json::from_slice::<Report>(&text).map_err(|e| e.to_string()));
        match read {
            Ok(report) => reports.push(Report { file, ..report }),
            Err(why) => strange.push((file, why)),
        }
    }
    Ok((reports, strange))
}
