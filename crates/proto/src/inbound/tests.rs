//! What comes in from a peer, without packets and without an endpoint.

extern crate std;

mod limits;
mod many;
mod parts;
mod refusals;
mod stops;

use std::vec;
use std::vec::Vec;

use super::*;
use crate::base::{SourceId, Sources};
use crate::memory::tests::{CONN, Store};
use crate::outbound::tests::Pattern;
use Priority::{Reply, Request};

/// A part of a message that was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub priority: Priority,
    pub flow: u16,
    pub message: u32,
    pub from: u64,
    pub bytes: Vec<u8>,
    pub last: bool,
    pub cookie: u64,
}

/// One peer's inbound messages, and memory for them.
pub struct Receiver {
    pub store: Store,
    pub inbound: Inbound,
    pub counters: Counters,
    /// Chunks of one priority that may be undelivered.
    pub limit: u32,
    /// Answer to the first part of each message.
    pub verdict: Verdict,
    /// What was handed out.
    pub parts: Vec<Part>,
    /// How often new credit was to be advertised.
    pub news: u32,
    spare: Spare,
}

/// Takes a chunk of a message apart: its place, its offset and its bytes.
fn place_of<'p>(chunk: &Chunk<'p>) -> (Priority, u16, MessageNo, u64, &'p [u8]) {
    match *chunk {
        Chunk::Head(h) => (h.priority, h.flow, h.message, 0, h.payload),
        Chunk::Body(b) => {
            let offset = u64::from(b.fragment) * Body::UNIT;
            (b.priority, b.flow, b.message, offset, b.payload)
        }
        _ => panic!("{chunk:?}"),
    }
}

impl Receiver {
    /// Memory of 64 frames for a peer whose first message has number `first`, of whose chunks 16
    /// may be undelivered. Each message is taken, with cookie 7.
    pub fn new(first: u32) -> Self {
        Self::with(Store::new(64, 2), first)
    }

    pub fn with(store: Store, first: u32) -> Self {
        let mut inbound = Inbound::new(KeptIn::default(), &Default::default());
        inbound.begin(MessageNo(first), 16);
        Self {
            store,
            inbound,
            counters: Counters::default(),
            limit: 16,
            verdict: Verdict::Take(7),
            parts: Vec::new(),
            news: 0,
            spare: Spare::default(),
        }
    }

    /// Takes a chunk, and what is held and has its turn after it, as the endpoint does.
    pub fn take(&mut self, chunk: &Chunk<'_>) -> ChunkOutcome {
        let memory = &self.store.memory();
        let took = match chunk {
            Chunk::Head(head) => match self.inbound.meet_head(memory, head, &mut self.counters) {
                Meet::Offer if self.offer(head) => ChunkOutcome::Yes,
                Meet::Offer | Meet::Hold => self.hold(chunk),
                Meet::Place(body, at) => self.place(&body, at).unwrap_or_else(|took| took),
                Meet::Took(took) => took,
            },
            Chunk::Body(body) => {
                self.compare_ways(body);
                match self.inbound.meet_body(body, &mut self.counters) {
                    Ok(Some(at)) => self.place(body, at).unwrap_or_else(|took| took),
                    Ok(None) => self.hold(chunk),
                    Err(took) => took,
                }
            }
            _ => panic!("{chunk:?}"),
        };
        self.go_on();
        took
    }

    fn hold(&mut self, chunk: &Chunk<'_>) -> ChunkOutcome {
        let Self { store, inbound, .. } = self;
        match inbound.hold(&mut store.memory(), CONN, self.limit, *chunk) {
            Ok(true) => self.counters.held += 1,
            Ok(false) => self.counters.duplicates += 1,
            Err(took) => return took,
        }
        ChunkOutcome::Yes
    }

    /// Offers a head; returns false for not now.
    fn offer(&mut self, head: &Head<'_>) -> bool {
        let answered = (self.inbound).answered(head, self.verdict, &mut self.counters);
        let Some(whole) = answered else {
            return false;
        };
        self.note_taken(head.priority, head.flow);
        if self.verdict != Verdict::Refuse {
            self.hand_out(&Chunk::Head(*head), 0, head.payload.len() as u64, whole, 0);
        }
        self.inbound.advance(head.priority, head.flow);
        true
    }

