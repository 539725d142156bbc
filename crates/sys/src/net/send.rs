//! Sending: one datagram, one segmented unit, or many units in one call.

use core::mem::MaybeUninit;
use core::ptr;
use std::io::IoSlice;
use std::os::fd::AsRawFd;

use super::UdpSocket;
use super::abi::{
    CONTROL_HEADER, ECN_ECT0, IP_TOS, IPV6_TCLASS, IoVec, MMsgHdr, MSG_DONTWAIT, MSG_NOSIGNAL,
    MsgHdr, RawAddress, SOL_IP, SOL_IPV6, SOL_UDP, UDP_SEGMENT, control_space,
};
use crate::raw::{Errno, number, syscall};

/// Most segments in one unit (`UDP_MAX_SEGMENTS` of the oldest kernel that we
/// run on).
pub const SEGMENTS_MAX: usize = 64;

/// Most units that one [`UdpSocket::send_many`] takes.
pub const UNITS_MAX: usize = 32;

/// What one system call message carries: one datagram, or several of equal
/// size to one destination that the kernel (or the device) cuts apart.
#[derive(Clone, Copy)]
pub struct SendUnit<'a> {
    /// Destination, from [`UdpSocket::destination`].
    pub to: RawAddress,
    /// The bytes, in order.
    pub parts: &'a [IoSlice<'a>],
    /// Bytes of each datagram, the last may be shorter; 0: all is one
    /// datagram. At most [`SEGMENTS_MAX`] datagrams and 65,000 bytes.
    pub segment: u16,
    /// Leave as ECT(0).
    pub ecn: bool,
}

const CONTROL_LEN: usize = control_space(size_of::<u16>()) + control_space(size_of::<i32>());

/// Room for both control messages, aligned as their headers want it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

impl Control {
    fn push(&mut self, at: &mut usize, level: i32, kind: i32, data: &[u8]) {
        let start = *at;
        let message = &mut self.0[start..start + control_space(data.len())];
        message[0..8].copy_from_slice(&(CONTROL_HEADER + data.len()).to_ne_bytes());
        message[8..12].copy_from_slice(&level.to_ne_bytes());
        message[12..16].copy_from_slice(&kind.to_ne_bytes());
        message[CONTROL_HEADER..][..data.len()].copy_from_slice(data);
        *at = start + message.len();
    }

    /// Writes what `unit` needs; gives the length.
    fn fill(&mut self, unit: &SendUnit<'_>, ecn_default: bool) -> usize {
        let mut len = 0;
        if unit.segment != 0 {
            self.push(&mut len, SOL_UDP, UDP_SEGMENT, &unit.segment.to_ne_bytes());
        }
        if unit.ecn != ecn_default {
            let class = i32::from(if unit.ecn { ECN_ECT0 } else { 0 });
            let (level, kind) = if unit.to.is_v4() {
                (SOL_IP, IP_TOS)
            } else {
                (SOL_IPV6, IPV6_TCLASS)
            };
            self.push(&mut len, level, kind, &class.to_ne_bytes());
        }
        len
    }
}

/// The kernel only reads what the header points to, although its type says
/// otherwise; the result is valid as long as `unit` and `control` live.
fn header(
    unit: &SendUnit<'_>,
    connected: bool,
    control: &mut Control,
    control_len: usize,
) -> MsgHdr {
    let (name, name_len) = unit.to.for_kernel(connected);
    MsgHdr {
        name: name.cast_mut().cast(),
        name_len: name_len as i32,
        // IoSlice is guaranteed to have the layout of an iovec.
        vectors: unit.parts.as_ptr().cast_mut().cast::<IoVec>(),
        vectors_len: unit.parts.len(),
        control: if control_len == 0 {
            ptr::null_mut()
        } else {
            (&raw mut control.0).cast()
        },
        control_len,
        flags: 0,
    }
}

impl UdpSocket {
    /// Sends one datagram with the socket's default ECN field: the shortest
    /// way into the kernel. Never blocks. A connected socket sends to its peer,
    /// whatever `to` says; so do the other calls.
    ///
    /// # Errors
    /// `EAGAIN`, `EMSGSIZE`, `ENETUNREACH` and what else `sendto` answers.
    #[inline]
    pub fn send_to(&self, to: &RawAddress, bytes: &[u8]) -> Result<(), Errno> {
        let (name, name_len) = to.for_kernel(self.connected);
        let args = [
            self.fd.as_raw_fd() as usize,
            bytes.as_ptr() as usize,
            bytes.len(),
            (MSG_DONTWAIT | MSG_NOSIGNAL) as usize,
            name as usize,
            name_len as usize,
        ];
        // SAFETY: the kernel reads `bytes` and the first `len` bytes of the
        // address, of which it has 28; both live until after the call.
        unsafe { syscall(number::SENDTO, args) }.map(drop)
    }

    /// As [`UdpSocket::send_to`], to the peer of a connected socket.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    #[inline(always)]
    pub fn send_connected(&self, bytes: &[u8]) -> Result<(), Errno> {
        let flags = (MSG_DONTWAIT | MSG_NOSIGNAL) as usize;
        let (fd, at) = (self.fd.as_raw_fd() as usize, bytes.as_ptr() as usize);
        let args = [fd, at, bytes.len(), flags, 0, 0];
        // SAFETY: the kernel reads `bytes`, which live until after the call.
        unsafe { syscall(number::SENDTO, args) }.map(drop)
    }

    /// Sends one unit. Never blocks.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`], and for a segmented unit `EIO` or `EINVAL`
    /// where the route's device cannot take it. Nothing was sent then.
    pub fn send_unit(&self, unit: &SendUnit<'_>) -> Result<(), Errno> {
        let mut control = Control([0; CONTROL_LEN]);
        let control_len = control.fill(unit, self.marks_ecn());
        let message = header(unit, self.connected, &mut control, control_len);
        let args = [
            self.fd.as_raw_fd() as usize,
            &raw const message as usize,
            (MSG_DONTWAIT | MSG_NOSIGNAL) as usize,
            0,
            0,
            0,
        ];
        // SAFETY: `message` points to the unit's address, vectors and their
        // bytes and to `control`, all alive until after the call; the kernel
        // only reads them.
        unsafe { syscall(number::SENDMSG, args) }.map(drop)
    }

    /// Sends units in order, at most [`UNITS_MAX`]; gives how many were
    /// taken, at least one. Never blocks.
    ///
    /// # Errors
    /// As [`UdpSocket::send_unit`], of the first unit; nothing was sent then.
    pub fn send_many(&self, units: &[SendUnit<'_>]) -> Result<usize, Errno> {
        let units = &units[..units.len().min(UNITS_MAX)];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; UNITS_MAX];
        let mut messages = [const { MaybeUninit::<MMsgHdr>::uninit() }; UNITS_MAX];
        for ((unit, control), message) in units.iter().zip(&mut controls).zip(&mut messages) {
            let control = control.write(Control([0; CONTROL_LEN]));
            let control_len = control.fill(unit, self.marks_ecn());
            message.write(MMsgHdr {
                header: header(unit, self.connected, control, control_len),
                len: 0,
            });
        }
        let args = [
            self.fd.as_raw_fd() as usize,
            messages.as_mut_ptr() as usize,
            units.len(),
            (MSG_DONTWAIT | MSG_NOSIGNAL) as usize,
            0,
            0,
        ];
        // SAFETY: the first `units.len()` messages were written above. They
        // point to the units' addresses, vectors and bytes and to `controls`,
        // all alive until after the call; the kernel writes only the messages'
        // own `len`.
        unsafe { syscall(number::SENDMMSG, args) }
    }
}
