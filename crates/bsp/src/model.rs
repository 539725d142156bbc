//! Random programs on several processes, beside an obviously correct twin: parts arrive in
//! any order, and processes run ahead of each other.

use std::collections::{BTreeMap, VecDeque};

use crate::areas::{Area, Areas};
use portolan::{Gather, Scatter};

use crate::exchange::{Arrived, Exchange, Part, Wanted, Wire};
use crate::failure::Failure;
use crate::head::{Common, Head};
use crate::heads::{Intake, heads};
use crate::log::{PIECE_MIN, Piece};
use crate::queue::Queue;

const AREAS: usize = 3;
const STEPS: u64 = 12;

/// A small generator (xorshift64*).
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// What a process calls in a superstep.
#[derive(Clone, Debug)]
enum Op {
    Put {
        to: usize,
        area: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    Get {
        from: usize,
        area: usize,
        offset: usize,
        /// Area and offset here.
        into: (usize, usize),
        bytes: usize,
    },
    Send {
        to: usize,
        tag: Vec<u8>,
        payload: Vec<u8>,
    },
}

impl Op {
    fn is_long(&self) -> bool {
        matches!(self, Self::Put { bytes, .. } if bytes.len() >= PIECE_MIN)
    }

    fn put(&self, memories: &mut [Memory]) {
        if let Self::Put {
            to,
            area,
            offset,
            bytes,
        } = self
        {
            memories[*to][*area][*offset..][..bytes.len()].copy_from_slice(bytes);
        }
    }
}

type Memory = Vec<Vec<u8>>;

/// Memories and sorted queues after a superstep.
#[derive(Clone, Debug)]
struct State {
    memories: Vec<Memory>,
    queues: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// The twin: a superstep as the standard has it.
fn twin(before: &State, ops: &[Vec<Op>]) -> State {
    let mut after = before.memories.clone();
    let mut queues = vec![Vec::new(); ops.len()];
    for (me, own) in ops.iter().enumerate() {
        // Of results that overlap any may be the last.
        for (whose, op) in (0..ops.len()).flat_map(|whose| own.iter().map(move |op| (whose, op))) {
            if let Op::Get {
                from,
                area,
                offset,
                into,
                bytes,
            } = op
                && *from == whose
            {
                let read = &before.memories[whose][*area][*offset..][..*bytes];
                after[me][into.0][into.1..][..*bytes].copy_from_slice(read);
            }
        }
    }
    // Of puts that overlap any may be the last, too.
    for op in ops.iter().flatten().filter(|op| !op.is_long()) {
        op.put(&mut after);
    }
    for op in ops.iter().flatten().filter(|op| op.is_long()) {
        op.put(&mut after);
    }
    for ops in ops {
        for op in ops {
            match op {
                Op::Send { to, tag, payload } => queues[*to].push((tag.clone(), payload.clone())),
                Op::Get { .. } | Op::Put { .. } => {}
            }
        }
    }
    queues.iter_mut().for_each(|queue| queue.sort());
    State {
        memories: after,
        queues,
    }
}

/// What was sent, and what is expected: from, to, part, step.
#[derive(Default)]
struct Net {
    /// By sender and receiver; those of one pair stay in order.
    heads: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    sent: BTreeMap<(u32, u32, Part, u64), (Gather, bool)>,
    expected: BTreeMap<(u32, u32, Part, u64), Scatter>,
}

struct Link<'a> {
    net: &'a mut Net,
    me: u32,
}

impl Wire for Link<'_> {
    fn send_head(&mut self, to: u32, head: &[u8]) -> Result<(), Failure> {
        let between = self.net.heads.entry((self.me, to)).or_default();
        between.push_back(head.to_vec());
        Ok(())
    }

    fn send(
        &mut self,
        to: u32,
        part: Part,
        step: u64,
        bytes: Gather,
        lent: bool,
    ) -> Result<(), Failure> {
        let key = (self.me, to, part, step);
        let before = self.net.sent.insert(key, (bytes, lent));
        assert!(before.is_none() && to != self.me, "each part goes once");
        Ok(())
    }

