//! rtnetlink: one request and its answer, and how its messages are built.

use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, netlink, recv, send,
    socket_with,
};

use crate::raw::Errno;

pub(super) const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
pub(super) const NLM_F_REQUEST: u16 = 1;
pub(super) const NLM_F_DUMP: u16 = 0x300;
const MESSAGE_HEADER: usize = 16;

/// A socket that hears of `groups`.
pub(super) fn open(flags: SocketFlags, groups: u32) -> Result<OwnedFd, Errno> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
    bind(&fd, &netlink::SocketAddrNetlink::new(0, groups))?;
    Ok(fd)
}

/// One of several messages.
pub(super) enum Message<'a> {
    /// Its kind and body.
    Of(u16, &'a [u8]),
    /// A length that makes no sense; none follow.
    Broken,
}

/// Walks what one call received.
pub(super) struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    fn next(&mut self) -> Option<Message<'a>> {
        let head = self.0.first_chunk::<MESSAGE_HEADER>()?;
        let len = word(head).map_or(0, |len| len as usize);
        let Some(body) = self.0.get(MESSAGE_HEADER..len) else {
            self.0 = &[];
            return Some(Message::Broken);
        };
        let rest = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        self.0 = rest;
        Some(Message::Of(u16::from_ne_bytes([head[4], head[5]]), body))
    }
}

/// The first four bytes as a number.
pub(super) fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

pub(super) fn push_attribute(body: &mut Vec<u8>, kind: u16, data: &[u8]) {
    body.extend(((4 + data.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(data);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Walks attributes: length, kind, data, padded to four bytes.
pub(super) struct Attributes<'a>(pub &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let head = self.0.first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        // The two top bits are flags.
        let kind = u16::from_ne_bytes([head[2], head[3]]) & 0x3fff;
        let data = self.0.get(4..len)?;
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, data))
    }
}

/// A socket for requests; one at a time.
#[derive(Debug)]
pub struct Netlink(pub(super) OwnedFd);

impl Netlink {
    /// Opens one in the network of the calling thread; whoever asks it later is
    /// told of that network.
    ///
    /// # Errors
    /// `EACCES` or `EPERM` where netlink is not permitted.
    pub fn open() -> Result<Self, Errno> {
        open(SocketFlags::CLOEXEC, 0).map(Self)
    }

    /// Sends one request and shows each message of the answer, also one that it
    /// failed: kind and body.
    pub(super) fn request(
        &self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut show: impl FnMut(u16, &[u8]),
    ) -> Result<(), Errno> {
        let mut message = Vec::with_capacity(MESSAGE_HEADER + body.len());
        message.extend(((MESSAGE_HEADER + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend([0; 8]);
        message.extend(body);
        send(&self.0, &message, SendFlags::empty())?;

        let dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        // The kernel cuts the answer to a dump into pieces of at most 32 KiB.
        let mut buffer = vec![0; if dump { 64 << 10 } else { 8 << 10 }];
        loop {
            let (len, _) = recv(&self.0, &mut buffer, RecvFlags::empty())?;
            for message in Messages(&buffer[..len]) {
                match message {
                    Message::Broken => return Err(Errno::BADMSG),
                    Message::Of(NLMSG_DONE, _) => return Ok(()),
                    Message::Of(NLMSG_ERROR, body) => {
                        show(NLMSG_ERROR, body);
                        let errno = word(body).unwrap_or(0) as i32;
                        return match errno {
                            0 => Ok(()),
                            errno => Err(Errno::from_raw_os_error(errno.wrapping_neg())),
                        };
                    }
                    Message::Of(kind, body) => show(kind, body),
                }
            }
            if !dump {
                return Ok(());
            }
        }
    }
}
