//! The null seal of endpoints that introduce themselves.

use portolan_seal::{BadTag, INTRODUCED_BYTES, IntroducedKey, Nonce, Null, Seal, Secret, Tag};

/// Opens everything; a public key is sealed by standing there. That of an endpoint is its
/// number.
pub(crate) struct Open(pub usize);

/// The public key of an endpoint.
pub(crate) const fn key_of(who: usize) -> [u8; 32] {
    [who as u8 + 1; 32]
}

/// A packet's mark, whoever it is for.
pub(crate) fn mark_of(packet: &[u8]) -> Tag {
    let sum = packet.iter().fold(1_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    });
    [sum.to_le_bytes(), [9; 8]]
        .concat()
        .try_into()
        .expect("16 bytes")
}

/// The public key of an endpoint as an introduction has it.
pub(crate) fn introduced(who: usize) -> IntroducedKey {
    let mut key = [0; INTRODUCED_BYTES];
    key[32..64].copy_from_slice(&key_of(who));
    key
}

impl Seal for Open {
    fn name(&self) -> &'static str {
        Null.name()
    }

    fn packets_max(&self) -> u64 {
        Null.packets_max()
    }

    fn derive(&self, secret: &[u8; 32], info: &[u8]) -> Secret {
        Null.derive(secret, info)
    }

    fn introduce(&mut self, _peer: u32) -> Option<IntroducedKey> {
        Some(introduced(self.0))
    }

    fn introduced(&self, key: &IntroducedKey) -> Option<[u8; 32]> {
        key[32..64].try_into().ok()
    }

    fn mark(&self, _peer: u32, packet: &[u8]) -> Option<Tag> {
        Some(mark_of(packet))
    }

    fn has_own_mark(&self, _packet: &[u8], _mark: &Tag) -> bool {
        true
    }

    fn fingerprint(&self, words: &[&[u8]]) -> u64 {
        let mark = mark_of(&words.concat());
        u64::from_le_bytes(*mark.first_chunk().expect("16 bytes")).max(1)
    }

    fn install(&mut self, _slot: usize, _key: &Secret) {}

    fn remove(&mut self, _slot: usize) {}

    fn seal(&self, slot: usize, nonce: Nonce, header: &[u8], body: &mut [u8]) -> Tag {
        Null.seal(slot, nonce, header, body)
    }

    fn open(
        &self,
        slot: usize,
        nonce: Nonce,
        header: &[u8],
        body: &mut [u8],
        tag: &Tag,
    ) -> Result<(), BadTag> {
        Null.open(slot, nonce, header, body, tag)
    }
}
