//! Several spaces on one endpoint, on every lane.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{ALL, By, Count, config, helped, job, pair, pattern, run, settle};
use portolan_runtime::{
    Binding, Config, Context, Death, Ended, Event, Memory, Misuse, Notify, Place, RemoteKey,
    Rights, Scatter, Selector, SendError, SendOptions, Space, SpaceId, TaggedOptions, Threads,
    WaitError,
};

const PORT: u16 = 3;
const OTHERS: [SpaceId; 2] = SpaceId::OTHERS;

/// Both spaces of both ends.
fn spaces(a: &Space, b: &Space) -> Vec<(Space, Space)> {
    let both = |id| (a.space(id).unwrap(), b.space(id).unwrap());
    OTHERS.map(both).into()
}

/// What has come to a port.
type Log = Arc<Mutex<Vec<Vec<u8>>>>;

fn logged(space: &Space) -> Log {
    let log = Log::default();
    let shared = Arc::clone(&log);
    let binding = Binding::to(move |_, m| {
        assert_eq!((m.port, m.flow), (PORT, 0));
        shared.lock().unwrap().push(m.payload.to_vec());
    });
    space.bind(PORT, binding).unwrap();
    log
}

/// The memory of a receive or a get.
fn bytes_of(ended: Ended) -> Vec<u8> {
    let Some(Memory::Sink(sink)) = ended.memory else {
        panic!("no memory came back");
    };
    let buffers = sink.into_buffers().into_iter();
    buffers.flat_map(|it| it.into_vec().unwrap()).collect()
}

/// Short and long.
fn message(space: usize, number: usize) -> Vec<u8> {
    let len = [20, 5_000, 300, 90_000][number % 4];
    pattern(len, (16 * space + number) as u8)
}

/// Checks P13.15.
#[test]
fn each_sees_its_own_messages_alone() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let others = spaces(&a, &b);
        let ends: Vec<(&Space, &Space)> = std::iter::once((&a, &b))
            .chain(others.iter().map(|(a, b)| (a, b)))
            .collect();
        let logs: Vec<Log> = ends.iter().map(|(_, b)| logged(b)).collect();
        // Of one tag in all of them, and from anybody.
        for number in 0..40 {
            for (at, (from, to)) in ends.iter().enumerate() {
                let payload = message(at, number);
                run(&[&a, &b], || from.try_send(1, PORT, &payload).is_ok());
                let options = TaggedOptions::default();
                let send = from.post_send(1, 7, &options, payload).unwrap();
                let room = vec![0; 100_000];
                let receive = to.post_receive(&Selector::any(7), room, Notify::default());
                let receive = receive.unwrap();
                let mut ended = None;
                run(&[&a, &b], || {
                    ended = ended.take().or(to.poll_op(receive).unwrap());
                    ended.is_some()
                });
                let ended = ended.unwrap();
                let bytes = ended.completion.bytes as usize;
                let received = bytes_of(ended);
                assert!(
                    received[..bytes] == message(at, number),
                    "{by:?} {at} {number}"
                );
                run(&[&a, &b], || from.poll_op(send).unwrap().is_some());
            }
        }
        for (at, log) in logs.iter().enumerate() {
            let expected: Vec<Vec<u8>> = (0..40).map(|number| message(at, number)).collect();
            run(&[&a, &b], || log.lock().unwrap().len() == expected.len());
            assert!(*log.lock().unwrap() == expected, "{by:?} {at}");
        }
        // 40 to the port and 40 matched.
        let bytes: usize = (0..40).map(|number| 2 * message(0, number).len()).sum();
        for (from, to) in &ends {
            let (sent, got) = (from.counters().unwrap(), to.counters().unwrap());
            assert_eq!((sent.sent, sent.bytes_sent), (80, bytes as u64));
            assert_eq!(got.received, 80);
        }
    }
}

