//! Who lives: a word for each process of a host, in memory that all of them
//! share with whoever watches them.
//!
//! A thread of each process holds its word as a robust futex: the kernel
//! releases it when the thread ends, however it does, long before the memory
//! of a large process is torn down and its pidfd becomes readable. Only a
//! core dump comes before that; [`Pulse::mark_fatal_signals`] is for it.

use std::io;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use rustix::process::Resource;

use crate::features::Disabled;
use crate::futex::{self, Scope, WAIT_ANY_MAX, wait_any, waitv_available};
use crate::memory::{MemoryError, SharedMemory};
use crate::process::{own_pid, soft_limit};
use crate::raw::syscall;

#[cfg(target_arch = "x86_64")]
mod number {
    pub const SET_ROBUST_LIST: usize = 273;
    pub const GET_ROBUST_LIST: usize = 274;
}
#[cfg(target_arch = "aarch64")]
mod number {
    pub const SET_ROBUST_LIST: usize = 99;
    pub const GET_ROBUST_LIST: usize = 100;
}

/// Somebody sleeps on the word (FUTEX_WAITERS).
const WAITERS: u32 = 1 << 31;
/// Its holder has ended (FUTEX_OWNER_DIED).
const OWNER_DIED: u32 = 1 << 30;

/// Without futex_waitv a watcher looks this often whether it is to stop, ns.
const STOP_LOOK_NS: u64 = 100_000_000;

#[repr(C, align(64))]
struct Slot {
    /// The holder's thread number and the kernel's two bits; 0: nobody.
    word: AtomicU32,
}

/// The words of all processes of one host.
#[derive(Debug)]
pub struct Lives(SharedMemory);

impl Lives {
    /// Words for `count` processes, held by nobody.
    ///
    /// # Errors
    /// As [`SharedMemory::create`].
    pub fn create(count: usize) -> Result<Self, MemoryError> {
        SharedMemory::create("portolan-lives", count * size_of::<Slot>()).map(Self)
    }

    /// Those that somebody else has made.
    ///
    /// # Errors
    /// As [`SharedMemory::from_fd`].
    pub fn from_fd(fd: OwnedFd) -> Result<Self, MemoryError> {
        SharedMemory::from_fd(fd, None).map(Self)
    }

    /// A descriptor to pass on; close-on-exec.
    ///
    /// # Errors
    /// As [`SharedMemory::duplicate_fd`].
    pub fn duplicate_fd(&self) -> Result<OwnedFd, MemoryError> {
        self.0.duplicate_fd()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.bytes() / size_of::<Slot>()
    }

    fn slots(&self) -> &[Slot] {
        // SAFETY: the memory is mapped as long as `self` lives, page-aligned
        // and cannot shrink; a slot is an atomic, valid with any content that
        // other processes write.
        unsafe { std::slice::from_raw_parts(self.0.start().cast().as_ptr(), self.count()) }
    }

    /// Whether the holder of word `index` has ended without letting go.
    #[must_use]
    pub fn is_lost(&self, index: usize) -> bool {
        let slot = self.slots().get(index);
        slot.is_some_and(|slot| slot.word.load(Ordering::Acquire) & OWNER_DIED != 0)
    }
}

/// One process's own word.
#[derive(Clone, Debug)]
pub struct Pulse {
    lives: Arc<Lives>,
    index: usize,
}

/// What the kernel reads when a thread ends: `struct robust_list_head` and
/// one entry.
#[repr(C)]
struct Robust {
    first: *mut Entry,
    /// From an entry to its futex.
    offset: isize,
    pending: *mut Entry,
    entry: Entry,
}

#[repr(C)]
struct Entry {
    next: *mut Entry,
}

/// A word that the calling thread holds; it lets go when this is dropped.
pub struct HeldWord<'a> {
    word: &'a AtomicU32,
    /// Read by the kernel, so it stays where it is.
    robust: NonNull<Robust>,
    /// The list that the thread had before: address and length.
    before: (usize, usize),
    not_send: PhantomData<*mut ()>,
}

impl Pulse {
    /// Word `index` of `lives`; none if there are not so many.
    #[must_use]
    pub fn new(lives: Lives, index: usize) -> Option<Self> {
        let lives = Arc::new(lives);
        (index < lives.count()).then_some(Self { lives, index })
    }

    fn word(&self) -> &AtomicU32 {
        &self.lives.slots()[self.index].word
    }

