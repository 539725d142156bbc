//! The whole address space as a region, on every lane.

use std::sync::{Arc, Mutex};

use crate::common::{By, config, pair, run};
use portolan_runtime::{
    Atomic, AtomicOp, AtomicType, Binding, Config, Ended, Notify, OpError, OpId, Place, PutOptions,
    RegisterError, RemoteKey, Rights, Signal, Space,
};

const NONE: Notify = Notify::NONE;

/// All memory of a rank of this process, which is the tests' own.
fn all_of(e: &Space, rights: Rights) -> RemoteKey {
    // SAFETY: the tests touch only memory that they have for it.
    let id = unsafe { e.register_address_space(Some(77), rights) }.unwrap();
    e.remote_key(id).unwrap().unwrap()
}

fn address(memory: &mut [u8]) -> u64 {
    memory.as_mut_ptr().expose_provenance() as u64
}

fn end(all: &[&Space], of: &Space, op: OpId) -> Ended {
    let mut ended = None;
    run(all, || {
        ended = of.poll_op(op).unwrap();
        ended.is_some()
    });
    ended.unwrap()
}

/// Where something is mapped that nothing follows: 64 KiB before its end.
fn edge() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges: Vec<(u64, u64, bool)> = maps
        .lines()
        .map(|line| {
            let (range, rest) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let parse = |at| u64::from_str_radix(at, 16).unwrap();
            (parse(start), parse(end), rest.starts_with('r'))
        })
        .collect();
    let follows = |end: u64| ranges.iter().any(|(start, ..)| *start == end);
    let mut last = ranges.iter().filter(|(start, end, readable)| {
        *readable && end - start >= 64 << 10 && !follows(*end) && *end < 1 << 60
    });
    last.next().expect("something ends").1 - (64 << 10)
}

#[test]
fn bytes_are_named_by_their_address() {
    for by in [By::Shm, By::Udp] {
        let (a, b) = pair(by, &config());
        let both = [&a, &b];
        let key = all_of(&b, Rights::Both);
        for len in [8, 3_000, 400_001] {
            let mut memory = vec![0; len];
            let place = Place {
                key,
                offset: address(&mut memory),
            };
            let put = a.post_put(1, place, vec![7; len], &PutOptions::default());
            let put = end(&both, &a, put.map_err(|(e, _)| e).unwrap());
            assert_eq!(put.completion.result, Ok(()), "{by:?} {len}");
            let get = a.post_get(1, place, vec![0; len], NONE).map_err(|(e, _)| e);
            let got = end(&both, &a, get.unwrap());
            assert_eq!(got.completion.result, Ok(()), "{by:?} {len}");
            assert!(got.into_received() == vec![7; len]);
            let op = a.post_fetch_add(1, place, 1, NONE).unwrap();
            let c = end(&both, &a, op).completion;
            assert_eq!(c.data, Some(0x0707_0707_0707_0707));
            assert_eq!(std::hint::black_box(&memory)[..3], [8, 7, 7]);
        }
        // From the target itself too, and a part of it.
        let mut memory = vec![1; 64];
        let at = address(&mut memory);
        let op = b.post_get(1, Place { key, offset: at }, vec![0; 64], NONE);
        assert_eq!(
            end(&both, &b, op.map_err(|(e, _)| e).unwrap()).into_received(),
            [1; 64]
        );
        assert!(b.statistics().unwrap().regions == 1);
    }
}

