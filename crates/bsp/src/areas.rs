//! Registered areas. Registration is collective: all processes push and pop alike, so a
//! *slot*, the index that an area gets, names the area between them.

use std::collections::HashMap;

/// Memory that a process has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Address; 0 where the process takes no part.
    pub start: usize,
    pub bytes: u64,
}

/// Changes to registrations in a superstep; must be alike in all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Number of calls, including those that cancel.
    pub pushes: u32,
    pub pops: u32,
}

/// A registration that is undone: `number` were made before it, alike in all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pop {
    pub number: u64,
    /// The process that undoes it has registered NULL there. Any registration of NULL has that
    /// address, so `number` is the newest that can be meant: other processes say which is.
    pub null: bool,
}

impl Pop {
    /// Returns what two processes mean by the same pop; `None` if they mean different areas.
    pub fn meet(self, other: Self) -> Option<Self> {
        match (self.null, other.null) {
            (false, false) => (self == other).then_some(self),
            (false, true) => Some(self),
            (true, false) => Some(other),
            // The newest in which both may have NULL: the older one.
            (true, true) => Some(if self.number < other.number {
                self
            } else {
                other
            }),
        }
    }
}

/// This process pops NULL, but has not registered NULL in the registration that `other` pops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotNull {
    pub other: u32,
}

/// Entries of the lookup cache.
const RECENT: usize = 8;

#[derive(Debug, Default)]
pub struct Areas {
    slots: Vec<Option<Area>>,
    /// Free slots, as a stack.
    free: Vec<u32>,
    /// Numbers and slots of each address, the newest last.
    by_start: HashMap<usize, Vec<(u64, u32)>>,
    /// Number of registrations before this superstep, including undone ones.
    before: u64,
    /// Registrations that take effect at the end of the superstep, with their numbers.
    pushed: Vec<(u64, Area)>,
    /// Pops in the order of calls, with their addresses.
    popped: Vec<(Pop, usize)>,
    /// Number of pops of each address that cancel no push.
    popped_at: HashMap<usize, usize>,
    changes: Changes,
    /// Lookup cache: address and slot, indexed by some bits of the address.
    recent: [Option<(usize, u32)>; RECENT],
}

impl Areas {
    /// Registers an area at the end of the superstep; false if there is no memory.
    pub fn push(&mut self, area: Area) -> bool {
        let more = self.pushed.len() + 1;
        let room = self.pushed.try_reserve(1).is_ok()
            && self.slots.try_reserve(more).is_ok()
            && self.by_start.try_reserve(more).is_ok();
        if room {
            let number = self.before + u64::from(self.changes.pushes);
            self.pushed.push((number, area));
            self.changes.pushes = self.changes.pushes.wrapping_add(1);
        }
        room
    }

    /// Undoes the newest registration of an address at the end of the superstep, skipping those
    /// already undone; false if there is none.
    pub fn pop(&mut self, start: usize) -> bool {
        let is_it = |(_, area): &(u64, Area)| area.start == start;
        let null = start == 0;
        let cancelled = if null {
            None
        } else {
            let at = self.pushed.iter().rposition(is_it);
            at.map(|at| self.pushed.remove(at).0)
        };
        let number = cancelled.or_else(|| {
            // Registrations of NULL stay until others have said which is meant.
            let pushed = self.pushed.iter().rev().filter(|it| null && is_it(it));
            let slots = self.by_start.get(&start).map_or(&[][..], |slots| slots);
            let gone = self.popped_at.entry(start).or_default();
            let mut all = (pushed.map(|(number, _)| *number))
                .chain(slots.iter().rev().map(|(number, _)| *number));
            let newest = all.nth(*gone);
            *gone += usize::from(newest.is_some());
            newest
        });
        if let Some(number) = number {
            self.popped.push((Pop { number, null }, start));
            self.changes.pops = self.changes.pops.wrapping_add(1);
        }
        number.is_some()
    }

