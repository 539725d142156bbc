//! Matched messages on every lane.

use std::thread;
use std::time::Duration;

use crate::common::{ALL, By, config, helped, job, pair, pattern, run};
use portolan_runtime::{
    Action, Buffer, Config, Death, Gather, Misuse, Notify, OpError, OpId, PUSHED_MIN, Push,
    Scatter, Selector, SendError, Space, Statistics, TaggedOptions, WaitError,
};

const LENGTHS: [usize; 14] = [
    0, 1, 8, 1_000, 1_500, 4_000, 65_536, 65_537, 70_001, 131_072, 131_073, 200_000, 1_000_000,
    3_000_001,
];

fn pushes() -> [Push; 4] {
    let zero = Push {
        whole: 0,
        first: 0,
        second: 0,
        ..Push::default()
    };
    let all = Push {
        whole: u64::MAX >> 1,
        ..Push::default()
    };
    let little = Push {
        whole: 700,
        first: 80,
        second: 600,
        overlap: false,
        masking: false,
    };
    [Push::default(), zero, all, little]
}

fn done(e: &Space, op: OpId) -> bool {
    e.poll_op(op).map_or(true, |ended| {
        assert!(ended.is_none(), "taken too early");
        false
    })
}

/// Progress on both until both operations have ended.
fn both(
    a: &Space,
    send: OpId,
    b: &Space,
    receive: OpId,
) -> (portolan_runtime::Ended, portolan_runtime::Ended) {
    let (mut sent, mut received) = (None, None);
    run(&[a, b], || {
        if sent.is_none() {
            sent = a.poll_op(send).unwrap();
        }
        if received.is_none() {
            received = b.poll_op(receive).unwrap();
        }
        sent.is_some() && received.is_some()
    });
    (sent.unwrap(), received.unwrap())
}

#[test]
fn every_length_lands_early_or_late_in_one_piece_or_several() {
    for by in ALL {
        for push in pushes() {
            let (a, b) = pair(by, &config());
            a.set_push(push, push).unwrap();
            b.set_push(push, push).unwrap();
            for (i, len) in LENGTHS.into_iter().enumerate() {
                let bytes = pattern(len, i as u8);
                let (early, cut) = (i % 2 == 0, i % 3 == 0 && len > 10);
                let selector = Selector::from(0, i as u64);
                let into = || {
                    if cut {
                        Scatter::from(vec![0; 7])
                            .and(vec![0; len / 2])
                            .and(vec![0; len - len / 2 - 7])
                    } else {
                        Scatter::from(vec![0; len])
                    }
                };
                let from = if cut {
                    Gather::from(bytes[..5].to_vec()).and(bytes[5..].to_vec())
                } else {
                    Gather::from(bytes.clone())
                };
                let options = TaggedOptions {
                    data: (i % 4 == 1).then_some(77),
                    ..TaggedOptions::default()
                };
                let posted = early.then(|| {
                    b.post_receive(&selector, into(), Notify::default())
                        .unwrap()
                });
                let send = a.post_send(1, i as u64, &options, from).unwrap();
                if !early {
                    run(&[&a, &b], || b.probe(&selector).unwrap().is_some());
                }
                let receive = posted.unwrap_or_else(|| {
                    b.post_receive(&selector, into(), Notify::default())
                        .unwrap()
                });
                let (sent, received) = both(&a, send, &b, receive);
                assert_eq!(sent.completion.result, Ok(()));
                let c = received.completion;
                assert_eq!((c.result, c.action, c.peer), (Ok(()), Action::Receive, 0));
                assert_eq!(
                    (c.tag, c.bytes, c.total),
                    (i as u64, len as u64, len as u64)
                );
                assert_eq!(c.data, options.data);
                let Some(portolan_runtime::Memory::Sink(scatter)) = received.memory else {
                    panic!("the buffer comes back");
                };
                let all: Vec<u8> = scatter
                    .into_buffers()
                    .into_iter()
                    .flat_map(|b| b.into_vec().unwrap())
                    .collect();
                assert!(all == bytes, "{by:?} {push:?} {len}");
            }
            for e in [&a, &b] {
                assert_eq!(e.statistics().unwrap(), Statistics::default(), "{by:?}");
            }
        }
    }
}

