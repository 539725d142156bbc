//! Messages that both sides copy, each a half, and what may go wrong then.

use crate::common::{Cluster, Net, Packet, Pieces, Rng, StreamKey, Trouble};
use portolan_exchange::{
    Completion, Config, Incoming, IncomingOutcome, Kind, Memory, Notify, OpError, OpId, Place,
    Push, Rights, Selector, SendOptions, Stream,
};

/// Bytes of a message.
const BYTES: usize = 1_001;
/// Of which the sender writes so many.
const HALF: u64 = 512;

fn content() -> Vec<u8> {
    let mut rng = Rng(3);
    (0..BYTES).map(|_| rng.next() as u8).collect()
}

fn net() -> Net {
    Net {
        room: 100,
        direct: true,
        shares: true,
        copied: 1 << 20,
        ..Net::default()
    }
}

/// Rank 0 has offered a message of which nothing is pushed; rank 1 receives in
/// so many bytes. Gives both operations.
fn offered_to(net: Net, room: usize, share_min: u64) -> (Cluster, OpId, OpId) {
    offered_for(&Selector::from(0, 3), net, room, share_min)
}

/// A message that rank 0 has offered and rank 1 receives by this selector.
fn offered_for(
    selector: &Selector,
    net: Net,
    room: usize,
    share_min: u64,
) -> (Cluster, OpId, OpId) {
    let config = Config {
        secret: [5, 6],
        share_min,
        // No word of credit comes between.
        pushed_share: Some(0),
        ..Config::default()
    };
    let net = Net {
        push: Push {
            whole: 0,
            ..Push::default()
        },
        ..net
    };
    let mut c = Cluster::new(3, &config, net);
    let from = Pieces(vec![content()]);
    let sent = c.post_send(0, 1, 3, &SendOptions::default(), from);
    let into = Pieces(vec![vec![0; room]]);
    let op = c.with(1, |x| x.post_receive(selector, into, Notify::default()));
    c.carry((0, 1, Stream::Requests), 64, |_, _| {});
    (c, sent.expect("the rank is alive"), op)
}

fn offered(net: Net) -> (Cluster, OpId, OpId) {
    offered_to(net, BYTES, 0)
}

/// The way from a rank to another, of pulls if there is any, else of replies.
fn way(c: &Cluster, from: u32, to: u32) -> StreamKey {
    let pulls = (from, to, Stream::Pulls);
    match c.busy().contains(&pulls) {
        true => pulls,
        false => (from, to, Stream::Replies),
    }
}

/// The next message there; it stays.
fn next(c: &Cluster, from: u32, to: u32) -> Packet {
    c.net.ways[&way(c, from, to)][0].clone()
}

fn words(packet: &Packet) -> Vec<u64> {
    let words = packet.args.chunks(8);
    words
        .map(|w| u64::from_le_bytes(w.try_into().expect("8 bytes")))
        .collect()
}

/// Moves one message of rank 0's to rank 1, or of rank 1's to rank 0.
fn move_one(c: &mut Cluster, from: u32) {
    assert!(c.carry(way(c, from, 1 - from), 1 << 20, |_, _| {}));
}

fn carry(c: &mut Cluster) {
    while let Some(way) = c.busy().first().copied() {
        c.carry(way, 1 << 20, |_, _| {});
    }
}

fn received(c: &mut Cluster, op: OpId) -> (Completion, Vec<u8>) {
    let Some((done, Some(Memory::Sink(sink)))) = c.ranks[1].take(op) else {
        panic!("it has ended, and gives its memory back");
    };
    (done, sink.bytes())
}

/// All of it is there, and both sides know.
fn is_whole(mut c: Cluster, sent: OpId, op: OpId) {
    let (done, bytes) = received(&mut c, op);
    assert_eq!((done.result, done.bytes), (Ok(()), BYTES as u64));
    assert_eq!(bytes, content());
    let (done, _) = c.ranks[0].take(sent).expect("it has ended");
    assert_eq!(done.result, Ok(()));
    assert!(c.net.published.is_empty());
    for x in &c.ranks {
        assert_eq!(x.statistics(), Default::default());
    }
}

