//! A rank of the model: protocol, exchange, and memory to send from.

pub mod memory;
mod reach;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use portolan_exchange::{
    Census, Completion, Config as ExchangeConfig, DirectError, Exchange, FetchError,
    Host as Carrier, Incoming, Kind, Located, Memory as OpMemory, Notify, OpId, Outgoing, Push,
    Refusal, RegionId, Selector, SendOptions, Sent, Signal, SignalRefusal, Sink, Source, Took,
};
use portolan_proto::congestion::Mode;
use portolan_proto::{
    Config, Delivery, Endpoint, Host, Identity, Message, Outcome, PeerEvent, PeerId, PeerState,
    Release, SendError, SourceId, Verdict,
};
use portolan_seal::{Checksum, Secret};
use portolan_sim::memory::Memory;
use portolan_sim::net::Network;
use portolan_sim::node::address;
use portolan_wire::{EndpointId, Life, MessageNo, Priority};
use reach::{Bytes, Shown};
pub use reach::{Reach, content};

/// A message whose payload the protocol reads as it goes.
struct Lent {
    op: OpId,
    bytes: Vec<u8>,
}

/// An operation that has ended, with the bytes of its memory.
pub struct Ending {
    pub completion: Completion,
    pub bytes: Vec<u8>,
}

/// What is carried for the exchange.
#[derive(Default)]
struct Load {
    who: usize,
    lent: BTreeMap<u64, Lent>,
    sources: u64,
    push: Push,
    /// Words of signals that have come; room is kept for another.
    signals: Vec<u64>,
    reserved: bool,
    /// `None`: they are on different hosts.
    reach: Option<Rc<RefCell<Reach>>>,
}

struct App {
    load: Load,
    exchange: Option<Exchange<Bytes, Bytes>>,
    released: Vec<OpId>,
    now: u64,
    dead: bool,
    ops: Vec<OpId>,
    accesses: Vec<Option<OpId>>,
}

pub struct Node {
    who: usize,
    region: RegionId,
    memory: Memory,
    app: App,
    timeout: u64,
}

/// The exchange's host, for one call.
struct At<'a, 'm> {
    load: &'a mut Load,
    view: &'a mut Endpoint<'m, Checksum>,
    now: u64,
}

/// Packets that one pass takes, and that it sends.
const BURST: u32 = 2;
const PORT: u16 = 100;
const REQUESTS: u16 = 6;

fn message<'a>(m: &'a Outgoing<'a>, payload: &'a [u8]) -> Message<'a> {
    Message {
        priority: if m.kind.is_reply() {
            Priority::Reply
        } else {
            Priority::Request
        },
        flow: REQUESTS + u16::from(m.kind.is_reply()),
        port: PORT + m.kind as u16,
        args: m.args,
        payload,
    }
}

fn refusal(e: SendError) -> Refusal {
    match e {
        SendError::NoCredit => Refusal::NoRoom,
        SendError::PeerDead => Refusal::Dead,
        e => panic!("{e:?}"),
    }
}

const OTHER: PeerId = PeerId(0);

impl At<'_, '_> {
    fn carry(&mut self, m: &Outgoing<'_>, payload: &[u8], op: OpId) -> Result<Sent, Refusal> {
        if payload.len() <= self.view.inline_max(OTHER, m.args.len()) {
            let sent = self.view.send(self.now, OTHER, &message(m, payload));
            return sent.map(|_| Sent::Copied).map_err(refusal);
        }
        let number = self.load.sources;
        let sent = self.view.send_long(
            self.now,
            OTHER,
            &message(m, &[]),
            payload.len() as u64,
            SourceId(number),
            Release::Copied,
        );
        sent.map_err(refusal)?;
        self.load.sources += 1;
        let bytes = payload.to_vec();
        self.load.lent.insert(number, Lent { op, bytes });
        Ok(Sent::Lent)
    }
}

impl Carrier for At<'_, '_> {
    type Source = Bytes;
    type Sink = Bytes;

    fn send(&mut self, _to: u32, m: &Outgoing<'_>) -> Result<(), Refusal> {
        let sent = self.view.send(self.now, OTHER, &message(m, &[]));
        sent.map(drop).map_err(refusal)
    }

    fn send_from(
        &mut self,
        _to: u32,
        m: &Outgoing<'_>,
        source: &Bytes,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        self.carry(m, &source.0[at as usize..][..bytes as usize], op)
    }

