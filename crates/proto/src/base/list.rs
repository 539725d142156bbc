//! Lists of the entries of a table, linked by their indices.

/// No index.
pub(crate) const NONE: u32 = u32::MAX;

/// Things that can stand in a [`List`].
pub(crate) trait Linked {
    fn next(&mut self) -> &mut u32;
}

/// A singly linked first-in first-out list of indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    pub const fn is_empty(self) -> bool {
        self.head == NONE
    }

    pub fn push_back<T: Linked>(&mut self, all: &mut [T], i: u32) {
        *all[i as usize].next() = NONE;
        if self.head == NONE {
            self.head = i;
        } else {
            *all[self.tail as usize].next() = i;
        }
        self.tail = i;
    }

    pub fn push_front<T: Linked>(&mut self, all: &mut [T], i: u32) {
        *all[i as usize].next() = self.head;
        if self.head == NONE {
            self.tail = i;
        }
        self.head = i;
    }

    pub fn pop_front<T: Linked>(&mut self, all: &mut [T]) -> Option<u32> {
        let i = self.head;
        if i == NONE {
            return None;
        }
        self.head = *all[i as usize].next();
        if self.head == NONE {
            self.tail = NONE;
        }
        *all[i as usize].next() = NONE;
        Some(i)
    }

    /// Puts `i` behind `before`, which is in the list.
    pub fn insert_after<T: Linked>(&mut self, all: &mut [T], before: u32, i: u32) {
        let next = *all[before as usize].next();
        *all[i as usize].next() = next;
        *all[before as usize].next() = i;
        if self.tail == before {
            self.tail = i;
        }
    }

    /// Takes `i` out, wherever it stands; says whether it was there.
    pub fn remove<T: Linked>(&mut self, all: &mut [T], i: u32) -> bool {
        if self.head == i {
            self.pop_front(all);
            return true;
        }
        let mut at = self.head;
        while at != NONE {
            let next = *all[at as usize].next();
            if next == i {
                let after = *all[i as usize].next();
                *all[at as usize].next() = after;
                *all[i as usize].next() = NONE;
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
