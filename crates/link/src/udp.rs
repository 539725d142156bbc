//! The link `udp`: any host, no privilege.
//!
//! Frames of one destination and size leave as one segmented unit where the
//! kernel can cut it, others many to a call; a lone frame takes the shortest
//! way. On receive every look is one call: the shortest there is while only
//! small messages come one by one, and with coalescing and batches once
//! traffic is dense or large.

mod capacity;
mod direct;
mod receive;
mod send;
mod unreachable;

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use portolan_sys::epoll::Epoll;
use portolan_sys::features::Disabled;
pub use portolan_sys::net::BindError;
use portolan_sys::net::{SocketOptions, UdpSocket, interfaces};
use portolan_sys::raw::Errno;

pub use self::capacity::ReceiveCapacity;
use self::direct::{Choice, Direct};
use self::receive::{Port, Reader, Wishes, probe_gro};
use crate::bell::Bell;
use crate::{Capabilities, Link, LinkAddress, LinkError, RxFrame, TxFrame};

/// What a link is opened with.
#[derive(Clone, Copy, Debug)]
pub struct UdpConfig {
    /// Own address; `None` (the default) is any, IPv4 and IPv6.
    pub address: Option<IpAddr>,
    /// Interface index of a link-local own address, otherwise 0 (the default).
    pub scope: u32,
    /// Own port; 0 (the default) lets the kernel pick.
    pub port: u16,
    /// `SO_RCVBUF` to ask for, bytes. Default 212,992, what Debian grants;
    /// the kernel gives less silently where its limit is lower.
    pub receive_buffer: usize,
    /// `SO_SNDBUF` to ask for, bytes. Default 212,992.
    pub send_buffer: usize,
    /// Largest frame, bytes. `None` (the default) takes it from the MTU of
    /// the own address's interface, or without one from the largest MTU of
    /// all interfaces but the loopback.
    pub frame_max: Option<usize>,
    /// Whether closed ports are told of ([`Udp::take_unreachable`]).
    /// Default false.
    pub icmp_errors: bool,
    /// Features to leave alone: `gso`, `gro`, `mmsg`, `ecn` and `ipv6` count.
    pub disabled: Disabled,
}

impl Default for UdpConfig {
    fn default() -> Self {
        Self {
            address: None,
            scope: 0,
            port: 0,
            receive_buffer: 212_992,
            send_buffer: 212_992,
            frame_max: None,
            icmp_errors: false,
            disabled: Disabled::default(),
        }
    }
}

impl UdpConfig {
    /// What the socket is opened with.
    #[must_use]
    pub fn options(&self) -> SocketOptions {
        SocketOptions {
            address: self.address,
            scope: self.scope,
            port: self.port,
            receive_buffer: self.receive_buffer,
            send_buffer: self.send_buffer,
            ipv6: !self.disabled.ipv6,
            ecn: !self.disabled.ecn,
            icmp_errors: self.icmp_errors,
        }
    }
}

/// What the link has done; counts since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpCounters {
    /// System calls that sent or tried to.
    pub tx_calls: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Their bytes, without headers of UDP and IP.
    pub tx_bytes: u64,
    /// Segmented units sent.
    pub tx_gso: u64,
    /// Calls that sent by the socket of the peer that gets nearly all packets.
    pub tx_direct: u64,
    /// System calls that received or tried to.
    pub rx_calls: u64,
    /// Those that found nothing.
    pub rx_empty: u64,
    /// Frames received.
    pub rx_frames: u64,
    /// Coalesced messages received.
    pub rx_gro: u64,
    /// Packets that the kernel dropped because the receive buffer was full,
    /// as it last said so (with the next packet that arrives).
    pub rx_dropped: u64,
}

/// A UDP socket as a [`Link`].
#[derive(Debug)]
pub struct Udp {
    main: Port,
    /// To the peer that nearly all packets go to.
    direct: Option<Direct>,
    choice: Choice,
    options: SocketOptions,
    /// Rings when a packet waits in one of the sockets.
    bell: Bell,
    frame_max: usize,
    /// Index of the interface by whose MTU frames are sized; 0 where none is
    /// known.
    interface: u32,
    /// Headers of IP and UDP in front of a frame.
    headers: usize,
    capacity: ReceiveCapacity,
    gso: bool,
    gro: bool,
    mmsg: bool,
    counters: UdpCounters,
    reader: Reader,
    /// What the sockets were set to last.
    wishes: Wishes,
    /// The clock, as far as we were told; ns.
    now: u64,
}

