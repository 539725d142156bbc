//! The whole state of an endpoint: the engine, and what lets it run in a process, sleep and learn
//! of other ranks' ends.

mod events;
mod near;

use std::net::{IpAddr, Ipv6Addr};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::sync::Arc;

use portolan_engine::{Death, Engine, Finding, ShmLane};
use portolan_link::shm::Slumbering;
use portolan_proto::congestion::Mode;
use portolan_sys::clock::now_ns;
use portolan_sys::doorbell::Doorbell;
use portolan_sys::net::{directly_connected, interfaces};
use portolan_sys::process::Pidfd;

pub(crate) use self::near::Near;
use crate::clock::HostClock;
use crate::config::Watch;
use crate::neighbours::TOKEN_NEAR;
use crate::network::Links;
use crate::sleep::{Backoff, Idle, SleepState, TOKEN_BELL, WaitSet, Waiting, Woken};

/// Tokens in the epoll set, beside those of the leader's bell, of neighbours and of the links.
/// Processes have [`TOKEN_PID`] plus their rank.
const TOKEN_WATCH: u64 = 2;
const TOKEN_SHM: u64 = 3;
const TOKEN_PID: u64 = 1 << 32;
/// Processes of endpoints outside of a job have this plus their index here.
const TOKEN_NEAR_PID: u64 = 1 << 33;

/// Empty passes between two polls of descriptors that rarely have news.
const LOOK_EVERY: i32 = 1024;

/// Passes that moved something between two such polls.
const LOOK_EVERY_BUSY: i32 = 64 * LOOK_EVERY;

/// Interval at which unused rings are released, ns.
const TIDY_EVERY_NS: u64 = 1_000_000_000;
/// Longest sleep if waiting frames may not end it, ns.
const BLOCKED_NAP_NS: u64 = 1_000_000;

/// Default congestion control towards an address (IPv6, IPv4 mapped). If the kernel does not report
/// how it is reached, it is [`Mode::Shared`].
#[must_use]
pub fn congestion_towards(ip: [u8; 16]) -> Mode {
    let ip = Ipv6Addr::from(ip);
    let ip = ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4);
    match directly_connected(ip) {
        Ok(true) => Mode::Lan,
        _ => Mode::Shared,
    }
}

/// Network of an endpoint's address.
#[derive(Clone, Copy)]
pub(crate) struct OwnNetwork {
    /// Address: IPv6, IPv4 mapped.
    pub ip: [u8; 16],
    /// Prefix length, of 128 bits; 0 if unknown.
    pub prefix: u8,
}

impl OwnNetwork {
    /// Returns the network of an address of this host.
    pub fn of(ip: [u8; 16]) -> Self {
        let all = interfaces().unwrap_or_default();
        let mut all = all.into_iter().flat_map(|it| it.addresses);
        let own = all.find_map(|(address, prefix)| match address {
            IpAddr::V4(it) => (it.to_ipv6_mapped().octets() == ip).then_some(96 + prefix),
            IpAddr::V6(it) => (it.octets() == ip).then_some(prefix),
        });
        let prefix = own.unwrap_or_default();
        Self { ip, prefix }
    }

    /// As [`congestion_towards`], but does not ask the kernel, which takes 13 us, about addresses
    /// in this network.
    pub fn congestion_towards(&self, ip: [u8; 16]) -> Mode {
        let differ = u128::from_be_bytes(self.ip) ^ u128::from_be_bytes(ip);
        if self.prefix > 0 && differ.leading_zeros() >= u32::from(self.prefix) {
            return Mode::Lan;
        }
        congestion_towards(ip)
    }
}

/// Everything behind the ownership word; dereferences to the engine.
pub(crate) struct State {
    pub engine: Engine<Links, HostClock>,
    /// Call in which the program's thread waits.
    pub waiting: Waiting,
    watch: Option<Box<dyn Watch>>,
    /// Whether the launcher has let a wait for its report pass, and reported nothing since.
    launcher_is_late: bool,
    /// Processes on this host, by rank, while they live.
    pids: Vec<(u32, Pidfd)>,
    /// Outside of a job: shared memory with others of this host.
    near: Option<Near>,
    /// Whether the kernel may copy memory between processes.
    pub cma: bool,
    pub own_network: OwnNetwork,
    pub sleep: SleepState,
    pub backoff: Backoff,
    /// Empty passes, and others, until descriptors that rarely have news are polled.
    empty_passes_left: i32,
    busy_passes_left: i32,
    /// Number of ended operations that sleepers know of.
    told_ends: u64,
    /// When unused rings were last released, ns.
    tidied_at: u64,
    /// Why the launcher ends the job, if it does.
    pub ending: Option<String>,
    /// Closed for good: a wait that went on would never end.
    pub closed: bool,
}

