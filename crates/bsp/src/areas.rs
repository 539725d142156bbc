//! Registered areas. Registration is collective: all processes push and pop alike, so a
//! *slot*, the number that an area gets, names it between them.

use std::collections::HashMap;

/// Memory that a process has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its address; 0 where the process takes no part.
    pub start: usize,
    pub bytes: u64,
}

/// What a superstep changes, as all processes must have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Calls, also of those that cancel.
    pub pushes: u32,
    pub pops: u32,
    /// Differs, mostly, where other areas were popped.
    pub popped: u64,
}

impl Changes {
    fn add_pop(&mut self, what: u64) {
        self.pops = self.pops.wrapping_add(1);
        let bits = (what + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.popped = (self.popped ^ bits).rotate_left(9);
    }
}

/// Areas that are found without a search.
const RECENT: usize = 8;

#[derive(Debug, Default)]
pub struct Areas {
    slots: Vec<Option<Area>>,
    /// Those that are free, the last that became so last.
    free: Vec<u32>,
    /// Slots of each address, the newest last.
    by_start: HashMap<usize, Vec<u32>>,
    /// What takes effect at the end of the superstep; of pushes also which of its calls
    /// they were.
    pushed: Vec<(u32, Area)>,
    popped: Vec<u32>,
    /// How many of those are of an address.
    popped_at: HashMap<usize, usize>,
    changes: Changes,
    /// What was looked for last, by some bits of the address.
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
            self.pushed.push((self.changes.pushes, area));
            self.changes.pushes = self.changes.pushes.wrapping_add(1);
        }
        room
    }

    /// Undoes the newest registration of an address that was not undone, at the end of the
    /// superstep; false if there is none.
    pub fn pop(&mut self, start: usize) -> bool {
        let is_it = |(_, area): &(u32, Area)| area.start == start;
        if let Some(at) = self.pushed.iter().rposition(is_it) {
            let (call, _) = self.pushed.remove(at);
            self.changes
                .add_pop(u64::from(call) << 32 | u64::from(u32::MAX));
            return true;
        }
        let gone = self.popped_at.entry(start).or_default();
        let slots = self.by_start.get(&start).map_or(&[][..], |slots| slots);
        let newest = slots.iter().rev().nth(*gone).copied();
        if let Some(slot) = newest {
            *gone += 1;
            self.popped.push(slot);
            self.changes.add_pop(slot.into());
        }
        newest.is_some()
    }

    /// The newest area at an address.
    #[inline]
    pub fn find(&mut self, start: usize) -> Option<u32> {
        // Arrays of one size lie a multiple of it apart.
        let at = (start >> 4 ^ start >> 12 ^ start >> 20) % RECENT;
        match self.recent[at] {
            Some((known, slot)) if known == start => Some(slot),
            _ => self.search(start, at),
        }
    }

    #[cold]
    fn search(&mut self, start: usize, at: usize) -> Option<u32> {
        let slot = *self.by_start.get(&start)?.last()?;
        self.recent[at] = Some((start, slot));
        Some(slot)
    }

    /// Whether an address is registered from the end of this superstep on.
    pub fn is_pushed(&self, start: usize) -> bool {
        self.pushed.iter().any(|(_, area)| area.start == start)
    }

    /// The memory of `bytes` bytes from `offset` on in an area.
    #[inline]
    pub fn place(&self, slot: u32, offset: u64, bytes: u64) -> Result<*mut u8, Outside> {
        place(&self.slots, slot, offset, bytes)
    }

    /// The memory of an area, and how many bytes it has.
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

    /// The superstep has ended; true if it leaves other areas.
    pub fn apply(&mut self) -> bool {
        self.changes = Changes::default();
        if self.pushed.is_empty() && self.popped.is_empty() {
            return false;
        }
        self.recent = [None; RECENT];
        self.popped_at.clear();
        for slot in self.popped.drain(..) {
            let Some(area) = self.slots[slot as usize].take() else {
                continue;
            };
            self.free.push(slot);
            if let Some(slots) = self.by_start.get_mut(&area.start) {
                // They were popped from the newest on.
                slots.pop();
                if slots.is_empty() {
                    self.by_start.remove(&area.start);
                }
            }
        }
        for (_, area) in self.pushed.drain(..) {
            let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
            if slot as usize == self.slots.len() {
                self.slots.push(None);
            }
            self.slots[slot as usize] = Some(area);
            self.by_start.entry(area.start).or_default().push(slot);
        }
        true
    }
}

