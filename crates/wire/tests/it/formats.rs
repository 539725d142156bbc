//! Each format against bytes that were written by hand from its table, at
//! every length, and at the edges of its fields.

use crate::common::hex;
use portolan_wire::{
    ACK_BYTES, ADDRESS_BYTES, ADDRESS_VERSION, Ack, Address, BITMAP_WORDS_MAX, BODY_BYTES,
    CHALLENGE_BYTES, CONNECT_BYTES, CONNECT_CLEAR_BYTES, Challenge, Connect, ConnectIds,
    EndpointId, Flags, HEAD_BYTES, HEADER_BYTES, Header, INTRODUCTION_BYTES, IntroductionParts,
    KeyAddress, Life, MessageNo, PacketNo, PacketType, REFUSE_BYTES, TAG_BYTES, VERSION, WireError,
};

/// Every shorter input is truncated, never a panic.
fn every_truncation<T: std::fmt::Debug>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Result<T, WireError>,
) {
    for end in 0..bytes.len() {
        let got = parse(&bytes[..end]).expect_err("shorter than its fields");
        assert_eq!(got, WireError::Truncated, "{end} of {}", bytes.len());
    }
}

#[test]
fn sizes_are_what_was_promised() {
    assert_eq!(HEADER_BYTES, 12);
    assert_eq!((HEAD_BYTES, BODY_BYTES, REFUSE_BYTES), (20, 12, 8));
    const { assert!(HEADER_BYTES + HEAD_BYTES + TAG_BYTES <= 56, "first packet") };
    const { assert!(HEADER_BYTES + BODY_BYTES + TAG_BYTES <= 40, "further ones") };
    assert_eq!((ACK_BYTES, BITMAP_WORDS_MAX), (28, 8));
    assert_eq!(ADDRESS_BYTES, 64);
    assert_eq!((CONNECT_CLEAR_BYTES, CONNECT_BYTES), (52, 100));
    assert_eq!((INTRODUCTION_BYTES, CHALLENGE_BYTES), (232, 36));
    assert_eq!((VERSION, ADDRESS_VERSION), (1, 1));
}

fn header() -> (Header, Vec<u8>) {
    let header = Header {
        kind: PacketType::Data,
        flags: Flags::NONE
            .with(Flags::ACK_WANTED, true)
            .with(Flags::KEY_PHASE, false)
            .with(Flags::HAS_ACK, true),
        path: 7,
        connection: 0x0403_0201,
        number: 0x0807_0605,
    };
    (header, hex("12 05 07 00 01020304 05060708"))
}

/// Checks P2.1.
#[test]
fn header_stands_as_its_table_says() {
    let (header, bytes) = header();
    assert_eq!(header.to_bytes()[..], bytes);
    assert_eq!(Header::parse(&bytes), Ok(header));
    every_truncation(&bytes, Header::parse);
    let connect = Header {
        kind: PacketType::Connect,
        flags: Flags::KEY_PHASE,
        path: 0,
        connection: 0,
        number: 1,
    };
    let bytes = hex("11 02 00 00 00000000 01000000");
    assert_eq!(connect.to_bytes()[..], bytes);
    assert_eq!(Header::parse(&bytes), Ok(connect));
}

/// Checks P2.2, P2.3.
#[test]
fn header_refuses_what_it_does_not_define() {
    let (_, good) = header();
    for first in 0..=255 {
        let mut bytes = good.clone();
        bytes[0] = first;
        let want = match (first >> 4, first & 15) {
            (1, 1..=4) => None,
            (1, _) => Some(WireError::Unknown(first)),
            (version, _) => Some(WireError::Version(version)),
        };
        assert_eq!(Header::parse(&bytes).err(), want, "first {first:#x}");
    }
    for flags in 0..=255 {
        let mut bytes = good.clone();
        bytes[1] = flags;
        let want = (flags > 63).then_some(WireError::Unknown(flags));
        assert_eq!(Header::parse(&bytes).err(), want, "flags {flags:#x}");
    }
    for reserved in 1..=255 {
        let mut bytes = good.clone();
        bytes[3] = reserved;
        assert_eq!(Header::parse(&bytes), Err(WireError::Malformed));
    }
}

#[test]
fn flags() {
    let both = Flags::ACK_WANTED.with(Flags::HAS_ACK, true);
    assert!(both.has(Flags::ACK_WANTED) && both.has(Flags::HAS_ACK) && both.has(both));
    assert!(!both.has(Flags::KEY_PHASE));
    assert!(!Flags::HAS_ACK.has(both), "all bits, not any");
    assert!(both.has(Flags::NONE) && !Flags::NONE.has(Flags::ACK_WANTED));
    assert_eq!(both.with(Flags::KEY_PHASE, false), both);
    assert_eq!(both.with(Flags::HAS_ACK, true), both);
    assert_eq!(Flags::default(), Flags::NONE);
}

