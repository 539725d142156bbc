//! Endpoints outside of a job: several in one process, which add and remove each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use portolan::{
    AddPeerError, Binding, Config, Death, Endpoint, Event, Misuse, Selector, SendError,
};

const PORT: u16 = 7;

fn open() -> Endpoint {
    open_with(Config::default())
}

fn open_with(config: Config) -> Endpoint {
    let config = config.set("interface", "lo").set("link", "udp");
    Endpoint::open_standalone(config).unwrap()
}

/// Makes progress of all until `done`; fails after a minute.
fn until(all: &[&Endpoint], mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "it did not come to that");
        let moved = all.iter().map(|ep| ep.progress().unwrap()).sum::<usize>();
        if moved == 0 {
            std::thread::yield_now();
        }
    }
}

/// What has come, and from whom last.
#[derive(Default)]
struct Heard {
    from: AtomicU32,
    count: AtomicU64,
    sum: AtomicU64,
}

fn listen(ep: &Endpoint) -> Arc<Heard> {
    let heard = Arc::new(Heard::default());
    let to = Arc::clone(&heard);
    let binding = Binding::to(move |_, m| {
        to.from.store(m.from, Ordering::Relaxed);
        to.sum.fetch_add(
            m.payload.iter().map(|b| u64::from(*b)).sum(),
            Ordering::Relaxed,
        );
        to.count.fetch_add(1, Ordering::Relaxed);
    });
    ep.bind(PORT, binding).unwrap();
    heard
}

#[test]
fn a_stranger_is_let_in_and_answered() {
    let (a, b) = (open(), open());
    assert_eq!((a.rank(), a.size()), (0, 1));
    let heard = listen(&b);
    let there = a.add_peer(&b.address()).unwrap();
    assert_eq!(there, 1);
    assert_eq!(a.add_peer(&b.address()).unwrap(), there, "the same again");
    a.send(there, PORT, &[1, 2, 3]).unwrap();
    until(&[&a, &b], || heard.count.load(Ordering::Relaxed) == 1);
    let back = heard.from.load(Ordering::Relaxed);
    assert_eq!((back, heard.sum.load(Ordering::Relaxed)), (1, 6));
    let answer = listen(&a);
    b.send(back, PORT, &[9]).unwrap();
    until(&[&a, &b], || answer.count.load(Ordering::Relaxed) == 1);
    assert_eq!(answer.from.load(Ordering::Relaxed), there);
    // Adding it later finds it.
    assert_eq!(b.add_peer(&a.address()).unwrap(), back);
}
