//! Memory of this rank that others may reach into, by key.

use super::Exchange;
use crate::state::{Region, RegionMemory};
use crate::values::{
    Admission, CounterId, DeregisterRefused, Opened, RegionId, RegisterRefused, RemoteKey, Rights,
    Sink, Source,
};

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Lets other ranks reach into memory, under a key that the program chooses, or that is chosen
    /// for it (`None`), and on the program's terms. Accesses name bytes by their offset from the
    /// memory's first.
    ///
    /// # Errors
    /// [`RegisterRefused`], with the memory: [`RegisterRefused::Forbidden`],
    /// [`RegisterRefused::Full`] or [`RegisterRefused::KeyTaken`].
    pub fn register(
        &mut self,
        memory: K,
        key: Option<u64>,
        admission: impl Into<Admission>,
    ) -> Result<RegionId, (RegisterRefused, K)> {
        let key = match self.regions.new_key(key) {
            Ok(key) => key,
            Err(why) => return Err((why, memory)),
        };
        let bytes = memory.len();
        let memory = (self.regions.memories).insert(RegionMemory { memory, regions: 1 });
        let admission = admission.into();
        Ok(self.regions.open(key, admission, memory, 0, bytes))
    }

    /// Registers memory of a region again: `bytes` bytes from `start` of that region on, with a
    /// key and terms of their own. If key, extent and terms are those of a region of this memory,
    /// that region is returned and has to be deregistered once more.
    ///
    /// # Errors
    /// [`RegisterRefused`]; nothing was registered.
    pub fn register_again(
        &mut self,
        of: RegionId,
        start: u64,
        bytes: u64,
        key: Option<u64>,
        admission: impl Into<Admission>,
    ) -> Result<RegionId, RegisterRefused> {
        let admission = admission.into();
        let all = &mut self.regions;
        let of = *all.opened(of).ok_or(RegisterRefused::NoSuchRegion)?;
        if start.checked_add(bytes).is_none_or(|end| end > of.bytes) {
            return Err(RegisterRefused::OutOfBounds);
        }
        let start = of.start + start;
        let demands_salt = all.demands(admission.salt);
        if let Some(number) = key.and_then(|key| all.keys.get(&key).copied())
            && let Some(there) = all.regions.get_mut(number)
            && (there.memory, there.start, there.bytes) == (of.memory, start, bytes)
            && (there.rights, there.demands_salt) == (admission.rights, demands_salt)
        {
            if all.forbidden {
                return Err(RegisterRefused::Forbidden);
            }
            there.count += 1;
            return Ok(RegionId(number));
        }
        let key = all.new_key(key)?;
        if let Some(shared) = all.memories.get_mut(of.memory) {
            shared.regions += 1;
        }
        Ok(all.open(key, admission, of.memory, start, bytes))
    }

    /// The name of a region to other ranks; `None` if it is not open.
    #[must_use]
    pub fn remote_key(&self, region: RegionId) -> Option<RemoteKey> {
        self.regions.opened(region).map(|region| region.key)
    }

    /// A region, if it is open.
    pub fn opened(&mut self, region: RegionId) -> Option<Opened<'_, K>> {
        let Region {
            key,
            rights,
            demands_salt,
            memory,
            start,
            bytes,
            count,
            ..
        } = *self.regions.opened(region)?;
        let memory = self.regions.memories.get_mut(memory)?;
        Some(Opened {
            key,
            rights,
            demands_salt,
            memory: &mut memory.memory,
            start,
            bytes,
            count,
        })
    }

    /// Has a counter count accesses to a region that succeed from now on: those that read, write,
    /// or both, as `what` says. An atomic operation that fetches does both, and counts once.
    /// False: no such region.
    ///
    /// The caller must see to it that others access the region by messages only.
    pub fn count_accesses(&mut self, region: RegionId, what: Rights, counter: CounterId) -> bool {
        if self.regions.opened(region).is_none() {
            return false;
        }
        let counted = self.regions.counted.entry(region.0).or_default();
        match counted.iter_mut().find(|(it, _)| *it == counter) {
            Some((_, before)) => *before = before.or(what),
            None => counted.push((counter, what)),
        }
        true
    }

    /// Counts a successful access to a region.
    pub(crate) fn accessed(&mut self, region: u64, did: Rights) {
        let counted = self.regions.counted.get(&region);
        for (CounterId(at), what) in counted.into_iter().flatten() {
            if what.meet(did)
                && let Some(Some(count)) = self.ops.counters.get_mut(*at as usize)
            {
                count.done += 1;
            }
        }
    }

    /// The memory that a region lies in, while it is registered.
    #[must_use]
    pub fn region_memory(&self, region: RegionId) -> Option<&K> {
        self.regions.memory(region.0)
    }

    /// Undoes one registration of a region. The last one closes it: its key is free at once, and
    /// accesses that begin to arrive end with [`crate::OpError::BadKey`]. The memory is returned
    /// with its last region; `None`: other regions still lie in it, or this one is still
    /// registered.
    ///
    /// # Errors
    /// - [`DeregisterRefused::InUse`]: the region is closed, but is still read or written: call
    ///   again after progress.
    /// - [`DeregisterRefused::NoSuchRegion`].
    pub fn deregister(&mut self, region: RegionId) -> Result<Option<K>, DeregisterRefused> {
        self.shut(region);
        let all = &mut self.regions;
        let it = (all.regions.get_mut(region.0)).ok_or(DeregisterRefused::NoSuchRegion)?;
        if it.count > 1 {
            it.count -= 1;
            return Ok(None);
        }
        if it.uses > 0 {
            return Err(DeregisterRefused::InUse(it.uses));
        }
        let memory = it.memory;
        all.regions.remove(region.0);
        all.counted.remove(&region.0);
        if let Some(shared) = all.memories.get_mut(memory) {
            shared.regions -= 1;
            if shared.regions == 0 {
                return Ok(all.memories.remove(memory).map(|shared| shared.memory));
            }
        }
        Ok(None)
    }

    /// First half of [`Exchange::deregister`]: if this is the last registration, no access is
    /// admitted any more.
    pub fn shut(&mut self, RegionId(number): RegionId) {
        let all = &mut self.regions;
        if let Some(region) = all.regions.get_mut(number)
            && region.count == 1
            && !region.closing
        {
            region.closing = true;
            all.keys.remove(&region.key.key);
        }
    }

    /// Forbids one-sided access to this rank: nothing can be registered, and accesses that begin
    /// to arrive end with [`crate::OpError::Forbidden`].
    pub const fn forbid(&mut self) {
        self.regions.forbidden = true;
    }
}
