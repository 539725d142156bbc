//! The links below the network lane: one socket, with or without a host port, and a socket for each
//! further network.

use portolan_engine::Network;
use portolan_link::udp::{ReceiveCapacity, Udp};
use portolan_link::xdp::Xdp;
use portolan_link::{Capabilities, Link, LinkAddress, LinkError, Looked, RxFrame, TxFrame};
use portolan_sys::epoll::Epoll;
use portolan_sys::raw::Errno;

/// Link to the first network: a socket or a host port. Both carry the same packets.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "an endpoint has one")]
pub(crate) enum First {
    Udp(Udp),
    Xdp(Box<Xdp>),
}

macro_rules! either {
    ($network:expr, $link:ident => $call:expr) => {
        match $network {
            First::Udp($link) => $call,
            First::Xdp($link) => $call,
        }
    };
}

impl First {
    /// Adds its descriptors to `set`.
    fn join(&mut self, set: &Epoll) -> Result<(), Errno> {
        match self {
            Self::Udp(link) => link.join(set, TOKEN_NET),
            Self::Xdp(link) => link.join(set, TOKEN_NET, TOKEN_KERNEL),
        }
    }

    /// Prepares its descriptors for waiting.
    fn arm(&mut self) -> Result<(), LinkError> {
        either!(self, link => link.arm())
    }

    /// Ends [`Self::arm`]: no thread waits on its descriptors.
    fn disarm(&mut self) {
        either!(self, link => link.disarm());
    }

    #[inline]
    fn set_now(&mut self, now: u64) {
        either!(self, link => link.set_now(now));
    }

    pub fn local_address(&self) -> Result<LinkAddress, LinkError> {
        either!(self, link => link.local_address())
    }

    pub fn receive_capacity(&self) -> ReceiveCapacity {
        either!(self, link => link.receive_capacity())
    }

    fn frame_max_now(&self) -> Option<usize> {
        either!(self, link => link.frame_max_now())
    }
}

impl Link for First {
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

/// Link to a further network.
#[derive(Debug)]
pub(crate) struct Further {
    pub link: Udp,
    /// Prefix length of the network, of 128 bits.
    pub prefix: u8,
}

/// Tokens in an endpoint's epoll set: one for all links' descriptors but the kernel's socket beside
/// a host port, and one for that.
const TOKEN_NET: u64 = 0;
const TOKEN_KERNEL: u64 = 4;

/// All links of an endpoint.
#[derive(Debug)]
pub(crate) struct Links {
    pub first: First,
    further: Vec<Further>,
}

impl Links {
    pub const fn new(first: First, further: Vec<Further>) -> Self {
        Self { first, further }
    }

    /// Adds the links' descriptors to `set`: readable when a frame waits.
    ///
    /// # Errors
    /// The kernel has no room for them.
    pub fn join(&mut self, set: &Epoll) -> Result<(), Errno> {
        self.first.join(set)?;
        let mut further = self.further.iter_mut();
        further.try_for_each(|other| other.link.join(set, TOKEN_NET))
    }

    /// Reports the end of a sleep on that set; `rang` says whether a token was reported.
    pub fn woken(&mut self, rang: impl FnOnce(u64) -> bool) {
        match &mut self.first {
            First::Udp(link) => link.woken(),
            First::Xdp(link) => link.woken(rang(TOKEN_KERNEL)),
        }
    }

    /// Returns the links to further networks, from number 1 on.
    pub fn further(&self) -> &[Further] {
        &self.further
    }
}

impl Network for Links {
    fn sizes_now(&self) -> impl Iterator<Item = (u8, usize)> {
        let further = self.further.iter().map(|other| other.link.frame_max_now());
        let all = std::iter::once(self.first.frame_max_now()).chain(further);
        (0..)
            .zip(all)
            .filter_map(|(path, size)| Some((path, size?)))
    }

    fn arm(&mut self) -> Result<(), LinkError> {
        let further = self.further.iter_mut().map(|other| other.link.arm());
        further.chain([self.first.arm()]).collect()
    }

    fn disarm(&mut self) {
        self.first.disarm();
        self.further
            .iter_mut()
            .for_each(|other| other.link.disarm());
    }

    #[inline]
    fn set_now(&mut self, now: u64) {
        self.first.set_now(now);
        for other in &mut self.further {
            other.link.set_now(now);
        }
    }

    #[inline]
    fn tx_burst(&mut self, number: u8, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        match usize::from(number).checked_sub(1) {
            None => self.first.tx_burst(frames),
            Some(at) => self.further[at].link.tx_burst(frames),
        }
    }

    #[inline]
    fn receive_one(&mut self) -> Looked<'_> {
        match &mut self.first {
            _ if !self.further.is_empty() => Looked::Unknown,
            First::Udp(link) => link.receive_one(),
            First::Xdp(link) => link.receive_one(),
        }
    }

    #[inline]
    fn rx_burst(
        &mut self,
        max: usize,
        mut sink: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let mut moved = self.first.rx_burst(max, &mut sink);
        for other in &mut self.further {
            let more = other.link.rx_burst(max, &mut sink);
            moved = moved.and_then(|moved| Ok(moved + more?));
        }
        moved
    }

    #[inline]
    fn take_unreachable(&mut self, mut sink: impl FnMut(&[u8])) {
        either!(&mut self.first, link => link.take_unreachable(&mut sink));
        for other in &mut self.further {
            other.link.take_unreachable(&mut sink);
        }
    }

    #[inline]
    fn has_fast_path(&self) -> bool {
        matches!(self.first, First::Xdp(_))
    }

    #[cold]
    fn admit(&mut self, peer: u32, numbers: impl Iterator<Item = u32> + Clone) {
        match &mut self.first {
            // No filter stands before a plain socket.
            First::Udp(_) => {}
            First::Xdp(link) => link.admit(peer, numbers),
        }
    }

    #[cold]
    fn introduce(&mut self, to: &LinkAddress) {
        if let First::Xdp(link) = &mut self.first {
            link.introduce(to);
        }
    }

    #[cold]
    fn mis_steered(&mut self, to: &LinkAddress) {
        if let First::Xdp(link) = &mut self.first {
            link.mis_steered(to);
        }
    }
}
