//! A rank of the model: protocol, exchange, and memory to send from.

mod carrier;
pub mod memory;
mod reach;

use std::cell::RefCell;
use std::rc::Rc;

use carrier::{At, Load, OTHER, PORT};
use portolan_exchange::{
    Completion, Config as ExchangeConfig, Exchange, Incoming, Kind, Lane, LaneTerms,
    Memory as OpMemory, Notify, OpId, Push, RegionId, Selector, SendOptions, Statistics, Took,
};
use portolan_proto::congestion::Mode;
use portolan_proto::{
    Config, Counters, Delivery, Endpoint, Host, Identity, Outcome, PeerEvent, PeerId, PeerState,
    Reroute, SourceId, Verdict, key_slots,
};
use portolan_seal::AesGcm;
use portolan_sim::memory::Memory;
use portolan_sim::net::{Arrival, Network};
use portolan_sim::node::{address, address_on, change_port, places, set_networks};
use portolan_sim::steer::Way;
use portolan_wire::{EndpointId, Life, MessageNo, Priority};
use reach::Bytes;
pub use reach::{Reach, content, in_round};

/// An operation that has ended, with the bytes of its memory.
pub struct Ending {
    pub completion: Completion,
    pub bytes: Vec<u8>,
}

/// What was to be begun in a round of the program; `None`: it was refused,
/// since the other was known to be dead.
type Begun = (u64, Option<OpId>);

struct App {
    load: Load,
    exchange: Exchange<Bytes, Bytes>,
    released: Vec<OpId>,
    now: u64,
    dead: bool,
    ops: Vec<Begun>,
    accesses: Vec<Begun>,
    /// The network has several ways, and another is to be taken.
    has_ways: bool,
    reroutes: Vec<Reroute>,
}

pub struct Node {
    who: usize,
    region: RegionId,
    memory: Memory,
    seal: AesGcm,
    app: App,
    timeout: u64,
    /// The round of the program that it began with, and the present one.
    pub first: u64,
    pub round: u64,
    /// Packets that it has sent, for whoever repeats them.
    pub overheard: Vec<(usize, usize, Vec<u8>)>,
}

/// What a rank begins with.
#[derive(Clone)]
pub struct Start {
    pub seed: u64,
    pub push: Push,
    /// `None`: they are on different hosts.
    pub reach: Option<Rc<RefCell<Reach>>>,
    pub networks: usize,
    pub has_ways: bool,
    /// The round of the program, and which life of the rank it is.
    pub round: u64,
}

/// Packets that one pass takes, and that it sends.
const BURST: u32 = 2;

/// Settings of a rank's protocol.
fn config(networks: usize) -> Config {
    Config {
        peers: 1,
        active: 1,
        more_paths: networks as u32 - 1,
        // Little, so that much finds no room.
        queue_frames: 8,
        frames: 256,
        longs: 32,
        ..Config::default()
    }
}

/// The life of a rank that begins with a round.
fn life(who: usize, round: u64) -> Life {
    Life(11 * (who as u64 + 1) + 100 * round)
}

impl Host<AesGcm> for App {
    fn deliver(&mut self, view: &mut Endpoint<'_, AesGcm>, d: Delivery<'_>) -> Verdict {
        let exchange = &mut self.exchange;
        let verdict = if d.cookie == 0 {
            let kind = Kind::of(d.port - PORT).expect("only exchanges talk");
            let m = Incoming {
                from: 1 - exchange.rank(),
                kind,
                args: d.args,
                total: d.total,
                payload: d.payload,
            };
            match exchange.arrive(&m) {
                Took::Whole => Verdict::Take(0),
                Took::Part(part) => Verdict::Take(part),
                Took::NotNow => Verdict::NotNow,
                Took::Refused => panic!("{kind:?} was refused"),
            }
        } else {
            match exchange.room(d.cookie, d.offset, d.payload.len()) {
                Some(room) => room.copy_from_slice(d.payload),
                None => exchange.write_part(d.cookie, d.offset, d.payload),
            }
            if d.last {
                exchange.arrived(d.cookie);
            }
            Verdict::Take(0)
        };
        let now = self.now;
        self.work(view, now);
        verdict
    }

