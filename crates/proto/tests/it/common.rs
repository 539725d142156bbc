//! Two endpoints, a virtual clock and a list of packets between them.

pub mod script;

use std::collections::VecDeque;

use portolan_proto::congestion::Mode;
use portolan_proto::{
    Cargo, Config, Conn, Core, Delivery, Endpoint, Event, Flight, Heard, Identity, Layout, Long,
    Message, NetAddress, Outcome, Path, PathSnapshot, Peer, PeerEvent, PeerId, PeerSnapshot, Rx,
    SourceId, Sources, Spare, Tables, Taken, Verdict,
};
use portolan_seal::{AnySeal, Seal, SuiteId};
use portolan_wire::{EndpointId, Life, MessageNo, Priority};

/// What a caller was told, and how it answers.
#[derive(Default)]
pub struct Log {
    pub got: Vec<(u16, Vec<u64>, Vec<u8>)>,
    pub partial: Vec<u8>,
    pub events: Vec<PeerEvent>,
    pub suites: Vec<[SuiteId; 2]>,
    pub released: Vec<(SourceId, Outcome)>,
    pub refused: Vec<MessageNo>,
    pub verdict: Option<Verdict>,
    pub source: Vec<u8>,
    pub reply_to: Option<PeerId>,
    /// Something is awaited of every peer.
    pub awaits: bool,
}

impl Sources for Log {
    fn read(&self, _: SourceId, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.source[offset as usize..][..into.len()]);
    }
}

impl Log {
    fn deliver<S: Seal>(&mut self, endpoint: &mut Endpoint<'_, S>, d: &Delivery<'_>) -> Verdict {
        if let (Some(v), 0) = (self.verdict, d.offset) {
            return v;
        }
        if d.total as usize > self.partial.len() {
            self.partial.resize(d.total as usize, 0);
        }
        self.partial[d.offset as usize..][..d.payload.len()].copy_from_slice(d.payload);
        if d.last {
            let args = d
                .args
                .chunks(8)
                .map(|a| u64::from_le_bytes(a.try_into().unwrap()));
            let payload = self.partial[..d.total as usize].to_vec();
            self.got.push((d.port, args.collect(), payload));
            if let Some(peer) = self.reply_to {
                let m = Message {
                    priority: Priority::Reply,
                    flow: 0,
                    port: 99,
                    args: &[],
                    payload: b"pong",
                };
                endpoint.send(0, peer, &m).unwrap();
            }
        }
        Verdict::Take(7)
    }

    /// Hears what has happened.
    fn hear<S: Seal>(&mut self, endpoint: &mut Endpoint<'_, S>) {
        while let Some(event) = endpoint.poll_event() {
            match event {
                Event::Released(source, outcome) => self.released.push((source, outcome)),
                Event::Refused { message, .. } => self.refused.push(message),
                Event::Peer(_, event) => self.events.push(event),
                Event::OtherSuite { ours, theirs, .. } => self.suites.push([ours, theirs]),
            }
        }
    }

    /// Takes all that came of a packet, or of what was held.
    fn take<S: Seal>(&mut self, endpoint: &mut Endpoint<'_, S>, mut rx: Rx<'_>) {
        loop {
            let delivery = rx.next(endpoint);
            self.hear(endpoint);
            let Some(delivery) = delivery else { return };
            let verdict = self.deliver(endpoint, &delivery);
            rx.answer(endpoint, verdict);
        }
    }

    pub fn packet<S: Seal>(
        &mut self,
        endpoint: &mut Endpoint<'_, S>,
        now: u64,
        from: NetAddress,
        ce: bool,
        packet: &mut [u8],
    ) -> Option<Heard> {
        let mut spare = Spare::default();
        let rx = endpoint.handle_packet(now, from, ce, packet, &mut spare)?;
        let heard = rx.heard();
        self.take(endpoint, rx);
        heard
    }

