//! Acknowledgements and losses of a path, without an endpoint.

extern crate std;

use std::vec::Vec;

use portolan_wire::Ack;

use super::*;
use crate::received::DELAY_UNIT_NS;

pub const MS: u64 = 1_000_000;
const BYTES: u32 = 1_000;

/// A path with a window of 10 packets at first, of which 1,000 are granted;
/// its first number is 50.
pub fn path() -> Sent {
    let congestion = Congestion::new(Mode::Shared, 1_232, WINDOW_SPAN as u32);
    let mut sent = Sent::resume(50, 1_050, congestion);
    assert_eq!(sent.window(), 10);
    sent.mtu = Mtu::BASE;
    sent
}

/// Sends packets with chunks at `now`: number n is frame n.
pub fn send(sent: &mut Sent, now: u64, packets: u64) {
    for _ in 0..packets {
        let number = sent.next;
        sent.count(now);
        sent.take_number(number);
        sent.left(now, number, FrameIndex::new(number as usize), BYTES);
    }
}

/// An acknowledgement of everything up to `largest` without `missing`.
fn ack(sent: &Sent, largest: u64, missing: &[u64]) -> Ack {
    let base = missing.first().copied().unwrap_or(largest + 1);
    let mut ack = Ack {
        largest: largest as u32,
        base: base as u32,
        packet_limit: sent.limit as u32,
        words: (largest + 1 - base).div_ceil(64) as u8,
        ..Ack::default()
    };
    for number in (base..=largest).filter(|number| !missing.contains(number)) {
        let bit = (number - base) as usize;
        ack.bitmap[bit / 64] |= 1 << (bit % 64);
    }
    ack
}

/// Goes through an acknowledgement at `now` of packets that left at 0, as
/// the endpoint does. Returns what arrived and what is to be given up.
pub fn take(sent: &mut Sent, now: u64, ack: &impl Confirms) -> (Vec<usize>, Vec<usize>) {
    let (mut arrived, mut missing) = (Vec::new(), Vec::new());
    let covers = sent.read(ack).expect("it speaks of what was sent");
    let report = sent.begin_report(now, covers, false, 0);
    let mut sample = AckSample::default();
    for number in report.numbers() {
        match sent.find(now, ack, &report, number, |_| 0) {
            Finding::Arrived(frame) => {
                sent.acked(now, BYTES as usize);
                sample.acked_packets += 1;
                sample.rtt_ns = (number == report.largest()).then_some(now);
                arrived.push(frame.index());
            }
            Finding::Missing(frame) => {
                sent.lost(now, number, BYTES as usize, false);
                sample.lost_packets += 1;
                missing.push(frame.index());
            }
            _ => {}
        }
    }
    sent.advance();
    sent.end_report(report.largest());
    sent.adapt(now, &mut sample, Some(0), false);
    (arrived, missing)
}

/// Checks P7.1, P7.2.
#[test]
fn the_window_and_the_grant_bound_what_is_in_flight() {
    let mut sent = path();
    send(&mut sent, 0, 9);
    assert!(sent.is_open(0));
    send(&mut sent, 0, 1);
    assert!(!sent.is_open(0) && sent.is_open(1));
    assert_eq!(sent.load(), 1 << 16);
    let mut sent = path();
    sent.grant(3);
    send(&mut sent, 0, 3);
    assert!(!sent.is_open(0));
    let ack = ack(&sent, 52, &[]);
    take(&mut sent, MS, &ack);
    // A packet beyond the grant, where none is in flight, asks for more.
    assert_eq!((sent.limit, sent.flying), (53, 0));
    assert!(sent.is_open(0));
    // Slots are reused only once they are settled.
    let mut sent = path();
    sent.limit = u64::MAX;
    sent.next = sent.lowest + WINDOW_SPAN as u64 - 1;
    assert!(sent.is_open(0));
    sent.next += 1;
    assert!(!sent.is_open(0));
}

#[test]
fn frames_are_found_by_number_until_they_are_settled() {
    let mut sent = path();
    send(&mut sent, 0, 3);
    assert_eq!(sent.numbers(), 50..53);
    assert_eq!(sent.frame(51), Some(FrameIndex::new(51)));
    // A later number has the same slot.
    assert_eq!(sent.frame(51 + WINDOW_SPAN as u64), sent.frame(51));
    assert_eq!(sent.frames().count(), 3);
    assert_eq!(sent.oldest(), Some(FrameIndex::new(50)));
    sent.settle(50);
    assert_eq!((sent.frame(50), sent.frame(53)), (None, None));
    assert_eq!(sent.oldest(), Some(FrameIndex::new(51)));
    sent.advance();
    assert_eq!(sent.numbers(), 51..53);
    assert_eq!(sent.take_slot(52), Some(FrameIndex::new(52)));
    assert_eq!((sent.take_slot(52), sent.take_slot(50)), (None, None));
    sent.take_slot(51);
    sent.probes.owe_ping();
    sent.drop_all();
    assert_eq!((sent.numbers(), sent.flying), (53..53, 0));
    assert_eq!(sent.flying_bytes, 0);
    assert!(!sent.probes.owes_ping());
}

