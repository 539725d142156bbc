//! One-sided memory at its edges, a scene each.

use crate::common::{Cluster, Net, Pieces};
use portolan_exchange::{
    Action, Completion, Config, DeregisterRefused, Incoming, IncomingOutcome, Kind, Memory, Notify,
    OpError, OpId, Place, PutEnd, PutOptions, RegionId, RegisterRefused, RemoteKey, Rights, Salt,
    Selector, SendOptions, SendRefused, Signal, Statistics, Stream,
};

const NONE: Notify = Notify::NONE;

fn cluster(net: Net) -> Cluster {
    let config = Config {
        secret: [5, 6],
        pull_chunk: 100,
        ..Config::default()
    };
    Cluster::new(2, &config, net)
}

fn roomy() -> Net {
    Net {
        room: 100,
        copied: 1 << 20,
        ..Net::default()
    }
}

fn register(c: &mut Cluster, rank: u32, bytes: usize, rights: Rights) -> (RegionId, RemoteKey) {
    let x = &mut c.ranks[rank as usize];
    let memory = Pieces(vec![vec![0; bytes]]);
    let id = x.register(memory, Some(7), rights).expect("it is free");
    (id, x.remote_key(id).expect("open"))
}

fn at(key: RemoteKey, offset: u64) -> Place {
    Place { key, offset }
}

fn put(c: &mut Cluster, rank: u32, to: u32, place: Place, bytes: &[u8], o: &PutOptions) -> OpId {
    let source = Pieces(vec![bytes.to_vec()]);
    let op = c.with(rank, |x| x.put(to, place, source, o));
    op.expect("the rank is alive")
}

fn local(signal: Option<Signal>) -> PutOptions {
    PutOptions {
        end: PutEnd::Local,
        signal,
        ..PutOptions::default()
    }
}

fn carry(c: &mut Cluster) {
    for _ in 0..10_000 {
        let busy = c.busy();
        if !busy.into_iter().any(|way| c.carry(way, 64, |_, _| {})) {
            return;
        }
    }
    panic!("it does not come to an end");
}

fn take(c: &mut Cluster, rank: u32, op: OpId) -> Completion {
    c.ranks[rank as usize].take(op).expect("it has ended").0
}

fn bytes(c: &Cluster, rank: u32, id: RegionId) -> Vec<u8> {
    let memory = c.ranks[rank as usize].region_memory(id);
    memory.expect("registered").bytes()
}

/// Checks P13.12.
#[test]
fn a_key_is_told_in_16_bytes_and_a_stale_one_reaches_nothing() {
    let mut c = cluster(roomy());
    let (id, key) = register(&mut c, 1, 8, Rights::Both);
    assert_eq!(RemoteKey::from_bytes(key.to_bytes()), key);
    assert_eq!(key.key(), 7);
    let Err((why, memory)) = c.ranks[1].register(Pieces(vec![vec![9]]), Some(7), Rights::Both)
    else {
        panic!("the key is taken");
    };
    assert_eq!((why, memory.bytes()), (RegisterRefused::KeyTaken, vec![9]));
    assert!(c.ranks[1].deregister(id).expect("unused").is_some());
    assert_eq!(
        c.ranks[1].deregister(id),
        Err(DeregisterRefused::NoSuchRegion)
    );
    let (id, new) = register(&mut c, 1, 8, Rights::Both);
    let stale = put(&mut c, 0, 1, at(key, 0), &[1; 8], &PutOptions::default());
    carry(&mut c);
    assert_eq!(take(&mut c, 0, stale).result, Err(OpError::BadKey));
    assert_eq!(bytes(&c, 1, id), [0; 8]);
    for key in [new, RemoteKey::any(7)] {
        let op = put(&mut c, 0, 1, at(key, 0), &[2; 8], &PutOptions::default());
        carry(&mut c);
        assert_eq!(take(&mut c, 0, op).result, Ok(()));
    }
    assert_eq!(bytes(&c, 1, id), [2; 8]);
}

