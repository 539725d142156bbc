//! Who makes an endpoint's progress: its caller or the helper thread.

use crate::atomic::{AtomicU32, Ordering, spin_loop};

const FREE: u32 = 0;
const OWNER: u32 = 1;
const HELPER: u32 = 2;
/// The helper holds it and the owner waits.
const HELPER_WANTED: u32 = 3;

/// Looks at the word that often before the owner lets other threads run.
#[cfg(not(loom))]
const SPINS: u32 = 200;
#[cfg(loom)]
const SPINS: u32 = 1;

/// Who holds an [`Ownership`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Nobody.
    Free,
    /// The owner, in one of its calls.
    Owner,
    /// The helper thread.
    Helper,
}

/// The ownership word of an endpoint. The owner (one thread, or several that
/// keep each other out by other means) takes it in each call; the helper
/// takes it when the owner has been away, and hands back when wanted.
#[derive(Debug)]
#[repr(align(64))]
pub struct Ownership {
    word: AtomicU32,
    /// Counts the owner's calls, so that the helper sees that it was away.
    calls: AtomicU32,
}

impl Default for Ownership {
    fn default() -> Self {
        Self {
            word: AtomicU32::new(FREE),
            calls: AtomicU32::new(0),
        }
    }
}

impl Ownership {
    /// A free one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Owner: takes it; where the helper holds it, asks for it and waits.
    #[inline(always)]
    pub fn acquire(&self) {
        if self
            .word
            .compare_exchange(FREE, OWNER, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.acquire_slow();
        }
        // Only the owner counts, so no locked instruction is needed.
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
    }

    #[cold]
    fn acquire_slow(&self) {
        let mut spins = 0;
        loop {
            match self
                .word
                .compare_exchange(FREE, OWNER, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(HELPER) => {
                    let _ = self.word.compare_exchange(
                        HELPER,
                        HELPER_WANTED,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                Err(_) => {}
            }
            if spins < SPINS {
                spins += 1;
                spin_loop();
            } else {
                self.wait();
            }
        }
    }

    /// Sleeps while the helper holds it and knows that it is wanted.
    fn wait(&self) {
        #[cfg(loom)]
        loom::thread::yield_now();
        #[cfg(not(loom))]
        if self.word.load(Ordering::Relaxed) == HELPER_WANTED {
            use portolan_sys::futex::{Scope, wait};
            // Every ending leads to another look at the word.
            let _ = wait(&self.word, HELPER_WANTED, None, Scope::Process);
        } else {
            std::thread::yield_now();
        }
    }

    /// Owner: gives it back.
    #[inline(always)]
    pub fn release(&self) {
        debug_assert!(self.holder() == Holder::Owner);
        self.word.store(FREE, Ordering::Release);
    }

    /// Helper: takes it if nobody holds it.
    #[must_use]
    pub fn try_help(&self) -> bool {
        self.word
            .compare_exchange(FREE, HELPER, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Helper, while it holds it: whether the owner waits. Look after each
    /// burst, and hand back at once.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.word.load(Ordering::Relaxed) == HELPER_WANTED
    }

    /// Helper: gives it back.
    pub fn hand_back(&self) {
        let before = self.word.swap(FREE, Ordering::Release);
        debug_assert!(before == HELPER || before == HELPER_WANTED);
        #[cfg(not(loom))]
        if before == HELPER_WANTED {
            use portolan_sys::futex::{Scope, wake};
            wake(&self.word, 1, Scope::Process);
        }
    }

    /// Who holds it; may be old on return.
    #[must_use]
    pub fn holder(&self) -> Holder {
        match self.word.load(Ordering::Relaxed) {
            FREE => Holder::Free,
            OWNER => Holder::Owner,
            _ => Holder::Helper,
        }
    }

    /// How often the owner has taken it, modulo 2^32: unchanged between two
    /// looks means that the owner made no call.
    #[inline]
    #[must_use]
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn each_role_gets_it_when_free() {
        let o = Ownership::new();
        assert_eq!(o.holder(), Holder::Free);
        o.acquire();
        assert_eq!((o.holder(), o.calls()), (Holder::Owner, 1));
        assert!(!o.try_help());
        o.release();
        assert!(o.try_help());
        assert_eq!(o.holder(), Holder::Helper);
        assert!(!o.is_wanted());
        o.hand_back();
        assert_eq!((o.holder(), o.calls()), (Holder::Free, 1));
    }

    #[test]
    fn two_threads_never_hold_it_together() {
        struct Shared(Ownership, UnsafeCell<u64>, AtomicBool);
        // SAFETY: the cell is touched by whoever holds the ownership only;
        // that this excludes is what the test shows (under the sanitizer).
        unsafe impl Sync for Shared {}
        let s = Shared(Ownership::new(), UnsafeCell::new(0), AtomicBool::new(false));
        let s = &s;
        let mut helped = 0;
        std::thread::scope(|t| {
            t.spawn(move || {
                for _ in 0..20_000 {
                    s.0.acquire();
                    // SAFETY: held.
                    unsafe { *s.1.get() += 1 };
                    s.0.release();
                }
                s.2.store(true, Ordering::Release);
            });
            while !s.2.load(Ordering::Acquire) {
                if s.0.try_help() {
                    for _ in 0..50 {
                        // SAFETY: held.
                        unsafe { *s.1.get() += 1 };
                        helped += 1;
                        if s.0.is_wanted() {
                            break;
                        }
                    }
                    s.0.hand_back();
                }
            }
        });
        assert!(s.0.try_help());
        // SAFETY: held, and both threads have ended.
        assert_eq!(unsafe { *s.1.get() }, 20_000 + helped);
    }
}
