//! Messages that no receive was posted for.

use alloc::vec::Vec;

use crate::entries::{Entries, Entry};
use crate::envelope::{Envelope, Selector, Shape};
use crate::index::Index;
use crate::ticket::Ticket;

/// Shapes of selectors, besides the exact one, of which indexes of messages
/// are kept. Each costs an arrival some ten nanoseconds while it is asked for.
pub const SHAPES_MAX: usize = 8;

/// An index that nobody asks is kept up for so many arrivals at least.
const UNASKED_MIN: usize = 64;

/// An index of all messages by what counts for one shape.
#[derive(Debug)]
struct Extra {
    shape: Shape,
    index: Index<()>,
    /// It has what is held: not while it is not kept up.
    current: bool,
    /// Arrivals since it was asked.
    unasked: usize,
    /// When it was asked, in questions.
    asked: u64,
}

#[derive(Debug)]
pub(crate) struct Unexpected<M> {
    /// By the exact key.
    entries: Entries<M>,
    extras: Vec<Extra>,
    /// Questions for other than exact shapes, so far.
    questions: u64,
    /// How many there are of each source.
    of_source: Vec<u32>,
    secret: [u64; 2],
}

impl<M> Unexpected<M> {
    pub const fn new(secret: [u64; 2]) -> Self {
        Self {
            entries: Entries::new(secret),
            extras: Vec::new(),
            questions: 0,
            of_source: Vec::new(),
            secret,
        }
    }

    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn len_of(&self, source: u32) -> usize {
        let of_source = self.of_source.get(source as usize);
        of_source.map_or(0, |&messages| messages as usize)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Ticket, Envelope, &M)> {
        let of_each = self.entries.iter();
        of_each.map(|entry| (entry.ticket, Envelope::of(&entry.key), entry.what))
    }

    /// Adds the latest one.
    pub fn add(&mut self, number: u64, envelope: &Envelope, message: M) -> Ticket {
        let source = envelope.source as usize;
        if self.of_source.len() <= source {
            self.of_source.resize(source + 1, 0);
        }
        self.of_source[source] += 1;
        let exact = Shape::EXACT.key(0, envelope);
        let ticket = self.entries.add(number, exact, message);
        for extra in self.extras.iter_mut().filter(|extra| extra.current) {
            extra.unasked += 1;
            // What it has cost since it was asked is what it costs to make it
            // anew: more would be a loss if nobody ever asks again.
            if extra.unasked > self.entries.slots().max(UNASKED_MIN) {
                extra.current = false;
            } else {
                let key = extra.shape.key(0, envelope);
                extra.index.add(ticket.slot, key, ());
            }
        }
        ticket
    }

    /// The one that arrived first of those that `selector` is for.
    #[inline]
    pub fn first(&mut self, selector: &Selector) -> Option<(Ticket, Envelope, &M)> {
        if self.entries.len() == 0 {
            return None;
        }
        let shape = Shape::of(selector);
        let key = shape.wanted(0, selector);
        let found = if shape == Shape::EXACT {
            self.entries.first(&key)
        } else {
            let slot = self.index_of(shape).first(&key)?;
            self.entries.get(slot)
        };
        let Entry { ticket, key, what } = found?;
        Some((ticket, Envelope::of(&key), what))
    }

    /// The index of a shape, made now if need be.
    fn index_of(&mut self, shape: Shape) -> &Index<()> {
        let at = self.extras.iter().position(|extra| extra.shape == shape);
        let at = at.unwrap_or_else(|| self.room_for(shape));
        let extra = &mut self.extras[at];
        self.questions += 1;
        extra.asked = self.questions;
        extra.unasked = 0;
        if !extra.current {
            extra.current = true;
            extra.index.restart(self.entries.len());
            let of_each = self.entries.iter();
            let mut all: Vec<(Ticket, Envelope)> = of_each
                .map(|entry| (entry.ticket, Envelope::of(&entry.key)))
                .collect();
            all.sort_unstable_by_key(|(ticket, _)| *ticket);
            for (ticket, envelope) in all {
                let key = shape.key(0, &envelope);
                extra.index.add(ticket.slot, key, ());
            }
        }
        &extra.index
    }

