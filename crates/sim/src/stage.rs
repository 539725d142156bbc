//! The engine as it is shipped, under the simulator: ranks on hosts that share memory and
//! networks that lose, spoil, repeat and cut; messages to ports, matched messages,
//! one-sided accesses, broadcasts and barriers; supersteps of BSPlib; deaths, returns and
//! closes.

mod book;
mod events;
mod ops;
mod parting;
pub mod plan;
mod ports;
mod program;
mod rank;
mod start;
mod supersteps;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use portolan_link::shm::{Segment, SegmentConfig, ShmPort};
use portolan_sys::shared_doorbell::SharedDoorbells;

use self::book::{Life, LifeId, SharedBook};
use self::events::Event;
use self::ops::{Parcel, REGION};
use self::plan::{PARTINGS, PLACINGS, Plan};
pub use self::rank::SimClock;
use self::rank::{Closing, Rank, Start};
use self::supersteps::{SharedTwin, Supersteps};
use crate::cluster::Summary;
use crate::content;
use crate::link::{SharedNetwork, SimLinks};
use crate::net::Network;
use crate::rng::{Rng, mix};
use crate::trace::Trace;

const MS: u64 = 1_000_000;
/// Faults have ended after this long at the latest, ns.
const CHAOS_NS: u64 = 20_000 * MS;

/// A host: its shared memory, and which of its places are taken.
struct Host {
    segment: Segment,
    bells: SharedDoorbells,
}

/// A run under way.
pub struct Stage {
    plan: Plan,
    clock: SimClock,
    now: u64,
    net: SharedNetwork,
    book: SharedBook,
    twin: SharedTwin,
    hosts: Vec<Option<Host>>,
    ranks: Vec<Option<Rank>>,
    /// Those that were killed: others may still reach into their memory.
    killed: Vec<Rank>,
    /// Life of each rank, how often it was started again, and its last return.
    lives: Vec<LifeId>,
    returned: Vec<(u32, u32)>,
    parcels: Vec<Parcel>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    acts_left: Vec<u32>,
    rng: Rng,
    trace: Trace,
    steps: u64,
    /// Faults have ended: who dies now does not come back.
    calm: bool,
}

fn host(plan: &Plan, host: usize) -> Option<Host> {
    let ranks = plan.hosts.iter().filter(|it| **it == host).count();
    if ranks < 2 {
        return None;
    }
    let config = SegmentConfig {
        frame_bytes_max: 8_192,
        ring_slots: 16,
        ring_bytes: Some(64 << 10),
        inbox_slots: 16,
        regions: 16,
        remote_barrier: false,
        ..SegmentConfig::default()
    };
    let segment = Segment::create(ranks as u32, &config).expect("there is memory");
    let bells = SharedDoorbells::new(ranks).expect("descriptors");
    Some(Host { segment, bells })
}

impl Stage {
    /// Sets a plan up.
    #[must_use]
    pub fn new(plan: Plan, trace: bool) -> Self {
        let (seed, ranks) = (plan.seed, plan.hosts.len());
        let trace = Trace { on: trace };
        let mut net = Network::new(mix(seed ^ 1), ranks * plan.networks);
        net.set_faults(plan.faults);
        net.up.fill(plan.pipe);
        net.down.fill(plan.pipe);
        net.inbox_max = plan.inbox;
        for place in 0..net.nodes() {
            *net.steering_mut(place) = plan.steering;
        }
        let book_rng = Rng::new(mix(seed ^ 3));
        let book = SharedBook::new(
            book_rng,
            trace,
            plan.silence_possible(),
            plan.long_max,
            plan.spaces,
            (plan.placings).then(|| Rng::new(mix(seed ^ PLACINGS))),
        );
        for rank in 0..ranks {
            book.lock().lives.push(Life {
                rank,
                knows: (0..ranks).collect(),
                ..Life::default()
            });
        }
        let mut stage = Self {
            clock: SimClock::default(),
            now: 0,
            net: SharedNetwork::new(net),
            book,
            twin: SharedTwin::new(&plan),
            hosts: (0..ranks).map(|it| host(&plan, it)).collect(),
            ranks: (0..ranks).map(|_| None).collect(),
            killed: Vec::new(),
            lives: (0..ranks).collect(),
            returned: vec![(0, 0); ranks],
            parcels: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            acts_left: vec![plan.acts; ranks],
            rng: Rng::new(mix(seed ^ 2)),
            trace,
            steps: 0,
            calm: false,
            plan,
        };
        for rank in 0..ranks {
            stage.start(rank);
        }
        stage.schedule();
        stage
    }

