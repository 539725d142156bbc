//! Wake-ups of threads that sleep until a queue or a counter has something new.
//!
//! One of the threads that wait in a call polls; the others wait until it wakes, and then all
//! check again. So a ring is not cleared before all threads that slept at its time have seen it.
//! Threads that poll the descriptor of `fi_control` themselves cannot be counted. They have a
//! doorbell of their own, which only `fi_trywait` clears.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use portolan::Doorbell;
use portolan::c_edge::Errno;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::abi;
use crate::attachment::Attachment;
use crate::error::{EINVAL, ENOSYS, Result};
use crate::fid::{errno, lock, shared};
use crate::sets::Wait;

/// Threads that wait in a call.
#[derive(Default)]
struct Sleepers {
    /// Whether one of them polls.
    led: bool,
    /// Counts cleared rings and finished polls.
    generation: u64,
}

pub struct Bell {
    /// Wakes the thread that polls.
    rung: Arc<Doorbell>,
    sleepers: Mutex<Sleepers>,
    /// Signalled when the thread that polled wakes.
    up: Condvar,
    /// Endpoints whose progress may bring something new.
    endpoints: Mutex<Vec<Arc<Attachment>>>,
    /// For programs that poll themselves; made at the first request.
    handed: OnceLock<Descriptor>,
    /// Number of signals so far, and of those that waits have reported.
    signals: AtomicU64,
    told: AtomicU64,
    /// The wait set, if any, that is rung too.
    set: Option<Arc<Wait>>,
}

/// Readable when an endpoint wants progress, or after a ring.
pub struct Descriptor {
    all: OwnedFd,
    rung: Arc<Doorbell>,
    /// Stamp of the counts at the last `fi_trywait`.
    stamp: AtomicU64,
}

fn system(error: rustix::io::Errno) -> Errno {
    Errno(error.raw_os_error())
}

fn doorbell() -> Result<Arc<Doorbell>> {
    Doorbell::new().map(Arc::new).map_err(system)
}

impl Descriptor {
    fn new() -> Result<Self> {
        let it = Self {
            all: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?,
            rung: doorbell()?,
            stamp: AtomicU64::new(0),
        };
        it.add(it.rung.as_fd())?;
        Ok(it)
    }

    fn add(&self, other: BorrowedFd<'_>) -> Result<()> {
        let data = epoll::EventData::new_u64(other.as_raw_fd() as u64);
        epoll::add(&self.all, other, data, epoll::EventFlags::IN).map_err(system)
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// Stores a stamp; returns whether it equals the last one. What other threads have read since
    /// is still new to the caller.
    pub fn is_stamped(&self, stamp: u64) -> bool {
        self.stamp.swap(stamp, Ordering::Relaxed) == stamp
    }
}

impl Bell {
    pub fn new(set: Option<Arc<Wait>>) -> Result<Self> {
        Ok(Self {
            rung: doorbell()?,
            sleepers: Mutex::default(),
            up: Condvar::new(),
            endpoints: Mutex::default(),
            handed: OnceLock::new(),
            signals: AtomicU64::new(0),
            told: AtomicU64::new(0),
            set,
        })
    }

    /// The bell of an object, by the wait object in its attributes; `None`: no waiting.
    ///
    /// # Errors
    /// `ENOSYS`: not supported here. `EINVAL`: `set` is null.
    ///
    /// # Safety
    /// `set` is null or a wait set.
    pub unsafe fn of(wait_obj: u32, set: *mut abi::FidWait) -> Result<Option<Self>> {
        let set = match wait_obj {
            abi::WAIT_NONE => return Ok(None),
            abi::WAIT_UNSPEC | abi::WAIT_FD | abi::WAIT_YIELD => None,
            // SAFETY: as promised.
            abi::WAIT_SET => Some(unsafe { shared::<Wait, _>(set) }?),
            _ => return Err(ENOSYS),
        };
        Self::new(set).map(Some)
    }

    /// Adds an endpoint whose progress may bring something new.
    pub fn add(&self, attachment: &Arc<Attachment>) -> Result<()> {
        let mut endpoints = lock(&self.endpoints);
        if !endpoints.iter().any(|it| Arc::ptr_eq(it, attachment)) {
            if let Some(handed) = self.handed.get() {
                handed.add(attachment.endpoint.fd().map_err(errno)?)?;
            }
            endpoints.push(Arc::clone(attachment));
        }
        drop(endpoints);
        if let Some(set) = &self.set {
            set.bell.add(attachment)?;
        }
        // A thread that polls now does not poll this endpoint yet.
        self.ring();
        Ok(())
    }

    pub fn remove(&self, attachment: &Arc<Attachment>) {
        let mut endpoints = lock(&self.endpoints);
        endpoints.retain(|it| !Arc::ptr_eq(it, attachment));
        if let (Some(handed), Ok(fd)) = (self.handed.get(), attachment.endpoint.fd()) {
            // An error means that the endpoint is not in the set.
            let _ = epoll::delete(&handed.all, fd);
        }
        drop(endpoints);
        if let Some(set) = &self.set {
            set.bell.remove(attachment);
        }
        self.ring();
    }

