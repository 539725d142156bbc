//! The engine: an endpoint's state with both its lanes, and one pass of progress over all of
//! it. The driver decides when, sleeps in between, and settles what it finds.

mod begin;
mod pass_shm;
mod peers;
mod poll_throttle;
mod regions;

use std::collections::VecDeque;

use portolan_wire::{ARGS_MAX, MessageNo};

pub use self::peers::LocalRefused;
use self::poll_throttle::PollThrottle;
use crate::core::{Core, CoreState, Finding, NETWORK, message};
use crate::environment::{Clock, Network};
use crate::lanes::{Lane, Restarted};
use crate::matched::{Lend, Matched, Onward};
use crate::net::NetLane;
use crate::outbound::{Outbound, ShmFailure};
use crate::shm::ShmLane;
use crate::values::{Death, Misuse, PORTS_RESERVED, SendError, SendOptions, SpaceId};

/// Most frames that are read for those of a process that has ended.
const FRAMES_OF_OTHERS: usize = 1 << 16;

/// An endpoint's state, its lanes and its clock.
pub struct Engine<N, C> {
    /// State without the lanes and the exchanges.
    pub core: Core,
    /// The lanes and the exchanges.
    pub io: Io<N, C>,
    throttle: PollThrottle,
    /// Numbers of departed peers, oldest first, each with the time of departure, ns.
    departed: VecDeque<(u32, u64)>,
}

/// All that a handler may need beside the core: one reference to it is handed down.
pub struct Io<N, C> {
    /// Matched messages and one-sided accesses.
    pub matched: Matched,
    /// The network lane.
    pub net: Option<NetLane<N>>,
    /// The shared memory lane.
    pub shm: Option<ShmLane>,
    pub(crate) clock: C,
}

impl<N: Network, C: Clock> Lend for Io<N, C> {
    #[inline]
    fn lend(&mut self) -> Onward<'_> {
        let out = Outbound {
            net: self.net.as_mut().map(NetLane::sender),
            shm: self.shm.as_mut().map(ShmLane::sender),
            clock: &self.clock,
        };
        let matched = &mut self.matched;
        Onward { matched, out }
    }
}

impl<N: Network, C: Clock> Engine<N, C> {
    /// Makes an engine of these parts.
    pub const fn new(
        mut core: Core,
        matched: Matched,
        net: Option<NetLane<N>>,
        shm: Option<ShmLane>,
        clock: C,
    ) -> Self {
        core.state.unusual |= NETWORK * net.is_some() as u8;
        Self {
            core,
            io: Io {
                matched,
                net,
                shm,
                clock,
            },
            throttle: PollThrottle::new(),
            departed: VecDeque::new(),
        }
    }

    /// Returns the clock.
    pub const fn clock(&self) -> &C {
        &self.io.clock
    }

    /// Returns the two halves that a handler needs: the core and the sending halves.
    #[inline(always)]
    pub fn split(&mut self) -> (&mut Core, Outbound<'_>) {
        let (core, on) = self.parts();
        (core, on.out)
    }

    /// Returns the core, and the exchanges with the sending halves.
    #[inline(always)]
    pub(crate) fn parts(&mut self) -> (&mut Core, Onward<'_>) {
        (&mut self.core, self.io.lend())
    }

    /// Makes one pass. Returns how much was moved: 0 when nothing waited.
    pub fn pass(&mut self) -> usize {
        let moved = self.io.pass_shm(&mut self.core);
        if self.is_unusual() {
            self.pass_rest(moved)
        } else {
            moved
        }
    }

    /// Whether a pass has more to do than a look at shared memory.
    #[inline(always)]
    pub const fn is_unusual(&self) -> bool {
        self.core.state.unusual != 0
    }

    /// Makes the rest of a pass that has moved so much.
    pub fn pass_rest(&mut self, mut moved: usize) -> usize {
        let Self {
            core,
            io:
                Io {
                    matched,
                    net,
                    shm,
                    clock,
                },
            throttle,
            ..
        } = self;
        if let Some(net) = net
            && (shm.is_none() || !throttle.can_wait(moved, clock) || net.is_owed())
        {
            let found = net.pass(core, matched, shm.as_mut(), clock);
            throttle.looked(net.now(), found > 0, clock);
            moved += found;
        }
        if self.core.has_work() || self.core.has_news() {
            moved += self.slow();
        }
        if self.io.matched.own.exchange.has_unready() {
            self.make_ready();
        }
        moved
    }