/// Checks P13.10.
#[test]
fn a_region_that_demands_its_salt_is_reached_by_nothing_less() {
    // What the program says counts, and where it says nothing, what the exchange was told.
    for (salt, demand_salt, any) in [
        (Salt::Any, true, Ok(())),
        (Salt::Default, false, Ok(())),
        (Salt::Default, true, Err(OpError::BadKey)),
        (Salt::Demanded, false, Err(OpError::BadKey)),
    ] {
        let config = Config {
            demand_salt,
            ..Config::default()
        };
        let mut c = Cluster::new(2, &config, roomy());
        let x = &mut c.ranks[1];
        let admission = Rights::Both.with(salt);
        let memory = Pieces(vec![vec![0; 8]]);
        let first = x.register(memory, Some(7), admission).unwrap();
        let again = x.register_again(first, 0, 8, Some(8), admission).unwrap();
        // On other terms it is another region, for which there must be another key.
        let same = x.register_again(first, 0, 8, Some(7), admission);
        assert_eq!(same, Ok(first));
        let opposite = match any {
            Ok(()) => Salt::Demanded,
            Err(_) => Salt::Any,
        };
        let other = x.register_again(first, 0, 8, Some(7), Rights::Both.with(opposite));
        assert_eq!(other, Err(RegisterRefused::KeyTaken));
        for id in [first, again] {
            let whole = c.ranks[1].remote_key(id).unwrap();
            let mut wrong = whole.to_bytes();
            wrong[15] ^= 1;
            for (key, expected) in [
                (RemoteKey::any(whole.key()), any),
                (RemoteKey::from_bytes(wrong), Err(OpError::BadKey)),
                (whole, Ok(())),
            ] {
                let op = put(&mut c, 0, 1, at(key, 0), &[1; 8], &PutOptions::default());
                carry(&mut c);
                assert_eq!(take(&mut c, 0, op).result, expected, "{salt:?}");
            }
        }
    }
}

#[test]
fn what_is_forbidden_is_not_registered_and_not_reached() {
    let mut c = cluster(roomy());
    let (id, key) = register(&mut c, 1, 8, Rights::Both);
    c.ranks[1].forbid();
    let refused = c.ranks[1].register(Pieces::default(), None, Rights::Both);
    assert!(matches!(refused, Err((RegisterRefused::Forbidden, _))));
    let again = |c: &mut Cluster, key| c.ranks[1].register_again(id, 0, 8, key, Rights::Both);
    assert_eq!(again(&mut c, None), Err(RegisterRefused::Forbidden));
    assert_eq!(again(&mut c, Some(7)), Err(RegisterRefused::Forbidden));
    let op = put(&mut c, 0, 1, at(key, 0), &[1; 8], &PutOptions::default());
    carry(&mut c);
    assert_eq!(take(&mut c, 0, op).result, Err(OpError::Forbidden));
    assert_eq!(bytes(&c, 1, id), [0; 8]);
}

#[test]
fn a_key_is_picked_that_is_free() {
    let mut c = cluster(roomy());
    let x = &mut c.ranks[0];
    let mut keys = Vec::new();
    for _ in 0..100 {
        let id = x.register(Pieces::default(), None, Rights::Get);
        keys.push(
            x.remote_key(id.expect("there is room"))
                .expect("open")
                .key(),
        );
    }
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 100);
}

#[test]
fn nothing_is_begun_towards_nobody_or_the_dead() {
    let mut c = cluster(roomy());
    let place = Place::default();
    let add = |c: &mut Cluster, to| c.with(0, |x| x.fetch_add(to, place, 1, NONE));
    assert_eq!(add(&mut c, 2), Err(SendRefused::BadRank));
    c.kill(1);
    assert_eq!(add(&mut c, 1), Err(SendRefused::PeerDead));
    let memory = Pieces(vec![vec![3]]);
    let Err((why, back)) = c.with(0, |x| x.get(1, place, memory, NONE)) else {
        panic!("it is dead");
    };
    assert_eq!((why, back.bytes()), (SendRefused::PeerDead, vec![3]));
    assert_eq!(c.ranks[0].statistics(), Statistics::default());
}

