//! What is asked for at once, and when memory is made ready for it.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Cluster, Net, Packet, Pieces, Rng};
use portolan_exchange::{
    Config, Incoming, IncomingOutcome, Kind, Memory, Notify, OpId, Place, Push, Rights, Selector,
    SendOptions, Stream,
};

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
    let sent = c.post_send(0, 1, 3, &SendOptions::default(), from);
    sent.expect("the rank is alive");
    let into = Pieces(vec![vec![0; BYTES]]);
    let selector = Selector::any(3);
    let op = c.with(1, |x| x.post_receive(&selector, into, Notify::default()));
    c.carry((0, 1, Stream::Requests), 64, |_, _| {});
    (c, op)
}

fn carry(c: &mut Cluster) {
    while let Some(way) = c.busy().first().copied() {
        c.carry(way, 1 << 20, |_, _| {});
    }
}

/// Rank 0 asks for what rank 1 offers while it has answers for which there is no room.
#[test]
fn requests_wait_for_no_answers() {
    let (mut c, first) = offered(false, 300);
    c.net.room = 1;
    while c.carry((1, 0, Stream::Pulls), 64, |_, _| {}) {}
    assert!(c.ranks[0].has_backlog(), "answers wait");
    let from = Pieces(vec![vec![8; BYTES]]);
    let sent = c.post_send(1, 0, 4, &SendOptions::default(), from);
    sent.expect("the rank is alive");
    let into = Pieces(vec![vec![0; BYTES]]);
    let second = c.with(0, |x| {
        x.post_receive(&Selector::any(4), into, Notify::default())
    });
    c.carry((1, 0, Stream::Requests), 64, |_, _| {});
    assert_eq!(c.net.ways[&(0, 1, Stream::Pulls)].len(), 1);
    carry(&mut c);
    for (rank, op) in [(1, first), (0, second)] {
        let (done, _) = c.ranks[rank].take(op).expect("it has ended");
        assert_eq!((done.bytes, done.result), (BYTES as u64, Ok(())));
    }
}

/// Checks P13.8.
#[test]
fn what_was_not_asked_for_next_is_refused() {
    // Asked for are the first 300 bytes.
    let (mut c, op) = offered(true, 300);
    for (at, bytes) in [(100, 100), (0, 301), (1, 10)] {
        let args: Vec<u8> = [op.0, at].iter().flat_map(|w| w.to_le_bytes()).collect();
        let m = Incoming {
            from: 0,
            kind: Kind::Pulled,
            args: &args,
            total: bytes,
            payload: &vec![9; bytes as usize],
        };
        let took = c.with(1, |x| x.arrive(&m));
        assert_eq!(took, IncomingOutcome::Refused, "{bytes} from {at} on");
    }
    carry(&mut c);
    let (done, memory) = c.ranks[1].take(op).expect("it has ended");
    assert_eq!((done.bytes, done.result), (BYTES as u64, Ok(())));
    assert!(matches!(memory, Some(Memory::Sink(sink)) if sink.bytes() == [7; BYTES]));
}

fn make_ready(c: &mut Cluster) {
    let ready = c.ranks[1].next_unready();
    c.net
        .prepared
        .extend(ready.map(|(_, at, bytes)| (1, at, bytes)));
}

#[test]
fn memory_is_made_ready_behind_the_request_or_before_it() {
    let (mut c, op) = offered(true, 300);
    // Nothing before the requests could leave, and then one range at a time.
    assert!(c.net.prepared.is_empty() && c.ranks[1].has_unready());
    for count in 1..=3 {
        make_ready(&mut c);
        assert_eq!(c.net.prepared.len(), count);
    }
    assert_eq!(c.net.prepared, [(1, 0, 100), (1, 100, 100), (1, 200, 100)]);
    assert!(!c.ranks[1].has_unready());
    // What has come meanwhile needs nothing.
    carry(&mut c);
    assert!(c.ranks[1].has_unready() && c.ranks[1].is_done(op) == Some(true));
    make_ready(&mut c);
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
    let under_way = |c: &Cluster| c.ranks[1].statistics().pulled_bytes;
    assert_eq!(under_way(&c), 200);
    // More is asked for at once, in larger parts.
    c.with(1, |x| x.set_pull(500, 150));
    assert_eq!(c.ranks[1].pull_sizes(), (500, 150));
    assert_eq!(under_way(&c), 500);
    // Less, only when some of it has come.
    c.with(1, |x| x.set_pull(100, 100));
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
        let got = c.with(1, |x| x.get(0, place, into, Notify::default()));
        let got = got.expect("alive");
        c.with(1, |x| x.set_pull(2_000, chunk));
        carry(&mut c);
        let (done, memory) = c.ranks[1].take(got).expect("it has ended");
        assert_eq!(done.result, Ok(()));
        assert!(matches!(memory, Some(Memory::Sink(sink)) if sink.bytes() == [7; BYTES]));
        assert_eq!(c.ranks[1].statistics().pulled_bytes, 0);
    }
}

