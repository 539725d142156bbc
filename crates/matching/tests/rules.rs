//! The rules of matching, one by one. That they hold together, in all orders
//! of calls, is tested against a plain list in `portolan-properties`.

use portolan_matching::{
    Arrival, Envelope, Match, Matcher, MessageTicket, Post, ReceiveTicket, SHAPES_MAX, Selector,
};

type Names = Matcher<&'static str, &'static str>;

const SECRET: [u64; 2] = [0x0123_4567_89ab_cdef, 42];

fn from(source: u32, tag: u64) -> Envelope {
    Envelope { source, tag }
}

fn posted<M: core::fmt::Debug, R: core::fmt::Debug>(post: Post<R, M>) -> ReceiveTicket {
    match post {
        Post::Posted(ticket) => ticket,
        Post::Matched(met) => panic!("{met:?}"),
    }
}

fn unexpected<M: core::fmt::Debug, R: core::fmt::Debug>(arrival: Arrival<R, M>) -> MessageTicket {
    match arrival {
        Arrival::Unexpected(ticket) => ticket,
        Arrival::Matched(met) => panic!("{met:?}"),
    }
}

/// Which receive takes a message.
fn taker<R, M>(arrival: Arrival<R, M>) -> Option<R> {
    match arrival {
        Arrival::Matched(met) => Some(met.receive),
        Arrival::Unexpected(_) => None,
    }
}

/// Which message a receive takes.
fn taken<R, M>(post: Post<R, M>) -> Option<M> {
    match post {
        Post::Matched(met) => Some(met.message),
        Post::Posted(_) => None,
    }
}

#[test]
fn all_bits_of_a_tag_count_but_those_ignored() {
    for bit in 0..64 {
        let other = 0x5555_5555_5555_5555 ^ (1 << bit);
        let exact = Selector::from(1, 0x5555_5555_5555_5555);
        for (ignore, fits) in [(0, false), (1 << bit, true), (!(1 << bit), false)] {
            let mut matcher = Names::new(SECRET);
            posted(matcher.post(exact.ignoring(ignore), "buffer"));
            assert_eq!(
                taker(matcher.arrive(from(1, other), "message")).is_some(),
                fits
            );
            let mut matcher = Names::new(SECRET);
            unexpected(matcher.arrive(from(1, other), "message"));
            assert_eq!(
                taken(matcher.post(exact.ignoring(ignore), "buffer")).is_some(),
                fits
            );
        }
    }
}

#[test]
fn a_source_is_one_or_any() {
    let mut matcher = Names::new(SECRET);
    posted(matcher.post(Selector::from(0, 1), "of 0"));
    posted(matcher.post(Selector::any(1), "of any"));
    assert_eq!(taker(matcher.arrive(from(9, 1), "first")), Some("of any"));
    unexpected(matcher.arrive(from(9, 1), "second"));
    assert_eq!(taken(matcher.post(Selector::from(0, 1), "of 0")), None);
    assert_eq!(
        taken(matcher.post(Selector::any(1), "of any")),
        Some("second")
    );
}

#[test]
fn the_receive_posted_first_takes_the_message() {
    let shapes = [
        (Selector::from(1, 5), "exact"),
        (Selector::any(5), "any source"),
        (Selector::from(1, 4).ignoring(1), "bit ignored"),
        (Selector::any(0).ignoring(u64::MAX), "anything"),
    ];
    // In every rotation, so that each is first once, twice over.
    for first in 0..shapes.len() {
        let mut matcher = Names::new(SECRET);
        let order = || shapes.iter().cycle().skip(first).take(2 * shapes.len());
        for (selector, name) in order() {
            posted(matcher.post(*selector, name));
        }
        for (_, name) in order() {
            assert_eq!(taker(matcher.arrive(from(1, 5), "message")), Some(*name));
        }
        assert_eq!(taker(matcher.arrive(from(1, 5), "message")), None);
    }
}

