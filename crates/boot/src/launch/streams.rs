//! The standard streams of a host's ranks, as far as they are pipes of ours.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ChildStdin};

use rustix::event::epoll;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use super::agent_protocol::{FromHost, Outgoing, Report, STREAM_BYTES_MAX};
use super::output::WINDOW_BYTES;
use crate::ready::ready_now;

/// Makes operations on a pipe's end return at once.
pub(super) fn do_not_block(pipe: impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?)
}

struct Pipe {
    rank: u32,
    is_error: bool,
    end: OwnedFd,
    /// Whether the rank has ended: only what is in the pipe is waited for.
    last: bool,
}

/// Output of the ranks.
pub(super) struct Outputs {
    /// All pipes that are open, by their index below.
    pub epoll: OwnedFd,
    pipes: Vec<Option<Pipe>>,
    /// Pipes of ranks that have ended, not read to their end.
    ended: Vec<usize>,
    /// Bytes that may still be reported.
    window: u64,
}

impl Outputs {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            pipes: Vec::new(),
            ended: Vec::new(),
            window: WINDOW_BYTES,
        })
    }

    /// Takes the pipes of a rank that was just started.
    pub fn add(&mut self, rank: u32, child: &mut Child) -> io::Result<()> {
        let out = child.stdout.take().map(|pipe| (OwnedFd::from(pipe), false));
        let err = child.stderr.take().map(|pipe| (OwnedFd::from(pipe), true));
        for (end, is_error) in out.into_iter().chain(err) {
            do_not_block(&end)?;
            let data = epoll::EventData::new_u64(self.pipes.len() as u64);
            epoll::add(&self.epoll, &end, data, epoll::EventFlags::IN)?;
            self.pipes.push(Some(Pipe {
                rank,
                is_error,
                end,
                last: false,
            }));
        }
        Ok(())
    }

    /// Whether more may be reported now.
    pub fn has_room(&self) -> bool {
        self.window > 0
    }

    pub fn give_room(&mut self, bytes: u64) {
        self.window = self.window.saturating_add(bytes).min(WINDOW_BYTES);
    }

    /// Whether all pipes are closed.
    pub fn is_over(&self) -> bool {
        self.pipes.iter().all(Option::is_none)
    }

    /// Marks a rank as ended. What a process that has left its group may still
    /// write is not waited for.
    pub fn rank_ended(&mut self, rank: u32) {
        for (index, pipe) in self.pipes.iter_mut().enumerate() {
            if let Some(pipe) = pipe.as_mut().filter(|pipe| pipe.rank == rank) {
                pipe.last = true;
                self.ended.push(index);
            }
        }
    }

    /// Reads what is there, as far as there is room.
    pub fn pump(&mut self, tell: &mut VecDeque<Report>) -> io::Result<()> {
        for (index, _) in ready_now(&self.epoll)? {
            if let Ok(index) = usize::try_from(index) {
                self.read(index, tell);
            }
        }
        for index in std::mem::take(&mut self.ended) {
            while self.has_room() && self.read(index, tell) {}
            if self.pipes[index].is_some() {
                self.ended.push(index);
            }
        }
        Ok(())
    }

    /// Reads one pipe once; returns whether more may wait in it.
    fn read(&mut self, index: usize, tell: &mut VecDeque<Report>) -> bool {
        let room = usize::try_from(self.window).unwrap_or(usize::MAX);
        let Some(pipe) = self.pipes.get_mut(index).and_then(Option::as_mut) else {
            return false;
        };
        if room == 0 {
            return false;
        }
        let mut bytes = vec![0; STREAM_BYTES_MAX.min(room)];
        let got = match rustix::io::read(&pipe.end, &mut bytes[..]) {
            Err(Errno::INTR) => return true,
            Err(Errno::AGAIN) if !pipe.last => return false,
            Ok(n) => n,
            // The end, also where a process that has left the group holds it open.
            Err(_) => 0,
        };
        bytes.truncate(got);
        self.window -= got as u64;
        let (rank, is_error) = (pipe.rank, pipe.is_error);
        tell.push_back(Report::Output {
            rank,
            is_error,
            bytes,
        });
        if got == 0 {
            // Closing takes it out of the set.
            self.pipes[index] = None;
        }
        got > 0
    }
}

/// Input of rank 0.
pub(super) struct Input {
    pipe: Option<ChildStdin>,
    waiting: Outgoing,
    /// Whether no more comes.
    last: bool,
}

impl Input {
    pub fn new(pipe: ChildStdin) -> io::Result<Self> {
        do_not_block(&pipe)?;
        Ok(Self {
            pipe: Some(pipe),
            waiting: Outgoing::default(),
            last: false,
        })
    }

    /// Returns the pipe while it is open.
    pub fn pipe(&self) -> Option<&ChildStdin> {
        self.pipe.as_ref()
    }

    /// Whether bytes are queued for it.
    pub fn is_behind(&self) -> bool {
        self.pipe.is_some() && !self.waiting.is_empty()
    }

    /// Queues bytes; none marks the end of the input.
    pub fn push(&mut self, bytes: Option<&[u8]>, tell: &mut VecDeque<Report>) {
        match bytes {
            Some(bytes) => self.waiting.push(bytes),
            None => self.last = true,
        }
        self.flush(tell);
    }

    /// Writes what there is room for.
    pub fn flush(&mut self, tell: &mut VecDeque<Report>) {
        let waiting = self.waiting.len();
        let written = match &self.pipe {
            Some(pipe) => self.waiting.flush(pipe.as_fd()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        let taken = written.unwrap_or_else(|_| {
            // No reader is left: the rest is discarded.
            self.close();
            waiting
        });
        if taken > 0 {
            let bytes = taken as u64;
            tell.push_back(Report::Said(FromHost::InputTaken { bytes }));
        }
        if self.last && self.waiting.is_empty() {
            self.pipe = None;
        }
    }

    /// Closes the pipe and discards what is queued.
    pub fn close(&mut self) {
        self.waiting = Outgoing::default();
        self.pipe = None;
    }
}
