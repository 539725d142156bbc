//! System calls without which no job runs, tried one by one: where a filter
//! (seccomp) refuses one, the kernel's answer does not say which it was.

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::rand::{GetRandomFlags, getrandom};

use crate::doorbell::Doorbell;
use crate::epoll::{Epoll, Timer};
use crate::raw::Errno;

/// Name and errno of each call that this process may not make; those that jobs
/// can do without are told by [`crate::features`].
#[must_use]
pub fn refused() -> Vec<(&'static str, Errno)> {
    let thread = || {
        let thread = std::thread::Builder::new().spawn(|| ());
        let thread = thread.map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::PERM))?;
        // It ends by itself.
        drop(thread);
        Ok(())
    };
    let pair = || {
        let flags = SocketFlags::CLOEXEC;
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(drop)
    };
    let random = || getrandom(&mut [0_u8; 1][..], GetRandomFlags::empty()).map(drop);
    let tried = [
        ("epoll_create1", Epoll::new().map(drop)),
        ("eventfd2", Doorbell::new().map(drop)),
        ("timerfd_create", Timer::new().map(drop)),
        ("socketpair", pair()),
        ("prctl", rustix::process::dumpable_behavior().map(drop)),
        ("getrandom", random()),
        ("clone3 and clone (for threads)", thread()),
    ];
    let refused = |(name, tried): (_, Result<(), Errno>)| Some((name, tried.err()?));
    tried.into_iter().filter_map(refused).collect()
}

/// Whether an error may be a filter's.
#[must_use]
pub fn is_refusal(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS))
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

#[cfg(test)]
mod tests {
    #[test]
    fn where_nothing_is_refused_nothing_is_named() {
        assert_eq!(super::refused(), []);
    }
}
