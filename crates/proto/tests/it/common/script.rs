//! Packet scripts: an endpoint, and a peer whose every packet is written by
//! hand.

use super::{Pair, address};
use portolan_proto::{Config, Message, PeerId};
use portolan_seal::{Checksum, Nonce, Seal};
use portolan_wire::{
    Ack, Chunk, Chunks, Flags, HEADER_BYTES, Head, Header, MessageNo, PacketType, Priority,
    TAG_BYTES,
};

pub const SECOND: u64 = 1_000_000_000;

/// What the endpoint said in one packet.
pub struct Said {
    pub header: Header,
    pub bytes: usize,
    pub ack: Option<Ack>,
    /// Messages that begin in it.
    pub heads: usize,
    /// It says that the node closes.
    pub closes: bool,
    /// Flows and numbers of messages that it refuses.
    pub refuses: Vec<(u16, u32)>,
    /// Which flows it says are stopped, and the number of that.
    pub stopped: Option<(u16, [u16; 2])>,
}

impl Said {
    pub fn number(&self) -> u32 {
        self.header.number
    }
}

/// Node 0 of a pair, and in place of node 1 whatever the test says.
pub struct Script {
    pub pair: Pair,
    /// Connection number of packets to node 0, and the next packet number.
    pub connection: u32,
    pub number: u64,
}

impl Script {
    /// Both have sent one message and heard that it came.
    pub fn new(config: &Config) -> Self {
        let mut pair = Pair::new(config);
        pair.send(0, b"warm");
        pair.send(1, b"warm");
        pair.run(SECOND, |_| true);
        pair.send(1, b"last");
        pair.flush(1, true, &mut |_| true);
        let header = Header::parse(&pair.wire[0][0]).unwrap();
        pair.deliver(0);
        let mut script = Self {
            pair,
            connection: header.connection,
            number: u64::from(header.number) + 1,
        };
        script.say();
        script
    }

    /// Queues messages, each in a packet of its own that leaves; gives the
    /// packets' numbers.
    pub fn send(&mut self, messages: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        for _ in 0..messages {
            // Long enough for any pacing.
            self.pair.now += 100_000;
            self.pair.send(0, b"data");
            let said = self.say();
            numbers.extend(said.iter().filter(|s| s.heads > 0).map(Said::number));
        }
        numbers
    }

    /// A reply leaves; gives its packet's number.
    pub fn reply(&mut self) -> u32 {
        let reply = Message {
            priority: Priority::Reply,
            flow: 0,
            port: 3,
            args: &[],
            payload: b"data",
        };
        let now = self.pair.now;
        self.pair.nodes[0]
            .with(|e, _| e.send(now, PeerId(0), &reply))
            .unwrap();
        self.say()[0].number()
    }

    /// The window of congestion control, packets.
    pub fn window(&mut self) -> u32 {
        self.pair.nodes[0].with(|e, _| e.window(PeerId(0)).unwrap())
    }

    pub fn resent(&mut self) -> u64 {
        self.pair.nodes[0].with(|e, _| e.counters().resent)
    }

    /// Time passes until the node probes.
    pub fn probe(&mut self) {
        let probes = |s: &mut Self| s.pair.nodes[0].with(|e, _| e.counters().probes_sent);
        let before = probes(self);
        while probes(self) == before {
            self.wait();
        }
    }

    /// Time passes until the node has something to do.
    pub fn wait(&mut self) {
        let at = self.pair.nodes[0].with(|e, _| e.next_timeout()).unwrap();
        self.pair.now = self.pair.now.max(at);
        let now = self.pair.now;
        self.pair.nodes[0].with(|e, log| log.timeouts(e, now));
    }

