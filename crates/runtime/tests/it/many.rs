//! Receives that take many messages, on every lane.

use crate::common::{ALL, config, job, pair, pattern, run};
use portolan_runtime::{
    Action, Buffer, Ended, Memory, Misuse, Notify, OpError, OpId, Push, QueueId, Scatter, Selector,
    Space, Statistics, TaggedOptions,
};

const ALL_TAGS: Selector = Selector::any(0).ignoring(u64::MAX);

fn in_queue(queue: QueueId) -> Notify {
    Notify {
        context: 9,
        queue: Some(queue),
        ..Notify::default()
    }
}

fn bytes_of(ended: Ended) -> Vec<u8> {
    let Some(Memory::Sink(scatter)) = ended.memory else {
        panic!("the memory comes back");
    };
    let buffers = scatter.into_buffers().into_iter();
    buffers
        .flat_map(|it| it.into_vec().unwrap_or_default())
        .collect()
}

/// Progress until a queue has something.
fn next(all: &[&Space], of: &Space, queue: QueueId) -> Ended {
    let mut ended = None;
    run(all, || {
        ended = ended.take().or_else(|| of.next_completion(queue).unwrap());
        ended.is_some()
    });
    ended.expect("it has come")
}

/// Short and long ones, pushed and pulled, some here before and some after it is posted.
#[test]
fn messages_land_one_behind_the_other() {
    const LENGTHS: [usize; 8] = [3, 0, 4_001, 70_001, 8, 300_000, 1_500, 140_001];
    let zero = Push {
        whole: 0,
        first: 0,
        second: 0,
        ..Push::default()
    };
    for (by, push) in ALL
        .into_iter()
        .flat_map(|by| [(by, Push::default()), (by, zero)])
    {
        let (a, b) = pair(by, &config());
        a.set_push(push, push).unwrap();
        let queue = b.open_queue().unwrap();
        let send = |i: usize| {
            let options = TaggedOptions {
                data: Some(i as u64),
                ..TaggedOptions::default()
            };
            let bytes = pattern(LENGTHS[i], i as u8);
            a.post_send(1, i as u64, &options, bytes).unwrap()
        };
        let mut sends: Vec<OpId> = (0..3).map(send).collect();
        run(&[&a, &b], || b.probe(&Selector::any(2)).unwrap().is_some());
        // There is room for the last one, and then for no other.
        let total: usize = LENGTHS.iter().sum();
        let into = Scatter::from(vec![0; 5_000]).and(vec![0; total - 5_000 + 10]);
        let op = b
            .post_receive_many(&ALL_TAGS, into, 11, in_queue(queue))
            .unwrap();
        sends.extend((3..8).map(send));
        let mut places: Vec<Option<usize>> = vec![None; 8];
        for _ in 0..8 {
            let done = next(&[&a, &b], &b, queue);
            let c = done.completion;
            let len = LENGTHS[c.tag as usize] as u64;
            assert_eq!(
                (c.op, c.action, c.peer, c.context),
                (op, Action::Receive, 0, 9)
            );
            assert_eq!((c.result, c.bytes, c.total), (Ok(()), len, len), "{by:?}");
            assert_eq!((c.data, done.memory.is_none()), (Some(c.tag), true));
            assert_eq!(places[c.tag as usize].replace(c.at as usize), None);
        }
        let over = next(&[&a, &b], &b, queue);
        let c = over.completion;
        assert_eq!(
            (c.op, c.action, c.result),
            (op, Action::ReceiveMany, Ok(()))
        );
        assert_eq!((c.bytes, c.at, c.context), (total as u64, 0, 9));
        let bytes = bytes_of(over);
        let mut at = 0;
        for (i, len) in LENGTHS.into_iter().enumerate() {
            assert_eq!(places[i], Some(at), "{by:?}: in the order of matching");
            assert!(bytes[at..at + len] == pattern(len, i as u8), "{by:?} {i}");
            at += len;
        }
        for op in sends {
            run(&[&a, &b], || a.poll_op(op).unwrap().is_some());
        }
        assert!(b.next_completion(queue).unwrap().is_none());
        for e in [&a, &b] {
            assert_eq!(e.statistics().unwrap(), Statistics::default(), "{by:?}");
        }
    }
}

