//! Copies of long puts: through the caches or past them, whichever is faster between these cores.
//!
//! The memory of a copy was read by another core last. If that core is close, a copy through the
//! caches costs a third of one past them, and is read faster too. If the core is far, fetching
//! the lines from there before they are written costs several times more.

use std::time::Instant;

use portolan::copy_beyond;

/// Length from which copies are long, bytes.
const LONG_MIN: usize = 256 << 10;
/// Trial copies each way: the first of them find lines that the other way left.
const TRIES: u32 = 4;
/// Long copies after which both ways are tried again, as the cores may have changed.
const PERIOD: u32 = 128;

/// Chooses how to copy.
#[derive(Debug, Default)]
pub struct Copier {
    /// Long copies since the ways were tried last.
    count: u32,
    /// Lowest costs through the caches and past them, ns per byte.
    costs: [f64; 2],
}

impl Copier {
    /// Copies `bytes` to `into`, in place of its contents.
    pub fn copy(&mut self, bytes: &[u8], into: &mut Vec<u8>) {
        into.clear();
        if bytes.len() < LONG_MIN {
            return into.extend_from_slice(bytes);
        }
        let past = self.next();
        let since = Instant::now();
        if past {
            into.reserve(bytes.len());
            // SAFETY: the memory is reserved, and all its bytes are written.
            unsafe {
                copy_beyond(bytes.as_ptr(), into.as_mut_ptr(), bytes.len());
                into.set_len(bytes.len());
            }
        } else {
            into.extend_from_slice(bytes);
        }
        self.note(past, since.elapsed().as_nanos() as f64 / bytes.len() as f64);
    }

    /// Whether the next long copy goes past the caches.
    fn next(&mut self) -> bool {
        let [through, past] = self.costs;
        let count = self.count % PERIOD;
        self.count = count + 1;
        if count == 0 {
            self.costs = [f64::INFINITY; 2];
        }
        if count < 2 * TRIES {
            return count >= TRIES;
        }
        past < through
    }

    fn note(&mut self, past: bool, cost: f64) {
        if self.count <= 2 * TRIES {
            let known = &mut self.costs[usize::from(past)];
            *known = known.min(cost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_way_is_taken_until_they_are_tried_again() {
        let mut copier = Copier::default();
        for faster in [true, false, true] {
            let mut taken = [0; 2];
            for _ in 0..PERIOD {
                let past = copier.next();
                taken[usize::from(past)] += 1;
                // The first copy each way may find new memory.
                let slow = if taken[usize::from(past)] == 1 {
                    9.0
                } else {
                    0.0
                };
                copier.note(past, slow + if past == faster { 1.0 } else { 2.0 });
            }
            assert_eq!(taken[usize::from(!faster)], TRIES);
        }
    }

    #[test]
    fn all_bytes_are_copied_either_way() {
        let bytes: Vec<u8> = (0..LONG_MIN + 3)
            .map(|i| i as u8 ^ (i >> 8) as u8)
            .collect();
        let (mut copier, mut into) = (Copier::default(), vec![1; 10]);
        for _ in 0..2 * TRIES {
            copier.copy(&bytes, &mut into);
            assert_eq!(into, bytes);
        }
        copier.copy(&bytes[..5], &mut into);
        assert_eq!(into, bytes[..5]);
    }
}
