//! Frames and long messages, without an endpoint; and memory for the tests of other values.

extern crate std;

use std::boxed::Box;
use std::vec;

use portolan_wire::Priority;

use super::*;
use crate::base::{Config, PathIndex, Release, SourceId};

pub const CONN: ConnIndex = ConnIndex::new(3);

/// Memory of its own for one test.
pub struct Store {
    pub pool: Pool,
    pub cargo: Box<[Cargo]>,
    pub flights: Box<[Flight]>,
    pub longs: Box<[Long]>,
    pub bytes: Box<[u8]>,
}

impl Store {
    /// Memory with frames of 2,048 bytes.
    pub fn new(frames: u32, longs: u32) -> Self {
        Self::with(&Config {
            frames,
            longs,
            ..Config::default()
        })
    }

    pub fn with(config: &Config) -> Self {
        let (frames, longs) = (config.frames as usize, config.longs as usize);
        let mut store = Self {
            pool: Pool::new(config),
            cargo: vec![Cargo::default(); frames].into(),
            flights: vec![Flight::default(); frames].into(),
            longs: vec![Long::default(); longs].into(),
            bytes: vec![0; frames * config.frame_bytes as usize].into(),
        };
        for i in (0..frames).rev().map(FrameIndex::new) {
            store.pool.free.push_front(&mut store.cargo, i);
        }
        store.pool.free_count = config.frames;
        for i in (0..longs).rev().map(LongIndex::new) {
            store.memory().free_long(i);
        }
        store
    }

    pub fn memory(&mut self) -> Memory<'_> {
        Memory {
            pool: &mut self.pool,
            cargo: &mut self.cargo,
            flights: &mut self.flights,
            longs: &mut self.longs,
            bytes: &mut self.bytes,
        }
    }

    /// Takes frames for packets that the link returns at once, until `frames` are free.
    pub fn leave_free(&mut self, frames: u32) {
        while self.pool.free_count > frames {
            let mut memory = self.memory();
            memory.take(Need::Control, Use::Passing, CONN).unwrap();
        }
    }

    /// The link is done with a frame, as [`crate::Endpoint::transmitted`] notes it.
    pub fn transmitted(&mut self, frame: FrameIndex) {
        self.flights[frame].in_link = false;
        if matches!(self.cargo[frame].usage, Use::Passing | Use::Leaving) {
            self.memory().free(frame);
        }
    }

    /// Reports the release of the long message that is released next, as
    /// [`crate::Endpoint::poll_event`] does.
    pub fn released(&mut self) -> Option<(SourceId, Outcome)> {
        let long = self.pool.released.pop_front(&mut self.longs)?;
        self.longs[long].memory = MemoryOwner::Back;
        let Long {
            source,
            outcome,
            ended,
            ..
        } = self.longs[long];
        if ended {
            self.memory().free_long(long);
        }
        Some((source, outcome))
    }

    /// Asserts that all frames and long messages are free.
    pub fn assert_free(&mut self) {
        assert_eq!(self.pool.free_count as usize, self.cargo.len());
        assert_eq!(self.pool.free_long_count as usize, self.longs.len());
        assert_eq!(self.pool.held_count, 0);
        let mut free = self.pool.free;
        let listed = core::iter::from_fn(|| free.pop_front(&mut self.cargo));
        assert_eq!(listed.count(), self.cargo.len());
    }

    fn take(&mut self, need: Need, usage: Use) -> Option<FrameIndex> {
        self.memory().take(need, usage, CONN)
    }
}

/// A long message with parts in `frames` frames, of which all bytes or only half were cut.
fn long(source: u64, frames: u32, all: bool) -> Long {
    Long {
        source: SourceId(source),
        total: 1_000,
        cut: if all { 1_000 } else { 500 },
        frames,
        release: Release::Acknowledged,
        ..Long::default()
    }
}

/// Checks P7.15.
#[test]
fn each_need_leaves_some_frames_to_more_urgent_ones() {
    for (need, usage, left) in [
        (Need::Hold, Use::Held, 32),
        (Need::HoldReply, Use::Held, 24),
        (Need::Request, Use::Queued, 8),
        (Need::RequestPart, Use::Queued, 6),
        (Need::Reply, Use::Queued, 4),
        (Need::ReplyPart, Use::Queued, 2),
        (Need::Control, Use::Queued, 2),
        (Need::Control, Use::Passing, 0),
    ] {
        let mut store = Store::new(64, 2);
        while store.take(need, usage).is_some() {}
        assert_eq!(store.pool.free_count, left, "{need:?}");
    }
}

