//! Packets that the kernel refuses here: a peer that seems silent may only be out of our reach.

use portolan_proto::PeerId;

use crate::values::Failure;

/// Current failures.
#[derive(Debug, Default)]
pub(super) struct Failing {
    /// Peers to whom the last packet could not be sent, and errno.
    unsent: Vec<(PeerId, i32)>,
    /// The last try to receive failed: errno.
    deaf: Option<i32>,
    /// The program was told that nothing is received.
    told: bool,
}

impl Failing {
    /// Notes that packets to these peers left.
    #[inline]
    pub fn sent(&mut self, peers: impl Iterator<Item = PeerId>) {
        if !self.unsent.is_empty() {
            peers.for_each(|peer| self.unsent.retain(|(known, _)| *known != peer));
        }
    }

    /// Notes that a packet could not leave.
    #[cold]
    pub fn not_sent(&mut self, peer: PeerId, errno: i32) {
        self.unsent.retain(|(known, _)| *known != peer);
        self.unsent.push((peer, errno));
    }

    /// Notes that the socket was read.
    #[inline]
    pub const fn received(&mut self) {
        self.deaf = None;
    }

    /// Notes that the socket could not be read; returns the failure the first time.
    #[cold]
    pub fn not_received(&mut self, errno: i32) -> Option<Failure> {
        self.deaf = Some(errno);
        let first = !std::mem::replace(&mut self.told, true);
        first.then_some(Failure::Receive(errno))
    }

    /// Returns why a peer may seem silent.
    pub fn of(&self, peer: PeerId) -> Option<Failure> {
        let unsent = self.unsent.iter().find(|(known, _)| *known == peer);
        let unsent = unsent.map(|(_, errno)| Failure::Send(*errno));
        self.deaf.map(Failure::Receive).or(unsent)
    }
}
