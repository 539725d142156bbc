//! Memory of other ranks, on every lane.

use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{ALL, By, PATIENCE, config, helped, job, pair, pattern, run};
use portolan_runtime::{
    Action, Binding, Buffer, Config, DeregisterError, Ended, Memory, Misuse, Notify, OpError, OpId,
    Place, PutEnd, PutOptions, RegisterError, RemoteKey, Rights, Salt, SendError, Signal, Space,
    Statistics,
};

const BYTES: usize = 1_000_000;

fn place(key: RemoteKey, offset: u64) -> Place {
    Place { key, offset }
}

/// A region of so many zeros.
fn region(e: &Space, bytes: usize, rights: Rights) -> (portolan_runtime::RegionId, RemoteKey) {
    let id = e.register(vec![0; bytes], None, rights).unwrap();
    (id, e.remote_key(id).unwrap().unwrap())
}

fn end(both: &[&Space], of: &Space, op: OpId) -> Ended {
    let mut ended = None;
    run(both, || {
        ended = of.poll_op(op).unwrap();
        ended.is_some()
    });
    ended.unwrap()
}

fn bytes_of(e: &Space, region: portolan_runtime::RegionId, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    e.read_region(region, at as u64, &mut bytes)
        .unwrap()
        .unwrap();
    bytes
}

#[test]
fn what_is_put_is_there_and_is_got_back() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (id, key) = region(&b, BYTES, Rights::Both);
        for (i, len) in [0, 1, 8, 1_300, 1_500, 20_000, 200_001, BYTES - 64]
            .into_iter()
            .enumerate()
        {
            let at = (i * 7 % 64) as u64;
            let bytes = pattern(len, i as u8);
            let put = a
                .post_put(1, place(key, at), bytes.clone(), &PutOptions::default())
                .unwrap();
            let ended = end(&[&a, &b], &a, put);
            let c = ended.completion;
            assert_eq!(
                (c.result, c.action, c.bytes),
                (Ok(()), Action::Put, len as u64)
            );
            assert!(matches!(ended.memory, Some(Memory::Source(_))));
            // Its end means that it is visible.
            assert!(bytes_of(&b, id, at as usize, len) == bytes, "{by:?} {len}");
            let get = a
                .post_get(1, place(key, at), vec![0; len], Notify::default())
                .unwrap();
            let ended = end(&[&a, &b], &a, get);
            assert_eq!(ended.completion.result, Ok(()));
            let Some(Memory::Sink(sink)) = ended.memory else {
                panic!("a get gives its memory back");
            };
            let got = sink.into_buffers().remove(0).into_vec().unwrap();
            assert!(got == bytes, "{by:?} {len}");
        }
        let memory = b.deregister(id).unwrap().expect("it was the last");
        assert_eq!(memory.into_buffers()[0].len(), BYTES);
        for e in [&a, &b] {
            assert_eq!(e.statistics().unwrap(), Statistics::default());
        }
    }
}

#[test]
fn numbers_are_changed_at_once_by_many() {
    for by in ALL {
        let all = job(by, 3, &config());
        let (id, key) = region(&all[0], 64, Rights::Both);
        let mut found = Vec::new();
        for round in 0..50 {
            let ops: Vec<(usize, OpId)> = (0..3)
                .map(|rank| {
                    let op =
                        all[rank].post_fetch_add(0, place(key, 8), round + 1, Notify::default());
                    (rank, op.unwrap())
                })
                .collect();
            let refs: Vec<&Space> = all.iter().collect();
            for (rank, op) in ops {
                let c = end(&refs, &all[rank], op).completion;
                assert_eq!((c.result, c.action), (Ok(()), Action::FetchAdd));
                found.push(c.data.unwrap());
            }
        }
        let sum: u64 = (1..=50).map(|n| 3 * n).sum();
        assert_eq!(bytes_of(&all[0], id, 8, 8), sum.to_le_bytes());
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 150, "each saw another value");
        let refs: Vec<&Space> = all.iter().collect();
        for (expected, new, then) in [(sum, 7, 7), (sum, 9, 7)] {
            let op = all[1].post_compare_swap(0, place(key, 8), [expected, new], Notify::default());
            let c = end(&refs, &all[1], op.unwrap()).completion;
            assert_eq!(c.data, Some(if then == new { sum } else { then }));
            assert_eq!(bytes_of(&all[0], id, 8, 8), u64::to_le_bytes(then));
        }
    }
}