    /// Asserts that a part for which the quick way is open comes to the same by the usual one.
    fn compare_ways(&self, body: &Body<'_>) {
        let (mut quick, mut quick_counters) = (self.inbound, self.counters);
        let Some(piece) = quick.take_next(body, &mut quick_counters) else {
            return;
        };
        let (mut usual, mut counters) = (self.inbound, self.counters);
        let mut at = usual.meet_body(body, &mut counters).unwrap().unwrap();
        assert_eq!(usual.place(body, &mut at, &mut counters), Ok(Some(piece)));
        assert_eq!(usual.place(body, &mut at, &mut counters), Ok(None));
        assert!(at.fresh && at.credit);
        assert!(quick == usual && quick_counters == counters);
    }

    fn place(&mut self, body: &Body<'_>, mut at: Placing) -> Result<ChunkOutcome, ChunkOutcome> {
        while let Some(piece) = self.inbound.place(body, &mut at, &mut self.counters)? {
            let Piece {
                from,
                to,
                last,
                cookie,
                ..
            } = piece;
            self.hand_out(&Chunk::Body(*body), from, to, last, cookie);
        }
        if !at.fresh {
            self.counters.duplicates += 1;
        } else if at.credit {
            self.note_taken(body.priority, body.flow);
        }
        self.inbound.advance(body.priority, body.flow);
        Ok(ChunkOutcome::Yes)
    }

    fn note_taken(&mut self, priority: Priority, flow: u16) {
        let Self {
            inbound, counters, ..
        } = self;
        self.news += u32::from(inbound.note_taken(self.limit, priority, flow, counters));
    }

    fn hand_out(&mut self, chunk: &Chunk<'_>, from: u64, to: u64, last: bool, cookie: u64) {
        let (priority, flow, message, offset, payload) = place_of(chunk);
        self.parts.push(Part {
            priority,
            flow,
            message: message.0,
            from,
            bytes: payload[(from - offset) as usize..(to - offset) as usize].to_vec(),
            last,
            cookie,
        });
    }

    /// Hands out what is held and may be taken.
    fn go_on(&mut self) {
        while let Some((priority, flow)) = self.inbound.resumable() {
            let Self {
                store,
                inbound,
                spare,
                ..
            } = self;
            let next = inbound.next_held(&mut store.memory(), priority, flow, spare);
            let spare = spare.clone();
            let taken = match (next, spare.chunk()) {
                (NextHeld::Head(frame), Some(Chunk::Head(head))) => {
                    self.offer(&head).then_some(frame)
                }
                (NextHeld::Body(frame, at), Some(Chunk::Body(body))) => {
                    self.place(&body, at).is_ok().then_some(frame)
                }
                _ => None,
            };
            let Self { store, inbound, .. } = self;
            match taken {
                None => inbound.pause(priority, flow),
                Some(frame) => {
                    assert!(inbound.drop_held(&mut store.memory(), priority, flow, frame));
                }
            }
        }
    }

    /// The caller can take what it did not want before.
    pub fn resume(&mut self) -> bool {
        let refused = self.inbound.advance_refused(FLOWS_MAX as u16);
        self.go_on();
        refused
    }

    /// A whole message of `bytes` bytes comes.
    fn whole(&mut self, priority: Priority, flow: u16, message: u32, bytes: usize) -> ChunkOutcome {
        self.head(priority, flow, message, bytes as u64, bytes)
    }

    /// The first `bytes` bytes of a message of `total` bytes come.
    fn head(
        &mut self,
        priority: Priority,
        flow: u16,
        message: u32,
        total: u64,
        bytes: usize,
    ) -> ChunkOutcome {
        let payload = payload(message, 0, bytes);
        self.take(&Chunk::Head(Head {
            priority,
            flow,
            message: MessageNo(message),
            port: 5,
            total,
            args: &[],
            payload: &payload,
        }))
    }

    /// Bytes of a request in flow 0 come, from `unit` times 64 on.
    fn body(&mut self, message: u32, unit: u32, bytes: usize) -> ChunkOutcome {
        self.body_of(Request, 0, message, unit, bytes)
    }

    fn body_of(
        &mut self,
        priority: Priority,
        flow: u16,
        message: u32,
        unit: u32,
        bytes: usize,
    ) -> ChunkOutcome {
        let payload = payload(message, u64::from(unit) * Body::UNIT, bytes);
        self.take(&Chunk::Body(Body {
            priority,
            flow,
            message: MessageNo(message),
            fragment: unit,
            payload: &payload,
        }))
    }

    /// Messages whose first part was handed out, in order.
    pub fn begun(&self) -> Vec<u32> {
        let first = self.parts.iter().filter(|it| it.cookie == 0);
        first.map(|it| it.message).collect()
    }

