//! Flows of the peer that are stopped.

use super::*;

/// A receiver that has stopped flow 3 of requests; the peer knows it if `heard`.
fn stopped(heard: bool) -> Receiver {
    let mut receiver = Receiver::new(0);
    let stops = &mut receiver.inbound.stops;
    stops.stop(0, 3);
    let (serial, flows) = stops.next_chunk();
    stops.queued(serial, flows);
    if heard {
        assert_eq!(stops.acked(), [8, 0]);
    }
    receiver
}

/// Takes `count` chunks of flow 3; returns how often credit was to be advertised.
fn note(receiver: &mut Receiver, count: u32) -> u32 {
    receiver.news = 0;
    (0..count).for_each(|_| receiver.note_taken(Request, 3));
    receiver.news
}

/// Checks P7.9, P7.11.
#[test]
fn one_chunk_is_in_flight_and_names_all_stopped_flows() {
    let mut stops = Stops::default();
    assert!(stops.is_quiet() && !stops.are_owed());
    stops.stop(0, 3);
    stops.stop(1, 15);
    assert!(stops.holds_back(Request, 3) && stops.holds_back(Reply, 15));
    assert!(!stops.holds_back(Reply, 3) && !stops.is_quiet());
    assert!(stops.are_owed() && !stops.are_flying());
    let (serial, flows) = stops.next_chunk();
    assert_eq!((serial, flows), (1, [1 << 3, 1 << 15]));
    stops.queued(serial, flows);
    assert!(stops.are_flying() && !stops.are_owed());
    // What changes meanwhile leaves with the next.
    stops.go_on(1, 15);
    assert!(!stops.are_owed());
    // Only of what both sides hold to, nothing more leaves.
    assert_eq!(stops.acked(), [1 << 3, 0]);
    assert!(stops.are_owed() && !stops.are_flying());
    assert_eq!(stops.next_chunk(), (2, [1 << 3, 0]));
    stops.queued(2, [1 << 3, 0]);
    assert_eq!(stops.acked(), [0, 0], "nothing new");
    stops.go_on(0, 3);
    assert!(stops.are_owed() && !stops.is_quiet());
    stops.queued(3, [0; 2]);
    assert!(!stops.is_quiet(), "the peer does not know yet");
    assert_eq!(stops.acked(), [0, 0]);
    assert!(stops.is_quiet());
}

#[test]
fn serials_wrap_around() {
    let mut stops = Stops::default();
    stops.queued(u16::MAX, [0; 2]);
    assert_eq!(stops.next_chunk().0, 0);
}

#[test]
fn a_change_that_is_taken_back_is_not_told() {
    let mut stops = Stops::default();
    stops.stop(0, 3);
    stops.go_on(0, 3);
    assert!(!stops.are_owed() && stops.is_quiet());
    stops.queued(1, [8, 0]);
    stops.acked();
    stops.stop(0, 3);
    stops.go_on(0, 3);
    stops.stop(0, 3);
    assert!(!stops.are_owed());
}

/// Checks P7.13.
#[test]
fn credit_of_a_stopped_flow_is_withheld_until_the_peer_knows() {
    let mut receiver = stopped(false);
    assert_eq!(note(&mut receiver, 10), 0);
    receiver.note_taken(Request, 2);
    assert_eq!(receiver.inbound.kept.taken, [1, 0]);
    assert_eq!(receiver.inbound.stops.all_withheld, [10, 0]);
    let fresh = receiver.inbound.stops.acked();
    assert_eq!(fresh, [8, 0]);
    assert!(receiver.inbound.give_withheld(16, 0, fresh[0]));
    assert_eq!(receiver.inbound.kept.taken, [11, 0]);
    assert_eq!(receiver.inbound.stops.all_withheld, [0; 2]);
    // There is nothing more to return.
    assert!(!receiver.inbound.give_withheld(16, 0, fresh[0]));
    assert_eq!(receiver.inbound.kept.taken, [11, 0]);
}

