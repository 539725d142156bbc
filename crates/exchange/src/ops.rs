//! Operations: what the program has asked for, until it has heard how it ended.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use portolan_matching::ReceiveTicket;

use crate::slab::Slab;

/// Names an operation until its end was taken; never another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// Names a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u32);

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
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpError {
    /// The other side died first; of what was received some may be missing.
    PeerDead,
    /// The message was longer than the memory for it; that is full.
    Truncated,
    /// It was cancelled.
    Cancelled,
    /// The endpoint was closed.
    Closed,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PeerDead => "the other side died",
            Self::Truncated => {
                "the message was longer than the memory for it: only its beginning is there"
            }
            Self::Cancelled => "the operation was cancelled",
            Self::Closed => "the endpoint was closed",
        })
    }
}

impl core::error::Error for OpError {}

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
    /// Tag of the message; of a receive that got none, its own.
    pub tag: u64,
    /// Bytes that were sent, or written to the receiver's memory.
    pub bytes: u64,
    /// Bytes of the message.
    pub total: u64,
    /// What the sender sent beside the tag.
    pub data: Option<u64>,
    /// See [`Notify::context`].
    pub context: u64,
    /// Whether all went well.
    pub result: Result<(), OpError>,
}

/// Memory of an operation, given back with its end.
#[derive(Debug)]
pub enum Memory<S, K> {
    /// Of a send.
    Source(S),
    /// Of a receive.
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
    /// Of an offered one: up to where it has been pushed or pulled.
    pub gone: u64,
    /// Of an offered one: bytes of its first and second push.
    pub first: u64,
    pub second: u64,
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
    /// The request need not wait for the pushes.
    pub overlap: bool,
    /// What is not pushed has been copied or is being pulled.
    pub begun: bool,
    /// Pulled from here on...
    pub asked: u64,
    /// ...and arrived so far.
    pub answered: u64,
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
}

