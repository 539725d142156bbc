//! The protocol between two endpoints, step by step.

use crate::common::{Node, Pair, address};
use portolan_proto::congestion::Mode;
use portolan_proto::{
    Config, DeathReason, Drops, FIRST_PACKET_MAX, Message, Outcome, PeerEvent, PeerId, PeerState,
    Release, SendError, SourceId, Verdict,
};
use portolan_seal::{Checksum, Nonce, Seal, SuiteId};
use portolan_wire::{CONNECT_BYTES, CONNECT_CLEAR_BYTES, ConnectIds, EndpointId, Life, Priority};

const SECOND: u64 = 1_000_000_000;

fn all(_: &[u8]) -> bool {
    true
}

/// Drops a share of packets, the same each run.
fn lossy(percent: u64) -> impl FnMut(&[u8]) -> bool {
    let mut x = 12345u64;
    move |_| {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (x >> 33) % 100 >= percent
    }
}

/// Checks P4.2.
#[test]
fn one_message_arrives_with_arguments_and_payload() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"hello");
    pair.run(SECOND, all);
    assert_eq!(pair.nodes[1].log.got, [(3, vec![1, 2], b"hello".to_vec())]);
    assert!(pair.nodes[0].with(|e, _| e.idle()));
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
    assert_eq!(pair.nodes[1].log.events, [PeerEvent::Up]);
}

#[test]
fn both_may_begin_at_once() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"a");
    pair.send(1, b"b");
    pair.run(SECOND, all);
    assert_eq!(pair.nodes[0].log.got[0].2, b"b");
    assert_eq!(pair.nodes[1].log.got[0].2, b"a");
}

/// Checks P5.2, P6.1.
#[test]
fn nothing_is_lost_and_order_holds_under_heavy_loss() {
    let mut pair = Pair::new(&Config::default());
    let mut expected = Vec::new();
    for i in 0..200u32 {
        let payload = vec![i as u8; (i as usize * 37) % 1100];
        pair.send(0, &payload);
        expected.push((3, vec![1, 2], payload));
    }
    pair.run(20 * SECOND, lossy(20));
    assert_eq!(pair.nodes[1].log.got.len(), expected.len());
    assert_eq!(pair.nodes[1].log.got, expected);
    assert!(pair.nodes[0].with(|e, _| e.idle()));
    assert_eq!(
        pair.nodes[0].with(|e, _| e.free_frames()),
        Config::default().frames
    );
}

#[test]
fn a_long_message_is_cut_and_completed() {
    for (loss, release) in [(0, Release::Copied), (20, Release::Acknowledged)] {
        let mut pair = Pair::new(&Config::default());
        pair.nodes[0].log.source = (0..1_000_003u32).map(|i| (i * 7) as u8).collect();
        let m = Message {
            priority: Priority::Request,
            flow: 2,
            port: 8,
            args: &[4],
            payload: &[],
        };
        let now = pair.now;
        pair.nodes[0]
            .with(|e, _| e.send_long(now, PeerId(0), &m, 1_000_003, SourceId(42), release))
            .unwrap();
        pair.run(20 * SECOND, lossy(loss));
        assert_eq!(pair.nodes[0].log.released, [(SourceId(42), Outcome::Done)]);
        assert_eq!(pair.nodes[1].log.got[0].2, pair.nodes[0].log.source);
        assert_eq!(
            pair.nodes[0].with(|e, _| e.free_frames()),
            Config::default().frames
        );
    }
}

