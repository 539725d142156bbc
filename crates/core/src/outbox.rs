//! Messages that a handler or the engine itself has to send and that found no
//! credit. Bounded: while it is full no requests are taken.

use std::collections::VecDeque;

use portolan_wire::Priority;

use crate::message::SendOptions;
use crate::ports::FlowOf;

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
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + 8 * self.args.len() + self.payload.len()
    }
}

#[derive(Debug)]
pub struct Outbox {
    queue: VecDeque<Unsent>,
    bytes: usize,
    limit: usize,
    /// Above half; the rest is for what running handlers still say.
    full: bool,
    /// What a handler that runs may fill it to: `limit`, but for [`Outbox::make_room`].
    allowed: usize,
}

impl Outbox {
    pub const fn new(limit: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            full: false,
            limit,
            allowed: limit,
        }
    }

    /// Requests are to wait.
    #[inline(always)]
    pub const fn is_full(&self) -> bool {
        self.full
    }

    const fn set_bytes(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.full = bytes > self.limit / 2;
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether something of this flow waits: later messages go behind it.
    pub fn has(&self, of: FlowOf) -> bool {
        !self.queue.is_empty() && self.queue.iter().any(|o| o.flow_of() == of)
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
        self.set_bytes(self.bytes + bytes);
        self.queue.push_back(it);
        Ok(())
    }

    /// Queues a message of the engine's own, which are few for each arrived
    /// message, beyond the limit too.
    pub fn force(&mut self, it: Unsent) {
        self.set_bytes(self.bytes + it.bytes());
        self.queue.push_back(it);
    }

    /// Takes all out, to be tried; what fails comes back by [`Outbox::force`].
    pub fn take(&mut self) -> VecDeque<Unsent> {
        self.set_bytes(0);
        self.allowed = self.limit;
        std::mem::take(&mut self.queue)
    }

    pub fn drop_for(&mut self, rank: u32) {
        self.queue.retain(|o| o.rank != rank);
        self.set_bytes(self.queue.iter().map(Unsent::bytes).sum());
    }
}
