//! Matched messages of a rank of the stage, and its accesses to others' memory.

use portolan_engine::{Gather, Scatter, SendError, SpaceId};
use portolan_exchange::{
    Action, Completion, Memory, Notify, OpError, OpId, Place, PutOptions, QueueId, RemoteKey,
    Selector, SendOptions as TaggedOptions, Signal,
};
use portolan_wire::Priority;

use super::book::{Book, Draft, LifeId, port};
use super::rank::{Closing, Rank};
use crate::content;

/// Key of each rank's region, and its length, bytes: a number that is counted up, then
/// places for puts.
pub const KEY: u64 = 7;
pub const REGION: usize = 64 << 10;
const SLOT: usize = 4 << 10;
/// What is added at a time.
const ADDED: u64 = 3;

/// A matched message between two ranks.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    pub tag: u64,
    pub from: LifeId,
    pub to: LifeId,
    pub bytes: usize,
}

impl Parcel {
    /// The space that it is sent in.
    const fn space(&self, book: &Book) -> SpaceId {
        book.space_of(self.tag as usize)
    }

    fn payload(&self) -> Vec<u8> {
        let mut payload = vec![0; self.bytes];
        content::fill(self.tag as usize, 0, &mut payload);
        payload
    }
}

/// What an operation is of.
#[derive(Clone, Debug)]
pub enum Kind {
    Gives(Draft),
    Sends(Parcel),
    Receives(Parcel),
    /// By a receive of many messages, whose ends come in this queue.
    ReceivesMany(Parcel, QueueId),
    /// A receive that was cancelled.
    Cancelled(Parcel),
    Puts {
        id: usize,
        at: usize,
        bytes: usize,
        of: LifeId,
    },
    Gets {
        id: Option<usize>,
        bytes: usize,
        of: LifeId,
    },
    Adds(LifeId),
    Flushes(LifeId),
}

/// What a rank writes to others' regions, by the life whose region it is: the message that
/// a slot holds, once it surely does, and what was added, surely and perhaps.
#[derive(Debug, Default)]
pub struct Written {
    pub slots: Vec<(LifeId, usize, usize, usize)>,
    pub added: Vec<(LifeId, bool)>,
}

impl Rank {
    pub(super) fn access(&mut self, to: usize) {
        let (Some(of), false) = (self.known(to), to == self.rank) else {
            return;
        };
        let place = |at: usize| Place {
            key: RemoteKey::any(KEY),
            offset: at as u64,
        };
        let notify = Notify::default();
        let target = to as u32;
        let done = |begun: Result<OpId, SendError>| match begun {
            Ok(op) => Some(op),
            Err(SendError::PeerDead { .. }) => None,
            Err(e) => panic!("an access to {to}: {e:?}"),
        };
        match self.rng.below(6) {
            0 | 1 => {
                let slot = self.book.lock().next_slot(of);
                if (slot + 1) * SLOT > REGION {
                    return;
                }
                let (at, bytes) = (slot * SLOT, 1 + self.rng.index(SLOT));
                let mut book = self.book.lock();
                let own = SpaceId::PROGRAM;
                let id = book
                    .draft_in(own, self.life, of, Priority::Request, port::SIGNAL)
                    .id;
                book.unsend(id);
                let signal = self.rng.one_in(2).then_some(Signal {
                    port: u32::from(port::SIGNAL),
                    word: id as u64,
                });
                if signal.is_some() {
                    book.signals.insert(id as u64, false);
                }
                drop(book);
                let mut payload = vec![0; bytes];
                content::fill(id, 0, &mut payload);
                let options = PutOptions {
                    signal,
                    ..PutOptions::default()
                };
                self.written.slots.push((of, id, at, 0));
                let begun = self.engine.reach(
                    SpaceId::PROGRAM,
                    target,
                    Gather::from(payload),
                    |x, from| x.put(target, place(at), from, &options),
                );
                let op = done(begun.map_err(|(e, _)| e));
                let kind = Kind::Puts { id, at, bytes, of };
                self.ops.extend(op.map(|op| (op, kind)));
            }
            2 => {
                let mine = self
                    .written
                    .slots
                    .iter()
                    .filter(|slot| slot.0 == of && slot.3 > 0);
                let all: Vec<_> = mine.copied().collect();
                let (id, at, bytes) = match all.last() {
                    Some((_, id, at, bytes)) => (Some(*id), *at, *bytes),
                    None => (None, 0, 8),
                };
                let into = Scatter::from(vec![0; bytes]);
                let begun = self
                    .engine
                    .reach(SpaceId::PROGRAM, target, into, |x, into| {
                        x.get(target, place(at), into, notify)
                    });
                let op = done(begun.map_err(|(e, _)| e));
                self.ops
                    .extend(op.map(|op| (op, Kind::Gets { id, bytes, of })));
            }
            3 => {
                let begun = self.engine.reach(SpaceId::PROGRAM, target, (), |x, ()| {
                    x.flush(target, notify).map_err(|e| (e, ()))
                });
                let op = done(begun.map_err(|(e, ())| e));
                self.ops.extend(op.map(|op| (op, Kind::Flushes(of))));
            }
            4 => self.engine.io.matched.own.exchange.fence(target),
            _ => {
                let begun = self.engine.reach(SpaceId::PROGRAM, target, (), |x, ()| {
                    let added = x.fetch_add(target, place(0), ADDED, notify);
                    added.map_err(|e| (e, ()))
                });
                if let Some(op) = done(begun.map_err(|(e, ())| e)) {
                    self.ops.push((op, Kind::Adds(of)));
                }
            }
        }
    }

