//! Layouts and numbers of the kernel's socket interface (uapi headers
//! `socket.h`, `in.h`, `in6.h`, `udp.h`), as 64-bit Linux has them.

use core::ffi::c_void;
use core::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) const AF_INET: u16 = 2;
pub(super) const AF_INET6: u16 = 10;

pub(super) const SOL_SOCKET: i32 = 1;
pub(super) const SOL_IP: i32 = 0;
pub(super) const SOL_UDP: i32 = 17;
pub(super) const SOL_IPV6: i32 = 41;

pub(super) const SO_PRIORITY: i32 = 12;
pub(super) const SO_RXQ_OVFL: i32 = 40;
pub(super) const IP_TOS: i32 = 1;
pub(super) const IPV6_TCLASS: i32 = 67;
pub(super) const UDP_SEGMENT: i32 = 103;
pub(super) const UDP_GRO: i32 = 104;

pub(super) const MSG_TRUNC: i32 = 0x20;
pub(crate) const MSG_DONTWAIT: i32 = 0x40;
pub(super) const MSG_ERRQUEUE: i32 = 0x2000;
pub(super) const MSG_NOSIGNAL: i32 = 0x4000;

/// ECN field of the traffic class (RFC 3168, section 5).
pub(super) const ECN_MASK: u8 = 0b11;
pub(super) const ECN_CE: u8 = 0b11;
pub(super) const ECN_ECT0: u8 = 0b10;

#[repr(C)]
pub(super) struct IoVec {
    pub base: *mut c_void,
    pub len: usize,
}

#[repr(C)]
pub(super) struct MsgHdr {
    pub name: *mut c_void,
    pub name_len: i32,
    pub vectors: *mut IoVec,
    pub vectors_len: usize,
    pub control: *mut c_void,
    pub control_len: usize,
    pub flags: i32,
}

#[repr(C)]
pub(super) struct MMsgHdr {
    pub header: MsgHdr,
    pub len: u32,
}

const _: () = assert!(size_of::<IoVec>() == 16);
const _: () = assert!(size_of::<MsgHdr>() == 56);
const _: () = assert!(size_of::<MMsgHdr>() == 64);
const _: () = assert!(size_of::<std::io::IoSlice<'_>>() == size_of::<IoVec>());

/// Length of a control message's header (`struct cmsghdr`).
pub(super) const CONTROL_HEADER: usize = 16;

/// Room that a control message with `data` bytes takes, and where the next
/// one begins (`CMSG_SPACE`).
pub(super) const fn control_space(data: usize) -> usize {
    CONTROL_HEADER + data.next_multiple_of(8)
}

/// The control messages in `rest`: level, kind and bytes of each.
pub(super) fn control_messages(mut rest: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    core::iter::from_fn(move || {
        let (head, _) = rest.split_first_chunk::<CONTROL_HEADER>()?;
        let word = |at: usize| i32::from_ne_bytes([0, 1, 2, 3].map(|i| head[at + i]));
        let len = usize::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| head[i]));
        let data = rest.get(CONTROL_HEADER..len)?;
        rest = rest.get(control_space(data.len())..).unwrap_or_default();
        Some((word(8), word(12), data))
    })
}

/// A socket address as the kernel reads and writes it (`sockaddr_in` or
/// `sockaddr_in6`).
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(4))]
pub struct RawAddress {
    pub(super) bytes: [u8; 28],
    pub(super) len: u32,
}

impl RawAddress {
    pub(super) const LEN_MAX: usize = 28;

    /// For an IPv4 socket.
    #[inline]
    #[must_use]
    pub fn v4(ip: [u8; 4], port: u16) -> Self {
        let mut bytes = [0; 28];
        bytes[0..2].copy_from_slice(&AF_INET.to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes[4..8].copy_from_slice(&ip);
        Self { bytes, len: 16 }
    }

    /// For an IPv6 socket; an IPv4 address is given mapped. `scope` is the
    /// interface index of a link-local address, otherwise 0.
    #[inline]
    #[must_use]
    pub fn v6(ip: [u8; 16], port: u16, scope: u32) -> Self {
        let mut bytes = [0; 28];
        bytes[0..2].copy_from_slice(&AF_INET6.to_ne_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes[8..24].copy_from_slice(&ip);
        bytes[24..28].copy_from_slice(&scope.to_ne_bytes());
        Self { bytes, len: 28 }
    }

    /// As a call that sends names it: not at all where the socket is
    /// connected.
    #[inline]
    pub(super) fn for_kernel(&self, connected: bool) -> (*const u8, u32) {
        if connected {
            (core::ptr::null(), 0)
        } else {
            (self.bytes.as_ptr(), self.len)
        }
    }

    /// Whether packets to it travel as IPv4.
    #[inline]
    pub(super) fn is_v4(&self) -> bool {
        self.len == 16 || self.bytes[8..20] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]
    }

    /// IP (IPv4 mapped), port and scope; zeros for another family.
    #[inline]
    #[must_use]
    pub fn parts(&self) -> ([u8; 16], u16, u32) {
        let family = u16::from_ne_bytes([self.bytes[0], self.bytes[1]]);
        let port = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
        let mut ip = [0; 16];
        match family {
            AF_INET6 if self.len >= 28 => {
                ip.copy_from_slice(&self.bytes[8..24]);
                let mut scope = [0; 4];
                scope.copy_from_slice(&self.bytes[24..28]);
                (ip, port, u32::from_ne_bytes(scope))
            }
            AF_INET if self.len >= 8 => {
                ip[10..12].fill(0xff);
                ip[12..16].copy_from_slice(&self.bytes[4..8]);
                (ip, port, 0)
            }
            _ => (ip, 0, 0),
        }
    }
}

/// The IPv4 address inside a mapped IPv6 one, else the address itself.
pub(super) fn unmapped(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

pub(super) fn ip_from_bytes(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        Some(IpAddr::V4(Ipv4Addr::from(v4)))
    } else {
        let v6 = <[u8; 16]>::try_from(bytes).ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(v6)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went_in() {
        let ip: [u8; 16] = core::array::from_fn(|i| i as u8 + 1);
        assert_eq!(RawAddress::v6(ip, 0x1234, 7).parts(), (ip, 0x1234, 7));
        let mut mapped = [0; 16];
        mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 9]);
        assert_eq!(RawAddress::v4([10, 0, 0, 9], 80).parts(), (mapped, 80, 0));
        assert!(RawAddress::v4([10, 0, 0, 9], 80).is_v4());
        assert!(RawAddress::v6(mapped, 80, 0).is_v4());
        assert!(!RawAddress::v6(ip, 80, 0).is_v4());
        let other = RawAddress {
            bytes: [0; 28],
            len: 0,
        };
        assert_eq!(other.parts(), ([0; 16], 0, 0));
    }
}
