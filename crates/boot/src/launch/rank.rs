//! One rank as its host sees it.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::rc::Rc;
use std::time::Instant;

use portolan_sys::children::Start;
use portolan_sys::memory::Hidden;
use portolan_sys::shared_doorbell::SharedDoorbells;
use portolan_sys::socket;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use super::{RankPlace, SharedMemory};
use crate::host_port::{HostPortInfo, Unbound};
use crate::message::{How, Table};
use crate::{JOB_VARIABLE, RESTARTS_VARIABLE};

/// What the ranks of a host share.
pub(super) struct HostDescriptors {
    /// Secret of the job, or of this host's partition.
    pub secret: Rc<Hidden<32>>,
    pub segment: Option<SharedMemory>,
    pub lives: Option<OwnedFd>,
    /// None without a segment.
    pub doorbells: Option<SharedDoorbells>,
}

/// What is sent with a message: the secret behind it, and which descriptors.
#[derive(Clone)]
pub(super) struct With {
    pub secret: bool,
    pub segment: bool,
    pub lives: bool,
    pub host_port: bool,
    /// Range within the rank's share of the doorbells.
    pub doorbells: Range<usize>,
}

impl With {
    pub fn nothing() -> Self {
        Self {
            secret: false,
            segment: false,
            lives: false,
            host_port: false,
            doorbells: 0..0,
        }
    }
}

pub(super) struct Rank {
    pub place: RankPlace,
    /// Whether other ranks are bound to its core.
    pub shares_core: bool,
    pub child: Child,
    pub process: OwnedFd,
    /// The host port that it was given, or why it has none.
    pub granted: Option<Result<HostPortInfo, String>>,
    /// The host port's descriptors, until they have been passed on.
    pub host_port: Option<[OwnedFd; 4]>,
    /// Remaining setup of the host port, once all ranks here have joined.
    pub unbound: Option<Unbound>,
    /// Releases the host port when the rank has ended.
    pub lease: Option<Box<dyn Any + Send>>,
    /// None once the rank has closed its end.
    pub control: Option<OwnedFd>,
    /// Queued messages, for which its socket had no room.
    queue: VecDeque<(Rc<[u8]>, With)>,
    /// The process that has attached, as the kernel reports it; 0 where this pid namespace does not
    /// see it.
    pub greeted: Option<u32>,
    /// Whether the rank has sent its address.
    pub has_come: bool,
    /// Whether the rank has been through an exchange.
    pub joined: bool,
    /// Its counters and state.
    pub tables: Vec<Table>,
    /// Whether the rank has reported that it leaves.
    pub left: bool,
    pub ended: Option<How>,
    /// What was reported to the others of its end, perhaps before it.
    pub cause: Option<How>,
    /// Since when its process is stopped.
    pub stopped: Option<Instant>,
}

impl Rank {
    /// Starts one rank with its end of a control socket.
    pub fn spawn(place: RankPlace, mut command: Command) -> io::Result<Self> {
        let (ours, theirs) = socket::pair()?;
        socket::ask_for_senders(ours.as_fd())?;
        // The descriptor must outlive exec, also that of a wrapping script,
        // until the program attaches. Only this thread starts processes, so no
        // other child gets it.
        fcntl_setfd(&theirs, FdFlags::empty())?;
        let number = theirs.as_raw_fd();
        command
            .env(JOB_VARIABLE, format!("fd:{number}"))
            .env(RESTARTS_VARIABLE, place.restarts.to_string())
            .process_group(0);
        let mut child = command.start()?;
        drop(theirs);
        match pidfd(&child) {
            Ok(process) => Ok(Self::new(place, child, process, ours)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub fn new(place: RankPlace, child: Child, process: OwnedFd, control: OwnedFd) -> Self {
        Self {
            place,
            shares_core: false,
            child,
            process,
            granted: None,
            host_port: None,
            unbound: None,
            lease: None,
            control: Some(control),
            queue: VecDeque::new(),
            greeted: None,
            has_come: false,
            joined: false,
            tables: Vec::new(),
            left: false,
            ended: None,
            cause: None,
            stopped: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Signals the rank's process group: a wrapping script is in it too.
    pub fn signal(&self, signal: Signal) {
        // No such group: all of it has ended, or the rank made its own.
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Queues a message and sends what there is room for.
    pub fn send(&mut self, bytes: Rc<[u8]>, with: With, host: &HostDescriptors) {
        if self.control.is_some() {
            self.queue.push_back((bytes, with));
            self.flush(host);
        }
    }

    /// Sends queued messages as far as there is room.
    pub fn flush(&mut self, host: &HostDescriptors) {
        let Some(control) = &self.control else { return };
        while let Some((bytes, with)) = self.queue.front() {
            let segment = host.segment.iter().filter(|_| with.segment);
            let lives = host.lives.iter().filter(|_| with.lives);
            let host_port = self.host_port.iter().filter(|_| with.host_port);
            let first = self.unbound.iter().filter(|_| with.host_port);
            let local = usize::from(self.place.local_index);
            let doorbells = host.doorbells.iter().flat_map(|all| all.of(local));
            let Range { start, end } = with.doorbells;
            let descriptors: Vec<BorrowedFd<'_>> = segment
                .map(|memory| &memory.descriptor)
                .chain(lives)
                .chain(host_port.flatten())
                .chain(first.map(|unbound| &unbound.first))
                .map(AsFd::as_fd)
                .chain(doorbells.skip(start).take(end - start))
                .collect();
            let secret: &[u8] = if with.secret { &host.secret[..] } else { &[] };
            match socket::send_parts(control.as_fd(), [bytes, secret], &descriptors, false) {
                Ok(()) => {
                    if with.host_port {
                        self.host_port = None;
                    }
                    self.queue.pop_front();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The rank is gone or going; its process shows how.
                Err(_) => self.queue.clear(),
            }
        }
    }

    /// Whether messages are queued.
    pub fn is_behind(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns how the process has ended, kills what is left of its group and
    /// reaps it. None while it runs.
    pub fn reap(&mut self) -> io::Result<Option<How>> {
        // This call does not reap, so the group's number cannot be reused.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        let Some(status) = waitid(WaitId::Pid(Pid::from_child(&self.child)), options)? else {
            return Ok(None);
        };
        let how = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => How::Exited(code),
            (_, Some(signal)) => How::Killed(signal),
            (None, None) => return Ok(None),
        };
        self.signal(Signal::KILL);
        self.child.wait()?;
        // Descriptors that it has not fetched would keep the queue.
        self.host_port = None;
        self.unbound = None;
        self.lease = None;
        self.ended = Some(how);
        Ok(Some(how))
    }
}

/// Opens a descriptor of a process that was just started.
pub(super) fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    pidfd_open(Pid::from_child(child), PidfdFlags::empty()).map_err(|errno| {
        io::Error::other(format!(
            "watching its process (pidfd_open): {errno}; allow pidfd_open in the seccomp profile"
        ))
    })
}
