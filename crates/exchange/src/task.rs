//! What the caller is to do for the exchange, one thing after another.

use crate::exchange::Exchange;
use crate::kind::Kind;
use crate::memory::{Located, Sink, Source};
use crate::ops::{OpError, OpId};
use crate::outbox::Waiting;
use crate::remote::{Place, Signal};

/// Argument words of a message, at most.
const ARGS: usize = 7;

/// Argument words of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Args {
    words: [u64; ARGS],
    used: usize,
}

impl Args {
    pub fn new(args: &[u64]) -> Self {
        let mut words = [0; ARGS];
        words[..args.len()].copy_from_slice(args);
        let used = args.len();
        Self { words, used }
    }

    /// Without zeros at the end, which need not travel.
    pub fn trimmed(args: &[u64]) -> Self {
        let last = args.iter().rposition(|word| *word != 0);
        Self::new(&args[..last.map_or(0, |last| last + 1)])
    }

    /// With what goes with a matched message, if anything does.
    pub fn with_data(args: &[u64], data: Option<u64>) -> Self {
        let mut all = Self::new(args);
        if let Some(data) = data {
            all.words[all.used] = data;
            all.used += 1;
        }
        all
    }
}

/// What the payload of a message is read from.
#[derive(Debug)]
pub enum Payload<'a, S, K> {
    /// There is none.
    Nothing,
    /// A send's or a put's memory.
    Source(Range<&'a S>),
    /// A region's.
    Region(Range<&'a K>),
}

/// A message to another rank's exchange. On [`Did::Lent`] its memory is read until
/// [`Exchange::released`] says otherwise.
#[derive(Debug)]
pub struct Outgoing<'a, S, K> {
    /// What it is; says priority and flow too.
    pub kind: Kind,
    args: Args,
    /// Its payload.
    pub payload: Payload<'a, S, K>,
    /// What [`Exchange::released`] names the memory by.
    pub op: OpId,
}

impl<'a, S, K> Outgoing<'a, S, K> {
    pub(crate) const fn new(kind: Kind, args: Args, payload: Payload<'a, S, K>, op: OpId) -> Self {
        Self {
            kind,
            args,
            payload,
            op,
        }
    }

    /// Argument words.
    #[inline]
    #[must_use]
    pub fn args(&self) -> &[u64] {
        &self.args.words[..self.args.used]
    }
}

/// Where another process's memory is reached into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Where {
    /// At this address, which the process has told.
    Address(u64),
    /// From the beginning of what it publishes under this key.
    Published(u64),
    /// In a region, if that permits it.
    Region(Place),
}

/// A range of memory.
#[derive(Debug)]
pub struct Range<M> {
    /// The memory.
    pub of: M,
    /// Where in it the range begins.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl<M> Range<M> {
    pub(crate) const fn new(of: M, at: u64, bytes: u64) -> Self {
        Self { of, at, bytes }
    }
}

