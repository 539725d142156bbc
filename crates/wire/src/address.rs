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

/// Bytes of a public key.
const KEY_BYTES: usize = 32;
const FORM_IDENTITY: u8 = 0;
const FORM_KEY: u8 = 1;

/// Port, IP address, the 32 bytes that depend on the form, and host.
type Fields = (u16, [u8; 16], [u8; KEY_BYTES], u64);

/// Keeps P3.10.
fn parse(bytes: &[u8], wanted: u8) -> Result<Fields, WireError> {
    let [version, form] = take(bytes, 0)?;
    if version != ADDRESS_VERSION {
        return Err(WireError::Version(version));
    }
    if form != wanted {
        return Err(WireError::Unknown(form));
    }
    if u32_at(bytes, 60)? != 0 {
        return Err(WireError::Malformed);
    }
    Ok((
        u16_at(bytes, 2)?,
        take(bytes, 4)?,
        take(bytes, 20)?,
        u64_at(bytes, 52)?,
    ))
}

/// Keeps P3.10.
fn compose(form: u8, (port, ip, who, host): Fields) -> [u8; ADDRESS_BYTES] {
    let mut b = [0; ADDRESS_BYTES];
    b[0] = ADDRESS_VERSION;
    b[1] = form;
    b[2..4].copy_from_slice(&port.to_le_bytes());
    b[4..20].copy_from_slice(&ip);
    b[20..52].copy_from_slice(&who);
    b[52..60].copy_from_slice(&host.to_le_bytes());
    b
}

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
    /// (see [`KeyAddress`]), [`WireError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (port, ip, who, host) = parse(bytes, FORM_IDENTITY)?;
        if take::<16>(&who, 16)? != [0; 16] {
            return Err(WireError::Malformed);
        }
        Ok(Self {
            port,
            ip,
            id: EndpointId(u64_at(&who, 0)?),
            life: Life(u64_at(&who, 8)?),
            host,
        })
    }

    /// The address's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ADDRESS_BYTES] {
        let mut who = [0; KEY_BYTES];
        who[..8].copy_from_slice(&self.id.0.to_le_bytes());
        who[8..16].copy_from_slice(&self.life.0.to_le_bytes());
        compose(FORM_IDENTITY, (self.port, self.ip, who, self.host))
    }
}

/// A parsed address of an endpoint that has a public key. Id and life follow
/// from that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyAddress {
    /// UDP port.
    pub port: u16,
    /// IPv6 address, IPv4 mapped.
    pub ip: [u8; 16],
    /// The X25519 public key, fresh for this life.
    pub key: [u8; KEY_BYTES],
    /// Equal for endpoints that may share memory; 0 for none.
    pub host: u64,
}

impl KeyAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// [`WireError::Version`], [`WireError::Unknown`] for the form without a
    /// key (see [`Address`]), [`WireError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let (port, ip, key, host) = parse(bytes, FORM_KEY)?;
        Ok(Self {
            port,
            ip,
            key,
            host,
        })
    }

    /// The address's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ADDRESS_BYTES] {
        compose(FORM_KEY, (self.port, self.ip, self.key, self.host))
    }
}
