//! Waiting: spin briefly, then yield the core, then sleep in the kernel.

use std::time::Duration;

use portolan_engine::{Misuse, SpaceId, WaitError};
use portolan_sys::clock::now_ns;

use super::{Guard, Space};
use crate::config::Threads;
use crate::sleep::{ANYBODY, Call, Waiting, Woken};
use crate::state::State;

/// How a wait ended, and the endpoint, which no other thread has had meanwhile unless threads wait
/// for each other ([`Threads::Multiple`]).
pub(crate) type Waited<'e, R> = Result<(Guard<'e>, Result<R, WaitError>), Misuse>;

const CONDITION: Waiting = Waiting::of(Call::Condition, ANYBODY);

impl State {
    /// Marks that a wait is over.
    #[inline(always)]
    fn stop_waiting(&mut self, why: Waiting) {
        self.waiting.call = Call::None;
        if self.sleep.dozes() {
            self.sleep.end_doze();
        }
        if let Some(trace) = &mut self.core.trace {
            trace.waited(why.call as u32, why.rank);
        }
    }
}

/// Interval at which processes that access memory directly are polled, ns: their end wakes no
/// waiter.
pub(crate) const LOOK_NS: u64 = 1_000_000;
/// Passes between two checks of a deadline while data keeps moving: a peer that sends without end,
/// valid or not, must not keep a wait beyond it.
const PASSES_UNTIMED: u32 = 64;
/// Messages after which a wait lets other threads have the endpoint, though more come.
const KEPT_MAX: usize = 64;

impl Space {
    /// Makes one pass of progress: receives what has arrived, runs handlers, sends what is due.
    /// Returns how much was moved; 0 if nothing waited.
    ///
    /// # Errors
    /// [`Misuse`].
    #[inline]
    pub fn progress(&self) -> Result<usize, Misuse> {
        let Some(mut s) = self.inner.state.enter_at_once() else {
            return self.progress_slow();
        };
        if s.pass_in_vain() {
            return Ok(0);
        }
        Self::make_pass(s)
    }

    #[cold]
    fn progress_slow(&self) -> Result<usize, Misuse> {
        Self::make_pass(self.enter()?)
    }

    /// Makes a pass in which something is found, or due.
    #[inline(never)]
    fn make_pass(mut s: Guard<'_>) -> Result<usize, Misuse> {
        s.begin();
        let (mut moved, rest) = s.pass_short();
        if rest {
            moved = s.pass_rest(moved);
            s.end();
            s.rethrow();
        }
        Ok(moved)
    }

    /// Makes progress until `done` returns true. Spins briefly, then yields, then sleeps in the
    /// kernel. `done` is called when something has moved: a change by another thread without a
    /// message does not wake the waiter.
    ///
    /// # Errors
    /// [`WaitError::PeerDead`] once for each peer whose process dies (and for the last peer that
    /// closes its endpoint): a wait for it would never end. Call again to go on waiting for others.
    #[inline]
    pub fn wait_until(&self, mut done: impl FnMut() -> bool) -> Result<(), WaitError> {
        let s = self.enter()?;
        self.wait_loop(s, None, true, CONDITION, |s| self.check(s, &mut done))?
    }

    /// As [`Space::wait_until`], for `limit` at most.
    ///
    /// # Errors
    /// As [`Space::wait_until`], and [`WaitError::TimedOut`].
    pub fn wait_timeout(
        &self,
        limit: Duration,
        mut done: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        let s = self.enter()?;
        let limit = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let deadline = now_ns().saturating_add(limit);
        self.wait_loop(s, Some(deadline), true, CONDITION, |s| {
            self.check(s, &mut done)
        })?
    }

    #[inline(always)]
    fn check(
        &self,
        s: &mut State,
        done: &mut impl FnMut() -> bool,
    ) -> Option<Result<(), WaitError>> {
        if done() {
            return Some(Ok(()));
        }
        // Error callbacks come first, so that they can say which rank it was.
        if s.core.lanes.has_reports()
            && s.core.events.is_empty()
            && let Some((rank, why)) = s.core.lanes.next_report(self.id)
        {
            return Some(Err(WaitError::PeerDead { rank, why }));
        }
        None
    }

    /// Makes passes until `poll` has a result. `unwind`: a handler's panic ends the wait at once,
    /// not when it is over. `why` is for observers.
    #[inline]
    pub(crate) fn wait_loop<'e, R>(
        &'e self,
        s: Guard<'e>,
        deadline: Option<u64>,
        unwind: bool,
        why: Waiting,
        poll: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, WaitError> {
        let (mut s, ended) = self.wait_held(s, deadline, unwind, why, poll)?;
        s.rethrow();
        ended
    }