#[test]
fn a_signal_comes_when_the_bytes_are_there() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let b = Arc::new(b);
        let (id, key) = region(&b, 100_000, Rights::Put);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&seen);
        b.bind(
            5,
            Binding::to(move |_, m| log.lock().unwrap().push((m.from, m.arg(0), m.arg(1)))),
        )
        .unwrap();
        for (word, len) in [(1, 0), (2, 100), (3, 100_000)] {
            let options = PutOptions {
                end: PutEnd::Local,
                signal: Some(Signal { port: 5, word }),
                ..PutOptions::default()
            };
            let put = a
                .post_put(1, place(key, 0), pattern(len, word as u8), &options)
                .unwrap();
            run(&[&a, &b], || seen.lock().unwrap().len() == word as usize);
            assert_eq!(*seen.lock().unwrap().last().unwrap(), (0, word, len as u64));
            assert!(bytes_of(&b, id, 0, len) == pattern(len, word as u8));
            assert_eq!(end(&[&a, &b], &a, put).completion.result, Ok(()));
        }
        b.close_port(6).unwrap();
        for port in [6, 70_000] {
            let options = PutOptions {
                signal: Some(Signal { port, word: 0 }),
                ..PutOptions::default()
            };
            let put = a.post_put(1, place(key, 0), vec![9; 10], &options).unwrap();
            assert_eq!(
                end(&[&a, &b], &a, put).completion.result,
                Err(OpError::NoPort)
            );
            assert_eq!(bytes_of(&b, id, 0, 3), pattern(3, 3));
        }
    }
}

#[test]
fn a_flush_ends_when_all_before_it_is_there() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (id, key) = region(&b, 64_000, Rights::Put);
        let local = PutOptions {
            end: PutEnd::Local,
            ..PutOptions::default()
        };
        for i in 0..1_000_u64 {
            let put = a
                .post_put(1, place(key, i * 64), vec![i as u8; 64], &local)
                .unwrap();
            if i % 50 == 0 {
                end(&[&a, &b], &a, put);
            }
            a.progress().unwrap();
        }
        let flush = a.post_flush(1, Notify::default()).unwrap();
        assert_eq!(end(&[&a, &b], &a, flush).completion.result, Ok(()));
        let expected: Vec<u8> = (0..1_000).flat_map(|i| [i as u8; 64]).collect();
        assert!(bytes_of(&b, id, 0, 64_000) == expected);
    }
}