#[test]
fn regions_are_their_spaces_own() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let others = spaces(&a, &b);
        let ends = [(&a, &b), (&others[0].0, &others[0].1)];
        let mut keys = Vec::new();
        for (at, (_, b)) in ends.iter().enumerate() {
            let memory = Scatter::from(vec![at as u8; 64]);
            let region = b.register(memory, Some(5), Rights::Both).unwrap();
            keys.push(b.remote_key(region).unwrap().unwrap());
        }
        let get = |space: &Space, key: RemoteKey| {
            let place = Place { key, offset: 0 };
            let op = space.post_get(1, place, vec![9; 64], Notify::default());
            let mut ended = None;
            let op = op.unwrap();
            run(&[&a, &b], || {
                ended = ended.take().or(space.poll_op(op).unwrap());
                ended.is_some()
            });
            let ended = ended.unwrap();
            ended.completion.result.map(|()| bytes_of(ended)[0])
        };
        for (at, (from, _)) in ends.iter().enumerate() {
            assert_eq!(get(from, RemoteKey::any(5)), Ok(at as u8), "{by:?}");
            assert_eq!(get(from, keys[at]), Ok(at as u8), "{by:?}");
            assert!(get(from, keys[1 - at]).is_err(), "{by:?}: another space's");
        }
    }
}

/// Checks P13.16.
#[test]
fn what_comes_before_a_space_is_open_waits() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let early = a.space(OTHERS[0]).unwrap();
        let own = logged(&b);
        let mut sent = 0;
        let mut refusals = 0;
        while refusals < 500 {
            match early.try_send(1, PORT, &message(1, sent)) {
                Ok(_) => (sent, refusals) = (sent + 1, 0),
                Err(SendError::NoCredit) => refusals += 1,
                Err(e) => panic!("{e}"),
            }
            settle(&[&a, &b]);
        }
        let options = TaggedOptions::default();
        let tagged = early.post_send(1, 1, &options, message(1, 1)).unwrap();
        // Nobody else is held up.
        for number in 0..100 {
            let payload = message(0, number);
            run(&[&a, &b], || a.try_send(1, PORT, &payload).is_ok());
            run(&[&a, &b], || own.lock().unwrap().len() == number + 1);
        }
        let late = b.space(OTHERS[0]).unwrap();
        let log = logged(&late);
        let op = late.post_receive(&Selector::from(0, 1), vec![0; 5_000], Notify::default());
        let op = op.unwrap();
        run(&[&a, &b], || late.poll_op(op).unwrap().is_some());
        run(&[&a, &b], || early.poll_op(tagged).unwrap().is_some());
        let expected: Vec<Vec<u8>> = (0..sent).map(|number| message(1, number)).collect();
        run(&[&a, &b], || log.lock().unwrap().len() == sent);
        assert!(*log.lock().unwrap() == expected, "{by:?}: {sent}");
    }
}

#[test]
fn a_space_that_takes_nothing_starves_no_other() {
    let small = Config {
        unexpected_bytes: 64 << 10,
        unexpected_share: 64 << 10,
        reply_bytes: 4 << 10,
        ..config()
    };
    for by in ALL {
        let (a, b) = pair(by, &small);
        let others = spaces(&a, &b);
        let (mean, kind) = (&others[0], &others[1]);
        let log = logged(&kind.1);
        // One never binds its port, and answers more than its sender takes.
        let answers = Binding::to(|c, _| {
            // Refused once the memory for answers is full.
            let _ = c.reply_to(PORT + 2, &[], &[7; 600]);
        });
        mean.1.bind(PORT + 1, answers).unwrap();
        let mut refusals = 0;
        while refusals < 300 {
            let first = mean.0.try_send(1, PORT, &[1; 3_000]).is_err();
            let second = mean.0.try_send(1, PORT + 1, &[]).is_err();
            refusals = if first && second { refusals + 1 } else { 0 };
            a.progress().unwrap();
            b.progress().unwrap();
        }
        // The memory of the other is its own, for messages that wait and for answers.
        let answered = Count::default();
        let count = answered.clone();
        let counts = Binding::to(move |_, _| count.add());
        kind.0.bind(PORT + 2, counts).unwrap();
        let answers = Binding::to(|c, _| c.reply_to(PORT + 2, &[], &[8; 600]).unwrap());
        kind.1.bind(PORT + 1, answers).unwrap();
        for number in 0..100 {
            let payload = message(2, number);
            run(&[&a, &b], || kind.0.try_send(1, PORT, &payload).is_ok());
            run(&[&a, &b], || kind.0.try_send(1, PORT + 1, &[]).is_ok());
        }
        run(&[&a, &b], || log.lock().unwrap().len() == 100);
        run(&[&a, &b], || answered.get() == 100);
        settle(&[&a, &b]);
        let kept_before = b.counters().unwrap().kept;
        for number in 0..10 {
            let late = vec![number; 5_000];
            run(&[&a, &b], || kind.0.try_send(1, PORT + 9, &late).is_ok());
        }
        settle(&[&a, &b]);
        // None of them was set aside.
        let kept_now = b.counters().unwrap().kept;
        assert_eq!(kept_now, kept_before + 10, "{by:?}");
        let kept = Count::default();
        let count = kept.clone();
        let counts = Binding::to(move |_, _| count.add());
        kind.1.bind(PORT + 9, counts).unwrap();
        run(&[&a, &b], || kept.get() == 10);
    }
}

