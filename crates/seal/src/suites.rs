//! The suites themselves: which algorithm, how long a key lasts, and how one
//! packet is sealed and opened with a key.

use crate::trace::without_trace_within;
use crate::{BadTag, Nonce, Tag};
use ::aegis::aegis128l::Aegis128L as Cipher;
use ring::aead::{self, Aad, LessSafeKey, UnboundKey};
use zeroize::Zeroize;

/// Packets that a key may seal where the cipher itself would allow more. The
/// protocol counts them in 32 bits, so a higher limit would never be reached.
const PACKETS_COUNTED: u64 = 1 << 31;

/// Stack that is wiped behind one packet, in words of 16 bytes: 768 bytes for AEGIS, 3,072
/// for the others. Seen in use: 500; 700 by AES-GCM, 1,500 by ChaCha20-Poly1305.
const AEGIS_WORDS: usize = 48;
const RING_WORDS: usize = 192;

/// An AEAD with 128-bit tags.
pub trait Suite {
    /// Name of the suite, as it goes into keys and settings.
    const NAME: &'static str;
    /// Packets that one key may seal.
    const PACKETS_MAX: u64;
    /// A key as it lies in the table.
    type Key: Key;

    /// Makes a key ready for use. It begins with the first bytes of `key`.
    fn expand(key: &[u8; 32]) -> Self::Key;
}

/// A key that is ready for use.
pub trait Key {
    /// As [`crate::Seal::seal`].
    fn seal(&self, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag;

    /// As [`crate::Seal::open`].
    ///
    /// # Errors
    /// [`BadTag`].
    fn open(&self, nonce: Nonce, header: &[u8], body: &mut [u8], tag: &Tag) -> Result<(), BadTag>;

    /// Wipes it, where the key is plain bytes.
    fn wipe(&mut self) {}
}

/// AEGIS-128L (RFC 10032).
#[derive(Clone, Copy, Debug)]
pub enum Aegis128L {}

impl Suite for Aegis128L {
    const NAME: &'static str = "aegis-128l";
    /// RFC 10032 sets a limit for random nonces only, and ours are counted.
    const PACKETS_MAX: u64 = PACKETS_COUNTED;
    type Key = AegisKey;

    fn expand(key: &[u8; 32]) -> AegisKey {
        let [key, _] = key.as_chunks().0 else {
            unreachable!("twice 16 bytes")
        };
        AegisKey(*key)
    }
}

/// AES-128-GCM (NIST SP 800-38D).
#[derive(Clone, Copy, Debug)]
pub enum Aes128Gcm {}

impl Suite for Aes128Gcm {
    const NAME: &'static str = "aes-128-gcm";
    /// RFC 9001, section 6.6 and appendix B.1: packets of up to 2^16 bytes.
    const PACKETS_MAX: u64 = 1 << 23;
    type Key = LessSafeKey;

    fn expand(key: &[u8; 32]) -> LessSafeKey {
        expanded(&aead::AES_128_GCM, key)
    }
}

/// ChaCha20-Poly1305 (RFC 8439).
#[derive(Clone, Copy, Debug)]
pub enum ChaCha20Poly1305 {}

impl Suite for ChaCha20Poly1305 {
    const NAME: &'static str = "chacha20-poly1305";
    /// RFC 9001, section 6.6 sets none that 2^62 packets could reach.
    const PACKETS_MAX: u64 = PACKETS_COUNTED;
    type Key = LessSafeKey;

    fn expand(key: &[u8; 32]) -> LessSafeKey {
        expanded(&aead::CHACHA20_POLY1305, key)
    }
}

/// Key of AEGIS-128L: nothing is computed from it in advance.
// Aligned, so that few keys of a table lie in two cache lines.
#[repr(align(8))]
pub struct AegisKey(::aegis::aegis128l::Key);

impl AegisKey {
    #[inline]
    fn with(&self, nonce: Nonce) -> Cipher<16> {
        Cipher::new(&self.0, &nonce.to_16_bytes())
    }
}

impl Key for AegisKey {
    #[inline]
    fn seal(&self, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        without_trace_within::<AEGIS_WORDS, _>(|| self.with(nonce).encrypt_in_place(body, header))
    }

    #[inline]
    fn open(&self, nonce: Nonce, header: &[u8], body: &mut [u8], tag: &Tag) -> Result<(), BadTag> {
        without_trace_within::<AEGIS_WORDS, _>(|| {
            let opened = self.with(nonce).decrypt_in_place(body, tag, header);
            opened.map_err(|_| BadTag)
        })
    }

    fn wipe(&mut self) {
        self.0.zeroize();
    }
}

fn expanded(algorithm: &'static aead::Algorithm, key: &[u8; 32]) -> LessSafeKey {
    let key = UnboundKey::new(algorithm, &key[..algorithm.key_len()]);
    LessSafeKey::new(key.expect("the key has the algorithm's length"))
}

#[inline]
fn nonce_of(nonce: Nonce) -> aead::Nonce {
    aead::Nonce::assume_unique_for_key(nonce.to_bytes())
}

impl Key for LessSafeKey {
    #[inline]
    fn seal(&self, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        without_trace_within::<RING_WORDS, _>(|| {
            let tag = self
                .seal_in_place_separate_tag(nonce_of(nonce), Aad::from(header), body)
                .expect("a packet is far shorter than the cipher's limit");
            tag.as_ref().try_into().expect("a tag has 16 bytes")
        })
    }

    #[inline]
    fn open(&self, nonce: Nonce, header: &[u8], body: &mut [u8], tag: &Tag) -> Result<(), BadTag> {
        without_trace_within::<RING_WORDS, _>(|| {
            let (nonce, header, tag) = (nonce_of(nonce), Aad::from(header), aead::Tag::from(*tag));
            self.open_in_place_separate_tag(nonce, header, tag, body, 0..)
                .map(|_| ())
                .map_err(|_| BadTag)
        })
    }
}
