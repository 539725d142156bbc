//! The cluster simulator: nodes, a network and whatever goes wrong, in
//! virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use portolan_proto::Release;
use portolan_wire::{Life, Priority};

use crate::fate::FateList;
use crate::ledger::Ledger;
use crate::net::{NetCounters, Network};
use crate::node::{Node, Want, World};
use crate::rng::{Rng, mix};
use crate::scenario::{Pattern, Scenario};
use crate::stage::plan::PHASES;
use crate::suite::NonceBook;
use crate::trace::Trace;

const MS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start(usize),
    Want(usize),
    Kill(usize),
    Revive(usize),
    /// The first is told that the second died in that life.
    Tell(usize, usize, u64),
    /// On the networks of the first mask, cuts or joins the nodes of the second
    /// and the rest; bit 0 and 1: the directions.
    Cut(u8, u32, u8, bool),
    /// Cuts or joins everything on one network.
    Outage(usize, bool),
    /// A node's packets go through its kernel, or no longer do; what waits past
    /// the kernel is lost, or not.
    Detour(usize, bool, bool),
    Shrink,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Messages accepted.
    pub accepted: u64,
    /// Messages delivered whole.
    pub delivered: u64,
    /// Messages refused.
    pub refused: u64,
    /// Processes killed.
    pub kills: u64,
    /// Messages that were placed in memory of their own, of the engine's runs.
    pub placings: u64,
    /// Ports that have paused.
    pub pauses: u64,
    /// How often a sender was told to stop a flow.
    pub stops: u64,
    /// How often it was told to go on.
    pub goes: u64,
    /// Supersteps that processes have ended, in the engine's runs.
    pub supersteps: u64,
    /// Processes that found that another had died, and ended no superstep any more.
    pub failed: u64,
    /// Processes that died in a chosen phase of a superstep, by [`crate::stage::plan::Phase`].
    pub phases: [u64; PHASES],
    /// Messages that were sent the quick way beside the usual one, over copied tables.
    pub quick: u64,
    /// Packets that were taken the same two ways: whole messages, and further parts.
    pub foreseen: [u64; 2],
    /// Packets, by what became of them.
    pub net: NetCounters,
    /// Virtual time at the end, ns.
    pub ended_at: u64,
}

impl Summary {
    /// Adds another run's figures.
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.delivered += other.delivered;
        self.refused += other.refused;
        self.kills += other.kills;
        self.placings += other.placings;
        self.pauses += other.pauses;
        self.stops += other.stops;
        self.goes += other.goes;
        self.supersteps += other.supersteps;
        self.failed += other.failed;
        for (sum, more) in self.phases.iter_mut().zip(other.phases) {
            *sum += more;
        }
        for (sum, more) in self.foreseen.iter_mut().zip(other.foreseen) {
            *sum += more;
        }
        self.quick += other.quick;
        self.net.sent += other.net.sent;
        self.net.arrived += other.net.arrived;
        self.net.by_kernel += other.net.by_kernel;
        self.net.lost += other.net.lost;
        self.net.overflowed += other.net.overflowed;
        self.net.inbox_full += other.net.inbox_full;
        self.net.repeated += other.net.repeated;
        self.net.corrupted += other.net.corrupted;
        self.net.marked += other.net.marked;
        self.ended_at += other.ended_at;
    }
}

/// A run under way.
pub struct Cluster {
    scenario: Scenario,
    world: World,
    nodes: Vec<Option<Node>>,
    /// Present life of each node, or its last.
    lives: Vec<u64>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    event_order: u64,
    rng: Rng,
    wants_left: Vec<u32>,
    chaos_left: u32,
    kills: u64,
}

/// Pairs of places on the networks beside the first.
fn other_places(s: &Scenario) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (nodes, all) = (s.nodes, s.nodes * s.networks);
    (nodes * all..all * all).map(move |i| (i / all, i % all))
}

