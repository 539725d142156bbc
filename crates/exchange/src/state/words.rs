//! Unpredictable words, for keys and salts.

use blake2::Blake2sMac;
use blake2::digest::consts::U32;
use blake2::digest::{FixedOutput, KeyInit, Update};

/// Draws words, four at a time, from BLAKE2s (RFC 7693), keyed with a secret, over the number of
/// the exchange and a counter. Known words do not reveal the others.
#[derive(Debug)]
pub(crate) struct Words {
    /// State behind the exchange's number.
    hash: Blake2sMac<U32>,
    /// Number of hashes made.
    hashes: u64,
    /// The last hash, and the number of words drawn of it.
    block: [u64; 4],
    drawn: usize,
}

impl Words {
    /// With one secret, exchanges of different numbers draw different words.
    pub fn new(secret: &[u8; 32], number: u8) -> Self {
        let mut hash: Blake2sMac<U32> = KeyInit::new(secret.into());
        hash.update(&[number]);
        Self {
            hash,
            hashes: 0,
            block: [0; 4],
            drawn: 4,
        }
    }

    /// Returns the next word, never 0.
    pub fn draw(&mut self) -> u64 {
        loop {
            let Some(word) = self.block.get(self.drawn) else {
                self.refill();
                continue;
            };
            self.drawn += 1;
            if *word != 0 {
                return *word;
            }
        }
    }

    fn refill(&mut self) {
        self.hashes += 1;
        let hash = self.hash.clone().chain(self.hashes.to_le_bytes());
        let bytes: [u8; 32] = hash.finalize_fixed().into();
        let word = |at| u64::from_le_bytes(core::array::from_fn(|i| bytes[8 * at + i]));
        self.block = core::array::from_fn(word);
        self.drawn = 0;
    }
}