/// One rank sends to another, both blocking.
fn pong(by: By, config: &Config, rounds: u32, len: usize) {
    let (a, b) = pair(by, config);
    let other = thread::spawn(move || {
        let mut buffer = vec![0; len];
        for i in 0..rounds {
            let got = b
                .receive_tagged(&Selector::from(0, u64::from(i)), &mut buffer)
                .unwrap();
            assert_eq!(got.bytes, len as u64);
            b.send_tagged(0, u64::from(i), &buffer).unwrap();
        }
    });
    let bytes = pattern(len, 3);
    let mut back = vec![0; len];
    for i in 0..rounds {
        a.send_tagged(1, u64::from(i), &bytes).unwrap();
        let got = a
            .receive_tagged(&Selector::any(u64::from(i)), &mut back)
            .unwrap();
        assert_eq!((got.peer, got.bytes), (1, len as u64));
        assert!(back == bytes);
        back.fill(0);
    }
    other.join().unwrap();
}

#[test]
fn two_that_wait_for_each_other_get_on() {
    for by in ALL {
        pong(by, &helped(), 300, 8);
        pong(by, &helped(), 30, 300_000);
        pong(by, &helped(), 3, 2_000_000);
    }
}

#[test]
fn a_synchronous_send_ends_when_a_receive_has_met_it() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let sync = TaggedOptions {
            sync: true,
            ..TaggedOptions::default()
        };
        let send = a.post_send(1, 5, &sync, vec![1, 2, 3]).unwrap();
        run(&[&a, &b], || b.probe(&Selector::any(5)).unwrap().is_some());
        crate::common::settle(&[&a, &b]);
        assert!(!done(&a, send));
        let receive = b
            .post_receive(&Selector::any(5), vec![0; 3], Notify::default())
            .unwrap();
        let (_, received) = both(&a, send, &b, receive);
        assert_eq!(received.into_received(), [1, 2, 3]);
    }
}

#[test]
fn who_makes_no_call_is_served_by_its_helper() {
    for by in ALL {
        for len in [300_000, 3_000_001] {
            let (a, b) = pair(by, &helped());
            let bytes = pattern(len, 6);
            // The sender: its message is pulled while it computes.
            let send = a
                .post_send(1, 5, &TaggedOptions::default(), bytes.clone())
                .unwrap();
            let mut room = vec![0; len];
            b.receive_tagged(&Selector::any(5), &mut room).unwrap();
            assert!(room == bytes, "{by:?}");
            run(&[&a], || a.poll_op(send).unwrap().is_some());
            // The receiver: a call that waits ends when it has all.
            let receive = b
                .post_receive(&Selector::any(6), room, Notify::default())
                .unwrap();
            a.send_tagged(1, 6, &bytes).unwrap();
            let received = b.poll_op(receive).unwrap().expect("it has all");
            assert!(received.into_received() == bytes, "{by:?}");
        }
    }
}

#[test]
fn a_message_longer_than_its_buffer_is_cut() {
    for by in ALL {
        for len in [9, 300_000] {
            let (a, b) = pair(by, &config());
            let receive = b
                .post_receive(&Selector::any(5), vec![0; 8], Notify::default())
                .unwrap();
            let send = a
                .post_send(1, 5, &TaggedOptions::default(), pattern(len, 1))
                .unwrap();
            let (sent, received) = both(&a, send, &b, receive);
            assert_eq!(sent.completion.result, Ok(()));
            let c = received.completion;
            assert_eq!(
                (c.result, c.bytes, c.total),
                (Err(OpError::Truncated), 8, len as u64)
            );
            assert_eq!(received.into_received(), pattern(len, 1)[..8]);
        }
    }
}

