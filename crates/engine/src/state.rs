//! One endpoint's state as a whole, and one pass of progress over it.

mod events;

use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::task::Waker;

use portolan_link::shm::Slumbering;
use portolan_sys::clock::now_ns;
use portolan_sys::process::Pidfd;
use portolan_wire::{ARGS_MAX, MessageNo};

use crate::backoff::Backoff;
use crate::config::Watch;
use crate::core::Core;
use crate::error::{Death, SendError};
use crate::idle::{Idle, Woken};
use crate::lanes::Lane;
use crate::message::SendOptions;
use crate::net::NetLane;
use crate::poll_throttle::PollThrottle;
use crate::ports::PORTS_RESERVED;
use crate::send::FLOWS_MAX;
use crate::shm::{ShmFailure, ShmLane};
use crate::sleep::{SleepState, TOKEN_BELL, WaitSet};
use crate::ways::Both;

/// Names in the set of descriptors, beside those of the leader's bell and of the
/// links. Processes follow from [`TOKEN_PID`] on.
const TOKEN_WATCH: u64 = 2;
const TOKEN_SHM: u64 = 3;
const TOKEN_PID: u64 = 1 << 32;

/// Empty passes between two looks at descriptors that rarely have news.
const LOOK_EVERY: u32 = 1024;

/// Time between two givings back of rings that nobody uses, ns.
const TIDY_EVERY_NS: u64 = 1_000_000_000;
/// Longest sleep while frames wait that could not be taken, ns.
const BLOCKED_NAP_NS: u64 = 1_000_000;

/// Everything behind the ownership word.
pub(crate) struct State {
    pub core: Core,
    pub net: Option<NetLane>,
    pub shm: Option<ShmLane>,
    watch: Option<Box<dyn Watch>>,
    /// Processes on this host, by rank, while they live.
    pids: Vec<(u32, Pidfd)>,
    pub sleep: SleepState,
    throttle: PollThrottle,
    pub backoff: Backoff,
    wakers: Vec<Waker>,
    empty_passes: u32,
    /// When rings that nobody uses were last given back.
    tidied_at: u64,
    /// The launcher has said that the job ends: why.
    pub ending: Option<String>,
    /// Closed for good: who still waits would wait forever.
    pub closed: bool,
}

impl State {
    pub fn new(
        core: Core,
        mut net: Option<NetLane>,
        shm: Option<ShmLane>,
        watch: Option<Box<dyn Watch>>,
        pids: Vec<(u32, Pidfd)>,
        wait_set: Arc<WaitSet>,
        backoff: Backoff,
    ) -> Result<Self, portolan_sys::raw::Errno> {
        let epoll = &wait_set.events;
        if let Some(shm) = &shm {
            epoll.add(shm.link.as_fd(), TOKEN_SHM)?;
        }
        if let Some(net) = &mut net {
            net.link.join(epoll)?;
        }
        if let Some(fd) = watch.as_ref().and_then(|w| w.fd()) {
            epoll.add(fd, TOKEN_WATCH)?;
        }
        for (rank, pid) in &pids {
            epoll.add(pid.as_fd(), TOKEN_PID + u64::from(*rank))?;
        }
        Ok(Self {
            core,
            net,
            shm,
            watch,
            pids,
            sleep: SleepState::new(wait_set),
            throttle: PollThrottle::new(),
            backoff,
            tidied_at: now_ns(),
            wakers: Vec::new(),
            empty_passes: 0,
            ending: None,
            closed: false,
        })
    }

    /// The two halves that a handler needs.
    #[inline(always)]
    pub fn split(&mut self) -> (&mut Core, Both<'_>) {
        (
            &mut self.core,
            Both {
                net: self.net.as_mut(),
                shm: self.shm.as_mut(),
            },
        )
    }

