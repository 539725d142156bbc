//! Frames that have become too big for their path.

use super::*;
use crate::base::PACKET_BASE;

/// Bytes of chunks in a full Ethernet packet.
const WIDE: usize = 1_444;
/// Bytes of chunks in a jumbo packet.
const JUMBO: usize = 8_944;

fn jumbo() -> Sender {
    Sender::with(Store::with(&Config {
        frames: 32,
        frame_bytes: 9_728,
        longs: 8,
        ..Config::default()
    }))
}

/// Takes all but the last frames, which are for packets that the link returns at once.
fn use_up(sender: &mut Sender) {
    sender.store.leave_free(0);
}

/// Queues a request of `bytes` bytes.
fn send(sender: &mut Sender, bytes: usize) -> FrameIndex {
    sender.send(Request, 0, bytes)
}

/// Ranges of messages that leave where `room` bytes fit, each acknowledged before the next.
fn leave_all(sender: &mut Sender, room: usize) -> Vec<(u32, u64, usize)> {
    let mut ranges = Vec::new();
    while let Some(pick) = sender.pick(room, false) {
        assert!(sender.cargo(pick.frame).len as usize <= room);
        let parts = sender.parts(pick.frame);
        assert_right(&parts);
        ranges.extend(
            parts
                .iter()
                .map(|(message, at, it)| (*message, *at, it.len())),
        );
        sender.acked(pick.frame);
    }
    assert!(sender.out.is_settled());
    ranges
}

#[test]
fn a_frame_is_split_between_its_messages() {
    let mut sender = Sender::new();
    let frame = send(&mut sender, 400);
    send(&mut sender, 400);
    assert_eq!(send(&mut sender, 300), frame);
    let first = sender.pick(1_000, false);
    let expected = Pick {
        frame,
        resent: false,
        cut: 0,
    };
    assert_eq!(first, Some(expected));
    assert_eq!(sender.parts(frame).len(), 2);
    let rest = sender.out.resend.head;
    assert_eq!(
        (sender.cargo(frame).chunks, sender.cargo(rest).chunks),
        (2, 1)
    );
    // Each counts against the credit when it leaves.
    assert_eq!((sender.out.kept.sent[0], sender.out.queued), (2, 2));
    assert_eq!(sender.pick(1_000, false).map(|it| it.resent), Some(false));
    assert_eq!(sender.out.kept.sent[0], 3);
    let parts = sender.parts(rest);
    assert_eq!((parts[0].0, parts[0].2.len()), (2, 300));
    assert_right(&parts);
}

#[test]
fn a_message_larger_than_the_path_is_cut_and_what_follows_stays_behind_it() {
    let mut sender = Sender::new();
    let frame = send(&mut sender, 900);
    assert_eq!(send(&mut sender, 100), frame);
    send(&mut sender, 700);
    let ranges = leave_all(&mut sender, 500);
    let expected = [
        (0, 0, 448),
        (0, 448, 452),
        (1, 0, 100),
        (2, 0, 448),
        (2, 448, 252),
    ];
    assert_eq!(ranges, expected);
    // The receiver sees the parts alone.
    assert_eq!(sender.out.kept.sent[0], 5);
    sender.store.assert_free();
}

/// Checks P7.6.
#[test]
fn a_frame_split_after_it_has_left_counts_once() {
    let mut sender = jumbo();
    send(&mut sender, 1_180);
    let frame = sender.pick(JUMBO, false).unwrap().frame;
    assert_eq!(sender.out.kept.sent[0], 1);
    sender.lose(frame, 4);
    let pick = sender.pick(600, false).unwrap();
    // The message is in three parts, and may have arrived as one.
    assert_eq!((pick.frame, pick.resent, pick.cut), (frame, true, 1));
    let pick = sender.pick(600, false).unwrap();
    assert_eq!((pick.resent, pick.cut), (true, 1));
    let last = sender.pick(600, false).unwrap();
    assert_eq!((last.resent, last.cut), (true, 0));
    assert_eq!((sender.out.kept.sent[0], sender.out.queued), (1, 3));
    // Each part knows the number under which it may have arrived.
    for it in [frame, pick.frame, last.frame] {
        let left = sender.flight(it).left_as(PathIndex::new(0), 4);
        assert_eq!(left, Some(40), "{it}");
    }
}

#[test]
fn a_message_that_was_cut_before_it_left_never_was_one() {
    let mut sender = Sender::new();
    send(&mut sender, 900);
    for sent in 1..=2 {
        let pick = sender.pick(500, false).unwrap();
        assert_eq!((pick.resent, pick.cut), (false, 0));
        assert_eq!(sender.out.kept.sent[0], sent);
    }
}