#[test]
fn what_one_counts_as_sent_the_other_counts_as_received() {
    let mut pair = Pair::new(&Config::default());
    for i in 0..20 {
        pair.send(0, &[i; 900]);
        pair.send(1, &[i; 90]);
        pair.run(SECOND, all);
    }
    let [a, b] = [0, 1].map(|i| pair.nodes[i].with(|e, _| *e.counters()));
    for (a, b) in [(a, b), (b, a)] {
        assert_eq!(a.packets_sent, b.packets_received);
        assert_eq!(a.bytes_sent, b.bytes_received);
        assert_eq!((a.messages_sent, b.messages_delivered), (20, 20));
        // The rest are connect packets and those of other sizes.
        let others = a.packets_sent - a.data_packets_sent - a.acks_sent;
        assert!((2..8).contains(&others), "{others}");
        assert!(a.data_packets_sent >= 20 && a.acks_sent + b.acks_sent > 0);
        assert_eq!((a.resent, a.spurious, a.duplicates, a.held), (0, 0, 0, 0));
        assert_eq!(a.drops, Drops::default());
    }
}

/// Checks P9.1.
#[test]
fn packets_grow_to_the_interfaces_limit() {
    let mut pair = Pair::new(&Config::default());
    let before = pair.nodes[0].with(|e, _| e.inline_max(PeerId(0), 0));
    pair.send(0, b"x");
    pair.run(SECOND, all);
    let after = pair.nodes[0].with(|e, _| e.inline_max(PeerId(0), 0));
    assert_eq!(after - before, 1472 - 1232);
    // What the path does not take is not used: larger packets vanish.
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(5 * SECOND, |p| p.len() <= 1400);
    let size = pair.nodes[0].with(|e, _| e.inline_max(PeerId(0), 0)) + 28 + 20;
    assert!((1350..=1400).contains(&size), "{size}");
}

/// Checks P9.2.
#[test]
fn a_path_that_shrinks_gets_smaller_packets() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, all);
    for _ in 0..50 {
        pair.send(0, &[9; 1400]);
    }
    pair.run(100 * SECOND, |p| p.len() <= 1232);
    assert_eq!(pair.nodes[1].log.got.len(), 51);
    assert!(pair.nodes[1].log.got[1..].iter().all(|g| g.2 == [9; 1400]));
}

/// Checks P7.6.
#[test]
fn what_is_cut_before_it_leaves_counts_by_its_parts() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, all);
    for _ in 0..50 {
        pair.send(0, &[9; 1400]);
    }
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.packet_too_big(now, PeerId(0), 0, 1_472, 1_232));
    pair.run(SECOND, all);
    let [a, b] = [0, 1].map(|i| pair.nodes[i].with(|e, _| e.credit_with(PeerId(0)).unwrap()));
    assert_eq!((a.sent[0], b.taken[0]), (101, 101));
    assert_eq!(pair.nodes[0].with(|e, _| e.counters().cut), 0);
}