/// Checks P13.12.
#[test]
fn empty_accesses_are_checked_too() {
    let mut c = cluster(roomy());
    let (_, key) = register(&mut c, 1, 8, Rights::Both);
    for (place, result) in [
        (at(key, 8), Ok(())),
        (at(key, 9), Err(OpError::OutOfBounds)),
        (at(RemoteKey::any(1), 0), Err(OpError::BadKey)),
    ] {
        let nothing = Pieces::default();
        let got = c.with(0, |x| x.get(1, place, nothing, NONE));
        let done = put(&mut c, 0, 1, place, &[], &PutOptions::default());
        carry(&mut c);
        assert_eq!(take(&mut c, 0, got.expect("alive")).result, result);
        assert_eq!(take(&mut c, 0, done).result, result);
    }
}

#[test]
fn a_flush_tells_of_the_first_put_that_failed() {
    let mut c = cluster(roomy());
    let (id, key) = register(&mut c, 1, 8, Rights::Put);
    let flush = |c: &mut Cluster| {
        let op = c.with(0, |x| x.flush(1, NONE)).expect("alive");
        carry(c);
        take(c, 0, op)
    };
    for place in [at(key, 0), at(key, 1), at(RemoteKey::any(8), 0)] {
        let op = put(&mut c, 0, 1, place, &[1; 8], &local(None));
        assert_eq!(take(&mut c, 0, op).result, Ok(()));
    }
    assert_eq!(c.ranks[0].statistics().unflushed, 1);
    let told = flush(&mut c);
    assert_eq!(told.action, Action::Flush);
    assert_eq!(told.result, Err(OpError::OutOfBounds));
    assert_eq!(flush(&mut c).result, Ok(()));
    assert_eq!(bytes(&c, 1, id), [1; 8]);
    assert_eq!(c.ranks[0].statistics(), Statistics::default());
}

#[test]
fn puts_whose_signals_find_no_room_are_bounded_and_the_next_waits_untouched() {
    let config = Config {
        accesses_max: 2,
        ..Config::default()
    };
    let mut c = Cluster::new(2, &config, roomy());
    let (id, key) = register(&mut c, 1, 4_000, Rights::Put);
    let signal = |word| local(Some(Signal { port: 1, word }));
    c.net.trouble.deaf = 100;
    for n in 0..3 {
        let bytes = [n as u8 + 1; 1_000];
        put(&mut c, 0, 1, at(key, n * 1_000), &bytes, &signal(n));
    }
    let move_one = |c: &mut Cluster| c.carry((0, 1, Stream::Requests), 1 << 20, |_, _| {});
    assert!(move_one(&mut c) && move_one(&mut c));
    // Their bytes are there, and their signals take both places.
    let before = bytes(&c, 1, id);
    assert_eq!((before[999], before[1_999]), (1, 2));
    assert!(!move_one(&mut c));
    assert_eq!(bytes(&c, 1, id), before);
    assert!(!c.ranks[1].take_freed() && c.ranks[1].has_backlog());
    // They are told, though who put the bytes is dead.
    c.with(1, |x| x.peer_back(0));
    assert!(c.net.signals.is_empty());
    c.net.trouble.deaf = 0;
    c.with(1, |x| x.resume());
    assert!(c.ranks[1].take_freed());
    carry(&mut c);
    let words: Vec<u64> = c.net.signals.iter().map(|s| s.2.word).collect();
    assert_eq!(words, [0, 1, 2]);
    assert_eq!(c.net.signals[1], (1, 0, Signal { port: 1, word: 1 }, 1_000));
}