    /// Handles what is rare: kept messages, answers that found no credit, errors.
    #[cold]
    fn slow(&mut self) -> usize {
        let mut moved = 0;
        // What the following leaves undone adds to it.
        self.core.note_reasons(false);
        let (core, mut on) = self.parts();
        if !core.outbox.is_empty() {
            moved += core.run_outbox(&mut on.out);
        }
        moved += core.run_matched(&mut on);
        moved += core.run_ready(&mut on);
        if core.run && !core.events.is_empty() {
            moved += core.events.len();
            core.run_events(&mut on);
        }
        core.resume |= core.run && std::mem::take(&mut core.unasked);
        let resume = std::mem::take(&mut core.resume);
        if resume && core.aside.is_any() {
            moved += core.take_aside(&mut on);
        }
        core.tell_stops(&mut on.out);
        core.update_handlers();
        if resume
            && std::mem::take(&mut core.starved)
            && let Some(net) = &mut self.io.net
        {
            net.resume(
                &mut self.core,
                &mut self.io.matched,
                self.io.shm.as_mut(),
                &self.io.clock,
            );
        }
        // What the handlers have sent leaves now.
        if let Some(net) = &mut self.io.net
            && net.is_dirty()
        {
            moved += net.transmit(&mut self.core, false, &self.io.clock);
        }
        let unready =
            self.io.matched.make_others_ready() || self.io.matched.own.exchange.has_unready();
        let core = &mut self.core;
        let work = core.has_work()
            || unready
            || !core.outbox.is_empty()
            || self.io.matched.has_backlog()
            || !core.events.is_empty()
            || !core.ready.is_empty()
            || core.unasked
            || ((core.starved || core.aside.is_any()) && core.resume);
        core.note_reasons(work);
        moved
    }

    /// Opens a space, and takes what has come for it.
    ///
    /// # Errors
    /// [`Misuse::SpaceOpen`], [`Misuse::Closed`].
    pub fn open_space(&mut self, space: SpaceId) -> Result<(), Misuse> {
        self.core.open_space(space)?;
        if space == SpaceId::PROGRAM {
            return Ok(());
        }
        // Deaths are reported to spaces that are open. In this one they are reported below,
        // behind all that the dead had sent.
        self.core.tell_news(&mut self.io.matched);
        let CoreState {
            settings, lanes, ..
        } = &*self.core;
        self.io.matched.open(settings, lanes, space);
        let (core, mut on) = self.parts();
        if core.aside.is_any() {
            let run = std::mem::replace(&mut core.run, false);
            core.take_aside(&mut on);
            core.run = run;
        }
        let CoreState {
            settings, lanes, ..
        } = &*self.core;
        if let Some(part) = self.io.matched.part(space) {
            part.mark_dead(lanes, settings.size);
        }
        Ok(())
    }

    /// Closes a space: see [`CoreState::close_space`].
    pub fn close_space(&mut self, space: SpaceId) {
        self.touch_any();
        let (core, mut on) = self.parts();
        core.close_space(&mut on, space);
        core.update_handlers();
        self.flush();
    }

    /// Makes the next passes poll all lanes, after a pause or a sleep.
    pub fn look_at_all(&mut self) {
        self.throttle.reset();
    }

    /// Returns the next finding about another rank.
    pub fn next_finding(&mut self) -> Option<Finding> {
        let findings = &mut self.core.findings;
        (!findings.is_empty()).then(|| findings.remove(0))
    }

    /// Returns why nothing more of a rank arrives in a space, also if only the next pass
    /// settles that.
    pub fn death(&self, rank: u32, space: SpaceId) -> Option<Death> {
        let found = match (self.core.lanes.get(rank)?, &self.io.shm) {
            (Lane::Shm(index), Some(shm)) => {
                (self.core.suspected(rank)).map(|why| shm.why(index, why))
            }
            _ => None,
        };
        found.or_else(|| self.core.lanes.ended(rank, space))
    }

    /// Handles the end of a rank: what it still sent is read, then it is marked dead.
    pub fn handle_peer_death(&mut self, rank: u32, why: Death) {
        let Self { core, io, .. } = self;
        if let Some(shm) = &mut io.shm
            && why.is_end()
            && !core.standalone()
        {
            // Also if its lane had ended before: the process may have been killed in the middle
            // of a copy.
            shm.mark_dead(rank);
        }
        let mut why = why;
        match (core.lanes.get(rank), &mut io.net, &mut io.shm) {
            (Some(Lane::Net(peer)), Some(net), shm) => {
                net.pass(core, &mut io.matched, shm.as_mut(), &io.clock);
                net.peer_died(core, peer, why, &io.clock);
            }
            (Some(Lane::Shm(index)), _, Some(shm)) => {
                why = shm.why(index, why);
                // Bounded: others may go on sending, and their messages may lie before its own.
                let mut left = FRAMES_OF_OTHERS;
                while left > 0 {
                    let moved = io.pass_shm(core);
                    let unread = |shm: &ShmLane| shm.link.has_unread(index);
                    if moved == 0 && !io.shm.as_ref().is_some_and(unread) {
                        break;
                    }
                    left = left.saturating_sub(moved.max(1));
                }
                if core.standalone() {
                    return self.detach_local(rank, index, why);
                }
                if let Some(shm) = &mut io.shm {
                    shm.forget(index);
                    shm.settle(index);
                }
            }
            _ => {}
        }
        self.core.mark_dead(rank, why);
    }

