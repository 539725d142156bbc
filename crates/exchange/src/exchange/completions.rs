//! How operations ended: by number, by completion queues, by counters.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::Exchange;
use crate::state::{Body, Posted, ReceiveStage};
use crate::values::{
    Action, Completion, Count, CounterId, Memory, NOWHERE, Notify, OpError, OpId, QueueId, Source,
};

/// Puts `new` in the first free slot; returns its index.
fn place<T>(all: &mut Vec<Option<T>>, new: T) -> u32 {
    let at = all.iter().position(Option::is_none).unwrap_or_else(|| {
        all.push(None);
        all.len() - 1
    });
    all[at] = Some(new);
    at as u32
}

impl<S, K> Exchange<S, K> {
    /// Begins the operation of a message to a port. The caller sends it from its memory, and ends
    /// it by [`Exchange::end_message`].
    pub fn begin_message(&mut self, to: u32, notify: Notify, source: S) -> OpId
    where
        S: Source,
    {
        let message = Posted {
            to,
            total: source.len(),
            source: Some(source),
        };
        self.ops.insert(Body::Message(message), notify, 0, None)
    }

    /// Ends the operation of a message to a port; `number`, of the message, goes with the
    /// completion.
    pub fn end_message(&mut self, id: OpId, number: u64, result: Result<(), OpError>) {
        if let Some(op) = self.ops.get_mut(id) {
            op.data = Some(number);
        }
        self.ops.end(id, result);
    }

    /// Removes an operation that [`Exchange::begin_message`] has just begun; returns its memory.
    pub fn undo_message(&mut self, op: OpId) -> Option<S> {
        match self.ops.undo(op)? {
            Body::Message(message) => message.source,
            _ => None,
        }
    }

    /// Whether an operation has ended; `None`: no such operation, or its completion was taken.
    #[inline]
    #[must_use]
    pub fn is_done(&self, op: OpId) -> Option<bool> {
        self.ops.get(op).map(|op| op.ended.is_some())
    }

    /// How an operation has ended; `None` while it has not.
    pub(super) fn completion(&self, id: OpId) -> Option<Completion> {
        let op = self.ops.get(id)?;
        let result = op.ended?;
        let (mut data, mut named, mut at) = (op.data, id, 0);
        let (action, peer, bytes, total) = match &op.body {
            Body::Message(message) => {
                let sent = if result.is_ok() { message.total } else { 0 };
                (Action::Message, message.to, sent, message.total)
            }
            Body::Send(send) => {
                let sent = if result.is_ok() { send.total } else { 0 };
                (Action::Send, send.to, sent, send.total)
            }
            Body::Receive(receive) => {
                if let Some(slice) = receive.slice {
                    (named, at) = (slice.whole, slice.at);
                }
                let source = receive.selector.source.unwrap_or(u32::MAX);
                let whole = matches!(result, Ok(()) | Err(OpError::Truncated));
                match &receive.stage {
                    ReceiveStage::Met(m) => {
                        let got = if whole { m.want } else { 0 };
                        (Action::Receive, m.from, got, m.total)
                    }
                    ReceiveStage::Posted(_) => (Action::Receive, source, 0, 0),
                    ReceiveStage::Many(many) => (Action::ReceiveMany, source, many.used, many.used),
                }
            }
            Body::Remote(remote) => {
                data = remote.found;
                let done = if result.is_ok() { remote.total } else { 0 };
                (remote.rma.action(), remote.to, done, remote.total)
            }
        };
        Some(Completion {
            op: named,
            action,
            peer,
            tag: op.tag,
            bytes,
            total,
            at,
            data,
            context: op.notify.context,
            result,
        })
    }

    /// Takes an operation's completion and memory; `None` while it has not ended.
    pub fn take(&mut self, id: OpId) -> Option<(Completion, Option<Memory<S, K>>)> {
        let completion = self.completion(id)?;
        let memory = match &mut self.ops.get_mut(id)?.body {
            Body::Message(message) => message.source.take().map(Memory::Source),
            Body::Send(send) => send.source.take().map(Memory::Source),
            Body::Receive(receive) => receive.sink.take().map(Memory::Sink),
            Body::Remote(remote) => match remote.source.take() {
                Some(source) => Some(Memory::Source(source)),
                None => remote.sink.take().map(Memory::Sink),
            },
        };
        self.ops.slab.discard(id.0);
        Some((completion, memory))
    }

    /// As [`Exchange::take`], for lent memory, which is not returned.
    #[inline]
    pub fn finish(&mut self, id: OpId) -> Option<Completion> {
        let completion = self.completion(id)?;
        self.ops.slab.discard(id.0);
        Some(completion)
    }

    /// Drops the completion of an operation, now or when it ends.
    pub fn forget_end(&mut self, id: OpId) {
        if self.finish(id).is_none()
            && let Some(op) = self.ops.get_mut(id)
        {
            op.notify.queue = Some(NOWHERE);
        }
    }

    /// Makes a completion queue. Nothing is dropped: it holds at most one entry for each operation
    /// begun.
    pub fn open_queue(&mut self) -> QueueId {
        QueueId(place(&mut self.ops.queues, VecDeque::new()))
    }

    /// Whether there is such a queue.
    #[must_use]
    pub fn has_queue(&self, QueueId(at): QueueId) -> bool {
        matches!(self.ops.queues.get(at as usize), Some(Some(_)))
    }

    /// Whether a queue holds a completion.
    #[must_use]
    pub fn has_completions(&self, QueueId(at): QueueId) -> bool {
        let queue = self.ops.queues.get(at as usize).and_then(Option::as_ref);
        queue.is_some_and(|queue| !queue.is_empty())
    }

    /// Closes a queue: completions that it holds or would still get are dropped, also if another
    /// queue has its number.
    pub fn close_queue(&mut self, number: QueueId) {
        let queue = self.ops.queues.get_mut(number.0 as usize);
        let Some(queue) = queue.and_then(Option::take) else {
            return;
        };
        for id in queue {
            self.ops.slab.discard(id.0);
        }
        for op in self.ops.slab.iter_mut() {
            if op.notify.queue == Some(number) {
                op.notify.queue = Some(NOWHERE);
            }
        }
    }

    /// Takes the oldest completion in a queue, with the operation's memory. Entries already taken
    /// by number are skipped.
    pub fn next_of(&mut self, QueueId(at): QueueId) -> Option<(Completion, Option<Memory<S, K>>)> {
        loop {
            let queue = self.ops.queues.get_mut(at as usize)?.as_mut()?;
            let id = queue.pop_front()?;
            if let Some(ended) = self.take(id) {
                return Some(ended);
            }
        }
    }

    /// Makes a counter, at zero.
    pub fn open_counter(&mut self) -> CounterId {
        CounterId(place(&mut self.ops.counters, Count::default()))
    }

    /// Closes a counter.
    pub fn close_counter(&mut self, number: CounterId) {
        let slot = self.ops.counters.get_mut(number.0 as usize);
        if slot.and_then(Option::take).is_none() {
            return;
        }
        for op in self.ops.slab.iter_mut() {
            if op.notify.counter == Some(number) {
                op.notify.counter = None;
            }
        }
        for counted in self.regions.counted.values_mut() {
            counted.retain(|(counter, _)| *counter != number);
        }
    }

    /// Number of operations that have ended so far.
    #[must_use]
    pub const fn ends(&self) -> u64 {
        self.ops.ends
    }

    /// Value of a counter; `None`: no such counter.
    #[must_use]
    pub fn count(&self, CounterId(at): CounterId) -> Option<Count> {
        self.ops.counters.get(at as usize).copied().flatten()
    }
}
