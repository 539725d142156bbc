//! The quick ways of small messages. That they do what the usual ways do is compared in each run
//! of the simulator.

use crate::common::Pair;
use portolan_proto::{Config, Message, PeerId, Release, SourceId};
use portolan_wire::{ARGS_MAX, Priority};

const SECOND: u64 = 1_000_000_000;

fn all(_: &[u8]) -> bool {
    true
}

fn plain(payload: &[u8]) -> Message<'_> {
    Message {
        priority: Priority::Request,
        flow: 0,
        port: 3,
        args: &[1, 2],
        payload,
    }
}

/// Two that know each other, and have nothing to do.
fn pair() -> Pair {
    let mut pair = Pair::new(&Config::default());
    for from in [0, 1] {
        pair.send(from, b"hello");
        pair.run(SECOND, all);
    }
    pair
}

/// Sends at once, if nothing is in the way; returns whether it was so.
fn send(pair: &mut Pair, from: usize, m: &Message<'_>) -> bool {
    let now = pair.now;
    let packet = pair.nodes[from].with(|e, _| {
        let (_, t) = e.send_one(now, PeerId(0), m)?;
        let packet = e.frame(&t).to_vec();
        e.transmitted(t.frame);
        e.check();
        Some(packet)
    });
    let sent = packet.is_some();
    pair.wire[1 - from].extend(packet);
    sent
}

#[test]
fn messages_leave_at_once_one_after_the_other() {
    let mut pair = pair();
    for i in 0..200u8 {
        let from = usize::from(i % 2);
        assert!(send(&mut pair, from, &plain(&[i])), "{i}");
        pair.now += 3_000;
        assert_eq!(pair.deliver(1 - from), 1);
        assert_eq!(pair.nodes[1 - from].log.got.pop().unwrap().2, [i]);
    }
    // Several in a row too.
    for i in 0..5 {
        assert!(send(&mut pair, 0, &plain(&[i])), "{i}");
    }
    pair.run(SECOND, all);
    let got = pair.nodes[1].log.got.split_off(1);
    assert!(got.iter().map(|it| it.2[0]).eq(0..5));
    assert!(pair.nodes[0].with(|e, _| e.idle()));
}

#[test]
fn a_lost_one_comes_again() {
    let mut pair = pair();
    assert!(send(&mut pair, 0, &plain(b"lost")));
    pair.wire[1].clear();
    assert!(send(&mut pair, 0, &plain(b"next")));
    pair.run(SECOND, all);
    let got = pair.nodes[1].log.got.split_off(1);
    assert!(got.iter().map(|it| &*it.2).eq([&b"lost"[..], b"next"]));
}

#[test]
fn what_is_in_the_way_is_seen() {
    type Obstacle = fn(&mut Pair);
    let obstacles: [(&str, Obstacle); 6] = [
        ("a queue", |pair| _ = pair.send(0, b"before")),
        ("a long message", |pair| {
            pair.nodes[0].log.source = vec![7; 100_000];
            let now = pair.now;
            let begun = pair.nodes[0].with(|e, _| {
                let source = (SourceId(1), Release::Acknowledged);
                e.send_long(now, PeerId(0), &plain(&[]), 100_000, source.0, source.1)
            });
            begun.unwrap();
        }),
        ("credit or window", |pair| {
            let sent = (0..10_000).take_while(|_| send(pair, 0, &plain(b"x")));
            assert!(sent.count() < 10_000, "nothing limits the sender");
        }),
        ("our close", |pair| {
            let now = pair.now;
            pair.nodes[0].with(|e, _| e.close(now));
        }),
        ("its close", |pair| {
            let now = pair.now;
            pair.nodes[1].with(|e, _| e.close(now));
            pair.run(SECOND, all);
        }),
        ("a stopped flow", |pair| {
            let now = pair.now;
            (pair.nodes[1]).with(|e, _| e.set_stopped(now, PeerId(0), Priority::Request, 0, true));
            pair.run(SECOND, all);
        }),
    ];
    for (name, obstacle) in obstacles {
        let mut pair = pair();
        obstacle(&mut pair);
        assert!(!send(&mut pair, 0, &plain(b"x")), "{name}");
        pair.nodes[0].with(|e, _| e.check());
    }
}

#[test]
fn what_cannot_be_is_left_to_the_usual_way() {
    let mut pair = pair();
    let flow = Config::default().flows;
    let cases = [
        Message {
            flow,
            ..plain(b"x")
        },
        Message {
            args: &[0; ARGS_MAX + 1],
            ..plain(b"x")
        },
        plain(&[0; 20_000]),
    ];
    for m in &cases {
        assert!(!send(&mut pair, 0, m));
    }
    let now = pair.now;
    let stranger = pair.nodes[0].with(|e, _| e.send_one(now, PeerId(9), &plain(b"x")).is_some());
    assert!(!stranger);
    // Before the two have met.
    let mut pair = Pair::new(&Config::default());
    assert!(!send(&mut pair, 0, &plain(b"x")));
}
