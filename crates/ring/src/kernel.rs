//! Rings that the kernel has the other end of: those of an AF_XDP socket.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use portolan_sys::xdp::Ring;

use crate::{Corrupt, Offsets};

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

impl Descriptor {
    /// In its options: the packet goes on in the next descriptor
    /// (`XDP_PKT_CONTD`).
    pub const CONTINUED: u32 = 1;
}

/// The kernel waits to be called (`XDP_RING_NEED_WAKEUP`).
const NEED_WAKEUP: u32 = 1;

/// An end that reads what the kernel wrote.
#[derive(Debug)]
pub struct KernelConsumer {
    ring: Ring,
    /// Entries that were read.
    read: u32,
    /// Entries that the kernel is known to have written.
    written: u32,
}

// SAFETY: the ring belongs to the process; whoever has this end alone reads it.
unsafe impl Send for KernelConsumer {}

impl KernelConsumer {
    /// Nobody else may read `ring`.
    ///
    /// # Panics
    /// If it carries other entries.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        assert_eq!(ring.entry_bytes(), size_of::<Descriptor>());
        let read = ring.consumer().load(Relaxed);
        Self {
            ring,
            read,
            written: read,
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
    pub fn take(&mut self) -> Option<Descriptor> {
        if self.read == self.written {
            return None;
        }
        let at = (self.read & (self.ring.count() - 1)) as usize;
        self.read = self.read.wrapping_add(1);
        // SAFETY: `at` is below the number of entries, each aligned and as
        // large as a descriptor (`new`); the kernel wrote it before the counter that
        // was read with Acquire, and writes it again only after `release`.
        Some(unsafe { self.ring.entries().cast::<Descriptor>().add(at).read() })
    }

    /// Gives the room of what was read back to the kernel.
    #[inline]
    pub fn release(&mut self) {
        self.ring.consumer().store(self.read, Release);
    }
}

/// An end that writes what the kernel reads.
#[derive(Debug)]
pub struct KernelProducer {
    ring: Ring,
    /// Entries that were written, whether the kernel knows or not.
    written: u32,
    /// Entries that the kernel is known to have read.
    read: u32,
}

// SAFETY: as of `KernelConsumer`.
unsafe impl Send for KernelProducer {}

impl KernelProducer {
    /// Nobody else may write `ring`.
    ///
    /// # Panics
    /// If it carries other entries.
    #[must_use]
    pub fn new(ring: Ring) -> Self {
        assert_eq!(ring.entry_bytes(), size_of::<Descriptor>());
        let written = ring.producer().load(Relaxed);
        let read = ring.consumer().load(Acquire);
        Self {
            ring,
            written,
            read,
        }
    }

    /// Writes an entry; false if there is no room. The kernel sees it after
    /// [`Self::submit`].
    #[inline]
    pub fn put(&mut self, entry: Descriptor) -> bool {
        let count = self.ring.count();
        if self.written.wrapping_sub(self.read) >= count {
            self.read = self.ring.consumer().load(Acquire);
            // A counter that makes no sense shows as a full ring.
            if self.written.wrapping_sub(self.read) >= count {
                return false;
            }
        }
        self.write(entry);
        true
    }

    /// Writes all of these entries; false, and none, if there is no room for
    /// all.
    pub fn put_all(&mut self, entries: impl ExactSizeIterator<Item = Descriptor>) -> bool {
        self.read = self.ring.consumer().load(Acquire);
        let used = self.written.wrapping_sub(self.read);
        let room = self.ring.count().saturating_sub(used);
        let fits = entries.len() <= room as usize;
        if fits {
            entries.for_each(|entry| self.write(entry));
        }
        fits
    }

    /// Writes an entry where there is room.
    #[inline(always)]
    fn write(&mut self, entry: Descriptor) {
        let at = (self.written & (self.ring.count() - 1)) as usize;
        // SAFETY: `at` is below the number of entries, each aligned and as
        // large as a descriptor (`new`); the kernel has read what was there before, and
        // looks again only after `submit`.
        unsafe {
            self.ring
                .entries()
                .cast::<Descriptor>()
                .add(at)
                .write(entry)
        };
        self.written = self.written.wrapping_add(1);
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

/// A ring whose entries are chunks, by number: the fill ring or the completion
/// ring. Several processes may have it, and take turns ([`Share`](crate::Share)).
#[derive(Debug)]
pub struct ChunkRing {
    ring: Ring,
    chunk_bytes: u64,
}

// SAFETY: the mapping belongs to the process; what is read and written there
// is plain numbers, by volatile access, and none of them is believed.
unsafe impl Send for ChunkRing {}

impl ChunkRing {
    /// Of chunks with so many bytes.
    ///
    /// # Panics
    /// If the ring has other entries, or chunks no bytes.
    #[must_use]
    pub fn new(ring: Ring, chunk_bytes: u32) -> Self {
        assert!(ring.entry_bytes() == size_of::<u64>() && chunk_bytes > 0);
        Self {
            ring,
            chunk_bytes: chunk_bytes.into(),
        }
    }

    /// Whether the kernel has to be called to look.
    #[inline]
    #[must_use]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.flags().load(Relaxed) & NEED_WAKEUP != 0
    }

    #[inline]
    fn at(&self, at: u32) -> *mut u64 {
        let at = (at & (self.ring.count() - 1)) as usize;
        // SAFETY: `at` is below the number of entries, each eight bytes.
        unsafe { self.ring.entries().as_ptr().cast::<u64>().add(at) }
    }
}

impl Offsets for ChunkRing {
    #[inline]
    fn count(&self) -> u32 {
        self.ring.count()
    }

    #[inline]
    fn producer(&self) -> u32 {
        self.ring.producer().load(Acquire)
    }

    #[inline]
    fn set_producer(&self, to: u32) {
        self.ring.producer().store(to, Release);
    }

    #[inline]
    fn consumer(&self) -> u32 {
        self.ring.consumer().load(Acquire)
    }

    #[inline]
    fn set_consumer(&self, to: u32) {
        self.ring.consumer().store(to, Release);
    }

    #[inline]
    fn entry(&self, at: u32) -> u64 {
        // SAFETY: within the mapping and aligned (`at`). Volatile: another
        // process may write meanwhile.
        unsafe { self.at(at).read_volatile() / self.chunk_bytes }
    }

    #[inline]
    fn set_entry(&self, at: u32, value: u64) {
        // SAFETY: as above.
        unsafe {
            self.at(at)
                .write_volatile(value.wrapping_mul(self.chunk_bytes))
        };
    }
}
