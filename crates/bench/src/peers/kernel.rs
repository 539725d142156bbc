//! The kernel's UDP as a peer: polled, never waiting, without a protocol of
//! ours on top.

use std::io::{ErrorKind, IoSlice};
use std::net::{self, IpAddr, SocketAddr};

use portolan_hosts::failure::{Context, Failure, Result};
use portolan_sys::net::{RawAddress, SendUnit, SocketOptions, UdpSocket, mtu_towards};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::ranks::asleep::{REST, Sleeps};
use crate::ranks::drive::Channel;

/// Bytes of IPv4 and IPv6 header with UDP's.
const UDP_V4: usize = 28;
const UDP_V6: usize = 48;
/// Most bytes of one segmented unit.
const UNIT_MAX: usize = 65_000;
/// Most datagrams of one segmented unit.
const SEGMENTS_MAX: usize = 44;

/// UDP sockets. What fits one datagram goes over a plain connected socket,
/// by `send` and `recv` alone; longer messages go over one with segmentation
/// and receive offload. Datagrams carry their message's number in their first
/// 4 bytes, so that what is left of a message that lost some is not taken for
/// the next one.
pub struct Udp {
    plain: net::UdpSocket,
    units: UdpSocket,
    to: RawAddress,
    out: Vec<u8>,
    out_at: usize,
    number: u32,
    /// Payload of a datagram, bytes.
    datagram: usize,
    /// Datagrams that the kernel cuts from one call; 1 where it cannot.
    segments: usize,
    room: Vec<u8>,
    current: u32,
    got: usize,
    received: u64,
}

/// Both sockets at one address, before the other side is known.
pub struct BoundUdp {
    plain: net::UdpSocket,
    units: UdpSocket,
}

impl BoundUdp {
    /// At `local`, on ports that the kernel picks.
    pub fn new(local: IpAddr) -> Result<Self> {
        let units = UdpSocket::bind(&SocketOptions {
            address: Some(local),
            scope: 0,
            port: 0,
            receive_buffer: 4 << 20,
            send_buffer: 4 << 20,
            ipv6: local.is_ipv6(),
            ecn: false,
            icmp_errors: false,
        })
        .map_err(|error| Failure::new(error.to_string()))?;
        let plain = net::UdpSocket::bind((local, 0)).context(format!("binding UDP at {local}"))?;
        plain.set_nonblocking(true)?;
        Ok(Self { plain, units })
    }

    /// What the other side has to be told.
    pub fn offer(&self) -> Result<String> {
        Ok(format!(
            "{} {}",
            self.plain.local_addr()?,
            self.units.local_address()?
        ))
    }

    /// Connects to the other side's offer; with offload where the kernel has it.
    pub fn connect(self, offer: &str) -> Result<Udp> {
        let address = |text: Option<&str>| -> Result<SocketAddr> {
            text.and_then(|text| text.parse().ok())
                .ok_or_else(|| Failure::new(format!("{offer:?} is no pair of addresses")))
        };
        let mut offers = offer.split(' ');
        let (plain, units) = (address(offers.next())?, address(offers.next())?);
        self.plain
            .connect(plain)
            .context(format!("connecting UDP to {plain}"))?;
        let (ip, header) = match units.ip() {
            IpAddr::V4(ip) => (ip.to_ipv6_mapped(), UDP_V4),
            IpAddr::V6(ip) => (ip, UDP_V6),
        };
        let to = self
            .units
            .destination(&ip.octets(), units.port(), 0)
            .ok_or_else(|| Failure::new(format!("a socket of this family cannot reach {units}")))?;
        let mtu = mtu_towards(units.ip()).context(format!("finding the route to {units}"))?;
        let datagram = (mtu - header).min(UNIT_MAX);
        let mut segments = 1;
        if self.units.knows_gso() && self.units.set_gro(true).is_ok() {
            segments = (UNIT_MAX / datagram).clamp(1, SEGMENTS_MAX);
        }
        Ok(Udp {
            plain: self.plain,
            units: self.units,
            to,
            out: vec![0x5a; datagram * segments],
            out_at: 0,
            number: 0,
            datagram,
            segments,
            room: vec![0; 1 << 16],
            current: 0,
            got: 0,
            received: 0,
        })
    }
}

