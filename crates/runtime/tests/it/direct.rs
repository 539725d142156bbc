//! One-sided memory on one host: the initiator does it itself.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::processes::{Kill, child, two};
use crate::common::{By, PATIENCE, config, pair, pattern, run, settle};
use portolan_link::shm::SegmentConfig;
use portolan_runtime::{
    Binding, Buffer, Config, Memory, Notify, OpError, OpId, Place, PutEnd, PutOptions, RegionId,
    RemoteKey, Rights, Scatter, Selector, Signal, Space, Statistics, Threads, WaitError,
};

const NONE: Notify = Notify::NONE;

fn place(key: RemoteKey, offset: u64) -> Place {
    Place { key, offset }
}

fn published(e: &Space, memory: impl Into<Scatter>, rights: Rights) -> (RegionId, RemoteKey) {
    let id = e.register(memory, None, rights).unwrap();
    (id, e.remote_key(id).unwrap().unwrap())
}

fn bytes_of(e: &Space, region: RegionId, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    e.read_region(region, at, &mut bytes).unwrap().unwrap();
    bytes
}

fn put(e: &Space, key: RemoteKey, at: u64, bytes: Vec<u8>) -> OpId {
    e.post_put(1, place(key, at), bytes, &PutOptions::default())
        .unwrap()
}

/// How an operation has ended, without a pass of progress.
fn ended(e: &Space, op: OpId) -> Option<Result<(), OpError>> {
    let ended = e.poll_op(op).unwrap();
    ended.map(|ended| ended.completion.result)
}

fn directly(e: &Space) -> u64 {
    e.counters().unwrap().direct
}

/// Whether the rest of a test can run; says so where it cannot.
fn possible(e: &Space) -> bool {
    let can = directly(e) > 0;
    if !can {
        eprintln!("*** process_vm_writev IS NOT PERMITTED HERE: DIRECT ACCESS NOT TESTED ***");
    }
    can
}

#[test]
fn a_target_that_does_nothing_is_put_to_and_got_from() {
    for by in [By::Shm, By::Ring] {
        let (a, b) = pair(by, &config());
        let (id, key) = published(&b, vec![0; 100_000], Rights::Both);
        let first = put(&a, key, 5, pattern(1_000, 1));
        if by == By::Ring {
            settle(&[&a]);
            assert_eq!(ended(&a, first), None);
            run(&[&a, &b], || ended(&a, first) == Some(Ok(())));
            assert_eq!(directly(&a), 0);
            continue;
        }
        if !possible(&a) {
            return;
        }
        assert_eq!(ended(&a, first), Some(Ok(())));
        assert_eq!(bytes_of(&b, id, 5, 1_000), pattern(1_000, 1));
        // In several pieces, there and back.
        let pieces = portolan_runtime::Gather::from(pattern(7, 2)).and(pattern(90_000, 3));
        let options = PutOptions {
            end: PutEnd::Local,
            ..PutOptions::default()
        };
        let op = a.post_put(1, place(key, 9_000), pieces, &options).unwrap();
        assert_eq!(ended(&a, op), Some(Ok(())));
        let into = Scatter::from(vec![0; 50_000]).and(vec![0; 40_007]);
        let op = a.post_get(1, place(key, 9_000), into, NONE).unwrap();
        let Some(Memory::Sink(sink)) = a.poll_op(op).unwrap().unwrap().memory else {
            panic!("a get gives its memory back");
        };
        let got: Vec<u8> = sink
            .into_buffers()
            .iter()
            .flat_map(|b| b.as_slice().to_vec())
            .collect();
        assert!(got == [pattern(7, 2), pattern(90_000, 3)].concat());
        // All of it is there: nothing is to be flushed.
        let flush = a.post_flush(1, NONE).unwrap();
        assert_eq!(ended(&a, flush), Some(Ok(())));
        assert_eq!(directly(&a), 3);
        // Errors are found here too.
        for (key, at, why) in [
            (key, 99_990, OpError::OutOfBounds),
            (RemoteKey::from_bytes([3; 16]), 0, OpError::BadKey),
        ] {
            let op = put(&a, key, at, vec![9; 11]);
            assert_eq!(ended(&a, op), Some(Err(why)));
        }
        assert_eq!(bytes_of(&b, id, 99_990, 10), [0; 10]);
        assert_eq!(directly(&a), 3);
        b.deregister(id).unwrap();
        let op = put(&a, key, 0, vec![9]);
        assert_eq!(ended(&a, op), Some(Err(OpError::BadKey)));
    }
}

