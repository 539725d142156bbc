//! A receiver without room: what it refuses shows as a gap, waits, and comes.

use crate::common::Pair;
use portolan_proto::{Config, Message, PeerId, Verdict};
use portolan_wire::{Ack, Flags, HEADER_BYTES, Header, Priority};

const SECOND: u64 = 1_000_000_000;
/// Longer packets than this are node 1's own messages, which all get lost.
const OWN: usize = 600;

fn all(_: &[u8]) -> bool {
    true
}

fn but_own(packet: &[u8]) -> bool {
    packet.len() < OWN
}

/// Two that know each other; node 1's pool is full of its own messages.
fn pair() -> Pair {
    let config = Config {
        frames: 64,
        hold_frames: 16,
        queue_frames: 64,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    pair.send(0, b"warm");
    pair.send(1, b"warm");
    pair.run(SECOND, all);
    let now = pair.now;
    // No flow takes more than it leaves.
    for flow in 1..8 {
        let m = Message {
            priority: Priority::Request,
            flow,
            port: 3,
            args: &[],
            payload: &[7; 1000],
        };
        while pair.nodes[1]
            .with(|e, _| e.send(now, PeerId(0), &m))
            .is_ok()
        {}
    }
    pair.flush(1, false, &mut |_: &[u8]| false);
    pair
}

/// Header and acknowledgement of a packet: the check leaves both readable.
fn read(packet: &[u8]) -> (Header, Ack) {
    let header = Header::parse(packet).unwrap();
    assert!(header.flags.has(Flags::HAS_ACK));
    let (ack, _) = Ack::parse(&packet[HEADER_BYTES..]).unwrap();
    (header, ack)
}

fn resent(pair: &mut Pair) -> u64 {
    pair.nodes[0].with(|e, _| e.counters().resent)
}

/// Checks P6.11, P6.12.
#[test]
fn what_is_refused_is_a_gap_and_leaves_again_with_the_probe() {
    let mut pair = pair();
    // The first gets lost, so the others come before their turn.
    pair.send(0, b"first");
    pair.flush(0, false, &mut |_: &[u8]| false);
    pair.send(0, b"second");
    pair.flush(0, false, &mut all);
    pair.send(0, b"third");
    pair.flush(0, false, &mut all);
    let last = Header::parse(&pair.wire[1][1]).unwrap().number;
    pair.deliver(1);
    assert_eq!(pair.nodes[1].with(|e, _| e.counters().drops.no_room), 2);
    pair.flush(1, true, &mut but_own);
    let (header, ack) = read(pair.wire[0].back().unwrap());
    assert!(header.flags.has(Flags::REQUESTS_FULL));
    assert!(!header.flags.has(Flags::REPLIES_FULL));
    // All three numbers are missing, the largest among them.
    assert_eq!((ack.largest, ack.base), (last, last - 2));
    assert_eq!(ack.bitmap[0] & 0b111, 0);
    // They are lost for the sender, but to send them again at once is useless.
    pair.deliver(0);
    pair.flush(0, true, &mut all);
    pair.deliver(1);
    assert_eq!(resent(&mut pair), 0);
    // With the probe all leave: the first needs no room, then it is the
    // others' turn.
    let begin = pair.now;
    while resent(&mut pair) == 0 {
        let at = pair.nodes[0].with(|e, _| e.next_timeout()).unwrap();
        assert!(at < begin + 2_000_000, "a probe soon");
        pair.now = pair.now.max(at);
        pair.nodes[0].with(|e, log| log.timeouts(e, at));
        pair.flush(0, true, &mut all);
    }
    assert_eq!(resent(&mut pair), 3);
    pair.deliver(1);
    let got: Vec<_> = pair.nodes[1].log.got.iter().map(|g| &g.2[..]).collect();
    assert_eq!(got, [&b"warm"[..], b"first", b"second", b"third"]);
}

/// Checks P6.13.
#[test]
fn what_is_refused_comes_as_soon_as_there_is_room_and_rarely_before() {
    let mut pair = pair();
    pair.nodes[1].log.verdict = Some(Verdict::NotNow);
    for i in 0..8 {
        pair.send(0, &[i; 40]);
        pair.flush(0, false, &mut all);
        pair.deliver(1);
        pair.flush(1, true, &mut but_own);
        pair.deliver(0);
    }
    // A second of waiting: a probe each 188 ms at last, a round each. Eight
    // come before, soon: node 1, whose own messages get lost, asks, and so says
    // early that it is full.
    let (begin, before) = (pair.now, resent(&mut pair));
    pair.run(SECOND, but_own);
    assert!(pair.now - begin > SECOND / 2, "it waits");
    let again = resent(&mut pair) - before;
    assert!(again <= 8 * 20, "{again} packets sent again for nothing");
    // Node 1's own messages leave its pool. Node 0's clock stands still, so it
    // cannot probe: the receiver must tell.
    pair.now += SECOND;
    for _ in 0..1000 {
        let now = pair.now;
        pair.nodes[1].with(|e, log| log.timeouts(e, now));
        pair.flush(1, true, &mut all);
        pair.deliver(0);
        pair.flush(0, true, &mut all);
        pair.deliver(1);
        pair.now += 5_000;
    }
    pair.nodes[1].log.verdict = None;
    let now = pair.now;
    pair.nodes[1].with(|e, log| log.resume(e, now));
    assert_eq!(pair.nodes[1].log.got.len(), 9);
}

/// Checks P7.15.
#[test]
fn replies_pass_a_receiver_that_has_no_room_for_requests() {
    let mut pair = pair();
    pair.nodes[1].log.verdict = Some(Verdict::NotNow);
    for i in 0..4 {
        pair.send(0, &[i; 40]);
    }
    pair.run(SECOND / 10, but_own);
    assert!(pair.nodes[1].with(|e, _| e.counters().drops.no_room) > 0);
    pair.nodes[1].log.verdict = None;
    let m = Message {
        priority: Priority::Reply,
        flow: 0,
        port: 9,
        args: &[],
        payload: b"reply",
    };
    let now = pair.now;
    pair.nodes[0]
        .with(|e, _| e.send(now, PeerId(0), &m))
        .unwrap();
    pair.flush(0, true, &mut all);
    pair.deliver(1);
    let last = pair.nodes[1].log.got.last().unwrap();
    assert_eq!((last.0, &last.2[..]), (9, &b"reply"[..]));
}
