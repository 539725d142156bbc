//! What a sender and a receiver say and do in answer to single packets.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

use crate::common::address;
use crate::common::script::{SECOND, Said, Script, all_but, fill, message};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, PeerId, Verdict};
use portolan_wire::{Ack, Body, Chunk, Flags, Head, Header, MessageNo, Priority};

#[test]
fn marked_packets_are_counted_once_each_and_told() {
    let mut s = Script::new(&Config::default());
    let before = s.asked().ce;
    for ce in [true, true, false, true] {
        s.hear_marked(s.number, Flags::NONE, ce, None, &[Chunk::Ping]);
    }
    // A repeat is dropped unread.
    s.hear_marked(s.number - 1, Flags::NONE, true, None, &[Chunk::Ping]);
    assert_eq!(s.asked().ce, before + 3);
}

fn head(total: u64, payload: &[u8]) -> Chunk<'_> {
    Chunk::Head(Head {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(2),
        port: 3,
        total,
        args: &[],
        payload,
    })
}

fn part(message: u32, fragment: u32, payload: &[u8]) -> Chunk<'_> {
    Chunk::Body(Body {
        priority: Priority::Request,
        flow: 0,
        message: MessageNo(message),
        fragment,
        payload,
    })
}

#[test]
fn a_message_with_too_many_holes_takes_what_fills_them_and_nothing_beyond() {
    let mut s = Script::new(&Config::default());
    let no_room = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().drops.no_room);
    let unit = [7; 64];
    s.hear(None, &[head(64 * 600, &unit)]);
    // Every other part: as many holes as are kept track of.
    for fragment in 0..256 {
        s.hear(None, &[part(2, 2 * fragment + 2, &unit)]);
    }
    assert_eq!(no_room(&mut s), 0);
    // One more is refused, even where it joins another.
    s.hear(None, &[part(2, 520, &unit)]);
    assert_eq!(no_room(&mut s), 1);
    s.hear(None, &[part(2, 513, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    let refused = s.asked();
    // What is there already, and what fills the first hole, counts as come.
    s.hear(None, &[part(2, 0, &unit)]);
    s.hear(None, &[part(2, 1, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    // Then there is room again.
    s.hear(None, &[part(2, 520, &unit)]);
    assert_eq!(no_room(&mut s), 2);
    let ack = s.asked();
    assert_eq!(ack.base, refused.base);
    for fragment in (3..600).filter(|f| f % 2 == 1 || *f > 512) {
        s.hear(None, &[part(2, fragment, &unit)]);
    }
    assert_eq!(s.pair.nodes[0].log.got.last().unwrap().2, [7; 64 * 600]);
}

/// Checks P2.6, P6.1.
#[test]
fn what_has_left_and_what_is_done_with_are_told_apart() {
    let mut s = Script::new(&Config::default());
    let state = |s: &mut Script| {
        s.pair.nodes[0].with(|e, _| (e.has_left(), e.idle(), e.peer_idle(PeerId(0))))
    };
    assert_eq!(state(&mut s), (true, true, true));
    s.pair.send(0, b"data");
    assert_eq!(state(&mut s), (false, false, false));
    let number = s.say()[0].number();
    assert_eq!(state(&mut s), (true, false, false));
    // Given up, it is to leave again.
    s.probe();
    assert_eq!(state(&mut s), (false, false, false));
    let again = s.say()[0].number();
    assert_eq!(state(&mut s), (true, false, false));
    assert_eq!(again, number + 1);
    s.hear(Some(&all_but(again, &[])), &[]);
    s.say();
    assert_eq!(state(&mut s), (true, true, true));
}

#[test]
fn the_digest_of_a_state_knows_what_matters_and_nothing_else() {
    let digest = |s: &mut Script| {
        let mut hasher = DefaultHasher::new();
        s.pair.nodes[0].with(|e, _| e.hash_state(&mut hasher));
        hasher.finish()
    };
    let mut one = Script::new(&Config::default());
    let mut other = Script::new(&Config::default());
    assert_eq!(digest(&mut one), digest(&mut other));
    // A packet that is dropped counts, and changes nothing else.
    one.hear_as(one.number - 1, Flags::NONE, None, &[Chunk::Ping]);
    assert_eq!(digest(&mut one), digest(&mut other));
    // Bytes of a free frame: the last message that was held, or is sent.
    one.pair.send(0, b"data");
    assert_ne!(digest(&mut one), digest(&mut other));
    other.pair.send(0, b"Data");
    assert_ne!(digest(&mut one), digest(&mut other));
    for s in [&mut one, &mut other] {
        let number = s.say()[0].number();
        s.hear(Some(&all_but(number, &[])), &[]);
        s.say();
    }
    assert_eq!(digest(&mut one), digest(&mut other));
    for s in [&mut one, &mut other] {
        s.asked();
    }
    assert_eq!(digest(&mut one), digest(&mut other));
}

#[test]
fn an_acknowledgement_is_put_off_while_the_window_is_open_and_no_longer() {
    let mut s = Script::new(&Config {
        congestion: Some(Mode::Shared),
        ..Config::default()
    });
    let idle = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.idle());
    let number = s.send(1)[0];
    s.hear(Some(&all_but(number, &[])), &[]);
    // A pass that has better to do looks at it later.
    s.pair.flush(0, false, &mut |_| true);
    assert!(!idle(&mut s));
    s.pair.flush(0, true, &mut |_| true);
    assert!(idle(&mut s));
    let window = s.window().min(100) as usize;
    let numbers = s.send(window);
    assert_eq!(numbers.len(), window);
    assert_eq!(s.send(1), []);
    // Where it is needed to send on, no pass waits.
    let last = *numbers.last().unwrap();
    s.hear(Some(&all_but(last, &[])), &[]);
    assert_eq!(s.pair.flush(0, false, &mut |_| true), 1);
    let numbers = s.send(window - 1);
    let last = *numbers.last().unwrap();
    s.hear(Some(&all_but(last, &[])), &[]);
    s.pair.now += 100_000;
    s.pair.send(0, b"data");
    assert_eq!(s.pair.flush(0, false, &mut |_| true), 1);
}

/// Against a set, with numbers that come in any order (P2.9, P2.10, P2.14, P2.16).
#[test]
fn each_number_is_taken_once_and_acknowledgements_show_the_latest() {
    let mut x = 9_u64;
    let mut random = move |below: u64| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 33) % below
    };
    let mut s = Script::new(&Config::default());
    let first = s.number;
    let mut came: HashSet<u64> = HashSet::new();
    let mut next = first;
    let counts = |s: &mut Script| {
        let c = s.pair.nodes[0].with(|e, _| *e.counters());
        (c.packets_received, c.drops.replay)
    };
    for step in 0..20_000 {
        let number = match random(100) {
            0 => next + random(2_000),
            1 => next + [511, 512, 513, 1_023, 1_024, 1_025][random(6) as usize],
            2..30 => next + random(3),
            30..40 => next.saturating_sub(1_020 + random(10)).max(first),
            40..50 => next.saturating_sub(508 + random(10)).max(first),
            _ => next.saturating_sub(1 + random(40)).max(first),
        };
        let before = counts(&mut s);
        s.hear_as(number, Flags::NONE, None, &[Chunk::Ping]);
        let after = counts(&mut s);
        let known = number >= next || next - number <= 1_024;
        let taken = known && came.insert(number);
        next = next.max(number + 1);
        let expected = (before.0 + u64::from(taken), before.1 + u64::from(!taken));
        assert_eq!(after, expected, "step {step}: {number}, next {next}");
        if random(10) > 0 {
            continue;
        }
        // Ask with the next number, so that the answer comes at this time.
        let ack = s.asked();
        came.insert(next);
        next += 1;
        let oldest = next.saturating_sub(512).max(first);
        let base = (oldest..next).find(|n| !came.contains(n)).unwrap_or(next);
        assert_eq!(
            (u64::from(ack.largest), u64::from(ack.base)),
            (next - 1, base)
        );
        assert_eq!(u64::from(ack.words), (next - base).div_ceil(64));
        for n in base..next {
            let bit = (n - base) as usize;
            let shown = ack.bitmap[bit / 64] >> (bit % 64) & 1 == 1;
            assert_eq!(shown, came.contains(&n), "step {step}: {n}");
        }
    }
}

/// Checks P6.2, P6.5.
#[test]
fn an_acknowledgement_says_how_long_it_was_kept() {
    let mut s = Script::new(&Config::default());
    let old = s.number;
    s.hear_as(old + 1, Flags::NONE, None, &[Chunk::Ping]);
    // A gap is told at once, by a pass that has better to do too.
    assert_eq!(s.pair.flush(0, false, &mut |_| true), 1);
    s.pair.now += 6_400;
    s.hear_as(old, Flags::ACK_WANTED, None, &[Chunk::Ping]);
    // What asks for no more waits for an answer to ride on.
    assert_eq!(s.pair.flush(0, false, &mut |_| true), 0);
    assert_eq!(s.say()[0].ack.unwrap().delay, 100);
    assert_eq!(s.asked().delay, 0);
    s.pair.now += SECOND;
    s.hear_as(s.number + 1, Flags::NONE, None, &[Chunk::Ping]);
    s.say();
    s.pair.now += SECOND;
    s.hear_as(s.number - 2, Flags::ACK_WANTED, None, &[Chunk::Ping]);
    assert_eq!(s.say()[0].ack.unwrap().delay, u16::MAX);
}

/// Checks P2.17, P2.18.
#[test]
fn an_acknowledgement_of_what_was_never_sent_acknowledges_nothing() {
    let mut s = Script::new(&Config::default());
    let idle = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.idle());
    let number = s.send(1)[0];
    let sound = all_but(number, &[]);
    for wrong in [
        Ack { path: 1, ..sound },
        all_but(number + 1, &[]),
        Ack {
            base: number + 2,
            ..sound
        },
    ] {
        s.hear(Some(&wrong), &[]);
        assert_eq!(s.say().len(), 0);
        assert!(!idle(&mut s));
    }
    s.hear(Some(&sound), &[]);
    s.say();
    assert!(idle(&mut s));
}

/// Checks P6.6, P6.7.
#[test]
fn a_packet_carries_what_was_not_acknowledged_yet() {
    let mut s = Script::new(&Config::default());
    let number = s.send(1)[0];
    s.hear(Some(&all_but(number, &[])), &[]);
    assert_eq!(s.say().len(), 0);
    // Nothing to acknowledge, so nothing is said of it.
    s.pair.send(0, b"data");
    assert!(s.say()[0].ack.is_none());
    // A message that asks for no answer gets one with the next packet.
    let number = s.number;
    s.hear(None, &[Chunk::Ping]);
    assert_eq!(s.say().len(), 0);
    s.pair.send(0, b"data");
    assert_eq!(s.say()[0].ack.map(|a| u64::from(a.largest)), Some(number));
    s.pair.send(0, b"data");
    assert!(s.say()[0].ack.is_none());
}

#[test]
fn without_a_frame_for_the_rest_packets_fit_a_path_that_shrank() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..Config::default()
    });
    fill(&mut s);
    let mut missing: Vec<_> = s.say().iter().map(Said::number).collect();
    // A refusal takes one of the last frames.
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    s.hear(None, &[message(1, 0)]);
    missing.extend(s.say().iter().map(Said::number));
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| e.packet_too_big(now, PeerId(0), 0, 1_472, 1_232));
    // All of it got lost, but what asked for nothing did not.
    s.hear_as(s.number, Flags::ACK_WANTED, None, &[Chunk::Ping]);
    let answer = s.say()[0].number();
    s.hear(Some(&all_but(answer, &missing)), &[]);
    let mut heads = 0;
    while !s.pair.nodes[0].with(|e, _| e.idle()) {
        // Long enough for any pacing.
        s.pair.now += 100_000;
        let said = s.say();
        heads += said.iter().map(|s| s.heads).sum::<usize>();
        assert!(said.iter().all(|s| s.bytes <= 1_232));
        // The last acknowledgement of all is looked at as nothing is left.
        let Some(last) = said.last().map(Said::number) else {
            continue;
        };
        let ack = Ack {
            credit: [100, 100],
            ..all_but(last, &[])
        };
        s.hear(Some(&ack), &[]);
    }
    assert_eq!(heads, 30);
}

