//! Endpoints outside of a job, under the simulator: they add and remove each other, introduce
//! themselves, close, are killed and come again under the same address, while the network
//! loses, repeats and cuts. From seed `MEETING + NEAR` on all are on one host and share memory. The
//! engine is the one that is shipped.

mod near;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_engine::{
    Binding, Core, Credentials, Death, Engine, Event, Finding, Gather, Lane, Lanes, Matched,
    Misuse, NetLane, NewPeer, PortId, ProtoTables, Scatter, SendError, SendOptions, Settings,
    SpaceId,
};
use portolan_exchange::{Memory, Notify, OpId, Push, Selector, SendOptions as TaggedOptions};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, Identity};
use portolan_seal::{SuiteId, identity, public_key};
use portolan_wire::{EndpointId, Life};

use crate::cluster::Summary;
use crate::link::{SharedNetwork, SimLinks};
use crate::net::{Faults, Network};
use crate::node::address;
use crate::rng::{Rng, mix, secrets_of};
use crate::scenario::{NEAR, faults};
use crate::stage::SimClock;
use crate::trace::Trace;

const MS: u64 = 1_000_000;
const PORT: u16 = 5;
const TAG: u64 = 9;
const SPACE: SpaceId = SpaceId::PROGRAM;
/// Longest message, bytes.
const LONGEST: u64 = 30_000;
/// What a message begins with: its sender's and its receiver's life, and its number.
const HEAD: usize = 24;
/// After which a peer is silent, ns.
const SILENCE_NS: u64 = 500 * MS;

/// After which one that was never there is given up, ns.
const CONNECT_NS: u64 = 3 * SILENCE_NS;
/// One in so many passes somebody lies about closed ports.
const LIES: u64 = 8;
/// How often a node looks into its memory, ns.
const NEAR_LOOK_NS: u64 = 300_000;

/// A life of a node, by its number in the run.
type LifeId = usize;

/// What a life has been told and given.
#[derive(Default)]
struct Notes {
    /// Messages that came: number of the sender, sender's life, number of the message.
    came: Vec<(u32, LifeId, u64)>,
    /// Peers that have died, or come.
    told: Vec<Event>,
    wrong: Option<String>,
}

type SharedNotes = Arc<Mutex<Notes>>;

fn open(notes: &SharedNotes) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A message that was accepted.
struct Sent {
    from: LifeId,
    to: LifeId,
    number: u64,
    /// Which acquaintance of the sender's it was a part of.
    under: u64,
}

/// What a life knows of a number.
#[derive(Clone, Copy)]
struct Acquaintance {
    life: Option<LifeId>,
    added: bool,
    id: u64,
}

struct Node {
    life: LifeId,
    key: [u8; 32],
    engine: Engine<SimLinks, SimClock>,
    notes: SharedNotes,
    /// Where memory is shared: its own.
    near: Option<near::Own>,
    /// Who writes to it, by index.
    seats: BTreeMap<u16, LifeId>,
    peers: BTreeMap<u32, Acquaintance>,
    receives: Vec<OpId>,
    sends: Vec<OpId>,
    next_pass: u64,
}

/// A run under way.
pub struct Meeting {
    seed: u64,
    config: Config,
    now: u64,
    clock: SimClock,
    net: SharedNetwork,
    rng: Rng,
    trace: Trace,
    nodes: Vec<Option<Node>>,
    /// Those that have ended: others may still reach into their memory.
    killed: Vec<Node>,
    /// All are on one host.
    near: bool,
    calls: Vec<near::Call>,
    ends: Vec<near::End>,
    /// Node and public key of each life.
    lives: Vec<(usize, [u8; 32])>,
    /// Acquaintances that have not ended.
    lasting: BTreeSet<u64>,
    acquaintances: u64,
    sent: Vec<Sent>,
    got: BTreeSet<(LifeId, LifeId, u64)>,
    /// Who has removed whom, as far as it knew.
    removals: BTreeSet<(LifeId, Option<LifeId>)>,
    /// Who is said to have removed whom.
    told_removed: Vec<(LifeId, LifeId)>,
    kills: u64,
}

