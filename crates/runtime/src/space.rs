//! An endpoint and its spaces: how they open, and how they close.

mod helper;
mod wait;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};

use portolan_engine::{Misuse, SpaceId, WaitError};
use portolan_ring::{Owned, OwnerGuard};
use portolan_sys::clock::now_ns;
use portolan_sys::lives::Pulse;
use portolan_sys::tell::tell;

use self::helper::Helper;
pub(crate) use self::wait::{LOOK_NS, Waited};
use crate::config::{Config, OpenError, Threads};
use crate::observe::Table;
use crate::sleep::{ANYBODY, Call, WaitSet, Waiting};
use crate::state::State;

/// How long a closing endpoint goes on answering, ns: a peer that asks again at each answer would
/// keep it open for ever.
const ANSWERS_NS: u64 = 50_000_000;

/// What an endpoint's spaces and its helper thread share.
pub(crate) struct Inner {
    pub state: Owned<State>,
    pub wait_set: Arc<WaitSet>,
    pub threads: Threads,
    pub takeover_ns: u64,
    close_ns: u64,
    /// Whether there is a helper thread.
    pub helped: bool,
    rank: u32,
    size: u32,
    /// Whether the endpoint is outside of a job.
    pub standalone: bool,
}

/// A process's attachment to its job, for one of several interfaces to it: with ports, matched
/// messages, regions, queues, memory for arriving messages and error handlers of its own. A message
/// arrives in the space with the number of the one that it was sent in. The first is the program's
/// own.
///
/// Every call makes some progress of its own kind, for all spaces; handlers run only within calls
/// that say so ([`Space::progress`], blocking sends, waits), one at a time, in the calling thread;
/// those that any thread may run also in the helper thread. Threads and settings are those of the
/// endpoint, which closes with the last of its spaces.
pub struct Space {
    pub(crate) inner: Arc<Inner>,
    pub(crate) id: SpaceId,
    /// `None` once it is being dropped.
    shared: Option<Arc<EndpointShared>>,
}

/// Opens spaces of an endpoint, as long as one of them is open.
#[derive(Clone, Debug)]
pub struct Opener {
    inner: Weak<Inner>,
    shared: Weak<EndpointShared>,
}

impl Opener {
    /// As [`Space::space`]; `None`: the endpoint is gone.
    #[must_use]
    pub fn space(&self, id: SpaceId) -> Option<Result<Space, Misuse>> {
        let (inner, shared) = (self.inner.upgrade()?, self.shared.upgrade()?);
        Some(Space::open(&inner, Some(shared), id))
    }

    /// Whether a space can still be opened, as far as is known without a call.
    #[must_use]
    pub fn is_free(&self, id: SpaceId) -> bool {
        let shared = self.shared.upgrade();
        shared.is_some_and(|it| it.taken.load(Ordering::Relaxed) & id.bit() == 0)
    }

    /// Returns which threads may call the endpoint; `None`: it is gone.
    #[must_use]
    pub fn threads(&self) -> Option<Threads> {
        self.shared.upgrade()?;
        Some(self.inner.upgrade()?.threads)
    }
}

/// What lives as long as any of an endpoint's spaces.
struct EndpointShared {
    helper: Option<Helper>,
    tables: Vec<Table>,
    /// Spaces that are open, or were: a bit for each. Threads that may not call the endpoint read
    /// this.
    taken: AtomicU16,
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("id", &self.id)
            .field("rank", &self.inner.rank)
            .field("size", &self.inner.size)
            .finish_non_exhaustive()
    }
}

pub(crate) type Guard<'a> = OwnerGuard<'a, State>;

impl Space {
    pub(crate) fn new(
        state: Owned<State>,
        config: &Config,
        size: u32,
        wait_set: Arc<WaitSet>,
        pulse: Option<Pulse>,
        mut tables: Vec<Table>,
    ) -> Result<Self, OpenError> {
        let inner = Arc::new(Inner {
            state,
            wait_set,
            threads: config.threads,
            takeover_ns: config.takeover_ns,
            close_ns: config.close_ns,
            helped: config.helper,
            rank: config.rank,
            size,
            standalone: config.proto.introduces,
        });
        // The state has reached its final place.
        for table in tables.iter_mut().filter(|table| table.address == 0) {
            table.address = inner.state.address();
        }
        let helper = if config.helper {
            Some(Helper::start(&inner, pulse)?)
        } else {
            None
        };
        Ok(Self {
            inner,
            id: SpaceId::PROGRAM,
            shared: Some(Arc::new(EndpointShared {
                helper,
                tables,
                taken: AtomicU16::new(SpaceId::PROGRAM.bit()),
            })),
        })
    }