#[test]
fn only_numbers_in_flight_are_unacknowledged() {
    let mut sent = path();
    send(&mut sent, 0, 4);
    let first = ack(&sent, 51, &[]);
    take(&mut sent, MS, &first);
    let known = [51, 52, 53, 54].map(|low| sent.is_unacknowledged(low));
    assert_eq!(known, [false, true, true, false]);
}

/// Checks P2.12, P2.17.
#[test]
fn an_acknowledgement_of_what_was_never_sent_counts_for_nothing_but_its_limit() {
    let mut sent = path();
    send(&mut sent, 0, 2);
    let mut wrong = ack(&sent, 52, &[]);
    wrong.packet_limit = 2_000;
    assert_eq!(sent.read(&wrong), None);
    assert_eq!(sent.limit, 2_000);
    wrong.packet_limit = 1_000;
    assert_eq!((sent.read(&wrong), sent.limit), (None, 2_000));
    // Its lowest missing number lies beyond the largest.
    let mut wrong = ack(&sent, 51, &[]);
    wrong.base += 1;
    assert_eq!(sent.read(&wrong), None);
    assert_eq!(sent.read(&ack(&sent, 51, &[])), Some((51, 52)));
}

/// Checks P2.12.
#[test]
fn an_acknowledgement_names_the_numbers_next_to_those_in_flight() {
    const LAP: u64 = 1 << 32;
    let mut sent = path();
    (sent.next, sent.limit) = (3 * LAP + 2, 3 * LAP);
    let mut across = ack(&sent, 3 * LAP + 1, &[3 * LAP - 1]);
    across.packet_limit = 7;
    assert_eq!(sent.read(&across), Some((3 * LAP + 1, 3 * LAP - 1)));
    assert_eq!(sent.limit, 3 * LAP + 7);
    let has = |number| across.has(number, 3 * LAP - 1);
    assert_eq!(
        [3 * LAP - 1, 3 * LAP, 3 * LAP + 1].map(has),
        [false, true, true]
    );
    assert!(!has(3 * LAP + 63) && !has(3 * LAP + 64));
}

#[test]
fn an_older_acknowledgement_moves_nothing_back() {
    let mut sent = path();
    send(&mut sent, 0, 6);
    let old = ack(&sent, 52, &[51]);
    let new = ack(&sent, 54, &[]);
    take(&mut sent, MS, &new);
    assert_eq!(take(&mut sent, MS, &old), (Vec::new(), Vec::new()));
    assert_eq!((sent.acked_to, sent.numbers()), (55, 55..56));
    let covers = sent.read(&old).unwrap();
    let report = sent.begin_report(MS, covers, false, 0);
    assert!(!sent.end_report(report.largest()));
}

#[test]
fn what_others_have_overtaken_is_given_up_where_all_come_in_order() {
    let mut sent = path();
    send(&mut sent, 0, 6);
    let now = 100_000;
    let report = ack(&sent, 53, &[51]);
    assert_eq!(
        take(&mut sent, now, &report),
        (Vec::from([50, 52, 53]), Vec::from([51]))
    );
    assert_eq!((sent.flying, sent.flying_bytes), (2, 2_000));
    assert_eq!((sent.acked_to, sent.lowest), (54, 54));
    // A repeat says nothing new.
    let report = ack(&sent, 53, &[51]);
    assert_eq!(take(&mut sent, now, &report), (Vec::new(), Vec::new()));
    assert!(sent.window() < 10);
}

#[test]
fn a_packet_that_was_given_up_and_came_widens_the_bound_of_reordering() {
    let mut sent = path();
    send(&mut sent, 0, 8);
    let first = ack(&sent, 53, &[51]);
    take(&mut sent, 100_000, &first);
    let covers = sent.read(&ack(&sent, 54, &[])).unwrap();
    let report = sent.begin_report(110_000, covers, false, 0);
    assert_eq!(report.numbers(), 51..=54);
    let all = ack(&sent, 54, &[]);
    let found = sent.find(110_000, &all, &report, 51, |_| 0);
    assert_eq!(found, Finding::Spurious);
    let found = sent.find(110_000, &all, &report, 51, |_| 0);
    assert_eq!(found, Finding::Nothing);
    // From now on a packet that few have overtaken is waited for.
    let gap = ack(&sent, 56, &[55]);
    assert_eq!(take(&mut sent, 120_000, &gap).1, []);
}

