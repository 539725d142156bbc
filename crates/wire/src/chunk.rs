//! What a data packet carries: chunks, one after another.
//!
//! The first byte is the kind (low three bits) and the priority (bit 3).
//!
//! | kind | name | layout after the first byte |
//! | --- | --- | --- |
//! | 0 | pad | the rest of the packet, ignored |
//! | 1 | head | args u8, flow u16, message u32, port u16, length u16, total u64, args × u64, `length` bytes |
//! | 2 | body | zero u8, flow u16, message u32, fragment u32, then the rest of the packet |
//! | 3 | refuse | zero u8, flow u16, message u32 |
//! | 4 | close | alive u8 (0, 1), zero × 2 |
//! | 5 | ping | zero × 3 |
//! | 6 | networks | count u8 (1 to 15), zero × 2, `count` × [`crate::Network`] |
//! | 7 | stopped | zero u8, serial u16, flows of requests u16, flows of replies u16 |
//!
//! A message whose `total` exceeds `length` goes on in bodies. `fragment`
//! counts units of 64 payload bytes from the message's start, so a resend may
//! be cut anew when the path's MTU has changed.

use crate::{
    MessageNo, NETWORK_BYTES, NETWORKS_MAX, Priority, WireError, take, u16_at, u32_at, u64_at,
};

/// Bytes of a head chunk before its argument words.
pub const HEAD_BYTES: usize = 20;
/// Bytes of a body chunk before its payload.
pub const BODY_BYTES: usize = 12;
/// Bytes of a refuse chunk.
pub const REFUSE_BYTES: usize = 8;
/// Bytes of a stopped chunk.
pub const STOPPED_BYTES: usize = 8;
/// Bytes of a close or ping chunk, and of a networks chunk before its entries.
const BARE_BYTES: usize = 4;
/// Argument words (64 bits each) beside a payload, at most.
pub const ARGS_MAX: usize = 20;

const REPLY: u8 = 8;

/// A whole message, or the first part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head<'a> {
    /// Its priority.
    pub priority: Priority,
    /// Its flow.
    pub flow: u16,
    /// Its number within priority and flow.
    pub message: MessageNo,
    /// The port that it is for.
    pub port: u16,
    /// Payload bytes of the whole message.
    pub total: u64,
    /// Argument words, little-endian, 8 bytes each.
    pub args: &'a [u8],
    /// The first payload bytes.
    pub payload: &'a [u8],
}

/// A further part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Body<'a> {
    /// Priority of its message.
    pub priority: Priority,
    /// Flow of its message.
    pub flow: u16,
    /// Its message.
    pub message: MessageNo,
    /// Where `payload` starts, in units of [`Body::UNIT`] bytes.
    pub fragment: u32,
    /// The bytes.
    pub payload: &'a [u8],
}

impl Body<'_> {
    /// Bytes in a unit of `fragment`.
    pub const UNIT: u64 = 64;
}

