//! Packet scripts: peers that are silent for a reason.
use crate::common::Pair;
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
        pair.nodes[0].with(|e, _| e.reset_silence_timer(now, PeerId(0)));
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
    pair.nodes[0].with(|e, _| e.reset_silence_timer(now, PeerId(0)));
    pair.nodes[0].with(|e, _| e.reset_silence_timer(now, PeerId(77)));
}

/// Checks P6.9.
#[test]
fn what_a_silent_peer_owes_is_asked_for() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, |_| true);
    // Nothing is under way, so nobody notices that it is gone.
    pair.run(20 * SECOND, |_| false);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
    // One that was never talked to is not asked.
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.await_peer(now, PeerId(77)));
    pair.send(0, b"y");
    pair.run(SECOND, |_| true);
    pair.nodes[0].log.awaits = true;
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.await_peer(now, PeerId(0)));
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
    pair.nodes[0].with(|e, log| log.timeouts(e, now));
    pair.run(SECOND, |_| true);
    assert_eq!(probes(&mut pair), before);
}

#[test]
fn who_had_nothing_to_say_is_asked_before_it_is_given_up() {
    for quiet in 1..9 {
        let mut pair = Pair::new(&Config::default());
        pair.send(0, b"x");
        pair.run(SECOND, |_| true);
        pair.run(quiet * SECOND, |_| true);
        pair.now += quiet * SECOND;
        pair.nodes[0].log.awaits = true;
        let now = pair.now;
        pair.nodes[0].with(|e, _| e.await_peer(now, PeerId(0)));
        pair.run(20 * SECOND, |_| true);
        assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up], "{quiet} s");
        pair.run(4 * SECOND, |_| false);
        let dead = PeerEvent::Dead(DeathReason::Silent);
        assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up, dead]);
    }
}

/// Node 0 does not run for a while, then does; what comes meanwhile is lost.
fn pause(pair: &mut Pair, ns: u64) {
    let last = pair.now;
    pair.now += ns;
    let now = pair.now;
    pair.nodes[0].with(|e, log| {
        e.came_late(now, last);
        log.timeouts(e, now);
    });
}

#[test]
fn who_did_not_run_counts_that_as_nobodys_silence() {
    for waits in [true, false] {
        let mut pair = Pair::new(&Config::default());
        pair.send(0, b"x");
        pair.run(SECOND, |_| true);
        // Long after, something is sent, or something waited for.
        pair.run(8 * SECOND, |_| true);
        pair.now += 8 * SECOND;
        if waits {
            pair.nodes[0].log.awaits = true;
            let now = pair.now;
            pair.nodes[0].with(|e, _| e.await_peer(now, PeerId(0)));
        } else {
            pair.send(0, b"y");
        }
        // It runs for half a second in all, in which it hears nothing.
        for length in [20, 1, 5, 60, 2] {
            let end = pair.now + SECOND / 10;
            pair.run(SECOND / 10, |_| false);
            pair.now = end;
            pause(&mut pair, length * SECOND);
        }
        assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up], "{waits}");
        // While it does run the bound holds.
        pair.run(3 * SECOND, |_| false);
        let dead = PeerEvent::Dead(DeathReason::Silent);
        assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up, dead], "{waits}");
    }
}

/// Node 1 has offered a connection to node 0, which awaits something of it.
fn offered() -> Pair {
    let mut pair = Pair::new(&Config {
        connect_ns: 60 * SECOND,
        ..Config::default()
    });
    pair.nodes[0].log.awaits = true;
    pair.send(1, b"x");
    pair.flush(1, true, &mut |_| true);
    assert_eq!(pair.deliver(0), 1);
    pair
}

#[test]
fn of_who_dies_before_it_is_up_nothing_is_awaited_for_ever() {
    let mut pair = offered();
    pair.run(59 * SECOND, |_| false);
    assert_eq!(pair.nodes[0].log.events, []);
    pair.run(2 * SECOND, |_| false);
    let dead = PeerEvent::Dead(DeathReason::NoAnswer);
    assert_eq!(pair.nodes[0].log.events, [dead]);
}

#[test]
fn who_is_up_at_last_is_asked_as_soon_as_any_other() {
    let mut pair = offered();
    pair.run(4 * SECOND, |_| false);
    pair.run(SECOND, |_| true);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
    pair.run(5 * SECOND, |_| false);
    let dead = PeerEvent::Dead(DeathReason::Silent);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up, dead]);
}

#[test]
fn who_is_sought_and_awaited_may_start_late() {
    let mut pair = Pair::new(&Config::default());
    pair.nodes[0].log.awaits = true;
    pair.send(0, b"x");
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.await_peer(now, PeerId(0)));
    pair.run(20 * SECOND, |_| false);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Waiting]);
    pair.run(SECOND, |_| true);
    assert_eq!(
        pair.nodes[0].log.events,
        [PeerEvent::Waiting, PeerEvent::Up]
    );
}

#[test]
fn who_gets_no_core_waits_longer_and_not_for_ever() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, |_| true);
    // Seconds until a message that nobody answers has killed its peer.
    let starve = |pair: &mut Pair, seconds: u64| {
        pair.send(0, b"y");
        for second in 0..seconds {
            let now = pair.now;
            pair.nodes[0].with(|e, _| e.was_starved(now, SECOND));
            pair.run(SECOND, |_| false);
            if pair.nodes[0].log.events.len() > 1 {
                return second;
            }
            pair.now = now + SECOND;
        }
        seconds
    };
    assert_eq!(starve(&mut pair, 20), 20);
    // Once it was heard, the count begins again.
    pair.run(SECOND, |_| true);
    pair.deliver(1);
    let died_after = starve(&mut pair, 60);
    assert!((29..36).contains(&died_after), "{died_after} s");
    let dead = PeerEvent::Dead(DeathReason::Silent);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up, dead]);
}
