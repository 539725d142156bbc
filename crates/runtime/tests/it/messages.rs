//! Messages of every length, on every lane.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{ALL, By, Count, PATIENCE, config, helped, job, pair, pattern, run, settle};
use portolan_runtime::{
    Action, Binding, Death, Ended, Memory, Priority, SendOptions, Space, WaitError,
};

#[test]
fn small_ones_come_with_their_words_in_order() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let got = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&got);
        b.bind(
            7,
            Binding::to(move |_, m| {
                assert_eq!((m.from, m.port, m.flow), (0, 7, 3));
                assert_eq!(m.priority, Priority::Request);
                assert_eq!(m.arg_count(), m.payload.len() % 21);
                assert!(m.args().enumerate().all(|(i, w)| w == i as u64 * 3));
                assert_eq!(m.arg(20), 0);
                log.lock().unwrap().push(m.payload.to_vec());
            }),
        )
        .unwrap();
        let words: Vec<u64> = (0..20).map(|i| i * 3).collect();
        for i in 0..300 {
            let o = SendOptions {
                flow: 3,
                args: &words[..i % 21],
                ..SendOptions::default()
            };
            let sent = || a.try_send_with(1, 7, &o, &pattern(i, i as u8));
            run(&[&b], || sent().map_err(|_| a.progress().unwrap()).is_ok());
        }
        run(&[&a, &b], || got.lock().unwrap().len() == 300);
        for (i, bytes) in got.lock().unwrap().iter().enumerate() {
            assert_eq!(*bytes, pattern(i, i as u8), "{by:?} {i}");
        }
    }
}

#[test]
fn long_ones_arrive_whole_with_and_without_a_buffer() {
    let lengths = [
        1_300, 1_500, 16_000, 16_300, 16_301, 40_000, 65_536, 70_001, 1_000_000, 5_000_000,
    ];
    for by in ALL {
        for buffer in [false, true] {
            let (a, b) = pair(by, &config());
            let got = Count::default();
            let log = got.clone();
            let mut binding = Binding::to(move |_, m| {
                let len = m.arg(0) as usize;
                assert_eq!(m.payload.len(), len);
                assert!(
                    m.payload == pattern(len, len as u8),
                    "{len} bytes are not as sent"
                );
                log.add();
            });
            if buffer {
                binding = binding.with_buffer(vec![0; 5_000_000]);
            }
            b.bind(9, binding).unwrap();
            // Twice: on shared memory the first are streamed, later ones copied.
            for (n, len) in lengths.into_iter().chain(lengths).enumerate() {
                let bytes = pattern(len, len as u8);
                let o = SendOptions {
                    args: &[len as u64],
                    ..SendOptions::default()
                };
                let op = loop {
                    match a.post_message(1, 9, &o, bytes.clone()) {
                        Ok(op) => break op,
                        Err((_, _)) => settle(&[&a, &b]),
                    }
                };
                let mut ended = None;
                run(&[&a, &b], || {
                    ended = ended.take().or_else(|| a.poll_op(op).unwrap());
                    got.get() == n as u64 + 1 && ended.is_some()
                });
                let Ended {
                    completion, memory, ..
                } = ended.unwrap();
                assert_eq!(completion.result, Ok(()));
                let number = completion.data.unwrap();
                assert_eq!((completion.action, number as usize), (Action::Message, n));
                let Some(Memory::Source(back)) = memory else {
                    panic!("its memory is lost");
                };
                assert!(back.into_vec() == bytes, "the memory comes back");
            }
        }
    }
}

#[test]
fn blocking_sends_of_any_length_between_threads() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        std::thread::scope(|s| {
            s.spawn(|| {
                for len in [0, 8, 2_000, 300_000, 3_000_000, 1] {
                    a.send(1, 5, &pattern(len, 9)).unwrap();
                }
                a.close().unwrap();
            });
            let got = Count::default();
            let log = got.clone();
            b.bind(
                5,
                Binding::to(move |_, m| {
                    assert!(m.payload == pattern(m.payload.len(), 9));
                    log.add();
                }),
            )
            .unwrap();
            let done = got.clone();
            b.wait_until(move || done.get() == 6).unwrap();
        });
    }
}

#[test]
fn replies_from_handlers_answer_requests() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        b.bind(
            1,
            Binding::to(|c, m| c.reply(&[m.arg(0) + 1], m.payload).unwrap()),
        )
        .unwrap();
        let got = Count::default();
        let log = got.clone();
        a.bind(
            1,
            Binding::to(move |_, m| {
                assert_eq!(m.priority, Priority::Reply);
                assert_eq!(m.arg(0), log.get() + 1);
                assert_eq!(m.payload, b"ping");
                log.add();
            }),
        )
        .unwrap();
        for i in 0..200 {
            let o = SendOptions {
                args: &[i],
                ..SendOptions::default()
            };
            a.try_send_with(1, 1, &o, b"ping").unwrap();
            run(&[&a, &b], || got.get() == i + 1);
        }
    }
}

#[test]
fn a_thousand_requests_are_all_answered_though_answers_find_no_credit() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        // Each answer is much longer than its request.
        b.bind(1, Binding::to(|c, _| c.reply(&[], &[5; 1_000]).unwrap()))
            .unwrap();
        let got = Count::default();
        let log = got.clone();
        a.bind(1, Binding::to(move |_, _| log.add())).unwrap();
        let mut sent = 0;
        // a takes nothing for a long while.
        for _ in 0..20_000 {
            if sent < 1_000 && a.try_send(1, 1, &[1]).is_ok() {
                sent += 1;
            }
            b.progress().unwrap();
        }
        run(&[&a, &b], || {
            while sent < 1_000 && a.try_send(1, 1, &[1]).is_ok() {
                sent += 1;
            }
            got.get() == 1_000
        });
    }
}