    fn send_region(
        &mut self,
        _to: u32,
        m: &Outgoing<'_>,
        memory: &Bytes,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        self.carry(m, &memory.0[at as usize..][..bytes as usize], op)
    }

    fn reserve_signal(&mut self, _from: u32, port: u32) -> Result<(), SignalRefusal> {
        if port != memory::PORT {
            return Err(SignalRefusal::NoPort);
        }
        if std::mem::replace(&mut self.load.reserved, true) {
            return Err(SignalRefusal::NoRoom);
        }
        Ok(())
    }

    fn signal(&mut self, from: u32, signal: &Signal, _bytes: u64) {
        self.unreserve_signal(from, signal.port);
        self.load.signals.push(signal.word);
    }

    fn unreserve_signal(&mut self, _from: u32, _port: u32) {
        assert!(std::mem::take(&mut self.load.reserved), "no room was kept");
    }

    fn has_queues(&self, _from: u32) -> bool {
        true
    }

    fn push(&self, _to: u32) -> Push {
        self.load.push
    }

    fn locate(&mut self, _to: u32, source: &Bytes) -> Option<Located> {
        let mut reach = self.load.reach.as_ref()?.borrow_mut();
        let address = (reach.located.len() as u64 + 1) << 40;
        let message = (self.load.who, source.0.clone());
        reach.located.insert(address, message);
        Some(Located {
            address,
            shares: true,
        })
    }

    fn show(&mut self, _to: u32, key: u64, _: &mut Bytes, at: u64, bytes: u64) -> bool {
        let Some(reach) = &self.load.reach else {
            return false;
        };
        let shown = Shown {
            at,
            bytes: bytes as usize,
            written: None,
            busy: key as u32 % 4,
            hidden: false,
        };
        let before = (reach.borrow_mut().shown).insert((self.load.who, key), shown);
        assert!(before.is_none());
        true
    }

    fn hide(&mut self, key: u64, sink: &mut Bytes) -> bool {
        let reach = self.load.reach.as_ref().expect("it was shown");
        let (mut reach, at) = (reach.borrow_mut(), (self.load.who, key));
        let shown = reach.shown.get_mut(&at).expect("it was shown");
        shown.hidden = true;
        if shown.busy > 0 {
            shown.busy -= 1;
            return false;
        }
        let shown = reach.shown.remove(&at).expect("it was shown");
        if let Some(written) = shown.written {
            sink.write(shown.at, &written);
        }
        true
    }

    fn write_shown(
        &mut self,
        to: u32,
        key: u64,
        source: &Bytes,
        at: u64,
        bytes: u64,
    ) -> Result<(), DirectError> {
        let reach = self.load.reach.as_ref().ok_or(DirectError::NotPossible)?;
        let mut reach = reach.borrow_mut();
        let shown = reach.shown.get_mut(&(to as usize, key));
        let shown = (shown.filter(|it| !it.hidden)).ok_or(DirectError::NotPossible)?;
        assert_eq!(shown.bytes as u64, bytes);
        if key.is_multiple_of(3) {
            // As if the kernel did not permit it: the bytes go by the network.
            reach.unwritten += 1;
            return Err(DirectError::NotPossible);
        }
        let mut written = vec![0; shown.bytes];
        Source::read(source, at, &mut written);
        shown.written = Some(written);
        reach.written += 1;
        Ok(())
    }

    fn await_peer(&mut self, _rank: u32) {
        self.view.await_peer(OTHER);
    }

    fn fetch(
        &mut self,
        from: u32,
        address: u64,
        into: &mut Bytes,
        at: u64,
        bytes: u64,
    ) -> Result<(), FetchError> {
        let reach = self.load.reach.as_ref().expect("it was located");
        let reach = reach.borrow();
        if reach.dead[from as usize] {
            return Err(FetchError::Gone);
        }
        let found = reach.located.range(..=address).next_back();
        let (base, (owner, message)) = found.expect("it was located");
        assert_eq!(*owner, from as usize);
        let start = (address - base) as usize;
        into.write(at, &message[start..start + bytes as usize]);
        Ok(())
    }
}

