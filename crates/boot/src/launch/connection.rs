//! A program that carries bytes to and from another host, as the launcher or an
//! agent runs it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use portolan_sys::children::Start;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::agent_protocol::{Outgoing, STREAM_BYTES_MAX};
use super::rank::pidfd;
use super::streams::do_not_block;
use crate::ready::ready_now;

/// Timeout of a program's exit after the end of its output.
const EXIT_WAIT: Duration = Duration::from_millis(500);

/// What is received over a connection.
pub(super) enum Came {
    /// Bytes from the other host.
    Bytes(Vec<u8>),
    /// What the program itself wrote to standard error.
    Errors(Vec<u8>),
    /// End of the input; how the program ended, if it did.
    End(Option<ExitStatus>),
}

/// Words of the descriptors in the epoll set.
const INPUT: u64 = 0;
const OUTPUT: u64 = 1;
const ERRORS: u64 = 2;

/// A running program. Dropping it kills it.
pub(super) struct Connection {
    child: Child,
    process: OwnedFd,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    errors: Option<ChildStderr>,
    epoll: OwnedFd,
    waiting: Outgoing,
}

impl Connection {
    /// Runs the program, in a process group of its own: Ctrl-C is for the
    /// launcher.
    pub fn open(mut command: Command) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .start()?;
        let process = pidfd(&child).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let connection = Self {
            input: child.stdin.take(),
            output: child.stdout.take(),
            errors: child.stderr.take(),
            child,
            process,
            epoll,
            waiting: Outgoing::default(),
        };
        connection.watch()?;
        Ok(connection)
    }

    fn watch(&self) -> io::Result<()> {
        let add = |pipe: BorrowedFd<'_>, word, flags| -> io::Result<()> {
            do_not_block(pipe)?;
            let data = epoll::EventData::new_u64(word);
            Ok(epoll::add(&self.epoll, pipe, data, flags)?)
        };
        if let (Some(input), Some(output), Some(errors)) = (&self.input, &self.output, &self.errors)
        {
            add(input.as_fd(), INPUT, epoll::EventFlags::empty())?;
            add(output.as_fd(), OUTPUT, epoll::EventFlags::IN)?;
            add(errors.as_fd(), ERRORS, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    /// Returns the program's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Readable when [`Connection::pump`] has something to do.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Sends bytes, as far as there is room; queues the rest.
    pub fn send(&mut self, bytes: &[u8]) {
        if self.input.is_some() {
            self.waiting.push(bytes);
            self.flush();
        }
    }

    fn flush(&mut self) {
        let Some(input) = &self.input else { return };
        if self.waiting.flush(input.as_fd()).is_err() {
            // The program is gone; the other direction shows how.
            self.close();
            return;
        }
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::OUT, !self.waiting.is_empty());
        let data = epoll::EventData::new_u64(INPUT);
        let _ = epoll::modify(&self.epoll, input, data, flags);
    }

    /// Takes all that has come. Does not wait, but for a program that is about
    /// to end.
    ///
    /// # Errors
    /// A system call failed; nothing to retry.
    pub fn pump(&mut self, came: &mut VecDeque<Came>) -> io::Result<()> {
        for (word, flags) in ready_now(&self.epoll)? {
            match word {
                INPUT if flags.contains(epoll::EventFlags::ERR) => self.close(),
                INPUT => self.flush(),
                OUTPUT => self.read_output(came),
                _ => self.read_errors(came),
            }
        }
        Ok(())
    }

    fn read_output(&mut self, came: &mut VecDeque<Came>) {
        let Some(output) = &self.output else { return };
        let mut bytes = vec![0; STREAM_BYTES_MAX];
        match rustix::io::read(output, &mut bytes[..]) {
            Ok(n) if n > 0 => {
                bytes.truncate(n);
                came.push_back(Came::Bytes(bytes));
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.end(came),
        }
    }

    fn read_errors(&mut self, came: &mut VecDeque<Came>) {
        let Some(errors) = &self.errors else { return };
        let mut bytes = vec![0; 4096];
        match rustix::io::read(errors, &mut bytes[..]) {
            Ok(n) if n > 0 => {
                bytes.truncate(n);
                came.push_back(Came::Errors(bytes));
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            _ => self.errors = None,
        }
    }

    /// Handles the end of the other host's output, and collects the program's status.
    fn end(&mut self, came: &mut VecDeque<Came>) {
        self.close();
        self.output = None;
        self.await_exit(EXIT_WAIT);
        let status = self.child.try_wait().ok().flatten();
        while self.has_errors() {
            self.read_errors(came);
        }
        came.push_back(Came::End(status));
    }

    fn has_errors(&self) -> bool {
        let Some(errors) = &self.errors else {
            return false;
        };
        let mut look = [PollFd::new(errors, PollFlags::IN)];
        poll(&mut look, Some(&Timespec::default())).is_ok_and(|n| n > 0)
    }

    fn await_exit(&self, limit: Duration) {
        let limit = Timespec::try_from(limit).unwrap_or_default();
        let _ = poll(
            &mut [PollFd::new(&self.process, PollFlags::IN)],
            Some(&limit),
        );
    }

    /// Ends the other host's input.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Ends the other host's input after queued bytes, and waits for the
    /// program's end until `deadline`; then kills it.
    pub fn finish(&mut self, deadline: Instant) {
        let left = || deadline.saturating_duration_since(Instant::now());
        while !self.waiting.is_empty() && !left().is_zero() {
            let Some(input) = &self.input else { break };
            let limit = Timespec::try_from(left()).unwrap_or_default();
            let _ = poll(&mut [PollFd::new(input, PollFlags::OUT)], Some(&limit));
            self.flush();
        }
        self.close();
        self.await_exit(left());
        self.kill();
    }

    fn kill(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.close();
        self.kill();
    }
}
