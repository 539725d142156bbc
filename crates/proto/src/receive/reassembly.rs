//! Hands parts of messages to [`Inbound`](crate::inbound::Inbound), and carries out what it decides.

use portolan_seal::Seal;
use portolan_wire::{Body, Chunk, Head, Priority};

use crate::base::{ConnIndex, FrameIndex, PeerId, Verdict};
use crate::endpoint::Endpoint;
use crate::inbound::{ChunkOutcome, Meet, NextHeld, Piece, Placing, Spare};

impl<S: Seal> Endpoint<'_, S> {
    /// Examines the head of a message from the network.
    #[inline]
    pub(crate) fn meet_head<'p>(&mut self, conn: ConnIndex, head: &Head<'p>) -> Meet<'p> {
        if head.flow >= self.core.config.flows || head.total > Body::UNIT << 32 {
            return Meet::Took(ChunkOutcome::Bad);
        }
        let c = &self.conns[conn];
        if c.silence.finished {
            return Meet::Took(ChunkOutcome::Yes);
        }
        let counters = &mut self.core.counters;
        match c.inbound.meet_head(&self.memory, head, counters) {
            Meet::Offer if self.refusal_blocks(conn, head.priority, head.flow) => Meet::Hold,
            meet => meet,
        }
    }

    /// Applies the answer to the first part of the next message of a flow;
    /// returns false for not now.
    #[inline]
    pub(crate) fn answered(&mut self, conn: ConnIndex, head: &Head<'_>, verdict: Verdict) -> bool {
        if verdict == Verdict::Refuse {
            self.refuse(conn, head.priority, head.flow, head.message);
        }
        let inbound = &mut self.conns[conn].inbound;
        match inbound.answered(head, verdict, &mut self.core.counters) {
            None => return false,
            Some(true) => {}
            // The rest is awaited.
            Some(false) => self.arm_keepalive(conn),
        }
        true
    }

    /// Examines a further part of a message from the network.
    #[inline]
    pub(crate) fn meet_body(
        &mut self,
        conn: ConnIndex,
        body: &Body<'_>,
    ) -> Result<Placing, ChunkOutcome> {
        if body.flow >= self.core.config.flows {
            return Err(ChunkOutcome::Bad);
        }
        let c = &self.conns[conn];
        if c.silence.finished {
            return Err(ChunkOutcome::Yes);
        }
        let placing = c.inbound.meet_body(body, &mut self.core.counters)?;
        placing.ok_or_else(|| self.hold(conn, Chunk::Body(*body)))
    }

    /// Returns the next new range of a part of the active message.
    #[inline]
    pub(crate) fn place(
        &mut self,
        conn: ConnIndex,
        body: &Body<'_>,
        at: &mut Placing,
    ) -> Result<Option<Piece>, ChunkOutcome> {
        let inbound = &mut self.conns[conn].inbound;
        inbound.place(body, at, &mut self.core.counters)
    }

    /// Ends the handing out of a part of the active message. Only new bytes
    /// return credit: a repeat used up none (P7.7).
    #[inline]
    pub(crate) fn placed(&mut self, conn: ConnIndex, body: &Body<'_>, at: &Placing) {
        if !at.fresh {
            self.core.counters.duplicates += 1;
        } else if at.credit {
            self.note_taken(conn, body.priority, body.flow);
        }
        self.advance(conn, body.priority, body.flow);
    }

    /// Holds a chunk that comes too early.
    pub(crate) fn hold(&mut self, conn: ConnIndex, chunk: Chunk<'_>) -> ChunkOutcome {
        let limit = self.hold_limit();
        let inbound = &mut self.conns[conn].inbound;
        match inbound.hold(&mut self.memory, conn, limit, chunk) {
            Ok(true) => {
                self.arm_keepalive(conn);
                self.core.counters.held += 1;
            }
            Ok(false) => self.core.counters.duplicates += 1,
            Err(outcome) => {
                self.note_lack();
                return outcome;
            }
        }
        ChunkOutcome::Yes
    }

    /// Marks a flow whose held chunks may have their turn: the [`crate::Rx`]
    /// that is at work on the connection takes them up, or else the next
    /// [`Endpoint::resume`].
    #[inline]
    pub(crate) fn advance(&mut self, conn: ConnIndex, priority: Priority, flow: u16) {
        let c = &mut self.conns[conn];
        if c.inbound.advance(priority, flow) {
            self.core.resumable |= !c.busy;
        }
    }

    /// Copies the held chunk of a flow whose turn has come to `spare`: the
    /// caller may use the frames meanwhile. Returns its frame, and for a
    /// further part how to place it.
    pub(crate) fn next_held(
        &mut self,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
        spare: &mut Spare,
    ) -> Option<(FrameIndex, Option<Placing>)> {
        let inbound = &mut self.conns[conn].inbound;
        match inbound.next_held(&mut self.memory, priority, flow, spare) {
            NextHeld::Nothing => None,
            NextHeld::Waits => {
                self.arm_keepalive(conn);
                None
            }
            NextHeld::Head(frame) => {
                let blocked = self.refusal_blocks(conn, priority, flow);
                (!blocked).then_some((frame, None))
            }
            NextHeld::Body(frame, at) => Some((frame, Some(at))),
        }
    }

    /// Frees a held chunk. Returns false if it is no longer there.
    pub(crate) fn drop_held(
        &mut self,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
        frame: FrameIndex,
    ) -> bool {
        let inbound = &mut self.conns[conn].inbound;
        inbound.drop_held(&mut self.memory, priority, flow, frame)
    }

    /// Makes a connection's flows resumable if one was answered "not now";
    /// returns the peer if any flow is resumable.
    pub(crate) fn begin_resume(&mut self, now: u64, conn: ConnIndex) -> Option<PeerId> {
        let c = &mut self.conns[conn];
        if c.inbound.advance_refused(self.core.config.flows) {
            c.silence.used(now);
        }
        c.inbound.resumable()?;
        c.busy = true;
        Some(c.peer)
    }
}