/// One chunk of a data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Chunk<'a> {
    /// A whole message, or the first part of one.
    Head(Head<'a>),
    /// A further part.
    Body(Body<'a>),
    /// The receiver closed the port: the message was not delivered.
    Refuse {
        /// Priority of the refused message.
        priority: Priority,
        /// Flow of the refused message.
        flow: u16,
        /// The refused message.
        message: MessageNo,
    },
    /// Nothing more comes from the sender.
    Close {
        /// Its endpoint lives on: it has only removed this peer.
        alive: bool,
    },
    /// Wants an acknowledgement and nothing else.
    Ping,
    /// Further networks by which the sender is reached, 1 to
    /// [`NETWORKS_MAX`] of [`NETWORK_BYTES`] each, read by
    /// [`crate::Network::parse`].
    Networks(&'a [[u8; NETWORK_BYTES]]),
    /// Flows of which the sender wants nothing more for now: all of them. A
    /// later one says which they are from then on.
    Stopped {
        /// Counts these chunks, from 1, and wraps.
        serial: u16,
        /// The flows of requests and of replies, a bit each.
        flows: [u16; 2],
    },
}

/// First byte of a chunk.
#[inline]
const fn lead(kind: u8, priority: Priority) -> u8 {
    kind + match priority {
        Priority::Request => 0,
        Priority::Reply => REPLY,
    }
}

/// Priority in the first byte of a chunk.
#[inline]
const fn priority_of(lead: u8) -> Priority {
    if lead & REPLY == 0 {
        Priority::Request
    } else {
        Priority::Reply
    }
}

impl<'a> Head<'a> {
    /// Reads a head chunk at the start of `bytes`, whose first byte was read.
    #[inline]
    fn parse(priority: Priority, bytes: &'a [u8]) -> Result<Self, WireError> {
        let fixed: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(WireError::Truncated)?;
        let args = fixed[1] as usize;
        if args > ARGS_MAX {
            return Err(WireError::Malformed);
        }
        let length = u16_at(fixed, 10)? as usize;
        let payload_at = HEAD_BYTES + 8 * args;
        let parts = bytes.get(HEAD_BYTES..payload_at + length);
        let (args, payload) = (parts.ok_or(WireError::Truncated)?).split_at(8 * args);
        let total = u64_at(fixed, 12)?;
        // Only whole units may be left to the bodies.
        if total < length as u64
            || (total > length as u64 && !(length as u64).is_multiple_of(Body::UNIT))
        {
            return Err(WireError::Malformed);
        }
        Ok(Self {
            priority,
            flow: u16_at(fixed, 2)?,
            message: MessageNo(u32_at(fixed, 4)?),
            port: u16_at(fixed, 8)?,
            total,
            args,
            payload,
        })
    }

    /// Reads chunks that are one whole message, and nothing else.
    #[inline]
    #[must_use]
    pub fn whole(chunks: &'a [u8]) -> Option<Self> {
        let lead = *chunks.first()?;
        if lead & !REPLY != 1 {
            return None;
        }
        let head = Self::parse(priority_of(lead), chunks).ok()?;
        let is_all = head.payload.len() as u64 == head.total && head.bytes() == chunks.len();
        is_all.then_some(head)
    }
}

impl Head<'_> {
    /// Bytes that [`Head::write`] writes.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> usize {
        HEAD_BYTES + self.args.len() + self.payload.len()
    }

    /// Writes header and argument words; the caller places the payload after
    /// them (its length is taken from `self.payload`). Gives the bytes written.
    ///
    /// # Panics
    /// If `out` is too short: the caller reserved the room.
    #[inline]
    pub fn write_header(&self, out: &mut [u8]) -> usize {
        debug_assert!(self.args.len().is_multiple_of(8) && self.args.len() <= 8 * ARGS_MAX);
        debug_assert!(self.payload.len() <= u16::MAX as usize);
        let words = (self.args.len() / 8) as u8;
        let fixed = self.fixed(words, self.payload.len() as u16);
        out[..HEAD_BYTES].copy_from_slice(&fixed);
        out[HEAD_BYTES..][..self.args.len()].copy_from_slice(self.args);
        HEAD_BYTES + self.args.len()
    }

    /// The fixed part, for `words` argument words and `length` bytes of payload
    /// that the caller places behind it.
    #[inline(always)]
    #[must_use]
    pub fn fixed(&self, words: u8, length: u16) -> [u8; HEAD_BYTES] {
        let mut out = [0; HEAD_BYTES];
        let first = u64::from(lead(1, self.priority))
            | u64::from(words) << 8
            | u64::from(self.flow) << 16
            | u64::from(self.message.0) << 32;
        out[..8].copy_from_slice(&first.to_le_bytes());
        let next = u32::from(self.port) | u32::from(length) << 16;
        out[8..12].copy_from_slice(&next.to_le_bytes());
        out[12..].copy_from_slice(&self.total.to_le_bytes());
        out
    }

    /// Changes the payload length of a head that stands at the start of `out`.
    ///
    /// # Panics
    /// If `out` is shorter than [`HEAD_BYTES`].
    #[inline]
    pub fn set_length(out: &mut [u8], length: u16) {
        out[10..12].copy_from_slice(&length.to_le_bytes());
    }

    /// Writes the whole chunk; gives the bytes written.
    ///
    /// # Panics
    /// If `out` is too short: the caller reserved the room.
    #[inline]
    pub fn write(&self, out: &mut [u8]) -> usize {
        let at = self.write_header(out);
        out[at..][..self.payload.len()].copy_from_slice(self.payload);
        at + self.payload.len()
    }
}

impl<'a> Body<'a> {
    /// Reads a body, which reaches to the end of `bytes`, and whose first byte was read.
    #[inline]
    fn parse(priority: Priority, bytes: &'a [u8]) -> Result<Self, WireError> {
        let (fixed, payload) = (bytes.split_first_chunk()).ok_or(WireError::Truncated)?;
        let fixed: &[u8; BODY_BYTES] = fixed;
        if payload.is_empty() || fixed[1] != 0 {
            return Err(WireError::Malformed);
        }
        Ok(Self {
            priority,
            flow: u16_at(fixed, 2)?,
            message: MessageNo(u32_at(fixed, 4)?),
            fragment: u32_at(fixed, 8)?,
            payload,
        })
    }

    /// Reads chunks that are one body, and nothing else.
    #[inline]
    #[must_use]
    pub fn alone(chunks: &'a [u8]) -> Option<Self> {
        let lead = *chunks.first()?;
        if lead & !REPLY != 2 {
            return None;
        }
        Self::parse(priority_of(lead), chunks).ok()
    }
}

impl Body<'_> {
    /// Writes the header of a body; the payload follows it to the packet's end.
    ///
    /// # Panics
    /// If `out` is too short: the caller reserved the room.
    #[inline]
    pub fn write_header(&self, out: &mut [u8]) {
        out[0] = lead(2, self.priority);
        out[1] = 0;
        out[2..4].copy_from_slice(&self.flow.to_le_bytes());
        out[4..8].copy_from_slice(&self.message.0.to_le_bytes());
        out[8..12].copy_from_slice(&self.fragment.to_le_bytes());
    }
}