    /// A place for a shape that has none: where there are enough, that of the
    /// one that was not asked for longest.
    fn room_for(&mut self, shape: Shape) -> usize {
        if self.extras.len() < SHAPES_MAX {
            self.extras.push(Extra {
                shape,
                index: Index::new(self.secret),
                current: false,
                unasked: 0,
                asked: 0,
            });
            return self.extras.len() - 1;
        }
        let oldest = (0..SHAPES_MAX).min_by_key(|&at| self.extras[at].asked);
        let at = oldest.expect("there are some");
        self.extras[at].shape = shape;
        self.extras[at].current = false;
        at
    }

    /// Takes out the one that a ticket names, if it still does.
    pub fn take(&mut self, ticket: Ticket) -> Option<(Envelope, M)> {
        let (key, message) = self.entries.take(ticket)?;
        for extra in self.extras.iter_mut().filter(|extra| extra.current) {
            extra.index.remove(ticket.slot);
        }
        self.of_source[key.source as usize] -= 1;
        Some((Envelope::of(&key), message))
    }

    /// Takes out the one that arrived first of those that `selector` is for.
    pub fn take_first(&mut self, selector: &Selector) -> Option<(Envelope, M)> {
        let (ticket, ..) = self.first(selector)?;
        self.take(ticket)
    }

    /// Takes out those of `source`, oldest first.
    pub fn forget(&mut self, source: u32) -> Vec<M> {
        let mut messages = Vec::with_capacity(self.len_of(source));
        let all = Selector::from(source, 0).ignoring(u64::MAX);
        while self.len_of(source) > 0
            && let Some((_, message)) = self.take_first(&all)
        {
            messages.push(message);
        }
        messages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(messages: u64) -> Unexpected<u64> {
        let mut unexpected = Unexpected::new([1, 2]);
        (0..messages).for_each(|number| arrive(&mut unexpected, number));
        unexpected
    }

    fn arrive(unexpected: &mut Unexpected<u64>, number: u64) {
        let envelope = Envelope {
            source: number as u32 % 4,
            tag: number,
        };
        unexpected.add(number, &envelope, number);
    }

    fn shapes(unexpected: &Unexpected<u64>) -> Vec<u64> {
        let bits = |extra: &Extra| !extra.shape.key(0, &Envelope { source: 0, tag: !0 }).tag;
        unexpected.extras.iter().map(bits).collect()
    }

    #[test]
    fn the_least_recently_asked_shape_makes_room() {
        let mut unexpected = with(600);
        let ask = |unexpected: &mut Unexpected<u64>, ignore: u64| {
            let selector = Selector::any(599).ignoring(ignore);
            unexpected.first(&selector).map(|(.., message)| *message)
        };
        // 599 without its lowest bit is 598.
        for ignore in 1..=SHAPES_MAX as u64 {
            ask(&mut unexpected, ignore);
        }
        assert_eq!(ask(&mut unexpected, 1), Some(598));
        assert_eq!(ask(&mut unexpected, 0x1ff), Some(512));
        assert_eq!(shapes(&unexpected), [1, 0x1ff, 3, 4, 5, 6, 7, 8]);
        // It is made anew.
        assert_eq!(ask(&mut unexpected, 2), Some(597));
        assert_eq!(shapes(&unexpected), [1, 0x1ff, 2, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn what_nobody_asks_for_is_not_kept_up() {
        let mut unexpected = with(200);
        let any = Selector::any(0).ignoring(u64::MAX);
        unexpected.first(&any);
        // As it fills, an index costs no more than it would to make it anew.
        (200..1_000).for_each(|number| arrive(&mut unexpected, number));
        assert!(unexpected.extras[0].current);
        // Then one leaves for each that comes.
        let pass = |unexpected: &mut Unexpected<u64>, numbers: core::ops::Range<u64>| {
            for number in numbers {
                let exact = Selector::from(number as u32 % 4, number - 1_000);
                assert_eq!(unexpected.take_first(&exact).unwrap().1, number - 1_000);
                arrive(unexpected, number);
            }
            unexpected.extras[0].current
        };
        assert!(pass(&mut unexpected, 1_000..1_200));
        assert!(!pass(&mut unexpected, 1_200..1_201));
        // Made anew, it has what came meanwhile, in order.
        pass(&mut unexpected, 1_201..1_400);
        for number in 400..1_400 {
            assert_eq!(unexpected.take_first(&any).unwrap().1, number);
        }
    }

    #[test]
    fn an_empty_side_makes_no_index() {
        let mut unexpected = with(0);
        assert_eq!(unexpected.first(&Selector::any(1)), None);
        assert!(unexpected.extras.is_empty());
    }
}
