//! State of one path of a pair: everything that counts packets. Message counts
//! belong to the connection, and are the same on every path.
//!
//! Path 0 of a connection has the connection's own index in the table.

use crate::base::{ConnIndex, PathIndex, indexed};
use crate::congestion::Congestion;
use crate::keys::PhaseStart;
use crate::received::Received;
use crate::sent::Sent;
use crate::way::Way;

/// Active state of a path. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Owner: index of the connection.
    pub(crate) conn: ConnIndex,
    pub(crate) way: Way,
    /// Where the present key phases begin, in both directions.
    pub(crate) phases: PhaseStart,
    pub(crate) sent: Sent,
    pub(crate) received: Received,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            conn: ConnIndex::NONE,
            way: Way::FIRST,
            phases: PhaseStart::at(0, 0),
            sent: Sent::default(),
            received: Received::default(),
        }
    }
}

impl Path {
    /// A path of a connection, from its parked state (P2.7, P12.4).
    pub(crate) fn resume(
        conn: ConnIndex,
        kept: &KeptPath,
        marks: u32,
        congestion: Congestion,
    ) -> Self {
        Self {
            conn,
            phases: PhaseStart::at(kept.next_number, kept.received),
            sent: Sent::resume(kept.next_number, kept.packet_limit, congestion),
            received: Received::resume(kept.received, kept.missing, marks),
            ..Self::default()
        }
    }

    /// The state that is parked (P2.7, P12.4).
    pub(crate) const fn kept(&self) -> KeptPath {
        KeptPath {
            next_number: self.sent.next,
            received: self.received.next,
            packet_limit: self.sent.limit,
            missing: self.received.missing(),
            packet_max: self.sent.mtu.current(),
        }
    }
}

/// Parked state of a path, which outlives the active one. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeptPath {
    pub next_number: u64,
    /// Numbers below this count as received in the replay window.
    pub received: u64,
    pub packet_limit: u64,
    /// Numbers right below `received` of which some may be missing.
    pub missing: u16,
    pub packet_max: u16,
}

impl KeptPath {
    /// State of a path that was never used.
    pub fn new(first_packet: u64) -> Self {
        Self {
            next_number: first_packet,
            ..Self::default()
        }
    }
}

indexed!(Path, PathIndex);
