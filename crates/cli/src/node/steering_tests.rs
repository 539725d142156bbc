//! The XDP program, run by the kernel on packets of ours. Needs root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use aya::{TestRun, TestRunOptions};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::*;

const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

const UDP_PORT: u16 = 0x1234;
const LEN_MAX: u32 = 1_792;
const OWN: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1)),
];

/// The program with a host port on a queue at [`UDP_PORT`] of [`OWN`], and its
/// socket: the map lets go of one that is closed.
fn steering(queue: u32) -> (Steering, OwnedFd) {
    let mut steering = Steering::load(None).unwrap();
    // It need not be bound to anything.
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::XDP, SocketType::RAW, flags, None).unwrap();
    steering
        .add(UDP_PORT, &OWN, queue, LEN_MAX, &socket)
        .unwrap();
    (steering, socket)
}

fn verdict(steering: &Steering, packet: &[u8]) -> u32 {
    let options = TestRunOptions {
        data_in: Some(packet),
        ..TestRunOptions::default()
    };
    steering.program().test_run(options).unwrap().return_value
}

/// A packet of ours with `payload` bytes, over IPv4 or IPv6.
fn packet(v6: bool, payload: usize) -> Vec<u8> {
    let udp_len = (8 + payload) as u16;
    let mut bytes = vec![2; 12];
    if v6 {
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        bytes.extend(udp_len.to_be_bytes());
        bytes.extend([17, 64]);
        bytes.extend([0xfd; 16]);
        bytes.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
    } else {
        bytes.extend([0x08, 0, 0x45, 0]);
        bytes.extend((20 + udp_len).to_be_bytes());
        bytes.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 9, 10, 0, 0, 2]);
    }
    bytes.extend(4000_u16.to_be_bytes());
    bytes.extend(UDP_PORT.to_be_bytes());
    bytes.extend(udp_len.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.push(0x12);
    bytes.resize(bytes.len() + payload - 1, 0);
    bytes
}

/// What the program has to say, from the rules in words: what is no whole UDP
/// header to a host port of an own address goes to the kernel; of the others
/// only packets of ours are steered, and the rest is dropped.
fn expected(packet: &[u8]) -> u32 {
    let at = |at: usize| packet.get(at).copied();
    let (udp, own) = match (at(12), at(13)) {
        (Some(0x08), Some(0)) => {
            let plain = at(14) == Some(0x45)
                && at(23) == Some(17)
                && at(20).is_some_and(|b| b & 0x3f == 0)
                && at(21) == Some(0);
            let to = packet.get(30..34);
            let own = to == Some(&[10, 0, 0, 1]) || to == Some(&[10, 0, 0, 2]);
            (34, plain && own)
        }
        (Some(0x86), Some(0xdd)) => {
            let to = packet.get(38..54);
            let IpAddr::V6(own) = OWN[2] else {
                unreachable!()
            };
            (54, at(20) == Some(17) && to == Some(&own.octets()))
        }
        _ => return PASS,
    };
    let Some(header) = packet.get(udp..udp + 8) else {
        return PASS;
    };
    if !own || header[2..4] != UDP_PORT.to_be_bytes() {
        return PASS;
    }
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let wire = &packet[udp + 8..];
    // Header and tag: 12 and 16 bytes.
    if len < 8 + 28 || wire.len() < 28 {
        return DROP;
    }
    let known = wire[0] == 0x11 || wire[0] == 0x12;
    if known && wire[1] < 32 && wire[3] == 0 {
        REDIRECT
    } else {
        DROP
    }
}

#[test]
fn thousands_of_damaged_packets_get_the_verdict_of_the_rules() {
    let (steering, _socket) = steering(0);
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    let mut seen = [0; 5];
    for round in 0..20_000 {
        let mut bytes = packet(round % 2 == 1, 28 + random(60));
        for _ in 0..random(4) {
            // Mostly in the headers, where it matters.
            let anywhere = random(4) == 0;
            let at = random(if anywhere { bytes.len() } else { 75 });
            let at = at.min(bytes.len() - 1);
            bytes[at] = match random(3) {
                0 => random(256) as u8,
                1 => bytes[at] ^ (1 << random(8)),
                _ => 0,
            };
        }
        if random(3) == 0 {
            // The kernel runs it on an Ethernet header at least.
            let len = 14 + random(bytes.len() - 13);
            bytes.truncate(len);
        }
        let found = verdict(&steering, &bytes);
        assert_eq!(found, expected(&bytes), "round {round}: {bytes:02x?}");
        seen[found as usize] += 1;
    }
    for of in [DROP, PASS, REDIRECT] {
        assert!(seen[of as usize] > 1_000, "{seen:?}");
    }
}

#[test]
fn what_is_dropped_is_counted_by_reason() {
    let (mut steering, _socket) = steering(0);
    for v6 in [false, true] {
        let good = packet(v6, 40);
        let wire = good.len() - 40;
        assert_eq!(verdict(&steering, &good), REDIRECT);
        let mut other = good.clone();
        other[wire] = 0x22;
        assert_eq!(verdict(&steering, &other), DROP);
        assert_eq!(verdict(&steering, &packet(v6, 27)), DROP);
    }
    let counted = Counters {
        to_kernel: 0,
        bad_version: 2,
        malformed: 2,
    };
    assert_eq!(steering.counters(UDP_PORT), Some(counted));
}

#[test]
fn a_packet_on_another_queue_goes_to_the_kernel() {
    let (mut steering, _socket) = steering(3);
    assert_eq!(verdict(&steering, &packet(false, 40)), PASS);
    assert_eq!(steering.counters(UDP_PORT).unwrap().to_kernel, 1);
}

#[test]
fn a_packet_longer_than_a_chunk_goes_to_the_kernel() {
    let (mut steering, _socket) = steering(0);
    for v6 in [false, true] {
        let headers = packet(v6, 40).len() - 40;
        let longest = LEN_MAX as usize - headers;
        assert_eq!(verdict(&steering, &packet(v6, longest)), REDIRECT);
        assert_eq!(verdict(&steering, &packet(v6, longest + 1)), PASS);
    }
    assert_eq!(steering.counters(UDP_PORT).unwrap().to_kernel, 2);
}

#[test]
fn who_has_left_is_not_steered_to() {
    let (mut steering, _socket) = steering(0);
    let mut bad = packet(false, 40);
    bad[42] = 0;
    assert_eq!(verdict(&steering, &bad), DROP);
    steering.remove(UDP_PORT);
    assert_eq!(steering.counters(UDP_PORT), None);
    assert_eq!(verdict(&steering, &packet(false, 40)), PASS);
    assert_eq!(verdict(&steering, &bad), PASS);
}