impl Udp {
    /// Opens a socket and probes what it can do.
    ///
    /// # Errors
    /// [`BindError`], which names cause and remedy.
    pub fn open(config: &UdpConfig) -> Result<Self, BindError> {
        let options = config.options();
        Self::over(UdpSocket::bind(&options)?, options, config)
    }

    /// Takes over a socket that is bound already, as [`UdpConfig::options`]
    /// say; of `config` count its buffers' sizes, frames and features.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn adopt(socket: OwnedFd, config: &UdpConfig) -> Result<Self, BindError> {
        let options = config.options();
        Self::over(UdpSocket::adopt(socket, &options)?, options, config)
    }

    fn over(
        socket: UdpSocket,
        options: SocketOptions,
        config: &UdpConfig,
    ) -> Result<Self, BindError> {
        let disabled = config.disabled;
        let system = |call| move |errno| BindError::System(call, errno);
        let bell = Bell::new().map_err(system("epoll_create1"))?;
        bell.add(socket.as_fd()).map_err(system("epoll_ctl"))?;
        let headers = if socket.is_v6() {
            HEADERS_V6
        } else {
            HEADERS_V4
        };
        let (interface, mtu) = interface_of(config.address).unwrap_or((0, MTU_MIN));
        let frame_max = config.frame_max.unwrap_or(mtu.saturating_sub(headers));
        let frame_max = frame_max.clamp(1, FRAME_MAX);
        let buffer = socket.receive_buffer().map_err(system("SO_RCVBUF"))?;
        let mmsg = !disabled.mmsg && socket.knows_mmsg();
        Ok(Self {
            gso: !disabled.gso && socket.knows_gso(),
            gro: !disabled.gro && probe_gro(&socket),
            mmsg,
            frame_max,
            interface,
            headers,
            capacity: ReceiveCapacity::of_buffer(buffer, frame_max),
            counters: UdpCounters::default(),
            reader: Reader::new(mmsg),
            wishes: Wishes::default(),
            direct: None,
            choice: Choice::default(),
            options,
            bell,
            now: 0,
            main: Port::new(socket),
        })
    }

    /// A descriptor to wait on (poll, epoll): readable when a frame waits, unless
    /// it was [disarmed](Self::disarm).
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.bell.fd()
    }

    /// Its sockets join `set` under the name `token`, and [`Self::fd`] rings no
    /// more: who waits for several links, and for other things, sleeps and wakes
    /// up sooner that way.
    ///
    /// # Errors
    /// `MFILE`, `NOSPC` or `NOMEM`: the kernel has no room for it.
    pub fn join(&mut self, set: &Epoll, token: u64) -> Result<(), Errno> {
        let Self {
            main, direct, bell, ..
        } = self;
        bell.join(set, token, sockets(main, direct.as_ref()))
    }

    /// Makes [`Self::fd`] fit to be waited on again.
    ///
    /// # Errors
    /// [`LinkError::Broken`]: the kernel has no memory for it.
    pub fn arm(&mut self) -> Result<(), LinkError> {
        let Self {
            main, direct, bell, ..
        } = self;
        bell.arm(sockets(main, direct.as_ref())).map_err(broken)
    }

    /// Nobody will wait on [`Self::fd`] until it is [armed](Self::arm) again:
    /// each packet that arrives then costs the kernel less.
    pub fn disarm(&mut self) {
        let Self {
            main, direct, bell, ..
        } = self;
        bell.disarm(sockets(main, direct.as_ref()));
    }

    /// Tells the time, ns of a monotonic clock. Who tells it now and then gets
    /// a socket connected to the peer that nearly all packets go to, which is
    /// 0.4 us faster; who never does keeps to one socket.
    #[inline]
    pub fn set_now(&mut self, now_ns: u64) {
        self.now = now_ns;
    }

    /// A sleep on [`Self::fd`] has ended: each of its sockets may have something.
    pub fn woken(&mut self) {
        self.choice.look_at_main();
    }

    /// Own address; the IP is unspecified where the link was opened for any.
    ///
    /// # Errors
    /// [`LinkError::Broken`].
    pub fn local_address(&self) -> Result<LinkAddress, LinkError> {
        let at = self.main.socket.local_address().map_err(broken)?;
        let ip = match at.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let scope = match at {
            std::net::SocketAddr::V6(at) => at.scope_id(),
            std::net::SocketAddr::V4(_) => 0,
        };
        Ok(LinkAddress {
            ip: ip.octets(),
            port: at.port(),
            scope,
        })
    }

    /// Packets that the socket's receive buffer holds before the kernel
    /// drops: what may be granted to all peers in sum.
    #[must_use]
    pub fn receive_capacity(&self) -> ReceiveCapacity {
        self.capacity
    }

    /// Largest frame that the interface takes now, at most the link's own; `None`
    /// where nobody knows. One call or two into the kernel.
    #[must_use]
    pub fn frame_max_now(&self) -> Option<usize> {
        self.frame_max_on(self.interface, self.headers)
    }

    /// The same of any interface, before which so many bytes of headers of IP and
    /// UDP stand.
    pub(crate) fn frame_max_on(&self, interface: u32, headers: usize) -> Option<usize> {
        let mtu = self.main.socket.interface_mtu(interface).ok()?;
        Some(mtu.saturating_sub(headers).min(self.frame_max))
    }

    /// Whether bursts leave as segmented units; the kernel may end that when
    /// a device refuses.
    #[must_use]
    pub fn uses_gso(&self) -> bool {
        self.gso
    }

    /// Whether arriving packets may be coalesced.
    #[must_use]
    pub fn uses_gro(&self) -> bool {
        self.gro
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> UdpCounters {
        self.counters
    }
}

