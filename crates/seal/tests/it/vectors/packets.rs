//! The packets of `docs/protocol-vectors.txt`, and what each is made from. All
//! go from endpoint A to endpoint B.

use portolan_seal::{AnySeal, Nonce, Seal, Secret, SuiteId};
use portolan_wire::{
    Ack, Body, CONNECT_BYTES, CONNECT_CLEAR_BYTES, Chunk, Connect, ConnectIds, EndpointId, Flags,
    HEADER_BYTES, Head, Header, KeyAddress, Life, MessageNo, NETWORK_BYTES, Network, PacketNo,
    PacketType, Priority,
};

const A: (EndpointId, Life) = (EndpointId(1), Life(0x0123_4567_89ab_cdef));
const B: (EndpointId, Life) = (EndpointId(2), Life(0xfedc_ba98_7654_3210));
pub const NONCES: [u64; 2] = [0x1111_2222_3333_4444, 0x5555_6666_7777_8888];
/// B's choice, so that it knows who packets are from.
const CONNECTION: u32 = 0x0102_0304;

pub fn secret() -> [u8; 32] {
    core::array::from_fn(|i| i as u8)
}

/// What all packets have in common.
pub fn inputs() -> Vec<(&'static str, String)> {
    let word = |n: u64| format!("0x{n:016x}");
    vec![
        ("a-id", word(A.0.0)),
        ("a-life", word(A.1.0)),
        ("a-nonce", word(NONCES[0])),
        ("b-id", word(B.0.0)),
        ("b-life", word(B.1.0)),
        ("b-nonce", word(NONCES[1])),
    ]
}

pub enum Content {
    Connect(ConnectIds, Connect),
    Data {
        path: u8,
        phase: u64,
        number: PacketNo,
        wants_ack: bool,
        ack: Option<Ack>,
        chunks: Vec<Chunk<'static>>,
        /// Bytes of padding behind the chunks.
        pad: usize,
    },
}

pub struct Packet {
    pub name: &'static str,
    pub what: &'static str,
    pub suite: SuiteId,
    pub content: Content,
}

pub struct Sealed {
    /// Info and key, where the suite has keys.
    pub key: Option<(Vec<u8>, Secret)>,
    pub bytes: Vec<u8>,
}

impl Packet {
    pub const fn header(&self) -> Header {
        match &self.content {
            Content::Connect(ids, _) => Header {
                kind: PacketType::Connect,
                flags: Flags::NONE,
                path: 0,
                connection: 0,
                number: ids.number.low(),
            },
            Content::Data {
                path,
                phase,
                number,
                wants_ack,
                ack,
                ..
            } => Header {
                kind: PacketType::Data,
                flags: Flags::NONE
                    .with(Flags::ACK_WANTED, *wants_ack)
                    .with(Flags::KEY_PHASE, *phase & 1 == 1)
                    .with(Flags::HAS_ACK, ack.is_some()),
                path: *path,
                connection: CONNECTION,
                number: number.low(),
            },
        }
    }

    pub fn nonce(&self) -> Nonce {
        let (path, number) = match &self.content {
            Content::Connect(ids, _) => (0, ids.number),
            Content::Data { path, number, .. } => (*path, *number),
        };
        Nonce {
            path: path.into(),
            number: number.0,
        }
    }

    /// The nonce as the suite's cipher takes it.
    pub fn nonce_bytes(&self) -> Vec<u8> {
        match self.suite {
            SuiteId::Aegis => self.nonce().to_16_bytes().to_vec(),
            _ => self.nonce().to_bytes().to_vec(),
        }
    }

    /// The packet without its tag, before it is sealed, and how much of it
    /// stays in clear.
    pub fn plain(&self) -> (usize, Vec<u8>) {
        let mut plain = vec![0; 1024];
        plain[..HEADER_BYTES].copy_from_slice(&self.header().to_bytes());
        match &self.content {
            Content::Connect(ids, offer) => {
                ids.write(&mut plain);
                offer.write(&mut plain[CONNECT_CLEAR_BYTES..]);
                plain.truncate(CONNECT_BYTES);
                (CONNECT_CLEAR_BYTES, plain)
            }
            Content::Data {
                ack, chunks, pad, ..
            } => {
                let mut at = HEADER_BYTES;
                if let Some(ack) = ack {
                    ack.write(&mut plain[at..]);
                    at += ack.bytes();
                }
                for chunk in chunks {
                    at += chunk.write(&mut plain[at..]);
                }
                plain.truncate(at + pad);
                (HEADER_BYTES, plain)
            }
        }
    }

