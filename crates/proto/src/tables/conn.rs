//! Active state of a peer: what a connection needs while messages move.

use portolan_wire::Ack;

use super::{Intervals, Kept, Refusals, RxFlow, Stops};
use crate::base::{
    ConnIndex, FLOWS_MAX, FrameIndex, Linked, List, LongIndex, PathIndex, PeerId, indexed,
};
use crate::handshake::Handshake;
use crate::paths::Paths;
use crate::silence::Silence;

/// Sender's queue of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TxFlow {
    /// Frames that wait for their first transmission, and their number.
    pub queue: List<FrameIndex>,
    pub frames: u32,
    /// Long message that is being cut into frames; precedes the queue.
    pub long: LongIndex,
}

/// Active state of a peer. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    /// Link in the ready, deferred, starved or free list.
    pub(crate) next: ConnIndex,
    pub(crate) listed: Listed,
    pub(crate) peer: PeerId,
    /// State that outlives the active state.
    pub(crate) kept: Kept,

    // Sender.
    pub(crate) tx: [[TxFlow; FLOWS_MAX]; 2],
    /// Flows of each priority with something to send, a bit each.
    pub(crate) pending_flows: [u16; 2],
    /// Flow whose turn is next, by priority.
    pub(crate) turn: [u8; 2],
    pub(crate) resend: List<FrameIndex>,
    pub(crate) control: List<FrameIndex>,
    /// Frames queued (also for a resend) or in flight; and the replies among them.
    pub(crate) queued: u32,
    pub(crate) queued_replies: u32,
    pub(crate) silence: Silence,
    pub(crate) paths: Paths,
    /// When the pacer lets the next packet leave, ns; `u64::MAX`: none waits.
    pub(crate) paced_until: u64,
    /// Message chunks since the last packet that asked for an acknowledgement.
    pub(crate) chunks_since_ask: u32,
    /// The peer has no room for chunks that come before their turn, by
    /// priority: packets that it refused wait in `resend`.
    pub(crate) peer_full: [bool; 2],
    /// Number of packets in `resend` that may leave nevertheless.
    pub(crate) round: u32,
    /// Nothing more is taken, and no message that came in part is completed:
    /// the peer acknowledged our close, was removed, or is dead.
    pub(crate) finished: bool,
    /// After the peer was removed: until when messages sent before may be
    /// acknowledged, ns.
    pub(crate) part_by: u64,
    /// A packet is being read: this state stays with its peer.
    pub(crate) busy: bool,
    /// Flows whose held chunks may be taken, a bit each.
    pub(crate) resumable: u32,
    /// An acknowledgement that nothing waits for, and its arrival, ns; read in
    /// a pass that has nothing else to do.
    pub(crate) deferred_ack: Option<(u64, Ack)>,
    pub(crate) handshake: Handshake,

    // Receiver.
    /// Credit that was advertised last, by priority.
    pub(crate) advertised: [u32; 2],
    pub(crate) last_data_at: u64,
    pub(crate) rx: [[RxFlow; FLOWS_MAX]; 2],
    pub(crate) intervals: Intervals,
    pub(crate) held: [u32; 2],
    /// Chunks of the peer found no room here, by priority; reported to it until
    /// there is room.
    pub(crate) full: [bool; 2],
    /// Some head was answered with "not now", and is held.
    pub(crate) refused_now: bool,
    pub(crate) refusals: Refusals,
    pub(crate) stops: Stops,
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

impl TxFlow {
    pub const fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.long.is_none()
    }
}

impl Default for Conn {
    fn default() -> Self {
        Self {
            next: ConnIndex::NONE,
            listed: Listed::Free,
            peer: PeerId::NONE,
            kept: Kept::default(),
            tx: Default::default(),
            pending_flows: [0; 2],
            turn: [0; 2],
            resend: List::EMPTY,
            control: List::EMPTY,
            queued: 0,
            queued_replies: 0,
            silence: Silence::new(0),
            paths: Paths::new(PathIndex::NONE),
            paced_until: u64::MAX,
            chunks_since_ask: 0,
            peer_full: [false; 2],
            round: 0,
            finished: false,
            part_by: 0,
            busy: false,
            resumable: 0,
            deferred_ack: None,
            handshake: Handshake::new(false),
            advertised: [0; 2],
            last_data_at: 0,
            rx: Default::default(),
            intervals: Intervals::EMPTY,
            held: [0; 2],
            full: [false; 2],
            refused_now: false,
            refusals: Refusals::new(&[[portolan_wire::MessageNo(0); FLOWS_MAX]; 2]),
            stops: Stops::default(),
        }
    }
}

impl Conn {
    /// Flows of a priority with something to send that the peer has not stopped.
    #[inline]
    pub(crate) const fn open_flows(&self, priority: usize) -> u16 {
        self.pending_flows[priority] & !self.stops.theirs[priority]
    }

    /// Whether any chunk waits to be sent, stopped flows excepted.
    #[inline]
    pub(crate) const fn has_queue(&self) -> bool {
        !self.resend.is_empty()
            || !self.control.is_empty()
            || self.open_flows(0) | self.open_flows(1) != 0
    }

    /// Whether everything queued has left at least once.
    pub(crate) const fn has_left(&self) -> bool {
        !self.has_queue() && self.pending_flows[0] | self.pending_flows[1] == 0
    }

    /// Whether all that was sent is acknowledged.
    pub(crate) const fn is_settled(&self) -> bool {
        self.queued == 0 && self.has_left()
    }

    /// Marks that a flow has something to send.
    pub(crate) const fn mark_pending(&mut self, priority: usize, flow: usize) {
        self.pending_flows[priority] |= 1 << flow;
    }

    /// Counts the frames that wait in stopped flows, by priority.
    pub(crate) fn count_stopped(&mut self) {
        let waiting = |p: usize| {
            let flows = self.tx[p].iter().enumerate();
            let stopped = flows.filter(|(f, _)| self.stops.theirs[p] >> f & 1 != 0);
            stopped.map(|(_, tx)| tx.frames).sum()
        };
        self.stops.frames = [waiting(0), waiting(1)];
    }
}

impl Linked for Conn {
    type Index = ConnIndex;

    fn next(&mut self) -> &mut ConnIndex {
        &mut self.next
    }
}

indexed!(Conn, ConnIndex);
