//! Registered areas. Registration is collective: the n-th area that any process pushes is
//! the n-th of all others, so a *slot*, its number, names it between them.

use std::collections::{BTreeMap, HashMap};

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
    pub pushes: u32,
    pub pops: u32,
    /// Differs, mostly, where other areas were popped.
    pub popped: u64,
}

#[derive(Debug, Default)]
pub struct Areas {
    slots: BTreeMap<u32, Area>,
    /// Slots of each address, the newest last.
    by_start: HashMap<usize, Vec<u32>>,
    next: u32,
    /// What takes effect at the end of the superstep.
    pushed: Vec<Area>,
    popped: Vec<u32>,
    /// The last that was looked for.
    recent: Option<(usize, u32)>,
}

impl Areas {
    /// Registers an area at the end of the superstep.
    pub fn push(&mut self, area: Area) {
        self.pushed.push(area);
    }

    /// Undoes the newest registration of an address that was not undone, at the end of the
    /// superstep; false if there is none.
    pub fn pop(&mut self, start: usize) -> bool {
        if let Some(at) = self.pushed.iter().rposition(|area| area.start == start) {
            self.pushed.remove(at);
            return true;
        }
        let slots = self.by_start.get(&start);
        let newest = slots.and_then(|slots| {
            let mut left = slots
                .iter()
                .rev()
                .filter(|slot| !self.popped.contains(slot));
            left.next().copied()
        });
        self.popped.extend(newest);
        newest.is_some()
    }

    /// The newest area at an address.
    pub fn find(&mut self, start: usize) -> Option<u32> {
        if let Some((known, slot)) = self.recent
            && known == start
        {
            return Some(slot);
        }
        let slot = *self.by_start.get(&start)?.last()?;
        self.recent = Some((start, slot));
        Some(slot)
    }

    /// Whether an address is registered from the end of this superstep on.
    pub fn is_pushed(&self, start: usize) -> bool {
        self.pushed.iter().any(|area| area.start == start)
    }

    /// The memory of `bytes` bytes from `offset` on in an area.
    pub fn place(&self, slot: u32, offset: u64, bytes: u64) -> Result<*mut u8, Outside> {
        let area = self.slots.get(&slot).ok_or(Outside::Unknown)?;
        if area.start == 0 {
            return Err(Outside::Null);
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= area.bytes => {
                // Below the area's size, which is memory's.
                Ok((area.start as *mut u8).wrapping_add(offset as usize))
            }
            _ => Err(Outside::Beyond(area.bytes)),
        }
    }

    pub fn changes(&self) -> Changes {
        let mix = |sum: u64, slot: &u32| {
            let it = u64::from(*slot) + 1;
            sum.wrapping_add(it.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        };
        Changes {
            // More does not fit memory.
            pushes: self.pushed.len() as u32,
            pops: self.popped.len() as u32,
            popped: self.popped.iter().fold(0, mix),
        }
    }

    /// The superstep has ended.
    pub fn apply(&mut self) {
        if self.pushed.is_empty() && self.popped.is_empty() {
            return;
        }
        self.recent = None;
        for slot in self.popped.drain(..) {
            let Some(area) = self.slots.remove(&slot) else {
                continue;
            };
            if let Some(slots) = self.by_start.get_mut(&area.start) {
                slots.retain(|other| *other != slot);
                if slots.is_empty() {
                    self.by_start.remove(&area.start);
                }
            }
        }
        for area in self.pushed.drain(..) {
            let slot = self.next;
            self.next = self.next.wrapping_add(1);
            self.slots.insert(slot, area);
            self.by_start.entry(area.start).or_default().push(slot);
        }
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
        assert!(areas.slots.is_empty() && areas.by_start.is_empty());
    }

    #[test]
    fn a_push_and_a_pop_cancel() {
        let mut areas = Areas::default();
        areas.push(A);
        areas.apply();
        areas.push(Area { bytes: 8, ..A });
        assert!(areas.pop(A.start));
        assert_eq!(areas.changes(), Changes::default());
        // The one of before.
        assert!(areas.pop(A.start));
        assert_eq!(areas.changes().pops, 1);
        areas.apply();
        assert_eq!(areas.find(A.start), None);
    }

    #[test]
    fn who_takes_no_part_has_no_place() {
        let mut areas = Areas::default();
        areas.push(Area { start: 0, bytes: 0 });
        areas.apply();
        assert_eq!(areas.place(0, 0, 0), Err(Outside::Null));
    }
}
