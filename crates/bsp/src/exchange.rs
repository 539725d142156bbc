//! How a superstep ends: each process sends each other one *head*, which says what all
//! must have alike and how long its log is, and carries the log too if that is short.
//! Heads of all are the barrier, and nothing else synchronises.
//!
//! Who has all logs answers the gets in them, then knows that nobody reads its memory any
//! more: so the results of its own gets and then the puts of others are written. The bytes
//! of long puts are received straight in their places, once the results of gets are there.

use portolan::{Buffer, Gather, Scatter};

use crate::areas::{Areas, Changes};
use crate::failure::Failure;
use crate::log::{Call, Calls, Log, Piece, Written};
use crate::queue::Queue;

/// Bytes of a head.
const HEAD_BYTES: usize = 48;
/// Most bytes of a head with its log.
const FIRST_BYTES: usize = 4096;

/// Pieces that travel in one message.
const PIECES_MAX: usize = 1024;

/// What travels in a superstep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A head, maybe with its log.
    Head,
    /// A log that is longer.
    Log,
    /// The results of gets, in the order of their calls.
    Results,
    /// Bytes of long puts, up to 1,024 of them, in the order of their calls.
    Pieces(u32),
}

/// What carries the parts, in order or not, each once.
pub trait Wire {
    /// Sends a part; never waits for its receiver.
    /// `lent`: the program's memory is among it.
    fn send(
        &mut self,
        to: u32,
        part: Part,
        step: u64,
        bytes: Gather,
        lent: bool,
    ) -> Result<(), Failure>;

    /// A part is expected, as long as `room`; a head is at most as long.
    fn expect(&mut self, from: u32, part: Part, step: u64, room: Scatter) -> Result<(), Failure>;

    /// Memory of so many bytes.
    fn room(&mut self, from: u32, bytes: u64) -> Result<Vec<u8>, Failure>;

    /// Takes memory that is not needed any more.
    fn keep(&mut self, memory: Vec<u8>);
}

/// Something that was expected has come.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub from: u32,
    pub part: Part,
    /// Nothing, where it went straight to its places.
    pub bytes: Vec<u8>,
}

/// What all must have alike at the end of a superstep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    pub step: u64,
    pub changes: Changes,
    /// Of messages of the superstep after the next.
    pub tag_bytes: u64,
    /// bsp_end was called.
    pub ends: bool,
}

