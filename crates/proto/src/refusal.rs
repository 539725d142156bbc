//! Telling a sender that its message was refused: once each, in order.
//!
//! Of each flow one refusal at a time is under way, so they arrive in order of
//! their messages, and the teller knows a repeat by its number. Until the next
//! may leave, what follows in the flow is held.

use portolan_seal::Seal;
use portolan_wire::{Chunk, MessageNo, Priority};

use crate::config::FLOWS_MAX;
use crate::endpoint::Endpoint;
use crate::interface::{Event, PeerId};
use crate::peer::PeerState;
use crate::reassembly::Took;

/// Wait before a refusal that found no frame is tried again, ns.
const RETRY_NS: u64 = 1_000_000;
/// Longest time that a refusal may be repeated after it was told, ns.
const REPEATS_NS_MAX: u64 = 10_000_000_000;

/// Refusals of one connection; a bit stands for a flow of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refusals {
    /// Not acknowledged yet.
    flying: u32,
    /// Acknowledged, what follows in the flow was not looked at yet.
    acked: u32,
    /// Must wait for the one before, or for a frame.
    owed: u32,
    owed_message: [[MessageNo; FLOWS_MAX]; 2],
    /// When a frame is looked for again.
    pub retry_at: u64,
    /// Last refusal that the caller was told of.
    told: [[MessageNo; FLOWS_MAX]; 2],
    /// Until then the peer may repeat the last one; 0: it does not.
    pub repeats_until: u64,
}

impl Refusals {
    /// None yet; of messages before `next`, any may still be refused.
    pub fn new(next: &[[MessageNo; FLOWS_MAX]; 2]) -> Self {
        let before = |m: MessageNo| MessageNo(m.0.wrapping_sub(1 << 30));
        Self {
            flying: 0,
            acked: 0,
            owed: 0,
            owed_message: [[MessageNo(0); FLOWS_MAX]; 2],
            retry_at: u64::MAX,
            told: next.map(|flows| flows.map(before)),
            repeats_until: 0,
        }
    }

    /// Whether nothing is under way.
    pub const fn is_quiet(&self) -> bool {
        self.flying | self.acked | self.owed == 0 && self.repeats_until == 0
    }

    /// Whether an acknowledgement may let a flow go on.
    pub const fn are_flying(&self) -> bool {
        self.flying != 0
    }

    /// Nobody is left to hear of refusals; the flows may go on.
    pub const fn drop_all(&mut self) {
        self.acked |= self.flying | self.owed;
        (self.flying, self.owed) = (0, 0);
        self.retry_at = u64::MAX;
    }

    /// The frame with the refusal of a flow was acknowledged.
    pub const fn acknowledged(&mut self, priority: Priority, flow: u16) {
        self.acked |= bit(priority, flow);
    }
}

/// The bit of a flow, in a set of those of both priorities.
pub(crate) const fn bit(priority: Priority, flow: u16) -> u32 {
    1 << (priority.index() * FLOWS_MAX + flow as usize)
}

/// The flow of the lowest bit that is set.
pub(crate) const fn flow_of(bits: u32) -> (Priority, u16) {
    let i = bits.trailing_zeros() as u16;
    if i >= FLOWS_MAX as u16 {
        (Priority::Reply, i - FLOWS_MAX as u16)
    } else {
        (Priority::Request, i)
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// The caller wants a message never: its sender hears of it.
    pub(crate) fn refuse(&mut self, conn: u32, priority: Priority, flow: u16, message: MessageNo) {
        let peer = self.conns[conn as usize].peer;
        if self.peers[peer as usize].state != PeerState::Up {
            return;
        }
        let r = &mut self.conns[conn as usize].refusals;
        r.owed |= bit(priority, flow);
        r.owed_message[priority.index()][flow as usize] = message;
        self.send_refusal(conn, priority, flow);
    }

    /// Whether a flow must not go on before its refusal has left.
    pub(crate) fn refusal_blocks(&mut self, conn: u32, priority: Priority, flow: u16) -> bool {
        let waits = |e: &Self| e.conns[conn as usize].refusals.owed & bit(priority, flow) != 0;
        if waits(self) {
            self.send_refusal(conn, priority, flow);
        }
        waits(self)
    }

    fn send_refusal(&mut self, conn: u32, priority: Priority, flow: u16) {
        let c = &self.conns[conn as usize];
        let r = &c.refusals;
        if r.flying & bit(priority, flow) != 0 {
            return;
        }
        let message = r.owed_message[priority.index()][flow as usize];
        let now = c.heard_at.max(c.used_at);
        let chunk = Chunk::Refuse {
            priority,
            flow,
            message,
        };
        let frame = self.queue_control(now, conn, &chunk);
        let r = &mut self.conns[conn as usize].refusals;
        let Some(frame) = frame else {
            r.retry_at = now + RETRY_NS;
            self.arm(now + RETRY_NS);
            return;
        };
        r.owed &= !bit(priority, flow);
        r.flying |= bit(priority, flow);
        let meta = &mut self.meta[frame as usize];
        meta.refusal = true;
        meta.priority = priority;
        meta.flow = flow;
    }

    /// Tries again those that found no frame.
    pub(crate) fn retry_refusals(&mut self, now: u64, conn: u32) {
        let c = &mut self.conns[conn as usize];
        c.refusals.retry_at = u64::MAX;
        c.used_at = now;
        c.refusals.acked |= c.refusals.owed & !c.refusals.flying;
        self.go_on_after_refusals(conn);
    }

    /// Lets flows go on whose refusal was acknowledged.
    #[inline]
    pub(crate) fn go_on_after_refusals(&mut self, conn: u32) {
        if self.conns[conn as usize].refusals.acked != 0 {
            self.go_on_with_flows(conn);
        }
    }

    #[cold]
    fn go_on_with_flows(&mut self, conn: u32) {
        loop {
            let r = &mut self.conns[conn as usize].refusals;
            let lowest = r.acked & r.acked.wrapping_neg();
            if lowest == 0 {
                return;
            }
            r.acked &= !lowest;
            r.flying &= !lowest;
            let (priority, flow) = flow_of(lowest);
            if !self.refusal_blocks(conn, priority, flow) {
                self.advance(conn, priority, flow);
            }
        }
    }

    /// The peer refused a message of ours.
    pub(crate) fn handle_refuse(
        &mut self,
        now: u64,
        conn: u32,
        priority: Priority,
        flow: u16,
        message: MessageNo,
    ) -> Took {
        let c = &mut self.conns[conn as usize];
        if self.peers[c.peer as usize].state != PeerState::Up {
            return Took::Yes;
        }
        // It gives up repeating when it gives us up.
        let until = now.saturating_add(self.core.config.silence_ns.min(REPEATS_NS_MAX));
        c.refusals.repeats_until = until;
        self.arm(until);
        let c = &mut self.conns[conn as usize];
        let Some(told) = c.refusals.told[priority.index()].get(flow as usize) else {
            return Took::Bad;
        };
        let (peer, new) = (PeerId(c.peer), message.since(*told) > 0);
        let event = Event::Refused {
            peer,
            priority,
            flow,
            message,
        };
        if new && !self.tell(event) {
            return Took::NoRoom(priority);
        }
        if new {
            self.conns[conn as usize].refusals.told[priority.index()][flow as usize] = message;
        }
        Took::Yes
    }
}
