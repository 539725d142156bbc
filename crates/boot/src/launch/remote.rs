//! The launcher's end of a connection to an agent on another host.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::host::pidfd;
use super::plan::Greeting;
use super::ready::ready_now;
use super::streams::do_not_block;
use super::talk::{Frames, FromHost, Garbled, Order, Outgoing, PREAMBLE, Report, ToHost};
use crate::Versions;

/// How much of what the connection's program says last is kept, bytes.
const SAID_BYTES_MAX: usize = 4096;
/// Between the end of the agent's words and the end of the program that
/// carried them.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// Why a host cannot take part, or no longer does.
#[derive(Debug)]
pub enum HostFailure {
    /// The program that connects could not be run.
    Command {
        /// Its name.
        program: String,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The connection ended.
    Ended {
        /// How its program did, if it did.
        status: Option<ExitStatus>,
        /// The last of what it wrote to standard error.
        said: String,
        /// After the agent had greeted.
        greeted: bool,
    },
    /// Something else than an agent answers.
    Noise(String),
    /// Agent and launcher were built from different versions.
    Version {
        /// The launcher's.
        launcher: Versions,
        /// The agent's.
        agent: Versions,
    },
    /// No greeting within this time.
    Silent(Duration),
    /// The agent does not answer a kill any more.
    Deaf,
    /// The agent sent what this version does not understand.
    Garbled(String),
    /// The agent found, before it started any rank, that it cannot.
    Start {
        /// Exit code for the job.
        code: u8,
        /// Cause and remedy.
        why: String,
    },
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { program, error } => write!(f, "cannot run {program}: {error}"),
            Self::Ended { status, said, .. } => {
                write!(f, "the connection ended")?;
                if let Some(status) = status {
                    write!(f, " ({status})")?;
                }
                match said.trim() {
                    "" => Ok(()),
                    said => write!(f, ": {said}"),
                }
            }
            Self::Noise(text) => write!(
                f,
                "something else than Portolan's agent answers ({text:?}): what the login shell \
                 prints there (~/.bashrc) must go, at least where no terminal is"
            ),
            Self::Version { launcher, agent } => write!(
                f,
                "mixed versions: here is {launcher}, there {agent}; install one version on all \
                 hosts, or name its folder with --prefix"
            ),
            Self::Silent(limit) => write!(
                f,
                "no answer within {} s: is the host up, and can it be reached?",
                limit.as_secs()
            ),
            Self::Deaf => write!(f, "its agent no longer answers"),
            Self::Garbled(what) => write!(
                f,
                "its agent sent {what}, which this version does not understand; install one \
                 version on all hosts"
            ),
            Self::Start { why, .. } => f.write_str(why),
        }
    }
}

/// What comes from a remote host.
pub(super) enum Heard {
    Report(Report),
    /// A line that the connection's program wrote to standard error.
    Line(String),
    /// Nothing more will come.
    Lost(HostFailure),
}

/// A connection. Dropping it ends it, and with it the agent.
pub(super) struct Remote {
    child: Child,
    process: OwnedFd,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    epoll: OwnedFd,
    waiting: Outgoing,
    frames: Frames,
    /// The preamble was read.
    begun: bool,
    pub greeting: Option<Greeting>,
    /// The last that was read of `errors`, and of it what has no end yet.
    said: String,
    line: Vec<u8>,
    heard: VecDeque<Heard>,
}

/// Words of the descriptors in the set.
const INPUT: u64 = 0;
const OUTPUT: u64 = 1;
const ERRORS: u64 = 2;

impl Remote {
    /// Runs the program that connects, in a process group of its own: Ctrl-C
    /// is for the launcher.
    pub fn open(mut command: Command) -> Result<Self, HostFailure> {
        let program = command.get_program().to_string_lossy().into_owned();
        let failed = |error| HostFailure::Command { program, error };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut child = command.spawn().map_err(failed.clone())?;
        let opened = Self::watch(&mut child);
        match opened {
            Ok((process, epoll, (input, output, errors))) => Ok(Self {
                child,
                process,
                input: Some(input),
                output: Some(output),
                errors: Some(errors),
                epoll,
                waiting: Outgoing::default(),
                frames: Frames::default(),
                begun: false,
                greeting: None,
                said: String::new(),
                line: Vec::new(),
                heard: VecDeque::new(),
            }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(failed(error))
            }
        }
    }

