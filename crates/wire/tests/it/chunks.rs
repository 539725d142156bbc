//! Chunks: scripts of bytes, edges of fields, truncation.

use crate::common::hex;
use portolan_wire::{
    ARGS_MAX, BODY_BYTES, Body, Chunk, Chunks, HEAD_BYTES, Head, MessageNo, NETWORKS_MAX, Network,
    Priority, WireError,
};

const HEAD: &str = "01 02 0301 04010203 0501 0300 0300000000000000
    a0a1a2a3a4a5a6a7 b0b1b2b3b4b5b6b7 616263";
const BODY: &str = "0a 00 0301 04010203 06010203 646566";
const REFUSE: &str = "0b 00 0301 04010203";
const CLOSE: &str = "04 000000";
const REMOVED: &str = "04 010000";
const PING: &str = "05 000000";
const STOPPED: &str = "07 00 0102 0380 4005";

const MESSAGE: MessageNo = MessageNo(0x0302_0104);

fn head<'a>(args: &'a [u8], payload: &'a [u8]) -> Head<'a> {
    Head {
        priority: Priority::Request,
        flow: 0x0103,
        message: MESSAGE,
        port: 0x0105,
        total: payload.len() as u64,
        args,
        payload,
    }
}

fn body(payload: &[u8]) -> Body<'_> {
    Body {
        priority: Priority::Reply,
        flow: 0x0103,
        message: MESSAGE,
        fragment: 0x0302_0106,
        payload,
    }
}

const NETWORKS: &str = "06 02 0000
    00000000 00000000 0000ffff 0a000102 0201 d005
    fd000000 00000000 00000000 00000001 0403 4023";
const FIRST: Network = Network {
    ip: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 1, 2],
    port: 0x0102,
    packet_max: 1488,
};
const SECOND: Network = Network {
    ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    port: 0x0304,
    packet_max: 9024,
};

const REFUSED: Chunk<'static> = Chunk::Refuse {
    priority: Priority::Reply,
    flow: 0x0103,
    message: MESSAGE,
};

fn walk(bytes: &[u8]) -> Vec<Result<Chunk<'_>, WireError>> {
    Chunks::new(bytes).take(bytes.len() + 1).collect()
}

fn first(bytes: &[u8]) -> Result<Chunk<'_>, WireError> {
    Chunks::new(bytes).next().expect("a chunk or an error")
}

/// Checks P2.19.
#[test]
fn every_chunk_stands_as_its_table_says() {
    let args = hex("a0a1a2a3a4a5a6a7 b0b1b2b3b4b5b6b7");
    for (text, chunk) in [
        (HEAD, Chunk::Head(head(&args, b"abc"))),
        (BODY, Chunk::Body(body(b"def"))),
        (REFUSE, REFUSED),
        (CLOSE, Chunk::Close { alive: false }),
        (REMOVED, Chunk::Close { alive: true }),
        (PING, Chunk::Ping),
        (
            STOPPED,
            Chunk::Stopped {
                serial: 0x0201,
                flows: [0x8003, 0x0540],
            },
        ),
        (
            NETWORKS,
            Chunk::Networks(&[FIRST.to_bytes(), SECOND.to_bytes()]),
        ),
    ] {
        let bytes = hex(text);
        assert_eq!(walk(&bytes), [Ok(chunk)]);
        let mut out = vec![0xff; bytes.len() + 1];
        assert_eq!(chunk.write(&mut out), bytes.len());
        assert_eq!(out.pop(), Some(0xff), "wrote past the chunk");
        assert_eq!(out, bytes);
    }
}

#[test]
fn one_whole_message_is_told_from_all_else() {
    let args = [7; 16];
    let whole = head(&args, b"payload");
    let mut bytes = vec![0; whole.bytes()];
    whole.write(&mut bytes);
    assert_eq!(Head::whole(&bytes), Some(whole));
    for len in 0..bytes.len() {
        assert_eq!(Head::whole(&bytes[..len]), None, "{len}");
    }
    // Something behind it, another kind, and a message that goes on in bodies.
    let behind = [&bytes[..], &[0]].concat();
    assert_eq!(Head::whole(&behind), None);
    let mut other = bytes.clone();
    other[0] += 1;
    assert_eq!(Head::whole(&other), None);
    let part = Head {
        total: 640,
        payload: &[9; 64],
        ..whole
    };
    let mut bytes = vec![0; part.bytes()];
    part.write(&mut bytes);
    assert_eq!(Head::whole(&bytes), None);
}

