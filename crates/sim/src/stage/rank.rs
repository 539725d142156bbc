//! A rank of the stage: the engine as it is shipped, and its program.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan_core::{
    BROADCAST, BarrierCall, Clock, Core, Credentials, Death, Engine, Finding, Gather, Group, Lane,
    Lanes, Matched, NetLane, Progress, ProtoTables, Restarted, Scatter, SendError, SendOptions,
    Settings, ShmLane,
};
use portolan_exchange::{
    Completion, Memory, Notify, OpError, OpId, Place, PutOptions, RegionId, RemoteKey, Rights,
    Selector, SendOptions as TaggedOptions, Signal, Statistics,
};
use portolan_link::shm::{ShmPort, Slumbering};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, Identity};
use portolan_seal::SuiteId;
use portolan_wire::{Address, EndpointId, Life as LifeNumber, Priority};

use super::book::{Draft, LifeId, SharedBook, port};
use super::plan::Plan;
use super::ports::binding;
use crate::content;
use crate::link::SimLinks;
use crate::node::{address, set_networks};
use crate::rng::Rng;

/// Virtual time.
#[derive(Clone, Debug, Default)]
pub struct SimClock(Arc<AtomicU64>);

impl SimClock {
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

/// Key of each rank's region, and its length, bytes: a number that is counted up, then
/// places for puts.
const KEY: u64 = 7;
pub const REGION: usize = 64 << 10;
pub const SLOT: usize = 4 << 10;
/// What is added at a time.
const ADDED: u64 = 3;
/// A barrier that has waited so long for a rank asks it for a sign of life, ns.
const KNOCK_NS: u64 = 200_000_000;
/// A port that finds no room is looked at again after this, ns.
const NAP_NS: u64 = 1_000_000;

/// The address of a life of a rank.
pub fn address_of(rank: usize, life: LifeId) -> Address {
    let at = address(rank);
    Address {
        port: at.port,
        ip: at.ip,
        id: EndpointId(1_000 + rank as u64),
        life: LifeNumber(1 + life as u64),
        host: 1,
    }
}

/// A matched message between two ranks.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    pub tag: u64,
    pub from: LifeId,
    pub to: LifeId,
    pub bytes: usize,
}

impl Parcel {
    fn payload(&self) -> Vec<u8> {
        let mut payload = vec![0; self.bytes];
        content::fill(self.tag as usize, 0, &mut payload);
        payload
    }
}

/// What an operation is of.
#[derive(Clone, Debug)]
enum Kind {
    Sends(Parcel),
    Receives(Parcel),
    /// A receive that was cancelled.
    Cancelled,
    Puts {
        id: usize,
        at: usize,
        bytes: usize,
        of: LifeId,
    },
    Gets {
        id: Option<usize>,
        bytes: usize,
        of: LifeId,
    },
    Adds(LifeId),
    Flushes(LifeId),
}

/// How a rank closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    No,
    Flushing,
    Telling,
    Leaving,
    Over,
}

/// What a rank writes to others' regions, by the life whose region it is: the message that
/// a slot holds, once it surely does, and what was added, surely and perhaps.
#[derive(Debug, Default)]
pub struct Written {
    pub slots: Vec<(LifeId, usize, usize, usize)>,
    pub added: Vec<(LifeId, bool)>,
}

/// One of them.
pub struct Rank {
    pub rank: usize,
    pub life: LifeId,
    pub engine: Engine<SimLinks, SimClock>,
    book: SharedBook,
    rng: Rng,
    helped: u64,
    /// Lives that it has given up, though nobody had said that they are over.
    pub given_up: Vec<LifeId>,
    /// When it runs next, ns.
    pub next_pass: u64,
    /// Messages that found no credit.
    wants: VecDeque<(u32, Draft)>,
    /// What is left to be sent of broadcasts.
    relays: VecDeque<(u32, Vec<u8>)>,
    ops: Vec<(OpId, Kind)>,
    /// Messages that are claimed when they are there.
    claims: Vec<Parcel>,
    region: RegionId,
    pub written: Written,
    barrier: Option<BarrierCall>,
    /// When who is waited for there is asked for a sign of life.
    knock_at: u64,
    pub barriers_due: u32,
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
    /// Restarts of every rank, and the number of its last return.
    pub returned: &'a [(u32, u32)],
}