/// Checks P13.14.
#[test]
fn a_flush_ends_when_the_signals_before_it_are_told() {
    let mut c = cluster(roomy());
    let (_, key) = register(&mut c, 1, 8, Rights::Put);
    let signal = Signal { port: 1, word: 3 };
    put(&mut c, 0, 1, at(key, 0), &[1; 8], &local(Some(signal)));
    let flush = c.with(0, |x| x.flush(1, NONE)).expect("alive");
    c.net.trouble.deaf = 100;
    carry(&mut c);
    assert_eq!(c.ranks[0].is_done(flush), Some(false));
    c.net.trouble.deaf = 0;
    c.with(1, |x| x.resume());
    assert!(c.ranks[1].take_freed());
    carry(&mut c);
    assert_eq!(c.net.signals, [(1, 0, signal, 8)]);
    assert_eq!(take(&mut c, 0, flush).result, Ok(()));
}

#[test]
fn a_signal_names_a_port_that_is_open() {
    let mut c = cluster(roomy());
    let (id, key) = register(&mut c, 1, 8, Rights::Put);
    let there = PutOptions {
        signal: Some(Signal { port: 1, word: 3 }),
        ..PutOptions::default()
    };
    for (open, result) in [
        (true, Ok(())),
        (false, Err(OpError::NoPort)),
        (true, Ok(())),
    ] {
        c.ranks[1].set_port(1, open);
        let before = bytes(&c, 1, id);
        let byte = before[0] + 1;
        let op = put(&mut c, 0, 1, at(key, 0), &[byte; 8], &there);
        carry(&mut c);
        assert_eq!(take(&mut c, 0, op).result, result);
        let after = if open { vec![byte; 8] } else { before };
        assert_eq!(bytes(&c, 1, id), after);
    }
    assert_eq!(c.net.signals.len(), 2);
}

#[test]
fn a_rank_reaches_its_own_memory() {
    let mut c = cluster(roomy());
    let (id, key) = register(&mut c, 0, 16, Rights::Both);
    let there = PutOptions {
        signal: Some(Signal { port: 2, word: 3 }),
        ..PutOptions::default()
    };
    // Its own signals wait for room as others' do.
    c.net.trouble.deaf = 100;
    let done = put(&mut c, 0, 0, at(key, 0), &[1; 8], &there);
    let add = c.with(0, |x| x.fetch_add(0, at(key, 0), 1, NONE));
    assert_eq!(c.ranks[0].is_done(done), Some(false));
    c.net.trouble.deaf = 0;
    c.with(0, |x| x.resume());
    assert_eq!(take(&mut c, 0, done).result, Ok(()));
    let add = take(&mut c, 0, add.expect("alive"));
    assert_eq!(add.data, Some(0x0101_0101_0101_0101));
    assert_eq!(bytes(&c, 0, id)[..9], [2, 1, 1, 1, 1, 1, 1, 1, 0]);
    let bad = PutOptions {
        signal: Some(Signal { port: 99, word: 3 }),
        ..PutOptions::default()
    };
    let bad = put(&mut c, 0, 0, at(key, 0), &[9; 8], &bad);
    assert_eq!(take(&mut c, 0, bad).result, Err(OpError::NoPort));
    assert_eq!(c.net.signals.len(), 1);
    assert_eq!(bytes(&c, 0, id)[0], 2);
}

