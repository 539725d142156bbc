//! Ports that say where each message goes, on every lane.

use std::sync::{Arc, Mutex};

use crate::common::{ALL, By, Count, config, helped, pair, pattern, run, settle};
use portolan_runtime::{
    Binding, Buffer, Config, Event, Placement, SendError, SendOptions, Space, Threads,
};
use portolan_wire::Priority;

/// The port that places, and one beside it.
const PLACED: u16 = 4;
const BESIDE: u16 = 5;

/// Message lengths from empty to several of everything that moves bytes.
const LENGTHS: [usize; 7] = [0, 1, 60, 1_400, 9_000, 300_000, 3 << 20];

fn options<'a>(flow: u16, args: &'a [u64]) -> SendOptions<'a> {
    SendOptions {
        flow,
        args,
        ..SendOptions::default()
    }
}

/// Sends as soon as there is credit.
fn send(a: &Space, b: &Space, port: u16, o: &SendOptions<'_>, bytes: &[u8]) {
    run(&[a, b], || match a.try_send_with(1, port, o, bytes) {
        Ok(_) => true,
        Err(SendError::NoCredit) => false,
        Err(e) => panic!("{e}"),
    });
}

/// Everything that came of a message, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The function was asked: word, total.
    Asked(u64, u64),
    /// The handler ran: word, bytes that it saw, total, whether they were as sent.
    Ran(u64, usize, u64, bool),
}

type Steps = Arc<Mutex<Vec<Step>>>;

/// A port whose function answers as `to` says of (word, total).
fn placing(steps: &Steps, to: impl Fn(u64, u64) -> Placement + Send + 'static) -> Binding {
    let (asked, ran) = (Arc::clone(steps), Arc::clone(steps));
    Binding::to(move |_, m| {
        let good = m.payload == &pattern(m.total as usize, m.arg(0) as u8)[..m.payload.len()];
        let step = Step::Ran(m.arg(0), m.payload.len(), m.total, good);
        ran.lock().unwrap().push(step);
    })
    .placing(move |m| {
        assert_eq!((m.from, m.port, m.flow), (0, PLACED, 1));
        assert!(m.payload.len() as u64 <= m.total);
        let mut asked = asked.lock().unwrap();
        asked.push(Step::Asked(m.arg(0), m.total));
        to(m.arg(0), m.total)
    })
}

#[test]
fn each_message_lies_where_it_was_placed() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let steps = Steps::default();
        // Of three messages one is given more room than it needs, one is cut, and one stays
        // where it is.
        let place = |word, total: u64| match word % 3 {
            0 => Placement::Into(vec![0; total as usize + 3].into()),
            1 => Placement::Into(vec![0; total as usize / 3].into()),
            _ => Placement::Here,
        };
        b.bind(PLACED, placing(&steps, place)).unwrap();
        let mut wanted = Vec::new();
        for (word, len) in (0..).zip(LENGTHS.iter().flat_map(|len| [*len; 3])) {
            let seen = if word % 3 == 1 { len / 3 } else { len };
            let bytes = pattern(len, word as u8);
            send(&a, &b, PLACED, &options(1, &[word]), &bytes);
            wanted.push(Step::Asked(word, len as u64));
            wanted.push(Step::Ran(word, seen, len as u64, true));
            let count = wanted.len();
            run(&[&a, &b], || steps.lock().unwrap().len() >= count);
            // The memory comes back, with the bytes in it.
            let back = b.take_buffer(PLACED).unwrap();
            if word % 3 < 2 {
                let (buffer, filled) = back.expect("it was placed");
                assert_eq!(filled, seen, "{by:?}");
                assert_eq!(buffer.as_slice()[..filled], bytes[..filled]);
            } else {
                assert!(back.is_none());
            }
        }
        assert_eq!(*steps.lock().unwrap(), wanted, "{by:?}");
    }
}