#[test]
fn messages_that_part_were_not_cut() {
    let mut sender = Sender::new();
    let frame = send(&mut sender, 500);
    send(&mut sender, 500);
    sender.leave();
    sender.lose(frame, 0);
    let pick = sender.pick(600, false).unwrap();
    assert_eq!((pick.frame, pick.cut), (frame, 0));
    assert_eq!(sender.pick(600, false).unwrap().cut, 0);
}

#[test]
fn parts_of_a_jumbo_packet_have_all_of_its_bytes() {
    let mut sender = jumbo();
    let frame = sender.send_wide(0, 8_900);
    let ranges = leave_all(&mut sender, ROOM);
    let expected: Vec<_> = (0..8)
        .map(|i| (0, i * 1_152, if i < 7 { 1_152 } else { 836 }))
        .collect();
    assert_eq!(ranges, expected);
    assert_eq!(sender.out.kept.sent[0], 8);
    assert_eq!(sender.cargo(frame).usage, Use::Free);
    sender.store.assert_free();
}

#[test]
fn parts_of_replies_count_as_replies() {
    let mut sender = Sender::new();
    let frame = sender.send(Reply, 0, 1_100);
    sender.pick(ROOM, true).unwrap();
    sender.lose(frame, 0);
    assert_eq!(sender.pick(600, true).unwrap().frame, frame);
    assert_eq!((sender.out.queued, sender.out.queued_replies), (2, 2));
    let rest = sender.pick(600, true).unwrap().frame;
    sender.acked(frame);
    sender.acked(rest);
    assert_eq!((sender.out.queued, sender.out.queued_replies), (0, 0));
}

#[test]
fn a_long_message_ends_with_the_last_part_of_its_parts() {
    let mut sender = Sender::new();
    sender.send_long(Request, 0, 2_000, Release::Acknowledged);
    let frames = [0; 2].map(|_| sender.leave().unwrap());
    sender.lose(frames[0], 0);
    sender.lose(frames[1], 1);
    // Head and body are in two parts each.
    let mut leave = || sender.pick(700, false).unwrap().frame;
    let parts = [leave(), leave(), leave(), leave()];
    let all: Vec<_> = parts.into_iter().flat_map(|it| sender.parts(it)).collect();
    let ranges: Vec<_> = all.iter().map(|(_, at, it)| (*at, it.len())).collect();
    assert_eq!(ranges, [(0, 640), (640, 512), (1_152, 640), (1_792, 208)]);
    assert_right(&all);
    for frame in parts {
        assert_eq!(sender.store.released(), None);
        sender.acked(frame);
    }
    assert!(sender.store.released().is_some());
    sender.store.assert_free();
}

#[test]
fn where_no_frame_is_free_the_rest_waits_in_the_same_one() {
    let mut sender = Sender::new();
    let frame = sender.send_wide(0, 1_300);
    use_up(&mut sender);
    let pick = sender.pick(ROOM, false).unwrap();
    assert_eq!((pick.frame, pick.cut), (frame, 1));
    assert_eq!((sender.out.queued, sender.out.kept.sent[0]), (1, 1));
    let parts = sender.parts(frame);
    assert_eq!((parts[0].1, parts[0].2.len()), (0, 1_152));
    assert_right(&parts);
    // The first part leaves again, until it is acknowledged.
    sender.lose(frame, 0);
    assert_eq!(sender.leave(), Some(frame));
    assert_eq!(sender.parts(frame), parts);
    sender.acked(frame);
    assert!(!sender.out.is_settled());
    let pick = sender.pick(ROOM, false).unwrap();
    assert_eq!((pick.frame, pick.resent), (frame, true));
    let parts = sender.parts(frame);
    assert_eq!((parts[0].1, parts[0].2.len()), (1_152, 148));
    assert_right(&parts);
    // What was given up had not this part.
    assert_eq!(sender.flight(frame).left_as(PathIndex::new(0), 0), None);
    assert_eq!(sender.out.kept.sent[0], 1);
    sender.acked(frame);
    assert!(sender.out.is_settled());
}

#[test]
fn a_jumbo_packet_leaves_part_by_part_where_no_frame_is_free() {
    let mut sender = jumbo();
    sender.send_wide(0, 8_000);
    sender.send_wide(0, 500);
    use_up(&mut sender);
    assert_eq!(sender.out.queued, 1);
    let first = sender.pick(ROOM, false).unwrap();
    assert_eq!(first.cut, 1);
    assert_eq!(sender.parts(first.frame)[0].2.len(), 1_152);
    sender.acked(first.frame);
    let ranges = leave_all(&mut sender, ROOM);
    let mut expected: Vec<_> = (1..6).map(|i| (0, i * 1_152, 1_152)).collect();
    expected.extend([(0, 6_912, 1_088), (1, 0, 500)]);
    assert_eq!(ranges, expected);
    assert_eq!(sender.out.kept.sent[0], 2);
}

