//! A bound, non-blocking UDP socket and its options.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

use super::abi::{
    ECN_ECT0, ECN_MASK, RawAddress, SO_PRIORITY, SO_RXQ_OVFL, SOL_IP, SOL_IPV6, SOL_SOCKET,
    SOL_UDP, UDP_GRO, UDP_SEGMENT, unmapped,
};
use super::icmp::{IP_RECVERR, IPV6_RECVERR};
use crate::raw::{Errno, number, syscall};

/// What a socket is opened with.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// Own address; `None` is any address of either family.
    pub address: Option<IpAddr>,
    /// Interface index of a link-local own address, otherwise 0.
    pub scope: u32,
    /// Own UDP port; 0 lets the kernel pick.
    pub port: u16,
    /// `SO_RCVBUF` to ask for, bytes. The kernel doubles it for its own
    /// bookkeeping and caps it silently at `net.core.rmem_max`.
    pub receive_buffer: usize,
    /// `SO_SNDBUF` to ask for, bytes; doubled and capped in the same way.
    pub send_buffer: usize,
    /// Whether IPv6 may be used.
    pub ipv6: bool,
    /// Whether packets leave as ECT(0) unless said otherwise for each.
    pub ecn: bool,
    /// Whether ICMP errors are kept for
    /// [`UdpSocket::take_icmp_error`].
    pub icmp_errors: bool,
}

/// Why no socket could be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// Another socket has the port.
    #[error(
        "UDP port {} at {} is in use: end the program that has it (`ss -ulpn`) or choose another \
         port",
        .0.port(),
        .0.ip()
    )]
    PortInUse(SocketAddr),
    /// The address is none of this host's.
    #[error("{0} is no address of this host: choose one that `ip address` shows")]
    NotLocal(IpAddr),
    /// The port is kept for privileged processes.
    #[error("UDP port {} is kept for privileged processes: choose one from 1024 up", .0.port())]
    Denied(SocketAddr),
    /// An IPv6 address was asked for where IPv6 is off.
    #[error("IPv6 is off here, so {0} cannot be used: enable it or give an IPv4 address")]
    NoIpv6(IpAddr),
    /// The named system call failed.
    #[error("UDP socket: {0} failed: {1}")]
    System(&'static str, Errno),
}

/// A bound, non-blocking UDP socket. Packets leave with DF set and are never
/// fragmented by this host; queue overflow is reported with what is received.
#[derive(Debug)]
pub struct UdpSocket {
    pub(super) fd: OwnedFd,
    v6: bool,
    /// Packets may be marked.
    ecn: bool,
    /// They are by the socket itself.
    marks: bool,
    /// Packets leave to the one peer that it is connected to.
    pub(super) connected: bool,
}

impl UdpSocket {
    /// Opens and binds a socket. Without an own address it is one for both
    /// families, or for IPv4 alone where IPv6 is off; with one it is of that
    /// address's family.
    ///
    /// # Errors
    /// [`BindError`]; nothing stays open.
    pub fn bind(options: &SocketOptions) -> Result<Self, BindError> {
        match options.address.map(unmapped) {
            Some(IpAddr::V4(ip)) => Self::bind_v4(ip, options),
            Some(IpAddr::V6(ip)) if options.ipv6 => Self::bind_v6(ip, options),
            Some(ip) => Err(BindError::NoIpv6(ip)),
            None if options.ipv6 => match Self::bind_v6(Ipv6Addr::UNSPECIFIED, options) {
                Err(BindError::NoIpv6(_) | BindError::NotLocal(_)) => {
                    Self::bind_v4(Ipv4Addr::UNSPECIFIED, options)
                }
                other => other,
            },
            None => Self::bind_v4(Ipv4Addr::UNSPECIFIED, options),
        }
    }

