//! End of a superstep. Each process sends each other process one *head*: what all must have
//! alike, the length of the sender's log, and the log itself if that is short. The heads of all
//! are the barrier, and nothing else synchronises.
//!
//! A process that has all logs answers the gets in them. From then on no other process reads its
//! memory, so it writes the results of its own gets, then the puts of others. Long puts are
//! received straight in their places, once the results of gets have arrived.

mod serve;

use portolan::{Buffer, Gather, Scatter};

use crate::areas::{Areas, Pop};
use crate::check::Checks;
use crate::failure::Failure;
use crate::head::{Common, Head};
use crate::heads::Heads;
use crate::log::{AreaRange, Calls, Log, Piece};
use crate::queue::Queue;

/// Most pieces in one message.
const PIECES_MAX: usize = 1024;

/// Messages that travel beside heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// A log that does not fit its head.
    Log,
    /// The results of gets, in the order of their calls.
    Results,
    /// Bytes of up to 1,024 long puts, in the order of their calls, by number of the message.
    Pieces(u32),
}

/// Carries heads and parts, in any order, each once.
pub trait Wire {
    /// Sends a head, which its receiver finds among its [`Heads`].
    fn send_head(&mut self, to: u32, head: &[u8]) -> Result<(), Failure>;

    /// Sends a part without waiting for its receiver.
    /// `lent`: `bytes` includes memory of the program.
    fn send(
        &mut self,
        to: u32,
        part: Part,
        step: u64,
        bytes: Gather,
        lent: bool,
    ) -> Result<(), Failure>;

    /// Posts the receive of a part that is as long as `room`.
    fn expect(&mut self, from: u32, part: Part, step: u64, room: Scatter) -> Result<(), Failure>;

    /// Returns memory of `bytes` bytes for process `from`.
    fn room(&mut self, from: u32, bytes: u64) -> Result<Vec<u8>, Failure>;

    /// Takes back memory that is not needed any more.
    fn keep(&mut self, memory: Vec<u8>);
}

/// An expected part that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub from: u32,
    pub part: Part,
    /// Empty if the bytes were received in place.
    pub bytes: Vec<u8>,
    /// Length of the part in bytes; `None` if the wire only takes parts that fill their room.
    pub length: Option<u64>,
}

#[derive(Debug, Default)]
struct Peer {
    /// 1 + superstep of the last head taken.
    seen: u64,
    head: Head,
    /// Common values of this peer, if they differ from this process's.
    common: Option<Common>,
    /// Offset of the log in the head.
    log_at: usize,
    /// Log that did not fit the head.
    log: Vec<u8>,
    results: Vec<u8>,
    /// Targets of the peer's pieces.
    places: Vec<Wanted>,
    /// Pieces that were received elsewhere, since some overlap; by message.
    staged: Vec<Vec<u8>>,
    /// The log has short puts that are not yet written.
    puts: bool,
    /// Number of messages in the log, and their bytes.
    messages: (usize, usize),
}

/// Memory to be written by the result of a get, or by a piece.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub into: *mut u8,
    pub bytes: usize,
    /// Unbuffered: from bsp_hpput or bsp_hpget.
    pub hp: bool,
}

// SAFETY: an address; the code that writes there must establish that it may.
unsafe impl Send for Wanted {}

/// Numbers of parts that have not arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Missing {
    heads: u32,
    logs: usize,
    results: usize,
    /// Messages of pieces; `None` until all targets are known.
    pieces: Option<usize>,
}

/// Calls of a process in a superstep, and the state of its end.
pub struct SuperstepExchange {
    me: u32,
    heads: Heads,
    /// Calls of this process, by target process.
    pub logs: Vec<Log>,
    /// Targets of gets, by the process read; `wants` if there are any.
    wanted: Vec<Vec<Wanted>>,
    wants: bool,
    common: Common,
    /// Length of tags in this superstep, bytes.
    tag_bytes: u64,
    peers: Vec<Peer>,
    /// Pieces of this process to itself.
    own: Vec<Piece>,
    missing: Missing,
    /// Pieces overlap: they are written when all have arrived.
    staged: bool,
    /// All gets of others have been answered.
    served: bool,
    /// Some process differs in what all must have alike.
    differs: bool,
    /// Some process has calls for this one.
    asked: bool,
    /// Some process gets from this one.
    gets: bool,
    /// Buffer for the head being sent.
    first: Vec<u8>,
    /// Bytes of data sent to others.
    sent: u64,
    pub checks: Option<Checks>,
    /// Registration agreed on for each pop, and a process that named it.
    popped: Vec<(Pop, u32)>,
}