    /// Holds the word until the guard is dropped or this thread ends, which
    /// must not lock robust mutexes of its own meanwhile: a thread has one
    /// list of what it holds.
    ///
    /// # Errors
    /// The kernel's, where a seccomp profile forbids robust lists.
    pub fn hold(&self) -> Result<HeldWord<'_>, Errno> {
        let mut before = (0_usize, 0_usize);
        let to = [
            0,
            &raw mut before.0 as usize,
            &raw mut before.1 as usize,
            0,
            0,
            0,
        ];
        // SAFETY: of the calling thread, into two words of ours.
        unsafe { syscall(number::GET_ROBUST_LIST, to) }?;
        let word = self.word();
        let robust = Box::into_raw(Box::new(Robust {
            first: ptr::null_mut(),
            offset: 0,
            pending: ptr::null_mut(),
            entry: Entry {
                next: ptr::null_mut(),
            },
        }));
        // SAFETY: just made, by nobody else known.
        unsafe {
            let entry = &raw mut (*robust).entry;
            (*robust).first = entry;
            (*entry).next = (&raw mut (*robust).first).cast();
            (*robust).offset = (word.as_ptr() as isize).wrapping_sub(entry as isize);
        }
        let thread = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        word.store(thread, Ordering::Release);
        let list = [robust as usize, 3 * size_of::<usize>(), 0, 0, 0, 0];
        // SAFETY: the list lives until `HeldWord` is dropped, which comes before
        // the thread can end in any way but with the process; the futex is
        // mapped as long as `self` is borrowed.
        let set = unsafe { syscall(number::SET_ROBUST_LIST, list) };
        let robust = NonNull::new(robust).expect("boxed");
        let held = HeldWord {
            word,
            robust,
            before,
            not_send: PhantomData,
        };
        set?;
        // Watchers sleep on the word that nobody held.
        futex::wake(word, u32::MAX, Scope::Shared);
        Ok(held)
    }

    /// Lets a fatal signal that dumps core release the word before the dump,
    /// which may take long: for each such signal to which the program has not
    /// given a handler, and only where cores are dumped. The default action
    /// follows as it would have. Once in a process; further calls do nothing.
    pub fn mark_fatal_signals(&self) {
        // The handlers may run at any time from now on, so the word stays
        // mapped until the process ends.
        if !dumps_core() || KEPT.set(Arc::clone(&self.lives)).is_err() {
            return;
        }
        MARKING_PROCESS.store(own_pid(), Ordering::Relaxed);
        MARKED.store(self.word().as_ptr(), Ordering::Release);
        for signal in DUMPING {
            // SAFETY: both actions are valid; the handler uses nothing but
            // atomics and system calls.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(signal, ptr::null(), &raw mut action) == 0
                    && action.sa_sigaction == libc::SIG_DFL
                {
                    action = std::mem::zeroed();
                    let handler: extern "C" fn(libc::c_int) = mark;
                    action.sa_sigaction = handler as usize;
                    action.sa_flags = libc::SA_ONSTACK;
                    libc::sigaction(signal, &raw const action, ptr::null_mut());
                }
            }
        }
    }
}

/// Signals whose default action is to dump core.
const DUMPING: [libc::c_int; 9] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGQUIT,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// The word that the handler releases, and whose it is: a forked child has
/// the handler, but no part in the job.
static KEPT: OnceLock<Arc<Lives>> = OnceLock::new();
static MARKED: AtomicPtr<u32> = AtomicPtr::new(ptr::null_mut());
static MARKING_PROCESS: AtomicU32 = AtomicU32::new(0);

/// Releases the word, then lets the signal do what it does by default.
extern "C" fn mark(signal: libc::c_int) {
    let word = MARKED.load(Ordering::Acquire);
    if !word.is_null() && MARKING_PROCESS.load(Ordering::Relaxed) == own_pid() {
        // SAFETY: never unmapped once it stands there.
        let word = unsafe { AtomicU32::from_ptr(word) };
        word.fetch_or(OWNER_DIED, Ordering::AcqRel);
        futex::wake(word, u32::MAX, Scope::Shared);
    }
    // SAFETY: both calls may be made in a handler. The signal is blocked
    // until it returns, and then takes its default action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &raw const action, ptr::null_mut());
        libc::raise(signal);
    }
}

/// Whether a process that a signal ends may be kept waiting by its core dump.
fn dumps_core() -> bool {
    let piped = std::fs::read("/proc/sys/kernel/core_pattern").is_ok_and(|p| p.starts_with(b"|"));
    piped || soft_limit(Resource::Core) != Some(0)
}

impl Drop for HeldWord<'_> {
    fn drop(&mut self) {
        let list = [self.before.0, self.before.1, 0, 0, 0, 0];
        // SAFETY: what the thread had before `hold`. It cannot fail for the
        // thread that has set one.
        let restored = unsafe { syscall(number::SET_ROBUST_LIST, list) };
        if self.word.swap(0, Ordering::AcqRel) & WAITERS != 0 {
            futex::wake(self.word, u32::MAX, Scope::Shared);
        }
        if restored.is_ok() {
            // SAFETY: made by `hold` from a box; the kernel knows of it no more.
            drop(unsafe { Box::from_raw(self.robust.as_ptr()) });
        }
    }
}

