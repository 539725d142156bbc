//! Ends what a job leaves behind, above all one whose launcher was killed.
//!
//! Each rank asks the kernel to be killed when its launcher is, but a program
//! that a wrapping script started does not. So a small process of its own
//! process group knows the ranks' groups, and kills them when its input ends
//! without a farewell, unless their numbers are others' by then. Where there can be a control group, it ends whoever is
//! left in that in any case. The launcher replaces a guard that dies.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use portolan_hosts::failure::{Failure, Result};
use portolan_hosts::ranks::cgroup;
use portolan_sys::children::Start;
use portolan_sys::process::{Condition, Pidfd};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::GUARD_COMMAND;

/// What a guard is told: the number of a process group (32 bits), and when its
/// first process was started.
type Word = [u8; 12];

/// Zero is no process: the job has ended and nothing is to be killed.
const FAREWELL: Word = [0; 12];
/// Guards are started at most once in this time: one that ends at once would
/// keep a core busy.
const REPLACE_EVERY: Duration = Duration::from_millis(20);

/// The launcher's side.
pub struct Guard {
    shared: Arc<GuardState>,
    keeper: Option<JoinHandle<()>>,
}

/// What the launcher and the thread that replaces guards have in common.
struct GuardState {
    own: PathBuf,
    group: Option<PathBuf>,
    line: Mutex<GuardChannel>,
}

/// What a guard is told.
struct GuardChannel {
    /// To the guard of now.
    input: Option<ChildStdin>,
    /// All that was said, for its successor.
    words: Vec<Word>,
    /// Nothing more will be: a guard that ends now is not replaced.
    over: bool,
}

impl Guard {
    /// Starts the guard, which is the command `own`.
    pub fn start(own: &Path) -> Result<Self> {
        let doing = "starting the job's guard";
        Self::try_start(own).map_err(|error| match Errno::from_io_error(&error) {
            // Threads stay in the pid namespace of their process, and only children get another.
            Some(Errno::INVAL) => Failure::new(format!(
                "{doing}: {error}; if `unshare --pid` starts this, add --fork: a process whose \
                 children get another pid namespace than its own can start no thread"
            )),
            _ => Failure::io(doing)(error),
        })
    }

    fn try_start(own: &Path) -> io::Result<Self> {
        let group = cgroup::make();
        let shared = Arc::new(GuardState {
            own: own.to_owned(),
            group,
            line: Mutex::new(GuardChannel {
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
        let first = guard.shared.begin()?;
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
        // It was not waited for, so the number is still its own.
        let started = Condition::of(group).map_or(0, |it| it.started);
        let mut word = FAREWELL;
        word[..4].copy_from_slice(&group.to_le_bytes());
        word[4..].copy_from_slice(&started.to_le_bytes());
        self.shared.line().say(word);
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

impl GuardChannel {
    fn say(&mut self, word: Word) {
        self.words.push(word);
        if let Some(input) = &mut self.input {
            // If it was killed just now, its successor hears all.
            let _ = input.write_all(&word);
        }
    }
}

impl GuardState {
    fn line(&self) -> MutexGuard<'_, GuardChannel> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a guard, which hears what was said until now.
    fn begin(&self) -> io::Result<Child> {
        let mut line = self.line();
        let mut child = Command::new(&self.own)
            .arg(GUARD_COMMAND)
            .args(&self.group)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .start()?;
        line.input = child.stdin.take().filter(|_| !line.over);
        let said = line.words.concat();
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
            guard = self.begin().ok();
        }
    }
}

/// A process group under guard.
struct Group {
    number: Pid,
    /// When its first process was started.
    started: u64,
    /// That process; none where it has gone, or cannot be held.
    first: Option<Pidfd>,
}

impl Group {
    /// None for a farewell.
    fn of(word: Word) -> Option<Self> {
        let (number, started) = word.split_first_chunk().expect("twelve bytes");
        let number = u32::from_le_bytes(*number);
        let started = u64::from_le_bytes(started.try_into().expect("eight bytes"));
        let first = Pidfd::open(number).ok();
        // Looked at once it is held: it cannot change any more.
        let is_it = || Condition::of(number).is_some_and(|now| now.started == started);
        Some(Self {
            number: Pid::from_raw(number.cast_signed())?,
            started,
            first: first.filter(|_| is_it()),
        })
    }

    /// Kills it, but not another that has its number by now.
    fn kill(&self) {
        let held = self.first.as_ref();
        if let Some(Ok(()) | Err(Errno::SRCH)) = held.map(|it| it.signal_group(Signal::KILL)) {
            return;
        }
        // A group keeps its number when its first process has gone.
        let number = self.number.as_raw_nonzero().get().cast_unsigned();
        if Condition::of(number).is_none_or(|now| now.started == self.started) {
            let _ = kill_process_group(self.number, Signal::KILL);
        }
    }
}

/// The guard's process; `group` is the ranks' control group.
pub fn guard(group: Option<&Path>) -> Result<ExitCode> {
    let mut groups = Vec::new();
    let mut word = FAREWELL;
    loop {
        match io::stdin().read_exact(&mut word) {
            Ok(()) => groups.push(Group::of(word)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(Failure::io("listening to the launcher")(error)),
        }
    }
    if !matches!(groups.last(), Some(None)) {
        groups.iter().flatten().for_each(Group::kill);
    }
    if let Some(group) = group {
        cgroup::end(group);
    }
    Ok(ExitCode::SUCCESS)
}
