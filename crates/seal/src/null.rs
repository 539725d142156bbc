//! The seal of tests and fuzzers.

use crate::{BadTag, Nonce, Seal, Secret, TAG_BYTES, Tag};

/// Seals with sixteen zero bytes and opens whatever it is given, so that a
/// fuzzer reaches what lies behind. Derives nothing: every key is the secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Null;

impl Seal for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn packets_max(&self) -> u64 {
        u64::MAX
    }

    fn derive(&self, secret: &[u8; 32], _info: &[u8]) -> Secret {
        Secret::new(*secret)
    }

    fn install(&mut self, _slot: usize, _key: &Secret) {}

    fn remove(&mut self, _slot: usize) {}

    fn seal(&self, _slot: usize, _nonce: Nonce, _header: &[u8], _body: &mut [u8]) -> Tag {
        [0; TAG_BYTES]
    }

    fn open(
        &self,
        _slot: usize,
        _nonce: Nonce,
        _header: &[u8],
        _body: &mut [u8],
        _tag: &Tag,
    ) -> Result<(), BadTag> {
        Ok(())
    }
}
