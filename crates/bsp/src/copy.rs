//! Copies of long puts, by the way that is faster between these cores.
//!
//! The memory of a copy was read by another core last. If that is close, a copy through the
//! caches costs a third of one past them, and is read faster too. If it is far, to fetch the
//! lines from there before they are written costs several times more.

use std::time::Instant;

use portolan::copy_beyond;

/// Copies of so many bytes or more are long.
const LONG_MIN: usize = 256 << 10;
/// Each way is tried in so many copies: the first of them find lines that the other way left.
const TRIES: u32 = 4;
/// After so many copies the ways are tried again: the cores may be others.
const PERIOD: u32 = 128;

/// Chooses how to copy.
#[derive(Debug, Default)]
pub struct Copier {
    /// Long copies since the ways were tried last.
    count: u32,
    /// Nanoseconds of a byte at best: through the caches, past them.
    costs: [f64; 2],
}

impl Copier {
    /// Copies bytes to memory that has room for them.
    pub fn copy(&mut self, bytes: &[u8], into: &mut Vec<u8>) {
        into.clear();
        if bytes.len() < LONG_MIN {
            return into.extend_from_slice(bytes);
        }
        let past = self.next();
        let since = Instant::now();
        if past {
            into.reserve(bytes.len());
            // SAFETY: there is room for so many bytes, which are all written.
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
                // The first copy of all may find new memory.
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
