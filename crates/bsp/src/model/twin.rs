//! Random programs and their expected results: obviously correct, on all memories at once.

use super::registration::Collective;
use crate::log::PIECE_MIN;

pub const AREAS: usize = 3;

/// Small random number generator (xorshift64*).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(2) + 1);
        for _ in 0..8 {
            rng.below(2);
        }
        rng
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// Call of a process in a superstep.
#[derive(Clone, Debug)]
pub enum Op {
    Put {
        to: usize,
        /// Area here, by which the target is named; `area` is the one there.
        named: usize,
        area: usize,
        offset: usize,
        bytes: Vec<u8>,
    },
    Get {
        from: usize,
        named: usize,
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
    pub fn is_long(&self) -> bool {
        matches!(self, Self::Put { bytes, .. } if bytes.len() >= PIECE_MIN)
    }

    fn put(&self, memories: &mut [ProcessMemory]) {
        if let Self::Put {
            to,
            area,
            offset,
            bytes,
            ..
        } = self
        {
            memories[*to][*area][*offset..][..bytes.len()].copy_from_slice(bytes);
        }
    }
}

pub type ProcessMemory = Vec<Vec<u8>>;

/// Memories and sorted queues after a superstep.
#[derive(Clone, Debug)]
pub struct State {
    pub memories: Vec<ProcessMemory>,
    pub queues: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
}

/// State after a superstep, as the standard has it.
fn after(before: &State, ops: &[Vec<Op>]) -> State {
    let mut after = before.memories.clone();
    let mut queues = vec![Vec::new(); ops.len()];
    for (me, own) in ops.iter().enumerate() {
        // If results overlap, any may be the last.
        for (whose, op) in (0..ops.len()).flat_map(|whose| own.iter().map(move |op| (whose, op))) {
            if let Op::Get {
                from,
                area,
                offset,
                into,
                bytes,
                ..
            } = op
                && *from == whose
            {
                let read = &before.memories[whose][*area][*offset..][..*bytes];
                after[me][into.0][into.1..][..*bytes].copy_from_slice(read);
            }
        }
    }
    // If puts overlap, any may be the last, too.
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

/// Program, as far as it has been called, and its expected results.
#[derive(Clone, Debug)]
pub struct Twin {
    rng: Rng,
    pub size: usize,
    /// Length of each area, bytes.
    pub sizes: Vec<usize>,
    /// Calls that all make alike, by superstep.
    collective: Vec<Collective>,
    /// Other calls, by superstep and process.
    called: Vec<Vec<Option<Vec<Op>>>>,
    /// State before each superstep, as far as all have called.
    states: Vec<State>,
}

impl Twin {
    /// Makes a program of `size` processes; `long`: some puts are too long for a log.
    pub fn new(seed: u64, size: usize, long: bool) -> Self {
        let mut rng = Rng::new(seed);
        let longest = if long { 20_000 } else { 60 };
        let sizes: Vec<usize> = (0..AREAS)
            .map(|_| 1 + rng.below(longest) as usize)
            .collect();
        let memory = |me| sizes.iter().map(|bytes| vec![me as u8; *bytes]).collect();
        let memories = (0..size).map(memory).collect();
        let queues = vec![Vec::new(); size];
        Self {
            collective: vec![Collective::first(size, &mut rng)],
            rng,
            size,
            sizes,
            called: Vec::new(),
            states: vec![State { memories, queues }],
        }
    }

    /// Returns memories and queues before a superstep; `None` until all have called in the one
    /// before that.
    pub fn before(&self, step: u64) -> Option<&State> {
        self.states.get(step as usize)
    }

    /// Returns what all call alike in a superstep; some processes may be one ahead.
    pub fn collective(&mut self, step: u64) -> &Collective {
        let at = step as usize;
        if at == self.collective.len() {
            let next = self.collective[at - 1].next(&mut self.rng);
            self.collective.push(next);
        }
        &self.collective[at]
    }

    /// Returns the other calls of a process in its next superstep.
    pub fn call(&mut self, me: usize, step: u64) -> Vec<Op> {
        let collective = self.collective(step).clone();
        let count = self.rng.below(12);
        let ops: Vec<Op> = (0..count).map(|_| self.op(me, &collective)).collect();
        let at = step as usize;
        if self.called.len() <= at {
            self.called.resize(at + 1, vec![None; self.size]);
        }
        self.called[at][me] = Some(ops.clone());
        if self.called[at].iter().all(Option::is_some) {
            let all: Vec<Vec<Op>> = self.called[at].iter().flatten().cloned().collect();
            self.states.push(after(&self.states[at], &all));
        }
        ops
    }

    /// Returns offset and bytes in an area; often a word, since words have paths of their own.
    fn range(&mut self, area: usize) -> (usize, usize) {
        let offset = self.rng.below(self.sizes[area] as u64) as usize;
        let room = self.sizes[area] - offset;
        if room >= 8 && self.rng.below(2) == 0 {
            return (offset, 8);
        }
        (offset, self.rng.below(room as u64 + 1) as usize)
    }

    fn op(&mut self, me: usize, collective: &Collective) -> Op {
        let other = self.rng.below(self.size as u64) as usize;
        let named = self.rng.below(AREAS as u64) as usize;
        let area = (collective.find(me, named)).and_then(|entry| entry.memory[other]);
        let fill = self.rng.below(256) as u8;
        match (self.rng.below(4), area) {
            (0 | 1, Some(area)) => {
                let (offset, bytes) = self.range(area);
                Op::Put {
                    to: other,
                    named,
                    area,
                    offset,
                    bytes: vec![fill; bytes],
                }
            }
            (2, Some(area)) => {
                let (offset, bytes) = self.range(area);
                let own = self.rng.below(AREAS as u64) as usize;
                let (at, room) = self.range(own);
                Op::Get {
                    from: other,
                    named,
                    area,
                    offset,
                    into: (own, at),
                    bytes: bytes.min(room),
                }
            }
            _ => {
                let (_, bytes) = self.range(named);
                Op::Send {
                    to: other,
                    tag: vec![fill; collective.tag_bytes as usize],
                    payload: vec![fill ^ 0xff; bytes],
                }
            }
        }
    }
}
