//! Active state of a peer: what a connection needs while messages move.

use portolan_wire::Ack;

use crate::config::{FLOWS_MAX, WINDOW_SPAN};
use crate::congestion::{Congestion, Mode};
use crate::disorder::Disorder;
use crate::kept::Kept;
use crate::mtu::Mtu;
use crate::pacing::Pacer;
use crate::pool::List;
use crate::reassembly::{Intervals, RxFlow};
use crate::refusal::Refusals;
use crate::rto::Rtt;
use crate::tables::NONE;

/// In a slot of the send window: nothing to resend under this number.
pub(crate) const SLOT_NOTHING: u32 = u32::MAX;
/// Acknowledged.
pub(crate) const SLOT_ACKED: u32 = u32::MAX - 1;
/// Given up; its chunks went on under another number.
pub(crate) const SLOT_LOST: u32 = u32::MAX - 2;
/// A probe of the path's packet size.
pub(crate) const SLOT_PROBE: u32 = u32::MAX - 3;
/// Given up because nothing was heard in time; it may just be late.
pub(crate) const SLOT_LATE: u32 = u32::MAX - 4;
/// Slots below this are frames.
pub(crate) const SLOT_FRAMES: u32 = u32::MAX - 8;

/// Bits of the replay window: twice the send window.
pub(crate) const REPLAY_BITS: u64 = 2 * WINDOW_SPAN as u64;

/// Which acknowledgement is owed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Owed {
    /// None.
    #[default]
    Nothing,
    /// One that may ride on an answer of the application.
    Lazy,
    /// One that must leave in this pass.
    Now,
}

/// Sender's queue of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TxFlow {
    /// Frames that wait for the first time.
    pub queue: List,
    /// Long message that is being cut; it goes before the queue.
    pub long: u32,
}

/// Active state of a peer. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conn {
    /// Link in the ready, deferred, starved or free list.
    pub(crate) next: u32,
    pub(crate) listed: Listed,
    pub(crate) peer: u32,
    /// What outlives this state.
    pub(crate) kept: Kept,

    // Sender.
    pub(crate) tx: [[TxFlow; FLOWS_MAX]; 2],
    /// Flows of each priority with something to send, a bit each.
    pub(crate) pending_flows: [u8; 2],
    /// Flow that goes next, of each priority.
    pub(crate) turn: [u8; 2],
    pub(crate) resend: List,
    pub(crate) control: List,
    /// Frames queued (also to be resent) or flying; and those of replies.
    pub(crate) queued: u32,
    pub(crate) queued_replies: u32,
    /// By packet number modulo [`WINDOW_SPAN`].
    pub(crate) slots: [u32; WINDOW_SPAN],
    /// Lowest number whose slot may still hold a frame.
    pub(crate) lowest: u64,
    /// One above the largest number that was acknowledged.
    pub(crate) acked_to: u64,
    pub(crate) flying: u32,
    pub(crate) flying_bytes: u64,
    /// Chunk-bearing packets since the last that asked for an acknowledgement.
    pub(crate) since_ask: u32,
    /// First number of the current key phase.
    pub(crate) phase_first: u64,
    /// How far out of order packets come.
    pub(crate) disorder: Disorder,
    pub(crate) rtt: Rtt,
    pub(crate) congestion: Congestion,
    pub(crate) pacer: Pacer,
    pub(crate) ce_seen: u32,
    pub(crate) backoff: u8,
    /// When the probe clock was last restarted.
    pub(crate) probe_from: u64,
    /// A packet verified at this time.
    pub(crate) heard_at: u64,
    /// Since when something waits for the peer; `u64::MAX`: nothing does.
    pub(crate) waiting_since: u64,
    pub(crate) waiting_told: bool,
    /// Last time that anything moved, for giving this state back.
    pub(crate) used_at: u64,
    pub(crate) mtu: Mtu,
    /// The pacer lets the next packet leave at this time; `u64::MAX`: now.
    pub(crate) paced_until: u64,
    /// A ping must leave, to hear what the peer has room for.
    pub(crate) ping_owed: bool,
    /// The next packet of chunks is a probe: it leaves whatever the window
    /// says, and asks for an answer.
    pub(crate) probe_owed: bool,
    /// Message chunks since the last packet that asked for an acknowledgement.
    pub(crate) chunks_since_ask: u32,
    /// The peer has no room for chunks that come before their turn, by
    /// priority: what it refused waits in `resend`.
    pub(crate) peer_full: [bool; 2],
    /// Packets of `resend` that may leave nevertheless.
    pub(crate) round: u32,
    /// The peer has acknowledged our close: it has dropped all that it had for
    /// us, so what has come in part is never completed, and nothing more is
    /// taken.
    pub(crate) finished: bool,
    /// In the midst of a packet: not to be given to another peer.
    pub(crate) busy: bool,
    /// An acknowledgement that nothing waits for, and when it came: it is
    /// looked at in a pass that has nothing better to do.
    pub(crate) late_ack: Option<(u64, Ack)>,
    /// Lowest and highest number given up that may yet turn out to have
    /// arrived; `lost_from` is `u64::MAX` if there is none.
    pub(crate) lost_from: u64,
    pub(crate) lost_last: u64,

    // Handshake.
    pub(crate) connect_next: u64,
    pub(crate) connect_tries: u8,
    /// A data packet of the peer has verified: it has the keys.
    pub(crate) confirmed: bool,
    /// A packet verified since this state was made.
    pub(crate) proven: bool,
    /// Peer's offer is known, data keys are installed.
    pub(crate) keyed: bool,

    // Receiver.
    pub(crate) seen: [u64; REPLAY_BITS as usize / 64],
    /// One above the largest number received; and the lowest that is missing.
    pub(crate) rx_next: u64,
    pub(crate) base: u64,
    /// Below it nobody remembers what was received: as replays such numbers
    /// are dropped, as acknowledged they are not.
    pub(crate) unsure_to: u64,
    /// When the largest arrived, ns.
    pub(crate) largest_at: u64,
    pub(crate) ce: u32,
    pub(crate) owed: Owed,
    /// Chunk-bearing packets since the last acknowledgement left.
    pub(crate) unacked: u32,
    /// Limit of packet numbers that was granted, in full.
    pub(crate) granted: u64,
    /// Credit that was advertised last, by priority.
    pub(crate) advertised: [u32; 2],
    /// Fresh chunks that have come in, by priority.
    pub(crate) arrived: [u32; 2],
    pub(crate) last_data_at: u64,
    /// First number of the peer's current key phase that was seen.
    pub(crate) phase_rx_first: u64,
    pub(crate) rx: [[RxFlow; FLOWS_MAX]; 2],
    pub(crate) intervals: Intervals,
    pub(crate) held: [u32; 2],
    /// Chunks of the peer found no room here, by priority; it is told so until
    /// there is some.
    pub(crate) full: [bool; 2],
    /// Packets of the peer in a row that came by a detour, as far as it
    /// matters.
    pub(crate) detours: u8,
    /// Some held head was not wanted when offered.
    pub(crate) refused_now: bool,
    /// When the peer is asked for a sign of life because part of a message is
    /// missing; `u64::MAX`: none is.
    pub(crate) nudge_at: u64,
    pub(crate) refusals: Refusals,
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
    /// Found no frame for what it must send; goes on once there is one.
    Starved,
}

