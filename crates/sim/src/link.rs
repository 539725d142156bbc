//! A [`Link`] over the simulated network.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_link::{Capabilities, Link, LinkAddress, LinkError, RxFrame, TxFrame};

use crate::net::Network;

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

    /// The address that names a node.
    #[must_use]
    pub fn address(&self, node: usize) -> LinkAddress {
        LinkAddress {
            port: node as u16,
            ..LinkAddress::default()
        }
    }

    /// The link of a node.
    #[must_use]
    pub fn link(&self, node: usize) -> SimLink {
        SimLink {
            net: self.clone(),
            node,
            frame_max: 1472,
            clock: Clock::OnDemand,
        }
    }
}

/// Who lets virtual time pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// A receive that finds nothing moves on to the network's next event.
    OnDemand,
    /// Only [`Network::advance`].
    Driver,
}

/// A node's attachment to a [`SharedNetwork`].
#[derive(Clone, Debug)]
pub struct SimLink {
    net: SharedNetwork,
    node: usize,
    /// Largest frame taken, bytes. Default 1,472.
    pub frame_max: usize,
    /// Who lets time pass. Default [`Clock::OnDemand`].
    pub clock: Clock,
}

impl SimLink {
    /// This node's address.
    #[must_use]
    pub fn address(&self) -> LinkAddress {
        self.net.address(self.node)
    }
}

impl Link for SimLink {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "sim",
            frame_max: self.frame_max,
            headroom: 0,
            ordered: false,
            reliable: false,
            overhead_ns: 0,
            gap_ns: 0,
            latency_ns: 0,
        }
    }

    fn tx_burst(&mut self, frames: &[TxFrame<'_>]) -> Result<usize, LinkError> {
        let mut net = self.net.lock();
        for (taken, frame) in frames.iter().enumerate() {
            let to = usize::from(frame.to.port);
            let error = if frame.bytes.len() > self.frame_max {
                LinkError::TooBig(self.frame_max)
            } else if to >= net.nodes() {
                // ENETUNREACH
                LinkError::Unreachable(101)
            } else {
                net.send(self.node, to, frame.bytes, frame.ecn);
                continue;
            };
            return if taken == 0 { Err(error) } else { Ok(taken) };
        }
        Ok(frames.len())
    }

    fn rx_burst(
        &mut self,
        max: usize,
        mut sink: impl FnMut(RxFrame<'_>),
    ) -> Result<usize, LinkError> {
        let mut shown = 0;
        while shown < max.max(1) {
            // The sink may send: the network must not stay locked around it.
            let arrival = {
                let mut net = self.net.lock();
                if net.waiting(self.node) == 0
                    && shown == 0
                    && self.clock == Clock::OnDemand
                    && let Some(next) = net.next_time()
                {
                    net.advance(next);
                }
                net.receive(self.node)
            };
            let Some(mut arrival) = arrival else { break };
            sink(RxFrame {
                from: self.net.address(arrival.from),
                bytes: &mut arrival.bytes,
                ce: arrival.ce,
                detour: false,
            });
            shown += 1;
        }
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_with_their_source() {
        let net = SharedNetwork::new(Network::new(1, 2));
        let (mut a, mut b) = (net.link(0), net.link(1));
        let frame = |bytes| TxFrame {
            to: net.address(1),
            bytes,
            ecn: false,
        };
        assert_eq!(a.tx_burst(&[frame(b"one"), frame(b"two")]), Ok(2));
        let mut got = Vec::new();
        let from = a.address();
        while b
            .rx_burst(1, |rx| {
                assert_eq!(rx.from, from);
                got.push(rx.bytes.to_vec());
            })
            .unwrap()
            > 0
        {}
        assert_eq!(got, [b"one", b"two"]);
    }

    #[test]
    fn what_cannot_leave_is_said() {
        let net = SharedNetwork::new(Network::new(1, 2));
        let mut a = net.link(0);
        let big = vec![0; 1473];
        let to = |node, bytes| TxFrame {
            to: net.address(node),
            bytes,
            ecn: false,
        };
        assert_eq!(a.tx_burst(&[to(1, &big)]), Err(LinkError::TooBig(1472)));
        assert_eq!(a.tx_burst(&[to(1, b"a"), to(1, &big)]), Ok(1));
        assert_eq!(a.tx_burst(&[to(7, b"a")]), Err(LinkError::Unreachable(101)));
    }

    #[test]
    fn a_driven_clock_waits_for_its_driver() {
        let net = SharedNetwork::new(Network::new(1, 2));
        net.lock().faults_mut(0, 1).delay_ns = 10;
        let (mut a, mut b) = (net.link(0), net.link(1));
        b.clock = Clock::Driver;
        let frame = TxFrame {
            to: b.address(),
            bytes: b"x",
            ecn: false,
        };
        a.tx_burst(&[frame]).unwrap();
        assert_eq!(b.rx_burst(8, |_| ()), Ok(0));
        net.lock().advance(10);
        assert_eq!(b.rx_burst(8, |_| ()), Ok(1));
    }
}