/// The memory of `bytes` bytes from `offset` on in one of these areas.
#[inline]
pub fn place(
    areas: &[Option<Area>],
    slot: u32,
    offset: u64,
    bytes: u64,
) -> Result<*mut u8, Outside> {
    let (start, size) = whole(areas, slot)?;
    match offset.checked_add(bytes) {
        // Below the area's size, which is memory's.
        Some(end) if end <= size => Ok(start.wrapping_add(offset as usize)),
        _ => Err(Outside::Beyond(size)),
    }
}

/// The memory of one of these areas, and how many bytes it has.
#[inline]
fn whole(areas: &[Option<Area>], slot: u32) -> Result<(*mut u8, u64), Outside> {
    match areas.get(slot as usize) {
        Some(Some(Area { start: 0, .. })) => Err(Outside::Null),
        Some(Some(area)) => Ok((area.start as *mut u8, area.bytes)),
        _ => Err(Outside::Unknown),
    }
}

/// Why there is no such place.
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

    #[test]
    fn changes_take_effect_at_the_end_and_the_newest_wins() {
        let mut areas = Areas::default();
        areas.push(A);
        assert_eq!(areas.find(A.start), None);
        assert!(areas.is_pushed(A.start));
        areas.apply();
        assert_eq!(areas.find(A.start), Some(0));
        areas.push(Area { bytes: 8, ..A });
        areas.apply();
        assert_eq!(areas.find(A.start), Some(1));
        assert_eq!(areas.place(1, 8, 1), Err(Outside::Beyond(8)));
        assert_eq!(areas.place(1, u64::MAX, 8), Err(Outside::Beyond(8)));
        assert_eq!(areas.place(0, 8, 8), Ok(0x1008 as *mut u8));
        assert!(areas.pop(A.start));
        // Usable until then.
        assert_eq!(areas.find(A.start), Some(1));
        areas.apply();
        assert_eq!(areas.find(A.start), Some(0));
        assert_eq!(areas.place(1, 0, 1), Err(Outside::Unknown));
        assert!(areas.pop(A.start) && !areas.pop(A.start));
        areas.apply();
        assert_eq!(areas.find(A.start), None);
        assert!(registered(&areas) == 0 && areas.by_start.is_empty());
        // Numbers are used again.
        areas.push(A);
        areas.apply();
        assert!(areas.find(A.start).is_some() && areas.slots.len() == 2);
    }

    fn registered(areas: &Areas) -> usize {
        areas.slots.iter().flatten().count()
    }

    #[test]
    fn a_push_and_a_pop_cancel() {
        let mut areas = Areas::default();
        areas.push(A);
        areas.apply();
        areas.push(Area { bytes: 8, ..A });
        assert!(areas.pop(A.start));
        let changes = areas.changes();
        assert_eq!((changes.pushes, changes.pops), (1, 1));
        // The one of before.
        assert!(areas.pop(A.start));
        assert_eq!(areas.changes().pops, 2);
        areas.apply();
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
                areas.apply();
            }
            assert!(areas.pop(A.start));
            areas.changes()
        };
        for before in [false, true] {
            assert_ne!(popped([A, other], before), popped([A, A], before));
            assert_ne!(popped([A, other], before), popped([other, A], before));
        }
    }

    #[test]
    fn many_of_one_address_are_popped_one_by_one() {
        let mut areas = Areas::default();
        for bytes in 0..20_000 {
            areas.push(Area { bytes, ..A });
        }
        areas.apply();
        for _ in 0..19_990 {
            assert!(areas.pop(A.start));
        }
        areas.apply();
        assert_eq!(areas.find(A.start), Some(9));
        assert_eq!(areas.place(9, 9, 1), Err(Outside::Beyond(9)));
        assert_eq!(registered(&areas), 10);
        for _ in 0..10 {
            assert!(areas.pop(A.start));
        }
        assert!(!areas.pop(A.start));
        areas.apply();
        assert!(registered(&areas) == 0 && areas.by_start.is_empty());
    }

    #[test]
    fn who_takes_no_part_has_no_place() {
        let mut areas = Areas::default();
        areas.push(Area { start: 0, bytes: 0 });
        areas.apply();
        assert_eq!(areas.place(0, 0, 0), Err(Outside::Null));
    }
}
