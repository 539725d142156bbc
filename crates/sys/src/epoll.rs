//! Waiting for any of several descriptors, and a descriptor that is due at a
//! time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

/// Tokens that one [`Epoll::wait`] gives at most.
pub const READY_MAX: usize = 16;

/// A set of descriptors, itself a descriptor that is readable while one of
/// them is. Level-triggered.
#[derive(Debug)]
pub struct Epoll(Arc<OwnedFd>);

impl Epoll {
    /// An empty set; close-on-exec.
    ///
    /// # Errors
    /// `MFILE` or `NFILE` when no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        let set = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Self(Arc::new(set)))
    }

    /// Another handle to the set, for somebody else to add to.
    #[must_use]
    pub fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Waits for `fd` to become readable from now on, under the name `token`.
    /// Closing the last copy of `fd` takes it out of the set.
    ///
    /// # Errors
    /// `EXIST` when it is in the set, `PERM` for a descriptor that cannot be
    /// waited on, `NOSPC` or `NOMEM`.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64) -> Result<(), Errno> {
        epoll::add(&self.0, fd, EventData::new_u64(token), EventFlags::IN)
    }

    /// Takes `fd` out of the set.
    ///
    /// # Errors
    /// `NOENT` when it is not in the set.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::delete(&self.0, fd)
    }

    /// Sleeps until a descriptor is readable, a signal arrives or `timeout_ns`
    /// have gone by (`None`: without limit). Calls `ready` with each token.
    ///
    /// # Errors
    /// What the kernel answers beyond that: our bug.
    pub fn wait(
        &self,
        timeout_ns: Option<u64>,
        mut ready: impl FnMut(u64),
    ) -> Result<usize, Errno> {
        let timeout = timeout_ns.map(timespec);
        let mut events = [Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(0),
        }; READY_MAX];
        match epoll::wait(&self.0, &mut events, timeout.as_ref()) {
            Ok(n) => {
                for event in &events[..n] {
                    // Packed: copy the field before using it.
                    let data = event.data;
                    ready(data.u64());
                }
                Ok(n)
            }
            Err(Errno::INTR) => Ok(0),
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Sleeps until one of two descriptors is readable, a signal arrives or `timeout_ns` have gone
/// by (`None`: without limit). It takes no descriptor, as a set of the two would.
///
/// # Errors
/// As [`Epoll::wait`].
pub fn wait_either(
    one: BorrowedFd<'_>,
    other: BorrowedFd<'_>,
    timeout_ns: Option<u64>,
) -> Result<(), Errno> {
    let timeout = timeout_ns.map(timespec);
    let mut both = [one, other].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match poll(&mut both, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(e) => Err(e),
    }
}

/// A descriptor that becomes readable at a time of the monotonic clock.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// One that is not set; non-blocking, close-on-exec.
    ///
    /// # Errors
    /// `MFILE` or `NFILE` when no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )
        .map(Self)
    }

    /// Makes it readable once the monotonic clock shows `at_ns` (at once, if it
    /// does already); `None` never. Replaces what was set.
    pub fn set(&self, at_ns: Option<u64>) {
        let zero = timespec(0);
        // An all-zero time would disarm it: 1 is in the past as well.
        let value = Itimerspec {
            it_interval: zero,
            it_value: at_ns.map_or(zero, |ns| timespec(ns.clamp(1, i64::MAX as u64))),
        };
        // Only a bad time can fail, and the value is a good one.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &value);
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doorbell::Doorbell;

    #[test]
    fn what_rings_is_named() {
        let set = Epoll::new().unwrap();
        let (a, b) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
        set.add(a.as_fd(), 7).unwrap();
        set.add(b.as_fd(), 8).unwrap();
        let mut seen = Vec::new();
        assert_eq!(set.wait(Some(0), |t| seen.push(t)), Ok(0));
        b.ring();
        assert_eq!(set.wait(None, |t| seen.push(t)), Ok(1));
        assert_eq!(seen, [8]);
        set.remove(b.as_fd()).unwrap();
        assert_eq!(set.wait(Some(1000), |t| seen.push(t)), Ok(0));
    }

    #[test]
    fn a_timer_is_due() {
        let set = Epoll::new().unwrap();
        let timer = Timer::new().unwrap();
        set.add(timer.as_fd(), 1).unwrap();
        timer.set(Some(0));
        assert_eq!(set.wait(None, |_| ()), Ok(1));
        timer.set(None);
        assert_eq!(set.wait(Some(0), |_| ()), Ok(0));
    }
}
