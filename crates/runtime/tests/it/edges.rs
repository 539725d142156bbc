//! What happens at each edge, on every lane.

use std::sync::mpsc::{TryRecvError, channel};
use std::sync::{Arc, Mutex};

use crate::common::processes::attach;
use crate::common::{ALL, By, Count, config, job, pair, pattern, run, settle};
use portolan_link::shm::{PeerState, Segment, SegmentConfig, ShmPort};
use portolan_runtime::{
    Binding, Buffer, Config, Context, Death, Event, Message, MessageNo, Misuse, OpError, SendError,
    SendOptions, Space, Threads, WaitError,
};
use portolan_sys::shared_doorbell::SharedDoorbells;
use portolan_wire::Priority;

type Log<T> = Arc<Mutex<Vec<T>>>;

/// Writes down what the endpoint's error handler is told.
fn events(e: &Space) -> Log<Event> {
    let log = Log::default();
    let into = Arc::clone(&log);
    e.on_error(move |_, event| into.lock().unwrap().push(*event))
        .unwrap();
    log
}

fn flow(flow: u16) -> SendOptions<'static> {
    SendOptions {
        flow,
        ..SendOptions::default()
    }
}

#[test]
fn longer_than_the_buffer_is_told_on_both_sides_and_writes_nothing() {
    for by in ALL {
        for len in [101, 2_000, 300_000] {
            let (a, b) = pair(by, &config());
            let told = events(&a);
            let seen = Log::default();
            let (log, count) = (Arc::clone(&seen), Count::default());
            let ran = count.clone();
            b.bind(
                1,
                Binding::to(move |_, m| {
                    // Of the long message nothing shows, not even here.
                    assert_eq!(m.payload, [7; 100]);
                    ran.add();
                })
                .with_buffer(vec![0xee; 100])
                .on_error(move |_, e| log.lock().unwrap().push(*e)),
            )
            .unwrap();
            let number = a.try_send(1, 1, &pattern(len, 3)).unwrap();
            run(&[&a, &b], || a.try_send(1, 1, &[7; 100]).is_ok());
            run(&[&a, &b], || {
                count.get() == 1
                    && told.lock().unwrap().len() == 1
                    && seen.lock().unwrap().len() == 1
            });
            let bytes = len as u64;
            assert_eq!(
                seen.lock().unwrap()[0],
                Event::TooLong {
                    from: 0,
                    port: 1,
                    bytes,
                    room: 100
                }
            );
            assert!(matches!(
                told.lock().unwrap()[0],
                Event::Refused { to: 1, flow: 0, number: n, .. } if n == number
            ));
            let buffer = b.set_buffer(1, None).unwrap().unwrap();
            assert_eq!(buffer.as_slice(), [7; 100], "{by:?} {len}");
        }
    }
}

#[test]
fn an_unbound_port_holds_what_fits_and_gives_no_credit_beyond() {
    for by in ALL {
        let small = Config {
            unexpected_bytes: 64 << 10,
            unexpected_share: 64 << 10,
            ..config()
        };
        let (a, b) = pair(by, &small);
        let mut sent: u64 = 0;
        let mut refusals = 0;
        while refusals < 2_000 {
            match a.try_send_with(1, 4, &flow(1), &sent.to_le_bytes()) {
                Ok(_) => sent += 1,
                Err(SendError::NoCredit) => refusals += 1,
                Err(e) => panic!("{e}"),
            }
            settle_once(&a, &b);
            assert!(sent < 100_000, "no end to its credit");
        }
        assert!(sent >= 100, "only {sent} held");
        let next = Arc::new(Mutex::new(0));
        let log = Arc::clone(&next);
        b.bind(
            4,
            Binding::to(move |_, m| {
                let mut next = log.lock().unwrap();
                assert_eq!(m.payload, u64::to_le_bytes(*next), "in order");
                *next += 1;
            }),
        )
        .unwrap();
        run(&[&a, &b], || *next.lock().unwrap() == sent);
        // And credit again.
        for _ in 0..10 {
            run(&[&a, &b], || {
                a.try_send_with(1, 4, &flow(1), &sent.to_le_bytes()).is_ok()
            });
            sent += 1;
        }
        run(&[&a, &b], || *next.lock().unwrap() == sent);
    }
}

