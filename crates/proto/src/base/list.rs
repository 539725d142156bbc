//! Lists of the entries of a table, linked by their indices.

use super::index::TableIndex;

/// Entries of a table that a [`List`] can link.
pub(crate) trait Linked {
    type Index: TableIndex;

    fn next(&mut self) -> &mut Self::Index;
}

/// A singly linked first-in first-out list of indices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct List<I> {
    pub head: I,
    pub tail: I,
}

impl<I: TableIndex> List<I> {
    pub const EMPTY: Self = Self {
        head: I::NONE,
        tail: I::NONE,
    };

    pub fn push_back<T: Linked<Index = I>>(&mut self, all: &mut [T], i: I) {
        *all[i.index()].next() = I::NONE;
        if self.head == I::NONE {
            self.head = i;
        } else {
            *all[self.tail.index()].next() = i;
        }
        self.tail = i;
    }

    pub fn push_front<T: Linked<Index = I>>(&mut self, all: &mut [T], i: I) {
        *all[i.index()].next() = self.head;
        if self.head == I::NONE {
            self.tail = i;
        }
        self.head = i;
    }

    pub fn pop_front<T: Linked<Index = I>>(&mut self, all: &mut [T]) -> Option<I> {
        let i = self.head;
        if i == I::NONE {
            return None;
        }
        self.head = *all[i.index()].next();
        if self.head == I::NONE {
            self.tail = I::NONE;
        }
        *all[i.index()].next() = I::NONE;
        Some(i)
    }

    /// Inserts `i` after `before`, which is in the list.
    pub fn insert_after<T: Linked<Index = I>>(&mut self, all: &mut [T], before: I, i: I) {
        let next = *all[before.index()].next();
        *all[i.index()].next() = next;
        *all[before.index()].next() = i;
        if self.tail == before {
            self.tail = i;
        }
    }

    /// Removes `i`, wherever it stands; returns whether it was there.
    pub fn remove<T: Linked<Index = I>>(&mut self, all: &mut [T], i: I) -> bool {
        if self.head == i {
            self.pop_front(all);
            return true;
        }
        let mut at = self.head;
        while at != I::NONE {
            let next = *all[at.index()].next();
            if next == i {
                let after = *all[i.index()].next();
                *all[at.index()].next() = after;
                *all[i.index()].next() = I::NONE;
                if self.tail == i {
                    self.tail = at;
                }
                return true;
            }
            at = next;
        }
        false
    }
}
