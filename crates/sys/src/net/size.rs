//! What an interface takes now, asked by the shortest call: it may change while
//! a program runs.

use std::os::fd::AsRawFd;

use super::UdpSocket;
use crate::raw::{Errno, number, syscall};

const SIOCGIFNAME: usize = 0x8910;
const SIOCGIFMTU: usize = 0x8921;

/// `struct ifreq`, with a number.
#[repr(C)]
struct Named {
    name: [u8; 16],
    value: i32,
    rest: [u32; 5],
}

const _: () = assert!(size_of::<Named>() == 40);

impl UdpSocket {
    /// The MTU of an interface of the network that the socket is in, bytes of an
    /// IP packet.
    ///
    /// # Errors
    /// `NODEV` where there is no interface of that index.
    pub fn interface_mtu(&self, index: u32) -> Result<usize, Errno> {
        let mut about = Named {
            name: [0; 16],
            value: index as i32,
            rest: [0; 5],
        };
        // It is known by its name alone, which may have changed too.
        for request in [SIOCGIFNAME, SIOCGIFMTU] {
            let args = [
                self.fd.as_raw_fd() as usize,
                request,
                &raw mut about as usize,
                0,
                0,
                0,
            ];
            // SAFETY: `about` is a whole `struct ifreq` that lives beyond the
            // call; for these requests the kernel follows nothing in it.
            unsafe { syscall(number::IOCTL, args) }?;
        }
        Ok(about.value.max(0) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SocketOptions, interfaces};
    use super::*;

    #[test]
    fn every_interface_is_as_netlink_says() {
        let socket = UdpSocket::bind(&SocketOptions {
            address: None,
            scope: 0,
            port: 0,
            receive_buffer: 4_096,
            send_buffer: 4_096,
            ipv6: true,
            ecn: false,
            icmp_errors: false,
        });
        let socket = socket.unwrap();
        let all = interfaces().unwrap();
        assert!(!all.is_empty());
        for interface in all {
            assert_eq!(socket.interface_mtu(interface.index), Ok(interface.mtu));
        }
        assert_eq!(socket.interface_mtu(0x7fff_ffff), Err(Errno::NODEV));
    }
}
