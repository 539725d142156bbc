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
    room: usize,
    len: usize,
    items: PhantomData<T>,
}

impl<T> Wiped<T> {
    /// `len` items, each as `make` makes it.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn new(len: usize, make: impl Fn() -> T) -> Result<Self, MemoryError> {
        let mut items = Self::with_room(len)?;
        items.grow(len, make);
        Ok(items)
    }

    /// None yet, with memory for so many, which is not touched before they are there.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn with_room(room: usize) -> Result<Self, MemoryError> {
        const { assert!(!std::mem::needs_drop::<T>() && align_of::<T>() <= 4096) };
        let options = PrivateOptions {
            wipe_on_fork: true,
            no_dump: true,
            lock: false,
        };
        let bytes = room.saturating_mul(size_of::<T>());
        Ok(Self {
            memory: PrivateMemory::new(bytes, options)?,
            room,
            len: 0,
            items: PhantomData,
        })
    }

    /// There are `len` items from now on, as far as there is memory; new ones as `make` makes
    /// them.
    pub fn grow(&mut self, len: usize, make: impl Fn() -> T) {
        for i in self.len..len.min(self.room) {
            // SAFETY: the memory is ours, page-aligned, and holds `room` items.
            unsafe {
                self.memory
                    .start()
                    .as_ptr()
                    .cast::<T>()
                    .add(i)
                    .write(make())
            };
            self.len = i + 1;
        }
    }
}

impl<T> Deref for Wiped<T> {
    type Target = [T];
    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `grow` initialised all `len` items; only a fork changes them
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