#[test]
fn long_messages_of_all_spaces_share_one_window() {
    let mut small = helped();
    small.exchange.pull_window = 64 << 10;
    small.exchange.pull_chunk = 16 << 10;
    for by in [By::Ring, By::Udp] {
        let (a, b) = pair(by, &small);
        let others = spaces(&a, &b);
        let mut ends = vec![(&a, &b)];
        ends.extend(others.iter().map(|(a, b)| (a, b)));
        let mut open = BTreeMap::new();
        let mut sends = Vec::new();
        for (at, (from, to)) in ends.iter().enumerate() {
            for tag in 0..4 {
                let payload = pattern(600_000, tag as u8 + at as u8);
                let options = TaggedOptions::default();
                sends.push((*from, from.post_send(1, tag, &options, payload).unwrap()));
                let room = vec![0; 600_000];
                let op = to.post_receive(&Selector::from(0, tag), room, Notify::default());
                open.insert((at, tag), op.unwrap());
            }
        }
        run(&[&a, &b], || {
            // Counted where the schedule is at the moment.
            let due = ends
                .iter()
                .map(|(_, to)| to.statistics().unwrap().pulled_bytes);
            let due = due.max().unwrap_or_default();
            // Whoever is asked last may be asked for a whole chunk.
            let most = if by == By::Udp { 80 << 10 } else { 2 << 20 };
            assert!(due <= most, "{by:?}: {due} bytes are due");
            open.retain(|(at, tag), op| match ends[*at].1.poll_op(*op).unwrap() {
                None => true,
                Some(ended) => {
                    let bytes = bytes_of(ended);
                    assert!(bytes == pattern(600_000, *tag as u8 + *at as u8));
                    false
                }
            });
            open.is_empty()
        });
        for (from, op) in sends {
            run(&[&a, &b], || from.poll_op(op).unwrap().is_some());
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let (a, b) = pair(By::Shm, &config());
    assert_eq!(SpaceId::new(9), Err(Misuse::NoSuchSpace));
    assert_eq!(SpaceId::new(7), Ok(OTHERS[0]));
    let refused = |r: Result<Space, Misuse>| r.unwrap_err();
    assert_eq!(refused(a.space(SpaceId::PROGRAM)), Misuse::SpaceOpen);
    let one = a.space(OTHERS[0]).unwrap();
    assert_eq!(refused(a.space(OTHERS[0])), Misuse::SpaceOpen);
    assert_eq!(refused(one.space(OTHERS[0])), Misuse::SpaceOpen);
    let flow = SendOptions {
        flow: 1,
        ..SendOptions::default()
    };
    assert_eq!(
        one.try_send_with(1, PORT, &flow, &[]),
        Err(SendError::Misuse(Misuse::BadFlow))
    );
    // Its threads are the endpoint's.
    let outside = std::thread::scope(|s| s.spawn(|| one.progress()).join().unwrap());
    assert_eq!(outside, Err(Misuse::WrongThread));
    // From a handler.
    let shared = Arc::new(a);
    let (inside, found) = (Arc::clone(&shared), Arc::new(Mutex::new(None)));
    let log = Arc::clone(&found);
    let opens = Binding::to(move |_, _| {
        *log.lock().unwrap() = Some(inside.space(OTHERS[1]).map(drop));
    });
    shared.bind(PORT, opens).unwrap();
    b.send(0, PORT, &[]).unwrap();
    run(&[&shared, &b], || found.lock().unwrap().is_some());
    assert_eq!(*found.lock().unwrap(), Some(Err(Misuse::InHandler)));
    shared.close_port(PORT).unwrap();
    // Closed, each by itself; the last one ends it all.
    shared.close().unwrap();
    let closed = Err(SendError::Misuse(Misuse::Closed));
    assert_eq!(shared.try_send(1, PORT, &[]), closed);
    assert_eq!(shared.close(), Err(Misuse::Closed.into()));
    assert_eq!(refused(shared.space(SpaceId::PROGRAM)), Misuse::SpaceOpen);
    assert_eq!(b.death(0), Ok(None));
    assert!(one.try_send(1, PORT, &[]).is_ok());
    one.close().unwrap();
    assert_eq!(one.try_send(1, PORT, &[]), closed);
    assert_eq!(refused(shared.space(OTHERS[1])), Misuse::Closed);
    run(&[&b], || b.death(0) == Ok(Some(Death::Closed)));
}

#[test]
fn one_that_is_dropped_refuses_and_the_last_closes() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let mut others = spaces(&a, &b);
        let (gone, goes_on) = (others.remove(0), others.remove(0));
        let log = logged(&goes_on.1);
        let refused = Arc::new(Mutex::new(Vec::new()));
        for (space, name) in [(&a, "program"), (&gone.0, "gone"), (&goes_on.0, "other")] {
            let shared = Arc::clone(&refused);
            let tell = move |_: &mut Context<'_>, e: &Event| {
                if let Event::Refused { number, flow, .. } = e {
                    shared.lock().unwrap().push((name, *flow, number.0));
                }
            };
            space.on_error(tell).unwrap();
        }
        // One waits at a port that was never bound, one comes later.
        let first = gone.0.try_send(1, PORT, &[1]).unwrap();
        settle(&[&a, &b]);
        drop(gone.1);
        let second = gone.0.try_send(1, PORT + 1, &[1]).unwrap();
        let expected = [first, second].map(|number| ("gone", 0, number.0));
        run(&[&a, &b], || *refused.lock().unwrap() == expected);
        // The endpoint itself is not the last.
        let aside = b.space(OTHERS[0]).unwrap_err();
        assert_eq!(aside, Misuse::SpaceOpen);
        drop(b);
        goes_on.0.send(1, PORT, b"still there").unwrap();
        run(&[&a], || {
            goes_on.1.progress().unwrap();
            log.lock().unwrap().len() == 1
        });
        // Rank 1 has closed its program's space, and its endpoint lives on.
        let closed = Ok(Some(Death::Closed));
        run(&[&a], || a.death(1) == closed);
        assert_eq!(goes_on.0.death(1), Ok(None));
        drop(goes_on.1);
        run(&[&a], || goes_on.0.death(1) == closed);
    }
}

