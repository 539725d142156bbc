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
use crate::receive::ChunkOutcome;
use crate::tables::{CHUNKS_MAX, PeerState};

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
        if flow >= self.core.config.flows || dead || stopped == c.stops.holds_back(priority, flow) {
            return;
        }
        c.silence.used(now);
        let (p, f) = (priority.index(), flow as usize);
        if stopped {
            c.stops.stop(p, f);
        } else {
            c.stops.go_on(p, f);
            self.give_withheld(conn, p, 1 << f);
        }
        self.make_ready(conn);
    }

    /// Queues a chunk with the present stops, if there is a frame for it.
    #[cold]
    pub(crate) fn tell_stops(&mut self, now: u64, conn: ConnIndex) {
        let (serial, flows) = self.conns[conn].stops.next_chunk();
        let Some(frame) = self.queue_control(now, conn, &Chunk::Stopped { serial, flows }) else {
            return;
        };
        self.meta[frame].stops = true;
        self.conns[conn].stops.queued(serial, flows);
    }

    /// The peer has acknowledged a stopped chunk: of flows that it names nothing more leaves, so
    /// what has arrived of them counts as taken.
    #[cold]
    pub(crate) fn stops_acked(&mut self, conn: ConnIndex) {
        let fresh = self.conns[conn].stops.acked();
        for (p, flows) in fresh.into_iter().enumerate() {
            self.give_withheld(conn, p, flows);
        }
        if self.conns[conn].stops.are_owed() {
            self.make_ready(conn);
        }
    }

    /// Returns the credit that was withheld for some flows.
    fn give_withheld(&mut self, conn: ConnIndex, p: usize, flows: u16) {
        let taken = self.conns[conn].stops.release(p, flows);
        if taken > 0 {
            self.give_credit(conn, p, taken);
        }
    }

    /// A chunk of a flow was taken for good: returns its credit, unless the flow is stopped and the
    /// peer may not know it, or ignores it.
    #[inline]
    pub(crate) fn note_taken(&mut self, conn: ConnIndex, priority: Priority, flow: u16) {
        let stops = &self.conns[conn].stops;
        if !stops.holds_back(priority, flow)
            || !self.withhold(conn, priority.index(), flow as usize)
        {
            self.give_credit(conn, priority.index(), 1);
        }
    }

    #[cold]
    fn withhold(&mut self, conn: ConnIndex, p: usize, f: usize) -> bool {
        let under_way = self.hold_limit() + CHUNKS_MAX;
        let stops = &mut self.conns[conn].stops;
        if stops.is_heard(p, f) {
            if stops.note_late(p, f, under_way) {
                return false;
            }
            self.core.counters.unstopped += 1;
        }
        stops.withhold(p, f);
        true
    }

    /// Takes over the set of flows that the peer has stopped.
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
        if !c.stops.set_theirs(serial, flows) {
            // A repeat, or overtaken by a later one.
            return ChunkOutcome::Yes;
        }
        c.count_stopped();
        let waits = c.has_queue();
        if waits {
            c.silence.wait(now);
        }
        if !waits && self.flying(conn) == 0 {
            // The peer makes us wait: keepalives show whether it lives.
            self.conns[conn].silence.wait_no_more();
        }
        if self.conns[conn].stops.are_stopped() {
            self.arm_keepalive(conn);
        }
        self.make_ready(conn);
        ChunkOutcome::Yes
    }
}
