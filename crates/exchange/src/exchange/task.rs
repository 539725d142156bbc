//! Tasks for the caller, one after another.

use super::Exchange;
use crate::state::Waiting;
use crate::values::{Args, Did, Kind, OpId, Outgoing, Payload, Range, Sink, Source, Task, Where};

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Returns the next task, the same one until [`Exchange::did`] reports its outcome. To be
    /// called after every call that may begin or continue an operation, until it returns `None`.
    #[inline]
    pub fn poll_task(&mut self) -> Option<Task<'_, S, K>> {
        if self.peers.out.is_idle() {
            return None;
        }
        let (rank, what) = self.next_task()?;
        self.task(rank, what)
    }

    /// Next task of an operation that goes on.
    #[inline]
    fn next_task(&mut self) -> Option<(u32, Waiting)> {
        loop {
            let (rank, what) = self.peers.first()?;
            if self.is_due(rank, what) {
                return Some((rank, what));
            }
            self.peers.out.take();
        }
    }

    #[inline]
    fn is_due(&mut self, rank: u32, what: Waiting) -> bool {
        match what {
            Waiting::Start(op) | Waiting::Second(op) => self.ops.send(op).is_some(),
            Waiting::Answer { op, .. } | Waiting::Write { op, .. } => self.ops.send(op).is_some(),
            Waiting::Remote(op) | Waiting::Ask { op, .. } => self.ops.remote(op).is_some(),
            Waiting::Served(number) => self.served.get(number).is_some(),
            Waiting::Say(..) | Waiting::Signal { .. } => true,
            Waiting::Withdraw(id) => self.ops.meeting(id).is_some(),
            Waiting::Prepare(id) | Waiting::Publish { receive: id, .. } | Waiting::Fetch(id) => {
                // A receive may have met a message of another rank since.
                (self.ops.meeting(id)).is_some_and(|it| it.ending.is_none() && it.from == rank)
            }
        }
    }

    #[inline]
    fn task(&mut self, to: u32, what: Waiting) -> Option<Task<'_, S, K>> {
        let (kind, args, payload, op) = match what {
            Waiting::Say(kind, args) => (kind, Args::trimmed(&args), Payload::Nothing, OpId(0)),
            Waiting::Start(op) => return self.first_message(to, op),
            Waiting::Second(op) => {
                let send = self.ops.send(op)?;
                let range = Range::new(send.source.as_ref()?, send.first, send.second);
                (Kind::Push, Args::new(&[op.0]), Payload::Source(range), op)
            }
            Waiting::Answer { op, receive } => {
                let range = self.ops.send(op)?.range_due()?;
                let args = Args::new(&[receive, range.at]);
                (Kind::Pulled, args, Payload::Source(range), op)
            }
            Waiting::Write { op, key, .. } => {
                let range = self.ops.send(op)?.range_due()?;
                return Some(Task::CopyTo(to, Where::Published(key), range));
            }
            Waiting::Remote(op) => return self.remote_task(op),
            Waiting::Ask { op, at, bytes } => {
                let args = self.ask_args(op, at, bytes)?;
                (Kind::Get, args, Payload::Nothing, op)
            }
            Waiting::Served(number) => {
                return Some(Task::Send(to, self.served_message(number)?));
            }
            Waiting::Signal { signal, bytes, .. } => {
                return Some(Task::Signal(to, signal, bytes));
            }
            Waiting::Prepare(id) => {
                let (meeting, memory, start) = self.ops.met(id)?;
                let (at, bytes) = (meeting.came, meeting.want - meeting.came);
                return Some(Task::Prepare(Range::new(memory, start + at, bytes)));
            }
            Waiting::Publish { receive, key } => {
                let (meeting, memory, start) = self.ops.met(receive)?;
                let range = Range::new(memory, start + meeting.asked, meeting.half());
                return Some(Task::Publish(to, key, range));
            }
            Waiting::Withdraw(id) => {
                let (meeting, memory, _) = self.ops.met(id)?;
                return Some(Task::Withdraw(meeting.published, memory));
            }
            Waiting::Fetch(id) => {
                let (meeting, memory, start) = self.ops.met(id)?;
                let (at, bytes) = (meeting.asked, meeting.end - meeting.asked);
                let from = Where::Address(meeting.address + at);
                let range = Range::new(memory, start + at, bytes);
                return Some(Task::CopyFrom(to, from, range));
            }
        };
        Some(Task::Send(to, Outgoing::new(kind, args, payload, op)))
    }

    /// Reports the outcome of the task that [`Exchange::poll_task`] returned last.
    #[inline]
    pub fn did(&mut self, did: Did) {
        let Some((rank, what)) = self.peers.out.take() else {
            return;
        };
        if did == Did::NoRoom {
            match what {
                // Other tasks need not wait for the sender that still writes there.
                Waiting::Withdraw(id) => self.hiding.push(id),
                _ => self.peers.put_off(rank, what),
            }
            return;
        }
        let lent = u32::from(did == Did::Lent);
        let mut next = None;
        match what {
            Waiting::Start(op) => next = self.has_started(op, did),
            Waiting::Second(op) => self.note_lent(op, lent),
            Waiting::Answer { op, .. } => {
                self.note_lent(op, lent);
                self.answer_due(op);
            }
            Waiting::Write { op, receive, .. } if did == Did::Done => {
                let written = self.answer_due(op);
                next = written.map(|(at, bytes)| Waiting::say(Kind::Pulled, [receive, at, bytes]));
            }
            Waiting::Write { op, receive, .. } => next = Some(Waiting::Answer { op, receive }),
            Waiting::Remote(op) => next = self.remote_did(rank, op, did),
            Waiting::Ask { op, .. } => self.has_asked(rank, op),
            Waiting::Served(number) => self.has_served(number, did),
            Waiting::Signal { op, .. } => self.has_told(rank, op),
            Waiting::Publish { receive, key } => self.has_published(receive, key, did),
            Waiting::Withdraw(id) => self.has_withdrawn(id),
            Waiting::Fetch(id) => self.has_fetched(id, did),
            Waiting::Prepare(_) | Waiting::Say(..) => {}
        }
        match next {
            Some(next) => self.peers.out.put(rank, next),
            None if what.is_reply() => self.hold_no_more(),
            None => {}
        }
    }
}