fn say(c: &mut Cluster, from: u32, kind: Kind, words: &[u64]) -> IncomingOutcome {
    let args: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let m = Incoming {
        from,
        kind,
        args: &args,
        total: 0,
        payload: &[],
    };
    let to = if kind == Kind::Pull { 0 } else { 1 };
    c.with(to, |x| x.arrive(&m))
}

#[test]
fn each_side_copies_a_half() {
    let (mut c, sent, op) = offered(net());
    let asked = words(&next(&c, 1, 0));
    let (key, published) = c.net.published.first_key_value().expect("it is published");
    assert_eq!(asked, [sent.0, 0, HALF, op.0, key.1]);
    assert_eq!((key.0, published.to, published.bytes), (1, 0, HALF));
    // It keeps no room from what others are asked for.
    assert_eq!(c.ranks[1].statistics().pulled_bytes, 0);
    move_one(&mut c, 1);
    // No byte travels.
    let answer = next(&c, 0, 1);
    assert_eq!((answer.kind, answer.payload.len()), (Kind::Pulled, 0));
    assert_eq!(words(&answer), [op.0, 0, HALF]);
    assert_eq!((c.net.shared, c.ranks[1].is_done(op)), (1, Some(false)));
    move_one(&mut c, 0);
    assert_eq!(next(&c, 1, 0).kind, Kind::Done);
    carry(&mut c);
    is_whole(c, sent, op);
}

#[test]
fn what_cannot_be_shared_comes_otherwise() {
    // In per cent: not published, not written; whether it may not be fetched; parts
    // that are written.
    let cases = [
        (100, 0, false, 0),
        (0, 100, false, 0),
        (0, 0, true, 1),
        (0, 100, true, 0),
        (100, 0, true, 0),
    ];
    for (at, (unshown, unwritten, forbidden, shared)) in cases.into_iter().enumerate() {
        let net = Net {
            forbidden,
            trouble: Trouble {
                unshown,
                unwritten,
                ..Trouble::default()
            },
            ..net()
        };
        let (mut c, sent, op) = offered(net);
        carry(&mut c);
        assert_eq!(c.net.shared, shared, "case {at}");
        is_whole(c, sent, op);
    }
}

#[test]
fn little_is_copied_by_one_side() {
    // The message is long enough, but what is wanted of it not.
    let (mut c, _, op) = offered_to(net(), 200, 300);
    assert!(c.net.published.is_empty());
    let (done, bytes) = received(&mut c, op);
    assert_eq!((done.result, bytes.len()), (Err(OpError::Truncated), 200));
    assert_eq!(bytes, content()[..200]);
    // Nor is the message.
    let (mut c, sent, op) = offered_to(net(), BYTES, BYTES as u64 + 1);
    assert!(c.net.published.is_empty() && c.net.located.len() == 1);
    carry(&mut c);
    assert_eq!(c.net.shared, 0);
    is_whole(c, sent, op);
    // Of a part that is wanted both copy their half.
    let (mut c, _, op) = offered_to(net(), 600, 300);
    assert_eq!(words(&next(&c, 1, 0))[2], 320);
    carry(&mut c);
    let (done, bytes) = received(&mut c, op);
    assert_eq!((done.result, done.bytes), (Err(OpError::Truncated), 600));
    assert_eq!((bytes.as_slice(), c.net.shared), (&content()[..600], 1));
}

