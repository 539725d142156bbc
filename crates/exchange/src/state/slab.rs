//! Entries by number: the slot's index in the lower half, its generation in the upper. The next
//! entry of a slot has another generation. The highest 4 bits are never set: an owner of several
//! slabs can mark there which one a number is of.

use alloc::vec::Vec;

/// Highest generation of a slot; then they begin anew with 1.
const GENERATIONS: u32 = (1 << 28) - 1;

const fn next_generation(generation: u32) -> u32 {
    if generation == GENERATIONS {
        1
    } else {
        generation + 1
    }
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<T>,
}

/// Entries by number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    pub const fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number that the next entry will have.
    pub fn next(&self) -> u64 {
        match self.free.last() {
            Some(&at) => u64::from(self.slots[at as usize].generation) << 32 | u64::from(at),
            None => 1 << 32 | self.slots.len() as u64,
        }
    }

    pub fn insert(&mut self, entry: T) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                // From 1 on, so that no number is 0.
                generation: 1,
                entry: None,
            });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[at as usize];
        slot.entry = Some(entry);
        u64::from(slot.generation) << 32 | u64::from(at)
    }

    #[inline]
    pub fn get(&self, number: u64) -> Option<&T> {
        let slot = self.slots.get(number as u32 as usize)?;
        slot.entry
            .as_ref()
            .filter(|_| slot.generation == (number >> 32) as u32)
    }

    #[inline]
    pub fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(number as u32 as usize)?;
        let generation = slot.generation;
        slot.entry
            .as_mut()
            .filter(|_| generation == (number >> 32) as u32)
    }

    /// Drops an entry in place.
    pub fn discard(&mut self, number: u64) {
        if let Some(slot) = self.slots.get_mut(number as u32 as usize)
            && slot.generation == (number >> 32) as u32
            && slot.entry.is_some()
        {
            slot.entry = None;
            slot.generation = next_generation(slot.generation);
            self.free.push(number as u32);
        }
    }

    pub fn remove(&mut self, number: u64) -> Option<T> {
        let slot = self.slots.get_mut(number as u32 as usize)?;
        if slot.generation != (number >> 32) as u32 {
            return None;
        }
        let entry = slot.entry.take()?;
        slot.generation = next_generation(slot.generation);
        self.free.push(number as u32);
        Some(entry)
    }

    /// Removes and returns the entries that `of` selects.
    pub fn take_where(&mut self, of: impl Fn(&T) -> bool) -> Vec<T> {
        let all = self.iter().filter(|(_, entry)| of(entry));
        let numbers: Vec<u64> = all.map(|(number, _)| number).collect();
        (numbers.into_iter())
            .filter_map(|number| self.remove(number))
            .collect()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.entry.as_mut())
    }

    /// Number of an entry that `of` selects, searched from the slot of `number` on.
    pub fn find_from(&self, number: u64, of: impl Fn(&T) -> bool) -> Option<u64> {
        let start = (number as u32 as usize).min(self.slots.len());
        let places = (start..self.slots.len()).chain(0..start);
        let mut slots = places.map(|at| (at as u64, &self.slots[at]));
        slots.find_map(|(at, slot)| {
            let found = slot.entry.as_ref().is_some_and(&of);
            found.then_some(u64::from(slot.generation) << 32 | at)
        })
    }

    /// Numbers and entries, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        (0_u64..).zip(&self.slots).filter_map(|(at, slot)| {
            let entry = slot.entry.as_ref()?;
            Some((u64::from(slot.generation) << 32 | at, entry))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_entry_only() {
        let mut slab = Slab::new();
        let next = slab.next();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(next, a);
        assert_eq!(slab.remove(a), Some('a'));
        let next = slab.next();
        let c = slab.insert('c');
        assert_eq!(next, c);
        assert_ne!(a, c);
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!((slab.get(b), slab.get(c)), (Some(&'b'), Some(&'c')));
        assert_eq!(slab.get(0), None);
        assert_eq!(slab.get(7 << 32 | 9), None);
        assert_eq!(slab.len(), 2);
        assert_eq!(slab.iter().map(|(n, _)| n).collect::<Vec<_>>(), [c, b]);
    }
}