impl Cluster {
    /// Sets a scenario up.
    #[must_use]
    pub fn new(scenario: Scenario, trace: bool) -> Self {
        let seed = scenario.seed;
        let nodes = scenario.nodes;
        let mut net = Network::new(mix(seed ^ 1), nodes * scenario.networks);
        net.set_faults(scenario.faults);
        for (from, to) in other_places(&scenario) {
            *net.faults_mut(from, to) = scenario.other_faults;
        }
        net.up.fill(scenario.pipe);
        net.down.fill(scenario.pipe);
        net.inbox_max = scenario.inbox;
        for node in 0..nodes {
            *net.steering_mut(node) = scenario.steering;
        }
        let f = scenario.faults;
        let harsh = f.loss > 50_000 || f.burst_start > 0;
        let silence = scenario.configs[0].silence_ns;
        let mut rng = Rng::new(mix(seed ^ 2));
        let world = World {
            now: 0,
            net,
            ledger: Ledger::default(),
            rng: Rng::new(mix(seed ^ 3)),
            trace: Trace { on: trace },
            book: NonceBook::default(),
            calm: false,
            lost_at: vec![None; nodes],
            silence_possible: harsh
                || (scenario.partitions > 0 && scenario.partition_ns * 4 > silence)
                || scenario.other_faults.loss > 50_000
                || scenario.other_faults.burst_start > 0
                || (scenario.outages > 0 && scenario.outage_ns * 4 > silence),
            overheard: Vec::new(),
            quick: 0,
            foreseen: [0; 2],
        };
        let mut cluster = Self {
            nodes: (0..nodes).map(|_| None).collect(),
            lives: (0..nodes).map(|_| rng.word()).collect(),
            events: BinaryHeap::new(),
            event_order: 0,
            wants_left: vec![scenario.messages; nodes],
            chaos_left: 0,
            kills: 0,
            rng,
            world,
            scenario,
        };
        cluster.schedule();
        cluster
    }

    /// Takes the packets' fates from a list instead of chance.
    pub fn set_script(&mut self, script: FateList) {
        self.world.net.set_script(script);
    }

    /// Writes down the packets' fates.
    pub fn start_record(&mut self) {
        self.world.net.start_record();
    }

    /// The fates written down so far.
    pub fn take_record(&mut self) -> FateList {
        self.world.net.take_record()
    }

    fn at(&mut self, time: u64, event: Event) {
        self.event_order += 1;
        self.events.push(Reverse((time, self.event_order, event)));
        self.chaos_left += 1;
    }

    fn schedule(&mut self) {
        let s = self.scenario.clone();
        for node in 0..s.nodes {
            let late = s.late_ns > 0 && self.rng.one_in(3);
            if late {
                self.world.lost_at[node] = Some(0);
            }
            let start = if late { self.rng.below(s.late_ns) } else { 0 };
            self.at(start, Event::Start(node));
            let first = start + self.rng.below(2 * s.gap_ns + 1);
            self.at(first, Event::Want(node));
        }
        let busy = u64::from(s.messages) * s.gap_ns + 5 * MS;
        for _ in 0..s.kills {
            let node = self.rng.index(s.nodes);
            let at = self.rng.below(busy);
            self.at(at, Event::Kill(node));
        }
        for _ in 0..s.partitions {
            let mask = self.rng.word() as u32;
            let ways = self.rng.between(1, 3) as u8;
            let at = self.rng.below(busy);
            self.at(at, Event::Cut(u8::MAX, mask, ways, true));
            self.at(at + s.partition_ns, Event::Cut(u8::MAX, mask, ways, false));
        }
        for _ in 0..s.outages {
            let network = self.rng.index(s.networks);
            let mask = self.rng.word() as u32;
            let ways = self.rng.between(1, 3) as u8;
            let at = self.rng.below(busy);
            let [down, up] = if self.rng.one_in(2) {
                [true, false].map(|cut| Event::Outage(network, cut))
            } else {
                [true, false].map(|cut| Event::Cut(1 << network, mask, ways, cut))
            };
            self.at(at, down);
            self.at(at + s.outage_ns, up);
        }
        for _ in 0..s.detours {
            let node = self.rng.index(s.nodes);
            let at = self.rng.below(busy);
            let lost = self.rng.one_in(2);
            self.at(at, Event::Detour(node, true, lost));
            self.at(at + s.detour_ns, Event::Detour(node, false, lost));
        }
        if s.path_mtu != 0 {
            let at = self.rng.below(busy);
            self.at(at, Event::Shrink);
        }
    }

