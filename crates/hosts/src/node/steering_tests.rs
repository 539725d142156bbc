//! The XDP program, run by the kernel on packets of ours. Needs root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use portolan_link::udp::UdpConfig;
use portolan_link::xdp::{Gate, GateCounters};
use portolan_sys::bpf::SharedWords;
use portolan_sys::inherit::unshare_network;

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

/// Connection numbers that the host port knows, of peers 0 to 2.
const KNOWN: [u32; 3] = [0, 0x1230_0001, 0xfff0_0002];

/// The sockets of a host port: the map lets go of one that is closed, and the
/// program of a port whose socket is.
struct Sockets {
    udp: UdpSocket,
    /// It need not be bound to anything.
    fast: OwnedFd,
}

/// A socket at [`UDP_PORT`].
fn bind() -> UdpSocket {
    let config = UdpConfig {
        port: UDP_PORT,
        ..UdpConfig::default()
    };
    UdpSocket::bind(&config.options()).unwrap()
}

/// The program with a host port on a queue at [`UDP_PORT`] of [`OWN`], in a
/// network of this thread's own; its gate, and its sockets.
fn steering(queue: u32) -> (Steering, OwnedFd, Sockets) {
    unshare_network().unwrap();
    let mut steering = Steering::load().unwrap();
    let (udp, fast) = (bind(), xdp::unbound().unwrap());
    steering.reserve(|| Ok(((), UDP_PORT))).unwrap();
    let gate = steering
        .add((&udp, UDP_PORT), &OWN, queue, LEN_MAX, &fast, None)
        .unwrap();
    (steering, gate, Sockets { udp, fast })
}

/// Its gate, which knows [`KNOWN`].
fn knowing(gate: &OwnedFd) -> Gate {
    let mut gate = Gate::map(gate.as_fd()).unwrap();
    for (peer, number) in (0..).zip(KNOWN) {
        gate.admit(peer, [number].into_iter());
    }
    gate
}

fn verdict(steering: &Steering, packet: &[u8]) -> u32 {
    steering.program.program.try_on(packet).unwrap()
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
/// only packets of ours are steered, those with data if their number `knows`,
/// and the rest is dropped.
fn expected(packet: &[u8], knows: impl Fn(u32) -> bool) -> u32 {
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
    if len < 8 + 28 || wire.len() < 28 || wire[1] >= 64 || wire[3] != 0 {
        return DROP;
    }
    let number = u32::from_le_bytes([wire[4], wire[5], wire[6], wire[7]]);
    match wire[0] {
        0x11 | 0x13 | 0x14 => REDIRECT,
        0x12 if knows(number) => REDIRECT,
        _ => DROP,
    }
}

/// The bit of a gate that stands for a number.
fn bit(number: u32) -> u32 {
    ((number >> 20 << 6) ^ number) & 0x3_ffff
}

/// Numbers below a limit, always the same.
fn random() -> impl FnMut(usize) -> usize {
    let mut state = 1_u64;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    }
}

/// A packet of ours, mostly damaged.
fn damaged(round: u32, random: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let v6 = round % 2 == 1;
    let mut bytes = packet(v6, 28 + random(60));
    let wire = if v6 { 62 } else { 42 };
    // Of types 0 to 5, mostly data.
    if random(4) == 0 {
        bytes[wire] = 0x10 + random(6) as u8;
    }
    let number = match random(8) {
        0 => random(1 << 31) as u32,
        n => KNOWN[n % 3],
    };
    bytes[wire + 4..wire + 8].copy_from_slice(&number.to_le_bytes());
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
    bytes
}

#[test]
fn thousands_of_damaged_packets_get_the_verdict_of_the_rules() {
    let (steering, gate, _socket) = steering(0);
    let gate = knowing(&gate);
    let knows = |number| KNOWN.iter().any(|known| bit(*known) == bit(number));
    let mut random = random();
    let mut seen = [0; 5];
    for round in 0..20_000 {
        let bytes = damaged(round, &mut random);
        let found = verdict(&steering, &bytes);
        let right = expected(&bytes, knows);
        assert_eq!(found, right, "round {round}: {bytes:02x?}");
        seen[found as usize] += 1;
    }
    for of in [DROP, PASS, REDIRECT] {
        assert!(seen[of as usize] > 1_000, "{seen:?}");
    }
    let counted = gate.counters();
    let GateCounters {
        bad_version,
        malformed,
        unknown,
        ..
    } = counted;
    assert_eq!(bad_version + malformed + unknown, seen[DROP as usize]);
    assert_eq!(counted.steered, seen[REDIRECT as usize]);
    assert!(unknown > 1_000, "{counted:?}");
}

