//! Bare AF_XDP as a peer: packets that were made once go to and fro over the
//! ranks' own host ports, without a protocol.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use portolan::Endpoint;
use portolan_hosts::failure::{Failure, Result, fail};
use portolan_link::LinkAddress;
use portolan_link::xdp::{Bare, Xdp};
use portolan_sys::clock::now_ns;

use crate::ranks::drive::Channel;
use crate::ranks::portolan::{Ours, ours};

/// Largest message: one packet of plain Ethernet over IPv4.
pub const RAW_MAX: usize = 1_472 - MARK.len();

/// The beginning of each packet: only what looks like a packet of ours, with
/// header and tag, is steered to a host port. The connection number is nobody's.
const MARK: [u8; 28] = {
    let mut mark = [0xff; 28];
    (mark[0], mark[1], mark[2], mark[3]) = (0x12, 0, 0, 0);
    mark
};

/// This rank's half, before the other is known.
pub struct Unmet {
    endpoint: Rc<Endpoint>,
    own: SocketAddr,
}

impl Unmet {
    /// Over the rank's own host port, on a host with address `ip`.
    pub fn new(rank: &Ours, ip: IpAddr) -> Result<Self> {
        let endpoint = Rc::clone(&rank.endpoint);
        // What is nobody's is dropped on the way otherwise.
        let number = MARK[4..].first_chunk().map(|it| u32::from_le_bytes(*it));
        with(&endpoint, |link| link.admit(u32::MAX, number.into_iter()))?;
        let port = with(&endpoint, |link| link.local_address().map(|at| at.port))?;
        let port = port.map_err(|e| Failure::new(format!("the host port: {e:?}")))?;
        let own = SocketAddr::new(ip, port);
        Ok(Self { endpoint, own })
    }

    /// What the other side has to be told.
    pub fn offer(&self) -> String {
        self.own.to_string()
    }

    /// Knows the other side.
    pub fn meet(self, offer: &str) -> Result<Raw> {
        let Ok(to) = offer.parse::<SocketAddr>() else {
            return fail(format!("{offer:?} is no address"));
        };
        let ip = match to.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let to = LinkAddress {
            ip: ip.octets(),
            port: to.port(),
            scope: 0,
        };
        Ok(Raw {
            endpoint: self.endpoint,
            to,
            filled: None,
            received: 0,
        })
    }
}

/// Runs `act` on the host port.
#[inline]
fn with<R>(endpoint: &Endpoint, act: impl FnOnce(&mut Xdp) -> R) -> Result<R> {
    match endpoint.with_host_port(act).map_err(ours)? {
        Some(done) => Ok(done),
        None => fail("this rank has no host port"),
    }
}

/// This rank's half.
pub struct Raw {
    endpoint: Rc<Endpoint>,
    to: LinkAddress,
    /// Size of the message that all chunks hold, and bytes of its packet.
    filled: Option<(usize, u32)>,
    received: u64,
}

impl Raw {
    #[cold]
    fn fill(&mut self, size: usize) -> Result<u32> {
        let payload = [&MARK[..], &vec![0x5a; size]].concat();
        let to = self.to;
        let len = with(&self.endpoint, |link| {
            link.set_now(now_ns());
            Bare::fill(link, &to, &payload).map(|bare| bare.packet_len())
        })?;
        let Some(len) = len else {
            return fail("the other host port cannot be reached past the kernel");
        };
        self.filled = Some((size, len));
        Ok(len)
    }
}

impl Channel for Raw {
    const RELIABLE: bool = false;
    const POLLS_PER_LOOK: u32 = 1024;

    fn begin(&mut self) -> Result<()> {
        // Others use the chunks between slices.
        self.filled = None;
        with(&self.endpoint, |link| Bare::resume(link, 0).receive(|_| ()))
    }

    #[inline]
    fn try_send(&mut self, size: usize) -> Result<bool> {
        let len = match self.filled {
            Some((of, len)) if of == size => len,
            _ => self.fill(size)?,
        };
        with(&self.endpoint, |link| Bare::resume(link, len).send())
    }

    #[inline]
    fn poll(&mut self, size: usize) -> Result<u64> {
        let mut messages = 0;
        with(&self.endpoint, |link| {
            Bare::resume(link, 0).receive(|payload| {
                // What the protocol still had under way is none.
                let ours = payload.len() == MARK.len() + size && payload[4..8] == MARK[4..8];
                messages += u64::from(ours);
            });
        })?;
        self.received += messages * size as u64;
        Ok(messages)
    }

    fn received(&self) -> u64 {
        self.received
    }
}