#[test]
fn what_is_held_is_bounded_and_what_is_freed_may_be_held_again() {
    let mut store = Store::new(64, 2);
    let first = store.take(Need::Hold, Use::Held).unwrap();
    while store.take(Need::Hold, Use::Held).is_some() {}
    assert_eq!(store.pool.held_count, 32);
    // Frames are free: nothing was lacking that others could return.
    assert_eq!(
        (store.pool.lacked, store.pool.refused_above),
        (false, u32::MAX)
    );
    assert!(store.take(Need::HoldReply, Use::Held).is_some());
    store.memory().free(first);
    assert_eq!(store.pool.held_count, 32);
    assert_eq!(store.take(Need::Hold, Use::Held), None);
    store.memory().free(FrameIndex::new(1));
    assert_eq!(store.take(Need::Hold, Use::Held), Some(FrameIndex::new(1)));
}

#[test]
fn room_for_several_held_chunks_is_what_they_would_find() {
    let mut store = Store::new(64, 2);
    assert!(store.pool.can_hold(Priority::Request, 32));
    assert!(!store.pool.can_hold(Priority::Request, 33));
    assert!(store.pool.can_hold(Priority::Reply, 40));
    assert!(!store.pool.can_hold(Priority::Reply, 41));
    // Others have taken frames: some are left to more urgent uses.
    store.leave_free(18);
    assert!(store.pool.can_hold(Priority::Request, 10));
    assert!(!store.pool.can_hold(Priority::Request, 11));
    assert!(store.pool.can_hold(Priority::Reply, 14));
    assert!(!store.pool.can_hold(Priority::Reply, 15));
    (0..10).for_each(|_| assert!(store.take(Need::Hold, Use::Held).is_some()));
    assert_eq!(store.take(Need::Hold, Use::Held), None);
}

#[test]
fn a_refused_frame_is_noted_with_the_smallest_reserve_that_kept_one() {
    let mut store = Store::new(64, 2);
    store.leave_free(9);
    assert!(store.take(Need::Request, Use::Queued).is_some());
    assert_eq!(
        (store.pool.lacked, store.pool.refused_above),
        (false, u32::MAX)
    );
    assert_eq!(store.take(Need::Request, Use::Queued), None);
    assert_eq!((store.pool.lacked, store.pool.refused_above), (true, 8));
    store.leave_free(2);
    assert_eq!(store.take(Need::ReplyPart, Use::Queued), None);
    assert_eq!(store.take(Need::Reply, Use::Queued), None);
    assert_eq!(store.pool.refused_above, 2);
}

#[test]
fn a_refused_long_message_is_noted() {
    let mut store = Store::new(64, 4);
    assert!(store.pool.grants_long(3) && !store.pool.lacked);
    assert!(!store.pool.grants_long(4) && store.pool.lacked);
    assert!(
        store.pool.grants_long(3) && store.pool.lacked,
        "it has yet to be noticed"
    );
    store.pool.lacked = false;
    store.memory().take_long(long(1, 1, true));
    assert!(!store.pool.grants_long(3) && store.pool.lacked);
    // Enough is free only if both frames and long messages are.
    assert!(store.pool.has_free(2));
    store.memory().take_long(long(2, 1, true));
    assert!(!store.pool.has_free(2) && store.pool.has_free(4));
    store.leave_free(16);
    assert!(!store.pool.has_free(4) && store.pool.has_free(8));
}

#[test]
fn a_frame_that_the_link_reads_becomes_free_when_the_link_is_done() {
    let mut store = Store::new(32, 2);
    let frame = store.take(Need::Request, Use::Queued).unwrap();
    store.flights[frame].in_link = true;
    store.memory().free(frame);
    assert_eq!(
        (store.cargo[frame].usage, store.pool.free_count),
        (Use::Leaving, 31)
    );
    assert_ne!(store.take(Need::Request, Use::Queued), Some(frame));
    store.transmitted(frame);
    assert_eq!(
        (store.cargo[frame].usage, store.pool.free_count),
        (Use::Free, 31)
    );
    // The frame that was used last is taken first.
    assert_eq!(store.take(Need::Request, Use::Queued), Some(frame));
}

#[test]
fn a_frame_that_was_held_and_is_in_the_link_is_held_no_more() {
    let mut store = Store::new(32, 2);
    let frame = store.take(Need::Hold, Use::Held).unwrap();
    store.flights[frame].in_link = true;
    store.memory().free(frame);
    assert_eq!(store.pool.held_count, 0);
    store.transmitted(frame);
    store.assert_free();
}

