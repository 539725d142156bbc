//! The messages that exchanges send each other, on reserved ports of the engine.
//!
//! | kind | name | argument words | payload |
//! | --- | --- | --- | --- |
//! | 0 | eager | tag, data if it has any | the message |
//! | 1 | offer | tag, length of the message, sender's operation, address or 0, flags and bytes of the second push, data if it has any | first push |
//! | 2 | push | sender's operation | second push |
//! | 3 | pull | sender's operation, offset, length, receiver's operation, key of the memory for it or 0 | |
//! | 4 | pulled | receiver's operation, offset, bytes that were written there if there is no payload | the bytes |
//! | 5 | done | sender's operation, 1 if the message is not wanted | |
//! | 6 | credit | bytes that may be pushed since connect | |
//! | 7 | put | key, salt, offset, initiator's operation or 0, flags, port and word of the signal if there is one | the bytes |
//! | 8 | get | key, salt, offset, length of the whole get, initiator's operation, where in the get, flags and bytes of this request | |
//! | 9 | got | initiator's operation, where in the get | the bytes |
//! | 10 | atomic | key, salt, offset, initiator's operation, flags | operands, what is compared with |
//! | 11 | flush | initiator's operation | |
//! | 12 | result | initiator's operation or 0, status | what a fetching atomic operation found |
//!
//! Eager, offer and push go as requests, in one flow, so that messages of a
//! pair are matched in the order of sending; put, get, atomic and flush as
//! requests too, in one flow, so that they are executed and flushed in order:
//! the same or one of their own. The others are replies, in another. Pulls are replies
//! in a third, so that none waits behind the bytes that the other side has asked for.
//!
//! An offset counts from the beginning of a region, which is named by its key
//! and salt; salt 0 is whatever region has the key. An access whose flags say
//! "fence" waits at the target until all of the earlier puts is there.
//! Statuses: 0 done; refused because of 1 key, 2 rights, 3 bounds, 4 alignment,
//! 5 the signal's port, 6 forbidden. A put whose initiator's operation is 0 is answered only
//! if it is refused.

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
    /// The receiver has what is missing of an offer, or does not want it.
    Done = 5,
    /// More may be pushed.
    Credit = 6,
    /// Bytes for a region.
    Put = 7,
    /// Asks for bytes of a region.
    Get = 8,
    /// Those.
    Got = 9,
    /// Changes numbers in a region.
    Atomic = 10,
    /// Asks for a word when all puts before it are visible.
    Flush = 11,
    /// How an access ended.
    Result = 12,
}

/// Messages from one exchange to another that keep their order among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Those that may wait for the receiver's program.
    Requests,
    /// Answers, which never do.
    Replies,
    /// Requests for bytes of offered messages. They wait neither for a program nor behind
    /// the bytes that replies carry.
    Pulls,
}

/// How many there are.
pub const KINDS: u16 = 13;

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
            7 => Self::Put,
            8 => Self::Get,
            9 => Self::Got,
            10 => Self::Atomic,
            11 => Self::Flush,
            12 => Self::Result,
            _ => return None,
        })
    }

    /// The stream that it is said in.
    #[must_use]
    pub const fn stream(self) -> Stream {
        match self {
            Self::Eager
            | Self::Offer
            | Self::Push
            | Self::Put
            | Self::Get
            | Self::Atomic
            | Self::Flush => Stream::Requests,
            Self::Pull => Stream::Pulls,
            Self::Pulled | Self::Done | Self::Credit | Self::Got | Self::Result => Stream::Replies,
        }
    }

    /// Whether it is of one-sided memory, not of matched messages.
    #[must_use]
    pub const fn is_one_sided(self) -> bool {
        self as u16 >= Self::Put as u16
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
/// Likewise: the sender waits, and can write to the receiver's memory.
pub(crate) const SHARES: u64 = 1 << 62;
/// A bit of the same word: the send is synchronous. It ends when a receive has met the message,
/// so nothing of that is pulled before.
pub(crate) const SYNC: u64 = 1 << 61;
/// The bytes of its second push.
pub(crate) const SECOND: u64 = (1 << 48) - 1;

/// Second word of *done*: the receiver closes, and has not received the message.
pub(crate) const UNWANTED: u64 = 1;

/// Of an access: it waits until the initiator's puts before it are there.
pub(crate) const FENCE: u64 = 1 << 63;
/// Of a put's flags: the target's program is told.
pub(crate) const SIGNAL: u64 = 1;