    /// Takes a packet by the quick way, if it was foreseen; returns whether it was.
    pub fn foreseen<S: Seal>(
        &mut self,
        endpoint: &mut Endpoint<'_, S>,
        now: u64,
        from: NetAddress,
        packet: &mut [u8],
    ) -> bool {
        let Some(foreseen) = endpoint.foresee(from, false, packet) else {
            return false;
        };
        let mut spare = Spare::default();
        match endpoint.take_foreseen(now, foreseen, packet, &mut spare) {
            Taken::Nothing => {}
            Taken::Rest(rx) => self.take(endpoint, rx),
            Taken::One(one) => {
                self.hear(endpoint);
                let verdict = self.deliver(endpoint, one.delivery());
                if let Some(rx) = endpoint.answer_one(one, verdict) {
                    self.take(endpoint, rx);
                }
            }
        }
        true
    }

    pub fn resume<S: Seal>(&mut self, endpoint: &mut Endpoint<'_, S>, now: u64) {
        let mut spare = Spare::default();
        let rx = endpoint.resume(now, &mut spare);
        self.take(endpoint, rx);
    }

    pub fn timeouts<S: Seal>(&mut self, endpoint: &mut Endpoint<'_, S>, now: u64) {
        endpoint.handle_timeouts(now, |_| self.awaits);
        self.hear(endpoint);
        if endpoint.is_resumable() {
            self.resume(endpoint, now);
        }
    }
}

/// An endpoint with its memory.
pub struct Node {
    pub core: Core,
    pub peers: Vec<Peer>,
    pub parked: Vec<PeerSnapshot>,
    pub parked_paths: Vec<PathSnapshot>,
    pub conns: Vec<Conn>,
    pub paths: Vec<Path>,
    pub cargo: Vec<Cargo>,
    pub flights: Vec<Flight>,
    pub longs: Vec<Long>,
    pub frames: Vec<u8>,
    pub seal: AnySeal,
    pub log: Log,
}

pub fn address(id: u64) -> NetAddress {
    NetAddress {
        ip: [0; 16],
        port: id as u16,
    }
}

impl Node {
    pub fn new(config: &Config, id: u64, life: u64) -> Self {
        Self::with_suite(config, id, life, SuiteId::None)
    }

    pub fn with_suite(config: &Config, id: u64, life: u64, suite: SuiteId) -> Self {
        let l = Layout::of(config);
        let mut node = Self {
            core: Core::default(),
            peers: vec![Peer::default(); l.peers],
            parked: vec![portolan_proto::NOT_PARKED; l.parked],
            parked_paths: vec![PathSnapshot::default(); l.parked_paths],
            conns: vec![Conn::default(); l.conns],
            paths: vec![Path::default(); l.paths],
            cargo: vec![Cargo::default(); l.frames],
            flights: vec![Flight::default(); l.frames],
            longs: vec![Long::default(); l.longs],
            frames: vec![0; l.frame_bytes],
            seal: AnySeal::with_slots(suite, 1024),
            log: Log::default(),
        };
        let me = Identity {
            id: EndpointId(id),
            life: Life(life),
        };
        let mut random = [0; 32];
        random[..8].copy_from_slice(&(id * 77 + life).to_le_bytes());
        node.tables().0.init(config, me, &[5; 32], &random);
        node
    }

    fn tables(&mut self) -> (Tables<'_>, &mut AnySeal, &mut Log) {
        let tables = Tables {
            core: &mut self.core,
            peers: &mut self.peers,
            parked: &mut self.parked,
            parked_paths: &mut self.parked_paths,
            conns: &mut self.conns,
            paths: &mut self.paths,
            cargo: &mut self.cargo,
            flights: &mut self.flights,
            longs: &mut self.longs,
            frames: &mut self.frames,
        };
        (tables, &mut self.seal, &mut self.log)
    }

    /// Gives it more connections, if it wants some.
    pub fn grow(&mut self) {
        if let Some(count) = self.with(|e, _| e.wanted_connections()) {
            self.conns.resize(count, Conn::default());
            self.paths.resize(count, Path::default());
        }
    }