impl TxFlow {
    pub const EMPTY: Self = Self {
        queue: List::EMPTY,
        long: NONE,
    };

    pub const fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.long == NONE
    }
}

impl Default for Conn {
    fn default() -> Self {
        Self {
            next: NONE,
            listed: Listed::Free,
            peer: NONE,
            kept: Kept::default(),
            tx: [[TxFlow::EMPTY; FLOWS_MAX]; 2],
            pending_flows: [0; 2],
            turn: [0; 2],
            resend: List::EMPTY,
            control: List::EMPTY,
            queued: 0,
            queued_replies: 0,
            slots: [SLOT_NOTHING; WINDOW_SPAN],
            lowest: 0,
            acked_to: 0,
            flying: 0,
            flying_bytes: 0,
            since_ask: 0,
            phase_first: 0,
            disorder: Disorder::NONE,
            rtt: Rtt::new(),
            congestion: Congestion::new(Mode::Lan, 1232, WINDOW_SPAN as u32),
            pacer: Pacer::new(),
            ce_seen: 0,
            backoff: 0,
            probe_from: 0,
            heard_at: 0,
            waiting_since: u64::MAX,
            waiting_told: false,
            used_at: 0,
            mtu: Mtu::BASE,
            paced_until: u64::MAX,
            ping_owed: false,
            probe_owed: false,
            chunks_since_ask: 0,
            peer_full: [false; 2],
            round: 0,
            finished: false,
            busy: false,
            late_ack: None,
            lost_from: u64::MAX,
            lost_last: 0,
            connect_next: u64::MAX,
            connect_tries: 0,
            confirmed: false,
            proven: false,
            keyed: false,
            seen: [0; REPLAY_BITS as usize / 64],
            rx_next: 0,
            base: 0,
            unsure_to: 0,
            largest_at: 0,
            ce: 0,
            owed: Owed::Nothing,
            unacked: 0,
            granted: 0,
            advertised: [0; 2],
            arrived: [0; 2],
            last_data_at: 0,
            phase_rx_first: 0,
            rx: [[RxFlow::EMPTY; FLOWS_MAX]; 2],
            intervals: Intervals::EMPTY,
            held: [0; 2],
            full: [false; 2],
            detours: 0,
            refused_now: false,
            nudge_at: u64::MAX,
            refusals: Refusals::new(&[[portolan_wire::MessageNo(0); FLOWS_MAX]; 2]),
        }
    }
}

impl Conn {
    /// Whether any chunk waits to be sent.
    pub(crate) const fn has_queue(&self) -> bool {
        !self.resend.is_empty()
            || !self.control.is_empty()
            || self.pending_flows[0] | self.pending_flows[1] != 0
    }

    /// Whether all that was sent is acknowledged.
    pub(crate) const fn is_settled(&self) -> bool {
        self.queued == 0 && self.flying == 0 && !self.has_queue()
    }

    /// The slot of a packet number.
    pub(crate) const fn slot(&mut self, number: u64) -> &mut u32 {
        &mut self.slots[(number % WINDOW_SPAN as u64) as usize]
    }
}
