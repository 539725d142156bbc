//! Words that nobody guesses, for keys and salts.

use blake2::Blake2sMac;
use blake2::digest::consts::U32;
use blake2::digest::{FixedOutput, KeyInit, Update};

/// Four at a time from BLAKE2s (RFC 7693), keyed with a secret, over the number of the exchange
/// and a counter. Whoever was told some of them computes none of the others.
#[derive(Debug)]
pub(crate) struct Words {
    /// Behind the number.
    hash: Blake2sMac<U32>,
    /// How many hashes were made.
    hashes: u64,
    /// The last of them, and what was drawn of it.
    block: [u64; 4],
    drawn: usize,
}

impl Words {
    /// Exchanges of the same secret and other numbers draw other words.
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

    /// The next one, never 0.
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
