//! What a sender still holds when it closes: its receiver takes it before it asks for it.

use crate::common::{Cluster, Net, Pieces, Rank};
use portolan_exchange::{
    Config, Did, Exchange, Incoming, Kind, Notify, OpError, OpId, Push, QueueId, Selector,
    SendOptions, Statistics, Task,
};

const BYTES: usize = 600;

fn cluster(config: Config, direct: bool) -> Cluster {
    let net = Net {
        room: 1_000,
        copied: 1 << 20,
        direct,
        push: Push {
            whole: 3_000,
            first: 100,
            second: 50,
            ..Push::DEFAULT
        },
        ..Net::default()
    };
    Cluster::new(3, &config, net)
}

fn carry(c: &mut Cluster) {
    while let Some(way) = c.busy().first().copied() {
        c.carry(way, 200, |_, _| {});
    }
}

/// Options of a send whose end is reported only where it fails.
fn injected() -> SendOptions {
    let notify = Notify {
        queue: Some(QueueId(0)),
        only_errors: true,
        ..Notify::NONE
    };
    SendOptions {
        notify,
        ..SendOptions::default()
    }
}

/// Rank 0 sends rank 1 so many messages, each of `bytes` times its number.
fn inject(c: &mut Cluster, numbers: std::ops::Range<u8>, bytes: usize) {
    for number in numbers {
        let from = Pieces(vec![vec![number; bytes]]);
        let sent = c.post_send(0, 1, number.into(), &injected(), from);
        sent.expect("the rank is alive");
    }
}

fn receive(c: &mut Cluster, selector: &Selector) -> OpId {
    let into = Pieces(vec![vec![0; 20_000]]);
    c.with(1, |x| x.post_receive(selector, into, Notify::NONE))
}

/// Its end, and of a good one the tag and the bytes.
fn ended(c: &mut Cluster, op: OpId) -> Option<Result<(u64, Vec<u8>), OpError>> {
    let (done, memory) = c.ranks[1].take(op).filter(|_| true)?;
    let Some(portolan_exchange::Memory::Sink(sink)) = memory else {
        panic!("no memory comes back");
    };
    let bytes = sink.bytes()[..done.bytes as usize].to_vec();
    Some(done.result.map(|()| (done.tag, bytes)))
}

fn anything() -> Selector {
    Selector::any(0).ignoring(u64::MAX)
}

fn closes(c: &mut Cluster) {
    c.with(0, |x| x.refuse_offers());
    c.with(1, |x| x.peer_closes(0, false));
}

fn holds(c: &mut Cluster) -> bool {
    let found = c.ranks[0].holds_any();
    assert_eq!(c.ranks[0].holds_for(), if found { vec![1] } else { vec![] });
    found
}

#[test]
fn what_is_held_comes_in_order_however_late_the_receiver_is() {
    for direct in [false, true] {
        let mut c = cluster(Config::default(), direct);
        // Beyond the credit of whoever was never heard of, short ones and long ones.
        inject(&mut c, 0..20, BYTES);
        inject(&mut c, 20..25, 9_000);
        carry(&mut c);
        assert!(holds(&mut c));
        closes(&mut c);
        carry(&mut c);
        assert!(!holds(&mut c));
        c.kill(0);
        for number in 0..25 {
            let op = receive(&mut c, &anything());
            let bytes = if number < 20 { BYTES } else { 9_000 };
            let expected = (u64::from(number), vec![number; bytes]);
            assert_eq!(ended(&mut c, op), Some(Ok(expected)));
        }
        // Then nothing more comes of it.
        let op = receive(&mut c, &Selector::from(0, 7));
        assert_eq!(ended(&mut c, op), Some(Err(OpError::PeerDead)));
        assert_eq!(c.ranks[1].statistics(), Statistics::default());
    }
}

#[test]
fn a_receive_meets_a_message_on_its_way_and_claims_keep_theirs() {
    let mut c = cluster(Config::default(), false);
    inject(&mut c, 0..20, BYTES);
    inject(&mut c, 20..23, 9_000);
    carry(&mut c);
    let (claimed, _) = c.ranks[1].claim(&Selector::any(21)).expect("it waits");
    closes(&mut c);
    // Some have begun to arrive.
    for _ in 0..20 {
        let way = c.busy()[0];
        c.carry(way, 200, |_, _| {});
    }
    let early = receive(&mut c, &Selector::any(20));
    let short = receive(&mut c, &Selector::any(3));
    carry(&mut c);
    assert!(!holds(&mut c));
    assert_eq!(ended(&mut c, early), Some(Ok((20, vec![20; 9_000]))));
    assert_eq!(ended(&mut c, short), Some(Ok((3, vec![3; BYTES]))));
    c.kill(0);
    let into = Pieces(vec![vec![0; 20_000]]);
    let op = c.with(1, |x| x.receive_claimed(claimed, into, Notify::NONE));
    assert_eq!(ended(&mut c, op), Some(Ok((21, vec![21; 9_000]))));
    for number in [0, 1, 2, 4, 5, 6, 7, 8, 9, 10] {
        let op = receive(&mut c, &anything());
        let expected = (u64::from(number), vec![number; BYTES]);
        assert_eq!(ended(&mut c, op), Some(Ok(expected)));
    }
}

