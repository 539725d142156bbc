//! Operations: what the program has asked for, until it has heard how it ended.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use portolan_matching::ReceiveTicket;

use crate::lanes::{LaneTerms, Lanes};
use crate::memory::{Located, Sink};
use crate::message::Probed;
use crate::remote::Remote;
use crate::share::UNIT;
use crate::slab::Slab;
use crate::task::Range;

/// Names an operation until its end was taken; never another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// Names a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u32);

/// Who has no rank.
pub(crate) const NOBODY: u32 = u32::MAX;

/// A queue that there never is: what ends there is forgotten.
pub(crate) const NOWHERE: QueueId = QueueId(u32::MAX);

/// Names a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(pub u32);

/// How the end of an operation is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notify {
    /// Comes back with the completion. Default 0.
    pub context: u64,
    /// The queue that its completion is put in; `None`, the default: it waits
    /// until it is taken by its number.
    pub queue: Option<QueueId>,
    /// The counter that counts it. Default none.
    pub counter: Option<CounterId>,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sends a message.
    Send,
    /// Receives one.
    Receive,
    /// Writes another rank's memory.
    Put,
    /// Reads it.
    Get,
    /// Adds to 8 bytes of it.
    FetchAdd,
    /// Replaces 8 bytes of it that are as expected.
    CompareSwap,
    /// Waits until what was put there is visible.
    Flush,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum OpError {
    /// The other side died first; of what was received some may be missing.
    #[error("the other side died")]
    PeerDead,
    /// The message was longer than the memory for it; that is full.
    #[error("the message was longer than the memory for it: only its beginning is there")]
    Truncated,
    /// It was cancelled.
    #[error("the operation was cancelled")]
    Cancelled,
    /// The endpoint was closed.
    #[error("the endpoint was closed")]
    Closed,
    /// The target has no such region, or no longer. Like the errors that
    /// follow, the target said it of the access: nothing there was touched.
    #[error("the other side has no region under this key")]
    BadKey,
    /// The region's rights do not allow it.
    #[error("the other side does not permit this access to its memory")]
    NotPermitted,
    /// It does not lie in the region.
    #[error("the access does not lie in the other side's region")]
    OutOfBounds,
    /// The offset of an atomic operation is no multiple of 8.
    #[error("the offset of an atomic operation must be a multiple of 8")]
    Unaligned,
    /// The target has no such port for the signal.
    #[error("the other side has no port for the signal")]
    NoPort,
    /// All one-sided access to the target is forbidden, by its program or by
    /// its host's settings.
    #[error("one-sided access is forbidden at the other side")]
    Forbidden,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Completion {
    /// Which.
    pub op: OpId,
    /// What it did.
    pub action: Action,
    /// The other side. Of a receive from anybody that was cancelled:
    /// `u32::MAX`.
    pub peer: u32,
    /// Tag of the message; of a receive that got none, its own; of one-sided
    /// operations 0.
    pub tag: u64,
    /// Bytes that were sent, or written to the memory of receive, put or get.
    pub bytes: u64,
    /// Bytes of the message, or of the access.
    pub total: u64,
    /// What the sender sent beside the tag. Of an atomic operation: what the 8
    /// bytes held before it.
    pub data: Option<u64>,
    /// See [`Notify::context`].
    pub context: u64,
    /// Whether all went well.
    pub result: Result<(), OpError>,
}

/// Memory of an operation, given back with its end.
#[derive(Debug)]
pub enum Memory<S, K> {
    /// Of a send or a put.
    Source(S),
    /// Of a receive or a get.
    Sink(K),
}

/// What has ended, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Count {
    /// Operations that ended well.
    pub done: u64,
    /// Others.
    pub failed: u64,
}

/// How far a send has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendStage {
    /// Nothing has left.
    Waiting,
    /// All of it has left; no answer is due.
    Eager,
    /// It was offered: an answer ends it.
    Offered,
    /// The receiver is done with it.
    Answered,
    /// The receiver is dead.
    Lost,
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
    /// What was asked for and has not left.
    pub fn range_due(&self) -> Option<Range<&S>> {
        let at = self.gone - self.due;
        Some(Range::new(self.source.as_ref()?, at, self.due))
    }
}

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
}

#[derive(Debug)]
pub(crate) struct Receive<K> {
    /// Taken out only while it is written by a copy.
    pub sink: Option<K>,
    /// Who it is from, if not from anybody.
    pub source: Option<u32>,
    pub stage: ReceiveStage,
}

#[derive(Debug)]
pub(crate) enum Body<S, K> {
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

/// All of them.
#[derive(Debug)]
pub(crate) struct Ops<S, K> {
    pub slab: Slab<Op<S, K>>,
    /// Of whom something is awaited.
    pub lanes: Lanes,
    pub queues: Vec<Option<VecDeque<OpId>>>,
    pub counters: Vec<Option<Count>>,
    /// Operations that have not ended.
    live: usize,
}

impl<S, K> Ops<S, K> {
    pub fn new(size: u32, terms: [LaneTerms; 2]) -> Self {
        Self {
            slab: Slab::new(),
            lanes: Lanes::new(size, terms),
            queues: Vec::new(),
            counters: Vec::new(),
            live: 0,
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
            ReceiveStage::Posted(_) => None,
        }
    }

    /// The same, with its memory.
    pub fn met(&mut self, id: OpId) -> Option<(&mut Meeting, &mut K)> {
        let receive = self.receive(id)?;
        match (&mut receive.stage, &mut receive.sink) {
            (ReceiveStage::Met(meeting), Some(sink)) => Some((meeting, sink)),
            _ => None,
        }
    }

    /// The memory of a receive or a get that has not ended.
    pub fn sink(&mut self, id: OpId) -> Option<&mut K> {
        match &mut self
            .slab
            .get_mut(id.0)
            .filter(|op| op.ended.is_none())?
            .body
        {
            Body::Receive(receive) => receive.sink.as_mut(),
            Body::Remote(remote) => remote.sink.as_mut(),
            Body::Send(_) => None,
        }
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
        let Some(sink) = &mut receive.sink else {
            return;
        };
        let meeting = Meeting::new(what, sink.len(), what.total, 0);
        let want = meeting.want;
        if want > 0 {
            sink.write(0, &payload[..want as usize]);
        }
        op.tag = what.tag;
        op.data = what.data;
        receive.stage = ReceiveStage::Met(meeting);
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
        let Notify { queue, counter, .. } = op.notify;
        if let Some(CounterId(at)) = counter
            && let Some(Some(count)) = self.counters.get_mut(at as usize)
        {
            match result {
                Ok(()) => count.done += 1,
                Err(_) => count.failed += 1,
            }
        }
        if let Some(QueueId(at)) = queue {
            match self.queues.get_mut(at as usize) {
                Some(Some(queue)) => queue.push_back(id),
                // Nobody asks for it any more.
                _ => drop(self.slab.remove(id.0)),
            }
        }
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
