//! The two encrypting suites: AEADs of `ring` over a table of expanded keys.

use crate::trace::without_trace;
use crate::{BadTag, Nonce, Seal, Secret, Tag, kdf};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::ops::DerefMut;
use ring::aead::{self, Aad, LessSafeKey, UnboundKey};

/// Room for one expanded key. All bytes zero is a valid, empty cell: so it
/// may lie in fresh anonymous memory, and in memory that a fork wipes.
#[repr(transparent)]
pub struct KeyCell(Cell);

// A stated tag makes the layout defined: zero is `Empty`, whatever follows it.
#[repr(u8)]
#[expect(
    clippy::large_enum_variant,
    reason = "the keys lie in the table itself, never behind a pointer"
)]
enum Cell {
    Empty = 0,
    Full(LessSafeKey) = 1,
}

impl KeyCell {
    /// A cell without a key.
    pub const EMPTY: Self = Self(Cell::Empty);

    /// Whether no key is installed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self.0, Cell::Empty)
    }
}

impl Default for KeyCell {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// An AEAD with 96-bit nonces and 128-bit tags.
pub trait Suite {
    /// Name of the suite, as it goes into keys and settings.
    const NAME: &'static str;
    /// Packets that one key may seal.
    const PACKETS_MAX: u64;

    /// The library's algorithm; its key is the first bytes of a [`Secret`].
    fn algorithm() -> &'static aead::Algorithm;
}

/// AES-128-GCM (NIST SP 800-38D).
#[derive(Clone, Copy, Debug)]
pub enum Aes128Gcm {}

impl Suite for Aes128Gcm {
    const NAME: &'static str = "aes-128-gcm";
    /// RFC 9001, section 6.6 and appendix B.1: packets of up to 2^16 bytes.
    const PACKETS_MAX: u64 = 1 << 23;

    #[inline]
    fn algorithm() -> &'static aead::Algorithm {
        &aead::AES_128_GCM
    }
}

/// ChaCha20-Poly1305 (RFC 8439).
#[derive(Clone, Copy, Debug)]
pub enum ChaCha20Poly1305 {}

impl Suite for ChaCha20Poly1305 {
    const NAME: &'static str = "chacha20-poly1305";
    /// RFC 9001, section 6.6 sets none that 2^62 packets could reach. Ours is
    /// its limit of forgeries, so that no key outlives that many packets.
    const PACKETS_MAX: u64 = 1 << 36;

    #[inline]
    fn algorithm() -> &'static aead::Algorithm {
        &aead::CHACHA20_POLY1305
    }
}

/// A suite over a table of keys that the caller owns.
pub struct Aead<A, T = Box<[KeyCell]>> {
    cells: T,
    suite: PhantomData<A>,
}

/// AES-128-GCM, the default.
pub type AesGcm<T = Box<[KeyCell]>> = Aead<Aes128Gcm, T>;

/// ChaCha20-Poly1305, where the processor has no AES instructions.
pub type ChaCha<T = Box<[KeyCell]>> = Aead<ChaCha20Poly1305, T>;

impl<A: Suite> Aead<A> {
    /// An empty table of `slots` keys on the heap.
    #[must_use]
    pub fn with_slots(slots: usize) -> Self {
        Self::new((0..slots).map(|_| KeyCell::EMPTY).collect())
    }
}

impl<A: Suite, T: DerefMut<Target = [KeyCell]>> Aead<A, T> {
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
    fn key(&self, slot: usize) -> Option<&LessSafeKey> {
        match self.cells.get(slot) {
            Some(KeyCell(Cell::Full(key))) => Some(key),
            _ => None,
        }
    }
}

#[inline]
fn nonce_of(nonce: Nonce) -> aead::Nonce {
    aead::Nonce::assume_unique_for_key(nonce.to_bytes())
}

impl<A: Suite, T: DerefMut<Target = [KeyCell]>> Seal for Aead<A, T> {
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
        let algorithm = A::algorithm();
        let cell = &mut self.cells[slot];
        without_trace(|| {
            let key = UnboundKey::new(algorithm, &key.0[..algorithm.key_len()])
                .expect("the key has the algorithm's length");
            *cell = KeyCell(Cell::Full(LessSafeKey::new(key)));
        });
    }

    fn remove(&mut self, slot: usize) {
        if let Some(cell) = self.cells.get_mut(slot) {
            *cell = KeyCell::EMPTY;
        }
    }

    #[inline]
    fn seal(&self, slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        let key = self.key(slot).expect("sealing needs an installed key");
        let tag = key
            .seal_in_place_separate_tag(nonce_of(nonce), Aad::from(header), body)
            .expect("a packet is far shorter than the cipher's limit");
        tag.as_ref().try_into().expect("a tag has 16 bytes")
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
        key.open_in_place_separate_tag(
            nonce_of(nonce),
            Aad::from(header),
            aead::Tag::from(*tag),
            body,
            0..,
        )
        .map(|_| ())
        .map_err(|_| BadTag)
    }
}
