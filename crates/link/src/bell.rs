//! Descriptors that somebody may wait on, put into their set only then: while
//! a socket is in one, the kernel looks for sleepers at each packet that
//! arrives, which costs 0.3 to 0.5 us where sets are nested.

use std::os::fd::{AsFd, BorrowedFd};

use portolan_sys::epoll::Epoll;
use portolan_sys::raw::Errno;

/// A set of a link's descriptors, armed at first.
#[derive(Debug)]
pub(crate) struct Bell {
    set: Epoll,
    /// Their name in it.
    token: u64,
    armed: bool,
}

impl Bell {
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            set: Epoll::new()?,
            token: 0,
            armed: true,
        })
    }

    /// From now on the descriptors, `all` so far, are in `set` and have the name
    /// `token` there: a set within a set costs each packet and each sleep more.
    pub fn join<'a>(
        &mut self,
        set: &Epoll,
        token: u64,
        all: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> Result<(), Errno> {
        self.set = set.share();
        self.token = token;
        self.armed = false;
        self.arm(all)
    }

    /// Readable while one of those that were added is; only when armed.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }

    /// One more; when not armed it has to be among those of [`Self::arm`].
    pub fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        if self.armed {
            self.set.add(fd, self.token)
        } else {
            Ok(())
        }
    }

    /// Somebody will wait on the set.
    pub fn arm<'a>(&mut self, all: impl IntoIterator<Item = BorrowedFd<'a>>) -> Result<(), Errno> {
        if !self.armed {
            for fd in all {
                match self.set.add(fd, self.token) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(e) => return Err(e),
                }
            }
            self.armed = true;
        }
        Ok(())
    }

    /// Nobody waits.
    pub fn disarm<'a>(&mut self, all: impl IntoIterator<Item = BorrowedFd<'a>>) {
        if self.armed {
            self.armed = false;
            for fd in all {
                // One that is not in it need not be taken out.
                let _ = self.set.remove(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_sys::doorbell::Doorbell;

    #[test]
    fn only_an_armed_bell_rings() {
        let (one, two) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
        let mut bell = Bell::new().unwrap();
        bell.add(one.as_fd()).unwrap();
        let rings = |bell: &Bell| {
            let outer = Epoll::new().unwrap();
            outer.add(bell.fd(), 0).unwrap();
            outer.wait(Some(0), |_| ()).unwrap() == 1
        };
        one.ring();
        assert!(rings(&bell));
        bell.disarm([one.as_fd()]);
        assert!(!rings(&bell));
        // Added meanwhile, and rung before somebody waits.
        bell.add(two.as_fd()).unwrap();
        two.ring();
        one.clear();
        assert!(!rings(&bell));
        bell.arm([one.as_fd(), two.as_fd()]).unwrap();
        bell.arm([one.as_fd(), two.as_fd()]).unwrap();
        assert!(rings(&bell));
        two.clear();
        assert!(!rings(&bell));
    }

    #[test]
    fn in_another_set_it_rings_by_name() {
        let (one, two) = (Doorbell::new().unwrap(), Doorbell::new().unwrap());
        let mut bell = Bell::new().unwrap();
        bell.add(one.as_fd()).unwrap();
        let set = Epoll::new().unwrap();
        bell.join(&set, 7, [one.as_fd()]).unwrap();
        let rings = || {
            let mut names = Vec::new();
            set.wait(Some(0), |name| names.push(name)).unwrap();
            names
        };
        one.ring();
        assert_eq!(rings(), [7]);
        bell.disarm([one.as_fd()]);
        assert!(rings().is_empty());
        bell.arm([one.as_fd(), two.as_fd()]).unwrap();
        two.ring();
        assert_eq!(rings(), [7, 7]);
    }
}