#[test]
fn what_is_not_allowed_is_told_and_touches_nothing() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (id, key) = region(&b, 100, Rights::Get);
        let (_, write_only) = region(&b, 100, Rights::Put);
        let (_, none) = region(&b, 100, Rights::default());
        let put = |key, at, len| {
            let op = a
                .post_put(1, place(key, at), vec![1; len], &PutOptions::default())
                .unwrap();
            end(&[&a, &b], &a, op).completion.result
        };
        let get = |key, at, len| {
            let op = a
                .post_get(1, place(key, at), vec![1; len], Notify::default())
                .unwrap();
            end(&[&a, &b], &a, op).completion.result
        };
        for len in [1, 100] {
            assert_eq!(put(key, 0, len), Err(OpError::NotPermitted));
            assert_eq!(get(write_only, 0, len), Err(OpError::NotPermitted));
            assert_eq!(get(none, 0, len), Err(OpError::NotPermitted));
        }
        for (at, len) in [(0, 101), (100, 1), (u64::MAX, 2), (50, 200_000)] {
            assert_eq!(put(write_only, at, len), Err(OpError::OutOfBounds));
            assert_eq!(get(key, at, len), Err(OpError::OutOfBounds));
        }
        let op = a
            .post_fetch_add(1, place(key, 0), 1, Notify::default())
            .unwrap();
        assert_eq!(
            end(&[&a, &b], &a, op).completion.result,
            Err(OpError::NotPermitted)
        );
        let (_, both) = region(&b, 100, Rights::Both);
        let op = a
            .post_fetch_add(1, place(both, 4), 1, Notify::default())
            .unwrap();
        assert_eq!(
            end(&[&a, &b], &a, op).completion.result,
            Err(OpError::Unaligned)
        );
        // Either half of a key alone is none.
        let mut bytes = key.to_bytes();
        for at in [0, 7, 8, 15] {
            bytes[at] ^= 4;
            let wrong = RemoteKey::from_bytes(bytes);
            assert_eq!(get(wrong, 0, 1), Err(OpError::BadKey), "{by:?} {at}");
            assert_eq!(put(wrong, 0, 1), Err(OpError::BadKey), "{by:?} {at}");
            bytes[at] ^= 4;
        }
        assert_eq!(get(RemoteKey::from_bytes(bytes), 0, 1), Ok(()));
        assert_eq!(bytes_of(&b, id, 0, 100), [0; 100]);
        // A key whose region is gone reaches nothing, nor a later one under it.
        let first = b.register(vec![0; 10], Some(77), Rights::Both).unwrap();
        let old = b.remote_key(first).unwrap().unwrap();
        let taken = b.register(vec![0; 10], Some(77), Rights::Both);
        assert_eq!(taken.unwrap_err().0, RegisterError::KeyTaken);
        b.deregister(first).unwrap();
        assert_eq!(
            b.deregister(first).unwrap_err(),
            DeregisterError::NoSuchRegion
        );
        assert_eq!(put(old, 0, 1), Err(OpError::BadKey));
        let second = b.register(vec![0; 10], Some(77), Rights::Both).unwrap();
        assert_eq!(put(old, 0, 1), Err(OpError::BadKey));
        assert_eq!(put(b.remote_key(second).unwrap().unwrap(), 0, 1), Ok(()));
        assert_eq!(b.read_region(second, 5, &mut [0; 6]).unwrap(), None);
        b.forbid_one_sided().unwrap();
        assert_eq!(get(key, 0, 1), Err(OpError::Forbidden));
        assert_eq!(put(write_only, 0, 1), Err(OpError::Forbidden));
        let forbidden = b.register(vec![0; 10], None, Rights::Both);
        assert_eq!(forbidden.unwrap_err().0, RegisterError::Forbidden);
        let wrong = a.post_put(7, place(key, 0), vec![1], &PutOptions::default());
        assert_eq!(wrong.unwrap_err().0, SendError::Misuse(Misuse::BadRank));
        let wrong = a.post_flush(7, Notify::default());
        assert_eq!(wrong.unwrap_err(), SendError::Misuse(Misuse::BadRank));
    }
}

#[test]
fn memory_that_is_registered_twice_comes_back_with_the_last() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (all, whole) = region(&b, 1_000, Rights::Get);
        let again = |start, bytes, key, rights| b.register_again(all, start, bytes, key, rights);
        let part = again(200, 300, Some(5), Rights::Put).unwrap();
        let key = b.remote_key(part).unwrap().unwrap();
        // The same once more is the same region.
        assert_eq!(again(200, 300, Some(5), Rights::Put), Ok(part));
        assert_eq!(
            again(900, 101, None, Rights::Put),
            Err(RegisterError::OutOfBounds)
        );
        assert_eq!(
            again(0, 10, Some(5), Rights::Put),
            Err(RegisterError::KeyTaken)
        );
        let put = |at: Place, bytes: Vec<u8>| {
            let op = a.post_put(1, at, bytes, &PutOptions::default()).unwrap();
            end(&[&a, &b], &a, op).completion.result
        };
        // Rights and bounds are the region's, bytes the memory's.
        assert_eq!(put(place(whole, 0), vec![1]), Err(OpError::NotPermitted));
        assert_eq!(put(place(key, 290), vec![1; 11]), Err(OpError::OutOfBounds));
        assert_eq!(put(place(key, 290), pattern(10, 4)), Ok(()));
        assert_eq!(bytes_of(&b, all, 490, 10), pattern(10, 4));
        assert_eq!(bytes_of(&b, part, 290, 10), pattern(10, 4));
        assert_eq!(b.read_region(part, 291, &mut [0; 10]).unwrap(), None);
        // The first of two takes nothing from the other.
        assert!(b.deregister(part).unwrap().is_none());
        assert_eq!(put(place(key, 0), vec![7; 10]), Ok(()));
        assert!(b.deregister(all).unwrap().is_none());
        assert_eq!(put(place(key, 10), vec![8; 10]), Ok(()));
        let memory = b.deregister(part).unwrap().expect("it was the last");
        let memory = memory.into_buffers().pop().unwrap();
        assert_eq!(memory.as_slice()[200..220], [[7; 10], [8; 10]].concat());
        assert_eq!(put(place(key, 0), vec![9]), Err(OpError::BadKey));
    }
}

