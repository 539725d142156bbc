//! What leaves for a peer, without packets and without an endpoint.

extern crate std;

mod full;
mod long;
mod split;
mod stopped;

use std::vec;
use std::vec::Vec;

use portolan_wire::{Chunks, HEAD_BYTES, Head};

use super::*;
use crate::base::{Release, SourceId};
use crate::memory::tests::{CONN, Store};
use crate::memory::{Cargo, Flight, Long};
use Priority::{Reply, Request};

/// Bytes of chunks in the packets of every path.
pub const ROOM: usize = 1_204;

/// Memory of long messages: each byte follows from source and offset.
pub struct Pattern;

impl Pattern {
    pub fn byte(source: SourceId, offset: u64) -> u8 {
        (source.0.wrapping_mul(41) ^ offset ^ offset >> 8) as u8
    }
}

impl Sources for Pattern {
    fn read(&self, source: SourceId, offset: u64, into: &mut [u8]) {
        for (byte, at) in into.iter_mut().zip(offset..) {
            *byte = Self::byte(source, at);
        }
    }
}

/// One peer's outbound messages, and memory for them.
pub struct Sender {
    pub store: Store,
    pub out: Outbound,
}

impl Sender {
    /// Memory of 64 frames, and credit for 1,000 chunks of each priority.
    pub fn new() -> Self {
        Self::with(Store::new(64, 8))
    }

    pub fn with(store: Store) -> Self {
        let kept = KeptOut {
            credit: [1_000; 2],
            ..KeptOut::default()
        };
        let out = Outbound::new(kept);
        Self { store, out }
    }

    pub fn cargo(&mut self, frame: FrameIndex) -> &mut Cargo {
        &mut self.store.cargo[frame]
    }

    pub fn flight(&mut self, frame: FrameIndex) -> &mut Flight {
        &mut self.store.flights[frame]
    }

    fn push(&mut self, priority: Priority, flow: u16) -> Option<FrameIndex> {
        let Self { store, out } = self;
        out.push(&mut store.memory(), CONN, priority, flow)
    }

    fn tail(&mut self, priority: Priority, flow: u16, bytes: usize) -> Option<FrameIndex> {
        let Self { store, out } = self;
        out.tail(&store.memory(), priority, flow, bytes, ROOM)
    }

    /// Queues a message with `bytes` bytes, for packets with `room` bytes of chunks: in the last
    /// frame of its flow, if it fits, or else in a new one.
    fn send_for(&mut self, room: usize, priority: Priority, flow: u16, bytes: usize) -> FrameIndex {
        let Self { store, out } = self;
        let len = HEAD_BYTES + bytes;
        let frame = match out.tail(&store.memory(), priority, flow, len, room) {
            Some(frame) => frame,
            None => self.push(priority, flow).unwrap(),
        };
        let message = self.out.number(priority, flow);
        let mut payload = vec![0; bytes];
        Pattern.read(SourceId(message.0.into()), 0, &mut payload);
        let head = Head {
            priority,
            flow,
            message,
            port: 5,
            total: bytes as u64,
            args: &[],
            payload: &payload,
        };
        let cargo = self.cargo(frame);
        let at = CHUNKS_AT + cargo.len as usize;
        cargo.len += len as u32;
        cargo.chunks += 1;
        head.write(&mut self.store.memory().frame(frame)[at..]);
        frame
    }

    /// Queues a message for packets that every path takes.
    pub fn send(&mut self, priority: Priority, flow: u16, bytes: usize) -> FrameIndex {
        self.send_for(ROOM, priority, flow, bytes)
    }

    /// Queues a request for packets as large as the frames allow.
    fn send_wide(&mut self, flow: u16, bytes: usize) -> FrameIndex {
        let room = self.store.memory().chunk_room(u16::MAX);
        self.send_for(room, Request, flow, bytes)
    }