#[test]
fn what_is_done_directly_overtakes_nothing_and_tells_what_was_refused() {
    let mut c = cluster(Net {
        direct_regions: true,
        ..roomy()
    });
    let (id, key) = register(&mut c, 1, 16, Rights::Put);
    let op = put(&mut c, 0, 1, at(key, 0), &[9; 16], &local(None));
    assert_eq!(bytes(&c, 1, id), [9; 16]);
    assert_eq!(take(&mut c, 0, op).result, Ok(()));
    // Nothing is left to be flushed.
    let flush = c.with(0, |x| x.flush(1, NONE)).expect("alive");
    assert_eq!(take(&mut c, 0, flush).result, Ok(()));
    // A port that there is not is found before a byte is there.
    let wrong = Signal { port: 99, word: 3 };
    let there = PutOptions {
        signal: Some(wrong),
        ..PutOptions::default()
    };
    let op = put(&mut c, 0, 1, at(key, 0), &[8; 16], &there);
    carry(&mut c);
    assert_eq!(take(&mut c, 0, op).result, Err(OpError::NoPort));
    assert_eq!(bytes(&c, 1, id), [9; 16]);
    // What is begun behind a put that is under way comes behind it, until a
    // flush says that it is there.
    let signal = Signal { port: 2, word: 3 };
    put(&mut c, 0, 1, at(key, 0), &[1; 16], &local(Some(signal)));
    put(&mut c, 0, 1, at(key, 0), &[2; 16], &local(None));
    assert_eq!(bytes(&c, 1, id), [9; 16]);
    carry(&mut c);
    assert_eq!(c.net.signals, [(1, 0, signal, 16)]);
    assert_eq!(bytes(&c, 1, id), [2; 16]);
    put(&mut c, 0, 1, at(key, 0), &[3; 16], &local(None));
    assert_eq!(bytes(&c, 1, id), [2; 16]);
    let flush = c.with(0, |x| x.flush(1, NONE)).expect("alive");
    carry(&mut c);
    assert_eq!(take(&mut c, 0, flush).result, Ok(()));
    let sink = Pieces(vec![vec![0; 8]]);
    let get = c.with(0, |x| x.get(1, at(key, 0), sink, NONE));
    let done = take(&mut c, 0, get.expect("alive"));
    assert_eq!(done.result, Err(OpError::NotPermitted));
    assert!(c.busy().is_empty());
    // An atomic operation is not overtaken either, be it refused.
    let add = c.with(0, |x| x.fetch_add(1, at(key, 0), 1, NONE));
    let op = put(&mut c, 0, 1, at(key, 0), &[4; 16], &PutOptions::default());
    assert_eq!(bytes(&c, 1, id), [3; 16]);
    carry(&mut c);
    let add = take(&mut c, 0, add.expect("alive"));
    assert_eq!(add.result, Err(OpError::NotPermitted));
    assert_eq!(take(&mut c, 0, op).result, Ok(()));
    assert_eq!(bytes(&c, 1, id), [4; 16]);
    // A fence with nothing before it costs nothing.
    c.ranks[0].fence(1);
    put(&mut c, 0, 1, at(key, 0), &[5; 16], &local(None));
    assert_eq!(bytes(&c, 1, id), [5; 16]);
}

#[test]
fn what_is_read_for_the_dead_keeps_its_region() {
    let mut c = cluster(Net {
        copied: 10,
        ..roomy()
    });
    let (id, key) = register(&mut c, 1, 100, Rights::Get);
    let sink = Pieces(vec![vec![0; 100]]);
    let get = c.with(0, |x| x.get(1, at(key, 0), sink, NONE));
    assert!(c.carry((0, 1, Stream::Requests), 64, |_, _| {}));
    let way = c
        .net
        .ways
        .get_mut(&(1, 0, Stream::Replies))
        .expect("an answer");
    let lent = way.pop_front().and_then(|answer| answer.lent);
    c.with(1, |x| x.peer_back(0));
    // It is counted for nobody, so its end is nobody's.
    for _ in 0..2 {
        assert_eq!(c.ranks[1].deregister(id), Err(DeregisterRefused::InUse(1)));
    }
    c.ranks[1].released(lent.expect("it was lent"));
    assert!(c.ranks[1].deregister(id).expect("unused").is_some());
    assert_eq!(c.ranks[1].statistics(), Statistics::default());
    c.with(0, |x| x.peer_died(1));
    let done = take(&mut c, 0, get.expect("alive"));
    assert_eq!(done.result, Err(OpError::PeerDead));
    assert_eq!(c.ranks[0].statistics(), Statistics::default());
}

