//! What a sender makes of gaps, of answers that are late and of none, packet by
//! packet.

use crate::common::script::{SECOND, Said, Script, all_but, message};
use portolan_proto::congestion::Mode;
use portolan_proto::{Config, DeathReason, PeerId, PeerState, Verdict};
use portolan_wire::{Ack, Chunk, Flags};

/// Checks P2.13.
#[test]
fn each_mark_that_is_told_narrows_the_window_once() {
    let mut s = Script::new(&Config {
        congestion: Some(Mode::Shared),
        ..Config::default()
    });
    let tell = |s: &mut Script, ce: u32| {
        let number = s.send(1)[0];
        let ack = Ack {
            ce,
            ..all_but(number, &[])
        };
        s.hear(Some(&ack), &[]);
        s.say();
        s.window()
    };
    assert_eq!(tell(&mut s, 0), 10);
    assert_eq!(tell(&mut s, 1), 8);
    assert_eq!(tell(&mut s, 1), 8);
    // Who gave its state back counts anew, from wherever it likes.
    assert_eq!(tell(&mut s, 1 << 31), 8);
    assert_eq!(tell(&mut s, 1 + (1 << 31)), 7);
    // Of late acknowledgements each tells of fewer marks than were known.
    let numbers = s.send(2);
    let late = Ack {
        ce: 1 << 31,
        ..all_but(numbers[0], &[])
    };
    s.hear(
        Some(&Ack {
            ce: 2 + (1 << 31),
            ..all_but(numbers[1], &[])
        }),
        &[],
    );
    s.hear(Some(&late), &[]);
    s.say();
    assert_eq!(s.window(), 6);
    assert_eq!(tell(&mut s, 2 + (1 << 31)), 6);
}

#[test]
fn marks_told_with_nothing_new_count_with_the_next_that_is() {
    let mut s = Script::new(&Config {
        congestion: Some(Mode::Shared),
        ..Config::default()
    });
    let tell = |s: &mut Script, number: u32, ce: u32| {
        let ack = Ack {
            ce,
            ..all_but(number, &[])
        };
        s.hear(Some(&ack), &[]);
        s.say();
        s.window()
    };
    let first = s.send(1)[0];
    assert_eq!(tell(&mut s, first, 0), 10);
    // Our own acknowledgements may be what was marked.
    assert_eq!(tell(&mut s, first, 1), 10);
    let second = s.send(1)[0];
    assert_eq!(tell(&mut s, second, 1), 8);
}

/// Checks P2.6, P7.1.
#[test]
fn no_window_spans_more_numbers_than_a_bitmap() {
    for (answers, leaves) in [(510, 1), (511, 0)] {
        let mut s = Script::new(&Config::default());
        let number = s.send(1)[0];
        let ack = Ack {
            packet_limit: 10_000,
            ..all_but(number, &[])
        };
        s.hear(Some(&ack), &[]);
        // Nobody acknowledges this one. Answers to pings take numbers too.
        let oldest = s.send(1)[0];
        for _ in 0..answers {
            s.asked();
        }
        s.pair.send(0, b"data");
        let said = s.say();
        assert_eq!(said.len(), leaves, "{answers} after the oldest");
        if leaves == 0 {
            s.hear(Some(&all_but(oldest, &[])), &[]);
            let said = s.say();
            assert_eq!((said.len(), said[0].number()), (1, oldest + 512));
        }
        assert_eq!(s.resent(), 0);
    }
}

#[test]
fn what_is_said_of_a_number_is_not_taken_for_one_512_later() {
    let mut s = Script::new(&Config::default());
    let allow = |ack: Ack| Ack {
        packet_limit: 10_000,
        ..ack
    };
    // Given up, sent again, and watched for.
    let given_up = s.send(1)[0];
    let other = s.send(1)[0];
    s.hear(Some(&allow(all_but(other, &[given_up]))), &[]);
    let copy = s.say()[0].number();
    s.hear(Some(&allow(all_but(copy, &[given_up]))), &[]);
    // Answers to pings take the numbers between.
    for _ in copy..given_up + 511 {
        s.asked();
    }
    assert_eq!(s.send(1), [given_up + 512]);
    s.hear(Some(&allow(all_but(given_up + 511, &[]))), &[]);
    s.say();
    assert!(!s.pair.nodes[0].with(|e, _| e.idle()));
    s.hear(Some(&allow(all_but(given_up + 512, &[]))), &[]);
    s.say();
    assert!(s.pair.nodes[0].with(|e, _| e.idle()));
}