    /// Registrations undone at the end of the superstep, in the order of calls.
    pub fn popped(&self) -> impl Iterator<Item = Pop> + use<'_> {
        self.popped.iter().map(|(pop, _)| *pop)
    }

    /// Slot of the newest area at an address.
    #[inline]
    pub fn find(&mut self, start: usize) -> Option<u32> {
        // Arrays of one size lie a multiple of it apart: higher bits take part.
        let at = (start >> 4 ^ start >> 12 ^ start >> 20) % RECENT;
        match self.recent[at] {
            Some((known, slot)) if known == start => Some(slot),
            _ => self.search(start, at),
        }
    }

    #[cold]
    fn search(&mut self, start: usize, at: usize) -> Option<u32> {
        let (_, slot) = *self.by_start.get(&start)?.last()?;
        self.recent[at] = Some((start, slot));
        Some(slot)
    }

    /// Whether an address is registered from the end of this superstep on.
    pub fn is_pushed(&self, start: usize) -> bool {
        self.pushed.iter().any(|(_, area)| area.start == start)
    }

    /// Returns the memory of `bytes` bytes from `offset` on in an area.
    #[inline]
    pub fn place(&self, slot: u32, offset: u64, bytes: u64) -> Result<*mut u8, Outside> {
        place(&self.slots, slot, offset, bytes)
    }

    /// Returns the memory of an area, and its length in bytes.
    #[inline]
    pub fn whole(&self, slot: u32) -> Result<(*mut u8, u64), Outside> {
        whole(&self.slots, slot)
    }

    /// All areas, by slot.
    pub fn slots(&self) -> &[Option<Area>] {
        &self.slots
    }

    pub const fn changes(&self) -> Changes {
        self.changes
    }

    /// Applies the pushes and pops of a superstep that has ended; false if there were none.
    /// `meant` has for each pop the registration all agreed on, and a process that named it.
    pub fn apply(&mut self, meant: &[(Pop, u32)]) -> Result<bool, NotNull> {
        self.before += u64::from(self.changes.pushes);
        self.changes = Changes::default();
        if self.pushed.is_empty() && self.popped.is_empty() {
            return Ok(false);
        }
        self.recent = [None; RECENT];
        self.popped_at.clear();
        let popped = std::mem::take(&mut self.popped);
        for ((_, start), (pop, other)) in popped.iter().zip(meant) {
            if !self.undo(pop.number, *start) {
                return Err(NotNull { other: *other });
            }
        }
        for (number, area) in self.pushed.drain(..) {
            let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
            if slot as usize == self.slots.len() {
                self.slots.push(None);
            }
            self.slots[slot as usize] = Some(area);
            let slots = self.by_start.entry(area.start).or_default();
            slots.push((number, slot));
        }
        Ok(true)
    }

    /// Removes a registration of an address; false if `start` is NULL and the registration is
    /// not. A cancelled one is gone already, unless it is of NULL.
    fn undo(&mut self, number: u64, start: usize) -> bool {
        if let Some(slots) = self.by_start.get_mut(&start)
            && let Ok(at) = slots.binary_search_by_key(&number, |(number, _)| *number)
        {
            let (_, slot) = slots.remove(at);
            if slots.is_empty() {
                self.by_start.remove(&start);
            }
            self.slots[slot as usize] = None;
            self.free.push(slot);
            return true;
        }
        let mut pushed = self.pushed.iter();
        let at = pushed.position(|(its, area)| *its == number && area.start == start);
        at.map(|at| self.pushed.remove(at));
        at.is_some() || start != 0
    }
}

/// Returns the memory of `bytes` bytes from `offset` on in one of `areas`.
#[inline]
pub fn place(
    areas: &[Option<Area>],
    slot: u32,
    offset: u64,
    bytes: u64,
) -> Result<*mut u8, Outside> {
    let (start, size) = whole(areas, slot)?;
    match offset.checked_add(bytes) {
        // At most the size of an area in memory, so it fits `usize`.
        Some(end) if end <= size => Ok(start.wrapping_add(offset as usize)),
        _ => Err(Outside::Beyond(size)),
    }
}

#[inline]
fn whole(areas: &[Option<Area>], slot: u32) -> Result<(*mut u8, u64), Outside> {
    match areas.get(slot as usize) {
        Some(Some(Area { start: 0, .. })) => Err(Outside::Null),
        Some(Some(area)) => Ok((area.start as *mut u8, area.bytes)),
        _ => Err(Outside::Unknown),
    }
}