fn settle_once(a: &Space, b: &Space) {
    a.progress().unwrap();
    b.progress().unwrap();
}

#[test]
fn a_closed_port_refuses_what_waits_and_what_comes() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let told = events(&a);
        let mut expected = Vec::new();
        expected.push(a.try_send(1, 6, b"kept").unwrap());
        settle(&[&a, &b]);
        assert!(told.lock().unwrap().is_empty());
        b.close_port(6).unwrap();
        expected.push(a.try_send(1, 6, b"late").unwrap());
        let op = a
            .post_message(1, 6, &SendOptions::default(), pattern(200_000, 1))
            .unwrap();
        let (mut long, mut by_op) = (None, false);
        // The end of the long one is told by its operation, or, where that was
        // over first, like the others'.
        run(&[&a, &b], || {
            if long.is_none()
                && let Some(ended) = a.poll_op(op).unwrap()
            {
                long = ended.completion.data.map(|number| MessageNo(number as u32));
                by_op = ended.completion.result == Err(OpError::Refused);
            }
            let told = told.lock().unwrap();
            let refused = |n| {
                told.iter().any(
                    |e| matches!(e, Event::Refused { to: 1, flow: 0, number, .. } if *number == n),
                )
            };
            expected.iter().all(|n| refused(*n)) && (by_op || long.is_some_and(refused))
        });
        // Nobody waits for one that was copied: that is told like the short ones'.
        told.lock().unwrap().clear();
        a.try_send_with(1, 6, &flow(1), &pattern(200_000, 2))
            .unwrap();
        run(&[&a, &b], || told.lock().unwrap().len() == 1);
        // Bound anew it takes messages again.
        let got = Count::default();
        let log = got.clone();
        b.bind(6, Binding::to(move |_, _| log.add())).unwrap();
        a.try_send(1, 6, b"again").unwrap();
        run(&[&a, &b], || got.get() == 1);
    }
}

#[test]
fn of_a_blocking_send_that_is_refused_the_error_handler_is_told() {
    for by in ALL {
        let shared = Config {
            threads: Threads::Multiple,
            ..config()
        };
        let (a, b) = pair(by, &shared);
        let told = events(&a);
        b.close_port(6).unwrap();
        let (over, ended) = channel::<()>();
        std::thread::scope(|s| {
            // Goes on until this side is through, or has failed.
            let b = &b;
            s.spawn(move || {
                while ended.try_recv() == Err(TryRecvError::Empty) {
                    b.progress().unwrap();
                }
            });
            let number = a.send(1, 6, &pattern(200_000, 3)).unwrap();
            run(&[&a], || !told.lock().unwrap().is_empty());
            let [only] = told.lock().unwrap().as_slice().try_into().unwrap();
            assert!(matches!(only, Event::Refused { to: 1, number: n, .. } if n == number));
            drop(over);
        });
    }
}

#[test]
fn a_handler_may_send_to_its_own_port() {
    let mut all = job(By::Udp, 1, &config());
    let me = all.pop().unwrap();
    let got = Count::default();
    let log = got.clone();
    let again = move |ctx: &mut Context<'_>, m: &Message<'_>| {
        log.add();
        if m.payload.len() > 1 {
            ctx.send(0, 1, &m.payload[1..]).unwrap();
        }
    };
    me.bind(1, Binding::to(again).with_buffer(vec![0; 100]))
        .unwrap();
    me.try_send(0, 1, b"three").unwrap();
    run(&[&me], || got.get() == 5);
}

#[test]
fn answers_longer_than_what_they_answer_pass_a_full_budget() {
    let small = Config {
        queue_bytes: 12_000,
        queue_share: 12_000,
        reply_bytes: 12_000,
        ..config()
    };
    let mut all = job(By::Udp, 1, &small);
    let me = all.pop().unwrap();
    let answer = |ctx: &mut Context<'_>, _: &Message<'_>| {
        ctx.reply_to(2, &[], &[2; 5_000]).unwrap();
    };
    me.bind(1, Binding::to(answer)).unwrap();
    let got = Count::default();
    let log = got.clone();
    me.bind(2, Binding::to(move |_, _| log.add())).unwrap();
    let sent = (0..100).take_while(|_| me.try_send(0, 1, &[1; 1_500]).is_ok());
    let sent = sent.count();
    assert!((4..100).contains(&sent), "{sent} fill the memory");
    run(&[&me], || got.get() == sent as u64);
}

