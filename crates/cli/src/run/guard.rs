//! Ends what a job leaves behind, above all one whose launcher was killed.
//!
//! Each rank asks the kernel to be killed when its launcher is, but a program
//! that a wrapping script started does not. So a small process of its own
//! process group knows the ranks' groups, and kills them when its input ends
//! without a farewell. Where there can be a control group, it ends whoever is
//! left in that in any case.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{GUARD_COMMAND, cgroup};
use crate::failure::{Failure, Result};

/// Zero is no process: the job has ended and nothing is to be killed.
const FAREWELL: u32 = 0;

/// The launcher's side.
pub struct Guard {
    child: Child,
    input: Option<ChildStdin>,
    group: Option<PathBuf>,
}

impl Guard {
    /// Starts the guard, which is the command `own`.
    pub fn start(own: &Path) -> io::Result<Self> {
        let group = cgroup::make();
        let spawned = Command::new(own)
            .arg(GUARD_COMMAND)
            .args(&group)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn();
        let mut child = spawned.inspect_err(|_| {
            group.as_deref().map(cgroup::end);
        })?;
        let input = child.stdin.take();
        Ok(Self {
            child,
            input,
            group,
        })
    }

    /// The control group in which the ranks are to be.
    pub fn group(&self) -> Option<&Path> {
        self.group.as_deref()
    }

    /// Puts a process group under guard.
    pub fn watch(&mut self, group: u32) {
        self.say(group);
    }

    /// All ranks have ended.
    pub fn dismiss(&mut self) {
        self.say(FAREWELL);
    }

    fn say(&mut self, word: u32) {
        if let Some(input) = &mut self.input {
            // A guard that somebody killed guards nothing; the job goes on.
            let _ = input.write_all(&word.to_le_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
        // If somebody killed the guard.
        if let Some(group) = &self.group {
            cgroup::end(group);
        }
    }
}

/// The guard's process; `group` is the ranks' control group.
pub fn guard(group: Option<&Path>) -> Result<ExitCode> {
    let mut words = Vec::new();
    io::stdin()
        .read_to_end(&mut words)
        .map_err(Failure::io("listening to the launcher"))?;
    let words: Vec<u32> = words
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
        .collect();
    if words.last() != Some(&FAREWELL) {
        let groups = words
            .iter()
            .filter_map(|&word| Pid::from_raw(word.cast_signed()));
        for group in groups {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
    if let Some(group) = group {
        cgroup::end(group);
    }
    Ok(ExitCode::SUCCESS)
}
