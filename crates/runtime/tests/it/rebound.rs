//! Ports that a handler binds or closes, on every lane: its own, and while it runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use crate::common::{ALL, Count, config, pair, run};
use portolan_runtime::{Binding, Context, Event, Message, Space};

/// Closes port 1 if a message says so, and binds it anew if it says that; then checks that this
/// changed nothing for the handler that still runs, and panics if the message says that.
fn change(ctx: &mut Context<'_>, m: &Message<'_>, held: &Arc<()>, next: &Count) {
    let weak = Arc::downgrade(held);
    match m.payload {
        b"close" => ctx.close_port(1).unwrap(),
        b"bind" | b"panic" => {
            let next = next.clone();
            ctx.bind(1, Binding::to(move |_, _| next.add())).unwrap();
        }
        _ => {}
    }
    assert!(weak.upgrade().is_some(), "what the handler holds stays");
    assert_ne!(m.payload, b"panic");
}

/// Binds port 1 to a handler that obeys; returns how often it and its successor ran, and what
/// it holds.
fn bind(e: &Space) -> (Count, Count, Weak<()>) {
    let (first, second, held) = (Count::default(), Count::default(), Arc::new(()));
    let weak = Arc::downgrade(&held);
    let (log, next) = (first.clone(), second.clone());
    let obey = move |ctx: &mut Context<'_>, m: &Message<'_>| {
        log.add();
        change(ctx, m, &held, &next);
    };
    e.bind(1, Binding::to(obey)).unwrap();
    (first, second, weak)
}

/// Messages until two share a ring of their own, and nothing is unusual.
const BEFORE: u64 = 40;

fn warm_up(a: &Space, b: &Space, ran: &Count) {
    for count in 1..=BEFORE {
        a.send(1, 1, b"stay").unwrap();
        run(&[a, b], || ran.get() == count);
    }
}

#[test]
fn a_handler_that_binds_its_port_anew_is_followed_by_the_new_one() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (first, second, held) = bind(&b);
        warm_up(&a, &b, &first);
        for message in [&b"stay"[..], b"bind", b"one", b"two"] {
            a.send(1, 1, message).unwrap();
        }
        run(&[&a, &b], || second.get() == 2);
        assert_eq!((first.get(), held.strong_count()), (BEFORE + 2, 0));
        // Its number is given again.
        let (first, _, held) = bind(&b);
        a.send(1, 1, b"stay").unwrap();
        run(&[&a, &b], || first.get() == 1);
        assert_eq!(held.strong_count(), 1);
        b.close_port(1).unwrap();
        assert_eq!(
            held.strong_count(),
            0,
            "closed outside of a handler: gone at once"
        );
    }
}

#[test]
fn a_handler_that_closes_its_port_gets_nothing_more() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let refused = Count::default();
        let log = refused.clone();
        a.on_error(move |_, event| {
            if matches!(event, Event::Refused { to: 1, .. }) {
                log.add();
            }
        })
        .unwrap();
        let (first, _, held) = bind(&b);
        warm_up(&a, &b, &first);
        for message in [&b"stay"[..], b"close", b"one", b"two"] {
            a.send(1, 1, message).unwrap();
        }
        run(&[&a, &b], || refused.get() == 2);
        assert_eq!((first.get(), held.strong_count()), (BEFORE + 2, 0));
    }
}

#[test]
fn what_a_handler_bound_before_it_panics_counts() {
    for by in ALL {
        let (a, b) = pair(by, &config());
        let (first, second, held) = bind(&b);
        warm_up(&a, &b, &first);
        a.send(1, 1, b"panic").unwrap();
        a.send(1, 1, b"one").unwrap();
        let caught = catch_unwind(AssertUnwindSafe(|| {
            run(&[&a, &b], || second.get() == 2);
        }));
        assert!(caught.is_err());
        run(&[&a, &b], || second.get() == 1);
        assert_eq!((first.get(), held.strong_count()), (BEFORE + 1, 0));
    }
}
