//! Rings that the kernel has the other end of: those of an AF_XDP socket.

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use portolan_sys::xdp::Ring;

use crate::Corrupt;

/// A frame in a packet area, as the receive and transmit rings name it
/// (`struct xdp_desc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Offset of its first byte in the packet area.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Flags.
    pub options: u32,
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Descriptor {}
    impl Sealed for u64 {}
}

/// What such rings carry: [`Descriptor`], or the offset of a chunk.
pub trait Entry: Copy + sealed::Sealed {}

impl Entry for Descriptor {}
impl Entry for u64 {}

/// The kernel waits to be called (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// An end that reads what the kernel wrote.
#[derive(Debug)]
pub struct KernelConsumer<T> {
    ring: Ring,
    /// Entries that were read.
    read: u32,
    /// Entries that the kernel is known to have written.
    written: u32,
    entries: PhantomData<T>,
}

// SAFETY: the ring belongs to the process; whoever has this end alone reads it.
unsafe impl<T: Entry> Send for KernelConsumer<T> {}

impl<T: Entry> KernelConsumer<T> {
    /// Nobody else may read `ring`.
    ///
    /// # Panics
    /// If it carries other entries.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        assert_eq!(ring.entry_bytes(), size_of::<T>());
        let read = ring.consumer().load(Relaxed);
        Self {
            ring,
            read,
            written: read,
            entries: PhantomData,
        }
    }

    /// How many entries can be read, without a look at those after the last
    /// look as long as there are some.
    ///
    /// # Errors
    /// [`Corrupt`]: more than the ring can hold.
    #[inline]
    pub fn waiting(&mut self) -> Result<u32, Corrupt> {
        if self.read == self.written {
            self.look()
        } else {
            Ok(self.written.wrapping_sub(self.read))
        }
    }

    /// How many entries can be read.
    ///
    /// # Errors
    /// [`Corrupt`]: more than the ring can hold.
    #[inline]
    pub fn look(&mut self) -> Result<u32, Corrupt> {
        let written = self.ring.producer().load(Acquire);
        let waiting = written.wrapping_sub(self.read);
        if waiting > self.ring.count() {
            return Err(Corrupt);
        }
        self.written = written;
        Ok(waiting)
    }

    /// The next entry, if one is known to be there. It stays the kernel's
    /// until [`Self::release`].
    #[inline]
    pub fn take(&mut self) -> Option<T> {
        if self.read == self.written {
            return None;
        }
        let at = (self.read & (self.ring.count() - 1)) as usize;
        self.read = self.read.wrapping_add(1);
        // SAFETY: `at` is below the number of entries, each aligned and as
        // large as T (`new`); the kernel wrote it before the counter that
        // was read with Acquire, and writes it again only after `release`.
        Some(unsafe { self.ring.entries().cast::<T>().add(at).read() })
    }

    /// Gives the room of what was read back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        self.ring.consumer().store(self.read, Release);
    }
}

/// An end that writes what the kernel reads.
#[derive(Debug)]
pub struct KernelProducer<T> {
    ring: Ring,
    /// Entries that were written, whether the kernel knows or not.
    written: u32,
    /// Entries that the kernel is known to have read.
    read: u32,
    entries: PhantomData<T>,
}

// SAFETY: as of `KernelConsumer`.
unsafe impl<T: Entry> Send for KernelProducer<T> {}

impl<T: Entry> KernelProducer<T> {
    /// Nobody else may write `ring`.
    ///
    /// # Panics
    /// If it carries other entries.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        assert_eq!(ring.entry_bytes(), size_of::<T>());
        let written = ring.producer().load(Relaxed);
        let read = ring.consumer().load(Acquire);
        Self {
            ring,
            written,
            read,
            entries: PhantomData,
        }
    }

    /// Writes an entry; false if there is no room. The kernel sees it after
    /// [`Self::submit`].
    #[inline]
    pub fn put(&mut self, entry: T) -> bool {
        let count = self.ring.count();
        if self.written.wrapping_sub(self.read) >= count {
            self.read = self.ring.consumer().load(Acquire);
            // A counter that makes no sense shows as a full ring.
            if self.written.wrapping_sub(self.read) >= count {
                return false;
            }
        }
        let at = (self.written & (count - 1)) as usize;
        // SAFETY: `at` is below the number of entries, each aligned and as
        // large as T (`new`); the kernel has read what was there before, and
        // looks again only after `submit`.
        unsafe { self.ring.entries().cast::<T>().add(at).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows the kernel what was written.
    #[inline]
    pub fn submit(&mut self) {
        self.ring.producer().store(self.written, Release);
    }

    /// Entries that the kernel has not read.
    #[inline]
    #[must_use]
    pub fn pending(&self) -> u32 {
        let read = self.ring.consumer().load(Acquire);
        self.written.wrapping_sub(read)
    }

    /// Whether the kernel has to be called to look.
    #[inline]
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.flags().load(Relaxed) & NEED_WAKEUP != 0
    }
}