fn ack(words: u8) -> (Ack, Vec<u8>) {
    let mut bitmap = [0; BITMAP_WORDS_MAX];
    let mut bytes =
        format!("03 {words:02x} 0102 01020304 11121314 21222324 31323334 41424344 51525354");
    for w in 0..words.min(8) {
        bitmap[w as usize] = u64::from_le_bytes([w, 2, 3, 4, 5, 6, 7, 8]);
        bytes += &format!("{w:02x}020304 05060708");
    }
    let ack = Ack {
        path: 3,
        delay: 0x0201,
        ce: 0x0403_0201,
        largest: 0x1413_1211,
        base: 0x2423_2221,
        packet_limit: 0x3433_3231,
        credit: [0x4443_4241, 0x5453_5251],
        words,
        bitmap,
    };
    (ack, hex(&bytes))
}

/// Checks P2.11.
#[test]
fn ack_stands_as_its_table_says() {
    for words in 0..=8 {
        let (ack, mut bytes) = ack(words);
        assert_eq!(ack.bytes(), 28 + 8 * words as usize);
        let mut out = vec![0xff; bytes.len() + 1];
        ack.write(&mut out);
        assert_eq!(out.pop(), Some(0xff));
        assert_eq!(out, bytes);
        every_truncation(&bytes, Ack::parse);
        // Nothing need follow.
        assert_eq!(Ack::parse(&bytes), Ok((ack, ack.bytes())));
        assert_eq!(Ack::length(&bytes), Ok(ack.bytes()));
        bytes.extend([9; 3]);
        assert_eq!(Ack::parse(&bytes), Ok((ack, ack.bytes())));
        let bare = Ack {
            words: 0,
            bitmap: [0; 8],
            ..ack
        };
        assert_eq!(Ack::without_bitmap(bytes.first_chunk().unwrap()), bare);
    }
}

#[test]
fn ack_refuses_too_long_a_bitmap() {
    for words in 9..=255 {
        let (_, mut bytes) = ack(words);
        bytes.resize(4096, 0);
        assert_eq!(Ack::parse(&bytes), Err(WireError::Malformed));
    }
}

fn address() -> (Address, Vec<u8>) {
    let address = Address {
        port: 0x0201,
        ip: core::array::from_fn(|i| 0x10 + i as u8),
        id: EndpointId(0x3736_3534_3332_3130),
        life: Life(0x4746_4544_4342_4140),
        host: 0x5756_5554_5352_5150,
    };
    let bytes = hex(
        "01 00 0102 101112131415161718191a1b1c1d1e1f 3031323334353637 4041424344454647
         00000000000000000000000000000000 5051525354555657 00000000",
    );
    (address, bytes)
}

/// Checks P3.10.
#[test]
fn address_stands_as_its_table_says() {
    let (address, bytes) = address();
    assert_eq!(address.to_bytes()[..], bytes);
    assert_eq!(Address::parse(&bytes), Ok(address));
    every_truncation(&bytes, Address::parse);
}

/// Checks P3.10.
#[test]
fn an_address_with_a_key_stands_as_its_table_says() {
    let address = KeyAddress {
        port: 0x0201,
        ip: core::array::from_fn(|i| 0x10 + i as u8),
        key: core::array::from_fn(|i| 0x80 + i as u8),
        host: 0x5857_5655_5453_5251,
    };
    let bytes = address.to_bytes();
    assert_eq!(bytes[..4], [1, 1, 1, 2]);
    assert_eq!(bytes[4..20], address.ip);
    assert_eq!(bytes[20..52], address.key);
    assert_eq!(bytes[52..60], address.host.to_le_bytes());
    assert_eq!(bytes[60..], [0; 4]);
    assert_eq!(KeyAddress::parse(&bytes), Ok(address));
    every_truncation(&bytes, KeyAddress::parse);
    assert_eq!(Address::parse(&bytes), Err(WireError::Unknown(1)));
    for (at, value, error) in [
        (0, 2, WireError::Version(2)),
        (1, 0, WireError::Unknown(0)),
        (1, 2, WireError::Unknown(2)),
        (60, 1, WireError::Malformed),
        (63, 1, WireError::Malformed),
    ] {
        let mut bytes = bytes;
        bytes[at] = value;
        assert_eq!(KeyAddress::parse(&bytes), Err(error), "{at}");
    }
}

