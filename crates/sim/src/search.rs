//! Every order of events of a small case: two endpoints, a few messages, a
//! window of two packets, some drops and repeats, a restart. States that were
//! seen before are not looked at again.
//!
//! Packets take no time, so that orders which lead to the same state are
//! recognised; clocks move only when no packet is under way. What is checked
//! at each step: tables are sound, each message is delivered at most once and
//! in order. Where nothing is left to happen: everything has been delivered
//! (or an endpoint restarted), nothing waits, every frame is free.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use portolan_proto::congestion::Mode;
use portolan_proto::{
    Config, Endpoint, Event, Identity, Message, PeerEvent, PeerId, Rx, SourceId, Sources, Spare,
    Verdict,
};
use portolan_seal::Checksum;
use portolan_wire::{EndpointId, Life, Priority};

use crate::memory::EndpointMemory;
use crate::node::address;

/// Bytes of a message: two do not fit one packet.
const MESSAGE_BYTES: usize = 700;
/// No run is longer, or something goes round in circles.
const STEPS_MAX: usize = 2000;

/// What the network and the processes may do in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    /// Messages from the first endpoint to the second.
    pub messages: u8,
    /// Packets that may be dropped.
    pub drops: u8,
    /// Packets that may be delivered and stay on the wire.
    pub repeats: u8,
    /// Restarts of either endpoint; a new life sends one message.
    pub restarts: u8,
    /// Packets that may come through the kernel.
    pub detours: u8,
}

impl Case {
    /// From small to large.
    pub const ALL: [Self; 6] = [
        Self::of(2, 1, 1, 0),
        Self::of(2, 0, 0, 1),
        Self::of(3, 2, 0, 0),
        Self::of(3, 2, 2, 0),
        Self::of(3, 2, 2, 1),
        // So many in a row that peers hear of it.
        Self {
            detours: 6,
            ..Self::of(3, 1, 0, 0)
        },
    ];

    const fn of(messages: u8, drops: u8, repeats: u8, restarts: u8) -> Self {
        Self {
            messages,
            drops,
            repeats,
            restarts,
            detours: 0,
        }
    }

    /// Searches until everything or `states_max` states were seen.
    ///
    /// # Errors
    /// The way to a state in which a rule is broken, in words.
    pub fn search(self, states_max: u64) -> Result<Seen, String> {
        let mut seen = Seen::default();
        let mut known = HashSet::new();
        let first = State::new(self);
        known.insert(first.digest());
        let mut path = vec![(first.steps(), first)];
        let mut taken: Vec<Step> = Vec::new();
        seen.states = 1;
        while let Some((steps, state)) = path.last_mut() {
            let Some(step) = steps.pop() else {
                path.pop();
                taken.pop();
                continue;
            };
            taken.push(step);
            let mut next = state.clone();
            let result = catch_unwind(AssertUnwindSafe(|| {
                next.take(step);
                let steps = next.steps();
                if steps.is_empty() {
                    next.check_end();
                }
                steps
            }));
            let steps = match result {
                Ok(steps) if taken.len() < STEPS_MAX => steps,
                Ok(_) => return Err(way(&taken, "it never ends")),
                Err(panic) => {
                    let text = panic.downcast_ref::<String>().cloned();
                    let text = text.or(panic.downcast_ref::<&str>().map(ToString::to_string));
                    return Err(way(&taken, &text.unwrap_or_default()));
                }
            };
            seen.steps += 1;
            seen.mis_steered += u64::from(next.nodes.iter().any(|node| node.app.mis_steered));
            seen.ends += u64::from(steps.is_empty());
            if !known.insert(next.digest()) {
                taken.pop();
                continue;
            }
            seen.states += 1;
            seen.longest = seen.longest.max(taken.len());
            if seen.states >= states_max {
                return Ok(seen);
            }
            path.push((steps, next));
        }
        seen.all = true;
        Ok(seen)
    }
}

fn way(taken: &[Step], what: &str) -> String {
    let steps: Vec<_> = taken.iter().map(|s| format!("{s:?}")).collect();
    format!("{what}\n  after {}", steps.join(", "))
}

/// What a search went through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// States, each counted once.
    pub states: u64,
    /// Steps from one to another.
    pub steps: u64,
    /// Steps to a state in which nothing is left to happen.
    pub ends: u64,
    /// Steps of the longest way.
    pub longest: usize,
    /// Steps after which an endpoint had heard of detours.
    pub mis_steered: u64,
    /// Nothing was left out.
    pub all: bool,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = if self.all { "all" } else { "not all" };
        write!(
            f,
            "{} states ({all}), {} steps, {} ends, longest way {}",
            self.states, self.steps, self.ends, self.longest
        )
    }
}