#[test]
fn a_full_pool_gets_smaller_packets_too() {
    let config = Config {
        frames: 32,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    pair.send(0, b"x");
    pair.run(SECOND, all);
    let m = Message {
        priority: Priority::Request,
        flow: 0,
        port: 3,
        args: &[],
        payload: &[9; 1400],
    };
    let (now, mut sent) = (pair.now, 1);
    while pair.nodes[0]
        .with(|e, _| e.send(now, PeerId(0), &m))
        .is_ok()
    {
        sent += 1;
    }
    pair.run(100 * SECOND, |p| p.len() <= 1232);
    assert_eq!(pair.nodes[1].log.got.len(), sent);
    assert!(pair.nodes[1].log.got[1..].iter().all(|g| g.2 == [9; 1400]));
}

#[test]
fn a_path_that_shrinks_after_a_quiet_time_may_grow_again() {
    let mut pair = Pair::new(&Config::default());
    let room = |pair: &mut Pair| pair.nodes[0].with(|e, _| e.inline_max(PeerId(0), 0));
    let least = room(&mut pair);
    pair.send(0, b"x");
    pair.run(SECOND, all);
    let most = room(&mut pair);
    // The state is given back; the size found is kept.
    pair.run(30 * SECOND, all);
    pair.send(0, &[9; 1400]);
    assert_eq!(room(&mut pair), most);
    pair.run(SECOND, |p| p.len() <= 1232);
    assert_eq!(pair.nodes[1].log.got.len(), 2);
    assert_eq!(room(&mut pair), least);
    pair.run(9 * SECOND, all);
    assert_eq!(room(&mut pair), most);
}

#[test]
fn bursts_of_losses_leave_the_size_alone() {
    let mut pair = Pair::new(&Config::default());
    let room = |pair: &mut Pair| pair.nodes[0].with(|e, _| e.inline_max(PeerId(0), 0));
    pair.send(0, b"x");
    pair.run(SECOND, all);
    let most = room(&mut pair);
    let (mut packets, mut most_at) = (0, [0; 2]);
    for message in 1..=2_000 {
        pair.send(0, &[9; 1400]);
        if message % 100 == 0 {
            pair.run(SECOND, |_| {
                packets += 1;
                packets % 80 >= 64
            });
            most_at[usize::from(room(&mut pair) == most)] += 1;
        }
    }
    assert_eq!(pair.nodes[1].log.got.len(), 2_001);
    assert_eq!(most_at, [0, 20]);
}

#[test]
fn a_size_that_was_not_found_is_looked_for_once_a_rested_pair_goes_on() {
    let mut pair = Pair::new(&Config::default());
    let room = |pair: &mut Pair| pair.nodes[0].with(|e, _| e.inline_max(PeerId(0), 0));
    let least = room(&mut pair);
    pair.send(0, b"x");
    for _ in 0..2 {
        pair.run(30 * SECOND, |p| p.len() <= 1232);
        assert_eq!(room(&mut pair), least);
        pair.send(0, b"x");
    }
    pair.run(2 * SECOND, all);
    assert!(room(&mut pair) > least);
}

/// Checks P7.15.
#[test]
fn what_is_not_wanted_now_is_held_and_stops_the_sender() {
    let config = Config {
        hold_frames: 8,
        queue_frames: 16,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    pair.nodes[1].log.verdict = Some(Verdict::NotNow);
    let m = Message {
        priority: Priority::Request,
        flow: 0,
        port: 3,
        args: &[],
        payload: &[1; 1000],
    };
    let mut sent = 0;
    let error = loop {
        let now = pair.now;
        match pair.nodes[0].with(|e, _| e.send(now, PeerId(0), &m)) {
            Ok(_) => sent += 1,
            Err(e) => break e,
        }
        pair.run(SECOND / 100, all);
        assert!(sent < 100);
    };
    assert_eq!(error, SendError::NoCredit);
    // A reply still goes through.
    let reply = Message {
        priority: Priority::Reply,
        ..m
    };
    pair.nodes[1].log.verdict = None;
    let now = pair.now;
    pair.nodes[0]
        .with(|e, _| e.send(now, PeerId(0), &reply))
        .unwrap();
    pair.run(SECOND / 100, all);
    assert_eq!(pair.nodes[1].log.got.len(), 1);
    pair.nodes[1].with(|e, log| log.resume(e, now));
    pair.run(SECOND, all);
    assert_eq!(pair.nodes[1].log.got.len(), sent + 1);
}

/// Checks P5.3.
#[test]
fn a_refused_message_is_told_to_its_sender() {
    let mut pair = Pair::new(&Config::default());
    pair.nodes[1].log.verdict = Some(Verdict::Refuse);
    let first = pair.send(0, b"no");
    pair.run(SECOND, all);
    assert_eq!(pair.nodes[0].log.refused, [first]);
    pair.nodes[1].log.verdict = None;
    pair.send(0, b"yes");
    pair.run(SECOND, all);
    assert_eq!(pair.nodes[1].log.got[0].2, b"yes");
}

/// Checks P5.3.
#[test]
fn refusals_that_have_not_left_go_together() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"hello");
    pair.run(SECOND, all);
    pair.nodes[1].log.verdict = Some(Verdict::Refuse);
    let sent: Vec<_> = (0..40).map(|_| pair.send(0, b"no")).collect();
    let mut packets = 0;
    let once_lost = |_: &[u8]| {
        packets += 1;
        packets != 2
    };
    pair.run(SECOND, once_lost);
    assert_eq!(pair.nodes[0].log.refused, sent);
    assert!(packets < 20, "{packets} packets");
}

