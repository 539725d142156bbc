//! A value that one thread has, and one call at a time: a lock without what that costs.

use std::cell::{Cell, UnsafeCell};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Nobody's.
const NOBODY: usize = 0;

thread_local! {
    /// Its address names the thread.
    static HERE: Cell<bool> = const { Cell::new(false) };
}

pub struct Sole<T> {
    /// The thread that asked first.
    owner: AtomicUsize,
    /// That thread holds it.
    held: Cell<bool>,
    value: UnsafeCell<T>,
}

// SAFETY: only the owner comes to `held` and `value`, and it never changes. A thread whose
// address is the same began when the owner had ended.
unsafe impl<T: Send> Sync for Sole<T> {}

/// Why it cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Busy {
    /// Another thread asked first.
    Thread,
    /// It is held.
    Call,
}

/// It stays in its thread.
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
        let here = HERE.with(|here| std::ptr::from_ref(here).addr());
        if self.owner.load(Ordering::Relaxed) != here {
            let claimed =
                (self.owner).compare_exchange(NOBODY, here, Ordering::Relaxed, Ordering::Relaxed);
            claimed.map_err(|_| Busy::Thread)?;
        }
        if self.held.replace(true) {
            return Err(Busy::Call);
        }
        Ok(Held(self, PhantomData))
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
        // SAFETY: it is held once, by this.
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
