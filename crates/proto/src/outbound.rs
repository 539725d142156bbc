//! What leaves for a peer: messages queued by flow, packets to resend, chunks of the protocol's
//! own; and what the peer allows. Knows frames, and no packets.

mod full;
mod long;
mod split;
mod stopped;
#[cfg(test)]
pub(crate) mod tests;

use portolan_wire::{Chunk, MessageNo, Priority};

use crate::base::{
    Config, ConnIndex, FLOWS_MAX, FrameIndex, List, LongIndex, Outcome, PathIndex, Sources, Unusual,
};
use crate::memory::{CHUNKS_AT, CHUNKS_MAX, GivenUp, Memory, MemoryOwner, Need, Use};

use stopped::Stopped;

/// Sender's queue of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TxFlow {
    /// Frames that wait for their first transmission, and their number.
    pub queue: List<FrameIndex>,
    pub frames: u32,
    /// Long message that is being cut into frames; precedes the queue.
    pub long: LongIndex,
}

impl TxFlow {
    pub const fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.long.is_none()
    }
}

/// What outlives the active state. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct KeptOut {
    /// Fresh chunks sent, by priority; and the credit for them.
    pub sent: [u32; 2],
    pub credit: [u32; 2],
    /// Number of the next message of each flow.
    pub next: [[MessageNo; FLOWS_MAX]; 2],
}

impl KeptOut {
    /// State towards a peer in a new life.
    pub fn new(config: &Config) -> Self {
        let message = MessageNo(config.first_message);
        // Credit of both priorities counts from there on too.
        let credit = [message.0; 2];
        Self {
            sent: credit,
            credit,
            next: [[message; FLOWS_MAX]; 2],
        }
    }

    /// Whether credit allows a fresh chunk (P7.5).
    #[inline]
    pub const fn has_credit(&self, priority: usize) -> bool {
        self.credit[priority].wrapping_sub(self.sent[priority]) as i32 > 0
    }
}

/// What leaves for a peer. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Outbound {
    pub kept: KeptOut,
    pub tx: [[TxFlow; FLOWS_MAX]; 2],
    /// Flows of each priority with something to send, a bit each.
    pub pending: [u16; 2],
    /// Flow whose turn is next, by priority.
    turn: [u8; 2],
    pub resend: List<FrameIndex>,
    pub control: List<FrameIndex>,
    /// Frames queued (also for a resend) or in flight; and the replies among them.
    pub queued: u32,
    pub queued_replies: u32,
    /// Message chunks since the last packet that asked for an acknowledgement.
    chunks_since_ask: u32,
    /// The peer has no room for chunks that come before their turn, by priority: packets that it
    /// refused wait in `resend`.
    full: [bool; 2],
    /// Number of packets in `resend` that may leave nevertheless.
    round: u32,
    /// Flows that the peer has stopped.
    pub stopped: Stopped,
}

/// A frame that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pick {
    pub frame: FrameIndex,
    /// Whether the frame has left before.
    pub resent: bool,
    /// Chunks cut in two that the receiver may have counted as one.
    pub cut: u32,
}

impl Outbound {
    pub fn new(kept: KeptOut) -> Self {
        Self {
            kept,
            ..Self::default()
        }
    }

    /// What is unusual about it.
    #[inline]
    pub fn unusual(&self) -> Unusual {
        Unusual::RESEND.when(!self.resend.is_empty())
            | Unusual::CONTROL.when(!self.control.is_empty())
            | Unusual::STOPPED.when(self.stopped.any())
            | Unusual::FULL.when(self.is_refused())
    }

    /// Flows of a priority with something to send that the peer has not stopped (P7.12).
    #[inline]
    const fn open_flows(&self, priority: usize) -> u16 {
        self.pending[priority] & !self.stopped.flows[priority]
    }

    /// Whether any chunk waits to be sent, stopped flows excepted.
    #[inline]
    pub const fn has_queue(&self) -> bool {
        !self.resend.is_empty()
            || !self.control.is_empty()
            || self.open_flows(0) | self.open_flows(1) != 0
    }

    /// Whether everything queued has left at least once.
    pub const fn has_left(&self) -> bool {
        !self.has_queue() && self.pending[0] | self.pending[1] == 0
    }

    /// Whether all that was sent is acknowledged.
    pub const fn is_settled(&self) -> bool {
        self.queued == 0 && self.has_left()
    }

    /// Whether something waits that credit allows to leave.
    #[inline]
    pub fn has_allowed(&self, memory: &Memory<'_>) -> bool {
        let fresh = |p: usize| self.open_flows(p) != 0 && self.kept.has_credit(p);
        self.may_resend(memory) || !self.control.is_empty() || fresh(0) || fresh(1)
    }

    /// Whether one more message of a flow may be queued where `most` frames are the limit.
    #[inline]
    pub fn takes(&self, priority: Priority, flow: u16, most: u32) -> bool {
        // Frames in stopped flows hold nothing else back.
        let [_, stopped_replies] = self.stopped.frames;
        let queued = self.queued - self.stopped.frames[0] - stopped_replies;
        let room = match priority {
            Priority::Request => queued < most,
            // Never blocked behind requests, however many frames those have
            // become: parts of long ones are cut beyond the limit.
            Priority::Reply => {
                queued < most || self.queued_replies - stopped_replies < (most / 4).max(1)
            }
        };
        room && !self.stopped.has(priority, flow)
    }

