//! A suite that is chosen at run time.

use crate::{Aead, AesGcm, BadTag, ChaCha, Checksum, KeyCell, Nonce, Seal, Secret, Suite, Tag};
use crate::{Aes128Gcm, ChaCha20Poly1305};
use alloc::boxed::Box;
use core::ops::DerefMut;

/// Which suite a job uses. Fixed for the whole job and never negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SuiteId {
    /// AES-128-GCM.
    #[default]
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
    pub const ALL: [Self; 3] = [Self::AesGcm, Self::ChaCha, Self::None];

    /// The suite's name; [`SuiteId::from_str`](core::str::FromStr) reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AesGcm => Aes128Gcm::NAME,
            Self::ChaCha => ChaCha20Poly1305::NAME,
            Self::None => Checksum::NAME,
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

/// One of the suites of [`SuiteId`], over a table of keys.
pub enum AnySeal<T = Box<[KeyCell]>> {
    /// AES-128-GCM.
    AesGcm(AesGcm<T>),
    /// ChaCha20-Poly1305.
    ChaCha(ChaCha<T>),
    /// CRC-32C; holds no keys.
    Checksum(Checksum),
}

impl AnySeal {
    /// The suite `id` with an empty table of `slots` keys on the heap.
    #[must_use]
    pub fn with_slots(id: SuiteId, slots: usize) -> Self {
        match id {
            SuiteId::AesGcm => Self::AesGcm(Aead::with_slots(slots)),
            SuiteId::ChaCha => Self::ChaCha(Aead::with_slots(slots)),
            SuiteId::None => Self::Checksum(Checksum),
        }
    }
}

impl<T: DerefMut<Target = [KeyCell]>> AnySeal<T> {
    /// The suite `id` over `cells`, as [`Aead::new`]; without security they
    /// are dropped, and may be none.
    pub fn new(id: SuiteId, cells: T) -> Self {
        match id {
            SuiteId::AesGcm => Self::AesGcm(Aead::new(cells)),
            SuiteId::ChaCha => Self::ChaCha(Aead::new(cells)),
            SuiteId::None => Self::Checksum(Checksum),
        }
    }

    /// The table of keys, to make it longer, if there is one.
    pub const fn cells_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::AesGcm(it) => Some(it.cells_mut()),
            Self::ChaCha(it) => Some(it.cells_mut()),
            Self::Checksum(_) => None,
        }
    }

    /// Which suite this is.
    #[must_use]
    pub const fn id(&self) -> SuiteId {
        match self {
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
            AnySeal::AesGcm($seal) => $do,
            AnySeal::ChaCha($seal) => $do,
            AnySeal::Checksum($seal) => $do,
        }
    };
}

impl<T: DerefMut<Target = [KeyCell]>> Seal for AnySeal<T> {
    #[inline]
    fn name(&self) -> &'static str {
        each!(self, s => s.name())
    }

    #[inline]
    fn packets_max(&self) -> u64 {
        each!(self, s => s.packets_max())
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
