//! Keys of a pair that no common secret joins: each side has a key pair of its
//! own, and knows the other's public key.
//!
//! | | |
//! | --- | --- |
//! | agreement | X25519 (RFC 7748) |
//! | id and life | the first 16 bytes of BLAKE2s-256 (RFC 7693) of the public key |
//! | a pair's secret | `KDF(X25519 result and mix, "ptl1pair", both public keys)` |
//!
//! The mix is 32 bytes that all members have besides, or zeros.

use core::ops::DerefMut;

use blake2::{Blake2s256, Digest};
use curve25519_dalek::MontgomeryPoint;
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::{Zeroize, Zeroizing};

use crate::introduction::Introducer;
use crate::trace::without_trace;
use crate::{BadTag, Checksum, IntroducedKey, Nonce, Seal, Secret, SuiteId, Tag, kdf};

/// Bytes of a public key.
pub const PUBLIC_KEY_BYTES: usize = 32;
const PAIR_LABEL: &[u8; 8] = b"ptl1pair";
const FILE_LABEL: &[u8; 8] = b"ptl1file";

/// The public key that belongs to a private one: any 32 random bytes.
#[must_use]
pub fn public_key(private: &[u8; 32]) -> [u8; PUBLIC_KEY_BYTES] {
    without_trace(|| PublicKey::from(&StaticSecret::from(*private)).to_bytes())
}

/// Id and life of whoever has a public key (P3.6).
#[must_use]
pub fn identity(public: &[u8; PUBLIC_KEY_BYTES]) -> (u64, u64) {
    let hash: [u8; 32] = Blake2s256::digest(public).into();
    let (id, rest) = hash.split_first_chunk().expect("32 bytes");
    let (life, _) = rest.split_first_chunk().expect("24 bytes");
    (u64::from_le_bytes(*id), u64::from_le_bytes(*life))
}

/// What all members bring along besides, from the content of a file.
#[must_use]
pub fn mix_of(content: &[u8]) -> Secret {
    kdf::derive(content, FILE_LABEL)
}

/// The secret of the pair of `private` and `public`; none for a public key
/// that is of small order, so that the result would be known to all (P3.7).
#[must_use]
pub fn pair_secret(
    private: &[u8; 32],
    public: &[u8; PUBLIC_KEY_BYTES],
    mix: Option<&[u8; 32]>,
) -> Option<Secret> {
    pair_secret_of(private, &public_key(private), public, mix)
}

/// The same, where the own public key is known: to compute it costs as much again.
fn pair_secret_of(
    private: &[u8; 32],
    own: &[u8; PUBLIC_KEY_BYTES],
    public: &[u8; PUBLIC_KEY_BYTES],
    mix: Option<&[u8; 32]>,
) -> Option<Secret> {
    let (low, high) = (own.min(public), own.max(public));
    agree(private, public, mix, PAIR_LABEL, low, high)
}

/// X25519. Where the library has vectors for it, by the Edwards form of the curve, in which that
/// takes 47 us where the ladder takes 60; what lies on the curve's twist has none.
fn x25519(private: &[u8; 32], public: &[u8; PUBLIC_KEY_BYTES]) -> MontgomeryPoint {
    let public = MontgomeryPoint(*public);
    let edwards = cfg!(target_arch = "x86_64").then(|| public.to_edwards(0));
    match edwards.flatten() {
        Some(point) => point.mul_clamped(*private).to_montgomery(),
        None => public.mul_clamped(*private),
    }
}