#[derive(Debug)]
pub(crate) struct Op<S, K> {
    pub body: Body<S, K>,
    pub notify: Notify,
    pub tag: u64,
    pub data: Option<u64>,
    pub ended: Option<Result<(), OpError>>,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Ops<S, K> {
    slab: Slab<Op<S, K>>,
    queues: Vec<Option<VecDeque<OpId>>>,
    counters: Vec<Option<Count>>,
    /// Operations that have not ended.
    live: usize,
    /// Ends so far: whoever waits for one looks when it has changed.
    ends: u64,
}

/// The slot of a thing that is made and closed by number.
fn place<T>(all: &mut Vec<Option<T>>, new: T) -> u32 {
    let at = all.iter().position(Option::is_none).unwrap_or_else(|| {
        all.push(None);
        all.len() - 1
    });
    all[at] = Some(new);
    at as u32
}

impl<S, K> Ops<S, K> {
    pub const fn new() -> Self {
        Self {
            slab: Slab::new(),
            queues: Vec::new(),
            counters: Vec::new(),
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
            ended: None,
        }))
    }

    pub fn get(&self, id: OpId) -> Option<&Op<S, K>> {
        self.slab.get(id.0)
    }

    /// How the end of one that has not ended is told.
    pub fn notify(&mut self, id: OpId) -> Option<&mut Notify> {
        self.slab.get_mut(id.0).map(|op| &mut op.notify)
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

    /// A receive whose message is arriving.
    #[inline]
    pub fn meeting(&mut self, id: OpId) -> Option<&mut Meeting> {
        match &mut self.receive(id)?.stage {
            ReceiveStage::Met(meeting) => Some(meeting),
            ReceiveStage::Posted(_) => None,
        }
    }

    /// A receive has met a message.
    pub fn meet(&mut self, id: OpId, tag: u64, data: Option<u64>, meeting: Meeting) {
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
        self.live -= 1;
        self.ends += 1;
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

    /// Whether it has ended; `None`: there is no such operation.
    #[inline]
    pub fn is_done(&self, id: OpId) -> Option<bool> {
        self.slab.get(id.0).map(|op| op.ended.is_some())
    }

    /// Takes one out that has ended.
    pub fn take(&mut self, id: OpId) -> Option<(Completion, Option<Memory<S, K>>)> {
        let result = self.slab.get(id.0)?.ended?;
        let op = self.slab.remove(id.0)?;
        let (action, peer, bytes, total, memory) = match op.body {
            Body::Send(send) => {
                let sent = if result.is_ok() { send.total } else { 0 };
                let memory = send.source.map(Memory::Source);
                (Action::Send, send.to, sent, send.total, memory)
            }
            Body::Receive(receive) => {
                let (from, want, total) = match receive.stage {
                    ReceiveStage::Met(m) => (m.from, m.want, m.total),
                    ReceiveStage::Posted(_) => (receive.source.unwrap_or(u32::MAX), 0, 0),
                };
                let whole = matches!(result, Ok(()) | Err(OpError::Truncated));
                let got = if whole { want } else { 0 };
                (
                    Action::Receive,
                    from,
                    got,
                    total,
                    receive.sink.map(Memory::Sink),
                )
            }
        };
        let completion = Completion {
            op: id,
            action,
            peer,
            tag: op.tag,
            bytes,
            total,
            data: op.data,
            context: op.notify.context,
            result,
        };
        Some((completion, memory))
    }

    /// Numbers of those that have not ended and of which `of` says so.
    pub fn live_where(&self, of: impl Fn(&Body<S, K>) -> bool) -> Vec<OpId> {
        let live = self.slab.iter().filter(|(_, op)| op.ended.is_none());
        live.filter(|(_, op)| of(&op.body))
            .map(|(id, _)| OpId(id))
            .collect()
    }

    pub const fn live(&self) -> usize {
        self.live
    }

    pub const fn ends(&self) -> u64 {
        self.ends
    }

    pub fn open_queue(&mut self) -> QueueId {
        QueueId(place(&mut self.queues, VecDeque::new()))
    }

    pub fn has_queue(&self, QueueId(at): QueueId) -> bool {
        matches!(self.queues.get(at as usize), Some(Some(_)))
    }

    /// What is in it is forgotten, and what comes after too, also when another
    /// queue has its number.
    pub fn close_queue(&mut self, number: QueueId) {
        let queue = self.queues.get_mut(number.0 as usize);
        let Some(queue) = queue.and_then(Option::take) else {
            return;
        };
        for id in queue {
            self.slab.remove(id.0);
        }
        for op in self.slab.iter_mut() {
            if op.notify.queue == Some(number) {
                op.notify.queue = Some(NOWHERE);
            }
        }
    }

    /// The oldest completion of a queue. One may have been taken by its number.
    pub fn next_of(&mut self, QueueId(at): QueueId) -> Option<(Completion, Option<Memory<S, K>>)> {
        loop {
            let id = self.queues.get_mut(at as usize)?.as_mut()?.pop_front()?;
            if let Some(ended) = self.take(id) {
                return Some(ended);
            }
        }
    }

    pub fn queue_len(&self, QueueId(at): QueueId) -> usize {
        let queue = self.queues.get(at as usize).and_then(Option::as_ref);
        queue.map_or(0, VecDeque::len)
    }

    pub fn open_counter(&mut self) -> CounterId {
        CounterId(place(&mut self.counters, Count::default()))
    }

    pub fn close_counter(&mut self, number: CounterId) {
        let slot = self.counters.get_mut(number.0 as usize);
        if slot.and_then(Option::take).is_none() {
            return;
        }
        for op in self.slab.iter_mut() {
            if op.notify.counter == Some(number) {
                op.notify.counter = None;
            }
        }
    }

    pub fn count(&self, CounterId(at): CounterId) -> Option<Count> {
        self.counters.get(at as usize).copied().flatten()
    }
}
