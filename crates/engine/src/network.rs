//! The link below the network lane: one socket, or a host port beside it.

use std::os::fd::BorrowedFd;

use portolan_link::udp::{ReceiveCapacity, Udp};
use portolan_link::xdp::Xdp;
use portolan_link::{Capabilities, Link, LinkAddress, LinkError, RxFrame, TxFrame};

/// Either link. Both carry the same packets.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "an endpoint has one")]
pub(crate) enum Network {
    Udp(Udp),
    Xdp(Box<Xdp>),
}

macro_rules! either {
    ($network:expr, $link:ident => $call:expr) => {
        match $network {
            Self::Udp($link) => $call,
            Self::Xdp($link) => $call,
        }
    };
}

impl Network {
    /// Readable when a frame waits.
    pub fn fd(&self) -> BorrowedFd<'_> {
        either!(self, link => link.fd())
    }

    /// Makes the descriptor fit to be waited on.
    pub fn arm(&mut self) -> Result<(), LinkError> {
        either!(self, link => link.arm())
    }

    /// Nobody waits on the descriptor.
    pub fn disarm(&mut self) {
        either!(self, link => link.disarm());
    }

    #[inline]
    pub fn set_now(&mut self, now: u64) {
        either!(self, link => link.set_now(now));
    }

    pub fn local_address(&self) -> Result<LinkAddress, LinkError> {
        either!(self, link => link.local_address())
    }

    /// Packets of `peer` carry these connection numbers and no others.
    #[cold]
    pub fn admit(&mut self, peer: u32, numbers: impl Iterator<Item = u32> + Clone) {
        match self {
            // Its socket has nobody before it who could know.
            Self::Udp(_) => {}
            Self::Xdp(link) => link.admit(peer, numbers),
        }
    }

    /// A packet to `to` follows from which that may learn our address.
    #[cold]
    pub fn introduce(&mut self, to: &LinkAddress) {
        if let Self::Xdp(link) = self {
            link.introduce(to);
        }
    }

    /// Packets to `to` arrive by a detour.
    #[cold]
    pub fn astray(&mut self, to: &LinkAddress) {
        if let Self::Xdp(link) = self {
            link.astray(to);
        }
    }

    pub fn receive_capacity(&self) -> ReceiveCapacity {
        either!(self, link => link.receive_capacity())
    }
}

impl Link for Network {
    fn capabilities(&self) -> Capabilities {
        either!(self, link => link.capabilities())
    }

    #[inline]
    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        either!(self, link => link.tx_burst(frames))
    }

    #[inline]
    fn rx_burst(&mut self, max: usize, sink: impl FnMut(RxFrame<'_>)) -> Result<usize, LinkError> {
        either!(self, link => link.rx_burst(max, sink))
    }
}
