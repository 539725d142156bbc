//! Long messages on one host while both sides wait: each copies one half.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::processes::{Kill, child, two};
use crate::common::published::{LONG, VAST, Watched, in_time, possible};
use crate::common::{By, config, helped, pair, pattern};
use portolan_link::shm::SegmentConfig;
use portolan_runtime::{
    Config, Gather, Notify, OpError, OpId, Push, Rights, Scatter, Selector, Space, Statistics,
    TaggedOptions, Threads, WaitError,
};

/// Settings for an endpoint that now one thread calls and now another.
fn settings() -> Config {
    Config {
        threads: Threads::Serialized,
        // Shorter than what is shared.
        push_shm: Push::DEFAULT,
        ..helped()
    }
}

fn shared(e: &Space) -> u64 {
    e.counters().unwrap().shared
}

fn post_receive(e: &Space, tag: u64, into: impl Into<Scatter>) -> OpId {
    let selector = Selector::any(tag);
    e.post_receive(&selector, into, Notify::default()).unwrap()
}

fn buffers(into: Scatter) -> Vec<u8> {
    let buffers = into.into_buffers();
    buffers.iter().flat_map(|b| b.as_slice().to_vec()).collect()
}

/// Rank 0 sends, rank 1 receives; gives what it returned.
fn send_and<R>(
    (a, b): (&Space, &Space),
    bytes: &[u8],
    late: bool,
    receive: impl FnOnce(&Space) -> R,
) -> R {
    thread::scope(|s| {
        s.spawn(|| {
            if !late {
                thread::sleep(Duration::from_millis(2));
            }
            a.send_tagged(1, 5, bytes).unwrap();
        });
        if late {
            thread::sleep(Duration::from_millis(2));
        }
        receive(b)
    })
}

#[test]
fn every_length_lands_whole_wherever_it_lies() {
    for by in [By::Shm, By::Ring] {
        let (a, b) = pair(by, &settings());
        if by == By::Shm && !possible(&a, &b) {
            continue;
        }
        let least = portolan_runtime::SHARE_MIN as usize;
        for (i, len) in [least, least + 1, least + 63, 700_001, LONG, 9_000_007]
            .into_iter()
            .enumerate()
        {
            let (from, to) = (i * 13 % 64, i * 29 % 64);
            let source = pattern(from + len, i as u8);
            let mut memory = vec![0xaa; to + len + 64];
            let before = shared(&a);
            let done = send_and((&a, &b), &source[from..], i % 2 == 0, |b| {
                b.receive_tagged(&Selector::from(0, 5), &mut memory[to..to + len])
            });
            assert_eq!(done.unwrap().bytes, len as u64);
            assert!(memory[to..to + len] == source[from..], "{by:?} {len}");
            assert!(memory[..to].iter().all(|byte| *byte == 0xaa));
            assert!(memory[to + len..].iter().all(|byte| *byte == 0xaa));
            let expected = u64::from(by == By::Shm);
            assert_eq!(shared(&a) - before, expected, "{by:?} {len}");
        }
        assert_eq!(shared(&b), 0);
        for e in [a, b] {
            assert_eq!(e.statistics().unwrap(), Statistics::default());
        }
    }
}