#[test]
fn silent_senders_hold_up_nobody_else() {
    // A window that is smaller than what is published.
    let config = Config {
        secret: [5, 6],
        share_min: 0,
        pushed_share: Some(0),
        pull_window: 100,
        pull_chunk: 50,
        ..Config::default()
    };
    let net = Net {
        push: Push {
            whole: 0,
            ..Push::default()
        },
        ..net()
    };
    let mut c = Cluster::new(4, &config, net);
    let region = Pieces(vec![content()]);
    let region = c.ranks[3].register(region, None, Rights::Get);
    let key = (c.ranks[3].remote_key(region.expect("room"))).expect("open");
    // Ranks 0 and 2 are asked, and say nothing.
    let mut receive = |from: u32| {
        let source = Pieces(vec![content()]);
        let sent = c.post_send(from, 1, 3, &SendOptions::default(), source);
        sent.expect("the rank is alive");
        let into = Pieces(vec![vec![0; BYTES]]);
        let op = c.with(1, |x| {
            x.post_receive(&Selector::from(from, 3), into, Notify::default())
        });
        c.carry((from, 1, Stream::Requests), 64, |_, _| {});
        op
    };
    let ops = [receive(0), receive(2)];
    assert_eq!(c.net.published.len(), 2);
    let place = Place { key, offset: 0 };
    let into = Pieces(vec![vec![0; BYTES]]);
    let got = c.with(1, |x| x.get(3, place, into, Notify::default()));
    let got = got.expect("alive");
    let others = |c: &Cluster| {
        let mut ways = c.busy().into_iter();
        ways.find(|way| way.0.max(way.1) == 3)
    };
    while let Some(way) = others(&c) {
        c.carry(way, 1 << 20, |_, _| {});
    }
    let (done, bytes) = received(&mut c, got);
    assert_eq!((done.result, bytes), (Ok(()), content()));
    // The one dies, the other comes to it.
    c.kill(2);
    carry(&mut c);
    for (op, expected) in ops.into_iter().zip([Ok(()), Err(OpError::PeerDead)]) {
        assert_eq!(received(&mut c, op).0.result, expected);
    }
    c.is_idle(1);
}

#[test]
fn memory_comes_back_when_nobody_writes_to_it() {
    for told in [false, true] {
        let (mut c, _, op) = offered(net());
        move_one(&mut c, 1);
        c.net.trouble.busy = 100;
        if told {
            // All is here, but somebody still writes.
            move_one(&mut c, 0);
            assert_eq!(next(&c, 1, 0).kind, Kind::Done);
        }
        c.kill(0);
        for _ in 0..3 {
            assert_eq!(c.ranks[1].is_done(op), Some(false));
            assert!(c.ranks[1].has_backlog());
            c.with(1, |x| x.resume());
            assert_eq!(c.ranks[1].is_done(op), Some(false));
            // Nothing of it is taken any more.
            assert_eq!(
                say(&mut c, 2, Kind::Pulled, &[op.0, 0, 1]),
                IncomingOutcome::Refused
            );
        }
        c.with(1, |x| x.peer_back(0));
        assert_eq!(
            say(&mut c, 0, Kind::Pulled, &[op.0, 0, 1]),
            IncomingOutcome::Refused
        );
        c.net.trouble.busy = 0;
        c.with(1, |x| x.resume());
        let (done, bytes) = received(&mut c, op);
        let expected = if told { Ok(()) } else { Err(OpError::PeerDead) };
        assert_eq!(done.result, expected);
        assert!(!told || bytes == content());
        assert!(c.net.published.is_empty() && !c.ranks[1].has_backlog());
        c.is_idle(1);
    }
}

#[test]
fn a_receive_from_anybody_stands_again_when_nobody_writes_to_it() {
    for closes in [false, true] {
        let (mut c, _, op) = offered_for(&Selector::any(3), net(), BYTES, 0);
        move_one(&mut c, 1);
        c.net.trouble.busy = 100;
        c.kill(0);
        if closes {
            c.with(1, |x| x.close());
        }
        assert!(!c.ranks[1].cancel(op), "somebody still writes");
        c.net.trouble.busy = 0;
        c.with(1, |x| x.resume());
        // It stands in no exchange that is over.
        assert_eq!(c.ranks[1].is_done(op), Some(closes));
        assert_eq!(c.ranks[1].cancel(op), !closes);
        let (done, _) = received(&mut c, op);
        let expected = if closes {
            OpError::PeerDead
        } else {
            OpError::Cancelled
        };
        assert_eq!(done.result, Err(expected));
        assert!(c.net.published.is_empty() && c.ranks[1].is_left());
    }
}

