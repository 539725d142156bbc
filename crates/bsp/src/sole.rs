//! A value for one thread and one call at a time, without the cost of a lock.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// No owner.
const NOBODY: usize = 0;

/// Returns a number that no other living thread has: its thread pointer. In a shared library
/// the address of a thread-local variable would cost a call.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline]
fn here() -> usize {
    let here;
    // SAFETY: reads the thread pointer, where the ABI has it, and nothing else.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) here,
            options(pure, readonly, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) here,
            options(pure, nomem, nostack, preserves_flags));
    }
    here
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn here() -> usize {
    thread_local! {
        static HERE: Cell<bool> = const { Cell::new(false) };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

pub struct Sole<T> {
    /// Thread that called first.
    owner: AtomicUsize,
    /// The owner holds the value.
    held: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: only the owner accesses `held` and `value`, and the owner never changes. A thread
// with the same number began after the owner had ended.
unsafe impl<T: Send> Sync for Sole<T> {}

/// Why the value cannot be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Another thread called first.
    Thread,
    /// Another call holds the value.
    Call,
}

/// Guard of the value; stays in its thread.
pub struct Held<'a, T>(&'a Sole<T>, PhantomData<*const T>);

impl<T> Sole<T> {
    pub const fn new(value: T) -> Self {
        Self {
            owner: AtomicUsize::new(NOBODY),
            held: Cell::new(false),
            value: UnsafeCell::new(value),
        }
    }

    #[inline]
    pub fn hold(&self) -> Result<Held<'_, T>, Busy> {
        let here = here();
        if self.owner.load(Ordering::Relaxed) != here {
            self.claim(here)?;
        }
        if self.held.replace(true) {
            return Err(Busy::Call);
        }
        Ok(Held(self, PhantomData))
    }

    #[cold]
    fn claim(&self, here: usize) -> Result<(), Busy> {
        let claimed =
            (self.owner).compare_exchange(NOBODY, here, Ordering::Relaxed, Ordering::Relaxed);
        claimed.map(|_| ()).map_err(|_| Busy::Thread)
    }
}

impl<T> Drop for Held<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.held.set(false);
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_has_it_one_call_at_a_time() {
        static VALUE: Sole<u32> = Sole::new(1);
        let mut held = VALUE.hold().unwrap();
        *held += 1;
        assert_eq!(VALUE.hold().err(), Some(Busy::Call));
        drop(held);
        let other = std::thread::spawn(|| VALUE.hold().err()).join();
        assert_eq!(other.unwrap(), Some(Busy::Thread));
        assert_eq!(*VALUE.hold().unwrap(), 2);
    }
}