/// What X25519 and the mix give for the purpose of `label` and two public keys (P3.8).
pub(crate) fn agree(
    private: &[u8; 32],
    public: &[u8; PUBLIC_KEY_BYTES],
    mix: Option<&[u8; 32]>,
    label: &[u8; 8],
    first: &[u8; PUBLIC_KEY_BYTES],
    second: &[u8; PUBLIC_KEY_BYTES],
) -> Option<Secret> {
    let mut input = Zeroizing::new([0; 64]);
    without_trace(|| {
        let shared = x25519(private, public);
        input[..32].copy_from_slice(shared.as_bytes());
        shared != MontgomeryPoint([0; 32])
    })
    .then_some(())?;
    if let Some(mix) = mix {
        input[32..].copy_from_slice(mix);
    }
    let mut info = [0; 8 + 2 * PUBLIC_KEY_BYTES];
    info[..8].copy_from_slice(label);
    info[8..40].copy_from_slice(first);
    info[40..].copy_from_slice(second);
    Some(kdf::derive(input.as_slice(), &info))
}

/// What a member knows of another: its public key, and their secret once that was needed.
/// Words, so that a table of them may be memory that nobody has touched yet: zeros know
/// nobody.
pub type Pair = [u64; 8];

/// Nobody.
pub const NO_PAIR: Pair = [0; 8];

/// In the place of a public key that is nobody's, and of a secret that was not needed yet.
const NONE: [u64; 4] = [0; 4];
/// In the place of a secret, where the public key is that of no pair.
const HOPELESS: [u64; 4] = [u64::MAX; 4];

