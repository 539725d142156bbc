//! Networks of this endpoint.

use crate::base::NetAddress;

/// A network that this endpoint has a link to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LocalNetwork {
    /// Our address there, and the UDP port of our link.
    pub address: NetAddress,
    /// Bits of the address (of 128) that name the network.
    pub prefix: u8,
    /// Largest UDP payload that the interface takes; 0: no such network.
    pub packet_max: u16,
}

impl LocalNetwork {
    /// Whether an address lies in this network.
    #[must_use]
    pub fn has(&self, ip: [u8; 16]) -> bool {
        let bits = u128::from_be_bytes(self.address.ip) ^ u128::from_be_bytes(ip);
        self.packet_max > 0 && bits.leading_zeros() >= u32::from(self.prefix)
    }
}
