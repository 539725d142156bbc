//! A lock whose word names the thread that holds it. A call from a signal handler finds so
//! that the thread that it interrupted is the holder, at whatever instruction that was.

use crate::atomic::{AtomicU32, AtomicU64, Ordering, spin_loop};

const NOBODY: u64 = 0;

/// Looks at the word that often before a thread sleeps.
#[cfg(not(loom))]
const SPINS: u32 = 100;
#[cfg(loom)]
const SPINS: u32 = 1;

/// Threads are named by numbers that differ while they live, and are never 0.
#[derive(Debug)]
pub struct Holder {
    thread: AtomicU64,
    /// Threads that wait.
    waiting: AtomicU32,
    /// Changes whenever one of them is to look again.
    turn: AtomicU32,
}

impl Holder {
    /// Nobody holds it.
    #[must_use]
    pub fn new() -> Self {
        Self {
            thread: AtomicU64::new(NOBODY),
            waiting: AtomicU32::new(0),
            turn: AtomicU32::new(0),
        }
    }

    /// Whether this thread holds it.
    #[inline(always)]
    #[must_use]
    pub fn is(&self, me: u64) -> bool {
        self.thread.load(Ordering::Relaxed) == me
    }

    /// Takes it if nobody holds it.
    ///
    /// # Errors
    /// Who does.
    #[inline(always)]
    pub fn try_take(&self, me: u64) -> Result<(), u64> {
        let free = &self.thread;
        free.compare_exchange(NOBODY, me, Ordering::SeqCst, Ordering::SeqCst)?;
        Ok(())
    }

    /// Takes it when another has given it back.
    #[cold]
    pub fn wait(&self, me: u64) {
        for _ in 0..SPINS {
            if self.is(NOBODY) && self.try_take(me).is_ok() {
                return;
            }
            spin_loop();
        }
        // Who gives it back looks at this behind that, and we the other way round: one of
        // the two sees the other.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        total_order();
        loop {
            let turn = self.turn.load(Ordering::SeqCst);
            if self.try_take(me).is_ok() {
                break;
            }
            self.sleep(turn);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sleeps until the turn is another.
    fn sleep(&self, turn: u32) {
        // Nothing but a wake-up ends this, so that one that is lost fails the test.
        #[cfg(loom)]
        while self.turn.load(Ordering::SeqCst) == turn {
            loom::thread::yield_now();
        }
        #[cfg(not(loom))]
        {
            use portolan_sys::futex::{Scope, wait};
            // Every ending leads to another look at the word.
            let _ = wait(&self.turn, turn, None, Scope::Process);
        }
    }

    /// Whether a thread waits for it.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Gives it back.
    #[inline(always)]
    pub fn leave(&self) {
        self.thread.swap(NOBODY, Ordering::SeqCst);
        total_order();
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.call_next();
        }
    }

    #[cold]
    fn call_next(&self) {
        self.turn.fetch_add(1, Ordering::SeqCst);
        #[cfg(not(loom))]
        {
            use portolan_sys::futex::{Scope, wake};
            wake(&self.turn, 1, Scope::Process);
        }
    }
}

/// Loom takes `SeqCst` of an access for `AcqRel`, and knows it of fences alone.
#[inline(always)]
fn total_order() {
    #[cfg(loom)]
    crate::atomic::fence(Ordering::SeqCst);
}

impl Default for Holder {
    fn default() -> Self {
        Self::new()
    }
}
