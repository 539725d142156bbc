//! Order and completion: which part of which message comes next in each flow.

use portolan_seal::Seal;
use portolan_wire::{BODY_BYTES, Body, Chunk, Chunks, Head, Priority};

use crate::endpoint::Endpoint;
use crate::host::{Delivery, Host, PeerId, Verdict};
use crate::pool::{CHUNKS_AT, List, Need, Use};
use crate::send::CHUNKS_MAX;
use crate::tables::NONE;

/// Largest frame, and so the largest held chunk, bytes: a jumbo packet.
pub(crate) const SCRATCH: usize = 9728;

/// Receiver's state of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RxFlow {
    /// The head of the next message was taken, bodies are missing.
    pub active: bool,
    /// Its message was refused: the bodies are thrown away.
    pub discard: bool,
    pub port: u16,
    pub total: u64,
    /// Bytes handed over, and how far they reach without a hole.
    pub got: u64,
    pub done_to: u64,
    pub cookie: u64,
    /// Chunks that cannot be handed over yet, in order.
    pub held: List,
}

impl RxFlow {
    pub const EMPTY: Self = Self {
        active: false,
        discard: false,
        port: 0,
        total: 0,
        got: 0,
        done_to: 0,
        cookie: 0,
        held: List::EMPTY,
    };
}

/// Parts of messages beyond the first hole that one connection keeps track of:
/// every other packet of a window may be missing.
const INTERVALS: usize = crate::WINDOW_SPAN / 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Interval {
    key: u8,
    start: u64,
    end: u64,
}

/// Byte ranges that arrived beyond a hole, for all flows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Intervals {
    all: [Interval; INTERVALS],
    used: u16,
}

impl Intervals {
    pub const EMPTY: Self = Self {
        all: [Interval {
            key: 0,
            start: 0,
            end: 0,
        }; INTERVALS],
        used: 0,
    };

    /// The first part of `start..end` that no interval covers.
    fn uncovered(&self, key: u8, mut start: u64, end: u64) -> Option<(u64, u64)> {
        // Each pass either moves `start` past an interval or is the last.
        loop {
            if start >= end {
                return None;
            }
            let mut stop = end;
            let mut covered_to = start;
            for i in self.all[..self.used as usize]
                .iter()
                .filter(|i| i.key == key)
            {
                if i.start <= start && start < i.end {
                    covered_to = covered_to.max(i.end);
                } else if i.start > start {
                    stop = stop.min(i.start);
                }
            }
            if covered_to == start {
                return Some((start, stop));
            }
            start = covered_to;
        }
    }

    /// Adds a range that overlaps no other, joining neighbours; false if full.
    fn add(&mut self, key: u8, mut start: u64, mut end: u64) -> bool {
        let mut i = 0;
        let before = *self;
        while i < self.used as usize {
            let it = self.all[i];
            if it.key == key && (it.end == start || it.start == end) {
                start = start.min(it.start);
                end = end.max(it.end);
                self.remove(i);
            } else {
                i += 1;
            }
        }
        if self.used as usize == INTERVALS {
            *self = before;
            return false;
        }
        self.all[self.used as usize] = Interval { key, start, end };
        self.used += 1;
        true
    }

    fn remove(&mut self, i: usize) {
        self.used -= 1;
        self.all[i] = self.all[self.used as usize];
        self.all[self.used as usize] = Interval::default();
    }

    /// Takes out the range that starts at `at`; gives its end.
    fn take_from(&mut self, key: u8, at: u64) -> Option<u64> {
        let used = &self.all[..self.used as usize];
        let i = used.iter().position(|i| i.key == key && i.start == at)?;
        let end = self.all[i].end;
        self.remove(i);
        Some(end)
    }