    fn at(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    fn schedule(&mut self) {
        let plan = self.plan.clone();
        let ranks = plan.hosts.len();
        let busy = (u64::from(plan.acts) + 4 * plan.supersteps) * plan.gap_ns + 5 * MS;
        for rank in 0..ranks {
            let first = self.rng.below(2 * plan.gap_ns + 1);
            self.at(first, Event::Act(rank));
        }
        for _ in 0..self.rng.below(4) {
            let at = self.rng.below(busy);
            self.at(at, Event::Barrier);
        }
        if plan.partings {
            let at = Rng::new(plan.seed ^ PARTINGS).below(busy);
            self.at(at, Event::Part);
        }
        for _ in 0..plan.kills {
            let (at, rank) = (self.rng.below(busy), self.rng.index(ranks));
            self.at(at, Event::Kill(rank));
        }
        for _ in 0..plan.cuts {
            let (mask, at) = (self.rng.word() as u32, self.rng.below(busy));
            self.at(at, Event::Cut(mask, true));
            self.at(at + plan.cut_ns, Event::Cut(mask, false));
        }
        if let Some(network) = plan.failing {
            // On the first they find each other and tell of the second.
            let at = self.rng.below(busy) + if network == 0 { 4 * MS } else { 0 };
            self.at(at, Event::Fail(network));
        }
        if plan.path_mtu > 0 {
            let at = self.rng.below(busy);
            self.at(at, Event::Shrink);
        }
    }

    /// Starts a rank's present life.
    fn start(&mut self, rank: usize) {
        let life = self.lives[rank];
        let links = SimLinks {
            net: self.net.clone(),
            rank,
            ranks: self.plan.hosts.len(),
            networks: self.plan.networks,
            full_ppm: self.plan.full_ppm,
            rng: self.rng.fork(mix(life as u64)),
            trace: self.trace,
        };
        let start = Start {
            plan: &self.plan,
            book: &self.book,
            clock: &self.clock,
            links,
            shm: self.attach(rank),
            // Who is started again takes no part, and ends.
            supersteps: (self.plan.supersteps > 0 && self.returned[rank].0 == 0)
                .then(|| Supersteps::new(&self.plan, &self.twin, rank)),
            returned: &self.returned,
        };
        self.ranks[rank] = Some(Rank::new(rank, life, start));
    }

    /// The memory of a rank's host; of one that was started again there is none.
    fn attach(&self, rank: usize) -> Option<(ShmPort, Vec<(u16, u32)>)> {
        let own = self.plan.hosts[rank];
        let host = self.hosts[own].as_ref()?;
        if self.returned[rank].0 > 0 {
            return None;
        }
        let ranks = self.plan.hosts.iter().enumerate();
        let near = ranks
            .filter(|(_, host)| **host == own)
            .map(|(rank, _)| rank as u32);
        let all: Vec<(u16, u32)> = (0..).zip(near).collect();
        let of_mine = |it: &&(u16, u32)| it.1 == rank as u32;
        let index = all.iter().find(of_mine).expect("it is one of them").0;
        let bells = host.bells.duplicate_of(index.into()).expect("descriptors");
        let segment = host.segment.duplicate_fd().expect("a descriptor");
        let port = ShmPort::attach(segment, index, bells, self.plan.cma);
        let mut port = port.expect("its place is free");
        let others: Vec<_> = all.into_iter().filter(|it| it.0 != index).collect();
        for (other, _) in &others {
            port.set_process(*other, std::process::id());
        }
        Some((port, others))
    }

    /// Runs it to its end. Every breach of the rules panics.
    pub fn run(&mut self) -> Summary {
        let began = |stage: &mut Self| stage.events.is_empty() && stage.supersteps_over();
        self.run_until(CHAOS_NS, began);
        self.end_chaos();
        if self.plan.supersteps > 0 {
            self.kill_ended();
            self.must("all supersteps end", Self::supersteps_over);
            self.kill_ended();
        }
        self.must("everything ends once faults stop", Self::all_done);
        self.check();
        self.close();
        let [accepted, delivered, refused] = self.book.lock().counts();
        let [placings, pauses] = self.book.lock().placings.counts;
        let (supersteps, failed, phases) = self.count_supersteps();
        Summary {
            accepted,
            delivered,
            refused,
            kills: self.killed.len() as u64,
            placings,
            pauses,
            stops: self.told(0),
            goes: self.told(1),
            supersteps,
            failed,
            phases,
            quick: 0,
            foreseen: [0; 2],
            net: self.net.lock().counters(),
            ended_at: self.now,
        }
    }

    /// How often senders were told to stop a flow (0), or to go on (1).
    fn told(&self, which: usize) -> u64 {
        let all = self.ranks.iter().flatten().chain(&self.killed);
        all.map(|rank| rank.engine.core.told[which]).sum()
    }

    /// Steps that it has taken.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    fn end_chaos(&mut self) {
        self.calm = true;
        let mut parcels = Vec::new();
        while let Some(Reverse((_, _, event))) = self.events.pop() {
            // What was begun is gone on with, once all know who is back.
            match event {
                Event::Act(_) | Event::Kill(_) | Event::Barrier | Event::Part | Event::Fail(_) => {}
                Event::Send(_) | Event::Receive(_) => parcels.push(event),
                _ => self.happen(event),
            }
        }
        parcels.into_iter().for_each(|event| self.happen(event));
        self.net.lock().heal();
        if let Some(network) = self.plan.failing {
            // It stays so.
            self.cut_network(network);
        }
        for rank in self.ranks.iter_mut().flatten() {
            rank.bind_all();
            rank.next_pass = self.now;
        }
        // When all others must have found out.
        self.at(self.now + 6 * self.plan.silence_ns, Event::Announce);
    }