#[test]
fn a_gap_is_lost_at_once_until_reordering_was_mistaken_for_loss() {
    let mut s = Script::new(&Config {
        // By the time nothing is lost.
        probe_slack_ns: SECOND,
        ..Config::default()
    });
    let spurious = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().spurious);
    // A network that keeps the order is trusted.
    let mut behind = 1;
    for mistakes in 1..=11 {
        let first = s.send(1)[0];
        let mut last = first;
        for later in 1..=behind {
            assert_eq!(s.resent(), mistakes - 1, "{later} of {behind}");
            last = s.send(1)[0];
            let ack = Ack {
                credit: [last + 100, 0],
                ..all_but(last, &[first])
            };
            s.hear(Some(&ack), &[]);
            s.say();
        }
        assert_eq!(s.resent(), mistakes);
        // It was only late. Its copy need not be acknowledged.
        s.hear(Some(&all_but(last, &[])), &[]);
        s.say();
        assert_eq!(spurious(&mut s), mistakes);
        assert!(s.pair.nodes[0].with(|e, _| e.idle()));
        behind = (2 * behind).min(385);
    }
}

#[test]
fn in_reordering_a_packet_is_lost_when_it_is_later_than_any_was() {
    let mut s = Script::new(&Config {
        probe_slack_ns: 100_000,
        ..Config::default()
    });
    // Sends others, of which the peer tells, until one is sent again; gives
    // their number. They leave one in 100 us.
    let overtakers = |s: &mut Script, first: u32| {
        let before = s.resent();
        let mut others = 0;
        while s.resent() == before && others < 400 {
            let last = s.send(1)[0];
            others += 1;
            let ack = Ack {
                credit: [last + 100, 0],
                ..all_but(last, &[first])
            };
            s.hear(Some(&ack), &[]);
            s.say();
        }
        s.hear(Some(&all_but(first + others, &[])), &[]);
        s.say();
        others
    };
    let mut gave_up_after = [0; 9];
    for others in &mut gave_up_after {
        let first = s.send(1)[0];
        *others = overtakers(&mut s, first);
    }
    // Each time it was only late. At first the number of others counts, then
    // the time, which grows by a quarter and the slack.
    assert_eq!(gave_up_after, [1, 2, 2, 4, 3, 5, 7, 9, 11]);
}

#[test]
fn what_comes_late_after_a_probe_tells_nothing_of_order() {
    let mut s = Script::new(&Config::default());
    let number = s.send(1)[0];
    s.probe();
    let said = s.say();
    assert_eq!((said.len(), said[0].heads), (1, 1));
    assert!(said[0].header.flags.has(Flags::ACK_WANTED));
    s.hear(Some(&all_but(number, &[])), &[]);
    s.say();
    assert_eq!(s.pair.nodes[0].with(|e, _| e.counters().spurious), 1);
    assert!(s.pair.nodes[0].with(|e, _| e.idle()));
    let numbers = s.send(2);
    s.hear(Some(&all_but(numbers[1], &numbers[..1])), &[]);
    assert_eq!(s.say().len(), 1);
}

#[test]
fn three_probes_in_vain_narrow_the_window_unless_the_peer_has_no_room() {
    // As long as nothing was ever answered they may come too early: no narrowing.
    for (answered, full) in [(true, false), (true, true), (false, false)] {
        let mut s = Script::new(&Config {
            congestion: Some(Mode::Shared),
            ..Config::default()
        });
        if answered {
            let number = s.send(1)[0];
            s.hear(Some(&all_but(number, &[])), &[]);
        }
        s.send(2);
        let flags = Flags::NONE.with(Flags::REQUESTS_FULL, full);
        s.hear_as(s.number, flags, None, &[Chunk::Ping]);
        let windows = [(); 3].map(|()| {
            s.probe();
            s.say();
            s.window()
        });
        let wide = 10 + u32::from(answered);
        let narrow = if full || !answered { wide } else { 2 };
        assert_eq!(windows, [wide, wide, narrow], "{answered} {full}");
    }
}

/// Checks P6.15.
#[test]
fn after_eight_probes_pings_ask_on() {
    let mut s = Script::new(&Config::default());
    s.send(1);
    let probes: Vec<bool> = (0..12)
        .map(|_| {
            s.probe();
            let said = s.say();
            assert_eq!(said.len(), 1);
            said[0].heads == 0
        })
        .collect();
    assert_eq!(probes, [vec![false; 8], vec![true; 4]].concat());
}

