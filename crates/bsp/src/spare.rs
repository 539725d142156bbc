//! Memory that is used again: pages that a process has not touched before cost more than
//! copying to them.

/// Pieces that are kept at most.
const PIECES_MAX: usize = 64;
/// Bytes that are kept at most, in all of them.
const BYTES_MAX: usize = 64 << 20;

/// More than any process can address: not even the allocator is asked.
pub const ADDRESSES: usize = 1 << 56;

#[derive(Debug, Default)]
pub struct Spare {
    pieces: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Memory with room for so many bytes: the smallest that is kept and fits. None if
    /// there is none to be had.
    pub fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fitting = (self.pieces.iter().enumerate()).filter(|(_, it)| it.capacity() >= bytes);
        if let Some((at, _)) = fitting.min_by_key(|(_, it)| it.capacity()) {
            let memory = self.pieces.swap_remove(at);
            self.bytes -= memory.capacity();
            return Some(memory);
        }
        let mut memory = Vec::new();
        let got = bytes < ADDRESSES && memory.try_reserve_exact(bytes).is_ok();
        got.then_some(memory)
    }

    /// Keeps memory, unless there is enough.
    pub fn keep(&mut self, memory: Vec<u8>) {
        let bytes = memory.capacity();
        if bytes > 0 && self.pieces.len() < PIECES_MAX && self.bytes + bytes <= BYTES_MAX {
            self.bytes += bytes;
            self.pieces.push(memory);
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
    }
}
