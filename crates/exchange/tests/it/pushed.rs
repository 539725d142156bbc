//! The pushed buffer: how much is kept of what nobody receives.

use std::ops::RangeInclusive;

use crate::common::{Cluster, Net, Pieces};
use portolan_exchange::{Config, Notify, Push, Selector, SendOptions, Statistics, Stream};

const PUSH: Push = Push {
    whole: 3_000,
    first: 10_000,
    second: 20_000,
    ..Push::DEFAULT
};

fn cluster(pushed_share: Option<u64>) -> Cluster {
    cluster_of(2, pushed_share, false)
}

fn cluster_of(ranks: u32, pushed_share: Option<u64>, queues: bool) -> Cluster {
    let net = Net {
        queues,
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
    Cluster::new(ranks, &config, net)
}

fn carry(c: &mut Cluster) {
    while let Some(way) = c.busy().first().copied() {
        c.carry(way, 1 << 20, |_, _| {});
    }
}

/// Rank 0 sends far more than there is room for; gives what rank 1 keeps of it.
fn flood(c: &mut Cluster) -> u64 {
    for _ in 0..200 {
        let from = Pieces(vec![vec![7; 600]]);
        let sent = c.post_send(0, 1, 3, &SendOptions::default(), from);
        sent.expect("the rank is alive");
        carry(c);
    }
    c.ranks[1].statistics().pushed_bytes
}

/// Rank 1 receives it all.
fn drain(c: &mut Cluster) {
    for _ in 0..c.ranks[1].statistics().messages {
        let into = Pieces(vec![vec![0; 600]]);
        let op = c.with(1, |x| {
            x.post_receive(&Selector::any(3), into, Notify::default())
        });
        carry(c);
        assert_eq!(c.ranks[1].is_done(op), Some(true));
    }
    assert_eq!(c.ranks[1].statistics(), Statistics::default());
}

/// Both; gives what was kept.
fn kept(c: &mut Cluster) -> u64 {
    let kept = flood(c);
    drain(c);
    kept
}

/// What is kept of somebody who knows of half of its room at least.
fn half_or_more(room: u64) -> RangeInclusive<u64> {
    room / 2..=room
}

/// What is kept of somebody who knows that there is room for one push of so much.
fn for_one(most: u64) -> RangeInclusive<u64> {
    most..=most + most / 8
}

#[test]
fn what_one_message_pushes_is_kept_of_each_sender() {
    let mut c = cluster(None);
    // All that may be pushed of a sender that nobody has heard of.
    assert_eq!(kept(&mut c), 4_096);
    // The two pushes are more than a message that is pushed whole.
    assert_eq!(PUSH.most(), 30_128);
    let now = kept(&mut c);
    assert!(for_one(30_128).contains(&now), "{now}");
    // Other thresholds, another size.
    c.set_push(Push {
        whole: 40_000,
        ..PUSH
    });
    carry(&mut c);
    let now = kept(&mut c);
    assert!(for_one(40_128).contains(&now), "{now}");
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
    for (set, room) in [
        (Some(50_000), half_or_more(50_000)),
        (None, for_one(30_128)),
        (Some(1), half_or_more(4_096)),
    ] {
        c.with(1, |x| x.set_pushed_share(set));
        carry(&mut c);
        // What was granted before is used up.
        kept(&mut c);
        let now = kept(&mut c);
        assert!(room.contains(&now), "{now} of {room:?}");
    }
}

#[test]
fn who_waits_for_room_is_told_of_more_at_once() {
    type Change = fn(&mut Cluster);
    let changes: [Change; 2] = [
        |c| c.with(1, |x| x.set_pushed_share(Some(50_000))),
        |c| {
            c.set_push(Push {
                whole: 49_872,
                ..PUSH
            });
        },
    ];
    for change in changes {
        let mut c = cluster(None);
        // Nothing is received, so no word of credit leaves for another reason.
        assert_eq!(flood(&mut c), 4_096);
        change(&mut c);
        let now = flood(&mut c);
        assert!((50_000..=56_250).contains(&now), "{now}");
        drain(&mut c);
    }
}

/// So many ranks send rank 0 `long` messages in turns, which are received at once;
/// gives what is kept of each that then sends short ones which nobody receives.
fn room_of_each(c: &mut Cluster, senders: u32, long: usize) -> Vec<u64> {
    let all = 1..=senders;
    let send = |c: &mut Cluster, from, tag, bytes: usize| {
        let source = Pieces(vec![vec![7; bytes]]);
        let sent = c.post_send(from, 0, tag, &SendOptions::default(), source);
        sent.expect("the rank is alive");
        carry(c);
    };
    for from in (0..40).flat_map(|_| all.clone()) {
        c.with(0, |x| {
            let into = Pieces(vec![vec![0; long]]);
            x.post_receive(&Selector::any(1), into, Notify::default())
        });
        send(c, from, 1, long);
    }
    let before = c.ranks[0].statistics().pushed_bytes;
    assert_eq!(before, 0);
    let rooms = all.map(|from| {
        let before = c.ranks[0].statistics().pushed_bytes;
        for _ in 0..100 {
            send(c, from, 2, 600);
        }
        c.ranks[0].statistics().pushed_bytes - before
    });
    let rooms = rooms.collect();
    for _ in 0..100 * senders {
        c.with(0, |x| {
            let into = Pieces(vec![vec![0; 600]]);
            x.post_receive(&Selector::any(2), into, Notify::default())
        });
        carry(c);
    }
    assert_eq!(c.ranks[0].statistics(), Statistics::default());
    rooms
}

#[test]
fn who_sends_long_messages_at_once_shares_the_room() {
    for (senders, queues, long, room) in [
        (3, true, 40_000, half_or_more(10_042)),
        (3, false, 40_000, for_one(30_128)),
        (3, true, 4_000, for_one(30_128)),
        (1, true, 40_000, for_one(30_128)),
        // There is always room for so much.
        (8, true, 40_000, half_or_more(4_096)),
    ] {
        let mut c = cluster_of(9, None, queues);
        for now in room_of_each(&mut c, senders, long) {
            assert!(room.contains(&now), "{now} of {room:?}");
        }
    }
    // All of it again for one that is alone.
    let mut c = cluster_of(9, None, true);
    room_of_each(&mut c, 3, 40_000);
    let now = room_of_each(&mut c, 1, 40_000)[0];
    assert!(for_one(30_128).contains(&now), "{now}");
    // What was set is not shared.
    let mut c = cluster_of(9, Some(20_000), true);
    for now in room_of_each(&mut c, 3, 40_000) {
        assert!(half_or_more(20_000).contains(&now), "{now}");
    }
}

#[test]
fn a_message_that_lacks_room_to_be_pushed_whole_is_asked_for_at_its_first_push() {
    let mut c = cluster(None);
    c.set_push(Push {
        whole: 40_000,
        first: 1_000,
        second: 0,
        ..PUSH
    });
    let into = Pieces(vec![vec![0; 8_000]]);
    let op = c.with(1, |x| {
        x.post_receive(&Selector::any(3), into, Notify::default())
    });
    let from = Pieces(vec![vec![7; 8_000]]);
    let sent = c.post_send(0, 1, 3, &SendOptions::default(), from);
    sent.expect("the rank is alive");
    // The first push, alone.
    c.carry((0, 1, Stream::Requests), 1_000, |_, pushed| {
        assert_eq!(pushed, 0..1_000)
    });
    let statistics = c.ranks[1].statistics();
    assert_eq!(
        (statistics.second_pushes, statistics.pulled_bytes),
        (1, 8_000 - 4_096)
    );
    carry(&mut c);
    assert_eq!(c.ranks[1].is_done(op), Some(true));
    // All that was pushed fits one: nothing is asked for.
    let from = Pieces(vec![vec![7; 8_000]]);
    let sent = c.post_send(0, 1, 3, &SendOptions::default(), from);
    sent.expect("the rank is alive");
    c.carry((0, 1, Stream::Requests), 8_000, |_, pushed| {
        assert_eq!(pushed, 0..8_000)
    });
    assert_eq!(c.ranks[1].statistics().messages, 1);
}
