//! Memory that the processes of a host share, without an agent: the first of
//! them makes it and hands the descriptors to the others, over an abstract unix
//! socket. Each side checks with the kernel which process its peer is.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::{Duration, Instant};

use portolan_sys::closing::{Closer, refuse_descriptors};
use portolan_sys::process::{Pidfd, is_our_user, peer};
use portolan_sys::shared_doorbell::SharedDoorbells;
use portolan_sys::socket::{self, DESCRIPTORS_MAX, MESSAGE_BYTES_MAX, Received};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with,
};
use rustix::process::geteuid;

use super::agent::call::wait;

/// Timeout of the other processes of a host: they have come to the first fence,
/// so they are at most descheduled.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between attempts to reach a socket that does not exist yet.
const RETRY: Duration = Duration::from_millis(1);

const TAKE: u8 = b'S';
const NOTHING: u8 = b'N';

/// The segment, and this process's share of its users' doorbells.
pub(super) struct SegmentShare {
    pub segment: OwnedFd,
    pub doorbells: Vec<OwnedFd>,
}

/// What the first process of a host makes.
struct Made {
    segment: OwnedFd,
    doorbells: SharedDoorbells,
}

/// The processes of a host, in order.
pub(super) struct Neighbours<'a> {
    /// Names the job.
    pub job_id: u64,
    /// Process ids.
    pub pids: &'a [u32],
    /// Index of this process.
    pub index: usize,
}

impl Neighbours<'_> {
    /// Makes the memory, or gets it from the first process. An error holds the
    /// reason; the other processes learn of it in the next exchange.
    pub fn share(
        &self,
        make: impl FnOnce(u32) -> io::Result<OwnedFd>,
    ) -> Result<SegmentShare, String> {
        let until = Instant::now() + TIMEOUT;
        let shared = if self.index == 0 {
            self.serve(make, until)?
        } else {
            self.fetch(until)?
        };
        for pid in self.pids {
            // If a death went unnoticed, the wait for its process would never end.
            Pidfd::open(*pid)
                .map_err(|errno| format!("the end of process {pid} cannot be watched: {errno}"))?;
        }
        Ok(shared)
    }

    fn address(&self) -> io::Result<SocketAddrUnix> {
        let name = format!("portolan-{:016x}-{}", self.job_id, geteuid().as_raw());
        Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
    }

    fn socket() -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok(socket)
    }

    fn serve(
        &self,
        make: impl FnOnce(u32) -> io::Result<OwnedFd>,
        until: Instant,
    ) -> Result<SegmentShare, String> {
        let count = u32::try_from(self.pids.len()).expect("no more than ranks");
        let made = make(count).and_then(|segment| {
            let doorbells = SharedDoorbells::new(count as usize)?;
            let own = doorbells.duplicate_of(0)?;
            Ok((Made { segment, doorbells }, own))
        });
        let made = made.map_err(|error| format!("the segment cannot be made: {error}"));
        let listener = Self::socket().and_then(|listener| {
            bind(&listener, &self.address()?)?;
            // Fails before Linux 6.16.
            let _ = refuse_descriptors(listener.as_fd());
            listen(&listener, i32::try_from(count).unwrap_or(i32::MAX))?;
            Ok(listener)
        });
        let listener =
            listener.map_err(|error| format!("the socket to share it cannot be made: {error}"))?;
        let (made, own) = match made {
            Ok((made, own)) => (Ok(made), own),
            Err(why) => (Err(why), Vec::new()),
        };
        let mut missing: Vec<(usize, u32)> = (0..).zip(self.pids.iter().copied()).collect();
        missing.remove(0);
        // Closes connections of strangers, which may hold descriptors.
        let closer = Closer::default();
        while !missing.is_empty() && wait(listener.as_fd(), until).is_ok() {
            let Ok(other) = accept_with(&listener, SocketFlags::CLOEXEC) else {
                continue;
            };
            let Some(at) = missing.iter().position(|it| is_from(other.as_fd(), it.1)) else {
                closer.take(other);
                closer.close();
                continue;
            };
            // A process for which this fails notices that, and reports it to the rest.
            let (index, _) = missing.swap_remove(at);
            let _ = hand_over(other.as_fd(), &made, index, until);
        }
        closer.take(listener);
        made.map(|Made { segment, .. }| SegmentShare {
            segment,
            doorbells: own,
        })
    }

    fn fetch(&self, until: Instant) -> Result<SegmentShare, String> {
        let said = |doing: &'static str| move |error: io::Error| format!("{doing}: {error}");
        let address = self.address().map_err(said("naming the host's socket"))?;
        let host = loop {
            let host = Self::socket().map_err(said("opening a socket"))?;
            match connect(&host, &address) {
                Ok(()) => break host,
                // The socket does not exist yet, or its queue is full.
                Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) if Instant::now() < until => {
                    sleep(RETRY);
                }
                Err(errno) => {
                    return Err(format!(
                        "process {} does not hand it out: {errno}",
                        self.pids[0]
                    ));
                }
            }
        };
        if !is_from(host.as_fd(), self.pids[0]) {
            Closer::default().take(host);
            return Err("somebody else answers in the place of the first process here".to_owned());
        }
        let listening = "asking the first process here";
        let mut all = Vec::new();
        // The segment, the doorbells' sending ends, and this process's receiving end.
        while all.len() < self.pids.len() + 2 {
            wait(host.as_fd(), until).map_err(said(listening))?;
            let got = socket::receive(host.as_fd(), false).map_err(said(listening))?;
            match got {
                Some(Received {
                    bytes, descriptors, ..
                }) if bytes == [TAKE] => {
                    if descriptors.is_empty() {
                        return Err(format!("{listening}: nothing came"));
                    }
                    all.extend(descriptors);
                }
                Some(Received { bytes, .. }) if bytes.first() == Some(&NOTHING) => {
                    return Err(String::from_utf8_lossy(&bytes[1..]).into_owned());
                }
                _ => return Err(format!("{listening}: it is gone")),
            }
        }
        // The first process serves no other until it gets this. So few
        // descriptors are in flight at a time: the kernel limits a user's to
        // the limit of open files.
        socket::send(host.as_fd(), &[TAKE], &[], false).map_err(said(listening))?;
        let segment = all.remove(0);
        Ok(SegmentShare {
            segment,
            doorbells: all,
        })
    }
}