#[test]
fn a_message_longer_than_the_caches_lands_whole() {
    let (a, b) = pair(By::Shm, &config());
    let message = pattern(50_000_003, 3);
    let receive = b
        .post_receive(&Selector::any(5), vec![0; message.len()], Notify::default())
        .unwrap();
    let send = a
        .post_send(1, 5, &TaggedOptions::default(), message.clone())
        .unwrap();
    let (_, received) = both(&a, send, &b, receive);
    assert_eq!(received.completion.result, Ok(()));
    assert!(received.into_received() == message);
}

#[test]
fn probes_claims_and_cancels() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        for (tag, len) in [(1, 10), (2, 50_000), (3, 0)] {
            a.post_send(1, tag, &TaggedOptions::default(), pattern(len, 9))
                .unwrap();
        }
        run(&[&a, &b], || b.probe(&Selector::any(3)).unwrap().is_some());
        let found = b.probe(&Selector::from(0, 2)).unwrap().unwrap();
        assert_eq!((found.from, found.tag, found.total), (0, 2, 50_000));
        assert_eq!(b.probe(&Selector::from(1, 2)).unwrap(), None);
        let (id, what) = b.claim(&Selector::from(0, 2)).unwrap().unwrap();
        assert_eq!(what, found);
        assert_eq!(b.probe(&Selector::from(0, 2)).unwrap(), None);
        let receive = b
            .receive_claimed(id, vec![0; 50_000], Notify::default())
            .unwrap();
        let mut received = None;
        run(&[&a, &b], || {
            received = b.poll_op(receive).unwrap();
            received.is_some()
        });
        assert!(received.unwrap().into_received() == pattern(50_000, 9));
        let (id, _) = b.claim(&Selector::any(1)).unwrap().unwrap();
        b.discard(id).unwrap();
        // The wildcard takes what is left.
        let all = Selector::any(0).ignoring(u64::MAX);
        let receive = b.post_receive(&all, Vec::new(), Notify::default()).unwrap();
        let ended = b.poll_op(receive).unwrap().unwrap();
        assert_eq!(ended.completion.tag, 3);
        assert_eq!(b.poll_op(receive).unwrap_err(), WaitError::NoSuchOperation);

        let receive = b.post_receive(&all, vec![0; 4], Notify::default()).unwrap();
        assert!(b.cancel(receive).unwrap());
        assert!(!b.cancel(receive).unwrap());
        let ended = b.poll_op(receive).unwrap().unwrap();
        assert_eq!(ended.completion.result, Err(OpError::Cancelled));
        assert_eq!(b.statistics().unwrap(), Statistics::default());
    }
}

#[test]
fn completions_come_in_queues_and_are_counted() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (queue, counter) = (b.open_queue().unwrap(), b.open_counter().unwrap());
        for i in 0..100 {
            let notify = Notify {
                context: 1_000 + i,
                queue: Some(queue),
                counter: Some(counter),
                ..Notify::NONE
            };
            b.post_receive(&Selector::any(i), vec![0; 64], notify)
                .unwrap();
        }
        for i in (0..100).rev() {
            a.post_send(1, i, &TaggedOptions::default(), pattern(64, i as u8))
                .unwrap();
        }
        let mut next = 100;
        run(&[&a, &b], || {
            while let Some(ended) = b.next_completion(queue).unwrap() {
                next -= 1;
                assert_eq!(
                    (ended.completion.tag, ended.completion.context),
                    (next, 1_000 + next)
                );
                assert_eq!(ended.into_received(), pattern(64, next as u8));
            }
            next == 0
        });
        let count = b.count(counter).unwrap();
        assert_eq!((count.done, count.failed), (100, 0));
        let short = Some(Duration::from_millis(1));
        assert_eq!(
            b.wait_completion(queue, short).unwrap_err(),
            WaitError::TimedOut
        );
        b.close_counter(counter).unwrap();
        b.close_queue(queue).unwrap();
    }
}