/// Each reports the other's suite, once; nothing is taken of it, and no packet answers one.
#[test]
fn two_that_differ_in_their_suites_say_so() {
    use SuiteId::{Aegis, AesGcm, ChaCha};
    for suites in [[Aegis, AesGcm], [ChaCha, Aegis]] {
        let mut pair = Pair::with_suites(&Config::default(), suites);
        for i in 0..2 {
            pair.send(i, b"in vain");
        }
        pair.run(SECOND, all);
        for (i, node) in pair.nodes.iter_mut().enumerate() {
            assert_eq!(node.log.suites, [[suites[i], suites[1 - i]]]);
            assert_eq!(node.log.events, []);
            let (sent, bad) = node.with(|e, _| {
                let c = e.counters();
                (c.packets_sent, c.drops.bad_tag)
            });
            // Those that seek the peer, of which each may be doubted.
            assert!(sent > 2 && bad > 2 && sent <= bad + 1, "{sent} {bad}");
        }
    }
    let mut same = Pair::with_suites(&Config::default(), [Aegis; 2]);
    same.send(0, b"arrives");
    same.run(SECOND, all);
    assert_eq!(same.nodes[1].log.got.len(), 1);
    assert!(same.nodes.iter().all(|node| node.log.suites.is_empty()));
}

/// Checks P3.15.
#[test]
fn keys_change_phase_under_way() {
    let config = Config {
        rekey_packets: 10,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    for _ in 0..40 {
        for _ in 0..5 {
            pair.send(0, &[3; 1000]);
        }
        pair.run(SECOND, lossy(10));
    }
    assert_eq!(pair.nodes[1].log.got.len(), 200);
    assert!(pair.nodes[0].with(|e, _| e.counters().rekeys) >= 10);
}

/// Checks P2.5, P2.8, P7.4.
#[test]
fn counters_wrap() {
    let first_packet = u64::from(u32::MAX) - 20;
    let config = Config {
        first_packet,
        first_message: u32::MAX - 20,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    for i in 0..100u8 {
        pair.send(0, &[i; 1000]);
        if i % 10 == 0 {
            pair.run(SECOND, lossy(10));
        }
    }
    pair.run(SECOND, lossy(10));
    assert_eq!(pair.nodes[1].log.got.len(), 100);
}

/// Checks P4.1, P6.8.
#[test]
fn a_silent_peer_is_dead_after_the_bound_and_one_not_there_yet_is_awaited() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(10 * SECOND, |_| false);
    assert_eq!(pair.nodes[0].log.events, [PeerEvent::Waiting]);
    pair.run(SECOND, all);
    assert_eq!(pair.nodes[1].log.got.len(), 1);
    pair.send(0, b"y");
    pair.run(10 * SECOND, |_| false);
    let dead = PeerEvent::Dead(DeathReason::Silent);
    assert_eq!(
        pair.nodes[0].log.events,
        [PeerEvent::Waiting, PeerEvent::Up, dead]
    );
    assert_eq!(
        pair.nodes[0].with(|e, _| e.free_frames()),
        Config::default().frames
    );
}

/// Checks P4.7.
#[test]
fn a_restarted_peer_gets_a_new_life_and_nothing_of_the_old() {
    let config = Config::default();
    let mut pair = Pair::new(&config);
    pair.send(1, b"old");
    pair.run(SECOND, all);
    let mut fresh = Node::new(&config, 2, 23);
    fresh.with(|e, _| {
        e.add_peer(EndpointId(1), Life(11), address(1), Mode::Lan)
            .unwrap()
    });
    pair.nodes[1] = fresh;
    pair.send(1, b"new");
    pair.run(SECOND, all);
    assert_eq!(
        pair.nodes[0]
            .log
            .got
            .iter()
            .map(|g| &g.2[..])
            .collect::<Vec<_>>(),
        [b"old", b"new"]
    );
    let restarted = PeerEvent::Dead(DeathReason::Restarted);
    assert_eq!(
        pair.nodes[0].log.events,
        [PeerEvent::Up, restarted, PeerEvent::Up]
    );
}

/// Checks P10.1, P10.2.
#[test]
fn closing_tells_the_peer() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"last");
    pair.run(SECOND, all);
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.close(now));
    pair.run(SECOND, lossy(30));
    let closed = PeerState::Dead(DeathReason::Closed);
    assert_eq!(pair.nodes[1].with(|e, _| e.peer_state(PeerId(0))), closed);
    assert!(pair.nodes[0].with(|e, _| e.idle()));
}

