//! Flows that are stopped, packet by packet.

use crate::common::script::{SECOND, Said, Script, all_but, fill, message};
use portolan_proto::{Config, Message, PeerId, PeerState, SendError};
use portolan_wire::{Ack, Chunk, Priority};

/// Few enough frames that one flow can take them.
fn config() -> Config {
    Config {
        frames: 128,
        hold_frames: 16,
        queue_frames: 16,
        ..Config::default()
    }
}

fn stop(s: &mut Script, flow: u16, stopped: bool) -> Vec<Said> {
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| {
        e.set_stopped(now, PeerId(0), Priority::Request, flow, stopped);
        e.check();
    });
    s.say()
}

fn said(said: &[Said]) -> Vec<(u16, [u16; 2])> {
    said.iter().filter_map(|s| s.stopped).collect()
}

fn ack(s: &mut Script, said: &[Said]) {
    let ack = Ack {
        credit: [1_000; 2],
        ..all_but(said.last().unwrap().number(), &[])
    };
    s.hear(Some(&ack), &[]);
}

/// Sends a message of the node in a flow.
fn send(s: &mut Script, priority: Priority, flow: u16) -> Result<(), SendError> {
    let m = Message {
        priority,
        flow,
        port: 3,
        args: &[],
        // No two of them fit a packet.
        payload: &[7; 1_000],
    };
    let now = s.pair.now;
    s.pair.nodes[0]
        .with(|e, _| e.send(now, PeerId(0), &m))
        .map(drop)
}

fn hear_of(s: &mut Script, serial: u16, requests: u16) {
    let flows = [requests, 0];
    s.hear(None, &[Chunk::Stopped { serial, flows }]);
}

/// Checks P7.9, P7.10, P7.11.
#[test]
fn one_chunk_at_a_time_names_all_stopped_flows() {
    let mut s = Script::new(&config());
    let first = stop(&mut s, 1, true);
    assert_eq!(said(&first), [(1, [2, 0])]);
    // Nothing more is said until that was acknowledged; then one chunk says it all.
    assert_eq!(said(&stop(&mut s, 3, true)), []);
    assert_eq!(said(&stop(&mut s, 2, true)), []);
    assert_eq!(said(&stop(&mut s, 2, false)), []);
    ack(&mut s, &first);
    let second = s.say();
    assert_eq!(said(&second), [(2, [10, 0])]);
    ack(&mut s, &second);
    assert_eq!(said(&s.say()), []);
    // It was stopped already.
    assert_eq!(said(&stop(&mut s, 3, true)), []);
    assert_eq!(said(&stop(&mut s, 1, false)), [(3, [8, 0])]);
}

#[test]
fn a_stop_that_was_lost_is_sent_again() {
    let mut s = Script::new(&config());
    assert_eq!(said(&stop(&mut s, 1, true)), [(1, [2, 0])]);
    s.probe();
    assert_eq!(said(&s.say()), [(1, [2, 0])]);
}

/// Checks P7.13.
#[test]
fn of_a_stopped_flow_credit_is_given_once_the_peer_knows() {
    let mut s = Script::new(&config());
    let before = s.asked().credit;
    let word = stop(&mut s, 1, true);
    for number in 0..10 {
        s.hear(None, &[message(1, number)]);
    }
    // A message of another flow gives credit at once.
    s.hear(None, &[message(0, 2)]);
    assert_eq!(s.asked().credit, [before[0] + 1, before[1]]);
    ack(&mut s, &word);
    assert_eq!(s.asked().credit, [before[0] + 11, before[1]]);
    // All that can be under way then: 16 chunks, and 32 that may exceed them.
    for number in 10..70 {
        s.hear(None, &[message(1, number)]);
    }
    assert_eq!(s.asked().credit, [before[0] + 11 + 48, before[1]]);
    let unstopped = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().unstopped);
    assert_eq!(unstopped(&mut s), 12);
    // Stopped anew, the same holds: what goes on is given back all that it took.
    stop(&mut s, 1, false);
    assert_eq!(s.asked().credit, [before[0] + 11 + 60, before[1]]);
}

#[test]
fn a_flow_that_is_stopped_again_before_the_peer_was_told_to_go_on_gives_credit() {
    let mut s = Script::new(&config());
    let first = stop(&mut s, 1, true);
    ack(&mut s, &first);
    let now = s.pair.now;
    for stopped in [false, true] {
        s.pair.nodes[0].with(|e, _| {
            e.set_stopped(now, PeerId(0), Priority::Request, 1, stopped);
        });
    }
    // The peer knows: there is nothing to say, and nothing will be acknowledged.
    assert_eq!(said(&s.say()), []);
    let before = s.asked().credit;
    for number in 0..5 {
        s.hear(None, &[message(1, number)]);
    }
    assert_eq!(s.asked().credit, [before[0] + 5, before[1]]);
}

