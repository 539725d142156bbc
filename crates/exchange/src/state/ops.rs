//! Operations of the program, from their begin until their completion is taken.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use portolan_matching::{ReceivePlace, ReceiveTicket, Selector};

use super::{Lanes, Remote, Slab};
use crate::values::{
    Count, CounterId, LaneTerms, Located, NOBODY, NOWHERE, Notify, OpError, OpId, Probed, QueueId,
    Range, Sink,
};

/// Progress of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendStage {
    /// Nothing has left.
    Waiting,
    /// All of it has left; no answer is due.
    Eager,
    /// Offered: an answer ends it.
    Offered,
    /// The receiver closes and does not want it; the send ends with the receiver.
    Unwanted,
    /// The receiver is done with it.
    Answered,
    /// The receiver is dead, or this exchange is closed.
    Lost(OpError),
}

#[derive(Debug)]
pub(crate) struct Send<S> {
    /// `None` only while it is copied to a local receive.
    pub source: Option<S>,
    pub to: u32,
    pub total: u64,
    pub sync: bool,
    pub stage: SendStage,
    /// Number of messages in flight that read the memory.
    pub lent: u32,
    /// The first message pushes all of it.
    pub whole: bool,
    /// Where the receiver may copy it from; `None` until that was asked.
    pub located: Option<Located>,
    /// Offered send: offset up to which it has been pushed or pulled.
    pub gone: u64,
    /// Last bytes below `gone`, which were requested and have not left.
    pub due: u64,
    /// Offered send: bytes of its first and second push.
    pub first: u64,
    pub second: u64,
}

impl<S> Send<S> {
    /// Whether the receiver knows the memory's address, and has not reported that it is done.
    pub fn may_be_copied(&self) -> bool {
        self.stage == SendStage::Offered && self.located.is_some_and(|it| it.address != 0)
    }

    /// Range that was requested and has not left.
    pub fn range_due(&self) -> Option<Range<&S>> {
        let at = self.gone - self.due;
        Some(Range::new(self.source.as_ref()?, at, self.due))
    }
}

/// Where both sides copy, their parts meet at a multiple of this, bytes: they share no cache line.
pub(crate) const UNIT: u64 = 64;

/// Shortest rest of a message that both sides copy, bytes: one unit each.
pub(crate) const LEAST: u64 = 2 * UNIT;

/// Progress of a matched receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub from: u32,
    pub total: u64,
    /// Bytes of the message that fit the memory.
    pub want: u64,
    /// Number of pushes that have not arrived in full.
    pub pushes: u32,
    /// The sender's operation, if it waits for an answer.
    pub offer: Option<u64>,
    /// Address where the sender's memory can be copied from, or 0.
    pub address: u64,
    /// The sender waits, and copies a part if it is asked to.
    pub shares: bool,
    /// Key under which our memory is published for the sender to write, or 0.
    pub published: u64,
    /// Offset at which the published memory ends.
    pub published_end: u64,
    /// Result of a receive that is over, but whose published memory may still be written.
    pub ending: Option<Result<(), OpError>>,
    /// The request for the rest need not wait for the pushes.
    pub overlap: bool,
    /// The rest that is not pushed has been copied, or is being pulled.
    pub begun: bool,
    /// Offset up to which bytes were pushed or requested.
    pub asked: u64,
    /// Offset up to which bytes have begun to arrive.
    pub came: u64,
    /// Offset up to which bytes have arrived.
    pub answered: u64,
    /// Offset up to which bytes are pulled; the bytes behind it were copied by us.
    pub end: u64,
}

impl Meeting {
    /// A message meets a receive with memory of `room` bytes: `pushed` bytes of it are pushed, of
    /// which `pushes` pushes are missing; nothing else is.
    pub fn new(what: &Probed, room: u64, pushed: u64, pushes: u32) -> Self {
        let want = what.total.min(room);
        let pushed = pushed.min(want);
        Self {
            from: what.from,
            total: what.total,
            want,
            pushes,
            offer: None,
            address: 0,
            shares: false,
            published: 0,
            published_end: 0,
            ending: None,
            overlap: true,
            begun: true,
            asked: pushed,
            came: pushed,
            answered: pushed,
            end: want,
        }
    }

    /// Bytes that the sender writes where both sides copy: half of those not requested.
    pub fn half(&self) -> u64 {
        ((self.want - self.asked) / 2).next_multiple_of(UNIT)
    }
}