/// Checks P10.3.
#[test]
fn who_closes_lets_go_of_messages_that_came_in_part() {
    let config = Config::default();
    let mut pair = Pair::new(&config);
    pair.send(0, b"warm");
    pair.run(SECOND, all);
    // The first of two is lost: the second must be held.
    pair.send(0, b"first");
    pair.flush(0, true, &mut |_: &[u8]| false);
    pair.send(0, b"second");
    pair.flush(0, true, &mut all);
    pair.deliver(1);
    let free = |pair: &mut Pair| pair.nodes[1].with(|e, _| e.free_frames());
    assert_eq!(free(&mut pair), config.frames - 1);
    let now = pair.now;
    pair.nodes[1].with(|e, _| e.close(now));
    pair.flush(1, true, &mut all);
    pair.deliver(0);
    let before = pair.nodes[1].with(|e, _| e.counters().packets_sent);
    pair.run(60 * SECOND, all);
    assert_eq!(free(&mut pair), config.frames);
    assert!(pair.nodes[1].with(|e, _| e.idle()));
    let sent = pair.nodes[1].with(|e, _| e.counters().packets_sent) - before;
    assert!(
        sent < 4,
        "{sent} packets after the close: it asks for the rest"
    );
}

/// Checks P4.10, P10.1.
#[test]
fn who_connects_after_a_close_is_told_and_two_closed_ones_rest() {
    for both in [false, true] {
        let mut pair = Pair::new(&Config::default());
        let now = pair.now;
        pair.nodes[1].with(|e, _| e.close(now));
        pair.send(0, b"too late");
        if both {
            pair.nodes[0].with(|e, _| e.close(now));
        }
        pair.run(10 * SECOND, lossy(20));
        let closed = PeerState::Dead(DeathReason::Closed);
        let told = [0, 1].map(|i| pair.nodes[i].with(|e, _| e.peer_state(PeerId(0))) == closed);
        assert!(told[0] || both && told[1], "{told:?}");
        for node in &mut pair.nodes {
            assert!(node.with(|e, _| e.idle()));
            assert!(node.with(|e, _| e.counters().packets_sent) < 30);
        }
    }
}

#[test]
fn a_quiet_peer_gives_its_state_back_and_goes_on_later() {
    let config = Config {
        active: 1,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    for round in 0..3 {
        pair.send(0, &[round; 500]);
        pair.send(1, &[round; 500]);
        pair.run(30 * SECOND, all);
    }
    assert_eq!(pair.nodes[0].log.got.len(), 3);
    assert_eq!(pair.nodes[1].log.got.len(), 3);
}

#[test]
fn an_answer_carries_the_acknowledgement() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"warm");
    pair.run(SECOND, all);
    pair.nodes[1].log.reply_to = Some(PeerId(0));
    let before = pair.nodes[1].with(|e, _| e.counters().acks_sent);
    for _ in 0..20 {
        pair.send(0, b"ping");
        // The pass that delivered does not acknowledge by itself.
        pair.flush(0, false, &mut all);
        pair.deliver(1);
        assert_eq!(pair.flush(1, false, &mut all), 1);
        pair.deliver(0);
    }
    assert_eq!(pair.nodes[1].with(|e, _| e.counters().acks_sent), before);
}

