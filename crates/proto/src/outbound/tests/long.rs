//! Long messages are cut from the caller's memory.

use super::*;

/// Parts of all frames that leave, which are acknowledged at once.
fn leave_all(sender: &mut Sender, room: usize) -> Vec<(u32, u64, Vec<u8>)> {
    let mut parts = Vec::new();
    while let Some(pick) = sender.pick(room, false) {
        parts.extend(sender.parts(pick.frame));
        sender.acked(pick.frame);
    }
    parts
}

fn offsets(parts: &[(u32, u64, Vec<u8>)]) -> Vec<(u64, usize)> {
    let range = |part: &(u32, u64, Vec<u8>)| (part.1, part.2.len());
    parts.iter().map(range).collect()
}

#[test]
fn a_long_message_is_cut_into_parts_in_order() {
    let mut sender = Sender::new();
    sender.send_long(Request, 3, 3_000, Release::Acknowledged);
    assert_eq!((sender.out.queued, sender.out.kept.sent[0]), (1, 0));
    let parts = leave_all(&mut sender, ROOM);
    // Whole units of 64 bytes: all but the last.
    assert_eq!(offsets(&parts), [(0, 1_152), (1_152, 1_152), (2_304, 696)]);
    assert_right(&parts);
    assert_eq!(sender.out.kept.sent, [3, 0]);
    assert!(sender.out.is_settled());
    assert!(sender.store.released().is_some());
    sender.store.assert_free();
}

/// Checks P2.20.
#[test]
fn nothing_follows_a_part_in_its_frame() {
    let mut sender = Sender::new();
    sender.send_long(Request, 3, 3_000, Release::Acknowledged);
    assert_eq!(sender.tail(Request, 3, 8), None);
    sender.send(Request, 3, 8);
    let mut frames = Vec::new();
    while let Some(pick) = sender.pick(ROOM, false) {
        frames.push(sender.cargo(pick.frame).chunks);
    }
    assert_eq!(frames, [1; 4]);
}

#[test]
fn each_part_names_its_message() {
    let mut sender = Sender::new();
    sender.send(Reply, 3, 10);
    sender.send_long(Reply, 3, 2_000, Release::Copied);
    sender.leave();
    let frames = [0; 2].map(|_| sender.leave().unwrap());
    let replies = sender.out.queued_replies;
    assert_eq!((sender.out.queued, replies), (3, 3));
    let memory = sender.store.memory();
    let chunk = |frame| Chunks::new(memory.chunks(frame)).next().unwrap().unwrap();
    let Chunk::Head(head) = chunk(frames[0]) else {
        panic!("{:?}", chunk(frames[0]));
    };
    assert_eq!(
        (head.priority, head.flow, head.message),
        (Reply, 3, MessageNo(1))
    );
    assert_eq!(
        (head.port, head.total, head.payload.len()),
        (5, 2_000, 1_152)
    );
    let Chunk::Body(body) = chunk(frames[1]) else {
        panic!("{:?}", chunk(frames[1]));
    };
    assert_eq!(
        (body.priority, body.flow, body.message),
        (Reply, 3, MessageNo(1))
    );
    assert_eq!((body.fragment, body.payload.len()), (18, 848));
    let cargo = &memory.cargo[frames[1]];
    assert_eq!((cargo.priority, cargo.flow, cargo.chunks), (Reply, 3, 1));
}

#[test]
fn what_fits_the_head_leaves_in_it() {
    for (total, ranges) in [
        (0, [(0, 0)].as_slice()),
        (1_183, &[(0, 1_183)]),
        (1_184, &[(0, 1_184)]),
        // Now the head has whole units only.
        (1_185, &[(0, 1_152), (1_152, 33)]),
    ] {
        let mut sender = Sender::new();
        sender.send_long(Request, 0, total, Release::Copied);
        let parts = leave_all(&mut sender, ROOM);
        assert_eq!(offsets(&parts), ranges, "{total}");
        assert_right(&parts);
        assert!(sender.store.released().is_some());
        assert!(sender.out.has_left());
        sender.store.assert_free();
    }
}

#[test]
fn parts_have_the_size_of_the_packets_of_the_moment() {
    let mut sender = Sender::new();
    sender.send_long(Request, 0, 4_000, Release::Copied);
    let mut parts = Vec::new();
    for room in [ROOM, 500, 1_444, 300, ROOM] {
        let frame = sender.pick(room, false).unwrap().frame;
        assert!(sender.cargo(frame).len as usize <= room);
        parts.extend(sender.parts(frame));
    }
    let expected = [
        (0, 1_152),
        (1_152, 448),
        (1_600, 1_408),
        (3_008, 256),
        (3_264, 736),
    ];
    assert_eq!(offsets(&parts), expected);
    assert_right(&parts);
    assert!(sender.out.has_left());
}

