//! Flows that their receiver has stopped: a flow that nobody takes from must not use
//! up what all flows of a pair share.
//!
//! The receiver says which flows of a peer are stopped, all of them in one chunk with
//! a number that counts up. Of these chunks one at a time is under way. The sender
//! keeps what it has for a stopped flow until a later chunk leaves the flow out.
//! Whoever has a flow stopped takes what was under way until then, and keeps it.
//!
//! Credit for that is given back once the peer has acknowledged the stop: from then on
//! nothing more of the flow leaves, so what comes of one stop is bounded, for a peer that
//! does as it is told, by twice the credit of a priority. For more than that no credit
//! is given until the flow goes on.

use portolan_seal::Seal;
use portolan_wire::{Chunk, Priority};

use crate::base::{ConnIndex, PeerId};
use crate::endpoint::Endpoint;
use crate::receive::Took;
use crate::tables::{CHUNKS_MAX, PeerState};

impl<S: Seal> Endpoint<'_, S> {
    /// Tells a peer to send nothing more of a flow, or to go on. What it has sent until
    /// it hears of that comes nevertheless: the caller takes it.
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
            // Neither side has anything of the other's: nothing was stopped.
            return;
        };
        let dead = matches!(self.peers[peer].state, PeerState::Dead(_));
        if flow >= self.core.config.flows || dead || stopped == c.stops.holds_back(priority, flow) {
            return;
        }
        c.used_at = now;
        let (p, f) = (priority.index(), flow as usize);
        if stopped {
            c.stops.stop(p, f);
        } else {
            c.stops.go_on(p, f);
            self.give_withheld(conn, p, 1 << f);
        }
        self.make_ready(conn);
    }

    /// Tells the peer of what has changed, if there is a frame for it.
    #[cold]
    pub(crate) fn tell_stops(&mut self, now: u64, conn: ConnIndex) {
        let (serial, flows) = self.conns[conn].stops.next_chunk();
        let Some(frame) = self.queue_control(now, conn, &Chunk::Stopped { serial, flows }) else {
            return;
        };
        self.meta[frame].stops = true;
        self.conns[conn].stops.queued(serial, flows);
    }

    /// The peer has acknowledged what it was told: of what it stopped for nothing more
    /// leaves, so what has come of that counts as taken.
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

    /// Gives the credit that was not given for some flows.
    fn give_withheld(&mut self, conn: ConnIndex, p: usize, flows: u16) {
        let taken = self.conns[conn].stops.release(p, flows);
        if taken > 0 {
            self.give_credit(conn, p, taken);
        }
    }

    /// A chunk of a flow was taken for good: gives credit for it, unless the flow is
    /// stopped and the peer may not know it yet.
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

    /// The peer says which flows it has stopped.
    #[cold]
    pub(crate) fn handle_stopped(
        &mut self,
        now: u64,
        conn: ConnIndex,
        serial: u16,
        flows: [u16; 2],
    ) -> Took {
        if (flows[0] | flows[1]).checked_shr(self.core.config.flows.into()) > Some(0) {
            return Took::Bad;
        }
        let c = &mut self.conns[conn];
        if !c.stops.set_theirs(serial, flows) {
            // A repeat, or overtaken by a later one.
            return Took::Yes;
        }
        c.count_stopped();
        let waits = c.has_queue();
        if waits {
            c.waiting_since = c.waiting_since.min(now);
        }
        if !waits && self.flying(conn) == 0 {
            // It lets us wait: whether it lives is asked from time to time.
            self.conns[conn].waiting_since = u64::MAX;
        }
        if self.conns[conn].stops.are_stopped() {
            self.arm_keepalive(conn);
        }
        self.make_ready(conn);
        Took::Yes
    }
}
