//! Memory that is used again: pages that a process has not touched before cost more than
//! copying to them.

use std::collections::VecDeque;

/// Pieces that are kept at most.
const PIECES_MAX: usize = 64;
/// Bytes that are kept at most, in all of them.
const BYTES_MAX: usize = 64 << 20;

/// More than any process can address: not even the allocator is asked.
pub const ADDRESSES: usize = 1 << 56;

#[derive(Debug, Default)]
pub struct Spare {
    /// Those that were kept last stand last: supersteps that need more of the same follow.
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Memory with room for so many bytes: the smallest that is kept and fits. None if
    /// there is none to be had.
    pub fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fitting = (self.pieces.iter().enumerate()).filter(|(_, it)| it.capacity() >= bytes);
        let smallest = fitting
            .min_by_key(|(_, it)| it.capacity())
            .map(|(at, _)| at);
        if let Some(memory) = smallest.and_then(|at| self.pieces.remove(at)) {
            self.bytes -= memory.capacity();
            return Some(memory);
        }
        let mut memory = Vec::new();
        let got = bytes < ADDRESSES && memory.try_reserve_exact(bytes).is_ok();
        got.then_some(memory)
    }

    /// Keeps memory, in the place of what was kept first if there is enough.
    pub fn keep(&mut self, memory: Vec<u8>) {
        let bytes = memory.capacity();
        if bytes == 0 || bytes > BYTES_MAX {
            return;
        }
        self.bytes += bytes;
        self.pieces.push_back(memory);
        while self.pieces.len() > PIECES_MAX || self.bytes > BYTES_MAX {
            let first = self.pieces.pop_front();
            self.bytes -= first.map_or(0, |it| it.capacity());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_that_fits_is_used_again() {
        let mut spare = Spare::default();
        for bytes in [10, 4000, 100] {
            spare.keep(Vec::with_capacity(bytes));
        }
        assert_eq!(spare.take(50).unwrap().capacity(), 100);
        assert_eq!(spare.take(50).unwrap().capacity(), 4000);
        assert_eq!(spare.take(50).unwrap().capacity(), 50);
        assert!(spare.take(usize::MAX).is_none());
    }

    #[test]
    fn what_is_kept_has_bounds() {
        let mut spare = Spare::default();
        for _ in 0..3 {
            spare.keep(Vec::with_capacity(BYTES_MAX / 2));
        }
        assert_eq!((spare.pieces.len(), spare.bytes), (2, BYTES_MAX));
        let mut spare = Spare::default();
        for _ in 0..=PIECES_MAX {
            spare.keep(Vec::with_capacity(1));
        }
        assert_eq!(spare.pieces.len(), PIECES_MAX);
        // What comes last is kept, whatever was before it.
        spare.keep(Vec::with_capacity(BYTES_MAX));
        assert_eq!((spare.pieces.len(), spare.bytes), (1, BYTES_MAX));
        spare.keep(Vec::with_capacity(BYTES_MAX + 1));
        assert_eq!(spare.bytes, BYTES_MAX);
    }
}
