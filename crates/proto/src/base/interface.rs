//! Types of the interface between the protocol and its caller.

use super::FrameIndex;
use super::index::TableIndex;
use portolan_seal::SuiteId;
use portolan_wire::{MessageNo, Priority};

/// A peer's index in the endpoint's tables. Valid until [`crate::Endpoint::free_peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u32);

impl PeerId {
    /// No peer.
    pub(crate) const NONE: Self = Self(u32::MAX);

    /// Id of the peer at `place` in the tables.
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

/// The caller's name for a long message's memory; opaque to the protocol.
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

/// Sender of a packet that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The peer.
    pub peer: PeerId,
    /// Path by which the packet came.
    pub path: u8,
    /// The packet says that ours reach the peer on path 0 by a detour.
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
    /// Payload; copied before the call returns.
    pub payload: &'a [u8],
}

/// When the memory of a long message is released to the caller.
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
    /// Released as its [`Release`] says.
    #[default]
    Done,
    /// The peer died first; how much it received is unknown.
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
    /// Destination port.
    pub port: u16,
    /// Argument words, 8 bytes each, little-endian; only in the first part.
    pub args: &'a [u8],
    /// Payload bytes of the whole message.
    pub total: u64,
    /// Offset of `payload` in the message, bytes.
    pub offset: u64,
    /// Payload bytes of this part.
    pub payload: &'a [u8],
    /// This part completes the message.
    pub last: bool,
    /// Value of [`Verdict::Take`] in the answer to the first part; 0 in the first part.
    pub cookie: u64,
}

/// The receiver's answer to the first part of a message. Further parts must be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Taken; the value comes back as [`Delivery::cookie`] with further parts.
    Take(u64),
    /// Not now: the protocol holds the message (and those after it in its flow)
    /// and offers it again on [`crate::Endpoint::resume`]. The sender runs out
    /// of credit.
    NotNow,
    /// Never: the sender receives [`Event::Refused`].
    Refuse,
}

/// Why a peer is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeathReason {
    /// The peer closed its endpoint, or did not answer our own close.
    Closed,
    /// No answer while an operation waited for the peer.
    Silent,
    /// No answer to any connect packet.
    NoAnswer,
    /// A new life of the peer began.
    Restarted,
    /// The caller reported the death ([`crate::Endpoint::peer_died`]), or
    /// removed the peer.
    Told,
    /// The peer removed this endpoint, and lives.
    Removed,
}

/// Events of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerEvent {
    /// The peer introduced itself: nothing of it is accepted before
    /// [`crate::Endpoint::accept`].
    Come,
    /// Connected: keys and limits are known.
    Up,
    /// No answer for [`crate::Config::silence_ns`], connecting goes on; once
    /// each silence.
    Waiting,
    /// Dead. Everything unacknowledged was delivered at most once.
    Dead(DeathReason),
}

/// Events that [`crate::Endpoint::poll_event`] returns.
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
        /// Flow of the message.
        flow: u16,
        /// Number of the message.
        message: MessageNo,
    },
    /// A peer seeks a connection under another suite: nothing of it is taken. An endpoint
    /// reports each suite once.
    OtherSuite {
        /// The peer.
        peer: PeerId,
        /// The suite of this endpoint.
        ours: SuiteId,
        /// The peer's.
        theirs: SuiteId,
    },
    /// A peer introduced itself, came up, is silent or died.
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
    /// The peer is dead, final for this life of it; or this endpoint closes.
    PeerDead,
    /// Flow number at or above [`crate::Config::flows`].
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
    /// Destination address.
    pub to: NetAddress,
    /// Destination peer.
    pub peer: PeerId,
    /// Number of the path.
    pub path: u8,
    /// Network of this endpoint to send on, as numbered by
    /// [`crate::Endpoint::set_network`].
    pub network: u8,
    /// Frame that holds the packet.
    pub frame: FrameIndex,
    /// Start in the bytes of all frames.
    pub start: usize,
    /// Length, bytes.
    pub len: usize,
    /// Mark the packet as ECN-capable.
    pub ecn: bool,
    /// The packet may offer the peer a new connection number: see
    /// [`crate::Endpoint::connection_numbers`].
    pub connect: bool,
}