#[test]
fn withheld_credit_is_that_of_its_flow() {
    let mut receiver = stopped(false);
    receiver.inbound.stops.stop(0, 4);
    receiver.inbound.stops.stop(1, 3);
    note(&mut receiver, 2);
    receiver.note_taken(Request, 4);
    receiver.note_taken(Reply, 3);
    let stops = &mut receiver.inbound.stops;
    assert_eq!(stops.all_withheld, [3, 1]);
    assert_eq!(
        (stops.release(0, 0b10111), stops.release(1, 0b10111)),
        (1, 0)
    );
    assert_eq!((stops.release(0, 8), stops.release(1, 8)), (2, 1));
    assert_eq!(stops.all_withheld, [0; 2]);
}

#[test]
fn withheld_chunks_have_used_up_credit() {
    for (withheld, news) in [(0, 0), (1, 1)] {
        let mut receiver = stopped(false);
        receiver.limit = 17;
        receiver.inbound.advertised = receiver.inbound.credit(17);
        assert_eq!(note(&mut receiver, withheld), 0);
        (0..8).for_each(|_| receiver.note_taken(Request, 0));
        assert_eq!(receiver.news, news);
    }
}

/// Checks P7.13.
#[test]
fn what_may_have_been_in_flight_counts_and_what_comes_beyond_is_withheld() {
    let mut receiver = stopped(true);
    let most = 16 + CHUNKS_MAX;
    note(&mut receiver, most);
    assert_eq!(receiver.inbound.kept.taken, [most, 0]);
    assert_eq!(receiver.counters.unstopped, 0);
    assert_eq!(note(&mut receiver, 5), 0);
    assert_eq!(receiver.inbound.kept.taken, [most, 0]);
    assert_eq!(receiver.counters.unstopped, 5);
    // Another flow is not affected.
    receiver.note_taken(Request, 2);
    assert_eq!(receiver.inbound.kept.taken, [most + 1, 0]);
    // As the flow goes on, all of it counts; and as many are forgiven again at the next stop.
    receiver.inbound.stops.go_on(0, 3);
    receiver.inbound.give_withheld(16, 0, 8);
    assert_eq!(receiver.inbound.kept.taken, [most + 6, 0]);
    receiver.inbound.stops.stop(0, 3);
    note(&mut receiver, most);
    assert_eq!(receiver.counters.unstopped, 5);
    note(&mut receiver, 1);
    assert_eq!(receiver.counters.unstopped, 6);
}

#[test]
fn a_peer_that_was_told_already_knows_of_a_stop_at_once() {
    let mut receiver = stopped(true);
    receiver.inbound.stops.go_on(0, 3);
    note(&mut receiver, 3);
    receiver.inbound.stops.stop(0, 3);
    note(&mut receiver, 1);
    assert_eq!(receiver.inbound.stops.all_withheld, [0; 2]);
    // Not while a chunk is in flight that lets the flow go on.
    receiver.inbound.stops.go_on(0, 3);
    receiver.inbound.stops.queued(2, [0; 2]);
    receiver.inbound.stops.stop(0, 3);
    note(&mut receiver, 1);
    assert_eq!(receiver.inbound.stops.all_withheld, [1, 0]);
    assert_eq!(receiver.inbound.stops.acked(), [0; 2]);
    assert!(receiver.inbound.stops.are_owed());
    // Nor while the chunk with the stop is in flight.
    let mut receiver = stopped(false);
    receiver.inbound.stops.go_on(0, 3);
    receiver.inbound.stops.stop(0, 3);
    note(&mut receiver, 1);
    assert_eq!(receiver.inbound.stops.all_withheld, [1, 0]);
    assert_eq!(receiver.inbound.stops.acked(), [8, 0]);
}

#[test]
fn a_stop_holds_back_no_message_that_comes() {
    let mut receiver = stopped(true);
    receiver.whole(Request, 3, 0, 10);
    assert_eq!(receiver.complete(), [(3, 0, 10)]);
    assert!(!receiver.inbound.is_quiet());
}
