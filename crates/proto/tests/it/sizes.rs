//! Packet sizes while a path or an interface takes less, and when it takes more
//! again.

use crate::common::Pair;
use portolan_proto::{Config, PeerId};

const SECOND: u64 = 1_000_000_000;

/// Of a pair whose interfaces take jumbo packets.
const JUMBO: fn() -> Config = || Config {
    packet_max: 8_972,
    frames: 128,
    frame_bytes: 9_216,
    queue_frames: 16,
    ..Config::default()
};

/// Such a pair, which has found that.
fn jumbo_pair() -> Pair {
    let mut pair = Pair::new(&JUMBO());
    pair.send(0, b"x");
    pair.run(SECOND, |_| true);
    assert_eq!(sizes(&mut pair), [8_972; 2]);
    pair
}

/// The packets that each uses, bytes.
fn sizes(pair: &mut Pair) -> [usize; 2] {
    [0, 1].map(|i| pair.nodes[i].with(|e, _| e.inline_max(PeerId(0), 0)) + 28 + 20)
}

/// For so long node 0 sends what fills a packet, by a path that takes so much.
fn stream(pair: &mut Pair, ms: u64, most: usize) {
    let end = pair.now + ms * 1_000_000;
    while pair.now < end {
        let later = pair.now + 10_000_000;
        if pair.nodes[0].with(|e, _| e.has_left()) {
            let [size, _] = sizes(pair);
            pair.send(0, &vec![9; size - 100]);
        }
        pair.run(10_000_000, |p| p.len() <= most);
        pair.now = pair.now.max(later);
    }
}

#[test]
fn a_path_that_dips_is_soon_full_again() {
    for (usual, dip) in [(8_972, 1_472), (1_472, 1_272)] {
        for ms in [100, 2_000, 3_000] {
            let mut pair = jumbo_pair();
            let now = pair.now;
            for node in &mut pair.nodes {
                node.with(|e, _| e.set_packet_max(now, 0, usual));
            }
            assert_eq!(sizes(&mut pair), [usual; 2]);
            stream(&mut pair, ms, dip);
            // Nobody has told.
            stream(&mut pair, 5_000, usual);
            assert_eq!(sizes(&mut pair), [usual; 2], "{dip} for {ms} ms");
        }
    }
}

#[test]
fn what_cut_a_path_short_for_long_is_looked_for_now_and_then() {
    let mut pair = jumbo_pair();
    stream(&mut pair, 60_000, 1_472);
    let [size, _] = sizes(&mut pair);
    assert!((1_440..=1_472).contains(&size), "{size}");
    // Searches in vain, of some nine sizes, become rare: one in this minute, or two.
    let mut lost = 0;
    let end = pair.now + 60 * SECOND;
    while pair.now < end {
        pair.now += SECOND;
        pair.send(0, b"x");
        pair.run(SECOND, |p| {
            lost += usize::from(p.len() > 1_472);
            p.len() <= 1_472
        });
    }
    assert!((1..=2 * 9 * 6).contains(&lost), "{lost}");
}

#[test]
fn an_interface_that_takes_more_again_is_used_at_once_at_both_ends() {
    let mut pair = jumbo_pair();
    // It takes less for so long that searches have become rare.
    let now = pair.now;
    pair.nodes[1].with(|e, _| e.set_packet_max(now, 0, 1_472));
    assert_eq!(sizes(&mut pair)[1], 1_472);
    stream(&mut pair, 40_000, 1_472);
    let now = pair.now;
    pair.nodes[1].with(|e, _| e.set_packet_max(now, 0, 8_972));
    // The peer is not told: it hears the probes.
    stream(&mut pair, 100, 8_972);
    assert_eq!(sizes(&mut pair), [8_972; 2]);
}

#[test]
fn an_interface_may_take_more_than_the_peer_was_told_of() {
    let mut pair = Pair::new(&JUMBO());
    pair.nodes[1].with(|e, _| e.set_packet_max(0, 0, 1_472));
    stream(&mut pair, 1_000, 1_472);
    assert_eq!(sizes(&mut pair), [1_472; 2]);
    let now = pair.now;
    pair.nodes[1].with(|e, _| e.set_packet_max(now, 0, 8_972));
    stream(&mut pair, 100, 8_972);
    assert_eq!(sizes(&mut pair), [8_972; 2]);
    // Frames have no room for more than was said at the beginning.
    let now = pair.now;
    pair.nodes[1].with(|e, _| e.set_packet_max(now, 0, 65_000));
    stream(&mut pair, 100, 65_000);
    assert_eq!(sizes(&mut pair), [8_972; 2]);
}

/// Checks P9.2.
#[test]
fn a_link_that_refuses_a_size_is_asked_for_smaller_ones_at_once() {
    let mut pair = jumbo_pair();
    // As the link does where nobody knows what its interface takes.
    let refuse = |pair: &mut Pair, most: usize| {
        for _ in 0..20 {
            let now = pair.now;
            let mut refused = Vec::new();
            pair.run(10_000_000, |p| {
                if p.len() > most {
                    refused.push(p.len());
                }
                p.len() <= most
            });
            for bytes in refused {
                pair.nodes[0].with(|e, _| e.packet_too_big(now, PeerId(0), 0, bytes, 0));
            }
            pair.now += 10_000_000;
        }
    };
    pair.send(0, &[9; 8_000]);
    refuse(&mut pair, 1_472);
    let [size, _] = sizes(&mut pair);
    assert!((1_300..=1_472).contains(&size), "{size}");
    assert_eq!(pair.nodes[1].log.got.last().unwrap().2, [9; 8_000]);
}