#[test]
fn messages_to_oneself_are_placed_too() {
    let (a, b) = pair(By::Udp, &config());
    let steps = Steps::default();
    let turns = Count::default();
    let place = move |_, total: u64| {
        turns.add();
        match turns.get() {
            1 => Placement::Later,
            _ => Placement::Into(vec![0; total as usize / 2].into()),
        }
    };
    a.bind(PLACED, placing(&steps, place)).unwrap();
    for word in [0, 1] {
        let bytes = pattern(100, word as u8);
        a.send_with(0, PLACED, &options(1, &[word]), &bytes)
            .unwrap();
    }
    settle(&[&a, &b]);
    a.resume_port(PLACED).unwrap();
    settle(&[&a, &b]);
    let (asked, ran) = (
        |word| Step::Asked(word, 100),
        |word| Step::Ran(word, 50, 100, true),
    );
    let wanted = [asked(0), asked(0), ran(0), asked(1), ran(1)];
    assert_eq!(*steps.lock().unwrap(), wanted);
    for word in [0, 1] {
        let (buffer, filled) = a.take_buffer(PLACED).unwrap().expect("it was placed");
        assert_eq!(buffer.as_slice()[..filled], pattern(100, word)[..50]);
    }
}

#[test]
fn a_paused_port_waits_and_other_flows_go_on() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (steps, beside) = (Steps::default(), Count::default());
        let open = Count::default();
        let gate = open.clone();
        b.bind(
            PLACED,
            placing(&steps, move |_, total| match gate.get() {
                0 => Placement::Later,
                _ => Placement::Into(vec![0; total as usize].into()),
            }),
        )
        .unwrap();
        let log = beside.clone();
        b.bind(BESIDE, Binding::to(move |_, _| log.add())).unwrap();
        // Until the sender is stopped.
        let (mut sent, mut vain) = (0u64, 0);
        while vain < 1_000 {
            let len = [8, 900, 20_000][sent as usize % 3];
            match a.try_send_with(1, PLACED, &options(1, &[sent]), &pattern(len, sent as u8)) {
                Ok(_) => (sent, vain) = (sent + 1, 0),
                Err(SendError::NoCredit) => vain += 1,
                Err(e) => panic!("{e}"),
            }
            run(&[&a, &b], || true);
            settle(&[&a, &b]);
            assert!(sent < 100_000, "nothing stops it");
        }
        for n in 0..500 {
            send(&a, &b, BESIDE, &options(2, &[]), b"beside");
            run(&[&a, &b], || beside.get() == n + 1);
        }
        // It was asked once, about the first.
        assert_eq!(*steps.lock().unwrap(), [Step::Asked(0, 8)], "{by:?}");
        open.add();
        settle(&[&a, &b]);
        assert_eq!(steps.lock().unwrap().len(), 1, "it was not resumed");
        b.resume_port(PLACED).unwrap();
        let ran = |steps: &Steps| {
            let steps = steps.lock().unwrap();
            let ran = steps.iter().filter_map(|step| match step {
                Step::Ran(word, _, _, good) => Some((*word, *good)),
                Step::Asked(..) => None,
            });
            ran.collect::<Vec<_>>()
        };
        run(&[&a, &b], || ran(&steps).len() as u64 == sent);
        let in_order: Vec<_> = (0..sent).map(|word| (word, true)).collect();
        assert_eq!(ran(&steps), in_order, "{by:?}");
        // And goes on.
        send(
            &a,
            &b,
            PLACED,
            &options(1, &[sent]),
            &pattern(5, sent as u8),
        );
        run(&[&a, &b], || ran(&steps).len() as u64 == sent + 1);
    }
}

