//! The simulated network as what an engine's packets are carried by.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_engine::Network as EngineNetwork;
use portolan_link::{LinkAddress, LinkError, RxFrame, TxFrame};

use crate::net::{Arrival, Network};
use crate::node::address_on;
use crate::rng::Rng;
use crate::steer::ReceivePath;
use crate::trace::Trace;

/// A network that several links share.
#[derive(Clone, Debug)]
pub struct SharedNetwork(Arc<Mutex<Network>>);

impl SharedNetwork {
    /// Takes over a network.
    #[must_use]
    pub fn new(net: Network) -> Self {
        Self(Arc::new(Mutex::new(net)))
    }

    /// The network itself: its time, faults and counters.
    pub fn lock(&self) -> MutexGuard<'_, Network> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A rank's attachment to it, on one network or several.
#[derive(Debug)]
pub struct SimLinks {
    /// What it shares.
    pub net: SharedNetwork,
    /// Which of so many ranks, each of which has a place on each network.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// Networks.
    pub networks: usize,
    /// Of a million bursts, how many find no room.
    pub full_ppm: u32,
    /// Chance.
    pub rng: Rng,
    /// Who listens.
    pub trace: Trace,
}

impl SimLinks {
    fn receive(&self) -> Option<Arrival> {
        let mut net = self.net.lock();
        (0..self.networks).find_map(|network| {
            let place = network * self.ranks + self.rank;
            let fast = net.receive(place);
            fast.or_else(|| net.receive_by(ReceivePath::Kernel, place))
        })
    }

    /// Whether packets wait for it.
    #[must_use]
    pub fn has_packets(&self) -> bool {
        let net = self.net.lock();
        let waits = |place| net.waiting(place) + net.waiting_by(ReceivePath::Kernel, place) > 0;
        (0..self.networks).any(|network| waits(network * self.ranks + self.rank))
            || net.has_unreachable(self.rank)
    }
}

impl EngineNetwork for SimLinks {
    fn tx_burst(&mut self, number: u8, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let taken = if self.rng.ppm(self.full_ppm) {
            self.rng.index(frames.len())
        } else {
            frames.len()
        };
        if taken == 0 {
            return Err(LinkError::Full);
        }
        let mut net = self.net.lock();
        let base = usize::from(number) * self.ranks;
        for frame in &frames[..taken] {
            let to = usize::from(frame.to.port);
            let there = address_on(usize::from(number), to).ip;
            assert_eq!(frame.to.ip, there, "an address of network {number}");
            let (now, from) = (net.now(), base + self.rank);
            (self.trace).packet(now, "tx", self.rank, to, frame.bytes, frame.ecn);
            net.send(from, base + to, frame.bytes, frame.ecn);
        }
        Ok(taken)
    }

    fn rx_burst(
        &mut self,
        max: usize,
        mut sink: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let mut shown = 0;
        // The sink may send: the network must not stay locked around it.
        while shown < max
            && let Some(mut arrival) = self.receive()
        {
            let (network, from) = (arrival.from / self.ranks, arrival.from % self.ranks);
            let now = self.net.lock().now();
            (self.trace).packet(now, "rx", from, self.rank, &arrival.bytes, arrival.ce);
            let address = address_on(network, from);
            sink(RxFrame {
                from: LinkAddress {
                    ip: address.ip,
                    port: address.port,
                    scope: 0,
                },
                bytes: &mut arrival.bytes,
                ce: arrival.ce,
                detour: false,
            });
            shown += 1;
        }
        Ok(shown)
    }

    fn take_unreachable(&mut self, mut sink: impl FnMut(&[u8])) {
        let quotes = self.net.lock().take_unreachable(self.rank);
        for quote in quotes {
            sink(&quote);
        }
    }

    fn sizes_now(&self) -> impl Iterator<Item = (u8, usize)> {
        std::iter::empty()
    }
}