fn settings(plan: &Plan, rank: usize, life: LifeId) -> Settings {
    Settings {
        rank: rank as u32,
        size: plan.hosts.len() as u32,
        life: life as u64,
        seed: plan.seed,
        unexpected_bytes: 4 * plan.queue_share,
        unexpected_share: plan.queue_share,
        queue_bytes: 4 * plan.queue_share,
        queue_share: plan.queue_share,
        copy_bytes: 64 << 10,
        reply_bytes: plan.reply_bytes,
        exchange: portolan_exchange::Config {
            pushed_share: plan.pushed_share,
            pull_window: 64 << 10,
            pull_chunk: 30_000,
            share_min: 10_000,
            ..portolan_exchange::Config::default()
        },
        push_shm: plan.push,
        push_net: plan.push,
        regions_cached: 2,
        tell: |_| (),
    }
}

/// The network lane to those with whom no memory is shared.
fn net_lane(
    plan: &Plan,
    links: SimLinks,
    me: (usize, LifeId),
    lives: &[LifeId],
    near: &[(u16, u32)],
    now: u64,
) -> (NetLane<SimLinks>, Vec<Option<portolan_proto::PeerId>>) {
    let (rank, life) = me;
    let ranks = plan.hosts.len();
    let config = Config {
        peers: ranks as u32,
        active: ranks as u32,
        more_paths: (ranks * (plan.networks - 1)) as u32,
        // Little, so that much finds no room.
        queue_frames: 16,
        frames: 128,
        longs: 16,
        silence_ns: plan.silence_ns,
        connect_ns: 4 * plan.silence_ns,
        ..Config::default()
    };
    let credentials = Credentials {
        me: Identity {
            id: EndpointId(1_000 + rank as u64),
            life: LifeNumber(1 + life as u64),
        },
        suite: SuiteId::AesGcm,
        secret: &[5; 32],
        agreement: None,
        public_keys: &[],
        seed: plan.seed ^ (life as u64 + 1) << 32,
    };
    let mut tables = ProtoTables::new(&config, &credentials).expect("there is memory");
    let mut view = tables.view();
    set_networks(&mut view, rank, plan.networks, config.packet_max);
    let (mut known, mut peers) = (Vec::new(), vec![None; ranks]);
    for (other, life) in lives.iter().enumerate() {
        let shares = near.iter().any(|(_, it)| *it == other as u32);
        if other == rank || shares {
            continue;
        }
        let Address { id, life, .. } = address_of(other, *life);
        let peer = view.add_peer(id, life, address(other), Mode::Lan);
        let peer = peer.expect("there is room for all");
        view.pin_incarnation(peer);
        known.push(other as u32);
        peers[other] = Some(peer);
    }
    let lane = NetLane::new(links, tables, known, plan.silence_ns, now);
    (lane, peers)
}

impl Rank {
    pub fn new(rank: usize, life: LifeId, start: Start<'_>) -> Self {
        let Start {
            plan,
            book,
            clock,
            links,
            shm,
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
        let region = engine.register_region(region, Some(KEY), Rights::Both);
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
            relays: VecDeque::new(),
            ops: Vec::new(),
            claims: Vec::new(),
            region: region.expect("the key is free"),
            written: Written::default(),
            barrier: None,
            knock_at: u64::MAX,
            barriers_due: 0,
            closing: Closing::No,
        };
        for at in port::PLAIN..=port::SIGNAL {
            if at != port::LATE {
                made.bind(at);
            }
        }
        let shared = book.clone();
        made.engine.core.error_handler =
            Some(Box::new(move |_, event| shared.lock().told(life, event)));
        made
    }

    fn bind(&mut self, at: u16) {
        let binding = binding(&self.book, self.life, at);
        let bound = self.engine.core.bind(at, binding);
        bound.expect("it is the program's");
    }

