//! Packets that came back: what ICMP errors say of packets that were sent (ip(7),
//! `IP_RECVERR`).

use std::os::fd::AsRawFd;

use super::UdpSocket;
use super::abi::{
    IoVec, MSG_DONTWAIT, MSG_ERRQUEUE, MsgHdr, RawAddress, SOL_IP, SOL_IPV6, control_messages,
    control_space,
};
use crate::raw::{Errno, number, syscall};

pub(super) const IP_RECVERR: i32 = 11;
pub(super) const IPV6_RECVERR: i32 = 25;

/// `ee_origin` of ICMP and of ICMPv6.
const FROM_ICMP: [u8; 2] = [2, 3];
/// Of `struct sock_extended_err`.
const ERROR_BYTES: usize = 16;
/// Behind it stands who said so.
const CONTROL_LEN: usize = control_space(ERROR_BYTES + RawAddress::LEN_MAX);

/// A packet that came back, or that this host did not let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// Bytes of its UDP payload that were quoted, in the buffer.
    pub len: usize,
    /// Nobody listens at the port that it was sent to, says an ICMP error.
    /// Anybody can send one; who quotes what we have sent has seen it.
    pub port_unreachable: bool,
}

/// Looks for the error in control messages.
fn is_port_unreachable(control: &[u8]) -> bool {
    control_messages(control).any(|(level, kind, data)| {
        let is_error = matches!(
            (level, kind),
            (SOL_IP, IP_RECVERR) | (SOL_IPV6, IPV6_RECVERR)
        );
        let Some((error, rest)) = data.split_first_chunk::<4>().filter(|_| is_error) else {
            return false;
        };
        i32::from_ne_bytes(*error) == Errno::CONNREFUSED.raw_os_error()
            && rest
                .first()
                .is_some_and(|origin| FROM_ICMP.contains(origin))
    })
}

impl UdpSocket {
    /// Takes what came back longest ago, where
    /// [`icmp_errors`](super::SocketOptions::icmp_errors) are asked for, and the
    /// beginning of it. The calls that send and receive fail once for each, with
    /// its error number.
    ///
    /// # Errors
    /// `EAGAIN` where there is none, and what else `recvmsg` answers.
    pub fn take_icmp_error(&self, buffer: &mut [u8]) -> Result<IcmpError, Errno> {
        #[repr(C, align(8))]
        struct Control([u8; CONTROL_LEN]);
        let mut control = Control([0; CONTROL_LEN]);
        let mut vector = IoVec {
            base: buffer.as_mut_ptr().cast(),
            len: buffer.len(),
        };
        let mut header = MsgHdr {
            name: core::ptr::null_mut(),
            name_len: 0,
            vectors: &raw mut vector,
            vectors_len: 1,
            control: (&raw mut control).cast(),
            control_len: CONTROL_LEN,
            flags: 0,
        };
        let args = [
            self.fd.as_raw_fd() as usize,
            &raw mut header as usize,
            (MSG_DONTWAIT | MSG_ERRQUEUE) as usize,
            0,
            0,
            0,
        ];
        // SAFETY: `header` points to `control`, `vector` and, through it,
        // `buffer`, with their lengths; all live until after the call, and
        // nobody else uses them meanwhile.
        let len = unsafe { syscall(number::RECVMSG, args) }?;
        let control = &control.0[..header.control_len.min(CONTROL_LEN)];
        Ok(IcmpError {
            len: len.min(buffer.len()),
            port_unreachable: is_port_unreachable(control),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use super::super::SocketOptions;
    use super::*;

    fn bind(address: Option<IpAddr>) -> UdpSocket {
        UdpSocket::bind(&SocketOptions {
            address,
            scope: 0,
            port: 0,
            receive_buffer: 65_536,
            send_buffer: 65_536,
            ipv6: true,
            ecn: true,
            icmp_errors: true,
        })
        .unwrap()
    }

    /// Where nobody listens.
    fn closed(ip: IpAddr) -> u16 {
        bind(Some(ip)).local_address().unwrap().port()
    }

    /// The loopback answers within the call that sends.
    fn is_told_of(socket: &UdpSocket, ip: IpAddr) {
        let mapped = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        };
        let to = socket.destination(&mapped, closed(ip), 0).unwrap();
        let mut quote = [0; 8];
        assert_eq!(socket.take_icmp_error(&mut quote), Err(Errno::AGAIN));
        socket.send_to(&to, b"0123456789").unwrap();
        let said = socket.receive_plain(&mut [0; 8]);
        assert_eq!(said, Err(Errno::CONNREFUSED));
        let expected = IcmpError {
            len: 8,
            port_unreachable: true,
        };
        assert_eq!(socket.take_icmp_error(&mut quote), Ok(expected));
        assert_eq!(&quote, b"01234567");
        assert_eq!(socket.take_icmp_error(&mut quote), Err(Errno::AGAIN));
        assert_eq!(socket.receive_plain(&mut [0; 8]), Err(Errno::AGAIN));
    }

    #[test]
    fn what_nobody_listens_to_is_told_of() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        for own in [Some(v4), None] {
            is_told_of(&bind(own), v4);
        }
        for own in [Some(v6), None] {
            is_told_of(&bind(own), v6);
        }
    }

    #[test]
    fn what_this_host_refuses_is_no_word_of_a_peer() {
        let said = |level: i32, kind: i32, errno: Errno, origin: u8| {
            let mut bytes = control_space(ERROR_BYTES).to_ne_bytes().to_vec();
            bytes.extend(level.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(errno.raw_os_error().to_ne_bytes());
            bytes.push(origin);
            bytes.resize(control_space(ERROR_BYTES), 0);
            is_port_unreachable(&bytes)
        };
        let refused = Errno::CONNREFUSED;
        assert!(said(SOL_IP, IP_RECVERR, refused, 2));
        assert!(said(SOL_IPV6, IPV6_RECVERR, refused, 3));
        assert!(!said(SOL_IP, IP_RECVERR, refused, 1));
        assert!(!said(SOL_IP, IP_RECVERR, Errno::HOSTUNREACH, 2));
        assert!(!said(SOL_IP, IPV6_RECVERR, refused, 2));
        assert!(!is_port_unreachable(&[0; 7]));
    }
}