    /// The space of a matched message, which is open from now on.
    fn space_of(&mut self, parcel: &Parcel) -> SpaceId {
        let space = parcel.space(&self.book.lock());
        self.enter(space);
        space
    }

    /// Sends a matched message; false: the other is dead, as it knows.
    pub fn send_parcel(&mut self, to: usize, parcel: Parcel) {
        if self.closing != Closing::No || self.known(to) != Some(parcel.to) {
            return;
        }
        let space = self.space_of(&parcel);
        let payload = parcel.payload();
        let (rank, tag) = (to as u32, parcel.tag);
        let data = tag.is_multiple_of(3).then_some(tag);
        if self.rng.one_in(3) && self.engine.push_now(space, rank, tag, data, &payload) {
            return;
        }
        let options = TaggedOptions {
            sync: parcel.tag % 2 == 1,
            ..TaggedOptions::default()
        };
        let mut from = if self.rng.one_in(3) && parcel.bytes > 10 {
            let (head, tail) = payload.split_at(parcel.bytes / 3);
            Gather::from(head.to_vec()).and(tail.to_vec())
        } else {
            Gather::from(payload)
        };
        if self.rng.one_in(2) {
            from = from.waiting();
        }
        match self
            .engine
            .post_tagged(space, to as u32, parcel.tag, &options, from)
        {
            Ok(op) => self.ops.push((op, Kind::Sends(parcel))),
            Err((SendError::PeerDead { .. }, _)) => {}
            Err((e, _)) => panic!("{parcel:?}: {e:?}"),
        }
    }

    /// Receives one, in one way or another.
    pub fn receive_parcel(&mut self, from: usize, parcel: Parcel) {
        if self.closing != Closing::No || self.known(from) != Some(parcel.from) {
            return;
        }
        self.note(|| format!("receives {} from {from}", parcel.tag));
        let selector = Selector::from(from as u32, parcel.tag);
        let space = self.space_of(&parcel);
        match self.rng.below(8) {
            0 => return self.claims.push(parcel),
            1 => {
                let op = self.post(space, &selector, parcel.bytes);
                if self.engine.exchange(space).cancel(op) {
                    self.ops.push((op, Kind::Cancelled(parcel)));
                } else {
                    self.ops.push((op, Kind::Receives(parcel)));
                    return;
                }
            }
            2 if parcel.bytes > 0 => {
                // It takes this message, and has then too little room.
                let into = Scatter::from(vec![0; parcel.bytes]).and(vec![0; 9]);
                let queue = self.engine.exchange(space).open_queue();
                let notify = Notify {
                    queue: Some(queue),
                    ..Notify::default()
                };
                let op = self
                    .engine
                    .post_receive_many(space, &selector, into, 10, notify);
                let op = op.expect("the rank is there");
                self.ops.push((op, Kind::ReceivesMany(parcel, queue)));
                return;
            }
            _ => {}
        }
        let room = parcel.bytes + self.rng.index(50);
        let op = self.post(space, &selector, room);
        self.ops.push((op, Kind::Receives(parcel)));
    }

    fn post(&mut self, space: SpaceId, selector: &Selector, room: usize) -> OpId {
        let first = room / 2;
        let into = Scatter::from(vec![0; first]).and(vec![0; room - first]);
        let op = self
            .engine
            .post_receive(space, selector, into, Notify::default());
        op.expect("the rank is there")
    }

    /// Receives what it was to claim, and is there; gives up what will never be.
    pub(super) fn claim(&mut self) {
        for parcel in std::mem::take(&mut self.claims) {
            let rank = self.book.lock().lives[parcel.from].rank;
            let selector = Selector::from(rank as u32, parcel.tag);
            let space = self.space_of(&parcel);
            let exchange = self.engine.exchange(space);
            if let Some((id, found)) = exchange.claim(&selector) {
                assert_eq!((found.tag, found.total), (parcel.tag, parcel.bytes as u64));
                let into = Scatter::from(vec![0; parcel.bytes]);
                let op = self
                    .engine
                    .with_exchange(space, |x| x.receive_claimed(id, into, Notify::default()));
                self.ops.push((op, Kind::Receives(parcel)));
            } else if self.known(rank) == Some(parcel.from) {
                self.claims.push(parcel);
            }
        }
    }

