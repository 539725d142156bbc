//! Properties over generated input: what is written is read back, and bytes
//! that nobody wrote never panic.

use crate::common::{Rng, reencode};
use portolan_wire::{
    Ack, Address, BITMAP_WORDS_MAX, Body, CHALLENGE_BYTES, CONNECT_BYTES, CONNECT_CLEAR_BYTES,
    Challenge, Chunk, Chunks, Connect, ConnectIds, EndpointId, Flags, HEADER_BYTES, Head, Header,
    INTRODUCTION_BYTES, IntroductionParts, Life, MessageNo, PacketNo, PacketType, Priority,
    TAG_BYTES,
};

/// A number with many of its bits at an edge.
fn edgy(rng: &mut Rng) -> u64 {
    match rng.below(4) {
        0 => rng.below(3),
        1 => u64::MAX - rng.below(3),
        2 => rng.next() >> rng.below(64),
        _ => rng.next(),
    }
}

fn header(rng: &mut Rng) -> Header {
    let mut flags = Flags::NONE;
    for flag in [
        Flags::ACK_WANTED,
        Flags::KEY_PHASE,
        Flags::HAS_ACK,
        Flags::REQUESTS_FULL,
        Flags::REPLIES_FULL,
        Flags::DETOUR,
    ] {
        flags = flags.with(flag, rng.below(2) == 0);
    }
    Header {
        kind: [PacketType::Connect, PacketType::Data][rng.below(2) as usize],
        flags,
        path: edgy(rng) as u8,
        connection: edgy(rng) as u32,
        number: edgy(rng) as u32,
    }
}

fn ack(rng: &mut Rng) -> Ack {
    let words = rng.below(9) as u8;
    let mut bitmap = [0; BITMAP_WORDS_MAX];
    bitmap[..words as usize].fill_with(|| edgy(rng));
    Ack {
        path: edgy(rng) as u8,
        delay: edgy(rng) as u16,
        ce: edgy(rng) as u32,
        largest: edgy(rng) as u32,
        base: edgy(rng) as u32,
        packet_limit: edgy(rng) as u32,
        credit: [edgy(rng) as u32, edgy(rng) as u32],
        words,
        bitmap,
    }
}

fn chunk<'a>(rng: &mut Rng, pool: &'a [u8]) -> Chunk<'a> {
    let priority = Priority::BY_URGENCY[rng.below(2) as usize];
    let flow = edgy(rng) as u16;
    let message = MessageNo(edgy(rng) as u32);
    match rng.below(10) {
        0..=3 => {
            let mut length = rng.below(200) as usize;
            let mut total = length as u64;
            if rng.below(2) == 0 {
                length &= !63;
                total = (length as u64).saturating_add(edgy(rng));
            }
            Chunk::Head(Head {
                priority,
                flow,
                message,
                port: edgy(rng) as u16,
                total,
                args: &pool[..8 * rng.below(21) as usize],
                payload: &pool[..length],
            })
        }
        4 => Chunk::Body(Body {
            priority,
            flow,
            message,
            fragment: edgy(rng) as u32,
            payload: &pool[..1 + rng.below(200) as usize],
        }),
        5 => Chunk::Refuse {
            priority,
            flow,
            message,
        },
        6 => Chunk::Close {
            alive: flow & 1 == 1,
        },
        7 => Chunk::Networks(&pool.as_chunks().0[..1 + rng.below(12) as usize]),
        8 => Chunk::Stopped {
            serial: flow,
            flows: [edgy(rng) as u16, edgy(rng) as u16],
        },
        _ => Chunk::Ping,
    }
}

/// A data packet without its tag, and what is in it.
fn packet<'a>(rng: &mut Rng, pool: &'a [u8]) -> (Header, Ack, Vec<Chunk<'a>>, Vec<u8>) {
    let header = Header {
        kind: PacketType::Data,
        ..header(rng)
    };
    let ack = ack(rng);
    let mut bytes = vec![0; 8192];
    bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
    let mut at = HEADER_BYTES;
    if header.flags.has(Flags::HAS_ACK) {
        ack.write(&mut bytes[at..]);
        at += ack.bytes();
    }
    let mut chunks = Vec::new();
    while chunks.len() < 8 && !matches!(chunks.last(), Some(Chunk::Body(_))) {
        let chunk = chunk(rng, pool);
        at += chunk.write(&mut bytes[at..]);
        chunks.push(chunk);
    }
    bytes.truncate(at);
    (header, ack, chunks, bytes)
}

#[test]
fn packets_come_back_as_they_were_written() {
    let mut rng = Rng(3);
    let pool = rng.bytes(512);
    for _ in 0..3_000 {
        let (header, ack, chunks, bytes) = packet(&mut rng, &pool);
        assert_eq!(Header::parse(&bytes), Ok(header));
        let mut at = HEADER_BYTES;
        if header.flags.has(Flags::HAS_ACK) {
            assert_eq!(Ack::parse(&bytes[at..]), Ok((ack, ack.bytes())));
            at += ack.bytes();
        }
        let got: Result<Vec<_>, _> = Chunks::new(&bytes[at..]).collect();
        assert_eq!(got, Ok(chunks));
        reencode::all(&bytes);
    }
}

