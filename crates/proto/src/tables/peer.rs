//! What is known of every peer, talked to or not.

use portolan_wire::{EndpointId, Life};

use super::PeerEvents;
use crate::base::{ConnIndex, DeathReason, Linked, NetAddress, PATHS_MAX, PeerId, indexed};
use crate::congestion::Mode;

/// Bits of a connection number that are the peer's index; the rest is random.
pub(crate) const PEER_BITS: u32 = 20;

/// It has no parked state.
pub(crate) const NO_PLACE: u32 = u32::MAX;

/// How far the acquaintance with a peer has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// Nothing was sent to it yet.
    #[default]
    New,
    /// Connect packets are on their way.
    Connecting,
    /// Keys and limits are agreed.
    Up,
    /// It will never answer in this life.
    Dead(DeathReason),
    /// It has introduced itself: nothing of it is taken before it is welcome.
    Come,
    /// Nobody has this number: it was given back, and another may get it.
    Free,
}

/// A peer. Plain data; what is known of it even if nothing was ever said. All
/// else is `Kept` of those that were talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    pub(crate) id: EndpointId,
    pub(crate) life: Life,
    pub(crate) nonce_mine: u64,
    pub(crate) to: NetAddress,
    /// Its active state.
    pub(crate) conn: ConnIndex,
    /// Where its parked state lies.
    pub(crate) place: u32,
    /// What its connection number has beside its index.
    pub(crate) lot: u16,
    pub(crate) state: PeerState,
    pub(crate) bits: PeerBits,
    pub(crate) events: PeerEvents,
    /// The free number that is given after this one, if this is free.
    pub(crate) next: PeerId,
}

impl Linked for Peer {
    type Index = PeerId;

    fn next(&mut self) -> &mut PeerId {
        &mut self.next
    }
}

impl Peer {
    /// What a connection number has beside the peer's index.
    pub(crate) const fn lot(connection: u32) -> u16 {
        (connection >> PEER_BITS) as u16
    }

    /// The connection number that the peer was offered; it has this index.
    #[inline]
    pub(crate) const fn connection(&self, peer: PeerId) -> u32 {
        (self.lot as u32) << PEER_BITS | peer.0
    }
}

/// What takes a bit each: a peer has no byte to spare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerBits(u8);

impl PeerBits {
    const SHARED: u8 = 1;
    const CLOSE_OWED: u8 = 2;
    const CUT_SHORT: u8 = 4;
    const FIXED: u8 = 8;
    const PARTING: u8 = 64;
    const STRANGER: u8 = 128;
    /// Two bits: by which of our networks the path to its address leaves.
    const NETWORK_AT: u32 = 4;
    const NETWORK: u8 = 3 << Self::NETWORK_AT;

    pub const fn new(mode: Mode) -> Self {
        Self(match mode {
            Mode::Lan => 0,
            Mode::Shared => Self::SHARED,
        })
    }

    /// Congestion control of its path.
    pub const fn mode(self) -> Mode {
        if self.0 & Self::SHARED == 0 {
            Mode::Lan
        } else {
            Mode::Shared
        }
    }

    /// It is dead, and a message of its was dropped for want of its rest: what
    /// would follow has a gap before it.
    pub const fn cut_short(self) -> bool {
        self.0 & Self::CUT_SHORT != 0
    }

    /// Sets it, for the rest of its life.
    pub const fn set_cut_short(&mut self) {
        self.0 |= Self::CUT_SHORT;
    }

    /// Its lives come from the caller alone: another that speaks up is not
    /// listened to.
    pub const fn fixed(self) -> bool {
        self.0 & Self::FIXED != 0
    }

    /// Of a life that begins: what holds for all lives of the peer.
    pub const fn of_new_life(self) -> Self {
        Self(self.0 & (Self::SHARED | Self::FIXED | Self::NETWORK | Self::STRANGER))
    }

    /// The network of ours that its address lies in.
    pub const fn network(self) -> u8 {
        (self.0 & Self::NETWORK) >> Self::NETWORK_AT
    }

    /// Sets it, below [`PATHS_MAX`].
    pub const fn set_network(&mut self, number: u8) {
        self.0 = self.0 & !Self::NETWORK | number << Self::NETWORK_AT;
    }

    /// The same, reached by a path of this mode.
    pub const fn on_way(self, mode: Mode) -> Self {
        Self(self.0 & !Self::SHARED | Self::new(mode).0)
    }

    /// Sets it, for all of its lives.
    pub const fn set_fixed(&mut self) {
        self.0 |= Self::FIXED;
    }

    /// It was removed, and is yet to hear of that.
    pub const fn parting(self) -> bool {
        self.0 & Self::PARTING != 0
    }

    /// Sets it, for the rest of its life.
    pub const fn set_parting(&mut self) {
        self.0 |= Self::PARTING;
    }

    /// It has introduced itself; the caller has not added it.
    pub const fn stranger(self) -> bool {
        self.0 & Self::STRANGER != 0
    }

    /// Sets it.
    pub const fn set_stranger(&mut self, stranger: bool) {
        self.0 = self.0 & !Self::STRANGER | if stranger { Self::STRANGER } else { 0 };
    }

    /// It must be told that this endpoint closes: neither connection nor frame
    /// was free for that yet.
    pub const fn close_owed(self) -> bool {
        self.0 & Self::CLOSE_OWED != 0
    }

    /// Sets it; says what it was.
    pub const fn set_close_owed(&mut self, owed: bool) -> bool {
        let was = self.close_owed();
        self.0 = self.0 & !Self::CLOSE_OWED | if owed { Self::CLOSE_OWED } else { 0 };
        was
    }
}

// Rule 4: a peer never talked to costs under 256 bytes, the engine's part of it
// included.
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
