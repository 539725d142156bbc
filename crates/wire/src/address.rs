//! An endpoint's opaque address: what another process needs to reach it.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | version |
//! | 1 | 1 | 0: id and life follow; 1: an X25519 public key follows |
//! | 2 | 2 | UDP port |
//! | 4 | 16 | IPv6 address (IPv4 as ::ffff:a.b.c.d) |
//! | 20 | 32 | id (8), life (8), zeros (16); or the public key |
//! | 52 | 8 | host: equal where two endpoints share a kernel and network namespace |
//! | 60 | 4 | reserved, zero |

use crate::{WireError, take, u16_at, u32_at, u64_at};

/// Version of the address layout.
pub const ADDRESS_VERSION: u8 = 1;
/// Bytes of an address.
pub const ADDRESS_BYTES: usize = 64;

/// An endpoint's id, unique among those that share a secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u64);

/// 64 random bits that name one incarnation of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(pub u64);

/// A parsed address of an endpoint in a job with a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// UDP port.
    pub port: u16,
    /// IPv6 address, IPv4 mapped.
    pub ip: [u8; 16],
    /// The endpoint's id.
    pub id: EndpointId,
    /// The endpoint's life.
    pub life: Life,
    /// Equal for endpoints that may share memory; 0 for none.
    pub host: u64,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// [`WireError::Version`], [`WireError::Unknown`] for the public-key form
    /// (no launcher of this version makes it), [`WireError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let [version, form] = take(bytes, 0)?;
        if version != ADDRESS_VERSION {
            return Err(WireError::Version(version));
        }
        if form != 0 {
            return Err(WireError::Unknown(form));
        }
        if take::<16>(bytes, 36)? != [0; 16] || u32_at(bytes, 60)? != 0 {
            return Err(WireError::Malformed);
        }
        Ok(Self {
            port: u16_at(bytes, 2)?,
            ip: take(bytes, 4)?,
            id: EndpointId(u64_at(bytes, 20)?),
            life: Life(u64_at(bytes, 28)?),
            host: u64_at(bytes, 52)?,
        })
    }

    /// The address's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ADDRESS_BYTES] {
        let mut b = [0; ADDRESS_BYTES];
        b[0] = ADDRESS_VERSION;
        b[2..4].copy_from_slice(&self.port.to_le_bytes());
        b[4..20].copy_from_slice(&self.ip);
        b[20..28].copy_from_slice(&self.id.0.to_le_bytes());
        b[28..36].copy_from_slice(&self.life.0.to_le_bytes());
        b[52..60].copy_from_slice(&self.host.to_le_bytes());
        b
    }
}