#[derive(Debug)]
pub(crate) enum ReceiveStage {
    /// No message yet. `None` while it is being posted.
    Posted(Option<ReceiveTicket>),
    Met(Meeting),
    /// Takes many messages, each of which is an operation of its own.
    Many(Many),
}

/// Progress of a receive of many messages.
#[derive(Debug)]
pub(crate) struct Many {
    /// Place in the matcher, while more messages are taken.
    pub ticket: Option<ReceiveTicket>,
    /// Least room for another message, bytes.
    pub room_min: u64,
    /// Bytes of the memory that messages have taken.
    pub used: u64,
    /// Number of messages that have not ended.
    pub open: u32,
    /// Set when no more are taken: the result, once all messages have ended.
    pub ending: Option<Result<(), OpError>>,
}

/// Place of one message in the memory of a receive of many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub whole: OpId,
    pub at: u64,
    pub room: u64,
}

#[derive(Debug)]
pub(crate) struct Receive<K> {
    pub sink: Option<K>,
    /// Takes the place of `sink` for one message of a receive of many.
    pub slice: Option<Slice>,
    /// Which messages fit.
    pub selector: Selector,
    /// Place in the order of posted receives.
    pub place: ReceivePlace,
    pub stage: ReceiveStage,
}

impl<K: Sink> Receive<K> {
    /// Length of the memory for the message, bytes.
    pub fn room(&self) -> u64 {
        match (&self.sink, &self.slice) {
            (Some(sink), _) => sink.len(),
            (None, slice) => slice.map_or(0, |slice| slice.room),
        }
    }
}

/// A message to a port, which the caller of the exchange sends.
#[derive(Debug)]
pub(crate) struct Posted<S> {
    pub source: Option<S>,
    pub to: u32,
    pub total: u64,
}

#[derive(Debug)]
pub(crate) enum Body<S, K> {
    Message(Posted<S>),
    Send(Send<S>),
    Receive(Receive<K>),
    Remote(Remote<S, K>),
}

#[derive(Debug)]
pub(crate) struct Op<S, K> {
    pub body: Body<S, K>,
    pub notify: Notify,
    pub tag: u64,
    pub data: Option<u64>,
    /// Rank that the operation waits for, or [`NOBODY`].
    awaits: u32,
    pub ended: Option<Result<(), OpError>>,
}

impl<S, K> Op<S, K> {
    /// Target of a message or access that has not ended, and whose success is not reported.
    pub fn unreported_to(&self) -> Option<u32> {
        let heard = self.notify.queue != Some(NOWHERE) && !self.notify.only_errors;
        if heard || self.ended.is_some() {
            return None;
        }
        match &self.body {
            Body::Send(send) if send.stage != SendStage::Unwanted => Some(send.to),
            Body::Remote(remote) => Some(remote.to),
            Body::Send(_) | Body::Message(_) | Body::Receive(_) => None,
        }
    }

    /// Operation of the sender `rank`, if it waits for an answer and its message is being received
    /// here.
    pub fn offer_of(&self, rank: u32) -> Option<u64> {
        match &self.body {
            Body::Receive(Receive {
                stage: ReceiveStage::Met(meeting),
                ..
            }) if self.ended.is_none() && meeting.from == rank => meeting.offer,
            _ => None,
        }
    }
}

/// All operations.
#[derive(Debug)]
pub(crate) struct Ops<S, K> {
    pub slab: Slab<Op<S, K>>,
    /// Lanes to other ranks, and which ranks are awaited.
    pub lanes: Lanes,
    pub queues: Vec<Option<VecDeque<OpId>>>,
    pub counters: Vec<Option<Count>>,
    /// Number of receives of many messages that take more.
    pub many: usize,
    /// Number of operations that have not ended.
    live: usize,
    /// Number of operations that have ended.
    pub ends: u64,
}

impl<S, K> Ops<S, K> {
    pub fn new(size: u32, terms: [LaneTerms; 2]) -> Self {
        Self {
            slab: Slab::new(),
            lanes: Lanes::new(size, terms),
            queues: Vec::new(),
            counters: Vec::new(),
            many: 0,
            live: 0,
            ends: 0,
        }
    }

    pub fn insert(
        &mut self,
        body: Body<S, K>,
        notify: Notify,
        tag: u64,
        data: Option<u64>,
    ) -> OpId {
        self.live += 1;
        OpId(self.slab.insert(Op {
            body,
            notify,
            tag,
            data,
            awaits: NOBODY,
            ended: None,
        }))
    }

