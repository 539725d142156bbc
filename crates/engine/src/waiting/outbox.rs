//! Messages of handlers, or of the engine itself, that found no credit. Bounded: while it is
//! full, no requests are taken.

use std::collections::VecDeque;

use portolan_exchange::Notify;
use portolan_wire::Priority;

use crate::values::{FlowOf, SPACES, SendOptions, SpaceId};

/// A message that waits to be sent.
#[derive(Clone, Debug)]
pub struct Unsent {
    pub rank: u32,
    pub port: u16,
    pub flow: u16,
    pub priority: Priority,
    pub args: Vec<u64>,
    pub payload: Vec<u8>,
}

impl Unsent {
    pub fn flow_of(&self) -> FlowOf {
        self.options().flow_to(self.rank)
    }

    pub fn options(&self) -> SendOptions<'_> {
        SendOptions {
            flow: self.flow,
            priority: self.priority,
            args: &self.args,
            notify: Notify::NONE,
        }
    }

    const fn bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.args.len() + self.payload.len()
    }

    const fn space(&self) -> SpaceId {
        SpaceId::of_flow(self.flow)
    }
}

#[derive(Debug)]
pub struct Outbox {
    queue: VecDeque<Unsent>,
    /// Bytes that wait, for each space.
    bytes: [usize; SPACES],
    /// Maximum number of bytes that wait, for each space.
    limit: usize,
    /// Spaces above half of that: a bit for each. The rest is for handlers that are running.
    full: u16,
    /// Bytes up to which a running handler may fill its space: `limit`, except after
    /// [`Outbox::make_room`].
    allowed: usize,
}

impl Outbox {
    pub const fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: [0; SPACES],
            full: 0,
            limit,
            allowed: limit,
        }
    }

    /// Whether requests of a space must wait.
    pub const fn is_full(&self, space: SpaceId) -> bool {
        self.full >> space.index() & 1 != 0
    }

    /// Whether requests of any space must wait.
    #[inline(always)]
    pub const fn is_any_full(&self) -> bool {
        self.full != 0
    }

    const fn count(&mut self, it: &Unsent) {
        let space = it.space().index();
        self.bytes[space] += it.bytes();
        if self.bytes[space] > self.limit / 2 {
            self.full |= 1 << space;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether a message of a space waits.
    pub fn is_of(&self, space: SpaceId) -> bool {
        self.bytes[space.index()] > 0
    }

    /// Whether a message of this flow waits: later ones go behind it.
    pub fn has(&self, of: FlowOf) -> bool {
        !self.queue.is_empty() && self.queue.iter().any(|o| o.flow_of() == of)
    }

    /// Lets a handler that runs although the outbox is full find as much room as any other.
    pub fn make_room(&mut self, space: SpaceId) {
        self.allowed = self.limit.max(self.bytes[space.index()] + self.limit / 2);
    }

    /// Queues a message if there is memory.
    pub fn push(&mut self, it: Unsent) -> Result<(), Unsent> {
        let bytes = self.bytes[it.space().index()];
        if bytes + it.bytes() > self.allowed && bytes > 0 {
            return Err(it);
        }
        self.count(&it);
        self.queue.push_back(it);
        Ok(())
    }

    /// Queues a message beyond the limit too: one of the engine's own, which are few for each
    /// arrived message, or one that waited before.
    pub fn force(&mut self, it: Unsent) {
        self.count(&it);
        self.queue.push_back(it);
    }

    /// Takes all out, to be retried; what fails comes back by [`Outbox::force`].
    pub fn take(&mut self) -> VecDeque<Unsent> {
        (self.bytes, self.full) = ([0; SPACES], 0);
        self.allowed = self.limit;
        std::mem::take(&mut self.queue)
    }

    pub fn drop_for(&mut self, rank: u32) {
        let left = self.take().into_iter().filter(|it| it.rank != rank);
        left.for_each(|it| self.force(it));
    }
}