#[test]
fn what_was_registered_is_found_again_until_it_is_forgotten() {
    for by in ALL {
        let settings = Config {
            regions_cached: 2,
            ..config()
        };
        let (a, b) = pair(by, &settings);
        let mut memory = vec![0; 400];
        let start = memory.as_mut_ptr();
        let register = |at: usize, rights| {
            // SAFETY: the memory is there until the endpoints are closed, and what
            // is registered is looked at by `read_region` alone.
            unsafe { b.register_cached(start.wrapping_add(at), 100, rights) }
        };
        let put = |key, byte: u8| {
            let bytes = vec![byte; 100];
            let op = (a.post_put(1, place(key, 0), bytes, &PutOptions::default())).unwrap();
            end(&[&a, &b], &a, op).completion.result
        };
        let first = register(0, Rights::Both).unwrap();
        let key = b.remote_key(first).unwrap().unwrap();
        assert_eq!(register(0, Rights::Both), Ok(first));
        assert_ne!(register(0, Rights::Put), Ok(first));
        assert!(b.deregister(first).unwrap().is_none());
        assert!(b.deregister(first).unwrap().is_none());
        let wrong = b.deregister(first).unwrap_err();
        assert_eq!(wrong, DeregisterError::NoSuchRegion);
        // Others reach it all the same, and it is the one that is found.
        assert_eq!(put(key, 1), Ok(()));
        assert_eq!(bytes_of(&b, first, 0, 100), [1; 100]);
        assert_eq!(register(0, Rights::Both), Ok(first));
        assert_eq!(b.remote_key(first).unwrap(), Some(key));
        // Not while it is registered, only then is there no place for it.
        let others = [100, 200].map(|at| register(at, Rights::Both).unwrap());
        for id in others {
            assert!(b.deregister(id).unwrap().is_none());
        }
        assert_eq!(register(100, Rights::Both), Ok(others[0]));
        assert!(b.deregister(first).unwrap().is_none());
        assert!(b.deregister(others[0]).unwrap().is_none());
        assert_eq!(b.remote_key(others[1]).unwrap(), None);
        assert_eq!(put(key, 2), Ok(()));
        // One byte of it is enough, and then nobody reaches any.
        b.forget_memory(start.wrapping_add(99), 1).unwrap();
        assert_eq!(put(key, 3), Err(OpError::BadKey));
        assert_eq!(register(100, Rights::Both), Ok(others[0]));
        // What is registered goes when it is not any more.
        let again = register(0, Rights::Both).unwrap();
        let key = b.remote_key(again).unwrap().unwrap();
        b.forget_memory(start, 400).unwrap();
        assert_eq!(put(key, 4), Ok(()));
        assert!(b.deregister(again).is_ok());
        assert_eq!(put(key, 5), Err(OpError::BadKey));
        // By its own key it is this region that is registered once more.
        let one = register(300, Rights::Both).unwrap();
        let key = b.remote_key(one).unwrap().unwrap();
        let same = b.register_again(one, 0, 100, Some(key.key()), Rights::Both);
        assert_eq!(same, Ok(one));
        assert!(b.deregister(one).is_ok());
        assert!(b.deregister(one).is_ok());
        assert_eq!(b.remote_key(one).unwrap(), Some(key));
        assert!(b.deregister(one).is_err());
        b.forget_memory(start.wrapping_add(300), 100).unwrap();
        assert_eq!(b.remote_key(one).unwrap(), None);
        // What would be found is refused as well.
        let kept = register(300, Rights::Both).unwrap();
        assert!(b.deregister(kept).is_ok());
        b.forbid_one_sided().unwrap();
        let forbidden = register(300, Rights::Both);
        assert_eq!(forbidden, Err(RegisterError::Forbidden));
        drop((a, b));
        assert_eq!(memory, [[4; 100], [0; 100], [0; 100], [0; 100]].concat());
    }
}