    /// One pass. Gives how much was moved: 0 when nothing waited.
    #[inline]
    pub fn pass(&mut self) -> usize {
        let mut moved = 0;
        let Self {
            core,
            net,
            shm,
            throttle,
            ..
        } = self;
        if let Some(shm) = shm {
            moved += shm.pass(core, net.as_mut());
        }
        if let Some(net) = net
            && (!throttle.can_wait(moved > 0) || net.is_owed())
        {
            let found = net.pass(core, shm.as_mut());
            throttle.looked(net.now(), found > 0);
            moved += found;
        }
        if self.core.attention || self.core.matched_has_news() {
            moved += self.slow();
        }
        if self.core.matched.has_unready() {
            self.make_ready();
        }
        if moved == 0 {
            self.empty_passes += 1;
            if self.empty_passes >= LOOK_EVERY {
                self.empty_passes = 0;
                moved += self.look();
            }
        } else {
            self.after();
            if self.net.as_ref().is_some_and(NetLane::is_armed) {
                self.calm();
            }
        }
        moved
    }

    /// Packets come: if nobody sleeps, the link's descriptor is of no use.
    #[cold]
    fn calm(&mut self) {
        if !self.sleep.relies_on_us()
            && !self.sleep.is_disturbed()
            && let Some(net) = &mut self.net
        {
            net.calm();
        }
    }

    /// What is rare: kept messages, answers that found no credit, errors.
    #[cold]
    fn slow(&mut self) -> usize {
        let mut moved = 0;
        self.core.attention = false;
        for (rank, why) in std::mem::take(&mut self.core.suspects) {
            self.gone(rank, why);
        }
        if let Some(watch) = &mut self.watch {
            for (rank, why) in self.core.given_up.drain(..) {
                let restarts = self.core.lanes.returns.restarts(rank);
                watch.give_up(rank, restarts, why);
            }
        }
        let (core, mut ways) = self.split();
        if !core.outbox.is_empty() {
            moved += core.run_outbox(&mut ways);
        }
        moved += core.run_matched(&mut ways);
        moved += core.run_ready(&mut ways);
        if core.run && !core.events.is_empty() {
            moved += core.events.len();
            core.run_events(&mut ways);
        }
        if std::mem::take(&mut core.resume)
            && std::mem::take(&mut core.starved)
            && let Some(net) = &mut self.net
        {
            net.resume(&mut self.core, self.shm.as_mut());
        }
        let core = &mut self.core;
        core.attention |= !core.outbox.is_empty()
            || core.matched.has_backlog()
            || !core.events.is_empty()
            || !core.ready.is_empty()
            || (core.starved && core.resume);
        // What the handlers have said leaves now.
        if let Some(net) = &mut self.net
            && net.dirty
        {
            moved += net.transmit(&mut self.core, false);
            net.dirty = false;
        }
        moved
    }

    /// Something has happened: whoever waits for that is to know.
    #[inline]
    pub fn after(&mut self) {
        self.empty_passes = 0;
        if self.sleep.waits_for_events() {
            self.sleep.notify();
        }
        if !self.wakers.is_empty() {
            for waker in self.wakers.drain(..) {
                waker.wake();
            }
        }
    }

    /// Wakes `waker` after the next pass that moves something.
    pub fn register(&mut self, waker: &Waker) {
        if !self.wakers.iter().any(|w| w.will_wake(waker)) {
            self.wakers.push(waker.clone());
        }
    }

    /// One pass, and a look at what rarely has news.
    #[cold]
    pub fn attend(&mut self) {
        self.throttle.reset();
        self.pass();
        if self.look() > 0 {
            self.pass();
        }
    }

    /// Looks at what rarely has news: the launcher, processes that end.
    #[cold]
    fn look(&mut self) -> usize {
        let woken = Woken::from(&self.sleep.wait_set.events, Some(0));
        let mut events = self.note(&woken);
        let Some(shm) = &mut self.shm else {
            return events;
        };
        let gone = shm.gone();
        let now = now_ns();
        if now.saturating_sub(self.tidied_at) >= TIDY_EVERY_NS {
            self.tidied_at = now;
            shm.link.tidy();
        }
        for (rank, why) in gone {
            events += 1;
            self.gone(rank, why);
        }
        events
    }