    fn read(&mut self, source: SourceId, offset: u64, into: &mut [u8]) {
        let lent = &self.load.lent[&source.0];
        into.copy_from_slice(&lent.bytes[offset as usize..][..into.len()]);
    }

    fn released(&mut self, source: SourceId, _: Outcome) {
        let lent = self.load.lent.remove(&source.0).expect("it was lent");
        self.released.push(lent.op);
    }

    fn refused(&mut self, _: PeerId, _: Priority, _: u16, _: MessageNo) {
        panic!("nothing is refused");
    }

    fn awaits(&mut self, _: PeerId) -> bool {
        self.exchange.awaits(1 - self.exchange.rank())
    }

    fn peer_event(&mut self, _: PeerId, event: PeerEvent) {
        self.dead |= matches!(event, PeerEvent::Dead(_));
    }

    fn reroute(&mut self, _: PeerId, path: u8, how: Reroute) -> bool {
        let can = self.has_ways && path == 0;
        if can {
            self.reroutes.push(how);
        }
        can
    }
}

impl App {
    /// Does all that the exchange wants to be done.
    fn work(&mut self, view: &mut Endpoint<'_, AesGcm>, now: u64) {
        let load = &mut self.load;
        let mut at = At { load, view, now };
        while let Some(task) = self.exchange.poll_task() {
            let did = at.act(task);
            self.exchange.did(did);
        }
        while self.exchange.poll_awaited().is_some() {
            at.view.await_peer(now, OTHER);
        }
    }
}

impl Node {
    pub fn new(who: usize, start: &Start) -> Self {
        let Start {
            seed,
            push,
            networks,
            has_ways,
            round,
            ..
        } = *start;
        let ids = [1, 2].map(EndpointId);
        let me = Identity {
            id: ids[who],
            life: life(who, round),
        };
        let config = config(networks);
        let seeded = seed ^ (who as u64 + 1) ^ round << 32;
        let mut memory = Memory::new(&config, me, &[5; 32], seeded);
        let mut seal = AesGcm::with_slots(key_slots(&config));
        let other = 1 - who;
        let mut view = Endpoint::new(memory.tables(), &mut seal);
        set_networks(&mut view, who, networks, config.packet_max);
        let added = view.add_peer(ids[other], life(other, 0), address(other), Mode::Lan);
        assert_eq!(added, Ok(OTHER));
        // Nobody but us says that a rank is back.
        view.pin_incarnation(OTHER);
        let terms = LaneTerms {
            push,
            queues: true,
            ..LaneTerms::default()
        };
        let mut exchange = Exchange::new(ExchangeConfig {
            lanes: [terms; 2],
            rank: who as u32,
            size: 2,
            secret: [seed, 1 + round],
            pushed_share: (seed % 2 == 0).then_some(16 << 10),
            pull_window: 64 << 10,
            pull_chunk: 30_000,
            share_min: 10_000,
            ..ExchangeConfig::default()
        });
        exchange.set_lane(other as u32, Lane::Network);
        let mut node = Self {
            who,
            region: RegionId(0),
            memory,
            seal,
            app: App {
                load: Load {
                    who,
                    reach: start.reach.clone(),
                    ..Load::default()
                },
                exchange,
                released: Vec::new(),
                now: 0,
                dead: false,
                ops: Vec::new(),
                accesses: Vec::new(),
                has_ways,
                reroutes: Vec::new(),
            },
            timeout: 0,
            first: round,
            round,
            overheard: Vec::new(),
        };
        node.region = node.register();
        node
    }

