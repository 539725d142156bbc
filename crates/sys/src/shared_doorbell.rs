//! Doorbells that one process hands to others, of which each may be hostile.
//!
//! An eventfd would not do: all who hold it share its flags, so one of them can clear
//! `O_NONBLOCK` and fill it, and then the next write blocks for ever. A datagram socket is told
//! with each call not to block and to raise no signal, whatever its flags are. The end that is
//! polled stays with its owner, so nobody else silences the bell, and a datagram socket knows no
//! end of file that would keep it ringing. A ring costs about 0.3 us more than an eventfd's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};

use crate::closing::{Closer, refuse_descriptors};

/// The end that its owner polls.
#[derive(Debug)]
pub struct SharedDoorbell(OwnedFd);

/// The end that is handed to others: whoever holds a copy can wake the owner.
#[derive(Debug)]
pub struct Ringer {
    /// None once it is being dropped.
    fd: Option<Arc<OwnedFd>>,
    /// Closes one that somebody else has made: descriptors may wait in it, and who closes it
    /// last closes them.
    closer: Option<Closer>,
}

impl SharedDoorbell {
    /// A fresh one, and what rings it; close-on-exec.
    ///
    /// # Errors
    /// `MFILE` or `NFILE` when no descriptor is left.
    pub fn new() -> Result<(Self, Ringer), Errno> {
        let flags = SocketFlags::CLOEXEC;
        let (heard, rung) = socketpair(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        // The kernel's least: a few rings that nobody hears are enough.
        set_socket_send_buffer_size(&rung, 0)?;
        // Whoever clears the bell would close them. Older kernels cannot.
        let _ = refuse_descriptors(heard.as_fd());
        Ok((Self(heard), Ringer::new(rung, None)))
    }

    /// Takes one ring back; returns whether there was one. Never blocks. A sleeper is rung
    /// once: if more have rung, the bell is readable again.
    pub fn clear(&self) -> bool {
        recv(&self.0, &mut [0_u8; 1], RecvFlags::DONTWAIT).is_ok()
    }
}

impl Ringer {
    fn new(fd: OwnedFd, closer: Option<Closer>) -> Self {
        let fd = Some(Arc::new(fd));
        Self { fd, closer }
    }

    /// One that somebody else has made; fails, giving it back, where it is none.
    ///
    /// # Errors
    /// The descriptor.
    pub fn foreign(fd: OwnedFd, closer: &Closer) -> Result<Self, OwnedFd> {
        Ok(Self::new(checked(fd)?, Some(closer.clone())))
    }

    /// Makes the bell readable. Never blocks and raises no signal, whatever those who hold
    /// copies have done to it.
    pub fn ring(&self) {
        // Where there is no room, the bell rings. Else only this bell is lost, by its owner or
        // by somebody who was handed it.
        let _ = send(self, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    /// Another handle, to be passed on. It takes no descriptor.
    #[must_use]
    pub fn share(&self) -> Self {
        Self {
            fd: self.fd.clone(),
            closer: self.closer.clone(),
        }
    }
}

/// Whether a descriptor is an end of one: a datagram socket within this host. The question
/// waits for nobody, whatever the descriptor is of.
#[must_use]
pub fn is_doorbell(fd: BorrowedFd<'_>) -> bool {
    socket_domain(fd) == Ok(AddressFamily::UNIX) && socket_type(fd) == Ok(SocketType::DGRAM)
}

fn checked(fd: OwnedFd) -> Result<OwnedFd, OwnedFd> {
    match is_doorbell(fd.as_fd()) {
        true => Ok(fd),
        false => Err(fd),
    }
}

/// From somebody else; fails, giving it back, where it is none.
impl TryFrom<OwnedFd> for SharedDoorbell {
    type Error = OwnedFd;

    fn try_from(fd: OwnedFd) -> Result<Self, OwnedFd> {
        checked(fd).map(Self)
    }
}

/// From somebody else; fails, giving it back, where it is none.
impl TryFrom<OwnedFd> for Ringer {
    type Error = OwnedFd;

    fn try_from(fd: OwnedFd) -> Result<Self, OwnedFd> {
        Ok(Self::new(checked(fd)?, None))
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        let last = self.fd.take().and_then(Arc::into_inner);
        if let (Some(closer), Some(fd)) = (&self.closer, last) {
            closer.take_foreign(fd);
        }
    }
}

impl AsFd for SharedDoorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Ringer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let fd = self.fd.as_ref().expect("it is not being dropped");
        fd.as_fd()
    }
}

/// The doorbells of all endpoints that share a segment, at whoever hands them out.
#[derive(Debug)]
pub struct SharedDoorbells(Vec<(SharedDoorbell, Ringer)>);

impl SharedDoorbells {
    /// One for each of `count` endpoints.
    ///
    /// # Errors
    /// As [`SharedDoorbell::new`].
    pub fn new(count: usize) -> Result<Self, Errno> {
        let all = (0..count).map(|_| SharedDoorbell::new());
        all.collect::<Result<_, _>>().map(Self)
    }