    /// Runs it to its end. Every breach of the rules panics.
    pub fn run(&mut self) -> Summary {
        let chaos = self.scenario.chaos_ns;
        self.run_until(chaos, |c| c.chaos_left == 0);
        self.end_chaos();
        let drain = self.scenario.drain_ns;
        self.must(drain, "replies progress while requests are blocked", |c| {
            c.replies_done()
        });
        let now = self.world.now;
        for node in self.nodes.iter_mut().flatten() {
            node.unblock(now);
        }
        self.must(
            drain,
            "everything completes once faults stop",
            Self::all_done,
        );
        self.must(drain, "frames come back", |c| c.frames_back());
        self.each(|node, world| node.check(world, true));
        self.check_credit(true);
        self.close_all();
        self.each(|node, world| node.check(world, false));
        Summary {
            accepted: self.world.ledger.accepted_count() as u64,
            delivered: self.world.ledger.delivered,
            refused: self.world.ledger.refused,
            kills: self.kills,
            quick: self.world.quick,
            foreseen: self.world.foreseen,
            net: self.world.net.counters(),
            ended_at: self.world.now,
            ..Summary::default()
        }
    }

    fn end_chaos(&mut self) {
        let now = self.world.now;
        self.world.trace.note(now, 99, || "faults end".into());
        while let Some(Reverse((_, _, event))) = self.events.pop() {
            // What was to begin again begins now.
            match event {
                Event::Start(node) => self.start(node),
                Event::Revive(node) => self.revive(node),
                _ => {}
            }
        }
        self.chaos_left = 0;
        self.world.net.heal();
        self.world.calm = true;
        self.each(|node, world| node.check(world, false));
    }

    /// With messages under way, some or all nodes close.
    fn close_all(&mut self) {
        let all: Vec<usize> = (0..self.scenario.nodes)
            .filter(|&n| self.nodes[n].is_some())
            .collect();
        let some = if self.scenario.close_early && !all.is_empty() {
            let n = self.rng.between(1, all.len() as u64) as usize;
            for &node in &all {
                for _ in 0..4 {
                    self.want(node);
                }
            }
            let soon = self.rng.below(200_000);
            let until = self.world.now + soon;
            while self.next_time().is_some_and(|t| t <= until) {
                self.step();
            }
            all[..n].to_vec()
        } else {
            all
        };
        for &n in &some {
            if let Some(node) = &mut self.nodes[n] {
                node.close(&mut self.world);
            }
        }
        let drain = self.scenario.drain_ns;
        self.must(drain, "everything completes after a close", Self::all_done);
        self.must(drain, "frames come back after a close", |c| c.frames_back());
    }

    fn each(&mut self, mut f: impl FnMut(&mut Node, &mut World)) {
        for node in self.nodes.iter_mut().flatten() {
            f(node, &mut self.world);
        }
    }

