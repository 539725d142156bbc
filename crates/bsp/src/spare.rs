//! Memory that is used again: pages that a process has not touched before cost more than
//! copying to them.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

/// Pieces that are kept at most.
const PIECES_MAX: usize = 64;
/// Bytes that are kept at most, in all of them.
const BYTES_MAX: usize = 64 << 20;

/// Memory of so many bytes or more is asked for in huge pages: who reads it from another
/// process then does not look up each page of 4 KiB.
const HUGE_MIN: usize = 1 << 20;
/// Bytes of a huge page, mostly. Linux aligns a mapping to it if its length is a multiple.
const HUGE_PAGE: usize = 2 << 20;
/// What the allocator needs in its mapping beside, at most.
const BESIDE: usize = 64;
/// Bytes of a page.
const PAGE: usize = 4096;

/// More than any process can address: not even the allocator is asked.
pub const ADDRESSES: usize = 1 << 56;

#[derive(Debug, Default)]
pub struct Spare {
    /// Those that were kept last stand last: supersteps that need more of the same follow.
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Memory with room for so many bytes: the smallest that is kept and fits, and of
    /// several the last, which is the likeliest to be in a cache. None if there is none to
    /// be had.
    pub fn take(&mut self, bytes: usize) -> Option<Vec<u8>> {
        let fitting =
            (self.pieces.iter().enumerate().rev()).filter(|(_, it)| it.capacity() >= bytes);
        let smallest = fitting
            .min_by_key(|(_, it)| it.capacity())
            .map(|(at, _)| at);
        if let Some(memory) = smallest.and_then(|at| self.pieces.remove(at)) {
            self.bytes -= memory.capacity();
            return Some(memory);
        }
        let mut memory = Vec::new();
        if (HUGE_MIN..ADDRESSES).contains(&bytes) {
            let whole = (bytes + BESIDE).next_multiple_of(HUGE_PAGE) - BESIDE;
            if memory.try_reserve_exact(whole).is_ok() {
                collapse(&memory);
                return Some(memory);
            }
        }
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

unsafe extern "C" {
    fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
}

/// Makes huge pages of memory, also of that which the allocator has touched already; since
/// Linux 6.1. Where the kernel has none, small pages do as well.
fn collapse(memory: &Vec<u8>) {
    const MADV_COLLAPSE: c_int = 25;
    let start = memory.as_ptr().map_addr(|start| start & !(PAGE - 1));
    let bytes = memory.as_ptr().addr() - start.addr() + memory.capacity();
    // SAFETY: it changes how memory is kept, not what is in there.
    unsafe {
        madvise(
            start.cast_mut().cast(),
            bytes.next_multiple_of(PAGE),
            MADV_COLLAPSE,
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_memory_has_whole_pages_and_is_found_again() {
        let mut spare = Spare::default();
        let memory = spare.take(HUGE_MIN).unwrap();
        let capacity = memory.capacity();
        assert_eq!((capacity + BESIDE) % HUGE_PAGE, 0);
        spare.keep(memory);
        assert_eq!(spare.take(capacity).unwrap().capacity(), capacity);
    }

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