#[test]
fn a_rank_sends_to_itself() {
    for by in ALL {
        let (a, _b) = pair(by, &config());
        for len in [0, 5, 40_000] {
            let early = a
                .post_receive(&Selector::from(0, 1), vec![0; len], Notify::default())
                .unwrap();
            for tag in [1, 2] {
                a.post_send(0, tag, &TaggedOptions::default(), pattern(len, tag as u8))
                    .unwrap();
            }
            assert_eq!(
                a.poll_op(early).unwrap().unwrap().into_received(),
                pattern(len, 1)
            );
            let mut late = vec![0; len];
            assert_eq!(
                a.receive_tagged(&Selector::any(2), &mut late).unwrap().peer,
                0
            );
            assert_eq!(late, pattern(len, 2));
        }
        assert_eq!(a.statistics().unwrap().operations, 0);
    }
}

#[test]
fn what_nobody_receives_stays_within_the_budget_and_none_is_lost() {
    for by in ALL {
        let mut config = config();
        config.exchange.pushed_share = Some(PUSHED_MIN);
        let (a, b) = pair(by, &config);
        let sends: Vec<OpId> = (0..500)
            .map(|i| {
                a.post_send(1, i, &TaggedOptions::default(), pattern(600, i as u8))
                    .unwrap()
            })
            .collect();
        run(&[&a, &b], || {
            b.probe(&Selector::any(499)).unwrap().is_some()
        });
        let statistics = b.statistics().unwrap();
        assert_eq!(statistics.messages, 500);
        assert!(statistics.pushed_bytes <= PUSHED_MIN, "{statistics:?}");
        assert!(
            sends
                .iter()
                .filter(|op| matches!(a.poll_op(**op), Ok(None)))
                .count()
                > 480
        );
        // In reverse.
        for i in (0..500).rev() {
            let receive = b
                .post_receive(&Selector::any(i), vec![0; 600], Notify::default())
                .unwrap();
            let mut got = None;
            run(&[&a, &b], || {
                got = b.poll_op(receive).unwrap();
                got.is_some()
            });
            assert_eq!(got.unwrap().into_received(), pattern(600, i as u8));
        }
        run(&[&a, &b], || a.statistics().unwrap().operations == 0);
        assert_eq!(b.statistics().unwrap(), Statistics::default());
        // More room, told while it runs.
        b.set_pushed_share(Some(100_000)).unwrap();
        crate::common::settle(&[&a, &b]);
        for i in 0..100 {
            a.post_send(1, i, &TaggedOptions::default(), pattern(600, 1))
                .unwrap();
        }
        run(&[&a, &b], || b.probe(&Selector::any(99)).unwrap().is_some());
        assert!(b.statistics().unwrap().pushed_bytes > 60_000);
    }
}

#[test]
fn a_death_ends_what_depends_on_it() {
    for by in ALL {
        let mut all = job(by, 3, &config());
        let (c, b, a) = (all.pop().unwrap(), all.pop().unwrap(), all.pop().unwrap());
        // Of the dead: one that has arrived whole, one that is only offered.
        for (tag, len) in [(1, 100), (2, 3_000_000)] {
            b.post_send(0, tag, &TaggedOptions::default(), pattern(len, 4))
                .unwrap();
        }
        run(&[&a, &b, &c], || {
            a.probe(&Selector::any(2)).unwrap().is_some()
        });
        let from_b = a
            .post_receive(&Selector::from(1, 9), vec![0; 9], Notify::default())
            .unwrap();
        let from_any = a
            .post_receive(&Selector::any(9), vec![0; 9], Notify::default())
            .unwrap();
        let to_b = a
            .post_send(1, 7, &TaggedOptions::default(), pattern(1_000_000, 4))
            .unwrap();
        a.peer_died(1).unwrap();
        for op in [from_b, to_b] {
            let mut ended = None;
            run(&[&a, &c], || {
                ended = a.poll_op(op).unwrap();
                ended.is_some()
            });
            let done = ended.unwrap().completion;
            assert_eq!(
                (done.result, done.peer),
                (Err(OpError::PeerDead), 1),
                "{by:?}"
            );
        }
        assert_eq!(a.probe(&Selector::from(1, 2)).unwrap(), None);
        let mut bytes = vec![0; 100];
        a.receive_tagged(&Selector::from(1, 1), &mut bytes).unwrap();
        assert_eq!(bytes, pattern(100, 4));
        let dead = WaitError::PeerDead {
            rank: 1,
            why: Death::Ended,
        };
        assert_eq!(
            a.receive_tagged(&Selector::from(1, 1), &mut bytes),
            Err(dead)
        );
        assert_eq!(a.send_tagged(1, 1, &bytes), Err(dead));
        let (e, _) = a
            .post_send(1, 1, &TaggedOptions::default(), vec![1])
            .unwrap_err();
        assert_eq!(
            e,
            SendError::PeerDead {
                rank: 1,
                why: Death::Ended
            }
        );
        // A receive from anybody is told of it once, and goes on.
        assert_eq!(a.wait_end(from_any, None).unwrap_err(), dead);
        c.send_tagged(0, 9, &[5; 9]).unwrap();
        let mut ended = None;
        run(&[&a, &c], || {
            ended = a.poll_op(from_any).unwrap();
            ended.is_some()
        });
        assert_eq!(ended.unwrap().into_received(), [5; 9]);
        assert_eq!(a.statistics().unwrap(), Statistics::default());
    }
}