    /// Asserts that each byte of each message was handed out once, and is right. Returns the
    /// messages that are complete: flow, number and bytes.
    pub fn complete(&self) -> Vec<(u16, u32, usize)> {
        let mut complete = Vec::new();
        for last in self.parts.iter().filter(|it| it.last) {
            let mine = |it: &&Part| {
                (it.priority, it.flow, it.message) == (last.priority, last.flow, last.message)
            };
            let mut parts: Vec<_> = self.parts.iter().filter(mine).collect();
            parts.sort_by_key(|it| it.from);
            let mut all: Vec<u8> = Vec::new();
            for part in parts {
                assert_eq!(part.from, all.len() as u64, "message {}", last.message);
                all.extend(&part.bytes);
            }
            assert!(
                all == payload(last.message, 0, all.len()),
                "message {}",
                last.message
            );
            complete.push((last.flow, last.message, all.len()));
        }
        complete
    }

    fn drop_all(&mut self) {
        let Self { store, inbound, .. } = self;
        inbound.drop_all(&mut store.memory());
    }

    fn is_incomplete(&mut self) -> bool {
        self.inbound.is_incomplete(&self.store.memory())
    }
}

/// Bytes of a message.
fn payload(message: u32, from: u64, bytes: usize) -> Vec<u8> {
    let mut payload = vec![0; bytes];
    Pattern.read(SourceId(message.into()), from, &mut payload);
    payload
}

const FULL: ChunkOutcome = ChunkOutcome::NoRoom(Request);

/// Checks P5.2.
#[test]
fn messages_of_a_flow_are_handed_out_in_their_order() {
    let mut receiver = Receiver::new(0);
    for message in [2, 0, 4, 3, 1] {
        assert_eq!(receiver.whole(Request, 3, message, 10), ChunkOutcome::Yes);
    }
    assert_eq!(receiver.begun(), [0, 1, 2, 3, 4]);
    assert_eq!(receiver.complete().len(), 5);
    assert_eq!(
        (receiver.counters.held, receiver.counters.duplicates),
        (3, 0)
    );
    assert_eq!(receiver.counters.messages_delivered, 5);
    receiver.store.assert_free();
}

#[test]
fn flows_and_priorities_do_not_wait_for_each_other() {
    let mut receiver = Receiver::new(0);
    receiver.whole(Request, 0, 1, 10);
    receiver.whole(Reply, 0, 0, 10);
    receiver.whole(Request, 1, 0, 10);
    receiver.whole(Reply, 1, 2, 10);
    receiver.whole(Reply, 1, 1, 10);
    assert_eq!(receiver.begun(), [0, 0]);
    assert_eq!(receiver.inbound.held, [1, 2]);
    receiver.whole(Reply, 1, 0, 10);
    assert_eq!(receiver.begun(), [0, 0, 0, 1, 2]);
    assert_eq!(receiver.inbound.held, [1, 0]);
}

/// Checks P5.1.
#[test]
fn numbers_of_messages_wrap_around() {
    let mut receiver = Receiver::new(u32::MAX - 1);
    for message in [1, u32::MAX, 0, u32::MAX - 1] {
        receiver.whole(Request, 0, message, 10);
    }
    assert_eq!(receiver.begun(), [u32::MAX - 1, u32::MAX, 0, 1]);
    // Those of before are duplicates.
    receiver.whole(Request, 0, u32::MAX, 10);
    assert_eq!(
        (receiver.counters.duplicates, receiver.inbound.held),
        (1, [0; 2])
    );
}

#[test]
fn what_comes_twice_is_handed_out_once() {
    let mut receiver = Receiver::new(0);
    for message in [0, 2, 0, 2, 1, 2, 1] {
        assert_eq!(receiver.whole(Request, 0, message, 10), ChunkOutcome::Yes);
    }
    assert_eq!(receiver.begun(), [0, 1, 2]);
    assert_eq!(
        (receiver.counters.held, receiver.counters.duplicates),
        (1, 4)
    );
    // A part of a message that is complete is a duplicate too.
    assert_eq!(receiver.body(2, 1, 10), ChunkOutcome::Yes);
    assert_eq!(receiver.counters.duplicates, 5);
    assert_eq!(receiver.inbound.kept.taken, [3, 0]);
}

#[test]
fn held_chunks_lie_in_the_order_of_messages_and_parts() {
    let mut receiver = Receiver::new(0);
    receiver.body(2, 4, 64);
    receiver.body(1, 5, 44);
    receiver.head(Request, 0, 2, 320, 128);
    receiver.body(1, 1, 256);
    receiver.body(2, 2, 128);
    let mut order = Vec::new();
    let mut at = receiver.inbound.rx[0][0].held.head;
    while at.is_some() {
        let cargo = receiver.store.memory().cargo[at];
        order.push((cargo.message.0, cargo.part));
        at = cargo.next;
    }
    assert_eq!(order, [(1, 2), (1, 6), (2, 0), (2, 3), (2, 5)]);
    assert_eq!(receiver.inbound.held, [5, 0]);
    receiver.whole(Request, 0, 0, 10);
    assert_eq!(receiver.begun(), [0]);
    receiver.head(Request, 0, 1, 364, 64);
    assert_eq!(receiver.complete(), [(0, 0, 10), (0, 1, 364), (0, 2, 320)]);
    receiver.store.assert_free();
}

