//! `portolan run --trace DIR`: a timeline of all ranks in one file.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::print::tell;

/// Name of the file that holds all ranks.
const MERGED: &str = "trace.json";

/// Where the ranks write, and where it is put together.
pub struct Traces {
    folder: PathBuf,
    ranks: u32,
    respawn: u32,
}

impl Traces {
    /// Makes the folder; what an earlier run left there of ours goes.
    pub fn new(folder: &Path, ranks: u32, respawn: u32) -> Result<Self> {
        let make = || {
            fs::create_dir_all(folder)?;
            let folder = fs::canonicalize(folder)?;
            let traces = Self {
                folder,
                ranks,
                respawn,
            };
            for file in (0..ranks).flat_map(|rank| traces.of(rank)) {
                match fs::remove_file(file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            Ok(traces)
        };
        make().map_err(Failure::io(format!("--trace {}", folder.display())))
    }

    /// The value of the ranks' setting `trace`.
    pub fn setting(&self) -> String {
        self.folder.join("rank-%r.json").display().to_string()
    }

    /// The files of a rank's lives.
    fn of(&self, rank: u32) -> Vec<PathBuf> {
        let first = self.folder.join(format!("rank-{rank}.json"));
        let next = |times| self.folder.join(format!("rank-{rank}-{times}.json"));
        std::iter::once(first)
            .chain((1..=self.respawn).map(next))
            .collect()
    }

    /// Puts the files of all ranks into one; says which are missing.
    pub fn merge(&self) -> Result<()> {
        let to = self.folder.join(MERGED);
        let missing = self
            .write(&to)
            .map_err(Failure::io(format!("writing {}", to.display())))?;
        if !missing.is_empty() {
            tell(format_args!(
                "portolan: no trace of ranks {missing:?} is in {}: they opened no endpoint, were \
                 killed, or wrote it on their own host",
                self.folder.display()
            ));
        }
        Ok(())
    }

    fn write(&self, to: &Path) -> io::Result<Vec<u32>> {
        let mut out = BufWriter::new(File::create(to)?);
        let (mut missing, mut first) = (Vec::new(), true);
        out.write_all(b"[")?;
        for rank in 0..self.ranks {
            let files = self.of(rank).into_iter().map(File::open);
            let files: Vec<File> = files.filter_map(io::Result::ok).collect();
            if files.is_empty() {
                missing.push(rank);
            }
            // An event a line; that of a killed rank may be cut.
            for line in files.into_iter().flat_map(|f| BufReader::new(f).lines()) {
                let line = line?;
                let event = line.trim_end_matches(',');
                if event.starts_with('{') && event.ends_with('}') {
                    out.write_all(if first { b"\n" } else { b",\n" })?;
                    out.write_all(event.as_bytes())?;
                    first = false;
                }
            }
        }
        out.write_all(b"\n]\n")?;
        out.flush()?;
        Ok(missing)
    }
}
