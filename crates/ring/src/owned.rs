//! A value behind its ownership: many threads may see it, one at a time has it.

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, compiler_fence};

use portolan_sys::barrier;

use crate::{Fence, ForkMark, Holder, Ownership};

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
    /// The thread that is in a call, unless the callers are [`Callers::First`]. Named before it
    /// takes the word, and until it has given that back: a signal handler may call in between.
    inside: Holder,
    /// Marker of the helper thread from before it takes the value until after it has given it
    /// back, else 0.
    helping: AtomicU64,
    /// For [`Callers::First`]: marker of the first thread that came, and [`INSIDE`] while it is
    /// in a call.
    caller: AtomicU64,
    callers: Callers,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard only, and the ownership word
// lets one guard exist at a time (the owner's or the helper's; owner threads
// keep each other out by `inside`, or there is one, which `caller` names).
unsafe impl<T: Send> Sync for Owned<T> {}

/// In a thread's marker: it is in a call.
const INSIDE: u64 = 1;

/// An even number that differs between threads that live at the same time; never 0.
#[inline(always)]
fn thread_marker() -> u64 {
    thread_local!(static MARKER: u64 = const { 0 });
    MARKER.with(|m| std::ptr::from_ref(m) as u64)
}

impl<T> Owned<T> {
    /// A value that nobody has. `fence`: see [`Ownership::new`].
    pub fn new(value: T, mark: ForkMark, callers: Callers, fence: Fence) -> Self {
        Self {
            word: Ownership::new(fence),
            mark,
            inside: Holder::new(),
            helping: AtomicU64::new(0),
            caller: AtomicU64::new(0),
            callers,
            value: UnsafeCell::new(value),
        }
    }

    /// Takes it for a call of the program.
    #[inline(always)]
    pub fn enter(&self) -> Result<OwnerGuard<'_, T>, Refused> {
        match self.enter_at_once() {
            Some(guard) => Ok(guard),
            None => self.enter_slow(),
        }
    }

    /// Takes it for the only thread that may have it, if the helper does not have it. `None`:
    /// [`Owned::enter`] does all else.
    #[inline(always)]
    pub fn enter_at_once(&self) -> Option<OwnerGuard<'_, T>> {
        let me = thread_marker();
        if self.mark.is_forked() || me != self.caller.load(Relaxed) {
            return None;
        }
        self.caller.store(me | INSIDE, Relaxed);
        compiler_fence(SeqCst);
        if !self.word.try_acquire() {
            self.caller.store(me, Relaxed);
            return None;
        }
        Some(self.guard())
    }

    #[inline(never)]
    fn enter_slow(&self) -> Result<OwnerGuard<'_, T>, Refused> {
        if self.mark.is_forked() {
            return Err(Refused::Forked);
        }
        let me = thread_marker();
        if self.callers == Callers::First {
            if me != self.caller.load(Relaxed) {
                self.claim(me)?;
            }
            self.caller.store(me | INSIDE, Relaxed);
            compiler_fence(SeqCst);
        } else {
            self.take_among(me)?;
        }
        self.word.acquire();
        Ok(self.guard())
    }

    #[inline(always)]
    const fn guard(&self) -> OwnerGuard<'_, T> {
        OwnerGuard {
            owned: self,
            of_this_thread: PhantomData,
        }
    }

    /// This thread is the first that came.
    ///
    /// # Safety
    /// No other thread has an [`OwnerGuard`] of it, or enters it from now on. The
    /// helper may help: the word keeps it out.
    pub unsafe fn adopt(&self) {
        let me = thread_marker();
        // In a handler this thread stays inside, and so does the helper in one that it runs. Of
        // several callers none is the first.
        if self.callers == Callers::First
            && self.caller.load(Relaxed) != me | INSIDE
            && self.helping.load(Relaxed) != me
        {
            self.caller.store(me, Relaxed);
        }
    }

    /// Keeps other owner threads out.
    #[inline]
    fn take_among(&self, me: u64) -> Result<(), Refused> {
        if self.helping.load(Relaxed) == me {
            return Err(Refused::Inside);
        }
        match self.inside.try_take(me) {
            Ok(()) => {}
            Err(holder) if holder == me => return Err(Refused::Inside),
            Err(_) if self.callers == Callers::OneAtATime => return Err(Refused::Concurrent),
            Err(_) => self.inside.wait(me),
        }
        Ok(())
    }

    #[cold]
    fn claim(&self, me: u64) -> Result<(), Refused> {
        if self.helping.load(Relaxed) == me {
            return Err(Refused::Inside);
        }
        match self.caller.compare_exchange(0, me, Relaxed, Relaxed) {
            Ok(_) => Ok(()),
            Err(caller) if caller == me | INSIDE => Err(Refused::Inside),
            Err(_) => Err(Refused::WrongThread),
        }
    }

    /// Whether another caller waits for it.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.inside.is_awaited()
    }

    /// Takes it for the helper thread, if nobody holds it.
    pub fn try_help(&self) -> Option<HelperGuard<'_, T>> {
        if self.mark.is_forked() {
            return None;
        }
        // An any-thread handler may not call back into the endpoint either.
        self.helping.store(thread_marker(), Relaxed);
        compiler_fence(SeqCst);
        if !self.word.try_help(|| barrier::threads().is_ok()) {
            self.helping.store(0, Relaxed);
            return None;
        }
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
    /// As a mutex's guard it stays in its thread, which the word names.
    of_this_thread: PhantomData<MutexGuard<'a, ()>>,
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
        self.owned.word.release();
        if self.owned.callers == Callers::First {
            compiler_fence(SeqCst);
            let caller = self.owned.caller.load(Relaxed);
            self.owned.caller.store(caller & !INSIDE, Relaxed);
        } else {
            self.owned.inside.leave();
        }
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
        self.owned.word.hand_back();
        compiler_fence(SeqCst);
        self.owned.helping.store(0, Relaxed);
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
    fn all_that_wait_have_their_turn() {
        const TURNS: u32 = 20_000;
        let o = owned(Callers::Any);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..TURNS).for_each(|_| *o.enter().unwrap() += 1));
            }
        });
        assert_eq!(*o.enter().unwrap(), 7 + 4 * TURNS);
    }

    #[test]
    fn a_handler_that_the_helper_runs_is_inside() {
        for callers in [Callers::First, Callers::OneAtATime, Callers::Any] {
            let o = owned(callers);
            let helper = o.try_help().unwrap();
            assert_eq!(o.enter().err(), Some(Refused::Inside));
            drop(helper);
            assert!(o.try_help().is_some());
            drop(o.enter().unwrap());
        }
    }

    #[test]
    fn who_takes_the_place_of_the_first_inside_stays_inside() {
        let o = owned(Callers::First);
        let guard = o.enter().unwrap();
        // SAFETY: no other thread knows it.
        unsafe { o.adopt() };
        assert_eq!(o.enter().err(), Some(Refused::Inside));
        drop(guard);
        drop(o.enter().unwrap());
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
