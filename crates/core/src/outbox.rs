//! Messages that a handler or the engine itself has to send and that found no
//! credit. Bounded: while it is full no requests are taken.

use std::collections::VecDeque;

use portolan_wire::Priority;

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
    fn bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.args.len() + self.payload.len()
    }
}

#[derive(Debug)]
pub struct Outbox {
    queue: VecDeque<Unsent>,
    bytes: usize,
    limit: usize,
    /// What a handler that runs may fill it to: `limit`, but for [`Outbox::make_room`].
    allowed: usize,
}

impl Outbox {
    pub const fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            limit,
            allowed: limit,
        }
    }

    /// Above half; the rest is for what running handlers still say.
    #[inline(always)]
    pub const fn is_full(&self) -> bool {
        self.bytes > self.limit / 2
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether something for this rank waits: later messages go behind it.
    pub fn has(&self, rank: u32) -> bool {
        !self.queue.is_empty() && self.queue.iter().any(|o| o.rank == rank)
    }

    /// A handler that runs though it is full finds as much room as any other.
    pub fn make_room(&mut self) {
        self.allowed = self.limit.max(self.bytes + self.limit / 2);
    }

    /// Queues a message if there is memory.
    pub fn push(&mut self, it: Unsent) -> Result<(), Unsent> {
        let bytes = it.bytes();
        if self.bytes + bytes > self.allowed && !self.queue.is_empty() {
            return Err(it);
        }
        self.bytes += bytes;
        self.queue.push_back(it);
        Ok(())
    }

    /// Queues a message of the engine's own, which are few for each arrived
    /// message, beyond the limit too.
    pub fn force(&mut self, it: Unsent) {
        self.bytes += it.bytes();
        self.queue.push_back(it);
    }

    /// Takes all out, to be tried; what fails comes back by [`Outbox::force`].
    pub fn take(&mut self) -> VecDeque<Unsent> {
        self.bytes = 0;
        self.allowed = self.limit;
        std::mem::take(&mut self.queue)
    }

    pub fn drop_for(&mut self, rank: u32) {
        self.queue.retain(|o| o.rank != rank);
        self.bytes = self.queue.iter().map(Unsent::bytes).sum();
    }
}
