//! Registrations that stay when the program ends them: if it registers the same memory again,
//! it finds them, and others keep their key.

use std::collections::{BTreeMap, VecDeque};

use portolan_exchange::{Admission, RegionId};

/// Memory, and what others may do with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Its first address.
    pub start: usize,
    /// Its length.
    pub bytes: usize,
    /// Terms on which others access it.
    pub admission: Admission,
}

impl Extent {
    const fn overlaps(&self, start: usize, bytes: usize) -> bool {
        // No allocation wraps around.
        let own_end = self.start.saturating_add(self.bytes);
        start < own_end && self.start < start.saturating_add(bytes)
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    extent: Extent,
    /// Number of the program's registrations that have not ended.
    count: u32,
    /// To be closed with the last registration: its memory was forgotten.
    doomed: bool,
}

/// Result of ending a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The region stays.
    Kept,
    /// The region is to be closed: not in the cache, or its memory was forgotten.
    Close,
    /// The program has no registration of it.
    NotRegistered,
}

/// The cache of registrations.
#[derive(Debug, Default)]
pub struct Cache {
    entries: BTreeMap<RegionId, Entry>,
    /// Regions that may be found, by their memory.
    extents: BTreeMap<Extent, RegionId>,
    /// Regions without a registration of the program, the one that ended first at the front.
    idle: VecDeque<RegionId>,
    /// Regions to be closed once they are not being accessed.
    leaving: Vec<(RegionId, Extent)>,
    /// Maximum number of idle regions.
    max: usize,
}

impl Cache {
    pub fn new(max: usize) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Returns the region of this memory, and counts one more registration.
    pub fn find(&mut self, extent: &Extent) -> Option<RegionId> {
        let id = *self.extents.get(extent)?;
        self.count(id).then_some(id)
    }

    /// Counts one more registration of a region. False: it is not in the cache.
    pub fn count(&mut self, id: RegionId) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else {
            return false;
        };
        entry.count += 1;
        if entry.count == 1 {
            self.idle.retain(|it| *it != id);
        }
        true
    }

    /// Adds a region that was registered.
    pub fn insert(&mut self, extent: Extent, id: RegionId) {
        let entry = Entry {
            extent,
            count: 1,
            doomed: false,
        };
        self.entries.insert(id, entry);
        self.extents.insert(extent, id);
    }

    /// Ends one registration of the program.
    pub fn release(&mut self, id: RegionId) -> Released {
        let Some(entry) = self.entries.get_mut(&id) else {
            return Released::Close;
        };
        match entry.count {
            0 => return Released::NotRegistered,
            1 if entry.doomed => {
                self.entries.remove(&id);
                return Released::Close;
            }
            _ => entry.count -= 1,
        }
        if entry.count == 0 {
            self.idle.push_back(id);
            while self.idle.len() > self.max && self.evict() {}
        }
        Released::Kept
    }

    /// Evicts the idle region that ended first. False: there is none.
    pub fn evict(&mut self) -> bool {
        let Some(id) = self.idle.pop_front() else {
            return false;
        };
        if let Some(entry) = self.entries.remove(&id) {
            self.extents.remove(&entry.extent);
            self.leaving.push((id, entry.extent));
        }
        true
    }

    /// Makes none of these bytes found any more. Regions that they are in are to be closed:
    /// now, or with the program's last registration.
    pub fn forget(&mut self, start: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let (extents, leaving) = (&mut self.extents, &mut self.leaving);
        self.entries.retain(|id, entry| {
            if entry.doomed || !entry.extent.overlaps(start, bytes) {
                return true;
            }
            entry.doomed = true;
            extents.remove(&entry.extent);
            if entry.count == 0 {
                leaving.push((*id, entry.extent));
            }
            entry.count > 0
        });
        let entries = &self.entries;
        self.idle.retain(|id| entries.contains_key(id));
    }

    /// Whether a region that contains any of these bytes is still to be closed.
    pub fn is_leaving(&self, start: usize, bytes: usize) -> bool {
        let mut all = self.leaving.iter();
        all.any(|(_, extent)| extent.overlaps(start, bytes))
    }

    /// Whether regions are to be closed.
    pub const fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Closes the regions that are to be closed, and keeps those for which `close` returns
    /// false.
    pub fn close_leaving(&mut self, mut close: impl FnMut(RegionId) -> bool) {
        self.leaving.retain(|(id, _)| !close(*id));
    }
}