    fn expect(&mut self, from: u32, part: Part, step: u64, room: Scatter) -> Result<(), Failure> {
        let key = (from, self.me, part, step);
        assert!(self.net.expected.insert(key, room).is_none());
        Ok(())
    }

    fn room(&mut self, from: u32, bytes: u64) -> Result<Vec<u8>, Failure> {
        if bytes > 1 << 30 {
            return Err(Failure::Malformed { who: from });
        }
        Ok(vec![0x55; bytes as usize])
    }

    fn keep(&mut self, _memory: Vec<u8>) {}
}

struct Process {
    memory: Memory,
    areas: Areas,
    queue: Queue,
    step: u64,
    intake: Intake,
    exchange: Exchange,
    /// It ends its superstep.
    ends: bool,
    /// What long puts that do not copy read from.
    lent: Vec<Vec<u8>>,
}

struct Run {
    rng: Rng,
    size: usize,
    sizes: Vec<usize>,
    tag_bytes: u64,
    net: Net,
    processes: Vec<Process>,
    /// Of each superstep, by process.
    ops: Vec<Vec<Option<Vec<Op>>>>,
    states: Vec<State>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed * 2 + 1);
        for _ in 0..8 {
            rng.below(2);
        }
        let size = 1 + rng.below(9) as usize;
        let long = rng.below(4) == 0;
        let sizes: Vec<usize> = (0..AREAS)
            .map(|_| 1 + rng.below(if long { 20_000 } else { 60 }) as usize)
            .collect();
        let memories: Vec<Memory> = (0..size)
            .map(|me| sizes.iter().map(|bytes| vec![me as u8; *bytes]).collect())
            .collect();
        let processes = (0..)
            .zip(memories.iter().cloned())
            .map(|(me, mut memory)| {
                let mut areas = Areas::default();
                for area in &mut memory {
                    areas.push(Area {
                        start: area.as_mut_ptr().addr(),
                        bytes: area.len() as u64,
                    });
                }
                areas.apply();
                let (intake, heads) = heads(size as u32);
                Process {
                    memory,
                    areas,
                    queue: Queue::default(),
                    step: 0,
                    intake,
                    exchange: Exchange::new(me, size as u32, heads),
                    ends: false,
                    lent: Vec::new(),
                }
            })
            .collect();
        let queues = vec![Vec::new(); size];
        Self {
            tag_bytes: rng.below(10),
            rng,
            size,
            sizes,
            net: Net::default(),
            processes,
            ops: vec![vec![None; size]; STEPS as usize],
            states: vec![State { memories, queues }],
        }
    }

    fn place(&mut self) -> (usize, usize, usize) {
        let area = self.rng.below(AREAS as u64) as usize;
        let offset = self.rng.below(self.sizes[area] as u64) as usize;
        let bytes = self.rng.below((self.sizes[area] - offset) as u64 + 1) as usize;
        (area, offset, bytes)
    }

    fn op(&mut self) -> Op {
        let other = self.rng.below(self.size as u64) as usize;
        let (area, offset, bytes) = self.place();
        let fill = self.rng.below(256) as u8;
        match self.rng.below(4) {
            0 | 1 => Op::Put {
                to: other,
                area,
                offset,
                bytes: vec![fill; bytes],
            },
            2 => {
                let (own, at, room) = self.place();
                Op::Get {
                    from: other,
                    area,
                    offset,
                    into: (own, at),
                    bytes: bytes.min(room),
                }
            }
            _ => Op::Send {
                to: other,
                tag: vec![fill; self.tag_bytes as usize],
                payload: vec![fill ^ 0xff; bytes],
            },
        }
    }

    /// A process calls, and begins to end its superstep.
    fn begin(&mut self, me: usize) {
        let count = self.rng.below(12);
        let ops: Vec<Op> = (0..count).map(|_| self.op()).collect();
        let it = &mut self.processes[me];
        let start = |it: &Process, area: usize| it.memory[area].as_ptr().addr();
        it.lent.clear();
        for op in &ops {
            match op {
                Op::Put {
                    to,
                    area,
                    offset,
                    bytes,
                } => {
                    let slot = it.areas.find(start(it, *area)).unwrap();
                    if bytes.len() < PIECE_MIN {
                        it.exchange.logs[*to].put(slot, *offset as u64, bytes, false);
                        continue;
                    }
                    let piece = if bytes[0].is_multiple_of(2) {
                        it.lent.push(bytes.clone());
                        let lent = it.lent.last().unwrap();
                        Piece::Lent(lent.as_ptr(), lent.len())
                    } else {
                        Piece::Copied(bytes.clone())
                    };
                    it.exchange.logs[*to].piece(slot, *offset as u64, piece);
                }
                Op::Get {
                    from,
                    area,
                    offset,
                    into,
                    bytes,
                } => {
                    let slot = it.areas.find(start(it, *area)).unwrap();
                    let wanted = Wanted {
                        into: it.memory[into.0][into.1..].as_mut_ptr(),
                        bytes: *bytes,
                        hp: false,
                    };
                    (it.exchange).get(*from as u32, slot, *offset as u64, wanted);
                }
                Op::Send { to, tag, payload } => it.exchange.logs[*to].message(tag, payload),
            }
        }
        let common = Common {
            step: it.step,
            changes: it.areas.changes(),
            tag_bytes: self.tag_bytes,
            ends: false,
        };
        let mut link = Link {
            net: &mut self.net,
            me: me as u32,
        };
        // SAFETY: the memories are this run's, and nobody else uses them.
        let begun = unsafe { (it.exchange).begin(&common, self.tag_bytes, &it.areas, &mut link) };
        begun.unwrap();
        it.ends = true;
        let step = it.step as usize;
        self.ops[step][me] = Some(ops);
        if self.ops[step].iter().all(Option::is_some) {
            let ops: Vec<Vec<Op>> = self.ops[step].iter().flatten().cloned().collect();
            self.states.push(twin(&self.states[step], &ops));
        }
    }

    /// A head arrives at a process, if one can.
    fn arrive_head(&mut self, me: usize) {
        let of = |key: &(u32, u32)| key.1 as usize == me;
        let heads = self.net.heads.iter_mut().filter(|(key, _)| of(key));
        let mut ready: Vec<_> = heads.filter(|(_, between)| !between.is_empty()).collect();
        if ready.is_empty() {
            return;
        }
        let chosen = self.rng.below(ready.len() as u64) as usize;
        let (key, between) = &mut ready[chosen];
        let (from, head) = (key.0, between.pop_front().unwrap());
        let it = &mut self.processes[me];
        it.intake.put(from, Head::step(&head), &head);
        assert_eq!(it.exchange.heads().0.broken(), None);
        if it.ends {
            let mut link = Link {
                net: &mut self.net,
                me: me as u32,
            };
            it.exchange.look(&it.areas, &mut link).unwrap();
        }
    }

    /// A part arrives at a process, if one can.
    fn arrive(&mut self, me: usize) {
        let ready: Vec<_> = (self.net.expected.keys())
            .filter(|key| key.1 as usize == me && self.net.sent.contains_key(key))
            .copied()
            .collect();
        if ready.is_empty() {
            return;
        }
        let key = ready[self.rng.below(ready.len() as u64) as usize];
        let room = self.net.expected.remove(&key).unwrap();
        let bytes = self.net.sent.remove(&key).unwrap().0.into_vec();
        let mut rest = &bytes[..];
        let mut got = Vec::new();
        for mut buffer in room.into_buffers() {
            let (now, later) = rest.split_at(buffer.len().min(rest.len()));
            buffer.as_mut_slice()[..now.len()].copy_from_slice(now);
            rest = later;
            got = buffer.into_vec().unwrap_or_default();
            got.truncate(now.len());
        }
        assert!(rest.is_empty());
        let arrived = Arrived {
            from: key.0,
            part: key.2,
            bytes: got,
        };
        let it = &mut self.processes[me];
        let mut link = Link {
            net: &mut self.net,
            me: me as u32,
        };
        it.exchange.take(arrived, &it.areas, &mut link).unwrap();
    }

    /// Whether somebody is yet to read memory of a process.
    fn lends(&self, me: usize) -> bool {
        let mut sent = self.net.sent.iter();
        sent.any(|(key, (_, lent))| key.0 as usize == me && *lent)
    }

    fn finish(&mut self, me: usize) {
        let it = &mut self.processes[me];
        let mut link = Link {
            net: &mut self.net,
            me: me as u32,
        };
        let finished = it.exchange.finish(&mut it.queue, &mut link);
        finished.unwrap();
        it.ends = false;
        it.step += 1;
        let expected = &self.states[it.step as usize];
        // Too long to be shown.
        assert!(it.memory == expected.memories[me], "memory of {me}");
        let mut queue = Vec::new();
        while let Some((tag, payload)) = it.queue.peek() {
            queue.push((tag.to_vec(), payload.to_vec()));
            it.queue.advance();
        }
        queue.sort();
        assert!(queue == expected.queues[me], "queue of {me}");
    }

    fn go(mut self) {
        while self.processes.iter().any(|it| it.step < STEPS) {
            let me = self.rng.below(self.size as u64) as usize;
            let it = &self.processes[me];
            if self.rng.below(2) == 0 {
                self.arrive_head(me);
            } else if it.ends {
                if it.exchange.is_complete() && !self.lends(me) {
                    self.finish(me);
                } else {
                    self.arrive(me);
                }
            } else if it.step < STEPS {
                self.begin(me);
            }
        }
        assert!(self.net.sent.is_empty() && self.net.expected.is_empty());
        assert!(self.net.heads.values().all(VecDeque::is_empty));
    }
}

