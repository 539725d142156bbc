//! Packet scripts: what is acknowledged just before a peer is gone.
use crate::common::Pair;
use portolan_proto::{Config, DeathReason, Message, Outcome, PeerId, PeerState, Release, SourceId};
use portolan_wire::Priority;

const LONG: Message<'static> = Message {
    priority: Priority::Request,
    flow: 0,
    port: 3,
    args: &[],
    payload: &[],
};

#[test]
fn an_acknowledgement_before_a_close_counts() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"hello");
    pair.run(1_000_000_000, |_| true);
    pair.nodes[0].log.source = vec![1; 5000];
    let now = pair.now;
    pair.nodes[0]
        .with(|e, _| {
            e.send_long(
                now,
                PeerId(0),
                &LONG,
                5000,
                SourceId(1),
                Release::Acknowledged,
            )
        })
        .unwrap();
    pair.flush(0, true, &mut |_| true);
    pair.deliver(1);
    assert_eq!(pair.nodes[1].log.got.len(), 2);
    // Receiver acknowledges, then closes: both reach the sender in one pass.
    pair.flush(1, true, &mut |_| true);
    assert!(pair.nodes[1].with(|e, _| e.idle()));
    let now = pair.now;
    pair.nodes[1].with(|e, _| e.close(now));
    pair.flush(1, true, &mut |_| true);
    pair.deliver(0);
    assert_eq!(pair.nodes[0].log.released, [(SourceId(1), Outcome::Done)]);
}

#[test]
fn a_late_acknowledgement_spares_the_copy() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"hello");
    pair.run(1_000_000_000, |_| true);
    // A close arrives, and its acknowledgement is slow: the close is sent again.
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.close(now));
    pair.flush(0, true, &mut |_| true);
    pair.deliver(1);
    pair.flush(1, true, &mut |_| true);
    // Twice, as where the round trip has grown.
    let sent = |pair: &mut Pair| pair.nodes[0].with(|e, _| e.counters().data_packets_sent);
    let before = sent(&mut pair);
    while sent(&mut pair) < before + 2 {
        let due = pair.nodes[0].with(|e, _| e.next_timeout()).unwrap();
        pair.now = due;
        pair.nodes[0].with(|e, log| log.timeouts(e, due));
        pair.flush(0, true, &mut |_| false);
    }
    assert!(!pair.nodes[0].with(|e, _| e.idle()));
    // The peer is gone when the copy would come; the first was enough.
    pair.deliver(0);
    pair.flush(0, true, &mut |_| false);
    assert!(pair.nodes[0].with(|e, _| e.idle()));
}

#[test]
fn who_closes_does_not_wait_for_one_that_has_gone() {
    let config = Config::default();
    let mut pair = Pair::new(&config);
    pair.send(0, b"hello");
    pair.run(1_000_000_000, |_| true);
    // Both close at once. The second hears of it and is gone; that it has
    // heard is lost.
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.close(now));
    let mut asked = 0;
    while !pair.nodes[0].with(|e, _| e.idle()) {
        pair.flush(0, true, &mut |_| false);
        let due = pair.nodes[0].with(|e, _| e.next_timeout()).unwrap();
        pair.now = due;
        pair.nodes[0].with(|e, log| log.timeouts(e, due));
        asked += 1;
    }
    // Soon, though not before it was asked often and for a while.
    let took = pair.now - now;
    assert!(took < config.silence_ns / 4, "{took} ns");
    assert!(took >= config.silence_ns / 8, "{took} ns");
    assert!(asked >= 16, "{asked} times");
    let state = pair.nodes[0].with(|e, _| e.peer_state(PeerId(0)));
    // Nobody is told that it is silent: it may be stopped.
    assert_eq!(state, PeerState::Dead(DeathReason::Closed));
}

#[test]
fn a_close_after_a_long_rest_takes_nobody_for_dead() {
    let config = Config::default();
    let mut pair = Pair::new(&config);
    pair.send(0, b"hello");
    pair.run(1_000_000_000, |_| true);
    // Nobody had anything to say for longer than who is waited for may be silent.
    pair.now += config.silence_ns + 1_000_000;
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.close(now));
    pair.flush(0, true, &mut |_| true);
    // Time is up for something before the answer is here.
    pair.now += config.silence_ns / 100;
    let now = pair.now;
    pair.nodes[0].with(|e, log| log.timeouts(e, now));
    let state = |pair: &mut Pair| pair.nodes[0].with(|e, _| e.peer_state(PeerId(0)));
    assert_eq!(state(&mut pair), PeerState::Up);
    pair.run(1_000_000_000, |_| true);
    assert!(pair.nodes[0].with(|e, _| e.idle()));
    assert_eq!(state(&mut pair), PeerState::Up);
}
