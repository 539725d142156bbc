//! What a program sleeps on: a descriptor for the endpoints of a queue, and for itself.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use portolan::c_edge::Errno;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};

use crate::error::{EINVAL, ENOSYS, Result};
use crate::{abi, fid};

/// Readable when an endpoint wants progress, or when it was rung.
pub struct Bell {
    all: OwnedFd,
    rung: OwnedFd,
    signalled: AtomicBool,
}

fn system(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

impl Bell {
    pub fn new() -> Result<Self> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let rung = eventfd(0, flags).map_err(system)?;
        let bell = Self {
            all,
            rung,
            signalled: AtomicBool::new(false),
        };
        bell.add(bell.rung.as_fd())?;
        Ok(bell)
    }

    /// The one of an object that is waited for as its attributes say; `None`: not at all.
    ///
    /// # Errors
    /// There is no such kind of waiting here.
    ///
    /// # Safety
    /// `set` is null or a wait set.
    pub unsafe fn of(wait_obj: u32, set: *mut abi::FidWait) -> Result<Option<Self>> {
        let in_set = match wait_obj {
            abi::WAIT_NONE => return Ok(None),
            abi::WAIT_UNSPEC | abi::WAIT_FD | abi::WAIT_YIELD => None,
            // SAFETY: as promised.
            abi::WAIT_SET => Some(unsafe { fid::object::<crate::sets::Wait, _>(set) }?),
            _ => return Err(ENOSYS),
        };
        let bell = Self::new()?;
        if let Some(set) = in_set {
            set.bell.add(bell.fd())?;
        }
        Ok(Some(bell))
    }

    pub fn add(&self, other: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(other.as_raw_fd() as u64);
        match epoll::add(&self.all, other, data, epoll::EventFlags::IN) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(e) => Err(system(e)),
        }
    }

    /// Of one that is not there nothing is said.
    pub fn remove(&self, other: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.all, other);
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// Wakes whoever sleeps, and who will.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.rung, &1_u64.to_ne_bytes());
    }

    /// What it was rung for is done, unless that was a signal.
    pub fn hush(&self) {
        let _ = rustix::io::read(&self.rung, &mut [0; 8]);
        if self.signalled.load(Ordering::Acquire) {
            self.ring();
        }
    }

    /// Ends the next wait, or the one that goes on.
    pub fn signal(&self) {
        self.signalled.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether a wait is to end, once.
    pub fn take_signal(&self) -> bool {
        self.signalled.swap(false, Ordering::AcqRel)
    }

    /// Sleeps until it is readable, or the time is up.
    pub fn sleep(&self, until: Option<Instant>) -> Result<()> {
        let left = until.map(|at| at.saturating_duration_since(Instant::now()));
        let left = left.map(timespec);
        let mut fds = [PollFd::new(&self.all, PollFlags::IN)];
        match poll(&mut fds, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(system(e)),
        }
    }
}

fn timespec(left: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    }
}

/// When a wait ends that C gives so many milliseconds; less than 0: never.
pub fn deadline(timeout_ms: std::ffi::c_int) -> Option<Instant> {
    let ms = u64::try_from(timeout_ms).ok()?;
    Instant::now().checked_add(Duration::from_millis(ms))
}

/// Waits for something, with progress: `look` returns it, or `None`; `may_sleep` says whether
/// nothing is to be done now.
///
/// # Errors
/// Theirs; `EINVAL`: there is nothing to sleep on.
pub fn wait_for<T>(
    bell: Option<&Bell>,
    timeout_ms: std::ffi::c_int,
    mut look: impl FnMut() -> Result<Option<T>>,
    mut may_sleep: impl FnMut() -> Result<bool>,
) -> Result<Option<T>> {
    let bell = bell.ok_or(EINVAL)?;
    let until = deadline(timeout_ms);
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if until.is_some_and(|at| Instant::now() >= at) {
            return Ok(None);
        }
        if may_sleep()? {
            bell.sleep(until)?;
        }
    }
}