#[test]
fn what_came_before_the_port_was_bound_is_placed_too() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        for word in 0..20 {
            let bytes = pattern(100 * word as usize, word as u8);
            send(&a, &b, PLACED, &options(1, &[word]), &bytes);
        }
        settle(&[&a, &b]);
        let steps = Steps::default();
        let turns = Count::default();
        // Each second time it says: later.
        b.bind(
            PLACED,
            placing(&steps, move |_, total| {
                turns.add();
                match turns.get() % 2 {
                    1 => Placement::Later,
                    _ => Placement::Into(vec![0; total as usize].into()),
                }
            }),
        )
        .unwrap();
        for word in 0..20u64 {
            let len = 100 * word;
            let asked = || steps.lock().unwrap().len() as u64 == 3 * word + 1;
            run(&[&a, &b], asked);
            settle(&[&a, &b]);
            assert!(asked(), "{by:?}: it is asked again, though it has paused");
            b.resume_port(PLACED).unwrap();
            run(&[&a, &b], || {
                steps.lock().unwrap()[3 * word as usize + 1..].starts_with(&[
                    Step::Asked(word, len),
                    Step::Ran(word, len as usize, len, true),
                ])
            });
        }
    }
}

#[test]
fn memory_of_a_message_that_never_comes_whole_comes_back() {
    // Where memory is copied between processes, nothing is ever half there.
    for by in [By::Ring, By::Udp] {
        let (a, b) = pair(by, &config());
        let asked = Count::default();
        let log = asked.clone();
        let mut room = vec![0u8; 8 << 20];
        let start = room.as_mut_ptr() as usize;
        b.bind(
            PLACED,
            Binding::to(|_, _| panic!("it never comes whole")).placing(move |m| {
                log.add();
                // SAFETY: `room` lives until the port is closed below.
                Placement::Into(unsafe { Buffer::lent(start as *mut u8, m.total as usize) })
            }),
        )
        .unwrap();
        let bytes = pattern(8 << 20, 1);
        let _sent = a.post_message(1, PLACED, &options(1, &[1]), bytes).unwrap();
        // Not to its end: only one of them makes progress now and then.
        while asked.get() == 0 {
            a.progress().unwrap();
            b.progress().unwrap();
        }
        b.peer_died(0).unwrap();
        run(&[&b], || b.death(0).unwrap().is_some());
        let (buffer, filled) = b.take_buffer(PLACED).unwrap().expect("it is ours again");
        assert_eq!((buffer.len(), filled), (8 << 20, 0), "{by:?}");
        b.close_port(PLACED).unwrap();
        drop(room);
    }
}

#[test]
fn the_helper_thread_asks_only_where_it_may() {
    for by in ALL {
        for any_thread in [false, true] {
            let settings = Config {
                threads: Threads::Serialized,
                ..helped()
            };
            let (a, b) = pair(by, &settings);
            let me = std::thread::current().id();
            let (asked, elsewhere) = (Count::default(), Count::default());
            let (log, other) = (asked.clone(), elsewhere.clone());
            let binding = Binding::to(|_, _| ()).placing(move |m| {
                if std::thread::current().id() != me {
                    other.add();
                }
                log.add();
                Placement::Into(vec![0; m.total as usize].into())
            });
            let binding = if any_thread {
                binding.any_thread()
            } else {
                binding
            };
            b.bind(PLACED, binding).unwrap();
            let mut sent = 0;
            if any_thread {
                // Until the helper thread has asked: nobody else can, where nobody calls.
                while elsewhere.get() == 0 {
                    a.send_with(1, PLACED, &options(1, &[]), &pattern(9_000, 1))
                        .unwrap();
                    sent += 1;
                    while asked.get() < sent {
                        std::thread::yield_now();
                    }
                }
            } else {
                // As many as are taken while nobody asks about them.
                while sent < 3 {
                    a.send_with(1, PLACED, &options(1, &[]), &pattern(9_000, 1))
                        .unwrap();
                    sent += 1;
                }
                b.wait_until(|| asked.get() == sent).unwrap();
                assert_eq!(elsewhere.get(), 0, "{by:?}");
            }
        }
    }
}

