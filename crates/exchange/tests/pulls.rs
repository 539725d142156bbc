//! What is asked for at once, and when memory is made ready for it.

#[allow(dead_code, reason = "each test uses its part")]
mod common;

use common::{Cluster, Net, Pieces};
use portolan_exchange::{Config, Memory, Notify, OpId, Place, Push, Rights, Selector, SendOptions};

/// Bytes of the message.
const BYTES: usize = 1_050;

/// Rank 0 has offered a message of which nothing is pushed, rank 1 has asked
/// for what may be under way.
fn offered(masking: bool, pull_window: u64) -> (Cluster, OpId) {
    let net = Net {
        room: 100,
        copied: 1 << 20,
        push: Push {
            whole: 0,
            first: 0,
            second: 0,
            masking,
            ..Push::default()
        },
        ..Net::default()
    };
    let config = Config {
        secret: [5, 6],
        pull_chunk: 100,
        pull_window,
        ..Config::default()
    };
    let mut c = Cluster::new(2, &config, net);
    let from = Pieces(vec![vec![7; BYTES]]);
    let sent = c.with(0, |x, at| {
        x.post_send(at, 1, 3, &SendOptions::default(), from)
    });
    sent.expect("the rank is alive");
    let into = Pieces(vec![vec![0; BYTES]]);
    let selector = Selector::any(3);
    let op = c.with(1, |x, at| {
        x.post_receive(at, &selector, into, Notify::default())
    });
    c.carry((0, 1, false), 64, |_, _| {});
    (c, op)
}

fn carry(c: &mut Cluster) {
    while let Some(way) = c.busy().first().copied() {
        c.carry(way, 1 << 20, |_, _| {});
    }
}

#[test]
fn memory_is_made_ready_behind_the_request_or_before_it() {
    let (mut c, op) = offered(true, 300);
    // Nothing before the requests could leave, and then one range at a time.
    assert!(c.net.prepared.is_empty() && c.ranks[1].has_unready());
    for count in 1..=3 {
        c.with(1, |x, at| x.make_ready(at));
        assert_eq!(c.net.prepared.len(), count);
    }
    assert_eq!(c.net.prepared, [(1, 0, 100), (1, 100, 100), (1, 200, 100)]);
    assert!(!c.ranks[1].has_unready());
    // What has come meanwhile needs nothing.
    carry(&mut c);
    assert!(c.ranks[1].has_unready() && c.ranks[1].is_done(op) == Some(true));
    c.with(1, |x, at| x.make_ready(at));
    assert!(!c.ranks[1].has_unready());
    assert_eq!(c.net.prepared.len(), 3);

    let (c, _) = offered(false, 300);
    assert_eq!(c.net.prepared, [(1, 0, BYTES as u64)]);
    assert!(!c.ranks[1].has_unready());
}

#[test]
fn what_waits_for_room_is_answered_at_once() {
    // Three requests, and room for one answer.
    let (mut c, op) = offered(true, 300);
    c.net.room = 1;
    let from = |c: &Cluster, rank| c.busy().into_iter().find(|way| way.0 == rank);
    while let Some(way) = from(&c, 1) {
        c.carry(way, 1 << 20, |_, _| {});
    }
    let mut answers = Vec::new();
    while let Some(way) = from(&c, 0) {
        answers.push(c.net.ways[&way][0].payload.len());
        c.carry(way, 1 << 20, |_, _| {});
    }
    assert_eq!(answers, [100, 200]);
    carry(&mut c);
    let (done, _) = c.ranks[1].take(op).expect("it has ended");
    assert_eq!((done.bytes, done.result), (BYTES as u64, Ok(())));
}

#[test]
fn what_is_under_way_follows_the_window() {
    let (mut c, op) = offered(true, 200);
    let under_way = |c: &Cluster| c.ranks[1].census().pulled_bytes;
    assert_eq!(under_way(&c), 200);
    // More is asked for at once, in larger parts.
    c.with(1, |x, at| x.set_pull(at, 500, 150));
    assert_eq!(c.ranks[1].pull_sizes(), (500, 150));
    assert_eq!(under_way(&c), 500);
    // Less, only when some of it has come.
    c.with(1, |x, at| x.set_pull(at, 100, 100));
    assert_eq!(under_way(&c), 500);
    let mut least = u64::MAX;
    while let Some(way) = c.busy().first().copied() {
        c.carry(way, 1 << 20, |_, _| {});
        least = least.min(under_way(&c).max(1));
        assert!(under_way(&c) <= 500);
    }
    assert!(least <= 100);
    let (done, memory) = c.ranks[1].take(op).expect("it has ended");
    assert_eq!((done.bytes, done.result), (BYTES as u64, Ok(())));
    drop(memory);
}

#[test]
fn a_get_keeps_the_size_of_its_requests() {
    let config = Config {
        pull_chunk: 100,
        pull_window: 200,
        ..Config::default()
    };
    for chunk in [30, 1_000] {
        let net = Net {
            room: 100,
            copied: 1 << 20,
            ..Net::default()
        };
        let mut c = Cluster::new(2, &config, net);
        let memory = Pieces(vec![vec![7; BYTES]]);
        let x = &mut c.ranks[0];
        let id = x.register(memory, Some(7), Rights::Get).expect("free");
        let key = x.remote_key(id).expect("open");
        let into = Pieces(vec![vec![0; BYTES]]);
        let place = Place { key, offset: 0 };
        let got = c.with(1, |x, at| x.get(at, 0, place, into, Notify::default()));
        let got = got.expect("alive");
        c.with(1, |x, at| x.set_pull(at, 2_000, chunk));
        carry(&mut c);
        let (done, memory) = c.ranks[1].take(got).expect("it has ended");
        assert_eq!(done.result, Ok(()));
        assert!(matches!(memory, Some(Memory::Sink(sink)) if sink.bytes() == [7; BYTES]));
        assert_eq!(c.ranks[1].census().pulled_bytes, 0);
    }
}

/// Offers of all others to rank 0, which asks; bytes that are asked for.
fn asked_of(senders: u32, window: u64, chunk: u64) -> u64 {
    let net = Net {
        room: 100,
        copied: 1 << 20,
        push: Push {
            whole: 0,
            first: 0,
            second: 0,
            ..Push::default()
        },
        ..Net::default()
    };
    let config = Config {
        pull_chunk: chunk,
        pull_window: window,
        ..Config::default()
    };
    let mut c = Cluster::new(senders + 1, &config, net);
    for from in 1..=senders {
        let source = Pieces(vec![vec![7; BYTES]]);
        let sent = c.with(from, |x, at| {
            x.post_send(at, 0, 3, &SendOptions::default(), source)
        });
        sent.expect("the rank is alive");
        let into = Pieces(vec![vec![0; BYTES]]);
        c.with(0, |x, at| {
            x.post_receive(at, &Selector::from(from, 3), into, Notify::default())
        });
    }
    for from in 1..=senders {
        c.carry((from, 0, false), 64, |_, _| {});
    }
    c.ranks[0].census().pulled_bytes
}

#[test]
fn many_senders_share_a_part_of_the_window() {
    // One may have it all, in whole requests.
    assert_eq!(asked_of(1, 800, 100), 800);
    // The second gets its half of an eighth, and then there is no more.
    assert_eq!(asked_of(2, 800, 100), 850);
    assert_eq!(asked_of(5, 800, 100), 850);
}
