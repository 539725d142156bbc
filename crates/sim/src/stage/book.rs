//! What programs on the stage may rely on: the record of all that was sent.

mod placing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_engine::{Death, Event, Message, SendOptions, SpaceId};
use portolan_exchange::{Notify, OpId};
use portolan_wire::Priority;

pub use self::placing::Waits;
use self::placing::{PlacingVerdict, Placings};
use crate::content;
use crate::rng::Rng;
use crate::trace::Trace;

/// A life of a rank, in the order of their beginnings.
pub type LifeId = usize;

/// One of them.
#[derive(Clone, Debug, Default)]
pub struct Life {
    pub rank: usize,
    /// It was killed, or closes.
    pub lost: bool,
    /// Some life of every other rank, as this one knows them.
    pub knows: Vec<LifeId>,
    /// Lives that are over, and whose death it is yet to be told of.
    pub owed: Vec<LifeId>,
    /// Lives whose death it was told of.
    pub known_dead: BTreeSet<LifeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Open,
    Delivered,
    /// It was never sent.
    Unsent,
}

/// Messages so short fit what a rank may have kept, bytes.
const SMALL: usize = 1_000;

/// A message to a port.
#[derive(Clone, Debug)]
struct Letter {
    from: LifeId,
    to: LifeId,
    port: u16,
    priority: Priority,
    space: SpaceId,
    flow: u16,
    args: usize,
    bytes: usize,
    fate: Fate,
    /// The first of the messages of its broadcast.
    base: Option<usize>,
    /// A handler sent it, or left it in the outbox, when it was written.
    by_handler: bool,
    place: PlacingVerdict,
}

/// Messages of one sender, space and flow, which keep order.
type OrderKey = (LifeId, LifeId, bool, SpaceId, u16);

/// What a handler is to do next.
#[derive(Clone, Debug)]
pub enum Reaction {
    Nothing,
    Reply(Draft),
    Forward(u32, Draft),
    Give(u32, Draft),
}

/// How a sender heard that a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Refusal {
    /// By an event, which names its number.
    Event(u32),
    /// By the end of its operation.
    Given(usize),
}

/// A message that is to be sent.
#[derive(Clone, Debug)]
pub struct Draft {
    pub id: usize,
    pub to: LifeId,
    pub port: u16,
    pub space: SpaceId,
    pub flow: u16,
    pub priority: Priority,
    pub args: Vec<u64>,
    pub bytes: usize,
}

impl Draft {
    pub fn options(&self) -> SendOptions<'_> {
        SendOptions {
            flow: self.flow,
            priority: self.priority,
            args: &self.args,
            notify: Notify::NONE,
        }
    }

    pub fn payload(&self) -> Vec<u8> {
        let mut payload = vec![0; self.bytes];
        content::fill(self.id, 0, &mut payload);
        payload
    }
}

/// The record.
#[derive(Debug)]
pub struct Book {
    pub rng: Rng,
    pub trace: Trace,
    pub now: u64,
    pub lives: Vec<Life>,
    letters: Vec<Letter>,
    /// The last number of a way that came to a port.
    last: BTreeMap<(OrderKey, u16), u32>,
    /// Likewise the last message itself, of those of handlers.
    last_by_handler: BTreeMap<(OrderKey, u16), usize>,
    refused: BTreeSet<(OrderKey, Refusal)>,
    /// Messages that handlers of a life gave away.
    given: Vec<(LifeId, Draft, OpId)>,
    /// Those of them that ended with a death.
    failed: Vec<(LifeId, LifeId, usize)>,
    /// Places in each life's region that have been used.
    slots: BTreeMap<LifeId, usize>,
    /// Words of signals that are due, and whether they have come.
    pub signals: BTreeMap<u64, bool>,
    /// Silence may be taken for death.
    pub silence_possible: bool,
    pub long_max: u64,
    /// Several spaces are used.
    pub spaces: bool,
    pub placings: Placings,
}

/// A book that handlers share.
#[derive(Clone, Debug)]
pub struct SharedBook(Arc<Mutex<Book>>);

