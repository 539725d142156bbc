//! Memory that is reused: pages that a process has not touched before cost more than copying
//! to them.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};

/// Most pieces kept.
const PIECES_MAX: usize = 64;
/// Most bytes kept, in all pieces.
const BYTES_MAX: usize = 64 << 20;

/// Bytes from which memory is in huge pages: another process that reads it then does not
/// look up each page of 4 KiB.
const HUGE_MIN: usize = 1 << 20;
/// Usual size of a huge page, bytes. Linux aligns a mapping whose length is a multiple of it.
const HUGE_PAGE: usize = 2 << 20;
/// Most bytes that the allocator adds to its mapping.
const BESIDE: usize = 64;
/// Bytes of a page.
const PAGE: usize = 4096;

/// More bytes than any process can address: the allocator is not even asked for them.
pub const ADDRESSES: usize = 1 << 56;

#[derive(Debug, Default)]
pub struct Spare {
    /// Kept pieces, the newest last: supersteps that need the same sizes follow.
    pieces: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Returns memory for `bytes` bytes: the smallest kept piece that fits, and of several the
    /// newest, which is the likeliest to be in a cache. Allocates if none fits; `None` if there
    /// is no memory.
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

    /// Keeps memory for reuse, and drops the oldest pieces beyond the bounds.
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

/// Turns memory into huge pages, even where the allocator has touched it; since Linux 6.1.
/// Where the kernel has none, small pages do as well.
fn collapse(memory: &Vec<u8>) {
    const MADV_COLLAPSE: c_int = 25;
    let start = memory.as_ptr().map_addr(|start| start & !(PAGE - 1));
    let bytes = memory.as_ptr().addr() - start.addr() + memory.capacity();
    // SAFETY: changes how the memory is kept, not its contents.
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
        // The newest is kept, whatever was before it.
        spare.keep(Vec::with_capacity(BYTES_MAX));
        assert_eq!((spare.pieces.len(), spare.bytes), (1, BYTES_MAX));
        spare.keep(Vec::with_capacity(BYTES_MAX + 1));
        assert_eq!(spare.bytes, BYTES_MAX);
    }
}
