//! The protocol behind a seal that opens everything: two endpoints, and in
//! between packets of theirs and forged ones in any order, time, sends and
//! whatever the applications answer.
//!
//! Without forged packets each message that is delivered was sent, once and
//! in order within its flow; with them it is at least well-formed, each byte
//! once. Never a panic, every table consistent after each step, memory lent
//! by the sender read only until it is given back, and at the end, when every
//! peer is gone, every frame is free.
//!
//! [`peers_input`]: the endpoints introduce themselves to each other, and peers are added,
//! welcomed and removed. Nothing of one is delivered before it was welcomed, or after it was
//! removed.

use std::collections::VecDeque;

use portolan_proto::congestion::Mode;
use portolan_proto::{
    Config, Endpoint, FrameIndex, Identity, LocalNetwork, Message, NetAddress, PeerId, Release,
    SourceId, Spare, Transmit,
};
use portolan_seal::identity;
use portolan_sim::memory::EndpointMemory;
use portolan_wire::{
    Ack, Body, CONNECT_BYTES, CONNECT_CLEAR_BYTES, Chunk, Connect, ConnectIds, EndpointId, Flags,
    Head, Header, Life, MessageNo, PacketNo, PacketType, Priority, TAG_BYTES,
};

use crate::input::Input;
use crate::open_seal::{Open, key_of};
use crate::record::{Hands, Record, content, words};

mod peers;

/// Bit of the time while which messages go by the quick ways, where these are free.
const QUICK: u64 = 1 << 7;
/// Steps of one run, at most.
const STEPS: usize = 400;
/// The tables are looked at after so many steps: it takes longer than they do.
const CHECK_EVERY: usize = 16;
/// Packets on the way to an endpoint, at most: the oldest is lost.
const ON_THE_WAY: usize = 32;
/// Long messages are no longer than this.
const LONG_MAX: u64 = 40_000;

/// Ids and lives: the two endpoints, and one that exists only in forgeries.
const WHO: [(u64, u64); 3] = [(1, 11), (2, 22), (3, 33)];

/// One endpoint with its memory.
struct Node {
    memory: EndpointMemory,
    /// Frames that the link still reads.
    in_link: VecDeque<FrameIndex>,
    /// Packets on the way to it.
    inbox: VecDeque<Vec<u8>>,
    /// What it offered, by receiver: connection number and nonce.
    offered: [(u32, u64); 3],
    /// Latest packet number towards it, by sender.
    number: [u32; 3],
    /// What it asked each to echo, and the mark of its last introduction to each.
    asked: [u64; 3],
    marks: [[u8; TAG_BYTES]; 3],
}

struct Run<'a> {
    input: Input<'a>,
    nodes: [Node; 2],
    record: Record,
    config: Config,
    who: [(u64, u64); 3],
    /// The link gives frames back late.
    slow_link: bool,
    /// Packets that came to each by the slower of two ways.
    detours: [usize; 2],
}

fn address(who: usize) -> NetAddress {
    NetAddress {
        ip: [0; 16],
        port: who as u16,
    }
}

impl Node {
    fn new(config: &Config, who: &[(u64, u64); 3], me: usize) -> Self {
        let identity = Identity {
            id: EndpointId(who[me].0),
            life: Life(who[me].1),
        };
        let mut node = Self {
            memory: EndpointMemory::new(config, identity, &[5; 32], me as u64),
            in_link: VecDeque::new(),
            inbox: VecDeque::new(),
            offered: [(0, 0); 3],
            number: [config.first_packet as u32; 3],
            asked: [0; 3],
            marks: [[0; TAG_BYTES]; 3],
        };
        let mut seal = Open(me);
        let mut endpoint = Endpoint::new(node.memory.tables(), &mut seal);
        if config.more_paths > 0 {
            let second = LocalNetwork {
                address: NetAddress {
                    ip: [1; 16],
                    port: me as u16,
                },
                prefix: 64,
                packet_max: config.packet_max,
            };
            endpoint.set_network(1, second);
        }
        // Of two that introduce themselves one knows the others, and one knows nobody.
        let known = |_: &usize| !config.introduces || me == 0;
        for other in [1 - me, 2].into_iter().filter(known) {
            let (id, life) = who[other];
            endpoint
                .add_peer(EndpointId(id), Life(life), address(other), Mode::Lan)
                .expect("room for two");
        }
        node
    }
}

