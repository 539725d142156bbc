//! Parts of long messages, in any order and any cut.

use super::*;
use crate::base::WINDOW_SPAN;

/// All orders of `0..n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for order in orders(n - 1) {
        for at in 0..n {
            let mut order = order.clone();
            order.insert(at, n - 1);
            all.push(order);
        }
    }
    all
}

#[test]
fn parts_come_in_any_order_and_each_byte_is_handed_out_once() {
    // Some overlap: a resend was cut at other places.
    let ranges = [(1, 64), (2, 128), (3, 192), (4, 10), (1, 128)];
    for order in orders(ranges.len() + 1) {
        let mut receiver = Receiver::new(0);
        for part in order.iter().chain(&order) {
            let took = match ranges.get(*part) {
                Some(&(unit, bytes)) => receiver.body(0, unit, bytes),
                None => receiver.head(Request, 0, 0, 266, 64),
            };
            // The third range goes beyond the message.
            let bad = *part == 2 && receiver.inbound.rx[0][0].active;
            assert!(took == ChunkOutcome::Yes || bad, "{order:?}: {took:?}");
        }
        assert_eq!(receiver.complete(), [(0, 0, 266)], "{order:?}");
        assert_eq!(receiver.counters.messages_delivered, 1);
        receiver.store.assert_free();
        assert_eq!(receiver.inbound.intervals, Intervals::EMPTY);
    }
}

#[test]
fn further_parts_have_what_the_head_said() {
    let mut receiver = Receiver::new(0);
    receiver.verdict = Verdict::Take(99);
    receiver.head(Request, 0, 0, 200, 128);
    let body = Body {
        priority: Request,
        flow: 0,
        message: MessageNo(0),
        fragment: 1,
        payload: &[0; 136],
    };
    let Receiver {
        inbound, counters, ..
    } = &mut receiver;
    let mut at = inbound.meet_body(&body, counters).unwrap().unwrap();
    let piece = Piece {
        from: 128,
        to: 200,
        total: 200,
        cookie: 99,
        port: 5,
        last: true,
    };
    assert_eq!(inbound.place(&body, &mut at, counters), Ok(Some(piece)));
    assert_eq!(inbound.place(&body, &mut at, counters), Ok(None));
    assert!(at.fresh && at.credit);
    assert_eq!(inbound.kept.next[0][0], MessageNo(1));
}

#[test]
fn parts_of_a_refused_message_are_not_handed_out() {
    let mut receiver = Receiver::new(0);
    receiver.verdict = Verdict::Refuse;
    receiver.head(Request, 0, 0, 200, 64);
    for (unit, bytes) in [(1, 64), (2, 72)] {
        assert_eq!(receiver.body(0, unit, bytes), ChunkOutcome::Yes);
    }
    assert_eq!(receiver.parts.len(), 0);
    assert_eq!(receiver.counters.messages_delivered, 0);
    assert_eq!(receiver.inbound.kept.next[0][0], MessageNo(1));
}

#[test]
fn a_part_fills_the_holes_between_those_that_came() {
    let mut receiver = Receiver::new(0);
    receiver.head(Request, 0, 0, 640, 64);
    receiver.body(0, 2, 64);
    receiver.body(0, 5, 128);
    receiver.parts.clear();
    receiver.body(0, 1, 576);
    let parts = receiver
        .parts
        .iter()
        .map(|it| (it.from, it.bytes.len(), it.last));
    let expected = [(64, 64, false), (192, 128, false), (448, 192, true)];
    assert_eq!(parts.collect::<Vec<_>>(), expected);
}

/// Checks P7.7.
#[test]
fn a_part_counts_once_and_only_if_some_of_it_is_new() {
    let mut receiver = Receiver::new(0);
    receiver.head(Request, 0, 0, 640, 0);
    assert_eq!(receiver.inbound.kept.taken, [1, 0]);
    for (unit, bytes, taken) in [
        (4, 64, 2),
        (4, 64, 2),
        (3, 192, 3),
        (3, 128, 3),
        (0, 640, 4),
    ] {
        receiver.body(0, unit, bytes);
        assert_eq!(receiver.inbound.kept.taken, [taken, 0], "{unit}");
    }
    assert_eq!(receiver.counters.duplicates, 2);
    assert_eq!(receiver.complete(), [(0, 0, 640)]);
}

/// Checks P2.22.
#[test]
fn a_head_that_comes_again_longer_adds_bytes_and_no_credit() {
    let mut receiver = Receiver::new(0);
    receiver.head(Request, 0, 0, 400, 64);
    receiver.body(0, 2, 64);
    receiver.head(Request, 0, 0, 400, 320);
    let parts = receiver.parts.iter().map(|it| (it.from, it.bytes.len()));
    assert_eq!(
        parts.collect::<Vec<_>>(),
        [(0, 64), (128, 64), (64, 64), (192, 128)]
    );
    assert_eq!(receiver.inbound.kept.taken, [2, 0]);
    // A shorter one, or one without bytes, is a duplicate.
    receiver.head(Request, 0, 0, 400, 128);
    receiver.head(Request, 0, 0, 400, 0);
    assert_eq!(
        (receiver.counters.duplicates, receiver.inbound.kept.taken),
        (2, [2, 0])
    );
    // The longest completes the message.
    receiver.head(Request, 0, 0, 400, 400);
    assert_eq!(receiver.complete(), [(0, 0, 400)]);
    receiver.whole(Request, 0, 1, 10);
    assert_eq!(receiver.begun(), [0, 1]);
}

