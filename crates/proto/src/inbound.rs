//! What comes in from a peer: the order of messages in each flow, parts that came early, credit.
//! Decides of each part whether it is handed out, held, or dropped.

mod flow;
mod refusals;
mod spare;
mod stops;
#[cfg(test)]
pub(crate) mod tests;

use portolan_wire::{BODY_BYTES, Body, Chunk, Head, MessageNo, Priority};

use crate::base::{ConnIndex, Counters, FLOWS_MAX, FrameIndex, Unusual, Verdict};
use crate::memory::{CHUNKS_AT, CHUNKS_MAX, Cargo, Memory, Need, Use};
use flow::{Intervals, key};

pub(crate) use flow::RxFlow;
use refusals::Refusals;
pub use spare::Spare;
use stops::Stops;

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

/// What to do with a head of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meet<'p> {
    /// Offer it: the next of its flow.
    Offer,
    /// More of the active message.
    Place(Body<'p>, Placing),
    /// Hold it: it comes too early.
    Hold,
    /// Nothing to hand out.
    Took(ChunkOutcome),
}

/// Progress in handing out a part of the active message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placing {
    from: u64,
    /// Some of the part was new.
    pub fresh: bool,
    /// New bytes return credit.
    pub credit: bool,
    /// The part has completed its message.
    done: bool,
}

/// A new range of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// The first chunk that a flow holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHeld {
    /// None, or none that finds room.
    Nothing,
    /// Its turn has not come.
    Waits,
    /// The head of the next message.
    Head(FrameIndex),
    /// A further part of the active message.
    Body(FrameIndex, Placing),
}

/// What outlives the active state. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeptIn {
    /// Fresh chunks taken by the caller, by priority.
    pub taken: [u32; 2],
    /// Number of the next message of each flow.
    pub next: [[MessageNo; FLOWS_MAX]; 2],
}

/// What comes in from a peer. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Inbound {
    pub kept: KeptIn,
    /// Credit that was advertised last, by priority.
    pub advertised: [u32; 2],
    /// When a message chunk last came, ns; 0: never.
    pub last_data_at: u64,
    pub rx: [[RxFlow; FLOWS_MAX]; 2],
    intervals: Intervals,
    /// Chunks held, by priority.
    pub held: [u32; 2],
    /// Chunks found no room here, by priority; reported to the peer until there is room.
    pub full: [bool; 2],
    /// Some head was answered with "not now", and is held.
    refused_now: bool,
    /// Flows whose held chunks may be taken, a bit each.
    resumable: u32,
    pub refusals: Refusals,
    pub stops: Stops,
}

/// Flows of replies, in a set of flows.
const REPLIES: u32 = u32::MAX << FLOWS_MAX;

/// Bit of a flow in a set of flows of both priorities.
const fn bit(priority: Priority, flow: u16) -> u32 {
    1 << (priority.index() * FLOWS_MAX + flow as usize)
}

/// The flow of the lowest bit that is set.
const fn flow_of(bits: u32) -> (Priority, u16) {
    let i = bits.trailing_zeros() as u16;
    if i >= FLOWS_MAX as u16 {
        (Priority::Reply, i - FLOWS_MAX as u16)
    } else {
        (Priority::Request, i)
    }
}

impl Inbound {
    /// State of a connection that is made. `next_out`: our next messages, of which any earlier one
    /// may still be refused.
    pub fn new(kept: KeptIn, next_out: &[[MessageNo; FLOWS_MAX]; 2]) -> Self {
        Self {
            kept,
            advertised: kept.taken,
            last_data_at: 0,
            rx: [[RxFlow::default(); FLOWS_MAX]; 2],
            intervals: Intervals::EMPTY,
            held: [0; 2],
            full: [false; 2],
            refused_now: false,
            resumable: 0,
            refusals: Refusals::new(next_out),
            stops: Stops::default(),
        }
    }

    /// Begins with a peer's first message, of whose chunks `limit` may come.
    pub fn begin(&mut self, first: MessageNo, limit: u32) {
        self.kept = KeptIn {
            taken: [first.0; 2],
            next: [[first; FLOWS_MAX]; 2],
        };
        self.advertised = self.credit(limit);
    }