#[test]
fn a_receive_takes_the_message_that_arrived_first() {
    let selectors = [
        Selector::from(1, 5),
        Selector::any(5),
        Selector::from(1, 4).ignoring(1),
        Selector::any(0).ignoring(u64::MAX),
    ];
    for asked_before in [false, true] {
        for selector in selectors {
            let mut matcher = Names::new(SECRET);
            unexpected(matcher.arrive(from(2, 9), "another"));
            if asked_before {
                // The index is kept up from now on.
                let _ = matcher.peek(&selector);
            }
            let names = ["first", "second", "third"];
            for name in names {
                unexpected(matcher.arrive(from(1, 5), name));
            }
            let anything = selector.ignore == u64::MAX;
            if anything {
                assert_eq!(taken(matcher.post(selector, "buffer")), Some("another"));
            }
            for name in names {
                assert_eq!(taken(matcher.post(selector, "buffer")), Some(name));
            }
            assert_eq!(taken(matcher.post(selector, "buffer")), None);
        }
    }
}

#[test]
fn a_match_gives_back_both_and_the_envelope() {
    let mut matcher = Names::new(SECRET);
    let (message, receive, envelope) = ("message", "buffer", from(3, 0x17));
    let met = Match {
        receive,
        message,
        envelope,
    };
    posted(matcher.post(Selector::any(0x10).ignoring(0xf), receive));
    assert_eq!(matcher.arrive(envelope, message), Arrival::Matched(met));
    unexpected(matcher.arrive(envelope, message));
    let post = matcher.post(Selector::any(0x10).ignoring(0xf), receive);
    assert_eq!(post, Post::Matched(met));
    assert_eq!((matcher.posted_len(), matcher.unexpected_len()), (0, 0));
}

#[test]
fn a_ticket_names_one_entry_and_none_after_it() {
    let mut matcher = Names::new(SECRET);
    let first = posted(matcher.post(Selector::any(1), "first"));
    assert_eq!(matcher.cancel(first), Some("first"));
    // It takes the same slot.
    let second = posted(matcher.post(Selector::any(1), "second"));
    assert_eq!(matcher.cancel(first), None);
    assert!(first < second);
    assert_eq!(taker(matcher.arrive(from(1, 1), "message")), Some("second"));
    assert_eq!(matcher.cancel(second), None);

    let first = unexpected(matcher.arrive(from(1, 1), "first"));
    assert_eq!(matcher.claim_ticket(first), Some((from(1, 1), "first")));
    let second = unexpected(matcher.arrive(from(1, 1), "second"));
    assert_eq!(matcher.claim_ticket(first), None);
    assert!(first < second);
    assert_eq!(
        taken(matcher.post(Selector::any(1), "buffer")),
        Some("second")
    );
    assert_eq!(matcher.claim_ticket(second), None);
}

#[test]
fn a_cancelled_receive_leaves_its_turn_to_the_next() {
    let mut matcher = Names::new(SECRET);
    let tickets =
        ["first", "second", "third"].map(|name| posted(matcher.post(Selector::any(1), name)));
    assert_eq!(matcher.cancel(tickets[1]), Some("second"));
    assert_eq!(taker(matcher.arrive(from(1, 1), "message")), Some("first"));
    assert_eq!(taker(matcher.arrive(from(2, 1), "message")), Some("third"));
    assert_eq!(taker(matcher.arrive(from(1, 1), "message")), None);
}

#[test]
fn a_probe_changes_nothing_and_a_claim_takes_what_it_saw() {
    let mut matcher = Names::new(SECRET);
    let any = Selector::any(0).ignoring(1);
    assert_eq!(matcher.peek(&any), None);
    let first = unexpected(matcher.arrive(from(1, 1), "first"));
    unexpected(matcher.arrive(from(2, 0), "second"));
    for _ in 0..3 {
        assert_eq!(matcher.peek(&any), Some((first, from(1, 1), &"first")));
    }
    assert_eq!(matcher.claim(&any), Some((from(1, 1), "first")));
    assert_eq!(matcher.claim(&Selector::from(1, 1)), None);
    assert_eq!(matcher.claim(&any), Some((from(2, 0), "second")));
    assert_eq!((matcher.claim(&any), matcher.unexpected_len()), (None, 0));
}

#[test]
fn a_receive_for_many_messages_stays_in_its_turn() {
    let mut matcher = Names::new(SECRET);
    let many = posted(matcher.post(Selector::any(1), "many"));
    posted(matcher.post(Selector::from(1, 1), "one"));
    for _ in 0..3 {
        assert_eq!(matcher.peek_posted(&from(1, 1)), Some((many, &"many")));
    }
    assert_eq!(matcher.cancel(many), Some("many"));
    assert_eq!(
        matcher.peek_posted(&from(1, 1)).map(|it| *it.1),
        Some("one")
    );
    assert_eq!(matcher.peek_posted(&from(2, 1)), None);
}