#[test]
fn a_frame_begins_without_anything_of_its_last_use() {
    let mut store = Store::new(32, 2);
    let frame = store.take(Need::Reply, Use::Queued).unwrap();
    let left = GivenUp {
        path: PathIndex::new(1),
        number: 7,
        sent_at: 9,
    };
    store.cargo[frame] = Cargo {
        refusal: true,
        stops: true,
        close: true,
        counted: true,
        chunks: 3,
        priority: Priority::Reply,
        len: 100,
        rest: [5, 6],
        long: LongIndex::new(1),
        ..store.cargo[frame]
    };
    store.flights[frame] = Flight {
        again: true,
        given_up: [left; 2],
        ack_len: 28,
        ..Flight::default()
    };
    assert_eq!(store.flights[frame].left_as(left.path, 7), Some(9));
    assert_eq!(store.flights[frame].left_as(left.path, 8), None);
    store.memory().free(frame);
    assert_eq!(store.take(Need::Control, Use::Passing), Some(frame));
    let fresh = Cargo {
        usage: Use::Passing,
        conn: CONN,
        ..Cargo::default()
    };
    assert_eq!(store.cargo[frame], fresh);
    assert_eq!(store.flights[frame], Flight::default());
}

#[test]
fn the_room_for_chunks_is_what_packet_and_frame_both_have() {
    let mut store = Store::new(32, 2);
    assert_eq!(store.memory().chunk_room(1_232), 1_204);
    // Where the packet is as large as the frame, the frame bounds it.
    assert_eq!(store.memory().chunk_room(2_048), 2_048 - CHUNKS_AT - 16);
    store.cargo[FrameIndex::new(1)].len = 4;
    let at = 2_048 + CHUNKS_AT;
    store.bytes[at..at + 4].copy_from_slice(b"abcd");
    let mut memory = store.memory();
    assert_eq!(memory.chunks(FrameIndex::new(1)), b"abcd");
    assert_eq!(memory.frame(FrameIndex::new(1)).len(), 2_048);
}

#[test]
fn memory_is_released_when_the_last_frame_of_a_long_message_is_done() {
    let mut store = Store::new(32, 2);
    let it = store.memory().take_long(long(7, 2, true));
    store.memory().long_frame_done(it, Outcome::Done);
    assert_eq!(store.released(), None);
    store.memory().long_frame_done(it, Outcome::Done);
    assert!(store.longs[it].ended);
    // The entry is free once the release was reported.
    assert_eq!(store.pool.free_long_count, 1);
    assert_eq!(store.released(), Some((SourceId(7), Outcome::Done)));
    store.assert_free();
}

#[test]
fn a_message_that_is_being_cut_is_not_done_when_no_frame_has_a_part() {
    let mut store = Store::new(32, 2);
    let it = store.memory().take_long(long(7, 1, false));
    store.memory().long_frame_done(it, Outcome::Done);
    assert_eq!((store.released(), store.longs[it].ended), (None, false));
    store.longs[it].frames = 1;
    store.memory().long_frame_done(it, Outcome::PeerDead);
    assert_eq!(store.released(), Some((SourceId(7), Outcome::PeerDead)));
    store.assert_free();
}

#[test]
fn an_entry_is_kept_until_both_its_frames_are_done_and_its_release_is_reported() {
    let mut store = Store::new(32, 2);
    let it = store.memory().take_long(long(7, 1, true));
    store.memory().release_long(it, Outcome::Done);
    assert_eq!(store.released(), Some((SourceId(7), Outcome::Done)));
    assert_eq!(store.pool.free_long_count, 1);
    // What comes of its frames later is not reported again.
    store.memory().long_frame_done(it, Outcome::PeerDead);
    assert_eq!(store.released(), None);
    store.assert_free();
}

#[test]
fn releases_are_reported_in_their_order() {
    let mut store = Store::new(32, 3);
    let all = [1, 2, 3].map(|source| store.memory().take_long(long(source, 1, true)));
    for i in [2, 0, 1] {
        store.memory().release_long(all[i], Outcome::Done);
        // A second release changes nothing.
        store.memory().release_long(all[i], Outcome::PeerDead);
    }
    let order = [3, 1, 2].map(|source| Some((SourceId(source), Outcome::Done)));
    assert_eq!([0; 3].map(|_| store.released()), order);
    assert_eq!(store.released(), None);
    for it in all {
        store.memory().long_frame_done(it, Outcome::Done);
    }
    // The entry that was freed last is taken first.
    assert_eq!(store.memory().take_long(Long::default()), all[2]);
}

#[test]
fn a_dropped_frame_ends_its_part_of_a_long_message() {
    let mut store = Store::new(32, 2);
    let it = store.memory().take_long(long(7, 2, true));
    let mut list = List::EMPTY;
    for _ in 0..2 {
        let frame = store.take(Need::Request, Use::Queued).unwrap();
        store.cargo[frame].long = it;
        list.push_back(&mut store.cargo, frame);
    }
    let other = store.take(Need::Request, Use::Queued).unwrap();
    list.push_back(&mut store.cargo, other);
    store.memory().drop_list(list);
    assert_eq!(store.released(), Some((SourceId(7), Outcome::PeerDead)));
    store.assert_free();
}
