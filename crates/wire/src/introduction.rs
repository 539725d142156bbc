//! Packets by which an endpoint becomes known to one that was never told of it.
//!
//! An introduction, from the stranger:
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 12 | header; connection number for the answer, packet number 0 |
//! | 12 | 8 | echo of the receiver's nonce, 0 if unknown |
//! | 20 | 80 | the sender's public key, sealed to the receiver |
//! | 100 | 116 | a connect packet, with the same echo |
//! | 216 | 16 | mark over all before it, keyed with the receiver's public key |
//!
//! A challenge, the answer to one without a valid echo:
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 12 | header; connection number of the introduction, packet number 0 |
//! | 12 | 16 | mark of the introduction |
//! | 28 | 8 | the receiver's nonce |

use crate::{
    CONNECT_BYTES, Flags, HEADER_BYTES, Header, PacketType, TAG_BYTES, WireError, take, u64_at,
};

const ECHO_AT: usize = HEADER_BYTES;
const KEY_AT: usize = ECHO_AT + 8;
const KEY_BYTES: usize = 80;
const CONNECT_AT: usize = KEY_AT + KEY_BYTES;
const MARK_AT: usize = CONNECT_AT + CONNECT_BYTES + TAG_BYTES;

/// Bytes of an introduction.
pub const INTRODUCTION_BYTES: usize = MARK_AT + TAG_BYTES;
/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = HEADER_BYTES + TAG_BYTES + 8;

/// The parts of an introduction.
#[derive(Debug)]
pub struct IntroductionParts<'a> {
    /// Connection number by which the sender is answered.
    pub connection: u32,
    /// Echo of the receiver's nonce, 0 if unknown.
    pub echo: u64,
    /// The sender's public key, sealed.
    pub key: &'a [u8; KEY_BYTES],
    /// The connect packet, its header included.
    pub connect: &'a mut [u8],
}

/// A header of either kind.
fn header(kind: PacketType, connection: u32) -> Header {
    Header {
        kind,
        flags: Flags::NONE,
        path: 0,
        connection,
        number: 0,
    }
}

/// The connection number in a header that says nothing else.
fn connection_of(packet: &[u8], kind: PacketType) -> Result<u32, WireError> {
    let it = Header::parse(packet)?;
    if it != header(kind, it.connection) {
        return Err(WireError::Malformed);
    }
    Ok(it.connection)
}

impl<'a> IntroductionParts<'a> {
    /// Splits an introduction into what its mark is over, and the mark.
    ///
    /// # Errors
    /// [`WireError::Truncated`], also if it is too long.
    pub fn marked(packet: &[u8]) -> Result<(&[u8], &[u8; TAG_BYTES]), WireError> {
        match packet.split_at_checked(MARK_AT) {
            Some((bytes, mark)) => Ok((bytes, mark.try_into().map_err(|_| WireError::Truncated)?)),
            None => Err(WireError::Truncated),
        }
    }

    /// Takes it apart (P4.13).
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(packet: &'a mut [u8]) -> Result<Self, WireError> {
        if packet.len() != INTRODUCTION_BYTES {
            return Err(WireError::Truncated);
        }
        let connection = connection_of(packet, PacketType::Introduction)?;
        let echo = u64_at(packet, ECHO_AT)?;
        let (front, rest) = packet.split_at_mut(CONNECT_AT);
        let key = front.last_chunk().ok_or(WireError::Truncated)?;
        let connect = &mut rest[..MARK_AT - CONNECT_AT];
        if Header::parse(connect)?.kind != PacketType::Connect {
            return Err(WireError::Malformed);
        }
        Ok(Self {
            connection,
            echo,
            key,
            connect,
        })
    }

    /// Writes all but the mark around a connect packet that stands at the start of `out`;
    /// gives what the mark is over, and where it goes (P4.13).
    ///
    /// # Panics
    /// If `out` has other than [`INTRODUCTION_BYTES`].
    pub fn write(
        out: &'a mut [u8],
        connection: u32,
        echo: u64,
        key: &[u8; KEY_BYTES],
    ) -> (&'a [u8], &'a mut [u8]) {
        assert_eq!(out.len(), INTRODUCTION_BYTES);
        out.copy_within(..CONNECT_BYTES + TAG_BYTES, CONNECT_AT);
        out[..HEADER_BYTES]
            .copy_from_slice(&header(PacketType::Introduction, connection).to_bytes());
        out[ECHO_AT..KEY_AT].copy_from_slice(&echo.to_le_bytes());
        out[KEY_AT..CONNECT_AT].copy_from_slice(key);
        let (marked, mark) = out.split_at_mut(MARK_AT);
        (marked, mark)
    }
}

/// A challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Challenge {
    /// Connection number that the introduction gave.
    pub connection: u32,
    /// The introduction's mark.
    pub mark: [u8; TAG_BYTES],
    /// What the next introduction is to echo; never 0.
    pub nonce: u64,
}

impl Challenge {
    /// Reads one (P4.14).
    ///
    /// # Errors
    /// [`WireError`].
    pub fn parse(packet: &[u8]) -> Result<Self, WireError> {
        if packet.len() != CHALLENGE_BYTES {
            return Err(WireError::Truncated);
        }
        let it = Self {
            connection: connection_of(packet, PacketType::Challenge)?,
            mark: take(packet, HEADER_BYTES)?,
            nonce: u64_at(packet, HEADER_BYTES + TAG_BYTES)?,
        };
        if it.nonce == 0 {
            return Err(WireError::Malformed);
        }
        Ok(it)
    }

    /// Writes it.
    ///
    /// # Panics
    /// If `out` is shorter than [`CHALLENGE_BYTES`].
    pub fn write(&self, out: &mut [u8]) {
        out[..HEADER_BYTES]
            .copy_from_slice(&header(PacketType::Challenge, self.connection).to_bytes());
        out[HEADER_BYTES..][..TAG_BYTES].copy_from_slice(&self.mark);
        out[HEADER_BYTES + TAG_BYTES..][..8].copy_from_slice(&self.nonce.to_le_bytes());
    }
}
