//! Packet scripts: peers that are silent for a reason.
#![allow(missing_docs, reason = "a test program")]

mod common;

use common::Pair;
use portolan_proto::{Config, DeathReason, PeerEvent, PeerId};

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_silent_peer_that_somebody_vouches_for_is_waited_for() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, |_| true);
    pair.send(0, b"y");
    for _ in 0..20 {
        pair.run(SECOND / 2, |_| false);
        pair.now += SECOND / 2;
        let now = pair.now;
        pair.nodes[0].with(|e, _| e.excuse(now, PeerId(0)));
    }
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
    // It goes on as if nothing had been.
    pair.run(SECOND, |_| true);
    pair.deliver(1);
    assert_eq!(pair.nodes[1].log.got.len(), 2);
    // Without a word for it the bound holds.
    pair.send(0, b"z");
    pair.run(10 * SECOND, |_| false);
    let dead = PeerEvent::Dead(DeathReason::Silent);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up, dead]);
    // One that nobody knows, or that is dead, is no reason to fail.
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.excuse(now, PeerId(0)));
    pair.nodes[0].with(|e, _| e.excuse(now, PeerId(77)));
}

#[test]
fn what_a_silent_peer_owes_is_asked_for() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, |_| true);
    // Nothing is under way, so nobody notices that it is gone.
    pair.run(20 * SECOND, |_| false);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
    // One that was never talked to is not asked.
    pair.nodes[0].with(|e, _| e.await_peer(PeerId(77)));
    pair.send(0, b"y");
    pair.run(SECOND, |_| true);
    pair.nodes[0].log.awaits = true;
    pair.nodes[0].with(|e, _| e.await_peer(PeerId(0)));
    // It answers for as long as it is there.
    pair.run(20 * SECOND, |_| true);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
    pair.run(2 * SECOND, |_| false);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
    pair.run(3 * SECOND, |_| false);
    let dead = PeerEvent::Dead(DeathReason::Silent);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up, dead]);
}

#[test]
fn what_has_just_been_queued_is_not_probed_for() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, |_| true);
    let probes = |pair: &mut Pair| pair.nodes[0].with(|e, _| e.counters().probes_sent);
    let before = probes(&mut pair);
    // Sent by a handler, say: what is due is looked at before it leaves.
    pair.send(0, b"y");
    let now = pair.now;
    pair.nodes[0].with(|e, log| e.handle_timeouts(now, log));
    pair.run(SECOND, |_| true);
    assert_eq!(probes(&mut pair), before);
}