/// Checks P2.9.
#[test]
fn a_repeated_packet_is_delivered_once() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"warm");
    pair.run(SECOND, all);
    pair.send(0, b"once");
    pair.flush(0, true, &mut all);
    let copy = pair.wire[1][0].clone();
    pair.wire[1].push_back(copy);
    pair.deliver(1);
    assert_eq!(pair.nodes[1].log.got.len(), 2);
    assert_eq!(pair.nodes[1].with(|e, _| e.counters().drops.replay), 1);
}

#[test]
fn a_forged_packet_for_a_quiet_peer_takes_no_state_and_is_looked_at_rarely() {
    let config = Config {
        active: 1,
        ..Config::default()
    };
    let mut pair = Pair::new(&config);
    pair.send(0, b"real");
    pair.flush(0, true, &mut all);
    pair.run(SECOND, all);
    pair.send(0, b"real");
    pair.flush(0, true, &mut all);
    let mut forged = pair.wire[1][0].clone();
    *forged.last_mut().unwrap() ^= 1;
    forged[8] ^= 0x40;
    pair.run(30 * SECOND, all);
    let now = pair.now;
    let quiet = |node: &mut Node| {
        node.conns
            .iter()
            .filter(|c| **c != Default::default())
            .count()
    };
    assert_eq!(quiet(&mut pair.nodes[1]), 0);
    for _ in 0..5000 {
        pair.nodes[1].with(|e, log| {
            log.packet(e, now, address(1), false, &mut forged.clone());
        });
    }
    assert_eq!(quiet(&mut pair.nodes[1]), 0);
    let drops = pair.nodes[1].with(|e, _| e.counters().drops);
    assert_eq!((drops.bad_tag, drops.limited), (1024, 5000 - 1024));
    pair.now += SECOND;
    pair.send(0, b"again");
    pair.run(SECOND, all);
    assert_eq!(pair.nodes[1].log.got.len(), 3);
}

/// Checks P4.12.
#[test]
fn invented_ids_are_not_searched_for_without_end() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"real");
    pair.flush(0, true, &mut all);
    let now = pair.now;
    let (mut invented, real) = (pair.wire[1][0].clone(), pair.wire[1][0].clone());
    for id in 0..5000_u64 {
        // The sender's id in a connect packet.
        invented[12..20].copy_from_slice(&(id << 32 | 7).to_le_bytes());
        pair.nodes[1].with(|e, log| {
            log.packet(e, now, address(1), false, &mut invented.clone());
        });
    }
    let drops = pair.nodes[1].with(|e, _| e.counters().drops);
    assert_eq!((drops.unknown, drops.limited), (1024, 5000 - 1024));
    // Who is where launchers put it need not be searched for.
    let taken = pair.nodes[1].with(|e, log| {
        log.packet(e, now, address(1), false, &mut real.clone());
        e.counters().packets_received
    });
    assert_eq!(taken, 1);
}

#[test]
fn random_loss_costs_little_more_than_what_is_lost() {
    const TOTAL: u64 = 8_000_000;
    let mut took = Vec::new();
    for (percent, kept) in [(0, 1.0), (1, 0.9), (5, 0.8), (20, 0.6)] {
        let mut pair = Pair::new(&Config::default());
        pair.send(0, b"warm");
        pair.run(SECOND, all);
        pair.nodes[0].log.source = (0..TOTAL).map(|i| (i * 7) as u8).collect();
        let m = Message {
            priority: Priority::Request,
            flow: 2,
            port: 8,
            args: &[],
            payload: &[],
        };
        let (now, before) = (pair.now, pair.nodes[0].with(|e, _| *e.counters()));
        pair.nodes[0]
            .with(|e, _| {
                e.send_long(
                    now,
                    PeerId(0),
                    &m,
                    TOTAL,
                    SourceId(1),
                    Release::Acknowledged,
                )
            })
            .unwrap();
        let mut fate = lossy(percent);
        while pair.nodes[1].log.got.len() < 2 {
            pair.run(1_000_000, &mut fate);
            assert!(pair.now < now + 10 * SECOND, "{percent} % loss: stalled");
        }
        assert_eq!(pair.nodes[1].log.got[1].2, pair.nodes[0].log.source);
        took.push(pair.now - now);
        let share = took[0] as f64 / took[took.len() - 1] as f64;
        let arriving = 1.0 - percent as f64 / 100.0;
        assert!(
            share >= kept * arriving,
            "{percent} % loss: {share} of the goodput"
        );
        let after = pair.nodes[0].with(|e, _| *e.counters());
        let sent = after.data_packets_sent - before.data_packets_sent;
        let needed = TOTAL.div_ceil(1408) as f64 / arriving;
        let ratio = sent as f64 / needed;
        assert!(
            ratio < 1.1,
            "{percent} % loss: {ratio} of the packets needed"
        );
        println!("{percent} %: {share:.3} of the goodput, {ratio:.3} of the packets");
    }
}