    /// What the key is derived for, as `docs/protocol.md` lays it out.
    fn info(&self) -> Vec<u8> {
        let (label, rest) = match &self.content {
            Content::Connect(..) => (b"ptl1conn", vec![]),
            Content::Data { phase, .. } => (b"ptl1data", vec![NONCES[0], NONCES[1], *phase]),
        };
        let ends = [A.0.0, A.1.0, B.0.0, B.1.0];
        info_of(label, self.suite, [&ends[..], &rest].concat())
    }

    pub fn sealed(&self) -> Sealed {
        let mut seal = AnySeal::with_slots(self.suite, 1);
        let key = (self.suite != SuiteId::None).then(|| {
            let info = self.info();
            let key = seal.derive(&secret(), &info);
            seal.install(0, &key);
            (info, key)
        });
        let (clear, mut bytes) = self.plain();
        let (header, body) = bytes.split_at_mut(clear);
        let tag = seal.seal(0, self.nonce(), header, body);
        bytes.extend(tag);
        Sealed { key, bytes }
    }

    /// The values that it is made from.
    pub fn inputs(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![("suite", self.suite.name().to_owned())];
        match &self.content {
            Content::Connect(ids, offer) => {
                all.push(("packet-number", ids.number.0.to_string()));
                all.push(("offer", offer_text(offer)));
            }
            Content::Data {
                path,
                phase,
                number,
                wants_ack,
                ack,
                chunks,
                pad,
            } => {
                all.push(("path", path.to_string()));
                all.push(("key-phase", phase.to_string()));
                all.push(("packet-number", number.0.to_string()));
                all.push(("connection", format!("{CONNECTION:#x}")));
                all.push(("acknowledgement-wanted", u8::from(*wants_ack).to_string()));
                all.extend(ack.map(|ack| ("acknowledgement", ack_text(&ack))));
                all.extend(chunks.iter().map(|chunk| ("chunk", chunk_text(chunk))));
                if *pad > 0 {
                    all.push(("padding", pad.to_string()));
                }
            }
        }
        all
    }
}

/// What a key is derived for.
pub fn info_of(label: &[u8; 8], suite: SuiteId, words: Vec<u64>) -> Vec<u8> {
    let mut info = label.to_vec();
    info.extend_from_slice(suite.name().as_bytes());
    info.resize(32, 0);
    info.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    info
}

pub fn offer_text(o: &Connect) -> String {
    let [requests, replies] = o.credit;
    format!(
        "nonce={:#x} echo={:#x} first-packet={} connection={:#x} first-message={} \
         credit={requests},{replies} window={} packet-max={} flows={} settled={}",
        o.nonce,
        o.echo,
        o.first_packet.0,
        o.connection,
        o.first_message.0,
        o.window,
        o.packet_max,
        o.flows,
        u8::from(o.settled)
    )
}