    /// Takes in what has ended a sleep; gives how much news there was.
    pub fn note(&mut self, woken: &Woken) -> usize {
        let mut events = 0;
        for &token in woken.tokens() {
            match token {
                TOKEN_WATCH => events += self.hear(),
                TOKEN_BELL => self.sleep.hush(),
                t if t >= TOKEN_PID => {
                    let rank = (t - TOKEN_PID) as u32;
                    self.ask_how(rank);
                    self.ended(rank, Death::Ended);
                    events += 1;
                }
                _ => {}
            }
        }
        events
    }

    /// Prepares to sleep, after a pass that moved nothing: `None` if something
    /// is due before a sleep could begin.
    pub fn prepare(&mut self, deadline: Option<u64>) -> Option<Idle> {
        if let Some(shm) = &mut self.shm {
            self.sleep.declare();
            // What nobody takes now is no reason to stay awake.
            let ready = shm.link.sleep_prepare() == Slumbering::No;
            let gone = shm.gone();
            if (ready && !shm.blocked && !self.core.starved) || !gone.is_empty() {
                self.rouse();
                self.core.suspects.extend(gone);
                self.core.attention |= !self.core.suspects.is_empty();
                return None;
            }
        }
        let due = self.net.as_mut().and_then(NetLane::next_timeout);
        if due == Some(0) {
            self.rouse();
            return None;
        }
        let mut due = due.unwrap_or(u64::MAX).min(deadline.unwrap_or(u64::MAX));
        if let Some(net) = &mut self.net
            && !net.arm()
        {
            // Nobody would tell of a packet.
            due = due.min(now_ns() + BLOCKED_NAP_NS);
        }
        if let Some(shm) = &self.shm
            && (shm.blocked || self.core.starved || self.core.matched.has_backlog())
        {
            // Its frames ring no bell again.
            due = due.min(now_ns() + BLOCKED_NAP_NS);
        }
        self.core.counters.sleeps += 1;
        if let Some(trace) = &mut self.core.trace {
            trace.note_sleep();
        }
        Some(Idle {
            timeout: (due != u64::MAX).then(|| due.saturating_sub(now_ns())),
            due,
        })
    }

    /// Ends what [`State::prepare`] began.
    pub fn awake(&mut self, woken: &Woken) {
        self.throttle.reset();
        if self.sleep.is_declared() {
            self.rouse();
        }
        if let Some(net) = self.net.as_mut().filter(|net| net.is_armed()) {
            net.link.woken(|token| woken.has(token));
        }
        if self.note(woken) > 0 {
            self.after();
        }
    }

    /// At the end of a call that may leave something to do: whoever sleeps
    /// until something was due gets up if it is due sooner now.
    #[inline(always)]
    pub fn end(&mut self) {
        if self.sleep.relies_on_us() {
            self.stir();
        }
    }

    #[cold]
    fn stir(&mut self) {
        if !self.sleep.is_anyone_asleep() {
            return;
        }
        if !self.core.outbox.is_empty()
            || self.core.matched.has_backlog()
            || self.shm.as_ref().is_some_and(|shm| !shm.idle())
            || self
                .net
                .as_mut()
                .and_then(NetLane::next_timeout)
                .is_some_and(|at| self.sleep.oversleeps(at))
        {
            self.sleep.rouse();
        }
    }

    /// No sleep any more: senders need not ring.
    #[cold]
    fn rouse(&mut self) {
        self.sleep.undeclare();
        if let Some(shm) = &mut self.shm {
            shm.link.sleep_cancel();
        }
    }

    /// Prepares for a sleep on the descriptor outside of the endpoint; false
    /// if there is something to do first.
    pub fn arm(&mut self) -> bool {
        if !self.core.ready.is_empty() || !self.core.events.is_empty() {
            return false;
        }
        match self.prepare(None) {
            None => false,
            Some(idle) => {
                self.sleep.arm(idle.due);
                true
            }
        }
    }

    /// At the start of every call that makes progress.
    #[inline(always)]
    pub fn begin(&mut self) {
        if self.sleep.is_disturbed() {
            self.begin_disturbed();
        }
    }

    #[cold]
    fn begin_disturbed(&mut self) {
        if self.sleep.is_declared() {
            self.rouse();
            self.sleep.disturb();
        }
        self.sleep.disarm();
    }