/// Offers of all others to rank 0, which asks; bytes that are asked for.
fn asked_of(senders: u32, window: u64, chunk: u64) -> u64 {
    let (c, _) = offers_of(senders, window, chunk, 0);
    c.ranks[0].statistics().pulled_bytes
}

/// A cluster in which all other ranks have offered a message to rank 0, which knows rank `known`
/// alone and gets no answer to its requests; and the receives, by sender.
fn offers_of(senders: u32, window: u64, chunk: u64, known: u32) -> (Cluster, Vec<OpId>) {
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
    c.ranks[0].set_known(known, true);
    let mut receives = Vec::new();
    for from in 1..=senders {
        let source = Pieces(vec![vec![7; BYTES]]);
        let sent = c.post_send(from, 0, 3, &SendOptions::default(), source);
        sent.expect("the rank is alive");
        let into = Pieces(vec![vec![0; BYTES]]);
        receives.push(c.with(0, |x| {
            x.post_receive(&Selector::from(from, 3), into, Notify::default())
        }));
    }
    for from in 1..=senders {
        c.carry((from, 0, Stream::Requests), 64, |_, _| {});
    }
    (c, receives)
}

#[test]
fn strangers_that_answer_nothing_keep_nobody_waiting_who_is_known() {
    let known = 5;
    let (mut c, receives) = offers_of(known, 800, 100, known);
    let streams = [Stream::Requests, Stream::Replies, Stream::Pulls];
    let ways = streams.map(|stream| [(0, known, stream), (known, 0, stream)]);
    while ways
        .as_flattened()
        .iter()
        .any(|way| c.carry(*way, 64, |_, _| {}))
    {}
    let is_done = |at: usize| c.ranks[0].is_done(receives[at]);
    assert_eq!(
        (0..5).map(is_done).collect::<Vec<_>>(),
        [
            Some(false),
            Some(false),
            Some(false),
            Some(false),
            Some(true)
        ]
    );
}

#[test]
fn many_senders_share_a_part_of_the_window() {
    // One may have it all, in whole requests.
    assert_eq!(asked_of(1, 800, 100), 800);
    // The second gets its half of an eighth, and then there is no more.
    assert_eq!(asked_of(2, 800, 100), 850);
    assert_eq!(asked_of(5, 800, 100), 850);
}

/// Ranks that send two messages each to rank 0.
const SENDERS: u32 = 5;
const WINDOW: u64 = 800;
const CHUNK: u64 = 100;
/// What may be under way where several senders are asked.
const CROWD: u64 = WINDOW / 8;

/// A message by its sender and the sender's operation.
type Name = (u32, u64);

fn word(packet: &Packet, at: usize) -> u64 {
    let bytes = packet.args[8 * at..][..8].try_into();
    u64::from_le_bytes(bytes.expect("8 bytes"))
}

/// Pulls that rank 0 has sent since its ways were that long: of which message, and
/// how many bytes.
fn pulls_since(c: &Cluster, lengths: &BTreeMap<u32, usize>) -> Vec<(Name, u64)> {
    let mut pulls = Vec::new();
    for (&(_, from, _), queue) in c.net.ways.iter().filter(|(way, _)| way.0 == 0) {
        let new = queue.iter().skip(lengths.get(&from).copied().unwrap_or(0));
        let new = new.filter(|packet| packet.kind == Kind::Pull);
        pulls.extend(new.map(|packet| ((from, word(packet, 0)), word(packet, 2))));
    }
    pulls
}