    /// Checks the credit of all pairs that know each other.
    fn check_credit(&mut self, whole: bool) {
        for (from, to) in (0..self.nodes.len()).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let lives = [from, to].map(|n| Life(self.lives[n]));
            let mut known =
                |a: usize, b: usize| self.nodes[a].as_mut()?.credit_with(&mut self.world, b);
            let (Some(there), Some(back)) = (known(from, to), known(to, from)) else {
                continue;
            };
            if [back.0.life, there.0.life] == lives {
                Ledger::credit(&there.0, &back.0, there.1, whole);
                Ledger::credit(&back.0, &there.0, back.1, whole);
            }
        }
    }

    fn replies_done(&mut self) -> bool {
        let reply = Some(Priority::Reply);
        self.world.ledger.outstanding(reply).next().is_none()
            && self.nodes.iter().flatten().all(|n| !n.wants_reply())
    }

    fn all_done(&mut self) -> bool {
        let mut idle = true;
        self.each(|node, world| idle = idle && node.idle(world));
        idle && self.world.ledger.outstanding(None).next().is_none()
    }

    fn frames_back(&mut self) -> bool {
        let mut back = true;
        self.each(|node, world| back = back && node.frames_back(world));
        back
    }

    fn must(&mut self, within: u64, what: &str, done: impl FnMut(&mut Self) -> bool) {
        if self.run_until(within, done) {
            return;
        }
        let ledger = &self.world.ledger;
        let replies = ledger.outstanding(Some(Priority::Reply)).take(4);
        let ids: Vec<_> = replies.chain(ledger.outstanding(None).take(4)).collect();
        let mut text = format!("not so at {}: {what}", self.world.now);
        for id in ids {
            text.push_str(&format!("\n  {}", self.world.ledger.describe(id)));
        }
        text.push_str(&self.report());
        panic!("{text}");
    }

    /// Every node's state in words.
    pub fn report(&mut self) -> String {
        let mut text = String::new();
        self.each(|node, world| text.push_str(&format!("\n  {}", node.report(world))));
        text
    }

    /// Steps until `done` (looked at now and then); false when that took
    /// longer than `within` ns or nothing happens any more.
    fn run_until(&mut self, within: u64, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.world.now.saturating_add(within);
        let mut steps = 0u64;
        loop {
            if steps.is_multiple_of(256) {
                self.check_credit(false);
            }
            if steps.is_multiple_of(16) && done(self) {
                return true;
            }
            match self.next_time() {
                Some(t) if t <= end => self.step(),
                _ => return done(self),
            }
            steps += 1;
            assert!(steps < 20_000_000, "too many steps: something spins");
        }
    }

    fn next_time(&self) -> Option<u64> {
        let events = self.events.peek().map(|e| e.0.0);
        let nodes = self
            .nodes
            .iter()
            .flatten()
            .map(Node::next_time)
            .filter(|&t| t != u64::MAX)
            .min();
        [events, nodes, self.world.net.next_time()]
            .into_iter()
            .flatten()
            .min()
    }

    fn step(&mut self) {
        let Some(time) = self.next_time() else { return };
        let now = time.max(self.world.now);
        self.world.now = now;
        self.world.net.advance(now);
        while let Some(&Reverse((t, _, event))) = self.events.peek() {
            if t > now {
                break;
            }
            self.events.pop();
            self.chaos_left -= 1;
            self.happen(event);
        }
        for n in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[n] else {
                self.clear_inboxes(n);
                continue;
            };
            node.notice(&self.world);
            if node.next_time() <= now {
                node.pass(&mut self.world);
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let now = self.world.now;
        match event {
            Event::Start(node) => self.start(node),
            Event::Want(node) => {
                if self.wants_left[node] > 0 {
                    self.wants_left[node] -= 1;
                    self.want(node);
                    let gap = self.rng.below(2 * self.scenario.gap_ns + 1);
                    // Bursts: a pause now and then, nothing in between.
                    let gap = if self.rng.one_in(4) { gap * 4 } else { gap / 4 };
                    self.at(now + gap, Event::Want(node));
                }
            }
            Event::Kill(node) => self.kill(node),
            Event::Revive(node) => self.revive(node),
            Event::Tell(node, dead, life) => {
                // A launcher speaks of one life; the others may know of the next.
                if self.lives[dead] == life
                    && let Some(node) = &mut self.nodes[node]
                {
                    node.told_dead(&mut self.world, dead);
                }
            }
            Event::Cut(networks, mask, ways, cut) => {
                self.world.trace.note(now, 99, || {
                    format!("cut {networks:#x} {mask:#x} {ways} {cut}")
                });
                let side = |n: usize| mask >> n & 1;
                for (network, a, b) in self.pairs() {
                    if networks >> network & 1 == 1 && side(a) == 0 && side(b) == 1 {
                        if ways & 1 != 0 {
                            self.cut(network, a, b, cut);
                        }
                        if ways & 2 != 0 {
                            self.cut(network, b, a, cut);
                        }
                    }
                }
            }
            Event::Outage(failed, cut) => {
                self.world
                    .trace
                    .note(now, 99, || format!("outage {failed} {cut}"));
                for (network, a, b) in self.pairs() {
                    if network == failed {
                        self.cut(network, a, b, cut);
                    }
                }
            }
            Event::Detour(node, off, lost) => {
                self.world
                    .trace
                    .note(now, node, || format!("through the kernel {off}"));
                self.world.net.steering_mut(node).off = off;
                if lost {
                    self.world.net.lose_fast(node);
                }
            }
            Event::Shrink => {
                let mtu = self.scenario.path_mtu;
                let n = self.scenario.nodes;
                for (network, a, b) in self.pairs() {
                    let (a, b) = (network * n + a, network * n + b);
                    self.world.net.set_mtu(a, b, mtu);
                }
            }
        }
    }

    /// Every network and every two nodes on it.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (networks, nodes) = (self.scenario.networks, self.scenario.nodes);
        (0..networks * nodes * nodes)
            .map(move |i| (i / nodes / nodes, i / nodes % nodes, i % nodes))
    }

    fn cut(&mut self, network: usize, from: usize, to: usize, cut: bool) {
        let n = self.scenario.nodes;
        let (from, to) = (network * n + from, network * n + to);
        self.world.net.set_cut(from, to, cut);
    }

    fn clear_inboxes(&mut self, node: usize) {
        for network in 0..self.scenario.networks {
            let place = network * self.scenario.nodes + node;
            self.world.net.clear_inbox(place);
        }
    }

    fn start(&mut self, n: usize) {
        let s = self.scenario.clone();
        let life = self.lives[n];
        let mut node = Node::new(&mut self.world, &s, n, life);
        let mut order: Vec<usize> = (0..s.nodes).filter(|&p| p != n).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, self.rng.index(i + 1));
        }
        for peer in order {
            node.add_peer(&mut self.world, &s, peer, self.lives[peer]);
        }
        self.world
            .trace
            .note(self.world.now, n, || format!("starts, life {life:#x}"));
        self.nodes[n] = Some(node);
    }

    fn kill(&mut self, n: usize) {
        let now = self.world.now;
        let Some(node) = self.nodes[n].take() else {
            return;
        };
        self.world.trace.note(now, n, || "killed".into());
        self.kills += 1;
        self.world.ledger.death(node.life(), now);
        self.world.lost_at[n] = Some(now);
        self.clear_inboxes(n);
        if self.scenario.told {
            for other in 0..self.scenario.nodes {
                let late = self.rng.scale(1, 2 * MS);
                self.at(now + late, Event::Tell(other, n, self.lives[n]));
            }
        }
        if !self.scenario.stay_dead {
            let silence = self.scenario.configs[n].silence_ns;
            let after = self.rng.scale(1_000, 2 * silence);
            self.at(now + after, Event::Revive(n));
        }
    }

    fn revive(&mut self, n: usize) {
        if self.nodes[n].is_none() {
            self.lives[n] = self.rng.word();
            self.start(n);
        }
    }

    fn want(&mut self, n: usize) {
        let s = &self.scenario;
        let r = &mut self.rng;
        let to = match s.pattern {
            Pattern::Incast if n != 0 => 0,
            Pattern::Ring => (n + 1) % s.nodes,
            _ => (n + 1 + r.index(s.nodes - 1)) % s.nodes,
        };
        let size = if r.ppm(s.long_ppm) {
            r.scale(1000, s.long_max)
        } else {
            match r.below(10) {
                0 => 0,
                1..=5 => r.below(64),
                6..=8 => r.below(1500),
                _ => r.below(6000),
            }
        };
        let long = r
            .one_in(40)
            .then(|| r.pick(&[Release::Copied, Release::Acknowledged]));
        let want = Want {
            to,
            priority: if r.one_in(4) {
                Priority::Reply
            } else {
                Priority::Request
            },
            flow: r.below(u64::from(s.configs[n].flows)) as u16,
            total: size,
            args: if r.one_in(3) { r.index(21) } else { 0 },
            long,
        };
        if let Some(node) = &mut self.nodes[n] {
            node.want(self.world.now, want);
        }
    }
}