    /// What is unusual about it.
    #[inline]
    pub fn unusual(&self) -> Unusual {
        Unusual::STOPPED.when(!self.stops.is_quiet())
            | Unusual::FULL.when(self.full != [false; 2])
            | Unusual::REFUSAL.when(!self.refusals.is_quiet())
    }

    /// Whether nothing is incomplete, held, refused or stopped.
    pub fn is_quiet(&self) -> bool {
        self.held == [0; 2]
            && self.refusals.is_quiet()
            && self.stops.is_quiet()
            && self.rx.as_flattened().iter().all(|f| !f.active)
    }

    /// Whether part of a message is here, and the rest is to come from the peer.
    pub fn is_incomplete(&self, memory: &Memory<'_>) -> bool {
        let flows = self.rx.as_flattened().iter();
        let mut flows = flows.zip(self.kept.next.as_flattened());
        flows.any(|(rx, next)| {
            let first = memory.cargo.get(rx.held.head.index());
            rx.active || first.is_some_and(|first| first.message != *next || first.part != 0)
        })
    }

    /// Examines the head of a message from the network, of a flow that exists (P5.2).
    #[inline]
    pub fn meet_head<'p>(
        &self,
        memory: &Memory<'_>,
        head: &Head<'p>,
        counters: &mut Counters,
    ) -> Meet<'p> {
        let (p, f) = (head.priority.index(), head.flow as usize);
        let ahead = head.message.since(self.kept.next[p][f]);
        let rx = &self.rx[p][f];
        if ahead == 0 && rx.active && !head.payload.is_empty() {
            return self.meet_longer_head(head);
        }
        if ahead < 0 || (ahead == 0 && rx.active) {
            counters.duplicates += 1;
            return Meet::Took(ChunkOutcome::Yes);
        }
        let first = rx.held.head;
        let is_held = || {
            let m = &memory.cargo[first];
            m.message == head.message && m.part == 0
        };
        if ahead == 0 && !(first.is_some() && is_held()) {
            return Meet::Offer;
        }
        Meet::Hold
    }

    /// Whether a head is of the next message of its flow, of which nothing has come before.
    #[inline]
    pub fn expects(&self, head: &Head<'_>) -> bool {
        let (p, f) = (head.priority.index(), head.flow as usize);
        let rx = &self.rx[p][f];
        head.message == self.kept.next[p][f] && !rx.active && rx.held.is_empty()
    }

    /// Handles the head of the active message when it comes again. As it may
    /// have been cut shorter the other time, all its bytes count as received.
    /// No credit is returned: the first copy did that (P2.22).
    #[cold]
    fn meet_longer_head<'p>(&self, head: &Head<'p>) -> Meet<'p> {
        let body = Body {
            priority: head.priority,
            flow: head.flow,
            message: head.message,
            fragment: 0,
            payload: head.payload,
        };
        match self.begin_placing(&body) {
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

    /// Applies the answer to the first part of the next message of a flow. Returns true if the
    /// message is over with it, false if bodies are to follow, `None` for not now.
    #[inline]
    pub fn answered(
        &mut self,
        head: &Head<'_>,
        verdict: Verdict,
        counters: &mut Counters,
    ) -> Option<bool> {
        let (p, f) = (head.priority.index(), head.flow as usize);
        let rx = &mut self.rx[p][f];
        match verdict {
            Verdict::NotNow => {
                self.refused_now = true;
                return None;
            }
            Verdict::Take(cookie) => {
                rx.cookie = cookie;
                rx.discard = false;
            }
            Verdict::Refuse => rx.discard = true,
        }
        let len = head.payload.len() as u64;
        let whole = len == head.total;
        if whole {
            counters.messages_delivered += u64::from(!rx.discard);
            self.next_message(p, f);
        } else {
            rx.active = true;
            rx.port = head.port;
            rx.total = head.total;
            rx.got = len;
            rx.done_to = len;
        }
        Some(whole)
    }

    #[inline]
    const fn next_message(&mut self, p: usize, f: usize) {
        let next = &mut self.kept.next[p][f];
        *next = next.next();
    }

    /// Examines a further part of a message from the network, of a flow that exists. `Ok(None)`:
    /// it comes too early, and is to be held.
    #[inline]
    pub fn meet_body(
        &self,
        body: &Body<'_>,
        counters: &mut Counters,
    ) -> Result<Option<Placing>, ChunkOutcome> {
        let (p, f) = (body.priority.index(), body.flow as usize);
        let ahead = body.message.since(self.kept.next[p][f]);
        if ahead < 0 {
            counters.duplicates += 1;
            return Err(ChunkOutcome::Yes);
        }
        if ahead > 0 || !self.rx[p][f].active {
            return Ok(None);
        }
        self.begin_placing(body).map(Some)
    }

    fn begin_placing(&self, body: &Body<'_>) -> Result<Placing, ChunkOutcome> {
        let (p, f) = (body.priority.index(), body.flow as usize);
        let start = u64::from(body.fragment) * Body::UNIT;
        let rx = &self.rx[p][f];
        if start + body.payload.len() as u64 > rx.total {
            return Err(ChunkOutcome::Bad);
        }
        if !self.intervals.has_room() && start > rx.done_to {
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
    pub fn place(
        &mut self,
        body: &Body<'_>,
        at: &mut Placing,
        counters: &mut Counters,
    ) -> Result<Option<Piece>, ChunkOutcome> {
        let (p, f) = (body.priority.index(), body.flow as usize);
        let k = key(body.priority, body.flow);
        let end = u64::from(body.fragment) * Body::UNIT + body.payload.len() as u64;
        while !at.done {
            let rx = &mut self.rx[p][f];
            at.from = at.from.max(rx.done_to);
            if !rx.active {
                break;
            }
            let Some((a, b)) = self.intervals.uncovered(k, at.from, end) else {
                break;
            };
            if a == rx.done_to {
                rx.done_to = b;
                while let Some(e) = self.intervals.take_from(k, rx.done_to) {
                    rx.done_to = e;
                }
            } else if !self.intervals.add(k, a, b) {
                return Err(ChunkOutcome::NoRoom(body.priority));
            }
            at.fresh = true;
            at.from = b;
            let discard = rx.discard;
            let piece = self.take_range(p, f, a, b, counters);
            at.done = piece.last;
            if !discard {
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Takes a further part of the active message that continues it, while nothing has arrived
    /// beyond a hole: as [`Self::meet_body`] and [`Self::place`] would. `None`: it is another, and
    /// nothing was done.
    #[inline]
    pub fn take_next(&mut self, body: &Body<'_>, counters: &mut Counters) -> Option<Piece> {
        let (p, f) = (body.priority.index(), body.flow as usize);
        let from = u64::from(body.fragment) * Body::UNIT;
        let to = from + body.payload.len() as u64;
        let rx = &mut self.rx[p][f];
        let is_next = rx.active
            && !rx.discard
            && body.message == self.kept.next[p][f]
            && from == rx.done_to
            && to <= rx.total
            && self.intervals.is_empty();
        if !is_next {
            return None;
        }
        rx.done_to = to;
        Some(self.take_range(p, f, from, to, counters))
    }

    /// Counts a new range of the active message, which may be its last.
    #[inline]
    fn take_range(
        &mut self,
        p: usize,
        f: usize,
        from: u64,
        to: u64,
        counters: &mut Counters,
    ) -> Piece {
        let rx = &mut self.rx[p][f];
        rx.got += to - from;
        let piece = Piece {
            from,
            to,
            total: rx.total,
            cookie: rx.cookie,
            port: rx.port,
            last: rx.got == rx.total,
        };
        if piece.last {
            rx.active = false;
            counters.messages_delivered += u64::from(!rx.discard);
            self.next_message(p, f);
        }
        piece
    }

    /// Holds a chunk that comes too early, where the peer may have `limit` chunks undelivered.
    /// Returns whether it is new, or why it is not held.
    pub fn hold(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        limit: u32,
        chunk: Chunk<'_>,
    ) -> Result<bool, ChunkOutcome> {
        let (priority, flow, message, part) = match chunk {
            Chunk::Head(h) => (h.priority, h.flow, h.message, 0),
            Chunk::Body(b) => (b.priority, b.flow, b.message, u64::from(b.fragment) + 1),
            _ => return Err(ChunkOutcome::Bad),
        };
        let (p, f) = (priority.index(), flow as usize);
        // Its place: behind the last that is earlier. Mostly the tail.
        let list = &mut self.rx[p][f].held;
        let order = |m: &Cargo| (m.message.since(message), m.part);
        let mut before = FrameIndex::NONE;
        if list.tail.is_some() && order(&memory.cargo[list.tail]) < (0, part) {
            before = list.tail;
        } else {
            let mut at = list.head;
            while at.is_some() && order(&memory.cargo[at]) < (0, part) {
                before = at;
                at = memory.cargo[at].next;
            }
            if at.is_some() && order(&memory.cargo[at]) == (0, part) {
                hold_longer(memory, at, chunk);
                return Ok(false);
            }
        }
        // A frame of several chunks may leave on the last bit of credit.
        if self.held[p] >= limit + CHUNKS_MAX {
            return Err(ChunkOutcome::NoRoom(priority));
        }
        let Some(frame) = memory.take(Need::hold(priority), Use::Held, conn) else {
            return Err(ChunkOutcome::NoRoom(priority));
        };
        let len = chunk.write(&mut memory.frame(frame)[CHUNKS_AT..]);
        let cargo = &mut memory.cargo[frame];
        cargo.len = len as u32;
        cargo.message = message;
        cargo.part = part;
        if before.is_none() {
            list.push_front(memory.cargo, frame);
        } else {
            list.insert_after(memory.cargo, before, frame);
        }
        self.held[p] += 1;
        Ok(true)
    }

    /// Marks a flow whose held chunks may have their turn; returns whether there are any.
    #[inline]
    pub const fn advance(&mut self, priority: Priority, flow: u16) -> bool {
        let any = !self.rx[priority.index()][flow as usize].held.is_empty();
        if any {
            self.resumable |= bit(priority, flow);
        }
        any
    }

    /// Marks all of `flows` flows if some head was answered with "not now"; returns whether.
    pub fn advance_refused(&mut self, flows: u16) -> bool {
        let refused = core::mem::take(&mut self.refused_now);
        if refused {
            for priority in Priority::BY_URGENCY {
                for flow in 0..flows {
                    self.advance(priority, flow);
                }
            }
        }
        refused
    }

    /// The flow whose held chunks have their turn; the replies' first.
    #[inline]
    pub const fn resumable(&self) -> Option<(Priority, u16)> {
        let replies = self.resumable & REPLIES;
        match self.resumable {
            0 => None,
            all if replies == 0 => Some(flow_of(all)),
            _ => Some(flow_of(replies)),
        }
    }

    /// Ends the turn of a flow's held chunks.
    pub const fn pause(&mut self, priority: Priority, flow: u16) {
        self.resumable &= !bit(priority, flow);
    }

    /// Copies the held chunk of a flow whose turn has come to `spare`: the caller may use the
    /// frames meanwhile.
    pub fn next_held(
        &mut self,
        memory: &mut Memory<'_>,
        priority: Priority,
        flow: u16,
        spare: &mut Spare,
    ) -> NextHeld {
        let (p, f) = (priority.index(), flow as usize);
        loop {
            let RxFlow { held, active, .. } = self.rx[p][f];
            let frame = held.head;
            if frame.is_none() {
                return NextHeld::Nothing;
            }
            let cargo = &memory.cargo[frame];
            let ahead = cargo.message.since(self.kept.next[p][f]);
            let is_head = cargo.part == 0;
            if ahead > 0 || (ahead == 0 && !is_head && !active) {
                return NextHeld::Waits;
            }
            spare.set(memory.chunks(frame));
            match spare.chunk() {
                Some(Chunk::Head(_)) if ahead == 0 && !active => return NextHeld::Head(frame),
                Some(Chunk::Body(body)) if ahead == 0 => match self.begin_placing(&body) {
                    Ok(at) => return NextHeld::Body(frame, at),
                    Err(ChunkOutcome::NoRoom(_)) => return NextHeld::Nothing,
                    Err(_) => {}
                },
                // Seen before in another cut.
                _ => {}
            }
            self.drop_held(memory, priority, flow, frame);
        }
    }

    /// Frees a held chunk. Returns false if it is no longer there.
    pub fn drop_held(
        &mut self,
        memory: &mut Memory<'_>,
        priority: Priority,
        flow: u16,
        frame: FrameIndex,
    ) -> bool {
        let held = &mut self.rx[priority.index()][flow as usize].held;
        let there = held.remove(memory.cargo, frame);
        if there {
            self.held[priority.index()] -= 1;
            memory.free(frame);
        }
        there
    }

    /// Forgets what was to be said to a peer that hears nothing more.
    pub fn drop_news(&mut self) {
        self.refusals.drop_all();
        self.stops = Stops::default();
    }

    /// Drops what was received and not delivered.
    pub fn drop_all(&mut self, memory: &mut Memory<'_>) {
        for priority in 0..2 {
            for flow in 0..FLOWS_MAX {
                let old = core::mem::take(&mut self.rx[priority][flow]);
                // A message that was begun is not begun again, should the peer speak.
                if old.active {
                    self.next_message(priority, flow);
                }
                memory.free_list(old.held);
            }
        }
        self.held = [0; 2];
        self.intervals = Intervals::EMPTY;
    }

    /// The credit to advertise to a peer that may have `limit` chunks undelivered: absolute, by
    /// priority.
    pub fn credit(&self, limit: u32) -> [u32; 2] {
        self.kept.taken.map(|t| t.wrapping_add(limit))
    }

    /// Counts `chunks` as taken for good. Returns whether new credit is advertised now: at most
    /// half of the limit is left to the peer, and at least half is new (P6.4).
    #[inline]
    fn give_credit(&mut self, limit: u32, priority: usize, chunks: u32) -> bool {
        let taken = &mut self.kept.taken[priority];
        *taken = taken.wrapping_add(chunks);
        let waits = self.held[priority] + self.stops.all_withheld[priority];
        let arrived = taken.wrapping_add(waits);
        let credit = taken.wrapping_add(limit);
        let left = self.advertised[priority].wrapping_sub(arrived) as i32;
        let new = credit.wrapping_sub(self.advertised[priority]);
        left <= (limit / 2) as i32 && new >= limit / 2
    }

    /// A chunk of a flow was taken for good: returns its credit as [`Self::give_credit`], unless
    /// the flow is stopped and the peer may not know it, or ignores it.
    #[inline]
    pub fn note_taken(
        &mut self,
        limit: u32,
        priority: Priority,
        flow: u16,
        counters: &mut Counters,
    ) -> bool {
        let withheld = self.stops.holds_back(priority, flow)
            && (self.stops).withholds(priority.index(), flow as usize, limit, counters);
        !withheld && self.give_credit(limit, priority.index(), 1)
    }

    /// Returns the credit that was withheld for some flows, as [`Self::give_credit`].
    pub fn give_withheld(&mut self, limit: u32, p: usize, flows: u16) -> bool {
        let taken = self.stops.release(p, flows);
        taken > 0 && self.give_credit(limit, p, taken)
    }

    /// Notes that a chunk found no room; returns whether that is news.
    pub const fn note_full(&mut self, priority: Priority) -> bool {
        !core::mem::replace(&mut self.full[priority.index()], true)
    }

    /// Where the pool has room again, by priority: returns whether that is news to the peer.
    pub fn tell_room(&mut self, room: [bool; 2], limit: u32) -> bool {
        let before = self.full;
        for (p, room) in room.into_iter().enumerate() {
            let fits = room && self.held[p] < limit + CHUNKS_MAX && self.intervals.has_room();
            self.full[p] &= !fits;
        }
        self.full != before
    }
}

/// Replaces a held chunk by a longer copy: one may have been cut shorter
/// when it was sent, and the longer has all of both (P2.22).
fn hold_longer(memory: &mut Memory<'_>, frame: FrameIndex, chunk: Chunk<'_>) {
    let bytes = match chunk {
        Chunk::Head(h) => h.bytes(),
        Chunk::Body(b) => BODY_BYTES + b.payload.len(),
        _ => 0,
    };
    if bytes > memory.cargo[frame].len as usize {
        chunk.write(&mut memory.frame(frame)[CHUNKS_AT..]);
        memory.cargo[frame].len = bytes as u32;
    }
}
