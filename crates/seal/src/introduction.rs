//! Telling a stranger one's own public key, so that nobody else learns it: the first message
//! of Noise's IK pattern, `e, es, s`; the connect packet that travels with it stands for
//! `ss`. The packet's layout is in `docs/protocol.md`, section 4.3.
//!
//! | | |
//! | --- | --- |
//! | key | `KDF(X25519 of ephemeral and receiver's key, and mix; "ptl1intr", both public keys)` |
//! | seal | ChaCha20-Poly1305 (RFC 8439), nonce 0, nothing associated |
//! | mark | BLAKE2s-128, keyed with BLAKE2s-256("ptl1mark", receiver's public key) |
//!
//! One ephemeral key serves a whole life: what it hides is the same towards all. So the key
//! and nonce of a pair only ever seal the same 32 bytes.

use blake2::digest::consts::U16;
use blake2::digest::{FixedOutput, KeyInit, Mac, Update};
use blake2::{Blake2s256, Blake2sMac, Digest};
use ring::aead::{self, Aad, CHACHA20_POLY1305, LessSafeKey, UnboundKey};

use crate::agreement::agree;
use crate::trace::without_trace;
use crate::{INTRODUCED_BYTES, IntroducedKey, PUBLIC_KEY_BYTES, Secret, Tag, kdf, public_key};

const INTRODUCE_LABEL: &[u8; 8] = b"ptl1intr";
const EPHEMERAL_LABEL: &[u8; 8] = b"ptl1ephe";
const COOKIE_LABEL: &[u8; 8] = b"ptl1cook";
const MARK_LABEL: &[u8; 8] = b"ptl1mark";

/// Peers whose sealed key is remembered: it goes with each packet until they answer.
const REMEMBERED: usize = 16;

/// What an endpoint needs to introduce itself and to be introduced to.
pub(crate) struct Introducer {
    ephemeral: [u8; 32],
    ephemeral_public: [u8; PUBLIC_KEY_BYTES],
    public: [u8; PUBLIC_KEY_BYTES],
    mark_key: [u8; 32],
    cookie_key: [u8; 32],
    remembered: [Option<(u32, IntroducedKey)>; REMEMBERED],
}

/// Keeps P3.9.
fn mark_key(public: &[u8; PUBLIC_KEY_BYTES]) -> [u8; 32] {
    let hash = Blake2s256::new().chain_update(MARK_LABEL);
    hash.chain_update(public).finalize().into()
}

fn keyed(key: &[u8; 32]) -> Blake2sMac<U16> {
    KeyInit::new(key.into())
}

/// Expanded, to seal or to open with once.
fn cipher(key: &Secret) -> LessSafeKey {
    let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_bytes());
    LessSafeKey::new(key.expect("the key has the cipher's length"))
}

/// Sealed under a key once only, or the same again.
fn nonce() -> aead::Nonce {
    aead::Nonce::assume_unique_for_key([0; 12])
}

impl Introducer {
    pub fn new(private: &[u8; 32]) -> Self {
        let ephemeral = kdf::derive(private, EPHEMERAL_LABEL);
        let public = public_key(private);
        Self {
            ephemeral: *ephemeral.as_bytes(),
            ephemeral_public: public_key(ephemeral.as_bytes()),
            mark_key: mark_key(&public),
            public,
            cookie_key: *kdf::derive(private, COOKIE_LABEL).as_bytes(),
            remembered: [None; REMEMBERED],
        }
    }

    /// The own public key.
    pub const fn public_key(&self) -> &[u8; PUBLIC_KEY_BYTES] {
        &self.public
    }

    /// Another may have a peer's number now.
    pub const fn forget(&mut self, peer: u32) {
        self.remembered[peer as usize % REMEMBERED] = None;
    }

    /// Seals the own public key to a peer. `plain`: without security it is not hidden.
    /// (P3.9, P4.15, P4.17)
    pub fn seal(
        &mut self,
        mix: Option<&[u8; 32]>,
        peer: u32,
        to: &[u8; PUBLIC_KEY_BYTES],
        plain: bool,
    ) -> Option<IntroducedKey> {
        let place = peer as usize % REMEMBERED;
        if let Some((_, sealed)) = self.remembered[place].filter(|(whose, _)| *whose == peer) {
            return Some(sealed);
        }
        let mut sealed = [0; INTRODUCED_BYTES];
        let (ephemeral, rest) = sealed.split_at_mut(PUBLIC_KEY_BYTES);
        let (body, tag) = rest.split_at_mut(PUBLIC_KEY_BYTES);
        body.copy_from_slice(&self.public);
        if !plain {
            ephemeral.copy_from_slice(&self.ephemeral_public);
            let key = agree(
                &self.ephemeral,
                to,
                mix,
                INTRODUCE_LABEL,
                &self.ephemeral_public,
                to,
            )?;
            without_trace(|| {
                let made = cipher(&key).seal_in_place_separate_tag(nonce(), Aad::empty(), body);
                tag.copy_from_slice(made.expect("32 bytes can be sealed").as_ref());
            });
        }
        self.remembered[place] = Some((peer, sealed));
        Some(sealed)
    }

    /// The public key that somebody has sealed to us.
    pub fn open(
        &self,
        private: &[u8; 32],
        mix: Option<&[u8; 32]>,
        key: &IntroducedKey,
        plain: bool,
    ) -> Option<[u8; PUBLIC_KEY_BYTES]> {
        let (ephemeral, rest) = key.split_first_chunk::<PUBLIC_KEY_BYTES>()?;
        let (body, tag) = rest.split_first_chunk::<PUBLIC_KEY_BYTES>()?;
        let mut body = *body;
        if plain {
            return Some(body);
        }
        let key = agree(
            private,
            ephemeral,
            mix,
            INTRODUCE_LABEL,
            ephemeral,
            &self.public,
        )?;
        let tag = aead::Tag::try_from(tag).ok()?;
        let open = || {
            let key = cipher(&key);
            key.open_in_place_separate_tag(nonce(), Aad::empty(), tag, &mut body, 0..)
                .is_ok()
        };
        without_trace(open).then_some(body)
    }

    /// That of a packet for whoever has a public key (P4.16).
    pub fn mark(to: &[u8; PUBLIC_KEY_BYTES], packet: &[u8]) -> Tag {
        let hash = keyed(&mark_key(to)).chain(packet);
        hash.finalize_fixed().into()
    }

    /// Whether a packet for us has it.
    pub fn has_own_mark(&self, packet: &[u8], mark: &Tag) -> bool {
        let hash = keyed(&self.mark_key).chain(packet);
        hash.verify(mark.into()).is_ok()
    }

    /// A keyed hash that nobody else can make; never 0.
    pub fn fingerprint(&self, words: &[&[u8]]) -> u64 {
        let tag: Tag = without_trace(|| {
            let mut hash = keyed(&self.cookie_key);
            for word in words {
                Update::update(&mut hash, word);
            }
            hash.finalize_fixed().into()
        });
        let word = tag.first_chunk().expect("16 bytes");
        u64::from_le_bytes(*word).max(1)
    }
}
