//! What threads sleep on until a queue or a counter has something new.
//!
//! One of the threads that wait in a call polls; the others wait until it is up, and then all
//! look again. So nobody takes back a ring before all have heard it who slept when it was made.
//! Threads that poll the descriptor of `fi_control` themselves cannot be counted. Their ring is
//! another one, and only `fi_trywait` takes it back.

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
    /// One of them polls.
    led: bool,
    /// Counts rings that were taken back.
    generation: u64,
}

pub struct Bell {
    /// For the thread that polls.
    rung: Arc<Doorbell>,
    sleepers: Mutex<Sleepers>,
    /// The one that polled is up.
    up: Condvar,
    /// Endpoints whose progress may bring what is waited for.
    endpoints: Mutex<Vec<Arc<Attachment>>>,
    /// For programs that poll themselves, once one has asked.
    handed: OnceLock<Descriptor>,
    /// Signals so far, and how many of them a wait has told of.
    signals: AtomicU64,
    told: AtomicU64,
    /// The wait set that it rings too.
    set: Option<Arc<Wait>>,
}

/// Readable when an endpoint wants progress, or when it was rung.
pub struct Descriptor {
    all: OwnedFd,
    rung: Arc<Doorbell>,
    /// The counts when `fi_trywait` last looked.
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

    /// Whether the counts are those of the last look. What other threads have read since then
    /// is news to the one that asks.
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

    /// The one of an object that is waited for as its attributes say; `None`: not at all.
    ///
    /// # Errors
    /// There is no such kind of waiting here.
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

    /// An endpoint's progress may bring something from now on.
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
        // A thread that polls now does not poll this endpoint.
        self.ring();
        Ok(())
    }

    pub fn remove(&self, attachment: &Arc<Attachment>) {
        let mut endpoints = lock(&self.endpoints);
        endpoints.retain(|it| !Arc::ptr_eq(it, attachment));
        if let (Some(handed), Ok(fd)) = (self.handed.get(), attachment.endpoint.fd()) {
            // One that is not in it need not be taken out.
            let _ = epoll::delete(&handed.all, fd);
        }
        drop(endpoints);
        if let Some(set) = &self.set {
            set.bell.remove(attachment);
        }
        self.ring();
    }

    /// What a program polls itself.
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

    /// Wakes all who sleep, and whoever sleeps next.
    pub fn ring(&self) {
        self.rung.ring();
        if let Some(handed) = self.handed.get() {
            handed.rung.ring();
        }
        if let Some(set) = &self.set {
            set.bell.ring();
        }
    }

    /// Ends all waits that go on, or else the next one.
    pub fn signal(&self) {
        self.signals.fetch_add(1, Ordering::SeqCst);
        self.ring();
    }

    /// Where among the signals a wait begins.
    pub fn told(&self) -> u64 {
        self.told.load(Ordering::SeqCst)
    }

    /// Whether a wait that began there is to end.
    pub fn is_signalled(&self, told: u64) -> bool {
        let signals = self.signals.load(Ordering::SeqCst);
        self.told.fetch_max(signals, Ordering::SeqCst);
        signals > told
    }

    /// Before a program polls the descriptor: whether nothing is to be done first. What comes
    /// from now on makes it readable.
    pub fn arm_handed(&self) -> Result<bool> {
        let rung = &self.descriptor()?.rung;
        rung.clear();
        self.arm(rung)
    }

    fn arm(&self, rung: &Arc<Doorbell>) -> Result<bool> {
        // Endpoints' handlers may ring, so nothing is locked here.
        let endpoints = lock(&self.endpoints).clone();
        for attachment in endpoints {
            if !attachment.endpoint.arm_with(rung).map_err(errno)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes back a ring, unless one polls, who has to hear it. What came before is to be looked
    /// for after this, and then [`Bell::sleep`] is called with what it returns.
    fn hush(&self) -> u64 {
        let mut sleepers = lock(&self.sleepers);
        if !sleepers.led && self.rung.clear() {
            sleepers.generation += 1;
        }
        sleepers.generation
    }

    /// Sleeps until something may have come since a [`Bell::hush`], or the time is up.
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

/// When a wait ends that C gives so many milliseconds; less than 0: never.
fn deadline(timeout_ms: std::ffi::c_int) -> Option<Instant> {
    let ms = u64::try_from(timeout_ms).ok()?;
    Instant::now().checked_add(Duration::from_millis(ms))
}

/// Waits for something, with progress: `look` returns it, or `None`; `is_new` says, without
/// progress, whether there is something that this caller's last look has not seen.
///
/// # Errors
/// Theirs.
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
        let since = bell.hush();
        if bell.arm(&bell.rung)? && !is_new()? {
            bell.sleep(since, until)?;
        }
    }
}
