//! The receive that its caller waits for, a scene each; in random programs it
//! is among the others (`model.rs`).

use crate::common::{Cluster, Net, Pieces};
use portolan_exchange::{
    Config, InlineReceive, Lane, Memory, Notify, OpError, Selector, SendOptions,
};

fn cluster() -> Cluster {
    let net = Net {
        room: 100,
        copied: 1 << 20,
        ..Net::default()
    };
    Cluster::new(3, &Config::default(), net)
}

fn room(bytes: usize) -> Pieces {
    Pieces(vec![vec![0; bytes]])
}

fn send(c: &mut Cluster, tag: u64, bytes: &[u8]) {
    let source = Pieces(vec![bytes.to_vec()]);
    let sent = c.post_send(1, 0, tag, &SendOptions::default(), source);
    sent.expect("the rank is alive");
}

fn carry(c: &mut Cluster) {
    while let Some(way) = c.busy().first().copied() {
        c.carry(way, usize::MAX, |_, _| {});
    }
}

/// What a receive that stands has got.
fn ended(c: &mut Cluster) -> (Result<(), OpError>, u64, Vec<u8>) {
    match c.ranks[0].poll_inline() {
        Some(InlineReceive::Ended(done, sink)) => (done.result, done.tag, sink.bytes()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_takes_what_fits_before_receives_that_were_posted_after_it() {
    let mut c = cluster();
    c.ranks[0]
        .post_inline(&Selector::any(7), room(2))
        .expect("alone");
    let later = c.with(0, |x| {
        x.post_receive(&Selector::from(1, 7), room(2), Notify::default())
    });
    send(&mut c, 8, &[8]);
    carry(&mut c);
    assert!(c.ranks[0].poll_inline().is_none(), "it does not fit");
    send(&mut c, 7, &[1, 2]);
    send(&mut c, 7, &[3, 4]);
    carry(&mut c);
    assert_eq!(ended(&mut c), (Ok(()), 7, vec![1, 2]));
    let Some((_, Some(Memory::Sink(sink)))) = c.ranks[0].take(later) else {
        panic!("the second is its");
    };
    assert_eq!(sink.bytes(), [3, 4]);
    assert!(c.ranks[0].poll_inline().is_none(), "told once");
}

#[test]
fn it_stands_only_where_it_is_first() {
    let mut c = cluster();
    let selector = Selector::from(1, 7);
    c.ranks[0].post_inline(&selector, room(1)).expect("alone");
    assert!(
        c.ranks[0].post_inline(&selector, room(1)).is_err(),
        "one stands"
    );
    assert_eq!(c.ranks[0].withdraw_inline(), Some(room(1)));
    assert_eq!(c.ranks[0].withdraw_inline(), None);
    send(&mut c, 7, &[1]);
    carry(&mut c);
    assert!(
        c.ranks[0].post_inline(&selector, room(1)).is_err(),
        "one is here"
    );
    c.ranks[0]
        .post_inline(&Selector::from(1, 8), room(1))
        .expect("that does not fit");
    c.ranks[0].withdraw_inline();
    let posted = c.with(0, |x| {
        x.post_receive(&Selector::from(2, 9), room(1), Notify::default())
    });
    assert!(c.ranks[0].post_inline(&Selector::any(8), room(1)).is_err());
    assert!(c.ranks[0].cancel(posted));
    assert!(
        c.ranks[0]
            .post_inline(&Selector::from(9, 8), room(1))
            .is_err()
    );
    c.kill(2);
    assert!(
        c.ranks[0]
            .post_inline(&Selector::from(2, 8), room(1))
            .is_err()
    );
}

#[test]
fn what_is_too_long_is_cut() {
    let mut c = cluster();
    c.ranks[0]
        .post_inline(&Selector::any(7), room(2))
        .expect("alone");
    send(&mut c, 7, &[1, 2, 3]);
    carry(&mut c);
    let (result, _, bytes) = ended(&mut c);
    assert_eq!((result, bytes), (Err(OpError::Truncated), vec![1, 2]));
}

#[test]
fn a_death_and_a_close_end_it() {
    let mut c = cluster();
    let ends = |c: &mut Cluster, selector: &Selector, end: &mut dyn FnMut(&mut Cluster)| {
        c.ranks[0].post_inline(selector, room(5)).expect("alone");
        assert_eq!(c.ranks[0].statistics().operations, 1);
        end(c);
        let Some(InlineReceive::Became(op)) = c.ranks[0].poll_inline() else {
            panic!("it has failed");
        };
        let (done, memory) = c.ranks[0].take(op).expect("at once");
        assert!(matches!(memory, Some(Memory::Sink(sink)) if sink == room(5)));
        assert_eq!(c.ranks[0].statistics().operations, 0);
        done.result
    };
    let of_two = Selector::from(2, 7);
    c.ranks[0].post_inline(&of_two, room(5)).expect("alone");
    assert!(c.ranks[0].awaits(2) && !c.ranks[0].awaits(1));
    c.ranks[0].withdraw_inline();
    let died = ends(&mut c, &of_two, &mut |c| c.kill(2));
    assert_eq!(died, Err(OpError::PeerDead));
    let closed = ends(&mut c, &Selector::any(7), &mut |c| c.ranks[0].end_all());
    assert_eq!(closed, Err(OpError::Closed));
}

#[test]
fn who_falls_silent_is_asked_while_something_is_awaited() {
    let mut c = cluster();
    let told = |c: &mut Cluster, rank: usize| {
        let mut told: Vec<u32> = std::iter::from_fn(|| c.ranks[rank].poll_awaited()).collect();
        told.sort_unstable();
        told
    };
    // A receive from anybody depends on no rank.
    let none = Notify::default();
    c.with(0, |x| x.post_receive(&Selector::any(7), room(1), none));
    assert_eq!(told(&mut c, 0), []);
    c.with(0, |x| x.post_receive(&Selector::from(1, 8), room(1), none));
    c.with(0, |x| x.post_receive(&Selector::from(1, 9), room(1), none));
    assert_eq!(told(&mut c, 0), [1]);
    assert!(c.ranks[0].awaits(1) && !c.ranks[0].awaits(2));
    send(&mut c, 8, &[1]);
    carry(&mut c);
    assert!(c.ranks[0].awaits(1), "one is left");
    send(&mut c, 9, &[1]);
    carry(&mut c);
    assert!(!c.ranks[0].awaits(1) && told(&mut c, 0).is_empty());
    // A message that is pushed whole needs no answer, one that waits for its receive
    // does.
    let options = SendOptions {
        sync: true,
        ..SendOptions::default()
    };
    let sent = c.post_send(1, 0, 5, &options, room(1));
    assert_eq!(told(&mut c, 1), [0]);
    carry(&mut c);
    assert!(c.ranks[1].awaits(0));
    c.with(0, |x| x.post_receive(&Selector::from(1, 5), room(1), none));
    carry(&mut c);
    assert_eq!(c.ranks[1].is_done(sent.expect("alive")), Some(true));
    assert!(!c.ranks[1].awaits(0));
    assert_eq!(told(&mut c, 0), [1]);
    // Within the host nobody wants to know.
    c.ranks[0].set_lane(1, Lane::Host);
    c.with(0, |x| x.post_receive(&Selector::from(1, 8), room(1), none));
    assert!(!c.ranks[0].awaits(1) && told(&mut c, 0).is_empty());
}
