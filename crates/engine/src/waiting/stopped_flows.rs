//! Messages that could not be taken on arrival. They are set aside, each flow of a sender in
//! its order, and other flows are taken meanwhile. If more than a little gathers, the sender is
//! told to stop that flow, and to go on once all of it was taken.
//!
//! What is set aside is not charged to any budget, but is bounded: what a sender has in flight
//! when the stop reaches it is bounded by its credit, or by the rings of shared memory. A
//! sender that does not stop counts as corrupt.

use std::collections::{HashMap, VecDeque};

use crate::values::FlowOf;

/// Messages, or bytes, set aside of a flow from which the sender is told to stop. A shortage
/// that ends soon costs no message.
const STOP_MESSAGES: usize = 32;
const STOP_BYTES: usize = 32 << 10;

/// What is set aside of one flow.
#[derive(Debug)]
pub struct Queue {
    pub of: FlowOf,
    /// Cookies, in the order in which the messages came.
    pub waiting: VecDeque<u64>,
    pub bytes: usize,
    /// The sender was told to stop.
    pub stopped: bool,
}

/// All that is set aside.
#[derive(Debug, Default)]
pub struct Aside {
    pub queues: VecDeque<Queue>,
    /// Flows of which any sender's messages are set aside: a bit each, by priority.
    flows: [u32; 2],
    /// Flows whose sender must be told to stop (true), or to go on.
    pub untold: Vec<(FlowOf, bool)>,
    /// Closing senders, and the number of bytes of a flow that may be set aside before they are
    /// told to stop it: what they still hold is lost with them.
    closing: HashMap<u32, usize>,
}

/// Returns the bit of a flow; flows beyond the maximum share bits.
const fn bit(flow: u16) -> u32 {
    1 << (flow % 32)
}

impl Aside {
    #[inline(always)]
    pub const fn is_any(&self) -> bool {
        self.flows[0] | self.flows[1] != 0
    }

    pub fn of(&mut self, of: FlowOf) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| queue.of == of)
    }

    /// Whether messages that come in a flow must queue behind others.
    #[inline(always)]
    pub fn has(&self, of: FlowOf) -> bool {
        self.flows[of.priority.index()] & bit(of.flow) != 0 && self.finds(of)
    }

    fn finds(&self, of: FlowOf) -> bool {
        self.queues.iter().any(|queue| queue.of == of)
    }

    /// Counts bytes of a flow that is in the list; returns its total. Has the sender stopped if
    /// that is too much.
    pub fn grow(&mut self, of: FlowOf, bytes: usize) -> usize {
        let (messages, most) = match self.closing.get(&of.rank) {
            Some(room) => (usize::MAX, STOP_BYTES.max(*room)),
            None => (STOP_MESSAGES, STOP_BYTES),
        };
        let Some(queue) = self.of(of) else { return 0 };
        queue.bytes += bytes;
        let total = queue.bytes;
        let much = queue.waiting.len() >= messages || total >= most;
        if much && !queue.stopped {
            queue.stopped = true;
            self.untold.push((of, true));
        }
        total
    }

    /// Notes that a sender closes: it may go on in stopped flows of which fewer than `room`
    /// bytes are set aside.
    pub fn note_closing(&mut self, rank: u32, room: usize) {
        self.closing.insert(rank, room);
        let stopped = |queue: &&mut Queue| queue.of.rank == rank && queue.stopped;
        for queue in self.queues.iter_mut().filter(stopped) {
            if queue.bytes < room {
                queue.stopped = false;
                self.untold.push((queue.of, false));
            }
        }
    }

    /// Whether a sender has announced that it closes.
    pub fn is_closing(&self, rank: u32) -> bool {
        self.closing.contains_key(&rank)
    }

    /// Puts a message behind those of its flow.
    pub fn push(&mut self, of: FlowOf, cookie: u64, bytes: usize) {
        if !self.has(of) {
            self.queues.push_back(Queue {
                of,
                waiting: VecDeque::new(),
                bytes: 0,
                stopped: false,
            });
            self.flows[of.priority.index()] |= bit(of.flow);
        }
        if let Some(queue) = self.of(of) {
            queue.waiting.push_back(cookie);
        }
        self.grow(of, bytes);
    }

    /// Drops messages of a sender that has died. `left` returns the bytes of a message that can
    /// still be taken, else `None`.
    pub fn died(&mut self, rank: u32, mut left: impl FnMut(u64) -> Option<usize>) {
        for queue in self.queues.iter_mut().filter(|queue| queue.of.rank == rank) {
            queue.bytes = 0;
            queue.waiting.retain(|cookie| {
                let bytes = left(*cookie);
                queue.bytes += bytes.unwrap_or_default();
                bytes.is_some()
            });
            // A later holder of the number knows nothing of it.
            queue.stopped = false;
        }
        self.untold.retain(|(of, _)| of.rank != rank);
        self.closing.remove(&rank);
        self.drop_empty();
    }

    pub fn drop_empty(&mut self) {
        self.queues.retain(|queue| !queue.waiting.is_empty());
        self.flows = [0; 2];
        for Queue { of, .. } in &self.queues {
            self.flows[of.priority.index()] |= bit(of.flow);
        }
    }

    /// Takes all cookies out.
    pub fn take_all(&mut self) -> Vec<u64> {
        let queues = std::mem::take(&mut self.queues);
        self.flows = [0; 2];
        queues.into_iter().flat_map(|queue| queue.waiting).collect()
    }
}