    fn note(&self, what: impl FnOnce() -> String) {
        let book = self.book.lock();
        book.trace.note(book.now, self.rank, what);
    }

    /// The life of a rank that this one knows, if it is not dead for it.
    pub fn known(&self, rank: usize) -> Option<LifeId> {
        let dead = self.engine.core.lanes.dead(rank as u32).is_some();
        (!dead).then(|| self.book.lock().lives[self.life].knows[rank])
    }

    /// Does something of its own accord, and says what another is to do for it.
    pub fn act(&mut self) {
        if self.closing != Closing::No {
            return;
        }
        let ranks = self.engine.core.size as usize;
        let to = self.rng.index(ranks);
        match self.rng.below(16) {
            0 => self.bind(port::LATE),
            1 => {
                self.bind(port::CHANGING);
                let closed =
                    (self.engine).take_part(|core, out| core.close_port(out, port::CLOSING));
                closed.expect("it is the program's");
            }
            2 => self.broadcast(),
            3 | 4 => self.access(to),
            _ => self.send(to),
        }
    }

    /// Likewise, now that its region is its own again.
    pub fn act_late(&mut self) {
        if self.closing == Closing::No {
            let to = self.rng.index(self.engine.core.size as usize);
            self.send(to);
        }
    }

    fn send(&mut self, to: usize) {
        let Some(life) = self.known(to) else { return };
        let priority = self
            .rng
            .pick(&[Priority::Request, Priority::Request, Priority::Reply]);
        let any = [
            port::PLAIN,
            port::PLAIN,
            port::SHORT,
            port::LONG,
            port::LATE,
            port::CLOSING,
            port::ANY_THREAD,
            port::CHANGING,
        ];
        let at = self.rng.pick(&any);
        let draft = self.book.lock().draft(self.life, life, priority, at);
        self.wants.push_back((to as u32, draft));
    }

    fn broadcast(&mut self) {
        if !self.relays.is_empty() {
            return;
        }
        let ranks = self.engine.core.size as usize;
        let to: Vec<u32> = (0..ranks)
            .filter(|it| *it != self.rank)
            .map(|it| it as u32)
            .collect();
        let lives: Vec<LifeId> = to
            .iter()
            .filter_map(|it| self.known(*it as usize))
            .collect();
        if lives.len() < ranks - 1 {
            return;
        }
        let draft = self.book.lock().broadcast(self.life, &lives);
        let o = SendOptions {
            args: &draft.args,
            ..SendOptions::default()
        };
        let core = &self.engine.core;
        self.relays = core
            .broadcast_to(&to, draft.port, &o, &draft.payload())
            .into();
    }

    /// Sends what has waited, as far as there is credit; whether anything has left.
    fn send_waiting(&mut self) -> bool {
        let (before, mut stalled) = (self.wants.len() + self.relays.len(), Vec::new());
        for (to, draft) in std::mem::take(&mut self.wants) {
            let life = self.known(to as usize);
            if self.engine.core.closing || life != Some(draft.to) {
                self.book.lock().unsend(draft.id);
                continue;
            }
            let key = (to, draft.priority.index());
            if stalled.contains(&key) || !self.send_now(to, &draft) {
                stalled.push(key);
                self.wants.push_back((to, draft));
            }
        }
        while let Some((to, bytes)) = self.relays.front() {
            let o = SendOptions::default();
            let sent = self
                .engine
                .take_part(|core, out| core.send_any(out, *to, BROADCAST, &o, bytes));
            match sent {
                Err(SendError::NoCredit) => break,
                // Others may miss it.
                Ok(_) | Err(_) => self.relays.pop_front(),
            };
        }
        before > self.wants.len() + self.relays.len()
    }

