//! What keeps whoever closes it, and sending it to somebody.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// A socket whose close takes an hour, until its peer is closed.
pub fn lingering() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    while socket.write(&[0; 1 << 16]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    set_socket_linger(&socket, Some(Duration::from_secs(3600))).unwrap();
    (socket.into(), peer)
}

/// Sends a descriptor along with some bytes.
pub fn send_with(by: impl AsFd, bytes: &[u8], sent: BorrowedFd<'_>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sent = [sent];
    assert!(control.push(SendAncillaryMessage::ScmRights(&sent)));
    let parts = [IoSlice::new(bytes)];
    sendmsg(by, &parts, &mut control, SendFlags::NOSIGNAL)
}
