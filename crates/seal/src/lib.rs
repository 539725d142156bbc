//! Authentication and encryption of packets, and key derivation.
//!
//! [`Seal`] is what the protocol asks for; the implementations stand on
//! vetted libraries. No protocol state lives here: a seal is a table of
//! expanded keys, addressed by slot, which can be dropped and derived again.
//!
//! | suite | for |
//! | --- | --- |
//! | [`Aegis`] | the default: AEGIS-128L |
//! | [`AesGcm`] | who must have it: AES-128-GCM |
//! | [`ChaCha`] | hosts without AES instructions: ChaCha20-Poly1305 |
//! | [`Checksum`] | `--security none`: CRC-32C, against accidents only |
//! | [`Null`] | tests and fuzzing: checks nothing |
//!
//! [`AnySeal`] picks one of the first four at run time. [`Paired`] gives each
//! pair a secret of its own, from their public keys. `docs/security.md`
//! says what they defend.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod aead;
mod agreement;
mod any;
mod checksum;
mod introduction;
mod kdf;
mod null;
mod numbers;
mod suites;
mod trace;

pub use aead::{Aead, Aegis, AesGcm, CellOf, ChaCha, KeyCell};
pub use agreement::{
    NO_PAIR, Own, PUBLIC_KEY_BYTES, Pair, Paired, identity, mix_of, pair_secret, public_key,
};
pub use any::{AnySeal, Heap, KeyMemory, SuiteId, UnknownSuite};
pub use checksum::Checksum;
pub use kdf::derive;
pub use null::Null;
pub use numbers::random_number;
pub use portolan_wire::TAG_BYTES;
pub use suites::{Aegis128L, AegisKey, Aes128Gcm, ChaCha20Poly1305, Key, Suite};
use zeroize::Zeroize;

/// 32 bytes of key material, wiped when dropped. It is not `Copy`, so that no
/// copy is left behind unseen. Its `Debug` form shows none of them: they must
/// not reach a log.
#[derive(PartialEq, Eq)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Takes key material as it is: 32 bytes that nobody else can guess.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to derive from or to put into memory that is kept.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Secret {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A public key, sealed to another: the sealer's ephemeral public key (32 bytes), the
/// sealed key (32) and its tag (16).
pub type IntroducedKey = [u8; INTRODUCED_BYTES];

/// Bytes of that.
pub const INTRODUCED_BYTES: usize = 2 * PUBLIC_KEY_BYTES + TAG_BYTES;

/// The tag of a sealed packet.
pub type Tag = [u8; TAG_BYTES];

/// 32 bits of path id and 64 bits of packet number: never the same twice
/// under one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce {
    /// Path id: the first 4 of the 12 bytes, little-endian.
    pub path: u32,
    /// Packet number in full: the other 8, little-endian.
    pub number: u64,
}

impl Nonce {
    /// The 96 bits that go into AES-GCM and ChaCha20-Poly1305 (P3.3).
    #[inline]
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 12] {
        let [a, b, c, d] = self.path.to_le_bytes();
        let [e, f, g, h, i, j, k, l] = self.number.to_le_bytes();
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// The 128 bits that go into AEGIS: four zeros between path and number (P3.3).
    #[inline]
    #[must_use]
    pub const fn to_16_bytes(self) -> [u8; 16] {
        (self.path as u128 | (self.number as u128) << 64).to_le_bytes()
    }
}

/// The tag does not fit: drop the packet, count it, tell nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet's tag does not fit its key, number or content")]
pub struct BadTag;

/// What the protocol asks of a cipher suite.
pub trait Seal {
    /// The suite's name. Whoever derives keys puts it into `info`, so that two
    /// suites never understand each other.
    fn name(&self) -> &'static str;

    /// Which suite of a job this is, if it is one.
    fn suite(&self) -> Option<SuiteId> {
        None
    }

    /// Packets that one key may seal before it must be replaced, all paths
    /// together.
    fn packets_max(&self) -> u64;

    /// Derives a secret from another for the purpose that `info` spells out.
    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret;

    /// The same, from the secret of the pair with a peer, where the two have agreed on one
    /// by their public keys.
    fn derive_with(&mut self, _peer: u32, secret: &[u8; 32], info: &[u8]) -> Secret {
        self.derive(secret, info)
    }

    /// From now on a peer has this public key. Nothing is computed yet.
    fn meet(&mut self, _peer: u32, _public: &[u8; PUBLIC_KEY_BYTES]) {}

    /// A peer has none any more: it and the pair's secret are wiped.
    fn forget(&mut self, _peer: u32) {}

    /// Own public key, sealed to a peer that may not know it. The same whenever it is asked
    /// for. `None` where nobody has public keys.
    fn introduce(&mut self, _peer: u32) -> Option<IntroducedKey> {
        None
    }

    /// The public key that somebody has sealed to us; `None` if it was not sealed to us, or
    /// not by one who has the file that all have.
    fn introduced(&self, _key: &IntroducedKey) -> Option<[u8; PUBLIC_KEY_BYTES]> {
        None
    }

    /// A keyed hash of a packet for a peer, which shows that its sender was told the peer's
    /// public key. Cheap to check.
    fn mark(&self, _peer: u32, _packet: &[u8]) -> Option<Tag> {
        None
    }

    /// Whether a packet for us has that.
    fn has_own_mark(&self, _packet: &[u8], _mark: &Tag) -> bool {
        false
    }

    /// A keyed hash that nobody else can make.
    fn fingerprint(&self, _words: &[&[u8]]) -> u64 {
        0
    }

    /// Expands a key into `slot`, replacing what was there.
    ///
    /// # Panics
    /// If the table has no such slot: slots are the caller's own numbers.
    fn install(&mut self, slot: usize, key: &Secret);

    /// Forgets the key in `slot`; nothing happens where there is none.
    fn remove(&mut self, slot: usize);

    /// Encrypts `body` in place and gives the tag over `header` and `body`.
    ///
    /// # Panics
    /// If `slot` is empty, in suites with keys: sending without one is a bug
    /// of the caller, and nothing may then leave.
    fn seal(&self, slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag;

    /// Checks the tag and decrypts `body` in place.
    ///
    /// # Errors
    /// [`BadTag`]; `body` is then garbage. An empty or missing slot is a bad
    /// tag too, in suites with keys.
    fn open(
        &self,
        slot: usize,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &Tag,
    ) -> Result<(), BadTag>;
}
