//! A value behind its ownership: many threads may see it, one at a time has it.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use portolan_sys::barrier;

use crate::{Fence, ForkMark, Ownership};

/// Which threads may have the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Callers {
    /// Only the first that comes.
    #[default]
    First,
    /// Any, while no other has it: one that comes meanwhile is refused.
    OneAtATime,
    /// Any: they wait for each other.
    Any,
}

/// Why a thread does not get the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This is a child forked from the process that made it.
    Forked,
    /// This thread has it already.
    Inside,
    /// It is another thread's.
    WrongThread,
    /// Another thread has it now.
    Concurrent,
}

/// A value that only the holder of its ownership word reaches.
pub struct Owned<T> {
    word: Ownership,
    mark: ForkMark,
    /// Marker of the thread that is in a call, 0 for none.
    inside: AtomicUsize,
    /// Marker of the first thread that came, for [`Callers::First`].
    caller: AtomicUsize,
    callers: Callers,
    calls: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and the ownership word
// lets one guard exist at a time (the owner's or the helper's; owner threads
// keep each other out by `calls`, or there is one, which `caller` names).
unsafe impl<T: Send> Sync for Owned<T> {}

/// A number that differs between threads that live at the same time; never 0.
#[inline(always)]
fn thread_marker() -> usize {
    thread_local!(static MARKER: u8 = const { 0 });
    MARKER.with(|m| std::ptr::from_ref(m) as usize)
}

impl<T> Owned<T> {
    /// A value that nobody has. `fence`: see [`Ownership::new`].
    pub fn new(value: T, mark: ForkMark, callers: Callers, fence: Fence) -> Self {
        Self {
            word: Ownership::new(fence),
            mark,
            inside: AtomicUsize::new(0),
            caller: AtomicUsize::new(0),
            callers,
            calls: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes it for a call of the program.
    #[inline(always)]
    pub fn enter(&self) -> Result<OwnerGuard<'_, T>, Refused> {
        if self.mark.is_forked() {
            return Err(Refused::Forked);
        }
        let me = thread_marker();
        if self.inside.load(Relaxed) == me {
            return Err(Refused::Inside);
        }
        let mut lock = None;
        if self.callers == Callers::First {
            if me != self.caller.load(Relaxed) {
                self.claim(me)?;
            }
        } else {
            lock = Some(self.lock()?);
        }
        self.word.acquire();
        self.inside.store(me, Relaxed);
        Ok(OwnerGuard { owned: self, lock })
    }

    /// This thread is the first that came.
    ///
    /// # Safety
    /// No other thread has an [`OwnerGuard`] of it, or enters it from now on. The
    /// helper may help: the word keeps it out.
    pub unsafe fn adopt(&self) {
        self.caller.store(thread_marker(), Relaxed);
    }

    fn lock(&self) -> Result<MutexGuard<'_, ()>, Refused> {
        if self.callers == Callers::Any {
            // Nothing of value is behind this lock when its holder panics.
            return Ok(self.calls.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match self.calls.try_lock() {
            Ok(lock) => Ok(lock),
            Err(TryLockError::Poisoned(lock)) => Ok(lock.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Refused::Concurrent),
        }
    }

    #[cold]
    fn claim(&self, me: usize) -> Result<(), Refused> {
        match self.caller.compare_exchange(0, me, Relaxed, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Refused::WrongThread),
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

    /// Where the value lies; it stays there while this does.
    pub fn address(&self) -> u64 {
        self.value.get() as u64
    }

    /// How often the program has called; unchanged: it made no call.
    pub fn calls(&self) -> u32 {
        self.word.calls()
    }
}

/// The program's hold.
pub struct OwnerGuard<'a, T> {
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
pub struct HelperGuard<'a, T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(callers: Callers) -> Owned<u32> {
        Owned::new(7, ForkMark::new().unwrap(), callers, Fence::Local)
    }

    #[test]
    fn one_thread_has_it_at_a_time() {
        for callers in [Callers::First, Callers::OneAtATime, Callers::Any] {
            let o = owned(callers);
            let guard = o.enter().unwrap();
            assert_eq!(o.enter().err(), Some(Refused::Inside));
            assert!(o.try_help().is_none());
            std::thread::scope(|s| {
                let other = s.spawn(|| match callers {
                    Callers::First => assert_eq!(o.enter().err(), Some(Refused::WrongThread)),
                    Callers::OneAtATime => assert_eq!(o.enter().err(), Some(Refused::Concurrent)),
                    Callers::Any => *o.enter().unwrap() += 1,
                });
                std::thread::sleep(std::time::Duration::from_millis(5));
                drop(guard);
                other.join().unwrap();
            });
            assert_eq!(*o.enter().unwrap(), 7 + u32::from(callers == Callers::Any));
        }
    }

    #[test]
    fn another_thread_takes_the_place_of_the_first() {
        let o = owned(Callers::First);
        drop(o.enter().unwrap());
        std::thread::scope(|s| {
            s.spawn(|| {
                assert_eq!(o.enter().err(), Some(Refused::WrongThread));
                // SAFETY: the first thread waits for the end of this one, and
                // is refused from now on.
                unsafe { o.adopt() };
                *o.enter().unwrap() += 1;
            });
        });
        assert_eq!(o.enter().err(), Some(Refused::WrongThread));
    }
}
