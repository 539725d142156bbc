//! Memory of this rank that others may reach into, by key.

use alloc::collections::BTreeMap;
use core::fmt;

use crate::exchange::Exchange;
use crate::memory::{Sink, Source};
use crate::ops::OpError;
use crate::slab::Slab;

/// What others may do with a region; nothing by default. Atomic operations
/// need [`Rights::Both`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rights {
    /// Nothing.
    #[default]
    None,
    /// Read it.
    Get,
    /// Write it.
    Put,
    /// Read and write it.
    Both,
}

impl Rights {
    /// Whether others may read.
    #[must_use]
    pub const fn allow_get(self) -> bool {
        matches!(self, Self::Get | Self::Both)
    }

    /// Whether others may write.
    #[must_use]
    pub const fn allow_put(self) -> bool {
        matches!(self, Self::Put | Self::Both)
    }

    const fn allow(self, asked: Self) -> bool {
        (self.allow_get() || !asked.allow_get()) && (self.allow_put() || !asked.allow_put())
    }
}

/// Names a region of this rank until it is deregistered; never another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u64);

/// Names a region to other ranks: its key, and a word that no other region
/// under that key has, neither before nor after it. Programs tell it each other
/// as 16 opaque bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RemoteKey {
    pub(crate) key: u64,
    /// 0: whatever region has the key.
    pub(crate) salt: u64,
}

impl RemoteKey {
    /// Whatever region is registered under a key at the moment of the access:
    /// for programs that agree on keys beforehand and tell each other none. A
    /// region that took the key over from another is reached by it too.
    #[must_use]
    pub const fn any(key: u64) -> Self {
        Self { key, salt: 0 }
    }

    /// The key that was chosen when the region was registered.
    #[must_use]
    pub const fn key(&self) -> u64 {
        self.key
    }

    /// One word for all of it, by which a table in shared memory may name the
    /// region; `None` for [`RemoteKey::any`].
    #[must_use]
    pub fn in_table(&self) -> Option<u64> {
        (self.salt != 0).then(|| mixed(self.key) ^ self.salt)
    }

    /// As it is told to others.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 16] {
        (u128::from(self.salt) << 64 | u128::from(self.key)).to_le_bytes()
    }

    /// From [`RemoteKey::to_bytes`]. Any bytes give a key, perhaps of no region.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self {
            key: both as u64,
            salt: (both >> 64) as u64,
        }
    }
}

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum RegisterError {
    /// One-sided access is forbidden here: see [`Exchange::forbid`].
    #[error(
        "one-sided access is forbidden here: by the program, or by no_one_sided in the host's \
         node.conf"
    )]
    Forbidden,
    /// The key names another region.
    #[error("the key names another region")]
    KeyTaken,
    /// As many regions are open as the configuration allows: deregister one.
    #[error("no more regions can be registered")]
    Full,
    /// The part does not lie in the memory.
    #[error("the part does not lie in the memory")]
    OutOfBounds,
    /// The region whose memory was meant is not open.
    #[error("there is no such region")]
    NoSuchRegion,
}

/// Why a region was not deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum DeregisterError {
    /// So many accesses are under way. No new one is admitted: call again when
    /// progress was made.
    #[error(fmt = in_use)]
    InUse(u32),
    /// There is none, or no longer.
    #[error("there is no such region")]
    NoSuchRegion,
}

fn in_use(accesses: &u32, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match accesses {
        1 => f.write_str("an access to the region is under way"),
        n => write!(f, "{n} accesses to the region are under way"),
    }
}

#[derive(Debug)]
struct Shared<K> {
    memory: K,
    /// Regions that lie in it.
    regions: u32,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    key: RemoteKey,
    rights: Rights,
    memory: u64,
    /// Where it begins in the memory, and its bytes.
    start: u64,
    bytes: u64,
    /// Registrations of just this.
    count: u32,
    /// Accesses under way.
    uses: u32,
    /// Deregistered: nothing new is admitted.
    closing: bool,
}

/// A region that is open, as it was registered.
#[derive(Debug)]
pub struct Opened<'a, K> {
    /// What others name it by.
    pub key: RemoteKey,
    /// What they may do.
    pub rights: Rights,
    /// The memory that it lies in...
    pub memory: &'a mut K,
    /// ...where it begins there...
    pub start: u64,
    /// ...and how many bytes it has.
    pub bytes: u64,
    /// How often it is registered: by so many calls of
    /// [`Exchange::deregister`] it is closed.
    pub count: u32,
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
    memories: Slab<Shared<K>>,
    regions: Slab<Region>,
    /// Those that admit accesses, by key.
    keys: BTreeMap<u64, u64>,
    max: usize,
    secret: u64,
    made: u64,
    forbidden: bool,
}