#[test]
fn a_receiver_that_dies_ends_the_send() {
    for moved in 0..3 {
        let (mut c, sent, _) = offered(net());
        for from in [1, 0].into_iter().take(moved) {
            move_one(&mut c, from);
        }
        c.kill(1);
        let (done, _) = c.ranks[0].take(sent).expect("it has ended");
        assert_eq!(done.result, Err(OpError::PeerDead));
        c.is_idle(0);
    }
}

#[test]
fn words_that_were_not_asked_for_are_refused() {
    let (mut c, sent, op) = offered(net());
    for (from, words) in [
        // From somebody else, of nothing, from elsewhere, too much.
        (2, [op.0, 0, HALF]),
        (0, [op.0, 0, 0]),
        (0, [op.0, 64, 64]),
        (0, [op.0, 0, HALF + 1]),
        (0, [op.0, 0, u64::MAX]),
        (0, [op.0 + 1, 0, HALF]),
    ] {
        assert_eq!(
            say(&mut c, from, Kind::Pulled, &words),
            IncomingOutcome::Refused
        );
    }
    carry(&mut c);
    // Once it has ended.
    assert_eq!(
        say(&mut c, 0, Kind::Pulled, &[op.0, 0, HALF]),
        IncomingOutcome::Refused
    );
    is_whole(c, sent, op);
    // Beyond what was published, though it was asked for.
    let (mut c, sent, op) = offered(Net {
        forbidden: true,
        ..net()
    });
    assert_eq!(c.ranks[1].statistics().pulled_bytes, BYTES as u64 - HALF);
    for words in [[op.0, 0, HALF + 1], [op.0, 0, BYTES as u64]] {
        assert_eq!(
            say(&mut c, 0, Kind::Pulled, &words),
            IncomingOutcome::Refused
        );
    }
    carry(&mut c);
    is_whole(c, sent, op);
    // Where nothing was published.
    let (mut c, sent, op) = offered(Net {
        shares: false,
        forbidden: true,
        ..net()
    });
    assert_eq!(
        say(&mut c, 0, Kind::Pulled, &[op.0, 0, 1]),
        IncomingOutcome::Refused
    );
    carry(&mut c);
    is_whole(c, sent, op);
}

/// Checks P13.7.
#[test]
fn a_key_of_nothing_gets_the_bytes() {
    let (mut c, sent, op) = offered(net());
    let mut asked = words(&next(&c, 1, 0));
    let queue = c
        .net
        .ways
        .get_mut(&(1, 0, Stream::Pulls))
        .expect("it has asked");
    queue.clear();
    asked[4] ^= 1;
    assert_eq!(say(&mut c, 1, Kind::Pull, &asked), IncomingOutcome::Whole);
    assert_eq!(next(&c, 0, 1).payload.len() as u64, HALF);
    // Again: it was answered once.
    assert_eq!(say(&mut c, 1, Kind::Pull, &asked), IncomingOutcome::Whole);
    assert_eq!(c.net.ways[&(0, 1, Stream::Replies)].len(), 1);
    // Beyond the message.
    for (at, bytes) in [(HALF, BYTES as u64), (HALF, u64::MAX), (u64::MAX, 1)] {
        (asked[1], asked[2]) = (at, bytes);
        assert_eq!(say(&mut c, 1, Kind::Pull, &asked), IncomingOutcome::Whole);
    }
    assert_eq!(c.net.ways[&(0, 1, Stream::Replies)].len(), 1);
    carry(&mut c);
    assert_eq!(c.net.shared, 0);
    is_whole(c, sent, op);
}

#[test]
fn the_word_that_it_is_written_waits_for_room() {
    let (mut c, sent, op) = offered(Net { room: 1, ..net() });
    // Something else is on its way.
    let other = next(&c, 1, 0);
    c.net
        .ways
        .entry((0, 1, Stream::Replies))
        .or_default()
        .push_back(Packet {
            kind: Kind::Done,
            args: vec![9; 8],
            ..other
        });
    move_one(&mut c, 1);
    assert!(c.net.shared == 1 && c.ranks[0].has_backlog());
    carry(&mut c);
    is_whole(c, sent, op);
}
