//! What bounds a sender, and what it hears when a bound moves, packet by packet.

use crate::common::script::{Said, Script, all_but, fill, message};
use portolan_proto::{Config, Verdict};
use portolan_wire::{Ack, Body, Chunk, Flags, Head, MessageNo, Priority};

/// Checks P6.4.
#[test]
fn who_has_used_half_of_its_credit_hears_of_more_unasked() {
    let mut s = Script::new(&Config {
        hold_frames: 8,
        ..Config::default()
    });
    let before = s.asked();
    for i in 0..12 {
        s.hear(None, &[message(0, 2 + i)]);
        let said = s.say();
        if i % 4 < 3 {
            assert!(said.is_empty(), "not needed after {} messages", i + 1);
        } else {
            let credit = said[0].ack.unwrap().credit;
            assert_eq!(credit, [before.credit[0] + i + 1, before.credit[1]]);
        }
    }
}

#[test]
fn what_was_refused_leaves_again_once_some_of_it_was_taken() {
    let mut s = Script::new(&Config::default());
    let full = Flags::NONE.with(Flags::REQUESTS_FULL, true);
    let mut missing = s.send(4);
    s.hear_as(s.number, full, Some(&all_but(missing[3], &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    s.probe();
    let again: Vec<_> = s.say().iter().map(Said::number).collect();
    assert_eq!(again.len(), 4);
    // None was taken: to try once more now would be in vain. Nor does a fresh
    // message that needed no room say anything of those.
    missing.extend(&again);
    s.hear_as(s.number, full, Some(&all_but(again[3], &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    let fresh = s.reply();
    s.hear_as(s.number, full, Some(&all_but(fresh, &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    s.probe();
    let again: Vec<_> = s.say().iter().map(Said::number).collect();
    assert_eq!(again.len(), 4);
    // The first was taken: the others may have become due by that.
    missing.extend(&again[1..]);
    s.hear_as(s.number, full, Some(&all_but(again[3], &missing)), &[]);
    assert_eq!(s.say().len(), 3);
}

#[test]
fn what_needs_no_room_for_requests_leaves_again_at_once() {
    let mut s = Script::new(&Config::default());
    let full = Flags::NONE.with(Flags::REQUESTS_FULL, true);
    let mut missing = s.send(2);
    s.hear_as(s.number, full, Some(&all_but(missing[1], &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    // A reply that got lost.
    missing.push(s.reply());
    let seen = s.reply();
    s.hear_as(s.number, full, Some(&all_but(seen, &missing)), &[]);
    assert_eq!(s.say().len(), 1);
    // A close that got lost.
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| e.close(now));
    let said = s.say();
    assert!(said[0].closes);
    missing.extend([seen + 1, said[0].number()]);
    s.hear_as(
        s.number,
        full.with(Flags::ACK_WANTED, true),
        None,
        &[Chunk::Ping],
    );
    let seen = s.say()[0].number();
    s.hear_as(s.number, full, Some(&all_but(seen, &missing)), &[]);
    assert!(s.say().iter().any(|s| s.closes));
}

/// Checks P5.4.
#[test]
fn refusals_without_a_frame_are_told_once_there_is_one() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..Config::default()
    });
    fill(&mut s);
    let numbers: Vec<_> = s.say().iter().map(Said::number).collect();
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    // For the first there is a frame. One more of its flow, once that has left, waits
    // for its turn.
    for chunk in [message(0, 2), message(1, 0), message(2, 0)] {
        s.hear(None, &[chunk]);
    }
    let refused =
        |said: &[Said]| -> Vec<_> { said.iter().flat_map(|s| s.refuses.clone()).collect() };
    assert_eq!(refused(&s.say()), [(0, 2)]);
    s.hear(None, &[message(0, 3)]);
    assert_eq!(refused(&s.say()), []);
    // Messages are acknowledged: frames are free again.
    s.hear(Some(&all_but(*numbers.last().unwrap(), &[])), &[]);
    assert_eq!(refused(&s.say()), []);
    s.pair.now += 1_000_000;
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, log| log.timeouts(e, now));
    let again = s.say();
    let mut told = refused(&again);
    told.retain(|r| *r != (0, 2));
    assert_eq!(told, [(1, 0), (2, 0)]);
    let last = again.last().unwrap().number();
    s.hear(Some(&all_but(last, &[])), &[]);
    assert_eq!(refused(&s.say()), [(0, 3)]);
}

#[test]
fn refusals_of_replies_are_told_and_count_as_no_replies() {
    let mut s = Script::new(&Config::default());
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    let reply = Chunk::Head(Head {
        priority: Priority::Reply,
        flow: 1,
        message: MessageNo(0),
        port: 3,
        total: 4,
        args: &[],
        payload: b"abcd",
    });
    // Each step checks what is counted.
    s.hear(None, &[reply]);
    let said = s.say();
    assert_eq!(said[0].refuses, [(1, 0)]);
    s.hear(Some(&all_but(said[0].number(), &[])), &[]);
    s.say();
    assert!(s.pair.nodes[0].with(|e, _| e.idle()));
}

/// The node has messages for twenty packets and sends as far as it may: gives
/// the last number that left, and the requests that have left by then.
fn blocked(s: &mut Script) -> (u32, u32) {
    for _ in 0..20 {
        s.pair.send(0, &[7; 1000]);
    }
    let said = s.say();
    // One was sent before.
    (said.last().unwrap().number(), 1 + said.len() as u32)
}

/// Checks P2.12, P7.5.
#[test]
fn credit_holds_and_never_shrinks() {
    let mut s = Script::new(&Config {
        hold_frames: 4,
        ..Config::default()
    });
    let (last, credit) = blocked(&mut s);
    let mut more = |requests: u32, replies: u32| {
        let ack = Ack {
            credit: [requests, replies],
            ..all_but(last, &[])
        };
        s.hear(Some(&ack), &[]);
        s.say().iter().map(|said| said.heads).sum::<usize>()
    };
    assert_eq!(more(credit, 0), 0);
    assert_eq!(more(credit + 2, 0), 2);
    assert_eq!(more(credit + 1, 100), 0);
    assert_eq!(more(credit + 3, 100), 1);
    assert_eq!(more(credit - 1, 100), 0);
    assert_eq!(more(credit + 4, 100), 1);
}

/// Checks P2.12, P7.2.
#[test]
fn the_packet_limit_holds_and_never_shrinks() {
    let mut s = Script::new(&Config {
        receive_packets: 4,
        ..Config::default()
    });
    let (last, _) = blocked(&mut s);
    let mut more = |limit: u32| {
        // Nothing new is acknowledged, so packets stay in flight.
        let ack = Ack {
            packet_limit: limit,
            ..all_but(0, &[])
        };
        s.hear(Some(&ack), &[]);
        s.say().len()
    };
    assert_eq!(more(last + 1), 0);
    assert_eq!(more(last + 3), 2);
    assert_eq!(more(last + 2), 0);
    assert_eq!(more(last + 4), 1);
}

/// Checks P6.14.
#[test]
fn news_of_room_lets_what_was_refused_leave_at_once() {
    let mut s = Script::new(&Config::default());
    let full = Flags::NONE.with(Flags::REQUESTS_FULL, true);
    let missing = s.send(4);
    s.hear_as(s.number, full, Some(&all_but(missing[3], &missing)), &[]);
    assert_eq!(s.say().len(), 0);
    // The packet that tells need not acknowledge anything.
    s.hear(None, &[Chunk::Ping]);
    assert_eq!(s.say().len(), 4);
}

/// Checks P7.7, P7.8.
#[test]
fn only_what_brings_something_new_gives_credit() {
    let mut s = Script::new(&Config::default());
    let mut credit = |chunks: &[Chunk<'_>]| {
        let before = s.asked().credit[0];
        s.hear(None, chunks);
        s.asked().credit[0] - before
    };
    let (bytes, total) = ([7; 640], 64 * 100);
    let begin = Head {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(2),
        port: 3,
        total,
        args: &[],
        payload: &bytes[..64],
    };
    let part = |message: u32, from: u32, to: u32| {
        Chunk::Body(Body {
            priority: Priority::Request,
            flow: 0,
            message: MessageNo(message),
            fragment: from,
            payload: &bytes[..64 * (to - from) as usize],
        })
    };
    assert_eq!(credit(&[Chunk::Head(begin)]), 1);
    assert_eq!(credit(&[part(2, 1, 10)]), 1);
    // Again, whole and in parts, and the head too.
    assert_eq!(credit(&[part(2, 1, 10)]), 0);
    assert_eq!(credit(&[part(2, 5, 10)]), 0);
    assert_eq!(credit(&[Chunk::Head(begin)]), 0);
    // A longer head brings what the first one, which gave credit, had not.
    let longer = Head {
        payload: &bytes,
        ..begin
    };
    assert_eq!(credit(&[Chunk::Head(longer)]), 0);
    // Beyond a hole, and partly new.
    assert_eq!(credit(&[part(2, 15, 20)]), 1);
    assert_eq!(credit(&[part(2, 15, 18)]), 0);
    assert_eq!(credit(&[part(2, 12, 18)]), 1);
    // What is held in two cuts gives credit once, when its message has begun.
    let held = [part(3, 1, 2), part(3, 1, 3), part(3, 2, 3)];
    for cut in held {
        assert_eq!(credit(&[cut]), 0);
    }
    let rest: Vec<_> = (10..12).chain(20..100).map(|i| part(2, i, i + 1)).collect();
    assert_eq!(rest.iter().map(|&c| credit(&[c])).sum::<u32>(), 82);
    let next = Head {
        message: MessageNo(3),
        total: 64 * 3,
        ..begin
    };
    assert_eq!(credit(&[Chunk::Head(next)]), 2);
    // What is no part of a message gives none.
    let refuse = Chunk::Refuse {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(0),
    };
    let stopped = Chunk::Stopped {
        serial: 1,
        flows: [0; 2],
    };
    for chunk in [Chunk::Ping, refuse, stopped] {
        assert_eq!(credit(&[chunk]), 0);
    }
}
