//! Receiving: one message, or several in one call.

use core::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use super::UdpSocket;
use super::abi::{
    ECN_CE, ECN_MASK, IP_TOS, IPV6_TCLASS, IoVec, MMsgHdr, MSG_DONTWAIT, MSG_TRUNC, MsgHdr,
    RawAddress, SO_RXQ_OVFL, SOL_IP, SOL_IPV6, SOL_SOCKET, SOL_UDP, UDP_GRO, control_messages,
    control_space,
};
use crate::raw::{Errno, number, syscall};

/// What came with a message, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes in the buffer; never more than it holds.
    pub len: usize,
    /// Bytes of each datagram in it, the last may be shorter; equal to `len`
    /// where the kernel coalesced nothing.
    pub segment: usize,
    /// Source IP, IPv4 mapped.
    pub ip: [u8; 16],
    /// Source port.
    pub port: u16,
    /// Interface index of a link-local source, otherwise 0.
    pub scope: u32,
    /// Traffic class; the two low bits are the ECN field (RFC 3168).
    pub class: u8,
    /// The message was longer than the buffer; its rest is lost.
    pub truncated: bool,
    /// Packets that the kernel has dropped at this socket since it was
    /// opened, where it said so.
    pub dropped: Option<u32>,
}

impl Received {
    /// `len` bytes of one datagram, without what the kernel says beside it.
    #[inline(always)]
    fn plain(name: &RawAddress, len: usize, truncated: bool) -> Self {
        let (ip, port, scope) = name.parts();
        Self {
            len,
            segment: len,
            ip,
            port,
            scope,
            class: 0,
            truncated,
            dropped: None,
        }
    }

    /// It carried the congestion-experienced mark.
    #[inline]
    #[must_use]
    pub fn ce(&self) -> bool {
        self.class & ECN_MASK == ECN_CE
    }
}

/// One message each of: traffic class, coalesced size, overflow count.
const CONTROL_LEN: usize = 3 * control_space(size_of::<i32>());

/// What the kernel writes beside the bytes of one message.
#[repr(C, align(8))]
struct Slot {
    control: [u8; CONTROL_LEN],
    name: [u8; RawAddress::LEN_MAX],
}

impl Slot {
    const EMPTY: Self = Self {
        control: [0; CONTROL_LEN],
        name: [0; RawAddress::LEN_MAX],
    };

    /// A header that lets the kernel write into this slot and `vector`; valid
    /// as long as both live.
    fn header(&mut self, vector: &mut IoVec) -> MsgHdr {
        MsgHdr {
            name: (&raw mut self.name).cast(),
            name_len: RawAddress::LEN_MAX as i32,
            vectors: vector,
            vectors_len: 1,
            control: (&raw mut self.control).cast(),
            control_len: CONTROL_LEN,
            flags: 0,
        }
    }

    /// Reads what the kernel left here; `len` is at most the buffer's.
    fn read(&self, header: &MsgHdr, len: usize) -> Received {
        let name_len = (header.name_len.max(0) as usize).min(RawAddress::LEN_MAX);
        let address = RawAddress {
            bytes: self.name,
            len: name_len as u32,
        };
        let mut received = Received::plain(&address, len, header.flags & MSG_TRUNC != 0);
        read_control(
            &self.control[..header.control_len.min(CONTROL_LEN)],
            &mut received,
        );
        received
    }
}

/// What control messages say.
fn read_control(control: &[u8], received: &mut Received) {
    for (level, kind, data) in control_messages(control) {
        let number = data
            .first_chunk::<4>()
            .map(|bytes| i32::from_ne_bytes(*bytes));
        match (level, kind) {
            // IPv4 sends one byte, IPv6 an int; the field is in the low byte.
            (SOL_IP, IP_TOS) => {
                received.class = data.first().copied().unwrap_or(0);
            }
            (SOL_IPV6, IPV6_TCLASS) => {
                received.class = number.unwrap_or(0) as u8;
            }
            (SOL_UDP, UDP_GRO) => {
                if let Some(segment) = number.filter(|segment| *segment > 0) {
                    received.segment = (segment as usize).min(received.len);
                }
            }
            (SOL_SOCKET, SO_RXQ_OVFL) => received.dropped = number.map(|count| count as u32),
            _ => {}
        }
    }
}

/// Most messages that one [`UdpSocket::receive_many`] gives.
const MESSAGES_MAX: usize = 32;

impl UdpSocket {
    /// Receives one message into `buffer` without traffic class, coalesced
    /// size and drop count: the shortest way, 0.2 us less than
    /// [`UdpSocket::receive`]. Only for a socket that does not coalesce. Never
    /// blocks.
    ///
    /// # Errors
    /// `EAGAIN` where none waits, and what else `recvfrom` answers.
    #[inline]
    pub fn receive_plain(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        let mut name = RawAddress {
            bytes: [0; 28],
            len: RawAddress::LEN_MAX as u32,
        };
        let args = [
            self.fd.as_raw_fd() as usize,
            buffer.as_mut_ptr() as usize,
            buffer.len(),
            (MSG_DONTWAIT | MSG_TRUNC) as usize,
            &raw mut name.bytes as usize,
            &raw mut name.len as usize,
        ];
        // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`,
        // at most 28 to the name and four to its length; all live until after
        // the call, and nobody else uses them meanwhile.
        let whole = unsafe { syscall(number::RECVFROM, args) }?;
        let len = whole.min(buffer.len());
        Ok(Received::plain(&name, len, whole > len))
    }

