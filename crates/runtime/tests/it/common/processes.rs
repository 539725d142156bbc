//! Two ranks of one host in two processes, of which one may be stopped or killed.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::parent_id;
use std::process::{Child, Command, Stdio};
use std::thread;

use portolan_link::shm::{Segment, SegmentConfig};
use portolan_runtime::{Config, PeerConfig, ShmAttachment, Space};
use portolan_sys::inherit::adopt_inherited;
use portolan_sys::process::{Condition, threads};
use portolan_sys::shared_doorbell::SharedDoorbells;
pub use rustix::process::Signal as Kill;
use rustix::process::{Pid, kill_process};

use super::{By, opening, peer};

const CHILD: &str = "PORTOLAN_TEST_ENGINE_CHILD";

/// One of the two, by the memory that they share, where the other is process `pid`.
pub fn attach(
    config: &Config,
    (rank, pid): (u16, u32),
    segment: OwnedFd,
    doorbells: Vec<OwnedFd>,
) -> Space {
    let both = [0, 1].map(|rank| opening(By::Shm, rank, config));
    let peers = [0, 1].map(|index| PeerConfig {
        pid,
        ..peer(&both[usize::from(index)], Some(index))
    });
    let attachment = ShmAttachment {
        segment,
        index: rank,
        doorbells,
    };
    let [zero, one] = both;
    let own = if rank == 0 { zero } else { one };
    own.finish(&peers, Some(attachment), None).unwrap()
}

/// Rank 1 in a process of its own, which runs the same test, and rank 0 here.
pub fn two(test: &str, config: &Config) -> (Process, Space) {
    let segment = Segment::create(2, &SegmentConfig::default()).unwrap();
    let bells = SharedDoorbells::new(2).unwrap();
    let mut theirs = bells.duplicate_of(1).unwrap();
    theirs.insert(0, segment.duplicate_fd().unwrap());
    for fd in &theirs {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty()).unwrap();
    }
    let numbers: Vec<_> = theirs.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        // What its harness says would be taken for the program's own.
        .stdout(Stdio::null())
        .env(CHILD, numbers.join(" "))
        .spawn()
        .unwrap();
    let (peer, ours) = ((0, child.id()), bells.duplicate_of(0).unwrap());
    let own = attach(config, peer, segment.duplicate_fd().unwrap(), ours);
    (Process(child), own)
}

/// In the process that [`two`] started: its rank.
pub fn child(config: &Config) -> Option<Space> {
    let numbers = std::env::var(CHILD).ok()?;
    let mut fds = numbers
        .split(' ')
        .map(|n| adopt_inherited(n.parse().unwrap()).unwrap());
    let segment = fds.next().unwrap();
    Some(attach(config, (1, parent_id()), segment, fds.collect()))
}

pub struct Process(Child);

impl Process {
    pub fn signal(&self, signal: Kill) {
        let pid = Pid::from_raw(self.0.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Stops it, wherever it is.
    pub fn stop(&self) {
        self.signal(Kill::STOP);
        while !threads(self.0.id()).all(|thread| Condition::of(thread).unwrap().stopped) {
            thread::yield_now();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
