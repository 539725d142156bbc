//! What passes between the protocol and its caller.

use super::FrameIndex;
use super::index::TableIndex;
use portolan_wire::{MessageNo, Priority};

/// A peer's index in the endpoint's tables. Stays valid until the endpoint closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

impl PeerId {
    /// No peer.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// Of the peer at a place in the tables.
    #[inline]
    pub(crate) const fn new(place: usize) -> Self {
        Self(place as u32)
    }

    /// The peer's place in the tables.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Default for PeerId {
    /// No peer.
    fn default() -> Self {
        Self::NONE
    }
}

impl TableIndex for PeerId {
    const NONE: Self = Self::NONE;

    fn index(self) -> usize {
        self.index()
    }
}

impl core::fmt::Display for PeerId {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// Names a long message's memory to the caller; the protocol only repeats it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceId(pub u64);

/// An address of a peer on the network: IPv6 (IPv4 mapped) and UDP port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NetAddress {
    /// IPv6 address, IPv4 as `::ffff:a.b.c.d`.
    pub ip: [u8; 16],
    /// UDP port.
    pub port: u16,
}

/// Who has sent a packet that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The peer.
    pub peer: PeerId,
    /// The path that it came by.
    pub path: u8,
    /// It says that packets of ours come to it on path 0 by a detour.
    pub detour: bool,
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// Request or reply.
    pub priority: Priority,
    /// Flow, below [`crate::Config::flows`] of both sides.
    pub flow: u16,
    /// Port of the receiver.
    pub port: u16,
    /// At most [`portolan_wire::ARGS_MAX`] words.
    pub args: &'a [u64],
    /// The bytes; copied before the call returns.
    pub payload: &'a [u8],
}

/// When the memory of a long message is given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Release {
    /// As soon as its last byte was copied into a frame.
    #[default]
    Copied,
    /// When the receiver has acknowledged its last byte.
    Acknowledged,
}

/// How a long message ended for its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// As its [`Release`] said.
    #[default]
    Done,
    /// The peer died first; what it got is unknown.
    PeerDead,
}

/// Part of a message, handed to the receiver.
///
/// Messages of one (peer, priority, flow) come in the order of sending. The
/// first part of each has `offset` 0 and the argument words; further parts may
/// come in any order, each byte exactly once, and none before the first part
/// was taken.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Sender.
    pub peer: PeerId,
    /// Request or reply.
    pub priority: Priority,
    /// Flow.
    pub flow: u16,
    /// Number within (sender, receiver, priority, flow).
    pub message: MessageNo,
    /// The port that it is for.
    pub port: u16,
    /// Argument words, 8 bytes each, little-endian; only in the first part.
    pub args: &'a [u8],
    /// Payload bytes of the whole message.
    pub total: u64,
    /// Where `payload` belongs.
    pub offset: u64,
    /// The bytes.
    pub payload: &'a [u8],
    /// With this part every byte of the message has been handed over.
    pub last: bool,
    /// What the answer to the first part had in [`Verdict::Take`]; 0 in the
    /// first part.
    pub cookie: u64,
}

/// What the receiver does with the first part of a message. Further parts
/// must be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Taken; the value comes back as [`Delivery::cookie`] with further parts.
    Take(u64),
    /// Not now: the protocol holds it (and what follows in its flow) and
    /// offers it again on [`crate::Endpoint::resume`]. The sender runs out of credit.
    NotNow,
    /// Never: the sender is told that the message was refused.
    Refuse,
}

/// Why a peer is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeathReason {
    /// It closed its endpoint, or did not answer our own close.
    Closed,
    /// It did not answer while an operation waited for it.
    Silent,
    /// It never answered a connect packet.
    NoAnswer,
    /// Another life of it spoke up.
    Restarted,
    /// The caller said so ([`crate::Endpoint::peer_died`]), or has removed it.
    Told,
    /// It has removed us, and lives.
    Removed,
}

/// What happens to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerEvent {
    /// It has introduced itself: nothing of it is taken before
    /// [`crate::Endpoint::welcome`].
    Come,
    /// Connected: keys and limits are known.
    Up,
    /// No answer for a while, still being tried; once each silence.
    Waiting,
    /// Dead. Everything unacknowledged was delivered at most once.
    Dead(DeathReason),
}

/// What has happened, for [`crate::Endpoint::poll_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A long message's memory is the caller's again.
    Released(SourceId, Outcome),
    /// The receiver refused a message.
    Refused {
        /// The receiver.
        peer: PeerId,
        /// Priority of the message.
        priority: Priority,
        /// Its flow.
        flow: u16,
        /// Its number.
        message: MessageNo,
    },
    /// A peer came up, is silent or died.
    Peer(PeerId, PeerEvent),
}

/// The memory of long messages.
pub trait Sources {
    /// Copies `into.len()` bytes of a long message from `offset` on.
    fn read(&self, source: SourceId, offset: u64, into: &mut [u8]);
}

/// Why nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// No credit, window or frame now: make progress, try again.
    NoCredit,
    /// The peer is dead; final for this life of it.
    PeerDead,
    /// Flow number at or above what both sides keep.
    BadFlow,
    /// More argument words than [`portolan_wire::ARGS_MAX`].
    TooManyArgs,
    /// Does not fit one packet: use [`crate::Endpoint::send_long`].
    TooLong,
    /// No such peer.
    BadPeer,
}

/// A packet that is ready to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Where to.
    pub to: NetAddress,
    /// Which peer.
    pub peer: PeerId,
    /// By which path.
    pub path: u8,
    /// By which of this endpoint's networks, as [`crate::Endpoint::set_network`]
    /// numbers them.
    pub network: u8,
    /// Frame that holds it.
    pub frame: FrameIndex,
    /// Start within all frames' bytes.
    pub start: usize,
    /// Length, bytes.
    pub len: usize,
    /// Mark it as ECN-capable.
    pub ecn: bool,
    /// It may tell the peer a connection number that it did not have: see
    /// [`crate::Endpoint::connection_numbers`].
    pub connect: bool,
}
