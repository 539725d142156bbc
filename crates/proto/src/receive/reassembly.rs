//! Order and completion: which part of which message comes next in each flow.

use portolan_seal::Seal;
use portolan_wire::{BODY_BYTES, Body, Chunk, Head, Priority};

use super::Spare;
use crate::base::{ConnIndex, FrameIndex, PeerId, Verdict};
use crate::endpoint::{Endpoint, Need};
use crate::tables::{CHUNKS_AT, CHUNKS_MAX, FrameMeta, Use, bit, key};

/// Outcome of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkOutcome {
    /// Delivered, held or seen before: the packet counts as received.
    Yes,
    /// No room for chunks of this priority now: the packet counts as missing.
    NoRoom(Priority),
    /// The chunk contradicts what is known.
    Bad,
}

/// What to do with a head of the packet.
pub(crate) enum Meet<'p> {
    /// Offer it: the next of its flow.
    Offer,
    /// More of the active message.
    Place(Body<'p>, Placing),
    /// Nothing to hand out.
    Took(ChunkOutcome),
}

/// Progress in handing out a part of the active message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placing {
    from: u64,
    /// Some of the part was new.
    fresh: bool,
    /// New bytes return credit.
    credit: bool,
    /// The part has completed its message.
    done: bool,
}

/// A new range of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub from: u64,
    pub to: u64,
    pub total: u64,
    pub cookie: u64,
    pub port: u16,
    pub last: bool,
}

impl Piece {
    /// Placeholder for a first part, whose head has all of this.
    pub const FIRST: Self = Self {
        from: 0,
        to: 0,
        total: 0,
        cookie: 0,
        port: 0,
        last: false,
    };
}

