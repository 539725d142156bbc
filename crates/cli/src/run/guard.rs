//! Ends what a job leaves behind, above all one whose launcher was killed.
//!
//! Each rank asks the kernel to be killed when its launcher is, but a program
//! that a wrapping script started does not. So a small process of its own
//! process group knows the ranks' groups, and kills them when its input ends
//! without a farewell. Where there can be a control group, it ends whoever is
//! left in that in any case. The launcher replaces a guard that dies.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::{GUARD_COMMAND, cgroup};
use crate::failure::{Failure, Result};

/// Zero is no process: the job has ended and nothing is to be killed.
const FAREWELL: u32 = 0;
/// Guards are started at most once in this time: one that ends at once would
/// keep a core busy.
const REPLACE_EVERY: Duration = Duration::from_millis(20);

/// The launcher's side.
pub struct Guard {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

/// What the launcher and the thread that replaces guards have in common.
struct Shared {
    own: PathBuf,
    group: Option<PathBuf>,
    line: Mutex<Line>,
}

/// What a guard is told.
struct Line {
    /// To the guard of now.
    input: Option<ChildStdin>,
    /// All that was said, for its successor.
    words: Vec<u32>,
    /// Nothing more will be: a guard that ends now is not replaced.
    over: bool,
}

impl Guard {
    /// Starts the guard, which is the command `own`.
    pub fn start(own: &Path) -> io::Result<Self> {
        let group = cgroup::make();
        let shared = Arc::new(Shared {
            own: own.to_owned(),
            group,
            line: Mutex::new(Line {
                input: None,
                words: Vec::new(),
                over: false,
            }),
        });
        // From here on its end ends the group.
        let mut guard = Self {
            shared,
            keeper: None,
        };
        let first = guard.shared.spawn()?;
        let shared = Arc::clone(&guard.shared);
        let keep = move || shared.keep(first);
        guard.keeper = Some(
            std::thread::Builder::new()
                .name("guard".to_owned())
                .spawn(keep)?,
        );
        Ok(guard)
    }

    /// The control group in which the ranks are to be.
    pub fn group(&self) -> Option<&Path> {
        self.shared.group.as_deref()
    }

    /// Puts a process group under guard.
    pub fn watch(&mut self, group: u32) {
        self.shared.line().say(group);
    }

    /// All ranks have ended.
    pub fn dismiss(&mut self) {
        self.shared.line().say(FAREWELL);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        {
            let mut line = self.shared.line();
            line.over = true;
            line.input = None;
        }
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
        // If somebody killed the guard.
        if let Some(group) = &self.shared.group {
            cgroup::end(group);
        }
    }
}

impl Line {
    fn say(&mut self, word: u32) {
        self.words.push(word);
        if let Some(input) = &mut self.input {
            // If it was killed just now, its successor hears all.
            let _ = input.write_all(&word.to_le_bytes());
        }
    }
}

impl Shared {
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a guard, which hears what was said until now.
    fn spawn(&self) -> io::Result<Child> {
        let mut line = self.line();
        let mut child = Command::new(&self.own)
            .arg(GUARD_COMMAND)
            .args(&self.group)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        line.input = child.stdin.take().filter(|_| !line.over);
        let said: Vec<u8> = line.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        if let Some(input) = &mut line.input {
            // One that was killed too is replaced in turn.
            let _ = input.write_all(&said);
        }
        Ok(child)
    }

    /// Replaces guards that end before their time.
    fn keep(&self, first: Child) {
        let mut guard = Some(first);
        let mut started = Instant::now();
        loop {
            if let Some(guard) = &mut guard {
                let _ = guard.wait();
            }
            if self.line().over {
                return;
            }
            sleep(REPLACE_EVERY.saturating_sub(started.elapsed()));
            started = Instant::now();
            // What there is not enough of now there may be soon.
            guard = self.spawn().ok();
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