impl Meeting {
    /// Sets one up.
    #[must_use]
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut rng = Rng::new(mix(seed ^ 11));
        let nodes = rng.between(2, 5) as usize;
        let calm = rng.one_in(3);
        let faults = faults(&mut rng, true, calm);
        let config = Config {
            peers: 6,
            active: 3,
            queue_frames: 16,
            frames: 128,
            longs: 8,
            silence_ns: SILENCE_NS,
            connect_ns: CONNECT_NS,
            idle_ns: 50 * MS,
            introduces: true,
            strangers: true,
            ..Config::default()
        };
        Self::with(seed, rng, nodes, faults, config, trace)
    }

    fn with(
        seed: u64,
        rng: Rng,
        nodes: usize,
        faults: Faults,
        config: Config,
        trace: bool,
    ) -> Self {
        let mut net = Network::new(mix(seed ^ 12), nodes);
        net.set_faults(faults);
        let mut meeting = Self {
            seed,
            config,
            now: 0,
            clock: SimClock::default(),
            net: SharedNetwork::new(net),
            rng,
            trace: Trace { on: trace },
            nodes: (0..nodes).map(|_| None).collect(),
            killed: Vec::new(),
            near: seed & NEAR != 0,
            calls: Vec::new(),
            ends: Vec::new(),
            lives: Vec::new(),
            lasting: BTreeSet::new(),
            acquaintances: 0,
            sent: Vec::new(),
            got: BTreeSet::new(),
            removals: BTreeSet::new(),
            told_removed: Vec::new(),
            kills: 0,
        };
        for node in 0..nodes {
            meeting.start(node);
        }
        meeting
    }

    fn note(&self, node: usize, what: impl FnOnce() -> String) {
        self.trace.note(self.now, node, what);
    }

    /// A new life at a node's address.
    fn start(&mut self, at: usize) {
        let life = self.lives.len();
        let private: [u8; 32] =
            std::array::from_fn(|i| mix(self.seed ^ mix((life * 32 + i) as u64)) as u8);
        let public = public_key(&private);
        let (id, number) = identity(&public);
        self.lives.push((at, public));
        let config = self.config;
        let me = Identity {
            id: EndpointId(id),
            life: Life(number),
        };
        let secrets = secrets_of(self.seed, life);
        let credentials = Credentials {
            me,
            suite: SuiteId::Aegis,
            secret: &[0; 32],
            agreement: Some((&private, None)),
            random: &secrets.protocol,
        };
        let tables = ProtoTables::new(&config, &credentials).expect("there is memory");
        let links = SimLinks {
            net: self.net.clone(),
            rank: at,
            ranks: self.nodes.len(),
            networks: 1,
            full_ppm: 0,
            rng: self.rng.fork(mix(life as u64)),
            trace: self.trace,
        };
        let mut lanes = Lanes::with_capacity(1, "sim");
        lanes.set_standalone();
        lanes.push(Lane::Myself, "this process");
        let settings = Settings {
            rank: 0,
            size: 1,
            standalone: true,
            secrets,
            unexpected_bytes: 256 << 10,
            unexpected_share: 64 << 10,
            queue_bytes: 256 << 10,
            queue_share: 64 << 10,
            copy_bytes: 64 << 10,
            reply_bytes: 16 << 10,
            exchange: portolan_exchange::Config::default(),
            push_shm: Push {
                whole: 16_000,
                ..Push::default()
            },
            push_net: Push {
                whole: 8_000,
                ..Push::default()
            },
            regions_cached: 0,
            tell: |_| (),
        };
        let matched = Matched::new(&settings, &lanes);
        let core = Core::new(&settings, lanes);
        let lane = NetLane::new(links, tables, Vec::new(), config.silence_ns, self.now);
        let copies = mix(self.seed ^ mix(life as u64)) & 1 == 0;
        let copy_min = if copies { 4_096 } else { usize::MAX };
        let (near, shm) = self.near.then(|| near::memory(copy_min)).unzip();
        let mut engine = Engine::new(core, matched, Some(lane), shm, self.clock.clone());
        let notes = SharedNotes::default();
        let heard = Arc::clone(&notes);
        let handler = Binding::to(move |_, m| {
            let came = read(life, m.from, m.payload);
            note_down(&heard, came);
        });
        let port = PortId {
            space: SPACE,
            number: PORT,
        };
        engine
            .core
            .bind(port, handler)
            .expect("it is the program's");
        let told = Arc::clone(&notes);
        engine.core.own.error_handler = Some(Box::new(move |_, event| {
            open(&told).told.push(*event);
        }));
        self.note(at, || format!("life {life} begins"));
        self.nodes[at] = Some(Node {
            life,
            key: public,
            engine,
            notes,
            near,
            seats: BTreeMap::new(),
            peers: BTreeMap::new(),
            receives: Vec::new(),
            sends: Vec::new(),
            next_pass: self.now,
        });
    }

    /// Runs it to its end. Every breach of the rules panics.
    pub fn run(&mut self) -> Summary {
        let acts = 40 * self.nodes.len() as u64;
        for _ in 0..acts {
            self.act();
            let pause = self.rng.scale(1_000, 60 * MS);
            self.run_for(pause);
        }
        self.net.lock().heal();
        // Whoever is gone is found out.
        self.run_for(4 * SILENCE_NS);
        self.meet_all();
        self.run_for(2 * SILENCE_NS);
        self.check();
        let delivered = self.got.len() as u64;
        Summary {
            accepted: self.sent.len() as u64,
            delivered,
            kills: self.kills,
            net: self.net.lock().counters(),
            ended_at: self.now,
            ..Summary::default()
        }
    }

    fn act(&mut self) {
        let at = self.rng.index(self.nodes.len());
        if self.nodes[at].is_none() {
            return self.start(at);
        }
        match self.rng.below(40) {
            0 => self.end(at, true),
            1 => self.end(at, false),
            2 => {
                let other = self.rng.index(self.nodes.len());
                let cut = self.rng.one_in(2);
                self.net.lock().set_cut(at, other, cut);
            }
            3..=5 => self.remove(at),
            6..=15 => {
                let life = self.pick_life(at);
                self.add(at, life);
            }
            _ => {
                let known: Vec<u32> = self.node(at).peers.keys().copied().collect();
                if !known.is_empty() {
                    let peer = self.rng.pick(&known);
                    self.send(at, peer);
                    if self.near && self.rng.one_in(12) {
                        // While the other reads it.
                        self.remove_one(at, peer);
                    }
                }
            }
        }
    }

    fn node(&mut self, at: usize) -> &mut Node {
        self.nodes[at].as_mut().expect("it lives")
    }

    /// A life to add: mostly one that there is.
    fn pick_life(&mut self, at: usize) -> LifeId {
        let alive: Vec<LifeId> = self.nodes.iter().flatten().map(|it| it.life).collect();
        let mut life = if self.rng.one_in(8) {
            self.rng.index(self.lives.len())
        } else {
            self.rng.pick(&alive)
        };
        if life == self.node(at).life {
            life = (life + 1) % self.lives.len();
        }
        life
    }

    /// Ends a life, in good order or not.
    fn end(&mut self, at: usize, kill: bool) {
        let Some(mut node) = self.nodes[at].take() else {
            return;
        };
        self.kills += u64::from(kill);
        self.note(at, || format!("life {} ends, killed: {kill}", node.life));
        for it in node.peers.values() {
            self.lasting.remove(&it.id);
        }
        if kill {
            // Whom it has just removed it cannot say any more.
            self.removals.insert((node.life, None));
        } else {
            // A stranger that had to go since the last pass is told so. The program here has
            // not heard of it, and will not.
            for (rank, it) in &node.peers {
                if node.engine.core.lanes.dead(*rank).is_some_and(is_removal) {
                    self.removals.insert((node.life, it.life));
                }
            }
            node.engine.core.begin_close();
            node.engine.close_lanes();
            node.engine.end();
        }
        self.net.lock().clear_inbox(at);
        let life = node.life;
        self.killed.push(node);
        self.end_near(life);
    }

    fn add(&mut self, at: usize, life: LifeId) {
        let (place, key) = self.lives[life];
        let (id, number) = identity(&key);
        let node = self.nodes[at].as_mut().expect("it lives");
        if key == node.key {
            return;
        }
        let new = NewPeer {
            id: EndpointId(id),
            life: Life(number),
            public_key: Some(key),
            to: address(place),
            mode: Mode::Lan,
        };
        let added = node.engine.add_peer(&new, self.near);
        // The table is small: others may hold it.
        let Some(peer) = added else { return };
        let (id, lasting) = (self.acquaintances, &mut self.lasting);
        let known = node.peers.entry(peer).or_insert_with(|| {
            lasting.insert(id);
            let life = Some(life);
            Acquaintance {
                life,
                added: true,
                id,
            }
        });
        known.added = true;
        assert!(
            known.life.is_none_or(|it| it == life),
            "{peer} is life {:?}, not {life}",
            known.life
        );
        if !lasting.contains(&known.id) {
            // It was dead, and begins anew.
            known.id = id;
            lasting.insert(id);
        }
        known.life = Some(life);
        self.acquaintances += 1;
        node.next_pass = self.now;
        self.note(at, || format!("adds life {life} as {peer}"));
    }

    fn remove(&mut self, at: usize) {
        let known: Vec<u32> = self.node(at).peers.keys().copied().collect();
        if known.is_empty() {
            return;
        }
        let peer = self.rng.pick(&known);
        self.remove_one(at, peer);
    }

    fn remove_one(&mut self, at: usize, peer: u32) {
        self.stop_calling(at, peer);
        let node = self.nodes[at].as_mut().expect("it lives");
        match node.engine.remove_peer(peer) {
            Ok(()) => {}
            // A stranger that has gone.
            Err(Misuse::BadRank) if !node.peers[&peer].added => {}
            Err(e) => panic!("{peer}: {e}"),
        }
        let was = node.peers.remove(&peer).expect("it was known");
        self.lasting.remove(&was.id);
        self.removals.insert((node.life, was.life));
        node.next_pass = self.now;
        self.note(at, || format!("removes {peer}, life {:?}", was.life));
    }

    fn send(&mut self, at: usize, peer: u32) {
        let length = if self.near && self.rng.one_in(2) {
            self.rng.between(LONGEST / 4, LONGEST)
        } else if self.rng.one_in(3) {
            self.rng.scale(HEAD as u64, LONGEST)
        } else {
            HEAD as u64
        };
        let tagged = self.rng.one_in(2);
        self.say(at, peer, length, tagged);
    }

    /// Sends one message, if there is credit.
    fn say(&mut self, at: usize, peer: u32, length: u64, tagged: bool) {
        let number = self.sent.len() as u64;
        let node = self.nodes[at].as_mut().expect("it lives");
        let Some(&Acquaintance {
            life: Some(to), id, ..
        }) = node.peers.get(&peer)
        else {
            return;
        };
        let mut bytes = vec![number as u8; length as usize];
        for (part, word) in bytes
            .chunks_exact_mut(8)
            .zip([node.life as u64, to as u64, number])
        {
            part.copy_from_slice(&word.to_le_bytes());
        }
        let sent = if tagged {
            let options = TaggedOptions::default();
            let posted = (node.engine).post_tagged(SPACE, peer, TAG, &options, Gather::from(bytes));
            posted.map(|op| node.sends.push(op)).map_err(|(e, _)| e)
        } else if length < 1_000 {
            let plain = SendOptions::default();
            node.engine.try_send(peer, PORT, &plain, &bytes).map(drop)
        } else {
            let port = PortId {
                space: SPACE,
                number: PORT,
            };
            let release = portolan_proto::Release::Acknowledged;
            let posted = node.engine.post_message(
                (peer, port),
                &SendOptions::default(),
                Gather::from(bytes),
                release,
            );
            posted
                .map(|(op, _)| node.sends.push(op))
                .map_err(|(e, _)| e)
        };
        node.next_pass = self.now;
        match sent {
            Ok(()) => {
                let from = node.life;
                self.note(at, || format!("sends {number} to {peer}, life {to}"));
                self.sent.push(Sent {
                    from,
                    to,
                    number,
                    under: id,
                });
            }
            Err(SendError::NoCredit) => {}
            Err(SendError::PeerDead { .. }) => {
                // The event may be yet to come.
                self.lasting.remove(&id);
            }
            Err(e) => panic!("{e}"),
        }
    }

    fn run_for(&mut self, time: u64) {
        let end = self.now + time;
        loop {
            let passes = self.nodes.iter().flatten().map(|it| it.next_pass).min();
            let near = self.go_on_near();
            let next = [passes, near, self.net.lock().next_time()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                self.clock.set(end);
                return;
            };
            self.now = next.max(self.now);
            self.clock.set(self.now);
            self.net.lock().advance(self.now);
            for at in 0..self.nodes.len() {
                self.pass(at);
            }
        }
    }

    fn pass(&mut self, at: usize) {
        let now = self.now;
        let Some(node) = &mut self.nodes[at] else {
            self.net.lock().refuse_inbox(at);
            return;
        };
        // Somebody on the way says that packets find nobody that do.
        if mix(self.seed ^ now).is_multiple_of(LIES) {
            self.net.lock().quote_inbox(at);
        }
        let lane = node.engine.io.net.as_ref().expect("there is one");
        let shm = node.engine.io.shm.as_ref();
        let is_quiet = !lane.link.has_packets() && shm.is_none_or(|shm| shm.link.is_quiet());
        if node.next_pass > now && is_quiet {
            return;
        }
        while node.receives.len() < 4 {
            let into = Scatter::from(vec![0; LONGEST as usize]);
            let any = Selector::any(TAG);
            let posted = node
                .engine
                .post_receive(SPACE, &any, into, Notify::default());
            node.receives.push(posted.expect("anybody may send"));
        }
        let mut moved = node.engine.pass();
        let mut wanted = Vec::new();
        while let Some(finding) = node.engine.next_finding() {
            moved += 1;
            match finding {
                Finding::Come(peer) => node.engine.accept_stranger(peer, |_| Mode::Lan),
                Finding::Departed(peer) => node.engine.has_departed(peer),
                Finding::Due => node.engine.evict_peers(),
                Finding::Wanted(peer) => wanted.push(peer),
                Finding::Suspect(peer, why) => node.engine.handle_peer_death(peer, why),
                other => panic!("{other:?} outside of a job"),
            }
        }
        moved += take_ended(node);
        node.engine.flush();
        node.next_pass = match node.engine.next_timeout() {
            _ if moved > 0 => now + 500,
            Some(due) => due.max(now + 300),
            None => u64::MAX,
        };
        if self.near {
            // Nobody's bell is heard here.
            node.next_pass = node.next_pass.min(now + NEAR_LOOK_NS);
        }
        for peer in wanted {
            self.call(at, peer);
        }
        if self.look(at) > 0 {
            self.node(at).next_pass = now + 500;
        }
        self.take_in(at);
    }

    /// Reads the notes of a node.
    fn take_in(&mut self, at: usize) {
        let now = self.now;
        let node = self.nodes[at].as_mut().expect("it lives");
        let Notes { came, told, wrong } = std::mem::take(&mut *open(&node.notes));
        if let Some(wrong) = wrong {
            panic!("{wrong}");
        }
        for event in told {
            self.trace.note(now, at, || format!("{event:?}"));
            match event {
                Event::PeerDead { rank, why, .. } => {
                    let Some(it) = node.peers.get_mut(&rank) else {
                        continue;
                    };
                    self.lasting.remove(&it.id);
                    assert!(why != Death::Restarted, "another key is another peer");
                    if is_removal(why) {
                        self.removals.insert((node.life, it.life));
                    }
                    if let (Death::Removed, Some(life)) = (why, it.life) {
                        self.told_removed.push((life, node.life));
                    }
                    if !it.added {
                        node.peers.remove(&rank);
                    }
                }
                Event::PeerCome { rank } => {
                    let known = node.peers.get(&rank).copied();
                    assert!(known.is_none_or(|it| it.added), "{rank} is somebody's");
                    let (life, added) = known.map_or((None, false), |it| (it.life, true));
                    let id = self.acquaintances;
                    self.acquaintances += 1;
                    self.lasting.insert(id);
                    node.peers.insert(rank, Acquaintance { life, added, id });
                }
                Event::Refused { .. } => panic!("nothing is refused: {event:?}"),
                _ => {}
            }
        }
        for (peer, from, number) in came {
            self.trace
                .note(now, at, || format!("gets {number} of {peer}, life {from}"));
            let to = node.life;
            assert!(self.got.insert((from, to, number)), "{number} comes twice");
            // Of one that was removed in the same pass the handler had run.
            let Some(known) = node.peers.get_mut(&peer) else {
                continue;
            };
            assert_eq!(*known.life.get_or_insert(from), from, "who {peer} is");
        }
    }

    /// Everybody adds everybody, and something that is said arrives.
    fn meet_all(&mut self) {
        let mut left = self.pairs();
        for _ in 0..3 {
            let before = self.sent.len();
            for &(from, to) in &left {
                let life = self.node(to).life;
                self.add(from, life);
                let peers = &self.node(from).peers;
                let known = peers
                    .iter()
                    .find(|(_, it)| it.life == Some(life) && it.added);
                match known.map(|(peer, _)| *peer) {
                    Some(peer) => self.send(from, peer),
                    // All places are taken, by some who are gone.
                    None => self.remove_gone(from),
                }
            }
            self.run_for(2 * SILENCE_NS);
            let came = |it: &&Sent| self.got.contains(&(it.from, it.to, it.number));
            let new: Vec<_> = self.sent[before..].iter().filter(came).collect();
            let life = |at: usize| self.nodes[at].as_ref().map(|node| node.life);
            left.retain(|&(from, to)| {
                let (from, to) = (life(from), life(to));
                !new.iter()
                    .any(|it| (Some(it.from), Some(it.to)) == (from, to))
            });
            if left.is_empty() {
                return;
            }
            self.note(0, || format!("{left:?} have not met"));
        }
        panic!("not all meet once nothing is lost any more: {left:?}");
    }

    /// Removes those who live no more.
    fn remove_gone(&mut self, at: usize) {
        let alive: Vec<LifeId> = self.nodes.iter().flatten().map(|it| it.life).collect();
        let peers = self.node(at).peers.clone();
        let gone = |it: &Acquaintance| it.life.is_none_or(|life| !alive.contains(&life));
        for (peer, _) in peers.iter().filter(|(_, it)| gone(it)) {
            self.remove_one(at, *peer);
        }
    }

    fn pairs(&self) -> Vec<(usize, usize)> {
        let live: Vec<usize> = (0..self.nodes.len())
            .filter(|at| self.nodes[*at].is_some())
            .collect();
        let of = |from: usize| live.iter().map(move |to| (from, *to));
        live.iter()
            .flat_map(|from| of(*from))
            .filter(|(a, b)| a != b)
            .collect()
    }

    /// What was said while an acquaintance lasted has arrived.
    fn check(&mut self) {
        for it in &self.sent {
            let came = self.got.contains(&(it.from, it.to, it.number));
            let alive = |node: &Node| node.life == it.to;
            let gone = !self.nodes.iter().flatten().any(alive);
            assert!(
                came || gone || !self.lasting.contains(&it.under),
                "{} is lost",
                it.number
            );
        }
        for (by, whom) in &self.told_removed {
            let has = |whom| self.removals.contains(&(*by, whom));
            assert!(has(Some(*whom)) || has(None), "{by} never removed {whom}");
        }
        for node in self.nodes.iter_mut().flatten() {
            let lane = node.engine.io.net.as_mut().expect("there is one");
            lane.check();
            assert!(
                node.sends.is_empty(),
                "life {}: sends that never end",
                node.life
            );
        }
    }
}

