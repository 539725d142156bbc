//! Memory that others may reach into, as the program and others name it.

/// What others may do with a region; nothing by default. Of atomic operations those that
/// fetch need [`Rights::Both`], those that do not [`Rights::Put`], and reads [`Rights::Get`].
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
    /// To read, to write, both or none.
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

    /// These rights, for those who show the salt or not, as it says.
    #[must_use]
    pub const fn with(self, salt: Salt) -> Admission {
        Admission { rights: self, salt }
    }

    /// Whether both have one in common.
    pub(crate) const fn meet(self, other: Self) -> bool {
        (self.allow_get() && other.allow_get()) || (self.allow_put() && other.allow_put())
    }

    /// All of both.
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
    /// As the endpoint has it: [`Self::Demanded`] outside of a job, where strangers may come,
    /// and [`Self::Any`] within.
    #[default]
    Default,
    /// They must: only who was given the remote key reaches the region.
    Demanded,
    /// The key alone will do ([`RemoteKey::any`]): whoever can reach this endpoint may guess
    /// it, if the program chose it.
    Any,
}

/// On what terms others reach a region: what they may do, and what they must know.
/// [`Rights`] alone stand for these and [`Salt::Default`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Admission {
    /// What they may do.
    pub rights: Rights,
    /// Whether they must show the salt.
    pub salt: Salt,
}

impl From<Rights> for Admission {
    fn from(rights: Rights) -> Self {
        rights.with(Salt::Default)
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
    /// region that took the key over from another is reached by it too, one that
    /// [demands its salt](Salt::Demanded) is not.
    #[must_use]
    pub const fn any(key: u64) -> Self {
        Self { key, salt: 0 }
    }

    /// The key that was chosen when the region was registered.
    #[must_use]
    pub const fn key(&self) -> u64 {
        self.key
    }

    /// By what a table in shared memory may name the region: a word for the key, with all
    /// bits mixed, and one that is 0 for [`RemoteKey::any`].
    #[must_use]
    pub const fn in_table(&self) -> [u64; 2] {
        [mixed(self.key), self.salt]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RegisterRefused {
    /// One-sided access is forbidden here: see [`crate::Exchange::forbid`].
    Forbidden,
    /// The key names another region.
    KeyTaken,
    /// As many regions are open as the configuration allows: deregister one.
    Full,
    /// The part does not lie in the memory.
    OutOfBounds,
    /// The region whose memory was meant is not open.
    NoSuchRegion,
}

/// Why a region was not deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeregisterRefused {
    /// So many accesses are under way. No new one is admitted: call again when
    /// progress was made.
    InUse(u32),
    /// There is none, or no longer.
    NoSuchRegion,
}

/// A region that is open, as it was registered.
#[derive(Debug)]
pub struct Opened<'a, K> {
    /// What others name it by.
    pub key: RemoteKey,
    /// What they may do.
    pub rights: Rights,
    /// Whether they must show its salt.
    pub demands_salt: bool,
    /// The memory that it lies in...
    pub memory: &'a mut K,
    /// ...where it begins there...
    pub start: u64,
    /// ...and how many bytes it has.
    pub bytes: u64,
    /// How often it is registered: by so many calls of
    /// [`crate::Exchange::deregister`] it is closed.
    pub count: u32,
}

/// `SplitMix64`'s last step: different numbers stay different.
const fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