/// Checks P4.6.
#[test]
fn a_recorded_connect_packet_feigns_no_life() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    let mut connects = Vec::new();
    pair.run(SECOND, |p| {
        connects.extend((p[0] & 15 == 1).then(|| p.to_vec()));
        true
    });
    // Who answered the connect has got the last packet of the handshake.
    pair.send(1, b"y");
    let begin = pair.now;
    let dead = PeerState::Dead(DeathReason::Silent);
    while pair.nodes[1].with(|e, _| e.peer_state(PeerId(0))) != dead {
        pair.run(SECOND / 10, |_| false);
        pair.now += SECOND / 10;
        pair.wire[1].extend(connects.iter().cloned());
        pair.deliver(1);
        assert!(pair.now < begin + 4 * SECOND, "it is taken for alive");
    }
}

/// Checks P2.27, P2.28.
#[test]
fn offers_that_do_not_fit_are_not_taken() {
    let usual = Config::default();
    for odd in [
        Config { flows: 4, ..usual },
        Config {
            first_packet: FIRST_PACKET_MAX + 1,
            ..usual
        },
    ] {
        let mut pair = Pair::new(&usual);
        pair.nodes[0] = Node::new(&odd, 1, 11);
        pair.nodes[0].with(|e, _| {
            e.add_peer(EndpointId(2), Life(22), address(2), Mode::Lan)
                .unwrap()
        });
        pair.send(0, b"x");
        pair.run(SECOND, all);
        assert_eq!(
            pair.nodes[1].with(|e, _| e.peer_state(PeerId(0))),
            PeerState::New
        );
        assert!(pair.nodes[1].with(|e, _| e.counters().drops.malformed) > 0);
        assert!(pair.nodes[1].log.got.is_empty());
    }
}

/// Checks P2.30.
#[test]
fn a_connect_packet_has_path_0_and_no_flag() {
    for byte in [1, 2] {
        let mut pair = Pair::new(&Config::default());
        pair.send(0, b"x");
        let mut connects = Vec::new();
        pair.run(SECOND / 100, |p| {
            connects.push(p.to_vec());
            false
        });
        for mut packet in connects {
            assert_eq!(packet[0] & 15, 1);
            packet[byte] = 1;
            pair.wire[1].push_back(packet);
        }
        pair.deliver(1);
        let drops = pair.nodes[1].with(|e, _| e.counters().drops);
        assert!(drops.malformed > 0 && drops.bad_tag == 0, "{drops:?}");
    }
}

#[test]
fn packets_that_do_not_verify_are_looked_at_at_a_rate() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.flush(0, true, &mut all);
    let mut forged = pair.wire[1][0].clone();
    *forged.last_mut().unwrap() ^= 1;
    let bad = |pair: &mut Pair| pair.nodes[1].with(|e, _| e.counters().drops.bad_tag);
    let hear = |pair: &mut Pair| {
        let now = pair.now;
        pair.nodes[1].with(|e, log| {
            log.packet(e, now, address(1), false, &mut forged.clone());
        });
    };
    for _ in 0..2_000 {
        hear(&mut pair);
    }
    assert_eq!(bad(&mut pair), 1_024);
    // However often they come, 1,024 a second more.
    for _ in 0..20_000 {
        pair.now += 100_000;
        hear(&mut pair);
    }
    let more = bad(&mut pair) - 1_024;
    assert!((1_800..=2_048).contains(&more), "{more} in two seconds");
    // A quiet time earns no more than at first.
    pair.now += 100 * SECOND;
    for _ in 0..2_000 {
        hear(&mut pair);
    }
    assert_eq!(bad(&mut pair) - more, 2 * 1_024);
}