    /// Whether one more range is sure to find room.
    pub(crate) const fn has_room(&self) -> bool {
        (self.used as usize) < INTERVALS
    }
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Took {
    /// Handed over, held or seen before: the packet counts as received.
    Yes,
    /// No room for chunks of this priority now: the packet counts as missing.
    NoRoom(Priority),
    /// It contradicts what is known.
    Bad,
}

const fn key(priority: Priority, flow: u16) -> u8 {
    (priority.index() * crate::FLOWS_MAX) as u8 + flow as u8
}

impl<S: Seal> Endpoint<'_, S> {
    /// Takes the head of a message from the network.
    pub(crate) fn handle_head(
        &mut self,
        conn: u32,
        head: &Head<'_>,
        host: &mut impl Host<S>,
    ) -> Took {
        if head.flow >= self.core.config.flows || head.total > Body::UNIT << 32 {
            return Took::Bad;
        }
        if self.conns[conn as usize].finished {
            return Took::Yes;
        }
        let (p, f) = (head.priority.index(), head.flow as usize);
        let c = &self.conns[conn as usize];
        let ahead = head.message.since(c.kept.next_in[p][f]);
        let rx = &c.rx[p][f];
        if ahead == 0 && rx.active && !head.payload.is_empty() {
            return self.handle_longer_head(conn, head, host);
        }
        if ahead < 0 || (ahead == 0 && rx.active) {
            self.core.counters.duplicates += 1;
            return Took::Yes;
        }
        if ahead == 0 && !self.is_held(rx.held.head, head) && self.offer(conn, head, host) {
            self.give_credit(conn, p);
            self.advance(conn, head.priority, head.flow, host);
            return Took::Yes;
        }
        self.hold(conn, Chunk::Head(*head))
    }

    /// The head of the active message again, which may have been cut shorter
    /// when it was sent the other time: all that it has counts as received. It
    /// gives no credit: its first cut did.
    fn handle_longer_head(&mut self, conn: u32, head: &Head<'_>, host: &mut impl Host<S>) -> Took {
        let body = Body {
            priority: head.priority,
            flow: head.flow,
            message: head.message,
            fragment: 0,
            payload: head.payload,
        };
        match self.place(conn, &body, host) {
            Ok(_) => {
                self.advance(conn, head.priority, head.flow, host);
                Took::Yes
            }
            Err(took) => took,
        }
    }

    fn is_held(&self, first: u32, head: &Head<'_>) -> bool {
        first != NONE && {
            let m = &self.meta[first as usize];
            m.message == head.message && m.part == 0
        }
    }