    /// Sets the rank that an operation waits for; [`NOBODY`]: none.
    #[inline]
    pub fn set_awaits(&mut self, id: OpId, rank: u32) {
        if let Some(op) = self.slab.get_mut(id.0) {
            let before = core::mem::replace(&mut op.awaits, rank);
            if before != rank {
                self.lanes.expect(rank, 1);
                self.lanes.expect(before, -1);
            }
        }
    }

    pub fn get(&self, id: OpId) -> Option<&Op<S, K>> {
        self.slab.get(id.0)
    }

    #[inline]
    pub fn get_mut(&mut self, id: OpId) -> Option<&mut Op<S, K>> {
        self.slab.get_mut(id.0)
    }

    /// A send that has not ended.
    #[inline]
    pub fn send(&mut self, id: OpId) -> Option<&mut Send<S>> {
        match self.slab.get_mut(id.0)? {
            Op {
                body: Body::Send(send),
                ended: None,
                ..
            } => Some(send),
            _ => None,
        }
    }

    /// A receive that has not ended.
    #[inline]
    pub fn receive(&mut self, id: OpId) -> Option<&mut Receive<K>> {
        match self.slab.get_mut(id.0)? {
            Op {
                body: Body::Receive(receive),
                ended: None,
                ..
            } => Some(receive),
            _ => None,
        }
    }

    /// A one-sided operation that has not ended.
    #[inline]
    pub fn remote(&mut self, id: OpId) -> Option<&mut Remote<S, K>> {
        match self.slab.get_mut(id.0)? {
            Op {
                body: Body::Remote(remote),
                ended: None,
                ..
            } => Some(remote),
            _ => None,
        }
    }

    /// A receive whose message is arriving.
    #[inline]
    pub fn meeting(&mut self, id: OpId) -> Option<&mut Meeting> {
        match &mut self.receive(id)?.stage {
            ReceiveStage::Met(meeting) => Some(meeting),
            ReceiveStage::Posted(_) | ReceiveStage::Many(_) => None,
        }
    }

    /// A receive whose message is arriving, with its memory and the offset of the message there.
    pub fn met(&mut self, id: OpId) -> Option<(Meeting, &mut K, u64)> {
        let meeting = *self.meeting(id)?;
        let (sink, start) = self.memory(id)?;
        Some((meeting, sink, start))
    }

    /// A receive of many messages that has not ended.
    pub fn many(&mut self, id: OpId) -> Option<&mut Many> {
        match &mut self.receive(id)?.stage {
            ReceiveStage::Many(many) => Some(many),
            ReceiveStage::Posted(_) | ReceiveStage::Met(_) => None,
        }
    }

    /// Memory of a receive that has not ended, and the offset of its message there.
    pub fn memory(&mut self, id: OpId) -> Option<(&mut K, u64)> {
        let (of, at) = match self.receive(id)?.slice {
            Some(slice) => (slice.whole, slice.at),
            None => (id, 0),
        };
        Some((self.receive(of)?.sink.as_mut()?, at))
    }

    /// Whether a receive of many messages has room for another.
    pub fn has_room(&mut self, id: OpId) -> bool
    where
        K: Sink,
    {
        let Some(receive) = self.receive(id) else {
            return false;
        };
        let room = receive.room();
        matches!(&receive.stage, ReceiveStage::Many(it) if room - it.used >= it.room_min)
    }

    /// Has a receive of many messages take one of `total` bytes; returns the operation of that
    /// message.
    pub fn begin_slice(&mut self, whole: OpId, total: u64) -> Option<OpId>
    where
        K: Sink,
    {
        let (notify, tag) = self.get(whole).map(|op| (op.notify, op.tag))?;
        let receive = self.receive(whole)?;
        let (length, selector) = (receive.room(), receive.selector);
        let many = self.many(whole)?;
        let (at, room) = (many.used, length - many.used);
        many.used += total.min(room);
        many.open += 1;
        let one = Receive {
            sink: None,
            slice: Some(Slice { whole, at, room }),
            selector,
            place: ReceivePlace::default(),
            stage: ReceiveStage::Posted(None),
        };
        Some(self.insert(Body::Receive(one), notify, tag, None))
    }

    /// Ends a receive that takes no more messages; one of many ends when its messages have ended.
    pub fn end_posted(&mut self, id: OpId, result: Result<(), OpError>) {
        let Some(many) = self.many(id) else {
            return self.end(id, result);
        };
        many.ending = Some(result);
        let (posted, open) = (many.ticket.take().is_some(), many.open);
        self.many -= usize::from(posted);
        if open == 0 {
            self.end(id, result);
        }
    }