    /// Sends a message in one way or another; false: no credit.
    fn send_now(&mut self, to: u32, draft: &Draft) -> bool {
        let o = SendOptions {
            flow: draft.flow,
            priority: draft.priority,
            args: &draft.args,
        };
        let payload = draft.payload();
        let sent = if self.rng.one_in(4) {
            let given = self
                .engine
                .take_part(|core, out| core.send_given(out, to, draft.port, &o, payload.into()));
            given
                .map_err(|(e, _)| e)
                .map(|op| self.book.lock().given(draft.clone(), op))
        } else {
            let now = self.engine.send_now(to, draft.port, &o, &payload);
            let sent = now.unwrap_or_else(|| self.engine.try_send(to, draft.port, &o, &payload));
            sent.map(drop)
        };
        match sent {
            Ok(()) => self.note(|| {
                format!(
                    "sends #{} to {to}, port {}, {} bytes",
                    draft.id, draft.port, draft.bytes
                )
            }),
            Err(SendError::NoCredit) => return false,
            Err(SendError::PeerDead { .. }) => self.book.lock().unsend(draft.id),
            Err(e) => panic!("message {} to {to}: {e:?}", draft.id),
        }
        true
    }

    fn access(&mut self, to: usize) {
        let (Some(of), false) = (self.known(to), to == self.rank) else {
            return;
        };
        let place = |at: usize| Place {
            key: RemoteKey::any(KEY),
            offset: at as u64,
        };
        let notify = Notify::default();
        let target = to as u32;
        let done = |begun: Result<OpId, SendError>| match begun {
            Ok(op) => Some(op),
            Err(SendError::PeerDead { .. }) => None,
            Err(e) => panic!("an access to {to}: {e:?}"),
        };
        match self.rng.below(6) {
            0 | 1 => {
                let slot = self.book.lock().next_slot(of);
                if (slot + 1) * SLOT > REGION {
                    return;
                }
                let (at, bytes) = (slot * SLOT, 1 + self.rng.index(SLOT));
                let mut book = self.book.lock();
                let id = book
                    .draft(self.life, of, Priority::Request, port::SIGNAL)
                    .id;
                book.unsend(id);
                let signal = self.rng.one_in(2).then_some(Signal {
                    port: u32::from(port::SIGNAL),
                    word: id as u64,
                });
                if signal.is_some() {
                    book.signals.insert(id as u64, false);
                }
                drop(book);
                let mut payload = vec![0; bytes];
                content::fill(id, 0, &mut payload);
                let options = PutOptions {
                    signal,
                    ..PutOptions::default()
                };
                self.written.slots.push((of, id, at, 0));
                let begun = self.engine.reach(target, Gather::from(payload), |x, from| {
                    x.put(target, place(at), from, &options)
                });
                let op = done(begun.map_err(|(e, _)| e));
                let kind = Kind::Puts { id, at, bytes, of };
                self.ops.extend(op.map(|op| (op, kind)));
            }
            2 => {
                let mine = self
                    .written
                    .slots
                    .iter()
                    .filter(|slot| slot.0 == of && slot.3 > 0);
                let all: Vec<_> = mine.copied().collect();
                let (id, at, bytes) = match all.last() {
                    Some((_, id, at, bytes)) => (Some(*id), *at, *bytes),
                    None => (None, 0, 8),
                };
                let into = Scatter::from(vec![0; bytes]);
                let begun = self.engine.reach(target, into, |x, into| {
                    x.get(target, place(at), into, notify)
                });
                let op = done(begun.map_err(|(e, _)| e));
                self.ops
                    .extend(op.map(|op| (op, Kind::Gets { id, bytes, of })));
            }
            3 => {
                let begun = self.engine.reach(target, (), |x, ()| {
                    x.flush(target, notify).map_err(|e| (e, ()))
                });
                let op = done(begun.map_err(|(e, ())| e));
                self.ops.extend(op.map(|op| (op, Kind::Flushes(of))));
            }
            4 => self.engine.matched.exchange.fence(target),
            _ => {
                let begun = self.engine.reach(target, (), |x, ()| {
                    let added = x.fetch_add(target, place(0), ADDED, notify);
                    added.map_err(|e| (e, ()))
                });
                if let Some(op) = done(begun.map_err(|(e, ())| e)) {
                    self.ops.push((op, Kind::Adds(of)));
                }
            }
        }
    }