    /// Takes over a socket that [`Self::bind`] has made, here or in another
    /// process. Its buffers stay as they are.
    ///
    /// # Errors
    /// [`BindError::System`]: it is not such a socket.
    pub fn adopt(fd: OwnedFd, options: &SocketOptions) -> Result<Self, BindError> {
        let domain = check("SO_DOMAIN", sockopt::socket_domain(&fd))?;
        let kind = check("SO_TYPE", sockopt::socket_type(&fd))?;
        let v6 = domain == AddressFamily::INET6;
        if kind != SocketType::DGRAM || !(v6 || domain == AddressFamily::INET) {
            return Err(BindError::System("SO_TYPE", Errno::PROTOTYPE));
        }
        // The class stays too: another would take the priority along, by which
        // the XDP program knows the socket of a host port.
        let class = check("IP_TOS", sockopt::ip_tos(&fd))?;
        let socket = Self {
            fd,
            v6,
            ecn: options.ecn,
            marks: class & ECN_MASK == ECN_ECT0,
            connected: false,
        };
        socket.set_icmp_errors(options)?;
        Ok(socket)
    }

    fn bind_v4(ip: Ipv4Addr, options: &SocketOptions) -> Result<Self, BindError> {
        let fd = open(AddressFamily::INET).map_err(|e| BindError::System("socket", e))?;
        let socket = Self {
            fd,
            v6: false,
            ecn: options.ecn,
            marks: options.ecn,
            connected: false,
        };
        socket.set_up(options)?;
        socket.bind_to(SocketAddr::new(ip.into(), options.port))?;
        Ok(socket)
    }

    fn bind_v6(ip: Ipv6Addr, options: &SocketOptions) -> Result<Self, BindError> {
        let fd = open(AddressFamily::INET6).map_err(|e| match e {
            Errno::AFNOSUPPORT => BindError::NoIpv6(ip.into()),
            e => BindError::System("socket", e),
        })?;
        let socket = Self {
            fd,
            v6: true,
            ecn: options.ecn,
            marks: options.ecn,
            connected: false,
        };
        socket.set_up_v6(ip.is_unspecified(), options)?;
        socket.set_up(options)?;
        socket.bind_to(SocketAddrV6::new(ip, options.port, 0, options.scope).into())?;
        Ok(socket)
    }

