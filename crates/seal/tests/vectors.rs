//! `docs/protocol-vectors.txt` against what this code computes: one connect
//! and one data packet, from the job secret to the last byte of the tag.

use portolan_seal::{AesGcm, Nonce, Seal, Secret, TAG_BYTES};
use portolan_wire::{
    Ack, CONNECT_BYTES, CONNECT_CLEAR_BYTES, Chunk, Chunks, Connect, ConnectIds, EndpointId, Flags,
    HEADER_BYTES, Head, Header, Life, MessageNo, PacketNo, PacketType, Priority,
};
use std::fmt::Write;

const FROM: (u64, u64) = (1, 0x0123_4567_89ab_cdef);
const TO: (u64, u64) = (2, 0xfedc_ba98_7654_3210);
const NONCES: [u64; 2] = [0x1111_2222_3333_4444, 0x5555_6666_7777_8888];

/// What goes into the derivation of a key, as `docs/protocol.md` lays it out.
fn info(label: &[u8; 8], suite: &str, words: &[u64]) -> Vec<u8> {
    let mut info = label.to_vec();
    info.extend_from_slice(suite.as_bytes());
    info.resize(32, 0);
    for word in words {
        info.extend(word.to_le_bytes());
    }
    info
}

fn secret() -> [u8; 32] {
    core::array::from_fn(|i| i as u8)
}

/// One packet and every step to it.
struct Vector {
    name: &'static str,
    info: Vec<u8>,
    key: Secret,
    nonce: Nonce,
    clear: usize,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

fn vector(name: &'static str, info: Vec<u8>, nonce: Nonce, clear: usize, plain: &[u8]) -> Vector {
    let mut seal = AesGcm::with_slots(1);
    let key = seal.derive(&secret(), &info);
    seal.install(0, &key);
    let mut sealed = plain.to_vec();
    let (header, body) = sealed.split_at_mut(clear);
    let tag = seal.seal(0, nonce, header, body);
    sealed.extend(tag);
    Vector {
        name,
        info,
        key,
        nonce,
        clear,
        plain: plain.to_vec(),
        sealed,
    }
}

fn ends() -> [u64; 4] {
    [FROM.0, FROM.1, TO.0, TO.1]
}

fn connect() -> (ConnectIds, Connect) {
    let ids = ConnectIds {
        from: EndpointId(FROM.0),
        from_life: Life(FROM.1),
        to: EndpointId(TO.0),
        to_life: Life(TO.1),
        number: PacketNo(5),
    };
    let connect = Connect {
        nonce: NONCES[0],
        echo: NONCES[1],
        first_packet: PacketNo(0xffff_fff0),
        connection: 0x0a0b_0c0d,
        first_message: MessageNo(0xffff_fffe),
        credit: [64, 32],
        window: 10,
        packet_max: 1472,
        flows: 16,
        settled: true,
    };
    (ids, connect)
}

fn connect_vector() -> Vector {
    let (ids, connect) = connect();
    let header = Header {
        kind: PacketType::Connect,
        flags: Flags::NONE,
        path: 0,
        connection: 0,
        number: ids.number.low(),
    };
    let mut plain = [0; CONNECT_BYTES];
    plain[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    ids.write(&mut plain);
    connect.write(&mut plain[CONNECT_CLEAR_BYTES..]);
    let nonce = Nonce {
        path: 0,
        number: ids.number.0,
    };
    let info = info(b"ptl1conn", "aes-128-gcm", &ends());
    vector("connect", info, nonce, CONNECT_CLEAR_BYTES, &plain)
}

const ARGS: [u8; 16] = [7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0];

fn data() -> (Header, PacketNo, Ack, Head<'static>) {
    let number = PacketNo(0x1_0000_0007);
    let header = Header {
        kind: PacketType::Data,
        flags: Flags::ACK_WANTED.with(Flags::HAS_ACK, true),
        path: 0,
        connection: 0x0102_0304,
        number: number.low(),
    };
    let ack = Ack {
        path: 0,
        delay: 12,
        ce: 0,
        largest: 0x42,
        base: 0x40,
        packet_limit: 0x140,
        credit: [70, 40],
        words: 1,
        bitmap: [0b101, 0, 0, 0, 0, 0, 0, 0],
    };
    let head = Head {
        priority: Priority::Reply,
        flow: 3,
        message: MessageNo(1),
        port: 1000,
        total: 12,
        args: &ARGS,
        payload: b"to the port!",
    };
    (header, number, ack, head)
}

fn data_vector() -> Vector {
    let (header, number, ack, head) = data();
    let mut plain = header.to_bytes().to_vec();
    plain.resize(512, 0);
    let mut at = HEADER_BYTES;
    ack.write(&mut plain[at..]);
    at += ack.bytes();
    at += head.write(&mut plain[at..]);
    at += Chunk::Ping.write(&mut plain[at..]);
    let phase = 0;
    let words = [&ends()[..], &NONCES, &[phase]].concat();
    let nonce = Nonce {
        path: 0,
        number: number.0,
    };
    let info = info(b"ptl1data", "aes-128-gcm", &words);
    vector("data", info, nonce, HEADER_BYTES, &plain[..at])
}

fn hex_lines(out: &mut String, name: &str, bytes: &[u8]) {
    writeln!(out, "{name}").unwrap();
    for line in bytes.chunks(32) {
        out.push_str("  ");
        for byte in line {
            write!(out, "{byte:02x}").unwrap();
        }
        out.push('\n');
    }
}

#[test]
fn the_checked_in_vectors_are_what_is_computed() {
    let mut text = String::new();
    hex_lines(&mut text, "job-secret", &secret());
    for v in [connect_vector(), data_vector()] {
        let mut put = |what: &str, bytes: &[u8]| {
            hex_lines(&mut text, &format!("{}-{what}", v.name), bytes);
        };
        put("info", &v.info);
        put("key", v.key.as_bytes());
        put("nonce", &v.nonce.to_bytes());
        put("associated-data", &v.plain[..v.clear]);
        put("plain", &v.plain[v.clear..]);
        put("packet", &v.sealed);
    }
    let file: String = include_str!("../../../docs/protocol-vectors.txt")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .take_while(|line| !line.starts_with("pair-"))
        .flat_map(|line| [line, "\n"])
        .collect();
    assert!(file == text, "computed:\n{text}");
}

/// The way back: what a receiver of the two packets reads.
#[test]
fn the_packets_open_and_parse() {
    for v in [connect_vector(), data_vector()] {
        let mut seal = AesGcm::with_slots(1);
        seal.install(0, &v.key);
        let mut packet = v.sealed;
        let tag_at = packet.len() - TAG_BYTES;
        let tag = packet[tag_at..].try_into().unwrap();
        let (header, body) = packet[..tag_at].split_at_mut(v.clear);
        assert_eq!(seal.open(0, v.nonce, header, body, &tag), Ok(()));
        if v.name == "connect" {
            assert_eq!(ConnectIds::parse(header), Ok(connect().0));
            assert_eq!(Connect::parse(body), Ok(connect().1));
        } else {
            let (want, number, ack, head) = data();
            assert_eq!(Header::parse(header), Ok(want));
            assert_eq!(PacketNo(u64::from(u32::MAX)).nearest(want.number), number);
            assert_eq!(Ack::parse(body), Ok((ack, ack.bytes())));
            let chunks: Vec<_> = Chunks::new(&body[ack.bytes()..]).collect();
            assert_eq!(chunks, [Ok(Chunk::Head(head)), Ok(Chunk::Ping)]);
        }
    }
}
