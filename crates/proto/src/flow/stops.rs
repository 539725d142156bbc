//! Stopped flows: a flow whose messages are not taken must not use up what all flows of a pair
//! share.
//!
//! The receiver names all stopped flows of a peer in one chunk with a serial number; at most one
//! such chunk is in flight. The sender keeps messages of a stopped flow until a later chunk omits
//! the flow. The caller that stops a flow takes what was in flight until then, and keeps it.
//!
//! Credit for those messages is returned once the peer has acknowledged the stop: from then on
//! nothing more of the flow leaves. For a peer that obeys, one stop thus admits at most twice the
//! credit of a priority. Beyond that no credit is returned until the flow goes on.

use portolan_seal::Seal;
use portolan_wire::{Chunk, Priority};

use crate::base::{ConnIndex, PeerId};
use crate::endpoint::Endpoint;
use crate::inbound::ChunkOutcome;
use crate::tables::PeerState;

impl<S: Seal> Endpoint<'_, S> {
    /// Asks a peer to send nothing more of a flow, or to go on. Messages that left before the peer
    /// learns of it still arrive: the caller takes them.
    pub fn set_stopped(
        &mut self,
        now: u64,
        peer: PeerId,
        priority: Priority,
        flow: u16,
        stopped: bool,
    ) {
        let conn = self
            .peers
            .get(peer.index())
            .map_or(ConnIndex::NONE, |p| p.conn);
        let Some(c) = self.conns.get_mut(conn.index()) else {
            // Without active state nothing is stopped.
            return;
        };
        let dead = matches!(self.peers[peer].state, PeerState::Dead(_));
        if flow >= self.core.config.flows
            || dead
            || stopped == c.inbound.stops.holds_back(priority, flow)
        {
            return;
        }
        c.silence.used(now);
        let (p, f) = (priority.index(), flow as usize);
        if stopped {
            c.inbound.stops.stop(p, f);
        } else {
            c.inbound.stops.go_on(p, f);
            self.give_withheld(conn, p, 1 << f);
        }
        self.make_ready(conn);
    }

    /// Queues a chunk with the present stops, if there is a frame for it.
    #[cold]
    pub(crate) fn tell_stops(&mut self, now: u64, conn: ConnIndex) {
        let (serial, flows) = self.conns[conn].inbound.stops.next_chunk();
        let Some(frame) = self.queue_control(now, conn, &Chunk::Stopped { serial, flows }) else {
            return;
        };
        self.memory.meta[frame].stops = true;
        self.conns[conn].inbound.stops.queued(serial, flows);
    }

    /// The peer has acknowledged a stopped chunk: of flows that it names nothing more leaves, so
    /// what has arrived of them counts as taken (P7.13).
    #[cold]
    pub(crate) fn stops_acked(&mut self, conn: ConnIndex) {
        let fresh = self.conns[conn].inbound.stops.acked();
        for (p, flows) in fresh.into_iter().enumerate() {
            self.give_withheld(conn, p, flows);
        }
        if self.conns[conn].inbound.stops.are_owed() {
            self.make_ready(conn);
        }
    }

    /// Returns the credit that was withheld for some flows.
    fn give_withheld(&mut self, conn: ConnIndex, p: usize, flows: u16) {
        let limit = self.hold_limit();
        if self.conns[conn].inbound.give_withheld(limit, p, flows) {
            self.owe_news(conn);
        }
    }

    /// A chunk of a flow was taken for good.
    #[inline]
    pub(crate) fn note_taken(&mut self, conn: ConnIndex, priority: Priority, flow: u16) {
        let limit = self.hold_limit();
        let inbound = &mut self.conns[conn].inbound;
        if inbound.note_taken(limit, priority, flow, &mut self.core.counters) {
            self.owe_news(conn);
        }
    }

    /// Takes over the set of flows that the peer has stopped (P7.14).
    #[cold]
    pub(crate) fn handle_stopped(
        &mut self,
        now: u64,
        conn: ConnIndex,
        serial: u16,
        flows: [u16; 2],
    ) -> ChunkOutcome {
        if (flows[0] | flows[1]).checked_shr(self.core.config.flows.into()) > Some(0) {
            return ChunkOutcome::Bad;
        }
        let c = &mut self.conns[conn];
        if !c.outbound.stop(serial, flows) {
            // A repeat, or overtaken by a later one.
            return ChunkOutcome::Yes;
        }
        let waits = c.outbound.has_queue();
        if waits {
            c.silence.wait(now);
        }
        if !waits && self.flying(conn) == 0 {
            // The peer makes us wait: keepalives show whether it lives.
            self.conns[conn].silence.wait_no_more();
        }
        if self.conns[conn].outbound.stopped.any() {
            self.arm_keepalive(conn);
        }
        self.make_ready(conn);
        ChunkOutcome::Yes
    }
}