#[test]
fn a_packet_given_up_for_the_time_alone_measures_the_round_trip_if_it_comes() {
    let mut sent = path();
    send(&mut sent, 0, 2);
    sent.lost(5 * MS, 50, BYTES as usize, true);
    sent.lost(5 * MS, 51, BYTES as usize, true);
    let mut late = ack(&sent, 51, &[]);
    late.delay = 10;
    let covers = sent.read(&late).unwrap();
    let report = sent.begin_report(6 * MS, covers, false, 0);
    let mut find = |number| sent.find(6 * MS, &late, &report, number, |_| 0);
    // The delay is that of the largest number alone.
    assert_eq!(find(50), Finding::Late(None));
    assert_eq!(find(51), Finding::Late(Some(10 * DELAY_UNIT_NS)));
    sent.came_late(3 * MS);
    assert_eq!(sent.round_trip(), Some(3 * MS));
    sent.count_again(7);
    assert_eq!((sent.flying, sent.flying_bytes), (1, 7));
}

#[test]
fn the_largest_number_is_missing_only_if_it_was_refused() {
    let mut sent = path();
    send(&mut sent, 0, 3);
    let refused = ack(&sent, 51, &[51]);
    let covers = sent.read(&refused).unwrap();
    let report = sent.begin_report(1_000, covers, true, 0);
    let mut find = |number| sent.find(1_000, &refused, &report, number, |_| 0);
    assert_eq!(find(50), Finding::Arrived(FrameIndex::new(50)));
    assert_eq!(find(51), Finding::Missing(FrameIndex::new(51)));
}

#[test]
fn time_gives_up_what_few_have_overtaken() {
    let mut sent = path();
    // Packets are known to be overtaken by many.
    sent.reordering.given_up_too_early(100, 0);
    send(&mut sent, 0, 3);
    let gap = ack(&sent, 52, &[51]);
    let covers = sent.read(&gap).unwrap();
    let patience = sent.answer_after(0, 0);
    for (now, found) in [
        (patience, Finding::Nothing),
        (patience + 1, Finding::Missing(FrameIndex::new(51))),
    ] {
        let report = sent.begin_report(now, covers, false, 0);
        assert_eq!(sent.find(now, &gap, &report, 51, |_| 0), found, "{now}");
    }
}

#[test]
fn a_probe_of_the_size_holds_the_window_open_until_it_is_answered() {
    let mut sent = path();
    sent.take_number(50);
    sent.size_probe_left(50);
    send(&mut sent, 0, 1);
    sent.advance();
    assert_eq!(
        (sent.lowest, sent.oldest()),
        (50, Some(FrameIndex::new(51)))
    );
    let gap = ack(&sent, 51, &[50]);
    take(&mut sent, MS, &gap);
    assert_eq!(sent.lowest, 52);
}

#[test]
fn an_acknowledgement_is_asked_for_twice_a_window_and_more_often_after_losses() {
    let asks = |sent: &mut Sent| (0..10).filter(|_| sent.ask(false)).count();
    let mut sent = path();
    assert_eq!(asks(&mut sent), 2);
    assert!(sent.ask(true));
    sent.flying = 9;
    assert!(sent.ask(false), "the window is full then");
    sent.flying = 8;
    assert!(!sent.ask(false));
    sent.probes.owe_probe();
    assert!(sent.ask(false) && !sent.ask(false));
    // Less was granted than the window allows.
    let mut sent = path();
    sent.grant(4);
    assert_eq!(asks(&mut sent), 5);
    let mut sent = path();
    sent.rtt.sample(2 * LONG_NS);
    assert_eq!(asks(&mut sent), 5);
    sent.watch_from = 3;
    assert_eq!(asks(&mut sent), 10);
}

#[test]
fn what_was_not_asked_about_gets_a_ping_once_nothing_more_leaves() {
    let mut sent = path();
    sent.ask_about_rest();
    assert!(!sent.probes.owes_ping());
    sent.ask(false);
    sent.ask_about_rest();
    assert!(!sent.probes.owes_ping(), "nothing is in flight");
    send(&mut sent, 0, 1);
    sent.ask_about_rest();
    assert!(sent.probes.owes_ping());
    sent.probes.pinged();
    sent.ask_about_rest();
    assert!(!sent.probes.owes_ping());
}