#[test]
fn whoever_comes_first_opens_it() {
    let (a, b) = pair(By::Shm, &config());
    let log = logged(&b);
    let opener = a.opener();
    let first = a.instead(OTHERS[0]).unwrap();
    assert_eq!(first.id(), OTHERS[0]);
    // The program's own waits for whoever opens it.
    b.try_send(0, PORT, b"early").unwrap();
    settle(&[&first, &b]);
    let own = opener.space(SpaceId::PROGRAM).unwrap().unwrap();
    let again = opener.space(SpaceId::PROGRAM).unwrap();
    assert_eq!(again.unwrap_err(), Misuse::SpaceOpen);
    let early = logged(&own);
    run(&[&own, &b], || *early.lock().unwrap() == [b"early"]);
    own.try_send(1, PORT, b"own").unwrap();
    run(&[&own, &b], || log.lock().unwrap().len() == 1);
    drop(first);
    assert_eq!(opener.threads(), Some(Threads::Single));
    assert_eq!(b.death(0), Ok(None));
    drop(own);
    assert!(opener.space(OTHERS[1]).is_none() && opener.threads().is_none());
    run(&[&b], || b.death(0) == Ok(Some(Death::Closed)));
}

#[test]
fn each_hears_of_a_death() {
    let mut all = job(By::Shm, 3, &config());
    let (b, a) = (all.swap_remove(1), all.swap_remove(0));
    let others = OTHERS.map(|id| a.space(id).unwrap());
    let told = Arc::new(Mutex::new(Vec::new()));
    for space in [&a, &others[0], &others[1]] {
        let (shared, id) = (Arc::clone(&told), space.id().number());
        let tell = move |_: &mut Context<'_>, e: &Event| {
            if let Event::PeerDead { rank, .. } = e {
                shared.lock().unwrap().push((id, *rank));
            }
        };
        space.on_error(tell).unwrap();
    }
    let died = Err(WaitError::PeerDead {
        rank: 1,
        why: Death::Ended,
    });
    a.peer_died(1).unwrap();
    // Each wait is told once, also one that begins later.
    for space in [&others[0], &a] {
        let limit = Duration::from_secs(100);
        assert_eq!(space.wait_timeout(limit, || false), died);
        let short = Duration::from_millis(1);
        assert_eq!(
            space.wait_timeout(short, || false),
            Err(WaitError::TimedOut)
        );
    }
    assert_eq!(*told.lock().unwrap(), [(0, 1), (7, 1), (8, 1)]);
    let dead = others[1].receive_tagged(&Selector::from(1, 0), &mut []);
    assert!(
        matches!(dead, Err(WaitError::PeerDead { rank: 1, .. })),
        "{dead:?}"
    );
    drop(b);
}