/// Hands its part to process `index` of the host.
fn hand_over(
    to: BorrowedFd<'_>,
    made: &Result<Made, String>,
    index: usize,
    until: Instant,
) -> io::Result<()> {
    let made = match made {
        Ok(made) => made,
        Err(why) => {
            let mut message = vec![NOTHING];
            message.extend(why.as_bytes());
            message.truncate(MESSAGE_BYTES_MAX);
            return socket::send(to, &message, &[], false);
        }
    };
    let all: Vec<_> = std::iter::once(made.segment.as_fd())
        .chain(made.doorbells.of(index))
        .collect();
    for part in all.chunks(DESCRIPTORS_MAX) {
        socket::send(to, &[TAKE], part, false)?;
    }
    wait(to, until)?;
    socket::receive(to, false).map(|_| ())
}

/// Whether the peer is process `pid`, and of this user.
fn is_from(other: BorrowedFd<'_>, pid: u32) -> bool {
    let is_it = |its: NonZeroU32| its.get() == pid;
    peer(other).is_ok_and(|who| is_our_user(who.uid) && who.pid.is_some_and(is_it))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::thread;

    use portolan_sys::shared_doorbell::{Ringer, SharedDoorbell};

    /// Threads of one process stand for processes: their ids are the same.
    fn job(
        size: usize,
        id: u64,
        make: fn(u32) -> io::Result<OwnedFd>,
    ) -> Vec<Result<SegmentShare, String>> {
        let pids = vec![std::process::id(); size];
        thread::scope(|scope| {
            let start = |index| {
                let pids = &pids;
                scope.spawn(move || {
                    let neighbours = Neighbours {
                        job_id: id,
                        pids,
                        index,
                    };
                    neighbours.share(make)
                })
            };
            let threads: Vec<_> = (0..size).rev().map(start).collect();
            let joined = threads.into_iter().rev().map(|t| t.join().unwrap());
            joined.collect()
        })
    }

    #[test]
    fn the_first_makes_and_all_have() {
        let all = job(5, 0x1001, |ranks| {
            assert_eq!(ranks, 5);
            Ok(File::open("/dev/null")?.into())
        });
        let all: Vec<SegmentShare> = all.into_iter().map(Result::unwrap).collect();
        let split = |mut shared: SegmentShare| {
            let own = SharedDoorbell::try_from(shared.doorbells.pop().unwrap()).unwrap();
            let ringers = shared.doorbells.into_iter();
            let ringers: Vec<_> = ringers.map(|it| Ringer::try_from(it).unwrap()).collect();
            (own, ringers)
        };
        let (bells, ringers): (Vec<_>, Vec<_>) = all.into_iter().map(split).unzip();
        assert!(ringers.iter().all(|all| all.len() == 5));
        // Whichever process rings a bell, the same one receives it. Which that is, threads of one
        // process cannot distinguish.
        let hears = |rung: usize| {
            let heard = ringers.iter().map(|all| {
                all[rung].ring();
                bells.iter().position(SharedDoorbell::clear)
            });
            let heard: Vec<_> = heard.collect();
            assert!(heard.iter().all(|who| *who == heard[0]));
            heard[0].unwrap()
        };
        let mut who: Vec<_> = (0..5).map(hears).collect();
        who.sort_unstable();
        assert_eq!(who, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn many_doorbells_come_in_parts() {
        let made = Ok(Made {
            segment: File::open("/dev/null").unwrap().into(),
            doorbells: SharedDoorbells::new(DESCRIPTORS_MAX + 6).unwrap(),
        });
        let (ours, theirs) = socket::pair().unwrap();
        let until = Instant::now() + TIMEOUT;
        socket::send(theirs.as_fd(), &[TAKE], &[], false).unwrap();
        hand_over(ours.as_fd(), &made, 1, until).unwrap();
        let first = socket::receive(theirs.as_fd(), false).unwrap().unwrap();
        let second = socket::receive(theirs.as_fd(), false).unwrap().unwrap();
        let counts = [first.descriptors.len(), second.descriptors.len()];
        assert_eq!(counts, [DESCRIPTORS_MAX, 8]);
        assert!(is_from(ours.as_fd(), std::process::id()));
    }

    #[test]
    fn why_there_is_none_all_hear() {
        let all = job(3, 0x1002, |_| Err(io::Error::other("no memory")));
        for got in all {
            let why = got.err().unwrap();
            assert!(why.contains("no memory"), "{why}");
        }
    }

    #[test]
    fn another_process_gets_nothing() {
        let (ours, _theirs) = socket::pair().unwrap();
        assert!(!is_from(ours.as_fd(), 1));
    }
}