#[test]
fn a_number_whose_slot_cannot_be_freed_is_left_out() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..Config::default()
    });
    // The link keeps this one for very long.
    s.pair.send(0, b"data");
    let now = s.pair.now;
    let (kept, oldest) = s.pair.nodes[0].with(|e, log| {
        let t = e.poll_transmit(now, true, log).unwrap();
        let header = Header::parse(e.frame(&t)).unwrap();
        (t.frame, header.number)
    });
    // Meanwhile no frame is left to which its message could move.
    fill(&mut s);
    s.say();
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    s.hear(None, &[message(1, 0)]);
    s.say();
    let mut numbers = Vec::new();
    while numbers.last().is_none_or(|&n| n < oldest + 512) {
        s.hear_as(s.number, Flags::ACK_WANTED, None, &[Chunk::Ping]);
        numbers.extend(s.say().iter().map(Said::number));
    }
    assert!(numbers.contains(&(oldest + 511)));
    assert_eq!(*numbers.last().unwrap(), oldest + 513);
    s.pair.nodes[0].with(|e, _| {
        e.transmitted(kept);
        e.check();
    });
}

#[test]
fn a_head_without_bytes_and_its_first_part_are_held_apart() {
    for reversed in [false, true] {
        let mut s = Script::new(&Config::default());
        let unit = [9; 64];
        let mut parts = [
            Chunk::Head(Head {
                priority: Priority::Request,
                flow: 0,
                message: MessageNo(3),
                port: 3,
                total: 128,
                args: &[],
                payload: &[],
            }),
            part(3, 0, &unit),
            part(3, 1, &unit),
        ];
        if reversed {
            parts.reverse();
        }
        for part in parts {
            s.hear(None, &[part]);
        }
        // They come before their turn.
        let held = s.pair.nodes[0].with(|e, _| e.counters().held);
        assert_eq!(held, 3);
        s.hear(None, &[message(0, 2)]);
        let got: Vec<_> = s.pair.nodes[0].log.got.iter().map(|g| &g.2[..]).collect();
        assert_eq!(got[2..], [&b"abcd"[..], &[9; 128]]);
    }
}