#[test]
fn barriers_of_spaces_are_apart() {
    for by in ALL {
        let passed = Arc::new(Mutex::new(Vec::new()));
        let ends = job(by, 2, &helped());
        std::thread::scope(|s| {
            for (rank, end) in ends.into_iter().enumerate() {
                let log = Arc::clone(&passed);
                s.spawn(move || {
                    let other = end.space(OTHERS[0]).unwrap();
                    // In another order on each side they would wait for each other's.
                    for turn in 0..50 {
                        let space = if turn % 3 == 0 { &end } else { &other };
                        space.barrier().unwrap();
                        log.lock().unwrap().push((turn, rank));
                    }
                });
            }
        });
        let mut log = passed.lock().unwrap().clone();
        // Nobody passed one before the other had come.
        for (at, (turn, _)) in log.iter().enumerate() {
            assert!(at / 2 <= turn + 1 && *turn <= at / 2 + 1, "{log:?}");
        }
        log.sort_unstable();
        log.dedup();
        assert_eq!(log.len(), 100);
    }
}

/// A message to a space waits until that is opened, and a receive gets it, also from a rank
/// that has closed its endpoint meanwhile.
#[test]
fn what_came_before_a_space_was_opened_outlives_its_sender() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let from = a.instead(OTHERS[0]).unwrap();
        let logged_later = Arc::new(Mutex::new(0));
        let options = TaggedOptions::default();
        from.post_send(1, 7, &options, pattern(20, 1)).unwrap();
        from.post_send(1, 8, &options, pattern(600, 2)).unwrap();
        from.try_send(1, PORT, &[1, 2, 3]).unwrap();
        let closing = std::thread::spawn(move || from.close());
        run(&[&b], || b.death(0) == Ok(Some(Death::Closed)));
        let to = b.space(OTHERS[0]).unwrap();
        let mut bytes = [0; 600];
        for (tag, sent) in [(8, pattern(600, 2)), (7, pattern(20, 1))] {
            let got = to.receive_tagged(&Selector::from(0, tag), &mut bytes);
            assert_eq!(
                got.map(|it| it.bytes),
                Ok(sent.len() as u64),
                "{by:?} {tag}"
            );
            assert!(bytes[..sent.len()] == sent);
        }
        // Nothing more comes.
        let none = to.receive_tagged(&Selector::from(0, 9), &mut bytes);
        assert!(
            matches!(none, Err(WaitError::PeerDead { rank: 0, .. })),
            "{none:?}"
        );
        let count = Arc::clone(&logged_later);
        let bind = Binding::to(move |_, m| *count.lock().unwrap() += m.payload.len());
        to.bind(PORT, bind).unwrap();
        run(&[&b], || *logged_later.lock().unwrap() == 3);
        let _ = closing.join().unwrap();
    }
}