fn to_words(bytes: &[u8; 32]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks();
    core::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

fn to_bytes(words: &[u64]) -> Zeroizing<[u8; 32]> {
    let mut bytes = Zeroizing::new([0; 32]);
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Own part of the agreement with every peer. Plain bytes, for memory that a
/// fork wipes and core dumps leave out.
pub struct Own {
    private: [u8; 32],
    mix: Option<[u8; 32]>,
    introducer: Introducer,
}

impl Own {
    /// With a private key, fresh for this life, and what all bring along.
    #[must_use]
    pub fn new(private: &[u8; 32], mix: Option<&[u8; 32]>) -> Self {
        Self {
            private: *private,
            mix: mix.copied(),
            introducer: Introducer::new(private),
        }
    }
}

/// A seal whose keys come from the pair's own secret, where there is one. It
/// lies in memory that the caller owns: `own` has one entry, or none where a
/// job's secret joins all; `pairs` one for each peer, by its number.
pub struct Paired<S, O, P> {
    seal: S,
    own: O,
    pairs: P,
}

impl<S, O, P> Paired<S, O, P>
where
    S: Seal,
    O: DerefMut<Target = [Own]>,
    P: DerefMut<Target = [Pair]>,
{
    /// Over `seal`; nobody is [met](Seal::meet) yet where `pairs` is zero.
    pub const fn new(seal: S, own: O, pairs: P) -> Self {
        Self { seal, own, pairs }
    }

    /// The seal that the keys are for.
    pub const fn inner_mut(&mut self) -> &mut S {
        &mut self.seal
    }

    /// Without security there are no secrets to agree on.
    fn is_plain(&self) -> bool {
        self.seal.name() == Checksum::NAME
    }

    /// The secret of a pair: agreed on at first use. None if nobody is there.
    fn agree(&mut self, peer: u32) -> Option<Zeroizing<[u8; 32]>> {
        if self.is_plain() {
            return None;
        }
        let own = self.own.first()?;
        let pair = self.pairs.get_mut(peer as usize)?;
        if pair[..4] == NONE {
            return None;
        }
        if pair[4..] == NONE {
            let public = to_bytes(&pair[..4]);
            let me = own.introducer.public_key();
            let secret = pair_secret_of(&own.private, me, &public, own.mix.as_ref());
            let words = secret.map_or(HOPELESS, |secret| to_words(secret.as_bytes()));
            pair[4..].copy_from_slice(&words);
        }
        (pair[4..] != HOPELESS).then(|| to_bytes(&pair[4..]))
    }

    fn public_key_of(&self, peer: u32) -> Option<[u8; PUBLIC_KEY_BYTES]> {
        let pair = self.pairs.get(peer as usize)?;
        (pair[..4] != NONE).then(|| *to_bytes(&pair[..4]))
    }
}

impl<S, O, P> Seal for Paired<S, O, P>
where
    S: Seal,
    O: DerefMut<Target = [Own]>,
    P: DerefMut<Target = [Pair]>,
{
    #[inline]
    fn name(&self) -> &'static str {
        self.seal.name()
    }

    #[inline]
    fn packets_max(&self) -> u64 {
        self.seal.packets_max()
    }

    fn suite(&self) -> Option<SuiteId> {
        self.seal.suite()
    }

    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret {
        self.seal.derive(secret, info)
    }

    fn derive_with(&mut self, peer: u32, secret: &[u8; 32], info: &[u8]) -> Secret {
        without_trace(|| {
            let pair = self.agree(peer);
            self.seal.derive(pair.as_deref().unwrap_or(secret), info)
        })
    }

    fn meet(&mut self, peer: u32, public: &[u8; PUBLIC_KEY_BYTES]) {
        if let Some(pair) = self.pairs.get_mut(peer as usize) {
            *pair = NO_PAIR;
            pair[..4].copy_from_slice(&to_words(public));
        }
        if let Some(own) = self.own.first_mut() {
            own.introducer.forget(peer);
        }
    }

    fn forget(&mut self, peer: u32) {
        if let Some(pair) = self.pairs.get_mut(peer as usize) {
            pair.zeroize();
        }
    }

    fn introduce(&mut self, peer: u32) -> Option<IntroducedKey> {
        let (to, plain) = (self.public_key_of(peer)?, self.is_plain());
        let own = self.own.first_mut()?;
        own.introducer.seal(own.mix.as_ref(), peer, &to, plain)
    }

    fn introduced(&self, key: &IntroducedKey) -> Option<[u8; PUBLIC_KEY_BYTES]> {
        let own = self.own.first()?;
        let (private, mix) = (&own.private, own.mix.as_ref());
        own.introducer.open(private, mix, key, self.is_plain())
    }

    fn mark(&self, peer: u32, packet: &[u8]) -> Option<Tag> {
        Some(Introducer::mark(&self.public_key_of(peer)?, packet))
    }

    fn has_own_mark(&self, packet: &[u8], mark: &Tag) -> bool {
        let own = self.own.first();
        own.is_some_and(|own| own.introducer.has_own_mark(packet, mark))
    }

    fn fingerprint(&self, words: &[&[u8]]) -> u64 {
        let own = self.own.first();
        own.map_or(0, |own| own.introducer.fingerprint(words))
    }

    fn install(&mut self, slot: usize, key: &Secret) {
        self.seal.install(slot, key);
    }

    fn remove(&mut self, slot: usize) {
        self.seal.remove(slot);
    }

    #[inline]
    fn seal(&self, slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        self.seal.seal(slot, nonce, header, body)
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
        self.seal.open(slot, nonce, header, body, tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> [u8; 32] {
        core::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
    }

    #[test]
    fn both_forms_of_the_curve_give_what_rfc_7748_says() {
        // Section 5.2.
        let vectors = [
            (
                "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
                "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
                "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
            ),
            (
                "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
                "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
                "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
            ),
        ];
        for (private, public, shared) in vectors {
            let found = x25519(&bytes(private), &bytes(public));
            assert_eq!(found.to_bytes(), bytes(shared));
        }
        // On the curve, on its twist, and of small order: half of all bytes are no key's.
        let mut on_twist = 0;
        for n in 0..400_u32 {
            let private: [u8; 32] = Blake2s256::digest(n.to_le_bytes()).into();
            let public: [u8; 32] = match n {
                0..4 => [n as u8; 32],
                4 => bytes("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
                _ => Blake2s256::digest(private).into(),
            };
            on_twist += u32::from(MontgomeryPoint(public).to_edwards(0).is_none());
            let ladder = StaticSecret::from(private).diffie_hellman(&PublicKey::from(public));
            assert_eq!(
                x25519(&private, &public).to_bytes(),
                ladder.to_bytes(),
                "{n}"
            );
        }
        assert!((150..250).contains(&on_twist), "{on_twist}");
    }
}