    /// Another socket at the same own address, connected to `to`: the kernel
    /// puts what comes from there into it, and finds the way there once
    /// instead of for each packet. `options` are those of this socket. What
    /// comes from elsewhere while it is being connected may be found in it too.
    ///
    /// # Errors
    /// What the kernel answers; then everything is as before.
    pub fn connected(&self, options: &SocketOptions, to: &RawAddress) -> Result<Self, BindError> {
        let (ip, port, scope) = to.parts();
        let ip = Ipv6Addr::from(ip);
        let mut own = check("getsockname", self.local_address())?;
        // To IPv4 the socket for IPv4 is faster by another 0.3 us.
        let (v6, to) = match ip.to_ipv4_mapped() {
            Some(v4) if !self.v6 || own.ip().is_unspecified() => {
                if self.v6 {
                    own.set_ip(Ipv4Addr::UNSPECIFIED.into());
                }
                (false, SocketAddr::new(v4.into(), port))
            }
            _ => (true, SocketAddrV6::new(ip, port, 0, scope).into()),
        };
        let family = if v6 {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let socket = Self {
            fd: check("socket", open(family))?,
            v6,
            ecn: self.ecn,
            marks: options.ecn,
            connected: true,
        };
        if v6 {
            socket.set_up_v6(own.ip().is_unspecified(), options)?;
        }
        socket.set_up(options)?;
        // Both must allow it, for the moment of the bind: afterwards nobody
        // else may bind the port.
        let share = |on| {
            check("SO_REUSEADDR", sockopt::set_socket_reuseaddr(&self.fd, on))?;
            check(
                "SO_REUSEADDR",
                sockopt::set_socket_reuseaddr(&socket.fd, on),
            )
        };
        let bound = share(true).and_then(|()| socket.bind_to(own));
        share(false)?;
        bound?;
        check("connect", rustix::net::connect(&socket.fd, &to))?;
        Ok(socket)
    }

    fn set_up_v6(&self, both: bool, options: &SocketOptions) -> Result<(), BindError> {
        check("IPV6_V6ONLY", sockopt::set_ipv6_v6only(&self.fd, !both))?;
        check(
            "IPV6_MTU_DISCOVER",
            sockopt::set_ipv6_mtu_discover(&self.fd, Ipv6PathMtuDiscovery::PROBE),
        )?;
        if options.ecn {
            check(
                "IPV6_TCLASS",
                sockopt::set_ipv6_tclass(&self.fd, ECN_ECT0.into()),
            )?;
        }
        Ok(())
    }

    /// Options of either family; a socket for both needs IPv4's as well.
    fn set_up(&self, options: &SocketOptions) -> Result<(), BindError> {
        let fd = &self.fd;
        check(
            "SO_RCVBUF",
            sockopt::set_socket_recv_buffer_size(fd, options.receive_buffer),
        )?;
        check(
            "SO_SNDBUF",
            sockopt::set_socket_send_buffer_size(fd, options.send_buffer),
        )?;
        check(
            "IP_MTU_DISCOVER",
            sockopt::set_ip_mtu_discover(fd, Ipv4PathMtuDiscovery::PROBE),
        )?;
        if options.ecn {
            check("IP_TOS", sockopt::set_ip_tos(fd, ECN_ECT0))?;
        }
        check("SO_RXQ_OVFL", self.set_option(SOL_SOCKET, SO_RXQ_OVFL, 1))?;
        self.set_icmp_errors(options)
    }

    /// A socket for both families needs both options.
    fn set_icmp_errors(&self, options: &SocketOptions) -> Result<(), BindError> {
        if options.icmp_errors {
            check("IP_RECVERR", self.set_option(SOL_IP, IP_RECVERR, 1))?;
            if self.v6 {
                check("IPV6_RECVERR", self.set_option(SOL_IPV6, IPV6_RECVERR, 1))?;
            }
        }
        Ok(())
    }

    fn bind_to(&self, at: SocketAddr) -> Result<(), BindError> {
        bind(&self.fd, &at).map_err(|errno| match errno {
            Errno::ADDRINUSE => BindError::PortInUse(at),
            Errno::ADDRNOTAVAIL => BindError::NotLocal(at.ip()),
            Errno::ACCESS | Errno::PERM => BindError::Denied(at),
            errno => BindError::System("bind", errno),
        })
    }

    /// Sets whether datagrams are coalesced on receive
    /// ([`Received::segment`]). What waits already stays as it is.
    ///
    /// # Errors
    /// `ENOPROTOOPT` where the kernel has no `UDP_GRO`.
    ///
    /// [`Received::segment`]: super::Received::segment
    pub fn set_gro(&self, on: bool) -> Result<(), Errno> {
        self.set_option(SOL_UDP, UDP_GRO, on.into())
    }

    /// Sets whether traffic classes are reported on receive
    /// ([`Received::class`]); off at first. On, each message costs 0.1 us more,
    /// also where nobody asks for its class.
    ///
    /// # Errors
    /// What `setsockopt` answers.
    ///
    /// [`Received::class`]: super::Received::class
    pub fn report_class(&self, on: bool) -> Result<(), Errno> {
        sockopt::set_ip_recvtos(&self.fd, on)?;
        if self.v6 {
            sockopt::set_ipv6_recvtclass(&self.fd, on)?;
        }
        Ok(())
    }

    /// Whether the kernel sends and receives several messages in one call: a
    /// filter (seccomp) may refuse that. Nothing is sent or received.
    pub fn knows_mmsg(&self) -> bool {
        self.send_many(&[]).is_ok() && self.receive_many(&mut [], 1, &mut []).is_ok()
    }

    /// The first call by which a message is received that a filter refuses, and
    /// how. Of a socket that nobody sends to: what has come is lost.
    pub fn refused_receive(&self) -> Option<(&'static str, Errno)> {
        let mut buffer = [0; 1];
        let plain = self.receive_plain(&mut buffer).map(drop);
        let whole = self.receive(&mut buffer).map(drop);
        [("recvfrom", plain), ("recvmsg", whole)]
            .into_iter()
            .find_map(|(call, result)| match result {
                Ok(()) | Err(Errno::AGAIN) => None,
                Err(errno) => Some((call, errno)),
            })
    }

    /// Whether the kernel knows `UDP_SEGMENT`. A device may refuse it still.
    #[must_use]
    pub fn knows_gso(&self) -> bool {
        // 0 is the value that it has anyway.
        self.set_option(SOL_UDP, UDP_SEGMENT, 0).is_ok()
    }

    fn set_option(&self, level: i32, name: i32, value: i32) -> Result<(), Errno> {
        set_option(self.fd.as_fd(), level, name, value)
    }

    /// The address as packets to this socket may name it; the IP is
    /// unspecified where the socket is bound to any.
    ///
    /// # Errors
    /// What `getsockname` answers.
    pub fn local_address(&self) -> Result<SocketAddr, Errno> {
        SocketAddr::try_from(getsockname(&self.fd)?)
    }

    /// Real size of the receive buffer as the kernel counts it: twice what
    /// was granted, and each packet counts with its bookkeeping.
    ///
    /// # Errors
    /// What `getsockopt` answers.
    pub fn receive_buffer(&self) -> Result<usize, Errno> {
        sockopt::socket_recv_buffer_size(&self.fd)
    }

    /// Gives it a receive buffer beyond the system's limit (`SO_RCVBUFFORCE`),
    /// which needs `CAP_NET_ADMIN`. `bytes` as in [`SocketOptions`].
    ///
    /// # Errors
    /// What `setsockopt` answers.
    pub fn force_receive_buffer(&self, bytes: usize) -> Result<(), Errno> {
        sockopt::set_socket_recv_buffer_size_force(&self.fd, bytes)
    }

    /// Gives it a priority that no process without `CAP_NET_ADMIN` or
    /// `CAP_NET_RAW` can give a socket: 7 or more.
    ///
    /// # Errors
    /// What `setsockopt` answers.
    pub fn set_priority(&self, priority: u32) -> Result<(), Errno> {
        self.set_option(SOL_SOCKET, SO_PRIORITY, priority.cast_signed())
    }

    /// Real size of the send buffer, counted in the same way.
    ///
    /// # Errors
    /// What `getsockopt` answers.
    pub fn send_buffer(&self) -> Result<usize, Errno> {
        sockopt::socket_send_buffer_size(&self.fd)
    }

    /// Whether it is an IPv6 socket (which may carry IPv4 too).
    #[must_use]
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Whether packets may leave as ECT(0).
    #[must_use]
    pub fn may_mark(&self) -> bool {
        self.ecn
    }

    /// Whether they do by default.
    #[must_use]
    pub fn marks_ecn(&self) -> bool {
        self.marks
    }

    /// A destination in this socket's family (IPv4 given mapped); `None` for
    /// an IPv6 destination on an IPv4 socket.
    #[inline]
    #[must_use]
    pub fn destination(&self, ip: &[u8; 16], port: u16, scope: u32) -> Option<RawAddress> {
        if self.v6 {
            return Some(RawAddress::v6(*ip, port, scope));
        }
        let v4 = Ipv6Addr::from(*ip).to_ipv4_mapped()?;
        Some(RawAddress::v4(v4.octets(), port))
    }
}

impl From<UdpSocket> for OwnedFd {
    fn from(socket: UdpSocket) -> Self {
        socket.fd
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn open(family: AddressFamily) -> Result<OwnedFd, Errno> {
    socket_with(
        family,
        SocketType::DGRAM,
        SocketFlags::NONBLOCK | SocketFlags::CLOEXEC,
        None,
    )
}

fn check<T>(what: &'static str, result: Result<T, Errno>) -> Result<T, BindError> {
    result.map_err(|errno| BindError::System(what, errno))
}
/// Sets an option of a socket that has four bytes.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: i32,
    name: i32,
    value: i32,
) -> Result<(), Errno> {
    let args = [
        socket.as_raw_fd() as usize,
        level as usize,
        name as usize,
        &raw const value as usize,
        size_of::<i32>(),
        0,
    ];
    // SAFETY: the kernel reads the four bytes of `value`, which lives until
    // after the call.
    unsafe { syscall(number::SETSOCKOPT, args) }.map(drop)
}
