//! Limits of what is held, and credit.

use super::*;
use crate::memory::tests::Store;

/// Checks P7.5.
#[test]
fn a_peer_may_exceed_its_limit_by_the_chunks_of_one_frame() {
    let mut receiver = Receiver::with(Store::new(512, 2), 0);
    for message in 1..=16 + CHUNKS_MAX {
        assert_eq!(receiver.whole(Request, 0, message, 10), ChunkOutcome::Yes);
    }
    assert_eq!(receiver.whole(Request, 0, 100, 10), FULL);
    assert_eq!(receiver.whole(Request, 1, 1, 10), FULL);
    // What is held already may come again.
    assert_eq!(receiver.whole(Request, 0, 7, 20), ChunkOutcome::Yes);
    assert_eq!(receiver.counters.duplicates, 1);
    // Replies have a limit of their own.
    assert_eq!(receiver.whole(Reply, 0, 1, 10), ChunkOutcome::Yes);
    assert_eq!(receiver.inbound.held, [16 + CHUNKS_MAX, 1]);
    // The message whose turn it is needs no room.
    assert_eq!(receiver.whole(Request, 0, 0, 10), ChunkOutcome::Yes);
    assert_eq!(receiver.inbound.held, [0, 1]);
}

/// Checks P6.11.
#[test]
fn where_the_pool_is_full_only_the_message_whose_turn_it_is_is_taken() {
    let mut receiver = Receiver::new(0);
    receiver.store.leave_free(9);
    assert_eq!(receiver.whole(Request, 0, 1, 10), ChunkOutcome::Yes);
    assert_eq!(receiver.whole(Request, 0, 2, 10), FULL);
    assert_eq!(receiver.whole(Reply, 0, 2, 10), ChunkOutcome::Yes);
    assert_eq!(receiver.whole(Request, 0, 0, 10), ChunkOutcome::Yes);
    assert_eq!(receiver.begun(), [0, 1]);
    // One that is not wanted now is held, and so finds no room either.
    receiver.verdict = Verdict::NotNow;
    receiver.store.leave_free(8);
    assert_eq!(receiver.whole(Request, 0, 2, 10), FULL);
    assert_eq!(receiver.inbound.held, [0, 1]);
}

/// Checks P6.12, P6.13.
#[test]
fn want_of_room_is_news_once_and_so_is_room() {
    let mut receiver = Receiver::new(0);
    let inbound = &mut receiver.inbound;
    assert!(inbound.note_full(Request) && !inbound.note_full(Request));
    assert!(inbound.note_full(Reply));
    assert!(!inbound.tell_room([false, false], 16));
    assert_eq!(inbound.full, [true, true]);
    assert!(inbound.tell_room([false, true], 16));
    assert_eq!(inbound.full, [true, false]);
    assert!(!inbound.tell_room([false, true], 16));
    assert!(inbound.tell_room([true, true], 16));
    assert!(!inbound.tell_room([true, true], 16));
    assert_eq!(inbound.full, [false; 2]);
}

#[test]
fn room_in_the_pool_is_none_for_a_peer_that_holds_all_it_may() {
    let mut receiver = Receiver::new(0);
    receiver.inbound.note_full(Request);
    receiver.inbound.note_full(Reply);
    receiver.inbound.held = [16 + CHUNKS_MAX, 15 + CHUNKS_MAX];
    assert!(receiver.inbound.tell_room([true, true], 16));
    assert_eq!(receiver.inbound.full, [true, false]);
    receiver.inbound.held = [0; 2];
    // Nor while no further hole can be noted.
    receiver.head(Request, 0, 0, 1 << 20, 64);
    let mut unit = 2;
    while receiver.body(0, unit, 64) == ChunkOutcome::Yes {
        unit += 2;
    }
    assert!(!receiver.inbound.tell_room([true, true], 16));
    receiver.body(0, 1, 64);
    assert!(receiver.inbound.tell_room([true, true], 16));
}

/// Checks P6.4.
#[test]
fn credit_is_advertised_once_half_is_used_and_half_is_new() {
    let mut inbound = Receiver::new(100).inbound;
    assert_eq!(
        (inbound.credit(16), inbound.advertised),
        ([116; 2], [116; 2])
    );
    let given = [0; 9].map(|_| inbound.give_credit(16, 0, 1));
    assert_eq!(given.iter().position(|&it| it), Some(7), "the eighth of 16");
    assert_eq!((inbound.credit(16), given[8]), ([125, 116], true));
    inbound.advertised = inbound.credit(16);
    assert!((0..7).all(|_| !inbound.give_credit(16, 0, 1)));
    assert!(inbound.give_credit(16, 0, 1));
    // Several at once.
    assert!(!inbound.give_credit(16, 1, 7) && inbound.give_credit(16, 1, 1));
    assert_eq!(inbound.kept.taken, [117, 108]);
}

#[test]
fn what_waits_here_has_used_up_credit() {
    // With an odd limit, the half that is new may leave more than a half to the peer.
    let mut inbound = Receiver::new(0).inbound;
    inbound.advertised = inbound.credit(17);
    assert!(!inbound.give_credit(17, 0, 8) && !inbound.give_credit(17, 1, 8));
    inbound.held = [0, 1];
    assert!(!inbound.give_credit(17, 0, 0) && inbound.give_credit(17, 1, 0));
    // However much waits, a half must be new.
    inbound.advertised = inbound.credit(17);
    inbound.held = [17, 17];
    assert!(!inbound.give_credit(17, 0, 7) && inbound.give_credit(17, 0, 1));
}

#[test]
fn credit_wraps_around() {
    let mut receiver = Receiver::new(u32::MAX - 3);
    assert_eq!(receiver.inbound.advertised, [12; 2]);
    for message in 0..8_u32 {
        assert_eq!(receiver.news, 0, "{message}");
        receiver.whole(Request, 0, message.wrapping_sub(4), 10);
    }
    assert_eq!((receiver.news, receiver.inbound.credit(16)), (1, [20, 12]));
    // Little is new, though little is left to the peer.
    let mut inbound = Receiver::new(u32::MAX - 8).inbound;
    inbound.held = [7, 0];
    assert!(!inbound.give_credit(16, 0, 7) && inbound.give_credit(16, 0, 1));
}

/// Checks P7.7.
#[test]
fn held_chunks_count_when_they_are_taken() {
    let mut receiver = Receiver::new(0);
    receiver.verdict = Verdict::NotNow;
    for message in 0..12 {
        receiver.whole(Request, 0, message, 10);
    }
    assert_eq!((receiver.inbound.kept.taken, receiver.news), ([0; 2], 0));
    receiver.verdict = Verdict::Take(7);
    receiver.resume();
    // Credit is advertised again and again until it leaves.
    assert_eq!((receiver.inbound.kept.taken, receiver.news), ([12, 0], 5));
}

#[test]
fn state_that_is_resumed_advertises_nothing_before_it_begins() {
    let kept = KeptIn {
        taken: [7, 9],
        ..KeptIn::default()
    };
    let mut inbound = Inbound::new(kept, &Default::default());
    assert_eq!((inbound.advertised, inbound.is_quiet()), ([7, 9], true));
    assert!(inbound.give_credit(16, 0, 1), "none is left to the peer");
    inbound.begin(MessageNo(50), 16);
    assert_eq!((inbound.kept.taken, inbound.advertised), ([50; 2], [66; 2]));
    assert_eq!(inbound.kept.next, [[MessageNo(50); FLOWS_MAX]; 2]);
}
