//! Messages and descriptors over unix sockets that keep message borders.

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, zeroed};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, accept_with, bind, connect, sendmsg, shutdown, socket_with,
    socketpair, sockopt,
};

pub use crate::closing::admit_descriptors;
use crate::closing::refuse_descriptors;

/// Largest message, bytes: well below the least socket buffer that a kernel
/// gives (212,992 by default), so that several fit.
pub const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// Most descriptors that go with one message; the kernel's limit is 253.
pub const DESCRIPTORS_MAX: usize = 200;

/// A message as it was received.
pub struct Received {
    /// What it says.
    pub bytes: Vec<u8>,
    /// What came with it.
    pub descriptors: Vec<OwnedFd>,
    /// The process that sent it; none where this end does not [ask](ask_for_senders), and where
    /// this pid namespace does not see that process.
    pub sender: Option<NonZeroU32>,
}

/// A connected pair that keeps message borders; both close-on-exec.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Has the kernel say which process has sent each message that comes to this end from now on
/// (`SO_PASSCRED`).
///
/// # Errors
/// What `setsockopt` answers.
pub fn ask_for_senders(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(sockopt::set_socket_passcred(socket, true)?)
}

/// Whether a descriptor is one end of such a pair.
pub fn is_ours(fd: BorrowedFd<'_>) -> bool {
    sockopt::socket_type(fd) == Ok(SocketType::SEQPACKET)
        && sockopt::socket_domain(fd) == Ok(AddressFamily::UNIX)
}

/// A socket at an abstract name, at which so many calls wait at most. Non-blocking, as
/// those that it [accepts](accept); close-on-exec. Where the kernel can, nobody can send
/// descriptors to those until they are [admitted](admit_descriptors).
///
/// # Errors
/// `ADDRINUSE`: somebody has this name. Else what the kernel answers.
pub fn listen(name: &str, calls: i32) -> io::Result<OwnedFd> {
    let listener = unconnected()?;
    bind(&listener, &abstract_name(name)?)?;
    // Older kernels cannot.
    let _ = refuse_descriptors(listener.as_fd());
    rustix::net::listen(&listener, calls)?;
    Ok(listener)
}

/// The next call, if one waits.
///
/// # Errors
/// None can be taken now: no descriptor is left.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<Option<OwnedFd>> {
    match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => Ok(Some(socket)),
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Calls who listens at an abstract name; does not wait. Where the kernel can, nobody can send
/// descriptors to this end until they are [admitted](admit_descriptors): who listens may be
/// another user.
///
/// # Errors
/// `ConnectionRefused`: nobody listens. `WouldBlock`: too many wait there.
pub fn call(name: &str) -> io::Result<OwnedFd> {
    let socket = unconnected()?;
    // Older kernels cannot.
    let _ = refuse_descriptors(socket.as_fd());
    connect(&socket, &abstract_name(name)?)?;
    Ok(socket)
}

/// From here on nothing more can be sent to this end; what was can be received.
pub fn shut(socket: BorrowedFd<'_>) {
    // It may be so already.
    let _ = shutdown(socket, Shutdown::Both);
}

fn unconnected() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let kind = SocketType::SEQPACKET;
    Ok(socket_with(AddressFamily::UNIX, kind, flags, None)?)
}

fn abstract_name(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// Sends one message. `WouldBlock` if `wait` is false and there is no room;
/// `BrokenPipe` if the other side is gone.
pub fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    wait: bool,
) -> io::Result<()> {
    send_parts(socket, [bytes, &[]], descriptors, wait)
}

