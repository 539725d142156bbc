//! Who may speak to a node, as the steering program of a host port is told:
//! what it would drop, the node must not miss.

use std::collections::BTreeMap;

use portolan_proto::PeerId;
use portolan_wire::{Header, PacketType};

/// The connection numbers that each peer was given.
#[derive(Debug, Default)]
pub(super) struct Gate(BTreeMap<PeerId, Vec<u32>>);

impl Gate {
    /// A peer has these numbers and no others.
    pub fn admit(&mut self, peer: PeerId, numbers: Vec<u32>) {
        self.0.insert(peer, numbers);
    }

    /// Whether a packet would come through.
    pub fn admits(&self, packet: &[u8]) -> bool {
        Header::parse(packet).is_ok_and(|header| match header.kind {
            PacketType::Connect | PacketType::Introduction | PacketType::Challenge => true,
            PacketType::Data => self.0.values().flatten().any(|it| *it == header.connection),
        })
    }
}
