//! The acknowledgement that any data packet may carry before its chunks.
//!
//! Every field is an absolute counter, so losing or repeating one
//! acknowledgement changes nothing.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 1 | path that it speaks of |
//! | 1 | 1 | words of bitmap, 0 to 8 |
//! | 2 | 2 | delay since `largest` arrived, units of 64 ns, saturating |
//! | 4 | 4 | packets that arrived marked CE |
//! | 8 | 4 | largest packet number received |
//! | 12 | 4 | base: below it nothing is missing that the receiver still wants |
//! | 16 | 4 | packet limit: numbers below it may be sent |
//! | 20 | 4 | credit: fresh request packets allowed since connect |
//! | 24 | 4 | credit: fresh reply packets allowed since connect |
//! | 28 | 8 n | bitmap: bit i says that base + i was received |

use crate::{WireError, u64_at};

/// Bytes of an acknowledgement without its bitmap.
pub const ACK_BYTES: usize = 28;

/// Words of bitmap at most: 512 packets.
pub const BITMAP_WORDS_MAX: usize = 8;

/// A parsed acknowledgement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ack {
    /// Path whose packets it speaks of.
    pub path: u8,
    /// Time since `largest` arrived, in units of 64 ns, saturating.
    pub delay: u16,
    /// Packets that arrived with the congestion mark, since connect.
    pub ce: u32,
    /// Largest packet number received (low 32 bits).
    pub largest: u32,
    /// First number that the bitmap speaks of; all below is settled.
    pub base: u32,
    /// First packet number that may not be sent yet (low 32 bits).
    pub packet_limit: u32,
    /// Fresh packets allowed since connect, by [`crate::Priority::index`].
    pub credit: [u32; 2],
    /// Words used of `bitmap`.
    pub words: u8,
    /// Bit `i` of word `w` stands for `base + 64 w + i`.
    pub bitmap: [u64; BITMAP_WORDS_MAX],
}

impl Ack {
    /// Bytes that [`Ack::write`] writes.
    #[inline]
    #[must_use]
    pub const fn bytes(&self) -> usize {
        ACK_BYTES + 8 * self.words as usize
    }

    /// Length of the acknowledgement at the start of `bytes`, all of which is there.
    ///
    /// # Errors
    /// As [`Ack::parse`].
    #[inline]
    pub fn length(bytes: &[u8]) -> Result<usize, WireError> {
        let fixed: &[u8; ACK_BYTES] = bytes.first_chunk().ok_or(WireError::Truncated)?;
        let words = fixed[1] as usize;
        if words > BITMAP_WORDS_MAX {
            return Err(WireError::Malformed);
        }
        let length = ACK_BYTES + 8 * words;
        if bytes.len() < length {
            return Err(WireError::Truncated);
        }
        Ok(length)
    }

    /// Reads an acknowledgement at the start of `bytes`; gives its length too (P2.11).
    ///
    /// # Errors
    /// [`WireError::Truncated`], or [`WireError::Malformed`] for too long a bitmap.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, usize), WireError> {
        let length = Self::length(bytes)?;
        let (fixed, bitmap) = bytes.split_first_chunk().ok_or(WireError::Truncated)?;
        let mut ack = Self::without_bitmap(fixed);
        ack.words = fixed[1];
        let words = bitmap.chunks_exact(8).take(ack.words as usize);
        for (word, bytes) in ack.bitmap.iter_mut().zip(words) {
            *word = u64_at(bytes, 0)?;
        }
        Ok((ack, length))
    }

    /// Reads an acknowledgement that ends before its bitmap, whatever its words say (P2.11).
    #[inline(always)]
    #[must_use]
    pub fn without_bitmap(fixed: &[u8; ACK_BYTES]) -> Self {
        let word =
            |i: usize| u32::from_le_bytes([fixed[i], fixed[i + 1], fixed[i + 2], fixed[i + 3]]);
        Self {
            path: fixed[0],
            words: 0,
            delay: u16::from_le_bytes([fixed[2], fixed[3]]),
            ce: word(4),
            largest: word(8),
            base: word(12),
            packet_limit: word(16),
            credit: [word(20), word(24)],
            bitmap: [0; BITMAP_WORDS_MAX],
        }
    }

    /// Writes the acknowledgement at the start of `out` (P2.11).
    ///
    /// # Panics
    /// If `out` is shorter than [`Ack::bytes`]: the caller reserved the room.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        out[0] = self.path;
        out[1] = self.words;
        out[2..4].copy_from_slice(&self.delay.to_le_bytes());
        out[4..8].copy_from_slice(&self.ce.to_le_bytes());
        out[8..12].copy_from_slice(&self.largest.to_le_bytes());
        out[12..16].copy_from_slice(&self.base.to_le_bytes());
        out[16..20].copy_from_slice(&self.packet_limit.to_le_bytes());
        out[20..24].copy_from_slice(&self.credit[0].to_le_bytes());
        out[24..28].copy_from_slice(&self.credit[1].to_le_bytes());
        for (w, word) in self.bitmap[..self.words as usize].iter().enumerate() {
            out[ACK_BYTES + 8 * w..][..8].copy_from_slice(&word.to_le_bytes());
        }
    }
}