impl Udp {
    /// One datagram of a longer message, or one unit of several.
    fn send_unit(&mut self, len: usize) -> std::result::Result<(), Errno> {
        for first in (0..len).step_by(self.datagram) {
            if let Some(number) = self.out.get_mut(first..first + 4) {
                number.copy_from_slice(&self.number.to_ne_bytes());
            }
        }
        let bytes = &self.out[..len];
        if len <= self.datagram {
            return self.units.send_to(&self.to, bytes);
        }
        self.units.send_unit(&SendUnit {
            to: self.to,
            parts: &[IoSlice::new(bytes)],
            segment: self.datagram as u16,
            ecn: false,
        })
    }

    fn take(&mut self, first: usize, len: usize, size: usize) -> u64 {
        self.received += len as u64;
        if let Some(number) = self.room[first..first + len].first_chunk::<4>() {
            let number = u32::from_ne_bytes(*number);
            if number != self.current {
                (self.current, self.got) = (number, 0);
            }
        }
        self.got += len;
        if self.got < size {
            return 0;
        }
        self.got = 0;
        1
    }
}

impl Channel for Udp {
    const RELIABLE: bool = false;
    const POLLS_PER_LOOK: u32 = 1024;

    fn begin(&mut self) -> Result<()> {
        (self.got, self.out_at) = (0, 0);
        while self.plain.recv(&mut self.room).is_ok() {}
        while self.units.receive(&mut self.room).is_ok() {}
        Ok(())
    }

    #[inline]
    fn try_send(&mut self, size: usize) -> Result<bool> {
        if size <= self.datagram {
            if let Some(number) = self.out.first_chunk_mut::<4>() {
                *number = self.number.to_ne_bytes();
            }
            return match self.plain.send(&self.out[..size]) {
                Ok(_) => {
                    self.number = self.number.wrapping_add(1);
                    Ok(true)
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(error).context("UDP send"),
            };
        }
        while self.out_at < size {
            let len = (size - self.out_at).min(self.datagram * self.segments);
            match self.send_unit(len) {
                Ok(()) => self.out_at += len,
                Err(Errno::AGAIN | Errno::NOBUFS) => return Ok(false),
                // The device cannot cut it apart: never asked again.
                Err(Errno::IO | Errno::INVAL) if len > self.datagram => self.segments = 1,
                Err(errno) => return Err(errno).context("UDP send"),
            }
        }
        self.out_at = 0;
        self.number = self.number.wrapping_add(1);
        Ok(true)
    }

    fn sending(&self) -> bool {
        self.out_at > 0
    }

    #[inline]
    fn poll(&mut self, size: usize) -> Result<u64> {
        if size <= self.datagram {
            return match self.plain.recv(&mut self.room) {
                Ok(len) => Ok(self.take(0, len, size)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
                Err(error) => Err(error).context("UDP receive"),
            };
        }
        match self.units.receive(&mut self.room) {
            Ok(it) => {
                let segment = it.segment.clamp(1, it.len.max(1));
                let firsts = (0..it.len).step_by(segment);
                Ok(firsts
                    .map(|at| self.take(at, segment.min(it.len - at), size))
                    .sum())
            }
            Err(Errno::AGAIN) => Ok(0),
            Err(errno) => Err(errno).context("UDP receive"),
        }
    }

    fn received(&self) -> u64 {
        self.received
    }
}

impl Udp {
    /// Sleeps until the socket for longer messages is as `events` say.
    fn rest(&self, events: PollFlags) -> Result<()> {
        let mut fds = [PollFd::new(&self.units, events)];
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: REST.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno).context("UDP poll"),
        }
    }
}

impl Sleeps for Udp {
    fn set_sleeping(&mut self, on: bool) -> Result<()> {
        self.plain.set_nonblocking(!on)?;
        self.plain.set_read_timeout(Some(REST))?;
        Ok(self.plain.set_write_timeout(Some(REST))?)
    }

