//! Connect packets: the only ones that carry ids and lives in full.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 12 | header; connection number 0, packet number's low half |
//! | 12 | 8 | sender's id |
//! | 20 | 8 | sender's life |
//! | 28 | 8 | receiver's id |
//! | 36 | 8 | receiver's life |
//! | 44 | 8 | packet number, in full |
//!
//! So far in clear, as associated data. Then, encrypted:
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 52 | 8 | sender's nonce |
//! | 60 | 8 | echo of the receiver's nonce, 0 if unknown |
//! | 68 | 8 | first packet number that the sender uses on path 0 |
//! | 76 | 4 | connection number that the receiver is to use |
//! | 80 | 4 | first message number of every flow |
//! | 84 | 4 | credit for requests |
//! | 88 | 4 | credit for replies |
//! | 92 | 2 | packets that may be in flight before the first acknowledgement |
//! | 94 | 2 | largest packet (UDP payload) the sender's interface takes, bytes |
//! | 96 | 2 | flows of each priority |
//! | 98 | 2 | bit 0: settled, the sender has verified its echo and needs no answer |

use crate::{
    EndpointId, HEADER_BYTES, Life, MessageNo, PacketNo, WireError, u16_at, u32_at, u64_at,
};

/// Bytes in clear at the start of a connect packet: the associated data.
pub const CONNECT_CLEAR_BYTES: usize = HEADER_BYTES + 40;
/// Bytes of a connect packet without its tag.
pub const CONNECT_BYTES: usize = CONNECT_CLEAR_BYTES + 48;

/// The part in clear: which key opens the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectIds {
    /// Sender's id.
    pub from: EndpointId,
    /// Sender's life.
    pub from_life: Life,
    /// Receiver's id.
    pub to: EndpointId,
    /// Receiver's life.
    pub to_life: Life,
    /// Packet number in full, the nonce under the connect key.
    pub number: PacketNo,
}

/// The encrypted part: what the sender offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Connect {
    /// Fresh random number of the sender; both go into the data keys.
    pub nonce: u64,
    /// The receiver's nonce, if it is known; 0 otherwise.
    pub echo: u64,
    /// First packet number of path 0 in the sender's direction.
    pub first_packet: PacketNo,
    /// Connection number for packets towards the sender.
    pub connection: u32,
    /// First message number of every flow of the sender.
    pub first_message: MessageNo,
    /// Fresh packets the receiver may send, by priority index.
    pub credit: [u32; 2],
    /// Packets the receiver may send before the first acknowledgement.
    pub window: u16,
    /// Largest UDP payload that the sender's interface takes, bytes.
    pub packet_max: u16,
    /// Flows of each priority that the sender keeps.
    pub flows: u16,
    /// The sender has seen its own nonce come back: it needs no answer.
    pub settled: bool,
}

impl ConnectIds {
    /// Reads the part in clear (P2.26, P2.27).
    ///
    /// # Errors
    /// [`WireError::Truncated`], or [`WireError::Malformed`] where the two
    /// forms of the packet number differ.
    pub fn parse(packet: &[u8]) -> Result<Self, WireError> {
        let ids = Self {
            from: EndpointId(u64_at(packet, 12)?),
            from_life: Life(u64_at(packet, 20)?),
            to: EndpointId(u64_at(packet, 28)?),
            to_life: Life(u64_at(packet, 36)?),
            number: PacketNo(u64_at(packet, 44)?),
        };
        if ids.number.low() != u32_at(packet, 8)? || u32_at(packet, 4)? != 0 {
            return Err(WireError::Malformed);
        }
        Ok(ids)
    }

    /// Writes the part in clear behind the header.
    ///
    /// # Panics
    /// If `out` is shorter than [`CONNECT_CLEAR_BYTES`].
    pub fn write(&self, out: &mut [u8]) {
        out[12..20].copy_from_slice(&self.from.0.to_le_bytes());
        out[20..28].copy_from_slice(&self.from_life.0.to_le_bytes());
        out[28..36].copy_from_slice(&self.to.0.to_le_bytes());
        out[36..44].copy_from_slice(&self.to_life.0.to_le_bytes());
        out[44..52].copy_from_slice(&self.number.0.to_le_bytes());
    }
}

impl Connect {
    /// Reads the part behind [`CONNECT_CLEAR_BYTES`], after it was opened (P2.26, P2.27).
    ///
    /// # Errors
    /// [`WireError::Truncated`] or [`WireError::Malformed`].
    pub fn parse(body: &[u8]) -> Result<Self, WireError> {
        let connect = Self {
            nonce: u64_at(body, 0)?,
            echo: u64_at(body, 8)?,
            first_packet: PacketNo(u64_at(body, 16)?),
            connection: u32_at(body, 24)?,
            first_message: MessageNo(u32_at(body, 28)?),
            credit: [u32_at(body, 32)?, u32_at(body, 36)?],
            window: u16_at(body, 40)?,
            packet_max: u16_at(body, 42)?,
            flows: u16_at(body, 44)?,
            settled: u16_at(body, 46)? & 1 != 0,
        };
        if u16_at(body, 46)? > 1 || connect.nonce == 0 || connect.flows == 0 {
            return Err(WireError::Malformed);
        }
        Ok(connect)
    }

    /// Writes the encrypted part, before it is sealed.
    ///
    /// # Panics
    /// If `out` is shorter than the 48 bytes that it takes.
    pub fn write(&self, out: &mut [u8]) {
        out[0..8].copy_from_slice(&self.nonce.to_le_bytes());
        out[8..16].copy_from_slice(&self.echo.to_le_bytes());
        out[16..24].copy_from_slice(&self.first_packet.0.to_le_bytes());
        out[24..28].copy_from_slice(&self.connection.to_le_bytes());
        out[28..32].copy_from_slice(&self.first_message.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.credit[0].to_le_bytes());
        out[36..40].copy_from_slice(&self.credit[1].to_le_bytes());
        out[40..42].copy_from_slice(&self.window.to_le_bytes());
        out[42..44].copy_from_slice(&self.packet_max.to_le_bytes());
        out[44..46].copy_from_slice(&self.flows.to_le_bytes());
        out[46..48].copy_from_slice(&u16::from(self.settled).to_le_bytes());
    }
}