    /// Queues a long message of `total` bytes, whose source has the message's number.
    pub fn send_long(
        &mut self,
        priority: Priority,
        flow: u16,
        total: u64,
        release: Release,
    ) -> LongIndex {
        let message = self.out.kept.next[priority.index()][flow as usize];
        let long = self.store.memory().take_long(Long {
            source: SourceId(message.0.into()),
            total,
            frames: 1,
            message,
            release,
            ..Long::default()
        });
        let frame = self.push(priority, flow).unwrap();
        self.out.number(priority, flow);
        let head = Head {
            priority,
            flow,
            message,
            port: 5,
            total,
            args: &[],
            payload: &[],
        };
        let len = head.write(&mut self.store.memory().frame(frame)[CHUNKS_AT..]);
        let cargo = self.cargo(frame);
        (cargo.long, cargo.len, cargo.chunks) = (long, len as u32, 1);
        long
    }

    fn control(&mut self, chunk: &Chunk<'_>) -> FrameIndex {
        let Self { store, out } = self;
        let frame = out.push_control(&mut store.memory(), CONN, chunk);
        frame.unwrap()
    }

    pub fn pick(&mut self, room: usize, replies: bool) -> Option<Pick> {
        let Self { store, out } = self;
        out.pick(&mut store.memory(), CONN, room, replies, &Pattern)
    }

    /// The frame that leaves next.
    pub fn leave(&mut self) -> Option<FrameIndex> {
        self.pick(ROOM, false).map(|it| it.frame)
    }

    /// Flows of all frames that leave.
    fn flows(&mut self) -> Vec<u16> {
        let mut flows = Vec::new();
        while let Some(frame) = self.leave() {
            flows.push(self.cargo(frame).flow);
        }
        flows
    }

    pub fn lose(&mut self, frame: FrameIndex, number: u64) {
        let given_up = GivenUp {
            path: PathIndex::new(0),
            number,
            sent_at: 10 * number,
        };
        let Self { store, out } = self;
        out.lost(&mut store.memory(), frame, given_up);
    }

    /// A frame was acknowledged; the link has returned it.
    pub fn acked(&mut self, frame: FrameIndex) {
        let Self { store, out } = self;
        let mut memory = store.memory();
        if memory.cargo[frame].rest[0] != 0 {
            assert!(out.go_on_with_rest(&mut memory, frame));
        } else {
            out.settled(&mut memory, frame);
        }
    }

    fn has_allowed(&mut self) -> bool {
        self.out.has_allowed(&self.store.memory())
    }

    /// The parts of messages in a frame: message, offset and bytes.
    fn parts(&mut self, frame: FrameIndex) -> Vec<(u32, u64, Vec<u8>)> {
        let memory = self.store.memory();
        let parts = Chunks::new(memory.chunks(frame)).map(|chunk| match chunk.unwrap() {
            Chunk::Head(h) => (h.message.0, 0, h.payload.to_vec()),
            Chunk::Body(b) => {
                let offset = u64::from(b.fragment) * portolan_wire::Body::UNIT;
                (b.message.0, offset, b.payload.to_vec())
            }
            other => panic!("{other:?}"),
        });
        parts.collect()
    }
}

/// Checks that parts have the bytes of their messages.
fn assert_right(parts: &[(u32, u64, Vec<u8>)]) {
    for (message, offset, bytes) in parts {
        let mut expected = vec![0; bytes.len()];
        Pattern.read(SourceId(u64::from(*message)), *offset, &mut expected);
        assert_eq!(bytes, &expected, "message {message} from {offset}");
    }
}

#[test]
fn flows_take_turns() {
    let mut sender = Sender::new();
    for flow in [9, 2, 5, 2, 9] {
        sender.send(Request, flow, 700);
    }
    assert_eq!(sender.flows(), [2, 5, 9, 2, 9]);
    // The turn is that of the flow behind the last.
    for flow in [9, 10, 0, 15] {
        sender.send(Request, flow, 700);
    }
    assert_eq!(sender.flows(), [10, 15, 0, 9]);
    assert!(sender.out.has_left());
}

/// Checks P7.15.
#[test]
fn replies_leave_before_requests_and_have_a_turn_of_their_own() {
    let mut sender = Sender::new();
    let request = sender.send(Request, 0, 700);
    let replies = [3, 1].map(|flow| sender.send(Reply, flow, 700));
    assert_eq!(sender.leave(), Some(replies[1]));
    assert_eq!(sender.pick(ROOM, true).unwrap().frame, replies[0]);
    // Where only replies may leave, requests and control chunks do not.
    let close = sender.control(&Chunk::Close { alive: false });
    sender.lose(request, 0);
    sender.lose(replies[0], 1);
    assert_eq!(sender.pick(ROOM, true).unwrap().frame, replies[0]);
    assert_eq!(sender.pick(ROOM, true), None);
    assert_eq!(sender.leave(), Some(request));
    assert_eq!(sender.leave(), Some(close));
}

