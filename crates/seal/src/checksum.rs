//! `--security none`: detects accidents, defends against nobody.

use crate::{BadTag, Nonce, Seal, Secret, TAG_BYTES, Tag, kdf};

/// CRC-32C over nonce, header and body; nothing is encrypted.
///
/// The tag is the CRC (little-endian) and twelve zero bytes. The nonce is in
/// it so that the part of the packet number that does not travel counts too.
/// There are no keys, so slots are ignored and none is ever empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum;

#[repr(align(8))]
struct Front([u8; 24]);

impl Checksum {
    /// Name of the suite.
    pub const NAME: &'static str = "none";

    /// Keeps P3.5.
    #[inline]
    fn tag(nonce: Nonce, header: &[u8], body: &[u8]) -> Tag {
        // A data packet's nonce and header go in as one aligned run, put
        // together in registers: each call costs about 6 ns, and so do bytes
        // that stand before an aligned eight or were just stored by halves.
        let front = match *header {
            [a, b, c, d, e, f, g, h, i, j, k, l] => {
                let number = nonce.number;
                let words = [
                    u64::from(nonce.path) | number << 32,
                    number >> 32 | u64::from(u32::from_le_bytes([a, b, c, d])) << 32,
                    u64::from_le_bytes([e, f, g, h, i, j, k, l]),
                ];
                let mut front = Front([0; 24]);
                for (to, word) in front.0.chunks_exact_mut(8).zip(words) {
                    to.copy_from_slice(&word.to_le_bytes());
                }
                crc32c::crc32c(&front.0)
            }
            _ => crc32c::crc32c_append(crc32c::crc32c(&nonce.to_bytes()), header),
        };
        let crc = crc32c::crc32c_append(front, body);
        let mut tag = [0; TAG_BYTES];
        tag[..4].copy_from_slice(&crc.to_le_bytes());
        tag
    }
}

impl Seal for Checksum {
    #[inline]
    fn name(&self) -> &'static str {
        Self::NAME
    }

    #[inline]
    fn packets_max(&self) -> u64 {
        u64::MAX
    }

    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret {
        kdf::derive(secret, info)
    }

    #[inline]
    fn install(&mut self, _slot: usize, _key: &Secret) {}

    #[inline]
    fn remove(&mut self, _slot: usize) {}

    #[inline]
    fn seal(&self, _slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        Self::tag(nonce, header, body)
    }

    #[inline]
    fn open(
        &self,
        _slot: usize,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &Tag,
    ) -> Result<(), BadTag> {
        if *tag == Self::tag(nonce, header, body) {
            Ok(())
        } else {
            Err(BadTag)
        }
    }
}