#[test]
fn nothing_under_way_by_messages_is_overtaken() {
    let (a, b) = pair(By::Shm, &config());
    let (id, key) = published(&b, vec![0; 64], Rights::Both);
    put(&a, key, 0, vec![0; 8]);
    if !possible(&a) {
        return;
    }
    let word = |at| u64::from_le_bytes(bytes_of(&b, id, at, 8).try_into().unwrap());
    let put = |at, value: u64, signal| {
        let options = PutOptions {
            end: PutEnd::Local,
            signal,
            ..PutOptions::default()
        };
        let bytes = value.to_le_bytes().to_vec();
        a.post_put(1, place(key, at), bytes, &options).unwrap()
    };
    // A put behind an atomic operation, and that behind a put.
    put(0, 5, None);
    assert_eq!(word(0), 5);
    let add = a.post_fetch_add(1, place(key, 0), 1, NONE).unwrap();
    put(0, 100, None);
    put(8, 1, None);
    let got = a.post_get(1, place(key, 0), vec![0; 8], NONE).unwrap();
    settle(&[&a]);
    assert_eq!((word(0), word(8), ended(&a, got)), (5, 0, None));
    let mut data = None;
    run(&[&a, &b], || {
        data = a.poll_op(add).unwrap().and_then(|e| e.completion.data);
        data.is_some()
    });
    assert_eq!(data, Some(5));
    run(&[&a, &b], || ended(&a, got) == Some(Ok(())));
    assert_eq!((word(0), word(8)), (100, 1));
    // They ended locally: only a flush says that they are there.
    put(8, 2, None);
    assert_eq!(word(8), 1);
    let flush = a.post_flush(1, NONE).unwrap();
    run(&[&a, &b], || ended(&a, flush) == Some(Ok(())));
    a.fence(1).unwrap();
    put(8, 3, None);
    assert_eq!(word(8), 3);
    // What a signal tells of is there, also what went another way.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let handler = Binding::to(move |_, m| log.lock().unwrap().push((m.arg(0), m.arg(1))));
    b.bind(5, handler).unwrap();
    put(16, 7, None);
    put(24, 8, Some(Signal { port: 5, word: 1 }));
    a.fence(1).unwrap();
    put(24, 9, None);
    put(32, 4, Some(Signal { port: 5, word: 2 }));
    assert_eq!((word(16), word(24)), (7, 0));
    run(&[&a, &b], || seen.lock().unwrap().len() == 2);
    assert_eq!(*seen.lock().unwrap(), [(1, 8), (2, 8)]);
    assert_eq!((word(16), word(24), word(32)), (7, 9, 4));
}

