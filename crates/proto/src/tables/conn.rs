//! Active state of a peer: what a connection needs while messages move.

use portolan_wire::Ack;

use super::Kept;
use crate::base::{ConnIndex, Linked, PathIndex, PeerId, Unusual, indexed};
use crate::handshake::Handshake;
use crate::inbound::{Inbound, KeptIn};
use crate::outbound::{KeptOut, Outbound};
use crate::paths::Paths;
use crate::silence::Silence;

/// Active state of a peer. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    /// Link in the ready, deferred, starved or free list.
    pub(crate) next: ConnIndex,
    pub(crate) listed: Listed,
    pub(crate) peer: PeerId,
    pub(crate) unusual: Unusual,
    /// State that outlives the active state.
    pub(crate) kept: Kept,
    pub(crate) outbound: Outbound,
    pub(crate) inbound: Inbound,
    pub(crate) silence: Silence,
    pub(crate) paths: Paths,
    /// When the pacer lets the next packet leave, ns; `u64::MAX`: none waits.
    pub(crate) paced_until: u64,
    /// A packet is being read: this state stays with its peer.
    pub(crate) busy: bool,
    /// An acknowledgement that nothing waits for, and its arrival, ns; read in
    /// a pass that has nothing else to do.
    pub(crate) deferred_ack: Option<(u64, Ack)>,
    pub(crate) handshake: Handshake,
}

/// Which list a connection is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Listed {
    /// Not in use: the free list.
    #[default]
    Free,
    /// In use, in no list.
    None,
    /// Ready to send.
    Ready,
    /// Owes an acknowledgement that may wait.
    Deferred,
    /// Found no frame to send in; goes on once there is one.
    Starved,
}

impl Default for Conn {
    fn default() -> Self {
        Self {
            next: ConnIndex::NONE,
            listed: Listed::Free,
            peer: PeerId::NONE,
            unusual: Unusual::NOTHING,
            kept: Kept::default(),
            outbound: Outbound::default(),
            inbound: Inbound::new(KeptIn::default(), &KeptOut::default().next),
            silence: Silence::new(0),
            paths: Paths::new(PathIndex::NONE),
            paced_until: u64::MAX,
            busy: false,
            deferred_ack: None,
            handshake: Handshake::new(false),
        }
    }
}

impl Linked for Conn {
    type Index = ConnIndex;

    fn next(&mut self) -> &mut ConnIndex {
        &mut self.next
    }
}

indexed!(Conn, ConnIndex);
