//! Reports refused messages to their sender: each once, in order.
//!
//! Each flow has at most one packet of refusals in flight, so they arrive in order of their
//! messages, and the peer knows a repeat by its number. Messages behind a refusal that has yet to
//! leave are held.

use portolan_seal::Seal;
use portolan_wire::{Chunk, MessageNo, Priority};

use crate::base::{ConnIndex, Event};
use crate::endpoint::Endpoint;
use crate::inbound::ChunkOutcome;
use crate::memory::CHUNKS_AT;
use crate::tables::PeerState;

/// Wait before a refusal that found no frame is tried again, ns.
const RETRY_NS: u64 = 1_000_000;
/// Bytes of refusals in one packet: 16 of them, half of what the peer's event queue holds.
const PACKET_BYTES: u32 = 128;
/// Longest time for which repeats of a refusal are expected, ns.
const REPEATS_NS_MAX: u64 = 10_000_000_000;

impl<S: Seal> Endpoint<'_, S> {
    /// The caller refused a message for good: queues the report to its sender (P5.3).
    pub(crate) fn refuse(
        &mut self,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
        message: MessageNo,
    ) {
        let peer = self.conns[conn].peer;
        if self.peers[peer].state != PeerState::Up {
            return;
        }
        let r = &mut self.conns[conn].inbound.refusals;
        r.owe(priority, flow, message);
        self.send_refusal(conn, priority, flow);
    }

    /// Whether a flow must wait for its refusal to leave; tries to queue that first (P5.4).
    pub(crate) fn refusal_blocks(
        &mut self,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
    ) -> bool {
        let waits = |e: &Self| e.conns[conn].inbound.refusals.is_owed(priority, flow);
        if waits(self) {
            self.send_refusal(conn, priority, flow);
        }
        waits(self)
    }

    fn send_refusal(&mut self, conn: ConnIndex, priority: Priority, flow: u16) {
        let c = &self.conns[conn];
        let now = c.silence.last_moment();
        let chunk = Chunk::Refuse {
            priority,
            flow,
            message: c.inbound.refusals.owed(priority, flow),
        };
        if c.inbound.refusals.is_flying(priority, flow) {
            // If the packet before has not left, this refusal joins it.
            let frame = c.outbound.control.tail;
            if frame.is_some() && self.memory.meta[frame].refuses(priority, flow) {
                let at = self.memory.at(frame) + CHUNKS_AT;
                let meta = &mut self.memory.meta[frame];
                if meta.len < PACKET_BYTES {
                    meta.len +=
                        chunk.write(&mut self.memory.bytes[at + meta.len as usize..]) as u32;
                    self.conns[conn].inbound.refusals.queued(priority, flow);
                }
            }
            return;
        }
        let frame = self.queue_control(now, conn, &chunk);
        let r = &mut self.conns[conn].inbound.refusals;
        let Some(frame) = frame else {
            r.retry_at = now + RETRY_NS;
            self.arm(now + RETRY_NS);
            return;
        };
        r.queued(priority, flow);
        let meta = &mut self.memory.meta[frame];
        meta.refusal = true;
        meta.priority = priority;
        meta.flow = flow;
    }

    /// Retries refusals that found no frame.
    pub(crate) fn retry_refusals(&mut self, now: u64, conn: ConnIndex) {
        let c = &mut self.conns[conn];
        c.silence.used(now);
        c.inbound.refusals.retry();
        self.go_on_after_refusals(conn);
    }

    /// Lets flows go on whose refusal was acknowledged.
    #[inline]
    pub(crate) fn go_on_after_refusals(&mut self, conn: ConnIndex) {
        if self.conns[conn].inbound.refusals.has_acked() {
            self.go_on_with_flows(conn);
        }
    }

    #[cold]
    fn go_on_with_flows(&mut self, conn: ConnIndex) {
        while let Some((priority, flow)) = self.conns[conn].inbound.refusals.take_acked() {
            if !self.refusal_blocks(conn, priority, flow) {
                self.advance(conn, priority, flow);
            }
        }
    }

    /// Handles the peer's refusal of a message of ours (P5.5).
    pub(crate) fn handle_refuse(
        &mut self,
        now: u64,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
        message: MessageNo,
    ) -> ChunkOutcome {
        let c = &mut self.conns[conn];
        if self.peers[c.peer].state != PeerState::Up {
            return ChunkOutcome::Yes;
        }
        // The peer stops repeating when it counts us as dead.
        let until = now.saturating_add(self.core.config.silence_ns.min(REPEATS_NS_MAX));
        c.inbound.refusals.repeats_until = until;
        self.arm(until);
        let c = &mut self.conns[conn];
        let Some(told) = c.inbound.refusals.told(priority, flow) else {
            return ChunkOutcome::Bad;
        };
        let new = message.since(*told) > 0;
        let peer = c.peer;
        let event = Event::Refused {
            peer,
            priority,
            flow,
            message,
        };
        if !new {
            return ChunkOutcome::Yes;
        }
        if !self.tell(event) {
            return ChunkOutcome::NoRoom(priority);
        }
        if let Some(told) = self.conns[conn].inbound.refusals.told(priority, flow) {
            *told = message;
        }
        ChunkOutcome::Yes
    }
}