#[cfg(test)]
mod tests {
    use portolan_exchange::{Rights, Salt};

    use super::*;

    const fn at(start: usize, bytes: usize) -> Extent {
        Extent {
            start,
            bytes,
            admission: Rights::Both.with(Salt::Default),
        }
    }

    fn filled(max: usize, count: u64) -> Cache {
        let mut cache = Cache::new(max);
        for i in 0..count {
            cache.insert(at(i as usize * 100, 100), RegionId(i));
        }
        cache
    }

    fn leaving(cache: &mut Cache) -> Vec<RegionId> {
        let mut all = Vec::new();
        cache.close_leaving(|id| {
            all.push(id);
            true
        });
        all
    }

    #[test]
    fn what_ended_last_stays() {
        let mut cache = filled(2, 4);
        assert_eq!(cache.find(&at(0, 100)), Some(RegionId(0)));
        assert_eq!(cache.find(&at(0, 99)), None);
        for admission in [Rights::Get.into(), Rights::Both.with(Salt::Any)] {
            let other = Extent {
                admission,
                ..at(0, 100)
            };
            assert_eq!(cache.find(&other), None);
        }
        for i in [0, 1, 2] {
            assert_eq!(cache.release(RegionId(i)), Released::Kept);
        }
        // One registration of the first is left.
        assert!(leaving(&mut cache).is_empty());
        assert_eq!(cache.release(RegionId(0)), Released::Kept);
        assert_eq!(leaving(&mut cache), [RegionId(1)]);
        assert_eq!(cache.release(RegionId(0)), Released::NotRegistered);
        assert_eq!(cache.release(RegionId(1)), Released::Close);
        assert_eq!(cache.find(&at(100, 100)), None);
        // A region that is found is not idle any more.
        assert_eq!(cache.find(&at(200, 100)), Some(RegionId(2)));
        for i in [3, 2] {
            assert_eq!(cache.release(RegionId(i)), Released::Kept);
        }
        assert_eq!(leaving(&mut cache), [RegionId(0)]);
        assert!(cache.evict() && cache.evict() && !cache.evict());
        assert_eq!(leaving(&mut cache), [RegionId(3), RegionId(2)]);
        assert!(cache.entries.is_empty() && cache.extents.is_empty());
    }

    #[test]
    fn what_is_forgotten_is_found_no_more() {
        let mut cache = filled(9, 4);
        assert_eq!(cache.release(RegionId(0)), Released::Kept);
        assert_eq!(cache.release(RegionId(3)), Released::Kept);
        // One byte of two neighbours; nothing of the third, and nothing at all.
        cache.forget(99, 2);
        cache.forget(250, 0);
        assert!(cache.is_leaving(0, 1) && !cache.is_leaving(100, 900));
        assert_eq!(leaving(&mut cache), [RegionId(0)]);
        assert_eq!(cache.find(&at(0, 100)), None);
        assert_eq!(cache.find(&at(100, 100)), None);
        assert_eq!(cache.find(&at(200, 100)), Some(RegionId(2)));
        // The second is still in use, and another region may take its place.
        cache.insert(at(100, 100), RegionId(7));
        assert_eq!(cache.release(RegionId(1)), Released::Close);
        assert_eq!(cache.find(&at(100, 100)), Some(RegionId(7)));
        // A region that was evicted is still being accessed.
        assert!(cache.evict());
        cache.close_leaving(|_| false);
        cache.forget(300, 1);
        assert!(cache.is_leaving(399, 1) && !cache.is_leaving(400, 1));
        assert_eq!(leaving(&mut cache), [RegionId(3)]);
        assert!(!cache.is_leaving(399, 1));
    }
}