    /// Opens another space of the endpoint. Messages that came for it before are there, also from
    /// dead ranks.
    ///
    /// # Errors
    /// [`Misuse::SpaceOpen`]: each is opened once; other [`Misuse`].
    pub fn space(&self, id: SpaceId) -> Result<Self, Misuse> {
        Self::open(&self.inner, self.shared.clone(), id)
    }

    fn open(
        inner: &Arc<Inner>,
        shared: Option<Arc<EndpointShared>>,
        id: SpaceId,
    ) -> Result<Self, Misuse> {
        let mut s = inner.state.enter()?;
        s.open_space(id)?;
        s.end();
        drop(s);
        if let Some(shared) = &shared {
            shared.taken.fetch_or(id.bit(), Ordering::Relaxed);
        }
        Ok(Self {
            inner: Arc::clone(inner),
            id,
            shared,
        })
    }

    /// Opens another space in the place of the program's own, which can then be opened as
    /// others are.
    ///
    /// # Errors
    /// As [`Space::space`].
    pub fn instead(self, id: SpaceId) -> Result<Self, Misuse> {
        if id == self.id {
            return Ok(self);
        }
        let other = self.space(id)?;
        self.enter()?.core.own.taken = false;
        if let Some(shared) = &self.shared {
            let others = !SpaceId::PROGRAM.bit();
            shared.taken.fetch_and(others, Ordering::Relaxed);
        }
        let mut this = self;
        this.shared = None;
        Ok(other)
    }

    /// Returns what can open further spaces without keeping the endpoint open.
    #[must_use]
    pub fn opener(&self) -> Opener {
        Opener {
            inner: Arc::downgrade(&self.inner),
            shared: self.shared.as_ref().map_or_else(Weak::new, Arc::downgrade),
        }
    }

    /// Returns the id of this space.
    #[must_use]
    pub const fn id(&self) -> SpaceId {
        self.id
    }