#[test]
fn a_put_of_a_life_before_does_not_end_for_the_next() {
    let mut c = cluster(Net {
        copied: 10,
        ..roomy()
    });
    let (_, key) = register(&mut c, 1, 100, Rights::Put);
    let old = put(&mut c, 0, 1, at(key, 0), &[1; 100], &PutOptions::default());
    c.net.ways.clear();
    c.with(0, |x| x.peer_back(1));
    assert_eq!(c.ranks[0].is_done(old), Some(false), "its memory is read");
    let new = put(&mut c, 0, 1, at(key, 0), &[2; 5], &PutOptions::default());
    c.ranks[0].released(old);
    assert_eq!(take(&mut c, 0, old).result, Err(OpError::PeerDead));
    assert_eq!(c.ranks[0].statistics().unflushed, 1);
    carry(&mut c);
    assert_eq!(take(&mut c, 0, new).result, Ok(()));
    assert_eq!(c.ranks[0].statistics(), Statistics::default());
}

#[test]
fn an_offer_that_was_claimed_in_a_life_before_is_counted_no_more() {
    let mut c = cluster(roomy());
    let source = Pieces(vec![vec![1; 50_000]]);
    let sent = c.post_send(0, 1, 4, &SendOptions::default(), source);
    carry(&mut c);
    let (claimed, _) = c.ranks[1].claim(&Selector::any(4)).expect("it was offered");
    c.with(1, |x| x.peer_back(0));
    let lost = c.with(1, |x| x.receive_claimed(claimed, Pieces::default(), NONE));
    assert_eq!(take(&mut c, 1, lost).result, Err(OpError::PeerDead));
    assert_eq!(c.ranks[1].statistics(), Statistics::default());
    c.with(0, |x| x.peer_died(1));
    assert!(sent.is_ok());
}

#[test]
fn a_close_gives_all_memory_back() {
    let mut c = cluster(Net {
        copied: 10,
        ..roomy()
    });
    let (mine, my_key) = register(&mut c, 0, 200, Rights::Both);
    let (_, key) = register(&mut c, 1, 2_000, Rights::Both);
    // A put of the other's in parts, an answer that is lent, a get and a held
    // put of our own.
    put(
        &mut c,
        1,
        0,
        at(my_key, 0),
        &[1; 200],
        &PutOptions::default(),
    );
    assert!(c.carry((1, 0, Stream::Requests), 64, |_, _| {}));
    let put_part = c
        .net
        .ways
        .get_mut(&(1, 0, Stream::Requests))
        .expect("a way")
        .pop_front();
    let sink = Pieces(vec![vec![0; 100]]);
    let theirs = c.with(1, |x| x.get(0, at(my_key, 0), sink, NONE));
    assert!(c.carry((1, 0, Stream::Requests), 64, |_, _| {}));
    let answer = c
        .net
        .ways
        .get_mut(&(0, 1, Stream::Replies))
        .expect("an answer")
        .pop_front();
    let sink = Pieces(vec![vec![0; 1_000]]);
    let got = c
        .with(0, |x| x.get(1, at(key, 0), sink, NONE))
        .expect("alive");
    c.ranks[0].fence(1);
    let held = put(&mut c, 0, 1, at(key, 0), &[1; 8], &PutOptions::default());
    // And an answer that has found no room.
    c.net.room = 0;
    let words: [u64; 7] = [7, 0, 0, 8, 9, 0, 8];
    let args: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    let ask = Incoming {
        from: 1,
        kind: Kind::Get,
        args: &args,
        total: 0,
        payload: &[],
    };
    assert_eq!(c.with(0, |x| x.arrive(&ask)), IncomingOutcome::Whole);
    assert_eq!(c.ranks[0].statistics().accesses, 3);
    c.ranks[0].end_all();
    c.net.room = 100;
    c.with(0, |x| x.resume());
    assert!(!c.ranks[0].has_backlog());
    assert!(!c.busy().contains(&(0, 1, Stream::Replies)));
    for op in [got, held] {
        let (done, memory) = c.ranks[0].take(op).expect("it has ended");
        assert_eq!(done.result, Err(OpError::Closed));
        assert!(matches!(memory, Some(Memory::Sink(_) | Memory::Source(_))));
    }
    assert_eq!(
        c.ranks[0].deregister(mine),
        Err(DeregisterRefused::InUse(1))
    );
    let lent = answer.and_then(|answer| answer.lent).expect("it was lent");
    c.ranks[0].released(lent);
    assert!(c.ranks[0].deregister(mine).expect("unused").is_some());
    assert_eq!(c.ranks[0].statistics(), Statistics::default());
    // What still comes of the put is nobody's.
    let (number, _) = put_part.and_then(|put| put.part).expect("in parts");
    assert!(c.ranks[0].room(number, 64, 8).is_none());
    c.with(0, |x| x.arrived(number));
    assert!(theirs.is_ok());
}