#[test]
fn the_probe_clock_starts_with_the_first_packet_in_flight() {
    let mut sent = path();
    assert!(!sent.count(7), "it starts");
    assert!(sent.count(8), "it runs on");
    sent.probe(9, false);
    assert!(!sent.count(9), "it may fire sooner");
    let mut expected = Probes::default();
    expected.start(7);
    expected.probe(9);
    assert_eq!(sent.probes, expected);
}

#[test]
fn probes_are_a_sign_of_congestion_once_the_round_trip_is_known() {
    // Some in a row: one lost tail says nothing.
    let probe = |sent: &mut Sent, refuses| (0..10).for_each(|_| sent.probe(0, refuses));
    let mut sent = path();
    probe(&mut sent, false);
    assert_eq!(sent.window(), 10);
    sent.rtt.sample(MS);
    probe(&mut sent, true);
    assert_eq!(sent.window(), 10);
    probe(&mut sent, false);
    assert!(sent.window() < 10);
    sent.begin_anew(1_232);
    assert_eq!(sent.window(), 10);
}

/// Checks P2.13.
#[test]
fn marks_are_counted_once_and_from_where_the_peer_begins() {
    let mut sent = path();
    sent.acked_to = 60;
    assert_eq!(sent.new_marks(3, 50), 3);
    assert_eq!(sent.new_marks(5, 61), 2);
    sent.put_back_marks(2);
    assert_eq!(sent.new_marks(5, 61), 2);
    // An older acknowledgement that came late.
    assert_eq!(sent.new_marks(4, 59), 0);
    assert_eq!(sent.new_marks(6, 62), 1);
    // A peer that counts anew.
    assert_eq!(sent.new_marks(9_000, 63), 0);
    assert_eq!(sent.new_marks(9_001, 64), 1);
}

#[test]
fn losses_that_the_receiver_refused_are_none_of_the_network() {
    let sample = AckSample {
        acked_packets: 1,
        lost_packets: 4,
        rtt_ns: Some(3 * MS),
        ..AckSample::default()
    };
    let mut sent = path();
    let mut refused = sample;
    sent.adapt(MS, &mut refused, Some(MS), true);
    assert_eq!((refused.lost_packets, refused.rtt_ns), (0, Some(2 * MS)));
    assert_eq!(sent.round_trip(), Some(3 * MS));
    assert!(sent.window() >= 10);
    let mut sent = path();
    let mut lost = sample;
    sent.adapt(MS, &mut lost, None, false);
    assert_eq!((lost.lost_packets, lost.rtt_ns), (4, None));
    assert!(sent.window() < 10);
    let mut expected = Probes::default();
    expected.lost(MS);
    assert_eq!(sent.probes, expected);
}

#[test]
fn a_ping_or_a_probe_that_is_owed_is_unusual() {
    let mut sent = path();
    assert!(sent.unusual().is_nothing());
    sent.probes.owe_ping();
    assert_eq!(sent.unusual(), Unusual::PROBE);
    let mut sent = path();
    sent.probes.owe_probe();
    assert_eq!(sent.unusual(), Unusual::PROBE);
}

#[test]
fn acknowledgements_are_told_together_until_something_is_wrong() {
    // The data to send limits the flight, so that the window does not grow.
    let one = |rtt_ns| AckSample {
        acked_packets: 1,
        rtt_ns: Some(rtt_ns),
        app_limited: true,
        ..AckSample::default()
    };
    let adapt = |sent: &mut Sent, now, sample: AckSample| {
        sent.adapt(now, &mut sample.clone(), Some(0), false);
        (sent.batch.acked, sent.window(), sent.round_trip())
    };
    // The first shows the round trip.
    let mut begun = path();
    assert_eq!(adapt(&mut begun, 0, one(MS)), (0, 10, Some(MS)));
    // Eight at once; the round trip is that of the last.
    let mut sent = begun;
    for told in 1..8 {
        assert_eq!(adapt(&mut sent, 10, one(9)), (told, 10, Some(MS)));
    }
    assert_eq!(adapt(&mut sent, 10, one(9 * MS)), (0, 10, Some(2 * MS)));
    // Before, if the first has waited for 100 us.
    let mut sent = begun;
    assert_eq!(adapt(&mut sent, 10, one(MS)), (1, 10, Some(MS)));
    assert_eq!(adapt(&mut sent, 100_009, one(MS)), (2, 10, Some(MS)));
    assert_eq!(adapt(&mut sent, 100_010, one(MS)), (0, 10, Some(MS)));
    // Whatever is wrong is told at once, behind those before it, and so is what the window limited.
    let mut sent = begun;
    adapt(&mut sent, 10, one(MS));
    let limited = AckSample {
        app_limited: false,
        ..one(MS)
    };
    assert_eq!(adapt(&mut sent, 10, limited), (0, 11, Some(MS)));
    for (lost_packets, ce_packets) in [(1, 0), (0, 1)] {
        let mut sent = begun;
        adapt(&mut sent, 10, one(MS));
        let wrong = AckSample {
            lost_packets,
            ce_packets,
            ..one(MS)
        };
        let (left, window, _) = adapt(&mut sent, 10, wrong);
        assert!(left == 0 && window < 10, "{window}");
    }
    let mut sent = begun;
    adapt(&mut sent, 10, one(MS));
    let spurious = AckSample {
        spurious_packets: 1,
        ..one(MS)
    };
    assert_eq!(adapt(&mut sent, 10, spurious).0, 0);
    let mut sent = begun;
    adapt(&mut sent, 10, one(MS));
    sent.probe(20, false);
    assert_eq!((sent.batch.acked, sent.window()), (0, 10));
    // A path that begins anew is told nothing of before.
    let mut sent = begun;
    adapt(&mut sent, 10, one(MS));
    sent.begin_anew(1_232);
    assert!(sent.batch.is_empty());
}