#[test]
fn what_is_not_shared_lands_as_well() {
    let (a, b) = pair(By::Shm, &settings());
    if !possible(&a, &b) {
        return;
    }
    let (bytes, before) = (pattern(LONG, 3), shared(&a));
    let ends = (&a, &b);
    let into = |pieces: Scatter| {
        move |b: &Space| {
            let ended = b.receive_pieces(&Selector::from(0, 5), pieces).unwrap();
            assert_eq!(ended.completion.result, Ok(()));
            let Some(portolan_runtime::Memory::Sink(sink)) = ended.memory else {
                panic!("a receive gives its memory back");
            };
            buffers(sink)
        }
    };
    // The sender's half would lie in two pieces.
    let pieces = Scatter::from(vec![0; 1_000]).and(vec![0; LONG - 1_000]);
    assert!(send_and(ends, &bytes, true, into(pieces)) == bytes);
    assert_eq!(shared(&a), before);
    // It lies in one.
    let pieces = Scatter::from(vec![0; LONG - 1_000]).and(vec![0; 1_000]);
    assert!(send_and(ends, &bytes, true, into(pieces)) == bytes);
    assert_eq!(shared(&a), before + 1);
    // A message in pieces, one that is not waited for, and a short one.
    thread::scope(|s| {
        s.spawn(|| {
            let pieces = Gather::from(bytes[..7].to_vec()).and(bytes[7..].to_vec());
            let options = TaggedOptions::default();
            a.send_pieces(1, 5, &options, pieces).unwrap();
            let op = a.post_send(1, 5, &options, bytes.clone()).unwrap();
            a.wait_end(op, None).unwrap();
            let short = portolan_runtime::SHARE_MIN as usize - 1;
            a.send_tagged(1, 5, &bytes[..short]).unwrap();
        });
        for _ in 0..2 {
            assert!(into(vec![0; LONG].into())(&b) == bytes);
        }
        let mut memory = vec![0; LONG];
        b.receive_tagged(&Selector::any(5), &mut memory).unwrap();
    });
    assert_eq!(shared(&a), before + 1);
    // Of a message that is too long its beginning.
    let mut memory = vec![0xaa; LONG];
    let room = LONG - 100_000;
    let cut = send_and(ends, &bytes, true, |b| {
        b.receive_tagged(&Selector::any(5), &mut memory[..room])
    });
    assert!(matches!(cut, Err(WaitError::Truncated { .. })), "{cut:?}");
    assert!(memory[..room] == bytes[..room] && memory[room..].iter().all(|byte| *byte == 0xaa));
    assert_eq!(shared(&a), before + 2);
    // There is no room in the table.
    let room = SegmentConfig::default().regions as usize;
    let more: Vec<_> = (0..room)
        .map(|_| b.register(vec![0; 8], None, Rights::Put).unwrap())
        .collect();
    let mut memory = vec![0; LONG];
    send_and(ends, &bytes, true, |b| {
        b.receive_tagged(&Selector::any(5), &mut memory).unwrap();
    });
    assert!(memory == bytes && shared(&a) == before + 2);
    for id in more {
        b.deregister(id).unwrap();
    }
    // It is forbidden.
    b.forbid_one_sided().unwrap();
    let mut memory = vec![0; LONG];
    send_and(ends, &bytes, true, |b| {
        b.receive_tagged(&Selector::any(5), &mut memory).unwrap();
    });
    assert!(memory == bytes && shared(&a) == before + 2);
}

/// Settings for an endpoint that two threads call at a time.
fn threads() -> Config {
    Config {
        threads: Threads::Multiple,
        ..helped()
    }
}

/// As rank 1, sends to rank 0 until one of them is gone.
fn send_on(e: &Space) {
    let bytes = vec![1; VAST];
    while e.send_tagged(0, 5, &bytes).is_ok() {}
}

/// Receives all that comes for so long, from the first message on; gives the
/// receive that is open then.
fn receive_for(e: &Space, memory: &Watched, time: Duration) -> OpId {
    let mut until = None;
    loop {
        let selector = Selector::from(1, 5);
        let op = e.post_receive(&selector, memory.lend(), Notify::default());
        let op = op.unwrap();
        let left = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
        match e.wait_end(op, left) {
            Err(WaitError::TimedOut) => return op,
            ended => assert_eq!(ended.unwrap().completion.result, Ok(())),
        }
        until = until.or_else(|| Some(Instant::now() + time));
    }
}

/// How long the receiver goes on in a round: it ends at another place of a copy.
fn time_of(round: u64) -> Duration {
    Duration::from_millis(7 + 3 * round)
}

/// Runs so many rounds, and more until one has met what the test is about.
fn until_met(rounds: u64, mut round: impl FnMut(u64) -> bool) {
    let mut met = false;
    for n in 0.. {
        met |= round(n % rounds);
        if met && n + 1 >= rounds {
            return;
        }
    }
}

/// Such rounds, in time, with memory to receive in.
fn in_rounds(rounds: u64, test: impl Fn(&Watched, u64) -> bool + Send + 'static) {
    in_time(move || {
        let mut memory = vec![0; VAST];
        let memory = Watched::of(&mut memory);
        until_met(rounds, |round| test(&memory, round));
    });
}