impl Common {
    /// What must be alike, as messages name it.
    fn numbers(&self) -> [(&'static str, u64); 3] {
        [
            ("number of bsp_push_reg", self.changes.pushes.into()),
            ("number of bsp_pop_reg", self.changes.pops.into()),
            ("size in bsp_set_tagsize", self.tag_bytes),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    common: Common,
    /// Bytes of the log, and those of them that are calls.
    log: u64,
    calls: u64,
}

impl Head {
    fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let Common {
            step,
            changes,
            tag_bytes,
            ends,
        } = self.common;
        let flags = u64::from(ends) << 63;
        let counts = u64::from(changes.pushes) | u64::from(changes.pops) << 32;
        let words = [
            step | flags,
            counts,
            changes.popped,
            tag_bytes,
            self.log,
            self.calls,
        ];
        let mut bytes = [0; HEAD_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let word = |at: usize| {
            let bytes = head[8 * at..][..8].first_chunk().copied();
            u64::from_le_bytes(bytes.unwrap_or_default())
        };
        let it = Self {
            common: Common {
                step: word(0) & !(1 << 63),
                changes: Changes {
                    pushes: word(1) as u32,
                    pops: (word(1) >> 32) as u32,
                    popped: word(2),
                },
                tag_bytes: word(3),
                ends: word(0) >> 63 == 1,
            },
            log: word(4),
            calls: word(5),
        };
        (it.calls <= it.log).then_some((it, rest))
    }

    fn is_whole(&self) -> bool {
        self.log <= (FIRST_BYTES - HEAD_BYTES) as u64
    }
}

#[derive(Debug, Default)]
struct Peer {
    head: Option<Head>,
    log: Vec<u8>,
    /// Bytes of the log's beginning that are the head.
    before: usize,
    results: Vec<u8>,
    /// Where its pieces go to.
    places: Vec<Wanted>,
    /// Pieces that were received elsewhere, since some overlap: by message.
    staged: Vec<Vec<u8>>,
}

/// Memory that is to be written: by the result of a get, or by a piece.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub into: *mut u8,
    pub bytes: usize,
}

// SAFETY: an address; whoever writes there has to see to it that it may.
unsafe impl Send for Wanted {}

/// The end of a superstep under way.
#[derive(Debug)]
pub struct Exchange {
    me: u32,
    common: Common,
    /// Of the messages of this superstep.
    tag_bytes: u64,
    peers: Vec<Peer>,
    /// Of this process to itself.
    own: Vec<Piece>,
    /// What is got from each process.
    wanted: Vec<Vec<Wanted>>,
    /// Parts that have not come.
    heads: usize,
    logs: usize,
    results: usize,
    /// Messages of pieces; none is expected before all places are known.
    pieces: Option<usize>,
    /// Pieces are written when all are here.
    staged: bool,
    /// All have alike what they must.
    compared: bool,
    /// The gets of all have been answered.
    served: bool,
}

impl Exchange {
    /// Begins with the logs of process `me`, one for each process, and what it gets from
    /// each.
    ///
    /// # Safety
    /// Until it is finished, what is wanted may be written, registered areas may be read
    /// and written, and pieces that are lent stay as they are.
    pub unsafe fn begin(
        me: u32,
        common: Common,
        tag_bytes: u64,
        logs: &mut [Log],
        wanted: Vec<Vec<Wanted>>,
        areas: &Areas,
        wire: &mut impl Wire,
    ) -> Result<Self, Failure> {
        let size = logs.len() as u32;
        let step = common.step;
        let others = || (1..size).map(|k| (me + k) % size);
        for other in others() {
            let room = wire.room(other, FIRST_BYTES as u64)?;
            wire.expect(other, Part::Head, step, room.into())?;
        }
        let mut it = Self {
            me,
            common,
            tag_bytes,
            peers: logs.iter().map(|_| Peer::default()).collect(),
            own: Vec::new(),
            wanted,
            heads: logs.len(),
            logs: logs.len(),
            results: 0,
            pieces: None,
            staged: false,
            compared: false,
            served: false,
        };
        // Each begins with the process after it.
        for to in others() {
            let written = logs[to as usize].take();
            let head = it.head(&written);
            let Written {
                calls,
                data,
                pieces,
            } = written;
            let mut first = head.to_bytes().to_vec();
            if head.is_whole() {
                first.extend_from_slice(&calls);
                first.extend_from_slice(&data);
                wire.send(to, Part::Head, step, first.into(), false)?;
                // Its memory may be written to again.
                logs[to as usize].renew(data);
            } else {
                wire.send(to, Part::Head, step, first.into(), false)?;
                let log = Gather::from(calls).and(data);
                wire.send(to, Part::Log, step, log, false)?;
            }
            for (message, (pieces, lent)) in (0..).zip(messages(pieces)) {
                wire.send(to, Part::Pieces(message), step, pieces, lent)?;
            }
            let asked: usize = it.wanted[to as usize].iter().map(|it| it.bytes).sum();
            if asked > 0 {
                it.results += 1;
                let room = wire.room(to, asked as u64)?;
                wire.expect(to, Part::Results, step, room.into())?;
            }
        }
        let written = logs[me as usize].take();
        let head = it.head(&written);
        it.own = written.pieces;
        let own = &mut it.peers[me as usize];
        own.head = Some(head);
        own.log = written.calls;
        grow(&mut own.log, written.data.len() as u64, me)?;
        own.log.extend_from_slice(&written.data);
        it.heads -= 1;
        it.logs -= 1;
        it.go_on(areas, wire)?;
        Ok(it)
    }

    fn head(&self, log: &Written) -> Head {
        Head {
            common: self.common,
            log: (log.calls.len() + log.data.len()) as u64,
            calls: log.calls.len() as u64,
        }
    }

    /// Takes what has come.
    pub fn take(
        &mut self,
        arrived: Arrived,
        areas: &Areas,
        wire: &mut impl Wire,
    ) -> Result<(), Failure> {
        let Arrived { from, part, bytes } = arrived;
        let malformed = Failure::Malformed { who: from };
        let peer = &mut self.peers[from as usize];
        match part {
            Part::Head => {
                let (head, log) = Head::parse(&bytes).ok_or(malformed.clone())?;
                let carried = if head.is_whole() { head.log } else { 0 };
                if head.common.step != self.common.step || log.len() as u64 != carried {
                    return Err(malformed);
                }
                peer.head = Some(head);
                self.heads -= 1;
                if head.is_whole() {
                    (peer.log, peer.before) = (bytes, HEAD_BYTES);
                    self.logs -= 1;
                } else {
                    let room = wire.room(from, head.log)?;
                    wire.expect(from, Part::Log, self.common.step, room.into())?;
                }
            }
            Part::Log => {
                if peer.head.is_none_or(|head| head.log != bytes.len() as u64) {
                    return Err(malformed);
                }
                peer.log = bytes;
                self.logs -= 1;
            }
            Part::Results => {
                peer.results = bytes;
                self.results -= 1;
            }
            Part::Pieces(message) => {
                if !bytes.is_empty() {
                    peer.staged[message as usize] = bytes;
                }
                self.pieces = self.pieces.map(|left| left - 1);
            }
        }
        self.go_on(areas, wire)
    }

    fn go_on(&mut self, areas: &Areas, wire: &mut impl Wire) -> Result<(), Failure> {
        if self.heads == 0 && !self.compared {
            self.compared = true;
            self.compare()?;
        }
        if self.logs == 0 && !self.served {
            self.served = true;
            self.serve(areas, wire)?;
        }
        if self.served && self.heads == 0 && self.results == 0 && self.pieces.is_none() {
            self.store_results()?;
            self.store_puts(areas)?;
            self.expect_pieces(wire)?;
        }
        Ok(())
    }

    /// All processes find the same difference, if there is one.
    fn compare(&self) -> Result<(), Failure> {
        let all = || {
            let heads = self.peers.iter().filter_map(|peer| peer.head);
            (0..).zip(heads.map(|head| head.common))
        };
        let Some((other, first)) = all().next() else {
            return Ok(());
        };
        if let Some((who, it)) = all().find(|(_, it)| it.ends != first.ends) {
            let (who, other) = if it.ends { (who, other) } else { (other, who) };
            return Err(Failure::Ended { who, other });
        }
        for (at, (what, its)) in (0..).zip(first.numbers()) {
            let of = |it: &Common| it.numbers()[at].1;
            if let Some((who, it)) = all().find(|(_, it)| of(it) != its) {
                let theirs = of(&it);
                return Err(Failure::Differ {
                    what,
                    who,
                    theirs,
                    other,
                    its,
                });
            }
        }
        let popped = |it: &Common| it.changes.popped;
        match all().find(|(_, it)| popped(it) != popped(&first)) {
            Some((who, _)) => Err(Failure::Popped { who, other }),
            None => Ok(()),
        }
    }

    fn calls(&self, of: u32) -> Result<Calls<'_>, Failure> {
        let malformed = Failure::Malformed { who: of };
        let peer = &self.peers[of as usize];
        let head = peer.head.ok_or(malformed.clone())?;
        Calls::new(&peer.log[peer.before..], head.calls, self.tag_bytes).map_err(|_| malformed)
    }

    /// Checks all that others ask for, and answers their gets.
    fn serve(&mut self, areas: &Areas, wire: &mut impl Wire) -> Result<(), Failure> {
        let me = self.me;
        for who in 0..self.peers.len() as u32 {
            let mut results = Vec::new();
            let mut calls = self.calls(who)?;
            let malformed = |_| Failure::Malformed { who };
            let mut places = Vec::new();
            while let Some(call) = calls.read().map_err(malformed)? {
                let (verb, slot, offset, bytes) = match call {
                    Call::Put {
                        slot,
                        offset,
                        bytes,
                    } => ("puts", slot, offset, bytes.len() as u64),
                    Call::Get {
                        slot,
                        offset,
                        bytes,
                    } => ("gets", slot, offset, bytes),
                    Call::Piece {
                        slot,
                        offset,
                        bytes,
                    } => ("puts", slot, offset, bytes),
                    Call::Message { .. } => continue,
                };
                let outside = |why| Failure::Outside {
                    who,
                    verb,
                    offset,
                    bytes,
                    whose: me,
                    why,
                };
                let place = areas.place(slot, offset, bytes).map_err(outside)?;
                if matches!(call, Call::Piece { .. }) {
                    places.push(Wanted {
                        into: place,
                        bytes: bytes as usize,
                    });
                }
                if matches!(call, Call::Get { .. }) {
                    let at = results.len();
                    grow(&mut results, bytes, who)?;
                    results.resize(at + bytes as usize, 0);
                    // SAFETY: so many bytes of a registered area, which is the program's
                    // memory until it is popped.
                    unsafe {
                        place.copy_to_nonoverlapping(results[at..].as_mut_ptr(), bytes as usize);
                    }
                }
            }
            self.peers[who as usize].places = places;
            if who == me {
                self.peers[me as usize].results = results;
            } else if !results.is_empty() {
                let results = results.into();
                wire.send(who, Part::Results, self.common.step, results, false)?;
            }
        }
        Ok(())
    }

    /// Writes the results of gets.
    fn store_results(&self) -> Result<(), Failure> {
        for ((who, peer), wanted) in (0..).zip(&self.peers).zip(&self.wanted) {
            let mut rest = &peer.results[..];
            for it in wanted {
                let cut = rest.split_at_checked(it.bytes);
                let (result, after) = cut.ok_or(Failure::Malformed { who })?;
                rest = after;
                // SAFETY: promised where this began.
                unsafe { result.as_ptr().copy_to(it.into, it.bytes) };
            }
        }
        Ok(())
    }

    /// Writes what others have put, but for pieces.
    fn store_puts(&self, areas: &Areas) -> Result<(), Failure> {
        for who in 0..self.peers.len() as u32 {
            let mut calls = self.calls(who)?;
            while let Ok(Some(call)) = calls.read() {
                if let Call::Put {
                    slot,
                    offset,
                    bytes,
                } = call
                    && let Ok(place) = areas.place(slot, offset, bytes.len() as u64)
                {
                    // SAFETY: promised where this began.
                    unsafe { bytes.as_ptr().copy_to(place, bytes.len()) };
                }
            }
        }
        Ok(())
    }

    /// Writes the pieces of this process to itself.
    fn store_own(&self) {
        let places = &self.peers[self.me as usize].places;
        for (place, piece) in places.iter().zip(&self.own) {
            // SAFETY: promised where this began; they may overlap.
            unsafe { piece.start().copy_to(place.into, place.bytes) };
        }
    }

    /// Receives the bytes of long puts: in their places, unless some overlap, which must
    /// look as if one came after the other.
    fn expect_pieces(&mut self, wire: &mut impl Wire) -> Result<(), Failure> {
        let staged = self.overlap();
        let (me, step) = (self.me, self.common.step);
        let mut count = 0;
        for (from, peer) in (0..).zip(&mut self.peers).filter(|(from, _)| *from != me) {
            for (message, places) in (0..).zip(peer.places.chunks(PIECES_MAX)) {
                count += 1;
                let room = if staged {
                    peer.staged.push(Vec::new());
                    let bytes: usize = places.iter().map(|it| it.bytes).sum();
                    wire.room(from, bytes as u64)?.into()
                } else {
                    in_place(places)
                };
                wire.expect(from, Part::Pieces(message), step, room)?;
            }
        }
        self.pieces = Some(count);
        self.staged = staged;
        if !staged {
            self.store_own();
        }
        Ok(())
    }

    /// Whether places of pieces overlap.
    fn overlap(&self) -> bool {
        let all = self.peers.iter().flat_map(|peer| &peer.places);
        let mut ends: Vec<_> = all.map(|it| (it.into.addr(), it.bytes)).collect();
        ends.sort_unstable();
        let mut pairs = ends.iter().zip(ends.iter().skip(1));
        pairs.any(|((start, bytes), (next, _))| start + bytes > *next)
    }

    /// Whether all has come that this process needs.
    pub const fn is_complete(&self) -> bool {
        matches!(self.pieces, Some(0))
    }

    /// Writes the pieces that are left, and fills the queue. Gives back the lists of what was
    /// wanted.
    pub fn finish(
        self,
        queue: &mut Queue,
        wire: &mut impl Wire,
    ) -> Result<Vec<Vec<Wanted>>, Failure> {
        queue.begin(self.tag_bytes as usize);
        let mut messages = (0, 0);
        for who in 0..self.peers.len() as u32 {
            let mut calls = self.calls(who)?;
            while let Ok(Some(call)) = calls.read() {
                if let Call::Message { tag, payload } = call {
                    messages.0 += 1;
                    messages.1 += tag.len() + payload.len();
                }
            }
        }
        for (who, peer) in (0..).zip(&self.peers) {
            if who == self.me && self.staged {
                self.store_own();
            }
            for (places, bytes) in peer.places.chunks(PIECES_MAX).zip(&peer.staged) {
                let mut rest = &bytes[..];
                for it in places {
                    let cut = rest.split_at_checked(it.bytes);
                    let (piece, after) = cut.ok_or(Failure::Malformed { who })?;
                    rest = after;
                    // SAFETY: promised where this began.
                    unsafe { piece.as_ptr().copy_to(it.into, it.bytes) };
                }
            }
        }
        if messages.0 > 0 {
            queue.reserve(messages.0, messages.1);
            for who in 0..self.peers.len() as u32 {
                let mut calls = self.calls(who)?;
                while let Ok(Some(call)) = calls.read() {
                    if let Call::Message { tag, payload } = call {
                        queue.push(tag, payload);
                    }
                }
            }
        }
        for peer in self.peers {
            wire.keep(peer.log);
            wire.keep(peer.results);
            peer.staged.into_iter().for_each(|memory| wire.keep(memory));
        }
        Ok(self.wanted)
    }
}

/// Makes room for so many bytes more, which a process asks for.
fn grow(memory: &mut Vec<u8>, bytes: u64, who: u32) -> Result<(), Failure> {
    let more = usize::try_from(bytes).unwrap_or(usize::MAX);
    let grown = memory.try_reserve(more);
    grown.map_err(|_| Failure::NoMemory { who, bytes })
}

/// The messages that pieces travel in, and whether some are lent.
fn messages(pieces: Vec<Piece>) -> impl Iterator<Item = (Gather, bool)> {
    let mut pieces = pieces.into_iter().peekable();
    std::iter::from_fn(move || {
        pieces.peek()?;
        let mut lent = false;
        let gathers = pieces.by_ref().take(PIECES_MAX).map(|piece| match piece {
            Piece::Copied(bytes) => Gather::from(bytes),
            Piece::Lent(start, bytes) => {
                lent = true;
                // SAFETY: promised where the exchange began.
                unsafe { Gather::lent(start, bytes) }
            }
        });
        let all = gathers.reduce(Gather::and)?;
        Some((all, lent))
    })
}

/// Places, to be received in.
fn in_place(places: &[Wanted]) -> Scatter {
    let buffers = places.iter().map(|it| {
        // SAFETY: promised where the exchange began.
        Scatter::from(unsafe { Buffer::lent(it.into, it.bytes) })
    });
    buffers
        .reduce(Scatter::and)
        .unwrap_or_else(|| Vec::new().into())
}
