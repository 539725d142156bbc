//! A process that an agent watches.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use portolan_sys::process::Pidfd;
use portolan_sys::socket;
use rustix::process::{Signal, pidfd_send_signal};

use crate::How;
use crate::codec::decode;
use crate::message::{GaveUp, ToLauncher, ToRank};

/// What a watched rank has reported.
#[derive(Default)]
pub(super) struct Said {
    /// The rank leaves now.
    pub leaves: bool,
    /// Ranks given up for their silence.
    pub gave_up: Vec<u32>,
    /// Ranks given up because the kernel refuses packets.
    pub cut_off: Vec<u32>,
    /// Ranks given up for corrupt shared memory.
    pub corrupt: Vec<u32>,
    /// Ranks that it has heard of, and how long ago.
    pub heard: Vec<(u32, Duration)>,
}

pub(super) struct WatchedRank {
    pub rank: u32,
    pub pid: u32,
    pub process: Pidfd,
    /// None until the rank has connected, and once it has closed its end.
    pub control: Option<OwnedFd>,
    came: bool,
    /// Queued messages, for which its socket had no room.
    queue: VecDeque<Rc<[u8]>>,
    left: bool,
    /// What was reported to the others of its end.
    pub cause: Option<How>,
    ended: bool,
}

impl WatchedRank {
    pub fn new(rank: u32, pid: u32, process: Pidfd) -> Self {
        Self {
            rank,
            pid,
            process,
            control: None,
            came: false,
            queue: VecDeque::new(),
            left: false,
            cause: None,
            ended: false,
        }
    }

    /// Whether process `pid` is this one and has not connected yet.
    pub fn awaits(&self, pid: u32) -> bool {
        self.pid == pid && !self.came
    }

    /// Takes the rank's connection: sends it the memory of the futex words,
    /// then queued messages.
    pub fn accept_rank(&mut self, control: OwnedFd, lives: Option<BorrowedFd<'_>>) {
        self.came = true;
        let lives: Vec<_> = lives.into_iter().collect();
        let membership = ToRank::Watched.encode();
        if socket::send(control.as_fd(), &membership, &lives, false).is_ok() {
            self.control = Some(control);
            self.flush();
        }
    }

    /// Receives all its messages.
    pub fn hear(&mut self) -> Said {
        let (was, mut said) = (self.left, Said::default());
        while let Some(control) = &self.control {
            match socket::receive(control.as_fd(), false) {
                Ok(Some(message)) => {
                    match decode(&message.bytes) {
                        Some(ToLauncher::Leave) => self.left = true,
                        Some(ToLauncher::GaveUp { ranks, why }) => {
                            let ranks = ranks.into_iter().map(|(rank, _)| rank);
                            match why {
                                GaveUp::Silent | GaveUp::Starved => said.gave_up.extend(ranks),
                                GaveUp::Corrupt => said.corrupt.extend(ranks),
                                GaveUp::NotSent { .. } | GaveUp::NotReceived { .. } => {
                                    said.cut_off.extend(ranks);
                                }
                            }
                        }
                        Some(ToLauncher::Heard { rank, ago_ms }) => {
                            said.heard.push((rank, Duration::from_millis(ago_ms)));
                        }
                        // The rest is for launchers.
                        _ => {}
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) | Err(_) => self.control = None,
            }
        }
        said.leaves = self.left && !was && self.cause.is_none();
        said
    }

    pub fn signal(&self, signal: Signal) {
        // Fails if the process has ended.
        let _ = pidfd_send_signal(&self.process, signal);
    }

    /// Queues a message, also before the rank has connected, and sends what
    /// there is room for.
    pub fn send(&mut self, bytes: Rc<[u8]>) {
        if self.control.is_some() || !self.came {
            self.queue.push_back(bytes);
            self.flush();
        }
    }

    /// Sends queued messages as far as there is room.
    pub fn flush(&mut self) {
        let Some(control) = &self.control else { return };
        while let Some(bytes) = self.queue.front() {
            match socket::send(control.as_fd(), bytes, &[], false) {
                Ok(()) => drop(self.queue.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The rank is gone or going; its process shows that.
                Err(_) => self.queue.clear(),
            }
        }
    }

    /// Whether messages are queued.
    pub fn is_behind(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether its end would be an unreported death.
    pub fn is_missed(&self) -> bool {
        !self.left && self.cause.is_none()
    }

    /// Whether the rank has left in good order.
    pub fn has_left(&self) -> bool {
        self.left && self.cause.is_none()
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Marks its process as ended.
    pub fn end(&mut self) {
        self.ended = true;
        self.came = true;
        self.control = None;
        self.queue.clear();
    }
}