/// Bytes of data that a superstep moves between a process and all others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    pub sent: u64,
    pub received: u64,
}

impl SuperstepExchange {
    /// State of process `me` of `size`; the heads of others arrive in `heads`.
    pub fn new(me: u32, size: u32, heads: Heads) -> Self {
        Self {
            me,
            heads,
            logs: (0..size).map(|_| Log::default()).collect(),
            wanted: (0..size).map(|_| Vec::new()).collect(),
            common: Common::default(),
            tag_bytes: 0,
            peers: (0..size).map(|_| Peer::default()).collect(),
            own: Vec::new(),
            missing: Missing::default(),
            staged: false,
            served: false,
            differs: false,
            asked: false,
            gets: false,
            wants: false,
            first: Vec::new(),
            sent: 0,
            checks: None,
            popped: Vec::new(),
        }
    }

    /// Begins to end a superstep, whose messages have tags of `tag_bytes`.
    ///
    /// # Safety
    /// Until [`SuperstepExchange::finish`] wanted memory may be written, registered areas may be
    /// read and written, and lent pieces stay unchanged.
    pub unsafe fn begin(
        &mut self,
        common: &Common,
        tag_bytes: u64,
        areas: &Areas,
        wire: &mut impl Wire,
    ) -> Result<(), Failure> {
        let (me, size, step) = (self.me, self.logs.len() as u32, common.step);
        (self.common, self.tag_bytes) = (*common, tag_bytes);
        (self.staged, self.served) = (false, false);
        (self.differs, self.asked, self.gets) = (false, false, false);
        self.missing = Missing {
            heads: size,
            ..Missing::default()
        };
        self.sent = 0;
        self.popped.clear();
        for pop in areas.popped() {
            for log in &mut self.logs {
                if !log.make_room_for_call() {
                    let bytes = common.changes.pops.into();
                    return Err(Failure::NoMemory { who: me, bytes });
                }
                log.pop(pop);
            }
        }
        if let Some(checks) = &mut self.checks {
            checks.end()?;
        }
        self.hear_own();
        // Each process sends to its successor first.
        for to in (1..size).map(|k| (me + k) % size) {
            let log = &mut self.logs[to as usize];
            let (calls, data) = log.end();
            let head = Head::of((calls, data), !self.wanted[to as usize].is_empty());
            self.first.clear();
            head.write(common, &mut self.first);
            if head.is_whole() {
                self.first.extend_from_slice(calls);
                self.first.extend_from_slice(data);
                log.clear();
            }
            self.sent += head.data;
            wire.send_head(to, &self.first)?;
            if !head.is_whole() {
                let (calls, data) = log.take();
                let log = Gather::from(calls).and(data);
                wire.send(to, Part::Log, step, log, false)?;
            }
            if !log.pieces.is_empty() {
                self.sent += log.pieces.iter().map(|it| it.bytes() as u64).sum::<u64>();
                let pieces = messages(std::mem::take(&mut log.pieces));
                for (message, (pieces, lent)) in (0..).zip(pieces) {
                    wire.send(to, Part::Pieces(message), step, pieces, lent)?;
                }
            }
            if !head.gets {
                continue;
            }
            let asked: usize = self.wanted[to as usize].iter().map(|it| it.bytes).sum();
            if asked > 0 {
                self.missing.results += 1;
                let room = wire.room(to, asked as u64)?;
                wire.expect(to, Part::Results, step, room.into())?;
            }
        }
        self.look(areas, wire)
    }

    /// Takes the calls of this process to itself.
    fn hear_own(&mut self) {
        let me = self.me as usize;
        let head = Head::of(self.logs[me].end(), !self.wanted[me].is_empty());
        self.own.append(&mut self.logs[me].pieces);
        self.hear(self.me, head);
    }

    /// Records the head of a process.
    #[inline]
    fn hear(&mut self, from: u32, head: Head) {
        let peer = &mut self.peers[from as usize];
        peer.seen = self.common.step + 1;
        peer.head = head;
        self.asked |= head.log() > 0;
        self.gets |= head.gets;
        self.missing.heads -= 1;
    }

    /// Records a get from a process, with its target; false if there is no memory.
    #[inline]
    pub fn get(&mut self, from: u32, slot: u32, offset: u64, wanted: Wanted) -> bool {
        let room = self.wanted[from as usize].try_reserve(1).is_ok();
        if !room || !self.logs[from as usize].make_room_for_call() {
            return false;
        }
        self.logs[from as usize].get(AreaRange {
            slot,
            offset,
            bytes: wanted.bytes as u64,
            hp: wanted.hp,
        });
        self.wanted[from as usize].push(wanted);
        self.wants = true;
        true
    }