impl<S: Seal> Endpoint<'_, S> {
    /// Examines the head of a message from the network.
    #[inline]
    pub(crate) fn meet_head<'p>(&mut self, conn: ConnIndex, head: &Head<'p>) -> Meet<'p> {
        if head.flow >= self.core.config.flows || head.total > Body::UNIT << 32 {
            return Meet::Took(ChunkOutcome::Bad);
        }
        let c = &self.conns[conn];
        if c.finished {
            return Meet::Took(ChunkOutcome::Yes);
        }
        let (p, f) = (head.priority.index(), head.flow as usize);
        let ahead = head.message.since(c.kept.next_in[p][f]);
        let rx = &c.rx[p][f];
        if ahead == 0 && rx.active && !head.payload.is_empty() {
            return self.meet_longer_head(conn, head);
        }
        if ahead < 0 || (ahead == 0 && rx.active) {
            self.core.counters.duplicates += 1;
            return Meet::Took(ChunkOutcome::Yes);
        }
        if ahead == 0
            && !self.is_held(rx.held.head, head)
            && !self.refusal_blocks(conn, head.priority, head.flow)
        {
            return Meet::Offer;
        }
        Meet::Took(self.hold(conn, Chunk::Head(*head)))
    }

    /// Handles the head of the active message when it comes again. As it may
    /// have been cut shorter the other time, all its bytes count as received.
    /// No credit is returned: the first copy did that.
    #[cold]
    fn meet_longer_head<'p>(&self, conn: ConnIndex, head: &Head<'p>) -> Meet<'p> {
        let body = Body {
            priority: head.priority,
            flow: head.flow,
            message: head.message,
            fragment: 0,
            payload: head.payload,
        };
        match self.begin_placing(conn, &body) {
            Ok(at) => Meet::Place(
                body,
                Placing {
                    credit: false,
                    ..at
                },
            ),
            Err(took) => Meet::Took(took),
        }
    }

    fn is_held(&self, first: FrameIndex, head: &Head<'_>) -> bool {
        first.is_some() && {
            let m = &self.meta[first];
            m.message == head.message && m.part == 0
        }
    }

    /// Applies the answer to the first part of the next message of a flow;
    /// returns false for not now.
    #[inline]
    pub(crate) fn answered(&mut self, conn: ConnIndex, head: &Head<'_>, verdict: Verdict) -> bool {
        let (p, f) = (head.priority.index(), head.flow as usize);
        if verdict == Verdict::Refuse {
            self.refuse(conn, head.priority, head.flow, head.message);
        }
        let c = &mut self.conns[conn];
        let rx = &mut c.rx[p][f];
        match verdict {
            Verdict::NotNow => {
                c.refused_now = true;
                return false;
            }
            Verdict::Take(cookie) => {
                rx.cookie = cookie;
                rx.discard = false;
            }
            Verdict::Refuse => rx.discard = true,
        }
        let len = head.payload.len() as u64;
        if len == head.total {
            self.core.counters.messages_delivered += u64::from(!rx.discard);
            let next = &mut c.kept.next_in[p][f];
            *next = next.next();
        } else {
            rx.active = true;
            rx.port = head.port;
            rx.total = head.total;
            rx.got = len;
            rx.done_to = len;
            self.arm_keepalive(conn);
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
        if c.finished {
            return Err(ChunkOutcome::Yes);
        }
        let (p, f) = (body.priority.index(), body.flow as usize);
        let ahead = body.message.since(c.kept.next_in[p][f]);
        if ahead < 0 {
            self.core.counters.duplicates += 1;
            return Err(ChunkOutcome::Yes);
        }
        if ahead > 0 || !c.rx[p][f].active {
            return Err(self.hold(conn, Chunk::Body(*body)));
        }
        self.begin_placing(conn, body)
    }

    fn begin_placing(&self, conn: ConnIndex, body: &Body<'_>) -> Result<Placing, ChunkOutcome> {
        let (p, f) = (body.priority.index(), body.flow as usize);
        let start = u64::from(body.fragment) * Body::UNIT;
        let c = &self.conns[conn];
        let rx = &c.rx[p][f];
        if start + body.payload.len() as u64 > rx.total {
            return Err(ChunkOutcome::Bad);
        }
        if !c.intervals.has_room() && start > rx.done_to {
            return Err(ChunkOutcome::NoRoom(body.priority));
        }
        Ok(Placing {
            from: start,
            fresh: false,
            credit: true,
            done: false,
        })
    }

    /// Returns the next new range of a part of the active message.
    #[inline]
    pub(crate) fn place(
        &mut self,
        conn: ConnIndex,
        body: &Body<'_>,
        at: &mut Placing,
    ) -> Result<Option<Piece>, ChunkOutcome> {
        let (p, f) = (body.priority.index(), body.flow as usize);
        let k = key(body.priority, body.flow);
        let end = u64::from(body.fragment) * Body::UNIT + body.payload.len() as u64;
        while !at.done {
            let c = &mut self.conns[conn];
            let rx = &mut c.rx[p][f];
            at.from = at.from.max(rx.done_to);
            if !rx.active {
                break;
            }
            let Some((a, b)) = c.intervals.uncovered(k, at.from, end) else {
                break;
            };
            if a == rx.done_to {
                rx.done_to = b;
                while let Some(e) = c.intervals.take_from(k, rx.done_to) {
                    rx.done_to = e;
                }
            } else if !c.intervals.add(k, a, b) {
                return Err(ChunkOutcome::NoRoom(body.priority));
            }
            at.fresh = true;
            at.from = b;
            rx.got += b - a;
            at.done = rx.got == rx.total;
            let piece = Piece {
                from: a,
                to: b,
                total: rx.total,
                cookie: rx.cookie,
                port: rx.port,
                last: at.done,
            };
            let discard = rx.discard;
            if at.done {
                rx.active = false;
                self.core.counters.messages_delivered += u64::from(!discard);
                let next = &mut c.kept.next_in[p][f];
                *next = next.next();
            }
            if !discard {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Ends the handing out of a part of the active message. Only new bytes
    /// return credit: a repeat used up none.
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
        let (priority, flow, message, part) = match chunk {
            Chunk::Head(h) => (h.priority, h.flow, h.message, 0),
            Chunk::Body(b) => (b.priority, b.flow, b.message, u64::from(b.fragment) + 1),
            _ => return ChunkOutcome::Bad,
        };
        let (p, f) = (priority.index(), flow as usize);
        // Its place: behind the last that is earlier. Mostly the tail.
        let mut list = self.conns[conn].rx[p][f].held;
        let order = |m: &FrameMeta| (m.message.since(message), m.part);
        let mut before = FrameIndex::NONE;
        if list.tail.is_some() && order(&self.meta[list.tail]) < (0, part) {
            before = list.tail;
        } else {
            let mut at = list.head;
            while at.is_some() && order(&self.meta[at]) < (0, part) {
                before = at;
                at = self.meta[at].next;
            }
            if at.is_some() && order(&self.meta[at]) == (0, part) {
                self.core.counters.duplicates += 1;
                self.hold_longer(at, chunk);
                return ChunkOutcome::Yes;
            }
        }
        // A frame of several chunks may leave on the last bit of credit.
        if self.conns[conn].held[p] >= self.hold_limit() + CHUNKS_MAX {
            return ChunkOutcome::NoRoom(priority);
        }
        let need = match priority {
            Priority::Request => Need::Hold,
            Priority::Reply => Need::HoldReply,
        };
        let Some(frame) = self.take_frame(need, Use::Held, conn) else {
            return ChunkOutcome::NoRoom(priority);
        };
        let len = chunk.write(&mut self.frame_mut(frame)[CHUNKS_AT..]);
        let meta = &mut self.meta[frame];
        meta.len = len as u32;
        meta.message = message;
        meta.part = part;
        if before.is_none() {
            list.push_front(self.meta, frame);
        } else {
            list.insert_after(self.meta, before, frame);
        }
        self.conns[conn].rx[p][f].held = list;
        self.conns[conn].held[p] += 1;
        self.arm_keepalive(conn);
        self.core.counters.held += 1;
        ChunkOutcome::Yes
    }

    /// Replaces a held chunk by a longer copy: one may have been cut shorter
    /// when it was sent, and the longer has all of both.
    fn hold_longer(&mut self, frame: FrameIndex, chunk: Chunk<'_>) {
        let bytes = match chunk {
            Chunk::Head(h) => h.bytes(),
            Chunk::Body(b) => BODY_BYTES + b.payload.len(),
            _ => 0,
        };
        if bytes > self.meta[frame].len as usize {
            chunk.write(&mut self.frame_mut(frame)[CHUNKS_AT..]);
            self.meta[frame].len = bytes as u32;
        }
    }

    /// Marks a flow whose held chunks may have their turn: the [`crate::Rx`]
    /// that is at work on the connection takes them up, or else the next
    /// [`Endpoint::resume`].
    #[inline]
    pub(crate) fn advance(&mut self, conn: ConnIndex, priority: Priority, flow: u16) {
        let c = &mut self.conns[conn];
        if !c.rx[priority.index()][flow as usize].held.is_empty() {
            c.resumable |= bit(priority, flow);
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
        let (p, f) = (priority.index(), flow as usize);
        loop {
            let c = &self.conns[conn];
            let frame = c.rx[p][f].held.head;
            if frame.is_none() {
                return None;
            }
            let active = c.rx[p][f].active;
            let meta = &self.meta[frame];
            let ahead = meta.message.since(c.kept.next_in[p][f]);
            let is_head = meta.part == 0;
            if ahead > 0 || (ahead == 0 && !is_head && !active) {
                self.arm_keepalive(conn);
                return None;
            }
            let at = self.frame_at(frame) + CHUNKS_AT;
            spare.set(&self.frames[at..at + meta.len as usize]);
            match spare.chunk() {
                Some(Chunk::Head(_)) if ahead == 0 && !active => {
                    let blocked = self.refusal_blocks(conn, priority, flow);
                    return (!blocked).then_some((frame, None));
                }
                Some(Chunk::Body(body)) if ahead == 0 => match self.begin_placing(conn, &body) {
                    Ok(at) => return Some((frame, Some(at))),
                    Err(ChunkOutcome::NoRoom(_)) => return None,
                    Err(_) => {}
                },
                // Seen before in another cut.
                _ => {}
            }
            self.drop_held(conn, priority, flow, frame);
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
        let c = &mut self.conns[conn];
        let held = &mut c.rx[priority.index()][flow as usize].held;
        let there = held.remove(self.meta, frame);
        if there {
            c.held[priority.index()] -= 1;
            self.free_frame(frame);
        }
        there
    }

    /// Makes a connection's flows resumable if one was answered "not now";
    /// returns the peer if any flow is resumable.
    pub(crate) fn begin_resume(&mut self, now: u64, conn: ConnIndex) -> Option<PeerId> {
        let c = &mut self.conns[conn];
        let was_busy = core::mem::replace(&mut c.busy, true);
        if core::mem::take(&mut c.refused_now) {
            c.silence.used(now);
            for priority in Priority::BY_URGENCY {
                for flow in 0..self.core.config.flows {
                    self.advance(conn, priority, flow);
                }
            }
        }
        let c = &mut self.conns[conn];
        if c.resumable == 0 {
            c.busy = was_busy;
            return None;
        }
        Some(c.peer)
    }
}
