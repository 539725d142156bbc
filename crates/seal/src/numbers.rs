//! Random numbers that others may see.

use blake2::Blake2sMac;
use blake2::digest::consts::U8;
use blake2::digest::{FixedOutput, KeyInit, Update};

/// Number `n` of a sequence that nobody without the key can tell from chance, whatever of it
/// was seen: 8 bytes of BLAKE2s (RFC 7693), keyed, over `n`.
#[must_use]
pub fn random_number(key: &[u8; 32], n: u64) -> u64 {
    let mut hash: Blake2sMac<U8> = KeyInit::new(key.into());
    hash.update(&n.to_le_bytes());
    u64::from_le_bytes(hash.finalize_fixed().into())
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_depend_on_the_key_and_their_place() {
        let mut all = BTreeSet::new();
        for last in [0, 1] {
            let mut key = [7; 32];
            key[31] = last;
            all.extend((0..100).map(|n| random_number(&key, n)));
        }
        assert_eq!(all.len(), 200);
        let half = all.iter().filter(|it| *it >> 63 == 1).count();
        assert!((60..140).contains(&half), "{half} of 200");
    }
}
