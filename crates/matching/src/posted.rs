//! Receives that no message has come for.

use alloc::vec::Vec;

use crate::entries::{Entries, Entry};
use crate::envelope::{Envelope, Selector, Shape};
use crate::index::Key;
use crate::ticket::Ticket;

/// A shape of which receives are posted.
#[derive(Debug)]
struct Live {
    shape: Shape,
    /// Its number in keys.
    lane: u32,
    receives: u32,
}

/// All of them in one index, in which shapes have lanes of their own.
#[derive(Debug)]
pub(crate) struct Posted<R> {
    entries: Entries<R>,
    shapes: Vec<Live>,
    /// Lanes that no shape has any more.
    lanes: Vec<u32>,
}

impl<R> Posted<R> {
    pub const fn new(secret: [u64; 2]) -> Self {
        Self {
            entries: Entries::new(secret),
            shapes: Vec::new(),
            lanes: Vec::new(),
        }
    }

    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (Ticket, Selector, &R)> {
        self.entries.iter().map(|Entry { ticket, key, what }| {
            let shape = &self.shapes[self.place(key.lane)].shape;
            (ticket, shape.selector(&key), what)
        })
    }

    /// Adds the last one.
    pub fn add(&mut self, number: u64, selector: &Selector, receive: R) -> Ticket {
        let key = self.enter_for(selector);
        self.entries.add(number, key, receive)
    }

    /// Adds one at its place by `number`.
    pub fn insert(&mut self, number: u64, selector: &Selector, receive: R) -> Ticket {
        let key = self.enter_for(selector);
        self.entries.insert(number, key, receive)
    }

    /// One more receive with this selector; gives its key.
    fn enter_for(&mut self, selector: &Selector) -> Key {
        let shape = Shape::of(selector);
        let lane = self.enter(shape);
        shape.wanted(lane, selector)
    }

    /// One more receive of this shape; gives its lane.
    fn enter(&mut self, shape: Shape) -> u32 {
        if let Some(live) = self.shapes.iter_mut().find(|live| live.shape == shape) {
            live.receives += 1;
            return live.lane;
        }
        if let [only] = self.shapes.as_mut_slice()
            && only.receives == 0
        {
            (only.shape, only.receives) = (shape, 1);
            return only.lane;
        }
        // Lanes are numbered without gaps: in use, or given back.
        let lane = self.lanes.pop().unwrap_or(self.shapes.len() as u32);
        self.shapes.push(Live {
            shape,
            lane,
            receives: 1,
        });
        lane
    }

    /// Where the shape of a lane is.
    fn place(&self, lane: u32) -> usize {
        let at = self.shapes.iter().position(|live| live.lane == lane);
        at.expect("a receive is counted in its shape")
    }

    /// The one that was posted first of those that the message fits.
    #[inline]
    pub fn first(&self, envelope: &Envelope) -> Option<(Ticket, &R)> {
        let first_of = |live: &Live| {
            let key = live.shape.key(live.lane, envelope);
            self.entries.first(&key)
        };
        let found = self.shapes.iter().filter_map(first_of);
        let first = found.min_by_key(|entry| entry.ticket.number)?;
        Some((first.ticket, first.what))
    }

    /// Takes out the one that a ticket names, if it does.
    pub fn take(&mut self, ticket: Ticket) -> Option<R> {
        let (key, receive) = self.entries.take(ticket)?;
        let at = self.place(key.lane);
        self.shapes[at].receives -= 1;
        // Alone it does no harm, and the next receive is mostly of that shape.
        if self.shapes[at].receives == 0 && self.shapes.len() > 1 {
            self.shapes.swap_remove(at);
            self.lanes.push(key.lane);
        }
        Some(receive)
    }

    /// Takes out the one that was posted first of those that the message fits.
    pub fn take_first(&mut self, envelope: &Envelope) -> Option<R> {
        let ticket = match self.shapes.as_slice() {
            [only] => {
                let key = only.shape.key(only.lane, envelope);
                self.entries.first(&key)?.ticket
            }
            _ => self.first(envelope)?.0,
        };
        self.take(ticket)
    }

    /// Takes out those that only messages of `source` fit, oldest first.
    pub fn forget(&mut self, source: u32) -> Vec<R> {
        let of_source = self.iter().filter(|(_, on, _)| on.source == Some(source));
        let mut tickets: Vec<Ticket> = of_source.map(|(ticket, ..)| ticket).collect();
        tickets.sort_unstable();
        let take = |ticket| self.take(ticket);
        tickets.into_iter().filter_map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_asked_only_while_receives_have_them() {
        let mut posted = Posted::new([1, 2]);
        // As many shapes at once as receives, again and again.
        for round in 0..3 {
            let post = |bits| {
                let selector = Selector::any(0).ignoring(bits + round);
                posted.add(100 * round + bits, &selector, bits)
            };
            let tickets: Vec<Ticket> = (0..20).map(post).collect();
            assert_eq!(posted.shapes.len(), 20);
            for (bits, ticket) in tickets.into_iter().enumerate() {
                assert_eq!(posted.take(ticket), Some(bits as u64));
            }
            assert_eq!((posted.shapes.len(), posted.lanes.len()), (1, 19));
        }
        // The last of them is kept until one of another shape comes.
        posted.add(999, &Selector::any(1), 1);
        assert_eq!((posted.shapes.len(), posted.lanes.len()), (1, 19));
        assert_eq!(posted.first(&Envelope { source: 0, tag: 0 }), None);
        let mut lanes = posted.lanes;
        lanes.push(posted.shapes[0].lane);
        lanes.sort_unstable();
        assert!(lanes.into_iter().eq(0..20));
    }
}