#[test]
fn random_programs_do_what_their_twins_do() {
    for seed in 0..400 {
        Run::new(seed).go();
    }
}

/// Process 0 of several, with nothing to say, which has begun.
fn begun(run: &Run, link: &mut Link<'_>) -> (Intake, Exchange) {
    let (intake, heads) = heads(run.size as u32);
    let mut exchange = Exchange::new(0, run.size as u32, heads);
    let areas = &run.processes[0].areas;
    // SAFETY: nothing is written.
    unsafe { exchange.begin(&Common::default(), 0, areas, link) }.unwrap();
    (intake, exchange)
}

#[test]
fn a_head_that_makes_no_sense_is_refused() {
    let mut runs = (0..).map(Run::new);
    let mut run = runs.find(|run| run.size > 1).unwrap();
    for seed in 0..4000 {
        let mut net = Net::default();
        let mut link = Link {
            net: &mut net,
            me: 0,
        };
        let (mut intake, mut exchange) = begun(&run, &mut link);
        for from in 1..run.size as u32 {
            let log: Vec<u8> = (0..run.rng.below(40)).map(|i| (i * seed) as u8).collect();
            let (calls, data) = log.split_at(run.rng.below(log.len() as u64 + 1) as usize);
            let mut bytes = Vec::new();
            let head = Head {
                gets: false,
                calls: calls.len() as u64,
                data: data.len() as u64,
            };
            head.write(&Common::default(), &mut bytes);
            let length = bytes.len();
            bytes.extend_from_slice(&log);
            let mut malformed = true;
            match seed % 5 {
                0 => bytes.truncate(run.rng.below(length as u64) as usize),
                1 => bytes.push(0),
                2 if !log.is_empty() => _ = bytes.pop(),
                3 => {
                    let (at, noise) = (run.rng.below(length as u64), run.rng.below(256) as u8);
                    bytes[at as usize] ^= noise;
                    malformed = false;
                }
                _ => malformed = false,
            }
            intake.put(from, Head::step(&bytes), &bytes);
            let taken = match exchange.heads().0.broken() {
                Some(who) => Err(Failure::Malformed { who }),
                None => exchange.look(&run.processes[0].areas, &mut link),
            };
            if malformed {
                assert_eq!(taken, Err(Failure::Malformed { who: from }));
            }
            if taken.is_err() {
                break;
            }
        }
    }
}