/// What the caller is to do, and then to say by [`Exchange::did`] what came of it.
/// Of a copy that fails a part may be there.
#[derive(Debug)]
pub enum Task<'a, S, K> {
    /// Say where a source lies in this process's memory, if this rank may copy it from
    /// there: [`Did::Located`].
    Locate(u32, &'a S),
    /// Send a message to a rank.
    Send(u32, Outgoing<'a, S, K>),
    /// Tell our program of a rank's signal: so many bytes of its put are visible.
    Signal(u32, Signal, u64),
    /// Make memory ready that is about to be written: whoever maps memory lazily
    /// does it now.
    Prepare(Range<&'a mut K>),
    /// Let a rank write to memory by itself, if it knows this key, which is not 0,
    /// until it is withdrawn.
    Publish(u32, u64, Range<&'a mut K>),
    /// End that, of this key and memory: from the first try on nobody begins to
    /// write there. [`Did::NoRoom`]: somebody still writes.
    Withdraw(u64, &'a mut K),
    /// Fill memory from a rank's.
    CopyFrom(u32, Where, Range<&'a mut K>),
    /// Write a source to a rank's memory.
    CopyTo(u32, Where, Range<&'a S>),
}

/// What came of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Did {
    /// It is done; bytes that were sent are copied.
    Done,
    /// The source lies there.
    Located(Located),
    /// The message was sent, and its memory is read later: [`Exchange::released`]
    /// follows.
    Lent,
    /// Nothing was done for want of room: [`Exchange::resume`] tries again.
    NoRoom,
    /// The rank is dead, or going to be declared so.
    Dead,
    /// It is not possible here, or not known to be: the exchange finds another way.
    NotPossible,
    /// The access was refused, as the target itself would have: this ends the
    /// operation. Nothing was touched there.
    Refused(OpError),
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// What is to be done next. It stays that until [`Exchange::did`] says what came
    /// of it. To be asked after every call that may begin or go on with something,
    /// until there is nothing.
    #[inline]
    pub fn poll_task(&mut self) -> Option<Task<'_, S, K>> {
        if self.peers.out.is_idle() {
            return None;
        }
        let (rank, what) = self.next_task()?;
        self.task(rank, what)
    }

    /// The next thing to do, of an operation that goes on.
    #[inline]
    fn next_task(&mut self) -> Option<(u32, Waiting)> {
        loop {
            let (rank, what) = self.peers.first()?;
            if self.is_due(what) {
                return Some((rank, what));
            }
            self.peers.out.take();
        }
    }

    #[inline]
    fn is_due(&mut self, what: Waiting) -> bool {
        match what {
            Waiting::Start(op) | Waiting::Second(op) => self.ops.send(op).is_some(),
            Waiting::Answer { op, .. } | Waiting::Write { op, .. } => self.ops.send(op).is_some(),
            Waiting::Remote(op) | Waiting::Ask { op, .. } => self.ops.remote(op).is_some(),
            Waiting::Served(number) => self.served.get(number).is_some(),
            Waiting::Say(..) | Waiting::Signal { .. } => true,
            Waiting::Withdraw(id) => self.ops.meeting(id).is_some(),
            Waiting::Prepare(id) | Waiting::Publish { receive: id, .. } | Waiting::Fetch(id) => {
                (self.ops.meeting(id)).is_some_and(|meeting| meeting.ending.is_none())
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
                let (args, range, lender) = self.served_message(number)?;
                (Kind::Got, args, Payload::Region(range), lender)
            }
            Waiting::Signal { signal, bytes, .. } => {
                return Some(Task::Signal(to, signal, bytes));
            }
            Waiting::Prepare(id) => {
                let (meeting, memory) = self.ops.met(id)?;
                let (at, bytes) = (meeting.came, meeting.want - meeting.came);
                return Some(Task::Prepare(Range::new(memory, at, bytes)));
            }
            Waiting::Publish { receive, key } => {
                let (meeting, memory) = self.ops.met(receive)?;
                let range = Range::new(memory, meeting.asked, meeting.half());
                return Some(Task::Publish(to, key, range));
            }
            Waiting::Withdraw(id) => {
                let (meeting, memory) = self.ops.met(id)?;
                return Some(Task::Withdraw(meeting.published, memory));
            }
            Waiting::Fetch(id) => {
                let (meeting, memory) = self.ops.met(id)?;
                let (at, bytes) = (meeting.asked, meeting.end - meeting.asked);
                let from = Where::Address(meeting.address + at);
                return Some(Task::CopyFrom(to, from, Range::new(memory, at, bytes)));
            }
        };
        Some(Task::Send(to, Outgoing::new(kind, args, payload, op)))
    }

    /// Says what came of the task that [`Exchange::poll_task`] gave last.
    #[inline]
    pub fn did(&mut self, did: Did) {
        let Some((rank, what)) = self.peers.out.take() else {
            return;
        };
        if did == Did::NoRoom {
            match what {
                // Others need not wait for whoever writes there.
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