    pub fn with<R>(&mut self, f: impl FnOnce(&mut Endpoint<'_, AnySeal>, &mut Log) -> R) -> R {
        let (tables, seal, log) = self.tables();
        let mut endpoint = Endpoint::new(tables, seal);
        let result = f(&mut endpoint, log);
        log.hear(&mut endpoint);
        result
    }
}

/// Two endpoints that know each other as peer 0.
pub struct Pair {
    pub now: u64,
    pub nodes: [Node; 2],
    /// Packets on the way to each node.
    pub wire: [VecDeque<Vec<u8>>; 2],
}

impl Pair {
    pub fn new(config: &Config) -> Self {
        Self::with_suites(config, [SuiteId::None; 2])
    }

    pub fn with_suites(config: &Config, [a, b]: [SuiteId; 2]) -> Self {
        let mut nodes = [
            Node::with_suite(config, 1, 11, a),
            Node::with_suite(config, 2, 22, b),
        ];
        for (i, (id, life)) in [(2, 22), (1, 11)].into_iter().enumerate() {
            nodes[i].with(|e, _| {
                e.add_peer(EndpointId(id), Life(life), address(id), Mode::Lan)
                    .unwrap()
            });
        }
        Self {
            now: 1_000_000,
            nodes,
            wire: [VecDeque::new(), VecDeque::new()],
        }
    }

    pub fn send(&mut self, from: usize, payload: &[u8]) -> MessageNo {
        let m = Message {
            priority: Priority::Request,
            flow: 0,
            port: 3,
            args: &[1, 2],
            payload,
        };
        let now = self.now;
        self.nodes[from]
            .with(|e, _| e.send(now, PeerId(0), &m))
            .unwrap()
    }

    /// Lets node `i` put what it has on the wire; `fate` says what to keep.
    pub fn flush(
        &mut self,
        i: usize,
        flush_delayed_acks: bool,
        fate: &mut impl FnMut(&[u8]) -> bool,
    ) -> usize {
        let (now, wire) = (self.now, &mut self.wire[1 - i]);
        self.nodes[i].with(|e, log| {
            let mut n = 0;
            while let Some(t) = e.poll_transmit(now, flush_delayed_acks, log) {
                let bytes = e.frame(&t).to_vec();
                e.transmitted(t.frame);
                n += 1;
                if fate(&bytes) {
                    wire.push_back(bytes);
                }
            }
            e.check();
            n
        })
    }

    /// Delivers what is on the wire to node `i`.
    pub fn deliver(&mut self, i: usize) -> usize {
        self.deliver_some(i, usize::MAX)
    }

    /// Delivers at most `most` packets to node `i`: what one pass reads.
    pub fn deliver_some(&mut self, i: usize, most: usize) -> usize {
        let mut n = 0;
        while n < most {
            let Some(mut packet) = self.wire[i].pop_front() else {
                break;
            };
            let (now, from) = (self.now, address(2 - i as u64));
            self.nodes[i].with(|e, log| {
                log.packet(e, now, from, false, &mut packet);
                e.check();
            });
            n += 1;
        }
        n
    }

    /// Runs both until nothing moves and no deadline within `horizon_ns` is left.
    pub fn run(&mut self, horizon_ns: u64, mut fate: impl FnMut(&[u8]) -> bool) {
        let end = self.now + horizon_ns;
        loop {
            let mut moved = 0;
            for i in 0..2 {
                moved += self.deliver_some(i, 32);
                moved += self.flush(i, true, &mut fate);
            }
            if moved > 0 {
                self.now += 5_000;
                continue;
            }
            let due = (0..2)
                .filter_map(|i| self.nodes[i].with(|e, _| e.next_timeout()))
                .min();
            match due {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => return,
            }
            for i in 0..2 {
                let now = self.now;
                self.nodes[i].with(|e, log| log.timeouts(e, now));
            }
        }
    }
}