    fn view<R>(&mut self, act: impl FnOnce(&mut Endpoint<'_, AesGcm>, &mut App) -> R) -> R {
        let mut view = Endpoint::new(self.memory.tables(), &mut self.seal);
        act(&mut view, &mut self.app)
    }

    fn with<R>(&mut self, now: u64, act: impl FnOnce(&mut Exchange<Bytes, Bytes>) -> R) -> R {
        self.timeout = now;
        self.view(|view, app| {
            let result = act(&mut app.exchange);
            app.work(view, now);
            result
        })
    }

    pub fn send(&mut self, now: u64, tag: u64, bytes: usize) {
        let source = Bytes(content(in_round(self.round, tag), bytes));
        let to = 1 - self.who as u32;
        let options = SendOptions {
            sync: tag % 2 == 1,
            ..SendOptions::default()
        };
        let posted = self.with(now, |x| x.post_send(to, tag, &options, source));
        self.app.ops.push((self.round, posted.ok()));
    }

    pub fn receive(&mut self, now: u64, tag: u64, room: usize) {
        let selector = Selector::from(1 - self.who as u32, tag);
        let sink = Bytes(vec![0; room]);
        let op = self.with(now, |x| x.post_receive(&selector, sink, Notify::default()));
        self.app.ops.push((self.round, Some(op)));
    }

    /// Told from outside that the other's process has ended.
    pub fn tell_of_death(&mut self, now: u64) {
        self.view(|view, app| view.peer_died(OTHER, app));
        self.timeout = now;
    }

    /// Told from outside that the other is back, in the life that begins with
    /// this round: what is under way ends first, then the round begins.
    pub fn tell_of_return(&mut self, now: u64, round: u64) {
        let other = 1 - self.who;
        self.tell_of_death(now);
        self.view(|view, app| {
            let life = life(other, round);
            view.peer_returned(OTHER, life, address(other), Mode::Lan, app);
        });
        self.run_exchange(now);
        self.with(now, |x| x.peer_back(other as u32));
        self.round = round;
    }

    /// Tells the exchange of what has happened; whether it may take what it did
    /// not take.
    fn run_exchange(&mut self, now: u64) -> bool {
        let released = std::mem::take(&mut self.app.released);
        let dead = std::mem::take(&mut self.app.dead);
        let other = 1 - self.who as u32;
        self.with(now, |x| {
            for op in released {
                x.released(op);
            }
            if dead {
                x.peer_died(other);
            }
            x.resume();
        });
        self.app.exchange.take_freed()
    }

    /// The rank's places in the network, one on each.
    fn places(&self, net: &Network) -> impl Iterator<Item = usize> + use<> {
        (self.who..net.nodes()).step_by(2)
    }

    fn next_packet(&self, net: &mut Network) -> Option<Arrival> {
        self.places(net).find_map(|place| {
            let fast = net.receive(place);
            fast.or_else(|| net.receive_by(Way::Kernel, place))
        })
    }

    /// One pass of progress.
    pub fn pass(&mut self, now: u64, net: &mut Network) {
        self.app.now = now;
        self.app.load.hears = true;
        let mut packets = 0;
        // Few at a time: more states in which a side can be killed.
        while packets < BURST
            && let Some(mut packet) = self.next_packet(net)
        {
            packets += 1;
            let from = address_on(packet.from / 2, packet.from % 2);
            self.view(|view, app| {
                view.handle_packet(now, from, packet.ce, &mut packet.bytes, app);
            });
        }
        self.view(|view, app| view.handle_timeouts(now, app));
        if self.run_exchange(now) {
            self.view(|view, app| view.resume(now, app));
        }
        let mut sent = 0;
        while sent < BURST && self.transmit(now, packets == 0, net) {
            sent += 1;
        }
        for how in self.app.reroutes.drain(..) {
            change_port(net.port_mut(self.who, 1 - self.who), how);
        }
        self.timeout = self.view(|view, _| view.next_timeout().unwrap_or(u64::MAX));
        let reach = self.app.load.reach.as_ref();
        if reach.is_some_and(|reach| reach.borrow().hides(self.who)) {
            // It may be over soon.
            self.timeout = self.timeout.min(now + 1_000);
        }
        if sent == BURST || !self.app.released.is_empty() || self.app.dead {
            self.timeout = now;
        }
    }

    fn transmit(&mut self, now: u64, flush_delayed_acks: bool, net: &mut Network) -> bool {
        let who = self.who;
        let sent = self.view(|view, app| {
            let t = view.poll_transmit(now, flush_delayed_acks, app)?;
            let (from, to) = places(&t, who, 2);
            let bytes = view.frame(&t).to_vec();
            net.send(from, to, &bytes, t.ecn);
            view.transmitted(t.frame);
            Some((from, to, bytes))
        });
        let more = sent.is_some();
        self.overheard.extend(sent);
        more
    }

    /// Whether it is connected to the other.
    pub fn is_up(&mut self) -> bool {
        self.state() == PeerState::Up
    }

    fn state(&mut self) -> PeerState {
        self.view(|view, _| view.peer_state(OTHER))
    }

    /// Whether the other is dead, as it thinks.
    pub fn is_bereft(&mut self) -> bool {
        matches!(self.state(), PeerState::Dead(_))
    }

    /// Whether it has never been connected to the other.
    pub fn is_strange(&mut self) -> bool {
        matches!(self.state(), PeerState::New | PeerState::Connecting)
    }

    pub fn counters(&mut self) -> Counters {
        self.view(|view, _| *view.counters())
    }

    /// When it is to be given a pass.
    pub fn due(&self, net: &Network) -> u64 {
        let waits = |place| net.waiting(place) + net.waiting_by(Way::Kernel, place) > 0;
        if self.places(net).any(waits) {
            0
        } else {
            self.timeout
        }
    }

    /// Its process is gone: what comes for it is lost.
    pub fn clear_inboxes(&self, net: &mut Network) {
        self.places(net).for_each(|place| net.clear_inbox(place));
    }

    /// Nothing of its own is under way: its operations have ended, what it
    /// sent is acknowledged, and no frame is in use.
    pub fn is_idle(&mut self, networks: usize) -> bool {
        let frames = config(networks).frames;
        let idle = self.view(|view, _| view.idle() && view.free_frames() == frames);
        idle && self.statistics().operations == 0
            && self.statistics().backlogs == 0
            && self.app.released.is_empty()
            && !self.app.dead
    }

    /// Checks the protocol's tables.
    pub fn check_tables(&mut self) {
        self.view(|view, _| view.check());
    }

    pub fn statistics(&self) -> Statistics {
        self.app.exchange.statistics()
    }

    /// Payloads that the protocol still reads.
    pub fn lent(&self) -> usize {
        self.app.load.lent.len()
    }

    /// Takes what was begun in a round and has ended, messages in the order of
    /// beginning; `None`: it was never begun.
    pub fn endings(&mut self, round: u64) -> Vec<Option<Ending>> {
        let ops = self.app.ops.extract_if(.., |(of, _)| *of == round);
        let ops: Vec<Begun> = ops.collect();
        self.take_all(ops)
    }

    fn take_all(&mut self, ops: Vec<Begun>) -> Vec<Option<Ending>> {
        ops.into_iter()
            .map(|(_, op)| op.map(|op| self.ending(op)))
            .collect()
    }

    fn ending(&mut self, op: OpId) -> Ending {
        let (completion, memory) = self.app.exchange.take(op).expect("it has ended");
        let bytes = match memory {
            Some(OpMemory::Source(bytes) | OpMemory::Sink(bytes)) => bytes.0,
            // An atomic operation has none.
            None => Vec::new(),
        };
        Ending { completion, bytes }
    }

    /// Throws whole messages away that nobody received.
    pub fn drain(&mut self) {
        let all = Selector::any(0).ignoring(u64::MAX);
        self.with(0, |x| {
            while let Some((id, _)) = x.claim(&all) {
                x.discard(id, Bytes(Vec::new()));
            }
        });
    }
}
