//! The regions of this rank, by key.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Slab, Words};
use crate::values::{
    Admission, CounterId, OpError, RegionId, RegisterRefused, RemoteKey, Rights, Salt,
};

#[derive(Debug)]
pub(crate) struct RegionMemory<K> {
    pub memory: K,
    /// Number of regions that lie in the memory.
    pub regions: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub key: RemoteKey,
    pub rights: Rights,
    /// Salt 0 does not match.
    pub demands_salt: bool,
    pub memory: u64,
    /// Offset in the memory, and length, bytes.
    pub start: u64,
    pub bytes: u64,
    /// Number of registrations.
    pub count: u32,
    /// Number of accesses in flight.
    pub uses: u32,
    /// Deregistered: nothing new is admitted.
    pub closing: bool,
}

/// Checked place of an access in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub region: u64,
    /// Offset in the memory, bytes.
    pub at: u64,
}

/// All regions of this rank.
#[derive(Debug)]
pub(crate) struct Regions<K> {
    pub memories: Slab<RegionMemory<K>>,
    pub regions: Slab<Region>,
    /// Numbers of regions that admit accesses, by key.
    pub keys: BTreeMap<u64, u64>,
    pub max: usize,
    /// Source of keys and salts.
    pub words: Words,
    pub forbidden: bool,
    /// Whether [`Salt::Default`] demands the salt.
    pub demand_salt: bool,
    /// Counters of others' accesses by region, and which accesses they count.
    pub counted: BTreeMap<u64, Vec<(CounterId, Rights)>>,
}

impl<K> Regions<K> {
    pub fn new(max: u32, demand_salt: bool, words: Words) -> Self {
        Self {
            memories: Slab::new(),
            regions: Slab::new(),
            keys: BTreeMap::new(),
            max: max as usize,
            words,
            forbidden: false,
            demand_salt,
            counted: BTreeMap::new(),
        }
    }

    pub const fn len(&self) -> usize {
        self.regions.len()
    }

    pub fn uses(&self) -> u64 {
        let all = self.regions.iter();
        all.map(|(_, region)| u64::from(region.uses)).sum()
    }

    /// Returns key and salt for a new region (P13.11).
    pub fn new_key(&mut self, key: Option<u64>) -> Result<RemoteKey, RegisterRefused> {
        if self.forbidden {
            return Err(RegisterRefused::Forbidden);
        }
        if self.regions.len() >= self.max {
            return Err(RegisterRefused::Full);
        }
        let taken = |key| self.keys.contains_key(&key);
        let key = match key {
            Some(key) if taken(key) => return Err(RegisterRefused::KeyTaken),
            Some(key) => key,
            None => loop {
                let key = self.words.draw();
                if !taken(key) {
                    break key;
                }
            },
        };
        let salt = self.words.draw();
        Ok(RemoteKey { key, salt })
    }

    pub fn open(
        &mut self,
        key: RemoteKey,
        admission: Admission,
        memory: u64,
        start: u64,
        bytes: u64,
    ) -> RegionId {
        let number = self.regions.insert(Region {
            key,
            rights: admission.rights,
            demands_salt: self.demands(admission.salt),
            memory,
            start,
            bytes,
            count: 1,
            uses: 0,
            closing: false,
        });
        self.keys.insert(key.key, number);
        RegionId(number)
    }

    /// Whether a region registered with `salt` demands its salt.
    pub const fn demands(&self, salt: Salt) -> bool {
        match salt {
            Salt::Default => self.demand_salt,
            Salt::Demanded => true,
            Salt::Any => false,
        }
    }

    pub fn opened(&self, RegionId(number): RegionId) -> Option<&Region> {
        self.regions.get(number).filter(|region| !region.closing)
    }

    /// Closes all regions: no new access is admitted.
    pub fn close_all(&mut self) {
        self.keys.clear();
        for region in self.regions.iter_mut() {
            region.closing = true;
            region.count = 1;
        }
    }

    /// Checks an access to `bytes` bytes that needs `rights`; returns where it goes.
    /// (P13.10, P13.12)
    pub fn check(
        &self,
        key: RemoteKey,
        offset: u64,
        bytes: u64,
        rights: Rights,
    ) -> Result<Spot, OpError> {
        if self.forbidden {
            return Err(OpError::Forbidden);
        }
        let number = *self.keys.get(&key.key).ok_or(OpError::BadKey)?;
        let region = self.regions.get(number).ok_or(OpError::BadKey)?;
        let is_meant = match key.salt {
            0 => !region.demands_salt,
            salt => salt == region.key.salt,
        };
        if !is_meant {
            return Err(OpError::BadKey);
        }
        if !region.rights.allow(rights) {
            return Err(OpError::NotPermitted);
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= region.bytes => Ok(Spot {
                region: number,
                at: region.start + offset,
            }),
            _ => Err(OpError::OutOfBounds),
        }
    }

    /// Counts an access that ends later, by [`Self::leave`].
    pub fn enter(&mut self, region: u64) {
        if let Some(region) = self.regions.get_mut(region) {
            region.uses += 1;
        }
    }

    /// Ends an access that [`Self::enter`] counted.
    pub fn leave(&mut self, region: u64) {
        if let Some(region) = self.regions.get_mut(region) {
            region.uses -= 1;
        }
    }

    /// The memory that a region lies in.
    pub fn memory(&self, region: u64) -> Option<&K> {
        let region = self.regions.get(region)?;
        (self.memories.get(region.memory)).map(|shared| &shared.memory)
    }

    /// The memory that a region lies in.
    pub fn memory_mut(&mut self, region: u64) -> Option<&mut K> {
        let region = self.regions.get(region)?;
        (self.memories.get_mut(region.memory)).map(|shared| &mut shared.memory)
    }
}