#[test]
fn to_oneself_goes_through_the_same_handler_later_and_never_within() {
    let mut all = job(By::Udp, 1, &config());
    let me = all.pop().unwrap();
    let got = Log::default();
    let (log, depth) = (Arc::clone(&got), Count::default());
    let inside = depth.clone();
    me.bind(
        1,
        Binding::to(move |c, m| {
            assert_eq!(inside.get() % 2, 0, "a handler within a handler");
            inside.add();
            let left = m.arg(0);
            if left > 0 {
                let o = SendOptions {
                    args: &[left - 1],
                    ..SendOptions::default()
                };
                c.send_with(0, 1, &o, m.payload).unwrap();
            }
            log.lock().unwrap().push((m.from, left, m.payload.len()));
            inside.add();
        }),
    )
    .unwrap();
    let o = SendOptions {
        args: &[3],
        ..SendOptions::default()
    };
    me.send_with(0, 1, &o, b"self").unwrap();
    assert!(got.lock().unwrap().is_empty(), "not within the send");
    run(&[&me], || got.lock().unwrap().len() == 4);
    assert_eq!(
        *got.lock().unwrap(),
        [(0, 3, 4), (0, 2, 4), (0, 1, 4), (0, 0, 4)]
    );
    // Of any length, also before the port is bound, and to a closed port.
    me.send(0, 2, &pattern(900_000, 2)).unwrap();
    let long = Count::default();
    let log = long.clone();
    me.bind(
        2,
        Binding::to(move |_, m| {
            assert!(m.payload == pattern(900_000, 2));
            log.add();
        }),
    )
    .unwrap();
    me.send(0, 2, &pattern(900_000, 2)).unwrap();
    me.wait_until(|| long.get() == 2).unwrap();
    let told = events(&me);
    me.close_port(3).unwrap();
    me.send(0, 3, b"no").unwrap();
    run(&[&me], || told.lock().unwrap().len() == 1);
    assert!(matches!(
        told.lock().unwrap()[0],
        Event::Refused { to: 0, .. }
    ));
}

#[test]
fn a_handler_gives_its_port_another_buffer_and_keeps_the_full_one() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let got = Count::default();
        let log = got.clone();
        b.bind(
            1,
            Binding::to(move |c, m| {
                assert!(
                    c.set_buffer(m.port, Some(Buffer::from(vec![0; 50_000])))
                        .is_none()
                );
                log.add();
            })
            .with_buffer(vec![0; 50_000]),
        )
        .unwrap();
        for (n, len) in [10, 50_000, 3_000].into_iter().enumerate() {
            let bytes = pattern(len, n as u8);
            run(&[&a, &b], || a.try_send(1, 1, &bytes).is_ok());
            run(&[&a, &b], || got.get() == n as u64 + 1);
        }
        for (n, len) in [10, 50_000, 3_000].into_iter().enumerate() {
            let (buffer, filled) = b.take_buffer(1).unwrap().expect("one for each message");
            assert_eq!(filled, len);
            assert!(buffer.as_slice()[..filled] == pattern(len, n as u8));
        }
        assert!(b.take_buffer(1).unwrap().is_none());
    }
}

#[test]
fn without_a_handler_messages_land_in_the_buffer_and_are_counted() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        b.bind(
            1,
            Binding {
                buffer: Some(vec![0; 100_000].into()),
                ..Binding::default()
            },
        )
        .unwrap();
        for (n, len) in [8, 100_000, 5_000].into_iter().enumerate() {
            run(&[&a, &b], || {
                a.try_send(1, 1, &pattern(len, n as u8)).is_ok()
            });
            run(&[&a, &b], || b.arrived(1).unwrap() == n as u64 + 1);
        }
    }
}