    /// As [`UdpSocket::receive_plain`], of a connected socket, whose messages all
    /// come from its peer. Gives the message's length; what exceeds `buffer` is
    /// lost.
    ///
    /// # Errors
    /// As [`UdpSocket::receive_plain`].
    #[inline(always)]
    pub fn receive_connected(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let flags = (MSG_DONTWAIT | MSG_TRUNC) as usize;
        let (fd, at) = (self.fd.as_raw_fd() as usize, buffer.as_mut_ptr() as usize);
        let args = [fd, at, buffer.len(), flags, 0, 0];
        // SAFETY: the kernel writes at most `buffer.len()` bytes to `buffer`, which
        // lives until after the call.
        unsafe { syscall(number::RECVFROM, args) }
    }

    /// Receives one message into `buffer`. Never blocks.
    ///
    /// # Errors
    /// `EAGAIN` where none waits, and what else `recvmsg` answers.
    #[inline]
    pub fn receive(&self, buffer: &mut [u8]) -> Result<Received, Errno> {
        let mut slot = Slot::EMPTY;
        let mut vector = IoVec {
            base: buffer.as_mut_ptr().cast(),
            len: buffer.len(),
        };
        let mut header = slot.header(&mut vector);
        let args = [
            self.fd.as_raw_fd() as usize,
            &raw mut header as usize,
            MSG_DONTWAIT as usize,
            0,
            0,
            0,
        ];
        // SAFETY: `header` points to `slot`, `vector` and, through it,
        // `buffer`, with their lengths; all live until after the call, and
        // nobody else uses them meanwhile.
        let len = unsafe { syscall(number::RECVMSG, args) }?;
        Ok(slot.read(&header, len.min(buffer.len())))
    }

    /// Receives as many messages as wait, at most `out.len()`, into buffers of
    /// `stride` bytes that follow each other in `memory`; gives how many,
    /// at least one. Never blocks.
    ///
    /// # Errors
    /// `EAGAIN` where none waits, and what else `recvmmsg` answers.
    ///
    /// # Panics
    /// If `stride` is 0.
    pub fn receive_many(
        &self,
        memory: &mut [u8],
        stride: usize,
        out: &mut [Received],
    ) -> Result<usize, Errno> {
        let mut slots = [const { MaybeUninit::<Slot>::uninit() }; MESSAGES_MAX];
        let mut vectors = [const { MaybeUninit::<IoVec>::uninit() }; MESSAGES_MAX];
        let mut messages = [const { MaybeUninit::<MMsgHdr>::uninit() }; MESSAGES_MAX];
        let mut count = 0;
        for (((buffer, slot), vector), message) in memory
            .chunks_exact_mut(stride)
            .take(out.len())
            .zip(&mut slots)
            .zip(&mut vectors)
            .zip(&mut messages)
        {
            let vector = vector.write(IoVec {
                base: buffer.as_mut_ptr().cast(),
                len: stride,
            });
            let header = slot.write(Slot::EMPTY).header(vector);
            message.write(MMsgHdr { header, len: 0 });
            count += 1;
        }
        let args = [
            self.fd.as_raw_fd() as usize,
            messages.as_mut_ptr() as usize,
            count,
            MSG_DONTWAIT as usize,
            0,
            0,
        ];
        // SAFETY: the first `count` messages were written above. They point to
        // slots, vectors and disjoint buffers of `stride` bytes inside
        // `memory`, all alive until after the call and used by nobody else.
        let got = unsafe { syscall(number::RECVMMSG, args) }?.min(count);
        for ((slot, message), received) in slots.iter().zip(&messages).zip(&mut *out).take(got) {
            // SAFETY: `got` is at most `count`, and that many were written.
            let (slot, message) = unsafe { (slot.assume_init_ref(), message.assume_init_ref()) };
            *received = slot.read(&message.header, (message.len as usize).min(stride));
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::super::abi::CONTROL_HEADER;
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (CONTROL_HEADER + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(control_space(data.len()), 0);
        bytes
    }

    fn read(bytes: &[u8]) -> Received {
        let mut received = Received {
            len: 100,
            segment: 100,
            ..Received::default()
        };
        read_control(bytes, &mut received);
        received
    }

    #[test]
    fn control_messages_are_found_in_any_order() {
        let mut bytes = message(SOL_SOCKET, SO_RXQ_OVFL, &7u32.to_ne_bytes());
        bytes.extend(message(SOL_IP, 99, &[1; 9]));
        bytes.extend(message(SOL_IP, IP_TOS, &[0b11]));
        bytes.extend(message(SOL_UDP, UDP_GRO, &40i32.to_ne_bytes()));
        let received = read(&bytes);
        assert_eq!(
            (received.dropped, received.ce(), received.segment),
            (Some(7), true, 40)
        );
        assert!(read(&message(SOL_IPV6, IPV6_TCLASS, &3i32.to_ne_bytes())).ce());
        assert!(!read(&message(SOL_IPV6, IPV6_TCLASS, &2i32.to_ne_bytes())).ce());
        assert!(!read(&message(SOL_IP, IP_TOS, &[0b01])).ce());
    }

    #[test]
    fn broken_control_messages_end_the_walk() {
        for cut in 0..24 {
            read(&message(SOL_UDP, UDP_GRO, &40i32.to_ne_bytes())[..cut]);
        }
        let mut bytes = message(SOL_UDP, UDP_GRO, &40i32.to_ne_bytes());
        bytes[0] = 3;
        assert_eq!(read(&bytes).segment, 100);
        // A segment size of zero or above the whole would never end or overrun.
        assert_eq!(
            read(&message(SOL_UDP, UDP_GRO, &0i32.to_ne_bytes())).segment,
            100
        );
        assert_eq!(
            read(&message(SOL_UDP, UDP_GRO, &999i32.to_ne_bytes())).segment,
            100
        );
    }
}