#[test]
fn what_is_told_together_sums_up_what_each_has_shown() {
    let sample = |acked_packets, came_packets, rtt_ns| AckSample {
        acked_packets,
        came_packets,
        rtt_ns,
        app_limited: true,
        ..AckSample::default()
    };
    let mut sent = path();
    sent.congestion = Congestion::new(Mode::Lan, 1_232, WINDOW_SPAN as u32);
    sent.rtt.sample(MS);
    for (came, rtt) in [
        (1, Some(9 * MS)),
        (0, Some(2 * MS)),
        (3, Some(5 * MS)),
        (0, None),
    ] {
        sent.adapt(10, &mut sample(1, came, rtt), Some(MS), false);
    }
    // Smallest without the receiver's delay, last with it.
    let rtts = (sent.batch.shortest(), sent.batch.last());
    assert_eq!(rtts, (Some(MS), Some(5 * MS)));
    let mut expected = sent;
    expected.batch = Batch::EMPTY;
    expected.tell(20, Some(5 * MS), &sample(4, 4, Some(MS)));
    sent.tell_batch(20);
    assert_eq!(sent, expected);
}

#[test]
fn at_most_a_window_is_told_together() {
    let adapt = |sent: &mut Sent, acked_packets| {
        let mut sample = AckSample {
            acked_packets,
            app_limited: true,
            ..AckSample::default()
        };
        sent.adapt(10, &mut sample, None, false);
        sent.batch.acked
    };
    let mut sent = path();
    sent.rtt.sample(MS);
    assert_eq!(adapt(&mut sent, 5), 5);
    // The window is 10: those before are told first.
    assert_eq!(adapt(&mut sent, 6), 6);
    let mut batch = Batch::EMPTY;
    batch.add(0, 3, 0, None, None);
    assert!(batch.is_due(0, 3) && !batch.is_due(0, 4));
}

#[test]
fn each_round_trip_is_told_at_once_where_packets_are_lost_or_come_late() {
    let adapt = |mut sent: Sent| {
        let mut sample = AckSample {
            acked_packets: 1,
            app_limited: true,
            ..AckSample::default()
        };
        sent.adapt(10, &mut sample, None, false);
        sent.batch.acked
    };
    let mut begun = path();
    begun.rtt.sample(MS);
    assert_eq!(adapt(begun), 1);
    let mut watched = begun;
    watched.watch_from = 3;
    assert_eq!(adapt(watched), 0);
    let mut late = begun;
    late.reordering.came_late(1, 1_000);
    assert_eq!(adapt(late), 0);
}

/// Checks P8.1.
#[test]
fn a_mark_counts_though_the_end_of_recovery_was_not_told_yet() {
    let sample = |ce_packets| AckSample {
        acked_packets: 5,
        ce_packets,
        rtt_ns: Some(MS),
        app_limited: true,
        ..AckSample::default()
    };
    let mut sent = path();
    let mut adapt = |now: u64, ce_packets| {
        sent.flying = 5;
        sent.adapt(now, &mut sample(ce_packets), Some(0), false);
        sent.window()
    };
    adapt(0, 0);
    let before = adapt(1, 1);
    assert!(adapt(2, 0) == before && adapt(3, 1) < before);
}
