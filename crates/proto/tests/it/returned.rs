//! A peer that comes back in another life, as its caller says: nothing passes
//! from one life to the other.

use crate::common::{Node, Pair, address};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, DeathReason, Message, Outcome, PeerEvent, PeerId, PeerState};
use portolan_wire::{ConnectIds, EndpointId, Life, Priority};

const SECOND: u64 = 1_000_000_000;

fn all(_: &[u8]) -> bool {
    true
}

/// Node 1 in its next life, which knows node 0.
fn next_life(config: &Config, life: u64) -> Node {
    let mut node = Node::new(config, 2, life);
    node.with(|e, _| {
        e.add_peer(EndpointId(1), Life(11), address(1), Mode::Lan)
            .unwrap()
    });
    node
}

fn returned(pair: &mut Pair, life: u64) {
    pair.nodes[0].with(|e, _| {
        e.peer_returned(PeerId(0), Life(life), address(2), Mode::Lan);
        e.check();
    });
}

fn died(pair: &mut Pair) {
    pair.nodes[0].with(|e, _| {
        e.peer_died(PeerId(0));
        e.check();
    });
}

fn got(node: &Node) -> Vec<&[u8]> {
    node.log
        .got
        .iter()
        .map(|(_, _, bytes)| &bytes[..])
        .collect()
}

/// Both have heard of each other, and node 0 listens to no life that it was
/// not told.
fn acquainted(config: &Config) -> Pair {
    let mut pair = Pair::new(config);
    pair.nodes[0].with(|e, _| e.pin_incarnation(PeerId(0)));
    pair.send(0, b"to the first");
    pair.send(1, b"of the first");
    pair.run(SECOND, all);
    pair
}

/// Checks P4.7.
#[test]
fn a_peer_that_is_said_to_be_back_is_talked_to_in_its_new_life() {
    let config = Config::default();
    let mut pair = acquainted(&config);
    // Not acknowledged when it dies, so it is nobody's any more.
    pair.send(0, b"to the dead");
    pair.flush(0, true, &mut all);
    let late: Vec<_> = pair.wire[1].drain(..).collect();
    died(&mut pair);
    pair.nodes[1] = next_life(&config, 23);
    returned(&mut pair, 23);
    assert_eq!(
        pair.nodes[0].with(|e, _| e.peer_state(PeerId(0))),
        PeerState::New
    );
    pair.wire[1].extend(late);
    pair.deliver(1);
    assert_eq!(got(&pair.nodes[1]), [b""; 0], "meant for the first");
    pair.send(0, b"to the second");
    pair.send(1, b"of the second");
    pair.run(SECOND, all);
    assert_eq!(
        got(&pair.nodes[0]),
        [&b"of the first"[..], b"of the second"]
    );
    assert_eq!(got(&pair.nodes[1]), [b"to the second"]);
    assert_eq!(
        pair.nodes[0].log.events,
        [
            PeerEvent::Up,
            PeerEvent::Dead(DeathReason::Told),
            PeerEvent::Up
        ]
    );
    // Told twice, it changes nothing.
    returned(&mut pair, 23);
    pair.send(0, b"again");
    pair.run(SECOND, all);
    assert_eq!(got(&pair.nodes[1]).len(), 2);
    let frames = pair.nodes[0].with(|e, _| e.free_frames());
    assert_eq!(frames, config.frames, "all frames came back");
}

/// Checks P4.9.
#[test]
fn a_new_life_waits_until_it_was_told_and_an_old_one_is_not_heard_again() {
    let config = Config::default();
    let mut pair = acquainted(&config);
    let old = std::mem::replace(&mut pair.nodes[1], next_life(&config, 23));
    // It speaks before anybody has said that it is there.
    pair.send(1, b"of the second");
    pair.run(SECOND / 10, all);
    assert_eq!(got(&pair.nodes[0]), [b"of the first"]);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
    died(&mut pair);
    pair.run(SECOND / 10, all);
    assert_eq!(
        got(&pair.nodes[0]),
        [b"of the first"],
        "dead, and no more is known"
    );
    returned(&mut pair, 23);
    pair.run(SECOND, all);
    assert_eq!(
        got(&pair.nodes[0]),
        [&b"of the first"[..], b"of the second"]
    );
    // The first was only taken for dead: it and its offers are not listened to.
    let second = std::mem::replace(&mut pair.nodes[1], old);
    pair.send(1, b"of one taken for dead");
    pair.run(SECOND, all);
    pair.nodes[1] = next_life(&config, 22);
    pair.send(1, b"of one taken for dead");
    pair.run(SECOND, all);
    pair.wire[0].clear();
    assert_eq!(got(&pair.nodes[0]).len(), 2);
    assert_eq!(
        pair.nodes[0].with(|e, _| e.peer_state(PeerId(0))),
        PeerState::Up
    );
    pair.nodes[1] = second;
    pair.wire[1].clear();
    pair.send(1, b"goes on");
    pair.run(SECOND, all);
    assert_eq!(got(&pair.nodes[0]).last(), Some(&&b"goes on"[..]));
}

/// Checks P4.10.
#[test]
fn one_said_to_have_ended_does_not_come_up_in_the_same_life() {
    let config = Config::default();
    let mut pair = Pair::new(&config);
    died(&mut pair);
    pair.send(1, b"of one taken for dead");
    pair.run(SECOND, all);
    assert_eq!(got(&pair.nodes[0]), [b""; 0]);
    assert_eq!(
        pair.nodes[0].with(|e, _| e.peer_state(PeerId(0))),
        PeerState::Dead(DeathReason::Told)
    );
}

#[test]
fn a_return_of_one_that_seemed_alive_ends_what_was_under_way() {
    let config = Config::default();
    let mut pair = acquainted(&config);
    pair.nodes[0].log.source = vec![7; 100_000];
    let long = Message {
        priority: Priority::Request,
        flow: 1,
        port: 3,
        args: &[],
        payload: &[],
    };
    let now = pair.now;
    pair.nodes[0].with(|e, _| {
        let release = portolan_proto::Release::Acknowledged;
        let source = portolan_proto::SourceId(4);
        e.send_long(now, PeerId(0), &long, 100_000, source, release)
            .unwrap()
    });
    pair.flush(0, true, &mut |_: &[u8]| false);
    returned(&mut pair, 23);
    let log = &pair.nodes[0].log;
    assert_eq!(
        log.events.last(),
        Some(&PeerEvent::Dead(DeathReason::Restarted))
    );
    assert_eq!(
        log.released,
        [(portolan_proto::SourceId(4), Outcome::PeerDead)]
    );
    let frames = pair.nodes[0].with(|e, _| e.free_frames());
    assert_eq!(frames, config.frames);
}

/// Checks P4.11.
#[test]
fn who_is_sought_in_an_earlier_life_says_so_and_changes_nothing() {
    let config = Config::default();
    let mut pair = Pair::new(&config);
    pair.nodes[1] = next_life(&config, 23);
    pair.send(0, b"to the first");
    pair.flush(0, true, &mut all);
    pair.deliver(1);
    assert_eq!(
        pair.nodes[1].with(|e, _| e.peer_state(PeerId(0))),
        PeerState::New
    );
    assert_eq!(pair.flush(1, true, &mut all), 1);
    let ids = ConnectIds::parse(&pair.wire[0][0]).unwrap();
    assert_eq!((ids.from_life, ids.to_life), (Life(23), Life(11)));
}