    /// Refines `said`, the reported end of a rank: one that shares memory with us may have
    /// closed before.
    #[must_use]
    pub fn refine_death(&self, rank: u32, said: Death) -> Death {
        match (self.core.lanes.get(rank), &self.io.shm) {
            (Some(Lane::Shm(index)), Some(shm)) => shm.why(index, said),
            _ => said,
        }
    }

    /// Handles the return of a rank that was marked dead.
    pub fn handle_peer_restart(&mut self, it: &Restarted) {
        let Some(net) = &mut self.io.net else { return };
        let Some(peer) = net.peer_returned(&mut self.core, it, &self.io.clock) else {
            return;
        };
        let (core, mut on) = self.parts();
        core.rejoin(&mut on, it, peer);
    }

    /// Resets a rank's silence timer: it is known to be alive, though silent.
    pub fn reset_silence_timer(&mut self, rank: u32) {
        if let (Some(peer), Some(net)) = (self.core.lanes.peer(rank), &mut self.io.net) {
            net.reset_silence_timer(peer, self.io.clock.now());
        }
    }

    /// Returns when a rank was last heard by the network, ns, if it has active state.
    pub fn heard_at(&mut self, rank: u32) -> Option<u64> {
        let peer = self.core.lanes.peer(rank)?;
        self.io.net.as_mut()?.heard_at(peer)
    }