/// Checks P7.5, P7.6.
#[test]
fn a_frame_leaves_while_any_credit_is_left_and_none_afterwards() {
    let mut sender = Sender::new();
    sender.out.kept.credit = [2, 1];
    let first = sender.send(Request, 0, 100);
    sender.send(Request, 0, 100);
    sender.send(Request, 0, 100);
    sender.send(Request, 1, 100);
    let reply = sender.send(Reply, 0, 100);
    assert_eq!(sender.leave(), Some(reply));
    assert!(sender.has_allowed());
    // The frame has three chunks, one more than is left.
    assert_eq!(sender.leave(), Some(first));
    assert_eq!(sender.out.kept.sent, [3, 1]);
    assert_eq!(sender.leave(), None);
    assert!(!sender.has_allowed() && sender.out.has_queue());
    // Credit for the chunk that exceeded it is no credit for another.
    sender.out.grant([3, 1]);
    assert_eq!(sender.leave(), None);
    sender.out.grant([4, 1]);
    assert!(sender.has_allowed());
    assert_eq!(sender.flows(), [1]);
}

/// Checks P2.12.
#[test]
fn a_grant_that_comes_late_changes_nothing() {
    let mut sender = Sender::new();
    sender.out.kept = KeptOut::new(&Config {
        first_message: u32::MAX - 1,
        ..Config::default()
    });
    assert_eq!(sender.out.kept.credit, [u32::MAX - 1; 2]);
    // Counts wrap around.
    sender.out.grant([1, u32::MAX]);
    assert_eq!(sender.out.kept.credit, [1, u32::MAX]);
    sender.out.grant([u32::MAX, u32::MAX - 5]);
    assert_eq!(sender.out.kept.credit, [1, u32::MAX]);
    sender.send(Request, 0, 700);
    sender.send(Request, 0, 700);
    sender.send(Reply, 1, 700);
    sender.send(Reply, 1, 700);
    // From 2^32 - 2 on, credit is left for three requests and one reply.
    assert_eq!(sender.flows(), [1, 0, 0]);
    sender.send(Request, 0, 700);
    sender.send(Request, 2, 700);
    assert_eq!(sender.flows(), [2]);
    assert_eq!(sender.out.kept.sent, [1, u32::MAX]);
}

/// Checks P6.1, P7.6.
#[test]
fn a_lost_frame_leaves_again_before_all_else_and_without_credit() {
    let mut sender = Sender::new();
    sender.out.kept.credit = [2; 2];
    let lost = [0, 1].map(|flow| sender.send(Request, flow, 700));
    assert_eq!([0; 2].map(|_| sender.leave()), lost.map(Some));
    let reply = sender.send(Reply, 2, 700);
    let ping = sender.control(&Chunk::Ping);
    sender.lose(lost[1], 8);
    sender.lose(lost[0], 7);
    for frame in [lost[1], lost[0]] {
        let pick = sender.pick(ROOM, false);
        let resent = Pick {
            frame,
            resent: true,
            cut: 0,
        };
        assert_eq!(pick, Some(resent));
        assert!(sender.flight(frame).again && sender.cargo(frame).counted);
    }
    for frame in [ping, reply] {
        let fresh = Pick {
            frame,
            resent: false,
            cut: 0,
        };
        assert_eq!(sender.pick(ROOM, false), Some(fresh));
        assert!(!sender.flight(frame).again);
    }
    assert_eq!(sender.out.kept.sent, [2, 1]);
    assert_eq!(sender.pick(ROOM, false), None);
}

