//! Receives of many messages: what a plain list says of them.

use std::ops::Range;

use portolan_exchange::{Action, Completion, Memory, OpError, Selector};

use crate::common::Pieces;
use crate::model::{Run, bytes_of};

/// A message in one of them.
struct One {
    /// Among all that were sent.
    index: usize,
    /// Where it begins, and how much of it fits.
    at: usize,
    bytes: usize,
}

pub struct Many {
    pub selector: Selector,
    room: usize,
    room_min: usize,
    used: usize,
    /// Those that have not ended, in order.
    ones: Vec<One>,
    /// Those that have come whole: which, and where.
    pub whole: Vec<(usize, Range<usize>)>,
}

impl Many {
    pub const fn new(selector: Selector, room: usize, room_min: usize) -> Self {
        Self {
            selector,
            room,
            room_min,
            used: 0,
            ones: Vec::new(),
            whole: Vec::new(),
        }
    }

    pub fn takes_more(&self) -> bool {
        self.room - self.used >= self.room_min.max(1)
    }

    pub fn take(&mut self, index: usize, total: usize) {
        let bytes = total.min(self.room - self.used);
        let at = self.used;
        self.used += bytes;
        self.ones.push(One { index, at, bytes });
    }

    /// One of its messages, of `total` bytes, has ended; `is` says which it is. `None`: it
    /// has not all come.
    pub fn ended(
        &mut self,
        done: &Completion,
        total: impl Fn(usize) -> usize,
        is: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let place = self
            .ones
            .iter()
            .position(|one| one.at as u64 == done.at && is(one.index));
        let one = self.ones.remove(place.expect("it took such a message"));
        if done.result == Err(OpError::PeerDead) {
            assert_eq!(done.bytes, 0);
            return None;
        }
        let cut = one.bytes < total(one.index);
        let expected = if cut { Err(OpError::Truncated) } else { Ok(()) };
        assert_eq!((done.result, done.bytes), (expected, one.bytes as u64));
        self.whole.push((one.index, one.at..one.at + one.bytes));
        Some(one.index)
    }

    /// It has ended itself; `posted`: it would have taken more.
    pub fn is_over(&self, done: &Completion, posted: bool) {
        assert!(self.ones.is_empty(), "its messages end before it");
        assert_eq!((done.bytes, done.at), (self.used as u64, 0));
        match done.result {
            Ok(()) => assert!(!posted && !self.takes_more()),
            Err(OpError::Cancelled) => assert!(!posted && self.takes_more()),
            Err(OpError::PeerDead) => assert!(self.selector.source.is_some()),
            Err(e) => panic!("{e}"),
        }
    }
}

impl Run {
    /// A receive of many messages has ended, or one of these.
    pub fn many_ended(
        &mut self,
        rank: u32,
        done: &Completion,
        memory: Option<Memory<Pieces, Pieces>>,
    ) {
        self.completed += 1;
        let (sent, program) = (&self.sent, &mut self.programs[rank as usize]);
        let many = program.many.get_mut(&done.op).expect("a receive of many");
        if done.action == Action::Receive {
            assert!(memory.is_none());
            let is = |index: usize| {
                let it = &sent[index];
                (it.name.0, it.tag, it.data) == (done.peer, done.tag, done.data)
                    && it.total as u64 == done.total
            };
            let whole = many.ended(done, |index| sent[index].total, is);
            assert!(whole.is_some() || self.cluster.net.dead.contains(&done.peer));
            return;
        }
        assert_eq!(done.action, Action::ReceiveMany);
        let Some(Memory::Sink(sink)) = memory else {
            panic!("it gives its memory back");
        };
        let posted = program.posted.iter().any(|(op, _)| *op == done.op);
        many.is_over(done, posted);
        for (index, place) in &many.whole {
            let it = &sent[*index];
            let bytes = &bytes_of(it.name, it.total)[..place.len()];
            assert_eq!(&sink.bytes()[place.clone()], bytes);
        }
        if done.result == Err(OpError::PeerDead) {
            let source = many.selector.source.expect("it names one");
            assert!(self.cluster.net.dead.contains(&source));
        }
        program.many.remove(&done.op);
    }
}
