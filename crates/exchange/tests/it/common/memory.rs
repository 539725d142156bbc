//! Regions as plain bytes, and what each access to them must give.

use std::collections::{BTreeMap, BTreeSet};

use super::lies_in_hole;
use portolan_exchange::{OpError, Place, RegionId, RemoteKey, Rights};

#[derive(Clone, Debug)]
pub struct PlainRegion {
    pub rank: u32,
    pub id: RegionId,
    pub key: RemoteKey,
    pub rights: Rights,
    pub memory: usize,
    pub start: u64,
    pub bytes: u64,
    pub count: u32,
    pub uses: u32,
    /// Accesses are admitted.
    pub open: bool,
    /// Its memory is not the exchange's any more.
    pub gone: bool,
}

#[derive(Debug, Default)]
pub struct Plain {
    pub memories: Vec<Vec<u8>>,
    /// Memories with a hole.
    pub holes: BTreeSet<usize>,
    pub regions: Vec<PlainRegion>,
}

impl Plain {
    pub fn taken(&self, rank: u32, key: u64) -> Option<usize> {
        let is = |r: &PlainRegion| r.rank == rank && r.open && r.key.key() == key;
        self.regions.iter().position(is)
    }

    /// Region and place in its memory.
    pub fn check(
        &self,
        rank: u32,
        key: RemoteKey,
        offset: u64,
        bytes: u64,
        asked: Rights,
    ) -> Result<(usize, usize), OpError> {
        let at = self.taken(rank, key.key()).ok_or(OpError::BadKey)?;
        let region = &self.regions[at];
        if key != region.key && key != RemoteKey::any(key.key()) {
            return Err(OpError::BadKey);
        }
        let fits = match asked {
            Rights::None => true,
            Rights::Get => matches!(region.rights, Rights::Get | Rights::Both),
            Rights::Put => matches!(region.rights, Rights::Put | Rights::Both),
            Rights::Both => region.rights == Rights::Both,
        };
        if !fits {
            return Err(OpError::NotPermitted);
        }
        if u128::from(offset) + u128::from(bytes) > u128::from(region.bytes) {
            return Err(OpError::OutOfBounds);
        }
        Ok((at, (region.start + offset) as usize))
    }

    pub fn write(&mut self, region: usize, at: usize, bytes: &[u8]) {
        let memory = &mut self.memories[self.regions[region].memory];
        memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Some of these bytes lie in a hole.
    pub fn lacks(&self, region: usize, at: usize, bytes: usize) -> Result<(), OpError> {
        let holed = self.holes.contains(&self.regions[region].memory);
        if holed && lies_in_hole(at, bytes) {
            return Err(OpError::OutOfBounds);
        }
        Ok(())
    }

    pub fn read(&self, region: usize, at: usize, bytes: usize) -> &[u8] {
        &self.memories[self.regions[region].memory][at..at + bytes]
    }

    /// An atomic operation on elements that lie at multiples of `aligned`; gives what was
    /// there.
    pub fn change(
        &mut self,
        rank: u32,
        place: Place,
        bytes: usize,
        rights: Rights,
        aligned: u64,
        new: impl FnOnce(&[u8]) -> Vec<u8>,
    ) -> Result<Vec<u8>, OpError> {
        let Place { key, offset } = place;
        let (region, at) = self.check(rank, key, offset, bytes as u64, rights)?;
        if !offset.is_multiple_of(aligned) {
            return Err(OpError::Unaligned);
        }
        self.lacks(region, at, bytes)?;
        let found = self.read(region, at, bytes).to_vec();
        self.write(region, at, &new(&found));
        Ok(found)
    }

    /// Regions that lie in a memory.
    pub fn sharers(&self, memory: usize) -> usize {
        let all = self.regions.iter();
        all.filter(|r| r.memory == memory && !r.gone).count()
    }
}

/// What is known of a rank's one-sided operations by what has arrived.
#[derive(Debug, Default)]
pub struct Faults(BTreeMap<(u32, u32), OpError>);

impl Faults {
    pub fn note(&mut self, from: u32, to: u32, why: OpError) {
        self.0.entry((from, to)).or_insert(why);
    }

    pub fn take(&mut self, from: u32, to: u32) -> Result<(), OpError> {
        self.0.remove(&(from, to)).map_or(Ok(()), Err)
    }
}
