//! Memory that somebody else owns and has promised to us for a while.

/// Bytes that their owner has promised to leave alone.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    start: *const u8,
    bytes: usize,
}

// SAFETY: whoever made it promised that the bytes stay readable and unchanged,
// from any thread, as long as it exists.
unsafe impl Send for Lent {}

impl Lent {
    /// `bytes` bytes at `start`.
    ///
    /// # Safety
    /// `bytes` bytes at `start` stay valid and unchanged until this value and
    /// every copy of it are gone.
    #[must_use]
    pub const unsafe fn new(start: *const u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: promised in `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

/// Bytes that their owner has promised not to touch.
#[derive(Debug)]
pub struct LentMut {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: whoever made it promised that the bytes are ours alone, on any thread.
unsafe impl Send for LentMut {}

impl LentMut {
    /// `bytes` bytes at `start`.
    ///
    /// # Safety
    /// They are valid for reads and writes, from any thread, and touched by
    /// nobody else until this value is gone.
    #[must_use]
    pub const unsafe fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// How many.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: promised in `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    /// The bytes, to write.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: promised in `new`; `&mut self` makes it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// Where they begin.
    #[must_use]
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start
    }
}

/// Memory that its owner lets other processes read and write, by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    start: u64,
    bytes: u64,
}

impl Exposed {
    /// `bytes` bytes at `start`; they need not be mapped, all or any of them.
    ///
    /// # Safety
    /// Until whoever is given this says that it is done, whatever of them is
    /// mapped is memory that others may read at any time and, where they are
    /// allowed to write, change at any time: no reference to it is held then
    /// that excludes this.
    #[must_use]
    pub const unsafe fn new(start: u64, bytes: u64) -> Self {
        Self { start, bytes }
    }

    /// Address of the first byte.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// How many.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}