#[test]
fn wrong_calls_are_told() {
    let (a, _b) = pair(By::Shm, &config());
    assert_eq!(a.send_tagged(2, 0, &[]), Err(Misuse::BadRank.into()));
    let receive = a.receive_tagged(&Selector::from(9, 0), &mut []);
    assert_eq!(receive, Err(Misuse::BadRank.into()));
    let posted = a.post_receive(&Selector::from(2, 0), vec![0; 4], Notify::default());
    assert_eq!(posted, Err(Misuse::BadRank));
    assert_eq!(a.poll_op(OpId(5)).unwrap_err(), WaitError::NoSuchOperation);
    assert_eq!(
        a.wait_end(OpId(5), None).unwrap_err(),
        WaitError::NoSuchOperation
    );
    assert_eq!(a.cancel(OpId(5)), Err(WaitError::NoSuchOperation));
    let posted = a
        .post_receive(
            &Selector::any(0),
            Buffer::from(vec![0; 4]),
            Notify::default(),
        )
        .unwrap();
    a.close().ok();
    let ended = a.poll_op(posted).unwrap().unwrap();
    assert_eq!(ended.completion.result, Err(OpError::Closed));
    assert_eq!(a.send_tagged(1, 0, &[]), Err(Misuse::Closed.into()));
    let closed = a.post_receive(&Selector::any(0), vec![0; 4], Notify::default());
    assert_eq!(closed, Err(Misuse::Closed));
}