impl Host<Checksum> for App {
    fn deliver(&mut self, view: &mut Endpoint<'_, Checksum>, d: Delivery<'_>) -> Verdict {
        let mut exchange = self.exchange.take().expect("it is at work nowhere else");
        let mut at = At {
            load: &mut self.load,
            view,
            now: self.now,
        };
        let verdict = if d.cookie == 0 {
            let kind = Kind::of(d.port - PORT).expect("only exchanges talk");
            let m = Incoming {
                from: 1 - exchange.rank(),
                kind,
                args: d.args,
                total: d.total,
                payload: d.payload,
            };
            match exchange.arrive(&mut at, &m) {
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
                exchange.arrived(&mut at, d.cookie);
            }
            Verdict::Take(0)
        };
        self.exchange = Some(exchange);
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
        self.exchange
            .as_ref()
            .is_none_or(|x| x.awaits(1 - x.rank()))
    }

    fn peer_event(&mut self, _: PeerId, event: PeerEvent) {
        self.dead |= matches!(event, PeerEvent::Dead(_));
    }
}

impl Node {
    /// With `reach` the ranks are on one host.
    pub fn new(who: usize, seed: u64, push: Push, reach: Option<Rc<RefCell<Reach>>>) -> Self {
        let ids = [1, 2].map(EndpointId);
        let lives = [11, 22].map(Life);
        let me = Identity {
            id: ids[who],
            life: lives[who],
        };
        let config = Config {
            // Little, so that much finds no room.
            queue_frames: 8,
            ..Config::default()
        };
        let mut memory = Memory::new(&config, me, Secret([5; 32]), seed ^ (who as u64 + 1));
        let other = 1 - who;
        let mut seal = Checksum;
        Endpoint::new(memory.tables(), &mut seal)
            .add_peer(ids[other], lives[other], address(other), Mode::Lan)
            .expect("room for one peer");
        let exchange = Exchange::new(ExchangeConfig {
            rank: who as u32,
            size: 2,
            secret: [seed, 1],
            pushed_share: Some(16 << 10),
            pull_window: 64 << 10,
            pull_chunk: 30_000,
            share_min: 10_000,
            ..ExchangeConfig::default()
        });
        let mut node = Self {
            who,
            region: RegionId(0),
            memory,
            app: App {
                load: Load {
                    who,
                    push,
                    reach,
                    ..Load::default()
                },
                exchange: Some(exchange),
                released: Vec::new(),
                now: 0,
                dead: false,
                ops: Vec::new(),
                accesses: Vec::new(),
            },
            timeout: 0,
        };
        node.region = node.register();
        node
    }

    fn with<R>(
        &mut self,
        now: u64,
        act: impl FnOnce(&mut Exchange<Bytes, Bytes>, &mut At<'_, '_>) -> R,
    ) -> R {
        let mut seal = Checksum;
        let mut view = Endpoint::new(self.memory.tables(), &mut seal);
        let mut exchange = self.app.exchange.take().expect("it is at work nowhere");
        let mut at = At {
            load: &mut self.app.load,
            view: &mut view,
            now,
        };
        let result = act(&mut exchange, &mut at);
        self.app.exchange = Some(exchange);
        self.timeout = now;
        result
    }

    pub fn send(&mut self, now: u64, tag: u64, bytes: usize) {
        let source = Bytes(content(tag, bytes));
        let to = 1 - self.who as u32;
        let options = SendOptions {
            sync: tag % 2 == 1,
            ..SendOptions::default()
        };
        let posted = self.with(now, |x, at| x.post_send(at, to, tag, &options, source));
        match posted {
            Ok(op) => self.app.ops.push(op),
            // The other is known to be dead: counted as one that failed.
            Err(_) => self.app.ops.push(OpId(0)),
        }
    }

    pub fn receive(&mut self, now: u64, tag: u64) {
        let selector = Selector::from(1 - self.who as u32, tag);
        let sink = Bytes(vec![0; 300_000]);
        let op = self.with(now, |x, at| {
            x.post_receive(at, &selector, sink, Notify::default())
        });
        self.app.ops.push(op);
    }

    /// Told from outside that the other's process has ended.
    pub fn tell_of_death(&mut self, now: u64) {
        let mut seal = Checksum;
        Endpoint::new(self.memory.tables(), &mut seal).peer_died(OTHER, &mut self.app);
        self.timeout = now;
    }