/// What rank 0 has asked for, as its requests and their answers show.
#[derive(Clone, Default)]
struct Asked {
    /// What has not been asked for of each message.
    rests: BTreeMap<Name, u64>,
    /// What was, and has not come, of each sender.
    due: BTreeMap<u32, u64>,
}

impl Asked {
    fn pulled(&mut self, name: Name, bytes: u64) {
        *self.rests.get_mut(&name).expect("it was sent") -= bytes;
        *self.due.entry(name.0).or_default() += bytes;
    }

    /// Whether more of a message could be asked for.
    fn may_ask(&self, name: Name) -> bool {
        self.rests[&name] > 0 && self.due.get(&name.0).is_none_or(|due| *due < CROWD)
    }
}

/// Two messages of each sender, and receives for them.
fn sent(rng: &mut Rng) -> (Cluster, Asked, Vec<OpId>) {
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
        pull_chunk: CHUNK,
        pull_window: WINDOW,
        ..Config::default()
    };
    let mut c = Cluster::new(SENDERS + 1, &config, net);
    let (mut asked, mut receives) = (Asked::default(), Vec::new());
    for (from, tag) in (1..=SENDERS).flat_map(|from| [(from, 0), (from, 1)]) {
        let bytes = 1 + rng.below(1_500);
        let memory = |byte| Pieces(vec![vec![byte; bytes as usize]]);
        let options = SendOptions::default();
        let sent = c.post_send(from, 0, tag, &options, memory(7));
        let name = (from, sent.expect("the rank is alive").0);
        asked.rests.insert(name, bytes);
        let selector = Selector::from(from, tag);
        receives.push(c.with(0, |x| {
            x.post_receive(&selector, memory(0), Notify::default())
        }));
    }
    (c, asked, receives)
}

#[test]
fn of_all_senders_the_shortest_rest_is_asked_for_first_and_no_more_than_the_window() {
    let (mut contested, mut crowded) = (0, 0);
    for seed in 0..30 {
        let mut rng = Rng(seed);
        let (mut c, mut asked, receives) = sent(&mut rng);
        let mut offered = BTreeSet::new();
        loop {
            let busy = c.busy();
            if busy.is_empty() {
                break;
            }
            let way = busy[rng.below(busy.len() as u64) as usize];
            let before = asked.clone();
            let queues = c
                .net
                .ways
                .iter()
                .filter(|(way, _)| (way.0, way.2) == (0, Stream::Pulls));
            let lengths = queues.map(|(to, queue)| (to.1, queue.len() - usize::from(*to == way)));
            let lengths: BTreeMap<u32, usize> = lengths.collect();
            c.carry(way, 1 << 20, |packet, _| match packet.kind {
                Kind::Offer => _ = offered.insert((way.0, word(packet, 2))),
                Kind::Pulled => {
                    let due = asked.due.get_mut(&way.0).expect("it was asked");
                    *due -= packet.payload.len() as u64;
                }
                _ => {}
            });
            let pulls = pulls_since(&c, &lengths);
            for (name, bytes) in &pulls {
                asked.pulled(*name, *bytes);
            }
            // Of what could have been asked for instead, nothing lacked less.
            let instead: Vec<u64> = (offered.iter())
                .filter(|name| before.may_ask(**name) && asked.may_ask(**name))
                .filter(|name| pulls.iter().all(|(asked, _)| asked != *name))
                .map(|name| asked.rests[name])
                .collect();
            for (name, _) in &pulls {
                contested += u32::from(!instead.is_empty());
                assert!(instead.iter().all(|rest| *rest >= before.rests[name]));
            }
            let under_way: u64 = asked.due.values().sum();
            assert_eq!(c.ranks[0].statistics().pulled_bytes, under_way);
            // One alone may have the window, and then another its part.
            assert!(under_way < WINDOW + CHUNK + CROWD / 2, "{under_way}");
            crowded += u32::from(asked.due.values().filter(|due| **due > 0).count() > 1);
        }
        for receive in receives {
            let (done, memory) = c.ranks[0].take(receive).expect("it has ended");
            assert_eq!(done.result, Ok(()));
            let Some(Memory::Sink(sink)) = memory else {
                panic!("a receive gives its memory back");
            };
            assert!(sink.bytes().iter().all(|byte| *byte == 7));
        }
    }
    assert!(contested > 1_000, "{contested}");
    assert!(crowded > 1_000, "{crowded}");
}