#[test]
fn nobody_writes_to_what_was_forgotten() {
    const LEN: usize = 300_000;
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let mut memory = vec![0; LEN];
        let start = memory.as_mut_ptr();
        // SAFETY: within the vector.
        let first = || unsafe { start.read_volatile() };
        for round in 1..=40_u8 {
            // SAFETY: it is there until the endpoints are closed, and looked at as a
            // whole only when nobody writes to it.
            let id = unsafe { b.register_cached(start, LEN, Rights::Put) };
            let id = id.unwrap();
            let key = b.remote_key(id).unwrap().unwrap();
            assert!(b.deregister(id).is_ok());
            let put = || {
                let bytes = vec![round; LEN];
                (a.post_put(1, place(key, 0), bytes, &PutOptions::default())).unwrap()
            };
            let forget = || b.forget_memory(start, LEN).unwrap();
            // It is forgotten before, somewhere within, and after.
            let posted = match round {
                1 => {
                    forget();
                    put()
                }
                40 => {
                    let put = put();
                    run(&[&a, &b], || {
                        a.statistics().unwrap() == Statistics::default()
                    });
                    forget();
                    put
                }
                _ => {
                    let put = put();
                    match round % 2 {
                        0 => run(&[&a, &b], || first() == round),
                        _ => (0..round).for_each(|_| {
                            a.progress().unwrap();
                            b.progress().unwrap();
                        }),
                    }
                    forget();
                    put
                }
            };
            assert_eq!(b.remote_key(id).unwrap(), None);
            // SAFETY: see above.
            let then = unsafe { std::slice::from_raw_parts(start, LEN) }.to_vec();
            let ended = a.wait_end(posted, Some(PATIENCE)).unwrap();
            match ended.completion.result {
                Ok(()) => assert!(round > 1 && then.iter().all(|byte| *byte == round)),
                Err(why) => assert!(round < 40 && why == OpError::BadKey, "{round}: {why}"),
            }
            // SAFETY: see above.
            assert!(unsafe { std::slice::from_raw_parts(start, LEN) } == then);
        }
        drop((a, b));
    }
}

#[test]
fn what_is_only_kept_to_be_found_leaves_its_place_to_others() {
    let (_a, b) = pair(By::Shm, &config());
    let mut memory = [0_u8; 3];
    let start = memory.as_mut_ptr();
    let register = |at: usize| {
        // SAFETY: nobody has the keys.
        unsafe { b.register_cached(start.wrapping_add(at), 1, Rights::Both) }
    };
    let kept = [0, 1, 2].map(|at| register(at).unwrap());
    for id in kept {
        assert!(b.deregister(id).is_ok());
    }
    let small = || b.register(vec![0], None, Rights::None);
    let of = small().unwrap();
    let mut free = 65_536 - kept.len() - 1;
    let mut last = of;
    while free > 0 {
        last = small().unwrap();
        free -= 1;
    }
    assert!(b.remote_key(kept[0]).unwrap().is_some());
    // One way and the other, and by the cache itself.
    assert!(small().is_ok());
    assert_eq!(b.remote_key(kept[0]).unwrap(), None);
    let again = || b.register_again(of, 0, 1, None, Rights::None);
    assert!(again().is_ok());
    assert_eq!(b.remote_key(kept[1]).unwrap(), None);
    assert!(register(1).is_ok());
    assert_eq!(b.remote_key(kept[2]).unwrap(), None);
    assert_eq!(small().unwrap_err().0, RegisterError::Full);
    assert_eq!(again().unwrap_err(), RegisterError::Full);
    assert_eq!(register(0).unwrap_err(), RegisterError::Full);
    assert!(b.deregister(last).is_ok());
    assert!(register(0).is_ok());
}