    /// Goes on with a handler's panic.
    #[inline(always)]
    pub fn rethrow(&mut self) {
        if self.core.panic.is_some() {
            self.rethrow_now();
        }
    }

    #[cold]
    fn rethrow_now(&mut self) {
        if let Some(panic) = self.core.panic.take() {
            resume_unwind(panic);
        }
    }

    /// The shortest way out: a message that fits a frame of shared memory.
    /// `None`: go the usual way, which also says what else is wrong.
    #[inline(always)]
    pub fn send_now(
        &mut self,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Option<Result<MessageNo, SendError>> {
        let Self {
            core,
            shm: Some(ShmLane { link, tx, .. }),
            ..
        } = self
        else {
            return None;
        };
        let Some(Lane::Shm(to)) = core.lanes.get(rank) else {
            return None;
        };
        if port >= PORTS_RESERVED
            || core.closing
            || o.flow >= FLOWS_MAX
            || o.args.len() > ARGS_MAX
            || payload.len() > tx.inline_max(o.args.len())
        {
            return None;
        }
        match tx.send(&mut link.outlet(), to, port, o, payload) {
            Ok(number) => {
                core.counters.sent += 1;
                core.counters.bytes_sent += payload.len() as u64;
                if let Some(trace) = &mut core.trace {
                    trace.sent(rank, port, o, number, payload.len(), false);
                }
                Some(Ok(number))
            }
            Err(ShmFailure::Full) => {
                core.counters.no_credit += 1;
                Some(Err(SendError::NoCredit))
            }
            Err(_) => None,
        }
    }

    /// Sends if there is credit, and lets it leave.
    #[inline]
    pub fn try_send(
        &mut self,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        if let Some(net) = &mut self.net
            && matches!(self.core.lanes.get(rank), Some(Lane::Net(_)))
        {
            net.touch();
        }
        let (core, mut ways) = self.split();
        let sent = core.send(&mut ways, rank, port, o, payload);
        core.counters.no_credit += u64::from(sent == Err(SendError::NoCredit));
        self.flush();
        sent
    }

    /// Lets what was queued by a call leave.
    #[inline]
    pub fn flush(&mut self) {
        if let Some(net) = &mut self.net
            && net.dirty
        {
            net.dirty = false;
            net.transmit(&mut self.core, false);
        }
        if self.core.matched.has_unready() {
            self.make_ready();
        }
    }

    /// Requests have left.
    #[cold]
    fn make_ready(&mut self) {
        let (core, mut ways) = self.split();
        core.exchange(&mut ways, |x, carrier| x.make_ready(carrier));
    }

    /// Whether nothing of ours is under way.
    pub fn idle(&mut self) -> bool {
        self.core.ops.is_empty()
            && self.core.outbox.is_empty()
            && !self.core.matched.has_backlog()
            && self.shm.as_ref().is_none_or(ShmLane::idle)
            && self.net.as_mut().is_none_or(NetLane::idle)
    }

    /// Whether nothing of ours waits for a call to leave.
    pub fn has_left(&mut self) -> bool {
        self.core.outbox.is_empty()
            && !self.core.matched.has_backlog()
            && self.shm.as_ref().is_none_or(ShmLane::idle)
            && self.net.as_mut().is_none_or(NetLane::has_left)
    }

    /// Tells all peers that nothing more comes.
    pub fn close_lanes(&mut self) {
        // Its drop tells the peers; what they have not read yet stays there.
        self.shm = None;
        if let Some(net) = &mut self.net {
            net.close();
            net.transmit(&mut self.core, true);
        }
    }

    /// Ends what is still under way, and tells whoever started the process
    /// that it closed in good order.
    pub fn leave(&mut self) {
        // An acknowledgement that waits for something to ride on: the peer's
        // own close may wait for it.
        if let Some(net) = &mut self.net {
            net.transmit(&mut self.core, true);
        }
        self.closed = true;
        self.core.ops.end_all();
        self.core.matched.state().end_all();
        self.core.trace = None;
        self.after();
        if let Some(watch) = &mut self.watch {
            watch.leave();
        }
    }
}