    /// The last frame of a flow, if it has not left, has room for `bytes` more of `room`, and ends
    /// with no part of a long message (P2.20, P2.23).
    #[inline]
    pub fn tail(
        &self,
        memory: &Memory<'_>,
        priority: Priority,
        flow: u16,
        bytes: usize,
        room: usize,
    ) -> Option<FrameIndex> {
        let tail = self.tx[priority.index()][flow as usize].queue.tail;
        let fits = tail.is_some() && {
            let cargo = &memory.cargo[tail];
            cargo.long.is_none()
                && u32::from(cargo.chunks) < CHUNKS_MAX
                && cargo.len as usize + bytes <= room
        };
        fits.then_some(tail)
    }

    /// Queues a new frame behind those of its flow.
    #[inline]
    pub fn push(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
    ) -> Option<FrameIndex> {
        let tx = &self.tx[priority.index()][flow as usize];
        // A flow takes no more frames than it leaves: should it be stopped,
        // others go on.
        if tx.frames >= memory.pool.free_count {
            return None;
        }
        let frame = self.take_frame(memory, conn, priority, flow)?;
        let tx = &mut self.tx[priority.index()][flow as usize];
        tx.queue.push_back(memory.cargo, frame);
        tx.frames += 1;
        self.pending[priority.index()] |= 1 << flow;
        Some(frame)
    }

    /// Takes a frame for one message that leaves at once, as nothing waits before it: as if the
    /// frame had been queued and picked. Its chunk is counted against the receiver's credit.
    #[inline]
    pub fn bypass_queue(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
    ) -> Option<FrameIndex> {
        let frame = self.take_frame(memory, conn, priority, flow)?;
        memory.cargo[frame].counted = true;
        let p = priority.index();
        self.kept.sent[p] = self.kept.sent[p].wrapping_add(1);
        self.turn[p] = ((flow as usize + 1) % FLOWS_MAX) as u8;
        Some(frame)
    }

    /// Takes a frame for messages of a flow.
    #[inline]
    fn take_frame(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        priority: Priority,
        flow: u16,
    ) -> Option<FrameIndex> {
        let frame = memory.take(Need::message(priority), Use::Queued, conn)?;
        let cargo = &mut memory.cargo[frame];
        cargo.priority = priority;
        cargo.flow = flow;
        self.count_frame(priority == Priority::Reply);
        Some(frame)
    }

    /// Counts one more frame that is queued or in flight.
    #[inline]
    fn count_frame(&mut self, is_reply: bool) {
        self.queued += 1;
        self.queued_replies += u32::from(is_reply);
    }

    /// Returns the number of a flow's next message.
    #[inline]
    pub const fn number(&mut self, priority: Priority, flow: u16) -> MessageNo {
        let next = &mut self.kept.next[priority.index()][flow as usize];
        let message = *next;
        *next = next.next();
        message
    }

    /// Queues a chunk of the protocol's own.
    pub fn push_control(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        chunk: &Chunk<'_>,
    ) -> Option<FrameIndex> {
        let frame = memory.take(Need::Control, Use::Queued, conn)?;
        memory.cargo[frame].len = chunk.write(&mut memory.frame(frame)[CHUNKS_AT..]) as u32;
        self.control.push_back(memory.cargo, frame);
        self.queued += 1;
        Some(frame)
    }

    /// Takes the frame that leaves next, with its chunks complete, `room` bytes of them at most;
    /// with `replies`, only one of replies.
    pub fn pick(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        room: usize,
        replies: bool,
        sources: &impl Sources,
    ) -> Option<Pick> {
        if !self.resend.is_empty()
            && let Some(frame) = self.pick_again(memory, replies)
        {
            memory.flights[frame].again = true;
            let resent = memory.cargo[frame].counted;
            return Some(self.picked(memory, conn, frame, room, resent));
        }
        if !replies && let Some(frame) = self.control.pop_front(memory.cargo) {
            return Some(Pick {
                frame,
                resent: false,
                cut: 0,
            });
        }
        let urgent = if replies { 1 } else { 2 };
        for priority in Priority::BY_URGENCY.into_iter().take(urgent) {
            let p = priority.index();
            let mut flows = self.open_flows(p);
            if flows == 0 || !self.kept.has_credit(p) {
                continue;
            }
            let turn = u32::from(self.turn[p]);
            while flows != 0 {
                let ahead = flows.rotate_right(turn).trailing_zeros();
                let f = ((turn + ahead) % FLOWS_MAX as u32) as usize;
                flows &= !(1 << f);
                let Some(frame) = self.pick_from(memory, conn, priority, f, room, sources) else {
                    continue;
                };
                self.turn[p] = ((f + 1) % FLOWS_MAX) as u8;
                if self.tx[p][f].is_empty() {
                    self.pending[p] &= !(1 << f);
                }
                return Some(self.picked(memory, conn, frame, room, false));
            }
        }
        None
    }