#[test]
fn connects_and_addresses_come_back_as_they_were_written() {
    let mut rng = Rng(4);
    for _ in 0..5_000 {
        let ids = ConnectIds {
            from: EndpointId(edgy(&mut rng)),
            from_life: Life(edgy(&mut rng)),
            to: EndpointId(edgy(&mut rng)),
            to_life: Life(edgy(&mut rng)),
            number: PacketNo(edgy(&mut rng)),
        };
        let connect = Connect {
            nonce: edgy(&mut rng).max(1),
            echo: edgy(&mut rng),
            first_packet: PacketNo(edgy(&mut rng)),
            connection: edgy(&mut rng) as u32,
            first_message: MessageNo(edgy(&mut rng) as u32),
            credit: [edgy(&mut rng) as u32, edgy(&mut rng) as u32],
            window: edgy(&mut rng) as u16,
            packet_max: edgy(&mut rng) as u16,
            flows: (edgy(&mut rng) as u16).max(1),
            settled: rng.below(2) == 0,
        };
        let header = Header {
            kind: PacketType::Connect,
            flags: Flags::NONE,
            path: 0,
            connection: 0,
            number: ids.number.low(),
        };
        let mut bytes = [0xff; CONNECT_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        ids.write(&mut bytes);
        connect.write(&mut bytes[CONNECT_CLEAR_BYTES..]);
        assert_eq!(Header::parse(&bytes), Ok(header));
        assert_eq!(ConnectIds::parse(&bytes), Ok(ids));
        assert_eq!(Connect::parse(&bytes[CONNECT_CLEAR_BYTES..]), Ok(connect));

        let address = Address {
            port: edgy(&mut rng) as u16,
            ip: rng.bytes(16).try_into().unwrap(),
            id: ids.from,
            life: ids.from_life,
            host: edgy(&mut rng),
        };
        assert_eq!(Address::parse(&address.to_bytes()), Ok(address));
    }
}

/// An introduction of a connect packet of any content, and a challenge.
fn introducing(rng: &mut Rng) -> [Vec<u8>; 2] {
    let mut bytes = rng.bytes(INTRODUCTION_BYTES);
    bytes[..HEADER_BYTES].copy_from_slice(
        &Header {
            kind: PacketType::Connect,
            ..header(rng)
        }
        .to_bytes(),
    );
    let key: Vec<u8> = rng.bytes(80);
    let (connection, echo) = (edgy(rng) as u32, edgy(rng));
    let connect = bytes[..CONNECT_BYTES + TAG_BYTES].to_vec();
    IntroductionParts::write(&mut bytes, connection, echo, key[..].try_into().unwrap());
    let mut read = bytes.clone();
    let parts = IntroductionParts::parse(&mut read).expect("it was written");
    assert_eq!((parts.connection, parts.echo), (connection, echo));
    assert_eq!((&parts.key[..], &*parts.connect), (&key[..], &connect[..]));

    let challenge = Challenge {
        connection,
        mark: rng.bytes(TAG_BYTES).try_into().unwrap(),
        nonce: echo.max(1),
    };
    let mut asked = vec![0; CHALLENGE_BYTES];
    challenge.write(&mut asked);
    assert_eq!(Challenge::parse(&asked), Ok(challenge));
    [bytes, asked]
}

#[test]
fn introductions_and_challenges_come_back_as_they_were_written() {
    let mut rng = Rng(6);
    for _ in 0..5_000 {
        for (kind, mut bytes) in (7..).zip(introducing(&mut rng)) {
            assert!(reencode::all(&bytes)[kind]);
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = edgy(&mut rng) as u8;
            reencode::all(&bytes);
            bytes.truncate(at);
            assert!(!reencode::all(&bytes)[kind]);
        }
    }
}

#[test]
fn bytes_that_nobody_wrote_never_panic() {
    let mut rng = Rng(5);
    let pool = rng.bytes(512);
    for _ in 0..20_000 {
        let n = rng.below(160) as usize;
        let mut bytes = rng.bytes(n);
        // Far enough in to be read: a valid first byte more often than not.
        if let Some(first) = bytes.first_mut() {
            *first = match rng.below(4) {
                0 => *first,
                1 => 0x12,
                2 => 1,
                _ => *first & 15,
            };
        }
        reencode::all(&bytes);
        // A valid packet with a few bytes changed, cut or added.
        let (_, _, _, mut bytes) = packet(&mut rng, &pool);
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = edgy(&mut rng) as u8;
        }
        let n = rng.below(bytes.len() as u64 + 20) as usize;
        bytes.resize(n, 0);
        reencode::all(&bytes);
    }
}
