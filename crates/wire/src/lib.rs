//! Portolan's packet formats: checked byte views and parsed values.
//!
//! Nothing here knows time, keys or I/O. Every integer is little-endian.
//! `docs/protocol.md` is the specification; the offsets below are its tables.
//!
//! A packet is `header | [ack] | chunks | tag`. The header is associated
//! data, ack and chunks are encrypted, the tag closes the packet.
#![no_std]
#![forbid(unsafe_code)]

mod ack;
mod address;
mod chunk;
mod connect;
mod header;
mod introduction;
mod network;
mod seq;

pub use ack::{ACK_BYTES, Ack, BITMAP_WORDS_MAX};
pub use address::{ADDRESS_BYTES, ADDRESS_VERSION, Address, EndpointId, KeyAddress, Life};
pub use chunk::{ARGS_MAX, BODY_BYTES, Body, Chunk, Chunks, HEAD_BYTES, Head, REFUSE_BYTES};
pub use connect::{CONNECT_BYTES, CONNECT_CLEAR_BYTES, Connect, ConnectIds};
pub use header::{Flags, HEADER_BYTES, Header, PacketType, VERSION};
pub use introduction::{CHALLENGE_BYTES, Challenge, INTRODUCTION_BYTES, IntroductionParts};
pub use network::{NETWORK_BYTES, NETWORKS_MAX, Network};
pub use seq::{MessageNo, PacketNo, Priority};

/// Bytes of the authentication tag that ends every packet.
pub const TAG_BYTES: usize = 16;

/// Why bytes are not a packet of ours. Never a panic: the network wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WireError {
    /// Fewer bytes than the fields need.
    #[error("packet ends before its fields do")]
    Truncated,
    /// Another version of the wire format: its number.
    #[error("wire version {0}, this side speaks {VERSION}")]
    Version(u8),
    /// A type, kind or flag that this version does not define.
    #[error("undefined type, kind or flag {0:#04x}")]
    Unknown(u8),
    /// A field whose value contradicts another or its own range.
    #[error("fields contradict each other")]
    Malformed,
}

/// Reads `N` bytes at `at`, or says that the packet is too short.
fn take<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], WireError> {
    at.checked_add(N)
        .and_then(|end| bytes.get(at..end))
        .and_then(|s| s.try_into().ok())
        .ok_or(WireError::Truncated)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, WireError> {
    take(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, WireError> {
    take(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, WireError> {
    take(bytes, at).map(u64::from_le_bytes)
}
