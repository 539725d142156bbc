//! The twelve bytes that start every packet.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | version (high nibble), type (low nibble) |
//! | 1 | 1 | flags |
//! | 2 | 1 | path |
//! | 3 | 1 | reserved, zero |
//! | 4 | 4 | connection number, chosen by the receiver |
//! | 8 | 4 | packet number, low 32 bits |

use crate::{WireError, take, u32_at};

/// The wire version that this crate speaks.
pub const VERSION: u8 = 1;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 12;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PacketType {
    /// Carries ids and lives in full; makes a connection.
    Connect = 1,
    /// Everything after that.
    Data = 2,
    /// A connect packet to one who may not know its sender.
    Introduction = 3,
    /// Asks whoever sends such a one to show that it gets answers.
    Challenge = 4,
}

/// Bits of the header's second byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(u8);

impl Flags {
    /// No bit set.
    pub const NONE: Self = Self(0);
    /// The sender wants an acknowledgement.
    pub const ACK_WANTED: Self = Self(1);
    /// The low bit of the key phase.
    pub const KEY_PHASE: Self = Self(2);
    /// An acknowledgement stands before the chunks.
    pub const HAS_ACK: Self = Self(4);
    /// The sender of this packet has no room to hold requests that come before
    /// their turn: what it shows as missing may have been refused for that.
    pub const REQUESTS_FULL: Self = Self(8);
    /// The same of replies.
    pub const REPLIES_FULL: Self = Self(16);
    /// What the receiver of this packet sent lately came to its sender by a
    /// detour, such as a queue of the network card that is not its own.
    pub const DETOUR: Self = Self(32);
    const ALL: u8 = 63;

    /// Whether every bit of `other` is set.
    #[inline]
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of bits; `other` only if `on`.
    #[inline]
    #[must_use]
    pub const fn with(self, other: Self, on: bool) -> Self {
        Self(self.0 | if on { other.0 } else { 0 })
    }
}

/// A parsed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// What the packet is for.
    pub kind: PacketType,
    /// Bits that may differ packet by packet.
    pub flags: Flags,
    /// Path (pair of addresses) whose number space `number` belongs to.
    pub path: u8,
    /// Connection number that the receiver chose; 0 in connect packets.
    pub connection: u32,
    /// Low 32 bits of the packet number.
    pub number: u32,
}

impl Header {
    /// Reads the header at the start of `packet` (P2.1, P2.2, P2.3).
    ///
    /// # Errors
    /// Any [`WireError`]; the packet is to be dropped and counted.
    #[inline]
    pub fn parse(packet: &[u8]) -> Result<Self, WireError> {
        let [first, flags, path, reserved] = take(packet, 0)?;
        if first >> 4 != VERSION {
            return Err(WireError::Version(first >> 4));
        }
        let kind = match first & 0x0f {
            1 => PacketType::Connect,
            2 => PacketType::Data,
            3 => PacketType::Introduction,
            4 => PacketType::Challenge,
            _ => return Err(WireError::Unknown(first)),
        };
        if flags & !Flags::ALL != 0 {
            return Err(WireError::Unknown(flags));
        }
        if reserved != 0 {
            return Err(WireError::Malformed);
        }
        Ok(Self {
            kind,
            flags: Flags(flags),
            path,
            connection: u32_at(packet, 4)?,
            number: u32_at(packet, 8)?,
        })
    }

    /// The header's bytes (P2.1).
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        // Two stores: what copies it at once need not wait for the bytes of several.
        let first = [(VERSION << 4) + self.kind as u8, self.flags.0, self.path, 0];
        let first = u64::from(u32::from_le_bytes(first)) | u64::from(self.connection) << 32;
        let mut b = [0; HEADER_BYTES];
        b[..8].copy_from_slice(&first.to_le_bytes());
        b[8..].copy_from_slice(&self.number.to_le_bytes());
        b
    }
}
