//! System calls that jobs or labs need, tried one by one: where a filter
//! (seccomp) refuses one, the kernel's answer does not say which it was.

use std::fs::read_link;
use std::io;
use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::atomic::AtomicU32;

use rustix::event::{Timespec, poll};
use rustix::io::{dup2, fcntl_getfd, ioctl_fionbio};
use rustix::mm::{Advice, madvise};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType, recv, recvmsg, send, sendmsg, socketpair,
};
use rustix::process::{Resource, WaitId, WaitIdOptions, WaitOptions, getpid, waitid, waitpid};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::doorbell::Doorbell;
use crate::epoll::{Epoll, Timer};
use crate::futex::{self, Scope};
use crate::process::limits;
use crate::raw::Errno;

/// Whether an error may be a filter's.
#[must_use]
pub fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::PERM | Errno::ACCESS | Errno::NOSYS)
}

/// Name and errno of each call that this process may not make; those that jobs
/// can do without are told by [`crate::features`].
#[must_use]
pub fn refused() -> Vec<(&'static str, Errno)> {
    let of_std = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    // It ends by itself.
    let thread = std::thread::Builder::new().spawn(|| ()).map(drop);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (epoll, bell) = (Epoll::new(), Doorbell::new());
    let random = getrandom(&mut [0_u8; 1][..], GetRandomFlags::empty());
    let mut all = vec![
        ("epoll_create1", epoll.as_ref().err().copied()),
        ("eventfd2", bell.as_ref().err().copied()),
        ("timerfd_create", Timer::new().err()),
        ("socketpair", pair.as_ref().err().copied()),
        ("prctl", rustix::process::dumpable_behavior().err()),
        ("getrandom", random.err()),
        (
            "clone3 and clone (for threads)",
            thread.map_err(of_std).err(),
        ),
    ];
    // What is tried without a purpose may fail for other reasons, too.
    let mut also = |name, why: Option<Errno>| all.push((name, why.filter(|it| is_refusal(*it))));
    also("wait4", waitpid(Some(getpid()), WaitOptions::NOHANG).err());
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    also("waitid", waitid(WaitId::Pid(getpid()), options).err());
    let link = read_link("/proc/self/exe");
    also("readlink", link.map_err(of_std).err());
    also("prlimit64", limits(Resource::Nofile).err());
    also("futex", futex_refused());
    also("ppoll", poll(&mut [], Some(&Timespec::default())).err());
    // SAFETY: no byte of memory is meant.
    let advice = unsafe { madvise(null_mut(), 0, Advice::LinuxDontDump) };
    also("madvise", advice.err());
    if let (Ok(epoll), Ok(bell)) = (&epoll, &bell) {
        also("epoll_ctl", epoll.add(bell.as_fd(), 0).err());
        also("epoll_pwait", epoll.wait(Some(0), |_| ()).err());
        also("fcntl", fcntl_getfd(bell).err());
        also("ioctl", ioctl_fionbio(bell, true).err());
    }
    if let Ok((one, mut other)) = pair {
        let mut byte = [0; 1];
        also("sendto", send(&one, &byte, SendFlags::NOSIGNAL).err());
        let received = recv(&other, &mut byte, RecvFlags::DONTWAIT);
        also("recvfrom", received.err());
        let nothing = &mut SendAncillaryBuffer::default();
        let sent = sendmsg(&one, &[], nothing, SendFlags::NOSIGNAL);
        also("sendmsg", sent.err());
        let nothing = &mut RecvAncillaryBuffer::default();
        let received = recvmsg(&other, &mut [], nothing, RecvFlags::DONTWAIT);
        also("recvmsg", received.err());
        also("dup2", dup2(&one, &mut other).err());
    }
    let refused = |(name, why): (_, Option<Errno>)| Some((name, why?));
    all.into_iter().filter_map(refused).collect()
}

/// Why no thread can sleep. Where a filter refuses that, the C library ends the
/// process without a word.
#[must_use]
pub fn futex_refused() -> Option<Errno> {
    futex::wait(&AtomicU32::new(1), 0, None, Scope::Process).err()
}

/// What to do about what was [`refused`], for people to read.
#[must_use]
pub fn remedy(refused: &[(&str, Errno)]) -> String {
    let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
    format!(
        "a filter (seccomp) refuses {}: allow it in the container's profile",
        names.join(", ")
    )
}

/// The same where an error may be a filter's.
#[must_use]
pub fn remedy_of(error: &io::Error) -> Option<String> {
    Errno::from_io_error(error).filter(|errno| is_refusal(*errno))?;
    let refused = refused();
    (!refused.is_empty()).then(|| remedy(&refused))
}

#[cfg(test)]
mod tests {
    #[test]
    fn where_nothing_is_refused_nothing_is_named() {
        assert_eq!(super::refused(), []);
    }
}
