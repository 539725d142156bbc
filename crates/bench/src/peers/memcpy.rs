//! One core that copies memory: what a message through shared memory costs at
//! least, wherever its bytes have to be copied.

use std::hint::black_box;

use portolan_hosts::failure::{Context, Result, fail};
use portolan_hosts::ranks::bind_to;
use portolan_sys::clock::now_ns;

use crate::peers::netpipe::{Buffers, Case, Measured, TRIALS};

/// Cold copies walk through so much on either side, bytes: as much as the two
/// processes of NetPIPE together, with 10 MB for what each sends and as much
/// for what it receives.
const POOL: usize = 20_000_000;
/// They begin at multiples of it, as NetPIPE's do.
const ALIGN: usize = 16 << 10;
/// Bytes that are copied between two looks at the clock.
const BATCH: usize = 64 << 10;

/// A way through a pool that is larger than the caches.
pub struct Walk {
    bytes: usize,
    /// The part that was used longest ago.
    next: usize,
}

impl Walk {
    /// Through so many bytes.
    pub const fn through(bytes: usize) -> Self {
        Self { bytes, next: 0 }
    }

    /// Where the next `size` bytes lie.
    pub fn advance(&mut self, size: usize) -> usize {
        let at = if self.next + size > self.bytes {
            0
        } else {
            self.next
        };
        self.next = at + size + ALIGN - size % ALIGN;
        at
    }
}

/// Copies from one pool to the other.
pub struct Memcpy {
    core: u32,
    from: Vec<u8>,
    to: Vec<u8>,
    /// Where cold copies are.
    walk: Walk,
}

impl Memcpy {
    /// On this core.
    pub fn new(core: u32) -> Self {
        Self {
            core,
            // Written, so that the kernel has given the pages.
            from: vec![1; POOL],
            to: vec![2; POOL],
            walk: Walk::through(POOL),
        }
    }

    /// Measures one case for about `slice_ns`, as often as NetPIPE does, and
    /// gives the best as well.
    ///
    /// # Errors
    /// Where the core cannot be used.
    pub fn slice(&mut self, case: Case, slice_ns: u64) -> Result<Measured> {
        // A thread of its own is bound; this process has others to conduct.
        std::thread::scope(|scope| {
            let copies = scope.spawn(|| self.trials(case, slice_ns));
            copies.join().unwrap_or_else(|_| fail("memcpy failed"))
        })
    }

    fn trials(&mut self, case: Case, slice_ns: u64) -> Result<Measured> {
        bind_to(self.core).context(format!("binding to core {}", self.core))?;
        let mut best = Measured {
            one_way_us: f64::INFINITY,
            messages: 0,
        };
        for _ in 0..TRIALS {
            let (mut copies, mut elapsed_ns) = (0, 0);
            let start_ns = now_ns();
            while elapsed_ns < slice_ns / TRIALS || elapsed_ns == 0 {
                copies += self.batch(case);
                elapsed_ns = now_ns() - start_ns;
            }
            let us = elapsed_ns as f64 / 1e3 / copies as f64;
            best.one_way_us = best.one_way_us.min(us);
            best.messages += copies;
        }
        Ok(best)
    }

    /// Some copies; gives how many.
    fn batch(&mut self, case: Case) -> u64 {
        let size = case.size;
        let count = (BATCH / size).max(1);
        for _ in 0..count {
            let at = match case.buffers {
                Buffers::Warm => 0,
                Buffers::Cold | Buffers::Fresh => self.walk.advance(size),
            };
            let from = &self.from[at..at + size];
            self.to[at..at + size].copy_from_slice(black_box(from));
            black_box(&mut self.to);
        }
        count as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(size: usize, buffers: Buffers) -> (Measured, Vec<usize>) {
        let core = portolan_hosts::ranks::allowed_cores().unwrap()[0];
        let mut memcpy = Memcpy::new(core);
        let measured = memcpy.slice(Case { size, buffers }, 300_000).unwrap();
        let of_block = |block: &[u8]| block.iter().filter(|&&byte| byte == 1).count();
        (measured, memcpy.to.chunks(ALIGN).map(of_block).collect())
    }

    #[test]
    fn warm_copies_stay_and_cold_ones_walk() {
        let (measured, blocks) = copied(100, Buffers::Warm);
        assert!(measured.one_way_us > 0.0 && measured.one_way_us.is_finite());
        assert!(measured.messages >= TRIALS, "{measured:?}");
        assert_eq!((blocks[0], blocks[1]), (100, 0));
        // A batch of 655 is half of the pool.
        let (_, blocks) = copied(100, Buffers::Cold);
        assert!(blocks[..655].iter().all(|&bytes| bytes == 100));
    }

    #[test]
    fn cold_copies_of_any_size_stay_in_the_pool() {
        let mut walk = Walk::through(POOL);
        for size in [1, ALIGN - 1, ALIGN, crate::peers::netpipe::SIZE_MAX] {
            let mut wraps = 0;
            for _ in 0..3_000 {
                let at = walk.advance(size);
                assert!(
                    at + size <= POOL && at.is_multiple_of(ALIGN),
                    "{size} at {at}"
                );
                wraps += u32::from(at == 0);
            }
            assert!((2..1_000).contains(&wraps), "{size}: {wraps}");
        }
    }
}
