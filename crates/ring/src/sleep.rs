//! Sleeping and waking between processes, without a wake-up lost.
//!
//! The receiver says in a shared word that it sleeps, looks once more, and
//! only then sleeps. A sender shows its message, then looks at that word. Of
//! these two "write, then read the other's" at least one must see the other:
//! that takes a full memory barrier on both sides. [`Fence::Remote`] lets the
//! sleeper pay for both, so that a send costs one load of a quiet line.

use crate::CacheLine;
use crate::atomic::{AtomicU64, Ordering, fence};

/// Who executes the sender's barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Every sender, on every send (some 20-100 ns).
    Local,
    /// The sleeper, for all senders (membarrier; each must be registered).
    Remote,
}

/// What a sleeper waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slumber {
    /// Messages.
    Arrivals = 1,
    /// Messages, or room to send.
    ArrivalsAndRoom = 2,
}

const AWAKE: u64 = 0;

/// The word in which a receiver says that it sleeps.
#[derive(Clone, Copy, Debug)]
pub struct SleepWord<'m> {
    word: &'m AtomicU64,
    fence: Fence,
}

impl<'m> SleepWord<'m> {
    /// Uses word `index` of `line`, zero at first.
    ///
    /// # Panics
    /// If `index` is 8 or more.
    #[must_use]
    pub fn new(line: &'m CacheLine, index: usize, fence: Fence) -> Self {
        Self {
            word: line.word(index),
            fence,
        }
    }

    /// Receiver: says that it will sleep. It must now look for work once
    /// more, and then either sleep until its bell rings or [`SleepWord::cancel`].
    /// `remote` is the barrier for all, called where [`Fence::Remote`] is set.
    pub fn prepare(&self, slumber: Slumber, remote: impl FnOnce()) {
        self.word.store(slumber as u64, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.fence == Fence::Remote {
            remote();
        }
    }

    /// Receiver: it is awake.
    pub fn cancel(&self) {
        self.word.store(AWAKE, Ordering::Relaxed);
    }

    /// Sender, after it has shown its message: whether it must ring the
    /// bell. To one sleep only one sender rings.
    #[inline(always)]
    #[must_use]
    pub fn must_ring(&self) -> bool {
        self.barrier();
        self.word.load(Ordering::Relaxed) != AWAKE
            && self.word.swap(AWAKE, Ordering::Relaxed) != AWAKE
    }

    /// Reader, after it has freed room: whether it must ring the bell of a
    /// sender that waits for room.
    #[inline]
    #[must_use]
    pub fn must_ring_for_room(&self) -> bool {
        self.barrier();
        // One that has gone to sleep again, for arrivals only, is left alone.
        let waits = Slumber::ArrivalsAndRoom as u64;
        self.word.load(Ordering::Relaxed) == waits
            && self
                .word
                .compare_exchange(waits, AWAKE, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    #[inline(always)]
    fn barrier(&self) {
        if self.fence == Fence::Local {
            fence(Ordering::SeqCst);
        } else {
            // The sleeper's barrier orders the processor; this the compiler.
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_sleep_is_rung_once() {
        let line = CacheLine::default();
        for fence in [Fence::Local, Fence::Remote] {
            let word = SleepWord::new(&line, 3, fence);
            let mut barriers = 0;
            assert!(!word.must_ring());
            word.prepare(Slumber::Arrivals, || barriers += 1);
            assert!(!word.must_ring_for_room());
            assert!(word.must_ring());
            assert!(!word.must_ring());
            word.prepare(Slumber::ArrivalsAndRoom, || barriers += 1);
            assert!(word.must_ring_for_room());
            assert!(!word.must_ring());
            word.prepare(Slumber::Arrivals, || barriers += 1);
            word.cancel();
            assert!(!word.must_ring());
            assert_eq!(barriers, if fence == Fence::Remote { 3 } else { 0 });
        }
    }
}
