//! What came of packets is handed out by [`Rx`] and [`Event`]s: nothing is lost
//! or comes twice, whatever the caller does in between.

use crate::common::script::{SECOND, Script, fill, message};
use crate::common::{Pair, address};
use portolan_proto::congestion::Mode;
use portolan_proto::{
    Config, DeathReason, Endpoint, Event, Message, Outcome, PeerEvent, PeerId, Release, Rx,
    SendError, SourceId, Spare, Verdict,
};
use portolan_seal::AnySeal;
use portolan_wire::{Chunk, Flags, Life, MessageNo, Priority};

const ME: PeerId = PeerId(0);

/// The numbers of the messages that are still handed out, all of which are taken.
fn rest(e: &mut Endpoint<'_, AnySeal>, rx: &mut Rx<'_>) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let Some(delivery) = rx.next(e) {
        numbers.push(delivery.message.0);
        rx.answer(e, Verdict::Take(0));
    }
    assert!(rx.next(e).is_none(), "nothing comes after the end");
    numbers
}

#[test]
fn of_a_packet_that_is_dropped_half_way_the_rest_comes_again() {
    let mut s = Script::new(&Config::default());
    let number = s.number;
    let chunks = [message(0, 2), message(0, 3), message(0, 4)];
    let packet = s.packet(number, Flags::NONE, None, &chunks);
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| {
        let (mut first, mut again) = (packet.clone(), packet.clone());
        let mut spare = Spare::default();
        let mut rx = e
            .handle_packet(now, address(2), false, &mut first, &mut spare)
            .unwrap();
        assert_eq!(rx.next(e).unwrap().message, MessageNo(2));
        rx.answer(e, Verdict::Take(0));
        drop(rx);
        e.check();
        let mut rx = e
            .handle_packet(now, address(2), false, &mut again, &mut spare)
            .expect("it was not counted yet");
        assert_eq!(rest(e, &mut rx), [3, 4]);
        let mut late = packet.clone();
        let rx = e.handle_packet(now, address(2), false, &mut late, &mut spare);
        assert!(rx.is_none(), "now it was");
        e.check();
    });
}

/// Checks P2.21.
#[test]
fn what_was_not_answered_is_offered_again() {
    let mut s = Script::new(&Config::default());
    let chunks = [message(0, 2), message(1, 0)];
    let mut packet = s.packet(s.number, Flags::NONE, None, &chunks);
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, _| {
        let mut spare = Spare::default();
        let mut rx = e
            .handle_packet(now, address(2), false, &mut packet, &mut spare)
            .unwrap();
        assert_eq!(rx.next(e).unwrap().flow, 0);
        assert_eq!(rx.next(e).unwrap().flow, 1);
        rx.answer(e, Verdict::Take(0));
        assert!(rx.next(e).is_none());
        assert!(!e.is_resumable(), "the caller may still not want it");
        let mut rx = e.resume(now, &mut spare);
        assert_eq!(rx.next(e).unwrap().message, MessageNo(2));
        rx.answer(e, Verdict::NotNow);
        assert_eq!(rest(e, &mut rx), []);
        let mut rx = e.resume(now, &mut spare);
        assert_eq!(rest(e, &mut rx), [2]);
        e.check();
    });
}

#[test]
fn a_peer_that_dies_while_a_part_is_looked_at_has_no_more() {
    for verdict in [Verdict::Take(0), Verdict::NotNow, Verdict::Refuse] {
        let mut s = Script::new(&Config::default());
        s.hear(None, &[message(0, 3)]);
        let chunks = [message(0, 2), message(0, 4)];
        let mut packet = s.packet(s.number, Flags::NONE, None, &chunks);
        let now = s.pair.now;
        s.pair.nodes[0].with(|e, _| {
            let mut spare = Spare::default();
            let mut rx = e
                .handle_packet(now, address(2), false, &mut packet, &mut spare)
                .unwrap();
            assert_eq!(rx.next(e).unwrap().message, MessageNo(2));
            e.peer_died(ME);
            rx.answer(e, verdict);
            assert!(rx.next(e).is_none());
            assert_eq!(e.free_frames(), Config::default().frames);
            e.check();
        });
    }
}