#[test]
fn it_is_cut_cancelled_or_ends_at_once() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let queue = b.open_queue().unwrap();
        let (both, one) = ([&a, &b], Selector::from(0, 1));
        let post = |room: usize, min: u64| {
            let into = vec![0; room];
            b.post_receive_many(&one, into, min, in_queue(queue))
                .unwrap()
        };
        // Too little room from the start, and none at all.
        for (room, min) in [(10, 11), (0, 0)] {
            let op = post(room, min);
            let c = b.next_completion(queue).unwrap().unwrap().completion;
            assert_eq!((c.op, c.result, c.bytes), (op, Ok(()), 0));
        }
        // Without a queue nobody would hear of its messages.
        let into = Buffer::from(vec![0; 8]);
        let refused = b.post_receive_many(&one, into, 1, Notify::default());
        assert_eq!(refused, Err(Misuse::NoSuchQueue));
        // What is too long is cut.
        for len in [300, 300_000] {
            let op = post(100, 1);
            let options = TaggedOptions::default();
            a.post_send(1, 1, &options, pattern(60, 1)).unwrap();
            let send = a.post_send(1, 1, &options, pattern(len, 2)).unwrap();
            let c = next(&both, &b, queue).completion;
            assert_eq!((c.at, c.bytes, c.result), (0, 60, Ok(())));
            let c = next(&both, &b, queue).completion;
            let cut = Err(OpError::Truncated);
            assert_eq!(
                (c.at, c.bytes, c.total, c.result),
                (60, 40, len as u64, cut)
            );
            let over = next(&both, &b, queue);
            assert_eq!((over.completion.op, over.completion.bytes), (op, 100));
            let expected = [pattern(60, 1), pattern(len, 2)[..40].to_vec()].concat();
            assert_eq!(bytes_of(over), expected);
            run(&both, || a.poll_op(send).unwrap().is_some());
        }
        // While a long one is arriving: that comes whole before the end.
        let op = post(1 << 20, 1);
        let send = a
            .post_send(1, 1, &TaggedOptions::default(), pattern(500_000, 3))
            .unwrap();
        run(&both, || {
            b.statistics().unwrap().operations > 1 || a.has_ended(send).unwrap()
        });
        assert_eq!(b.cancel(op), Ok(true));
        assert_eq!(b.cancel(op), Ok(false));
        let c = next(&both, &b, queue).completion;
        assert_eq!(
            (c.action, c.bytes, c.result),
            (Action::Receive, 500_000, Ok(()))
        );
        let over = next(&both, &b, queue);
        let cancelled = Err(OpError::Cancelled);
        assert_eq!(
            (over.completion.op, over.completion.result),
            (op, cancelled)
        );
        assert!(bytes_of(over)[..500_000] == pattern(500_000, 3));
        run(&both, || a.poll_op(send).unwrap().is_some());
    }
}

#[test]
fn a_named_source_that_dies_ends_it() {
    for by in ALL {
        let all = job(by, 3, &config());
        let (b, c) = (&all[1], &all[2]);
        let queue = b.open_queue().unwrap();
        let post = |selector: &Selector| {
            b.post_receive_many(selector, vec![0; 100], 1, in_queue(queue))
                .unwrap()
        };
        let (named, any) = (post(&Selector::from(0, 5)), post(&Selector::any(6)));
        b.peer_died(0).unwrap();
        let over = next(&[b, c], b, queue).completion;
        assert_eq!((over.op, over.peer), (named, 0));
        assert_eq!(over.result, Err(OpError::PeerDead));
        c.send_tagged(1, 6, b"on").unwrap();
        let one = next(&[b, c], b, queue).completion;
        assert_eq!((one.op, one.peer, one.bytes), (any, 2, 2));
    }
}
