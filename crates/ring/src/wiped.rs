//! Memory that a forked child does not get.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use portolan_sys::memory::{MemoryError, PrivateMemory, PrivateOptions};

/// A slice in private memory that a fork wipes and a core dump leaves out.
/// After a fork the child must not look at it: zeros need not be a `T`. The
/// fork mark in front of every call sees to that.
#[derive(Debug)]
pub struct Wiped<T> {
    memory: PrivateMemory,
    len: usize,
    items: PhantomData<T>,
}

impl<T> Wiped<T> {
    /// `len` items, each as `make` makes it.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn new(len: usize, make: impl Fn() -> T) -> Result<Self, MemoryError> {
        const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= 4096) };
        let options = PrivateOptions {
            wipe_on_fork: true,
            no_dump: true,
            lock: false,
        };
        let bytes = len.saturating_mul(size_of::<T>());
        let memory = PrivateMemory::new(bytes, options)?;
        for i in 0..len {
            // SAFETY: the memory is ours, page-aligned, and holds `len` items.
            unsafe { memory.start().as_ptr().cast::<T>().add(i).write(make()) };
        }
        Ok(Self {
            memory,
            len,
            items: PhantomData,
        })
    }
}

impl<T> Deref for Wiped<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` initialised all `len` items; only a fork changes them
        // behind our back, and then nobody comes here (see the type).
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr().cast(), self.len) }
    }
}

impl<T> DerefMut for Wiped<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above; `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr().cast(), self.len) }
    }
}
