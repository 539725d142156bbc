//! Operations: what the program has asked for, until it has heard how it ended.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use portolan_matching::{ReceivePlace, ReceiveTicket, Selector};

use super::{Lanes, Remote, Slab};
use crate::values::{
    Count, CounterId, LaneTerms, Located, NOBODY, NOWHERE, Notify, OpError, OpId, Probed, QueueId,
    Range, Sink,
};

/// How far a send has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendStage {
    /// Nothing has left.
    Waiting,
    /// All of it has left; no answer is due.
    Eager,
    /// It was offered: an answer ends it.
    Offered,
    /// The receiver closes and does not want it: its end as a peer is to follow.
    Unwanted,
    /// The receiver is done with it.
    Answered,
    /// The receiver is dead, or all is over.
    Lost(OpError),
}

#[derive(Debug)]
pub(crate) struct Send<S> {
    /// Taken out only while it is read for a copy.
    pub source: Option<S>,
    pub to: u32,
    pub total: u64,
    pub sync: bool,
    pub stage: SendStage,
    /// Messages under way that read the memory.
    pub lent: u32,
    /// Its first message was made as one that pushes it whole.
    pub whole: bool,
    /// Where the receiver may copy it from; `None` until somebody had to know.
    pub located: Option<Located>,
    /// Of an offered one: up to where it has been pushed or pulled.
    pub gone: u64,
    /// Of these, the last so many bytes were asked for and have not left.
    pub due: u64,
    /// Of an offered one: bytes of its first and second push.
    pub first: u64,
    pub second: u64,
}

impl<S> Send<S> {
    /// The receiver knows where the memory lies, and has not said that it is done with it.
    pub fn may_be_copied(&self) -> bool {
        self.stage == SendStage::Offered && self.located.is_some_and(|it| it.address != 0)
    }

    /// What was asked for and has not left.
    pub fn range_due(&self) -> Option<Range<&S>> {
        let at = self.gone - self.due;
        Some(Range::new(self.source.as_ref()?, at, self.due))
    }
}

/// Where both sides copy, the halves meet at a multiple of this, bytes: no cache line is of both.
pub(crate) const UNIT: u64 = 64;

/// Two of those are there to be shared.
pub(crate) const LEAST: u64 = 2 * UNIT;

/// What a matched receive still waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meeting {
    pub from: u32,
    pub total: u64,
    /// Bytes that there is room for.
    pub want: u64,
    /// Pushes that have not arrived in full.
    pub pushes: u32,
    /// The sender's operation, if it waits for an answer.
    pub offer: Option<u64>,
    /// Where the sender's memory can be copied from, or 0.
    pub address: u64,
    /// The sender waits, and copies a part of it if it is asked to.
    pub shares: bool,
    /// The key under which the sender is published memory of ours to write to, or 0.
    pub published: u64,
    /// Up to here that memory goes.
    pub published_end: u64,
    /// All is over but that somebody may still write there: how it ended.
    pub ending: Option<Result<(), OpError>>,
    /// The request need not wait for the pushes.
    pub overlap: bool,
    /// What is not pushed has been copied or is being pulled.
    pub begun: bool,
    /// Pulled from here on...
    pub asked: u64,
    /// ...begun to arrive up to here...
    pub came: u64,
    /// ...and arrived so far.
    pub answered: u64,
    /// Up to here: what is behind we have copied ourselves.
    pub end: u64,
}

impl Meeting {
    /// A message of which so many bytes are pushed, and so many pushes missing, meets a
    /// receive with so much room. Nothing else is missing.
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

    /// Of what has not been asked for, the bytes that the sender writes where both
    /// sides copy.
    pub fn half(&self) -> u64 {
        ((self.want - self.asked) / 2).next_multiple_of(UNIT)
    }
}

#[derive(Debug)]
pub(crate) enum ReceiveStage {
    /// No message yet. `None` while it is being posted.
    Posted(Option<ReceiveTicket>),
    Met(Meeting),
    /// It takes many messages, each of which is an operation of its own.
    Many(Many),
}

