//! Typed tables over memory of their own, and a mark that shows a fork.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use portolan_sys::memory::{MemoryError, PrivateMemory, PrivateOptions};

/// Plain data: may be moved as bytes, and all bytes zero is a valid value.
///
/// # Safety
/// All of that must hold: no pointers, no references, no drop, no niche that
/// excludes zero.
pub unsafe trait Plain: Copy + 'static {}

macro_rules! plain {
    ($($t:ty),*) => {$(
        // SAFETY: an integer; every pattern of bytes is valid.
        unsafe impl Plain for $t {}
    )*};
}
plain!(
    u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize
);

// SAFETY: as its elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// An owned slice of plain data in page-aligned memory of its own, zero at
/// first. Reached by dereference.
#[derive(Debug)]
pub struct Table<T: Plain> {
    memory: PrivateMemory,
    len: usize,
    items: PhantomData<T>,
}

impl<T: Plain> Table<T> {
    /// A table of `len` zeroed items that a fork wipes and a core dump leaves out.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn wiped(len: usize) -> Result<Self, MemoryError> {
        let options = PrivateOptions {
            wipe_on_fork: true,
            no_dump: true,
            lock: false,
        };
        Self::new(len, options)
    }

    /// A table of `len` zeroed items.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn new(len: usize, options: PrivateOptions) -> Result<Self, MemoryError> {
        const { assert!(align_of::<T>() <= 4096) };
        // An overflow asks for more than there is, and is refused.
        let bytes = len.saturating_mul(size_of::<T>());
        Ok(Self {
            memory: PrivateMemory::new(bytes, options)?,
            len,
            items: PhantomData,
        })
    }
}

impl<T: Plain> Deref for Table<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: the memory is ours, page-aligned, of len × size bytes (see
        // `new`), zero at first, and zero is a T by `Plain`.
        unsafe { std::slice::from_raw_parts(self.memory.start().as_ptr().cast(), self.len) }
    }
}

impl<T: Plain> DerefMut for Table<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().as_ptr().cast(), self.len) }
    }
}

/// Tells a forked child from its parent: one load, no system call.
#[derive(Debug)]
pub struct ForkMark(Table<u64>);

impl ForkMark {
    /// A mark of this process.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn new() -> Result<Self, MemoryError> {
        let options = PrivateOptions {
            wipe_on_fork: true,
            ..PrivateOptions::default()
        };
        let mut table = Table::new(1, options)?;
        table[0] = 1;
        Ok(Self(table))
    }

    /// Whether this is a child forked after the mark was made.
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        // SAFETY: `new` has made one item. Volatile: a fork changes the value
        // behind the compiler's back.
        unsafe { self.0.as_ptr().read_volatile() == 0 }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_zero_and_keeps_what_is_written() {
        let mut t = Table::<[u32; 3]>::new(1000, PrivateOptions::default()).unwrap();
        assert_eq!(t.len(), 1000);
        assert!(t.iter().all(|x| *x == [0; 3]));
        t[999] = [1, 2, 3];
        assert_eq!(t[999], [1, 2, 3]);
        assert!(
            Table::<u64>::new(0, PrivateOptions::default())
                .unwrap()
                .is_empty()
        );
        assert!(Table::<u64>::new(usize::MAX, PrivateOptions::default()).is_err());
    }

    #[test]
    fn the_maker_is_not_forked() {
        assert!(!ForkMark::new().unwrap().is_forked());
    }
}
