//! Who makes progress: threads, the helper, sleepers, event loops, futures.

use std::future::Future;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

use crate::common::{ALL, By, Count, PATIENCE, config, helped, job_watched, pair, pattern, run};
use portolan_runtime::{
    Binding, Config, Death, Event, Misuse, Notice, SendError, SendOptions, Threads, WaitError,
    Watch,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// What takes longer never ends.
const HANGS: Duration = Duration::from_secs(60);

/// Waits without any call to an endpoint.
fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "nothing comes of it");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn one_thread_is_told_from_others() {
    let (a, _b) = pair(By::Shm, &config());
    a.progress().unwrap();
    thread::scope(|s| {
        s.spawn(|| assert_eq!(a.progress().unwrap_err(), Misuse::WrongThread));
    });
    a.progress().unwrap();
}

#[test]
fn many_threads_send_and_wait_at_once() {
    for by in ALL {
        let many = Config {
            threads: Threads::Multiple,
            ..helped()
        };
        let (a, b) = pair(by, &many);
        b.bind(
            1,
            Binding::to(|c, m| c.reply(&[m.arg(0), m.arg(1)], m.payload).unwrap()),
        )
        .unwrap();
        let got: Vec<Count> = (0..4).map(|_| Count::default()).collect();
        let log = got.clone();
        a.bind(
            1,
            Binding::to(move |_, m| {
                assert_eq!(m.payload.len() as u64, m.arg(1));
                log[m.arg(0) as usize].add();
            }),
        )
        .unwrap();
        let over = Count::default();
        let log = over.clone();
        b.bind(2, Binding::to(move |_, _| log.add())).unwrap();
        thread::scope(|s| {
            for (n, mine) in (0u64..).zip(&got) {
                let a = &a;
                s.spawn(move || {
                    for i in 0..50 {
                        let bytes = pattern(if i % 10 == 0 { 30_000 } else { 8 }, 1);
                        let args = [n, bytes.len() as u64];
                        let o = SendOptions {
                            args: &args,
                            ..SendOptions::default()
                        };
                        a.send_with(1, 1, &o, &bytes).unwrap();
                        a.wait_until(|| mine.get() > i).unwrap();
                    }
                    a.send(1, 2, b"over").unwrap();
                });
            }
            b.wait_until(|| over.get() == 4)
                .unwrap_or_else(|e| panic!("{e}"));
        });
    }
}

#[test]
fn the_helper_drains_for_a_program_that_makes_no_calls() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let ran: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
        let log = Arc::clone(&ran);
        b.bind(
            1,
            Binding::to(move |_, _| log.lock().unwrap().push(thread::current().id())),
        )
        .unwrap();
        // Nothing but the helpers moves these.
        let op = a
            .post_message(1, 1, &SendOptions::default(), pattern(3_000_000, 1))
            .unwrap();
        until(|| a.has_ended(op).unwrap());
        assert!(
            ran.lock().unwrap().is_empty(),
            "{by:?}: the handler waits for a call"
        );
        b.wait_until(|| ran.lock().unwrap().len() == 1).unwrap();
        assert_eq!(ran.lock().unwrap()[0], thread::current().id());
        assert!(b.counters().unwrap().helped > 0);
    }
}

#[test]
fn the_helper_sends_what_gathers_behind_others() {
    // It is asked to: by itself it would look when this test has long failed.
    let asked = Config {
        takeover_ns: 3_600_000_000_000,
        ..helped()
    };
    for _ in 0..20 {
        let (a, b) = pair(By::Udp, &asked);
        let came = Count::default();
        let log = came.clone();
        b.bind(1, Binding::to(move |_, _| log.add())).unwrap();
        // Its end says how many packets may follow.
        let op = a
            .post_message(1, 1, &SendOptions::default(), pattern(5_000, 1))
            .unwrap();
        until(|| {
            a.progress().unwrap();
            b.progress().unwrap();
            a.has_ended(op).unwrap()
        });
        for _ in 0..4 {
            a.send(1, 1, b"short").unwrap();
        }
        until(|| {
            b.progress().unwrap();
            came.get() == 5
        });
    }
}

