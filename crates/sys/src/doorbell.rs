//! Descriptors that wake a sleeping thread of this process. Those that other processes ring are
//! [shared](crate::shared_doorbell).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

/// An eventfd. It stays in this process: whoever else held a copy could fill it, and make the
/// next ring block.
#[derive(Debug)]
pub struct Doorbell(OwnedFd);

impl Doorbell {
    /// A fresh one; non-blocking, close-on-exec.
    ///
    /// # Errors
    /// `MFILE` or `NFILE` when no descriptor is left.
    pub fn new() -> Result<Self, Errno> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map(Self)
    }

    /// Makes the descriptor readable. Never blocks; ringing a bell that rings
    /// already changes nothing.
    pub fn ring(&self) {
        // It can fail only with a full counter, and then the bell rings.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Silences the bell; gives whether it rang.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok()
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_once() {
        let bell = Doorbell::new().unwrap();
        assert!(!bell.clear());
        bell.ring();
        bell.ring();
        assert!(bell.clear());
        assert!(!bell.clear());
    }
}