#[test]
fn a_held_operation_is_cancelled_and_one_that_left_is_not() {
    let mut c = cluster(Net { room: 1, ..roomy() });
    let (id, key) = register(&mut c, 1, 16, Rights::Both);
    let first = put(&mut c, 0, 1, at(key, 0), &[1; 8], &PutOptions::default());
    let second = put(&mut c, 0, 1, at(key, 0), &[2; 8], &PutOptions::default());
    assert!(!c.ranks[0].cancel(first));
    assert!(c.ranks[0].cancel(second));
    assert!(!c.ranks[0].cancel(second));
    assert_eq!(take(&mut c, 0, second).result, Err(OpError::Cancelled));
    carry(&mut c);
    assert_eq!(take(&mut c, 0, first).result, Ok(()));
    assert_eq!(bytes(&c, 1, id)[..8], [1; 8]);
    assert_eq!(c.ranks[0].statistics(), Statistics::default());
}

#[test]
fn accesses_of_one_rank_beyond_the_bound_wait() {
    let config = Config {
        accesses_max: 2,
        ..Config::default()
    };
    let mut c = Cluster::new(2, &config, Net { room: 0, ..roomy() });
    register(&mut c, 1, 16, Rights::Both);
    // The sum of a `u64`.
    let args: Vec<u8> = [7, 0, 0, 9, 1 << 32 | 7 << 8 | 2]
        .iter()
        .flat_map(|w: &u64| w.to_le_bytes())
        .collect();
    let add = Incoming {
        from: 0,
        kind: Kind::Atomic,
        args: &args,
        total: 8,
        payload: &[1; 8],
    };
    let arrive = |c: &mut Cluster| c.with(1, |x| x.arrive(&add));
    assert_eq!(
        [arrive(&mut c), arrive(&mut c)],
        [IncomingOutcome::Whole; 2]
    );
    assert_eq!(
        [arrive(&mut c), arrive(&mut c)],
        [IncomingOutcome::NotNow; 2]
    );
    assert!(!c.ranks[1].take_freed());
    c.net.room = 1;
    c.with(1, |x| x.resume());
    assert!(c.ranks[1].take_freed());
    assert_eq!(arrive(&mut c), IncomingOutcome::Whole);
}

