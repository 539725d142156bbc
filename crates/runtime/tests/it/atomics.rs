//! Atomic operations on several elements, on every lane.

use crate::common::{ALL, config, job, pair, run};
use portolan_runtime::{
    ATOMIC_BYTES, Action, Atomic, AtomicOp, AtomicType, Ended, Memory, Misuse, Notify, OpError,
    OpId, Place, RegionId, RemoteKey, Rights, SendError, Space,
};

const NONE: Notify = Notify::NONE;

fn region(e: &Space, bytes: Vec<u8>, rights: Rights) -> (RegionId, RemoteKey) {
    let id = e.register(bytes, None, rights).map_err(|(e, _)| e).unwrap();
    (id, e.remote_key(id).unwrap().unwrap())
}

fn end(all: &[&Space], of: &Space, op: OpId) -> Ended {
    let mut ended = None;
    run(all, || {
        ended = of.poll_op(op).unwrap();
        ended.is_some()
    });
    ended.unwrap()
}

fn found(ended: Ended) -> Vec<u8> {
    match ended.memory {
        Some(Memory::Sink(sink)) => {
            let first = sink.into_buffers().into_iter().next();
            first.and_then(|it| it.into_vec()).unwrap()
        }
        memory => panic!("{memory:?}"),
    }
}

fn words(all: &[u16]) -> Vec<u8> {
    all.iter().flat_map(|it| it.to_le_bytes()).collect()
}

fn contents(e: &Space, id: RegionId, bytes: usize) -> Vec<u8> {
    let mut all = vec![0; bytes];
    e.read_region(id, 0, &mut all).unwrap().unwrap();
    all
}

/// As many elements as there can be, by each of several at once; and by the target itself.
#[test]
fn elements_are_changed_at_once_by_many() {
    for by in ALL {
        let all = job(by, 3, &config());
        let refs: Vec<&Space> = all.iter().collect();
        let count = AtomicOp::Sum.elements_max(AtomicType::F64, false).unwrap();
        assert_eq!(count, ATOMIC_BYTES / 8);
        let (id, key) = region(&all[0], vec![0; ATOMIC_BYTES], Rights::Both);
        let place = Place { key, offset: 0 };
        let operands: Vec<u8> = (0..count).flat_map(|i| (i as f64).to_le_bytes()).collect();
        let what = Atomic {
            op: AtomicOp::Sum,
            of: AtomicType::F64,
            count,
            operands: &operands,
            compare: &[],
        };
        for _ in 0..20 {
            let ops: Vec<(usize, OpId)> = (0..3)
                .map(|rank| (rank, all[rank].post_atomic(0, place, &what, NONE).unwrap()))
                .collect();
            for (rank, op) in ops {
                let c = end(&refs, &all[rank], op).completion;
                assert_eq!((c.result, c.action, c.data), (Ok(()), Action::Atomic, None));
                assert_eq!(
                    (c.bytes, c.total),
                    (ATOMIC_BYTES as u64, ATOMIC_BYTES as u64)
                );
            }
        }
        let sums = |i: usize| (60.0 * i as f64).to_le_bytes();
        let expected: Vec<u8> = (0..count).flat_map(sums).collect();
        assert_eq!(contents(&all[0], id, ATOMIC_BYTES), expected);
        // And all of them are read at once.
        let read = Atomic {
            op: AtomicOp::Read,
            operands: &[],
            ..what
        };
        for e in &all {
            let into = vec![0; ATOMIC_BYTES];
            let op = e.post_fetch_atomic(0, place, &read, into, NONE);
            assert_eq!(found(end(&refs, e, op.unwrap())), expected);
        }
    }
}