/// Checks P3.10.
#[test]
fn address_refuses_what_it_does_not_define() {
    let (_, good) = address();
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Address::parse(&bytes)
    };
    for value in (0..=255).filter(|v| *v != 1) {
        assert_eq!(with(0, value), Err(WireError::Version(value)));
    }
    for value in 1..=255 {
        assert_eq!(with(1, value), Err(WireError::Unknown(value)));
    }
    for at in (36..52).chain(60..64) {
        assert_eq!(with(at, 1), Err(WireError::Malformed), "zero at {at}");
    }
    for at in (2..36).chain(52..60) {
        assert!(with(at, 0xee).is_ok(), "free at {at}");
    }
}

fn ids() -> (ConnectIds, Vec<u8>) {
    let ids = ConnectIds {
        from: EndpointId(0x1716_1514_1312_1110),
        from_life: Life(0x2726_2524_2322_2120),
        to: EndpointId(0x3736_3534_3332_3130),
        to_life: Life(0x4746_4544_4342_4140),
        number: PacketNo(0x5756_5554_5352_5150),
    };
    let bytes = hex(
        "11 00 00 00 00000000 50515253 1011121314151617 2021222324252627
         3031323334353637 4041424344454647 5051525354555657",
    );
    (ids, bytes)
}

/// Checks P2.26.
#[test]
fn connect_ids_stand_as_their_table_says() {
    let (ids, bytes) = ids();
    let mut out = [0; CONNECT_CLEAR_BYTES];
    out[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
    ids.write(&mut out);
    assert_eq!(out[..], bytes);
    assert_eq!(ConnectIds::parse(&bytes), Ok(ids));
    every_truncation(&bytes, ConnectIds::parse);
}

/// Checks P2.27.
#[test]
fn connect_ids_agree_with_their_header() {
    let (_, good) = ids();
    for at in 4..12 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert_eq!(ConnectIds::parse(&bytes), Err(WireError::Malformed), "{at}");
    }
    for at in 44..48 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert_eq!(ConnectIds::parse(&bytes), Err(WireError::Malformed), "{at}");
    }
    for at in 48..52 {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        assert!(ConnectIds::parse(&bytes).is_ok(), "upper half at {at}");
    }
}

fn connect() -> (Connect, Vec<u8>) {
    let connect = Connect {
        nonce: 0x1716_1514_1312_1110,
        echo: 0x2726_2524_2322_2120,
        first_packet: PacketNo(0x3736_3534_3332_3130),
        connection: 0x4342_4140,
        first_message: MessageNo(0x5352_5150),
        credit: [0x6362_6160, 0x7372_7170],
        window: 0x8180,
        packet_max: 0x9190,
        flows: 0xa1a0,
        settled: true,
    };
    let bytes = hex(
        "1011121314151617 2021222324252627 3031323334353637 40414243 50515253 60616263
         70717273 8081 9091 a0a1 0100",
    );
    (connect, bytes)
}

/// Checks P2.26.
#[test]
fn connect_stands_as_its_table_says() {
    let (connect, bytes) = connect();
    assert_eq!(bytes.len(), CONNECT_BYTES - CONNECT_CLEAR_BYTES);
    let mut out = [0xff; CONNECT_BYTES - CONNECT_CLEAR_BYTES];
    connect.write(&mut out);
    assert_eq!(out[..], bytes);
    assert_eq!(Connect::parse(&bytes), Ok(connect));
    every_truncation(&bytes, Connect::parse);
}

/// Checks P2.27.
#[test]
fn connect_refuses_no_nonce_no_flow_and_what_is_reserved() {
    let (_, good) = connect();
    for zero in [0..8, 44..46] {
        let mut bytes = good.clone();
        bytes[zero].fill(0);
        assert_eq!(Connect::parse(&bytes), Err(WireError::Malformed));
    }
    for (at, value) in [(46, 2), (46, 3), (46, 0x81), (47, 1)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        assert_eq!(Connect::parse(&bytes), Err(WireError::Malformed));
    }
    let mut bytes = good;
    bytes[8..16].fill(0);
    bytes[46] = 0;
    let first = Connect::parse(&bytes).expect("the echo may be unknown");
    assert!(first.echo == 0 && !first.settled);
}

/// A connect packet with its tag.
fn whole_connect() -> Vec<u8> {
    [ids().1, connect().1, vec![0x55; TAG_BYTES]].concat()
}

const KEY: [u8; 80] = {
    let mut key = [0; 80];
    let mut at = 0;
    while at < key.len() {
        key[at] = 0x80 + at as u8;
        at += 1;
    }
    key
};

fn introduction() -> Vec<u8> {
    let front = hex("13 00 00 00 01020304 00000000 1011121314151617");
    [&front[..], &KEY, &whole_connect(), &[0x66; TAG_BYTES]].concat()
}