#[test]
fn messages_that_wait_in_the_same_frame_leave_together() {
    let mut sender = Sender::new();
    for bytes in [600, 500, 100, 60] {
        sender.send_wide(0, bytes);
    }
    use_up(&mut sender);
    let pick = sender.pick(ROOM, false).unwrap();
    // No message was cut.
    assert_eq!(pick.cut, 0);
    assert_eq!(sender.parts(pick.frame).len(), 2);
    sender.acked(pick.frame);
    assert_eq!(leave_all(&mut sender, ROOM), [(2, 0, 100), (3, 0, 60)]);
}

#[test]
fn the_next_part_waits_until_the_link_is_done_with_the_frame() {
    let mut sender = Sender::new();
    let frame = sender.send_wide(0, 1_300);
    use_up(&mut sender);
    sender.leave();
    sender.flight(frame).in_link = true;
    let sealed = sender.parts(frame);
    let go_on = |sender: &mut Sender| {
        let Sender { store, out } = sender;
        out.go_on_with_rest(&mut store.memory(), frame)
    };
    assert!(!go_on(&mut sender));
    assert_eq!(
        (sender.cargo(frame).usage, sender.leave()),
        (Use::Parting, None)
    );
    assert_eq!(sender.parts(frame), sealed);
    sender.flight(frame).in_link = false;
    assert!(go_on(&mut sender));
    assert_eq!(sender.cargo(frame).usage, Use::Queued);
    assert_eq!(leave_all(&mut sender, ROOM), [(0, 1_152, 148)]);
}

#[test]
fn a_frame_with_a_parked_rest_needs_no_other_once_frames_are_free() {
    let mut sender = jumbo();
    let frame = sender.send_wide(0, 8_000);
    sender.send_wide(0, 500);
    use_up(&mut sender);
    sender.leave();
    // Frames are free again; the parts still leave one after another, in their order.
    let passing = (0..32).map(FrameIndex::new);
    for other in passing.filter(|&it| it != frame) {
        sender.store.memory().free(other);
    }
    sender.acked(frame);
    let ranges = leave_all(&mut sender, ROOM);
    assert_eq!(ranges.first(), Some(&(0, 1_152, 1_152)));
    assert_eq!(ranges.last(), Some(&(1, 0, 500)));
    assert_eq!(
        ranges.iter().map(|it| it.2).sum::<usize>(),
        8_000 - 1_152 + 500
    );
    sender.store.assert_free();
}

#[test]
fn parked_rests_fit_the_smallest_frame_that_a_packet_size_may_have() {
    let config = Config {
        frames: 32,
        frame_bytes: 1_664,
        longs: 2,
        ..Config::default()
    };
    config.assert_valid();
    let mut sender = Sender::with(Store::with(&config));
    assert_eq!(sender.store.memory().chunk_room(config.packet_max), WIDE);
    assert_eq!(sender.store.memory().chunk_room(PACKET_BASE), ROOM);
    // One message that is cut; and one that is, with others behind it.
    for payloads in [[WIDE - 20].as_slice(), &[1_200, 140, 44]] {
        let mut sender = Sender::with(Store::with(&config));
        for &bytes in payloads {
            sender.send_for(WIDE, Request, 0, bytes);
        }
        assert_eq!(sender.out.queued, 1);
        use_up(&mut sender);
        let ranges = leave_all(&mut sender, ROOM);
        assert_eq!(
            ranges.iter().map(|it| it.2).sum::<usize>(),
            payloads.iter().sum()
        );
    }
}

#[test]
fn control_chunks_are_not_split() {
    let mut sender = Sender::new();
    let frame = sender.control(&Chunk::Ping);
    // Several in one frame, as refusals are.
    let more = sender.control(&Chunk::Ping);
    let chunk = sender.store.memory().chunks(more).to_vec();
    sender.store.memory().frame(frame)[CHUNKS_AT + 4..][..4].copy_from_slice(&chunk);
    sender.cargo(frame).len = 8;
    sender.leave();
    sender.leave();
    sender.acked(more);
    sender.lose(frame, 0);
    let pick = sender.pick(6, false).unwrap();
    assert_eq!((pick.frame, pick.cut), (frame, 0));
    assert_eq!((sender.cargo(frame).len, sender.out.queued), (8, 1));
    sender.acked(frame);
    sender.store.assert_free();
}