#[test]
fn what_is_not_in_the_table_is_asked_for() {
    let (a, b) = pair(By::Shm, &config());
    let (_, key) = published(&b, vec![0; 8], Rights::Both);
    put(&a, key, 0, vec![1; 8]);
    if !possible(&a) {
        return;
    }
    let by_messages = |key, at, bytes: Vec<u8>| {
        let before = directly(&a);
        let op = put(&a, key, at, bytes);
        assert_eq!(ended(&a, op), None);
        let mut result = None;
        run(&[&a, &b], || {
            result = ended(&a, op);
            result.is_some()
        });
        assert_eq!(directly(&a), before);
        result.unwrap()
    };
    // A key alone says enough.
    for (any, result) in [
        (RemoteKey::any(key.key()), Ok(())),
        (RemoteKey::any(!key.key()), Err(OpError::BadKey)),
    ] {
        let op = put(&a, any, 0, vec![2; 8]);
        assert_eq!(ended(&a, op), Some(result));
    }
    let pieces = Scatter::from(vec![0; 5]).and(vec![0; 5]);
    let (withdrawn, in_pieces) = published(&b, pieces, Rights::Put);
    assert_eq!(by_messages(in_pieces, 3, vec![3; 4]), Ok(()));
    assert_eq!(bytes_of(&b, withdrawn, 3, 4), [3; 4]);
    assert_eq!(
        by_messages(RemoteKey::from_bytes([9; 16]), 0, vec![2]),
        Err(OpError::BadKey)
    );
    // While there are such, those in the table are still reached.
    let op = put(&a, key, 0, vec![4; 8]);
    assert_eq!(ended(&a, op), Some(Ok(())));
    b.deregister(withdrawn).unwrap();
    let op = put(&a, in_pieces, 0, vec![4]);
    assert_eq!(ended(&a, op), Some(Err(OpError::BadKey)));
    // More than the table holds.
    let room = SegmentConfig::default().regions as usize;
    let more: Vec<_> = (0..=room)
        .map(|_| published(&b, vec![0; 8], Rights::Put))
        .collect();
    let last = more[room].1;
    assert_eq!(by_messages(last, 0, vec![5; 8]), Ok(()));
    assert_eq!(bytes_of(&b, more[room].0, 0, 8), [5; 8]);
    for (id, _) in more {
        b.deregister(id).unwrap();
    }
    let op = put(&a, last, 0, vec![6]);
    assert_eq!(ended(&a, op), Some(Err(OpError::BadKey)));
    assert_eq!(a.statistics().unwrap(), Statistics::default());
}

#[test]
fn nobody_writes_to_memory_that_came_back() {
    const BYTES: usize = 300_000;
    let settings = Config {
        threads: Threads::Serialized,
        ..config()
    };
    let (a, b) = pair(By::Shm, &settings);
    let (_, key) = published(&b, vec![0; 8], Rights::Both);
    put(&a, key, 0, vec![1; 8]);
    if !possible(&a) {
        return;
    }
    let key = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let touched = thread::scope(|s| {
        let (key, stop) = (&key, &stop);
        s.spawn(move || {
            while !stop.load(Relaxed) {
                let Some(key) = *key.lock().unwrap() else {
                    continue;
                };
                let op = put(&a, key, 0, vec![1; BYTES]);
                let result = ended(&a, op);
                assert!(
                    matches!(result, Some(Ok(()) | Err(OpError::BadKey))),
                    "{result:?}"
                );
            }
        });
        let mut memory = vec![0_u8; BYTES];
        let start = memory.as_mut_ptr();
        let read = |at: usize| {
            // SAFETY: within the vector.
            unsafe { start.add(at).read_volatile() }
        };
        let mut touched = 0;
        let end = Instant::now() + PATIENCE;
        while touched < 100 && Instant::now() < end {
            // SAFETY: the vector outlives the registration, and is looked at by
            // volatile reads only.
            let lent = unsafe { Buffer::lent(start, BYTES) };
            let (id, new) = published(&b, lent, Rights::Put);
            *key.lock().unwrap() = Some(new);
            thread::sleep(Duration::from_micros(300));
            b.deregister(id).unwrap();
            touched += i32::from(read(0) == 1);
            for at in 0..BYTES {
                // SAFETY: within the vector.
                unsafe { start.add(at).write_volatile(2) };
            }
            thread::yield_now();
            let wrong = (0..BYTES).find(|at| read(*at) != 2);
            if wrong.is_some() {
                touched = -1;
                break;
            }
        }
        stop.store(true, Relaxed);
        touched
    });
    assert!(touched > 0, "{touched}");
}

fn next(e: &Space, from: u32, bytes: &mut [u8]) {
    e.receive_tagged(&Selector::from(from, 1), bytes).unwrap();
}

