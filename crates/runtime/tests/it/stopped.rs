//! Flows whose messages nobody takes, on every lane.

use std::sync::{Arc, Mutex};

use crate::common::{ALL, By, Count, config, ended, helped, job, pair, pattern, run, settle};
use portolan_runtime::{
    Binding, Config, Death, Event, OpId, SendError, SendOptions, Space, Threads,
};
use portolan_wire::Priority;

/// The port that is bound late or never, and the one that takes all.
const LATE: u16 = 4;
const TAKEN: u16 = 5;

/// Little memory for messages to unbound ports.
fn small() -> Config {
    Config {
        unexpected_bytes: 16 << 10,
        unexpected_share: 16 << 10,
        ..config()
    }
}

fn options(flow: u16, priority: Priority) -> SendOptions<'static> {
    SendOptions {
        flow,
        priority,
        ..SendOptions::default()
    }
}

fn requests(flow: u16) -> SendOptions<'static> {
    options(flow, Priority::Request)
}

/// Messages of many lengths, long ones among them; each says which one it is.
fn message(number: u64) -> Vec<u8> {
    let len = match number % 16 {
        7 => 3_000,
        11 => 40_000,
        15 => 150_000,
        rest => 8 + 60 * rest as usize,
    };
    let mut bytes = pattern(len, number as u8);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Sends until nothing more is accepted for long; gives how many.
fn send_all_that_goes(
    a: &Space,
    b: &Space,
    o: &SendOptions<'_>,
    make: impl Fn(u64) -> Vec<u8>,
) -> u64 {
    let (mut sent, mut refusals) = (0, 0);
    while refusals < 1_000 {
        match a.try_send_with(1, LATE, o, &make(sent)) {
            Ok(_) => (sent, refusals) = (sent + 1, 0),
            Err(SendError::NoCredit) => refusals += 1,
            Err(e) => panic!("{e}"),
        }
        a.progress().unwrap();
        b.progress().unwrap();
        assert!(sent < 100_000, "nothing stops it");
    }
    sent
}

/// A handler that wants all messages in order.
fn in_order(next: &Arc<Mutex<u64>>) -> Binding {
    let next = Arc::clone(next);
    Binding::to(move |_, m| {
        let mut next = next.lock().unwrap();
        assert!(m.payload == message(*next), "message {next} is another");
        *next += 1;
    })
}

fn takes_all(e: &Space) -> Count {
    let got = Count::default();
    let log = got.clone();
    e.bind(TAKEN, Binding::to(move |_, _| log.add())).unwrap();
    got
}

#[test]
fn a_flow_that_waits_holds_up_no_other() {
    for by in ALL {
        let (a, b) = pair(by, &small());
        let got = takes_all(&b);
        let taken = Arc::new(Mutex::new([0; 2]));
        let log = Arc::clone(&taken);
        let mut sent = [0; 2];
        for (flow, sent) in sent.iter_mut().enumerate() {
            *sent = send_all_that_goes(&a, &b, &requests(flow as u16), message);
        }
        let before = b.counters().unwrap().not_now;
        for n in 0..2_000 {
            let o = match n % 3 {
                0 => options(0, Priority::Reply),
                1 => options(1, Priority::Reply),
                _ => requests(2),
            };
            let bytes = message(n % 7);
            run(&[&a, &b], || a.try_send_with(1, TAKEN, &o, &bytes).is_ok());
            run(&[&a, &b], || got.get() == n + 1);
        }
        // Nothing has become free, and nothing was tried in vain.
        assert_eq!(b.counters().unwrap().not_now, before, "{by:?}");
        b.bind(
            LATE,
            Binding::to(move |_, m| {
                let next = &mut log.lock().unwrap()[usize::from(m.flow)];
                assert!(m.payload == message(*next), "message {next} is another");
                *next += 1;
            }),
        )
        .unwrap();
        run(&[&a, &b], || *taken.lock().unwrap() == sent);
    }
}

#[test]
fn what_was_set_aside_comes_in_order_and_the_flow_goes_on() {
    for by in ALL {
        let (a, b) = pair(by, &small());
        let next = Arc::default();
        let sent = send_all_that_goes(&a, &b, &requests(1), message);
        assert!(sent >= 10, "{by:?}: only {sent} were held");
        b.bind(LATE, in_order(&next)).unwrap();
        for number in sent..sent + 200 {
            run(&[&a, &b], || {
                a.try_send_with(1, LATE, &requests(1), &message(number))
                    .is_ok()
            });
        }
        run(&[&a, &b], || *next.lock().unwrap() == sent + 200);
    }
}

#[test]
fn copies_of_a_stopped_flow_leave_memory_to_others() {
    for by in ALL {
        let settings = Config {
            copy_bytes: 400_000,
            ..small()
        };
        let (a, b) = pair(by, &settings);
        let got = takes_all(&b);
        let long = |_| pattern(70_000, 1);
        assert!(send_all_that_goes(&a, &b, &requests(1), long) > 0);
        // One at a time may even be longer than all of that memory.
        for (n, bytes) in [70_000, 70_000, 70_000, 900_000].into_iter().enumerate() {
            let bytes = pattern(bytes, 2);
            run(&[&a, &b], || {
                a.try_send_with(1, TAKEN, &requests(2), &bytes).is_ok()
            });
            run(&[&a, &b], || got.get() == n as u64 + 1);
        }
    }
}

#[test]
fn lent_messages_wait_in_their_senders_memory() {
    const LONG: usize = 3 << 20;
    for by in ALL {
        let (a, b) = pair(by, &small());
        let bytes: Arc<[u8]> = pattern(LONG, 3).into();
        let mut ops: Vec<OpId> = Vec::new();
        let got = takes_all(&b);
        // The first asks whether it may be copied.
        let first = a
            .post_message(1, TAKEN, &requests(1), Arc::clone(&bytes))
            .unwrap();
        run(&[&a, &b], ended(&a, first));
        for _ in 0..100 {
            let sent = a.post_message(1, LATE, &requests(1), Arc::clone(&bytes));
            ops.extend(sent.ok());
            a.progress().unwrap();
            b.progress().unwrap();
        }
        // By the ring, and in packets, the first stops the others at their sender.
        assert!(ops.len() > usize::from(by == By::Shm), "{by:?}");
        settle(&[&a, &b]);
        a.try_send_with(1, TAKEN, &requests(2), b"apart").unwrap();
        run(&[&a, &b], || got.get() == 2);
        let came = Count::default();
        let log = came.clone();
        b.bind(
            LATE,
            Binding::to(move |_, m| {
                assert!(m.payload == pattern(LONG, 3));
                log.add();
            })
            .with_buffer(vec![0; LONG]),
        )
        .unwrap();
        let all = ops.len() as u64;
        run(&[&a, &b], || came.get() == all);
        run(&[&a, &b], || {
            ops.retain(|op| !a.has_ended(*op).unwrap());
            ops.is_empty()
        });
    }
}

#[test]
fn what_waits_is_refused_when_the_port_closes_or_the_endpoint() {
    for by in ALL {
        for whole_endpoint in [false, true] {
            let settings = Config {
                unexpected_bytes: 16 << 10,
                unexpected_share: 16 << 10,
                ..helped()
            };
            let (a, b) = pair(by, &settings);
            let refused = Count::default();
            let log = refused.clone();
            a.on_error(move |_, event| {
                if let Event::Refused { flow: 1, .. } = event {
                    log.add();
                }
            })
            .unwrap();
            let short = |number: u64| number.to_le_bytes().to_vec();
            let sent = send_all_that_goes(&a, &b, &requests(1), short);
            if whole_endpoint {
                let closes = std::thread::spawn(move || {
                    b.close().unwrap();
                    b
                });
                run(&[&a], || closes.is_finished());
                run(&[&a], || a.death(1).unwrap() == Some(Death::Closed));
            } else {
                b.close_port(LATE).unwrap();
                run(&[&a, &b], || refused.get() == sent);
                // Bound anew it takes messages again.
                let got = Count::default();
                let log = got.clone();
                b.bind(LATE, Binding::to(move |_, _| log.add())).unwrap();
                run(&[&a, &b], || {
                    a.try_send_with(1, LATE, &requests(1), b"again").is_ok()
                });
                run(&[&a, &b], || got.get() == 1);
            }
        }
    }
}

#[test]
fn what_a_rank_sent_before_its_end_is_taken_afterwards() {
    for by in [By::Shm, By::Ring] {
        let (a, b) = pair(by, &small());
        let short = |number: u64| number.to_le_bytes().to_vec();
        let sent = send_all_that_goes(&a, &b, &requests(1), short);
        a.close().unwrap();
        run(&[&b], || b.death(0).unwrap().is_some());
        let next = Arc::new(Mutex::new(0u64));
        let log = Arc::clone(&next);
        b.bind(
            LATE,
            Binding::to(move |_, m| {
                let mut next = log.lock().unwrap();
                assert_eq!(m.payload, next.to_le_bytes());
                *next += 1;
            }),
        )
        .unwrap();
        run(&[&b], || *next.lock().unwrap() == sent);
    }
}

#[test]
fn of_a_rank_that_dies_what_has_not_come_whole_goes() {
    for by in ALL {
        let mut all = job(by, 3, &small());
        let c = all.pop().unwrap();
        let (b, a) = (all.pop().unwrap(), all.remove(0));
        send_all_that_goes(&a, &b, &requests(1), message);
        b.peer_died(0).unwrap();
        run(&[&b], || b.death(0).unwrap().is_some());
        // Others are served as before, in the same flow.
        let got = takes_all(&b);
        for n in 0..100 {
            run(&[&c, &b], || {
                c.try_send_with(1, TAKEN, &requests(1), &message(n)).is_ok()
            });
        }
        run(&[&c, &b], || got.get() == 100);
        let next = Arc::default();
        b.bind(LATE, in_order(&next)).unwrap();
        settle(&[&b, &c]);
    }
}

#[test]
fn a_barrier_passes_flows_that_wait() {
    for by in ALL {
        let settings = Config {
            unexpected_bytes: 16 << 10,
            unexpected_share: 16 << 10,
            threads: Threads::Serialized,
            ..helped()
        };
        let (a, b) = pair(by, &settings);
        for flow in 0..portolan_runtime::FLOWS_MAX {
            send_all_that_goes(&a, &b, &requests(flow), message);
        }
        let other = std::thread::spawn(move || {
            for _ in 0..10 {
                b.barrier().unwrap();
            }
            b
        });
        for _ in 0..10 {
            a.barrier().unwrap();
        }
        other.join().unwrap();
    }
}