#[test]
fn a_frame_that_has_arrived_is_found_by_its_first_and_last_number() {
    let mut sender = Sender::new();
    let frame = sender.send(Request, 0, 700);
    sender.leave();
    let other = sender.send(Request, 1, 700);
    sender.leave();
    for number in [3, 5, 9] {
        sender.lose(frame, number);
        sender.leave();
    }
    let numbers = sender.flight(frame).given_up.map(|it| it.number);
    assert_eq!(numbers, [3, 9]);
    let mut take = |path: usize, number: u64| {
        sender.out.resend = List::EMPTY;
        sender.lose(other, 4);
        // Its last number stays as it was.
        sender.lose(frame, 9);
        let Sender { store, out } = &mut sender;
        out.take_arrived(&mut store.memory(), PathIndex::new(path), number)
    };
    assert_eq!((take(0, 3), take(0, 9)), (Some(frame), Some(frame)));
    assert_eq!((take(0, 5), take(1, 9)), (None, None));
    assert_eq!(take(0, 4), Some(other));
    assert_eq!(sender.leave(), Some(frame));
}

#[test]
fn a_full_queue_takes_replies_up_to_a_quarter() {
    let mut sender = Sender::new();
    let mut take = |priority, flow| {
        let takes = sender.out.takes(priority, flow, 8);
        if takes {
            sender.send(priority, flow, 700);
        }
        takes
    };
    assert!((0..7).all(|flow| take(Request, flow)));
    assert!(take(Reply, 0));
    assert!(!take(Request, 0));
    // Eight frames are queued, one of them a reply.
    assert!(take(Reply, 1) && !take(Reply, 2));
    let frame = sender.leave().unwrap();
    assert!(!sender.out.takes(Reply, 0, 8), "it is in flight");
    sender.acked(frame);
    assert!(sender.out.takes(Reply, 0, 8));
    // However small the queue, one reply is taken.
    assert!(!sender.out.takes(Reply, 0, 3));
    let frame = sender.leave().unwrap();
    sender.acked(frame);
    assert!(sender.out.takes(Reply, 0, 3));
}

#[test]
fn a_flow_takes_no_more_frames_than_it_leaves() {
    let mut sender = Sender::new();
    let mut taken = || core::iter::from_fn(|| sender.push(Request, 0)).count();
    assert_eq!(taken(), 32);
    let mut taken = || core::iter::from_fn(|| sender.push(Request, 1)).count();
    assert_eq!(taken(), 16);
    assert_eq!(sender.out.tx[0][0].frames, 32);
    assert_eq!((sender.out.queued, sender.out.pending), (48, [3, 0]));
    // Replies find frames that requests leave.
    while sender.push(Request, 2).is_some() || sender.push(Request, 3).is_some() {}
    assert_eq!(sender.store.pool.free_count, 8);
    assert!(sender.push(Reply, 2).is_some());
    assert_eq!((sender.out.queued, sender.out.queued_replies), (57, 1));
}

#[test]
fn small_messages_of_a_flow_share_a_frame() {
    let mut sender = Sender::new();
    let frame = sender.send(Request, 4, 8);
    for _ in 1..CHUNKS_MAX {
        assert_eq!(sender.send(Request, 4, 8), frame);
    }
    assert_eq!(sender.parts(frame).len(), CHUNKS_MAX as usize);
    assert_ne!(sender.send(Request, 4, 8), frame);
    // Another flow, or another priority, has another frame.
    let others = [(Request, 5), (Reply, 4)].map(|(p, flow)| sender.send(p, flow, 8));
    assert_ne!(others[0], others[1]);
    assert_eq!(sender.out.queued, 4);
    // One that has left takes nothing more.
    sender.leave();
    assert_eq!(sender.tail(Reply, 4, 28), None);
    // The last byte of the room is used.
    assert_eq!(sender.tail(Request, 5, ROOM - 28), Some(others[0]));
    assert_eq!(sender.tail(Request, 5, ROOM - 27), None);
    // Nothing joins a long message.
    sender.send_long(Request, 6, 10, Release::Copied);
    assert_eq!(sender.tail(Request, 6, 28), None);
}

#[test]
fn each_flow_numbers_its_messages() {
    let mut out = Outbound::new(KeptOut::new(&Config {
        first_message: u32::MAX,
        ..Config::default()
    }));
    assert_eq!(out.number(Request, 3).0, u32::MAX);
    assert_eq!(out.number(Request, 3).0, 0);
    assert_eq!(out.number(Reply, 3).0, u32::MAX);
    assert_eq!(out.number(Request, 4).0, u32::MAX);
}