    /// One message of a receive of many has ended.
    fn slice_ended(&mut self, whole: OpId) {
        if let Some(many) = self.many(whole) {
            many.open -= 1;
            if let (0, Some(result)) = (many.open, many.ending) {
                self.end(whole, result);
            }
        }
    }

    /// Memory of a receive or a get that has not ended, and the offset of its bytes there.
    pub fn sink(&mut self, id: OpId) -> Option<(&mut K, u64)> {
        if self.receive(id).is_some() {
            return self.memory(id);
        }
        Some((self.remote(id)?.sink.as_mut()?, 0))
    }

    /// Ends a receive with a message that is here whole: the fast path.
    #[inline]
    pub fn receive_whole(&mut self, id: OpId, what: &Probed, payload: &[u8])
    where
        K: Sink,
    {
        let Some(op) = self.slab.get_mut(id.0).filter(|op| op.ended.is_none()) else {
            return;
        };
        let Body::Receive(receive) = &mut op.body else {
            return;
        };
        let meeting = Meeting::new(what, receive.room(), what.total, 0);
        let want = meeting.want;
        op.tag = what.tag;
        op.data = what.data;
        receive.stage = ReceiveStage::Met(meeting);
        match &mut receive.sink {
            _ if want == 0 => {}
            Some(sink) => {
                sink.write(0, &payload[..want as usize]);
            }
            None => {
                if let Some((sink, at)) = self.memory(id) {
                    sink.write(at, &payload[..want as usize]);
                }
            }
        }
        let result = if what.total > want {
            Err(OpError::Truncated)
        } else {
            Ok(())
        };
        self.end(id, result);
    }

    /// Rank that a receive or a get asks for bytes.
    pub fn asks(&self, id: OpId) -> Option<u32> {
        match &self.slab.get(id.0)?.body {
            Body::Receive(Receive {
                stage: ReceiveStage::Met(meeting),
                ..
            }) => Some(meeting.from),
            Body::Remote(remote) => Some(remote.to),
            _ => None,
        }
    }

    /// A receive has met a message.
    pub fn meet(&mut self, id: OpId, tag: u64, data: Option<u64>, meeting: Meeting) {
        self.set_awaits(id, meeting.from);
        if let Some(op) = self.slab.get_mut(id.0)
            && let Body::Receive(receive) = &mut op.body
        {
            op.tag = tag;
            op.data = data;
            receive.stage = ReceiveStage::Met(meeting);
        }
    }

    /// Ends an operation; its counter and queue are updated.
    pub fn end(&mut self, id: OpId, result: Result<(), OpError>) {
        let Some(op) = self.slab.get_mut(id.0).filter(|op| op.ended.is_none()) else {
            return;
        };
        op.ended = Some(result);
        self.lanes.expect(op.awaits, -1);
        op.awaits = NOBODY;
        self.live -= 1;
        self.ends += 1;
        let Notify { queue, counter, .. } = op.notify;
        let whole = match &op.body {
            Body::Receive(receive) => receive.slice.map(|slice| slice.whole),
            _ => None,
        };
        if let Some(CounterId(at)) = counter
            && let Some(Some(count)) = self.counters.get_mut(at as usize)
        {
            match result {
                Ok(()) => count.done += 1,
                Err(_) => count.failed += 1,
            }
        }
        if let Some(QueueId(at)) = queue {
            let is_told = result.is_err() || !op.notify.only_errors;
            match self.queues.get_mut(at as usize) {
                Some(Some(queue)) if is_told => queue.push_back(id),
                // Forgotten: not to be reported, or the queue is closed.
                _ => drop(self.slab.remove(id.0)),
            }
        }
        if let Some(whole) = whole {
            self.slice_ended(whole);
        }
    }

    /// Removes an operation that was never begun; returns its body.
    pub fn undo(&mut self, id: OpId) -> Option<Body<S, K>> {
        let op = self.slab.remove(id.0)?;
        self.live -= 1;
        Some(op.body)
    }

    /// Numbers of operations that have not ended.
    pub fn all_live(&self) -> Vec<OpId> {
        let live = self.slab.iter().filter(|(_, op)| op.ended.is_none());
        live.map(|(id, _)| OpId(id)).collect()
    }

    pub const fn live(&self) -> usize {
        self.live
    }
}