/// Checks P2.22.
#[test]
fn of_two_cuts_of_a_held_chunk_the_longer_is_kept() {
    let mut receiver = Receiver::new(0);
    for bytes in [64, 192, 128] {
        receiver.head(Request, 0, 1, 500, bytes);
        receiver.body(1, 3, bytes);
    }
    assert_eq!(
        (receiver.counters.held, receiver.counters.duplicates),
        (2, 4)
    );
    receiver.whole(Request, 0, 0, 10);
    let parts = receiver.parts[1..]
        .iter()
        .map(|it| (it.from, it.bytes.len()));
    assert_eq!(parts.collect::<Vec<_>>(), [(0, 192), (192, 192)]);
    receiver.body(1, 6, 116);
    assert_eq!(receiver.complete(), [(0, 0, 10), (0, 1, 500)]);
}

#[test]
fn what_is_not_wanted_now_is_offered_again_with_what_follows() {
    let mut receiver = Receiver::new(0);
    receiver.verdict = Verdict::NotNow;
    for message in [0, 1, 1, 0] {
        assert_eq!(receiver.whole(Request, 2, message, 10), ChunkOutcome::Yes);
    }
    assert_eq!((receiver.parts.len(), receiver.inbound.held), (0, [2, 0]));
    assert_eq!(receiver.inbound.kept.taken, [0, 0]);
    assert!(receiver.resume(), "still not wanted");
    receiver.verdict = Verdict::Take(7);
    // Later ones wait, though they would be taken, and so does a copy of the first.
    receiver.whole(Request, 2, 2, 10);
    receiver.whole(Request, 2, 0, 10);
    assert_eq!(receiver.parts.len(), 0);
    assert!(receiver.resume());
    assert_eq!(receiver.begun(), [0, 1, 2]);
    assert!(!receiver.resume());
    receiver.store.assert_free();
}

#[test]
fn only_flows_that_the_pair_has_are_resumed() {
    let mut inbound = Receiver::new(0);
    inbound.verdict = Verdict::NotNow;
    inbound.whole(Request, 3, 0, 10);
    let mut inbound = inbound.inbound;
    let mut other = inbound;
    assert!(other.advance_refused(3));
    assert_eq!(other.resumable(), None);
    assert!(inbound.advance_refused(4));
    assert_eq!(inbound.resumable(), Some((Request, 3)));
}

#[test]
fn replies_have_their_turn_first_and_then_the_lowest_flow() {
    let mut receiver = Receiver::new(0);
    let flows = [(Request, 0), (Request, 15), (Reply, 15), (Reply, 2)];
    for (priority, flow) in flows {
        receiver.whole(priority, flow, 1, 10);
    }
    assert!(
        flows
            .into_iter()
            .all(|(p, flow)| receiver.inbound.advance(p, flow))
    );
    assert!(
        !receiver.inbound.advance(Request, 1),
        "nothing is held there"
    );
    let mut turns = Vec::new();
    while let Some((priority, flow)) = receiver.inbound.resumable() {
        turns.push((priority, flow));
        receiver.inbound.pause(priority, flow);
    }
    let order = [(Reply, 2), (Reply, 15), (Request, 0), (Request, 15)];
    assert_eq!(turns, order);
}

#[test]
fn refused_messages_are_thrown_away_and_later_ones_go_on() {
    let mut receiver = Receiver::new(0);
    receiver.verdict = Verdict::Refuse;
    receiver.whole(Request, 0, 0, 10);
    receiver.head(Request, 0, 1, 300, 64);
    receiver.verdict = Verdict::Take(7);
    receiver.whole(Request, 0, 2, 20);
    assert_eq!((receiver.parts.len(), receiver.inbound.held), (0, [1, 0]));
    // Bodies in any order, one of them twice.
    receiver.body(1, 3, 108);
    receiver.body(1, 3, 108);
    receiver.body(1, 1, 128);
    assert_eq!(receiver.complete(), [(0, 2, 20)]);
    assert_eq!(receiver.counters.messages_delivered, 1);
    // The sender used credit for each chunk once.
    assert_eq!(receiver.inbound.kept.taken, [5, 0]);
    receiver.store.assert_free();
}