    /// Sends a matched message; false: the other is dead, as it knows.
    pub fn send_parcel(&mut self, to: usize, parcel: Parcel) {
        if self.closing != Closing::No || self.known(to) != Some(parcel.to) {
            return;
        }
        let payload = parcel.payload();
        if self.rng.one_in(3) && self.engine.push_now(to as u32, parcel.tag, &payload) {
            return;
        }
        let options = TaggedOptions {
            sync: parcel.tag % 2 == 1,
            ..TaggedOptions::default()
        };
        let mut from = if self.rng.one_in(3) && parcel.bytes > 10 {
            let (head, tail) = payload.split_at(parcel.bytes / 3);
            Gather::from(head.to_vec()).and(tail.to_vec())
        } else {
            Gather::from(payload)
        };
        if self.rng.one_in(2) {
            from = from.waiting();
        }
        match self
            .engine
            .post_tagged(to as u32, parcel.tag, &options, from)
        {
            Ok(op) => self.ops.push((op, Kind::Sends(parcel))),
            Err((SendError::PeerDead { .. }, _)) => {}
            Err((e, _)) => panic!("{parcel:?}: {e:?}"),
        }
    }

    /// Receives one, in one way or another.
    pub fn receive_parcel(&mut self, from: usize, parcel: Parcel) {
        if self.closing != Closing::No || self.known(from) != Some(parcel.from) {
            return;
        }
        self.note(|| format!("receives {} from {from}", parcel.tag));
        let selector = Selector::from(from as u32, parcel.tag);
        match self.rng.below(8) {
            0 => return self.claims.push(parcel),
            1 => {
                let op = self.post(&selector, parcel.bytes);
                if self.engine.matched.exchange.cancel(op) {
                    self.ops.push((op, Kind::Cancelled));
                } else {
                    self.ops.push((op, Kind::Receives(parcel)));
                    return;
                }
            }
            _ => {}
        }
        let room = parcel.bytes + self.rng.index(50);
        let op = self.post(&selector, room);
        self.ops.push((op, Kind::Receives(parcel)));
    }

    fn post(&mut self, selector: &Selector, room: usize) -> OpId {
        let first = room / 2;
        let into = Scatter::from(vec![0; first]).and(vec![0; room - first]);
        let op = self.engine.post_receive(selector, into, Notify::default());
        op.expect("the rank is there")
    }

    /// Receives what it was to claim, and is there; gives up what will never be.
    fn claim(&mut self) {
        for parcel in std::mem::take(&mut self.claims) {
            let rank = self.book.lock().lives[parcel.from].rank;
            let selector = Selector::from(rank as u32, parcel.tag);
            let exchange = &mut self.engine.matched.exchange;
            if let Some((id, found)) = exchange.claim(&selector) {
                assert_eq!((found.tag, found.total), (parcel.tag, parcel.bytes as u64));
                let into = Scatter::from(vec![0; parcel.bytes]);
                let op = self
                    .engine
                    .with_exchange(|x| x.receive_claimed(id, into, Notify::default()));
                self.ops.push((op, Kind::Receives(parcel)));
            } else if self.known(rank) == Some(parcel.from) {
                self.claims.push(parcel);
            }
        }
    }

    /// Takes operations that have ended; whether there were any.
    fn take_ended(&mut self) -> bool {
        let mut any = false;
        for (op, kind) in std::mem::take(&mut self.ops) {
            let exchange = &mut self.engine.matched.exchange;
            if exchange.is_done(op) != Some(true) {
                self.ops.push((op, kind));
                continue;
            }
            let (done, memory) = exchange.take(op).expect("it has ended");
            any = true;
            self.ended(&kind, &done, memory);
        }
        any
    }