#[test]
fn two_that_send_without_receiving_do_not_deadlock() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        std::thread::scope(|s| {
            for (me, other) in [(&a, 1), (&b, 0)] {
                s.spawn(move || {
                    let got = Count::default();
                    let log = got.clone();
                    me.bind(2, Binding::to(move |_, _| log.add())).unwrap();
                    me.barrier().unwrap();
                    for i in 0..50 {
                        me.send(other, 2, &pattern(40_000, i)).unwrap();
                    }
                    me.wait_until(|| got.get() == 50).unwrap();
                    me.barrier().unwrap();
                });
            }
        });
    }
}

#[test]
fn barriers_and_broadcasts_join_any_number_of_ranks() {
    for by in [By::Shm, By::Udp] {
        for size in [1, 2, 3, 5, 8] {
            let all = job(by, size, &helped());
            std::thread::scope(|s| {
                for me in &all {
                    s.spawn(move || {
                        let got = Count::default();
                        let log = got.clone();
                        me.bind(
                            3,
                            Binding::to(move |_, m| {
                                let len = m.arg(0) as usize;
                                assert_eq!(m.from, m.arg(1) as u32);
                                assert!(m.payload == pattern(len, 1));
                                log.add();
                            }),
                        )
                        .unwrap();
                        me.barrier().unwrap();
                        let ranks: Vec<u32> = (0..me.size()).collect();
                        for (n, len) in [0, 100, 100_000].into_iter().enumerate() {
                            if me.rank() == n as u32 % me.size() {
                                let args = [len as u64, u64::from(me.rank())];
                                let o = SendOptions {
                                    args: &args,
                                    ..SendOptions::default()
                                };
                                me.broadcast(&ranks, 3, &o, &pattern(len, 1)).unwrap();
                            }
                        }
                        me.wait_until(|| got.get() == 3).unwrap();
                        me.barrier().unwrap();
                    });
                }
            });
        }
    }
}

#[test]
fn closing_after_a_barrier_hurts_nobody_who_is_still_in_it() {
    let mut patient = helped();
    patient.proto.silence_ns = 2 * patient.close_ns;
    for by in ALL {
        for _ in 0..20 {
            let all = job(by, 5, &patient);
            thread::scope(|s| {
                for me in all {
                    s.spawn(move || {
                        me.barrier().unwrap();
                        // Nobody waits for one who has left already: that
                        // would last until the close's time is over.
                        assert_eq!(me.close(), Ok(()), "{by:?}");
                    });
                }
            });
        }
    }
}

#[test]
fn a_barrier_that_cannot_end_ends_for_all() {
    for by in ALL {
        let mut all = job(by, 6, &helped());
        let never_comes = all.remove(2);
        thread::scope(|s| {
            for me in &all {
                s.spawn(move || {
                    let error = me.barrier().unwrap_err();
                    // Of one that never spoke to us only its silence tells.
                    assert!(
                        matches!(
                            error,
                            WaitError::PeerDead {
                                rank: 2,
                                why: Death::Closed | Death::NoAnswer
                            }
                        ),
                        "{by:?}, rank {}: {error}",
                        me.rank()
                    );
                });
            }
            never_comes.close().unwrap();
        });
    }
}

#[test]
fn who_makes_no_call_after_a_barrier_keeps_nobody_in_it() {
    for by in ALL {
        for _ in 0..30 {
            // No helper: the last calls must have said everything.
            let all = job(by, 4, &config());
            let out = Count::default();
            thread::scope(|s| {
                for me in &all {
                    let out = &out;
                    s.spawn(move || {
                        me.barrier().unwrap();
                        out.add();
                        let start = Instant::now();
                        while out.get() < 4 {
                            let late = start.elapsed() > PATIENCE;
                            assert!(!late, "{by:?}: rank {} waits alone", me.rank());
                            thread::sleep(Duration::from_micros(100));
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn an_acknowledgement_waits_for_an_answer_that_comes_after_an_empty_pass() {
    let (a, b) = pair(By::Udp, &config());
    let (at_a, at_b) = (Count::default(), Count::default());
    for (e, log) in [(&a, &at_a), (&b, &at_b)] {
        let log = log.clone();
        e.bind(1, Binding::to(move |_, _| log.add())).unwrap();
    }
    let acks = |e: &Space| e.counters().unwrap().protocol.acks_sent;
    let round = |n| {
        a.send(1, 1, b"ping").unwrap();
        run(&[&a, &b], || at_b.get() == n);
        // As a library does that reads its queue until it is empty.
        b.progress().unwrap();
        b.send(0, 1, b"pong").unwrap();
        run(&[&b, &a], || at_a.get() == n);
    };
    // What introduces them to each other, and finds the size of packets.
    (1..=50).for_each(round);
    settle(&[&a, &b]);
    let before = acks(&b);
    (51..=100).for_each(round);
    // A timer may be due in one of them.
    assert!(acks(&b) - before <= 5, "{} alone", acks(&b) - before);

    // Without an answer it leaves all the same, before anybody sleeps.
    let before = acks(&b);
    a.send(1, 1, b"ping").unwrap();
    run(&[&a, &b], || at_b.get() == 101);
    run(&[&b], || acks(&b) > before);
}