#[test]
fn headers_are_written_apart_from_their_payload() {
    let args = hex("a0a1a2a3a4a5a6a7 b0b1b2b3b4b5b6b7");
    let head = head(&args, b"abc");
    let bytes = hex(HEAD);
    assert_eq!(head.bytes(), bytes.len());
    let mut out = vec![0xff; bytes.len()];
    let payload_at = head.write_header(&mut out);
    assert_eq!(payload_at, HEAD_BYTES + 16);
    assert_eq!(out[..payload_at], bytes[..payload_at]);
    assert_eq!(out[payload_at..], [0xff; 3]);

    // A part of the payload may be left to bodies after the header stands.
    let mut out = bytes.clone();
    Head::set_length(&mut out, 0x0201);
    assert_eq!(out[10..12], [1, 2]);
    out[10..12].copy_from_slice(&bytes[10..12]);
    assert_eq!(out, bytes);

    let mut out = [0xff; BODY_BYTES + 1];
    body(b"def").write_header(&mut out);
    assert_eq!(out[..BODY_BYTES], hex(BODY)[..BODY_BYTES]);
    assert_eq!(out[BODY_BYTES], 0xff);
}

/// Checks P2.20, P2.25.
#[test]
fn chunks_follow_each_other_up_to_a_body_or_padding() {
    let args = hex("a0a1a2a3a4a5a6a7 b0b1b2b3b4b5b6b7");
    let first = Chunk::Head(head(&args, b"abc"));
    let packet = |texts: &[&str]| hex(&texts.concat());
    assert_eq!(walk(&[]), []);
    assert_eq!(
        walk(&packet(&[HEAD, REFUSE, PING, HEAD, CLOSE])),
        [
            first,
            REFUSED,
            Chunk::Ping,
            first,
            Chunk::Close { alive: false }
        ]
        .map(Ok)
    );
    let rest = [b"def".to_vec(), hex(HEAD)].concat();
    assert_eq!(
        walk(&packet(&[PING, BODY, HEAD])),
        [Ok(Chunk::Ping), Ok(Chunk::Body(body(&rest)))]
    );
    // One byte of padding is enough, and whatever follows it is ignored.
    for pad in ["00", "0000", "08", "00 ff 01 02"] {
        assert_eq!(walk(&packet(&[HEAD, pad])), [Ok(first)], "{pad}");
    }
    // Nothing is read after the first error.
    assert_eq!(
        walk(&packet(&[PING, "17 00", PING])),
        [Ok(Chunk::Ping), Err(WireError::Unknown(0x17))]
    );
}

/// Checks P2.25.
#[test]
fn every_truncation_is_an_error() {
    for text in [HEAD, REFUSE, CLOSE, REMOVED, PING, NETWORKS] {
        let bytes = hex(text);
        for end in 1..bytes.len() {
            assert_eq!(walk(&bytes[..end]), [Err(WireError::Truncated)], "{end}");
        }
    }
    // A body reaches to the packet's end and has at least one byte.
    let bytes = hex(BODY);
    for end in 1..BODY_BYTES {
        assert_eq!(walk(&bytes[..end]), [Err(WireError::Truncated)], "{end}");
    }
    assert_eq!(walk(&bytes[..BODY_BYTES]), [Err(WireError::Malformed)]);
    assert_eq!(
        walk(&bytes[..BODY_BYTES + 1]),
        [Ok(Chunk::Body(body(b"d")))]
    );
}

#[test]
fn networks_are_1_to_15_and_their_fields_are_read_back() {
    let all = vec![FIRST.to_bytes(); NETWORKS_MAX + 1];
    for count in 0..=NETWORKS_MAX + 1 {
        let mut bytes = vec![6, count as u8, 0, 0];
        bytes.extend(all[..count].as_flattened());
        let expected = match count {
            1..=NETWORKS_MAX => Ok(Chunk::Networks(&all[..count])),
            _ => Err(WireError::Malformed),
        };
        assert_eq!(walk(&bytes), [expected], "{count}");
    }
    for network in [FIRST, SECOND] {
        assert_eq!(Network::parse(&network.to_bytes()), network);
    }
    for (at, value) in [(0, 14), (2, 1), (3, 1)] {
        let mut bytes = hex(NETWORKS);
        bytes[at] = value;
        assert_eq!(walk(&bytes), [Err(WireError::Malformed)], "{at}");
    }
}

/// Checks P2.25.
#[test]
fn first_bytes() {
    for byte in 0..=255_u8 {
        let mut bytes = [0; 64];
        bytes[0] = byte;
        let got = walk(&bytes).into_iter().next();
        let priority = [Priority::Request, Priority::Reply][usize::from(byte >> 3 & 1)];
        match byte {
            0 | 8 => assert_eq!(got, None),
            1 | 9 => assert!(matches!(got, Some(Ok(Chunk::Head(h))) if h.priority == priority)),
            2 | 10 => assert!(matches!(got, Some(Ok(Chunk::Body(b))) if b.priority == priority)),
            3 | 11 => {
                let message = MessageNo(0);
                let flow = 0;
                let refuse = Chunk::Refuse {
                    priority,
                    flow,
                    message,
                };
                assert_eq!(got, Some(Ok(refuse)));
            }
            4 => assert_eq!(got, Some(Ok(Chunk::Close { alive: false }))),
            5 => assert_eq!(got, Some(Ok(Chunk::Ping))),
            7 => {
                let stopped = Chunk::Stopped {
                    serial: 0,
                    flows: [0; 2],
                };
                assert_eq!(got, Some(Ok(stopped)));
            }
            // The three without a message have no priority either.
            12 | 13 | 15 => assert_eq!(got, Some(Err(WireError::Malformed))),
            // None is no list of networks.
            6 | 14 => assert_eq!(got, Some(Err(WireError::Malformed))),
            _ => assert_eq!(got, Some(Err(WireError::Unknown(byte)))),
        }
    }
}

