//! What a close leaves behind when handlers panic in it or other threads call.

use std::future::Future;
use std::net::{Ipv4Addr, UdpSocket};
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::published::{LONG, Watched, in_time, possible};
use crate::common::{ALL, By, Count, config, helped, job, opening, pair, pattern, peer, run};
use portolan_runtime::{
    Binding, Config, Death, Misuse, Notify, OpId, Place, PutOptions, RegisterError, RemoteKey,
    Rights, Selector, SendError, SendOptions, Space, TaggedOptions, Threads, WaitError,
};

/// Settings for an endpoint that now one thread calls and now another.
fn settings() -> Config {
    Config {
        threads: Threads::Serialized,
        // What is sent to a rank ends when that rank makes calls, not before.
        helper: false,
        ..helped()
    }
}

/// A port whose handler does not return before it is told to.
const HOLD: u16 = 9;

/// Tells when its handler runs, and lets it return.
struct Hold {
    runs: Receiver<()>,
    go: Sender<()>,
}

impl Hold {
    fn of(e: &Space) -> Self {
        let (tell, runs) = mpsc::channel();
        let (go, wait) = mpsc::channel::<()>();
        let hold = Binding::to(move |_, _| {
            tell.send(()).unwrap();
            let _ = wait.recv();
        });
        e.bind(HOLD, hold).unwrap();
        Self { runs, go }
    }
}

/// Calls `act` with rank 1, which receives in `memory` a message of rank 0's,
/// which does not come to copy its half before the hold lets it go.
fn while_shown(sender: &Space, receiver: Space, memory: &Watched, act: impl FnOnce(&Hold, Space)) {
    let hold = Hold::of(sender);
    thread::scope(|s| {
        s.spawn(|| {
            // The receiver closes.
            let ended = sender.send_tagged(1, 5, &pattern(LONG, 1));
            assert!(ended.is_err());
        });
        while receiver.probe(&Selector::any(5)).unwrap().is_none() {}
        receiver.send(0, HOLD, b"").unwrap();
        hold.runs.recv().unwrap();
        let selector = Selector::any(5);
        let into = memory.lend();
        (receiver.post_receive(&selector, into, Notify::default())).unwrap();
        // Our half is here, theirs is not.
        assert_ne!(memory.byte(LONG - 1), 0xaa);
        assert_eq!(memory.byte(LONG / 4), 0xaa);
        act(&hold, receiver);
    });
}

/// What a handler panics with.
const PANIC: &str = "of a handler";

/// Rank 1 closes by `close`, in which a handler of its panics twice; gives what
/// comes out.
fn panic_in_close(e: Space, other: &Space, close: impl FnOnce(Space)) -> &'static str {
    // An operation that another rank ends soon: before that the handler runs.
    let got = Count::default();
    let log = got.clone();
    other.bind(1, Binding::to(move |_, _| log.add())).unwrap();
    let options = SendOptions::default();
    let long = pattern(3_000_000, 2);
    e.post_message(other.rank(), 1, &options, long).unwrap();
    let mut panics = [PANIC, "of the next"].into_iter();
    let (runs, has_run) = mpsc::channel();
    let handler = Binding::to(move |_, _| {
        let _ = runs.send(());
        panic_any(panics.next().unwrap())
    });
    e.bind(1, handler).unwrap();
    for _ in 0..2 {
        e.try_send(e.rank(), 1, b"").unwrap();
    }
    let got = &got;
    let caught = thread::scope(|s| {
        s.spawn(move || {
            // The close waits for this until the handler has run.
            has_run.recv().unwrap();
            run(&[other], || got.get() == 1);
        });
        catch_unwind(AssertUnwindSafe(|| close(e)))
    });
    run(&[other], || other.death(1).unwrap() == Some(Death::Closed));
    caught.unwrap_err().downcast_ref::<&str>().unwrap()
}

/// Ranks 0 and 1, which copy from each other, and a third.
fn three() -> Option<[Space; 3]> {
    let all: [Space; 3] = job(By::Shm, 3, &settings()).try_into().unwrap();
    possible(&all[0], &all[1]).then_some(all)
}

#[test]
fn a_panic_in_a_close_comes_out_when_memory_is_hidden() {
    in_time(|| {
        let Some([sender, receiver, other]) = three() else {
            return;
        };
        let mut memory = vec![0xaa; LONG];
        let memory = Watched::of(&mut memory);
        while_shown(&sender, receiver, &memory, |hold, receiver| {
            let out = panic_in_close(receiver, &other, |receiver| {
                let closed = catch_unwind(AssertUnwindSafe(|| receiver.close()));
                assert!(memory.is_left_alone(|| hold.go.send(()).unwrap()));
                // It is closed nonetheless.
                assert_eq!(receiver.close(), Err(Misuse::Closed.into()));
                resume_unwind(closed.unwrap_err());
            });
            assert_eq!(out, PANIC);
        });
    });
}