#[test]
fn queues_counters_and_claimed_messages_that_are_not_there_are_told() {
    let (a, _b) = pair(By::Shm, &config());
    let (queue, counter) = (a.open_queue().unwrap(), a.open_counter().unwrap());
    let named = Notify {
        context: 0,
        queue: Some(queue),
        counter: Some(counter),
        ..Notify::NONE
    };
    let post = |notify| a.post_receive(&Selector::any(1), vec![0; 4], notify);
    let send = |notify| {
        let options = TaggedOptions {
            notify,
            ..TaggedOptions::default()
        };
        a.post_send(0, 1, &options, vec![1; 4]).map_err(|(e, _)| e)
    };
    // Two that are under way when their queue and counter are closed...
    let late = post(named).unwrap();
    post(named).unwrap();
    assert!(a.cancel(late).unwrap());
    assert_eq!(a.count(counter).unwrap().failed, 1);
    a.close_queue(queue).unwrap();
    a.close_counter(counter).unwrap();
    assert_eq!(a.poll_op(late).unwrap_err(), WaitError::NoSuchOperation);
    for (wrong, why) in [
        (
            Notify {
                counter: None,
                ..named
            },
            Misuse::NoSuchQueue,
        ),
        (
            Notify {
                queue: None,
                ..named
            },
            Misuse::NoSuchCounter,
        ),
    ] {
        assert_eq!(post(wrong), Err(why));
        assert_eq!(send(wrong), Err(why.into()));
    }
    assert_eq!(a.close_queue(queue), Err(Misuse::NoSuchQueue));
    assert_eq!(a.close_counter(counter), Err(Misuse::NoSuchCounter));
    assert_eq!(a.count(counter), Err(Misuse::NoSuchCounter));
    let none = Some(Duration::ZERO);
    let waited = a.wait_completion(queue, none).unwrap_err();
    assert_eq!(waited, Misuse::NoSuchQueue.into());
    let waited = a.wait_count(counter, 0, none).unwrap_err();
    assert_eq!(waited, Misuse::NoSuchCounter.into());
    assert_eq!(a.next_completion(queue).unwrap_err(), Misuse::NoSuchQueue);

    // ...are not told of in others that get their numbers.
    assert_eq!(
        (a.open_queue(), a.open_counter()),
        (Ok(queue), Ok(counter)),
        "numbers are used again"
    );
    send(Notify::default()).unwrap();
    assert_eq!(a.statistics().unwrap().operations, 0);
    assert!(a.next_completion(queue).unwrap().is_none());
    assert_eq!(a.count(counter), Ok(portolan_runtime::Count::default()));

    // Those that were taken by their numbers do not hide what is behind them.
    let ops = [(); 3].map(|()| send(named).unwrap());
    assert!(a.poll_op(ops[0]).unwrap().is_some());
    assert!(a.poll_op(ops[1]).unwrap().is_some());
    let next = a.next_completion(queue).unwrap().unwrap();
    assert_eq!(next.completion.op, ops[2]);
    assert_eq!(a.wait_count(counter, 3, None).unwrap().done, 3);
    assert_eq!(a.wait_count(counter, 4, none), Err(WaitError::TimedOut));

    // Messages wait that nobody has claimed; one is, once.
    let other = portolan_runtime::MessageId(1 << 32);
    let claimed = |id| a.receive_claimed(id, vec![0; 4], named);
    assert_eq!(claimed(other), Err(Misuse::NoSuchMessage));
    let (id, _) = a.claim(&Selector::any(1)).unwrap().unwrap();
    let again = || portolan_runtime::MessageId(id.0);
    a.close_queue(queue).unwrap();
    assert_eq!(claimed(again()), Err(Misuse::NoSuchQueue));
    let received = a.receive_claimed(again(), vec![0; 4], Notify::default());
    let ended = a.wait_end(received.unwrap(), None).unwrap();
    assert_eq!(ended.into_received(), [1; 4]);
    assert_eq!(a.discard(again()), Err(Misuse::NoSuchMessage));
    let (id, _) = a.claim(&Selector::any(1)).unwrap().unwrap();
    a.discard(id).unwrap();
    let (id, _) = a.claim(&Selector::any(1)).unwrap().unwrap();
    a.discard(id).unwrap();
    assert_eq!(a.statistics().unwrap(), Statistics::default());
}

#[test]
fn blocking_calls_take_several_pieces_and_tell_how_they_ended() {
    let (a, _b) = pair(By::Shm, &config());
    let options = TaggedOptions {
        data: Some(9),
        ..TaggedOptions::default()
    };
    let from = Gather::from(vec![1, 2]).and(vec![3, 4, 5]);
    let sent = a.send_pieces(0, 7, &options, from).unwrap().completion;
    assert_eq!((sent.result, sent.bytes, sent.tag), (Ok(()), 5, 7));
    let into = Scatter::from(vec![0; 1]).and(vec![0; 3]);
    let ended = a.receive_pieces(&Selector::any(7), into).unwrap();
    let c = ended.completion;
    assert_eq!(c.result, Err(OpError::Truncated));
    assert_eq!((c.bytes, c.total, c.data, c.peer), (4, 5, Some(9), 0));
    let Some(portolan_runtime::Memory::Sink(scatter)) = ended.memory else {
        panic!("the buffers come back");
    };
    let pieces: Vec<_> = scatter.into_buffers().into_iter().collect();
    assert_eq!(pieces[1].as_slice(), [2, 3, 4]);
    assert_eq!(a.death(0), Ok(None));
    assert_eq!(a.death(2), Err(Misuse::BadRank));
}
