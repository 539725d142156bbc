//! Descriptors that wake a sleeping process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::EventfdFlags;
use rustix::io::Errno;

/// An eventfd: whoever holds a copy can wake the one who polls it.
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

    /// Another descriptor of the same bell, to be passed on.
    ///
    /// # Errors
    /// `MFILE` when no descriptor is left.
    pub fn duplicate(&self) -> Result<Self, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.0, 3).map(Self)
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

/// An eventfd that came from elsewhere; it is made non-blocking.
impl From<OwnedFd> for Doorbell {
    fn from(fd: OwnedFd) -> Self {
        // Only a closed descriptor fails here, which an owned one is not.
        let _ = rustix::io::ioctl_fionbio(&fd, true);
        Self(fd)
    }
}

impl From<Doorbell> for OwnedFd {
    fn from(bell: Doorbell) -> Self {
        bell.0
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
        let other = bell.duplicate().unwrap();
        assert!(!bell.clear());
        other.ring();
        other.ring();
        assert!(bell.clear());
        assert!(!bell.clear());
    }
}