impl Chunk<'_> {
    /// Writes a chunk without payload ([`Chunk::Refuse`], [`Chunk::Close`],
    /// [`Chunk::Ping`], [`Chunk::Networks`], [`Chunk::Stopped`]) or a whole one;
    /// gives the bytes written (P2.19).
    ///
    /// # Panics
    /// If `out` is too short: the caller reserved the room.
    pub fn write(&self, out: &mut [u8]) -> usize {
        match *self {
            Self::Head(head) => head.write(out),
            Self::Body(body) => {
                body.write_header(out);
                out[BODY_BYTES..][..body.payload.len()].copy_from_slice(body.payload);
                BODY_BYTES + body.payload.len()
            }
            Self::Refuse {
                priority,
                flow,
                message,
            } => {
                out[0] = lead(3, priority);
                out[1] = 0;
                out[2..4].copy_from_slice(&flow.to_le_bytes());
                out[4..8].copy_from_slice(&message.0.to_le_bytes());
                REFUSE_BYTES
            }
            Self::Close { alive } => {
                out[..BARE_BYTES].copy_from_slice(&[4, u8::from(alive), 0, 0]);
                BARE_BYTES
            }
            Self::Ping => {
                out[..BARE_BYTES].copy_from_slice(&[5, 0, 0, 0]);
                BARE_BYTES
            }
            Self::Networks(networks) => {
                debug_assert!((1..=NETWORKS_MAX).contains(&networks.len()));
                out[..BARE_BYTES].copy_from_slice(&[6, networks.len() as u8, 0, 0]);
                let entries = networks.as_flattened();
                out[BARE_BYTES..][..entries.len()].copy_from_slice(entries);
                BARE_BYTES + entries.len()
            }
            Self::Stopped { serial, flows } => {
                out[..2].copy_from_slice(&[7, 0]);
                for (at, value) in [(2, serial), (4, flows[0]), (6, flows[1])] {
                    out[at..at + 2].copy_from_slice(&value.to_le_bytes());
                }
                STOPPED_BYTES
            }
        }
    }
}

/// Walks the chunks of a packet; ends at the first error or at padding.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Chunks<'a> {
    /// Over the bytes between acknowledgement and tag.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Keeps P2.19, P2.20, P2.25.
    #[inline]
    fn parse(&self) -> Result<Option<(Chunk<'a>, usize)>, WireError> {
        let b = self.rest;
        let [first] = take(b, 0)?;
        let priority = priority_of(first);
        let kind = first & !REPLY;
        let parsed = match kind {
            0 => return Ok(None),
            1 => {
                let head = Head::parse(priority, b)?;
                (Chunk::Head(head), head.bytes())
            }
            2 => {
                let body = Body::parse(priority, b)?;
                (Chunk::Body(body), b.len())
            }
            3 => {
                let flow = u16_at(b, 2)?;
                let message = MessageNo(u32_at(b, 4)?);
                if b[1] != 0 {
                    return Err(WireError::Malformed);
                }
                (
                    Chunk::Refuse {
                        priority,
                        flow,
                        message,
                    },
                    REFUSE_BYTES,
                )
            }
            4 | 5 => {
                let [lead, alive, zeros @ ..] = take::<4>(b, 0)?;
                let most = u8::from(kind == 4);
                if lead != kind || alive > most || zeros != [0; 2] {
                    return Err(WireError::Malformed);
                }
                let alive = alive != 0;
                (
                    if kind == 4 {
                        Chunk::Close { alive }
                    } else {
                        Chunk::Ping
                    },
                    BARE_BYTES,
                )
            }
            6 => {
                let [lead, count, zeros @ ..] = take::<4>(b, 0)?;
                let count = usize::from(count);
                if lead != 6 || zeros != [0; 2] || !(1..=NETWORKS_MAX).contains(&count) {
                    return Err(WireError::Malformed);
                }
                let bytes = BARE_BYTES + NETWORK_BYTES * count;
                let entries = b.get(BARE_BYTES..bytes).ok_or(WireError::Truncated)?;
                (Chunk::Networks(entries.as_chunks().0), bytes)
            }
            7 => {
                let [lead, zero] = take::<2>(b, 0)?;
                if lead != 7 || zero != 0 {
                    return Err(WireError::Malformed);
                }
                let serial = u16_at(b, 2)?;
                let flows = [u16_at(b, 4)?, u16_at(b, 6)?];
                (Chunk::Stopped { serial, flows }, STOPPED_BYTES)
            }
            _ => return Err(WireError::Unknown(first)),
        };
        Ok(Some(parsed))
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, WireError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match self.parse() {
            Ok(Some((chunk, bytes))) => {
                self.rest = &self.rest[bytes..];
                Some(Ok(chunk))
            }
            Ok(None) => {
                self.rest = &[];
                None
            }
            Err(e) => {
                self.rest = &[];
                Some(Err(e))
            }
        }
    }
}