/// Watches all words from threads of its own, which end with it.
#[derive(Debug)]
pub struct LifeWatch {
    stop: Arc<AtomicU32>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl LifeWatch {
    /// Calls `lost` from another thread for each word whose holder ended
    /// without letting go, once. One thread watches as many words as the
    /// kernel lets it.
    ///
    /// # Errors
    /// The kernel's, if there can be no further thread.
    pub fn start(
        lives: &Arc<Lives>,
        disabled: &Disabled,
        lost: impl Fn(usize) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        let together = if disabled.waitv || !waitv_available() {
            1
        } else {
            WAIT_ANY_MAX - 1
        };
        let mut watch = Self {
            stop: Arc::new(AtomicU32::new(0)),
            threads: Vec::new(),
        };
        let count = lives.count();
        for first in (0..count).step_by(together) {
            let (lives, stop) = (Arc::clone(lives), Arc::clone(&watch.stop));
            let lost = lost.clone();
            let indices = (first..count.min(first + together)).collect();
            let thread = std::thread::Builder::new()
                .name("portolan-lives".to_owned())
                .stack_size(64 << 10)
                .spawn(move || watch_some(&lives, indices, &stop, lost, together > 1))?;
            watch.threads.push(thread);
        }
        Ok(watch)
    }
}

impl Drop for LifeWatch {
    fn drop(&mut self) {
        self.stop.store(1, Ordering::Release);
        futex::wake(&self.stop, u32::MAX, Scope::Shared);
        for thread in self.threads.drain(..) {
            // Its panic would be a bug of ours, reported by the thread itself.
            let _ = thread.join();
        }
    }
}

fn watch_some(
    lives: &Lives,
    mut indices: Vec<usize>,
    stop: &AtomicU32,
    lost: impl Fn(usize),
    together: bool,
) {
    while stop.load(Ordering::Acquire) == 0 {
        let mut words = vec![(stop, 0)];
        indices.retain(|&index| {
            let word = &lives.slots()[index].word;
            let mut seen = word.load(Ordering::Acquire);
            // The kernel wakes only whom the word announces.
            while seen & (OWNER_DIED | WAITERS) == 0 && seen != 0 {
                let told = seen | WAITERS;
                match word.compare_exchange(seen, told, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => seen = told,
                    Err(now) => seen = now,
                }
            }
            let gone = seen & OWNER_DIED != 0;
            if gone {
                lost(index);
            } else {
                words.push((word, seen));
            }
            !gone
        });
        let slept = if together {
            wait_any(&words, None, Scope::Shared)
        } else if let Some(&(word, seen)) = words.get(1) {
            futex::wait(word, seen, Some(STOP_LOOK_NS), Scope::Shared)
        } else {
            futex::wait(stop, 0, None, Scope::Shared)
        };
        if slept.is_err() {
            // Ours to mend; the pidfds behind this still tell.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(120);

    fn pulse(lives: &Lives, index: usize) -> Pulse {
        let lives = Lives::from_fd(lives.duplicate_fd().unwrap()).unwrap();
        Pulse::new(lives, index).unwrap()
    }

    fn watch(count: usize, disabled: &Disabled) -> (Arc<Lives>, LifeWatch, mpsc::Receiver<usize>) {
        let lives = Arc::new(Lives::create(count).unwrap());
        let (tell, told) = mpsc::channel();
        let watch = LifeWatch::start(&lives, disabled, move |index| {
            tell.send(index).unwrap();
        });
        (lives, watch.unwrap(), told)
    }

    #[test]
    fn a_thread_that_ends_with_its_word_is_lost_and_one_that_lets_go_is_not() {
        for waitv in [false, true] {
            let disabled = Disabled {
                waitv,
                ..Disabled::default()
            };
            let (lives, watch, told) = watch(200, &disabled);
            for index in [0, 150] {
                let mine = pulse(&lives, index);
                std::thread::spawn(move || drop(mine.hold().unwrap()))
                    .join()
                    .unwrap();
            }
            for index in [199, 3] {
                let mine = pulse(&lives, index);
                std::thread::spawn(move || {
                    std::mem::forget(mine.hold().unwrap());
                    // The kernel reads the word when the thread is gone.
                    std::mem::forget(mine);
                })
                .join()
                .unwrap();
                assert_eq!(told.recv_timeout(PATIENCE), Ok(index));
                assert!(lives.is_lost(index));
            }
            drop(watch);
            assert_eq!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected));
            assert!(!lives.is_lost(0) && !lives.is_lost(150) && !lives.is_lost(200));
        }
    }

    #[test]
    fn a_process_that_aborts_marks_its_word_before_it_dumps_core() {
        let (lives, _watch, told) = watch(1, &Disabled::default());
        let mine = pulse(&lives, 0);
        let mut limit = rustix::process::getrlimit(rustix::process::Resource::Core);
        limit.current = limit.maximum.map(|m| m.min(1)).or(Some(1));
        rustix::process::setrlimit(rustix::process::Resource::Core, limit).unwrap();
        assert!(dumps_core());
        // SAFETY: the child makes only system calls and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            mine.mark_fatal_signals();
            // SAFETY: ends this process.
            unsafe { libc::abort() };
        }
        assert_eq!(told.recv_timeout(PATIENCE), Ok(0));
        let mut status = 0;
        // SAFETY: our own child, into a word of ours.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT);
    }

    #[test]
    fn a_word_that_is_not_there_is_refused() {
        let lives = Lives::create(1).unwrap();
        // A page holds more words than were asked for, but no more than fit.
        assert!(Pulse::new(lives, 1 << 20).is_none());
    }
}
