//! The messages that exchanges send each other, on reserved ports of the engine.
//!
//! | kind | name | argument words | payload |
//! | --- | --- | --- | --- |
//! | 0 | eager | tag, data if it has any | the message |
//! | 1 | offer | tag, length of the message, sender's operation, address or 0, flags and bytes of the second push, data if it has any | first push |
//! | 2 | push | sender's operation | second push |
//! | 3 | pull | sender's operation, offset, length, receiver's operation | |
//! | 4 | pulled | receiver's operation, offset | the bytes |
//! | 5 | done | sender's operation | |
//! | 6 | credit | bytes that may be pushed since connect | |
//!
//! Eager, offer and push go as requests, in one flow, so that messages of a
//! pair are matched in the order of sending; the others as replies, in another.

/// What a message of the exchange is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Kind {
    /// A whole message.
    Eager = 0,
    /// A message, and the first bytes of it.
    Offer = 1,
    /// The bytes of an offered message that follow those.
    Push = 2,
    /// Asks for a part of an offered message.
    Pull = 3,
    /// The part.
    Pulled = 4,
    /// The receiver has, or does not want, what is missing of an offer.
    Done = 5,
    /// More may be pushed.
    Credit = 6,
}

/// How many there are.
pub const KINDS: u16 = 7;

impl Kind {
    /// The kind of a number.
    #[must_use]
    pub const fn of(number: u16) -> Option<Self> {
        Some(match number {
            0 => Self::Eager,
            1 => Self::Offer,
            2 => Self::Push,
            3 => Self::Pull,
            4 => Self::Pulled,
            5 => Self::Done,
            6 => Self::Credit,
            _ => return None,
        })
    }

    /// Whether it is said as a reply, in the flow of those.
    #[must_use]
    pub const fn is_reply(self) -> bool {
        !matches!(self, Self::Eager | Self::Offer | Self::Push)
    }
}

/// The argument words of a message, as they travel: 8 bytes each,
/// little-endian. Those that are missing count as 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a>(pub &'a [u8]);

impl Words<'_> {
    #[inline]
    pub fn get(&self, index: usize) -> Option<u64> {
        let word = self.0.get(8 * index..8 * index + 8)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    #[inline]
    pub fn or_zero(&self, index: usize) -> u64 {
        self.get(index).unwrap_or(0)
    }
}

/// Of an offer's fifth word: the request is to leave at once.
pub(crate) const OVERLAP: u64 = 1 << 63;
/// The bytes of its second push.
pub(crate) const SECOND: u64 = (1 << 48) - 1;
