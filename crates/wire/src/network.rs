//! Further networks by which an endpoint is reached, as a chunk tells them.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 16 | IPv6 address (IPv4 as ::ffff:a.b.c.d) |
//! | 16 | 2 | UDP port |
//! | 18 | 2 | largest packet (UDP payload) that the interface takes |

/// Bytes of a [`Network`].
pub const NETWORK_BYTES: usize = 20;

/// Networks in one chunk, at most.
pub const NETWORKS_MAX: usize = 15;

/// An address of an endpoint on one network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Network {
    /// IPv6 address, IPv4 as `::ffff:a.b.c.d`.
    pub ip: [u8; 16],
    /// UDP port.
    pub port: u16,
    /// Largest UDP payload that the interface takes.
    pub packet_max: u16,
}

impl Network {
    /// Reads one.
    #[must_use]
    pub fn parse(bytes: &[u8; NETWORK_BYTES]) -> Self {
        let [ip @ .., p0, p1, m0, m1] = *bytes;
        Self {
            ip,
            port: u16::from_le_bytes([p0, p1]),
            packet_max: u16::from_le_bytes([m0, m1]),
        }
    }

    /// Writes it.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; NETWORK_BYTES] {
        let mut out = [0; NETWORK_BYTES];
        out[..16].copy_from_slice(&self.ip);
        out[16..18].copy_from_slice(&self.port.to_le_bytes());
        out[18..].copy_from_slice(&self.packet_max.to_le_bytes());
        out
    }
}
