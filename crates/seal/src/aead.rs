//! The encrypting suites: AEADs over a table of keys that are ready for use.

use crate::suites::{Aegis128L, Aes128Gcm, ChaCha20Poly1305, Key, Suite};
use crate::trace::without_trace;
use crate::{BadTag, Nonce, Seal, Secret, Tag, kdf};
use alloc::vec::Vec;
use core::marker::PhantomData;
use core::ops::DerefMut;

/// Room for one key. All bytes zero is a valid, empty cell: so it may lie in
/// fresh anonymous memory, and in memory that a fork wipes.
#[repr(transparent)]
pub struct KeyCell<K>(Cell<K>);

// A stated tag makes the layout defined: zero is `Empty`, whatever follows it.
#[repr(u8)]
enum Cell<K> {
    Empty = 0,
    Full(K) = 1,
}

impl<K> KeyCell<K> {
    /// A cell without a key.
    pub const EMPTY: Self = Self(Cell::Empty);

    /// Whether no key is installed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, Cell::Empty)
    }
}

impl<K> Default for KeyCell<K> {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Room for one key of the suite `A`.
pub type CellOf<A> = KeyCell<<A as Suite>::Key>;

/// A suite over a table of keys that the caller owns.
pub struct Aead<A, T = Vec<CellOf<A>>> {
    cells: T,
    suite: PhantomData<A>,
}

/// AEGIS-128L, the default.
pub type Aegis<T = Vec<CellOf<Aegis128L>>> = Aead<Aegis128L, T>;

/// AES-128-GCM, for who must have it.
pub type AesGcm<T = Vec<CellOf<Aes128Gcm>>> = Aead<Aes128Gcm, T>;

/// ChaCha20-Poly1305, where the processor has no AES instructions.
pub type ChaCha<T = Vec<CellOf<ChaCha20Poly1305>>> = Aead<ChaCha20Poly1305, T>;

impl<A: Suite> Aead<A> {
    /// An empty table of `slots` keys on the heap.
    #[must_use]
    pub fn with_slots(slots: usize) -> Self {
        Self::new((0..slots).map(|_| KeyCell::EMPTY).collect())
    }
}

impl<A: Suite, T: DerefMut<Target = [CellOf<A>]>> Aead<A, T> {
    /// Over `cells`, one for each slot, with the keys that are in them. They
    /// must have been installed by the same suite.
    pub const fn new(cells: T) -> Self {
        Self {
            cells,
            suite: PhantomData,
        }
    }

    /// The table of keys, to make it longer.
    pub const fn cells_mut(&mut self) -> &mut T {
        &mut self.cells
    }

    #[inline]
    fn key(&self, slot: usize) -> Option<&A::Key> {
        match self.cells.get(slot) {
            Some(KeyCell(Cell::Full(key))) => Some(key),
            _ => None,
        }
    }
}

impl<A: Suite, T: DerefMut<Target = [CellOf<A>]>> Seal for Aead<A, T> {
    #[inline]
    fn name(&self) -> &'static str {
        A::NAME
    }

    #[inline]
    fn packets_max(&self) -> u64 {
        A::PACKETS_MAX
    }

    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret {
        kdf::derive(secret, info)
    }

    fn install(&mut self, slot: usize, key: &Secret) {
        let cell = &mut self.cells[slot];
        without_trace(|| *cell = KeyCell(Cell::Full(A::expand(&key.0))));
    }

    fn remove(&mut self, slot: usize) {
        if let Some(cell) = self.cells.get_mut(slot) {
            if let Cell::Full(key) = &mut cell.0 {
                key.wipe();
            }
            *cell = KeyCell::EMPTY;
        }
    }

    #[inline]
    fn seal(&self, slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        let key = self.key(slot).expect("sealing needs an installed key");
        key.seal(nonce, header, body)
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
        let key = self.key(slot).ok_or(BadTag)?;
        key.open(nonce, header, body, tag)
    }
}