#[test]
fn what_was_there_is_told_and_what_is_compared_decides() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (id, key) = region(&b, words(&[1, 2, 3, 4]), Rights::Both);
        let place = Place { key, offset: 2 };
        let what = Atomic {
            op: AtomicOp::SwapIfLess,
            of: AtomicType::U16,
            count: 3,
            operands: &words(&[7, 8, 9]),
            compare: &words(&[2, 2, 2]),
        };
        let op = a.post_fetch_atomic(1, place, &what, vec![0; 6], NONE);
        let ended = end(&[&a, &b], &a, op.unwrap());
        assert_eq!((ended.completion.data, ended.completion.bytes), (None, 6));
        assert_eq!(found(ended), words(&[2, 3, 4]));
        assert_eq!(contents(&b, id, 8), words(&[1, 2, 8, 9]));
        let one = Atomic {
            op: AtomicOp::BitXor,
            count: 1,
            operands: &words(&[0xff]),
            compare: &[],
            ..what
        };
        let op = a.post_fetch_atomic(1, place, &one, vec![0; 2], NONE);
        let ended = end(&[&a, &b], &a, op.unwrap());
        assert_eq!(ended.completion.data, Some(2));
        assert_eq!(found(ended), words(&[2]));
        // Between the elements, behind them, and by rights.
        let fails = |place, what: &Atomic<'_>, why| {
            let into = vec![0; what.count * 2];
            let op = a.post_fetch_atomic(1, place, what, into, NONE).unwrap();
            let ended = end(&[&a, &b], &a, op);
            assert_eq!(
                (ended.completion.result, ended.completion.bytes),
                (Err(why), 0)
            );
            assert_eq!(found(ended), vec![0; what.count * 2]);
        };
        fails(Place { key, offset: 1 }, &one, OpError::Unaligned);
        fails(Place { key, offset: 4 }, &what, OpError::OutOfBounds);
        let (_, key) = region(&b, vec![0; 8], Rights::Put);
        fails(Place { key, offset: 0 }, &one, OpError::NotPermitted);
        let plain = a.post_atomic(1, Place { key, offset: 0 }, &one, NONE);
        let c = end(&[&a, &b], &a, plain.unwrap()).completion;
        assert_eq!(c.result, Ok(()), "it is told nothing");
        assert_eq!(contents(&b, id, 8), words(&[1, 2 ^ 0xff, 8, 9]));
    }
}

#[test]
fn what_there_is_not_is_refused_at_the_call() {
    let (a, b) = pair(crate::common::By::Shm, &config());
    let (_, key) = region(&b, vec![0; 64], Rights::Both);
    let place = Place { key, offset: 0 };
    let good = Atomic {
        op: AtomicOp::Max,
        of: AtomicType::F32,
        count: 2,
        operands: &[0; 8],
        compare: &[],
    };
    let most = AtomicOp::Max.elements_max(AtomicType::F32, true).unwrap();
    let values = vec![0; 4 * (most + 1)];
    for bad in [
        Atomic {
            count: 0,
            operands: &[],
            ..good
        },
        Atomic { count: 3, ..good },
        Atomic {
            count: most + 1,
            operands: &values,
            ..good
        },
        Atomic {
            operands: &[0; 7],
            ..good
        },
        Atomic {
            compare: &[0; 8],
            ..good
        },
        Atomic {
            op: AtomicOp::BitOr,
            ..good
        },
        Atomic {
            op: AtomicOp::SwapMasked,
            compare: &[0; 8],
            ..good
        },
        Atomic {
            of: AtomicType::ComplexF32,
            count: 1,
            ..good
        },
        Atomic {
            op: AtomicOp::Read,
            ..good
        },
        Atomic {
            op: AtomicOp::SwapIfEqual,
            ..good
        },
    ] {
        let misuse = SendError::Misuse(Misuse::BadAtomic);
        assert_eq!(a.post_atomic(1, place, &bad, NONE), Err(misuse), "{bad:?}");
        let into = vec![0; bad.count * bad.of.bytes()];
        let (why, back) = a.post_fetch_atomic(1, place, &bad, into, NONE).unwrap_err();
        assert_eq!(why, misuse, "{bad:?}");
        assert_eq!(back.into_buffers().len(), 1);
    }
    // Memory of another length; and what is only for who fetches.
    let refused = a.post_fetch_atomic(1, place, &good, vec![0; 7], NONE);
    assert!(refused.is_err());
    let read = Atomic {
        op: AtomicOp::Read,
        operands: &[],
        ..good
    };
    assert!(a.post_atomic(1, place, &read, NONE).is_err());
    let op = a.post_fetch_atomic(1, place, &read, vec![0; 8], NONE);
    assert_eq!(found(end(&[&a, &b], &a, op.unwrap())), [0; 8]);
}