    /// One pass of progress.
    pub fn pass(&mut self, now: u64, net: &mut Network) {
        self.app.now = now;
        let mut seal = Checksum;
        let mut packets = 0;
        // Few at a time: more states in which a side can be killed.
        while packets < BURST
            && let Some(mut packet) = net.receive(self.who)
        {
            packets += 1;
            let mut view = Endpoint::new(self.memory.tables(), &mut seal);
            view.handle_packet(
                now,
                address(packet.from),
                packet.ce,
                &mut packet.bytes,
                &mut self.app,
            );
        }
        Endpoint::new(self.memory.tables(), &mut seal).handle_timeouts(now, &mut self.app);
        let released = std::mem::take(&mut self.app.released);
        let dead = std::mem::take(&mut self.app.dead);
        let other = 1 - self.who as u32;
        let freed = self.with(now, |x, at| {
            for op in released {
                x.released(op);
            }
            if dead {
                x.peer_died(at, other);
            }
            x.resume(at);
            x.take_freed()
        });
        let mut view = Endpoint::new(self.memory.tables(), &mut seal);
        if freed {
            view.resume(now, &mut self.app);
        }
        let mut sent = 0;
        while sent < BURST
            && let Some(t) = view.poll_transmit(now, packets == 0, &mut self.app)
        {
            sent += 1;
            net.send(self.who, 1 - self.who, view.frame(&t), t.ecn);
            view.transmitted(t.frame);
        }
        self.timeout = view.next_timeout().unwrap_or(u64::MAX);
        let reach = self.app.load.reach.as_ref();
        if reach.is_some_and(|reach| {
            reach
                .borrow()
                .shown
                .iter()
                .any(|(at, it)| at.0 == self.who && it.hidden)
        }) {
            // It may be over soon.
            self.timeout = self.timeout.min(now + 1_000);
        }
        if sent == BURST || !self.app.released.is_empty() || self.app.dead {
            self.timeout = now;
        }
    }

    /// Whether it is connected to the other.
    pub fn is_up(&mut self) -> bool {
        self.state() == PeerState::Up
    }

    fn state(&mut self) -> PeerState {
        let mut seal = Checksum;
        Endpoint::new(self.memory.tables(), &mut seal).peer_state(OTHER)
    }

    /// Whether the other is dead, as it thinks.
    pub fn is_bereft(&mut self) -> bool {
        matches!(self.state(), PeerState::Dead(_))
    }

    /// Whether it has never been connected to the other.
    pub fn is_strange(&mut self) -> bool {
        matches!(self.state(), PeerState::New | PeerState::Connecting)
    }

    pub fn packets_sent(&mut self) -> u64 {
        let mut seal = Checksum;
        let view = Endpoint::new(self.memory.tables(), &mut seal);
        view.counters().packets_sent
    }

    /// When it is to be given a pass.
    pub fn due(&self, net: &Network) -> u64 {
        if net.waiting(self.who) > 0 {
            0
        } else {
            self.timeout
        }
    }

    /// Nothing of its own is under way: its operations have ended, and what it
    /// sent is acknowledged.
    pub fn is_idle(&mut self) -> bool {
        let mut seal = Checksum;
        let idle = Endpoint::new(self.memory.tables(), &mut seal).idle();
        idle && self.census().operations == 0
            && self.census().backlogs == 0
            && self.app.released.is_empty()
            && !self.app.dead
    }

    pub fn census(&self) -> Census {
        self.app
            .exchange
            .as_ref()
            .expect("it is at work nowhere")
            .census()
    }

    /// Payloads that the protocol still reads.
    pub fn lent(&self) -> usize {
        self.app.load.lent.len()
    }

    /// Takes what has ended.
    pub fn endings(&mut self) -> Vec<Ending> {
        let ops = std::mem::take(&mut self.app.ops);
        let take = |op| {
            if op == OpId(0) {
                let completion = Completion {
                    op,
                    action: portolan_exchange::Action::Send,
                    peer: 0,
                    tag: 0,
                    bytes: 0,
                    total: 0,
                    data: None,
                    context: 0,
                    result: Err(portolan_exchange::OpError::PeerDead),
                };
                return Ending {
                    completion,
                    bytes: Vec::new(),
                };
            }
            self.ending(op)
        };
        ops.into_iter().map(take).collect()
    }

    fn ending(&mut self, op: OpId) -> Ending {
        let x = self.app.exchange.as_mut().expect("it is at work nowhere");
        let (completion, memory) = x.take(op).expect("it has ended");
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
        self.with(0, |x, at| {
            while let Some((id, _)) = x.claim(&all) {
                x.discard(at, id, Bytes(Vec::new()));
            }
        });
    }
}
