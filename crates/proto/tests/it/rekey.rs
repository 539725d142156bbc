//! The change of the key phase near the limits of the suites themselves, which no test can reach
//! packet by packet.

use crate::common::{Pair, address};
use portolan_proto::{Config, Message, PeerId};
use portolan_seal::{AnySeal, Seal, SuiteId};
use portolan_wire::{Flags, Header, Priority};

const SECOND: u64 = 1_000_000_000;

/// Word of a parked peer whose lower half counts the packets sealed in the present phase.
const SEALED: usize = 6;

/// Packets before the limit from which the quick ways are closed.
const NEAR: u64 = 64;

/// Packets before the limit at which the nodes begin. The quick way of one is still open when the
/// other changes its phase.
const BEFORE: [u64; 2] = [NEAR + 40, NEAR + 140];

/// Messages of each node: enough for both to change their phase, and to go on in the next.
const MESSAGES: u32 = 400;

/// Suites with security.
fn suites() -> impl Iterator<Item = SuiteId> {
    SuiteId::ALL.into_iter().filter(|id| *id != SuiteId::None)
}

fn all(_: &[u8]) -> bool {
    true
}

/// Two that know each other, whose keys have sealed almost as much as the suite allows.
fn worn(suite: SuiteId) -> Pair {
    let mut pair = Pair::with_suites(&Config::default(), [suite; 2]);
    for from in [0, 1] {
        pair.send(from, b"hello");
        pair.run(SECOND, all);
    }
    // The count lies open while the peer is parked.
    pair.run(20 * SECOND, all);
    let limit = AnySeal::with_slots(suite, 0).packets_max();
    for (node, before) in pair.nodes.iter_mut().zip(BEFORE) {
        assert!(node.with(|e, _| e.window(PeerId(0)).is_none()));
        let word = &mut node.parked[0][SEALED];
        assert!((1..20).contains(word), "{word} packets were sealed");
        *word = limit - before;
        node.log.got.clear();
    }
    pair
}

/// What left a node, by the bit of the key phase.
#[derive(Default)]
struct Left {
    packets: [u64; 2],
    /// Of those, how many left by the quick way, and were taken by it.
    quick: [u64; 2],
    taken: [u64; 2],
}

fn bit(packet: &[u8]) -> usize {
    let header = Header::parse(packet).unwrap();
    usize::from(header.flags.has(Flags::KEY_PHASE))
}

/// Sends by the quick way, or if that is closed by the usual one.
fn send(pair: &mut Pair, from: usize, payload: &[u8], left: &mut Left) {
    let m = Message {
        priority: Priority::Request,
        flow: 0,
        port: 3,
        args: &[],
        payload,
    };
    let now = pair.now;
    let packet = pair.nodes[from].with(|e, _| {
        let (_, t) = e.send_one(now, PeerId(0), &m)?;
        let packet = e.frame(&t).to_vec();
        e.transmitted(t.frame);
        e.check();
        Some(packet)
    });
    match packet {
        Some(packet) => {
            left.packets[bit(&packet)] += 1;
            left.quick[bit(&packet)] += 1;
            pair.wire[1 - from].push_back(packet);
        }
        None => _ = pair.send(from, payload),
    }
    pair.flush(from, false, &mut |packet| {
        left.packets[bit(packet)] += 1;
        true
    });
}

/// Delivers what a node was sent: by the quick way, or if that is closed by the usual one.
fn deliver(pair: &mut Pair, to: usize, left: &mut Left) {
    let (now, from) = (pair.now, address(2 - to as u64));
    while let Some(mut packet) = pair.wire[to].pop_front() {
        let phase = bit(&packet);
        pair.nodes[to].with(|e, log| {
            if log.foreseen(e, now, from, &mut packet) {
                left.taken[phase] += 1;
            } else {
                log.packet(e, now, from, false, &mut packet);
            }
            e.check();
        });
    }
}

/// Each message came once and in its turn, and each node has changed its phase once.
fn check(pair: &mut Pair, name: &str) {
    for node in &mut pair.nodes {
        let got = node.log.got.iter().map(|it| it.2[..4].try_into().unwrap());
        assert!(got.map(u32::from_le_bytes).eq(0..MESSAGES), "{name}");
        let (rekeys, drops) = node.with(|e, _| (e.counters().rekeys, e.counters().drops));
        assert_eq!((rekeys, drops.bad_tag), (1, 0), "{name}");
    }
}

/// Checks P3.15, P3.17.
#[test]
fn the_quick_ways_lead_into_the_next_phase_at_the_limit_of_each_suite() {
    for suite in suites() {
        let mut pair = worn(suite);
        let mut left = [Left::default(), Left::default()];
        for i in 0..MESSAGES {
            for (from, left) in left.iter_mut().enumerate() {
                pair.now += 3_000;
                send(&mut pair, from, &i.to_le_bytes(), left);
                pair.now += 3_000;
                deliver(&mut pair, 1 - from, left);
            }
        }
        check(&mut pair, suite.name());
        for (left, before) in left.into_iter().zip(BEFORE) {
            // What a phase ends with was acknowledged by the answers: no packet exceeds the limit.
            assert_eq!(left.packets[0], before, "{suite:?}");
            // Near the limit, and the first few after the pause.
            let usual = before - left.quick[0];
            assert!((NEAR..NEAR + 5).contains(&usual), "{suite:?}: {usual}");
            for count in [left.quick[1], left.taken[0], left.taken[1]] {
                assert!(count > 20, "{suite:?}: {count}");
            }
        }
    }
}

/// Checks P3.15, P3.17.
#[test]
fn the_usual_ways_lead_into_the_next_phase_at_the_limit_of_each_suite() {
    for suite in suites() {
        // One of so many packets is lost; the first number loses none.
        for lost in [u64::MAX, 10] {
            let mut pair = worn(suite);
            let (mut left, mut last) = (0, [0; 2]);
            let mut payload = [0; 1_000];
            for i in 0..MESSAGES {
                payload[..4].copy_from_slice(&i.to_le_bytes());
                for from in [0, 1] {
                    pair.send(from, &payload);
                }
                if i % 5 < 4 {
                    continue;
                }
                pair.run(SECOND, |packet| {
                    left += 1;
                    last = [last[1], bit(packet)];
                    left % lost != 0
                });
            }
            check(&mut pair, &format!("{suite:?}, one of {lost} lost"));
            assert_eq!(last, [1, 1]);
        }
    }
}