    /// The node gets a packet with a number and flags of the test's choice.
    pub fn hear_as(&mut self, number: u64, flags: Flags, ack: Option<&Ack>, chunks: &[Chunk<'_>]) {
        self.hear_marked(number, flags, false, ack, chunks);
    }

    /// The same, perhaps with the congestion mark.
    pub fn hear_marked(
        &mut self,
        number: u64,
        flags: Flags,
        ce: bool,
        ack: Option<&Ack>,
        chunks: &[Chunk<'_>],
    ) {
        let mut packet = self.packet(number, flags, ack, chunks);
        let now = self.pair.now;
        self.pair.nodes[0].with(|e, log| {
            log.packet(e, now, address(2), ce, &mut packet);
            e.check();
        });
        self.number = self.number.max(number + 1);
    }

    /// A packet to the node.
    pub fn packet(
        &self,
        number: u64,
        flags: Flags,
        ack: Option<&Ack>,
        chunks: &[Chunk<'_>],
    ) -> Vec<u8> {
        let header = Header {
            kind: PacketType::Data,
            flags: flags.with(Flags::HAS_ACK, ack.is_some()),
            path: 0,
            connection: self.connection,
            number: number as u32,
        };
        let mut packet = header.to_bytes().to_vec();
        let mut room = [0; 2048];
        if let Some(ack) = ack {
            ack.write(&mut room);
            packet.extend_from_slice(&room[..ack.bytes()]);
        }
        for chunk in chunks {
            let n = chunk.write(&mut room);
            packet.extend_from_slice(&room[..n]);
        }
        let (head, body) = packet.split_at_mut(HEADER_BYTES);
        let tag = Checksum.seal(0, Nonce { path: 0, number }, head, body);
        packet.extend_from_slice(&tag);
        packet
    }

    /// The node gets the next packet.
    pub fn hear(&mut self, ack: Option<&Ack>, chunks: &[Chunk<'_>]) {
        self.hear_as(self.number, Flags::NONE, ack, chunks);
    }

    /// All packets that leave the node now.
    pub fn say(&mut self) -> Vec<Said> {
        self.pair.wire[1].clear();
        self.pair.flush(0, true, &mut |_| true);
        self.pair.wire[1]
            .drain(..)
            .map(|packet| {
                let header = Header::parse(&packet).unwrap();
                let mut at = HEADER_BYTES;
                let ack = header.flags.has(Flags::HAS_ACK).then(|| {
                    let (ack, bytes) = Ack::parse(&packet[at..]).unwrap();
                    at += bytes;
                    ack
                });
                let mut said = Said {
                    header,
                    bytes: packet.len(),
                    ack,
                    heads: 0,
                    closes: false,
                    refuses: Vec::new(),
                    stopped: None,
                };
                for chunk in Chunks::new(&packet[at..packet.len() - TAG_BYTES]) {
                    said.heads += usize::from(matches!(chunk, Ok(Chunk::Head(_))));
                    said.closes |= matches!(chunk, Ok(Chunk::Close { .. }));
                    if let Ok(Chunk::Refuse { flow, message, .. }) = chunk {
                        said.refuses.push((flow, message.0));
                    }
                    if let Ok(Chunk::Stopped { serial, flows }) = chunk {
                        said.stopped = Some((serial, flows));
                    }
                }
                said
            })
            .collect()
    }

    /// The acknowledgement that a ping asks for.
    pub fn asked(&mut self) -> Ack {
        self.hear_as(self.number, Flags::ACK_WANTED, None, &[Chunk::Ping]);
        let said = self.say();
        said.iter().find_map(|s| s.ack).unwrap()
    }
}

/// A whole request of the peer; of flow 0 it has sent two.
pub fn message(flow: u16, number: u32) -> Chunk<'static> {
    Chunk::Head(Head {
        priority: Priority::Request,
        flow,
        message: MessageNo(number),
        port: 3,
        total: 4,
        args: &[],
        payload: b"abcd",
    })
}

/// Says that every packet up to a number has come, but those, and that many
/// more may follow.
pub fn all_but(largest: u32, missing: &[u32]) -> Ack {
    let base = missing.first().map_or(largest + 1, |&m| m);
    let mut ack = Ack {
        largest,
        base,
        words: (largest + 1 - base).div_ceil(64) as u8,
        packet_limit: largest + 200,
        ..Ack::default()
    };
    for bit in 0..largest + 1 - base {
        if !missing.contains(&(base + bit)) {
            ack.bitmap[bit as usize / 64] |= 1 << (bit % 64);
        }
    }
    ack
}

/// The node's own messages take what the pool gives them.
pub fn fill(s: &mut Script) {
    let now = s.pair.now;
    let flows = [Priority::Request, Priority::Reply].map(|p| (0..8).map(move |f| (p, f)));
    for (priority, flow) in flows.into_iter().flatten() {
        let m = Message {
            priority,
            flow,
            port: 3,
            args: &[],
            payload: &[7; 1_400],
        };
        while s.pair.nodes[0]
            .with(|e, _| e.send(now, PeerId(0), &m))
            .is_ok()
        {}
    }
}
