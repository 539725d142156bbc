//! What a process does to itself around `exec`: adopt an inherited
//! descriptor, leave its name spaces.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::thread::UnshareFlags;

/// Numbers that were adopted: once closed they may name something of the program's.
static ADOPTED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Takes over a descriptor that was inherited through `exec` under a number
/// that the environment names, and marks it close-on-exec.
///
/// # Errors
/// - `NotFound`: no such descriptor is open.
/// - `AlreadyExists`: it is marked close-on-exec, so this process opened it
///   itself, or it has adopted that number before.
/// - The kernel's, where it refuses to look.
pub fn adopt_inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mut adopted = ADOPTED.lock().unwrap_or_else(PoisonError::into_inner);
    if adopted.contains(&number) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // SAFETY: the borrow lasts for two calls that only read and set the
    // descriptor's flags, and fail if it is not open.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = match fcntl_getfd(fd) {
        Err(Errno::BADF) => return Err(io::ErrorKind::NotFound.into()),
        flags => flags?,
    };
    if flags.contains(FdFlags::CLOEXEC) {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fcntl_setfd(fd, flags | FdFlags::CLOEXEC)?;
    adopted.push(number);
    // SAFETY: it is open, and nothing in this process owns it: descriptors
    // that Rust code opens are close-on-exec, a second adoption was refused
    // above, and the program's start code owns only 0 to 2.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes every descriptor that this process has inherited, but for 0 to 2: a
/// process that outlives its parent must not hold what others take for the
/// parent's end. Call it at the start of the program.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn close_inherited() -> io::Result<()> {
    let mut numbers: Vec<RawFd> = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for number in numbers {
        // What this process has opened itself is close-on-exec; the list's own
        // descriptor is closed already.
        if let Ok(inherited) = adopt_inherited(number) {
            drop(inherited);
        }
    }
    Ok(())
}

/// Gives the calling thread, which should be the only one, mount and UTS name
/// spaces of its own, copies of those that it had.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN; else the kernel's error.
pub fn unshare_mount_and_uts() -> io::Result<()> {
    // SAFETY: the descriptor table stays shared (no `FILES`), which is all
    // that the function asks for.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWUTS) }?;
    Ok(())
}

/// Gives the calling thread a working folder and a root of its own, which are those that it
/// had: without that it cannot join a mount namespace.
///
/// # Errors
/// The kernel's.
pub fn unshare_folder() -> io::Result<()> {
    // SAFETY: the descriptor table stays shared (no `FILES`), which is all
    // that the function asks for.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }?;
    Ok(())
}

/// Gives the calling thread an empty network of its own. For tests.
///
/// # Errors
/// `PERM` for whoever is not root; else what the kernel answers.
pub fn unshare_network() -> io::Result<()> {
    // SAFETY: it changes which network the thread's new sockets are of; those
    // that are open stay as they are.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::fd::IntoRawFd;

    use super::*;

    #[test]
    fn a_number_is_adopted_once_also_after_it_was_closed() {
        let inherited = std::fs::File::open("/dev/null").unwrap().into_raw_fd();
        // SAFETY: it is open, for nobody has closed it.
        fcntl_setfd(
            unsafe { BorrowedFd::borrow_raw(inherited) },
            FdFlags::empty(),
        )
        .unwrap();
        let kind = || adopt_inherited(inherited).map(drop).map_err(|e| e.kind());
        assert_eq!(kind(), Ok(()));
        assert_eq!(kind(), Err(io::ErrorKind::AlreadyExists));
    }
}