    #[allow(clippy::type_complexity)] // Parts of one value, named by its only caller.
    fn watch(
        child: &mut Child,
    ) -> io::Result<(OwnedFd, OwnedFd, (ChildStdin, ChildStdout, ChildStderr))> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let errors = child.stderr.take().expect("piped");
        do_not_block(&input)?;
        do_not_block(&output)?;
        do_not_block(&errors)?;
        let add = |pipe: BorrowedFd<'_>, word, flags| {
            epoll::add(&epoll, pipe, epoll::EventData::new_u64(word), flags)
        };
        add(input.as_fd(), INPUT, epoll::EventFlags::empty())?;
        add(output.as_fd(), OUTPUT, epoll::EventFlags::IN)?;
        add(errors.as_fd(), ERRORS, epoll::EventFlags::IN)?;
        Ok((pidfd(child)?, epoll, (input, output, errors)))
    }

    /// The process of the program that connects.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Readable when [`Remote::pump`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub fn take_heard(&mut self) -> Option<Heard> {
        self.heard.pop_front()
    }

    /// Sends an order, as far as there is room; the rest waits.
    pub fn send(&mut self, frame: &[u8]) {
        if self.input.is_some() {
            self.waiting.push(frame);
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(input) = &self.input else { return };
        if self.waiting.flush(input.as_fd()).is_err() {
            // It is gone; the other direction tells how.
            self.input = None;
            return;
        }
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::OUT, !self.waiting.is_empty());
        let data = epoll::EventData::new_u64(INPUT);
        let _ = epoll::modify(&self.epoll, input, data, flags);
    }

    /// Looks at all that has come. Does not wait, but for a program that is
    /// about to end.
    ///
    /// # Errors
    /// The kernel refused to say; nothing to retry.
    pub fn pump(&mut self) -> io::Result<()> {
        for (word, flags) in ready_now(&self.epoll)? {
            match word {
                INPUT if flags.contains(epoll::EventFlags::ERR) => self.input = None,
                INPUT => self.flush(),
                OUTPUT => self.read_output(),
                _ => self.read_errors(),
            }
        }
        Ok(())
    }

    fn read_errors(&mut self) {
        let Some(errors) = &self.errors else { return };
        let mut bytes = [0; 4096];
        match rustix::io::read(errors, &mut bytes) {
            Ok(n) if n > 0 => {
                for &byte in &bytes[..n] {
                    if byte == b'\n' || self.line.len() >= SAID_BYTES_MAX {
                        self.end_line();
                    } else {
                        self.line.push(byte);
                    }
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => {
                self.end_line();
                self.errors = None;
            }
        }
    }

    fn end_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line).trim_end().to_owned();
        self.line.clear();
        if line.is_empty() {
            return;
        }
        self.said.push_str(&line);
        self.said.push('\n');
        while self.said.len() > SAID_BYTES_MAX {
            let first = self.said.find('\n').map_or(self.said.len(), |at| at + 1);
            self.said.drain(..first);
        }
        self.heard.push_back(Heard::Line(line));
    }

    fn read_output(&mut self) {
        let Some(output) = &self.output else { return };
        let mut bytes = vec![0; 64 << 10];
        match rustix::io::read(output, &mut bytes[..]) {
            Ok(n) if n > 0 => {
                self.frames.feed(&bytes[..n]);
                if let Err(failure) = self.read_frames() {
                    self.lose(failure);
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.end(),
        }
    }

    fn read_frames(&mut self) -> Result<(), HostFailure> {
        if !self.begun {
            let rest = self.frames.rest();
            let shown = rest.len().min(PREAMBLE.len());
            if rest[..shown] != PREAMBLE[..shown] {
                let text = String::from_utf8_lossy(&rest[..rest.len().min(60)]);
                return Err(HostFailure::Noise(text.into_owned()));
            }
            if shown < PREAMBLE.len() {
                return Ok(());
            }
            self.frames.skip(PREAMBLE.len());
            self.begun = true;
        }
        let garbled = |error: Garbled| HostFailure::Garbled(error.to_string());
        while let Some(content) = self.frames.next().map_err(garbled)? {
            let report = Report::decode(content).map_err(garbled)?;
            match report {
                Report::Said(FromHost::Hello(greeting)) if self.greeting.is_none() => {
                    if greeting.versions != Versions::ours() {
                        return Err(HostFailure::Version {
                            launcher: Versions::ours(),
                            agent: greeting.versions,
                        });
                    }
                    self.greeting = Some(greeting);
                }
                _ if self.greeting.is_none() => {
                    return Err(HostFailure::Garbled("no greeting".to_owned()));
                }
                Report::Said(FromHost::Failed { code, why }) => {
                    return Err(HostFailure::Start { code, why });
                }
                report => self.heard.push_back(Heard::Report(report)),
            }
        }
        Ok(())
    }

    /// The agent's words have ended: how did the program that carried them?
    fn end(&mut self) {
        self.input = None;
        let wait = Timespec::try_from(EXIT_WAIT).expect("a short time");
        let _ = poll(
            &mut [PollFd::new(&self.process, PollFlags::IN)],
            Some(&wait),
        );
        let status = self.child.try_wait().ok().flatten();
        while self.errors.is_some() && self.has_errors() {
            self.read_errors();
        }
        self.end_line();
        let said = self.said.clone();
        let greeted = self.greeting.is_some();
        let failure = HostFailure::Ended {
            status,
            said,
            greeted,
        };
        self.lose(failure);
    }

    fn has_errors(&self) -> bool {
        let Some(errors) = &self.errors else {
            return false;
        };
        let mut look = [PollFd::new(errors, PollFlags::IN)];
        poll(&mut look, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    /// Says that nothing more will come, and ends the connection.
    pub fn lose(&mut self, failure: HostFailure) {
        self.heard.push_back(Heard::Lost(failure));
        self.output = None;
        self.close();
        self.kill();
    }

    /// Ends the agent's input, which ends the agent; in good order if all has
    /// been told.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Says farewell and lets go.
    pub fn dismiss(&mut self) {
        self.send(&Order::Said(ToHost::Farewell).encode());
        if self.waiting.is_empty() {
            self.close();
        }
    }

    /// Waits for the program's end until `deadline`, then kills it.
    pub fn wait(&mut self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or_default();
        let _ = poll(
            &mut [PollFd::new(&self.process, PollFlags::IN)],
            Some(&left),
        );
        self.kill();
    }

    fn kill(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
        self.kill();
    }
}
