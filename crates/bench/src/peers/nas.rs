//! Programs of the NAS Parallel Benchmarks (NPB), which their user has built by an MPI's
//! compiler.

use std::fs;
use std::path::{Path, PathBuf};

use portolan_hosts::failure::{Context, Result};

/// A program, and the folder that it runs in.
#[derive(Debug)]
pub struct Nas {
    pub program: PathBuf,
    /// Its file `timer.flag` has the program tell how long it communicates.
    pub folder: PathBuf,
}

impl Nas {
    /// # Errors
    /// There is no such file, or no folder can be made.
    pub fn new(program: &Path) -> Result<Self> {
        let at = program.canonicalize();
        let program = at.context(format!("--nas {}", program.display()))?;
        let folder = std::env::temp_dir().join(format!("portolan-nas-{}", std::process::id()));
        let it = Self { program, folder };
        fs::create_dir_all(&it.folder)
            .and_then(|()| fs::write(it.folder.join("timer.flag"), ""))
            .context(format!("making {}", it.folder.display()))?;
        Ok(it)
    }

    /// Seconds of the whole, and of these in calls of MPI, the mean of all processes. None
    /// unless its results were found right.
    pub fn read(said: &str) -> Option<[f64; 2]> {
        let of = |name: &str, mark| {
            let mut lines = said
                .lines()
                .filter(|line| line.trim_start().starts_with(name));
            let line = lines.find(|line| line.contains(mark))?;
            line.split_whitespace().last()?.parse().ok()
        };
        let right = said.lines().any(|line| {
            line.contains("Verification ") && line.split_whitespace().last() == Some("SUCCESSFUL")
        });
        if !right {
            return None;
        }
        Some([of("Time in seconds", "=")?, of("timer", "totcomm")?])
    }
}

impl Drop for Nas {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_if_results_are_right() {
        let said = |verification: &str| {
            format!(
                " MG Benchmark Completed.\n Time in seconds =                     1.11\n \
                 Verification    =               {verification}\n \
                 nprocs =     2           minimum     maximum     average\n \
                 timer 10( totcomp) :      0.5909      0.6677      0.6293\n \
                 timer 11( totcomm) :      0.4436      0.5221      0.4829\n"
            )
        };
        assert_eq!(Nas::read(&said("SUCCESSFUL")), Some([1.11, 0.4829]));
        assert_eq!(Nas::read(&said("UNSUCCESSFUL")), None);
        assert_eq!(Nas::read(""), None);
    }
}