#[test]
fn a_message_is_incomplete_while_its_rest_is_to_come() {
    let mut receiver = Receiver::new(0);
    assert!(!receiver.is_incomplete() && receiver.inbound.is_quiet());
    receiver.head(Request, 0, 0, 128, 64);
    assert!(receiver.is_incomplete() && !receiver.inbound.is_quiet());
    receiver.body(0, 1, 64);
    assert!(!receiver.is_incomplete() && receiver.inbound.is_quiet());
    // What is held is only waiting, if its turn has come.
    receiver.verdict = Verdict::NotNow;
    receiver.whole(Request, 0, 1, 10);
    receiver.whole(Request, 0, 2, 10);
    assert!(!receiver.is_incomplete() && !receiver.inbound.is_quiet());
    // What was sent before it is missing.
    receiver.whole(Reply, 1, 1, 10);
    assert!(receiver.is_incomplete());
    receiver.verdict = Verdict::Take(7);
    receiver.whole(Reply, 1, 0, 10);
    assert!(!receiver.is_incomplete());
    // A part came before the head of its message.
    receiver.body_of(Reply, 9, 0, 1, 64);
    assert!(receiver.is_incomplete());
    receiver.drop_all();
    assert!(!receiver.is_incomplete() && receiver.inbound.is_quiet());
}

#[test]
fn a_message_that_was_begun_is_not_begun_again_after_all_was_dropped() {
    let mut receiver = Receiver::new(0);
    receiver.head(Request, 0, 0, 300, 64);
    receiver.body(0, 3, 64);
    receiver.whole(Request, 0, 1, 10);
    receiver.whole(Request, 1, 1, 10);
    receiver.drop_all();
    receiver.store.assert_free();
    assert_eq!(receiver.inbound.held, [0; 2]);
    // Its parts are duplicates now, and the next message is whatever follows.
    receiver.head(Request, 0, 0, 300, 64);
    receiver.body(0, 1, 64);
    assert_eq!(
        (receiver.begun(), receiver.counters.duplicates),
        (vec![0], 2)
    );
    receiver.head(Request, 0, 1, 300, 64);
    receiver.body(1, 2, 172);
    receiver.body(1, 1, 64);
    assert_eq!(receiver.complete(), [(0, 1, 300)]);
    // One that was only held comes again.
    receiver.whole(Request, 1, 0, 10);
    receiver.whole(Request, 1, 1, 10);
    assert_eq!(receiver.begun(), [0, 1, 0, 1]);
}

#[test]
fn a_held_chunk_is_dropped_once() {
    let mut receiver = Receiver::new(0);
    receiver.whole(Request, 0, 1, 10);
    let frame = receiver.inbound.rx[0][0].held.head;
    let Receiver { store, inbound, .. } = &mut receiver;
    assert!(!inbound.drop_held(&mut store.memory(), Request, 1, frame));
    assert!(inbound.drop_held(&mut store.memory(), Request, 0, frame));
    assert!(!inbound.drop_held(&mut store.memory(), Request, 0, frame));
    assert_eq!(inbound.held, [0; 2]);
    store.assert_free();
}

#[test]
fn held_chunks_of_earlier_messages_are_dropped_when_their_turn_is_over() {
    let mut receiver = Receiver::new(0);
    // A body that is held, all of which then comes with the head.
    receiver.body(0, 1, 64);
    receiver.whole(Request, 0, 0, 128);
    assert_eq!(receiver.complete(), [(0, 0, 128)]);
    assert_eq!(receiver.inbound.kept.taken, [1, 0]);
    receiver.store.assert_free();
}

#[test]
fn only_messages_are_held() {
    let mut receiver = Receiver::new(0);
    let Receiver { store, inbound, .. } = &mut receiver;
    let held = inbound.hold(&mut store.memory(), CONN, 16, Chunk::Ping);
    assert_eq!(held, Err(ChunkOutcome::Bad));
    store.assert_free();
}

#[test]
fn what_the_peer_must_hear_of_is_unusual() {
    let quiet = Receiver::new(1).inbound;
    assert!(quiet.unusual().is_nothing());
    let mut full = quiet;
    full.note_full(Priority::Reply);
    assert_eq!(full.unusual(), Unusual::FULL);
    let mut stops = quiet;
    stops.stops.stop(0, 1);
    assert_eq!(stops.unusual(), Unusual::STOPPED);
    let mut refuses = quiet;
    refuses.refusals.owe(Priority::Request, 0, MessageNo(1));
    assert_eq!(refuses.unusual(), Unusual::REFUSAL);
}
