//! The pushed buffer: how much is kept of what nobody receives.

#[allow(dead_code, reason = "each test uses its part")]
mod common;

use std::ops::RangeInclusive;

use common::{Cluster, Net, Pieces};
use portolan_exchange::{Config, Notify, Push, Selector, SendOptions};

const PUSH: Push = Push {
    whole: 3_000,
    first: 10_000,
    second: 20_000,
    ..Push::DEFAULT
};

fn cluster(pushed_share: Option<u64>) -> Cluster {
    let net = Net {
        room: 1_000,
        copied: 1 << 20,
        push: PUSH,
        ..Net::default()
    };
    let config = Config {
        secret: [5, 6],
        pushed_share,
        ..Config::default()
    };
    Cluster::new(2, &config, net)
}

fn carry(c: &mut Cluster) {
    while let Some(way) = c.busy().first().copied() {
        c.carry(way, 1 << 20, |_, _| {});
    }
}

/// Rank 0 sends far more than there is room for; gives what rank 1 keeps of it
/// before it receives it all.
fn kept(c: &mut Cluster) -> u64 {
    for _ in 0..200 {
        let from = Pieces(vec![vec![7; 600]]);
        let sent = c.with(0, |x, at| {
            x.post_send(at, 1, 3, &SendOptions::default(), from)
        });
        sent.expect("the rank is alive");
        carry(c);
    }
    let census = c.ranks[1].census();
    assert_eq!(census.messages, 200);
    for _ in 0..200 {
        let into = Pieces(vec![vec![0; 600]]);
        let op = c.with(1, |x, at| {
            x.post_receive(at, &Selector::any(3), into, Notify::default())
        });
        carry(c);
        assert_eq!(c.ranks[1].is_done(op), Some(true));
    }
    assert_eq!(c.ranks[1].census().pushed_bytes, 0);
    census.pushed_bytes
}

/// A sender knows of half of its room at least.
fn half_or_more(room: u64) -> RangeInclusive<u64> {
    room / 2..=room
}

#[test]
fn what_one_message_pushes_is_kept_of_each_sender() {
    let mut c = cluster(None);
    // All that may be pushed of a sender that nobody has heard of.
    assert_eq!(kept(&mut c), 4_096);
    // The two pushes are more than a message that is pushed whole.
    assert_eq!(PUSH.most(), 30_128);
    let now = kept(&mut c);
    assert!(half_or_more(30_128).contains(&now), "{now}");
    // Other thresholds, another size.
    c.net.push.whole = 40_000;
    c.with(1, |x, at| x.tell_room(at));
    carry(&mut c);
    let now = kept(&mut c);
    assert!(half_or_more(40_128).contains(&now), "{now}");
    assert_eq!(
        Push {
            whole: u64::MAX,
            ..PUSH
        }
        .most(),
        u64::MAX
    );
}

#[test]
fn the_pushed_buffer_is_set_while_it_is_used() {
    let mut c = cluster(Some(10_000));
    kept(&mut c);
    let now = kept(&mut c);
    assert!(half_or_more(10_000).contains(&now), "{now}");
    for (set, room) in [(Some(50_000), 50_000), (None, 30_128), (Some(1), 4_096)] {
        c.with(1, |x, at| x.set_pushed_share(at, set));
        carry(&mut c);
        // What was granted before is used up.
        kept(&mut c);
        let now = kept(&mut c);
        assert!(half_or_more(room).contains(&now), "{now} of {room}");
    }
}