#[test]
fn a_panic_pauses_and_a_closed_port_refuses() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let refused = Count::default();
        let log = refused.clone();
        a.on_error(move |_, event| {
            if matches!(event, Event::Refused { .. }) {
                log.add();
            }
        })
        .unwrap();
        b.bind(
            PLACED,
            Binding::default().placing(|_| panic!("as the test wants")),
        )
        .unwrap();
        a.try_send_with(1, PLACED, &options(1, &[]), b"one")
            .unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            run(&[&a, &b], || false);
        }));
        assert!(panicked.is_err());
        a.try_send_with(1, PLACED, &options(1, &[]), b"two")
            .unwrap();
        settle(&[&a, &b]);
        assert_eq!(refused.get(), 0);
        b.close_port(PLACED).unwrap();
        run(&[&a, &b], || refused.get() == 2);
    }
}

#[test]
fn what_had_begun_before_the_port_was_bound_waits_while_it_pauses() {
    // Elsewhere a message is there at once.
    let (a, b) = pair(By::Udp, &config());
    let long = pattern(900_000, 9);
    let o = options(1, &[9]);
    let sent = a.post_message(1, PLACED, &o, long).unwrap();
    while b.counters().unwrap().kept == 0 {
        a.progress().unwrap();
        b.progress().unwrap();
    }
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (log, open) = (Arc::clone(&asked), Count::default());
    let gate = open.clone();
    let came = Count::default();
    let ran = came.clone();
    let binding = Binding::to(move |_, _| ran.add()).placing(move |m| {
        log.lock().unwrap().push(m.arg(0));
        match gate.get() {
            0 => Placement::Later,
            _ => Placement::Into(vec![0; m.total as usize].into()),
        }
    });
    b.bind(PLACED, binding).unwrap();
    send(&a, &b, PLACED, &options(2, &[1]), b"first");
    run(&[&a, &b], || !asked.lock().unwrap().is_empty());
    run(&[&a, &b], || a.has_ended(sent).unwrap());
    settle(&[&a, &b]);
    assert_eq!(asked.lock().unwrap().len(), 1, "the port has paused");
    open.add();
    b.resume_port(PLACED).unwrap();
    run(&[&a, &b], || came.get() == 2);
    // About one of them twice.
    assert_eq!(asked.lock().unwrap().len(), 3);
}

#[test]
fn a_reply_behind_kept_requests_lets_them_go_on_though_the_outbox_is_full() {
    for by in [By::Shm, By::Ring] {
        let small = Config {
            reply_bytes: 16 << 10,
            ..config()
        };
        let (a, b) = pair(by, &small);
        let send = |port, priority| {
            let o = SendOptions {
                priority,
                ..options(1, &[0])
            };
            a.try_send_with(1, port, &o, &pattern(100, 0))
        };
        send(PLACED, Priority::Request).unwrap();
        run(&[&b], || b.counters().unwrap().kept == 1);
        // From here on only this rank makes progress: what it answers is not taken.
        let answered = Count::default();
        let log = answered.clone();
        let answer = Binding::to(move |c, _| {
            let _ = c.reply(&[], &pattern(1_000, 1));
            log.add();
        });
        b.bind(BESIDE, answer).unwrap();
        let mut last = None;
        while last != Some(answered.get()) {
            last = Some(answered.get());
            let _ = send(BESIDE, Priority::Request);
            settle(&[&b]);
        }
        let steps = Steps::default();
        b.bind(PLACED, placing(&steps, |_, _| Placement::Here))
            .unwrap();
        settle(&[&b]);
        assert_eq!(*steps.lock().unwrap(), [], "{by:?}: its outbox is not full");
        send(PLACED, Priority::Reply).unwrap();
        let both = vec![[Step::Asked(0, 100), Step::Ran(0, 100, 100, true)]; 2].concat();
        run(&[&b], || steps.lock().unwrap().len() == both.len());
        assert_eq!(*steps.lock().unwrap(), both);
    }
}
