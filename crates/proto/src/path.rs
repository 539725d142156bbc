//! State of one path of a pair: everything that counts packets. Message counts
//! belong to the connection, and are the same on every path.
//!
//! Path 0 of a connection has the connection's own index in the table.

mod mtu;
mod reordering;

use crate::base::{ConnIndex, FrameIndex, PathIndex, WINDOW_SPAN, indexed};
use crate::congestion::{Congestion, Mode, Pacer, Rtt};

use crate::keys::PhaseStart;
use crate::received::Received;
use crate::way::Way;

use mtu::Mtu;
use reordering::Reordering;

/// Slot of the send window: nothing to resend under this number.
pub(crate) const SLOT_NOTHING: FrameIndex = FrameIndex::NONE;
/// Acknowledged.
pub(crate) const SLOT_ACKED: FrameIndex = FrameIndex::beyond(1);
/// Given up; its chunks went on under another number.
pub(crate) const SLOT_LOST: FrameIndex = FrameIndex::beyond(2);
/// A probe of the path's packet size.
pub(crate) const SLOT_PROBE: FrameIndex = FrameIndex::beyond(3);
/// Given up because no answer came in time; perhaps only late.
pub(crate) const SLOT_LATE: FrameIndex = FrameIndex::beyond(4);
/// Slots below this are frames.
pub(crate) const SLOT_FRAMES: FrameIndex = FrameIndex::beyond(8);

/// Round trips from this on are long, ns: bursts are small, as many
/// acknowledgements at once must not release one that overflows a buffer; and
/// acknowledgements are asked for more often.
const LONG_NS: u64 = 1_000_000;

/// Active state of a path. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Owner: index of the connection.
    pub(crate) conn: ConnIndex,
    pub(crate) way: Way,

    // Sender.
    pub(crate) next_number: u64,
    pub(crate) packet_limit: u64,
    /// Lowest number whose slot may still hold a frame.
    pub(crate) lowest: u64,
    /// One above the largest number that was acknowledged.
    pub(crate) acked_to: u64,
    pub(crate) flying: u32,
    pub(crate) flying_bytes: u64,
    /// Chunk-bearing packets since the last that asked for an acknowledgement.
    pub(crate) since_ask: u32,
    /// Where the present key phases begin, in both directions.
    pub(crate) phases: PhaseStart,
    /// How far out of order packets arrive.
    pub(crate) reordering: Reordering,
    pub(crate) rtt: Rtt,
    pub(crate) congestion: Congestion,
    pub(crate) pacer: Pacer,
    /// Congestion marks by the peer's count, as far as they were read.
    pub(crate) ce_seen: u32,
    pub(crate) backoff: u8,
    /// Pings that leave before the next probe.
    pub(crate) asks: u8,
    /// Probes in a row without any answer.
    pub(crate) quiet: u8,
    /// When packets were last found lost, ns; 0: never.
    pub(crate) lost_at: u64,
    /// When the probe timer was last restarted, ns.
    pub(crate) probe_from: u64,
    pub(crate) mtu: Mtu,
    /// A ping must leave, to get an acknowledgement.
    pub(crate) ping_owed: bool,
    /// The next packet of chunks is a probe: it leaves regardless of the
    /// window, and asks for an acknowledgement.
    pub(crate) probe_owed: bool,
    /// Lowest and highest number that was given up and may still have arrived;
    /// none if `lost_from` is `u64::MAX`.
    pub(crate) lost_from: u64,
    pub(crate) lost_last: u64,

    // Receiver.
    pub(crate) received: Received,
    /// By packet number modulo [`WINDOW_SPAN`].
    pub(crate) slots: [FrameIndex; WINDOW_SPAN],
}

impl Default for Path {
    fn default() -> Self {
        Self {
            conn: ConnIndex::NONE,
            way: Way::FIRST,
            next_number: 0,
            packet_limit: 0,
            lowest: 0,
            acked_to: 0,
            flying: 0,
            flying_bytes: 0,
            since_ask: 0,
            phases: PhaseStart::at(0, 0),
            reordering: Reordering::default(),
            rtt: Rtt::new(),
            congestion: Congestion::new(Mode::Lan, 1232, WINDOW_SPAN as u32),
            pacer: Pacer::new(),
            ce_seen: 0,
            backoff: 0,
            asks: 0,
            quiet: 0,
            lost_at: 0,
            probe_from: 0,
            mtu: Mtu::BASE,
            ping_owed: false,
            probe_owed: false,
            lost_from: u64::MAX,
            lost_last: 0,
            received: Received::default(),
            slots: [SLOT_NOTHING; WINDOW_SPAN],
        }
    }
}

impl Path {
    /// A path of a connection, from its parked state.
    pub(crate) fn resume(
        conn: ConnIndex,
        kept: &KeptPath,
        marks: u32,
        congestion: Congestion,
    ) -> Self {
        Self {
            conn,
            next_number: kept.next_number,
            packet_limit: kept.packet_limit,
            lowest: kept.next_number,
            phases: PhaseStart::at(kept.next_number, kept.received),
            acked_to: kept.next_number,
            received: Received::resume(kept.received, kept.missing, marks),
            congestion,
            ..Self::default()
        }
    }

    /// The state that is parked.
    pub(crate) const fn kept(&self) -> KeptPath {
        KeptPath {
            next_number: self.next_number,
            received: self.received.next,
            packet_limit: self.packet_limit,
            missing: self.received.missing(),
            packet_max: self.mtu.current(),
        }
    }

    /// The slot of a packet number.
    pub(crate) const fn slot(&mut self, number: u64) -> &mut FrameIndex {
        &mut self.slots[(number % WINDOW_SPAN as u64) as usize]
    }

    /// Whether round trips are long.
    pub(crate) fn is_long(&self) -> bool {
        self.rtt.smoothed().is_some_and(|rtt| rtt >= LONG_NS)
    }

    /// Longest time that an answer may take, ns: [`Rtt::probe_after`], with the
    /// lateness seen in reordering.
    #[inline]
    pub(crate) fn answer_after(&self, slack_ns: u64, backoff: u8) -> u64 {
        let slack = slack_ns.saturating_add(self.reordering.late_ns());
        self.rtt.probe_after(slack, backoff)
    }

    /// Packets marked since the last acknowledgement, by the peer's count.
    pub(crate) fn new_marks(&mut self, ce: u32, largest: u64) -> u32 {
        let new = ce.wrapping_sub(self.ce_seen);
        if new <= WINDOW_SPAN as u32 {
            self.ce_seen = ce;
            return new;
        }
        // An older acknowledgement came late; or this is the first, or the peer
        // was parked and counts anew.
        if largest >= self.acked_to {
            self.ce_seen = ce;
        }
        0
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