#[test]
fn the_helper_drains_after_a_panic_has_ended_a_wait() {
    for by in ALL {
        let sleepy = Config {
            spin_passes: 0,
            ..helped()
        };
        let (a, b) = pair(by, &sleepy);
        a.bind(1, Binding::to(|_, _| panic!("of this test")))
            .unwrap();
        a.bind(2, Binding::to(|_, _| {})).unwrap();
        thread::scope(|s| {
            s.spawn(|| {
                // By then the helper relies on the wait.
                thread::sleep(Duration::from_millis(50));
                b.send(0, 1, b"x").unwrap();
                let options = SendOptions::default();
                let op = b
                    .post_message(0, 2, &options, pattern(3_000_000, 1))
                    .unwrap();
                b.wait_end(op, Some(PATIENCE)).unwrap();
            });
            let ended = catch_unwind(AssertUnwindSafe(|| a.wait_until(|| false)));
            assert!(ended.is_err());
            // The program makes no call any more.
        });
    }
}

#[test]
fn handlers_for_any_thread_run_in_the_helper() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let ran: Arc<Mutex<Vec<ThreadId>>> = Arc::default();
        let log = Arc::clone(&ran);
        b.bind(
            1,
            Binding::to(move |c, _| {
                log.lock().unwrap().push(thread::current().id());
                c.reply(&[], b"from the helper").unwrap();
            })
            .any_thread(),
        )
        .unwrap();
        let got = Count::default();
        let log = got.clone();
        a.bind(1, Binding::to(move |_, _| log.add())).unwrap();
        for n in 1..=3 {
            a.send(1, 1, b"x").unwrap();
            a.wait_until(|| got.get() == n).unwrap();
        }
        assert!(
            ran.lock()
                .unwrap()
                .iter()
                .all(|id| *id != thread::current().id())
        );
    }
}

#[test]
fn sleepers_wake_each_other() {
    for by in ALL {
        for helper in [false, true] {
            let sleepy = Config {
                spin_passes: 0,
                helper,
                ..helped()
            };
            let (a, b) = pair(by, &sleepy);
            let rounds = 50;
            thread::scope(|s| {
                for (me, other) in [(&a, 1), (&b, 0)] {
                    s.spawn(move || {
                        let got = Count::default();
                        let log = got.clone();
                        me.bind(1, Binding::to(move |_, _| log.add())).unwrap();
                        for i in 0..rounds {
                            if other == 1 || i > 0 {
                                me.send(other, 1, b"ping").unwrap();
                            }
                            me.wait_until(|| got.get() > i).unwrap();
                        }
                        if other == 0 {
                            me.send(other, 1, b"last").unwrap();
                        }
                        // What is owed leaves before the thread does.
                        for _ in 0..100 {
                            me.progress().unwrap();
                            thread::sleep(Duration::from_micros(100));
                        }
                    });
                }
            });
            assert!(a.enter_counts() > 0 || b.enter_counts() > 0);
        }
    }
}

/// How often a wait without end has slept within `limit`, or until it has once.
fn sleeps_of_a_wait(by: By, yield_ns: u64, limit: Duration) -> u64 {
    let config = Config {
        spin_passes: 0,
        yield_ns,
        helper: false,
        ..helped()
    };
    let (a, _b) = pair(by, &config);
    let begun = Instant::now();
    loop {
        let wait = a.wait_timeout(Duration::from_millis(20), || false);
        assert_eq!(wait, Err(WaitError::TimedOut));
        let sleeps = a.counters().unwrap().sleeps;
        if sleeps > 0 || begun.elapsed() > limit {
            return sleeps;
        }
    }
}

#[test]
fn a_wait_without_yields_sleeps() {
    for by in ALL {
        assert!(sleeps_of_a_wait(by, 0, HANGS) > 0, "{by:?}");
    }
}