/// Checks P2.25.
#[test]
fn bytes_beyond_the_message_are_malformed() {
    let mut receiver = Receiver::new(0);
    receiver.head(Request, 0, 0, 200, 64);
    assert_eq!(receiver.body(0, 1, 137), ChunkOutcome::Bad);
    assert_eq!(receiver.body(0, u32::MAX, 64), ChunkOutcome::Bad);
    assert_eq!(receiver.head(Request, 0, 0, 200, 201), ChunkOutcome::Bad);
    assert_eq!(receiver.parts.len(), 1);
    assert_eq!(receiver.body(0, 1, 136), ChunkOutcome::Yes);
    assert_eq!(receiver.complete(), [(0, 0, 200)]);
    // One that was held is dropped when that is known.
    receiver.body(1, 1, 137);
    receiver.body(1, 2, 72);
    receiver.head(Request, 0, 1, 200, 64);
    receiver.body(1, 1, 64);
    assert_eq!(receiver.complete().len(), 2);
    receiver.store.assert_free();
}

#[test]
fn parts_of_the_next_message_wait_for_the_end_of_the_active_one() {
    let mut receiver = Receiver::new(0);
    receiver.head(Request, 0, 0, 256, 64);
    receiver.head(Request, 0, 1, 128, 64);
    receiver.body(1, 1, 64);
    receiver.body(0, 2, 128);
    assert_eq!((receiver.begun(), receiver.inbound.held), (vec![0], [2, 0]));
    receiver.body(0, 1, 64);
    assert_eq!(receiver.complete(), [(0, 0, 256), (0, 1, 128)]);
}

#[test]
fn ranges_of_one_flow_say_nothing_of_another() {
    let mut receiver = Receiver::new(0);
    let flows = [(Request, 0), (Request, 15), (Reply, 0), (Reply, 15)];
    for (priority, flow) in flows {
        receiver.head(priority, flow, 0, 320, 64);
        receiver.body_of(priority, flow, 0, 3, 64);
    }
    for (priority, flow) in flows {
        receiver.body_of(priority, flow, 0, 1, 256);
    }
    assert_eq!(receiver.complete().len(), 4);
    assert_eq!(receiver.inbound.intervals, Intervals::EMPTY);
}

#[test]
fn where_no_more_holes_can_be_noted_only_what_closes_one_is_taken() {
    let mut receiver = Receiver::new(0);
    let holes = WINDOW_SPAN as u32 / 2;
    let total = 64 * (2 * u64::from(holes) + 3);
    receiver.head(Request, 0, 0, total, 64);
    for hole in 0..holes {
        assert!(receiver.inbound.intervals.has_room());
        assert_eq!(receiver.body(0, 2 + 2 * hole, 64), ChunkOutcome::Yes);
    }
    assert!(!receiver.inbound.intervals.has_room());
    let last = 2 * holes + 2;
    assert_eq!(receiver.body(0, last, 64), FULL);
    assert_eq!(receiver.body_of(Request, 0, 0, 3, 64), FULL);
    // Another flow has none either.
    receiver.head(Reply, 0, 0, 192, 64);
    let full = ChunkOutcome::NoRoom(Reply);
    assert_eq!(receiver.body_of(Reply, 0, 0, 2, 64), full);
    assert_eq!(receiver.body_of(Reply, 0, 0, 1, 128), ChunkOutcome::Yes);
    // Nothing of what was refused counts as received.
    let taken = receiver.inbound.kept.taken;
    assert_eq!(taken, [holes + 1, 2]);
    assert_eq!(receiver.body(0, 1, 64), ChunkOutcome::Yes);
    assert_eq!(receiver.body(0, last, 64), ChunkOutcome::Yes);
    assert_eq!(
        receiver.body(0, 3, 64 * (last as usize - 2)),
        ChunkOutcome::Yes
    );
    assert_eq!(receiver.complete(), [(0, 0, 192), (0, 0, total as usize)]);
}

#[test]
fn a_held_part_that_finds_no_room_for_its_hole_stays_held() {
    let mut receiver = Receiver::new(0);
    let holes = WINDOW_SPAN as u32 / 2;
    // The body is held until its head comes; by then there is no room for its hole.
    receiver.body_of(Request, 1, 0, 2, 64);
    receiver.head(Request, 0, 0, 1 << 20, 64);
    for hole in 0..holes {
        receiver.body(0, 2 + 2 * hole, 64);
    }
    receiver.head(Request, 1, 0, 192, 64);
    assert_eq!(
        (receiver.complete(), receiver.inbound.held),
        (vec![], [1, 0])
    );
    // What closes the hole hands it out too.
    receiver.body_of(Request, 1, 0, 1, 64);
    assert_eq!(receiver.complete(), [(1, 0, 192)]);
    assert_eq!(receiver.inbound.held, [0; 2]);
}

#[test]
fn neighbouring_ranges_become_one() {
    let mut intervals = Intervals::EMPTY;
    for (from, to) in [(64, 128), (256, 320), (128, 192)] {
        assert!(intervals.add(3, from, to));
    }
    assert!(intervals.add(4, 192, 256));
    assert_eq!(intervals.uncovered(3, 0, 400), Some((0, 64)));
    assert_eq!(intervals.uncovered(3, 64, 400), Some((192, 256)));
    assert!(intervals.add(3, 192, 256));
    assert_eq!(intervals.uncovered(3, 64, 400), Some((320, 400)));
    assert_eq!(intervals.uncovered(3, 100, 320), None);
    assert_eq!(intervals.take_from(3, 128), None);
    assert_eq!(intervals.take_from(3, 64), Some(320));
    assert_eq!(intervals.take_from(4, 192), Some(256));
    assert_eq!(intervals, Intervals::EMPTY);
}
