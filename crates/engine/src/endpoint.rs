//! The endpoint as the program sees it.

use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use portolan_core::{
    Binding, Buffer, Counters, Death, ErrorHandler, Event, Misuse, NetLane, Op, Payload, SendError,
    SendOptions, Source, WaitError,
};
use portolan_link::xdp::Xdp;
use portolan_proto::Release;
use portolan_ring::{Lent, Owned, OwnerGuard};
use portolan_sys::clock::now_ns;
use portolan_sys::lives::Pulse;
use portolan_sys::tell::tell;
use portolan_wire::MessageNo;

use crate::describe::{ANYBODY, Call, Table, Waiting};
use crate::helper::Helper;
use crate::network::First;
use crate::own::Threads;
use crate::sleep::WaitSet;
use crate::state::State;
use crate::wait::Waited;

/// How long an endpoint that closes goes on answering, ns: a peer that asks again at each
/// answer would keep it for ever.
const ANSWERS_NS: u64 = 50_000_000;

/// What the endpoint and its helper thread share.
pub(crate) struct Inner {
    pub state: Owned<State>,
    pub wait_set: Arc<WaitSet>,
    pub threads: Threads,
    pub takeover_ns: u64,
    close_ns: u64,
    rank: u32,
    size: u32,
}

/// A process's attachment to its job.
///
/// Every call makes some progress of its own kind; handlers run only within
/// calls that say so ([`Endpoint::progress`], blocking sends, waits), one at a
/// time, in the calling thread.
pub struct Endpoint {
    pub(crate) inner: Arc<Inner>,
    pub(crate) helper: Option<Helper>,
    tables: Vec<Table>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("rank", &self.inner.rank)
            .field("size", &self.inner.size)
            .finish_non_exhaustive()
    }
}

pub(crate) type Guard<'a> = OwnerGuard<'a, State>;

