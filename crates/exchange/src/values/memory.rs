//! Memory of operations and regions, as the exchange sees it.

use alloc::vec::Vec;

/// Bytes that a message or a put is read from, in one piece or several.
pub trait Source {
    /// Length, bytes.
    fn len(&self) -> u64;

    /// Whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies `into.len()` bytes from `at` on; the range lies within.
    fn read(&self, at: u64, into: &mut [u8]);
}

/// Where a source lies in this process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Located {
    /// Address of its first byte; 0: the receiver must not copy it.
    pub address: u64,
    /// The sender waits until the message was received, and can write to the receiver's memory:
    /// both may share the copy.
    pub shares: bool,
}

/// Memory that a message or a get is written to, or that is registered for
/// others to read and write, in one piece or several.
pub trait Sink {
    /// Length, bytes.
    fn len(&self) -> u64;

    /// Whether the length is 0.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether parts may be missing, as in a whole address space. Such memory is read before an
    /// answer leaves, and never lent. Default false.
    fn may_lack(&self) -> bool {
        false
    }

    /// Whether the address of the byte at `at` is known to be a multiple of `of`. Default false.
    fn is_aligned(&self, _at: u64, _of: u64) -> bool {
        false
    }

    /// Copies `into.len()` bytes from `at` on; the range lies within. False: some bytes are
    /// missing.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;

    /// Writes bytes at `at`; the range lies within. False: part of the range is missing; the rest
    /// may have been written.
    fn write(&mut self, at: u64, bytes: &[u8]) -> bool;

    /// The range as one slice; `None` if it lies in several pieces.
    fn slice(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]>;

    /// Wraps memory of the exchange, for a message that is pulled before its receive comes.
    fn owned(bytes: Vec<u8>) -> Self
    where
        Self: Sized;

    /// Returns the bytes given to [`Sink::owned`], as written since.
    fn into_owned(self) -> Vec<u8>
    where
        Self: Sized;
}