#[test]
fn a_drop_goes_on_with_a_panic_unless_there_is_one() {
    for (panics, expected) in [(false, PANIC), (true, "of the program")] {
        let (other, e) = pair(By::Shm, &settings());
        let out = panic_in_close(e, &other, |e| {
            let _e = e;
            if panics {
                panic_any("of the program");
            }
        });
        assert_eq!(out, expected);
    }
}

/// Panics when it is woken.
struct Alarm;

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        panic_any("of a waker");
    }
}

#[test]
fn a_drop_ends_a_close_that_did_not_come_to_its_end() {
    let (a, b) = pair(By::Udp, &settings());
    let waker = Waker::from(Arc::new(Alarm));
    let mut context = Context::from_waker(&waker);
    let arrival = pin!(a.arrival().unwrap());
    assert!(arrival.poll(&mut context).is_pending());
    // Its acknowledgement comes during the close.
    let options = SendOptions::default();
    a.post_message(1, 1, &options, pattern(LONG, 1)).unwrap();
    thread::scope(|s| {
        s.spawn(|| run(&[&b], || b.death(0).unwrap() == Some(Death::Closed)));
        let closed = catch_unwind(AssertUnwindSafe(|| a.close()));
        assert!(closed.is_err());
        assert_eq!(a.close(), Err(Misuse::Closed.into()));
        drop(a);
    });
}

#[test]
fn a_drop_by_another_thread_closes() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let got = Count::default();
        let log = got.clone();
        b.bind(1, Binding::to(move |_, _| log.add())).unwrap();
        let options = SendOptions::default();
        a.post_message(1, 1, &options, pattern(3_000_000, 1))
            .unwrap();
        thread::scope(|s| {
            s.spawn(|| {
                drop(a);
            });
            let closed = || b.death(0).unwrap() == Some(Death::Closed);
            run(&[&b], || got.get() == 1 && closed());
        });
    }
}

/// Closes while another thread makes calls, which are misuse.
fn close_among_calls(e: &Space) {
    let over = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !over.load(Relaxed) {
                let _ = e.progress();
            }
        });
        let closed = loop {
            match e.close() {
                // Nothing was done.
                Err(WaitError::Misuse(Misuse::Concurrent)) => {}
                closed => break closed,
            }
        };
        over.store(true, Relaxed);
        assert_eq!(closed, Ok(()));
    });
}

#[test]
fn a_close_is_not_disturbed_by_calls_that_come_meanwhile() {
    in_time(|| {
        for _ in 0..100 {
            let (e, other) = pair(By::Shm, &settings());
            close_among_calls(&e);
            run(&[&other], || other.death(0).unwrap() == Some(Death::Closed));
        }
        let Some([sender, receiver, _]) = three() else {
            return;
        };
        let mut memory = vec![0xaa; LONG];
        let memory = Watched::of(&mut memory);
        while_shown(&sender, receiver, &memory, |hold, receiver| {
            close_among_calls(&receiver);
            assert!(memory.is_left_alone(|| hold.go.send(()).unwrap()));
        });
    });
}

#[test]
fn who_is_asked_without_end_closes_all_the_same() {
    type Ask = fn(&Space, RemoteKey) -> bool;
    const WORDS: usize = 4_096;
    let put: Ask = |e, key| {
        let (to, from) = (Place { key, offset: 0 }, vec![1; 8]);
        e.post_put(1, to, from, &PutOptions::default())
            .is_ok_and(|op| e.wait_end(op, None).is_ok())
    };
    let get: Ask = |e, key| {
        let (from, into) = (Place { key, offset: 0 }, vec![0; WORDS]);
        e.post_get(1, from, into, Notify::default())
            .is_ok_and(|op| e.wait_end(op, None).is_ok())
    };
    let refused: Ask = |e, _| match e.send(1, HOLD, b"nobody listens") {
        Err(SendError::NoCredit) => e.progress().is_ok(),
        sent => sent.is_ok(),
    };
    for ask in [put, get, refused] {
        let (a, b) = pair(By::Udp, &helped());
        b.close_port(HOLD).unwrap();
        let region = b.register(vec![0; WORDS], None, Rights::Both);
        let key = b.remote_key(region.unwrap()).unwrap().unwrap();
        let asked = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                while ask(&a, key) && a.death(1).unwrap().is_none() {
                    asked.store(true, Relaxed);
                }
            });
            b.wait_until(|| asked.load(Relaxed)).unwrap();
            assert_eq!(b.close(), Ok(()));
        });
    }
}