#[test]
fn a_dead_peer_ends_all_that_depends_on_it() {
    for by in ALL {
        let all = job(by, 3, &config());
        let [a, b, c] = &all[..] else { panic!() };
        let told = events(a);
        let of_port = Log::default();
        let log = Arc::clone(&of_port);
        a.bind(
            1,
            Binding::to(|_, _| ()).on_error(move |_, e| log.lock().unwrap().push(*e)),
        )
        .unwrap();
        let got = Count::default();
        let log = got.clone();
        c.bind(1, Binding::to(move |_, _| log.add())).unwrap();
        a.try_send(1, 1, b"to be lost or not").unwrap();
        settle(&[a, b, c]);
        let op = a
            .post_message(1, 1, &SendOptions::default(), pattern(9_000_000, 1))
            .unwrap();
        for _ in 0..20 {
            a.progress().unwrap();
        }
        // Its process has ended.
        a.peer_died(1).unwrap();
        run(&[a], || told.lock().unwrap().len() == 1);
        let dead = Event::PeerDead {
            rank: 1,
            why: Death::Ended,
            lost: 0,
        };
        assert_eq!(told.lock().unwrap()[..], [dead]);
        assert_eq!(of_port.lock().unwrap()[..], [dead]);
        let error = WaitError::PeerDead {
            rank: 1,
            why: Death::Ended,
        };
        assert_eq!(a.wait(op).unwrap_err(), error);
        let refused = SendError::PeerDead {
            rank: 1,
            why: Death::Ended,
        };
        assert_eq!(a.try_send(1, 1, b"x").unwrap_err(), refused);
        assert_eq!(a.send(1, 1, &[0; 100_000]).unwrap_err(), refused);
        assert_eq!(
            a.wait_until(|| false).unwrap_err(),
            error,
            "{by:?}: no hang"
        );
        assert!(matches!(
            a.barrier().unwrap_err(),
            WaitError::PeerDead { rank: 1, .. }
        ));
        assert_eq!(a.lane(1).unwrap().0, "dead");
        // Others go on.
        a.try_send(2, 1, b"alive").unwrap();
        run(&[a, c], || got.get() == 1);
    }
}

#[test]
fn closing_delivers_what_is_under_way_and_tells_the_peers() {
    for by in ALL {
        let (a, b) = pair(
            by,
            &Config {
                close_ns: 5_000_000_000,
                ..crate::common::helped()
            },
        );
        let told = events(&b);
        let got = Count::default();
        let log = got.clone();
        b.bind(
            1,
            Binding::to(move |_, m| {
                assert!(m.payload == pattern(400_000, m.arg(0) as u8));
                log.add();
            }),
        )
        .unwrap();
        std::thread::scope(|s| {
            s.spawn(move || {
                for n in 0..5 {
                    let o = SendOptions {
                        args: &[n],
                        ..SendOptions::default()
                    };
                    // Dropped on purpose: closing sees to them.
                    let mut bytes = pattern(400_000, n as u8);
                    while let Err((SendError::NoCredit, back)) = a
                        .post_message(1, 1, &o, std::mem::take(&mut bytes))
                        .map(drop)
                    {
                        bytes = back.into_vec();
                        a.progress().unwrap();
                    }
                }
                a.close().unwrap();
                assert_eq!(a.close().unwrap_err(), WaitError::Misuse(Misuse::Closed));
                assert_eq!(a.try_send(1, 1, b"x").unwrap_err(), Misuse::Closed.into());
            });
            b.wait_until(|| got.get() == 5).unwrap();
            let error = b.wait_until(|| false).unwrap_err();
            assert_eq!(
                error,
                WaitError::PeerDead {
                    rank: 0,
                    why: Death::Closed
                }
            );
        });
        assert_eq!(
            told.lock().unwrap()[..],
            [Event::PeerDead {
                rank: 0,
                why: Death::Closed,
                lost: 0,
            }]
        );
    }
}

#[test]
fn closing_refuses_messages_that_no_handler_took() {
    for by in ALL {
        let (a, b) = pair(
            by,
            &Config {
                close_ns: 5_000_000_000,
                ..crate::common::helped()
            },
        );
        let told = events(&a);
        let number = a.try_send(1, 9, b"nobody binds this").unwrap();
        std::thread::scope(|s| {
            s.spawn(move || {
                while b.counters().unwrap().kept == 0 {
                    b.progress().unwrap();
                }
                b.close().unwrap();
            });
            run(&[&a], || told.lock().unwrap().len() == 2);
        });
        assert!(
            matches!(told.lock().unwrap()[0], Event::Refused { to: 1, number: n, .. } if n == number),
            "{by:?}"
        );
        assert_eq!(
            told.lock().unwrap()[1],
            Event::PeerDead {
                rank: 1,
                why: Death::Closed,
                lost: 0,
            }
        );
    }
}

