//! A process that makes the calls of a random program, beside an obviously correct
//! [twin](twin). The test carries its heads and parts: a perfect wire here, the simulated
//! network in `crates/sim`.

mod registration;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tests;
mod twin;

use crate::areas::{Area, Areas};
use crate::exchange::{SuperstepExchange, Wanted};
use crate::head::Common;
use crate::heads::heads;
use crate::log::PIECE_MIN;
use crate::queue::Queue;
use registration::{Change, Entry};

pub use crate::exchange::{Arrived, Part, Wire};
pub use crate::failure::Failure;
pub use crate::head::Head;
pub use crate::heads::Intake;
pub use crate::log::Piece;
pub use crate::wire::{HEADS, part_of, tag};
pub use twin::{Op, ProcessMemory, Rng, State, Twin};

pub struct Process {
    me: usize,
    memory: ProcessMemory,
    areas: Areas,
    queue: Queue,
    step: u64,
    exchange: SuperstepExchange,
    ends: bool,
    /// Sources of long puts that do not copy.
    lent: Vec<Vec<u8>>,
}

impl Process {
    /// Makes process `me` of a program, and the intake of its heads.
    pub fn new(me: usize, twin: &Twin) -> (Self, Intake) {
        let mut memory: ProcessMemory = (twin.sizes.iter()).map(|it| vec![me as u8; *it]).collect();
        let mut areas = Areas::default();
        for area in &mut memory {
            areas.push(Area {
                start: area.as_mut_ptr().addr(),
                bytes: area.len() as u64,
            });
        }
        let _ = areas.apply(&[]);
        let (intake, heads) = heads(twin.size as u32);
        let process = Self {
            me,
            memory,
            areas,
            queue: Queue::default(),
            step: 0,
            exchange: SuperstepExchange::new(me as u32, twin.size as u32, heads),
            ends: false,
            lent: Vec::new(),
        };
        (process, intake)
    }

    /// Number of supersteps that have ended.
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Whether the process is in the call that ends a superstep.
    pub const fn ends(&self) -> bool {
        self.ends
    }

    /// State of the end of the superstep.
    pub const fn exchange(&self) -> &SuperstepExchange {
        &self.exchange
    }

    /// Makes the program's calls, and begins to end the superstep. The process must stay until
    /// that is finished and no lent memory is read any more.
    pub fn begin(&mut self, twin: &mut Twin, wire: &mut impl Wire) -> Result<(), Failure> {
        let collective = twin.collective(self.step).clone();
        for change in &collective.changes {
            self.change(change);
        }
        for op in &twin.call(self.me, self.step) {
            self.call(op);
        }
        let common = Common {
            step: self.step,
            changes: self.areas.changes(),
            tag_bytes: collective.next_tag_bytes,
            ends: false,
        };
        self.ends = true;
        // SAFETY: only this process uses its memory.
        unsafe { (self.exchange).begin(&common, collective.tag_bytes, &self.areas, wire) }
    }

    /// Registers an area, or undoes that, from the next superstep on.
    fn change(&mut self, change: &Change) {
        let area = |entry: &Entry| match entry.memory[self.me] {
            Some(memory) => Area {
                start: self.memory[memory].as_ptr().addr(),
                bytes: self.memory[memory].len() as u64,
            },
            None => Area { start: 0, bytes: 0 },
        };
        assert!(match change {
            Change::Push(entry) => self.areas.push(area(entry)),
            Change::Pop(entry) => self.areas.pop(area(entry).start),
        });
    }

    fn call(&mut self, op: &Op) {
        let Self {
            areas,
            memory,
            exchange,
            lent,
            ..
        } = self;
        match op {
            Op::Put {
                to,
                named,
                offset,
                bytes,
                ..
            } => {
                let start = memory[*named].as_ptr().addr();
                let (log, offset) = (&mut exchange.logs[*to], *offset as u64);
                if let Ok(word) = bytes.as_slice().try_into()
                    && log.word(start, offset, word)
                {
                    return;
                }
                let slot = areas.find(start).expect("it is registered");
                if bytes.len() < PIECE_MIN {
                    assert!(log.make_room(bytes.len()));
                    let hp = bytes.first().is_some_and(|it| it % 16 == 0);
                    log.put(slot, offset, bytes, hp);
                    return log.begin_words(start);
                }
                let piece = if bytes[0].is_multiple_of(2) {
                    lent.push(bytes.clone());
                    Piece::Lent(lent[lent.len() - 1].as_ptr(), bytes.len())
                } else {
                    Piece::Copied(bytes.clone())
                };
                log.piece(slot, offset, piece);
            }
            Op::Get {
                from,
                named,
                offset,
                into,
                bytes,
                ..
            } => {
                let slot = areas.find(memory[*named].as_ptr().addr());
                let slot = slot.expect("it is registered");
                let wanted = Wanted {
                    into: memory[into.0][into.1..].as_mut_ptr(),
                    bytes: *bytes,
                    hp: false,
                };
                exchange.get(*from as u32, slot, *offset as u64, wanted);
            }
            Op::Send { to, tag, payload } => exchange.logs[*to].message(tag, payload),
        }
    }

    pub fn look(&mut self, wire: &mut impl Wire) -> Result<(), Failure> {
        self.exchange.look(&self.areas, wire)
    }

    pub fn take(&mut self, arrived: Arrived, wire: &mut impl Wire) -> Result<(), Failure> {
        self.exchange.take(arrived, &self.areas, wire)
    }

    /// Ends the superstep, once all has arrived. Memory and queue must equal the twin's.
    pub fn finish(&mut self, twin: &Twin, wire: &mut impl Wire) -> Result<(), Failure> {
        self.exchange.finish(&mut self.queue, wire)?;
        let meant = self.areas.apply(self.exchange.popped());
        assert!(meant.is_ok(), "process {} has not registered NULL", self.me);
        self.ends = false;
        self.step += 1;
        let (me, step) = (self.me, self.step);
        let expected = twin.before(step).expect("all have ended the superstep");
        // Too long to be printed.
        let same = self.memory == expected.memories[me];
        assert!(same, "memory of process {me} before superstep {step}");
        let mut queue = Vec::new();
        while let Some((tag, payload)) = self.queue.peek() {
            queue.push((tag.to_vec(), payload.to_vec()));
            self.queue.advance();
        }
        queue.sort();
        let same = queue == expected.queues[me];
        assert!(same, "queue of process {me} before superstep {step}");
        Ok(())
    }

    /// Overwrites lent memory, which no process reads any more.
    pub fn settle(&mut self) {
        self.lent.iter_mut().for_each(|it| it.fill(b'#'));
        self.lent.clear();
    }
}
