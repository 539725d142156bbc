//! The endpoint's state behind its ownership word.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portolan_ring::{Fence, ForkMark, Ownership};
use portolan_sys::barrier;

use crate::error::Misuse;

/// Which threads may call an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// Only the first that calls it; calls of others give
    /// [`Misuse::WrongThread`].
    #[default]
    Single,
    /// Any, but the program sees to it that no two call at once.
    Serialized,
    /// Any at any time; calls wait for each other.
    Multiple,
}

/// A value that only the holder of its ownership word reaches.
pub(crate) struct Owned<T> {
    word: Ownership,
    mark: ForkMark,
    /// Marker of the thread that is in a call, 0 for none.
    inside: AtomicUsize,
    /// Marker of the first thread that called a [`Threads::Single`] endpoint.
    caller: AtomicUsize,
    threads: Threads,
    calls: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and the ownership word
// lets one guard exist at a time (the owner's or the helper's; several owner
// threads keep each other out by `calls`, or by the program's promise).
unsafe impl<T: Send> Sync for Owned<T> {}

/// A number that differs between threads that live at the same time; never 0.
#[inline(always)]
fn thread_marker() -> usize {
    thread_local!(static MARKER: u8 = const { 0 });
    MARKER.with(|m| std::ptr::from_ref(m) as usize)
}

impl<T> Owned<T> {
    pub fn new(value: T, mark: ForkMark, threads: Threads, fence: Fence) -> Self {
        Self {
            word: Ownership::new(fence),
            mark,
            inside: AtomicUsize::new(0),
            caller: AtomicUsize::new(0),
            threads,
            calls: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes it for a call of the program.
    #[inline(always)]
    pub fn enter(&self) -> Result<OwnerGuard<'_, T>, Misuse> {
        if self.mark.is_forked() {
            return Err(Misuse::Forked);
        }
        let me = thread_marker();
        if self.inside.load(Relaxed) == me {
            return Err(Misuse::InHandler);
        }
        let mut lock = None;
        if self.threads != Threads::Serialized {
            if self.threads == Threads::Multiple {
                lock = Some(self.calls.lock().unwrap_or_else(PoisonError::into_inner));
            } else if me != self.caller.load(Relaxed) {
                self.claim(me)?;
            }
        }
        self.word.acquire();
        self.inside.store(me, Relaxed);
        Ok(OwnerGuard { owned: self, lock })
    }

    #[cold]
    fn claim(&self, me: usize) -> Result<(), Misuse> {
        match self.caller.compare_exchange(0, me, Relaxed, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Misuse::WrongThread),
        }
    }

    /// Takes it for the helper thread, if nobody holds it.
    pub fn try_help(&self) -> Option<HelperGuard<'_, T>> {
        if self.mark.is_forked() || !self.word.try_help(|| barrier::threads().is_ok()) {
            return None;
        }
        // An any-thread handler may not call back into the endpoint either.
        self.inside.store(thread_marker(), Relaxed);
        Some(HelperGuard { owned: self })
    }

    /// Whether this is a forked child of the process that made it.
    pub fn is_forked(&self) -> bool {
        self.mark.is_forked()
    }

    /// How often the program has called; unchanged: it made no call.
    pub fn calls(&self) -> u32 {
        self.word.calls()
    }
}

/// The program's hold.
pub(crate) struct OwnerGuard<'a, T> {
    owned: &'a Owned<T>,
    lock: Option<MutexGuard<'a, ()>>,
}

impl<T> Deref for OwnerGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists while the word is held (see `Sync`).
        unsafe { &*self.owned.value.get() }
    }
}

impl<T> DerefMut for OwnerGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `&mut self` makes the borrow the only one.
        unsafe { &mut *self.owned.value.get() }
    }
}

impl<T> Drop for OwnerGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.owned.inside.store(0, Relaxed);
        self.owned.word.release();
        self.lock = None;
    }
}

/// The helper thread's hold.
pub(crate) struct HelperGuard<'a, T> {
    owned: &'a Owned<T>,
}

impl<T> HelperGuard<'_, T> {
    /// Whether the program waits for it.
    pub fn is_wanted(&self) -> bool {
        self.owned.word.is_wanted()
    }
}

impl<T> Deref for HelperGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the guard exists while the word is held (see `Sync`).
        unsafe { &*self.owned.value.get() }
    }
}

impl<T> DerefMut for HelperGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; `&mut self` makes the borrow the only one.
        unsafe { &mut *self.owned.value.get() }
    }
}

impl<T> Drop for HelperGuard<'_, T> {
    fn drop(&mut self) {
        self.owned.inside.store(0, Relaxed);
        self.owned.word.hand_back();
    }
}
