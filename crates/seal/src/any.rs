//! A suite that is chosen at run time.

use crate::trace::without_trace;
use crate::{Aead, Aegis, AesGcm, BadTag, CellOf, ChaCha, Checksum, Nonce, Seal, Secret, Tag};
use crate::{Aegis128L, Aes128Gcm, ChaCha20Poly1305, Key, Suite};
use alloc::vec::Vec;
use core::convert::Infallible;
use core::ops::DerefMut;

/// Which suite a job uses. Fixed for the whole job and never negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SuiteId {
    /// AEGIS-128L.
    #[default]
    Aegis,
    /// AES-128-GCM.
    AesGcm,
    /// ChaCha20-Poly1305.
    ChaCha,
    /// No security: CRC-32C only.
    None,
}

/// No suite has this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown cipher suite; there are {}", SuiteId::ALL.map(SuiteId::name).join(", "))]
pub struct UnknownSuite;

impl SuiteId {
    /// Every suite that a job can use.
    pub const ALL: [Self; 4] = [Self::Aegis, Self::AesGcm, Self::ChaCha, Self::None];

    /// The suite's name; [`SuiteId::from_str`](core::str::FromStr) reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aegis => Aegis128L::NAME,
            Self::AesGcm => Aes128Gcm::NAME,
            Self::ChaCha => ChaCha20Poly1305::NAME,
            Self::None => Checksum::NAME,
        }
    }
}

/// Whether `key` opens a packet under the suite `A`.
fn opens<A: Suite>(key: &Secret, nonce: Nonce, header: &[u8], body: &mut [u8], tag: &Tag) -> bool {
    without_trace(|| {
        let key = A::expand(key.as_bytes());
        key.open(nonce, header, body, tag).is_ok()
    })
}

impl SuiteId {
    /// Whether a packet was sealed under this suite and `key`. `body` is garbage if not.
    /// Without security there are no keys, so nothing is known then.
    #[must_use]
    pub fn opens(
        self,
        key: &Secret,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &Tag,
    ) -> bool {
        match self {
            Self::Aegis => opens::<Aegis128L>(key, nonce, header, body, tag),
            Self::AesGcm => opens::<Aes128Gcm>(key, nonce, header, body, tag),
            Self::ChaCha => opens::<ChaCha20Poly1305>(key, nonce, header, body, tag),
            Self::None => false,
        }
    }
}

impl core::str::FromStr for SuiteId {
    type Err = UnknownSuite;

    fn from_str(name: &str) -> Result<Self, UnknownSuite> {
        Self::ALL
            .into_iter()
            .find(|id| id.name() == name)
            .ok_or(UnknownSuite)
    }
}

/// Memory for tables of cells, of whatever size a suite's are.
pub trait KeyMemory {
    /// A table.
    type Table<C>: DerefMut<Target = [C]>;
    /// Why there is no memory.
    type Error;

    /// An empty table that may grow to `most` cells.
    ///
    /// # Errors
    /// [`KeyMemory::Error`].
    fn table<C: Default>(most: usize) -> Result<Self::Table<C>, Self::Error>;

    /// Makes a table longer, by empty cells.
    fn grow<C: Default>(table: &mut Self::Table<C>, cells: usize);
}

/// Tables on the heap.
pub enum Heap {}

impl KeyMemory for Heap {
    type Table<C> = Vec<C>;
    type Error = Infallible;

    fn table<C: Default>(most: usize) -> Result<Vec<C>, Infallible> {
        Ok(Vec::with_capacity(most))
    }

    fn grow<C: Default>(table: &mut Vec<C>, cells: usize) {
        table.resize_with(cells, C::default);
    }
}

/// Cells of the suite `A` in memory of the kind `M`.
type Cells<A, M> = <M as KeyMemory>::Table<CellOf<A>>;

/// One of the suites of [`SuiteId`], over a table of keys.
pub enum AnySeal<M: KeyMemory = Heap> {
    /// AEGIS-128L.
    Aegis(Aegis<Cells<Aegis128L, M>>),
    /// AES-128-GCM.
    AesGcm(AesGcm<Cells<Aes128Gcm, M>>),
    /// ChaCha20-Poly1305.
    ChaCha(ChaCha<Cells<ChaCha20Poly1305, M>>),
    /// CRC-32C; holds no keys.
    Checksum(Checksum),
}

impl AnySeal {
    /// The suite `id` with an empty table of `slots` keys on the heap.
    #[must_use]
    pub fn with_slots(id: SuiteId, slots: usize) -> Self {
        let Ok(mut seal) = Self::new(id, slots);
        seal.grow(slots);
        seal
    }
}

impl<M: KeyMemory> AnySeal<M> {
    /// The suite `id` with a table of no keys yet, and of `most` at most. Without
    /// security there is none.
    ///
    /// # Errors
    /// [`KeyMemory::Error`].
    pub fn new(id: SuiteId, most: usize) -> Result<Self, M::Error> {
        Ok(match id {
            SuiteId::Aegis => Self::Aegis(Aead::new(M::table(most)?)),
            SuiteId::AesGcm => Self::AesGcm(Aead::new(M::table(most)?)),
            SuiteId::ChaCha => Self::ChaCha(Aead::new(M::table(most)?)),
            SuiteId::None => Self::Checksum(Checksum),
        })
    }

    /// Makes the table of keys longer, if there is one.
    pub fn grow(&mut self, slots: usize) {
        match self {
            Self::Aegis(it) => M::grow(it.cells_mut(), slots),
            Self::AesGcm(it) => M::grow(it.cells_mut(), slots),
            Self::ChaCha(it) => M::grow(it.cells_mut(), slots),
            Self::Checksum(_) => {}
        }
    }

    /// Which suite this is.
    #[must_use]
    pub const fn id(&self) -> SuiteId {
        match self {
            Self::Aegis(_) => SuiteId::Aegis,
            Self::AesGcm(_) => SuiteId::AesGcm,
            Self::ChaCha(_) => SuiteId::ChaCha,
            Self::Checksum(_) => SuiteId::None,
        }
    }
}

/// Runs one expression on whichever suite it is.
macro_rules! each {
    ($any:expr, $seal:ident => $do:expr) => {
        match $any {
            AnySeal::Aegis($seal) => $do,
            AnySeal::AesGcm($seal) => $do,
            AnySeal::ChaCha($seal) => $do,
            AnySeal::Checksum($seal) => $do,
        }
    };
}

impl<M: KeyMemory> Seal for AnySeal<M> {
    #[inline]
    fn name(&self) -> &'static str {
        each!(self, s => s.name())
    }

    #[inline]
    fn packets_max(&self) -> u64 {
        each!(self, s => s.packets_max())
    }

    fn suite(&self) -> Option<SuiteId> {
        Some(self.id())
    }

    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret {
        each!(self, s => s.derive(secret, info))
    }

    fn install(&mut self, slot: usize, key: &Secret) {
        each!(self, s => s.install(slot, key));
    }

    fn remove(&mut self, slot: usize) {
        each!(self, s => s.remove(slot));
    }

    #[inline]
    fn seal(&self, slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        each!(self, s => s.seal(slot, nonce, header, body))
    }

    #[inline]
    fn open(
        &self,
        slot: usize,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &Tag,
    ) -> Result<(), BadTag> {
        each!(self, s => s.open(slot, nonce, header, body, tag))
    }
}
