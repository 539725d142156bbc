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
//! | 8 | get | key, salt, offset, length of the whole get, initiator's operation, offset in the get, flags and bytes of this request | |
//! | 9 | got | initiator's operation, offset in the get | the bytes |
//! | 10 | atomic | key, salt, offset, initiator's operation, flags | operands, comparands |
//! | 11 | flush | initiator's operation | |
//! | 12 | result | initiator's operation or 0, status | what a fetching atomic operation found |
//!
//! Eager, offer and push are requests, in one flow, so that messages of a pair are matched
//! in the order of sending. Put, get, atomic and flush are requests too, in the same flow or
//! one of their own, so that they are executed and flushed in order. Pulls are replies in a
//! flow of their own, so that none waits behind bytes that the peer has asked for. All
//! other kinds are replies, in a third.
//!
//! An offset counts from the beginning of a region, which is named by its key
//! and salt; salt 0 is whatever region has the key. An access with the flag "fence" waits at
//! the target until earlier puts have arrived in full and their signals were delivered.
//! Statuses: 0 done; refused because of 1 key, 2 rights, 3 bounds, 4 alignment,
//! 5 the signal's port, 6 forbidden. A put whose initiator's operation is 0 is answered only
//! if it is refused.

/// Kind of a message between exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum Kind {
    /// A whole message.
    Eager = 0,
    /// Announces a message, with its first push.
    Offer = 1,
    /// Second push of an offered message.
    Push = 2,
    /// Asks for a part of an offered message.
    Pull = 3,
    /// Answers a pull.
    Pulled = 4,
    /// The receiver has all that it needs of an offered message, or does not want it.
    Done = 5,
    /// Reports the credit limit for pushed bytes.
    Credit = 6,
    /// Bytes for a region.
    Put = 7,
    /// Asks for bytes of a region.
    Get = 8,
    /// Answers a get.
    Got = 9,
    /// Atomic operation on numbers in a region.
    Atomic = 10,
    /// Asks for an answer when all earlier puts are visible.
    Flush = 11,
    /// How an access ended.
    Result = 12,
}

/// Messages from one exchange to another that keep their order among themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Messages that may wait for the receiver's program.
    Requests,
    /// Answers, which never wait for it.
    Replies,
    /// Requests for bytes of offered messages. They wait neither for a program nor behind
    /// the bytes that replies carry.
    Pulls,
}

/// Number of kinds.
pub const KINDS: u16 = 13;

impl Kind {
    /// Returns the kind with this number, if there is one.
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

    /// Stream in which messages of this kind travel.
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

    /// Whether the kind belongs to one-sided memory, not to matched messages.
    #[must_use]
    pub const fn is_one_sided(self) -> bool {
        self as u16 >= Self::Put as u16
    }
}

/// The argument words of a message, as they travel: 8 bytes each, little-endian.
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

/// Bit of an offer's fifth word: the receiver's request does not wait for the pushes.
pub(crate) const OVERLAP: u64 = 1 << 63;
/// Bit of an offer's fifth word: the sender waits, and can write to the receiver's memory.
pub(crate) const SHARES: u64 = 1 << 62;
/// Bit of an offer's fifth word: the send is synchronous. It ends when a receive has met the
/// message, so nothing is pulled ahead of that, unless the sender closes.
pub(crate) const SYNC: u64 = 1 << 61;
/// Mask in an offer's fifth word: bytes of the second push.
pub(crate) const SECOND: u64 = (1 << 48) - 1;

/// Second word of *done*: the receiver closes, and has not received the message.
pub(crate) const UNWANTED: u64 = 1;

/// Flag of an access: it waits until the initiator's earlier puts have arrived.
pub(crate) const FENCE: u64 = 1 << 63;
/// Flag of a put: the target's program gets a signal.
pub(crate) const SIGNAL: u64 = 1;