impl Deref for State {
    type Target = Engine<Links, HostClock>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.engine
    }
}

impl DerefMut for State {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.engine
    }
}

impl State {
    pub fn new(
        mut engine: Engine<Links, HostClock>,
        watch: Option<Box<dyn Watch>>,
        pids: Vec<(u32, Pidfd)>,
        wait_set: Arc<WaitSet>,
        backoff: Backoff,
    ) -> Result<Self, portolan_sys::raw::Errno> {
        let epoll = &wait_set.events;
        if let Some(shm) = &engine.io.shm {
            epoll.add(shm.link.as_fd(), TOKEN_SHM)?;
        }
        if let Some(net) = &mut engine.io.net {
            net.link.join(epoll)?;
        }
        if let Some(fd) = watch.as_ref().and_then(|w| w.fd()) {
            epoll.add(fd, TOKEN_WATCH)?;
        }
        for (rank, pid) in &pids {
            epoll.add(pid.as_fd(), TOKEN_PID + u64::from(*rank))?;
        }
        Ok(Self {
            engine,
            waiting: Waiting::NONE,
            watch,
            launcher_is_late: false,
            pids,
            near: None,
            cma: true,
            own_network: OwnNetwork {
                ip: [0; 16],
                prefix: 0,
            },
            sleep: SleepState::new(wait_set),
            backoff,
            tidied_at: now_ns(),
            empty_passes_left: LOOK_EVERY,
            busy_passes_left: LOOK_EVERY_BUSY,
            told_ends: 0,
            ending: None,
            closed: false,
        })
    }

    /// Makes one pass. Returns how much was moved: 0 if nothing waited.
    #[inline(always)]
    pub fn pass(&mut self) -> usize {
        if self.pass_in_vain() {
            return 0;
        }
        self.pass_full()
    }

    /// Makes a pass if it finds nothing, and there is no more to do: the usual case while an
    /// answer is awaited. False: make [`State::pass_full`].
    #[inline(always)]
    pub fn pass_in_vain(&mut self) -> bool {
        if self.sleep.is_any()
            || self.engine.is_unusual()
            || !self.io.shm.as_mut().is_none_or(ShmLane::note_if_quiet)
        {
            return false;
        }
        self.empty_passes_left -= 1;
        self.empty_passes_left >= 0
    }

    /// Makes a pass in which something is found, or due.
    #[inline(never)]
    fn pass_full(&mut self) -> usize {
        match self.pass_short() {
            (moved, false) => moved,
            (moved, true) => self.pass_rest(moved),
        }
    }

    /// Makes a pass as far as there is something in the usual case. Returns how much was moved,
    /// and whether the rest must be made.
    #[inline(always)]
    pub fn pass_short(&mut self) -> (usize, bool) {
        let moved = self.engine.io.pass_shm(&mut self.engine.core);
        if moved == 0 {
            self.empty_passes_left -= 1;
        } else {
            self.empty_passes_left = LOOK_EVERY;
            self.busy_passes_left -= 1;
        }
        let rest = self.is_rare_due() || self.sleep.is_any() || self.engine.is_unusual();
        (moved, rest)
    }

    /// Whether descriptors that rarely have news are to be polled.
    #[inline(always)]
    const fn is_rare_due(&self) -> bool {
        // One of them is negative.
        (self.empty_passes_left | self.busy_passes_left) < 0
    }

    /// Makes the rest of a pass that has moved so much.
    #[inline(never)]
    pub fn pass_rest(&mut self, moved: usize) -> usize {
        let by_shm = moved > 0;
        let mut moved = self.engine.pass_rest(moved);
        self.sleep.ask_no_more();
        if !self.engine.core.findings.is_empty() {
            moved += self.settle();
            self.core.note_work();
        }
        if moved > 0 {
            self.busy_passes_left -= i32::from(!by_shm);
            self.notify_progress();
            if self.io.net.as_ref().is_some_and(|net| net.is_armed()) {
                self.disarm_link();
            }
        }
        if self.is_rare_due() || self.is_look_due() {
            moved += self.look();
        }
        moved
    }