    fn ended(&mut self, kind: &Kind, done: &Completion, memory: Option<Memory<Gather, Scatter>>) {
        let bytes = match memory {
            Some(Memory::Sink(sink)) => {
                let buffers = sink.into_buffers().into_iter();
                buffers
                    .flat_map(|it| it.into_vec().unwrap_or_default())
                    .collect()
            }
            Some(Memory::Source(source)) => source.into_vec(),
            None => Vec::new(),
        };
        let other = match kind {
            Kind::Sends(parcel) => parcel.to,
            Kind::Receives(parcel) => parcel.from,
            Kind::Cancelled => {
                assert_eq!(done.result, Err(OpError::Cancelled));
                return;
            }
            Kind::Puts { of, .. } | Kind::Gets { of, .. } | Kind::Adds(of) | Kind::Flushes(of) => {
                *of
            }
        };
        if let Kind::Adds(of) = kind {
            self.written.added.push((*of, done.result.is_ok()));
        }
        match done.result {
            Ok(()) => {}
            Err(OpError::PeerDead) => {
                let book = self.book.lock();
                // The event may be told later.
                let rank = book.lives[other].rank as u32;
                let dead = self.engine.core.lanes.dead(rank).is_some();
                let fair = dead || !book.is_sound(self.life, other);
                assert!(fair, "{kind:?} ended with the death of the living");
                return;
            }
            Err(e) => panic!("{kind:?}: {e}"),
        }
        match kind {
            Kind::Receives(parcel) => {
                assert_eq!((done.tag, done.bytes), (parcel.tag, parcel.bytes as u64));
                content::verify(parcel.tag as usize, 0, &bytes[..parcel.bytes]);
            }
            Kind::Sends(parcel) => content::verify(parcel.tag as usize, 0, &bytes),
            Kind::Puts { id, at, bytes, of } => {
                for slot in &mut self.written.slots {
                    if (slot.0, slot.1, slot.2) == (*of, *id, *at) {
                        slot.3 = *bytes;
                    }
                }
            }
            Kind::Gets {
                id: Some(id),
                bytes: len,
                ..
            } => content::verify(*id, 0, &bytes[..*len]),
            Kind::Gets { id: None, .. } => {
                let counted = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
                assert_eq!(counted % ADDED, 0);
            }
            Kind::Adds(_) => assert_eq!(done.data.expect("what was there") % ADDED, 0),
            Kind::Flushes(_) | Kind::Cancelled => {}
        }
    }

    /// Goes on with a barrier; whether it has come to its end.
    fn go_on_with_barrier(&mut self, now: u64) -> bool {
        if self.barrier.is_none() && self.barriers_due > 0 && self.closing == Closing::No {
            self.barriers_due -= 1;
            let ranks: Vec<u32> = (0..self.engine.core.size).collect();
            // One that has died and is back ends it.
            self.barrier = self.engine.core.begin_barrier(&Group::new(&ranks)).ok();
        }
        let Some(call) = &mut self.barrier else {
            return false;
        };
        let polled = self.engine.take_part(|core, out| call.poll(core, out));
        match polled.expect("it is open") {
            None if self.knock_at <= now => {
                let knocked = self.engine.take_part(|core, out| call.knock(core, out));
                let again = if knocked.expect("it is open") {
                    u64::MAX
                } else {
                    now + KNOCK_NS
                };
                self.knock_at = again;
                false
            }
            None => false,
            Some(Progress::Awaits(_)) => {
                self.knock_at = now + KNOCK_NS;
                false
            }
            Some(Progress::Over(dead)) => {
                if let Some((rank, _)) = dead {
                    self.engine.core.lanes.returns.tell_all();
                    let book = self.book.lock();
                    let broken = book.lives.iter().any(|it| it.lost);
                    let broken = broken || book.silence_possible;
                    assert!(broken, "a barrier ends in vain: rank {rank}");
                }
                self.barrier = None;
                true
            }
        }
    }

    /// Barriers are of no use any more.
    pub fn leave_barriers(&mut self) {
        self.barrier = None;
        self.barriers_due = 0;
    }

    /// Somebody tells that a rank's process has ended.
    pub fn tell_of_death(&mut self, rank: usize, why: Death) {
        self.engine.gone(rank as u32, why);
    }

