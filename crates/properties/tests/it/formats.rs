//! What others say, read: random bytes, and valid ones with some changed.

use std::net::IpAddr;

use portolan_boot::node::Question;
use portolan_properties::{agent_frames, node_questions, pmi_values, queue_input, xdp_headers};
use portolan_sim::rng::Rng;

const SEEDS: u64 = 20_000;

/// Shows `property`, which returns whether it understood them, each of `valid`,
/// then random bytes, the shortest first, and each of `valid` with a few bytes
/// changed or cut off.
fn harmless(property: fn(&[u8]) -> bool, valid: &[&[u8]]) {
    for bytes in valid {
        assert!(property(bytes), "not understood: {}", bytes.escape_ascii());
    }
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut word = || rng.word() as usize;
        let mut bytes: Vec<u8> = match valid.get(seed as usize % (valid.len() + 1)) {
            Some(valid) => valid.to_vec(),
            None => (0..seed / 64).map(|_| word() as u8).collect(),
        };
        for _ in 0..word() % 4 {
            let at = word() % bytes.len().max(1);
            match (word() % 3, bytes.get_mut(at)) {
                (0, _) => bytes.truncate(at),
                (1, Some(byte)) => *byte ^= 1 << (word() % 8),
                (_, Some(byte)) => *byte = word() as u8,
                (_, None) => {}
            }
        }
        property(&bytes);
    }
}

/// A frame of the stream, behind how it is cut.
fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32 + 1;
    [&[6][..], &length.to_le_bytes(), &[kind], body].concat()
}

#[test]
fn what_agents_are_told_does_no_harm() {
    // A number of a variant, then its fields.
    let packed = |parts: &[&[u8]]| frame(b'P', &parts.concat());
    let address = [&[64][..], &[9; 64]].concat();
    let peer = [&address[..], &[1, 2, 3, 4, 5]].concat();
    let hello =
        br#"{"Hello":{"versions":{"portolan":"1","boot":9,"wire":1},"aes":true,"ip":null}}"#;
    let lanes = b"\x00\x05\x01\x01\x03udp\x00\x01\x00\x03";
    let valid = [
        frame(b'J', hello),
        // From the launcher: a rank has died by signal 9; farewell; a table of two; it
        // for one rank; one that is back; input; the farewell for all; the job's start.
        packed(&[&[0, 2, 3, 1, 18]]),
        packed(&[&[0, 16]]),
        packed(&[&[1, 7, 2], &peer, &peer]),
        packed(&[&[2, 3, 7, 1], &peer]),
        packed(&[&[3, 7], &peer]),
        packed(&[b"\x04\x05line\n"]),
        packed(&[b"\x05\x03P\x00\x10"]),
        frame(b'R', &[1; 20]),
        // From an agent: a rank has ended; its links; its address; its output.
        packed(&[&[0, 14, 3, 1, 0, 8, 1]]),
        packed(&[lanes]),
        packed(&[&[1, 3, 9], &address]),
        packed(&[b"\x02\x03\x01\x04text"]),
        // From and to a rank: its address; two that it has given up; a part of the table.
        [&[6, b'P', 1][..], &address, &[77]].concat(),
        b"\x06P\x04\x02\x03\x01\x05\x01\x00".to_vec(),
        [&[6, b'P', 10, 7, 1][..], &peer].concat(),
    ];
    harmless(agent_frames, &valid.each_ref().map(Vec::as_slice));
}

#[test]
fn what_passes_through_pmi_does_no_harm() {
    let answer = b"cmd=get_result rc=0 value=00ff size=3";
    let body = [&[5; 28][..], &[0, 1, 2, 0, 1], &[1], &[8; 16], &[64]].concat();
    harmless(
        pmi_values,
        &[answer, &body, &[1; 64 + 1], &[1; 64 + 1 + 34]],
    );
}

#[test]
fn what_the_node_service_is_asked_does_no_harm() {
    let open = |at| Question::Open {
        at,
        copy: true,
        one_buffer: false,
        ranks: 3,
        group: at.map(|_| 1 << 63),
    };
    let questions = [
        Question::May,
        open(None),
        open(Some(IpAddr::from([10, 1, 2, 3]))),
        Question::Release {
            number: 0x0607_0809,
        },
    ]
    .map(|question| question.encode());
    // A refusal, with the beginning that questions have too.
    let answer = [&questions[0][..8], b"\x03\x02no"].concat();
    let mut valid: Vec<&[u8]> = questions.iter().map(|question| &question[..]).collect();
    valid.push(&answer);
    harmless(node_questions, &valid);
}

#[test]
fn what_comes_past_the_kernel_does_no_harm() {
    // Behind the beginning: 20 bytes of payload, by IPv4 and IPv6.
    let mut v4 = vec![1, 0xff, 0];
    v4.extend([
        0, 0, 48, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    v4.extend([0, 99, 0xff, 0xfe, 0, 28, 0, 0]);
    v4.extend([7; 20]);
    let mut v6 = vec![2, 10, 0, 0, 0, 0, 0, 28, 17, 64];
    v6.extend([0xfd; 32]);
    v6.extend([0, 99, 0xff, 0xfe, 0, 28, 0, 0]);
    v6.extend([7; 20]);
    harmless(xdp_headers, &[&v4, &v6]);
}

#[test]
fn what_others_of_a_queue_write_does_no_harm() {
    let rings = |bytes: &[u8]| {
        queue_input(bytes);
        true
    };
    harmless(rings, &[]);
}