/// Checks P4.13.
#[test]
fn introductions_stand_as_their_table_says() {
    let mut bytes = introduction();
    let mut out = vec![0xff; INTRODUCTION_BYTES];
    let connect = whole_connect();
    out[..connect.len()].copy_from_slice(&connect);
    let echo = 0x1716_1514_1312_1110;
    let (marked, mark) = IntroductionParts::write(&mut out, 0x0403_0201, echo, &KEY);
    assert_eq!(marked, &bytes[..216]);
    assert_eq!(mark.len(), TAG_BYTES);
    mark.fill(0x66);
    assert_eq!(out, bytes);

    let (marked, mark) = IntroductionParts::marked(&bytes).unwrap();
    assert_eq!((marked, mark), (&introduction()[..216], &[0x66; TAG_BYTES]));
    let parts = IntroductionParts::parse(&mut bytes).unwrap();
    assert_eq!((parts.connection, parts.echo), (0x0403_0201, echo));
    assert_eq!((parts.key, &*parts.connect), (&KEY, &connect[..]));
}

/// Checks P4.13.
#[test]
fn introductions_have_one_length() {
    let whole = introduction();
    for length in (0..=300).filter(|length| *length != INTRODUCTION_BYTES) {
        let mut bytes = whole.clone();
        bytes.resize(length, 0);
        assert!(IntroductionParts::marked(&bytes).is_err(), "{length}");
        let got = IntroductionParts::parse(&mut bytes).err();
        assert_eq!(got, Some(WireError::Truncated), "{length}");
    }
}

/// A header that says no more than its type and a connection number.
fn says_nothing_else(good: &[u8], kind: u8, parse: impl Fn(&mut [u8]) -> Result<(), WireError>) {
    for first in (0..=255).filter(|first| *first != 0x10 + kind) {
        let mut bytes = good.to_vec();
        bytes[0] = first;
        assert!(parse(&mut bytes).is_err(), "first {first:#x}");
    }
    for at in [1, 2, 3, 8, 9, 10, 11] {
        for bit in 0..8 {
            let mut bytes = good.to_vec();
            bytes[at] ^= 1 << bit;
            assert!(parse(&mut bytes).is_err(), "bit {bit} of {at}");
        }
    }
    for at in 4..8 {
        let mut bytes = good.to_vec();
        bytes[at] ^= 0xff;
        assert_eq!(parse(&mut bytes), Ok(()), "connection number");
    }
}

/// Checks P4.13.
#[test]
fn introductions_refuse_what_they_do_not_define() {
    let parse = |bytes: &mut [u8]| IntroductionParts::parse(bytes).map(drop);
    says_nothing_else(&introduction(), 3, parse);
    // Within: a connect packet, of which more is said only once the mark was seen.
    for first in (0..=255).filter(|first| *first != 0x11) {
        let mut bytes = introduction();
        bytes[100] = first;
        assert!(parse(&mut bytes).is_err(), "first {first:#x}");
    }
    let mut bytes = introduction();
    bytes[12..20].fill(0);
    assert_eq!(IntroductionParts::parse(&mut bytes).unwrap().echo, 0);
}

fn challenge() -> (Challenge, Vec<u8>) {
    let challenge = Challenge {
        connection: 0x0403_0201,
        mark: core::array::from_fn(|i| 0x20 + i as u8),
        nonce: 0x3736_3534_3332_3130,
    };
    let bytes =
        hex("14 00 00 00 01020304 00000000 202122232425262728292a2b2c2d2e2f 3031323334353637");
    (challenge, bytes)
}

/// Checks P4.14.
#[test]
fn challenges_stand_as_their_table_says() {
    let (challenge, bytes) = challenge();
    let mut out = vec![0xff; CHALLENGE_BYTES + 1];
    challenge.write(&mut out);
    assert_eq!(out.pop(), Some(0xff));
    assert_eq!(out, bytes);
    assert_eq!(Challenge::parse(&bytes), Ok(challenge));
    every_truncation(&bytes, Challenge::parse);
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Challenge::parse(&longer), Err(WireError::Truncated));
    says_nothing_else(&bytes, 4, |bytes| Challenge::parse(bytes).map(drop));
    let mut nothing = bytes;
    nothing[28..].fill(0);
    assert_eq!(Challenge::parse(&nothing), Err(WireError::Malformed));
}

#[test]
fn errors_speak() {
    let said = [
        WireError::Truncated,
        WireError::Version(9),
        WireError::Unknown(0x3f),
        WireError::Malformed,
    ]
    .map(|e| e.to_string());
    assert_eq!(
        said,
        [
            "packet ends before its fields do",
            "wire version 9, this side speaks 1",
            "undefined type, kind or flag 0x3f",
            "fields contradict each other",
        ]
    );
}