/// The same with a message of two parts, which lie apart.
pub fn send_parts(
    socket: BorrowedFd<'_>,
    parts: [&[u8]; 2],
    descriptors: &[BorrowedFd<'_>],
    wait: bool,
) -> io::Result<()> {
    let bytes: usize = parts.iter().map(|part| part.len()).sum();
    assert!(bytes <= MESSAGE_BYTES_MAX && descriptors.len() <= DESCRIPTORS_MAX);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    let mut flags = SendFlags::NOSIGNAL;
    flags.set(SendFlags::DONTWAIT, !wait);
    loop {
        match sendmsg(socket, &parts.map(IoSlice::new), &mut control, flags) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Receives one message; `None` when the other side has closed its end and
/// all is read. `WouldBlock` if `wait` is false and none waits.
pub fn receive(socket: BorrowedFd<'_>, wait: bool) -> io::Result<Option<Received>> {
    let mut bytes = vec![0; MESSAGE_BYTES_MAX];
    let got = receive_with_sender(socket, &mut bytes, wait)?;
    Ok(got.map(|(length, beside)| {
        bytes.truncate(length);
        Received {
            bytes,
            descriptors: beside.descriptors,
            sender: beside.sender,
        }
    }))
}

/// The same into the caller's memory, which has room for any message; gives how
/// many bytes.
pub fn receive_into(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    wait: bool,
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let got = receive_with_sender(socket, bytes, wait)?;
    Ok(got.map(|(length, beside)| (length, beside.descriptors)))
}

fn receive_with_sender(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    wait: bool,
) -> io::Result<Option<(usize, Beside)>> {
    const SPACE: usize =
        rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX), ScmCredentials(1)).div_ceil(8);
    // Aligned as the headers in it.
    let mut space = [0_u64; SPACE];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: it is plain data.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = space.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&space);
    let flags = libc::MSG_CMSG_CLOEXEC | if wait { 0 } else { libc::MSG_DONTWAIT };
    let got = loop {
        // SAFETY: the kernel writes to `bytes` and `space`, which live beyond the call, as much
        // as `header` says that there is room for.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) };
        if let Ok(got) = usize::try_from(got) {
            break got;
        }
        let error = io::Error::last_os_error();
        match Errno::from_io_error(&error) {
            Some(Errno::INTR) => {}
            // A peer that closed its end, or died, with unread messages resets the
            // pair. That is reported once, before the messages that it has sent.
            Some(Errno::CONNRESET) => {}
            _ => return Err(error),
        }
    };
    // SAFETY: the kernel has just filled it, and `space`, to which it points.
    let beside = unsafe { Beside::take(&header) };
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        // Descriptors are cut off where the process may open no more.
        return Err(io::Error::other(
            "a message with descriptors was cut short; raise the limit of open files (ulimit -n)",
        ));
    }
    Ok((got != 0).then_some((got, beside)))
}

/// What the kernel has put beside a message.
#[derive(Default)]
struct Beside {
    descriptors: Vec<OwnedFd>,
    sender: Option<NonZeroU32>,
}

impl Beside {
    /// # Safety
    /// `recvmsg` has filled `header`, whose control memory still lives, and nobody has taken the
    /// descriptors in it.
    unsafe fn take(header: &libc::msghdr) -> Self {
        let mut beside = Self::default();
        // SAFETY: the kernel has written whole headers, each with as many bytes as it says; the
        // descriptors are new and ours.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(header);
            while let Some(found) = next.as_ref() {
                let data = libc::CMSG_DATA(next);
                let bytes = found.cmsg_len - libc::CMSG_LEN(0) as usize;
                match (found.cmsg_level, found.cmsg_type) {
                    (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                        let all = 0..bytes / size_of::<RawFd>();
                        let each = all.map(|i| data.cast::<RawFd>().add(i).read_unaligned());
                        let owned = each.map(|fd| OwnedFd::from_raw_fd(fd));
                        beside.descriptors.extend(owned);
                    }
                    (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                        let who = data.cast::<libc::ucred>().read_unaligned();
                        beside.sender = NonZeroU32::new(who.pid.cast_unsigned());
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(header, next);
            }
        }
        beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_messages_of_a_peer_that_left_some_unread_arrive() {
        for wait in [false, true] {
            let (ours, theirs) = pair().unwrap();
            send(ours.as_fd(), b"unread", &[], false).unwrap();
            send(theirs.as_fd(), b"first", &[], false).unwrap();
            send(theirs.as_fd(), b"last", &[], false).unwrap();
            drop(theirs);
            for expected in [Some(&b"first"[..]), Some(b"last"), None, None] {
                let got = receive(ours.as_fd(), wait).unwrap();
                assert_eq!(got.as_ref().map(|it| &it.bytes[..]), expected);
            }
        }
    }
}
