//! What is in a message: bytes that follow from its id, so that any part of
//! it can be checked alone.

use crate::rng::mix;

/// Messages of at least this many bytes, or with an argument word, carry
/// their id.
pub const TAG_BYTES_MIN: u64 = 8;

const MARK: u64 = 0x706f_7274_0000_0000;

fn word(id: usize, index: u64) -> u64 {
    if index == 0 {
        MARK | id as u64
    } else {
        mix((id as u64) << 32 ^ index)
    }
}

/// The argument word `index` of a message.
#[must_use]
pub fn arg(id: usize, index: usize) -> u64 {
    word(id, index as u64 * 0x1_0001)
}

/// Writes the bytes of a message from `offset` on.
pub fn fill(id: usize, offset: u64, into: &mut [u8]) {
    let mut at = offset;
    let mut rest = into;
    while !rest.is_empty() {
        let bytes = word(id, at / 8).to_le_bytes();
        let skip = (at % 8) as usize;
        let n = rest.len().min(8 - skip);
        rest[..n].copy_from_slice(&bytes[skip..skip + n]);
        rest = &mut rest[n..];
        at += n as u64;
    }
}

/// Checks bytes of a message.
///
/// # Panics
/// If one differs.
pub fn verify(id: usize, offset: u64, bytes: &[u8]) {
    let mut expected = [0; 512];
    for (i, part) in bytes.chunks(expected.len()).enumerate() {
        let at = offset + (i * expected.len()) as u64;
        let expected = &mut expected[..part.len()];
        fill(id, at, expected);
        assert_eq!(part, expected, "bytes of message {id} from {at} on");
    }
}

/// The id that the start of a message names, if it is long enough.
#[must_use]
pub fn name(args: &[u8], payload: &[u8]) -> Option<usize> {
    let first: [u8; 8] = if args.is_empty() { payload } else { args }
        .get(..8)?
        .try_into()
        .ok()?;
    let word = u64::from_le_bytes(first);
    (word & !0xffff_ffff == MARK).then_some((word & 0xffff_ffff) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_the_whole() {
        let mut whole = [0; 100];
        fill(7, 0, &mut whole);
        let mut part = [0; 31];
        fill(7, 13, &mut part);
        assert_eq!(part, whole[13..44]);
        verify(7, 13, &whole[13..]);
        assert_eq!(name(&[], &whole), Some(7));
        assert_eq!(name(&arg(9, 0).to_le_bytes(), &whole), Some(9));
        assert_eq!(name(&[], &whole[..7]), None);
        assert_eq!(name(&[], &whole[8..]), None);
    }

    #[test]
    #[should_panic(expected = "bytes of message 7")]
    fn a_wrong_byte_is_seen() {
        let mut whole = [0; 100];
        fill(7, 0, &mut whole);
        whole[99] ^= 1;
        verify(7, 0, &whole);
    }
}
