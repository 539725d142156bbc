//! Which threads sleep, until when, and how they are woken.
//!
//! Among the threads that wait on one endpoint one at most (the leader) sleeps on its descriptors;
//! the others (followers) sleep on a generation counter. So each bell has one listener, and no
//! thread takes another's ring. When the leader wakes up, for whatever reason, all followers poll
//! again, and one of them leads. The helper thread sleeps on the same descriptors and a bell of its
//! own, but not while a thread of the program leads.
//!
//! A thread that sleeps outside of the endpoint, on a descriptor for other event loops, has a bell
//! that no other thread clears. Each rings once, and then all poll again.
//!
//! A wait that has slept needs no helper until it ends: checking every millisecond whether the
//! program is away would cost more than all else.

mod backoff;
mod idle;
mod waiting;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use portolan_sys::doorbell::Doorbell;
use portolan_sys::epoll::{Epoll, Timer, wait_either};
use portolan_sys::futex::{self, Scope};
use portolan_sys::raw::Errno;

pub(crate) use self::backoff::Backoff;
pub(crate) use self::idle::{Idle, Woken};
pub(crate) use self::waiting::{ANYBODY, Waiting};
pub use self::waiting::{CALLS, Call};

/// Token of the leader's bell in an endpoint's epoll set.
pub(crate) const TOKEN_BELL: u64 = 1;

/// What sleepers wait on without holding the endpoint.
#[derive(Debug)]
pub(crate) struct WaitSet {
    /// The lanes' descriptors, the launcher's, processes on this host, and
    /// the leader's bell.
    pub events: Epoll,
    leader: Doorbell,
    helper: Doorbell,
    /// Whether the helper is awake, though it could not say so to the endpoint.
    helper_up: AtomicBool,
    /// [`PAUSED`], [`ASKED`] or [`STOP`]: what the helper is to do while the program is busy.
    helper_word: AtomicU32,
    /// Made for other event loops; many endpoints have none.
    outer: OnceLock<Outer>,
    /// Generation counter on which followers wait.
    generation: AtomicU32,
    /// [`BUSY`], [`DOZING`] or [`GUARDED`].
    program: AtomicU32,
}

/// Descriptors for other event loops.
#[derive(Debug)]
struct Outer {
    /// Epoll set of the [`WaitSet`]'s descriptors and those below.
    all: Epoll,
    timer: Timer,
    /// Bell for a waiter that has none of its own.
    bell: Arc<Doorbell>,
}

impl Outer {
    fn over(events: &Epoll) -> Result<Self, Errno> {
        let outer = Self {
            all: Epoll::new()?,
            timer: Timer::new()?,
            bell: Arc::new(Doorbell::new()?),
        };
        outer.all.add(events.as_fd(), 0)?;
        outer.all.add(outer.timer.as_fd(), 1)?;
        outer.all.add(outer.bell.as_fd(), 2)?;
        Ok(outer)
    }
}

/// The helper checks now and then whether the program is away.
const PAUSED: u32 = 0;
/// A message waits to share a packet with later ones: the helper checks soon.
const ASKED: u32 = 1;
/// The helper ends.
const STOP: u32 = 2;

/// How soon, ns: the longest that a short message waits for others if the program makes no call
/// that sends it, besides the kernel's time to wake the helper. Each check is an interrupt of the
/// program's core: with 50 us a stream of short messages loses a sixth of its rate.
const ASKED_NS: u64 = 100_000;

/// The program is in no wait that has slept.
const BUSY: u32 = 0;
/// The program is in a wait that has slept.
const DOZING: u32 = 1;
/// As [`DOZING`], and the helper sleeps until that wait ends.
const GUARDED: u32 = 2;

/// Longest such sleep, ns: a wait that a panic has ended does not wake the helper.
const GUARD_NS: u64 = 100_000_000;