#[test]
fn closing_gives_up_on_a_peer_that_makes_no_calls() {
    let (a, _b) = pair(By::Udp, &config());
    a.try_send(1, 1, b"is never acknowledged").unwrap();
    assert_eq!(a.close().unwrap_err(), WaitError::TimedOut);
}

#[test]
fn misuse_is_an_error_and_nothing_else() {
    let (a, b) = pair(By::Shm, &config());
    assert_eq!(a.try_send(2, 1, b"").unwrap_err(), Misuse::BadRank.into());
    assert_eq!(
        a.try_send(1, 65_280, b"").unwrap_err(),
        Misuse::ReservedPort.into()
    );
    assert_eq!(
        a.bind(65_535, Binding::default()).unwrap_err(),
        Misuse::ReservedPort
    );
    assert_eq!(a.close_port(65_300).unwrap_err(), Misuse::ReservedPort);
    assert_eq!(
        a.try_send_with(1, 1, &flow(8), b"").unwrap_err(),
        SendError::Misuse(Misuse::BadFlow)
    );
    let o = SendOptions {
        args: &[0; 21],
        ..SendOptions::default()
    };
    assert_eq!(
        a.try_send_with(1, 1, &o, b"").unwrap_err(),
        SendError::Misuse(Misuse::TooManyArgs)
    );
    assert_eq!(
        a.broadcast(&[0, 1, 2], 1, &flow(0), b"").unwrap_err(),
        Misuse::BadRank.into()
    );
    assert_eq!(a.peer_died(0).unwrap_err(), Misuse::BadRank);
    let timeout = std::time::Duration::from_millis(1);
    assert_eq!(
        b.wait_timeout(timeout, || false).unwrap_err(),
        WaitError::TimedOut
    );
}

#[test]
fn a_panic_in_a_handler_comes_out_of_the_call_and_breaks_nothing() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let got = Count::default();
        let log = got.clone();
        b.bind(
            1,
            Binding::to(move |_, m| {
                log.add();
                assert_ne!(m.payload, b"bad");
            }),
        )
        .unwrap();
        a.try_send(1, 1, b"bad").unwrap();
        a.try_send(1, 1, b"good").unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&[&a, &b], || got.get() == 3);
        }));
        assert!(caught.is_err());
        run(&[&a, &b], || got.get() == 2);
    }
}

#[test]
fn a_peer_that_made_no_sense_is_marked_dead_when_it_ends() {
    let segment = Segment::create(2, &SegmentConfig::default()).unwrap();
    let bells = SharedDoorbells::new(2).unwrap();
    let fds = |index| {
        let doorbells = bells.duplicate_of(index).unwrap();
        (segment.duplicate_fd().unwrap(), doorbells)
    };
    let (memory, doorbells) = fds(0);
    let a = attach(&config(), (0, std::process::id()), memory, doorbells);
    let (memory, doorbells) = fds(1);
    let mut b = ShmPort::attach(memory, 1, doorbells, true).unwrap();
    let mut slot = b.reserve(0, Priority::Request, 1).unwrap();
    slot.bytes_mut().fill(0xff);
    slot.commit();
    run(&[&a], || a.death(1).unwrap() == Some(Death::Corrupt));
    // It may be writing to our memory, and go on with it.
    assert_eq!(segment.state(1), PeerState::Alive);
    a.peer_died(1).unwrap();
    assert_eq!(segment.state(1), PeerState::Dead);
}

#[test]
fn calls_from_a_handler_go_through_its_context_only() {
    let all = job(By::Shm, 2, &config());
    let a = Arc::new(all.into_iter().next().unwrap());
    let got = Count::default();
    let (log, outer) = (got.clone(), Arc::downgrade(&a));
    a.bind(
        1,
        Binding::to(move |_, _| {
            let a = outer.upgrade().unwrap();
            assert_eq!(a.try_send(0, 1, b"").unwrap_err(), Misuse::InHandler.into());
            assert_eq!(a.progress().unwrap_err(), Misuse::InHandler);
            log.add();
        }),
    )
    .unwrap();
    a.try_send(0, 1, b"").unwrap();
    run(&[&a], || got.get() == 1);
}