#[test]
fn what_is_not_mapped_is_out_of_bounds() {
    static CONSTANT: [u8; 8] = [1; 8];
    for by in [By::Shm, By::Udp] {
        let (a, b) = pair(by, &config());
        let both = [&a, &b];
        let key = all_of(&b, Rights::Both);
        let heard = Arc::new(Mutex::new(0));
        let log = Arc::clone(&heard);
        b.bind(5, Binding::to(move |_, _| *log.lock().unwrap() += 1))
            .unwrap();
        let constant = CONSTANT.as_ptr().expose_provenance() as u64;
        let signals = [None, Some(Signal { port: 5, word: 1 })];
        for (offset, len, signal) in [0, 8, u64::MAX - 200_000, edge(), constant]
            .into_iter()
            .flat_map(|at| [8, 200_000].map(|len| (at, len)))
            .flat_map(|(at, len)| signals.map(|signal| (at, len, signal)))
        {
            let place = Place { key, offset };
            if offset != constant {
                let len = if offset == edge() { 200_000 } else { len };
                let get = a.post_get(1, place, vec![0; len], NONE).map_err(|(e, _)| e);
                let c = end(&both, &a, get.unwrap()).completion;
                assert_eq!(c.result, Err(OpError::OutOfBounds), "{by:?} {offset:x}");
                let op = b.post_get(1, place, vec![0; len], NONE).map_err(|(e, _)| e);
                let c = end(&both, &b, op.unwrap()).completion;
                assert_eq!(c.result, Err(OpError::OutOfBounds), "{by:?} {offset:x}");
            }
            // What there is before the edge is not ours to write.
            if offset == edge() {
                continue;
            }
            let options = PutOptions {
                signal,
                ..PutOptions::default()
            };
            let put = a.post_put(1, place, vec![1; len], &options);
            let c = end(&both, &a, put.map_err(|(e, _)| e).unwrap()).completion;
            assert_eq!(c.result, Err(OpError::OutOfBounds), "{by:?} {offset:x}");
            let what = Atomic {
                op: AtomicOp::Sum,
                of: AtomicType::U8,
                count: 8,
                operands: &[1; 8],
                compare: &[],
            };
            for (e, rank) in [(&a, 1), (&b, 1)] {
                let op = e.post_atomic(rank, place, &what, NONE).unwrap();
                let c = end(&both, e, op).completion;
                assert_eq!(c.result, Err(OpError::OutOfBounds), "{by:?} {offset:x}");
            }
        }
        assert_eq!(std::hint::black_box(&CONSTANT), &[1; 8]);
        assert_eq!(*heard.lock().unwrap(), 0, "nobody is told");
    }
}

#[test]
fn rights_keys_and_parts_of_it_are_as_of_any_region() {
    let (a, b) = pair(By::Shm, &config());
    let both = [&a, &b];
    // SAFETY: the test touches only its own memory.
    let id = unsafe { b.register_address_space(None, Rights::Get) }.unwrap();
    let key = b.remote_key(id).unwrap().unwrap();
    let mut memory = vec![3; 100];
    let at = address(&mut memory);
    let put = |key, offset, len| {
        let op = a.post_put(
            1,
            Place { key, offset },
            vec![1; len],
            &PutOptions::default(),
        );
        let op = op.map_err(|(e, _)| e).unwrap();
        end(&both, &a, op).completion.result
    };
    assert_eq!(put(key, at, 8), Err(OpError::NotPermitted));
    let part = b.register_again(id, at, 100, Some(5), Rights::Put).unwrap();
    assert_eq!(put(RemoteKey::any(5), 92, 8), Ok(()));
    assert_eq!(put(RemoteKey::any(5), 93, 8), Err(OpError::OutOfBounds));
    assert_eq!(
        std::hint::black_box(&memory)[91..],
        [3, 1, 1, 1, 1, 1, 1, 1, 1]
    );
    let mut read = [0; 2];
    assert_eq!(b.read_region(id, at + 91, &mut read), Ok(Some(())));
    assert_eq!(read, [3, 1]);
    assert_eq!(b.read_region(id, 8, &mut read), Ok(None));
    assert!(b.deregister(id).unwrap().is_none());
    assert_eq!(put(RemoteKey::any(5), 0, 8), Ok(()));
    // Of the address space nothing comes back.
    assert!(b.deregister(part).unwrap().is_none());
    assert_eq!(put(RemoteKey::any(5), 0, 8), Err(OpError::BadKey));
}

#[test]
fn where_the_kernel_does_not_permit_it_it_is_refused() {
    let mut without: Config = config();
    without.udp.disabled.cma = true;
    for config in [without, config()] {
        let (_a, b) = pair(By::Udp, &config);
        // SAFETY: nobody is told of it.
        let made = unsafe { b.register_address_space(None, Rights::Both) };
        match made {
            Err(e) => assert!(config.udp.disabled.cma && e == RegisterError::NotPossible),
            Ok(id) => {
                assert!(!config.udp.disabled.cma);
                b.forbid_one_sided().unwrap();
                // SAFETY: as above.
                let made = unsafe { b.register_address_space(None, Rights::Both) };
                assert_eq!(made, Err(RegisterError::Forbidden));
                assert!(b.deregister(id).unwrap().is_none());
            }
        }
    }
}