/// Checks P7.8.
#[test]
fn control_chunks_need_no_credit() {
    let mut sender = Sender::new();
    sender.out.kept.credit = [0; 2];
    let request = sender.send(Request, 0, 10);
    assert!(!sender.has_allowed());
    let refuse = Chunk::Refuse {
        priority: Request,
        flow: 9,
        message: MessageNo(77),
    };
    let frame = sender.control(&refuse);
    assert!(sender.has_allowed());
    assert_eq!(sender.leave(), Some(frame));
    let memory = sender.store.memory();
    let chunk = Chunks::new(memory.chunks(frame)).next().unwrap().unwrap();
    assert_eq!(chunk, refuse);
    assert_eq!(sender.out.kept.sent, [0; 2]);
    assert_eq!(sender.leave(), None);
    sender.acked(frame);
    assert_eq!(sender.out.queued, 1);
    sender.out.grant([1, 0]);
    assert_eq!(sender.leave(), Some(request));
}

#[test]
fn all_has_left_before_all_is_settled() {
    let mut sender = Sender::new();
    let state = |out: &Outbound| [out.has_queue(), out.has_left(), out.is_settled()];
    assert_eq!(state(&sender.out), [false, true, true]);
    let frame = sender.send(Reply, 0, 10);
    assert_eq!(state(&sender.out), [true, false, false]);
    sender.leave();
    assert_eq!(state(&sender.out), [false, true, false]);
    sender.lose(frame, 0);
    assert_eq!(state(&sender.out), [true, false, false]);
    sender.leave();
    sender.acked(frame);
    assert_eq!(state(&sender.out), [false, true, true]);
    assert_eq!((sender.out.queued, sender.out.queued_replies), (0, 0));
    let frame = sender.control(&Chunk::Ping);
    assert_eq!(state(&sender.out), [true, false, false]);
    sender.leave();
    sender.acked(frame);
    sender.store.assert_free();
}

#[test]
fn an_acknowledgement_is_due_for_the_last_packet_and_for_each_half_of_the_credit() {
    let mut out = Outbound::default();
    assert!(!out.asks(3, false, 16));
    assert!(out.asks(1, true, 16), "nothing follows");
    assert!(!out.asks(3, false, 16));
    assert!(out.asks(1, false, 16), "eight of 16");
    assert!(out.asks(1, false, 16), "none has asked yet");
    out.asked();
    assert!(!out.asks(7, false, 16) && out.asks(1, false, 16));
}

#[test]
fn all_that_waits_is_dropped_and_its_frames_are_free() {
    let mut sender = Sender::new();
    for flow in 0..3 {
        sender.send(Request, flow, 700);
        sender.send(Reply, flow, 700);
    }
    let frame = sender.leave().unwrap();
    sender.lose(frame, 0);
    sender.control(&Chunk::Ping);
    sender.out.stop(1, [1, 0]);
    sender.out.set_full([true, false]);
    let kept = sender.out.kept;
    let Sender { store, out } = &mut sender;
    out.drop_all(&mut store.memory());
    store.assert_free();
    assert!(out.is_settled() && !out.stopped.any());
    assert_eq!((out.queued, out.queued_replies), (0, 0));
    // Counts go on, and so does what the peer has last said of its room.
    assert_eq!(out.kept, kept);
    assert!(out.is_refused());
    assert_eq!(sender.leave(), None);
}

#[test]
fn only_what_does_not_wait_for_its_turn_is_unusual() {
    let mut sender = Sender::new();
    let frame = sender.send(Priority::Request, 0, 8);
    assert!(sender.out.unusual().is_nothing());
    let mut stopped = sender.out;
    assert!(stopped.stop(1, [2, 0]));
    assert_eq!(stopped.unusual(), Unusual::STOPPED);
    let mut refused = sender.out;
    refused.set_full([false, true]);
    assert_eq!(refused.unusual(), Unusual::FULL);
    let Sender { store, out } = &mut sender;
    out.push_control(&mut store.memory(), CONN, &Chunk::Ping)
        .unwrap();
    assert_eq!(out.unusual(), Unusual::CONTROL);
    let given_up = GivenUp {
        path: PathIndex::new(0),
        ..GivenUp::NEVER
    };
    out.lost(&mut store.memory(), frame, given_up);
    assert_eq!(out.unusual(), Unusual::CONTROL | Unusual::RESEND);
}
