//! Memory of operations and regions, as the exchange sees it.

use alloc::vec::Vec;

/// Bytes that a message or a put is read from, in one piece or several.
pub trait Source {
    /// How many.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `into.len()` bytes from `at` on; the range lies within.
    fn read(&self, at: u64, into: &mut [u8]);
}

/// Where a source lies in this process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Located {
    /// Address of its first byte; 0: nobody may copy it.
    pub address: u64,
    /// Whoever sends it waits until it was received, and can write to the
    /// receiver's memory: the two may share the copy.
    pub shares: bool,
}

/// Memory that a message or a get is written to, or that is registered for
/// others to read and write, in one piece or several.
pub trait Sink {
    /// How many bytes there is room for.
    fn len(&self) -> u64;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether some of it may be missing, as of a whole address space: then it is read
    /// before an answer leaves, and never lent. Default no.
    fn may_lack(&self) -> bool {
        false
    }

    /// Whether the address of the byte at `at` is known to be a multiple of `of`. Default no.
    fn is_aligned(&self, _at: u64, _of: u64) -> bool {
        false
    }

    /// Copies `into.len()` bytes from `at` on; the range lies within. False: some of them
    /// are missing.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;

    /// Writes bytes at `at`; the range lies within. False: some of their places are missing;
    /// others may have been written.
    fn write(&mut self, at: u64, bytes: &[u8]) -> bool;

    /// The range as one slice; `None` if it lies in several pieces.
    fn slice(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]>;

    /// Memory of the exchange's own, for a message that is fetched before its receive comes.
    fn owned(bytes: Vec<u8>) -> Self
    where
        Self: Sized;

    /// What [`Sink::owned`] was given, with what was written there.
    fn into_owned(self) -> Vec<u8>
    where
        Self: Sized;
}