#[test]
fn whatever_its_owner_writes_a_gate_only_lets_through_or_drops_data() {
    let (steering, gate, _socket) = steering(0);
    let gate = SharedWords::map(gate.as_fd(), GATE_WORDS).unwrap();
    let words = gate.words();
    let mut random = random();
    let mut seen = [0; 5];
    for round in 0..10_000 {
        for _ in 0..64 {
            let word = (random(1 << 31) << 33 | random(1 << 31)) as u64;
            words[random(GATE_WORDS)].store(word, Relaxed);
        }
        words[8].store(random(3) as u64, Relaxed);
        let knows = |number| {
            let (word, bit) = (16 + bit(number) / 64, bit(number) % 64);
            words[8].load(Relaxed) == 0 || words[word as usize].load(Relaxed) >> bit & 1 == 1
        };
        let bytes = damaged(round, &mut random);
        let found = verdict(&steering, &bytes);
        assert_eq!(found, expected(&bytes, knows), "round {round}");
        seen[found as usize] += 1;
    }
    for of in [DROP, PASS, REDIRECT] {
        assert!(seen[of as usize] > 1_000, "{seen:?}");
    }
}

#[test]
fn numbers_that_were_given_out_pass_until_they_are_withdrawn() {
    let (steering, gate, _socket) = steering(0);
    let mut gate = Gate::map(gate.as_fd()).unwrap();
    let of = |number: u32| {
        let mut bytes = packet(false, 40);
        bytes[46..50].copy_from_slice(&number.to_le_bytes());
        verdict(&steering, &bytes)
    };
    // Nobody has said anything yet.
    assert_eq!([of(0), of(7)], [REDIRECT; 2]);
    gate.admit(1, [7, 8].into_iter());
    assert_eq!([7, 8, 0, 9].map(of), [REDIRECT, REDIRECT, DROP, DROP]);
    // Two peers' numbers share a bit.
    let twin = 7 ^ (5 << 20) ^ (5 << 6);
    gate.admit(2, [twin].into_iter());
    gate.admit(1, [8, 9].into_iter());
    assert_eq!([7, twin, 8, 9].map(of), [REDIRECT; 4]);
    gate.admit(2, [].into_iter());
    assert_eq!([7, twin, 8, 9].map(of), [DROP, DROP, REDIRECT, REDIRECT]);
    // Who connects has none, nor has who introduces itself or answers that.
    for (kind, found) in [
        (0, DROP),
        (1, REDIRECT),
        (3, REDIRECT),
        (4, REDIRECT),
        (5, DROP),
    ] {
        let mut other = packet(false, 88);
        other[42] = 0x10 | kind;
        assert_eq!(verdict(&steering, &other), found, "type {kind}");
    }
    assert_eq!(gate.counters().unknown, 4);
}

#[test]
fn what_is_dropped_is_counted_by_reason() {
    let (steering, gate, _socket) = steering(0);
    let gate = knowing(&gate);
    for v6 in [false, true] {
        let good = packet(v6, 40);
        let wire = good.len() - 40;
        assert_eq!(verdict(&steering, &good), REDIRECT);
        let mut other = good.clone();
        other[wire] = 0x22;
        assert_eq!(verdict(&steering, &other), DROP);
        assert_eq!(verdict(&steering, &packet(v6, 27)), DROP);
        let mut strange = good.clone();
        strange[wire + 4] = 1;
        assert_eq!(verdict(&steering, &strange), DROP);
    }
    let counted = GateCounters {
        steered: 2,
        bad_version: 2,
        malformed: 2,
        unknown: 2,
        ..GateCounters::default()
    };
    assert_eq!(gate.counters(), counted);
}

#[test]
fn a_packet_on_another_queue_goes_to_the_kernel_if_it_is_known() {
    let (steering, gate, _socket) = steering(3);
    let gate = knowing(&gate);
    let mut bytes = packet(false, 40);
    assert_eq!(verdict(&steering, &bytes), PASS);
    bytes[46] = 1;
    assert_eq!(verdict(&steering, &bytes), DROP);
    let counted = GateCounters {
        other_queue: 1,
        unknown: 1,
        ..GateCounters::default()
    };
    assert_eq!(gate.counters(), counted);
}

#[test]
fn a_packet_longer_than_a_chunk_goes_to_the_kernel() {
    let (steering, gate, _socket) = steering(0);
    let gate = knowing(&gate);
    for v6 in [false, true] {
        let headers = packet(v6, 40).len() - 40;
        let longest = LEN_MAX as usize - headers;
        assert_eq!(verdict(&steering, &packet(v6, longest)), REDIRECT);
        assert_eq!(verdict(&steering, &packet(v6, longest + 1)), PASS);
    }
    assert_eq!(gate.counters().too_long, 2);
}

