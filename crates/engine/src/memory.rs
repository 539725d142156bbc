//! Memory that a forked child does not get, and memory lent by the program.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use portolan_sys::memory::{MemoryError, PrivateMemory, PrivateOptions};

/// A slice in private memory that a fork wipes and a core dump leaves out.
/// After a fork the child must not look at it: zeros need not be a `T`. The
/// fork mark in front of every call sees to that.
pub(crate) struct Wiped<T> {
    memory: PrivateMemory,
    len: usize,
    items: PhantomData<T>,
}

impl<T> Wiped<T> {
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

/// Bytes that are given away for the time that a message needs them, without
/// a copy, and come back with its completion.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Owned.
    Vec(Vec<u8>),
    /// Shared, for one message to many.
    Shared(Arc<[u8]>),
    /// Always there.
    Static(&'static [u8]),
}

impl Payload {
    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Vec(v) => v,
            Self::Shared(v) => v,
            Self::Static(v) => v,
        }
    }

    /// The bytes as a vector; copies what is shared.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Vec(v) => v,
            Self::Shared(v) => v.to_vec(),
            Self::Static(v) => v.to_vec(),
        }
    }
}

impl From<Vec<u8>> for Payload {
    fn from(v: Vec<u8>) -> Self {
        Self::Vec(v)
    }
}

impl From<Arc<[u8]>> for Payload {
    fn from(v: Arc<[u8]>) -> Self {
        Self::Shared(v)
    }
}

impl From<&'static [u8]> for Payload {
    fn from(v: &'static [u8]) -> Self {
        Self::Static(v)
    }
}

/// Where a long message's bytes are until its operation is done.
#[derive(Debug)]
pub(crate) enum Source {
    Given(Payload),
    Lent(Lent),
}

impl Source {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Given(p) => p.as_slice(),
            Self::Lent(l) => l.as_slice(),
        }
    }
}

/// Bytes that the program has promised to leave alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lent {
    start: *const u8,
    bytes: usize,
}

// SAFETY: whoever made it promised that the bytes stay readable and unchanged,
// from any thread, until the operation is done.
unsafe impl Send for Lent {}

impl Lent {
    /// # Safety
    /// `bytes` bytes at `start` stay valid and unchanged until this value and
    /// every copy of it are gone.
    pub const unsafe fn new(start: *const u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    pub fn as_slice(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: promised in `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

/// Memory that a port's messages are written to.
#[derive(Debug)]
pub struct Buffer(Kind);

#[derive(Debug)]
enum Kind {
    Owned(Vec<u8>),
    Lent(*mut u8, usize),
}

// SAFETY: a lent buffer's maker promised that it is ours alone.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Uses memory of the program that stays its own: `bytes` bytes at `start`.
    ///
    /// # Safety
    /// The memory must be valid for reads and writes, from any thread, and
    /// touched by nobody else outside of the port's handler, until the port
    /// is closed, bound anew or given another buffer, or the endpoint closes.
    #[must_use]
    pub const unsafe fn lent(start: *mut u8, bytes: usize) -> Self {
        Self(Kind::Lent(start, bytes))
    }

    /// Its length, bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Owned(v) => v.len(),
            Kind::Lent(_, bytes) => *bytes,
        }
    }

    /// Whether it has no room at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Kind::Owned(v) => v,
            Kind::Lent(_, 0) => &[],
            // SAFETY: promised in `lent`.
            Kind::Lent(start, bytes) => unsafe { std::slice::from_raw_parts(*start, *bytes) },
        }
    }

    /// The bytes, to write.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Kind::Owned(v) => v,
            Kind::Lent(_, 0) => &mut [],
            // SAFETY: promised in `lent`; `&mut self` makes it exclusive.
            Kind::Lent(start, bytes) => unsafe { std::slice::from_raw_parts_mut(*start, *bytes) },
        }
    }

    /// Where it begins.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        match &mut self.0 {
            Kind::Owned(v) => v.as_mut_ptr(),
            Kind::Lent(start, _) => *start,
        }
    }

    pub(crate) const fn is_lent(&self) -> bool {
        matches!(self.0, Kind::Lent(..))
    }

    /// The vector that it was made of; `None` for lent memory.
    #[must_use]
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self.0 {
            Kind::Owned(v) => Some(v),
            Kind::Lent(..) => None,
        }
    }
}

/// Messages up to the vector's length (not its capacity) fit.
impl From<Vec<u8>> for Buffer {
    fn from(v: Vec<u8>) -> Self {
        Self(Kind::Owned(v))
    }
}