#[test]
fn a_wait_whose_yields_cost_slices_of_others_sleeps() {
    let over = AtomicBool::new(false);
    let one_core = || {
        let allowed = sched_getaffinity(None).unwrap();
        let core = (0..CpuSet::MAX_CPU).find(|&core| allowed.is_set(core));
        let mut only = CpuSet::new();
        only.set(core.unwrap());
        sched_setaffinity(None, &only).unwrap();
    };
    thread::scope(|s| {
        s.spawn(|| {
            one_core();
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let waits = s.spawn(|| {
            one_core();
            ALL.map(|by| sleeps_of_a_wait(by, u64::MAX, HANGS))
        });
        let sleeps = waits.join();
        over.store(true, Ordering::Relaxed);
        assert!(sleeps.unwrap().iter().all(|&sleeps| sleeps > 0));
    });
}

/// Whether a wait that comes after busy traffic has slept, and was then woken by a
/// message: nothing else would end its sleep.
fn is_woken_from_a_sleep(helper: bool) -> bool {
    // Then the sockets are in no set: the sleep puts them back.
    const ROUNDS: u64 = 2_000;
    let mut busy = Config {
        spin_passes: 20_000,
        close_ns: 100_000_000,
        helper,
        ..helped()
    };
    busy.proto.idle_ns = u64::MAX;
    let (a, b) = pair(By::Udp, &busy);
    let (rounds, woken) = (Count::default(), Count::default());
    let log = rounds.clone();
    let reply = Binding::to(move |c, _| {
        log.add();
        c.reply(&[], b"").unwrap();
    });
    b.bind(1, reply).unwrap();
    let log = woken.clone();
    b.bind(2, Binding::to(move |_, _| log.add())).unwrap();
    thread::scope(|s| {
        s.spawn(|| {
            let got = Count::default();
            let log = got.clone();
            a.bind(1, Binding::to(move |_, _| log.add())).unwrap();
            for round in 0..ROUNDS {
                a.send(1, 1, b"ping").unwrap();
                a.wait_until(|| got.get() > round).unwrap();
            }
            thread::sleep(Duration::from_millis(400));
            a.send(1, 2, b"wake up").unwrap();
            for _ in 0..100 {
                a.progress().unwrap();
                thread::sleep(Duration::from_micros(100));
            }
        });
        b.wait_until(|| rounds.get() == ROUNDS).unwrap();
        let before = b.counters().unwrap().sleeps;
        let wait = b.wait_timeout(HANGS, || woken.get() > 0);
        assert_eq!(wait, Ok(()), "slept through it");
        for _ in 0..100 {
            b.progress().unwrap();
        }
        b.counters().unwrap().sleeps > before
    })
}

#[test]
fn who_sleeps_after_busy_traffic_is_woken() {
    for helper in [false, true] {
        let begun = Instant::now();
        // On a busy machine the message may be there before the wait.
        while !is_woken_from_a_sleep(helper) {
            assert!(begun.elapsed() < PATIENCE, "it does not sleep");
        }
    }
}

trait Sleeps {
    fn enter_counts(&self) -> u64;
}

impl Sleeps for portolan_runtime::Space {
    /// Sleeps, if this thread may ask.
    fn enter_counts(&self) -> u64 {
        self.counters().map_or(1, |c| c.sleeps)
    }
}

#[test]
fn the_descriptor_wakes_other_event_loops() {
    use portolan_sys::epoll::Epoll;
    for by in ALL {
        for helper in [false, true] {
            let (a, b) = pair(by, &Config { helper, ..helped() });
            let got = Count::default();
            let log = got.clone();
            b.bind(1, Binding::to(move |_, _| log.add())).unwrap();
            let set = Epoll::new().unwrap();
            set.add(b.fd().unwrap(), 1).unwrap();
            thread::scope(|s| {
                s.spawn(|| {
                    for _ in 0..10 {
                        thread::sleep(Duration::from_millis(2));
                        a.send(1, 1, b"wake up").unwrap();
                    }
                    let until = Instant::now() + Duration::from_millis(50);
                    while Instant::now() < until {
                        a.progress().unwrap();
                    }
                });
                while got.get() < 10 {
                    if b.arm().unwrap() {
                        let limit_ns = PATIENCE.as_nanos() as u64;
                        let woken = set.wait(Some(limit_ns), |_| ()).unwrap();
                        assert!(woken > 0, "{by:?} helper {helper}: slept through a message");
                    }
                    b.progress().unwrap();
                }
            });
        }
    }
}

/// Runs one future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(out) => return out,
            Poll::Pending => thread::park_timeout(PATIENCE),
        }
    }
}