#[test]
fn what_is_offered_after_the_word_is_taken_too() {
    let mut c = cluster(Config::default(), false);
    inject(&mut c, 0..20, BYTES);
    // The word overtakes them.
    closes(&mut c);
    carry(&mut c);
    assert!(!holds(&mut c));
}

#[test]
fn beyond_the_memory_for_it_the_sender_waits_for_receives() {
    let config = Config {
        late_bytes: 8 * 3 * (BYTES as u64 + 128),
        ..Config::default()
    };
    let mut c = cluster(config, false);
    inject(&mut c, 0..20, BYTES);
    closes(&mut c);
    carry(&mut c);
    let mut received = 0;
    while holds(&mut c) {
        let op = receive(&mut c, &anything());
        carry(&mut c);
        let expected = (u64::from(received), vec![received; BYTES]);
        assert_eq!(ended(&mut c, op), Some(Ok(expected)));
        received += 1;
    }
    // Five were pushed, and three are kept beside the last that was received.
    assert!((10..18).contains(&received), "{received}");
}

/// Checks P13.9.
#[test]
fn of_two_that_close_at_once_neither_waits_for_the_other() {
    let mut c = cluster(Config::default(), false);
    inject(&mut c, 0..20, BYTES);
    let plain = c.post_send(
        0,
        1,
        9,
        &SendOptions::default(),
        Pieces(vec![vec![9; 20_000]]),
    );
    let plain = plain.expect("the rank is alive");
    carry(&mut c);
    c.with(1, |x| x.refuse_offers());
    carry(&mut c);
    assert!(!holds(&mut c));
    // What comes later is not kept either.
    inject(&mut c, 20..40, BYTES);
    carry(&mut c);
    assert!(!holds(&mut c));
    // A send whose end is waited for fails when the receiver is gone.
    assert_eq!(c.ranks[0].is_done(plain), Some(false));
    c.kill(1);
    let (done, _) = c.ranks[0].take(plain).expect("it has ended");
    assert_eq!(done.result, Err(OpError::PeerDead));
}

#[test]
fn what_is_half_way_when_the_sender_dies_is_lost_and_nothing_else() {
    let mut c = cluster(Config::default(), false);
    inject(&mut c, 0..1, BYTES);
    inject(&mut c, 1..2, 9_000);
    carry(&mut c);
    closes(&mut c);
    let way = c.busy()[0];
    c.carry(way, 200, |_, _| {});
    c.kill(0);
    let first = receive(&mut c, &anything());
    assert_eq!(ended(&mut c, first), Some(Ok((0, vec![0; BYTES]))));
    let second = receive(&mut c, &Selector::from(0, 1));
    assert_eq!(ended(&mut c, second), Some(Err(OpError::PeerDead)));
    assert_eq!(c.ranks[1].statistics(), Statistics::default());
}

#[test]
fn an_end_that_nobody_has_taken_names_its_rank() {
    let mut c = cluster(Config::default(), false);
    let queue = c.ranks[1].open_queue();
    let notify = Notify {
        queue: Some(queue),
        ..Notify::NONE
    };
    let into = Pieces(vec![vec![0; BYTES]]);
    c.with(1, |x| x.post_receive(&anything(), into, notify));
    inject(&mut c, 7..8, BYTES);
    carry(&mut c);
    c.kill(0);
    // Its number may be nobody else's yet.
    assert!(c.ranks[1].holds_of(0) && !c.ranks[1].holds_of(2));
    let (done, _) = c.ranks[1].next_of(queue).expect("it has ended");
    assert_eq!((done.peer, done.tag), (0, 7));
    assert!(!c.ranks[1].holds_of(0));
}

#[test]
fn what_is_too_long_to_be_handed_over_holds_up_nothing_else() {
    let config = Config {
        late_bytes: 8 * 3_000,
        ..Config::default()
    };
    let mut c = cluster(config, false);
    inject(&mut c, 0..6, BYTES);
    inject(&mut c, 6..7, 9_000);
    inject(&mut c, 7..10, BYTES);
    closes(&mut c);
    carry(&mut c);
    assert!(holds(&mut c));
    let op = receive(&mut c, &Selector::any(6));
    carry(&mut c);
    assert_eq!(ended(&mut c, op), Some(Ok((6, vec![6; 9_000]))));
    assert!(!holds(&mut c));
}