/// Runs the endpoints as the bytes say.
///
/// # Panics
/// If the protocol breaks one of its promises.
pub fn proto_input(bytes: &[u8]) {
    run(bytes, false);
}

/// The same of endpoints whose peers come and go.
///
/// # Panics
/// If the protocol breaks one of its promises.
pub fn peers_input(bytes: &[u8]) {
    run(bytes, true);
}

fn run(bytes: &[u8], introduces: bool) {
    let mut input = Input(bytes);
    let choice = input.byte();
    let near_wrap = choice & 4 != 0;
    let config = Config {
        peers: if introduces { 4 } else { 2 },
        active: if choice & 16 != 0 { 1 } else { 2 },
        introduces,
        strangers: introduces,
        frames: 32,
        frame_bytes: 1536,
        longs: 3,
        flows: if choice & 32 != 0 { 1 } else { 3 },
        packet_max: 1300,
        more_paths: if choice & 128 != 0 { 2 } else { 0 },
        receive_packets: 16,
        hold_frames: 8,
        queue_frames: 12,
        rekey_packets: if choice & 8 != 0 { 3 } else { u64::MAX },
        first_packet: if near_wrap { (1 << 32) - 5 } else { 0 },
        first_message: if near_wrap { u32::MAX - 2 } else { 0 },
        ..Config::default()
    };
    let who = if introduces {
        std::array::from_fn(|n| identity(&key_of(n)))
    } else {
        WHO
    };
    let mut run = Run {
        nodes: [Node::new(&config, &who, 0), Node::new(&config, &who, 1)],
        record: Record::new(choice & 1 != 0),
        who,
        slow_link: choice & 64 != 0,
        detours: [0; 2],
        config,
        input,
    };
    if introduces {
        run.record.peers_of(0, 2);
    }
    if choice & 2 == 0 {
        run.meet();
    }
    for step in 1..=STEPS {
        if run.input.is_empty() {
            break;
        }
        run.step();
        if introduces || step.is_multiple_of(CHECK_EVERY) {
            run.check();
        }
    }
    run.check();
    run.finish();
}

