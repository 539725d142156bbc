//! Who makes an endpoint's progress: its caller or the helper thread.
//!
//! Each says in a word of its own that it wants the endpoint, then looks at the
//! other's word. Of these two "write, then read the other's" at least one must
//! see the other, which takes a full barrier on both sides. The owner comes
//! with every call and the helper hardly ever: with [`Fence::Remote`] the helper
//! pays for both, and a call costs two plain stores and a load of a quiet line.

use crate::Fence;
use crate::atomic::{AtomicU32, Ordering, fence, spin_loop};

const FREE: u32 = 0;
const HELD: u32 = 1;
/// The helper holds it and the owner waits.
const WANTED: u32 = 2;

/// Looks at the word that often before the owner lets other threads run.
#[cfg(not(loom))]
const SPINS: u32 = 200;
#[cfg(loom)]
const SPINS: u32 = 1;

/// The ownership words of an endpoint. The owner (one thread, or several that
/// keep each other out by other means) takes it in each call; the helper
/// takes it when the owner has been away, and hands back when wanted.
#[derive(Debug)]
#[repr(align(64))]
pub struct Ownership {
    owner: AtomicU32,
    /// Counts the owner's calls, so that the helper sees that it was away.
    calls: AtomicU32,
    helper: AtomicU32,
    fence: Fence,
}

impl Ownership {
    /// A free one.
    #[must_use]
    pub fn new(fence: Fence) -> Self {
        Self {
            owner: AtomicU32::new(FREE),
            calls: AtomicU32::new(0),
            helper: AtomicU32::new(FREE),
            fence,
        }
    }

    /// Owner: takes it; where the helper holds it, asks for it and waits.
    pub fn acquire(&self) {
        while !self.try_acquire() {
            self.await_helper();
        }
    }

    /// Owner: takes it, unless the helper holds it.
    #[inline(always)]
    #[must_use]
    pub fn try_acquire(&self) -> bool {
        self.owner.store(HELD, Ordering::Relaxed);
        if self.fence == Fence::Local {
            fence(Ordering::SeqCst);
        } else {
            // The helper's barrier orders the processor; this the compiler.
            std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
        }
        if self.helper.load(Ordering::Acquire) != FREE {
            // Steps back: the helper may have met our claim with its own.
            self.owner.store(FREE, Ordering::Release);
            return false;
        }
        // Only the owner counts, so no locked instruction is needed.
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls.wrapping_add(1), Ordering::Relaxed);
        true
    }

    #[cold]
    fn await_helper(&self) {
        let mut spins = 0;
        while self.helper.load(Ordering::Relaxed) != FREE {
            let _ =
                self.helper
                    .compare_exchange(HELD, WANTED, Ordering::Relaxed, Ordering::Relaxed);
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
        if self.helper.load(Ordering::Relaxed) == WANTED {
            use portolan_sys::futex::{Scope, wait};
            // Every ending leads to another look at the word.
            let _ = wait(&self.helper, WANTED, None, Scope::Process);
        } else {
            std::thread::yield_now();
        }
    }

    /// Owner: gives it back.
    #[inline(always)]
    pub fn release(&self) {
        debug_assert!(self.owner.load(Ordering::Relaxed) == HELD);
        self.owner.store(FREE, Ordering::Release);
    }

    /// Helper: takes it if nobody holds it. `remote` is a barrier for all
    /// threads of the process, called where [`Fence::Remote`] is set; where it
    /// gives false, there was none, and nothing is taken.
    #[must_use]
    pub fn try_help(&self, remote: impl FnOnce() -> bool) -> bool {
        if self.owner.load(Ordering::Relaxed) != FREE {
            return false;
        }
        self.helper.store(HELD, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let ordered = self.fence == Fence::Local || remote();
        if ordered && self.owner.load(Ordering::Acquire) == FREE {
            return true;
        }
        self.hand_back();
        false
    }

    /// Helper, while it holds it: whether the owner waits. Look after each
    /// burst, and hand back at once.
    #[inline]
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.helper.load(Ordering::Relaxed) == WANTED
    }

    /// Helper: gives it back.
    pub fn hand_back(&self) {
        let before = self.helper.swap(FREE, Ordering::Release);
        debug_assert!(before == HELD || before == WANTED);
        #[cfg(not(loom))]
        if before == WANTED {
            use portolan_sys::futex::{Scope, wake};
            wake(&self.helper, 1, Scope::Process);
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

    /// As the helper calls it where it can.
    fn help(o: &Ownership) -> bool {
        o.try_help(|| portolan_sys::barrier::threads().is_ok())
    }

    fn fences() -> Vec<Fence> {
        match portolan_sys::barrier::register_threads() {
            Ok(()) => vec![Fence::Local, Fence::Remote],
            Err(_) => vec![Fence::Local],
        }
    }

    #[test]
    fn each_role_gets_it_when_free() {
        for fence in fences() {
            let o = Ownership::new(fence);
            o.acquire();
            assert_eq!(o.calls(), 1);
            assert!(!help(&o));
            o.release();
            assert!(help(&o));
            assert!(!o.is_wanted());
            o.hand_back();
            assert_eq!(o.calls(), 1);
            o.acquire();
            o.release();
        }
    }

    #[test]
    fn without_a_barrier_nothing_is_taken() {
        let o = Ownership::new(Fence::Remote);
        assert!(!o.try_help(|| false));
        o.acquire();
        o.release();
    }

    #[test]
    fn two_threads_never_hold_it_together() {
        for fence in fences() {
            never_together(fence);
        }
    }

    fn never_together(fence: Fence) {
        struct OwnedCell(Ownership, UnsafeCell<u64>, AtomicBool);
        // SAFETY: the cell is touched by whoever holds the ownership only;
        // that this excludes is what the test shows (under the sanitizer).
        unsafe impl Sync for OwnedCell {}
        let s = OwnedCell(
            Ownership::new(fence),
            UnsafeCell::new(0),
            AtomicBool::new(false),
        );
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
                if help(&s.0) {
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
        assert!(help(&s.0));
        // SAFETY: held, and both threads have ended.
        assert_eq!(unsafe { *s.1.get() }, 20_000 + helped);
    }
}