    /// Handles what the engine has found out about others; returns the number of findings.
    #[cold]
    fn settle(&mut self) -> usize {
        let mut settled = 0;
        while let Some(finding) = self.engine.next_finding() {
            settled += 1;
            match finding {
                Finding::Suspect(rank, why) => self.handle_peer_death(rank, why),
                Finding::Wanted(rank) => self.call(rank),
                Finding::Come(rank) => {
                    let own = self.own_network;
                    self.engine
                        .accept_stranger(rank, |to| own.congestion_towards(to.ip));
                }
                Finding::Departed(rank) => self.engine.has_departed(rank),
                Finding::Due => self.engine.evict_peers(),
                Finding::GivenUp(rank, why) => {
                    let restarts = self.core.lanes.returns.restarts(rank);
                    let starved = self.io.net.as_ref().is_some_and(|net| net.is_starved());
                    if let Some(watch) = &mut self.watch {
                        watch.give_up(rank, restarts, why, starved);
                    }
                }
            }
        }
        settled
    }

    /// Counts a pass with packets: if no thread sleeps, the link's descriptor is soon disarmed.
    #[cold]
    fn disarm_link(&mut self) {
        if !self.sleep.relies_on_us()
            && !self.sleep.is_disturbed()
            && let Some(net) = &mut self.engine.io.net
        {
            net.disarm_link();
        }
    }

    /// Wakes those that wait for something to happen.
    #[inline]
    pub fn notify_progress(&mut self) {
        self.empty_passes_left = LOOK_EVERY;
        if self.sleep.waits_for_events() {
            self.told_ends = self.engine.ends();
            self.sleep.notify();
        }
    }

    /// Makes a pass, and polls what rarely has news.
    #[cold]
    pub fn poll_rare_events(&mut self) {
        self.look_at_all();
        self.pass();
        if self.look() > 0 {
            self.pass();
        }
    }

    /// Polls what rarely has news: the launcher, processes that end. Returns the number of events.
    #[cold]
    fn look(&mut self) -> usize {
        (self.empty_passes_left, self.busy_passes_left) = (LOOK_EVERY, LOOK_EVERY_BUSY);
        if let (Some(near), Some(net)) = (&mut self.near, &self.engine.io.net) {
            near.looked_at = net.now();
        }
        let woken = Woken::from(&self.sleep.wait_set.events, Some(0));
        let mut events = self.note(&woken);
        let Some(shm) = &mut self.engine.io.shm else {
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
            self.handle_peer_death(rank, why);
        }
        self.free_near();
        events
    }

    /// Handles the tokens that ended a sleep; returns the number of events.
    pub fn note(&mut self, woken: &Woken) -> usize {
        let mut events = 0;
        let mut called = false;
        for &token in woken.tokens() {
            match token {
                TOKEN_WATCH => events += self.hear(),
                TOKEN_BELL => self.sleep.clear_leader_bell(),
                TOKEN_NEAR => called = true,
                t if t >= TOKEN_NEAR_PID => {
                    self.near_ended((t - TOKEN_NEAR_PID) as u16);
                    events += 1;
                }
                t if t >= TOKEN_PID => {
                    let rank = (t - TOKEN_PID) as u32;
                    self.ended(rank, Death::Ended);
                    events += 1;
                }
                _ => {}
            }
        }
        if called || self.near_is_due() {
            events += self.hear_near();
        }
        events
    }