#[test]
fn futures_need_no_runtime() {
    for by in ALL {
        let (a, b) = pair(by, &helped());
        let got = Count::default();
        let log = got.clone();
        b.bind(1, Binding::to(move |_, _| log.add())).unwrap();
        let start = Instant::now();
        thread::scope(|s| {
            s.spawn(|| {
                thread::sleep(Duration::from_millis(5));
                let op = a
                    .post_message(1, 1, &SendOptions::default(), pattern(500_000, 1))
                    .unwrap();
                block_on(a.ended(op)).unwrap();
            });
            while got.get() == 0 {
                block_on(b.arrival().unwrap()).unwrap();
            }
        });
        assert!(start.elapsed() < PATIENCE, "{by:?}: woken, not timed out");
    }
}

/// Says one thing, once.
struct Once(Option<Notice>, Count);

impl Watch for Once {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // Always readable: the engine looks.
        None
    }
    fn poll(&mut self) -> Option<Notice> {
        self.0.take()
    }
    fn give_up(&mut self, _rank: u32, _restarts: u32, _why: Death, _starved: bool) {}
    fn leave(&mut self) {
        self.1.add();
    }
}

/// Has nothing to say, and counts how often it is asked.
struct Silent(UnixStream, Count);

impl Watch for Silent {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
    fn poll(&mut self) -> Option<Notice> {
        self.1.add();
        None
    }
    fn give_up(&mut self, _rank: u32, _restarts: u32, _why: Death, _starved: bool) {}
    fn leave(&mut self) {}
}

#[test]
fn news_of_processes_are_looked_for_though_packets_keep_coming() {
    // More passes that move something than lie between two looks.
    const PASSES: u64 = 70_000;
    let (mut launcher, news) = UnixStream::pair().unwrap();
    launcher.write_all(b"always readable").unwrap();
    let asked = Count::default();
    let all = job_watched(By::Udp, 2, &config(), |rank| {
        let watch = || Silent(news.try_clone().unwrap(), asked.clone());
        (rank == 1).then(|| Box::new(watch()) as Box<dyn Watch>)
    });
    let [a, b] = <[_; 2]>::try_from(all).unwrap();
    let got = Count::default();
    let log = got.clone();
    b.bind(1, Binding::to(move |_, _| log.add())).unwrap();
    a.send(1, 1, b"").unwrap();
    run(&[&a, &b], || got.get() == 1);
    let before = asked.get();
    let mut moved = 0;
    while asked.get() == before {
        assert!(moved < PASSES, "a look is due");
        a.send(1, 1, b"").unwrap();
        a.progress().unwrap();
        // A hundred in vain are no reason to look.
        let some = (0..100).find(|_| b.progress().unwrap() > 0);
        moved += u64::from(some.is_some());
    }
    assert!(moved > 1_000, "looked for by those in vain");
}

#[test]
fn a_death_ends_a_wait_that_sleeps() {
    let left = Count::default();
    let all = job_watched(By::Shm, 2, &config(), |rank| {
        (rank == 0).then(|| Box::new(Once(None, left.clone())) as Box<dyn Watch>)
    });
    let [a, b] = <[_; 2]>::try_from(all).unwrap();
    let told = Count::default();
    let log = told.clone();
    a.on_error(move |_, e| {
        assert_eq!(
            *e,
            Event::PeerDead {
                rank: 1,
                why: Death::Closed,
                lost: 0,
            }
        );
        log.add();
    })
    .unwrap();
    thread::scope(|s| {
        s.spawn(move || {
            thread::sleep(Duration::from_millis(10));
            b.close().unwrap();
        });
        let error = a.wait_until(|| false).unwrap_err();
        assert_eq!(
            error,
            WaitError::PeerDead {
                rank: 1,
                why: Death::Closed
            }
        );
    });
    run(&[&a], || told.get() == 1);
    a.close().unwrap();
    assert_eq!(
        left.get(),
        1,
        "whoever started us is told of the orderly end"
    );
}