    fn all_done(&mut self) -> bool {
        let ranks = self.ranks.iter_mut().flatten();
        ranks.fold(true, |done, rank| done & rank.is_done())
            && self.book.lock().missing().is_empty()
    }

    /// Nothing is lost, and nothing is left.
    fn check(&mut self) {
        for rank in self.ranks.iter_mut().flatten() {
            rank.settle();
            rank.check_nothing_is_left();
        }
        self.book.lock().check_failed();
        self.book.lock().check_placed();
        for at in 0..self.ranks.len() {
            let life = self.lives[at];
            let Some(region) = self.ranks[at].as_mut().map(Rank::take_region) else {
                continue;
            };
            assert_eq!(region.len(), REGION);
            let (mut sure, mut perhaps) = (0, 0);
            for by in self.ranks.iter().flatten().chain(&self.killed) {
                for &(_, id, at, bytes) in by.written.slots.iter().filter(|slot| slot.0 == life) {
                    content::verify(id, 0, &region[at..at + bytes]);
                }
                let added = by.written.added.iter().filter(|(of, _)| *of == life);
                let ended = added.clone().filter(|(_, well)| *well).count() as u64;
                sure += ended;
                perhaps += added.count() as u64 - ended;
            }
            // What those had begun who are no more.
            perhaps += if self.killed.is_empty() { 0 } else { 1_000 };
            let counted = u64::from_le_bytes(region[..8].try_into().expect("8 bytes"));
            let [least, most] = Rank::added(sure, perhaps);
            assert!(
                (least..=most).contains(&counted),
                "{least} {counted} {most}"
            );
        }
    }

    /// All close, in some order, with messages under way or without.
    fn close(&mut self) {
        if self.plan.close_early {
            // A close that does not wait loses nothing where no packet is lost.
            self.net.lock().set_faults(self.plan.faults);
        }
        let mut left: Vec<usize> = (0..self.ranks.len()).collect();
        while !left.is_empty() {
            let rank = left.swap_remove(self.rng.index(left.len()));
            if self.plan.close_early {
                for at in 0..self.ranks.len() {
                    if let Some(it) = &mut self.ranks[at] {
                        it.act_late();
                    }
                    self.stir(at);
                }
                let under_way = self.rng.below(50_000);
                self.run_until(under_way, |_| false);
                // The others may be busy: what is meant for them waits here.
                for other in self.ranks.iter_mut().flatten() {
                    let busy = self.rng.scale(1, 2 * MS);
                    other.next_pass = other.next_pass.saturating_add(busy);
                }
            }
            let due = self.book.lock().on_their_way(self.lives[rank]);
            self.book.lock().lives[self.lives[rank]].lost = true;
            if let Some(rank) = &mut self.ranks[rank] {
                rank.close();
                rank.next_pass = self.now;
            }
            if self.plan.close_early && !self.plan.silence_possible() && self.rng.one_in(2) {
                // All that it has sent arrives first.
                self.must("what was sent before a close arrives", |stage| {
                    let arrived = stage.book.lock().have_come(&due);
                    // Unless it is killed.
                    let over = |it: &Rank| it.closing == Closing::Over && arrived;
                    stage.ranks[rank].as_ref().is_none_or(over)
                });
            } else {
                let soon = self.rng.below(200_000);
                self.run_until(soon, |_| false);
            }
        }
        self.must("all close", |stage| {
            stage
                .ranks
                .iter()
                .flatten()
                .all(|rank| rank.closing == Closing::Over)
        });
    }

