//! Checks of `BSP_CHECK=1`: errors of a program that the standard leaves undefined, and
//! which cost time to find.

use std::hash::{DefaultHasher, Hasher};

use crate::failure::Failure;

/// Access to memory, at any time until the superstep ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    pub start: usize,
    pub bytes: usize,
    pub writes: bool,
    /// Unbuffered: by bsp_hpput or bsp_hpget.
    pub hp: bool,
    /// Process that made the call.
    pub who: u32,
    pub call: &'static str,
}

impl Access {
    const fn end(&self) -> usize {
        self.start.saturating_add(self.bytes)
    }

    /// Whether the result of the two depends on which is first.
    const fn conflicts(&self, other: &Self) -> bool {
        let overlap = self.start < other.end() && other.start < self.end();
        overlap && (self.writes || other.writes) && (self.hp || other.hp)
    }
}

/// Returns two conflicting accesses to memory of a process, if there are any.
pub fn conflict(mut all: Vec<Access>) -> Option<(Access, Access)> {
    all.sort_by_key(|it| (it.start, it.end()));
    // Accesses that reach beyond the start of the next.
    let mut open: Vec<Access> = Vec::new();
    for it in all {
        open.retain(|other| other.end() > it.start);
        if let Some(other) = open.iter().find(|other| other.conflicts(&it)) {
            return Some((*other, it));
        }
        open.push(it);
    }
    None
}

/// Memory that must not change until the superstep ends.
#[derive(Clone, Copy, Debug)]
struct Source {
    start: *const u8,
    bytes: usize,
    sum: u64,
    to: u32,
}

// SAFETY: an address; the code that made it has promised that it may be read.
unsafe impl Send for Source {}

/// Sources of a process's hpputs.
#[derive(Debug, Default)]
pub struct Checks {
    sources: Vec<Source>,
}

/// # Safety
/// `bytes` bytes may be read at `start`.
unsafe fn sum(start: *const u8, bytes: usize) -> u64 {
    let mut hasher = DefaultHasher::new();
    // SAFETY: promised by the caller.
    hasher.write(unsafe { std::slice::from_raw_parts(start, bytes) });
    hasher.finish()
}

impl Checks {
    /// Records the source of an hpput.
    pub fn put(&mut self, to: u32, bytes: &[u8]) {
        self.sources.push(Source {
            start: bytes.as_ptr(),
            bytes: bytes.len(),
            // SAFETY: the bytes of a slice.
            sum: unsafe { sum(bytes.as_ptr(), bytes.len()) },
            to,
        });
    }

    /// Checks at the end of a superstep that sources are as they were at their calls.
    pub fn end(&mut self) -> Result<(), Failure> {
        let mut sources = self.sources.iter();
        // SAFETY: the caller of hpput has promised that the source may be read until the sync.
        match sources.find(|it| unsafe { sum(it.start, it.bytes) } != it.sum) {
            Some(it) => Err(Failure::Changed {
                bytes: it.bytes,
                to: it.to,
            }),
            None => Ok(()),
        }
    }

    /// Returns the reads by hpputs of process `me`.
    pub fn accesses(&self, me: u32) -> impl Iterator<Item = Access> + use<'_> {
        self.sources.iter().map(move |it| Access {
            start: it.start.addr(),
            bytes: it.bytes,
            writes: false,
            hp: true,
            who: me,
            call: "bsp_hpput",
        })
    }

    pub fn clear(&mut self) {
        self.sources.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUT: Access = Access {
        start: 100,
        bytes: 10,
        writes: true,
        hp: false,
        who: 0,
        call: "bsp_put",
    };
    const HPPUT: Access = Access { hp: true, ..PUT };
    const HPGET: Access = Access {
        writes: false,
        ..HPPUT
    };

    #[test]
    fn hp_accesses_that_overlap_conflict_if_one_writes() {
        let at = |it: Access, start| Access { start, ..it };
        for (a, b, conflicts) in [
            (PUT, PUT, false),
            (PUT, HPPUT, true),
            (HPPUT, HPPUT, true),
            (HPGET, HPGET, false),
            (HPGET, PUT, true),
            (HPPUT, at(PUT, 110), false),
            (HPPUT, at(PUT, 109), true),
            (at(PUT, 91), HPPUT, true),
            (at(PUT, 90), HPPUT, false),
        ] {
            for all in [vec![a, b], vec![b, a]] {
                assert_eq!(conflict(all).is_some(), conflicts, "{a:?} {b:?}");
            }
        }
        // A long access beneath many short ones.
        let long = Access {
            start: 0,
            bytes: 1000,
            ..HPGET
        };
        let mut all: Vec<Access> = (0..50).map(|i| at(HPGET, 10 * i)).collect();
        all.push(long);
        assert_eq!(conflict(all.clone()), None);
        all.push(at(PUT, 700));
        assert_eq!(conflict(all), Some((long, at(PUT, 700))));
    }

    #[test]
    fn a_source_that_changes_is_found() {
        let mut bytes = vec![1; 100];
        let mut checks = Checks::default();
        checks.put(3, &bytes.as_mut_slice()[10..]);
        assert_eq!(checks.end(), Ok(()));
        bytes[0] = 2;
        assert_eq!(checks.end(), Ok(()));
        bytes[99] = 2;
        assert_eq!(checks.end(), Err(Failure::Changed { bytes: 90, to: 3 }));
        checks.clear();
        assert_eq!(checks.end(), Ok(()));
    }
}
