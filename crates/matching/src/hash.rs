//! A keyed hash of two words.

/// The message is 16 bytes; SipHash hashes its length last.
const LENGTH: u64 = 16 << 56;

/// SipHash-1-3 (Aumasson and Bernstein, 2012), as the standard library's maps
/// use it against the same danger: keys that somebody else chooses. Faster
/// multiplicative hashes are keyed too, but who finds one collision by timing
/// can derive more.
#[inline]
pub(crate) fn hash(secret: [u64; 2], words: [u64; 2]) -> u64 {
    let mut v = [
        secret[0] ^ 0x736f_6d65_7073_6575,
        secret[1] ^ 0x646f_7261_6e64_6f6d,
        secret[0] ^ 0x6c79_6765_6e65_7261,
        secret[1] ^ 0x7465_6462_7974_6573,
    ];
    for word in [words[0], words[1], LENGTH] {
        v[3] ^= word;
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..3 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

#[inline]
const fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    extern crate std;

    use core::hash::Hasher as _;
    use std::hash::DefaultHasher;

    use super::*;

    #[test]
    fn it_is_the_hash_of_the_standard_library() {
        for words in [[0, 0], [1, 2], [u64::MAX, 0x0123_4567_89ab_cdef]] {
            // Its secret is zero.
            let mut theirs = DefaultHasher::new();
            for word in words {
                theirs.write(&word.to_le_bytes());
            }
            assert_eq!(hash([0, 0], words), theirs.finish());
        }
    }

    /// Bytes 0 to 15, as secret and as message, as in the authors' vectors.
    #[test]
    fn the_secret_is_its_key() {
        let words = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        assert_eq!(hash(words, words), 0xcc4f_dd1a_7d90_8b66);
    }
}
