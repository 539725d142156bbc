//! A rank of the stage: the engine as it is shipped, and its program.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan_engine::{
    BarrierCall, Clock, Core, Death, Engine, Finding, Lane, Lanes, Matched, PortId, Restarted,
    Scatter, ShmLane, SpaceId,
};
use portolan_exchange::{OpId, RegionId, Rights, Statistics};
use portolan_link::shm::{ShmPort, Slumbering};
use portolan_proto::congestion::Mode;

use super::book::{Draft, LifeId, SharedBook, port};
use super::ops::{KEY, Kind, Parcel, REGION, Written};
use super::parting::Parting;
use super::plan::Plan;
use super::ports::binding;
use super::start::{address_of, net_lane, settings};
use super::supersteps::Supersteps;
use crate::link::SimLinks;
use crate::rng::Rng;

/// Virtual time.
#[derive(Clone, Debug, Default)]
pub struct SimClock(Arc<AtomicU64>);

impl SimClock {
    /// It is so late now, ns.
    pub fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn ticks(&self) -> u64 {
        self.now()
    }
}

/// A port that finds no room is looked at again after this, ns.
const NAP_NS: u64 = 1_000_000;

/// How a rank closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    No,
    Flushing,
    Telling,
    Leaving,
    Over,
}

/// One of them.
pub struct Rank {
    pub rank: usize,
    pub life: LifeId,
    pub engine: Engine<SimLinks, SimClock>,
    pub(super) book: SharedBook,
    pub(super) rng: Rng,
    pub(super) helped: u64,
    /// Lives that it has given up, though nobody had said that they are over.
    pub given_up: Vec<LifeId>,
    /// When it runs next, ns.
    pub next_pass: u64,
    /// Messages that found no credit.
    pub(super) wants: VecDeque<(u32, Draft)>,
    /// What it wanted to send last.
    pub(super) last: Option<(u32, Draft)>,
    /// What is left to be sent of broadcasts.
    pub(super) relays: VecDeque<(u32, Vec<u8>)>,
    pub(super) relay_flow: u16,
    /// Those that it has opened.
    pub(super) spaces: Vec<SpaceId>,
    pub(super) ops: Vec<(OpId, Kind)>,
    /// Messages that are claimed when they are there.
    pub(super) claims: Vec<Parcel>,
    pub(super) region: RegionId,
    pub written: Written,
    pub(super) barrier: Option<BarrierCall>,
    /// When who is waited for there is asked for a sign of life.
    pub(super) knock_at: u64,
    pub barriers_due: u32,
    pub parting: Parting,
    pub(super) parting_ops: Vec<OpId>,
    pub(super) supersteps: Option<Supersteps>,
    /// When ports that wait for it go on.
    pub(super) resume_at: u64,
    pub closing: Closing,
}

/// What a rank begins with.
pub struct Start<'a> {
    pub plan: &'a Plan,
    pub book: &'a SharedBook,
    pub clock: &'a SimClock,
    pub links: SimLinks,
    /// Its port of shared memory, and the indices and ranks of the others there.
    pub shm: Option<(ShmPort, Vec<(u16, u32)>)>,
    pub(super) supersteps: Option<Supersteps>,
    /// Restarts of every rank, and the number of its last return.
    pub returned: &'a [(u32, u32)],
}

impl Rank {
    pub fn new(rank: usize, life: LifeId, start: Start<'_>) -> Self {
        let Start {
            plan,
            book,
            clock,
            links,
            shm,
            supersteps,
            returned,
        } = start;
        let lives = book.lock().lives[life].knows.clone();
        let near = shm.as_ref().map_or(Vec::new(), |(_, near)| near.clone());
        let now = clock.now();
        let (net, peers) = net_lane(plan, links, (rank, life), &lives, &near, now);
        let mut lanes = Lanes::with_capacity(lives.len(), "sim");
        for (other, (restarts, since)) in returned.iter().enumerate() {
            lanes.returns.found(other as u32, *restarts, *since);
            let index = near.iter().find(|(_, it)| *it == other as u32);
            let lane = match (peers[other], index) {
                (Some(peer), _) => Lane::Net(peer),
                (None, Some((index, _))) => Lane::Shm(*index),
                (None, None) => Lane::Myself,
            };
            lanes.push(lane, "simulated");
        }
        let settings = settings(plan, rank, life);
        let matched = Matched::new(&settings, &lanes);
        let core = Core::new(&settings, lanes);
        let shm = shm.map(|(link, near)| ShmLane::new(link, &near, plan.copy_min, 1 << 20));
        let mut engine = Engine::new(core, matched, Some(net), shm, clock.clone());
        let region = Scatter::from(vec![0; REGION]);
        let region =
            engine.register_region(SpaceId::PROGRAM, region, Some(KEY), Rights::Both.into());
        let mut made = Self {
            rank,
            life,
            engine,
            book: book.clone(),
            rng: Rng::new(plan.seed ^ (life as u64 + 7) << 20),
            helped: plan.helped,
            given_up: Vec::new(),
            next_pass: now,
            wants: VecDeque::new(),
            last: None,
            relays: VecDeque::new(),
            relay_flow: 0,
            spaces: Vec::new(),
            ops: Vec::new(),
            claims: Vec::new(),
            region: region.expect("the key is free"),
            written: Written::default(),
            barrier: None,
            knock_at: u64::MAX,
            barriers_due: 0,
            parting: Parting::No,
            parting_ops: Vec::new(),
            supersteps,
            resume_at: u64::MAX,
            closing: Closing::No,
        };
        made.enter(SpaceId::PROGRAM);
        made
    }