fn ack_text(a: &Ack) -> String {
    let is_set = |i: &u32| a.bitmap[*i as usize / 64] >> (i % 64) & 1 == 1;
    let received = (0..512).filter(is_set).map(|i| (a.base + i).to_string());
    let received = received.collect::<Vec<_>>().join(",");
    let [requests, replies] = a.credit;
    format!(
        "path={} delay={} marks={} largest={} base={} limit={} credit={requests},{replies} \
         received={received}",
        a.path, a.delay, a.ce, a.largest, a.base, a.packet_limit
    )
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn chunk_text(chunk: &Chunk<'_>) -> String {
    match chunk {
        Chunk::Head(h) => {
            let word = |w: &[u8]| u64::from_le_bytes(w.try_into().unwrap()).to_string();
            let words = h.args.chunks(8).map(word).collect::<Vec<_>>().join(",");
            format!(
                "head priority={} flow={} message={} port={} total={} words={words} payload={}",
                h.priority as u8,
                h.flow,
                h.message.0,
                h.port,
                h.total,
                hex(h.payload)
            )
        }
        Chunk::Body(b) => format!(
            "body priority={} flow={} message={} fragment={} payload={}",
            b.priority as u8,
            b.flow,
            b.message.0,
            b.fragment,
            hex(b.payload)
        ),
        Chunk::Refuse {
            priority,
            flow,
            message,
        } => format!(
            "refuse priority={} flow={flow} message={}",
            *priority as u8, message.0
        ),
        Chunk::Close { alive } => format!("close alive={}", u8::from(*alive)),
        Chunk::Ping => "ping".to_owned(),
        Chunk::Networks(entries) => {
            let entry = |bytes: &[u8; NETWORK_BYTES]| {
                let n = Network::parse(bytes);
                format!("{}/{}/{}", hex(&n.ip), n.port, n.packet_max)
            };
            let entries = entries.iter().map(entry).collect::<Vec<_>>();
            format!("networks entries={}", entries.join(","))
        }
        Chunk::Stopped { serial, flows } => {
            format!("stopped serial={serial} flows={},{}", flows[0], flows[1])
        }
    }
}

/// An acknowledgement of path `path` that shows these numbers behind `base`.
fn ack(path: u8, base: u32, received: &[u32], largest: u32) -> Ack {
    let mut bitmap = [0; 8];
    for number in received {
        let i = number - base;
        bitmap[i as usize / 64] |= 1 << (i % 64);
    }
    Ack {
        path,
        delay: 12,
        ce: 3,
        largest,
        base,
        packet_limit: largest + 185,
        credit: [70, 40],
        words: (largest + 1 - base).div_ceil(64) as u8,
        bitmap,
    }
}

pub fn connect(echo: u64, settled: bool) -> Content {
    let ids = ConnectIds {
        from: A.0,
        from_life: A.1,
        to: B.0,
        to_life: B.1,
        number: PacketNo(5),
    };
    let offer = Connect {
        nonce: NONCES[0],
        echo,
        first_packet: PacketNo(0xffff_fff0),
        connection: 0x0a0b_0c0d,
        first_message: MessageNo(0xffff_fffe),
        credit: [512, 512],
        window: 10,
        packet_max: 1472,
        flows: 16,
        settled,
    };
    Content::Connect(ids, offer)
}

const WORDS: [u8; 16] = [7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];
const COUNTED: [u8; 70] = {
    let mut bytes = [0; 70];
    let mut i = 0;
    while i < bytes.len() {
        bytes[i] = i as u8;
        i += 1;
    }
    bytes
};
const NETWORKS: [[u8; NETWORK_BYTES]; 2] = [
    *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x02\x00\x07\x39\x30\xc0\x05",
    *b"\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\x39\x30\xa8\x05",
];

const fn head(flow: u16, message: u32, total: u64, payload: &'static [u8]) -> Chunk<'static> {
    Chunk::Head(Head {
        priority: Priority::Request,
        flow,
        message: MessageNo(message),
        port: 1000,
        total,
        args: &[],
        payload,
    })
}

const fn body(message: u32, fragment: u32, payload: &'static [u8]) -> Chunk<'static> {
    Chunk::Body(Body {
        priority: Priority::Request,
        flow: 3,
        message: MessageNo(message),
        fragment,
        payload,
    })
}

/// An address with the public key of the vectors' pair.
pub fn address() -> KeyAddress {
    KeyAddress {
        port: 12_345,
        ip: *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\x01\x00\x07",
        key: portolan_seal::public_key(&secret()),
        host: 0x1122_3344_5566_7788,
    }
}

pub fn all() -> Vec<Packet> {
    use SuiteId::{Aegis, AesGcm, ChaCha, None as Plain};
    let packet = |name, what, suite, content| Packet {
        name,
        what,
        suite,
        content,
    };
    let data = |path, phase, number, wants_ack, ack, chunks, pad| Content::Data {
        path,
        phase,
        number: PacketNo(number),
        wants_ack,
        ack,
        chunks,
        pad,
    };
    let reply = Chunk::Head(Head {
        priority: Priority::Reply,
        flow: 3,
        message: MessageNo(1),
        port: 1000,
        total: 12,
        args: &WORDS,
        payload: b"to the port!",
    });
    let stopped = Chunk::Stopped {
        serial: 513,
        flows: [2, 0x8081],
    };
    let refuse = Chunk::Refuse {
        priority: Priority::Reply,
        flow: 15,
        message: MessageNo(9),
    };
    let gap = ack(0, 65, &[66, 68], 68);
    let wide = ack(1, 1000, &[1001, 1063, 1064, 1070], 1070);
    let whole = ack(0, 69, &[], 68);
    vec![
        packet(
            "connect",
            "a settled offer",
            AesGcm,
            connect(NONCES[1], true),
        ),
        packet(
            "connect-chacha",
            "the first offer: B's nonce is not known yet",
            ChaCha,
            connect(0, false),
        ),
        packet(
            "connect-none",
            "an answer to an offer, without security",
            Plain,
            connect(NONCES[1], false),
        ),
        packet(
            "data",
            "an acknowledgement that shows gaps, a whole message, a ping",
            AesGcm,
            data(
                0,
                0,
                0x1_0000_0007,
                true,
                Some(gap),
                vec![reply, Chunk::Ping],
                0,
            ),
        ),
        packet(
            "body",
            "path 2, key phase 3: the end of a message",
            AesGcm,
            data(2, 3, 41, false, None, vec![body(1, 23, &COUNTED)], 0),
        ),
        packet(
            "control",
            "path 1, key phase 1: two words of bitmap, a refusal, networks, stopped flows, a close",
            AesGcm,
            data(
                1,
                1,
                0,
                true,
                Some(wide),
                vec![
                    refuse,
                    Chunk::Networks(&NETWORKS),
                    stopped,
                    Chunk::Close { alive: false },
                ],
                0,
            ),
        ),
        packet(
            "padded",
            "a padded ping, which looks for the packet size",
            AesGcm,
            data(0, 0, 8, true, None, vec![Chunk::Ping], 100),
        ),
        packet(
            "acknowledgement",
            "an acknowledgement alone; nothing is missing",
            AesGcm,
            data(0, 0, 9, false, Some(whole), vec![], 0),
        ),
        packet(
            "data-chacha",
            "path 3, key phase 2: the beginning of a longer message",
            ChaCha,
            data(3, 2, 7, true, None, vec![head(3, 1, 134, &[0x5a; 64])], 0),
        ),
        packet(
            "body-chacha",
            "its end",
            ChaCha,
            data(3, 2, 8, true, Some(whole), vec![body(1, 1, &COUNTED)], 0),
        ),
        packet(
            "connect-aegis",
            "a settled offer",
            Aegis,
            connect(NONCES[1], true),
        ),
        packet(
            "data-aegis",
            "path 3, key phase 2: the beginning of a longer message",
            Aegis,
            data(3, 2, 7, true, None, vec![head(3, 1, 134, &[0x5a; 64])], 0),
        ),
        packet(
            "body-aegis",
            "its end, behind the first 2^32 packets",
            Aegis,
            data(
                3,
                2,
                0x1_0000_0008,
                true,
                Some(whole),
                vec![body(1, 1, &COUNTED)],
                0,
            ),
        ),
        packet(
            "data-none",
            "path 1, without security: two messages of a flow",
            Plain,
            data(
                1,
                0,
                0x2_0000_0001,
                true,
                Some(whole),
                vec![head(0, 0xffff_ffff, 3, b"one"), head(0, 0, 3, b"two")],
                0,
            ),
        ),
        packet(
            "body-none",
            "path 1, without security: a body",
            Plain,
            data(
                1,
                0,
                0x2_0000_0002,
                false,
                None,
                vec![body(1, 1, &COUNTED)],
                0,
            ),
        ),
    ]
}