    /// What endpoint `index` is handed: what rings each in order, and last its own bell's end.
    pub fn of(&self, index: usize) -> impl Iterator<Item = BorrowedFd<'_>> {
        let own = self.0.get(index).map(|(bell, _)| bell.as_fd());
        let ringers = self.0.iter().map(|(_, ringer)| ringer.as_fd());
        ringers.chain(own)
    }

    /// The same as descriptors of its own.
    ///
    /// # Errors
    /// `MFILE` when no descriptor is left.
    pub fn duplicate_of(&self, index: usize) -> Result<Vec<OwnedFd>, Errno> {
        self.of(index)
            .map(|fd| fcntl_dupfd_cloexec(fd, 3))
            .collect()
    }

    /// Wakes all.
    pub fn ring(&self) {
        self.0.iter().for_each(|(_, ringer)| ringer.ring());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};

    use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
    use rustix::net::{Shutdown, shutdown};
    use rustix::pipe::pipe;

    use crate::socket;

    fn is_readable(bell: &SharedDoorbell) -> bool {
        let now = Some(&Timespec::default());
        poll(&mut [PollFd::new(bell, PollFlags::IN)], now).unwrap() > 0
    }

    /// As somebody who was handed it may leave it.
    fn make_blocking(fd: impl AsFd) {
        rustix::io::ioctl_fionbio(fd, false).unwrap();
    }

    #[test]
    fn it_rings_until_it_is_cleared() {
        let (bell, ringer) = SharedDoorbell::new().unwrap();
        let other = ringer.share();
        assert!(!bell.clear() && !is_readable(&bell));
        drop(ringer);
        other.ring();
        assert!(is_readable(&bell) && bell.clear() && !is_readable(&bell));
        // Whom nobody can ring any more sleeps on.
        drop(other);
        assert!(!bell.clear() && !is_readable(&bell));
    }

    #[test]
    fn a_full_one_blocks_nobody() {
        let (bell, ringer) = SharedDoorbell::new().unwrap();
        make_blocking(&ringer);
        make_blocking(&bell);
        // An eventfd would keep the thread here once it is full.
        (0..10_000).for_each(|_| ringer.ring());
        let rings = std::iter::repeat_with(|| bell.clear());
        let rung = rings.take_while(|rang| *rang).count();
        assert!((1..100).contains(&rung), "{rung}");
    }

    #[test]
    fn who_was_handed_it_ends_nobody() {
        for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
            let (bell, ringer) = SharedDoorbell::new().unwrap();
            shutdown(&ringer, how).unwrap();
            // No signal, and no end of file.
            ringer.ring();
            bell.clear();
            assert!(!is_readable(&bell));
        }
        let (bell, ringer) = SharedDoorbell::new().unwrap();
        drop(bell);
        ringer.ring();
    }

    #[test]
    fn it_carries_no_descriptors_where_the_kernel_refuses_them() {
        let (bell, ringer) = SharedDoorbell::new().unwrap();
        let sent = socket::send(ringer.as_fd(), &[0], &[ringer.as_fd()], false);
        let refuses = crate::closing::admits_descriptors(bell.as_fd()) == Ok(false);
        assert_eq!(sent.is_err(), refuses);
    }

    #[test]
    fn what_is_none_is_refused() {
        let (mut broken, end) = std::io::pipe().unwrap();
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let path = std::env::temp_dir().join(format!("portolan-bell-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let full = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        File::from(full.try_clone().unwrap())
            .write_all(&(u64::MAX - 1).to_ne_bytes())
            .unwrap();
        let (stream, _other) = socket::pair().unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let none = [
            writer,
            end.into(),
            file.try_clone().unwrap().into(),
            full,
            stream,
            udp.into(),
            File::open("/dev/null").unwrap().into(),
        ];
        for fd in none {
            let fd = Ringer::try_from(fd).map(|it| it.ring()).unwrap_err();
            assert!(SharedDoorbell::try_from(fd).is_err());
        }
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert_eq!(broken.read(&mut [0; 8]).unwrap(), 0);
        let (bell, ringer) = SharedDoorbell::new().unwrap();
        let ringer = Ringer::try_from(ringer.as_fd().try_clone_to_owned().unwrap()).unwrap();
        ringer.ring();
        assert!(bell.clear());
    }

    #[test]
    fn each_is_handed_all_ringers_and_its_own_bell() {
        let all = SharedDoorbells::new(3).unwrap();
        let mut handed: Vec<_> = (0..3).map(|i| all.duplicate_of(i).unwrap()).collect();
        let bells: Vec<_> = (handed.iter_mut())
            .map(|fds| SharedDoorbell::try_from(fds.pop().unwrap()).unwrap())
            .collect();
        let ringer = Ringer::try_from(handed[0].remove(2)).unwrap();
        ringer.ring();
        assert_eq!([0, 1, 2].map(|i| bells[i].clear()), [false, false, true]);
        all.ring();
        assert_eq!([0, 1, 2].map(|i| bells[i].clear()), [true; 3]);
    }
}
