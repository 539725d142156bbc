//! Receiver's state of a flow, and byte ranges that arrived early.

use portolan_wire::Priority;

use crate::base::{FLOWS_MAX, FrameIndex, List, WINDOW_SPAN};

/// Receiver's state of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct RxFlow {
    /// The head of the next message was taken, bodies are missing.
    pub active: bool,
    /// The active message was refused: its bodies are discarded.
    pub discard: bool,
    pub port: u16,
    pub total: u64,
    /// Bytes delivered, and how far they reach without a hole.
    pub got: u64,
    pub done_to: u64,
    pub cookie: u64,
    /// Chunks that cannot be delivered yet, in order.
    pub held: List<FrameIndex>,
}

/// Byte ranges beyond a hole that one connection keeps track of: every other
/// packet of a window may be missing.
const INTERVALS: usize = WINDOW_SPAN / 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Interval {
    key: u8,
    start: u64,
    end: u64,
}

/// Byte ranges that arrived beyond a hole, for all flows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Intervals {
    all: [Interval; INTERVALS],
    used: u16,
}

impl Intervals {
    pub const EMPTY: Self = Self {
        all: [Interval {
            key: 0,
            start: 0,
            end: 0,
        }; INTERVALS],
        used: 0,
    };

    /// The first part of `start..end` that no interval covers.
    pub fn uncovered(&self, key: u8, mut start: u64, end: u64) -> Option<(u64, u64)> {
        // Each pass either moves `start` past an interval or is the last.
        loop {
            if start >= end {
                return None;
            }
            let mut stop = end;
            let mut covered_to = start;
            for i in self.all[..self.used as usize]
                .iter()
                .filter(|i| i.key == key)
            {
                if i.start <= start && start < i.end {
                    covered_to = covered_to.max(i.end);
                } else if i.start > start {
                    stop = stop.min(i.start);
                }
            }
            if covered_to == start {
                return Some((start, stop));
            }
            start = covered_to;
        }
    }

    /// Adds a range that overlaps no other, joining neighbours; returns false if full.
    pub fn add(&mut self, key: u8, mut start: u64, mut end: u64) -> bool {
        let mut i = 0;
        let before = *self;
        while i < self.used as usize {
            let it = self.all[i];
            if it.key == key && (it.end == start || it.start == end) {
                start = start.min(it.start);
                end = end.max(it.end);
                self.remove(i);
            } else {
                i += 1;
            }
        }
        if self.used as usize == INTERVALS {
            *self = before;
            return false;
        }
        self.all[self.used as usize] = Interval { key, start, end };
        self.used += 1;
        true
    }

    fn remove(&mut self, i: usize) {
        self.used -= 1;
        self.all[i] = self.all[self.used as usize];
        self.all[self.used as usize] = Interval::default();
    }

    /// Removes the range that starts at `at`; returns its end.
    pub fn take_from(&mut self, key: u8, at: u64) -> Option<u64> {
        let used = &self.all[..self.used as usize];
        let i = used.iter().position(|i| i.key == key && i.start == at)?;
        let end = self.all[i].end;
        self.remove(i);
        Some(end)
    }

    pub const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether one more range is sure to find room.
    pub const fn has_room(&self) -> bool {
        (self.used as usize) < INTERVALS
    }
}

/// The key of a flow's ranges in [`Intervals`].
pub(super) const fn key(priority: Priority, flow: u16) -> u8 {
    (priority.index() * FLOWS_MAX) as u8 + flow as u8
}