    /// Somebody tells that a rank is back, in another life.
    pub fn tell_of_return(&mut self, rank: usize, life: LifeId, restarts: u32, since: u32) {
        if since <= self.engine.core.lanes.returns.since(rank as u32) {
            return;
        }
        self.engine.gone(rank as u32, Death::Restarted);
        self.book.lock().returned(self.life, rank, life);
        self.engine.back(&Restarted {
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
        self.engine.core.run = !helped;
        let mut moved = self.engine.pass();
        self.engine.core.run = true;
        while let Some(finding) = self.engine.next_finding() {
            moved += 1;
            match finding {
                Finding::Suspect(rank, why) => self.engine.gone(rank, why),
                Finding::GivenUp(rank, _) => {
                    let life = self.book.lock().lives[self.life].knows[rank as usize];
                    self.given_up.push(life);
                }
            }
        }
        self.claim();
        let mut busy = moved > 0;
        busy |= self.take_ended();
        busy |= self.send_waiting();
        busy |= self.go_on_with_barrier(now);
        busy |= self.go_on_closing();
        let due = self.engine.next_timeout();
        self.next_pass = match due {
            _ if busy => now + 1 + self.rng.below(800),
            Some(due) => due.max(now + 300),
            None => u64::MAX,
        };
        if let Some(shm) = self.engine.shm.as_mut().filter(|_| !busy) {
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
        if self.barrier.is_some() {
            self.next_pass = self.next_pass.min(self.knock_at.max(now + 1));
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
            Closing::Telling if self.engine.idle() && self.engine.withdraw_regions() => {
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
        self.engine.core.closing = true;
        self.closing = Closing::Flushing;
    }

    /// Binds what was not bound, so that all that waits is taken.
    pub fn bind_all(&mut self) {
        self.bind(port::LATE);
    }

    /// Runs what handlers are still to run.
    pub fn settle(&mut self) {
        while self.engine.pass() > 0 {}
    }

    /// Nothing of its program's is under way.
    pub fn is_done(&mut self) -> bool {
        self.wants.is_empty()
            && self.relays.is_empty()
            && self.ops.is_empty()
            && self.claims.is_empty()
            && self.barrier.is_none()
            && self.barriers_due == 0
            && self.engine.idle()
    }

    /// Of nothing anything is left; of the dead, whole messages that nobody asked for.
    pub fn check_nothing_is_left(&mut self) {
        let of_dead = self
            .book
            .lock()
            .lives
            .iter()
            .any(|it| it.lost || !it.mourned.is_empty());
        let core = &mut self.engine.core;
        assert_eq!((core.unexpected.used, core.queued.used), (0, 0));
        let found = self.engine.matched.exchange.statistics();
        let expected = Statistics {
            messages: if of_dead { found.messages } else { 0 },
            pushed_bytes: if of_dead { found.pushed_bytes } else { 0 },
            unflushed: found.unflushed,
            regions: 1,
            ..Statistics::default()
        };
        assert_eq!(found, expected);
    }

    /// Its region as the others have left it.
    pub fn take_region(&mut self) -> Vec<u8> {
        let memory = self.engine.deregister_region(self.region);
        let memory = memory
            .expect("nobody reaches it")
            .expect("it is one region's only");
        let buffers = memory.into_buffers().into_iter();
        buffers
            .flat_map(|it| it.into_vec().unwrap_or_default())
            .collect()
    }

    /// What is under way, in words.
    pub fn report(&mut self) -> String {
        let idle = self.engine.idle();
        let core = &mut self.engine.core;
        format!(
            "rank {}: engine idle {idle}, starved {}, ports {:?}, events {}, next pass {}, wants {:?}, relays {}, ops {:?}, claims {:?}, barrier \
             {:?}, closing {:?}, kept {} and {}, {:?}",
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
            self.closing,
            core.unexpected.used,
            core.queued.used,
            self.engine.matched.exchange.statistics(),
        )
    }

    /// The number that others have counted up lies between these.
    pub const fn added(sure: u64, perhaps: u64) -> [u64; 2] {
        [sure * ADDED, (sure + perhaps) * ADDED]
    }
}
