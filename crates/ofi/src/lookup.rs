//! A table of small numbers that grows and is read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of entries in the first chunk, a power of two. Each further chunk has twice as many.
const FIRST: u64 = 64;
const CHUNKS: usize = 26;

/// Entries from 0 on; each holds a number below `u32::MAX`, or none.
#[derive(Default)]
pub struct Lookup {
    chunks: [OnceLock<Box<[AtomicU32]>>; CHUNKS],
}

const fn place(at: u64) -> (usize, usize) {
    let n = at.saturating_add(FIRST);
    let chunk = n.ilog2() - FIRST.ilog2();
    (chunk as usize, (n - (FIRST << chunk)) as usize)
}

impl Lookup {
    #[inline]
    pub fn get(&self, at: u64) -> Option<u32> {
        let (chunk, at) = place(at);
        let entry = self.chunks.get(chunk)?.get()?.get(at)?;
        entry.load(Ordering::Acquire).checked_sub(1)
    }

    /// Sets an entry. An index beyond the last chunk (about 2^32) is ignored.
    pub fn set(&self, at: u64, number: Option<u32>) {
        let (chunk, at) = place(at);
        if let Some(entries) = self.chunks.get(chunk) {
            let entries =
                entries.get_or_init(|| (0..FIRST << chunk).map(|_| AtomicU32::new(0)).collect());
            let stored = number.map_or(0, |number| number.saturating_add(1));
            entries[at].store(stored, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_again() {
        let table = Lookup::default();
        assert_eq!(table.get(0), None);
        let all = (0..1000).chain([1 << 20, (1 << 20) + 1]);
        for at in all.clone() {
            table.set(at, Some(at as u32));
        }
        for at in all {
            assert_eq!(table.get(at), Some(at as u32));
        }
        table.set(7, None);
        assert_eq!((table.get(7), table.get(8)), (None, Some(8)));
        for beyond in [u64::MAX, 1 << 40] {
            table.set(beyond, Some(1));
            assert_eq!(table.get(beyond), None);
        }
    }
}
