//! Messages and descriptors over unix sockets that keep message borders.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, connect, recvmsg, sendmsg, shutdown, socket_with, socketpair,
    sockopt,
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
    let got = receive_into(socket, &mut bytes, wait)?;
    Ok(got.map(|(length, descriptors)| {
        bytes.truncate(length);
        Received { bytes, descriptors }
    }))
}

/// The same into the caller's memory, which has room for any message; gives how
/// many bytes.
pub fn receive_into(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    wait: bool,
) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    flags.set(RecvFlags::DONTWAIT, !wait);
    let got = loop {
        match recvmsg(
            socket.as_fd(),
            &mut [IoSliceMut::new(bytes)],
            &mut control,
            flags,
        ) {
            Err(Errno::INTR) => {}
            // A peer that died with unread messages resets the pair.
            Err(Errno::CONNRESET) => return Ok(None),
            other => break other?,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    if got
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        // Descriptors are cut off where the process may open no more.
        return Err(io::Error::other(
            "a message with descriptors was cut short; raise the limit of open files (ulimit -n)",
        ));
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    Ok(Some((got.bytes, descriptors)))
}