    /// Opens a space, if it has not.
    pub(super) fn enter(&mut self, space: SpaceId) {
        if self.spaces.contains(&space) || self.closing != Closing::No {
            return;
        }
        self.spaces.push(space);
        if space != SpaceId::PROGRAM {
            self.engine.open_space(space).expect("it was never opened");
        }
        let late = self.book.lock().placings.binds_late(self.life, space);
        for at in port::PLAIN..=port::PLACING {
            if at != port::LATE && !(late && at == port::PLACING) {
                self.bind(space, at);
            }
        }
        let (shared, life) = (self.book.clone(), self.life);
        let opened = self.engine.core.space(space).expect("it is open");
        opened.error_handler = Some(Box::new(move |_, event| {
            shared.lock().told(life, space, event)
        }));
    }

    pub(super) fn bind(&mut self, space: SpaceId, number: u16) {
        let at = PortId { space, number };
        let binding = binding(&self.book, self.life, at);
        let bound = self.engine.core.bind(at, binding);
        bound.expect("it is the program's");
    }

    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        let book = self.book.lock();
        book.trace.note(book.now, self.rank, what);
    }

    /// The life of a rank that this one knows, if it is not dead for it.
    pub fn known(&self, rank: usize) -> Option<LifeId> {
        let dead = self.engine.core.lanes.dead(rank as u32).is_some();
        (!dead).then(|| self.book.lock().lives[self.life].knows[rank])
    }

    /// Somebody tells that a rank's process has ended.
    pub fn tell_of_death(&mut self, rank: usize, why: Death) {
        self.engine.handle_peer_death(rank as u32, why);
    }

    /// Somebody tells that a rank is back, in another life.
    pub fn tell_of_return(&mut self, rank: usize, life: LifeId, restarts: u32, since: u32) {
        if since <= self.engine.core.lanes.returns.since(rank as u32) {
            return;
        }
        self.engine.handle_peer_death(rank as u32, Death::Restarted);
        self.book.lock().returned(self.life, rank, life);
        self.engine.handle_peer_restart(&Restarted {
            rank: rank as u32,
            address: address_of(rank, life),
            restarts,
            since,
            mode: Mode::Lan,
            reason: "simulated".into(),
        });
    }

    /// One pass of progress; whether anything has moved.
    pub fn pass(&mut self, now: u64) -> bool {
        let helped = self.helped > 0 && self.rng.one_in(self.helped);
        self.engine.core.set_run(!helped);
        let mut moved = self.engine.pass();
        self.engine.core.set_run(true);
        self.fail_if_a_handler_did();
        while let Some(finding) = self.engine.next_finding() {
            moved += 1;
            match finding {
                Finding::Suspect(rank, why) => self.engine.handle_peer_death(rank, why),
                Finding::Wanted(_) | Finding::Come(_) | Finding::Departed(_) | Finding::Due => {
                    panic!("in a job nobody comes")
                }
                Finding::GivenUp(rank, _) => {
                    let life = self.book.lock().lives[self.life].knows[rank as usize];
                    self.given_up.push(life);
                }
            }
        }
        self.claim();
        let mut busy = moved > 0;
        busy |= self.take_ended();
        self.take_buffers();
        busy |= self.resume_ports(now);
        busy |= self.send_waiting();
        busy |= self.go_on_with_barrier(now);
        busy |= self.go_on_parting(now);
        busy |= self.go_on_supersteps(now);
        busy |= self.go_on_closing();
        let due = self.engine.next_timeout();
        self.next_pass = match due {
            _ if busy => now + 1 + self.rng.below(800),
            Some(due) => due.max(now + 300),
            None => u64::MAX,
        };
        if let Some(shm) = self.engine.io.shm.as_mut().filter(|_| !busy) {
            // As before a sleep: what came meanwhile keeps it awake.
            let ready = shm.link.sleep_prepare() == Slumbering::No;
            shm.link.sleep_cancel();
            let blocked = shm.blocked || self.engine.core.starved;
            if blocked || self.engine.waits_for_room() {
                self.next_pass = self.next_pass.min(now + NAP_NS);
            } else if ready {
                self.next_pass = now + 1;
            }
        }
        if self.barrier.is_some() || matches!(self.parting, Parting::Meets(_)) {
            self.next_pass = self.next_pass.min(self.knock_at.max(now + 1));
        }
        self.next_pass = self.next_pass.min(self.resume_at);
        if let Some(it) = &self.supersteps {
            self.next_pass = self.next_pass.min(it.next_at);
        }
        if helped {
            // The program comes back.
            self.next_pass = self.next_pass.min(now + 1 + self.rng.below(100_000));
        }
        busy
    }

    /// Closes as the endpoint does; whether it has come further.
    fn go_on_closing(&mut self) -> bool {
        let before = self.closing;
        match self.closing {
            Closing::No | Closing::Over => {}
            Closing::Flushing if self.engine.idle() => {
                self.engine.take_part(|core, out| core.refuse_all(out));
                self.closing = Closing::Telling;
            }
            Closing::Telling if self.engine.idle() && self.engine.withdraw_regions(None) => {
                self.engine.close_lanes();
                self.closing = Closing::Leaving;
            }
            Closing::Leaving if self.engine.idle() => {
                self.engine.end();
                self.closing = Closing::Over;
            }
            _ => {}
        }
        self.closing != before
    }

    pub fn close(&mut self) {
        self.leave_barriers();
        self.engine.core.begin_close();
        self.engine.say_closing(None);
        self.closing = Closing::Flushing;
    }

    /// Binds what was not bound, so that all that waits is taken.
    pub fn bind_all(&mut self) {
        let closing = self.closing != Closing::No;
        let all = [0, 1, 2].map(|number| self.book.lock().space_of(number));
        for space in all.into_iter().filter(|_| !closing) {
            self.enter(space);
            self.bind(space, port::LATE);
        }
    }

    /// Runs what handlers are still to run.
    pub fn settle(&mut self) {
        loop {
            let moved = self.engine.pass();
            self.fail_if_a_handler_did();
            self.take_buffers();
            if !self.resume_waiting() && moved == 0 {
                break;
            }
        }
    }

    /// The engine keeps what a handler panics with for the program's next call.
    fn fail_if_a_handler_did(&mut self) {
        if let Some(panic) = self.engine.core.panic.take() {
            std::panic::resume_unwind(panic);
        }
    }

    /// A message of a rank that has died is looked for without an operation, or nothing
    /// was ever heard of that rank: the engine cannot find out.
    pub fn cannot_notice(&mut self, dead: LifeId) -> bool {
        let rank = self.book.lock().lives[dead].rank;
        let mut looked_for = self.claims.iter().any(|it| it.from == dead);
        looked_for |= (self.supersteps.as_ref()).is_some_and(|it| it.misses(rank));
        self.known(rank) == Some(dead)
            && (looked_for || self.engine.heard_at(rank as u32).is_none())
    }

    /// Nothing of its program's is under way, and nothing that arrives.
    pub fn is_done(&mut self) -> bool {
        self.kept() == 0
            && self.wants.is_empty()
            && self.relays.is_empty()
            && self.ops.is_empty()
            && self.claims.is_empty()
            && self.barrier.is_none()
            && self.barriers_due == 0
            && !self.parting.is_under_way()
            && self.supersteps.as_ref().is_none_or(Supersteps::is_done)
            && !self.book.lock().placings.any_waits(self.life)
            && self.engine.idle()
    }

    /// Bytes of messages that wait in any space.
    fn kept(&mut self) -> usize {
        let core = &mut self.engine.core;
        let of = |space: &SpaceId| {
            let space = core.space(*space).expect("it is open");
            space.unexpected.used.saturating_add(space.queued.used)
        };
        // Not one less than nothing that hides the other's.
        self.spaces.iter().map(of).fold(0, usize::saturating_add)
    }

    /// Of nothing anything is left; of the dead, whole messages that nobody asked for.
    pub fn check_nothing_is_left(&mut self) {
        let of_dead = self
            .book
            .lock()
            .lives
            .iter()
            .any(|it| it.lost || !it.known_dead.is_empty());
        assert_eq!(self.kept(), 0);
        for space in &self.spaces {
            let found = self.engine.exchange(*space).statistics();
            let mut expected = Statistics::default();
            if of_dead {
                expected.messages = found.messages;
                expected.pushed_bytes = found.pushed_bytes;
            }
            expected.unflushed = found.unflushed;
            expected.regions = usize::from(*space == SpaceId::PROGRAM);
            assert_eq!(found, expected, "{space}");
        }
    }

    /// What is under way, in words.
    pub fn report(&mut self) -> String {
        let (idle, kept) = (self.engine.idle(), self.kept());
        let supersteps = self.supersteps.as_ref().map(Supersteps::report);
        let core = &mut self.engine.core;
        format!(
            "rank {}: engine idle {idle}, starved {}, ports {:?}, events {}, next pass {}, wants {:?}, relays {}, ops {:?}, claims {:?}, barrier \
             {:?}, parting {:?}, closing {:?}, kept {kept}, {:?}, waiting {:?}, {supersteps:?}",
            self.rank,
            core.starved,
            core.ready,
            core.events.len(),
            self.next_pass,
            self.wants,
            self.relays.len(),
            self.ops,
            self.claims,
            self.barrier,
            self.parting,
            self.closing,
            self.engine.io.matched.own.exchange.statistics(),
            core.waiting(),
        )
    }
}