    /// Number of heads of others taken; `None` if all were.
    pub const fn heads_seen(&self) -> Option<u32> {
        // This process sends itself no head.
        let all = self.logs.len() as u32;
        match self.missing.heads {
            0 => None,
            missing => Some(all - missing - 1),
        }
    }

    /// Heads, and the superstep that ends.
    pub const fn heads(&self) -> (&Heads, u64) {
        (&self.heads, self.common.step)
    }

    /// Processes whose heads have not been taken.
    pub fn missing(&self) -> impl Iterator<Item = u32> {
        let step = self.common.step;
        let peers = (0..).zip(&self.peers);
        peers
            .filter(move |(_, it)| it.seen != step + 1)
            .map(|(who, _)| who)
    }

    /// Whether the head of a process has not arrived.
    pub fn misses(&self, who: u32) -> bool {
        self.heads.get(who, self.common.step).is_none() && who < self.peers.len() as u32
    }

    /// Takes the heads that have arrived.
    pub fn look(&mut self, areas: &Areas, wire: &mut impl Wire) -> Result<(), Failure> {
        let step = self.common.step;
        for from in 0..self.peers.len() as u32 {
            let peer = &mut self.peers[from as usize];
            if peer.seen == step + 1 {
                continue;
            }
            let Some(bytes) = self.heads.get(from, step) else {
                continue;
            };
            let malformed = || Failure::Malformed { who: from };
            let (common, head, log) = Head::parse(bytes).ok_or_else(malformed)?;
            let carried = if head.is_whole() { head.log() } else { 0 };
            if common.step != step || log.len() as u64 != carried {
                return Err(malformed());
            }
            peer.log_at = bytes.len() - log.len();
            if common != self.common {
                peer.common = Some(common);
                self.differs = true;
            }
            self.hear(from, head);
            if !head.is_whole() {
                self.missing.logs += 1;
                let room = wire.room(from, head.log())?;
                wire.expect(from, Part::Log, step, room.into())?;
            }
        }
        if self.missing.heads == 0 && self.differs {
            self.compare()?;
        }
        self.go_on(areas, wire)
    }

    /// Takes a part that has arrived.
    pub fn take(
        &mut self,
        arrived: Arrived,
        areas: &Areas,
        wire: &mut impl Wire,
    ) -> Result<(), Failure> {
        let Arrived {
            from,
            part,
            bytes,
            length,
        } = arrived;
        let peer = &mut self.peers[from as usize];
        match part {
            Part::Log => {
                if peer.head.log() != bytes.len() as u64 {
                    return Err(Failure::Malformed { who: from });
                }
                peer.log = bytes;
                self.missing.logs -= 1;
            }
            Part::Results => {
                peer.results = bytes;
                self.missing.results -= 1;
            }
            Part::Pieces(message) => {
                let places = peer.places.chunks(PIECES_MAX).nth(message as usize);
                let room = places.map(|it| it.iter().map(|it| it.bytes as u64).sum());
                if room.is_none() || length.is_some() && length != room {
                    return Err(Failure::Malformed { who: from });
                }
                if !bytes.is_empty() {
                    peer.staged[message as usize] = bytes;
                }
                self.missing.pieces = self.missing.pieces.map(|left| left - 1);
            }
        }
        self.go_on(areas, wire)
    }

    fn go_on(&mut self, areas: &Areas, wire: &mut impl Wire) -> Result<(), Failure> {
        let Missing { heads, logs, .. } = self.missing;
        if heads == 0 && logs == 0 && !self.served {
            self.served = true;
            if self.asked || self.wants {
                self.serve(areas, wire)?;
            } else {
                self.missing.pieces = Some(0);
            }
        }
        if self.served && self.missing.results == 0 && self.missing.pieces.is_none() {
            if self.wants || self.gets {
                self.store_results()?;
                self.store_puts(areas)?;
            }
            self.expect_pieces(wire)?;
        }
        Ok(())
    }

    /// Compares what all must have alike; all processes find the same difference.
    fn compare(&self) -> Result<(), Failure> {
        let all = || {
            let said = |peer: &Peer| peer.common.unwrap_or(self.common);
            (0..).zip(self.peers.iter().map(said))
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
        Ok(())
    }

    /// Registration agreed on for each pop, and a process that named it.
    pub fn popped(&self) -> &[(Pop, u32)] {
        &self.popped
    }

    /// Returns the calls of process `of`.
    fn calls(&self, of: u32) -> Result<Calls<'_>, Failure> {
        let peer = &self.peers[of as usize];
        let tag_bytes = self.tag_bytes;
        if of == self.me {
            let (calls, data) = self.logs[of as usize].written();
            return Ok(Calls::of(calls, data, tag_bytes));
        }
        let head = peer.head;
        let log = if head.is_whole() {
            let in_head = self.heads.get(of, self.common.step);
            in_head.and_then(|bytes| bytes.get(peer.log_at..))
        } else {
            Some(&peer.log[..])
        };
        let parts = log.and_then(|log| log.split_at_checked(usize::try_from(head.calls).ok()?));
        let (calls, data) = parts.ok_or(Failure::Malformed { who: of })?;
        Ok(Calls::of(calls, data, tag_bytes))
    }