    /// Sends a message in the program's own space that fits a line of shared memory, if nothing is
    /// unusual. `None`: [`Engine::send_now`].
    #[inline(always)]
    pub fn send_short(
        &mut self,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Option<MessageNo> {
        if port < PORTS_RESERVED
            && !self.core.is_unusual()
            && let Some(Lane::Shm(to)) = self.core.lanes.get(rank)
            && let Some(ShmLane { link, tx, .. }) = &mut self.io.shm
        {
            let number = tx.send_short(&mut link.outlet(), to, port, o, payload)?;
            self.core.count_sent(0, payload.len() as u64);
            return Some(number);
        }
        None
    }

    /// Sends a message that fits a frame of shared memory or a packet, by the shortest path.
    /// `None`: take the usual path, which also reports errors. `OWN`: the flow is known to be
    /// the program's own.
    #[inline(always)]
    pub fn send_now<const OWN: bool>(
        &mut self,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Option<Result<MessageNo, SendError>> {
        let Self { core, io, .. } = self;
        if port >= PORTS_RESERVED
            || if OWN {
                core.own_is_over
            } else {
                core.is_over(SpaceId::of_flow(o.flow))
            }
            || o.args.len() > ARGS_MAX
        {
            return None;
        }
        let flow = if OWN { 0 } else { o.flow };
        match (core.lanes.get(rank)?, &mut io.shm, &mut io.net) {
            (Lane::Shm(to), Some(ShmLane { link, tx, .. }), _) => {
                if payload.len() > tx.inline_max(o.args.len()) {
                    return None;
                }
                match tx.send(&mut link.outlet(), to, port, o, payload) {
                    Ok(number) => {
                        core.count_sent(flow, payload.len() as u64);
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
            (Lane::Net(peer), _, Some(net)) => {
                if core.trace.is_some() || io.matched.own.exchange.has_unready() {
                    return None;
                }
                let message = message(port, o, payload);
                let number = net.send_one(&io.clock, peer, &message)?;
                core.count_sent(flow, payload.len() as u64);
                Some(Ok(number))
            }
            _ => None,
        }
    }

    /// Sends if there is credit. The message leaves at once, unless it waits to share a packet.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn try_send(
        &mut self,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        self.update_clock(rank);
        let (core, mut out) = self.split();
        let sent = core.send(&mut out, rank, port, o, payload);
        core.counters.no_credit += u64::from(sent == Err(SendError::NoCredit));
        self.flush_or_gather();
        sent
    }

    /// Runs `act`, which may send; what it sent then leaves.
    pub fn take_part<R>(&mut self, act: impl FnOnce(&mut Core, &mut Outbound<'_>) -> R) -> R {
        self.touch_any();
        let (core, mut out) = self.split();
        let result = act(core, &mut out);
        self.flush();
        result
    }

    /// Reads the clock, before a send to a rank that is reached by the network.
    #[inline]
    pub fn update_clock(&mut self, rank: u32) {
        if self.core.lanes.peer(rank).is_some() {
            self.touch_any();
        }
    }

    /// Reads the clock, before something may be sent by the network.
    #[inline]
    pub fn touch_any(&mut self) {
        if let Some(net) = &mut self.io.net {
            net.set_now(self.io.clock.now());
        }
    }

    /// Transmits what a call has queued.
    #[inline]
    pub fn flush(&mut self) {
        if let Some(net) = &mut self.io.net
            && net.is_dirty()
        {
            net.transmit(&mut self.core, false, &self.io.clock);
        }
        if self.io.matched.own.exchange.has_unready() {
            self.make_ready();
        }
    }

    /// Transmits what a call has queued, unless it is short and waits for more of its kind.
    #[inline]
    pub fn flush_or_gather(&mut self) {
        if !self.gathers() || self.io.matched.own.exchange.has_unready() {
            self.flush();
        }
    }

    /// Whether a message waits for a pass, so that those behind it can share its packet.
    #[inline(always)]
    pub fn gathers(&self) -> bool {
        self.io.net.as_ref().is_some_and(NetLane::gathers)
    }

    /// Prepares memory of requests that have left.
    #[cold]
    fn make_ready(&mut self) {
        self.io.matched.own.make_ready();
    }

    /// Returns when the next pass is due, ns; 0 for at once.
    pub fn next_timeout(&mut self) -> Option<u64> {
        self.io.net.as_mut().and_then(NetLane::next_timeout)
    }

    /// Announces to those for whom messages are held that this endpoint, or a space of it,
    /// closes.
    pub fn say_closing(&mut self, of: Option<SpaceId>) {
        self.touch_any();
        let net = self.io.net.as_mut().filter(|_| of.is_none());
        let stopped = net.map_or_else(Vec::new, NetLane::stopped_by);
        let (core, mut on) = self.parts();
        core.say_closing(&mut on, of, stopped.into_iter());
        self.flush();
    }

    /// Whether an accepted message is held, in a space or in any, whose end would not be
    /// reported.
    pub fn holds_any(&mut self, of: Option<SpaceId>) -> bool {
        match of {
            None => self
                .io
                .matched
                .all_mut()
                .any(|part| part.exchange.holds_any()),
            Some(space) => (self.io.matched.part(space)).is_some_and(|it| it.exchange.holds_any()),
        }
    }

    /// Returns the number of operations that have ended so far, in all spaces.
    pub fn ends(&self) -> u64 {
        self.io.matched.all().map(|part| part.exchange.ends()).sum()
    }

    /// Whether nothing of ours is in flight or pending.
    pub fn idle(&mut self) -> bool {
        self.core.ops.is_empty()
            && !self.holds_any(None)
            && self.core.outbox.is_empty()
            && !self.io.matched.has_backlog()
            && self.io.shm.as_ref().is_none_or(ShmLane::idle)
            && self.io.net.as_mut().is_none_or(NetLane::idle)
    }

    /// Whether all of ours has left: nothing waits for a further call.
    pub fn has_left(&mut self) -> bool {
        self.core.outbox.is_empty()
            && !self.io.matched.has_backlog()
            && self.io.shm.as_ref().is_none_or(ShmLane::idle)
            && self.io.net.as_mut().is_none_or(NetLane::has_left)
    }

    /// Whether something of ours waits for room, which no descriptor signals.
    pub fn waits_for_room(&self) -> bool {
        !self.core.outbox.is_empty()
            || self.io.matched.has_backlog()
            || self.io.shm.as_ref().is_some_and(|shm| !shm.idle())
    }

    /// Tells all peers that nothing more comes.
    pub fn close_lanes(&mut self) {
        // Dropping it tells the peers; what they have not read yet stays there.
        self.io.shm = None;
        if let Some(net) = &mut self.io.net {
            net.close(self.io.clock.now());
            net.transmit(&mut self.core, true, &self.io.clock);
        }
    }

    /// Ends what is still in flight.
    pub fn end(&mut self) {
        // Sends delayed acknowledgements: the peer's own close may wait for them.
        if let Some(net) = &mut self.io.net {
            net.transmit(&mut self.core, true, &self.io.clock);
        }
        // Operations that have ended well are reported as such.
        self.core.tell_news(&mut self.io.matched);
        self.core.ops.end_all();
        self.io.matched.end_all();
        self.core.trace = None;
    }
}