/// The peer keeps 1 MiB for ports that nobody has bound, and the rest lies in the
/// memory that they share, also behind what others have sent.
#[test]
fn what_was_sent_before_a_close_waits_for_its_port() {
    const PORTS: [u16; 2] = [77, 78];
    for by in [By::Shm, By::Ring] {
        for (bytes, beside) in [(60_000, false), (0, false), (60_000, true), (0, true)] {
            let [to, closes, stays] = job(by, 3, &settings()).try_into().unwrap();
            let send = |e: &Space, port| {
                let accepted = (0_u64..).take_while(|n| {
                    let number = n.to_le_bytes();
                    let sent = e.try_send(0, port, &[&number[..], &vec![7; bytes]].concat());
                    // It takes what it has room for.
                    to.progress().unwrap();
                    assert!(matches!(sent, Ok(_) | Err(SendError::NoCredit)), "{sent:?}");
                    sent.is_ok()
                });
                accepted.count() as u64
            };
            let sent = [
                send(&closes, PORTS[0]),
                if beside { send(&stays, PORTS[1]) } else { 0 },
            ];
            closes.close().unwrap();
            run(&[&to], || to.death(1).unwrap() == Some(Death::Closed));
            for (port, sent) in PORTS.into_iter().zip(sent) {
                let got = Count::default();
                let log = got.clone();
                let handler = Binding::to(move |_, m| {
                    assert_eq!(m.payload[..8], log.get().to_le_bytes());
                    log.add();
                });
                to.bind(port, handler).unwrap();
                run(&[&to, &stays], || got.get() == sent);
            }
        }
    }
}

/// Every one of them finds that its receiver is gone. It takes a fraction of a second; in
/// quadratic time it would take ten.
#[test]
fn many_sends_to_one_who_has_closed_end_at_once() {
    for by in [By::Shm, By::Ring] {
        let (a, b) = pair(by, &config());
        let send = || a.post_send(1, 1, &TaggedOptions::default(), [0; 8].to_vec());
        let ops: Vec<OpId> = (0..300_000).map(|_| send().unwrap()).collect();
        b.close().unwrap();
        let began = Instant::now();
        run(&[&a], || ops.iter().all(|op| a.has_ended(*op).unwrap()));
        assert!(began.elapsed() < Duration::from_secs(4));
    }
}

#[test]
fn who_has_closed_is_told_to_have_before_the_next_pass_too() {
    let closed = WaitError::PeerDead {
        rank: 1,
        why: Death::Closed,
    };
    for by in [By::Shm, By::Ring] {
        for bytes in [8, LONG] {
            let (a, b) = pair(by, &config());
            b.close().unwrap();
            assert_eq!(a.send_tagged(1, 1, &pattern(bytes, 7)), Err(closed));
        }
        let (a, b) = pair(by, &config());
        let region = b.register(vec![0; 8], None, Rights::Both).unwrap();
        let key = b.remote_key(region).unwrap().unwrap();
        b.close().unwrap();
        let place = Place { key, offset: 0 };
        let put = a.post_put(1, place, vec![7; 8], &PutOptions::default());
        assert_eq!(a.death(1).unwrap(), Some(Death::Closed));
        assert_eq!(a.wait(put.unwrap()).unwrap_err(), closed);
    }
}

#[test]
fn nothing_is_registered_once_it_is_closed() {
    let (e, _other) = pair(By::Shm, &config());
    let region = e.register(vec![0; 8], None, Rights::Both).unwrap();
    let mut memory = [0; 8];
    e.close().unwrap();
    let closed = RegisterError::from(Misuse::Closed);
    let (refused, back) = e.register(vec![7; 8], None, Rights::Both).unwrap_err();
    assert_eq!((refused, back.into_buffers().len()), (closed, 1));
    let again = e.register_again(region, 0, 8, None, Rights::Both);
    assert_eq!(again, Err(closed));
    // SAFETY: nothing is registered.
    let cached = unsafe { e.register_cached(memory.as_mut_ptr(), 8, Rights::Both) };
    assert_eq!(cached, Err(closed));
}

#[test]
fn packets_without_sense_keep_no_close_beyond_its_time() {
    in_time(|| {
        let config = Config {
            network: true,
            ..config()
        };
        let openings = [0, 1].map(|rank| opening(By::Udp, rank, &config));
        let port = openings[0].address().port;
        let peers = openings.each_ref().map(|it| peer(it, None));
        let [a, b] = openings.map(|it| it.finish(&peers, None, None).unwrap());
        // Nobody answers.
        a.inject_tagged(1, 1, &TaggedOptions::default(), b"x")
            .unwrap();
        let closed = AtomicBool::new(false);
        thread::scope(|s| {
            s.spawn(|| {
                let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                while !closed.load(Relaxed) {
                    let _ = socket.send_to(&[0x5a; 60], (Ipv4Addr::LOCALHOST, port));
                }
            });
            assert_eq!(a.close(), Err(WaitError::TimedOut));
            closed.store(true, Relaxed);
        });
        drop(b);
    });
}