    /// Takes operations that have ended; whether there were any.
    pub(super) fn take_ended(&mut self) -> bool {
        let mut any = false;
        let given = self.book.lock().take_given(self.life);
        let given = given.into_iter();
        (self.ops).extend(given.map(|(_, draft, op)| (op, Kind::Gives(draft))));
        for (op, kind) in std::mem::take(&mut self.ops) {
            let space = match &kind {
                Kind::Sends(parcel)
                | Kind::Receives(parcel)
                | Kind::ReceivesMany(parcel, _)
                | Kind::Cancelled(parcel) => self.space_of(parcel),
                Kind::Gives(draft) => draft.space,
                _ => SpaceId::PROGRAM,
            };
            let exchange = self.engine.exchange(space);
            if exchange.is_done(op) != Some(true) {
                self.ops.push((op, kind));
                continue;
            }
            any = true;
            if let Kind::ReceivesMany(parcel, queue) = kind {
                let (done, mut memory) = exchange.next_of(queue).expect("one of them");
                if done.action == Action::Receive {
                    let (over, all) = exchange.next_of(queue).expect("it has ended");
                    assert_eq!((over.op, over.result, done.at), (done.op, Ok(()), 0));
                    memory = all;
                }
                exchange.close_queue(queue);
                self.ended(&Kind::Receives(parcel), &done, memory);
                continue;
            }
            let (done, memory) = exchange.take(op).expect("it has ended");
            self.ended(&kind, &done, memory);
        }
        any
    }

    fn ended(&mut self, kind: &Kind, done: &Completion, memory: Option<Memory<Gather, Scatter>>) {
        let bytes = match memory {
            Some(Memory::Sink(sink)) => {
                let buffers = sink.into_buffers().into_iter();
                buffers
                    .flat_map(|it| it.into_vec().unwrap_or_default())
                    .collect()
            }
            Some(Memory::Source(source)) => source.into_vec(),
            None => Vec::new(),
        };
        let other = match kind {
            Kind::Gives(draft) => {
                let mut book = self.book.lock();
                return match done.result {
                    Ok(()) => content::verify(draft.id, 0, &bytes),
                    Err(OpError::Refused) => book.note_refused(draft.id),
                    Err(_) => book.note_failed(draft.id),
                };
            }
            Kind::Sends(parcel) => parcel.to,
            Kind::Receives(parcel) | Kind::ReceivesMany(parcel, _) => parcel.from,
            Kind::Cancelled(_) => {
                assert_eq!(done.result, Err(OpError::Cancelled));
                return;
            }
            Kind::Puts { of, .. } | Kind::Gets { of, .. } | Kind::Adds(of) | Kind::Flushes(of) => {
                *of
            }
        };
        if let Kind::Adds(of) = kind {
            self.written.added.push((*of, done.result.is_ok()));
        }
        match done.result {
            Ok(()) => {}
            Err(OpError::PeerDead) => {
                let book = self.book.lock();
                // The event may be told later.
                let rank = book.lives[other].rank as u32;
                let dead = self.engine.core.lanes.dead(rank).is_some();
                let fair = dead || !book.is_sound(self.life, other);
                assert!(fair, "{kind:?} ended with the death of the living");
                return;
            }
            Err(e) => panic!("{kind:?}: {e}"),
        }
        match kind {
            Kind::Receives(parcel) | Kind::ReceivesMany(parcel, _) => {
                assert_eq!((done.tag, done.bytes), (parcel.tag, parcel.bytes as u64));
                content::verify(parcel.tag as usize, 0, &bytes[..parcel.bytes]);
            }
            Kind::Sends(parcel) => content::verify(parcel.tag as usize, 0, &bytes),
            Kind::Puts { id, at, bytes, of } => {
                for slot in &mut self.written.slots {
                    if (slot.0, slot.1, slot.2) == (*of, *id, *at) {
                        slot.3 = *bytes;
                    }
                }
            }
            Kind::Gets {
                id: Some(id),
                bytes: len,
                ..
            } => content::verify(*id, 0, &bytes[..*len]),
            Kind::Gets { id: None, .. } => {
                let counted = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
                assert_eq!(counted % ADDED, 0);
            }
            Kind::Adds(_) => assert_eq!(done.data.expect("what was there") % ADDED, 0),
            Kind::Flushes(_) | Kind::Cancelled(_) | Kind::Gives(_) => {}
        }
    }

    /// Its region as the others have left it.
    pub fn take_region(&mut self) -> Vec<u8> {
        let memory = self.engine.deregister_region(SpaceId::PROGRAM, self.region);
        let memory = memory
            .expect("nobody reaches it")
            .expect("it is one region's only");
        let buffers = memory.into_buffers().into_iter();
        buffers
            .flat_map(|it| it.into_vec().unwrap_or_default())
            .collect()
    }

    /// The number that others have counted up lies between these.
    pub const fn added(sure: u64, perhaps: u64) -> [u64; 2] {
        [sure * ADDED, (sure + perhaps) * ADDED]
    }
}