#[test]
fn where_it_is_forbidden_nothing_is_registered_or_reached() {
    for by in ALL {
        let settings = Config {
            one_sided: false,
            ..config()
        };
        let (a, b) = pair(by, &settings);
        let refused = b.register(vec![0; 8], None, Rights::Both);
        assert_eq!(refused.unwrap_err().0, RegisterError::Forbidden);
        let key = RemoteKey::from_bytes([7; 16]);
        let put = a
            .post_put(1, place(key, 0), vec![1; 8], &PutOptions::default())
            .unwrap();
        let ended = end(&[&a, &b], &a, put).completion.result;
        assert_eq!(ended, Err(OpError::Forbidden), "{by:?}");
    }
}

#[test]
fn a_call_that_is_wrong_where_it_stands_gives_memory_back() {
    let (_a, b) = pair(By::Shm, &config());
    let (id, _) = region(&b, 8, Rights::Both);
    let wrong = Misuse::WrongThread;
    let from_another = || {
        let (why, memory) = b.register(vec![7; 8], None, Rights::Both).unwrap_err();
        assert_eq!(why, RegisterError::Misuse(wrong));
        assert_eq!(memory.into_buffers()[0].as_slice(), [7; 8]);
        let again = b.register_again(id, 0, 8, None, Rights::Both);
        assert_eq!(again, Err(RegisterError::Misuse(wrong)));
        let ended = b.deregister(id).unwrap_err();
        assert_eq!(ended, DeregisterError::Misuse(wrong));
        assert_eq!(ended.to_string(), wrong.to_string());
    };
    thread::scope(|s| s.spawn(from_another).join().unwrap());
    b.deregister(id).unwrap();
}

#[test]
fn it_works_while_the_target_makes_no_call() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let (_, key) = region(&b, 300_000, Rights::Both);
        // The other makes no call from here on: its helper thread serves.
        let limit = Some(PATIENCE);
        for len in [8, 300_000] {
            let put = a
                .post_put(1, place(key, 0), pattern(len, 5), &PutOptions::default())
                .unwrap();
            assert_eq!(a.wait_end(put, limit).unwrap().completion.result, Ok(()));
            let get = a
                .post_get(1, place(key, 0), vec![0; len], Notify::default())
                .unwrap();
            let ended = a.wait_end(get, limit).unwrap();
            assert_eq!(ended.completion.result, Ok(()));
            let Some(Memory::Sink(sink)) = ended.memory else {
                panic!("a get gives its memory back");
            };
            assert!(sink.into_buffers()[0].as_slice() == pattern(len, 5));
        }
        let add = a
            .post_fetch_add(1, place(key, 0), 1, Notify::default())
            .unwrap();
        assert_eq!(a.wait_end(add, limit).unwrap().completion.result, Ok(()));
        drop(thread::spawn(move || drop((a, b))).join());
    }
}

