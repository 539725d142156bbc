//! Sleeping threads are woken by what other threads' calls receive and complete.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{ALL, PATIENCE, config, pair};
use portolan_runtime::{Binding, Config, Doorbell, Notify, Selector, TaggedOptions, Threads};

/// What takes longer never ends.
const HANGS: Duration = Duration::from_secs(60);

fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "nothing comes of it");
    }
}

#[test]
fn what_a_call_ends_wakes_who_sleeps() {
    for by in ALL {
        let sleepy = Config {
            threads: Threads::Multiple,
            ..config()
        };
        let (a, b) = pair(by, &sleepy);
        let selector = Selector::any(7);
        let options = TaggedOptions::default();
        a.inject_tagged(1, 7, &options, b"early").unwrap();
        until(|| {
            a.progress().unwrap();
            b.probe(&selector).unwrap().is_some()
        });
        let counter = b.open_counter().unwrap();
        let notify = Notify {
            counter: Some(counter),
            ..Notify::default()
        };
        thread::scope(|s| {
            let slept = b.counters().unwrap().sleeps;
            s.spawn(|| b.wait_count(counter, 1, Some(HANGS)).unwrap());
            until(|| b.counters().unwrap().sleeps > slept);
            b.post_receive(&selector, vec![0; 5], notify).unwrap();
        });
    }
}

#[test]
fn each_listener_has_a_ring_of_its_own() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let [one, other] = [(); 2].map(|()| Arc::new(Doorbell::new().unwrap()));
        b.bind(1, Binding::default()).unwrap();
        for bell in [&one, &other] {
            until(|| {
                a.progress().unwrap();
                b.progress().unwrap();
                b.arm_with(bell).unwrap()
            });
        }
        // A look that finds nothing is no news.
        b.progress().unwrap();
        assert!(!one.clear(), "{by:?}");
        a.send(1, 1, b"news").unwrap();
        until(|| {
            a.progress().unwrap();
            b.progress().unwrap() > 0
        });
        assert!(one.clear(), "{by:?}");
        // That it is armed again takes nothing from the other.
        let _ = b.arm_with(&one).unwrap();
        assert!(other.clear(), "{by:?}");
    }
}