/// Checks P7.12.
#[test]
fn what_is_stopped_waits_and_keeps_nothing_else_back() {
    let mut s = Script::new(&config());
    while send(&mut s, Priority::Request, 1).is_ok() {}
    // None of them has left.
    hear_of(&mut s, 1, 2);
    assert_eq!(s.say().iter().map(|s| s.heads).sum::<usize>(), 0);
    assert_eq!(
        send(&mut s, Priority::Request, 1),
        Err(SendError::NoCredit),
        "it waits"
    );
    for flow in [0, 2, 7] {
        send(&mut s, Priority::Request, flow).unwrap();
        send(&mut s, Priority::Reply, flow).unwrap();
    }
    send(&mut s, Priority::Reply, 1).unwrap();
    let others = s.say();
    assert_eq!(others.iter().map(|s| s.heads).sum::<usize>(), 7);
    ack(&mut s, &others);
    assert_eq!(s.say().len(), 0);
    // It goes on where it was.
    hear_of(&mut s, 2, 0);
    let mut rest = 0;
    while rest < 16 {
        let said = s.say();
        rest += said.iter().map(|s| s.heads).sum::<usize>();
        if !said.is_empty() {
            ack(&mut s, &said);
        }
        // Long enough for any pacing.
        s.pair.now += 100_000;
    }
    assert_eq!(rest, 16);
    s.say();
    send(&mut s, Priority::Request, 1).unwrap();
    assert!(s.pair.nodes[0].with(|e, _| !e.idle()));
}

#[test]
fn no_flow_takes_all_frames() {
    let mut s = Script::new(&Config {
        queue_frames: 1_000,
        hold_frames: 1_000,
        ..config()
    });
    let mut sent = [0; 5];
    for (flow, sent) in (0..).zip(&mut sent) {
        while send(&mut s, Priority::Request, flow).is_ok() {
            *sent += 1;
        }
        hear_of(&mut s, flow + 1, (2 << flow) - 1);
        assert_eq!(s.say().iter().map(|s| s.heads).sum::<usize>(), 0);
    }
    // Half of what the flows before it have left, and of what requests may take.
    assert_eq!(sent, [64, 32, 16, 0, 0]);
    send(&mut s, Priority::Reply, 0).unwrap();
}

/// Checks P7.10, P7.14.
#[test]
fn an_older_chunk_changes_nothing_and_a_wrong_one_is_dropped() {
    let mut s = Script::new(&Config {
        flows: 8,
        ..config()
    });
    hear_of(&mut s, 5, 2);
    for (serial, requests) in [(5, 0), (4, 0), (0x8006, 0), (3, 4)] {
        hear_of(&mut s, serial, requests);
        assert_eq!(send(&mut s, Priority::Request, 1), Err(SendError::NoCredit));
        assert_eq!(send(&mut s, Priority::Request, 2), Ok(()));
    }
    // There is no flow 8.
    let malformed = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().drops.malformed);
    assert_eq!(malformed(&mut s), 0);
    hear_of(&mut s, 6, 1 << 8);
    assert_eq!(malformed(&mut s), 1);
    hear_of(&mut s, 0x8004, 0);
    assert_eq!(send(&mut s, Priority::Request, 1), Ok(()));
}

#[test]
fn a_peer_that_stopped_us_is_not_asked_all_the_time_and_is_missed_when_it_is_gone() {
    let mut s = Script::new(&config());
    send(&mut s, Priority::Request, 1).unwrap();
    hear_of(&mut s, 1, 2);
    s.say();
    let began = s.pair.now;
    let mut packets = 0;
    while s.pair.nodes[0].with(|e, _| e.peer_state(PeerId(0))) == PeerState::Up {
        s.wait();
        let now = s.pair.now - began;
        assert!(now < 4 * SECOND, "it is not missed");
        let said = s.say().len();
        assert!(said == 0 || now >= SECOND, "asked after {now} ns");
        packets += said;
    }
    assert!((1..40).contains(&packets), "{packets}");
    // As any message to the dead.
    assert!(s.pair.nodes[0].with(|e, _| e.idle()));
}

#[test]
fn nobody_is_told_without_a_frame_but_all_are_later() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..config()
    });
    fill(&mut s);
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| e.set_stopped(now, PeerId(0), Priority::Reply, 7, true));
    let mut all = s.say();
    for _ in 0..9 {
        if !said(&all).is_empty() {
            break;
        }
        ack(&mut s, &all);
        all = s.say();
    }
    assert_eq!(said(&all), [(1, [0, 128])]);
}
