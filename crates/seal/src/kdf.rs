//! Key derivation: HKDF-SHA256 (RFC 5869), extract with an empty salt, then
//! expand. Extracting costs one more hash and admits secrets that are not
//! uniform, such as the result of a key exchange.

use crate::Secret;
use crate::trace::without_trace;
use ring::hkdf::{HKDF_SHA256, Salt};

/// Derives a secret from another, or from content of any length, for the
/// purpose that `info` spells out (P3.1).
#[must_use]
pub fn derive(input: &[u8], info: &[u8]) -> Secret {
    let mut out = Secret([0; 32]);
    without_trace(|| {
        Salt::new(HKDF_SHA256, &[])
            .extract(input)
            .expand(&[info], HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut out.0))
            .expect("one hash length is within HKDF's limit");
    });
    out
}
