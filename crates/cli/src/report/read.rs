//! Reads what benches have written.

use std::fs;
use std::path::Path;

use portolan_bench::Report;
use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::file;

/// What one file holds.
#[derive(Clone, Debug)]
pub struct File {
    pub name: String,
    pub report: Report,
}

/// A file that is no bench's, and why.
pub type Strange = (String, String);

/// Every report in a directory, by file name; and the JSON files that are none.
pub fn all(directory: &Path) -> Result<(Vec<File>, Vec<Strange>)> {
    let reading = || Failure::io(format!("reading {}", directory.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        if path.extension().is_some_and(|it| it == "json") {
            files.push(path);
        }
    }
    files.sort();
    let (mut found, mut strange) = (Vec::new(), Vec::new());
    for path in files {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let read = file::read(&path)
            .map_err(|error| error.to_string())
            .and_then(|text| serde_json::from_slice::<Report>(&text).map_err(|e| e.to_string()));
        match read {
            Ok(report) => found.push(File { name, report }),
            Err(why) => strange.push((name, why)),
        }
    }
    Ok((found, strange))
}