/// One thing that may happen next; packets by their place on the wire.
#[derive(Clone, Copy, Debug)]
enum Step {
    Deliver(usize),
    /// Deliver, by the slower way.
    Detour(usize),
    Drop(usize),
    /// Deliver, and leave a copy on the wire.
    Repeat(usize),
    /// The next deadline of either endpoint comes.
    Timeout,
    Restart(usize),
}

/// What an application was told.
#[derive(Clone, Debug, Default, Hash)]
struct App {
    /// First bytes of the messages delivered in this life.
    got: Vec<u8>,
    down: bool,
    /// The peer said that packets come to it by a detour.
    mis_steered: bool,
}

impl Sources for App {
    fn read(&self, _: SourceId, _: u64, _: &mut [u8]) {}
}

impl App {
    fn take(&mut self, e: &mut Endpoint<'_, Checksum>, mut rx: Rx<'_>) {
        while let Some(d) = rx.next(e) {
            assert!(
                d.last && d.payload.len() == MESSAGE_BYTES,
                "a whole message"
            );
            self.got.push(d.payload[0]);
            rx.answer(e, Verdict::Take(0));
        }
    }

    fn hear(&mut self, e: &mut Endpoint<'_, Checksum>) {
        while let Some(event) = e.poll_event() {
            match event {
                Event::Peer(_, event) => self.down |= matches!(event, PeerEvent::Dead(_)),
                other => panic!("{other:?} of short messages that are taken"),
            }
        }
    }
}

#[derive(Clone)]
struct Node {
    memory: EndpointMemory,
    app: App,
}

#[derive(Clone)]
struct State {
    now: u64,
    left: Case,
    nodes: [Node; 2],
    /// To whom, and what.
    wire: Vec<(usize, Rc<[u8]>)>,
    /// Messages delivered in any life.
    delivered: Vec<u8>,
    lives: [u64; 2],
    /// Number of the next message.
    next: u8,
}

fn config() -> Config {
    Config {
        peers: 1,
        active: 1,
        frames: 32,
        frame_bytes: 1472,
        longs: 2,
        flows: 1,
        packet_max: 1232,
        receive_packets: 2,
        hold_frames: 2,
        queue_frames: 8,
        silence_ns: 20_000_000,
        connect_ns: 20_000_000,
        idle_ns: u64::MAX,
        // Every number near its wrap.
        first_packet: (1 << 32) - 3,
        first_message: u32::MAX - 1,
        ..Config::default()
    }
}

impl Node {
    fn new(who: usize, lives: [u64; 2]) -> Self {
        let ids = [EndpointId(1), EndpointId(2)];
        let me = Identity {
            id: ids[who],
            life: Life(lives[who]),
        };
        let mut node = Self {
            memory: EndpointMemory::new(&config(), me, &[5; 32], lives[who]),
            app: App::default(),
        };
        let other = 1 - who;
        let (id, life) = (ids[other], Life(lives[other]));
        node.with(|e, _| e.add_peer(id, life, address(other), Mode::Lan))
            .expect("room for one peer");
        node
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Endpoint<'_, Checksum>, &mut App) -> R) -> R {
        let mut seal = Checksum;
        let mut endpoint = Endpoint::new(self.memory.tables(), &mut seal);
        let result = f(&mut endpoint, &mut self.app);
        self.app.hear(&mut endpoint);
        result
    }
}

impl State {
    fn new(case: Case) -> Self {
        let lives = [11, 22];
        let mut state = Self {
            now: 1_000_000,
            left: case,
            nodes: [Node::new(0, lives), Node::new(1, lives)],
            wire: Vec::new(),
            delivered: Vec::new(),
            lives,
            next: 0,
        };
        for _ in 0..case.messages {
            state.send(0);
        }
        state.flush(0);
        state
    }

    fn send(&mut self, from: usize) {
        let m = Message {
            priority: Priority::Request,
            flow: 0,
            port: 1,
            args: &[],
            payload: &[self.next; MESSAGE_BYTES],
        };
        self.next += 1;
        let now = self.now;
        self.nodes[from]
            .with(|e, _| e.send(now, PeerId(0), &m))
            .expect("room for few messages");
    }

    /// Puts what a node has to send on the wire.
    fn flush(&mut self, who: usize) {
        let (now, wire) = (self.now, &mut self.wire);
        self.nodes[who].with(|e, app| {
            while let Some(t) = e.poll_transmit(now, true, app) {
                wire.push((1 - who, Rc::from(e.frame(&t))));
                e.transmitted(t.frame);
            }
            e.check();
        });
        // Their order on the wire means nothing.
        self.wire.sort();
    }

