//! Tasks that wait for the caller, in five lines for each rank. A line keeps its order; if its
//! first entry finds no room, the other lines go on.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Peer, Peers};
use crate::values::{Kind, OpId, Signal};

/// Largest number of words of a message without payload.
const SAID_MAX: usize = 5;

/// A task that concerns one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    /// A send's first message.
    Start(OpId),
    /// A send's second push.
    Second(OpId),
    /// A message without payload.
    Say(Kind, [u64; SAID_MAX]),
    /// Requested bytes of an offered message, for this receive; one entry for each send.
    Answer { op: OpId, receive: u64 },
    /// Requested bytes, written to memory that is published under a key.
    Write { op: OpId, receive: u64, key: u64 },
    /// The message of a one-sided operation, or direct access by the caller.
    Remote(OpId),
    /// A request of a get.
    Ask { op: OpId, at: u64, bytes: u64 },
    /// An answer with bytes to another rank's access.
    Served(u64),
    /// A put's signal for our program; `op`: the initiator's operation, or 0.
    Signal { signal: Signal, bytes: u64, op: u64 },
    /// Prepares a receive's memory before anything is requested for it.
    Prepare(OpId),
    /// Publishes a receive's memory for the sender to write.
    Publish { receive: OpId, key: u64 },
    /// Withdraws a receive's published memory.
    Withdraw(OpId),
    /// Fills a receive's memory from the sender's.
    Fetch(OpId),
}

const REQUESTS: usize = 0;
const REPLIES: usize = 1;
const PULLS: usize = 2;
const SIGNALS: usize = 3;
const COPIES: usize = 4;
const LINES: usize = 5;

impl Waiting {
    pub const fn say<const WORDS: usize>(kind: Kind, words: [u64; WORDS]) -> Self {
        let mut args = [0; SAID_MAX];
        let (used, _) = args.split_at_mut(WORDS);
        used.copy_from_slice(&words);
        Self::Say(kind, args)
    }

    pub const fn is_reply(&self) -> bool {
        self.line() == REPLIES
    }

    const fn line(&self) -> usize {
        match self {
            Self::Start(_) | Self::Second(_) | Self::Remote(_) | Self::Ask { .. } => REQUESTS,
            Self::Say(Kind::Pull, _) => PULLS,
            Self::Say(..) | Self::Answer { .. } | Self::Write { .. } | Self::Served(_) => REPLIES,
            Self::Signal { .. } => SIGNALS,
            Self::Prepare(_) | Self::Publish { .. } | Self::Withdraw(_) | Self::Fetch(_) => COPIES,
        }
    }
}

/// A line: its first and last index in [`Outbox::entries`], and its length.
#[derive(Clone, Copy, Debug, Default)]
struct TaskQueue {
    first: u32,
    last: u32,
    len: u32,
}

/// Lines of a rank.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lines([TaskQueue; LINES]);

impl Lines {
    pub const NONE: Self = Self(
        [TaskQueue {
            first: 0,
            last: 0,
            len: 0,
        }; LINES],
    );

    pub const fn replies(&self) -> u32 {
        self.0[REPLIES].len
    }

    pub fn are_empty(&self) -> bool {
        self.0.iter().all(|line| line.len == 0)
    }
}

/// Entries of all lines, and which lines are ready. A task that is done at once enters no line,
/// but is at hand.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The task at hand, and its rank.
    hand: Option<(u32, Waiting)>,
    /// Tasks, each with the index of the next one in its line.
    entries: Vec<(Waiting, u32)>,
    free: Vec<u32>,
    /// Lines with something to do: rank and number.
    ready: VecDeque<(u32, usize)>,
    /// Lines whose first entry found no room.
    stuck: Vec<(u32, usize)>,
}

impl Outbox {
    /// Whether no task can be done now.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.hand.is_none() && self.ready.is_empty()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.is_idle() && self.stuck.is_empty()
    }

    fn keep(&mut self, what: Waiting, next: u32) -> u32 {
        if let Some(at) = self.free.pop() {
            self.entries[at as usize] = (what, next);
            return at;
        }
        self.entries.push((what, next));
        (self.entries.len() - 1) as u32
    }

    /// Takes the task at hand.
    #[inline]
    pub fn take(&mut self) -> Option<(u32, Waiting)> {
        self.hand.take()
    }

    /// Puts a task at hand: it is the next.
    #[inline]
    pub fn put(&mut self, rank: u32, what: Waiting) {
        self.hand = Some((rank, what));
    }

    /// Makes lines ready again that found no room: replies and pulls before the rest.
    pub fn retry(&mut self) {
        for line in self.stuck.drain(..) {
            if matches!(line.1, REPLIES | PULLS) {
                self.ready.push_front(line);
            } else {
                self.ready.push_back(line);
            }
        }
    }
}

impl Peers {
    fn line(&mut self, rank: u32, number: usize) -> Option<(&mut TaskQueue, &mut Outbox)> {
        let Self { all, out } = self;
        let peer = all.get_mut(rank as usize)?.get_or_insert_with(Peer::new);
        Some((&mut peer.lines.0[number], out))
    }

    /// Adds a task at the end of its line.
    #[inline]
    pub fn push(&mut self, rank: u32, what: Waiting) {
        if self.out.is_empty() {
            self.out.put(rank, what);
        } else {
            self.push_back(rank, what);
        }
    }

    fn push_back(&mut self, rank: u32, what: Waiting) {
        let number = what.line();
        let Some((line, out)) = self.line(rank, number) else {
            return;
        };
        let at = out.keep(what, 0);
        if line.len == 0 {
            line.first = at;
            out.ready.push_back((rank, number));
        } else {
            out.entries[line.last as usize].1 = at;
        }
        line.last = at;
        line.len += 1;
    }

    /// Returns the next task and its rank, and keeps it at hand.
    #[inline]
    pub fn first(&mut self) -> Option<(u32, Waiting)> {
        if self.out.hand.is_none() {
            self.pop_front();
        }
        self.out.hand
    }

    fn pop_front(&mut self) -> Option<()> {
        let &(rank, number) = self.out.ready.front()?;
        let (line, out) = self.line(rank, number)?;
        let at = line.first;
        let (what, next) = out.entries[at as usize];
        line.first = next;
        line.len -= 1;
        if line.len == 0 {
            out.ready.pop_front();
        }
        out.free.push(at);
        out.put(rank, what);
        Some(())
    }

    /// Puts a task that found no room back at the head of its line, which waits for
    /// [`Outbox::retry`].
    pub fn put_off(&mut self, rank: u32, what: Waiting) {
        let number = what.line();
        let Some((line, out)) = self.line(rank, number) else {
            return;
        };
        line.first = out.keep(what, line.first);
        if line.len == 0 {
            line.last = line.first;
        }
        line.len += 1;
        out.ready.retain(|line| *line != (rank, number));
        out.stuck.push((rank, number));
    }

    /// Drops all messages to a rank.
    pub fn drop_messages(&mut self, rank: u32) {
        let dropped = |(to, what): &(u32, Waiting)| *to == rank && what.line() <= PULLS;
        self.out.hand.take_if(|it| dropped(it));
        for number in [REQUESTS, REPLIES, PULLS] {
            let Some((line, out)) = self.line(rank, number) else {
                return;
            };
            let TaskQueue { first, len, .. } = core::mem::take(line);
            let mut at = first;
            for _ in 0..len {
                out.free.push(at);
                at = out.entries[at as usize].1;
            }
            out.ready.retain(|line| *line != (rank, number));
            out.stuck.retain(|line| *line != (rank, number));
        }
    }
}