/// Checks P4.8.
#[test]
fn a_peer_that_restarts_before_its_last_life_was_proven_comes_up() {
    let config = Config::default();
    let mut pair = Pair::new(&config);
    pair.send(1, b"first");
    pair.run(SECOND, all);
    for life in [33, 44] {
        pair.nodes[1] = Node::new(&config, 2, life);
        pair.nodes[1].with(|e, _| {
            e.add_peer(EndpointId(1), Life(11), address(1), Mode::Lan)
                .unwrap()
        });
        pair.send(1, &[life as u8; 10]);
        if life == 33 {
            // Its offer comes, the answer does not.
            pair.flush(1, true, &mut all);
            pair.deliver(0);
            assert_eq!(pair.flush(0, true, &mut |_: &[u8]| false), 1);
            // Until that is echoed the life before goes on.
            assert_eq!(pair.nodes[0].log.events, [PeerEvent::Up]);
        }
    }
    pair.run(SECOND, all);
    let got: Vec<_> = pair.nodes[0].log.got.iter().map(|g| &g.2[..]).collect();
    assert_eq!(got, [&b"first"[..], &[44; 10]]);
}

/// Checks P4.3, P4.4.
#[test]
fn who_is_up_answers_an_offer_that_asks_again() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.flush(0, true, &mut all);
    pair.deliver(1);
    pair.flush(1, true, &mut all);
    let offer = pair.wire[0][0].clone();
    pair.run(SECOND, all);
    // Our answer was lost, for all that the peer knows.
    pair.wire[0].push_back(offer);
    pair.deliver(0);
    assert_eq!(pair.flush(0, true, &mut all), 1);
    assert_eq!(pair.wire[1][0][0] & 15, 1);
    assert_eq!(pair.nodes[0].with(|e, _| e.counters().drops.replay), 0);
    // It is settled: nobody asks again.
    pair.deliver(1);
    assert_eq!(pair.flush(1, true, &mut all), 0);
}

/// Checks P4.5.
#[test]
fn who_is_up_drops_an_offer_with_another_nonce() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.flush(0, true, &mut all);
    let mut offer = pair.wire[1][0].clone();
    pair.run(SECOND, all);
    // The nonce is the first of the bytes that would be encrypted.
    let (clear, rest) = offer.split_at_mut(CONNECT_CLEAR_BYTES);
    let (body, tag) = rest.split_at_mut(CONNECT_BYTES - CONNECT_CLEAR_BYTES);
    body[0] ^= 2;
    let number = ConnectIds::parse(clear).unwrap().number.0;
    tag.copy_from_slice(&Checksum.seal(0, Nonce { path: 0, number }, clear, body));
    pair.wire[1].push_back(offer);
    pair.deliver(1);
    assert_eq!(pair.nodes[1].with(|e, _| e.counters().drops.replay), 1);
    assert_eq!(pair.flush(1, true, &mut all), 0, "an answer");
}

/// Checks P2.29.
#[test]
fn a_data_packet_from_another_port_leads_nowhere_else() {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, all);
    pair.send(0, b"y");
    pair.flush(0, true, &mut all);
    let mut packet = pair.wire[1].pop_front().unwrap();
    let now = pair.now;
    pair.nodes[1].with(|e, log| log.packet(e, now, address(77), false, &mut packet));
    assert_eq!(pair.nodes[1].log.got.len(), 2);
    pair.send(1, b"z");
    let to = pair.nodes[1].with(|e, log| {
        let t = e.poll_transmit(now, true, log).unwrap();
        e.transmitted(t.frame);
        t.to
    });
    assert_eq!(to, address(1));
}