#[test]
fn who_died_leaves_nothing_and_takes_nothing_of_others() {
    let mut matcher: Matcher<u32, u32> = Matcher::new(SECRET);
    // Numbers of receives tell whom they are for; slots are used in any order.
    for round in 0..4 {
        for source in 0..3 {
            let to = Selector::from(source, 100).ignoring(u64::from(round % 2));
            posted(matcher.post(to, 10 * source + round));
            unexpected(matcher.arrive(from(source, u64::from(round)), 10 * source + round));
        }
        let first = matcher.posted().map(|(ticket, ..)| ticket).min().unwrap();
        let receive = matcher.cancel(first).unwrap();
        let to = Selector::from(receive / 10, 100);
        posted(matcher.post(to, receive));
    }
    let any = posted(matcher.post(Selector::any(100), 99));
    let mut expected: Vec<_> = matcher
        .posted()
        .filter(|it| it.1.source == Some(1))
        .collect();
    expected.sort_by_key(|it| it.0);
    let expected: Vec<u32> = expected.into_iter().map(|it| *it.2).collect();
    assert_eq!(expected.len(), 4);
    let gone = matcher.forget(1);
    assert_eq!(
        (gone.receives, gone.messages),
        (expected, vec![10, 11, 12, 13])
    );
    assert_eq!((matcher.posted_len(), matcher.unexpected_len()), (9, 8));
    assert_eq!(
        [0, 1, 2].map(|source| matcher.unexpected_from(source)),
        [4, 0, 4]
    );
    assert!(matcher.posted().all(|it| it.1.source != Some(1)));
    assert_eq!(matcher.cancel(any), Some(99));
    let none = matcher.forget(1);
    assert!(none.receives.is_empty() && none.messages.is_empty());
    assert!(matcher.forget(u32::MAX).messages.is_empty());
}

#[test]
fn what_waits_can_be_counted_and_listed() {
    let mut matcher: Matcher<u64, u64> = Matcher::new(SECRET);
    for k in 0..10 {
        posted(matcher.post(Selector::from(1, 100 + k), k));
        unexpected(matcher.arrive(from(k as u32 % 3, k), k));
    }
    assert_eq!((matcher.posted_len(), matcher.unexpected_len()), (10, 10));
    let counts = [0, 1, 2, 3].map(|source| matcher.unexpected_from(source));
    assert_eq!(counts, [4, 3, 3, 0]);
    // A slot in the middle is used again.
    let (third, ..) = matcher.posted().find(|it| *it.2 == 3).unwrap();
    matcher.cancel(third).unwrap();
    posted(matcher.post(Selector::any(103).ignoring(1), 10));
    let mut listed: Vec<_> = matcher.posted().collect();
    listed.sort_by_key(|it| it.0);
    assert!(
        listed
            .iter()
            .map(|it| *it.2)
            .eq([0, 1, 2, 4, 5, 6, 7, 8, 9, 10])
    );
    assert_eq!(listed[0].1, Selector::from(1, 100));
    assert_eq!(listed[9].1, Selector::any(102).ignoring(1));
    let mut listed: Vec<_> = matcher.unexpected().collect();
    listed.sort_by_key(|it| it.0);
    assert!(listed.iter().map(|it| *it.2).eq(0..10));
    assert_eq!(listed[9].1, from(0, 9));
}

#[test]
fn more_shapes_than_are_kept_find_the_same() {
    let mut matcher: Matcher<(), u64> = Matcher::new(SECRET);
    for k in 0..256 {
        unexpected(matcher.arrive(from(k as u32 % 5, k), k));
    }
    for round in 0..3_u64 {
        for shape in 0..2 * SHAPES_MAX as u64 {
            let selector = Selector::any(255).ignoring(shape);
            let expected = (255 & !shape..256).find(|k| {
                let waits = matcher.unexpected().any(|(.., message)| message == k);
                waits && (k ^ 255) & !shape == 0
            });
            assert_eq!(matcher.peek(&selector).map(|it| *it.2), expected, "{round}");
        }
        // The lowest of the 16 goes, and so with the next round another is first.
        assert_eq!(
            matcher.claim(&Selector::any(255).ignoring(15)).unwrap().1,
            240 + round
        );
    }
}
