//! Registered memory: rights, names, errors.

/// Rights of other ranks to a region; none by default. Atomic operations need [`Rights::Both`] if
/// they fetch, else [`Rights::Put`]; reads need [`Rights::Get`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rights {
    /// No access.
    #[default]
    None,
    /// Read access.
    Get,
    /// Write access.
    Put,
    /// Read and write access.
    Both,
}

impl Rights {
    /// Rights to read, to write, both or none.
    #[must_use]
    pub const fn of(get: bool, put: bool) -> Self {
        match (get, put) {
            (true, true) => Self::Both,
            (true, false) => Self::Get,
            (false, true) => Self::Put,
            (false, false) => Self::None,
        }
    }

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

    /// These rights, on the terms of `salt`.
    #[must_use]
    pub const fn with(self, salt: Salt) -> Admission {
        Admission { rights: self, salt }
    }

    /// Whether both have a right in common.
    pub(crate) const fn meet(self, other: Self) -> bool {
        (self.allow_get() && other.allow_get()) || (self.allow_put() && other.allow_put())
    }

    /// Rights of either.
    pub(crate) const fn or(self, other: Self) -> Self {
        let get = self.allow_get() || other.allow_get();
        Self::of(get, self.allow_put() || other.allow_put())
    }

    pub(crate) const fn allow(self, asked: Self) -> bool {
        (self.allow_get() || !asked.allow_get()) && (self.allow_put() || !asked.allow_put())
    }
}

/// Whether accesses must show a region's salt, the half of its [`RemoteKey`] that is always
/// random.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Salt {
    /// The endpoint's default: [`Self::Demanded`] outside of a job, where strangers may come, and
    /// [`Self::Any`] within.
    #[default]
    Default,
    /// The salt is required: only peers that were given the remote key reach the region.
    Demanded,
    /// The key alone suffices ([`RemoteKey::any`]): if the program chose it, any peer of this
    /// endpoint may guess it.
    Any,
}

/// Terms on which others reach a region. [`Rights`] alone convert to these with [`Salt::Default`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Admission {
    /// Rights of other ranks.
    pub rights: Rights,
    /// Whether accesses must show the salt.
    pub salt: Salt,
}

impl From<Rights> for Admission {
    fn from(rights: Rights) -> Self {
        rights.with(Salt::Default)
    }
}

/// Names a region of this rank until it is deregistered; not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(pub u64);

/// Names a region to other ranks: its key, and a salt that no other region under that key has,
/// neither before nor after it. Programs exchange it as 16 opaque bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RemoteKey {
    pub(crate) key: u64,
    /// 0: any region under the key that does not demand its salt.
    pub(crate) salt: u64,
}

impl RemoteKey {
    /// Names whatever region is registered under a key at the time of the access: for programs
    /// that agree on keys beforehand and exchange none. A region that took the key over from
    /// another is reached too, one that [demands its salt](Salt::Demanded) is not.
    #[must_use]
    pub const fn any(key: u64) -> Self {
        Self { key, salt: 0 }
    }

    /// The key that was chosen when the region was registered.
    #[must_use]
    pub const fn key(&self) -> u64 {
        self.key
    }

    /// Names the region in a table in shared memory: the key with all bits mixed, and the salt, 0
    /// for [`RemoteKey::any`].
    #[must_use]
    pub const fn in_table(&self) -> [u64; 2] {
        [mixed(self.key), self.salt]
    }

    /// The bytes to pass to other ranks.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 16] {
        (u128::from(self.salt) << 64 | u128::from(self.key)).to_le_bytes()
    }

    /// Decodes [`RemoteKey::to_bytes`]. Any bytes make a key, perhaps of no region.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterRefused {
    /// One-sided access is forbidden here: see [`crate::Exchange::forbid`].
    Forbidden,
    /// The key names another region.
    KeyTaken,
    /// As many regions are open as the configuration allows: deregister one.
    Full,
    /// The part does not lie in the region.
    OutOfBounds,
    /// The region to register again is not open.
    NoSuchRegion,
}

/// Why a region was not deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeregisterRefused {
    /// Number of accesses in flight. No new one is admitted: call again after progress.
    InUse(u32),
    /// No such region, or no longer.
    NoSuchRegion,
}

/// An open region, as it was registered.
#[derive(Debug)]
pub struct Opened<'a, K> {
    /// Its name to other ranks.
    pub key: RemoteKey,
    /// Rights of other ranks.
    pub rights: Rights,
    /// Whether accesses must show its salt.
    pub demands_salt: bool,
    /// Memory that the region lies in.
    pub memory: &'a mut K,
    /// Offset of the region in `memory`, bytes.
    pub start: u64,
    /// Length of the region, bytes.
    pub bytes: u64,
    /// Number of registrations; as many calls of [`crate::Exchange::deregister`] close it.
    pub count: u32,
}

/// `SplitMix64`'s last step: different numbers stay different.
const fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
