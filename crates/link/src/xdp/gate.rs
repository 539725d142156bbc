//! What a host port shares with the program that steers packets to it: which
//! connection numbers it has given out, and counts of what became of packets
//! (`struct gate` of `steer.bpf.c`).

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};

use portolan_sys::bpf::SharedWords;
use portolan_sys::memory::MemoryError;

/// Words of a gate.
pub const GATE_WORDS: usize = KNOWN + KNOWN_BITS as usize / 64;

/// What the words at the beginning of a gate count, in the order of
/// [`GateCounters`].
pub const GATE_COUNTERS: [&str; 6] = [
    "steered",
    "passed_other_queue",
    "passed_too_long",
    "filtered_version",
    "filtered_malformed",
    "filtered_unknown",
];

/// Where the word is that says that the bits are in use.
const IN_USE: usize = 8;
/// Where the bits begin that stand for connection numbers, and how many there
/// are: those that were never given out pass one in so many times, for each
/// that was, and the endpoint drops them.
const KNOWN: usize = 16;
const KNOWN_BITS: u32 = 1 << 18;

/// Packets to a host port since it was opened, as the program counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// Steered past the kernel.
    pub steered: u64,
    /// Passed on to the kernel since they came by another queue.
    pub other_queue: u64,
    /// Passed on to the kernel since they were longer than it takes.
    pub too_long: u64,
    /// Dropped: of another version of the wire format.
    pub bad_version: u64,
    /// Dropped: no packets of ours.
    pub malformed: u64,
    /// Dropped: with a connection number that was not given out.
    pub unknown: u64,
}

/// A gate, as its owner has it.
#[derive(Debug)]
pub struct Gate {
    shared: SharedWords,
    /// Whom numbers were given, and which.
    given: BTreeSet<(u32, u32)>,
}

/// The bit that stands for a number: a word and a mask.
const fn bit(number: u32) -> (usize, u64) {
    let bit = (number ^ (number >> 20 << 6)) % KNOWN_BITS;
    (KNOWN + bit as usize / 64, 1 << (bit % 64))
}

impl Gate {
    /// Maps one. The descriptor may be closed afterwards.
    ///
    /// # Errors
    /// [`MemoryError::Map`].
    pub fn map(map: BorrowedFd<'_>) -> Result<Self, MemoryError> {
        Ok(Self {
            shared: SharedWords::map(map, GATE_WORDS)?,
            given: BTreeSet::new(),
        })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.shared.words()[at]
    }

    /// Lets through packets with these numbers of `peer`, and with no others of
    /// it; those of other peers stay as they are. Before the first call all
    /// packets pass.
    pub fn admit(&mut self, peer: u32, numbers: impl Iterator<Item = u32> + Clone) {
        for number in numbers.clone() {
            if self.given.insert((peer, number)) {
                let (at, mask) = bit(number);
                self.word(at).fetch_or(mask, Relaxed);
            }
        }
        let of_peer = self.given.range((peer, 0)..=(peer, u32::MAX));
        let left = of_peer.filter(|(_, number)| !numbers.clone().any(|it| it == *number));
        for it in left.copied().collect::<Vec<_>>() {
            self.given.remove(&it);
            let (at, mask) = bit(it.1);
            // Others may need it too.
            if !self.given.iter().any(|(_, n)| bit(*n) == (at, mask)) {
                self.word(at).fetch_and(!mask, Relaxed);
            }
        }
        // Whoever sees it sees what was let through before.
        self.word(IN_USE).store(1, Release);
    }

    /// Where the program counts: the words of [`GATE_COUNTERS`]. They stay there
    /// while `self` lives.
    #[must_use]
    pub fn counting(&self) -> &[AtomicU64] {
        &self.shared.words()[..GATE_COUNTERS.len()]
    }

    /// What the program has counted.
    #[must_use]
    pub fn counters(&self) -> GateCounters {
        let count = |at| self.word(at).load(Relaxed);
        GateCounters {
            steered: count(0),
            other_queue: count(1),
            too_long: count(2),
            bad_version: count(3),
            malformed: count(4),
            unknown: count(5),
        }
    }
}