#[test]
fn both_parts_of_a_packet_that_became_too_big_leave_at_once() {
    let mut s = Script::new(&Config::default());
    s.pair.send(0, &[7; 1_400]);
    let number = s.say()[0].number();
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| e.packet_too_big(now, PeerId(0), 0, 1_472, 1_232));
    let last = s.send(1)[0];
    s.hear(Some(&all_but(last, &[number])), &[]);
    let sizes: Vec<_> = s.say().iter().map(|s| s.bytes).collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|&bytes| bytes <= 1_232), "{sizes:?}");
}

#[test]
fn a_round_trip_with_a_host_that_got_no_core_says_nothing_of_the_network() {
    let window_after = |starved: [bool; 2]| {
        let mut s = Script::new(&Config {
            congestion: Some(Mode::Lan),
            ..Config::default()
        });
        for _ in 0..40 {
            let window = s.window().min(100) as usize;
            let last = *s.send(window).last().expect("the window is open");
            // As where each packet waits for the host's core.
            s.pair.now += 2_000_000 * window as u64;
            let now = s.pair.now;
            if starved[0] {
                s.pair.nodes[0].with(|e, _| e.was_starved(now, 100_000_000));
            }
            let delay = if starved[1] { u16::MAX } else { 0 };
            let ack = Ack {
                delay,
                packet_limit: last + 1_000,
                credit: [1_000 + last; 2],
                ..all_but(last, &[])
            };
            s.hear(Some(&ack), &[]);
        }
        s.window()
    };
    assert!(window_after([false, false]) < 8, "else it is a queue");
    for starved in [[true, false], [false, true]] {
        assert!(window_after(starved) >= 64, "{starved:?}");
    }
    // The peer is told by the longest delay.
    let mut s = Script::new(&Config::default());
    assert_eq!(s.asked().delay, 0);
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| e.was_starved(now, 1_000_000));
    assert_eq!(s.asked().delay, u16::MAX);
}