    #[inline(always)]
    pub(crate) fn enter(&self) -> Result<Guard<'_>, Misuse> {
        Ok(self.inner.state.enter()?)
    }

    /// Enters for a call that starts something that outlasts it: refused once the space is closing.
    pub(crate) fn enter_open(&self) -> Result<Guard<'_>, Misuse> {
        let s = self.enter()?;
        if s.core.is_over(self.id) {
            return Err(Misuse::Closed);
        }
        Ok(s)
    }

    /// Returns this process's number in the job; 0 outside of one.
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.inner.rank
    }

    /// Returns the number of processes in the job; 1 outside of one, however many peers there are.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.inner.size
    }

    /// Returns where counters and state lie, for observers of this process.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        self.shared.as_ref().map_or(&[], |shared| &shared.tables)
    }

    /// Closes the space: messages that wait for its handlers, and later ones to its ports, are
    /// refused. While other spaces are in use, its operations end with
    /// [`portolan_exchange::OpError::Closed`], and other ranks take this one for dead in it
    /// ([`portolan_engine::Death::Closed`]); this waits until no process reads or writes memory of
    /// those operations, but not longer than the setting `close_ns`.
    ///
    /// With the last space in use this closes the endpoint. Then it waits until all that was sent
    /// has been acknowledged, but not longer than the setting `close_ns`, and notifies the peers.
    /// While a process is stopped that is writing to a receive's memory, it waits longer. Handlers
    /// still run meanwhile, for 50 ms at most, but cannot send; a panic of theirs goes on once the
    /// endpoint is closed.
    ///
    /// Dropping the space does the same, in any thread, but without the panic if the thread unwinds
    /// already. Dropped in a handler of its own it is not closed: its memory stays until the
    /// process ends.
    ///
    /// # Errors
    /// - [`WaitError::TimedOut`]: something may not have arrived. While other spaces are in use,
    ///   what is still in flight ends later.
    /// - [`WaitError::Misuse`]: closed already, or other [`Misuse`].
    ///
    /// Operations in flight after the end of the endpoint end with [`Misuse::Closed`], and so do
    /// waits of other threads.
    pub fn close(&self) -> Result<(), WaitError> {
        let s = self.enter()?;
        if s.core.is_over(self.id) {
            return Err(Misuse::Closed.into());
        }
        if s.core.is_shared(self.id) {
            return self.leave(s);
        }
        self.close_held(s)
    }

    /// Closes this space only: others go on with the endpoint.
    fn leave(&self, mut s: Guard<'_>) -> Result<(), WaitError> {
        let deadline = now_ns().saturating_add(self.inner.close_ns);
        s.core.refuse_space(self.id);
        s.say_closing(Some(self.id));
        let why = Waiting::of(Call::Close, ANYBODY);
        let (mut s, handed_over) = self.wait_held(s, Some(deadline), false, why, |s| {
            (!s.holds_any(Some(self.id))).then_some(())
        })?;
        s.close_space(self.id);
        s.notify_progress();
        let (mut s, left) = self.wait_withdrawn(s, deadline, Some(self.id))?;
        s.core.set_left(self.id);
        s.notify_progress();
        s.end();
        s.rethrow();
        handed_over.and(left)
    }

    /// Closes the endpoint. It is held throughout, and no panic goes on, until others of this host
    /// can no longer write to the program's memory.
    fn close_held(&self, mut s: Guard<'_>) -> Result<(), WaitError> {
        s.core.begin_close();
        s.say_closing(None);
        let began = now_ns();
        let deadline = began.saturating_add(self.inner.close_ns);
        let (mut s, flushed) = self.wait_idle(s, began)?;
        if s.ending.is_none() {
            for line in s.core.never_bound() {
                tell(format_args!("portolan: {line}"));
            }
        }
        let (core, mut out) = s.split();
        core.refuse_all(&mut out);
        s.flush();
        s.end();
        let (s, told) = self.wait_idle(s, began)?;
        let (mut s, withdrawn) = self.wait_withdrawn(s, deadline, None)?;
        s.leave_near();
        s.close_lanes();
        let (mut s, closed) = self.wait_idle(s, began)?;
        s.leave();
        s.rethrow();
        // A peer that does not answer the final message has received all that was sent to it.
        let closed = closed.or_else(|e| match e {
            WaitError::TimedOut => Ok(()),
            e => Err(e),
        });
        flushed.and(told).and(withdrawn).and(closed)
    }

    /// Waits until nothing of ours is in flight; `began`: start of the close, ns.
    fn wait_idle<'e>(&'e self, s: Guard<'e>, began: u64) -> Waited<'e, ()> {
        let why = Waiting::of(Call::Close, ANYBODY);
        let deadline = began.saturating_add(self.inner.close_ns);
        let leaves_at = began.saturating_add(ANSWERS_NS);
        self.wait_held(s, Some(deadline), false, why, |s| {
            s.core.leaving |= now_ns() >= leaves_at;
            s.idle().then_some(())
        })
    }
}

impl Drop for Space {
    /// See [`Space::close`].
    fn drop(&mut self) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        let forked = self.inner.state.is_forked();
        // While this waits, no other drop closes the endpoint.
        if Arc::strong_count(&shared) > 1 && !forked {
            go_on(catch_unwind(AssertUnwindSafe(|| match self.enter() {
                Ok(s) if !s.core.is_over(self.id) => self.leave(s),
                _ => Ok(()),
            })));
        }
        let Some(mut shared) = Arc::into_inner(shared) else {
            return;
        };
        if forked {
            // A forked child has no helper thread, and no part in the endpoint.
            std::mem::forget(shared.helper.take());
            std::mem::forget(Arc::clone(&self.inner));
            return;
        }
        // SAFETY: no other space of the endpoint is left, so no thread is in a call or makes one
        // later; the helper only helps.
        unsafe { self.inner.state.adopt() };
        let closed = catch_unwind(AssertUnwindSafe(|| match self.enter() {
            // Also if an earlier close did not complete.
            Ok(s) if !s.closed => self.close_held(s),
            Err(Misuse::InHandler) => {
                // In a handler that the helper runs: memory that others may still write to stays,
                // and peers hear of the end when the process ends.
                std::mem::forget(Arc::clone(&self.inner));
                Ok(())
            }
            _ => Ok(()),
        }));
        drop(shared.helper.take());
        go_on(closed);
    }
}

/// Resumes a handler's panic, unless the thread unwinds already.
fn go_on(closed: std::thread::Result<Result<(), WaitError>>) {
    if let Err(panic) = closed
        && !std::thread::panicking()
    {
        resume_unwind(panic);
    }
}
