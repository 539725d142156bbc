//! What one side holds.

use alloc::vec::Vec;

use crate::index::{Index, Key};
use crate::ticket::Ticket;

/// A handle, and the number of its entry.
#[derive(Debug)]
struct Numbered<T> {
    number: u64,
    what: T,
}

/// An entry to look at.
#[derive(Debug)]
pub(crate) struct Entry<'a, T> {
    pub ticket: Ticket,
    pub key: Key,
    pub what: &'a T,
}

/// Handles, each in a slot and under a key. Slots are used again.
#[derive(Debug)]
pub(crate) struct Entries<T> {
    index: Index<Option<Numbered<T>>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Entries<T> {
    pub const fn new(secret: [u64; 2]) -> Self {
        Self {
            index: Index::new(secret),
            free: Vec::new(),
            len: 0,
        }
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// How many there ever were at once: what it takes to look at all.
    pub const fn slots(&self) -> usize {
        self.index.slots() as usize
    }

    /// Adds the last one; `number` is greater than those before.
    pub fn add(&mut self, number: u64, key: Key, what: T) -> Ticket {
        // Slots are numbered without gaps: in use, or free.
        let slot = self.free.pop().unwrap_or(self.len as u32);
        self.index.add(slot, key, Some(Numbered { number, what }));
        self.len += 1;
        Ticket { number, slot }
    }

    /// Adds one at its place by `number`, which may be less than those of others with its key.
    /// That takes a step for each of those that stay before it.
    pub fn insert(&mut self, number: u64, key: Key, what: T) -> Ticket {
        let elder = |slot: &u32| self.get(*slot).is_some_and(|it| it.ticket.number < number);
        let mut after = self.index.first(&key);
        while let Some(slot) = after.filter(elder) {
            after = self.index.next(slot);
        }
        let ticket = self.add(number, key, what);
        if let Some(after) = after {
            self.index.put_before(ticket.slot, after);
        }
        ticket
    }

    /// What is in a slot.
    #[inline]
    pub fn get(&self, slot: u32) -> Option<Entry<'_, T>> {
        let (key, held) = self.index.get(slot)?;
        let Numbered { number, what } = held.as_ref()?;
        Some(Entry {
            ticket: Ticket {
                number: *number,
                slot,
            },
            key,
            what,
        })
    }

    /// The one that was added first with this key.
    #[inline]
    pub fn first(&self, key: &Key) -> Option<Entry<'_, T>> {
        self.get(self.index.first(key)?)
    }

    /// Takes out the one that a ticket names, if it still does.
    #[inline]
    pub fn take(&mut self, ticket: Ticket) -> Option<(Key, T)> {
        let Entry {
            ticket: there, key, ..
        } = self.get(ticket.slot)?;
        if there != ticket {
            return None;
        }
        let held = self.index.remove(ticket.slot)?;
        self.free.push(ticket.slot);
        self.len -= 1;
        Some((key, held.what))
    }

    /// All, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_, T>> {
        let slots = 0..self.index.slots();
        slots.filter_map(|slot| self.get(slot))
    }
}