/// What an exchange says, and does at once.
fn said(x: &mut Rank) -> Vec<(Kind, Vec<u64>)> {
    let mut all = Vec::new();
    while let Some(task) = x.poll_task() {
        if let Task::Send(_, message) = task {
            all.push((message.kind, message.args().to_vec()));
        }
        x.did(Did::Done);
    }
    all
}

/// Something of rank 0 arrives.
fn arrive(x: &mut Rank, kind: Kind, words: &[u64], payload: &[u8]) {
    let args: Vec<u8> = words.iter().flat_map(|it| it.to_le_bytes()).collect();
    x.arrive(&Incoming {
        from: 0,
        kind,
        args: &args,
        total: payload.len() as u64,
        payload,
    });
}

#[test]
fn room_that_one_exchange_frees_is_used_by_another() {
    let of = |number| {
        Exchange::new(Config {
            rank: 1,
            size: 2,
            number,
            // For a sender two of its messages.
            late_bytes: 8 * 1_500,
            ..Config::default()
        })
    };
    let (mut first, mut second): (Rank, Rank) = (of(0), of(1));
    let bytes = BYTES as u64;
    for op in [1, 2] {
        arrive(&mut first, Kind::Offer, &[op, bytes, op], &[]);
    }
    arrive(&mut second, Kind::Offer, &[3, bytes, 3], &[]);
    first.peer_closes(0, false);
    let asked = said(&mut first);
    assert_eq!(asked.len(), 2);
    first.swap_pulls(&mut second);
    second.peer_closes(0, false);
    assert_eq!(said(&mut second), []);
    first.swap_pulls(&mut second);
    for (kind, words) in asked {
        assert_eq!(kind, Kind::Pull);
        arrive(&mut first, Kind::Pulled, &[words[3], words[1]], &[7; BYTES]);
    }
    let into = Pieces(vec![vec![0; BYTES]]);
    let op = first.post_receive(&Selector::from(0, 1), into, Notify::NONE);
    assert_eq!(first.is_done(op), Some(true));
    said(&mut first);
    assert_eq!(first.next_turn(), Some(1));
    first.swap_pulls(&mut second);
    second.take_turn();
    let asked = said(&mut second);
    assert_eq!((asked[0].0, asked[0].1[0]), (Kind::Pull, 3));
}

#[test]
fn short_messages_that_wait_are_pulled_ahead_as_the_program_receives() {
    let mut c = cluster(Config::default(), false);
    inject(&mut c, 0..60, BYTES);
    inject(&mut c, 60..61, 9_000);
    let sync = SendOptions {
        sync: true,
        ..SendOptions::default()
    };
    let from = Pieces(vec![vec![61; BYTES]]);
    let met = c.post_send(0, 1, 61, &sync, from).expect("it is alive");
    inject(&mut c, 62..64, BYTES);
    carry(&mut c);
    // Nobody has received anything: only what was pushed is here.
    let pushed = c.ranks[1].statistics();
    assert_eq!((pushed.messages, pushed.pulled_bytes), (64, 0));
    let mut waited = 0;
    for number in 0..60 {
        let op = receive(&mut c, &anything());
        let expected = (number, vec![number as u8; BYTES]);
        let at_once = ended(&mut c, op);
        let end = at_once.or_else(|| {
            waited += 1;
            carry(&mut c);
            ended(&mut c, op)
        });
        assert_eq!(end, Some(Ok(expected)));
        carry(&mut c);
    }
    assert_eq!(waited, 1, "each but one was here before its receive");
    // What is longer waits for its receive, and so does who asked to be told of it.
    assert!(c.ranks[0].take(met).is_none());
    for number in [62, 63] {
        let op = receive(&mut c, &Selector::any(number));
        assert_eq!(
            ended(&mut c, op),
            Some(Ok((number, vec![number as u8; BYTES])))
        );
    }
    for (number, bytes) in [(60, 9_000), (61, BYTES)] {
        let op = receive(&mut c, &anything());
        assert_eq!(ended(&mut c, op), None);
        carry(&mut c);
        assert_eq!(
            ended(&mut c, op),
            Some(Ok((number, vec![number as u8; bytes])))
        );
    }
    assert!(c.ranks[0].take(met).is_some());
    assert_eq!(c.ranks[1].statistics(), Statistics::default());
    assert!(!holds(&mut c));
}