    /// Prepares to sleep, after a pass that moved nothing. Returns `None` if something is due
    /// before a sleep could begin.
    pub fn prepare(&mut self, deadline: Option<u64>) -> Option<Idle> {
        self.told_ends = self.engine.ends();
        if let Some(shm) = &mut self.engine.io.shm
            && !shm.link.is_alone()
        {
            self.sleep.declare();
            // Frames that cannot be taken now are no reason to stay awake.
            let ready = shm.link.sleep_prepare() == Slumbering::No;
            let gone = shm.gone();
            if (ready && !shm.blocked && !self.engine.core.starved) || !gone.is_empty() {
                self.end_sleep();
                let gone = gone.into_iter();
                let suspects = gone.map(|(rank, why)| Finding::Suspect(rank, why));
                suspects.for_each(|it| self.core.find(it));
                return None;
            }
        }
        let due = self.next_timeout();
        if due == Some(0) {
            self.end_sleep();
            return None;
        }
        let mut due = due.unwrap_or(u64::MAX).min(deadline.unwrap_or(u64::MAX));
        if let Some(net) = &mut self.io.net
            && !net.arm()
        {
            // No descriptor would report a packet.
            due = due.min(now_ns() + BLOCKED_NAP_NS);
        }
        if let Some(shm) = &self.io.shm
            && (shm.blocked || self.core.starved || self.io.matched.has_backlog())
        {
            // Frames that wait already ring no bell again.
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
        self.look_at_all();
        self.engine.clock().check();
        if self.sleep.is_declared() {
            self.end_sleep();
        }
        if let Some(net) = self.io.net.as_mut().filter(|net| net.is_armed()) {
            net.link.woken(|token| woken.has(token));
        }
        if self.note(woken) > 0 {
            self.notify_progress();
        }
    }

    /// Called at the end of a call that may leave something to do. Wakes a sleeper if something is
    /// now due before its wake-up, or if the call has ended an operation.
    #[inline(always)]
    pub fn end(&mut self) {
        if self.sleep.relies_on_us() || self.gathers() {
            self.wake_if_due();
        }
    }

    #[inline(never)]
    fn wake_if_due(&mut self) {
        if self.gathers() {
            self.sleep.ask_helper();
        }
        if !self.sleep.is_anyone_asleep() {
            return;
        }
        if self.sleep.waits_for_events() && self.told_ends != self.engine.ends() {
            self.notify_progress();
        }
        let due = self.next_timeout();
        if self.waits_for_room() || due.is_some_and(|at| self.sleep.oversleeps(at)) {
            self.sleep.end_sleep();
        }
    }

    /// Withdraws a declared sleep: senders need not ring any more.
    #[cold]
    fn end_sleep(&mut self) {
        self.sleep.undeclare();
        self.sleep.ring_armed();
        if let Some(shm) = &mut self.io.shm {
            shm.link.sleep_cancel();
        }
    }

    /// Prepares for a wait on the descriptor for other event loops and on `bell`. Returns false if
    /// there is something to do first.
    pub fn arm(&mut self, bell: &Arc<Doorbell>) -> bool {
        let core = &self.core;
        if !core.ready.is_empty() || !core.events.is_empty() || core.unasked {
            return false;
        }
        if self.sleep.is_declared()
            && let Some(shm) = &mut self.engine.io.shm
        {
            // What the bell rang for has been taken; other sleepers stay asleep.
            shm.link.sleep_cancel();
        }
        let Some(idle) = self.prepare(None) else {
            self.sleep.wake_sleepers();
            return false;
        };
        self.sleep.arm(idle.due, bell)
    }

    /// Called at the start of every call that makes progress.
    #[inline(always)]
    pub fn begin(&mut self) {
        if self.sleep.is_disturbed() {
            self.begin_disturbed();
        }
    }

    /// Wakes threads that sleep in the endpoint. A thread that waits on the descriptor for other
    /// event loops relies on senders that ring: a pass of another thread does not wake it.
    #[cold]
    fn begin_disturbed(&mut self) {
        if self.sleep.is_declared() && !self.sleep.is_armed() {
            self.end_sleep();
            self.sleep.wake_sleepers();
        }
    }

    /// Resumes a handler's panic, if there was one.
    #[inline(always)]
    pub fn rethrow(&mut self) {
        if self.core.panic.is_some() {
            self.rethrow_now();
        }
    }

    #[cold]
    fn rethrow_now(&mut self) {
        if let Some(panic) = self.core.panic.take() {
            self.core.note_work();
            resume_unwind(panic);
        }
    }

    /// Ends what is still in flight, and reports to the launcher that the endpoint closed in good
    /// order.
    pub fn leave(&mut self) {
        self.closed = true;
        self.engine.end();
        self.notify_progress();
        if let Some(watch) = &mut self.watch {
            watch.leave();
        }
    }
}