#[test]
fn a_flow_goes_on_when_its_refusal_has_left_without_any_packet() {
    let mut s = Script::new(&Config {
        frames: 32,
        ..Config::default()
    });
    s.hear(None, &[message(1, 1)]);
    fill(&mut s);
    let last = s.say().last().unwrap().number();
    s.pair.nodes[0].log.verdict = Some(Verdict::Refuse);
    // For the second there is no frame, and what follows it waits.
    for chunk in [message(0, 2), message(1, 0)] {
        s.hear(None, &[chunk]);
    }
    s.pair.nodes[0].log.verdict = None;
    s.hear(Some(&crate::common::script::all_but(last, &[])), &[]);
    assert_eq!(s.pair.nodes[0].log.got.len(), 2, "only the greetings");
    s.pair.now += 1_000_000;
    let now = s.pair.now;
    s.pair.nodes[0].with(|e, log| log.timeouts(e, now));
    assert_eq!(s.pair.nodes[0].log.got.len(), 3);
}

#[test]
fn memory_is_given_back_before_the_death_is_told_and_reused_after() {
    let mut pair = Pair::new(&Config {
        longs: 8,
        ..Config::default()
    });
    pair.send(0, b"hello");
    pair.run(SECOND, |_| true);
    let now = pair.now;
    pair.nodes[0].with(|e, _| {
        let lend_in = |e: &mut Endpoint<'_, AnySeal>, flow: u16| {
            let m = Message {
                priority: Priority::Request,
                flow,
                port: 3,
                args: &[],
                payload: &[],
            };
            let source = SourceId(5);
            e.send_long(now, ME, &m, 100_000, source, Release::Acknowledged)
        };
        // No flow takes more than it leaves.
        let lend = |e: &mut Endpoint<'_, AnySeal>| {
            let mut tried = (0..8).map(|flow| lend_in(e, flow));
            tried
                .find(Result::is_ok)
                .unwrap_or(Err(SendError::NoCredit))
        };
        // One is left to replies.
        (0..7).for_each(|_| _ = lend(e).unwrap());
        assert_eq!(lend(e), Err(SendError::NoCredit));
        e.peer_died(ME);
        e.check();
        e.peer_returned(ME, Life(23), address(2), Mode::Lan);
        assert_eq!(lend(e), Err(SendError::NoCredit), "they are not told of");
        for _ in 0..7 {
            let back = Event::Released(SourceId(5), Outcome::PeerDead);
            assert_eq!(e.poll_event(), Some(back));
            e.check();
        }
        let dead = PeerEvent::Dead(DeathReason::Told);
        assert_eq!(e.poll_event(), Some(Event::Peer(ME, dead)));
        assert_eq!(e.poll_event(), None);
        lend(e).unwrap();
        e.check();
    });
}

#[test]
fn a_refusal_that_finds_too_many_untold_comes_again() {
    let mut s = Script::new(&Config::default());
    let refuse = |message: u32| {
        [Chunk::Refuse {
            priority: Priority::Request,
            flow: 0,
            message: MessageNo(message),
        }]
    };
    let (now, from) = (s.pair.now, s.number);
    let packets: Vec<_> = (0..36)
        .map(|i| s.packet(from + u64::from(i), Flags::NONE, None, &refuse(i)))
        .collect();
    let told = |e: &mut Endpoint<'_, AnySeal>| {
        let mut told = Vec::new();
        while let Some(Event::Refused { message, .. }) = e.poll_event() {
            told.push(message.0);
        }
        told
    };
    s.pair.nodes[0].with(|e, _| {
        let mut spare = Spare::default();
        let mut hear = |e: &mut Endpoint<'_, AnySeal>, i: usize| {
            let mut packet = packets[i].clone();
            let rx = e.handle_packet(now, address(2), false, &mut packet, &mut spare);
            let counts = rx.map(|mut rx| rest(e, &mut rx)).is_some();
            e.check();
            counts
        };
        (0..36).for_each(|i| assert!(hear(e, i)));
        assert_eq!(told(e), Vec::from_iter(0..32));
        // Those that were not taken are asked for, and no others.
        let again: Vec<_> = (0..36).filter(|&i| hear(e, i)).collect();
        assert_eq!(again, [32, 33, 34, 35]);
        assert_eq!(told(e), [32, 33, 34, 35]);
    });
}