/// `SplitMix64`'s last step: different numbers stay different.
const fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl<K> Regions<K> {
    pub const fn new(max: u32, secret: u64) -> Self {
        Self {
            memories: Slab::new(),
            regions: Slab::new(),
            keys: BTreeMap::new(),
            max: max as usize,
            secret,
            made: 0,
            forbidden: false,
        }
    }

    pub const fn len(&self) -> usize {
        self.regions.len()
    }

    pub fn uses(&self) -> u64 {
        let all = self.regions.iter();
        all.map(|(_, region)| u64::from(region.uses)).sum()
    }

    /// Never 0, and never twice.
    pub fn salt(&mut self) -> u64 {
        loop {
            self.made += 1;
            let salt = mixed(self.secret.wrapping_add(self.made));
            if salt != 0 {
                return salt;
            }
        }
    }

    /// A region's key and salt, or why there is none.
    fn new_key(&mut self, key: Option<u64>) -> Result<RemoteKey, RegisterError> {
        if self.forbidden {
            return Err(RegisterError::Forbidden);
        }
        if self.regions.len() >= self.max {
            return Err(RegisterError::Full);
        }
        let salt = self.salt();
        let key = match key {
            Some(key) if self.keys.contains_key(&key) => return Err(RegisterError::KeyTaken),
            Some(key) => key,
            None => {
                let mut key = !salt;
                while self.keys.contains_key(&key) {
                    key = key.wrapping_add(1);
                }
                key
            }
        };
        Ok(RemoteKey { key, salt })
    }

    fn open(
        &mut self,
        key: RemoteKey,
        rights: Rights,
        memory: u64,
        start: u64,
        bytes: u64,
    ) -> RegionId {
        let number = self.regions.insert(Region {
            key,
            rights,
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

    fn opened(&self, RegionId(number): RegionId) -> Option<&Region> {
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
        if key.salt != 0 && key.salt != region.key.salt {
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

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Lets other ranks reach into memory, by a key that the program chooses,
    /// or that is chosen for it (`None`). Accesses name bytes by their offset
    /// from the memory's first.
    ///
    /// # Errors
    /// [`RegisterError`], with the memory: [`RegisterError::Forbidden`],
    /// [`RegisterError::Full`] or [`RegisterError::KeyTaken`].
    pub fn register(
        &mut self,
        memory: K,
        key: Option<u64>,
        rights: Rights,
    ) -> Result<RegionId, (RegisterError, K)> {
        let key = match self.regions.new_key(key) {
            Ok(key) => key,
            Err(why) => return Err((why, memory)),
        };
        let bytes = memory.len();
        let memory = (self.regions.memories).insert(Shared { memory, regions: 1 });
        Ok(self.regions.open(key, rights, memory, 0, bytes))
    }

    /// Registers memory of a region again: all of it or a part, `bytes` bytes from
    /// `start` of that region on, with a key and rights of its own. With the key, the
    /// extent and the rights of a region of this memory it is that region, which has
    /// then to be deregistered once more.
    ///
    /// # Errors
    /// [`RegisterError`]; nothing was registered.
    pub fn register_again(
        &mut self,
        of: RegionId,
        start: u64,
        bytes: u64,
        key: Option<u64>,
        rights: Rights,
    ) -> Result<RegionId, RegisterError> {
        let all = &mut self.regions;
        let of = *all.opened(of).ok_or(RegisterError::NoSuchRegion)?;
        if start.checked_add(bytes).is_none_or(|end| end > of.bytes) {
            return Err(RegisterError::OutOfBounds);
        }
        let start = of.start + start;
        if let Some(number) = key.and_then(|key| all.keys.get(&key).copied())
            && let Some(there) = all.regions.get_mut(number)
            && (there.memory, there.start, there.bytes, there.rights)
                == (of.memory, start, bytes, rights)
        {
            if all.forbidden {
                return Err(RegisterError::Forbidden);
            }
            there.count += 1;
            return Ok(RegionId(number));
        }
        let key = all.new_key(key)?;
        if let Some(shared) = all.memories.get_mut(of.memory) {
            shared.regions += 1;
        }
        Ok(all.open(key, rights, of.memory, start, bytes))
    }

    /// What others name a region by; `None` if it is not open.
    #[must_use]
    pub fn remote_key(&self, region: RegionId) -> Option<RemoteKey> {
        self.regions.opened(region).map(|region| region.key)
    }

    /// A region, if it is open.
    pub fn opened(&mut self, region: RegionId) -> Option<Opened<'_, K>> {
        let Region {
            key,
            rights,
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
            memory: &mut memory.memory,
            start,
            bytes,
            count,
        })
    }

    /// The memory that a region lies in, while it is registered.
    #[must_use]
    pub fn region_memory(&self, region: RegionId) -> Option<&K> {
        self.regions.memory(region.0)
    }

    /// Takes one registration of a region back. With the last one it is closed: its key is
    /// free at once, and accesses that begin to arrive end with
    /// [`OpError::BadKey`]. The memory comes back with its last region;
    /// `None`: others still lie in it, or the region was registered
    /// more than once.
    ///
    /// # Errors
    /// - [`DeregisterError::InUse`]: the region is closed, but is
    ///   still read or written: call again after progress.
    /// - [`DeregisterError::NoSuchRegion`].
    pub fn deregister(&mut self, region: RegionId) -> Result<Option<K>, DeregisterError> {
        self.shut(region);
        let all = &mut self.regions;
        let it = (all.regions.get_mut(region.0)).ok_or(DeregisterError::NoSuchRegion)?;
        if it.count > 1 {
            it.count -= 1;
            return Ok(None);
        }
        if it.uses > 0 {
            return Err(DeregisterError::InUse(it.uses));
        }
        let memory = it.memory;
        all.regions.remove(region.0);
        if let Some(shared) = all.memories.get_mut(memory) {
            shared.regions -= 1;
            if shared.regions == 0 {
                return Ok(all.memories.remove(memory).map(|shared| shared.memory));
            }
        }
        Ok(None)
    }

    /// The first half of [`Exchange::deregister`]: if this is the last
    /// registration no access is admitted any more.
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

    /// One-sided access to this rank is forbidden from now on: nothing can be
    /// registered, and accesses that begin to arrive end with
    /// [`OpError::Forbidden`].
    pub const fn forbid(&mut self) {
        self.regions.forbidden = true;
    }
}