impl SharedBook {
    pub fn new(
        rng: Rng,
        trace: Trace,
        silence_possible: bool,
        long_max: u64,
        spaces: bool,
        placings: Option<Rng>,
    ) -> Self {
        Self(Arc::new(Mutex::new(Book {
            rng,
            trace,
            now: 0,
            lives: Vec::new(),
            letters: Vec::new(),
            last: BTreeMap::new(),
            last_by_handler: BTreeMap::new(),
            refused: BTreeSet::new(),
            given: Vec::new(),
            failed: Vec::new(),
            slots: BTreeMap::new(),
            signals: BTreeMap::new(),
            silence_possible,
            long_max,
            spaces,
            placings: Placings::new(placings),
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Of longer messages a life has at most one under way to another, bytes.
const MIDDLING: usize = 3_000;

/// Ports of the stage's programs; what is bound to them says `rank`.
pub mod port {
    pub const PLAIN: u16 = 1;
    pub const SHORT: u16 = 2;
    pub const LONG: u16 = 3;
    pub const LATE: u16 = 4;
    pub const CLOSING: u16 = 5;
    pub const ANY_THREAD: u16 = 6;
    pub const CHANGING: u16 = 7;
    pub const BROADCAST: u16 = 8;
    pub const SIGNAL: u16 = 9;
    pub const PLACING: u16 = 10;
}

impl Book {
    /// The space of a thing with this number.
    pub const fn space_of(&self, number: usize) -> SpaceId {
        let [second, third] = SpaceId::OTHERS;
        match number % 4 {
            1 if self.spaces => second,
            2 if self.spaces => third,
            _ => SpaceId::PROGRAM,
        }
    }

    /// A message of one life to another, as its program writes it.
    pub fn draft(&mut self, from: LifeId, to: LifeId, priority: Priority, port: u16) -> Draft {
        let space = self.space_of(self.letters.len());
        self.draft_in(space, from, to, priority, port)
    }

    /// The same in a space.
    pub fn draft_in(
        &mut self,
        space: SpaceId,
        from: LifeId,
        to: LifeId,
        priority: Priority,
        port: u16,
    ) -> Draft {
        let r = &mut self.rng;
        let bytes = match r.below(12) {
            0 => 0,
            1..=6 => r.below(64),
            7..=9 => r.below(3_000),
            10 => r.below(20_000),
            _ => r.below(self.long_max),
        };
        // Most in one: only there can they come out of order.
        let (flow, args) = ([0, 0, 0, 0, 2, 5][r.index(6)], 1 + r.index(8));
        // Several long ones can fill what one sender may have held, each in a flow of its
        // own: then none of them goes on.
        let mut pair = self
            .letters
            .iter()
            .filter(|it| (it.from, it.to) == (from, to));
        let is_busy = pair.any(|it| it.fate == Fate::Open && it.bytes > MIDDLING);
        let bytes = if is_busy {
            bytes.min(MIDDLING as u64)
        } else {
            bytes
        };
        let flow = if space == SpaceId::PROGRAM { flow } else { 0 };
        self.letter(
            from,
            to,
            priority,
            port,
            (space, flow),
            args,
            bytes as usize,
        )
    }

    /// A message that may not come before another: a short one, but for some to the placing
    /// port.
    pub fn draft_behind(&mut self, from: LifeId, it: &Draft) -> Draft {
        let way = (it.priority, it.space, it.flow);
        let is_long_beside = |other: &Letter| {
            let of_pair = (other.from, other.to) == (from, it.to);
            let is_long = other.fate == Fate::Open && other.bytes > MIDDLING;
            of_pair && is_long && (other.priority, other.space, other.flow) != way
        };
        let may_be_long = it.port == port::PLACING && self.placings.one_in(3);
        let may_be_long = may_be_long && !self.letters.iter().any(is_long_beside);
        let bytes_max = if may_be_long { 40_000 } else { 3_000 };
        let (args, bytes) = (1 + self.rng.index(8), self.rng.below(bytes_max) as usize);
        let way = (it.space, it.flow);
        self.letter(from, it.to, it.priority, it.port, way, args, bytes)
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    fn letter(
        &mut self,
        from: LifeId,
        to: LifeId,
        priority: Priority,
        port: u16,
        (space, flow): (SpaceId, u16),
        args: usize,
        bytes: usize,
    ) -> Draft {
        let id = self.letters.len();
        self.letters.push(Letter {
            from,
            to,
            port,
            priority,
            space,
            flow,
            args,
            bytes,
            fate: Fate::Open,
            base: None,
            by_handler: false,
            place: PlacingVerdict::Unasked,
        });
        let mut words: Vec<u64> = (0..args).map(|i| content::arg(id, i)).collect();
        words[0] = id as u64;
        Draft {
            id,
            to,
            port,
            space,
            flow,
            priority,
            args: words,
            bytes,
        }
    }

    /// A place for a put to the region of a life, which no other put has.
    pub fn next_slot(&mut self, of: LifeId) -> usize {
        let slot = self.slots.entry(of).or_insert(0);
        *slot += 1;
        *slot
    }

    /// A message of one life to several.
    pub fn broadcast(&mut self, from: LifeId, to: &[LifeId]) -> Draft {
        let (base, bytes) = (self.letters.len(), self.rng.below(4_000) as usize);
        let (request, space) = (Priority::Request, self.space_of(base));
        let at = self.placings.port_or(port::BROADCAST);
        let all = to.iter().map(|to| {
            let draft = self.letter(from, *to, request, at, (space, 0), 2, bytes);
            self.letters[draft.id].base = Some(base);
            draft
        });
        all.collect::<Vec<_>>().swap_remove(0)
    }

    /// It was not sent after all.
    pub fn unsend(&mut self, id: usize) {
        self.letters[id].fate = Fate::Unsent;
    }

    fn way(letter: &Letter) -> OrderKey {
        let is_reply = letter.priority == Priority::Reply;
        (letter.from, letter.to, is_reply, letter.space, letter.flow)
    }

    /// A handler of life `me` has a message; says what it does next.
    pub fn deliver(&mut self, me: LifeId, space: SpaceId, m: &Message<'_>) -> Reaction {
        if m.port == port::SIGNAL {
            let told = self.signals.get_mut(&m.arg(0));
            let told = told.expect("a signal that somebody has sent");
            assert!(
                !std::mem::replace(told, true),
                "signal {} came twice",
                m.arg(0)
            );
            return Reaction::Nothing;
        }
        let Some(id) = self.find(me, m) else {
            return Reaction::Nothing;
        };
        self.check(id, me, space, m);
        let letter = self.letters[id].clone();
        let from = letter.from;
        let what = || format!("message {id}: {letter:?}");
        let expected = letter.place.expected(m.port, m.payload, letter.bytes);
        assert_eq!(m.payload.len(), expected, "{}", what());
        let rank = self.lives[from].rank;
        self.letters[id].fate = Fate::Delivered;
        if letter.base.is_none() {
            let number = m.number.0;
            let before = self.last.insert((Self::way(&letter), m.port), number);
            let in_order = before.is_none_or(|before| number.wrapping_sub(before) as i32 > 0);
            assert!(in_order, "number {number} after {before:?}: {}", what());
        }
        if letter.by_handler {
            let key = (Self::way(&letter), m.port);
            let before = self.last_by_handler.insert(key, id);
            assert!(before < Some(id), "after {before:?}: {}", what());
        }
        let (now, node) = (self.now, self.lives[me].rank);
        self.trace.note(now, node, || {
            format!(
                "takes #{id} from {rank}, port {}, {} bytes",
                m.port, letter.bytes
            )
        });
        if letter.base.is_some() {
            return Reaction::Nothing;
        }
        self.react(me, space, m, from)
    }

    /// The message that life `me` sees. None: a broadcast that was meant for a life before,
    /// and relayed later.
    fn find(&self, me: LifeId, m: &Message<'_>) -> Option<usize> {
        let id = m.arg(0) as usize;
        let Some(base) = self.letters[id].base else {
            return Some(id);
        };
        let copies = self.letters[base..].iter();
        let mut copies = copies.take_while(|it| it.base == Some(base));
        let mine = copies.position(|it| it.to == me);
        let lost = self.lives.iter().any(|it| it.lost);
        assert!(mine.is_some() || lost, "a broadcast went astray");
        mine.map(|mine| base + mine)
    }

    /// A message that life `me` sees is one that is due, and is as it was sent.
    fn check(&self, id: usize, me: LifeId, space: SpaceId, m: &Message<'_>) {
        let letter = &self.letters[id];
        let (base, from) = (letter.base.unwrap_or(id), letter.from);
        let what = || format!("message {id}: {letter:?}");
        assert_eq!(letter.to, me, "another life's: {}", what());
        assert_eq!(letter.fate, Fate::Open, "it is not due: {}", what());
        assert_eq!(self.lives[from].rank as u32, m.from, "{}", what());
        let named = (
            m.port,
            m.priority,
            space,
            m.flow,
            m.arg_count(),
            m.total as usize,
        );
        let expected = (
            letter.port,
            letter.priority,
            letter.space,
            letter.flow,
            letter.args,
            letter.bytes,
        );
        assert_eq!(named, expected, "{}", what());
        for (i, word) in m.args().enumerate().skip(1) {
            assert_eq!(word, content::arg(base, i), "{}", what());
        }
        content::verify(base, 0, m.payload);
        let knows = self.lives[me].knows[self.lives[from].rank];
        assert!(
            knows <= from,
            "of a life before {knows}, which is back: {}",
            what()
        );
    }

    fn react(&mut self, me: LifeId, space: SpaceId, m: &Message<'_>, from: LifeId) -> Reaction {
        if self.lives[me].lost {
            return Reaction::Nothing;
        }
        let any = [port::PLAIN, port::SHORT, port::LONG, port::ANY_THREAD];
        let to_port = self.rng.pick(&any);
        let to_port = self.placings.port_or(to_port);
        if m.priority == Priority::Request && self.rng.one_in(2) {
            let mut draft = self.draft_in(space, me, from, Priority::Reply, to_port);
            draft.flow = m.flow;
            self.letters[draft.id].flow = m.flow;
            self.letters[draft.id].by_handler = true;
            return Reaction::Reply(draft);
        }
        // Fewer come of each, so that they end.
        if !self.rng.one_in(8) {
            return Reaction::Nothing;
        }
        let rank = self.rng.index(self.lives[me].knows.len());
        let to = self.lives[me].knows[rank];
        let draft = self.draft_in(space, me, to, Priority::Request, to_port);
        if self.rng.one_in(3) {
            Reaction::Give(rank as u32, draft)
        } else {
            self.letters[draft.id].by_handler = true;
            Reaction::Forward(rank as u32, draft)
        }
    }

    /// An error handler of life `me` is told something.
    pub fn told(&mut self, me: LifeId, space: SpaceId, event: &Event) {
        let (now, node) = (self.now, self.lives[me].rank);
        self.trace.note(now, node, || format!("{event:?}"));
        match *event {
            Event::Refused {
                to,
                priority,
                flow,
                number,
            } => {
                let to = self.spoken_of(me, to as usize);
                let way = (me, to, priority == Priority::Reply, space, flow);
                self.refused.insert((way, Refusal::Event(number.0)));
            }
            // All spaces are told of these.
            Event::PeerDead { .. } if space != SpaceId::PROGRAM => {}
            Event::PeerDead { rank, why, .. } => {
                let it = self.spoken_of(me, rank as usize);
                self.lives[me].owed.retain(|owed| *owed != it);
                let guess = matches!(why, Death::Silent | Death::NoAnswer);
                let lost = self.lives[it].lost || self.lives[me].lost;
                assert!(
                    lost || guess && self.silence_possible,
                    "rank {node} thinks that living rank {rank} is dead: {why:?}"
                );
                let first = self.lives[me].known_dead.insert(it);
                assert!(first, "rank {node} hears twice that rank {rank} is dead");
            }
            Event::PeerBack { rank } => {
                let it = self.lives[me].knows[rank as usize];
                assert!(!self.lives[me].known_dead.contains(&it), "it is dead");
            }
            Event::TooLong { .. } | Event::PeerSilent { .. } => {}
            other => panic!("nothing is checked of {other:?}"),
        }
    }

    /// The life of a rank that events which reach life `me` are about: as long as it
    /// has not heard of a death, the one before.
    fn spoken_of(&self, me: LifeId, rank: usize) -> LifeId {
        let it = &self.lives[me];
        let mut owed = it.owed.iter();
        let owed = owed.find(|life| self.lives[**life].rank == rank);
        *owed.unwrap_or(&it.knows[rank])
    }

    /// Life `me` was told that a rank is back.
    pub fn returned(&mut self, me: LifeId, rank: usize, life: LifeId) {
        let it = &mut self.lives[me];
        let before = std::mem::replace(&mut it.knows[rank], life);
        if !it.known_dead.contains(&before) {
            it.owed.push(before);
        }
    }

    /// A message that was given away was refused.
    pub fn note_refused(&mut self, id: usize) {
        let way = Self::way(&self.letters[id]);
        self.refused.insert((way, Refusal::Given(id)));
    }

    /// A handler gave a message away.
    pub fn given(&mut self, by: LifeId, draft: Draft, op: OpId) {
        self.given.push((by, draft, op));
    }

    /// What a life's handlers gave away since this was asked.
    pub fn take_given(&mut self, by: LifeId) -> Vec<(LifeId, Draft, OpId)> {
        self.given.extract_if(.., |it| it.0 == by).collect()
    }

    /// The operation of a message that was given away has ended, though it did not arrive.
    pub fn note_failed(&mut self, id: usize) {
        let letter = &self.letters[id];
        self.failed.push((letter.from, letter.to, id));
    }

    /// Whether two lives have always known each other.
    pub fn is_sound(&self, a: LifeId, b: LifeId) -> bool {
        let [a, b] = [(a, b), (b, a)].map(|(of, other)| {
            let life = &self.lives[of];
            !life.lost
                && !life.known_dead.contains(&other)
                && life.knows[self.lives[other].rank] == other
        });
        a && b
    }

    /// What is missing of messages between lives that know each other: those that
    /// were neither delivered nor refused, by way.
    pub fn missing(&self) -> BTreeMap<OrderKey, i64> {
        let mut missing = BTreeMap::new();
        let broken = self
            .lives
            .iter()
            .any(|life| life.lost || !life.known_dead.is_empty());
        for letter in &self.letters {
            // A broadcast passes by others.
            let by_others = letter.base.is_some() && broken;
            if letter.fate == Fate::Open && self.is_sound(letter.from, letter.to) && !by_others {
                *missing.entry(Self::way(letter)).or_insert(0) += 1;
            }
        }
        for (way, _) in self
            .refused
            .iter()
            .filter(|(way, _)| self.is_sound(way.0, way.1))
        {
            *missing.entry(*way).or_insert(0) -= 1;
        }
        missing.retain(|_, count| *count != 0);
        missing
    }

    /// Messages of a life that are on their way to others that go on, of those that no
    /// port refuses.
    pub fn on_their_way(&self, from: LifeId) -> Vec<usize> {
        let takes_all = |at| [port::PLAIN, port::ANY_THREAD].contains(&at);
        let due = |id: &usize| {
            let it = &self.letters[*id];
            let waits = it.fate == Fate::Open && it.base.is_none();
            let goes_on = it.to != from && self.is_sound(from, it.to);
            it.from == from && waits && it.bytes <= SMALL && takes_all(it.port) && goes_on
        };
        (0..self.letters.len()).filter(due).collect()
    }

    /// Whether all of them have come, were not sent after all, or were for one that is
    /// no more.
    pub fn have_come(&self, ids: &[usize]) -> bool {
        let mut all = ids.iter().map(|id| &self.letters[*id]);
        all.all(|it| it.fate != Fate::Open || self.lives[it.to].lost)
    }

    /// Nothing has ended with the death of the living.
    pub fn check_failed(&self) {
        for (from, to, id) in &self.failed {
            assert!(!self.is_sound(*from, *to), "message {id} of the living");
        }
    }

    /// Some of those, in words.
    pub fn describe_missing(&self) -> String {
        let missing = self.missing();
        let letters = self.letters.iter().enumerate();
        let open = letters.filter(|(_, it)| it.fate == Fate::Open);
        let found = open.filter(|(_, it)| missing.contains_key(&Self::way(it)));
        found
            .take(8)
            .map(|(id, it)| format!("\n  #{id} {it:?}"))
            .collect()
    }

    /// Messages, those that were delivered, and those that were refused.
    pub fn counts(&self) -> [u64; 3] {
        let sent = self.letters.iter().filter(|it| it.fate != Fate::Unsent);
        let delivered = self.letters.iter().filter(|it| it.fate == Fate::Delivered);
        [sent.count(), delivered.count(), self.refused.len()].map(|n| n as u64)
    }
}
