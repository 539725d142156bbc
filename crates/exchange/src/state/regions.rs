//! The regions of this rank, by key.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Slab, Words};
use crate::values::{
    Admission, CounterId, OpError, RegionId, RegisterRefused, RemoteKey, Rights, Salt,
};

#[derive(Debug)]
pub(crate) struct Shared<K> {
    pub memory: K,
    /// Regions that lie in it.
    pub regions: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub key: RemoteKey,
    pub rights: Rights,
    /// Salt 0 does not name it.
    pub demands_salt: bool,
    pub memory: u64,
    /// Where it begins in the memory, and its bytes.
    pub start: u64,
    pub bytes: u64,
    /// Registrations of just this.
    pub count: u32,
    /// Accesses under way.
    pub uses: u32,
    /// Deregistered: nothing new is admitted.
    pub closing: bool,
}

/// Memory of a region where an access may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub region: u64,
    /// Where in the memory.
    pub at: u64,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Regions<K> {
    pub memories: Slab<Shared<K>>,
    pub regions: Slab<Region>,
    /// Those that admit accesses, by key.
    pub keys: BTreeMap<u64, u64>,
    pub max: usize,
    /// Keys and salts come from it.
    pub words: Words,
    pub forbidden: bool,
    /// What [`Salt::Default`] stands for.
    pub demand_salt: bool,
    /// What counts accesses of others, by region: which of them.
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

    /// A region's key and salt, or why there is none.
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

    /// Whether regions that are registered so demand their salt.
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

    /// Admits nothing any more.
    pub fn close_all(&mut self) {
        self.keys.clear();
        for region in self.regions.iter_mut() {
            region.closing = true;
            region.count = 1;
        }
    }

    /// Where an access to `bytes` bytes goes that asks for these rights.
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

    /// An access begins that ends later.
    pub fn enter(&mut self, region: u64) {
        if let Some(region) = self.regions.get_mut(region) {
            region.uses += 1;
        }
    }

    /// It is over.
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