    /// As [`Space::wait_loop`], but keeps holding the endpoint, and without `unwind` leaves it to
    /// the caller to resume a panic.
    #[inline]
    pub(crate) fn wait_held<'e, R>(
        &'e self,
        mut s: Guard<'e>,
        deadline: Option<u64>,
        unwind: bool,
        why: Waiting,
        mut poll: impl FnMut(&mut State) -> Option<R>,
    ) -> Waited<'e, R> {
        s.begin();
        // Set when spinning has found nothing.
        let mut yields_until = None;
        // When the last yield ended, if no pass since then has moved anything.
        let mut yielded_at = None;
        let mut idle = 0_u32;
        let mut passes = 0_u32;
        // Moved since other threads could have the endpoint.
        let mut kept = 0;
        loop {
            if let Some(result) = poll(&mut s) {
                s.stop_waiting(why);
                s.end();
                return Ok((s, Ok(result)));
            }
            passes = passes.wrapping_add(1);
            if passes.is_multiple_of(PASSES_UNTIMED) && deadline.is_some_and(|at| now_ns() >= at) {
                s.stop_waiting(why);
                s.end();
                return Ok((s, Err(WaitError::TimedOut)));
            }
            let moved = s.pass();
            if moved > 0 && unwind {
                // Before another thread has the endpoint, whose call would unwind.
                s.rethrow();
            }
            kept += moved;
            // Short messages come one a pass: an empty one ends their row.
            if kept > 0 && (kept >= KEPT_MAX || moved == 0 || self.inner.state.is_awaited()) {
                kept = 0;
                s = self.turn(s)?;
            }
            if moved > 0 {
                idle = 0;
                (yields_until, yielded_at) = (None, None);
                continue;
            }
            idle += 1;
            if idle == 1
                && let Some(trace) = &mut s.core.trace
            {
                trace.waits();
            }
            if s.backoff.spins(idle, now_ns) {
                if idle.is_multiple_of(8) {
                    std::hint::spin_loop();
                }
                continue;
            }
            let now = yielded_at.take().unwrap_or_else(now_ns);
            if s.waiting.call == Call::None {
                s.waiting = Waiting { since: now, ..why };
            }
            if deadline.is_some_and(|at| now >= at) {
                s.stop_waiting(why);
                s.end();
                return Ok((s, Err(WaitError::TimedOut)));
            }
            if now < *yields_until.get_or_insert_with(|| s.backoff.yields_until(now)) {
                s = self.turn(s)?;
                std::thread::yield_now();
                let after = now_ns();
                if !s.backoff.yielded(now, after) {
                    yields_until = Some(0);
                }
                yielded_at = Some(after);
                continue;
            }
            // The condition may have changed since it was last polled.
            if let Some(result) = poll(&mut s) {
                s.stop_waiting(why);
                s.end();
                return Ok((s, Ok(result)));
            }
            s = self.sleep(s, deadline)?;
        }
    }

    /// Waits, before the lanes close or a space has left, until no process of this host accesses
    /// our memory and nothing of the space is in flight. If one was stopped while it wrote to a
    /// receive's memory this waits beyond the deadline: the program has that memory back then.
    pub(crate) fn wait_withdrawn<'e>(
        &'e self,
        mut s: Guard<'e>,
        deadline: u64,
        of: Option<SpaceId>,
    ) -> Waited<'e, ()> {
        let why = Waiting::of(Call::Close, ANYBODY);
        loop {
            let now = now_ns();
            let soon = now.saturating_add(LOOK_NS);
            let look_again = if now < deadline {
                soon.min(deadline)
            } else {
                soon
            };
            let mut must_wait = false;
            let (held, withdrawn) = self.wait_held(s, Some(look_again), false, why, |s| {
                let done = match of {
                    None => s.withdraw_regions(None),
                    Some(space) => s.space_has_left(space),
                };
                must_wait = !done && s.publishes_receives(of);
                done.then_some(())
            })?;
            match withdrawn {
                Err(WaitError::TimedOut) if must_wait || now_ns() < deadline => s = held,
                ended => return Ok((held, ended)),
            }
        }
    }

    /// Lets other threads have the endpoint for a moment under [`Threads::Multiple`]. Under
    /// [`Threads::Serialized`] a thread that calls meanwhile is in error, and must not end this
    /// wait.
    fn turn<'e>(&'e self, s: Guard<'e>) -> Result<Guard<'e>, Misuse> {
        if self.inner.threads != Threads::Multiple {
            return Ok(s);
        }
        drop(s);
        self.enter()
    }

    #[cold]
    fn sleep<'e>(&'e self, mut s: Guard<'e>, deadline: Option<u64>) -> Result<Guard<'e>, Misuse> {
        if s.closed || (s.core.has_left(self.id) && !s.core.closing) {
            return Err(Misuse::Closed);
        }
        let Some(idle) = s.prepare(deadline) else {
            return Ok(s);
        };
        let wait_set = &self.inner.wait_set;
        s.sleep.doze();
        if self.inner.threads != Threads::Multiple {
            s.awake(&Woken::from(&wait_set.events, idle.timeout));
        } else if s.sleep.is_led() {
            let seen = s.sleep.follow();
            drop(s);
            wait_set.follow(seen, idle.timeout);
            s = self.enter()?;
            s.sleep.follow_no_more();
        } else {
            s.sleep.lead(idle.due);
            drop(s);
            let woken = Woken::from(&wait_set.events, idle.timeout);
            s = self.enter()?;
            s.sleep.step_down();
            s.awake(&woken);
        }
        Ok(s)
    }
}