/// Checks P2.25.
#[test]
fn zeros_must_be_zero() {
    for (text, zeros) in [
        (BODY, &[1][..]),
        (REFUSE, &[1]),
        (CLOSE, &[2, 3]),
        (REMOVED, &[2, 3]),
        (PING, &[1, 2, 3]),
        (STOPPED, &[1]),
    ] {
        for &at in zeros {
            let mut bytes = hex(text);
            bytes[at] = 1;
            assert_eq!(first(&bytes), Err(WireError::Malformed), "{text} at {at}");
        }
    }
}

/// Checks P2.25.
#[test]
fn whoever_closes_is_alive_or_is_not() {
    for alive in 2..=255 {
        let mut bytes = hex(CLOSE);
        bytes[1] = alive;
        assert_eq!(first(&bytes), Err(WireError::Malformed), "{alive}");
    }
}

/// Checks P2.25.
#[test]
fn up_to_twenty_argument_words() {
    assert_eq!(ARGS_MAX, 20);
    let args: Vec<u8> = (0..160).collect();
    for words in 0..=20 {
        let head = head(&args[..8 * words], b"xy");
        let mut out = vec![0; head.bytes()];
        assert_eq!(head.write(&mut out), out.len());
        assert_eq!(out[1], words as u8);
        assert_eq!(walk(&out), [Ok(Chunk::Head(head))]);
        assert_eq!(first(&out[..out.len() - 3]), Err(WireError::Truncated));
    }
    for words in 21..=255 {
        let mut bytes = vec![0; 4096];
        bytes[0] = 1;
        bytes[1] = words;
        assert_eq!(first(&bytes), Err(WireError::Malformed), "{words}");
    }
}

/// `length` payload bytes are there; `total` is claimed.
fn head_of(length: usize, total: u64) -> Result<(), WireError> {
    let payload = vec![7; length];
    let head = Head {
        total,
        ..head(&[], &payload)
    };
    let mut out = vec![0; head.bytes()];
    head.write(&mut out);
    let got = first(&out)?;
    assert_eq!(got, Chunk::Head(head));
    Ok(())
}

/// Checks P2.25.
#[test]
fn length_against_total() {
    for length in [0, 1, 63, 64, 65, 127, 128, 1400, 65_472, 65_535] {
        let n = length as u64;
        assert_eq!(head_of(length, n), Ok(()), "whole, {length}");
        // The rest goes on in bodies, which count in whole units.
        let goes_on = if length % 64 == 0 {
            Ok(())
        } else {
            Err(WireError::Malformed)
        };
        for total in [n + 1, n + 64, u64::MAX] {
            assert_eq!(head_of(length, total), goes_on, "{length} of {total}");
        }
        if length > 0 {
            for total in [0, n - 1] {
                assert_eq!(head_of(length, total), Err(WireError::Malformed));
            }
        }
    }
    assert_eq!(Body::UNIT, 64);
}

#[test]
fn length_against_the_bytes_that_are_there() {
    let mut bytes = hex(HEAD);
    bytes[10] = 4;
    bytes[12] = 4;
    assert_eq!(first(&bytes), Err(WireError::Truncated));
    bytes[10..12].fill(0xff);
    bytes[12..20].fill(0xff);
    assert_eq!(first(&bytes), Err(WireError::Truncated));
    // Shorter than what is there: the next chunk starts within.
    let mut bytes = hex("01 00 0000 00000000 0000 0000 0000000000000000 05000000");
    assert_eq!(walk(&bytes).len(), 2);
    bytes[10] = 3;
    bytes[12] = 3;
    assert_eq!(walk(&bytes).len(), 1, "the last byte is padding");
}

#[cfg(debug_assertions)]
mod misuse {
    use super::*;

    #[test]
    #[should_panic(expected = "payload.len()")]
    fn a_payload_that_its_length_field_cannot_hold() {
        let payload = vec![0; 65_536];
        head(&[], &payload).write(&mut vec![0; 70_000]);
    }

    #[test]
    #[should_panic(expected = "args.len()")]
    fn more_argument_words_than_allowed() {
        head(&[0; 168], &[]).write(&mut [0; 300]);
    }

    #[test]
    #[should_panic(expected = "args.len()")]
    fn half_an_argument_word() {
        head(&[0; 12], &[]).write(&mut [0; 300]);
    }
}