#[test]
fn no_thread_takes_the_ring_meant_for_another() {
    // Each waits for its own message, asleep; all come at once, and whoever
    // takes them in is not the last to sleep.
    for by in ALL {
        let sleepy = Config {
            threads: Threads::Multiple,
            spin_passes: 0,
            ..helped()
        };
        let (a, b) = pair(by, &sleepy);
        let got: Vec<Count> = (0..6).map(|_| Count::default()).collect();
        let log = got.clone();
        a.bind(1, Binding::to(move |_, m| log[m.arg(0) as usize].add()))
            .unwrap();
        let rounds = 200;
        thread::scope(|s| {
            for mine in &got {
                s.spawn(|| {
                    for i in 0..rounds {
                        a.wait_timeout(PATIENCE, || mine.get() > i).unwrap();
                    }
                });
            }
            for i in 0..rounds {
                for n in 0..6 {
                    let o = SendOptions {
                        args: &[n],
                        ..SendOptions::default()
                    };
                    b.send_with(0, 1, &o, b"").unwrap();
                }
                if i % 4 == 0 {
                    thread::sleep(Duration::from_micros(300));
                }
            }
        });
    }
}

#[test]
fn close_ends_what_other_threads_wait_for() {
    for by in ALL {
        let many = Config {
            threads: Threads::Multiple,
            close_ns: 50_000_000,
            ..config()
        };
        let (a, b) = pair(by, &many);
        let bytes = vec![1; 100_000_000];
        thread::scope(|s| {
            // Nobody reads at the other end: this cannot complete.
            let long = s.spawn(|| a.send(1, 1, &bytes));
            let other = s.spawn(|| a.wait_until(|| false));
            until(|| a.counters().unwrap().sent == 1);
            assert_eq!(a.close(), Err(WaitError::TimedOut), "{by:?}");
            assert_eq!(
                long.join().unwrap(),
                Err(SendError::Misuse(Misuse::Closed)),
                "{by:?}"
            );
            assert_eq!(
                other.join().unwrap(),
                Err(WaitError::Misuse(Misuse::Closed)),
                "{by:?}"
            );
        });
        drop(b);
    }
}

#[test]
fn a_handlers_panic_comes_out_of_the_call_that_ran_it() {
    const MESSAGES: u64 = 64 * 40;
    for by in ALL {
        let many = Config {
            threads: Threads::Multiple,
            ..config()
        };
        let (a, b) = pair(by, &many);
        let (ran, log) = (Count::default(), Count::default());
        let counted = ran.clone();
        b.bind(
            1,
            Binding::to(move |_, _| {
                counted.add();
                if counted.get() % 64 == 0 {
                    panic_any(thread::current().id());
                }
            }),
        )
        .unwrap();
        // Runs a call, and checks whose panic comes out of it.
        let checked = |call: &dyn Fn()| {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(call)) {
                assert_eq!(
                    panic.downcast_ref(),
                    Some(&thread::current().id()),
                    "{by:?}"
                );
                log.add();
            }
        };
        let over = || ran.get() == MESSAGES;
        thread::scope(|s| {
            s.spawn(|| {
                while !over() {
                    checked(&|| _ = b.wait_timeout(Duration::from_millis(20), over));
                }
            });
            s.spawn(|| {
                while !over() {
                    checked(&|| _ = b.progress().unwrap());
                }
            });
            for _ in 0..MESSAGES {
                a.send(1, 1, b"").unwrap();
            }
            until(|| {
                a.progress().unwrap();
                over()
            });
        });
        // A pass that runs several such handlers resumes the first panic only.
        assert!((1..=MESSAGES / 64).contains(&log.get()), "{by:?}");
    }
}