/// Checks P2.4.
#[test]
fn a_packet_shorter_than_header_and_tag_is_dropped() {
    let mut s = Script::new(&Config::default());
    let malformed = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().drops.malformed);
    let packet = s.packet(s.number, Flags::NONE, None, &[]);
    assert_eq!(packet.len(), 28);
    let now = s.pair.now;
    for length in 0..packet.len() {
        let mut short = packet[..length].to_vec();
        s.pair.nodes[0].with(|e, log| log.packet(e, now, address(2), false, &mut short));
        assert_eq!(malformed(&mut s), length as u64 + 1);
    }
}

/// Checks P2.24, P2.25.
#[test]
fn what_is_malformed_counts_up_to_where_it_is() {
    let mut s = Script::new(&Config {
        flows: 8,
        ..Config::default()
    });
    let malformed = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().drops.malformed);
    let got = |s: &Script| s.pair.nodes[0].log.got.len();
    let before = got(&s);
    // A packet whose acknowledgement is cut short was not received, and may come again.
    let number = s.number;
    let flag = Flags::NONE.with(Flags::HAS_ACK, true);
    s.hear_as(number, flag, None, &[Chunk::Ping]);
    assert_eq!(malformed(&mut s), 1);
    let ack = s.asked();
    assert_eq!(
        (u64::from(ack.base), u64::from(ack.largest)),
        (number, number + 1)
    );
    s.hear_as(number, Flags::NONE, None, &[message(0, 2)]);
    assert_eq!(got(&s), before + 1);
    // There is no flow 8: what stands before it counts, and what follows it does not.
    let wrong = Chunk::Stopped {
        serial: 1,
        flows: [1 << 8, 0],
    };
    s.hear(None, &[message(0, 3), wrong, message(0, 4)]);
    assert_eq!((malformed(&mut s), got(&s)), (2, before + 2));
    let ack = s.asked();
    assert_eq!(ack.base, ack.largest + 1);
}

/// Checks P5.5.
#[test]
fn a_refusal_that_is_repeated_is_told_once() {
    let mut s = Script::new(&Config::default());
    for number in [5, 5, 4, 6] {
        let refuse = Chunk::Refuse {
            priority: Priority::Request,
            flow: 0,
            message: MessageNo(number),
        };
        s.hear(None, &[refuse]);
    }
    let told = &s.pair.nodes[0].log.refused;
    assert_eq!(*told, [MessageNo(5), MessageNo(6)]);
}
