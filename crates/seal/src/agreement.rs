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

use core::cell::Cell;
use core::ops::DerefMut;

use blake2::{Blake2s256, Digest};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::trace::without_trace;
use crate::{BadTag, Nonce, Seal, Secret, Tag, kdf};

/// Bytes of a public key.
pub const PUBLIC_KEY_BYTES: usize = 32;
const PAIR_LABEL: &[u8; 8] = b"ptl1pair";
const FILE_LABEL: &[u8; 8] = b"ptl1file";
/// Where `info` holds sender's id and life, receiver's id and life; see
/// `docs/protocol.md`, section 3.
const ENDS_AT: usize = 32;
const ENDS_BYTES: usize = 32;

/// The public key that belongs to a private one: any 32 random bytes.
#[must_use]
pub fn public_key(private: &[u8; 32]) -> [u8; PUBLIC_KEY_BYTES] {
    without_trace(|| PublicKey::from(&StaticSecret::from(*private)).to_bytes())
}

/// Id and life of whoever has a public key.
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
/// that is of small order, so that the result would be known to all.
#[must_use]
pub fn pair_secret(
    private: &[u8; 32],
    public: &[u8; PUBLIC_KEY_BYTES],
    mix: Option<&[u8; 32]>,
) -> Option<Secret> {
    let own = public_key(private);
    let mut input = Zeroizing::new([0; 64]);
    without_trace(|| {
        let shared = StaticSecret::from(*private).diffie_hellman(&PublicKey::from(*public));
        input[..32].copy_from_slice(shared.as_bytes());
        shared.was_contributory()
    })
    .then_some(())?;
    if let Some(mix) = mix {
        input[32..].copy_from_slice(mix);
    }
    let mut info = [0; 8 + 2 * PUBLIC_KEY_BYTES];
    info[..8].copy_from_slice(PAIR_LABEL);
    info[8..40].copy_from_slice(own.as_slice().min(public));
    info[40..].copy_from_slice(own.as_slice().max(public));
    Some(kdf::derive(input.as_slice(), &info))
}

/// What a member knows of another: first its public key, in whose place their
/// secret comes when it is first needed. By default nobody's.
#[derive(Default)]
pub struct Pair {
    id: u64,
    life: u64,
    key: Cell<[u8; 32]>,
    agreed: Cell<bool>,
}

impl Pair {
    /// With the holder of a public key.
    #[must_use]
    pub fn with(public: &[u8; PUBLIC_KEY_BYTES]) -> Self {
        let (id, life) = identity(public);
        Self {
            id,
            life,
            key: Cell::new(*public),
            agreed: Cell::new(false),
        }
    }
}

/// Own part of the agreement with every peer. Plain bytes, for memory that a
/// fork wipes and core dumps leave out.
pub struct Own {
    id: u64,
    life: u64,
    private: [u8; 32],
    mix: Option<[u8; 32]>,
}

impl Own {
    /// With a private key, fresh for this life, and what all bring along.
    #[must_use]
    pub fn new(private: &[u8; 32], mix: Option<&[u8; 32]>) -> Self {
        let (id, life) = identity(&public_key(private));
        Self {
            id,
            life,
            private: *private,
            mix: mix.copied(),
        }
    }
}

/// A seal whose keys come from the pair's own secret, where there is one. It
/// lies in memory that the caller owns: `own` has one entry, or none where a
/// job's secret joins all; `pairs` one for each peer.
pub struct Paired<S, O, P> {
    seal: S,
    own: O,
    pairs: P,
}

impl<S, O, P> Paired<S, O, P>
where
    O: DerefMut<Target = [Own]>,
    P: DerefMut<Target = [Pair]>,
{
    /// Over `seal`.
    pub fn new(seal: S, own: O, mut pairs: P) -> Self {
        pairs.sort_unstable_by_key(|pair| pair.id);
        Self { seal, own, pairs }
    }

    /// The secret of the pair that `info` names: agreed on at first use. None
    /// if one side is not us, or the other not known.
    fn agree(&self, info: &[u8]) -> Option<Zeroizing<[u8; 32]>> {
        let own = self.own.first()?;
        let ends = info.get(ENDS_AT..ENDS_AT + ENDS_BYTES)?;
        let word = |at: usize| ends[at..].first_chunk().map(|w| u64::from_le_bytes(*w));
        let from = (word(0)?, word(8)?);
        let to = (word(16)?, word(24)?);
        let me = (own.id, own.life);
        let they = match (from == me, to == me) {
            (true, false) => to,
            (false, true) => from,
            _ => return None,
        };
        let at = self.pairs.binary_search_by_key(&they.0, |pair| pair.id);
        let pair = &self.pairs[at.ok()?];
        if pair.life != they.1 {
            return None;
        }
        if !pair.agreed.get() {
            let secret = pair_secret(&own.private, &pair.key.get(), own.mix.as_ref())?;
            pair.key.set(*secret.as_bytes());
            pair.agreed.set(true);
        }
        Some(Zeroizing::new(pair.key.get()))
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

    /// From the pair's secret; from `secret` where there is none, which among
    /// peers with public keys must be one that nobody else has.
    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret {
        let pair = self.agree(info);
        self.seal.derive(pair.as_deref().unwrap_or(secret), info)
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
