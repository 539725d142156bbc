//! Packet scripts: ICMP errors say that the peer's port is closed.
use crate::common::Pair;
use portolan_proto::{Config, DeathReason, PeerEvent, PeerId};

const SECOND: u64 = 1_000_000_000;
/// What is quoted of a packet.
const QUOTE: usize = 28;

/// Two that have spoken.
fn acquainted() -> Pair {
    let mut pair = Pair::new(&Config::default());
    pair.send(0, b"x");
    pair.run(SECOND, |_| true);
    pair
}

/// Tells the first node that a packet found nobody.
fn tell(pair: &mut Pair, quote: &[u8]) {
    let now = pair.now;
    pair.nodes[0].with(|e, _| {
        e.port_unreachable(now, quote);
        e.check();
    });
}

/// The packets that the first node sends now; nobody gets them.
fn say(pair: &mut Pair) -> Vec<Vec<u8>> {
    let mut said = Vec::new();
    pair.flush(0, false, &mut |packet| {
        said.push(packet.to_vec());
        false
    });
    said
}

/// Every packet of either finds nobody for so long, and the first is told of one in
/// `every`.
fn refuse_for(pair: &mut Pair, time: u64, every: usize) {
    let end = pair.now + time;
    let mut count = 0;
    while pair.now < end {
        let mut quotes = Vec::new();
        pair.run(SECOND / 100, |packet| {
            count += 1;
            if count % every == 0 {
                quotes.push(packet[..packet.len().min(QUOTE)].to_vec());
            }
            false
        });
        for quote in quotes {
            tell(pair, &quote);
        }
        pair.now += SECOND / 100;
    }
}

fn events(pair: &Pair) -> &[PeerEvent] {
    &pair.nodes[0].log.events
}

const DEAD: PeerEvent = PeerEvent::Dead(DeathReason::Silent);

#[test]
fn a_packet_that_found_nobody_brings_one_early_sign_of_life() {
    let mut pair = acquainted();
    pair.send(0, b"y");
    let packet = say(&mut pair).pop().unwrap();
    assert_eq!(say(&mut pair).len(), 0);
    for _ in 0..3 {
        tell(&mut pair, &packet[..QUOTE]);
    }
    assert_eq!(say(&mut pair).len(), 1);
    tell(&mut pair, &packet);
    assert_eq!(say(&mut pair).len(), 0);
    // Once it was heard, one more.
    pair.run(SECOND, |_| true);
    pair.send(0, b"z");
    let packet = say(&mut pair).pop().unwrap();
    tell(&mut pair, &packet);
    assert_eq!(say(&mut pair).len(), 1);
    pair.run(SECOND, |_| true);
    assert_eq!(pair.nodes[1].log.got.len(), 3);
    assert_eq!(events(&pair), [PeerEvent::Up]);
}

/// Checks P6.10.
#[test]
fn who_has_not_seen_our_packets_cannot_say_that_they_found_nobody() {
    let mut pair = acquainted();
    let mut answered = Vec::new();
    pair.send(0, b"y");
    pair.run(SECOND, |packet| {
        answered.push(packet.to_vec());
        true
    });
    pair.send(0, b"z");
    let packet = say(&mut pair).pop().unwrap();
    // Those that were answered, those that have not left, those of other
    // connections, and what is no packet at all.
    for quote in &answered {
        tell(&mut pair, quote);
    }
    for byte in (0..12).filter(|byte| *byte != 1) {
        for bit in 0..8 {
            let mut quote = packet.clone();
            quote[byte] ^= 1 << bit;
            tell(&mut pair, &quote);
        }
    }
    for len in 0..12 {
        tell(&mut pair, &packet[..len]);
        tell(&mut pair, &vec![0xff; len]);
    }
    assert_eq!(say(&mut pair).len(), 0);
    // Told at any rate, all of it is looked at at a bounded one.
    for _ in 0..5_000 {
        tell(&mut pair, &answered[0]);
    }
    tell(&mut pair, &packet);
    assert_eq!(say(&mut pair).len(), 0);
}

#[test]
fn a_peer_whose_port_stays_closed_is_given_up_sooner() {
    let config = Config::default();
    for every in [1, 2, 5] {
        let mut pair = acquainted();
        pair.send(0, b"y");
        refuse_for(&mut pair, config.silence_ns / 9, every);
        assert_eq!(events(&pair), [PeerEvent::Up], "one in {every}");
        refuse_for(&mut pair, config.silence_ns / 8, every);
        assert_eq!(events(&pair), [PeerEvent::Up, DEAD], "one in {every}");
    }
}

#[test]
fn one_that_gets_no_core_notices_a_closed_port_as_soon() {
    let silence = Config::default().silence_ns;
    let mut pair = acquainted();
    pair.send(0, b"y");
    let mut refuse_and_starve = |times: u64| {
        for _ in 0..times {
            refuse_for(&mut pair, silence / 30, 1);
            let now = pair.now;
            pair.nodes[0].with(|e, _| e.was_starved(now, silence / 30));
        }
        events(&pair).to_vec()
    };
    assert_eq!(refuse_and_starve(3), [PeerEvent::Up]);
    assert_eq!(refuse_and_starve(2), [PeerEvent::Up, DEAD]);
}

#[test]
fn a_port_that_opens_again_was_not_closed() {
    let config = Config::default();
    let mut pair = acquainted();
    pair.send(0, b"y");
    refuse_for(&mut pair, config.silence_ns / 10, 1);
    // It was heard; and after that it is silent, and nothing finds nobody.
    pair.run(SECOND, |_| true);
    assert_eq!(pair.nodes[1].log.got.len(), 2);
    pair.send(0, b"z");
    pair.run(config.silence_ns / 2, |_| false);
    pair.now += config.silence_ns / 2;
    pair.run(SECOND, |_| true);
    assert_eq!(pair.nodes[1].log.got.len(), 3);
    assert_eq!(events(&pair), [PeerEvent::Up]);
}

#[test]
fn one_that_is_awaited_and_was_never_told_of_is_asked_first() {
    let config = Config::default();
    let mut pair = acquainted();
    pair.nodes[0].log.awaits = true;
    let now = pair.now;
    pair.nodes[0].with(|e, _| e.await_peer(now, PeerId(0)));
    let since = pair.now;
    while events(&pair).len() < 2 {
        refuse_for(&mut pair, SECOND / 10, 1);
    }
    assert_eq!(events(&pair), [PeerEvent::Up, DEAD]);
    let took = pair.now - since;
    let silence = config.silence_ns;
    assert!((silence / 2..silence * 3 / 4).contains(&took), "{took}");
}