impl Run<'_> {
    fn with<R>(
        &mut self,
        i: usize,
        call: impl FnOnce(&mut Endpoint<'_, Open>, &mut Hands<'_>, u64) -> R,
    ) -> R {
        let now = self.record.now;
        let mut hands = Hands {
            record: &mut self.record,
            me: i,
        };
        let mut seal = Open(i);
        let mut endpoint = Endpoint::new(self.nodes[i].memory.tables(), &mut seal);
        let result = call(&mut endpoint, &mut hands, now);
        hands.hear(&mut endpoint);
        result
    }

    /// Every table is consistent.
    fn check(&mut self) {
        for i in 0..2 {
            self.with(i, |e, _, _| e.check());
        }
    }

    /// The two make their connection, without loss.
    fn meet(&mut self) {
        self.send(0, 0);
        for _ in 0..6 {
            for i in 0..2 {
                self.accept(i);
                self.flush(i, true);
                while let Some(packet) = self.nodes[1 - i].inbox.pop_front() {
                    self.deliver(1 - i, i, packet);
                }
            }
            self.record.now += 20_000;
        }
    }

    fn step(&mut self) {
        let op = self.input.byte();
        let i = usize::from(op >> 7);
        match op & 15 {
            0 => self.flush(i, op & 16 != 0),
            1 | 2 => self.take_one(i, op & 16 != 0, op & 32 != 0, op & 64 != 0),
            3 => _ = self.pick(i),
            4 => {
                self.record.now += 1 << (self.input.byte() % 36);
                self.timeouts(i);
            }
            5 => self.run_to_deadline(i),
            6 => {
                let bits = self.input.byte();
                self.send(i, bits);
            }
            7 => self.send_long(i),
            8 => {
                self.record.policy[i] = op >> 4 & 7;
                self.with(i, |e, hands, _| hands.resume(e));
            }
            9 => self.give_back(i),
            10 => self.forge_data(i),
            11 => self.forge_chunks(i),
            12 => self.forge_connect(i),
            13 => self.damage(i),
            14 => self.exchange(),
            _ => self.rare(i, op),
        }
    }

    fn rare(&mut self, i: usize, op: u8) {
        match op >> 4 & 7 {
            n @ (0 | 1) => {
                self.record.deaths |= n == 0;
                let peer = PeerId(u32::from(n));
                if self.record.has(i, peer) {
                    self.with(i, |e, _, _| e.peer_died(peer));
                }
            }
            2 => {
                self.record.deaths = true;
                self.with(i, |e, _, now| e.close(now));
            }
            3 => {
                let max = self.input.short() as usize;
                self.with(i, |e, _, now| {
                    e.packet_too_big(now, PeerId(0), 0, 1_472, max)
                });
            }
            4 => {
                let size = self.input.short() as usize;
                self.with(i, |e, _, now| e.set_packet_max(now, 0, size));
            }
            5 if self.config.introduces => self.change_peers(i),
            6 if self.config.introduces => self.forge_introduction(i),
            7 if self.config.introduces => self.forge_challenge(i),
            _ => self.record.now += 1000,
        }
    }

    /// Some rounds as a fair network would have them.
    fn exchange(&mut self) {
        for _ in 0..3 {
            for i in 0..2 {
                self.accept(i);
                self.flush(i, true);
                while let Some(packet) = self.nodes[1 - i].inbox.pop_front() {
                    self.deliver(1 - i, i, packet);
                }
                self.give_back(i);
            }
            self.record.now += 50_000;
        }
    }

    /// Lets an endpoint put what it has on the wire.
    fn flush(&mut self, i: usize, flush_delayed_acks: bool) {
        for n in 0.. {
            assert!(n < 10_000, "never stops sending");
            let sent = self.with(i, |e, hands, now| {
                let t = e.poll_transmit(now, flush_delayed_acks, hands)?;
                Some((t, e.frame(&t).to_vec()))
            });
            let Some((t, packet)) = sent else { return };
            self.nodes[i].in_link.push_back(t.frame);
            if !self.slow_link {
                self.give_back(i);
            }
            self.put_on_the_way(i, &t, packet);
        }
    }

    /// A packet of an endpoint leaves.
    fn put_on_the_way(&mut self, i: usize, t: &Transmit, packet: Vec<u8>) {
        assert!(packet.len() <= usize::from(self.config.packet_max));
        let to = usize::from(t.to.port);
        self.overhear(i, to, &packet);
        let Some(receiver) = self.nodes.get_mut(to) else {
            return;
        };
        if receiver.inbox.len() == ON_THE_WAY {
            receiver.inbox.pop_front();
        }
        receiver.inbox.push_back(packet);
    }

    /// What a forger learns from a packet.
    fn overhear(&mut self, from: usize, to: usize, packet: &[u8]) {
        let header = Header::parse(packet).expect("a packet of ours");
        match header.kind {
            PacketType::Connect => {
                let offer = Connect::parse(&packet[CONNECT_CLEAR_BYTES..]).expect("an offer");
                self.nodes[from].offered[to] = (offer.connection, offer.nonce);
            }
            PacketType::Data => {
                if let Some(node) = self.nodes.get_mut(to) {
                    node.number[from] = header.number;
                }
            }
            PacketType::Introduction | PacketType::Challenge => {
                self.overhear_introduction(from, to, packet);
            }
        }
    }

    fn give_back(&mut self, i: usize) {
        while let Some(frame) = self.nodes[i].in_link.pop_front() {
            self.with(i, |e, _, _| e.transmitted(frame));
        }
    }

    fn deliver(&mut self, i: usize, from: usize, packet: Vec<u8>) {
        self.arrive(i, from, packet, false);
    }

    fn arrive(&mut self, i: usize, from: usize, mut packet: Vec<u8>, detour: bool) {
        let from = address(from);
        let mis_steered = self.with(i, |e, hands, now| {
            let mut spare = Spare::default();
            let ce = now & 64 != 0;
            if !detour
                && now & QUICK != 0
                && let Some(it) = e.foresee(from, ce, &packet)
            {
                let taken = e.take_foreseen(now, it, &mut packet, &mut spare);
                hands.take_quick(e, taken);
                return None;
            }
            let rx = e.handle_packet(now, from, ce, &mut packet, &mut spare);
            hands.hear(e);
            let rx = rx?;
            let heard = rx.heard()?;
            if heard.path == 0 {
                e.note_detour(heard.peer, detour);
            }
            hands.take(e, rx);
            Some(heard.detour)
        });
        self.detours[i] += usize::from(detour);
        if mis_steered == Some(true) && !self.record.forged {
            let seen = self.detours[1 - i];
            assert!(seen >= 4, "told of a detour after {seen}");
        }
    }

    /// One packet of those on the way, chosen by the input.
    fn pick(&mut self, i: usize) -> Option<Vec<u8>> {
        let at = usize::from(self.input.byte());
        let inbox = &mut self.nodes[i].inbox;
        if inbox.is_empty() {
            return None;
        }
        inbox.remove(at % inbox.len())
    }

    /// Delivers one, the oldest or any; `again`: it stays on the way; `detour`:
    /// it comes by the slower one of two.
    fn take_one(&mut self, i: usize, any: bool, again: bool, detour: bool) {
        let packet = if any {
            self.pick(i)
        } else {
            self.nodes[i].inbox.pop_front()
        };
        let Some(packet) = packet else { return };
        if again {
            self.nodes[i].inbox.push_back(packet.clone());
        }
        self.arrive(i, 1 - i, packet, detour);
    }

    fn timeouts(&mut self, i: usize) {
        if let Some(count) = self.with(i, |e, _, _| e.wanted_connections()) {
            self.nodes[i].memory.grow(count);
        }
        self.with(i, |e, hands, now| {
            e.handle_timeouts(now, |_| false);
            hands.hear(e);
            if e.is_resumable() {
                hands.resume(e);
            }
        });
    }

    fn run_to_deadline(&mut self, i: usize) {
        if let Some(at) = self.with(i, |e, _, _| e.next_timeout()) {
            self.record.now = self.record.now.max(at);
            self.timeouts(i);
        }
    }

    /// Peer, priority and flow as the bits say.
    fn whom(&self, bits: u8) -> (PeerId, Priority, u16) {
        let peer = PeerId(match bits & 15 {
            15 => 1,
            14 if self.config.introduces => 2,
            13 if self.config.introduces => 3,
            _ => 0,
        });
        let priority = Priority::BY_URGENCY[usize::from(bits >> 4 & 1)];
        (peer, priority, u16::from(bits >> 5 & 3))
    }

    fn send(&mut self, i: usize, bits: u8) {
        let (peer, priority, flow) = self.whom(bits);
        let shape = self.input.byte();
        let args = usize::from(shape & 31).min(20);
        let total = [0, 1, 60, 64, 500, 1000, 1100, 1400][usize::from(shape >> 5)];
        if !self.record.has(i, peer) {
            return;
        }
        let sent = self.with(i, |e, hands, now| {
            let quick = now & QUICK != 0;
            let t = hands.send(e, peer, priority, flow, args, total, quick)?;
            let packet = e.frame(&t).to_vec();
            e.sent_one(t.frame);
            Some((t, packet))
        });
        if let Some((t, packet)) = sent {
            self.put_on_the_way(i, &t, packet);
        }
    }

    fn send_long(&mut self, i: usize) {
        let bits = self.input.byte();
        let (peer, priority, flow) = self.whom(bits);
        let total = u64::from(self.input.short()) % LONG_MAX;
        if !self.record.has(i, peer) {
            return;
        }
        self.with(i, |e, hands, now| {
            let port = hands.record.sent[i].len() as u16;
            let message = Message {
                priority,
                flow,
                port,
                args: &words(port)[..usize::from(port % 3)],
                payload: &[],
            };
            let release = if port & 1 == 0 {
                Release::Copied
            } else {
                Release::Acknowledged
            };
            let source = SourceId(u64::from(port));
            if e.send_long(now, peer, &message, total, source, release)
                .is_ok()
            {
                hands.note(peer, &message, total, true);
            }
        });
    }

    /// Changes a packet on the way.
    fn damage(&mut self, i: usize) {
        if !self.record.forged {
            return;
        }
        let Some(mut packet) = self.pick(i) else {
            return;
        };
        let (at, value) = (self.input.short() as usize, self.input.byte());
        let length = packet.len();
        packet[at % length] ^= value;
        if value == 0 {
            packet.truncate(at % length);
        }
        self.deliver(i, 1 - i, packet);
    }

    /// A header that gets past connection and number, if the input so wants.
    fn header(&mut self, i: usize) -> (usize, Vec<u8>) {
        let bits = self.input.byte();
        let from = if bits & 8 != 0 { 2 } else { 1 - i };
        let step = self.input.byte() as i8;
        let number = self.nodes[i].number[from].wrapping_add(i32::from(step) as u32);
        self.nodes[i].number[from] = number;
        let flags = Flags::NONE
            .with(Flags::ACK_WANTED, bits & 1 != 0)
            .with(Flags::KEY_PHASE, bits & 2 != 0)
            .with(Flags::HAS_ACK, bits & 4 != 0);
        let mut header = Header {
            kind: PacketType::Data,
            flags,
            path: 0,
            connection: self.nodes[i].offered[from].0,
            number,
        };
        if bits & 0xf0 == 0xf0 {
            header.path = self.input.byte();
            header.connection ^= u32::from(self.input.byte());
        }
        let mut packet = header.to_bytes().to_vec();
        if flags.has(Flags::HAS_ACK) {
            self.forge_ack(i, from, &mut packet);
        }
        (from, packet)
    }

    /// An acknowledgement near what the receiver sent.
    fn forge_ack(&mut self, i: usize, from: usize, packet: &mut Vec<u8>) {
        let shape = self.input.byte();
        let latest = self.nodes.get(from).map_or(0, |n| n.number[i]);
        let near =
            |input: &mut Input<'_>| latest.wrapping_add(i32::from(input.byte() as i8) as u32);
        let mut ack = Ack {
            path: u8::from(shape & 0xf0 == 0xf0),
            words: (shape & 15).min(8),
            largest: near(&mut self.input),
            base: near(&mut self.input),
            packet_limit: latest.wrapping_add(u32::from(self.input.byte())),
            delay: u16::from(shape),
            ce: u32::from(shape >> 4),
            credit: [u32::from(self.input.byte()); 2],
            ..Ack::default()
        };
        for word in &mut ack.bitmap[..usize::from(ack.words)] {
            *word = self.input.word();
        }
        let at = packet.len();
        packet.resize(at + ack.bytes(), 0);
        ack.write(&mut packet[at..]);
    }

    /// A data packet with chunks of any bytes.
    fn forge_data(&mut self, i: usize) {
        if !self.record.forged {
            return;
        }
        let (from, mut packet) = self.header(i);
        let length = usize::from(self.input.byte());
        packet.extend_from_slice(self.input.bytes(length));
        packet.resize(packet.len() + TAG_BYTES, 0);
        self.deliver(i, from, packet);
    }

    /// A data packet with chunks that parse.
    fn forge_chunks(&mut self, i: usize) {
        if !self.record.forged {
            return;
        }
        let (from, mut packet) = self.header(i);
        for _ in 0..4 {
            let shape = self.input.byte();
            let priority = Priority::BY_URGENCY[usize::from(shape >> 3 & 1)];
            let flow = u16::from(shape >> 4 & 3);
            let message = i32::from(self.input.byte() as i8) as u32;
            let message = MessageNo(self.config.first_message.wrapping_add(message));
            let length = [0, 1, 64, 200][usize::from(shape >> 6)];
            let chunk = match shape & 7 {
                1 | 2 => Chunk::Head(Head {
                    priority,
                    flow,
                    message,
                    port: u16::from(shape),
                    total: if shape & 2 == 0 {
                        length as u64
                    } else {
                        (length as u64).max(u64::from(self.input.short()))
                    },
                    args: &[],
                    payload: content(0, 0, length),
                }),
                3 | 4 => Chunk::Body(Body {
                    priority,
                    flow,
                    message,
                    fragment: match self.input.byte() {
                        255 => u32::MAX,
                        other => u32::from(other),
                    },
                    payload: content(0, 0, length.max(1)),
                }),
                5 => Chunk::Refuse {
                    priority,
                    flow,
                    message,
                },
                6 => Chunk::Ping,
                7 => Chunk::Close {
                    alive: shape & 0x80 != 0,
                },
                _ => break,
            };
            let at = packet.len();
            packet.resize(at + 300, 0);
            let n = chunk.write(&mut packet[at..]);
            packet.truncate(at + n);
        }
        packet.resize(packet.len() + TAG_BYTES, 0);
        self.deliver(i, from, packet);
    }

    /// An offer, of the other endpoint, of another life of it, or of nobody.
    fn forge_connect(&mut self, i: usize) {
        if !self.record.forged {
            return;
        }
        let bits = self.input.byte();
        let from = if bits & 1 != 0 { 2 } else { 1 - i };
        let echo = self.nodes[i].offered[from].1;
        let echo = if bits & 16 != 0 { echo } else { 0 };
        let packet = self.connect_packet(i, from, bits, echo);
        self.deliver(i, from, packet);
    }

    fn connect_packet(&mut self, i: usize, from: usize, bits: u8, echo: u64) -> Vec<u8> {
        let number = PacketNo(u64::from(self.input.byte()));
        let header = Header {
            kind: PacketType::Connect,
            flags: Flags::NONE,
            path: 0,
            connection: 0,
            number: number.low(),
        };
        let ids = ConnectIds {
            from: EndpointId(self.who[from].0),
            from_life: Life(self.who[from].1.wrapping_add(u64::from(bits >> 1 & 3))),
            to: EndpointId(self.who[i].0),
            to_life: Life(self.who[i].1.wrapping_add(u64::from(bits >> 3 & 1))),
            number,
        };
        let offer = Connect {
            nonce: 1 + u64::from(self.input.byte()),
            echo,
            first_packet: PacketNo(self.first_packet(bits)),
            connection: u32::from(self.input.byte()),
            first_message: MessageNo(self.config.first_message),
            credit: [u32::from(self.input.byte()); 2],
            window: u16::from(self.input.byte()),
            packet_max: self.input.short(),
            flows: self.config.flows + u16::from(bits & 128 != 0),
            settled: bits & 64 != 0,
        };
        let mut packet = vec![0; CONNECT_BYTES + TAG_BYTES];
        packet[..portolan_wire::HEADER_BYTES].copy_from_slice(&header.to_bytes());
        ids.write(&mut packet);
        offer.write(&mut packet[CONNECT_CLEAR_BYTES..]);
        self.nodes[i].number[from] = offer.first_packet.low();
        packet
    }

    fn first_packet(&mut self, bits: u8) -> u64 {
        if bits & 32 != 0 {
            self.input.word()
        } else {
            self.config.first_packet
        }
    }

    /// Every peer goes: then nothing may be left in use.
    fn finish(&mut self) {
        for i in 0..2 {
            self.record.policy[i] = 0;
            self.record.deaths = true;
            self.with(i, |e, hands, _| hands.resume(e));
            self.flush(i, true);
            for peer in (0..self.config.peers).map(PeerId) {
                if self.record.is_used(i, peer) {
                    self.with(i, |e, _, _| e.peer_died(peer));
                }
            }
            self.flush(i, true);
            // A peer that had closed keeps its state until it is quiet.
            for turn in 0.. {
                self.give_back(i);
                let frames = self.config.frames;
                let free = self.with(i, |e, _, _| e.free_frames());
                if free == frames {
                    break;
                }
                let next = self.with(i, |e, _, _| e.next_timeout());
                let next = next.expect("a frame in use has a deadline");
                assert!(turn < 500, "{} frames stay in use", frames - free);
                self.record.now = next.max(self.record.now + 100);
                self.timeouts(i);
                self.flush(i, true);
            }
        }
        self.check();
        self.record.assert_nothing_lent();
    }
}