    /// What may happen next, the last of which is tried first: the likeliest, but
    /// for detours, that matter where there are several in a row.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.left.restarts > 0 {
            steps.extend([Step::Restart(0), Step::Restart(1)]);
        }
        if self.wire.is_empty() {
            if self.deadline().is_some() {
                steps.push(Step::Timeout);
            } else {
                // A restart may come, or nothing.
                steps.clear();
            }
        }
        for i in 0..self.wire.len() {
            if i > 0 && self.wire[i] == self.wire[i - 1] {
                continue;
            }
            if self.left.repeats > 0 {
                steps.push(Step::Repeat(i));
            }
            if self.left.drops > 0 {
                steps.push(Step::Drop(i));
            }
            steps.push(Step::Deliver(i));
            if self.left.detours > 0 {
                steps.push(Step::Detour(i));
            }
        }
        steps
    }

    fn deadline(&self) -> Option<u64> {
        let mut nodes = self.nodes.clone();
        nodes
            .iter_mut()
            .filter_map(|n| n.with(|e, _| e.next_timeout()))
            .min()
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Drop(i) => {
                self.left.drops -= 1;
                self.wire.remove(i);
            }
            Step::Deliver(i) => {
                let (to, packet) = self.wire.remove(i);
                self.deliver(to, &packet, false);
            }
            Step::Detour(i) => {
                self.left.detours -= 1;
                let (to, packet) = self.wire.remove(i);
                self.deliver(to, &packet, true);
            }
            Step::Repeat(i) => {
                self.left.repeats -= 1;
                let (to, packet) = self.wire[i].clone();
                self.deliver(to, &packet, false);
            }
            Step::Timeout => {
                let at = self.deadline().expect("a deadline was seen");
                self.now = self.now.max(at);
                for who in 0..2 {
                    let now = self.now;
                    self.nodes[who].with(|e, _| e.handle_timeouts(now, |_| false));
                    self.flush(who);
                }
            }
            Step::Restart(who) => {
                self.left.restarts -= 1;
                // The old life may have delivered what nobody acknowledged.
                self.lives[who] += 100;
                let lives = self.lives;
                self.nodes[who] = Node::new(who, lives);
                self.send(who);
                self.flush(who);
            }
        }
    }

    fn deliver(&mut self, to: usize, packet: &[u8], detour: bool) {
        let (now, from) = (self.now, address(1 - to));
        let before = self.nodes[to].app.got.len();
        let mut packet = packet.to_vec();
        self.nodes[to].with(|e, app| {
            let mut spare = Spare::default();
            let Some(rx) = e.handle_packet(now, from, false, &mut packet, &mut spare) else {
                return;
            };
            if let Some(heard) = rx.heard() {
                e.note_detour(heard.peer, detour);
                app.mis_steered |= heard.detour;
            }
            app.take(e, rx);
        });
        for &new in &self.nodes[to].app.got[before..] {
            assert!(!self.delivered.contains(&new), "{new} is delivered twice");
            self.delivered.push(new);
        }
        let got = &self.nodes[to].app.got;
        assert!(got.is_sorted(), "delivered out of order: {got:?}");
        self.flush(to);
    }

    /// Nothing will happen any more: was everything done?
    fn check_end(&mut self) {
        for who in 0..2 {
            let (idle, free) = self.nodes[who].with(|e, _| (e.idle(), e.free_frames()));
            assert!(idle, "endpoint {who} waits for ever");
            assert_eq!(free, config().frames, "endpoint {who} keeps frames");
            let apart = self.lives == [11, 22];
            let down = self.nodes[who].app.down;
            assert!(!(apart && down), "endpoint {who} gave up a living peer");
        }
        let mis_steered = self.nodes.iter().any(|node| node.app.mis_steered);
        assert!(
            !mis_steered || self.left.detours <= 2,
            "four detours in a row are told of"
        );
        if self.lives == [11, 22] {
            self.delivered.sort_unstable();
            let all: Vec<_> = (0..self.next).collect();
            assert_eq!(self.delivered, all, "something is missing");
        } else {
            // What the new life sent is for a peer that lives.
            let last = self.next - 1;
            assert!(self.delivered.contains(&last), "the last is missing");
        }
    }

    fn digest(&self) -> u128 {
        let mut halves = [DefaultHasher::new(), DefaultHasher::new()];
        halves[1].write_u8(1);
        let mut nodes = self.nodes.clone();
        for state in &mut halves {
            self.now.hash(state);
            self.left.hash(state);
            self.wire.hash(state);
            self.delivered.hash(state);
            self.lives.hash(state);
            for node in &mut nodes {
                node.app.hash(state);
                node.with(|e, _| e.hash_state(state));
            }
        }
        u128::from(halves[0].finish()) << 64 | u128::from(halves[1].finish())
    }
}