#[test]
fn a_stopped_target_is_put_to_and_got_from() {
    const BYTES: usize = 3_000_000;
    if let Some(e) = child(&config()) {
        let (id, key) = published(&e, vec![3; BYTES], Rights::Both);
        e.send_tagged(0, 1, &key.to_bytes()).unwrap();
        next(&e, 0, &mut [0; 4]);
        let right = bytes_of(&e, id, 0, BYTES) == pattern(BYTES, 4);
        e.deregister(id).unwrap();
        e.send_tagged(0, 1, &[right.into()]).unwrap();
        next(&e, 0, &mut [0; 4]);
        return;
    }
    let (process, e) = two("direct::a_stopped_target_is_put_to_and_got_from", &config());
    let mut key = [0; 16];
    next(&e, 1, &mut key);
    let key = RemoteKey::from_bytes(key);
    process.stop();
    let op = e.post_get(1, place(key, 0), vec![0; BYTES], NONE).unwrap();
    if possible(&e) {
        let Some(Memory::Sink(sink)) = e.poll_op(op).unwrap().unwrap().memory else {
            panic!("a get gives its memory back");
        };
        assert!(sink.into_buffers()[0].as_slice() == [3; BYTES]);
        let op = put(&e, key, 0, pattern(BYTES, 4));
        assert_eq!(ended(&e, op), Some(Ok(())));
        let flush = e.post_flush(1, NONE).unwrap();
        assert_eq!(ended(&e, flush), Some(Ok(())));
        process.signal(Kill::CONT);
        e.send_tagged(1, 1, b"look").unwrap();
        let mut right = [0];
        next(&e, 1, &mut right);
        assert_eq!(right, [1]);
        e.send_tagged(1, 1, b"done").unwrap();
    }
    process.signal(Kill::CONT);
}

#[test]
fn a_killed_initiator_holds_nothing_up() {
    const BYTES: usize = 64 << 20;
    if let Some(e) = child(&config()) {
        let mut key = [0; 16];
        next(&e, 0, &mut key);
        put_for_ever(&e, RemoteKey::from_bytes(key), BYTES);
    }
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let (process, e) = two("direct::a_killed_initiator_holds_nothing_up", &config());
        let (id, key) = published(&e, vec![0; BYTES], Rights::Put);
        e.send_tagged(1, 1, &key.to_bytes()).unwrap();
        next(&e, 1, &mut [0; 5]);
        // In the middle of a copy, as it does little else.
        thread::sleep(Duration::from_millis(20));
        process.stop();
        process.signal(Kill::KILL);
        drop(process);
        e.peer_died(1).unwrap();
        let memory = e.deregister(id).unwrap().expect("the last");
        tell.send(memory.into_buffers()[0].len()).unwrap();
    });
    let bytes = told.recv_timeout(PATIENCE);
    assert_eq!(bytes, Ok(BYTES));
}

#[test]
fn a_close_waits_for_a_stopped_initiator_until_its_limit() {
    const TEST: &str = "direct::a_close_waits_for_a_stopped_initiator_until_its_limit";
    const BYTES: usize = 64 << 20;
    if let Some(e) = child(&config()) {
        let mut key = [0; 16];
        next(&e, 0, &mut key);
        put_for_ever(&e, RemoteKey::from_bytes(key), BYTES);
    }
    // It copies when it is stopped, most of the times.
    let waited = (0..20).any(|_| {
        let (process, e) = two(TEST, &config());
        let (_, key) = published(&e, vec![0; BYTES], Rights::Put);
        e.send_tagged(1, 1, &key.to_bytes()).unwrap();
        next(&e, 1, &mut [0; 5]);
        thread::sleep(Duration::from_millis(20));
        process.stop();
        // Its limit is config()'s, and it would wait for ever without one.
        e.close() == Err(WaitError::TimedOut)
    });
    assert!(waited);
}

/// As rank 1, to rank 0, until it is killed.
fn put_for_ever(e: &Space, key: RemoteKey, bytes: usize) -> ! {
    let mut bytes = vec![1; bytes];
    e.send_tagged(0, 1, b"begun").unwrap();
    loop {
        let place = place(key, 0);
        let op = e.post_put(0, place, bytes, &PutOptions::default()).unwrap();
        let Some(Memory::Source(source)) = e.wait_end(op, None).unwrap().memory else {
            panic!("a put gives its memory back");
        };
        bytes = source.into_vec();
    }
}