/// Checks P13.13.
#[test]
fn what_makes_no_sense_is_refused() {
    let mut c = cluster(roomy());
    let (id, key) = register(&mut c, 1, 8, Rights::Both);
    let words = |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
    let say = |c: &mut Cluster, to: u32, kind, args: &[u8], total, payload: &[u8]| {
        let m = Incoming {
            from: 1 - to,
            kind,
            args,
            total,
            payload,
        };
        c.with(to, |x| x.arrive(&m))
    };
    // More bytes than it has.
    let args = words(&[7, 0, 0, 9]);
    let took = say(&mut c, 1, Kind::Put, &args, 4, &[1; 8]);
    assert_eq!(
        (took, bytes(&c, 1, id)),
        (IncomingOutcome::Refused, vec![0; 8])
    );
    // A put failed that there was not.
    let add = c.with(0, |x| x.fetch_add(1, at(key, 0), 1, NONE));
    let args = words(&[0, 1]);
    assert_eq!(
        say(&mut c, 0, Kind::Result, &args, 0, &[]),
        IncomingOutcome::Refused
    );
    // A status that there is not.
    let args = words(&[add.expect("alive").0, 7]);
    assert_eq!(
        say(&mut c, 0, Kind::Result, &args, 0, &[]),
        IncomingOutcome::Refused
    );
    // More than was there, or less, or of a put.
    let op = add.expect("alive").0;
    for (args, found) in [([op, 0], 7), ([op, 0], 0), ([op, 1], 8)] {
        let (args, found) = (words(&args), &[1; 8][..found]);
        let took = say(&mut c, 0, Kind::Result, &args, found.len() as u64, found);
        assert_eq!(took, IncomingOutcome::Refused);
    }
    // Operations, types, counts and values that there are not.
    let flags = |op: u64, of: u64, count: u64| op | of << 8 | count << 32;
    for (flags, bytes) in [
        (flags(2, 7, 1), 7),
        (flags(2, 7, 1), 0),
        (flags(2, 7, 0), 0),
        (flags(2, 7, 129), 129 * 8),
        (flags(2, 7, 1) | 1 << 17, 8),
        (flags(19, 7, 1), 8),
        (flags(2, 12, 1), 8),
        (flags(0, 10, 1), 8),
        (flags(10, 7, 1), 0),
        (flags(12, 7, 1), 16),
    ] {
        let args = words(&[7, 0, 0, 9, flags]);
        let values = vec![0; bytes];
        let took = say(&mut c, 1, Kind::Atomic, &args, bytes as u64, &values);
        assert_eq!(took, IncomingOutcome::Refused, "{flags:x} {bytes}");
    }
    let args = words(&[7, 0, 0, 9, flags(2, 7, 1)]);
    let part = say(&mut c, 1, Kind::Atomic, &args, 8, &[0; 4]);
    assert_eq!(part, IncomingOutcome::Refused, "it comes whole");
    let flush = c.with(0, |x| x.flush(1, NONE)).expect("alive");
    carry(&mut c);
    assert_eq!(take(&mut c, 0, flush).result, Ok(()));
}

/// Checks P13.2, P13.3, P13.4, P13.5, P13.6.
#[test]
fn offers_and_pushes_that_break_a_rule_are_refused() {
    let mut c = cluster(roomy());
    let mut say = |kind, words: &[u64], bytes: usize| {
        let args: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let m = Incoming {
            from: 0,
            kind,
            args: &args,
            total: bytes as u64,
            payload: &vec![1; bytes],
        };
        c.with(1, |x| x.arrive(&m))
    };
    // More than may be pushed at first, an eager's overhead of 128 bytes included.
    let beyond = say(Kind::Eager, &[3], 4_096 - 128 + 1);
    assert_eq!(beyond, IncomingOutcome::NotNow);
    // Two words; more bytes in both pushes than the message has.
    let refused = IncomingOutcome::Refused;
    assert_eq!(say(Kind::Offer, &[3, 100], 0), refused);
    assert_eq!(say(Kind::Offer, &[3, 100, 5, 0, 60], 41), refused);
    let whole = IncomingOutcome::Whole;
    assert_eq!(say(Kind::Offer, &[3, 100, 5, 0, 60], 40), whole);
    // Its second push is due: no other offer has its operation.
    assert_eq!(say(Kind::Offer, &[3, 100, 5], 0), refused);
    for (op, bytes) in [(5, 59), (5, 61), (6, 60)] {
        assert_eq!(say(Kind::Push, &[op], bytes), refused, "{op} {bytes}");
    }
    assert_eq!(say(Kind::Push, &[5], 60), whole);
    assert_eq!(say(Kind::Push, &[5], 60), refused, "it has come");
    // There must be no payload.
    for kind in [Kind::Pull, Kind::Done, Kind::Credit, Kind::Get, Kind::Flush] {
        assert_eq!(say(kind, &[5], 1), refused, "{kind:?}");
    }
}