    /// The descriptor for programs that poll themselves.
    pub fn descriptor(&self) -> Result<&Descriptor> {
        let endpoints = lock(&self.endpoints);
        if self.handed.get().is_none() {
            let made = Descriptor::new()?;
            for attachment in &*endpoints {
                made.add(attachment.endpoint.fd().map_err(errno)?)?;
            }
            return Ok(self.handed.get_or_init(|| made));
        }
        self.handed.get().ok_or(EINVAL)
    }

    /// Wakes all sleeping threads, and those that are about to sleep.
    pub fn ring(&self) {
        self.rung.ring();
        if let Some(handed) = self.handed.get() {
            handed.rung.ring();
        }
        if let Some(set) = &self.set {
            set.bell.ring();
        }
    }

    /// Ends all waits under way, or else the next one.
    pub fn signal(&self) {
        self.signals.fetch_add(1, Ordering::SeqCst);
        self.ring();
    }

    /// Number of signals that waits have reported.
    pub fn told(&self) -> u64 {
        self.told.load(Ordering::SeqCst)
    }

    /// Whether a signal came after `told`; marks all as reported.
    pub fn is_signalled(&self, told: u64) -> bool {
        let signals = self.signals.load(Ordering::SeqCst);
        self.told.fetch_max(signals, Ordering::SeqCst);
        signals > told
    }

    /// Prepares the descriptor for polling: later arrivals make it readable. False: there is work
    /// to do first.
    pub fn arm_handed(&self) -> Result<bool> {
        let rung = &self.descriptor()?.rung;
        rung.clear();
        self.arm(rung)
    }

    fn arm(&self, rung: &Arc<Doorbell>) -> Result<bool> {
        // Endpoints' handlers may ring, so no lock is held here.
        let endpoints = lock(&self.endpoints).clone();
        for attachment in endpoints {
            if !attachment.endpoint.arm_with(rung).map_err(errno)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Clears a ring, unless a thread polls, which must see it. The caller then checks for
    /// earlier arrivals, and passes the returned generation to [`Bell::sleep`].
    fn clear_leader_bell(&self) -> u64 {
        let mut sleepers = lock(&self.sleepers);
        if !sleepers.led && self.rung.clear() {
            sleepers.generation += 1;
        }
        sleepers.generation
    }

    /// Sleeps until something may have come since a [`Bell::clear_leader_bell`], or until the timeout.
    fn sleep(&self, since: u64, until: Option<Instant>) -> Result<()> {
        let mut sleepers = lock(&self.sleepers);
        while sleepers.generation == since {
            let left = until.map(|at| at.saturating_duration_since(Instant::now()));
            if !sleepers.led {
                sleepers.led = true;
                drop(sleepers);
                let polled = self.poll(left);
                sleepers = lock(&self.sleepers);
                sleepers.led = false;
                sleepers.generation += 1;
                self.up.notify_all();
                return polled;
            }
            if left == Some(Duration::ZERO) {
                break;
            }
            let left = left.unwrap_or(Duration::MAX);
            let woken = self.up.wait_timeout(sleepers, left);
            sleepers = woken.unwrap_or_else(|e| e.into_inner()).0;
        }
        Ok(())
    }

    fn poll(&self, left: Option<Duration>) -> Result<()> {
        let endpoints = lock(&self.endpoints).clone();
        let of_endpoints = endpoints.iter().map(|it| it.endpoint.fd().map_err(errno));
        let mut fds = of_endpoints
            .chain([Ok(self.rung.as_fd())])
            .map(|fd| Ok(PollFd::from_borrowed_fd(fd?, PollFlags::IN)))
            .collect::<Result<Vec<_>>>()?;
        match poll(&mut fds, left.map(timespec).as_ref()) {
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

/// The end of a wait with a timeout in milliseconds; `None` if negative: never.
fn deadline(timeout_ms: std::ffi::c_int) -> Option<Instant> {
    let ms = u64::try_from(timeout_ms).ok()?;
    Instant::now().checked_add(Duration::from_millis(ms))
}

/// Waits for something, with progress: `look` returns it, or `None`; `is_new` says, without
/// progress, whether there is something that the last `look` has not seen. `None`: timeout.
///
/// # Errors
/// Errors of `look`, `is_new` and the kernel.
pub fn wait_for<T>(
    bell: &Bell,
    timeout_ms: std::ffi::c_int,
    mut look: impl FnMut() -> Result<Option<T>>,
    mut is_new: impl FnMut() -> Result<bool>,
) -> Result<Option<T>> {
    let until = deadline(timeout_ms);
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if until.is_some_and(|at| Instant::now() >= at) {
            return Ok(None);
        }
        let since = bell.clear_leader_bell();
        if bell.arm(&bell.rung)? && !is_new()? {
            bell.sleep(since, until)?;
        }
    }
}