#[test]
fn what_was_queued_behind_a_long_message_waits_for_its_last_part() {
    let mut sender = Sender::new();
    sender.send_long(Request, 1, 3_000, Release::Copied);
    sender.send(Request, 1, 700);
    sender.send(Request, 2, 700);
    let parts = leave_all(&mut sender, ROOM);
    let order: Vec<_> = parts
        .iter()
        .map(|(message, at, _)| (*message, *at))
        .collect();
    // Flow 2 has its turn between two parts.
    assert_eq!(order, [(0, 0), (0, 0), (0, 1_152), (0, 2_304), (1, 0)]);
    assert_right(&parts);
}

#[test]
fn copied_memory_is_released_with_the_last_part_that_leaves() {
    let mut sender = Sender::new();
    sender.send_long(Request, 0, 3_000, Release::Copied);
    let frames = [0; 2].map(|_| sender.leave().unwrap());
    frames.into_iter().for_each(|frame| sender.acked(frame));
    assert_eq!(sender.store.released(), None);
    let last = sender.leave().unwrap();
    assert_eq!(sender.store.released(), Some((SourceId(0), Outcome::Done)));
    // The entry is kept for the frame that is not acknowledged.
    assert_eq!(sender.store.pool.free_long_count, 7);
    sender.lose(last, 2);
    assert_eq!(sender.leave(), Some(last));
    let parts = sender.parts(last);
    assert_eq!(offsets(&parts), [(2_304, 696)]);
    assert_right(&parts);
    sender.acked(last);
    assert_eq!(sender.store.released(), None);
    sender.store.assert_free();
}

#[test]
fn acknowledged_memory_is_released_with_the_last_frame_that_is_settled() {
    let mut sender = Sender::new();
    sender.send_long(Request, 0, 3_000, Release::Acknowledged);
    let frames = [0; 3].map(|_| sender.leave().unwrap());
    assert!(sender.out.has_left());
    for frame in [frames[2], frames[0]] {
        sender.acked(frame);
        assert_eq!(sender.store.released(), None);
    }
    sender.acked(frames[1]);
    assert_eq!(sender.store.released(), Some((SourceId(0), Outcome::Done)));
    sender.store.assert_free();
}

#[test]
fn where_no_frame_is_free_for_a_part_other_flows_go_on() {
    let mut sender = Sender::new();
    sender.send_long(Request, 0, 3_000, Release::Copied);
    sender.send(Request, 1, 700);
    let head = sender.leave().unwrap();
    sender.store.leave_free(6);
    assert_eq!(sender.flows(), [1]);
    assert!(sender.store.pool.lacked);
    assert!(sender.out.has_queue() && sender.has_allowed());
    sender.acked(head);
    assert_eq!(sender.flows(), [0]);
    // Parts of replies find frames that those of requests do not.
    sender.send_long(Reply, 0, 3_000, Release::Copied);
    let reply = sender.leave().unwrap();
    assert_eq!(sender.parts(reply).len(), 1);
    assert_eq!(sender.flows(), [0, 0]);
    assert_eq!(sender.out.queued_replies, 3);
}

#[test]
fn the_end_of_a_peer_releases_each_long_message_once() {
    let mut sender = Sender::new();
    // One whose parts were all acknowledged so far; one with a part in flight, one that waits.
    for flow in [0, 1, 2] {
        sender.send_long(Request, flow, 3_000, Release::Acknowledged);
        sender.store.longs[LongIndex::new(flow.into())].source = SourceId(flow.into());
    }
    sender.send_long(Reply, 0, 3_000, Release::Copied);
    sender.store.longs[LongIndex::new(3)].source = SourceId(3);
    // All of the reply has left, and its memory is released.
    let replies = [0; 3].map(|_| sender.leave().unwrap());
    assert_eq!(sender.store.released(), Some((SourceId(3), Outcome::Done)));
    let settled = sender.leave().unwrap();
    sender.acked(settled);
    let flying = sender.leave().unwrap();
    let Sender { store, out } = &mut sender;
    out.drop_all(&mut store.memory());
    // The caller drops what is in flight.
    for frame in replies.into_iter().chain([flying]) {
        store.memory().drop_frame(frame);
    }
    let mut released: Vec<_> = core::iter::from_fn(|| store.released()).collect();
    released.sort_by_key(|it| it.0.0);
    let dead = [0, 1, 2].map(|source| (SourceId(source), Outcome::PeerDead));
    assert_eq!(released, dead);
    store.assert_free();
}