    fn must(&mut self, what: &str, done: impl FnMut(&mut Self) -> bool) {
        let within = 60_000 * MS + 20 * self.plan.silence_ns;
        if self.run_until(within, done) {
            return;
        }
        let report = self.report();
        let missing = self.book.lock().describe_missing();
        panic!("not so at {}: {what}{missing}{report}", self.now);
    }

    /// Every rank's state in words.
    pub fn report(&mut self) -> String {
        let ranks = self.ranks.iter_mut().flatten();
        ranks.map(|rank| format!("\n  {}", rank.report())).collect()
    }

    /// Steps until `done` (looked at now and then); false when that took longer than
    /// `within` ns or nothing happens any more.
    fn run_until(&mut self, within: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now.saturating_add(within);
        loop {
            if self.steps.is_multiple_of(8) && done(self) {
                return true;
            }
            match self.next_time() {
                Some(time) if time <= end => self.step(time),
                _ => {
                    self.now = self.now.max(end.min(self.next_time().unwrap_or(self.now)));
                    return done(self);
                }
            }
            assert!(self.steps < 5_000_000, "too many steps: something spins");
        }
    }

    fn next_time(&self) -> Option<u64> {
        let events = self.events.peek().map(|event| event.0.0);
        let ranks = self.ranks.iter().flatten();
        let ranks = ranks.filter(|it| it.closing != Closing::Over && it.next_pass != u64::MAX);
        let ranks = ranks.map(|rank| rank.next_pass).min();
        [events, ranks, self.net.lock().next_time()]
            .into_iter()
            .flatten()
            .min()
    }

    fn step(&mut self, time: u64) {
        self.steps += 1;
        if let Some((step, rank)) = self.plan.kill_at
            && step == self.steps
        {
            self.kill_some(rank);
        }
        let now = time.max(self.now);
        self.now = now;
        self.clock.set(now);
        self.book.lock().now = now;
        self.net.lock().advance(now);
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > now {
                break;
            }
            self.events.pop();
            self.happen(event);
        }
        for at in 0..self.ranks.len() {
            // Who has closed is gone as well.
            let goes_on = |it: &&mut Rank| it.closing != Closing::Over;
            let Some(rank) = self.ranks[at].as_mut().filter(goes_on) else {
                for network in 0..self.plan.networks {
                    let place = network * self.ranks.len() + at;
                    self.net.lock().clear_inbox(place);
                }
                continue;
            };
            let hears = rank
                .engine
                .io
                .net
                .as_ref()
                .is_some_and(|net| net.link.has_packets());
            if rank.next_pass <= now || hears && rank.next_pass > now + self.plan.wake_ns {
                if rank.next_pass > now {
                    rank.next_pass = now + self.rng.below(self.plan.wake_ns + 1);
                } else {
                    let closing = rank.closing;
                    let was_over = rank.has_left_supersteps();
                    let busy = rank.pass(now);
                    let is_over = rank.has_left_supersteps() && !was_over;
                    let given_up = std::mem::take(&mut rank.given_up);
                    let has_left = rank.closing != closing && rank.closing == Closing::Over;
                    if busy {
                        self.wake_host(at);
                    }
                    for life in given_up {
                        // Of one that was never connected only others can tell.
                        let (at, late) = (self.lives[at], self.rng.scale(1, 2 * MS));
                        self.at(self.now + late, Event::GivenUp(life, at));
                    }
                    if has_left {
                        self.leave(at);
                    }
                    if is_over {
                        self.end_supersteps(at);
                    }
                }
            }
        }
    }

    /// What a rank has done in shared memory wakes the others of its host.
    fn wake_host(&mut self, rank: usize) {
        let host = self.plan.hosts[rank];
        for other in 0..self.ranks.len() {
            let late = self.rng.below(self.plan.wake_ns + 1);
            if other != rank
                && self.plan.hosts[other] == host
                && let Some(other) = &mut self.ranks[other]
            {
                other.next_pass = other.next_pass.min(self.now + late);
            }
        }
    }
}