#[test]
fn a_sender_that_is_killed_while_it_writes_gives_the_memory_back() {
    const TEST: &str = "share::a_sender_that_is_killed_while_it_writes_gives_the_memory_back";
    if let Some(e) = child(&config()) {
        return send_on(&e);
    }
    in_rounds(16, |memory, round| {
        let (process, e) = two(TEST, &config());
        let op = receive_for(&e, memory, time_of(round));
        // Killed, or only taken for dead: then it writes on.
        let killed = round % 2 == 0;
        if killed {
            process.signal(Kill::KILL);
        }
        e.peer_died(1).unwrap();
        e.cancel(op).unwrap();
        let done = e.wait_end(op, None).unwrap().completion;
        assert!(memory.is_left_alone(|| {}), "round {round}");
        assert_eq!(e.statistics().unwrap(), Statistics::default());
        done.result == Err(OpError::PeerDead)
    });
}

#[test]
fn a_receive_waits_for_a_sender_that_was_stopped() {
    const TEST: &str = "share::a_receive_waits_for_a_sender_that_was_stopped";
    if let Some(e) = child(&config()) {
        return send_on(&e);
    }
    in_time(|| {
        let (process, e) = two(TEST, &config());
        until_met(40, |round| {
            let mut waited = false;
            let op = post_receive(&e, 5, vec![0; VAST]);
            let limit = Some(Duration::from_millis(round));
            let ended = match e.wait_end(op, limit) {
                Err(WaitError::TimedOut) => {
                    process.stop();
                    let again = e.wait_end(op, Some(Duration::from_millis(30)));
                    // It has met its message, mostly.
                    if again.is_err() && !e.cancel(op).unwrap() {
                        waited = true;
                    }
                    process.signal(Kill::CONT);
                    again.or_else(|_| e.wait_end(op, None))
                }
                ended => ended,
            };
            let ended = ended.unwrap();
            match ended.completion.result {
                Ok(()) => assert!(ended.into_received().iter().all(|byte| *byte == 1)),
                result => assert_eq!(result, Err(OpError::Cancelled)),
            }
            waited
        });
        // It may have offered its next message.
        let mut left = e.statistics().unwrap();
        left.messages = 0;
        assert_eq!(left, Statistics::default());
    });
}

#[test]
fn a_close_gives_back_no_memory_that_is_written_to() {
    const TEST: &str = "share::a_close_gives_back_no_memory_that_is_written_to";
    if let Some(e) = child(&config()) {
        return send_on(&e);
    }
    in_rounds(10, |memory, round| {
        let settings = Config {
            close_ns: 50_000_000,
            ..threads()
        };
        let (process, e) = two(TEST, &settings);
        receive_for(&e, memory, time_of(round));
        process.stop();
        let closed = AtomicBool::new(false);
        let early = thread::scope(|s| {
            s.spawn(|| {
                let _ = e.close();
                closed.store(true, Relaxed);
            });
            thread::sleep(Duration::from_millis(300));
            let go_on = || process.signal(Kill::CONT);
            let early = closed.load(Relaxed);
            if early {
                assert!(memory.is_left_alone(go_on), "round {round}");
            } else {
                // It is in the middle of a copy, and goes on with it.
                go_on();
            }
            early
        });
        assert!(memory.is_left_alone(|| {}), "round {round}");
        !early
    });
}

#[test]
fn a_receiver_that_is_killed_ends_the_send() {
    const TEST: &str = "share::a_receiver_that_is_killed_ends_the_send";
    if let Some(e) = child(&config()) {
        let mut bytes = vec![0; VAST];
        while e.receive_tagged(&Selector::from(0, 5), &mut bytes).is_ok() {}
        return;
    }
    in_time(|| {
        until_met(8, |round| {
            let (process, e) = two(TEST, &threads());
            thread::scope(|s| {
                let (begun, begins) = mpsc::channel();
                let e = &e;
                let sender = s.spawn(move || {
                    let bytes = vec![1; VAST];
                    loop {
                        if let Err(e) = e.send_tagged(1, 5, &bytes) {
                            return e;
                        }
                        begun.send(()).unwrap();
                    }
                });
                begins.recv().unwrap();
                thread::sleep(time_of(round));
                process.signal(Kill::KILL);
                drop(process);
                e.peer_died(1).unwrap();
                let error = sender.join().unwrap();
                assert!(
                    matches!(error, WaitError::PeerDead { rank: 1, .. }),
                    "{error:?}"
                );
            });
            assert_eq!(e.statistics().unwrap(), Statistics::default());
            shared(&e) > 0
        });
    });
}