    /// Posts receives for long puts: in place, unless some overlap. Overlapping ones are staged,
    /// and must look as if written one after the other.
    fn expect_pieces(&mut self, wire: &mut impl Wire) -> Result<(), Failure> {
        if self.peers.iter().all(|peer| peer.places.is_empty()) {
            self.missing.pieces = Some(0);
            return Ok(());
        }
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
        self.missing.pieces = Some(count);
        self.staged = staged;
        if !staged {
            self.store_own();
        }
        Ok(())
    }

    /// Whether targets of pieces overlap.
    fn overlap(&self) -> bool {
        let all = self.peers.iter().flat_map(|peer| &peer.places);
        let mut ends: Vec<_> = all.map(|it| (it.into.addr(), it.bytes)).collect();
        ends.sort_unstable();
        let mut pairs = ends.iter().zip(ends.iter().skip(1));
        pairs.any(|((start, bytes), (next, _))| start + bytes > *next)
    }

    /// Whether every part that this process needs has arrived.
    pub const fn is_complete(&self) -> bool {
        matches!(self.missing.pieces, Some(0))
    }

    /// Bytes moved by the superstep; called before [`SuperstepExchange::finish`].
    pub fn volume(&self) -> Volume {
        let (me, sent) = (self.me, self.sent);
        let others = (0..).zip(&self.peers).filter(|(who, _)| *who != me);
        let received = others.map(|(_, peer)| {
            let pieces: usize = peer.places.iter().map(|it| it.bytes).sum();
            peer.head.data + (pieces + peer.results.len()) as u64
        });
        let received = received.sum();
        Volume { sent, received }
    }

    /// Writes the staged pieces, fills the queue, and resets for the next superstep.
    pub fn finish(&mut self, queue: &mut Queue, wire: &mut impl Wire) -> Result<(), Failure> {
        queue.begin(self.tag_bytes as usize);
        if self.asked || self.wants {
            if self.staged {
                self.store_staged()?;
            }
            self.fill(queue)?;
            self.clear(wire);
        }
        if let Some(checks) = &mut self.checks {
            checks.clear();
        }
        self.heads.end(self.common.step);
        Ok(())
    }

    fn clear(&mut self, wire: &mut impl Wire) {
        for (peer, wanted) in self.peers.iter_mut().zip(&mut self.wanted) {
            wanted.clear();
            for memory in [&mut peer.log, &mut peer.results] {
                if memory.capacity() > 0 {
                    wire.keep(std::mem::take(memory));
                }
            }
            peer.staged.drain(..).for_each(|memory| wire.keep(memory));
            peer.places.clear();
            (peer.puts, peer.messages) = (false, (0, 0));
        }
        self.logs[self.me as usize].clear();
        for piece in self.own.drain(..) {
            if let Piece::Copied(memory) = piece {
                wire.keep(memory);
            }
        }
        self.wants = false;
    }
}

/// Groups pieces into messages, each with whether it has lent memory.
fn messages(pieces: Vec<Piece>) -> impl Iterator<Item = (Gather, bool)> {
    let mut pieces = pieces.into_iter().peekable();
    std::iter::from_fn(move || {
        pieces.peek()?;
        let mut lent = false;
        let gathers = pieces.by_ref().take(PIECES_MAX).map(|piece| match piece {
            Piece::Copied(bytes) => Gather::from(bytes),
            Piece::Lent(start, bytes) => {
                lent = true;
                // SAFETY: as `begin` requires.
                unsafe { Gather::lent(start, bytes) }
            }
        });
        let all = gathers.reduce(Gather::and)?;
        Some((all, lent))
    })
}

/// Buffers to receive pieces in place.
fn in_place(places: &[Wanted]) -> Scatter {
    let buffers = places.iter().map(|it| {
        // SAFETY: as `begin` requires.
        Scatter::from(unsafe { Buffer::lent(it.into, it.bytes) })
    });
    buffers
        .reduce(Scatter::and)
        .unwrap_or_else(|| Vec::new().into())
}