impl WaitSet {
    /// Takes over the epoll set of the endpoint's descriptors.
    ///
    /// # Errors
    /// The system call that failed, and its errno.
    pub fn new(events: Epoll) -> Result<Self, (&'static str, Errno)> {
        let bell = || Doorbell::new().map_err(|e| ("eventfd2", e));
        let wait_set = Self {
            events,
            leader: bell()?,
            helper: bell()?,
            helper_up: AtomicBool::new(false),
            helper_word: AtomicU32::new(PAUSED),
            outer: OnceLock::new(),
            generation: AtomicU32::new(0),
            program: AtomicU32::new(BUSY),
        };
        let joined = wait_set.events.add(wait_set.leader.as_fd(), TOKEN_BELL);
        joined.map_err(|e| ("epoll_ctl", e))?;
        Ok(wait_set)
    }

    /// Returns the descriptors for other event loops. The first call makes them: they are three.
    fn outer(&self) -> Result<&Outer, Errno> {
        if let Some(outer) = self.outer.get() {
            return Ok(outer);
        }
        let made = Outer::over(&self.events)?;
        // If another thread was faster, its descriptors are used.
        Ok(self.outer.get_or_init(|| made))
    }

    /// Returns the descriptor for other event loops.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn fd(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.outer()?.all.as_fd())
    }

    /// Returns the bell for a waiter on [`Self::fd`] that has none of its own; `None`: no
    /// descriptor is left.
    pub fn outer_bell(&self) -> Option<&Arc<Doorbell>> {
        Some(&self.outer().ok()?.bell)
    }

    /// Follower: sleeps until the generation is no longer `seen`, or the time is up.
    pub fn follow(&self, seen: u32, timeout: Option<u64>) {
        // However this ends, the caller polls again.
        let _ = futex::wait(&self.generation, seen, timeout, Scope::Process);
    }

    /// Helper: sleeps until a descriptor or its bell is readable, or the time is up.
    pub fn help(&self, timeout: Option<u64>) -> Result<(), Errno> {
        let woken = wait_either(self.events.as_fd(), self.helper.as_fd(), timeout);
        self.helper_up.store(true, Ordering::Relaxed);
        woken
    }

    /// Helper: naps while the program is busy. Returns false if it was asked to check meanwhile,
    /// and still is.
    pub fn nap(&self, ns: u64) -> bool {
        // However this ends, the caller polls again.
        let _ = futex::wait(&self.helper_word, PAUSED, Some(ns), Scope::Process);
        if self.helper_word.load(Ordering::Acquire) != ASKED {
            return true;
        }
        let _ = futex::wait(&self.helper_word, ASKED, Some(ASKED_NS), Scope::Process);
        self.helper_word.load(Ordering::Relaxed) != ASKED
    }

    fn turn(&self, from: u32, to: u32) -> bool {
        let word = &self.helper_word;
        word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Wakes the helper from outside of the endpoint, and ends it.
    pub fn stop_helper(&self) {
        self.helper_word.store(STOP, Ordering::Release);
        futex::wake(&self.helper_word, 1, Scope::Process);
        self.helper.ring();
        self.end_doze();
    }

    /// Whether the helper is to end.
    pub fn is_stopped(&self) -> bool {
        self.helper_word.load(Ordering::Acquire) == STOP
    }

    /// Helper: pauses, unless it is to end.
    pub fn pause(&self, ns: u64) {
        // However this ends, the caller polls again.
        let word = self.helper_word.load(Ordering::Relaxed);
        if word != STOP {
            let _ = futex::wait(&self.helper_word, word, Some(ns), Scope::Process);
        }
    }

    /// Helper: sleeps while the program is in a wait that has slept. Returns false if it is in
    /// none.
    pub fn guard(&self) -> bool {
        let dozes = (self.program)
            .compare_exchange(DOZING, GUARDED, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if dozes {
            // However this ends, the caller polls again.
            let _ = futex::wait(&self.program, GUARDED, Some(GUARD_NS), Scope::Process);
            // The program may still be in that wait.
            let _ = (self.program).compare_exchange(
                GUARDED,
                DOZING,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        dozes
    }

    fn end_doze(&self) {
        if self.program.swap(BUSY, Ordering::Relaxed) == GUARDED {
            futex::wake(&self.program, 1, Scope::Process);
        }
    }
}

/// Senders on this host know that we sleep.
const DECLARED: u8 = 1;
/// A thread waits on the descriptor for other event loops, and its bell is to ring.
const ARMED: u8 = 2;
const HELPER: u8 = 4;
const LEADER: u8 = 8;
const FOLLOWERS: u8 = 16;
/// A wait has slept and goes on.
const DOZES: u8 = 32;
/// Futures wait for what a pass moves.
const WAKERS: u8 = 64;

/// Which threads sleep; changed only by the holder of the endpoint.
pub(crate) struct SleepState {
    pub wait_set: Arc<WaitSet>,
    who: u8,
    followers: u32,
    /// Latest wake-up times of the leader and the helper, ns of the monotonic clock.
    leader_due: u64,
    helper_due: u64,
    /// Latest wake-up time of waiters on [`WaitSet::fd`], ns.
    armed_due: u64,
    /// Bells of these waiters: each rings once, and only its own listener clears it.
    armed: Vec<Arc<Doorbell>>,
    wakers: Vec<Waker>,
    /// Whether these bells were rung and not cleared since.
    leader_rung: bool,
    helper_rung: bool,
    /// Whether the helper was asked to check soon.
    asked: bool,
}

impl SleepState {
    pub const fn new(wait_set: Arc<WaitSet>) -> Self {
        Self {
            wait_set,
            who: 0,
            followers: 0,
            leader_due: u64::MAX,
            helper_due: u64::MAX,
            armed_due: u64::MAX,
            armed: Vec::new(),
            wakers: Vec::new(),
            leader_rung: false,
            helper_rung: false,
            asked: false,
        }
    }

    /// Whether anybody sleeps or waits.
    #[inline(always)]
    pub const fn is_any(&self) -> bool {
        self.who != 0
    }

    /// Whether a call that makes progress may have to undo a declared sleep first.
    #[inline(always)]
    pub const fn is_disturbed(&self) -> bool {
        self.who & (DECLARED | ARMED) != 0
    }

    /// Whether a sleeper may have to wake up sooner than planned.
    #[inline(always)]
    pub const fn relies_on_us(&self) -> bool {
        self.who & (LEADER | HELPER | ARMED) != 0
    }

    /// Whether a thread waits on the descriptor for other event loops.
    pub const fn is_armed(&self) -> bool {
        self.who & ARMED != 0
    }

    /// Whether a sleeper or a future waits for what a pass moves.
    #[inline(always)]
    pub const fn waits_for_events(&self) -> bool {
        self.who & (LEADER | FOLLOWERS | ARMED | WAKERS) != 0
    }

    /// Wakes `waker` after the next pass that moves something.
    pub fn register(&mut self, waker: &Waker) {
        self.who |= WAKERS;
        if !self.wakers.iter().any(|w| w.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// Whether a thread of the program sleeps on the descriptors.
    pub const fn is_led(&self) -> bool {
        self.who & LEADER != 0
    }

    pub const fn is_declared(&self) -> bool {
        self.who & DECLARED != 0
    }

    pub const fn declare(&mut self) {
        self.who |= DECLARED;
    }

    pub const fn undeclare(&mut self) {
        self.who &= !DECLARED;
    }

    /// Marks that a wait is about to sleep.
    pub fn doze(&mut self) {
        if self.who & DOZES == 0 {
            self.who |= DOZES;
            self.wait_set.program.store(DOZING, Ordering::Relaxed);
        }
    }

    /// Whether a wait has slept and goes on.
    #[inline(always)]
    pub const fn dozes(&self) -> bool {
        self.who & DOZES != 0
    }

    /// Marks that this wait has ended.
    #[cold]
    pub fn end_doze(&mut self) {
        self.who &= !DOZES;
        self.wait_set.end_doze();
    }

    /// Makes the calling thread the leader, which wakes up at `due` at the latest.
    pub fn lead(&mut self, due: u64) {
        self.who |= LEADER;
        self.leader_due = due;
    }

    /// Marks that the leader is awake: another thread may lead.
    pub fn step_down(&mut self) {
        self.who &= !LEADER;
        self.tell_followers();
    }

    /// Makes the calling thread a follower; returns the generation for [`WaitSet::follow`].
    pub fn follow(&mut self) -> u32 {
        self.who |= FOLLOWERS;
        self.followers += 1;
        self.wait_set.generation.load(Ordering::Relaxed)
    }

    pub const fn follow_no_more(&mut self) {
        self.followers -= 1;
        if self.followers == 0 {
            self.who &= !FOLLOWERS;
        }
    }

    /// Asks the helper to check soon, since messages wait to share a packet.
    pub fn ask_helper(&mut self) {
        if !std::mem::replace(&mut self.asked, true) && self.wait_set.turn(PAUSED, ASKED) {
            futex::wake(&self.wait_set.helper_word, 1, Scope::Process);
        }
    }

    /// Withdraws that request: the messages have left.
    #[inline]
    pub fn ask_no_more(&mut self) {
        if std::mem::take(&mut self.asked) {
            self.wait_set.turn(ASKED, PAUSED);
        }
    }

    /// Marks that the helper goes to sleep, until `due` at the latest.
    pub fn helper_sleeps(&mut self, due: u64) {
        self.who |= HELPER;
        self.helper_due = due;
        self.wait_set.helper_up.store(false, Ordering::Relaxed);
    }

    /// Marks that the helper is awake; returns whether its bell was rung.
    pub fn helper_is_up(&mut self) -> bool {
        self.who &= !HELPER;
        let rung = std::mem::take(&mut self.helper_rung);
        if rung {
            self.wait_set.helper.clear();
        }
        rung
    }

    /// Clears the leader's bell, unless a sleeping leader has yet to hear it.
    pub fn clear_leader_bell(&mut self) {
        if self.who & LEADER == 0 && std::mem::take(&mut self.leader_rung) {
            self.wait_set.leader.clear();
        }
    }

    fn ring_leader(&mut self) {
        if !std::mem::replace(&mut self.leader_rung, true) {
            self.wait_set.leader.ring();
        }
    }

    fn ring_helper(&mut self) {
        // Once awake, the helper polls by itself.
        self.who &= !HELPER;
        if !std::mem::replace(&mut self.helper_rung, true) {
            self.wait_set.helper.ring();
        }
    }

    fn tell_followers(&mut self) {
        if self.who & FOLLOWERS != 0 {
            self.wait_set.generation.fetch_add(1, Ordering::Relaxed);
            futex::wake(&self.wait_set.generation, i32::MAX as u32, Scope::Process);
        }
    }

    /// Wakes the sleepers and futures that wait for what a pass has moved.
    #[cold]
    pub fn notify(&mut self) {
        if self.who & LEADER != 0 {
            self.ring_leader();
        }
        self.tell_followers();
        self.ring_armed();
        self.who &= !WAKERS;
        self.wakers.drain(..).for_each(Waker::wake);
    }

    /// Rings the bells of all that wait on the descriptor for other event loops.
    pub fn ring_armed(&mut self) {
        self.who &= !ARMED;
        self.armed.drain(..).for_each(|bell| bell.ring());
    }

    /// Wakes those that sleep on the descriptors: senders do not ring any more.
    pub fn wake_sleepers(&mut self) {
        if self.who & LEADER != 0 {
            self.ring_leader();
        }
        if self.who & HELPER != 0 {
            self.ring_helper();
        }
    }

    /// Whether a thread sleeps on the descriptors, as far as we can see.
    pub fn is_anyone_asleep(&mut self) -> bool {
        if self.wait_set.helper_up.load(Ordering::Relaxed) {
            self.who &= !HELPER;
        }
        self.relies_on_us()
    }

    /// Whether the sleeper would miss something due at `due`.
    pub const fn oversleeps(&self, due: u64) -> bool {
        due < if self.who & LEADER != 0 {
            self.leader_due
        } else if self.who & HELPER != 0 {
            self.helper_due
        } else {
            self.armed_due
        }
    }

    /// Wakes a sleeper on the descriptors: the leader, else the helper, else armed waiters.
    pub fn end_sleep(&mut self) {
        if self.who & LEADER != 0 {
            self.ring_leader();
        } else if self.who & HELPER != 0 {
            self.ring_helper();
        } else {
            self.ring_armed();
        }
    }

    /// Prepares for a wait on the descriptor for other event loops and on `bell`, until `due` at
    /// most; `u64::MAX`: no limit. Returns false if no such descriptor can be made.
    pub fn arm(&mut self, due: u64, bell: &Arc<Doorbell>) -> bool {
        self.clear_leader_bell();
        let Ok(outer) = self.wait_set.outer() else {
            return false;
        };
        outer.timer.set((due != u64::MAX).then_some(due));
        self.armed_due = due;
        if !self.armed.iter().any(|it| Arc::ptr_eq(it, bell)) {
            self.armed.push(Arc::clone(bell));
        }
        self.who |= ARMED;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_for_the_leader_stays_until_it_is_up() {
        let mut sleep = SleepState::new(Arc::new(WaitSet::new(Epoll::new().unwrap()).unwrap()));
        let wait_set = Arc::clone(&sleep.wait_set);
        let rings = || wait_set.events.wait(Some(0), |_| ()).unwrap() == 1;
        sleep.lead(u64::MAX);
        sleep.notify();
        assert!(rings());
        // Other threads that poll the descriptors do not clear it.
        sleep.clear_leader_bell();
        assert!(rings());
        sleep.step_down();
        sleep.clear_leader_bell();
        assert!(!rings());
    }

    #[test]
    fn the_helper_sleeps_as_long_as_a_wait_that_has_slept() {
        let mut sleep = SleepState::new(Arc::new(WaitSet::new(Epoll::new().unwrap()).unwrap()));
        let wait_set = Arc::clone(&sleep.wait_set);
        assert!(!wait_set.guard());
        sleep.doze();
        std::thread::scope(|s| {
            let helper = s.spawn(|| wait_set.guard());
            while wait_set.program.load(Ordering::Relaxed) != GUARDED {
                std::thread::yield_now();
            }
            // Sleeps once more within the same wait.
            sleep.doze();
            sleep.end_doze();
            assert!(helper.join().unwrap());
        });
        assert!(!sleep.dozes() && !wait_set.guard());
    }

    #[test]
    fn followers_get_up_with_their_leader() {
        let mut sleep = SleepState::new(Arc::new(WaitSet::new(Epoll::new().unwrap()).unwrap()));
        sleep.lead(u64::MAX);
        let seen = sleep.follow();
        sleep.step_down();
        // Returns at once: the generation has changed.
        sleep.wait_set.follow(seen, None);
        sleep.follow_no_more();
        assert!(!sleep.waits_for_events());
    }

    #[test]
    fn the_helper_has_its_own_bell() {
        let mut sleep = SleepState::new(Arc::new(WaitSet::new(Epoll::new().unwrap()).unwrap()));
        sleep.helper_sleeps(100);
        assert!(!sleep.oversleeps(100));
        assert!(sleep.oversleeps(99));
        sleep.end_sleep();
        assert!(!sleep.relies_on_us());
        assert_eq!(sleep.wait_set.events.wait(Some(0), |_| ()), Ok(0));
        sleep.wait_set.help(None).unwrap();
        sleep.helper_is_up();
        assert!(!sleep.wait_set.helper.clear());
    }
}
