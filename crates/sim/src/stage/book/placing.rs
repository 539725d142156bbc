//! The part of the record that is about the placing port: what its function has said of
//! each message, and where the memory is that it gave.

use std::collections::BTreeMap;

use portolan_engine::{Message, Placement, SpaceId};

use super::{Book, Fate, LifeId, port};
use crate::content;
use crate::rng::Rng;

/// The longest pause of a port, ns.
const PAUSE_NS: u64 = 20_000_000;

/// What the function has said of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacingVerdict {
    Unasked,
    Later,
    Here,
    /// To memory at this address, with room for so many bytes.
    Into(usize, usize),
}

impl PlacingVerdict {
    /// Bytes of a message that its handler is to see.
    pub(super) fn expected(self, at_port: u16, payload: &[u8], bytes: usize) -> usize {
        match self {
            Self::Into(at, room) => {
                let seen_at = payload.as_ptr() as usize;
                assert_eq!(seen_at, at, "it is not where it was placed");
                room.min(bytes)
            }
            Self::Here => bytes,
            Self::Unasked | Self::Later => {
                assert_ne!(at_port, port::PLACING, "nobody has said where it goes");
                bytes
            }
        }
    }
}

/// Whether a port that waits for its program was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    ToBeBound,
    ToBeResumed,
}

/// What is known of all such ports.
#[derive(Debug)]
pub struct Placings {
    /// None: nothing is sent to them.
    rng: Option<Rng>,
    waiting: BTreeMap<(LifeId, SpaceId), Waits>,
    /// Memory that was given, by its address: to whom, and for which message.
    given: BTreeMap<usize, (LifeId, usize)>,
    /// How often something was placed, and how often a port has paused.
    pub counts: [u64; 2],
}

impl Placings {
    pub(super) const fn new(rng: Option<Rng>) -> Self {
        Self {
            rng,
            waiting: BTreeMap::new(),
            given: BTreeMap::new(),
            counts: [0; 2],
        }
    }

    pub(super) fn one_in(&mut self, n: u64) -> bool {
        self.rng.as_mut().is_some_and(|rng| rng.one_in(n))
    }

    /// The placing port now and then, in the place of another.
    pub fn port_or(&mut self, other: u16) -> u16 {
        if self.one_in(4) { port::PLACING } else { other }
    }

    /// How many messages follow one to the placing port at once.
    pub fn followers(&mut self, at: u16) -> usize {
        let many = at == port::PLACING && self.one_in(3);
        (self.rng.as_mut().filter(|_| many)).map_or(0, |rng| rng.index(60))
    }

    /// Whether life `me` binds the port of a space only some time after.
    pub fn binds_late(&mut self, me: LifeId, space: SpaceId) -> bool {
        let late = self.one_in(3);
        if late {
            self.waiting.insert((me, space), Waits::ToBeBound);
        }
        late
    }

    /// How long ports wait from now on, ns.
    pub fn pause(&mut self) -> u64 {
        (self.rng.as_mut()).map_or(0, |rng| rng.scale(1_000, PAUSE_NS))
    }

    /// Whether ports of a life wait.
    pub fn any_waits(&self, me: LifeId) -> bool {
        self.waiting.keys().any(|(life, _)| *life == me)
    }

    /// Takes all of a life that wait.
    pub fn take_waiting(&mut self, me: LifeId) -> Vec<(SpaceId, Waits)> {
        let of_me = self.waiting.iter().filter(|((life, _), _)| *life == me);
        let taken = of_me.map(|((_, space), waits)| (*space, *waits)).collect();
        self.waiting.retain(|(life, _), _| *life != me);
        taken
    }

    /// Whether a handler of life `me` is to resume the port of its space.
    pub fn resumes(&mut self, me: LifeId, space: SpaceId) -> bool {
        let paused = self.waiting.get(&(me, space)) == Some(&Waits::ToBeResumed);
        let resumes = paused && self.one_in(8);
        if resumes {
            self.waiting.remove(&(me, space));
        }
        resumes
    }
}

impl Book {
    /// The function of life `me` is asked where a message goes.
    pub fn place(&mut self, me: LifeId, space: SpaceId, m: &Message<'_>) -> Placement {
        let Some(id) = self.find(me, m) else {
            return Placement::Here;
        };
        self.check(id, me, space, m);
        let is_part = (m.payload.len() as u64) < m.total;
        let letter = &mut self.letters[id];
        let may_ask = match letter.place {
            PlacingVerdict::Unasked | PlacingVerdict::Later => true,
            // There was no memory to put it together in.
            PlacingVerdict::Here => is_part,
            PlacingVerdict::Into(..) => false,
        };
        assert!(may_ask, "asked again about message {id}: {letter:?}");
        let p = &mut self.placings;
        let waits = p.waiting.get(&(me, space));
        assert_eq!(waits, None, "asked about message {id}");
        let rng = p.rng.as_mut().expect("somebody sends to it");
        let room = match rng.below(8) {
            0 => {
                letter.place = PlacingVerdict::Later;
                p.waiting.insert((me, space), Waits::ToBeResumed);
                p.counts[1] += 1;
                return Placement::Later;
            }
            1 | 2 => {
                letter.place = PlacingVerdict::Here;
                return Placement::Here;
            }
            3 | 4 => 1 + rng.index(letter.bytes.max(1)),
            _ => letter.bytes + 1 + rng.index(50),
        };
        let buffer = vec![0; room];
        let at = buffer.as_ptr() as usize;
        letter.place = PlacingVerdict::Into(at, room);
        p.given.insert(at, (me, id));
        p.counts[0] += 1;
        Placement::Into(buffer.into())
    }

    /// Memory has come back to life `me`, with so many bytes in it. `is_dead` says whether
    /// the sender is, as that life knows.
    pub fn take_back(
        &mut self,
        me: LifeId,
        buffer: &[u8],
        filled: usize,
        is_dead: impl Fn(u32) -> bool,
    ) {
        let given = self.placings.given.remove(&(buffer.as_ptr() as usize));
        let (life, id) = given.expect("memory that was given");
        let letter = &self.letters[id];
        assert_eq!(life, me, "{letter:?}");
        if letter.fate == Fate::Delivered {
            assert_eq!(filled, letter.bytes.min(buffer.len()), "{letter:?}");
            content::verify(letter.base.unwrap_or(id), 0, &buffer[..filled]);
        } else {
            let is_over = is_dead(self.lives[letter.from].rank as u32);
            assert!(is_over || !self.is_sound(letter.from, me), "{letter:?}");
            assert_eq!(filled, 0, "{letter:?}");
        }
    }

    /// All memory has come back, but for that of messages whose sender has died and nobody
    /// knows it yet.
    pub fn check_placed(&self) {
        for (me, id) in self.placings.given.values() {
            let (it, from) = (&self.lives[*me], self.letters[*id].from);
            let is_due = self.is_sound(from, *me) || it.known_dead.contains(&from);
            assert!(it.lost || !is_due, "{:?}", self.letters[*id]);
        }
    }
}