    /// Offers the next message of a flow to the host; false: not now.
    fn offer(&mut self, conn: u32, head: &Head<'_>, host: &mut impl Host<S>) -> bool {
        if self.refusal_blocks(conn, head.priority, head.flow) {
            return false;
        }
        let (p, f) = (head.priority.index(), head.flow as usize);
        let peer = self.conns[conn as usize].peer;
        let len = head.payload.len() as u64;
        let last = len == head.total;
        let verdict = host.deliver(
            self,
            Delivery {
                peer: PeerId(peer),
                priority: head.priority,
                flow: head.flow,
                message: head.message,
                port: head.port,
                args: head.args,
                total: head.total,
                offset: 0,
                payload: head.payload,
                last,
                cookie: 0,
            },
        );
        if verdict == Verdict::Refuse {
            self.refuse(conn, head.priority, head.flow, head.message);
        }
        let c = &mut self.conns[conn as usize];
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
        if last {
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

    /// Takes a further part of a message from the network.
    pub(crate) fn handle_body(
        &mut self,
        conn: u32,
        body: &Body<'_>,
        host: &mut impl Host<S>,
    ) -> Took {
        if body.flow >= self.core.config.flows {
            return Took::Bad;
        }
        if self.conns[conn as usize].finished {
            return Took::Yes;
        }
        let (p, f) = (body.priority.index(), body.flow as usize);
        let c = &self.conns[conn as usize];
        let ahead = body.message.since(c.kept.next_in[p][f]);
        if ahead < 0 {
            self.core.counters.duplicates += 1;
            return Took::Yes;
        }
        if ahead > 0 || !c.rx[p][f].active {
            return self.hold(conn, Chunk::Body(*body));
        }
        match self.place(conn, body, host) {
            Ok(fresh) => {
                if fresh {
                    self.give_credit(conn, p);
                }
                self.advance(conn, body.priority, body.flow, host);
                Took::Yes
            }
            Err(took) => took,
        }
    }

    /// Hands over what is new of a part of the active message; says whether
    /// anything was. Only that gives credit: a repeat used up none.
    fn place(&mut self, conn: u32, body: &Body<'_>, host: &mut impl Host<S>) -> Result<bool, Took> {
        let (p, f) = (body.priority.index(), body.flow as usize);
        let k = key(body.priority, body.flow);
        let start = u64::from(body.fragment) * Body::UNIT;
        let end = start + body.payload.len() as u64;
        let c = &self.conns[conn as usize];
        let peer = c.peer;
        if end > c.rx[p][f].total {
            return Err(Took::Bad);
        }
        if !c.intervals.has_room() && start > c.rx[p][f].done_to {
            return Err(Took::NoRoom(body.priority));
        }
        let mut from = start;
        let mut fresh = false;
        loop {
            let c = &mut self.conns[conn as usize];
            let rx = &mut c.rx[p][f];
            from = from.max(rx.done_to);
            let Some((a, b)) = c.intervals.uncovered(k, from, end) else {
                break;
            };
            if a == rx.done_to {
                rx.done_to = b;
                while let Some(e) = c.intervals.take_from(k, rx.done_to) {
                    rx.done_to = e;
                }
            } else if !c.intervals.add(k, a, b) {
                return Err(Took::NoRoom(body.priority));
            }
            fresh = true;
            rx.got += b - a;
            let last = rx.got == rx.total;
            let delivery = Delivery {
                peer: PeerId(peer),
                priority: body.priority,
                flow: body.flow,
                message: body.message,
                port: rx.port,
                args: &[],
                total: rx.total,
                offset: a,
                payload: &body.payload[(a - start) as usize..(b - start) as usize],
                last,
                cookie: rx.cookie,
            };
            let discard = rx.discard;
            if last {
                rx.active = false;
                self.core.counters.messages_delivered += u64::from(!discard);
                let next = &mut c.kept.next_in[p][f];
                *next = next.next();
            }
            if !discard {
                host.deliver(self, delivery);
            }
            if last {
                break;
            }
            from = b;
        }
        if !fresh {
            self.core.counters.duplicates += 1;
        }
        Ok(fresh)
    }

    /// Keeps a chunk that comes too early.
    fn hold(&mut self, conn: u32, chunk: Chunk<'_>) -> Took {
        let (priority, flow, message, part) = match chunk {
            Chunk::Head(h) => (h.priority, h.flow, h.message, 0),
            Chunk::Body(b) => (b.priority, b.flow, b.message, u64::from(b.fragment) + 1),
            _ => return Took::Bad,
        };
        let (p, f) = (priority.index(), flow as usize);
        // Where it belongs: behind the last that is earlier. Mostly the tail.
        let mut list = self.conns[conn as usize].rx[p][f].held;
        let order = |m: &crate::FrameMeta| (m.message.since(message), m.part);
        let mut before = NONE;
        if list.tail != NONE && order(&self.meta[list.tail as usize]) < (0, part) {
            before = list.tail;
        } else {
            let mut at = list.head;
            while at != NONE && order(&self.meta[at as usize]) < (0, part) {
                before = at;
                at = self.meta[at as usize].next;
            }
            if at != NONE && order(&self.meta[at as usize]) == (0, part) {
                self.core.counters.duplicates += 1;
                self.hold_longer(at, chunk);
                return Took::Yes;
            }
        }
        // A frame of several chunks may leave on the last bit of credit.
        if self.conns[conn as usize].held[p] >= self.hold_limit() + CHUNKS_MAX {
            return Took::NoRoom(priority);
        }
        let need = match priority {
            Priority::Request => Need::Hold,
            Priority::Reply => Need::HoldReply,
        };
        let Some(frame) = self.take_frame(need, Use::Held, conn) else {
            return Took::NoRoom(priority);
        };
        let len = chunk.write(&mut self.frame_mut(frame)[CHUNKS_AT..]);
        let meta = &mut self.meta[frame as usize];
        meta.len = len as u32;
        meta.message = message;
        meta.part = part;
        if before == NONE {
            list.push_front(self.meta, frame);
        } else {
            list.insert_after(self.meta, before, frame);
        }
        self.conns[conn as usize].rx[p][f].held = list;
        self.conns[conn as usize].held[p] += 1;
        self.arm_keepalive(conn);
        self.core.counters.held += 1;
        Took::Yes
    }

    /// A chunk is held already, but may have been cut shorter when it was sent
    /// the other time: the longer one has all of both.
    fn hold_longer(&mut self, frame: u32, chunk: Chunk<'_>) {
        let bytes = match chunk {
            Chunk::Head(h) => h.bytes(),
            Chunk::Body(b) => BODY_BYTES + b.payload.len(),
            _ => 0,
        };
        if bytes > self.meta[frame as usize].len as usize {
            chunk.write(&mut self.frame_mut(frame)[CHUNKS_AT..]);
            self.meta[frame as usize].len = bytes as u32;
        }
    }

    /// Hands over held chunks of a flow as far as they have become due.
    #[inline]
    pub(crate) fn advance(
        &mut self,
        conn: u32,
        priority: Priority,
        flow: u16,
        host: &mut impl Host<S>,
    ) {
        let rx = &self.conns[conn as usize].rx[priority.index()][flow as usize];
        if !rx.held.is_empty() {
            self.advance_held(conn, priority, flow, host);
        }
    }

    #[cold]
    fn advance_held(&mut self, conn: u32, priority: Priority, flow: u16, host: &mut impl Host<S>) {
        let (p, f) = (priority.index(), flow as usize);
        let mut scratch = [0; SCRATCH];
        loop {
            let c = &self.conns[conn as usize];
            let frame = c.rx[p][f].held.head;
            if frame == NONE {
                return;
            }
            let next = c.kept.next_in[p][f];
            let meta = &self.meta[frame as usize];
            let ahead = meta.message.since(next);
            let is_head = meta.part == 0;
            if ahead > 0 || (ahead == 0 && !is_head && !c.rx[p][f].active) {
                self.arm_keepalive(conn);
                return;
            }
            // Copied out, because the host may use the frames meanwhile.
            let len = meta.len as usize;
            let at = self.frame_at(frame) + CHUNKS_AT;
            scratch[..len].copy_from_slice(&self.frames[at..at + len]);
            let fresh = match Chunks::new(&scratch[..len]).next() {
                Some(Ok(Chunk::Head(head)))
                    if ahead == 0 && !self.conns[conn as usize].rx[p][f].active =>
                {
                    if !self.offer(conn, &head, host) {
                        return;
                    }
                    true
                }
                Some(Ok(Chunk::Body(body))) if ahead == 0 => match self.place(conn, &body, host) {
                    Ok(fresh) => fresh,
                    Err(Took::NoRoom(_)) => return,
                    Err(_) => false,
                },
                // Seen before in another cut.
                _ => false,
            };
            // The host may have used the lists: look the frame up again.
            let mut list = self.conns[conn as usize].rx[p][f].held;
            list.remove(self.meta, frame);
            self.conns[conn as usize].rx[p][f].held = list;
            self.conns[conn as usize].held[p] -= 1;
            self.free_frame(frame);
            if fresh {
                self.give_credit(conn, p);
            }
        }
    }

    /// Offers again what the host did not want before. To be called when it
    /// has bound a port or freed memory.
    pub fn resume(&mut self, now: u64, host: &mut impl Host<S>) {
        for conn in 0..self.core.conns_used {
            if !core::mem::take(&mut self.conns[conn as usize].refused_now) {
                continue;
            }
            self.conns[conn as usize].used_at = now;
            for priority in Priority::BY_URGENCY {
                for flow in 0..self.core.config.flows {
                    self.advance(conn, priority, flow, host);
                }
            }
        }
    }
}