/// It had to go for others, or is taken for gone.
const fn is_removal(why: Death) -> bool {
    matches!(why, Death::Nobody | Death::Silent)
}

/// Who has sent what, as the message says.
fn read(me: LifeId, from: u32, bytes: &[u8]) -> Result<(u32, LifeId, u64), String> {
    let word = |at: usize| {
        bytes.get(at..at + 8).map_or(u64::MAX, |it| {
            u64::from_le_bytes(it.try_into().expect("8 bytes"))
        })
    };
    let [by, to, number] = [word(0), word(8), word(16)];
    let spoilt = bytes[HEAD..].iter().position(|byte| *byte != number as u8);
    if to != me as u64 || spoilt.is_some() {
        let length = bytes.len();
        return Err(format!(
            "life {me} was given what is for {to}, number {number} of {by}, {length} bytes, \
             spoilt at {spoilt:?}"
        ));
    }
    Ok((from, by as LifeId, number))
}

fn note_down(notes: &SharedNotes, came: Result<(u32, LifeId, u64), String>) {
    let mut notes = open(notes);
    match came {
        Ok(came) => notes.came.push(came),
        Err(wrong) => notes.wrong = Some(wrong),
    }
}

/// Takes what has ended of a node's operations; gives how many.
fn take_ended(node: &mut Node) -> usize {
    let exchange = node.engine.exchange(SPACE);
    let before = node.receives.len() + node.sends.len();
    node.sends.retain(|op| match exchange.take(*op) {
        None => true,
        Some((_, memory)) => {
            // It is the program's again, which does with it what it likes.
            if let Some(Memory::Source(memory)) = memory {
                memory.into_vec().fill(b'#');
            }
            false
        }
    });
    let (notes, life) = (&node.notes, node.life);
    node.receives.retain(|op| {
        let Some((done, memory)) = exchange.take(*op) else {
            return true;
        };
        if let (Ok(()), Some(Memory::Sink(memory))) = (done.result, memory) {
            let buffers = memory.into_buffers();
            let bytes = &buffers[0].as_slice()[..done.bytes as usize];
            note_down(notes, read(life, done.peer, bytes));
        }
        false
    });
    before - node.receives.len() - node.sends.len()
}

#[cfg(test)]
#[path = "crowd_tests.rs"]
mod crowd;