#[test]
fn who_has_left_is_not_steered_to() {
    let (mut steering, gate, sockets) = steering(0);
    let old = knowing(&gate);
    let mut bad = packet(false, 40);
    bad[42] = 0;
    assert_eq!(verdict(&steering, &bad), DROP);
    steering.remove(UDP_PORT);
    assert_eq!(verdict(&steering, &packet(false, 40)), PASS);
    assert_eq!(verdict(&steering, &bad), PASS);
    assert_eq!(old.counters().bad_version, 1);
    // Whoever has the slot next has a gate of its own.
    steering.reserve(|| Ok(((), UDP_PORT))).unwrap();
    let gate = steering
        .add(
            (&sockets.udp, UDP_PORT),
            &OWN,
            0,
            LEN_MAX,
            &sockets.fast,
            None,
        )
        .unwrap();
    let mut strange = packet(false, 40);
    strange[46] = 1;
    assert_eq!(verdict(&steering, &strange), REDIRECT);
    assert_eq!(verdict(&steering, &bad), DROP);
    assert_eq!(old.counters().bad_version, 1);
    assert_eq!(Gate::map(gate.as_fd()).unwrap().counters().bad_version, 1);
}

#[test]
fn steering_ends_with_the_udp_socket() {
    for v6 in [false, true] {
        let (steering, gate, Sockets { udp, fast: _fast }) = steering(0);
        let _gate = knowing(&gate);
        let bytes = packet(v6, 40);
        let mut foreign = bytes.clone();
        foreign[bytes.len() - 40] = 0xff;
        let verdicts = || [&bytes, &foreign].map(|it| verdict(&steering, it));
        assert_eq!(verdicts(), [REDIRECT, DROP]);
        // Another descriptor is the same socket.
        let copy = udp.as_fd().try_clone_to_owned().unwrap();
        drop(udp);
        assert_eq!(verdicts(), [REDIRECT, DROP]);
        drop(copy);
        assert_eq!(verdicts(), [PASS, PASS]);
        // Whoever has the port then gets all that comes for it.
        let next = bind();
        assert_eq!(verdicts(), [PASS, PASS]);
        // A process without privilege cannot go higher.
        next.set_priority(6).unwrap();
        assert_eq!(verdicts(), [PASS, PASS]);
    }
}

#[test]
fn a_class_of_the_adopted_socket_does_not_end_steering() {
    let (steering, gate, Sockets { udp, fast: _fast }) = steering(0);
    let _gate = knowing(&gate);
    let config = UdpConfig {
        disabled: portolan_sys::features::Disabled::parse("ecn").unwrap(),
        ..UdpConfig::default()
    };
    let options = config.options();
    let adopted = UdpSocket::adopt(udp.into(), &options).unwrap();
    assert!(!adopted.may_mark() && adopted.marks_ecn());
    assert_eq!(verdict(&steering, &packet(false, 40)), REDIRECT);
}

#[test]
fn the_kernel_tells_whether_the_fast_socket_is_open() {
    let (steering, _gate, Sockets { udp, fast }) = steering(0);
    drop(udp);
    let copy = fast.try_clone().unwrap();
    drop(fast);
    for _ in 0..2 {
        assert!(steering.is_open(UDP_PORT));
    }
    drop(copy);
    for _ in 0..2 {
        assert!(!steering.is_open(UDP_PORT));
    }
    assert!(!steering.is_open(UDP_PORT + 1));
}

#[test]
fn of_a_verifiers_log_its_last_word_is_told() {
    let log = "; return !gate->in_use || gate->known[bit / 64] >> bit % 64 & 1;\n\
               215: (0f) r3 += r2\n\
               math between map_value pointer and register with unbounded min value is not allowed\n\
               verification time 9540 usec\nstack depth 24\n\
               processed 162 insns (limit 1000000) max_states_per_insn 1 total_states 14\n\n";
    let told =
        "math between map_value pointer and register with unbounded min value is not allowed";
    assert_eq!(last_word(log), Some(told));
    assert_eq!(last_word("processed 0 insns\n"), None);
}

/// Bytes that this thread has read so far.
fn read_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

#[test]
fn loading_does_not_read_the_kernels_types() {
    let before = read_bytes();
    Steering::load().unwrap();
    // They are some 5 MB.
    let read = read_bytes() - before;
    assert!(read < 1 << 20, "{read} bytes");
}

#[test]
fn networks_that_share_a_program_have_different_udp_ports() {
    let shared = SharedProgram::default();
    let mut two = [0; 2].map(|_| Steering::over(shared.get().unwrap()));
    // Each network would give the same.
    let next = std::cell::Cell::new(0);
    let bind = || {
        next.set(next.get() + 1);
        Ok((next.get(), next.get()))
    };
    assert_eq!(two[0].reserve(bind), Ok(1));
    next.set(0);
    assert_eq!(two[1].reserve(bind), Ok(2));
    assert_eq!((two[0].steered(), two[1].steered()), (vec![1], vec![2]));
    // Nobody gives back what is another's.
    two[1].remove(1);
    next.set(0);
    assert_eq!(two[1].reserve(bind), Ok(3));
    two[0].remove(1);
    next.set(0);
    assert_eq!(two[1].reserve(bind), Ok(1));
}
