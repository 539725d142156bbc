//! Peers of endpoints outside of a job: what is refused, and with which words.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use portolan::{
    AddPeerError, Binding, Config, Context, Death, Endpoint, Event, Group, Misuse, OpenError,
    SendError, SendOptions, WaitError,
};

const PORT: u16 = 7;

fn open_with(name: &str, value: &str) -> Endpoint {
    let config = Config::default().set("interface", "lo").set(name, value);
    Endpoint::open_standalone(config).unwrap()
}

fn open() -> Endpoint {
    open_with("link", "udp")
}

fn until(all: &[&Endpoint], mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "it did not come to that");
        all.iter().for_each(|ep| _ = ep.progress().unwrap());
        std::thread::yield_now();
    }
}

#[test]
fn what_cannot_be_added_says_why() {
    let (a, b) = (open(), open());
    let says = |address: &[u8; 64], words: &str| {
        let why = a.add_peer(address).unwrap_err();
        assert!(matches!(why, AddPeerError::NoAddress(_)), "{why:?}");
        assert!(why.to_string().contains(words), "{why}");
    };
    let there = b.address();
    says(&[0; 64], "version");
    says(&std::array::from_fn(|i| [1, 7][i % 2]), "form");
    let mut longer = there;
    longer[63] = 1;
    says(&longer, "not zero");
    assert_eq!(a.add_peer(&a.address()), Err(AddPeerError::Myself));
    assert_eq!(a.add_peer(&there), Ok(1));
}

#[test]
fn what_needs_a_job_or_none_is_refused() {
    let a = open();
    assert_eq!(a.barrier(), Err(WaitError::Misuse(Misuse::NoJob)));
    let myself = Group::new(&[0]);
    assert_eq!(a.barrier_of(&myself), Err(WaitError::Misuse(Misuse::NoJob)));
    let refused = a.broadcast(&[0], PORT, &SendOptions::default(), b"x");
    assert_eq!(refused, Err(SendError::Misuse(Misuse::NoJob)));
    // A process that no launcher started is a job of one.
    let job = Endpoint::open(Config::default()).unwrap();
    let refused = Err(AddPeerError::Misuse(Misuse::InJob));
    assert_eq!(job.add_peer(&a.address()), refused);
    assert_eq!(job.remove_peer(0), Err(Misuse::InJob));
    assert!(matches!(
        a.add_peer(&job.address()),
        Err(AddPeerError::NoAddress(_))
    ));
    assert_ne!(job.job_id(), 0);
    assert_eq!(a.job_id(), 0);
    job.close().unwrap();
}

#[test]
fn settings_that_cannot_be_name_themselves() {
    for (name, value) in [
        ("link", "shm"),
        ("link", "tcp"),
        ("peers_max", "0"),
        ("unknown_peers", "some"),
        ("security", "much"),
        ("congestion", "none"),
    ] {
        let refused = Endpoint::open_standalone(Config::default().set(name, value)).unwrap_err();
        assert!(matches!(refused, OpenError::Setting(_)), "{refused:?}");
        assert!(refused.to_string().contains(name), "{refused}");
    }
}

#[test]
fn numbers_of_who_was_removed_are_used_again() {
    let (a, b, c) = (open_with("peers_max", "1"), open(), open());
    assert_eq!(a.add_peer(&b.address()), Ok(1));
    assert_eq!(a.add_peer(&c.address()), Err(AddPeerError::Full));
    assert_eq!(a.remove_peer(0), Err(Misuse::BadRank));
    assert_eq!(a.remove_peer(2), Err(Misuse::BadRank));
    a.remove_peer(1).unwrap();
    assert_eq!(a.remove_peer(1), Err(Misuse::BadRank));
    let removed = SendError::PeerDead {
        rank: 1,
        why: Death::Nobody,
    };
    assert_eq!(a.send(1, PORT, b"x").unwrap_err(), removed);
    until(&[&a], || a.add_peer(&c.address()) == Ok(1));
    let heard = Arc::new(AtomicU32::new(0));
    let to = Arc::clone(&heard);
    c.bind(PORT, Binding::to(move |_, m| to.store(m.from, Relaxed)))
        .unwrap();
    a.send(1, PORT, b"x").unwrap();
    until(&[&a, &c], || heard.load(Relaxed) == 1);
}

#[test]
fn who_was_removed_hears_it_and_comes_under_a_new_number() {
    let (a, b) = (open(), open());
    let heard = Arc::new(AtomicU32::new(0));
    let (to, come) = (Arc::clone(&heard), Arc::new(AtomicU32::new(0)));
    b.bind(PORT, Binding::to(move |_, m| to.store(m.from, Relaxed)))
        .unwrap();
    let count = Arc::clone(&come);
    let told = move |_: &mut Context<'_>, e: &Event| {
        if let Event::PeerCome { .. } = e {
            count.fetch_add(1, Relaxed);
        }
    };
    b.on_error(told).unwrap();
    let dead = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&dead);
    let told = move |_: &mut Context<'_>, e: &Event| {
        if let Event::PeerDead { why, .. } = e {
            assert_eq!(*why, Death::Removed);
            count.fetch_add(1, Relaxed);
        }
    };
    a.on_error(told).unwrap();
    for round in 1..=5 {
        heard.store(0, Relaxed);
        let there = a.add_peer(&b.address()).unwrap();
        a.send(there, PORT, b"x").unwrap();
        until(&[&a, &b], || heard.load(Relaxed) > 0);
        assert_eq!(come.load(Relaxed), round);
        b.remove_peer(heard.load(Relaxed)).unwrap();
        until(&[&a, &b], || dead.load(Relaxed) == round);
    }
}