#[test]
fn where_packets_were_lost_a_silence_is_asked_out_of() {
    for (lost, pause, asked) in [
        (false, 0, [1; 5]),
        (true, 0, [1, 1, 8, 8, 8]),
        (true, 2 * SECOND, [1; 5]),
    ] {
        let mut s = Script::new(&Config::default());
        let numbers = s.send(5);
        if lost {
            s.hear(Some(&all_but(numbers[4], &numbers[..1])), &[]);
        }
        let again = s.say();
        assert_eq!(again.len(), usize::from(lost));
        let last = again.last().map_or(numbers[4], Said::number);
        s.hear(Some(&all_but(last, &[])), &[]);
        s.say();
        assert!(s.pair.nodes[0].with(|e, _| e.idle()));
        s.pair.now += pause;
        s.send(1);
        let probes = |s: &mut Script| s.pair.nodes[0].with(|e, _| e.counters().probes_sent);
        let mut packets = [0; 5];
        for packets in &mut packets {
            let before = probes(&mut s);
            while probes(&mut s) == before {
                s.wait();
                *packets += s.say().len();
            }
        }
        assert_eq!(packets, asked, "{lost} {pause}");
        // Who answers is asked at a probe's pace again.
        let last = s.send(1)[0];
        s.hear(Some(&all_but(last, &[])), &[]);
        s.send(1);
        let before = probes(&mut s);
        let mut said = 0;
        while said == 0 {
            s.wait();
            said = s.say().len();
        }
        assert_eq!((probes(&mut s) - before, said), (1, 1));
    }
}

#[test]
fn what_comes_later_than_its_probe_teaches_the_timer() {
    let mut s = Script::new(&Config::default());
    let number = s.send(1)[0];
    s.pair.now += 50_000;
    s.hear(Some(&all_but(number, &[])), &[]);
    // The next takes 10 ms, long after it was sent again.
    let number = s.send(1)[0];
    let sent_at = s.pair.now;
    s.probe();
    s.say();
    s.pair.now = sent_at + 10_000_000;
    s.hear(Some(&all_but(number, &[])), &[]);
    s.say();
    let srtt = s.pair.nodes[0].with(|e, _| e.round_trip(PeerId(0)));
    assert!(srtt.is_some_and(|ns| ns > 1_000_000), "{srtt:?}");
}

#[test]
fn the_time_that_the_peer_kept_an_acknowledgement_is_not_the_networks() {
    // Of a millisecond the peer had it for 900 us: two windows in the rest.
    for (delay, leaves) in [(14_063, 1), (0, 0)] {
        let mut s = Script::new(&Config {
            congestion: Some(Mode::Shared),
            ..Config::default()
        });
        s.pair.run(SECOND, |_| true);
        for _ in 0..40 {
            let number = s.send(1)[0];
            s.pair.now += 1_000_000;
            let ack = Ack {
                delay,
                ..all_but(number, &[])
            };
            s.hear(Some(&ack), &[]);
            s.say();
        }
        // The bucket is emptied; the next leaves as soon as the rate allows.
        loop {
            s.pair.send(0, &[7; 1_400]);
            if s.say().is_empty() {
                break;
            }
            // The latest to come is an answer, so no round trip is measured.
            s.hear_as(s.number, Flags::ACK_WANTED, None, &[Chunk::Ping]);
            let answer = s.say()[0].number();
            s.hear(Some(&all_but(answer, &[])), &[]);
            s.say();
        }
        s.pair.now += 5_000;
        let now = s.pair.now;
        s.pair.nodes[0].with(|e, log| log.timeouts(e, now));
        assert_eq!(s.say().len(), leaves, "{delay}");
    }
}

/// Checks P6.8, P6.9.
#[test]
fn a_silent_peer_that_owes_a_message_is_asked_and_then_dead() {
    // The second of two came; or the first, which is not wanted now.
    for (number, owes) in [(3, true), (2, false)] {
        let mut s = Script::new(&Config::default());
        s.pair.nodes[0].log.verdict = Some(Verdict::NotNow);
        s.hear(None, &[message(0, number)]);
        let end = s.pair.now + 5 * SECOND;
        let mut asked = 0;
        while let Some(at) = s.pair.nodes[0].with(|e, _| e.next_timeout())
            && at < end
        {
            s.pair.now = s.pair.now.max(at);
            s.pair.nodes[0].with(|e, log| log.timeouts(e, at));
            asked += s.say().len();
        }
        let state = s.pair.nodes[0].with(|e, _| e.peer_state(PeerId(0)));
        if owes {
            assert_eq!(state, PeerState::Dead(DeathReason::Silent));
            assert!((3..20).contains(&asked), "{asked} times");
        } else {
            assert_eq!((state, asked), (PeerState::Up, 0));
        }
    }
}
