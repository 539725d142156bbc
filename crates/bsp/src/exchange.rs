//! How a superstep ends: each process sends each other one *head*, which says what all
//! must have alike and how long its log is, and carries the log too if that is short.
//! Heads of all are the barrier, and nothing else synchronises.
//!
//! Who has all logs answers the gets in them, then knows that nobody reads its memory any
//! more: so the results of its own gets and then the puts of others are written.

use crate::areas::{Areas, Changes};
use crate::failure::Failure;
use crate::log::{Call, Calls, Log};
use crate::queue::Queue;

/// Bytes of a head.
const HEAD_BYTES: usize = 48;
/// Most bytes of a head with its log.
pub const FIRST_BYTES: usize = 4096;

/// What travels in a superstep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A head, maybe with its log.
    Head,
    /// A log that is longer.
    Log,
    /// The results of gets, in the order of their calls.
    Results,
}

/// What carries the parts, in order or not, each once.
pub trait Wire {
    /// Sends a part; never waits for its receiver.
    fn send(&mut self, to: u32, part: Part, step: u64, bytes: Vec<u8>) -> Result<(), Failure>;

    /// A part is expected, of `bytes` bytes; a head of at most so many.
    fn expect(&mut self, from: u32, part: Part, step: u64, bytes: u64) -> Result<(), Failure>;
}

/// Something that was expected has come.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub from: u32,
    pub part: Part,
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
}

/// Where the result of a get goes to.
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
    /// Parts that have not come.
    heads: usize,
    logs: usize,
    results: usize,
    /// All have alike what they must.
    compared: bool,
    /// The gets of all have been answered.
    served: bool,
}

impl Exchange {
    /// Begins with the logs of process `me`, one for each process; `asked` are the bytes
    /// that it gets from each.
    pub fn begin(
        me: u32,
        common: Common,
        tag_bytes: u64,
        logs: &mut [Log],
        asked: &[u64],
        areas: &Areas,
        wire: &mut impl Wire,
    ) -> Result<Self, Failure> {
        let size = logs.len() as u32;
        let step = common.step;
        let others = || (1..size).map(|k| (me + k) % size);
        for other in others() {
            wire.expect(other, Part::Head, step, FIRST_BYTES as u64)?;
        }
        let mut it = Self {
            me,
            common,
            tag_bytes,
            peers: logs.iter().map(|_| Peer::default()).collect(),
            heads: logs.len(),
            logs: logs.len(),
            results: 0,
            compared: false,
            served: false,
        };
        // Each begins with the process after it.
        for to in others() {
            let (head, mut bytes) = it.head(&mut logs[to as usize]);
            if head.is_whole() {
                wire.send(to, Part::Head, step, bytes)?;
            } else {
                let log = bytes.split_off(HEAD_BYTES);
                wire.send(to, Part::Head, step, bytes)?;
                wire.send(to, Part::Log, step, log)?;
            }
            if asked[to as usize] > 0 {
                it.results += 1;
                wire.expect(to, Part::Results, step, asked[to as usize])?;
            }
        }
        let (head, bytes) = it.head(&mut logs[me as usize]);
        let own = &mut it.peers[me as usize];
        (own.head, own.log, own.before) = (Some(head), bytes, HEAD_BYTES);
        it.heads -= 1;
        it.logs -= 1;
        it.go_on(areas, wire)?;
        Ok(it)
    }

    /// A log, behind its head.
    fn head(&self, log: &mut Log) -> (Head, Vec<u8>) {
        let length = log.len() as u64;
        let (mut bytes, calls) = log.take(vec![0; HEAD_BYTES]);
        let head = Head {
            common: self.common,
            log: length,
            calls,
        };
        bytes[..HEAD_BYTES].copy_from_slice(&head.to_bytes());
        (head, bytes)
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
                    wire.expect(from, Part::Log, self.common.step, head.log)?;
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
        let numbers: [(&'static str, fn(&Common) -> u64); 4] = [
            ("number of bsp_push_reg", |it| it.changes.pushes.into()),
            ("number of bsp_pop_reg", |it| it.changes.pops.into()),
            ("areas in bsp_pop_reg", |it| it.changes.popped),
            ("size in bsp_set_tagsize", |it| it.tag_bytes),
        ];
        for (what, number) in numbers {
            let its = number(&first);
            if let Some((who, it)) = all().find(|(_, it)| number(it) != its) {
                let theirs = number(&it);
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
                if matches!(call, Call::Get { .. }) {
                    let at = results.len();
                    results.resize(at + bytes as usize, 0);
                    // SAFETY: so many bytes of a registered area, which is the program's
                    // memory until it is popped.
                    unsafe {
                        place.copy_to_nonoverlapping(results[at..].as_mut_ptr(), bytes as usize);
                    }
                }
            }
            if who == me {
                self.peers[me as usize].results = results;
            } else if !results.is_empty() {
                wire.send(who, Part::Results, self.common.step, results)?;
            }
        }
        Ok(())
    }

    /// Whether all has come that this process needs.
    pub const fn is_complete(&self) -> bool {
        self.heads == 0 && self.served && self.results == 0
    }

    /// Writes the results of gets, `wanted` from each process, then what others have put;
    /// and fills the queue.
    ///
    /// # Safety
    /// What is wanted may be written, and so may registered areas.
    pub unsafe fn finish(
        self,
        wanted: &[Vec<Wanted>],
        areas: &Areas,
        queue: &mut Queue,
    ) -> Result<(), Failure> {
        for ((who, peer), wanted) in (0..).zip(&self.peers).zip(wanted) {
            let mut rest = &peer.results[..];
            for it in wanted {
                let (result, after) =
                    (rest.split_at_checked(it.bytes)).ok_or(Failure::Malformed { who })?;
                rest = after;
                // SAFETY: promised by the caller.
                unsafe { result.as_ptr().copy_to(it.into, it.bytes) };
            }
        }
        queue.begin(self.tag_bytes as usize);
        let mut messages = (0, 0);
        for who in 0..self.peers.len() as u32 {
            let mut calls = self.calls(who)?;
            while let Ok(Some(call)) = calls.read() {
                match call {
                    Call::Put {
                        slot,
                        offset,
                        bytes,
                    } => {
                        if let Ok(place) = areas.place(slot, offset, bytes.len() as u64) {
                            // SAFETY: promised by the caller.
                            unsafe { bytes.as_ptr().copy_to(place, bytes.len()) };
                        }
                    }
                    Call::Message { tag, payload } => {
                        messages.0 += 1;
                        messages.1 += tag.len() + payload.len();
                    }
                    Call::Get { .. } => {}
                }
            }
        }
        if messages.0 == 0 {
            return Ok(());
        }
        queue.reserve(messages.0, messages.1);
        for who in 0..self.peers.len() as u32 {
            let mut calls = self.calls(who)?;
            while let Ok(Some(call)) = calls.read() {
                if let Call::Message { tag, payload } = call {
                    queue.push(tag, payload);
                }
            }
        }
        Ok(())
    }
}