impl Link for Udp {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "udp",
            frame_max: self.frame_max,
            headroom: 0,
            ordered: false,
            reliable: false,
            // Measured between two hosts of the lab: a send is a walk through
            // the whole stack, a receive a copy and a call.
            overhead_ns: 2_000,
            gap_ns: 1_500,
            latency_ns: 6_000,
        }
    }

    #[inline]
    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        self.send_burst(frames)
    }

    #[inline]
    fn rx_burst(&mut self, max: usize, sink: impl FnMut(RxFrame<'_>)) -> Result<usize, LinkError> {
        self.receive_burst(max, sink)
    }
}

/// Headers of UDP and IPv6.
const HEADERS_V6: usize = 48;
/// Headers of UDP and IPv4.
const HEADERS_V4: usize = 28;
/// Largest payload that UDP over IPv4 can name.
const FRAME_MAX: usize = 65_507;
/// What every IPv6 path takes (RFC 8200, section 5); used where no interface
/// says more.
const MTU_MIN: usize = 1_280;

/// The interface whose MTU frames are sized by, and that.
fn interface_of(own: Option<IpAddr>) -> Option<(u32, usize)> {
    let all = interfaces().unwrap_or_default();
    let found = match own {
        Some(ip) => all.iter().find(|interface| {
            // All of 127.0.0.0/8 is the loopback's, listed or not.
            (interface.loopback && ip.is_loopback())
                || interface
                    .addresses
                    .iter()
                    .any(|(address, _)| *address == ip)
        }),
        None => {
            let usable = |loopback| {
                let matching = all.iter().filter(move |i| i.up && i.loopback == loopback);
                matching.max_by_key(|interface| interface.mtu)
            };
            usable(false).or_else(|| usable(true))
        }
    };
    found.map(|interface| (interface.index, interface.mtu))
}

fn sockets<'a>(main: &'a Port, direct: Option<&'a Direct>) -> impl Iterator<Item = BorrowedFd<'a>> {
    let direct = direct.map(|direct| &direct.port);
    std::iter::once(main)
        .chain(direct)
        .map(|port| port.socket.as_fd())
}

fn broken(errno: Errno) -> LinkError {
    LinkError::Broken(errno.raw_os_error())
}
