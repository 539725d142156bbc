//! Ethernet addresses of neighbours as the kernel knows them (by ARP and NDP),
//! and news of what may change the way to somebody.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SocketFlags, recv};

use super::abi::{AF_INET, AF_INET6, ip_from_bytes, unmapped};
use super::netlink::{Attributes, Message, Messages, NLM_F_REQUEST, Netlink, open, push_attribute};
use crate::raw::Errno;

const RTM_NEWNEIGH: u16 = 28;
const RTM_DELNEIGH: u16 = 29;
const RTM_GETNEIGH: u16 = 30;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
/// Bytes of a `ndmsg`.
const HEAD: usize = 12;

// States of a neighbour (`NUD_*`).
const REACHABLE: u16 = 0x02;
const STALE: u16 = 0x04;
const DELAY: u16 = 0x08;
const PROBE: u16 = 0x10;
const NO_ARP: u16 = 0x40;
const PERMANENT: u16 = 0x80;

/// A neighbour that can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Nobody needs to confirm it now and then.
    pub permanent: bool,
}

impl Netlink {
    /// The neighbour with address `ip` on the subnet of an interface; none if the
    /// kernel does not know it (yet): a packet to it makes the kernel ask.
    ///
    /// # Errors
    /// What netlink answers.
    pub fn neighbour(&self, interface: u32, ip: IpAddr) -> Result<Option<Neighbour>, Errno> {
        let ip = unmapped(ip);
        let mut body = vec![0; HEAD];
        body[4..8].copy_from_slice(&interface.to_ne_bytes());
        match ip {
            IpAddr::V4(ip) => {
                body[0] = AF_INET as u8;
                push_attribute(&mut body, NDA_DST, &ip.octets());
            }
            IpAddr::V6(ip) => {
                body[0] = AF_INET6 as u8;
                push_attribute(&mut body, NDA_DST, &ip.octets());
            }
        }
        let mut found = None;
        let asked = self.request(RTM_GETNEIGH, NLM_F_REQUEST, &body, |kind, body| {
            if kind == RTM_NEWNEIGH {
                found = parse(body);
            }
        });
        match asked {
            Ok(()) => Ok(found),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

fn parse(body: &[u8]) -> Option<Neighbour> {
    let (head, attributes) = body.split_at_checked(HEAD)?;
    let state = u16::from_ne_bytes([head[8], head[9]]);
    if state & (REACHABLE | STALE | DELAY | PROBE | NO_ARP | PERMANENT) == 0 {
        return None;
    }
    let (_, mac) = Attributes(attributes).find(|(kind, _)| *kind == NDA_LLADDR)?;
    Some(Neighbour {
        mac: mac.try_into().ok()?,
        permanent: state & (NO_ARP | PERMANENT) != 0,
    })
}

/// What may have changed the way to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// What the kernel knows of one neighbour.
    Neighbour(IpAddr),
    /// An interface, an address, a route; or more than was kept.
    Network,
}

/// Hears of such changes in the network of the thread that opened it.
#[derive(Debug)]
pub struct Changes {
    fd: OwnedFd,
}

impl Changes {
    /// # Errors
    /// `EACCES` or `EPERM` where netlink is not permitted.
    pub fn open() -> Result<Self, Errno> {
        /// Groups of links, neighbours, and of IPv4's and IPv6's addresses and
        /// routes.
        const GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x100 | 0x400;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        open(flags, GROUPS).map(|fd| Self { fd })
    }

    /// Shows what has changed since the last call. Does not wait.
    pub fn poll(&self, mut show: impl FnMut(Change)) {
        let mut buffer = [0; 8192];
        loop {
            let len = match recv(&self.fd, &mut buffer, RecvFlags::empty()) {
                Ok((len, _)) => len,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                // More than the socket holds, or something unknown.
                Err(_) => return show(Change::Network),
            };
            for message in Messages(&buffer[..len]) {
                show(match message {
                    Message::Of(RTM_NEWNEIGH | RTM_DELNEIGH, body) => subject(body),
                    _ => Change::Network,
                });
            }
        }
    }
}

/// Whom a message about a neighbour is about.
fn subject(body: &[u8]) -> Change {
    let attributes = body.get(HEAD..).unwrap_or_default();
    let ip = Attributes(attributes)
        .find(|(kind, _)| *kind == NDA_DST)
        .and_then(|(_, data)| ip_from_bytes(data));
    ip.map_or(Change::Network, Change::Neighbour)
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn message(state: u16, mac: &[u8]) -> Vec<u8> {
        let mut body = vec![0; HEAD];
        body[8..10].copy_from_slice(&state.to_ne_bytes());
        push_attribute(&mut body, NDA_DST, &[10, 0, 0, 1]);
        push_attribute(&mut body, NDA_LLADDR, mac);
        body
    }

    #[test]
    fn states_are_told_apart() {
        let mac = [2, 0, 0, 0, 0, 9];
        let known = |permanent| Some(Neighbour { mac, permanent });
        for state in [REACHABLE, STALE, DELAY, PROBE] {
            assert_eq!(parse(&message(state, &mac)), known(false));
        }
        assert_eq!(parse(&message(PERMANENT, &mac)), known(true));
        // Incomplete and failed.
        assert_eq!(parse(&message(0x01, &mac)), None);
        assert_eq!(parse(&message(0x20, &mac)), None);
        // Not Ethernet.
        assert_eq!(parse(&message(REACHABLE, &[1; 20])), None);
        let whole = message(REACHABLE, &mac);
        for cut in 0..whole.len() {
            parse(&whole[..cut]);
            subject(&whole[..cut]);
        }
        let about = Change::Neighbour(Ipv4Addr::new(10, 0, 0, 1).into());
        assert_eq!(subject(&whole), about);
    }

    #[test]
    fn nobody_is_known_on_the_loopback() {
        let nobody = Ipv4Addr::new(127, 9, 9, 9).into();
        assert_eq!(Netlink::open().unwrap().neighbour(1, nobody), Ok(None));
        Changes::open().unwrap().poll(|_| ());
    }
}