/// How far a receive of many messages has come.
#[derive(Debug)]
pub(crate) struct Many {
    /// While it takes more of them.
    pub ticket: Option<ReceiveTicket>,
    /// It takes none where less room is left, bytes.
    pub room_min: u64,
    /// Bytes that they have taken.
    pub used: u64,
    /// How many of them have not ended.
    pub open: u32,
    /// It takes no more: how it ends when all of them have.
    pub ending: Option<Result<(), OpError>>,
}

/// Where in a receive of many messages one of them goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub whole: OpId,
    pub at: u64,
    pub room: u64,
}

#[derive(Debug)]
pub(crate) struct Receive<K> {
    pub sink: Option<K>,
    /// In its place, of one of many messages.
    pub slice: Option<Slice>,
    /// What it is for.
    pub selector: Selector,
    /// Where it stands among others.
    pub place: ReceivePlace,
    pub stage: ReceiveStage,
}

impl<K: Sink> Receive<K> {
    /// Bytes that there is room for.
    pub fn room(&self) -> u64 {
        match (&self.sink, &self.slice) {
            (Some(sink), _) => sink.len(),
            (None, slice) => slice.map_or(0, |slice| slice.room),
        }
    }
}

/// A message to a port: whoever runs the exchange sends it.
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
    /// The rank on whom it depends what comes next, or [`NOBODY`].
    awaits: u32,
    pub ended: Option<Result<(), OpError>>,
}

impl<S, K> Op<S, K> {
    /// The rank that a message or an access goes to which has not ended, and of whose good end
    /// nobody would hear.
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

    /// The sender's operation of a message of this rank that is being received, if it waits
    /// for an answer.
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

/// All of them.
#[derive(Debug)]
pub(crate) struct Ops<S, K> {
    pub slab: Slab<Op<S, K>>,
    /// Of whom something is awaited.
    pub lanes: Lanes,
    pub queues: Vec<Option<VecDeque<OpId>>>,
    pub counters: Vec<Option<Count>>,
    /// Receives of many messages that take more.
    pub many: usize,
    /// Operations that have not ended.
    live: usize,
    /// Operations that have.
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

    /// What comes next of an operation depends on this rank, or on nobody else.
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

    /// The same, with its memory, and where in that its message begins.
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

    /// The memory of a receive that has not ended, and where in it its message begins.
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

    /// A receive of many messages takes one of so many bytes: gives the operation of that.
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

    /// A receive takes no message any more: it ends so, one of many when those that it has
    /// taken have ended.
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

    /// One of its messages has ended.
    fn slice_ended(&mut self, whole: OpId) {
        if let Some(many) = self.many(whole) {
            many.open -= 1;
            if let (0, Some(result)) = (many.open, many.ending) {
                self.end(whole, result);
            }
        }
    }

    /// The memory of a receive or a get that has not ended, and where in it its bytes begin.
    pub fn sink(&mut self, id: OpId) -> Option<(&mut K, u64)> {
        if self.receive(id).is_some() {
            return self.memory(id);
        }
        Some((self.remote(id)?.sink.as_mut()?, 0))
    }

    /// A receive has met a message that is all here: the short way to its end.
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

    /// The rank that a receive or a get asks for bytes.
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

    /// An operation is over.
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
                // Nobody asks for it, or no more.
                _ => drop(self.slab.remove(id.0)),
            }
        }
        if let Some(whole) = whole {
            self.slice_ended(whole);
        }
    }

    /// Forgets one that was never begun; gives back what it was made of.
    pub fn undo(&mut self, id: OpId) -> Option<Body<S, K>> {
        let op = self.slab.remove(id.0)?;
        self.live -= 1;
        Some(op.body)
    }

    /// Numbers of those that have not ended.
    pub fn all_live(&self) -> Vec<OpId> {
        let live = self.slab.iter().filter(|(_, op)| op.ended.is_none());
        live.map(|(id, _)| OpId(id)).collect()
    }

    pub const fn live(&self) -> usize {
        self.live
    }
}