impl Endpoint {
    pub(crate) fn new(
        state: Owned<State>,
        config: &crate::Config,
        size: u32,
        wait_set: Arc<WaitSet>,
        pulse: Option<Pulse>,
        mut tables: Vec<Table>,
    ) -> Result<Self, crate::OpenError> {
        let inner = Arc::new(Inner {
            state,
            wait_set,
            threads: config.threads,
            takeover_ns: config.takeover_ns,
            close_ns: config.close_ns,
            rank: config.rank,
            size,
        });
        // The state has come to its place.
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
            helper,
            tables,
        })
    }

    #[inline(always)]
    pub(crate) fn enter(&self) -> Result<Guard<'_>, Misuse> {
        Ok(self.inner.state.enter()?)
    }

    /// This process's number in the job.
    #[inline]
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.inner.rank
    }

    /// Number of processes in the job.
    #[inline]
    #[must_use]
    pub fn size(&self) -> u32 {
        self.inner.size
    }

    /// Binds a port; if it is bound or closed, anew. Messages that wait for it
    /// are handed over in the next call that makes progress.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn bind(&self, port: u16, binding: Binding) -> Result<(), Misuse> {
        self.enter()?.core.bind(port, binding)
    }

    /// Closes a port: messages that wait there, and further ones, are refused;
    /// their senders are told.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn close_port(&self, port: u16) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        let (core, mut out) = s.split();
        let closed = core.close_port(&mut out, port);
        s.flush();
        s.end();
        closed
    }

    /// Gives a port another buffer, or none; gives the old one back, unless a
    /// message is in it: that one comes by [`Endpoint::take_buffer`] later.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn set_buffer(&self, port: u16, buffer: Option<Buffer>) -> Result<Option<Buffer>, Misuse> {
        Ok(self.enter()?.core.set_buffer(port, buffer))
    }

    /// A buffer of the port that was replaced while a message was in it, with
    /// that message's length; the oldest first.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn take_buffer(&self, port: u16) -> Result<Option<(Buffer, usize)>, Misuse> {
        Ok(self.enter()?.core.take_buffer(port))
    }

    /// Messages that came to a port since it was bound.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn arrived(&self, port: u16) -> Result<u64, Misuse> {
        Ok(self
            .enter()?
            .core
            .ports
            .get(port)
            .map_or(0, |slot| slot.arrived))
    }

    /// Sets what is told of refused messages and dead peers.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn on_error(
        &self,
        handler: impl FnMut(&mut crate::Context<'_>, &Event) + Send + 'static,
    ) -> Result<(), Misuse> {
        let handler: ErrorHandler = Box::new(handler);
        self.enter()?.core.error_handler = Some(handler);
        Ok(())
    }

    /// Sends a request in flow 0, if there is credit. The bytes are copied:
    /// they are yours again on return. Runs no handler.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn try_send(&self, rank: u32, port: u16, payload: &[u8]) -> Result<MessageNo, SendError> {
        self.try_send_with(rank, port, &SendOptions::default(), payload)
    }

    /// As [`Endpoint::try_send`], with options.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn try_send_with(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        let mut s = self.enter()?;
        if let Some(sent) = s.send_now(rank, port, options, payload) {
            return sent;
        }
        let sent = s.try_send(rank, port, options, payload);
        s.end();
        sent
    }

    /// Sends a request in flow 0. Waits for credit where there is none, and of
    /// a long message until the last byte is on its way; meanwhile it makes
    /// progress and runs handlers.
    ///
    /// # Errors
    /// [`SendError`], never [`SendError::NoCredit`].
    #[inline]
    pub fn send(&self, rank: u32, port: u16, payload: &[u8]) -> Result<MessageNo, SendError> {
        self.send_with(rank, port, &SendOptions::default(), payload)
    }

    /// As [`Endpoint::send`], with options.
    ///
    /// # Errors
    /// As [`Endpoint::send`].
    #[inline]
    pub fn send_with(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        let mut s = self.enter()?;
        if let Some(Ok(number)) = s.send_now(rank, port, options, payload) {
            return Ok(number);
        }
        let (core, mut out) = s.split();
        if core.is_inline(&mut out, rank, options.args.len(), payload.len()) {
            match s.try_send(rank, port, options, payload) {
                Err(SendError::NoCredit) => {}
                result => {
                    s.end();
                    return result;
                }
            }
        }
        self.send_waiting(s, rank, port, options, payload)
    }

    #[cold]
    fn send_waiting(
        &self,
        s: Guard<'_>,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        // SAFETY: the operation is over, and with it every copy of this value,
        // before this function returns or unwinds: the wait below ends with
        // its completion only, and a handler's panic waits for that as well.
        let lent = unsafe { Lent::new(payload.as_ptr(), payload.len()) };
        let mut op: Option<Op> = None;
        let wait = self.wait_loop(s, None, false, Waiting::of(Call::Send, rank), |s| {
            if let Some(op) = &op {
                return op.is_done().then_some(Ok(op.number()));
            }
            let (core, mut out) = s.split();
            let sent = if core.is_inline(&mut out, rank, options.args.len(), payload.len()) {
                s.try_send(rank, port, options, payload).map(Some)
            } else {
                s.touch_any();
                let (core, mut out) = s.split();
                let source = Source::Lent(lent);
                let sent = core
                    .send_source(&mut out, rank, port, options, source, Release::Copied)
                    .map(|begun| op = Some(begun))
                    .map_err(|(e, _)| e);
                s.flush();
                sent.map(|()| None)
            };
            match sent {
                Ok(Some(number)) => Some(Ok(number)),
                Ok(None) | Err(SendError::NoCredit) => None,
                Err(e) => Some(Err(e)),
            }
        });
        match (wait, op) {
            (Ok(Ok(number)), Some(mut op)) => match op.take() {
                Some(Err(WaitError::PeerDead { rank, why })) => {
                    Err(SendError::PeerDead { rank, why })
                }
                Some(Err(WaitError::Misuse(m))) => Err(m.into()),
                Some(Err(WaitError::Refused)) => {
                    let SendOptions { priority, flow, .. } = *options;
                    self.enter()?.core.emit(Event::Refused {
                        to: rank,
                        priority,
                        flow,
                        number,
                    });
                    Ok(number)
                }
                _ => Ok(number),
            },
            (Ok(result), _) => result,
            // Without a deadline only misuse is left.
            (Err(WaitError::Misuse(m)), _) => Err(m.into()),
            (Err(_), _) => Err(Misuse::Closed.into()),
        }
    }

    /// Sends without a copy, if there is credit: the memory is given away and
    /// comes back with the operation, when the receiver has all of it (a
    /// message that fits one packet is copied, and done at once).
    ///
    /// # Errors
    /// [`SendError`] with the payload; nothing was queued.
    pub fn send_owned(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        payload: impl Into<Payload>,
    ) -> Result<Op, (SendError, Payload)> {
        let payload = payload.into();
        let mut s = match self.enter() {
            Ok(s) => s,
            Err(m) => return Err((m.into(), payload)),
        };
        s.touch_any();
        let (core, mut out) = s.split();
        let sent = core.send_given(&mut out, rank, port, options, payload);
        s.flush();
        s.end();
        sent.map_err(|(e, p)| (e, p.unwrap_or(Payload::Static(&[]))))
    }

    /// As [`Endpoint::send_owned`], from memory of the program's own.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    ///
    /// # Safety
    /// `bytes` bytes at `start` must stay valid and unchanged, for any thread,
    /// until the operation is done or the endpoint has been closed.
    pub unsafe fn send_lent(
        &self,
        rank: u32,
        port: u16,
        options: &SendOptions<'_>,
        start: *const u8,
        bytes: usize,
    ) -> Result<Op, SendError> {
        let mut s = self.enter()?;
        s.touch_any();
        // SAFETY: promised by the caller.
        let source = Source::Lent(unsafe { Lent::new(start, bytes) });
        let (core, mut out) = s.split();
        let sent = core.send_source(&mut out, rank, port, options, source, Release::Acknowledged);
        s.flush();
        s.end();
        sent.map_err(|(e, _)| e)
    }

    /// Readable when progress is to be made, for event loops of other kinds.
    /// Before waiting on it call [`Endpoint::arm`].
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.inner.wait_set.outer.as_fd()
    }

    /// Declares that the program will wait on [`Endpoint::fd`]. False if there
    /// is something to do first: call [`Endpoint::progress`] instead of waiting.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn arm(&self) -> Result<bool, Misuse> {
        Ok(self.enter()?.arm())
    }

    /// What has been done so far.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn counters(&self) -> Result<Counters, Misuse> {
        let mut s = self.enter()?;
        let mut counters = s.core.counters;
        counters.protocol = s.net.as_mut().map(NetLane::counters).unwrap_or_default();
        Ok(counters)
    }

    /// Where counters and state lie, for whoever watches this process.
    #[must_use]
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Name of the link that carries messages to a rank (`self`, `shm`, `udp`,
    /// `xdp` or `dead`), and why that one.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn lane(&self, rank: u32) -> Result<(&'static str, String), Misuse> {
        let s = self.enter()?;
        let (name, why) = s.core.lanes.describe(rank).ok_or(Misuse::BadRank)?;
        Ok((name, why.to_owned()))
    }

    /// Why a rank is dead; `None` while it is not.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn death(&self, rank: u32) -> Result<Option<Death>, Misuse> {
        let s = self.enter()?;
        s.core.lanes.get(rank).ok_or(Misuse::BadRank)?;
        Ok(s.core.lanes.dead(rank))
    }

    /// Hands the host port, if there is one, to `act`, to measure what it can do
    /// without the protocol. What arrives meanwhile is lost to the endpoint, as
    /// on the network.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn with_host_port<R>(&self, act: impl FnOnce(&mut Xdp) -> R) -> Result<Option<R>, Misuse> {
        let mut s = self.enter()?;
        Ok(s.net.as_mut().and_then(|net| match &mut net.link.first {
            First::Xdp(link) => Some(act(link)),
            First::Udp(_) => None,
        }))
    }

    /// How often a rank was started again (`portolan run --respawn`), as far as
    /// this one has heard; of this rank itself, how often it was before.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn restarts(&self, rank: u32) -> Result<u32, Misuse> {
        self.enter()?.core.restarts(rank)
    }

    /// Why the launcher is ending the job, if it is.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn ending(&self) -> Result<Option<String>, Misuse> {
        Ok(self.enter()?.ending.clone())
    }

    /// Tells the endpoint that a rank's process has ended, where the program
    /// knows before the endpoint does.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn peer_died(&self, rank: u32) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        if rank >= self.inner.size || rank == self.inner.rank {
            return Err(Misuse::BadRank);
        }
        s.ended(rank, Death::Ended);
        Ok(())
    }

    /// Closes the endpoint. Waits until all that was sent has been
    /// acknowledged, but not longer than the setting `close_ns` (for as long as
    /// a process is stopped that is writing to a receive's memory); refuses
    /// messages that no handler has taken; tells the peers. Handlers still run
    /// meanwhile, for 50 ms at most, but cannot send; where one panics, the panic goes on once the
    /// endpoint is closed. Dropping the endpoint does the same, in any thread,
    /// but for the panic where the thread unwinds already; not in a handler of its
    /// own, where its memory stays until the process ends.
    ///
    /// # Errors
    /// - [`WaitError::TimedOut`]: something may not have arrived.
    /// - [`WaitError::Misuse`]: closed already, or see there.
    ///
    /// Operations that are under way after that end with [`Misuse::Closed`],
    /// and so do waits of other threads.
    pub fn close(&self) -> Result<(), WaitError> {
        let s = self.enter()?;
        if s.core.closing {
            return Err(Misuse::Closed.into());
        }
        self.close_held(s)
    }

    /// The endpoint is held throughout, and no panic goes on, before others of
    /// this host can no longer write to the program's memory.
    fn close_held(&self, mut s: Guard<'_>) -> Result<(), WaitError> {
        s.core.closing = true;
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
        let (mut s, withdrawn) = self.withdraw_regions(s, deadline)?;
        s.close_lanes();
        let (mut s, closed) = self.wait_idle(s, began)?;
        s.leave();
        s.rethrow();
        flushed.and(told).and(withdrawn).and(closed)
    }

    /// Waits until nothing of ours is under way, since `began`, ns.
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

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.inner.state.is_forked() {
            // The child has neither the helper thread nor a part in this.
            std::mem::forget(self.helper.take());
            std::mem::forget(Arc::clone(&self.inner));
            return;
        }
        // SAFETY: nobody else has the endpoint any more, so no thread is in a
        // call of its or makes one later; the helper only helps.
        unsafe { self.inner.state.adopt() };
        let closed = catch_unwind(AssertUnwindSafe(|| match self.enter() {
            // Also where a close before has not come to its end.
            Ok(s) if !s.closed => self.close_held(s),
            Err(Misuse::InHandler) => {
                // In a handler, which the helper runs: what others may still write
                // to stays where it is, and peers hear of it when the process ends.
                std::mem::forget(Arc::clone(&self.inner));
                Ok(())
            }
            _ => Ok(()),
        }));
        drop(self.helper.take());
        if let Err(panic) = closed
            && !std::thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}
