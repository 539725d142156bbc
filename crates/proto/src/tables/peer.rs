//! State of every peer, connected or not.

use portolan_wire::{EndpointId, Life};

use super::PeerEvents;
use crate::base::{ConnIndex, DeathReason, Linked, NetAddress, PATHS_MAX, PeerId, indexed};
use crate::congestion::Mode;

/// Bits of a connection number that are the peer's index; the rest is random.
pub(crate) const PEER_BITS: u32 = 20;

/// No place for parked state.
pub(crate) const NO_PLACE: u32 = u32::MAX;

/// Connection state of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// Nothing was sent to the peer yet.
    #[default]
    New,
    /// Connect packets are being sent.
    Connecting,
    /// Keys and limits are agreed.
    Up,
    /// Dead: nothing more is sent to it in this life.
    Dead(DeathReason),
    /// The peer introduced itself: nothing of it is taken before
    /// [`crate::Endpoint::accept`].
    Come,
    /// The number was freed and names no peer; another may get it.
    Free,
}

/// A peer: the state that each has. Plain data. Peers that had a connection
/// also have a `Parked`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    pub(crate) id: EndpointId,
    pub(crate) life: Life,
    pub(crate) nonce_mine: u64,
    pub(crate) to: NetAddress,
    /// The active state.
    pub(crate) conn: ConnIndex,
    /// Place of the parked state.
    pub(crate) place: u32,
    /// Random bits of the connection number, above the index.
    pub(crate) lot: u16,
    pub(crate) state: PeerState,
    pub(crate) bits: PeerBits,
    pub(crate) events: PeerEvents,
    /// Next free number, if this one is free.
    pub(crate) next: PeerId,
}

impl Linked for Peer {
    type Index = PeerId;

    fn next(&mut self) -> &mut PeerId {
        &mut self.next
    }
}

impl Peer {
    /// Bits of a connection number above the peer's index.
    pub(crate) const fn lot(connection: u32) -> u16 {
        (connection >> PEER_BITS) as u16
    }

    /// Connection number offered to the peer, whose index is `peer`.
    #[inline]
    pub(crate) const fn connection(&self, peer: PeerId) -> u32 {
        (self.lot as u32) << PEER_BITS | peer.0
    }
}

/// Flags, a bit each: a peer has no byte to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerBits(u8);

impl PeerBits {
    const SHARED: u8 = 1;
    const CLOSE_OWED: u8 = 2;
    const CUT_SHORT: u8 = 4;
    const FIXED: u8 = 8;
    const PARTING: u8 = 64;
    const STRANGER: u8 = 128;
    /// Two bits: our network by which path 0 leaves.
    const NETWORK_AT: u32 = 4;
    const NETWORK: u8 = 3 << Self::NETWORK_AT;

    pub const fn new(mode: Mode) -> Self {
        Self(match mode {
            Mode::Lan => 0,
            Mode::Shared => Self::SHARED,
        })
    }

    /// Congestion control of path 0.
    pub const fn mode(self) -> Mode {
        if self.0 & Self::SHARED == 0 {
            Mode::Lan
        } else {
            Mode::Shared
        }
    }

    /// The peer is dead, and an incomplete message of it was dropped: later
    /// messages would follow a gap.
    pub const fn cut_short(self) -> bool {
        self.0 & Self::CUT_SHORT != 0
    }

    /// Sets `cut_short`, for the rest of the life.
    pub const fn set_cut_short(&mut self) {
        self.0 |= Self::CUT_SHORT;
    }

    /// Only the caller changes the peer's life: packets of another are ignored.
    pub const fn fixed(self) -> bool {
        self.0 & Self::FIXED != 0
    }

    /// Flags of a new life: those that hold for all lives of the peer.
    pub const fn of_new_life(self) -> Self {
        Self(self.0 & (Self::SHARED | Self::FIXED | Self::NETWORK | Self::STRANGER))
    }

    /// Our network in which the peer's address lies.
    pub const fn network(self) -> u8 {
        (self.0 & Self::NETWORK) >> Self::NETWORK_AT
    }

    /// Sets the network, below [`PATHS_MAX`].
    pub const fn set_network(&mut self, number: u8) {
        self.0 = self.0 & !Self::NETWORK | number << Self::NETWORK_AT;
    }

    /// These flags with another mode of path 0.
    pub const fn on_way(self, mode: Mode) -> Self {
        Self(self.0 & !Self::SHARED | Self::new(mode).0)
    }

    /// Sets `fixed`, for all lives.
    pub const fn set_fixed(&mut self) {
        self.0 |= Self::FIXED;
    }

    /// The peer was removed, and may not know it yet.
    pub const fn parting(self) -> bool {
        self.0 & Self::PARTING != 0
    }

    /// Sets `parting`, for the rest of the life.
    pub const fn set_parting(&mut self) {
        self.0 |= Self::PARTING;
    }

    /// The peer introduced itself; the caller has not added it.
    pub const fn stranger(self) -> bool {
        self.0 & Self::STRANGER != 0
    }

    pub const fn set_stranger(&mut self, stranger: bool) {
        self.0 = self.0 & !Self::STRANGER | if stranger { Self::STRANGER } else { 0 };
    }

    /// A close is still to be sent to the peer: neither connection nor frame
    /// was free for that yet.
    pub const fn close_owed(self) -> bool {
        self.0 & Self::CLOSE_OWED != 0
    }

    /// Sets `close_owed`; returns the old value.
    pub const fn set_close_owed(&mut self, owed: bool) -> bool {
        let was = self.close_owed();
        self.0 = self.0 & !Self::CLOSE_OWED | if owed { Self::CLOSE_OWED } else { 0 };
        was
    }
}

// Rule 4: a peer that never had a connection costs under 256 bytes, the
// engine's part of it included.
const _: () = assert!(size_of::<Peer>() <= 64);
const _: () = assert!(PATHS_MAX == 4, "two bits name a network");

impl Default for Peer {
    fn default() -> Self {
        Self {
            id: EndpointId(0),
            life: Life(0),
            nonce_mine: 0,
            to: NetAddress::default(),
            conn: ConnIndex::NONE,
            place: NO_PLACE,
            lot: 0,
            state: PeerState::New,
            bits: PeerBits::new(Mode::Lan),
            events: PeerEvents::default(),
            next: PeerId::NONE,
        }
    }
}

indexed!(Peer, PeerId);