    #[inline]
    fn send_asleep(&mut self, size: usize) -> Result<bool> {
        let sent = self.try_send(size)?;
        if !sent && size > self.datagram {
            self.rest(PollFlags::OUT)?;
        }
        Ok(sent)
    }

    #[inline]
    fn poll_asleep(&mut self, size: usize) -> Result<u64> {
        if size > self.datagram {
            self.rest(PollFlags::IN)?;
        }
        self.poll(size)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;
    use crate::control::{Followed, Led, Op, Pattern};
    use crate::peers::tcp::Tcp;
    use crate::ranks::asleep::Asleep;
    use crate::ranks::drive::tests::slice;
    use crate::slice::Rule;

    const RULE: Rule = Rule {
        slice_ns: 0,
        operations: 10,
        cap_ns: 10_000_000_000,
    };

    fn ops() -> impl Iterator<Item = Op> {
        let patterns = [
            Pattern::Pingpong,
            Pattern::Ping,
            Pattern::Burst,
            Pattern::Stream,
        ];
        patterns
            .into_iter()
            .flat_map(|pattern| [8, 3000].map(|size| Op { pattern, size }))
    }

    #[test]
    fn tcp_carries_every_pattern() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut leader = Tcp::connect(&listener.local_addr().unwrap().to_string(), 3000).unwrap();
        let mut follower = Tcp::accept(&listener, 3000).unwrap();
        for op in ops() {
            let (sent, followed, _) = slice(&mut leader, &mut follower, op, RULE);
            assert!(
                sent.operations >= 10 && followed.complete,
                "{op:?} {sent:?} {followed:?}"
            );
            assert_eq!(sent.bytes, followed.bytes, "{op:?}");
        }
    }

    #[test]
    fn asleep_they_carry_every_pattern() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let tcp = Tcp::connect(&listener.local_addr().unwrap().to_string(), 3000).unwrap();
        let mut tcp = (Asleep(tcp), Asleep(Tcp::accept(&listener, 3000).unwrap()));
        let bound = || BoundUdp::new(Ipv4Addr::LOCALHOST.into()).unwrap();
        let (leader, follower) = (bound(), bound());
        let (to_leader, to_follower) = (leader.offer().unwrap(), follower.offer().unwrap());
        let udp = |bound: BoundUdp, offer: &str| Asleep(bound.connect(offer).unwrap());
        let mut udp = (udp(leader, &to_follower), udp(follower, &to_leader));
        // A round trip puts each side to sleep once.
        let slept = |led: Led, followed: Followed| {
            let costs = [led.cost.unwrap(), followed.cost.unwrap()];
            costs.iter().map(|cost| cost.sleeps).sum::<u64>()
        };
        for op in ops() {
            let (sent, followed, led) = slice(&mut tcp.0, &mut tcp.1, op, RULE);
            assert!(
                followed.complete && sent.bytes == followed.bytes,
                "{op:?} {sent:?}"
            );
            let least = if op.pattern == Pattern::Pingpong {
                10
            } else {
                1
            };
            assert!(slept(led, followed) >= least, "{op:?}");
            let (sent, followed, led) = slice(&mut udp.0, &mut udp.1, op, RULE);
            assert!(
                sent.operations >= 10 && followed.bytes > 0,
                "{op:?} {sent:?}"
            );
            assert!(slept(led, followed) > 0, "{op:?}");
        }
    }

    #[test]
    fn udp_carries_every_pattern() {
        let bound = || BoundUdp::new(Ipv4Addr::LOCALHOST.into()).unwrap();
        let (leader, follower) = (bound(), bound());
        let (to_leader, to_follower) = (leader.offer().unwrap(), follower.offer().unwrap());
        let mut leader = leader.connect(&to_follower).unwrap();
        let mut follower = follower.connect(&to_leader).unwrap();
        for op in ops() {
            let (sent, followed, _) = slice(&mut leader, &mut follower, op, RULE);
            assert!(
                sent.operations >= 10 && followed.bytes > 0,
                "{op:?} {sent:?} {followed:?}"
            );
            // Datagrams may be lost, and rows then come again.
            assert!(followed.bytes <= sent.bytes, "{op:?} {sent:?} {followed:?}");
        }
    }
}