/// Why a range lies in no registered area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Outside {
    #[error("it has registered no such area")]
    Unknown,
    #[error("it has registered NULL there")]
    Null,
    #[error("its area has {0} bytes")]
    Beyond(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Area = Area {
        start: 0x1000,
        bytes: 64,
    };

    /// Applies the changes: all mean the same.
    fn apply(areas: &mut Areas) {
        let meant: Vec<_> = areas.popped().map(|pop| (pop, 0)).collect();
        areas.apply(&meant).unwrap();
    }

    #[test]
    fn changes_take_effect_at_the_end_and_the_newest_wins() {
        let mut areas = Areas::default();
        areas.push(A);
        assert_eq!(areas.find(A.start), None);
        assert!(areas.is_pushed(A.start));
        apply(&mut areas);
        assert_eq!(areas.find(A.start), Some(0));
        areas.push(Area { bytes: 8, ..A });
        apply(&mut areas);
        assert_eq!(areas.find(A.start), Some(1));
        assert_eq!(areas.place(1, 8, 1), Err(Outside::Beyond(8)));
        assert_eq!(areas.place(1, u64::MAX, 8), Err(Outside::Beyond(8)));
        assert_eq!(areas.place(0, 8, 8), Ok(0x1008 as *mut u8));
        assert!(areas.pop(A.start));
        // Usable until the superstep ends.
        assert_eq!(areas.find(A.start), Some(1));
        apply(&mut areas);
        assert_eq!(areas.find(A.start), Some(0));
        assert_eq!(areas.place(1, 0, 1), Err(Outside::Unknown));
        assert!(areas.pop(A.start) && !areas.pop(A.start));
        apply(&mut areas);
        assert_eq!(areas.find(A.start), None);
        assert!(registered(&areas) == 0 && areas.by_start.is_empty());
        // Slots are used again.
        areas.push(A);
        apply(&mut areas);
        assert!(areas.find(A.start).is_some() && areas.slots.len() == 2);
    }

    fn registered(areas: &Areas) -> usize {
        areas.slots.iter().flatten().count()
    }

    #[test]
    fn a_push_and_a_pop_cancel() {
        let mut areas = Areas::default();
        areas.push(A);
        apply(&mut areas);
        areas.push(Area { bytes: 8, ..A });
        assert!(areas.pop(A.start));
        let changes = areas.changes();
        assert_eq!((changes.pushes, changes.pops), (1, 1));
        // Pops the older registration.
        assert!(areas.pop(A.start));
        assert_eq!(areas.changes().pops, 2);
        apply(&mut areas);
        assert_eq!(areas.find(A.start), None);
        assert_eq!(areas.changes(), Changes::default());
    }

    #[test]
    fn who_pops_another_area_is_found() {
        let other = Area { start: 0x2000, ..A };
        let popped = |pushed: [Area; 2], before: bool| {
            let mut areas = Areas::default();
            pushed.into_iter().for_each(|area| _ = areas.push(area));
            if before {
                apply(&mut areas);
            }
            assert!(areas.pop(A.start));
            areas.popped().next().unwrap()
        };
        for before in [false, true] {
            let [mine, same, newer, last] =
                [[A, other], [A, other], [A, A], [other, A]].map(|pushed| popped(pushed, before));
            assert_eq!(mine.meet(same), Some(mine));
            assert_eq!(mine.meet(newer), None);
            assert_eq!(mine.meet(last), None);
        }
    }

    const NULL: Area = Area { start: 0, bytes: 0 };

    /// Three registrations; this process has NULL in the first and the last.
    fn with_nulls(before: bool) -> Areas {
        let mut areas = Areas::default();
        for area in [NULL, A, NULL] {
            assert!(areas.push(area));
        }
        if before {
            apply(&mut areas);
        }
        areas
    }

    #[test]
    fn who_pops_null_pops_what_others_pop() {
        let named = |number| Pop {
            number,
            null: false,
        };
        for before in [false, true] {
            for number in [0, 2] {
                let mut areas = with_nulls(before);
                assert!(areas.pop(0));
                let mine = areas.popped().next().unwrap();
                assert_eq!((mine.number, mine.null), (2, true));
                let meant = mine.meet(named(number)).unwrap();
                assert_eq!(
                    (meant, named(number).meet(mine)),
                    (named(number), Some(meant))
                );
                assert_eq!(areas.apply(&[(meant, 1)]), Ok(true));
                let kept = &areas.by_start[&0];
                assert_eq!((kept.len(), kept[0].0), (1, 2 - number));
                assert_eq!(
                    areas.find(A.start),
                    areas.by_start[&A.start].last().map(|it| it.1)
                );
            }
            // This process has an area there.
            let mut areas = with_nulls(before);
            assert!(areas.pop(0));
            assert_eq!(areas.apply(&[(named(1), 7)]), Err(NotNull { other: 7 }));
            // Two calls cannot undo the same registration.
            let mut areas = with_nulls(before);
            assert!(areas.pop(0) && areas.pop(0) && !areas.pop(0));
            assert_eq!(
                areas.popped().map(|it| it.number).collect::<Vec<_>>(),
                [2, 0]
            );
            let twice = [(named(0), 1), (named(0), 2)];
            assert_eq!(areas.apply(&twice), Err(NotNull { other: 2 }));
        }
        // All pop NULL: the newest that can be NULL in both counts.
        let null = |number| Pop { number, null: true };
        assert_eq!(null(4).meet(null(1)), Some(null(1)));
        assert_eq!(null(1).meet(null(4)), Some(null(1)));
    }

    #[test]
    fn many_of_one_address_are_popped_one_by_one() {
        let mut areas = Areas::default();
        for bytes in 0..20_000 {
            areas.push(Area { bytes, ..A });
        }
        apply(&mut areas);
        for _ in 0..19_990 {
            assert!(areas.pop(A.start));
        }
        apply(&mut areas);
        assert_eq!(areas.find(A.start), Some(9));
        assert_eq!(areas.place(9, 9, 1), Err(Outside::Beyond(9)));
        assert_eq!(registered(&areas), 10);
        for _ in 0..10 {
            assert!(areas.pop(A.start));
        }
        assert!(!areas.pop(A.start));
        apply(&mut areas);
        assert!(registered(&areas) == 0 && areas.by_start.is_empty());
    }

    #[test]
    fn who_takes_no_part_has_no_place() {
        let mut areas = Areas::default();
        areas.push(Area { start: 0, bytes: 0 });
        apply(&mut areas);
        assert_eq!(areas.place(0, 0, 0), Err(Outside::Null));
    }
}
