//! Our own random numbers: xoshiro256++ (Blackman, Vigna), seeded by
//! SplitMix64, so that a seed means the same run on every machine and release.

use portolan_engine::Secrets;

/// One step of SplitMix64's output function: a good hash of one word.
#[must_use]
pub const fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// 32 random bytes that follow from a seed: they come from no stream, so that who needs them
/// shifts nobody's draws.
#[must_use]
pub fn bytes_of(seed: u64) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (at, word) in (0_u64..).zip(bytes.chunks_exact_mut(8)) {
        word.copy_from_slice(&mix(seed ^ mix(at)).to_le_bytes());
    }
    bytes
}

/// The secrets of a life, likewise.
pub fn secrets_of(seed: u64, life: usize) -> Secrets {
    let own = mix(seed ^ mix(life as u64));
    Secrets {
        protocol: bytes_of(own),
        tags: [mix(own ^ 1), mix(own ^ 2)],
        regions: bytes_of(mix(own ^ 3)),
    }
}

/// A generator; plain data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rng([u64; 4]);

impl Rng {
    /// The stream that `seed` names.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = [0; 4];
        let mut word = seed;
        for s in &mut state {
            *s = mix(word);
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        }
        Self(state)
    }

    /// A stream of its own for `purpose`; drawing from it changes no other.
    #[must_use]
    pub fn fork(&self, purpose: u64) -> Self {
        Self::new(self.0[0] ^ mix(purpose ^ self.0[3]))
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        let s = &mut self.0;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// A number below `bound` (0 if that is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((self.word() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// An index of something `len` long.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True `parts` times in a million.
    pub fn ppm(&mut self, parts: u32) -> bool {
        parts != 0 && self.below(1_000_000) < u64::from(parts)
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    /// Between `low` and `high`, each order of magnitude equally likely.
    pub fn scale(&mut self, low: u64, high: u64) -> u64 {
        let low = low.max(1);
        let doublings = (high / low).max(1).ilog2() + 1;
        let from = low << self.below(u64::from(doublings));
        self.between(from.min(high), (from * 2).min(high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_fixed() {
        let mut rng = Rng::new(1);
        let first: Vec<u64> = (0..3).map(|_| rng.word()).collect();
        let mut again = Rng::new(1);
        assert_eq!(first, (0..3).map(|_| again.word()).collect::<Vec<_>>());
        assert_ne!(Rng::new(2).word(), first[0]);
        // Pinned: a changed generator would silently rename every seed.
        assert_eq!(first[0], PINNED);
    }
    const PINNED: u64 = 14_971_601_782_005_023_387;

    #[test]
    fn draws_stay_in_range() {
        let mut rng = Rng::new(7);
        for _ in 0..1000 {
            assert!(rng.below(10) < 10);
            assert!((5..=9).contains(&rng.between(5, 9)));
            assert!((3..=1000).contains(&rng.scale(3, 1000)));
        }
        assert!(!rng.ppm(0));
        assert!(rng.ppm(1_000_000));
        assert_eq!(rng.below(0), 0);
    }
}