#[test]
fn a_death_ends_what_depends_on_it_and_gives_memory_back() {
    for by in ALL {
        let mut all = job(by, 3, &config());
        let (c, b, a) = (all.pop().unwrap(), all.pop().unwrap(), all.pop().unwrap());
        let (_, key) = region(&b, BYTES, Rights::Both);
        let (mine, my_key) = region(&a, BYTES, Rights::Both);
        // A put of b's is under way when it dies; where it could be done
        // directly it waits for an atomic operation.
        let before = b.post_fetch_add(0, place(my_key, 0), 1, Notify::default());
        let theirs = b
            .post_put(
                0,
                place(my_key, 0),
                pattern(BYTES, 1),
                &PutOptions::default(),
            )
            .unwrap();
        b.progress().unwrap();
        a.progress().unwrap();
        let ops = [
            a.post_fetch_add(1, place(key, 0), 1, Notify::default())
                .unwrap(),
            a.post_put(1, place(key, 0), pattern(BYTES, 2), &PutOptions::default())
                .unwrap(),
            a.post_get(1, place(key, 0), vec![0; BYTES], Notify::default())
                .unwrap(),
            a.post_flush(1, Notify::default()).unwrap(),
        ];
        a.peer_died(1).unwrap();
        for op in ops {
            let c = end(&[&a, &c], &a, op).completion;
            assert_eq!(
                (c.result, c.peer),
                (Err(OpError::PeerDead), 1),
                "{by:?} {:?}",
                c.action
            );
        }
        let memory = a.deregister(mine).unwrap();
        assert!(memory.is_some(), "a put of the dead does not hold it");
        assert_eq!(a.statistics().unwrap(), Statistics::default());
        drop((before.unwrap(), theirs, b));
    }
}

#[test]
fn lent_memory_is_read_where_it_lies() {
    let (a, b) = pair(By::Shm, &config());
    let mut memory = vec![0_u8; 4096];
    let start = memory.as_mut_ptr();
    // SAFETY: the vector outlives the registration, and is looked at by volatile
    // reads only meanwhile.
    let lent = unsafe { Buffer::lent(start, 4096) };
    let id = b.register(lent, None, Rights::Put).unwrap();
    let key = b.remote_key(id).unwrap().unwrap();
    let options = PutOptions {
        end: PutEnd::Local,
        ..PutOptions::default()
    };
    let put = a
        .post_put(1, place(key, 8), 42_u64.to_le_bytes().to_vec(), &options)
        .unwrap();
    // SAFETY: it lies within the vector.
    run(
        &[&a, &b],
        || unsafe { start.add(8).cast::<u64>().read_volatile() } == 42,
    );
    end(&[&a, &b], &a, put);
    b.deregister(id).unwrap();
    assert_eq!(memory[8], 42);
}

#[test]
fn a_salt_that_is_demanded_is_asked_of_each_lane() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        for (salt, any) in [
            (Salt::Demanded, Err(OpError::BadKey)),
            (Salt::Any, Ok(())),
            (Salt::Default, Ok(())),
        ] {
            let id = b.register(vec![0; 64], Some(1), Rights::Both.with(salt));
            let id = id.unwrap();
            let key = b.remote_key(id).unwrap().unwrap();
            for (key, result) in [(RemoteKey::any(1), any), (key, Ok(()))] {
                let get = a.post_get(1, place(key, 0), vec![0; 8], Notify::NONE);
                let ended = end(&[&a, &b], &a, get.unwrap());
                assert_eq!(ended.completion.result, result, "{by:?} {salt:?}");
                // Atomic operations are the target's to check on every lane.
                let add = a.post_fetch_add(1, place(key, 0), 1, Notify::NONE);
                let ended = end(&[&a, &b], &a, add.unwrap());
                assert_eq!(ended.completion.result, result, "{by:?} {salt:?}");
            }
            b.deregister(id).unwrap();
        }
    }
}

#[test]
fn endpoints_of_equal_lives_share_no_key() {
    let mut all = std::collections::BTreeSet::new();
    for secret in [1, 2] {
        let mut config = config();
        config.secrets.regions = [secret; 32];
        let (_a, b) = pair(By::Udp, &config);
        let space = b.space(portolan_runtime::SpaceId::OTHERS[0]).unwrap();
        for e in [&b, &space] {
            for _ in 0..500 {
                let bytes = region(e, 8, Rights::Get).1.to_bytes();
                all.extend(bytes.chunks(8).map(<[u8]>::to_vec));
            }
        }
    }
    assert_eq!(all.len(), 2 * 2 * 500 * 2);
}