    /// Cuts a frame that leaves to `room` bytes, and counts its chunks against the receiver's
    /// credit if it leaves for the first time: after a split, for then the receiver sees the
    /// parts alone. A chunk split later was counted as one, which may have arrived (P7.6).
    #[inline]
    fn picked(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        frame: FrameIndex,
        room: usize,
        resent: bool,
    ) -> Pick {
        let cut = self.fit(memory, conn, frame, room);
        let cargo = &mut memory.cargo[frame];
        if !cargo.counted && cargo.chunks > 0 {
            cargo.counted = true;
            let sent = &mut self.kept.sent[cargo.priority.index()];
            *sent = sent.wrapping_add(u32::from(cargo.chunks));
        }
        Pick { frame, resent, cut }
    }

    /// The next frame of a flow: a part of the long message that is being
    /// cut, or the first that waits.
    fn pick_from(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        priority: Priority,
        flow: usize,
        room: usize,
        sources: &impl Sources,
    ) -> Option<FrameIndex> {
        let tx = &mut self.tx[priority.index()][flow];
        if tx.long.is_some() {
            return self.cut_body(memory, conn, priority, flow, room, sources);
        }
        let frame = tx.queue.pop_front(memory.cargo)?;
        tx.frames -= 1;
        if memory.cargo[frame].long.is_some() {
            self.fill_head(memory, priority, flow, frame, room, sources);
        }
        Some(frame)
    }

    /// Counts `chunks` that leave; returns whether an acknowledgement is due of the peer, which
    /// holds `limit` chunks. `last`: nothing follows at once.
    #[inline]
    pub const fn asks(&mut self, chunks: u32, last: bool, limit: u32) -> bool {
        self.chunks_since_ask += chunks;
        last || self.chunks_since_ask * 2 >= limit
    }

    /// Notes that a packet has asked for an acknowledgement.
    #[inline]
    pub const fn asked(&mut self) {
        self.chunks_since_ask = 0;
    }

    /// Begins with the credit of a peer's offer, in chunks.
    pub fn begin(&mut self, credit: [u32; 2]) {
        let sent = self.kept.sent;
        self.kept.credit = [0, 1].map(|i| sent[i].wrapping_add(credit[i]));
    }

    /// Takes over the credit of an acknowledgement, which may have come late.
    #[inline]
    pub fn grant(&mut self, credit: [u32; 2]) {
        for (mine, new) in self.kept.credit.iter_mut().zip(credit) {
            if new.wrapping_sub(*mine) as i32 > 0 {
                *mine = new;
            }
        }
    }

    /// Queues a frame again that was given up as `given_up`.
    pub fn lost(&mut self, memory: &mut Memory<'_>, frame: FrameIndex, given_up: GivenUp) {
        if self.resend.is_empty() {
            // What is left of a round was for packets that have left.
            self.round = 0;
        }
        memory.cargo[frame].usage = Use::Queued;
        let all = &mut memory.flights[frame].given_up;
        if all[0] == GivenUp::NEVER {
            all[0] = given_up;
        }
        all[1] = given_up;
        self.resend.push_back(memory.cargo, frame);
    }

    /// Takes a frame that waits for its resend, though it has arrived as packet `number` of
    /// `path`.
    pub fn take_arrived(
        &mut self,
        memory: &mut Memory<'_>,
        path: PathIndex,
        number: u64,
    ) -> Option<FrameIndex> {
        let mut at = self.resend.head;
        while at.is_some() && memory.flights[at].left_as(path, number).is_none() {
            at = memory.cargo[at].next;
        }
        (at.is_some() && self.resend.remove(memory.cargo, at)).then_some(at)
    }

    /// Frees a frame that was acknowledged, all of it.
    #[inline]
    pub fn settled(&mut self, memory: &mut Memory<'_>, frame: FrameIndex) {
        let cargo = &mut memory.cargo[frame];
        self.queued -= 1;
        self.queued_replies -= u32::from(cargo.is_reply());
        let long = core::mem::replace(&mut cargo.long, LongIndex::NONE);
        memory.free(frame);
        if long.is_some() {
            memory.long_frame_done(long, Outcome::Done);
        }
    }

    /// Drops everything that waits, and forgets what is in flight, which the caller drops.
    pub fn drop_all(&mut self, memory: &mut Memory<'_>) {
        memory.drop_list(self.resend);
        memory.drop_list(self.control);
        for tx in self.tx.as_flattened() {
            memory.drop_list(tx.queue);
            if tx.long.is_none() {
                continue;
            }
            // A message being cut, of which no frame was left to end it above.
            let l = &mut memory.longs[tx.long];
            if l.frames == 0 && l.memory == MemoryOwner::Lent {
                l.frames = 1;
                memory.long_frame_done(tx.long, Outcome::PeerDead);
            }
        }
        *self = Self {
            // What the peer has said, and whose turn it is, outlives the frames.
            kept: self.kept,
            turn: self.turn,
            chunks_since_ask: self.chunks_since_ask,
            full: self.full,
            ..Self::default()
        };
    }
}
