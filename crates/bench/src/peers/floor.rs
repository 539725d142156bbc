//! What shared memory itself can do (`portolan_link::shm::floor`), measured
//! by the same clock and rule as everything else.

use std::fs::File;
use std::hint::spin_loop;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use portolan_hosts::failure::{Failure, Result, fail};
use portolan_link::shm::floor::{Bounce, Copy, Ring, Side};
use portolan_link::shm::lines_of;
use portolan_ring::CacheLine;
use portolan_sys::clock::now_ns;
use portolan_sys::memory::SharedMemory;

use crate::control::{Answer, ControlLine, Followed, Led, Op, Order, Pattern, Sent, SystemKind};
use crate::ranks::drive::Meter;
use crate::ranks::rank::System;
use crate::slice::Rule;

/// Chunks of the pipelined copy that are tried.
const CHUNKS: [usize; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Rings of the pipelined copy that are tried.
const RINGS: [usize; 5] = [256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// Time to try one of them, nanoseconds.
const TRY_NS: u64 = 2_000_000;
/// Words sent between two looks at the clock.
const WORDS: u64 = 1_000;

/// One half of a floor.
pub struct Floor {
    kind: SystemKind,
    leads: bool,
    memory: Option<SharedMemory>,
    buffer: Vec<u8>,
    meter: Meter,
    /// The best way to copy messages of a size: size, chunk, ring.
    best: Vec<(usize, CopyPipeline)>,
}

/// How a pipelined copy is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CopyPipeline {
    chunk: usize,
    ring: usize,
}

impl Floor {
    /// For messages of up to `size_max`.
    pub fn new(kind: SystemKind, leads: bool, size_max: usize) -> Self {
        let copies = kind == SystemKind::ShmCopy;
        Self {
            kind,
            leads,
            memory: None,
            buffer: vec![0x5a; if copies { size_max } else { 0 }],
            meter: Meter::new(),
            best: Vec::new(),
        }
    }

    /// Lines that the floor needs, behind one that says how a copy is done.
    fn lines(&self) -> usize {
        1 + match self.kind {
            SystemKind::ShmLine => Bounce::LINES,
            SystemKind::ShmFloor => Ring::LINES,
            _ => Copy::lines(RINGS[RINGS.len() - 1]),
        }
    }

    fn measure(&mut self, op: &Op, rule: &Rule) -> Result<Sent> {
        let Some(memory) = &self.memory else {
            return fail("a floor was used before it was joined");
        };
        let Some((order, lines)) = lines_of(memory).split_first() else {
            return fail("shared memory is empty");
        };
        let start_ns = now_ns();
        let mut sent = match (self.kind, op.pattern) {
            (SystemKind::ShmLine, Pattern::Pingpong) => {
                let mut bounce = Bounce::new(lines);
                let sent = self.meter.round_trips(rule, || bounce.ping(1));
                bounce.stop();
                sent
            }
            (SystemKind::ShmFloor, Pattern::Pingpong) => {
                let mut ring = Ring::new(lines, Side::First);
                let sent = self.meter.round_trips(rule, || ring.ping(1));
                ring.stop();
                sent
            }
            (SystemKind::ShmFloor, Pattern::Stream) => {
                let mut ring = Ring::new(lines, Side::First);
                let mut operations = 0;
                while rule.goes_on(now_ns() - start_ns, operations) {
                    ring.send(WORDS);
                    operations += WORDS;
                }
                ring.stop();
                rate(operations, start_ns)
            }
            (SystemKind::ShmCopy, Pattern::Stream) => {
                let message = &self.buffer[..op.size];
                let way = match self.best.iter().find(|(size, _)| *size == op.size) {
                    Some((_, way)) => *way,
                    None => {
                        let way = best_way(order, lines, message);
                        self.best.push((op.size, way));
                        way
                    }
                };
                let mut sent = copy(order, lines, message, way, rule);
                tell(order, u64::MAX);
                sent.note = Some(format!(
                    "chunks of {} KiB through {} KiB",
                    way.chunk >> 10,
                    way.ring >> 10
                ));
                sent
            }
            (kind, pattern) => return fail(format!("{kind:?} has no {pattern:?}")),
        };
        sent.start_ns = start_ns;
        Ok(sent)
    }

    fn led(&self) -> Led {
        Led {
            round_trips: self.meter.counted(),
            ..Led::default()
        }
    }

    fn serve(&mut self, op: &Op, ready: impl FnOnce() -> Result<()>) -> Result<()> {
        let Some(memory) = &self.memory else {
            return fail("a floor was used before it was joined");
        };
        let all = lines_of(memory);
        all.iter().for_each(|line| line.word(0).store(0, Relaxed));
        let Some((order, lines)) = all.split_first() else {
            return fail("shared memory is empty");
        };
        ready()?;
        match (self.kind, op.pattern) {
            (SystemKind::ShmLine, _) => Bounce::new(lines).pong(),
            (SystemKind::ShmFloor, Pattern::Pingpong) => Ring::new(lines, Side::Second).pong(),
            (SystemKind::ShmFloor, _) => {
                Ring::new(lines, Side::Second).receive();
            }
            _ => {
                while let Some(way) = told(order) {
                    let lines = &lines[..Copy::lines(way.ring)];
                    lines[..2]
                        .iter()
                        .for_each(|line| line.word(0).store(0, Relaxed));
                    let mut copy = Copy::new(lines, way.chunk, way.ring);
                    order.word(0).store(0, Release);
                    while copy.receive(&mut self.buffer[..op.size]) {}
                }
            }
        }
        Ok(())
    }
}

/// Operations since `start_ns`, as a rate.
fn rate(operations: u64, start_ns: u64) -> Sent {
    let elapsed_ns = (now_ns() - start_ns).max(1);
    Sent {
        elapsed_ns,
        operations,
        messages_s: Some(operations as f64 * 1e9 / elapsed_ns as f64),
        ..Sent::default()
    }
}

/// Tells the other side how to copy next, and waits until it is ready.
fn tell(order: &CacheLine, word: u64) {
    order.word(0).store(word, Release);
    while order.word(0).load(Acquire) == word {
        spin_loop();
    }
}

/// What the other side tells; `None` when there is nothing more.
fn told(order: &CacheLine) -> Option<CopyPipeline> {
    loop {
        match order.word(0).load(Acquire) {
            0 => spin_loop(),
            u64::MAX => {
                order.word(0).store(0, Release);
                return None;
            }
            word => {
                return Some(CopyPipeline {
                    chunk: (word >> 32) as usize,
                    ring: word as u32 as usize,
                });
            }
        }
    }
}

/// Copies `message` over and over by `rule`.
fn copy(
    order: &CacheLine,
    lines: &[CacheLine],
    message: &[u8],
    way: CopyPipeline,
    rule: &Rule,
) -> Sent {
    tell(order, ((way.chunk as u64) << 32) | way.ring as u64);
    let mut copy = Copy::new(&lines[..Copy::lines(way.ring)], way.chunk, way.ring);
    let often = (65_536 / message.len()).max(1);
    let start_ns = now_ns();
    let mut operations = 0;
    while rule.goes_on(now_ns() - start_ns, operations) {
        for _ in 0..often {
            copy.send(message);
        }
        operations += often as u64;
    }
    copy.stop();
    rate(operations, start_ns)
}

/// The fastest of all ways.
fn best_way(order: &CacheLine, lines: &[CacheLine], message: &[u8]) -> CopyPipeline {
    let rule = Rule {
        operations: 1,
        ..Rule::new(TRY_NS)
    };
    let ways = CHUNKS
        .iter()
        .flat_map(|&chunk| RINGS.iter().map(move |&ring| CopyPipeline { chunk, ring }));
    // Twice each, in turns, so that one disturbance does not decide.
    let speeds = ways.map(|way| {
        let speed = |_| {
            copy(order, lines, message, way, &rule)
                .messages_s
                .unwrap_or(0.0)
        };
        (way, (0..2).map(speed).fold(0.0, f64::max))
    });
    let (way, _) = speeds.fold(
        (
            CopyPipeline {
                chunk: CHUNKS[0],
                ring: RINGS[0],
            },
            0.0,
        ),
        |best, next| {
            if next.1 > best.1 { next } else { best }
        },
    );
    way
}

impl System for Floor {
    /// The follower makes the memory and says where it is: as one of its
    /// descriptors, which processes of the same user may open.
    fn offer(&mut self) -> Result<String> {
        if self.leads {
            return Ok(String::new());
        }
        let bytes = self.lines() * size_of::<CacheLine>();
        let memory = SharedMemory::create("portolan-bench", bytes)
            .map_err(|error| Failure::new(error.to_string()))?;
        let path = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            memory.as_fd().as_raw_fd()
        );
        self.memory = Some(memory);
        Ok(path)
    }

    fn join(&mut self, offer: &str) -> Result<()> {
        if self.leads {
            let file = File::options().read(true).write(true).open(offer)?;
            let memory = SharedMemory::from_fd(OwnedFd::from(file), None);
            self.memory = Some(memory.map_err(|error| Failure::new(error.to_string()))?);
        }
        Ok(())
    }

    fn lead(&mut self, op: &Op, rule: &Rule, line: &mut ControlLine) -> Result<Led> {
        let sent = self.measure(op, rule)?;
        line.say(&Answer::Sent(sent))?;
        line.await_stop()?;
        Ok(self.led())
    }

    fn follow(&mut self, op: &Op, line: &mut ControlLine) -> Result<Followed> {
        self.serve(op, || line.say(&Answer::Ready))?;
        match line.hear()? {
            Order::Finish { .. } => Ok(Followed {
                complete: true,
                ..Followed::default()
            }),
            order => fail(format!("the bench sent {order:?} to a follower")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both halves in one process, the follower in a thread.
    fn slice(kind: SystemKind, op: Op) -> (Sent, Led) {
        let (mut leader, mut follower) = (
            Floor::new(kind, true, op.size),
            Floor::new(kind, false, op.size),
        );
        leader.join(&follower.offer().unwrap()).unwrap();
        follower.join("").unwrap();
        std::thread::scope(|scope| {
            let (ready, is_ready) = std::sync::mpsc::channel();
            scope.spawn(move || {
                let ready = || {
                    ready
                        .send(())
                        .map_err(|_| Failure::new("the test has ended"))
                };
                follower.serve(&op, ready).unwrap();
            });
            is_ready.recv().unwrap();
            let rule = Rule {
                slice_ns: 1_000_000,
                operations: 10,
                cap_ns: 10_000_000,
            };
            (leader.measure(&op, &rule).unwrap(), leader.led())
        })
    }

    #[test]
    fn each_floor_gives_its_figure() {
        let pingpong = Op {
            pattern: Pattern::Pingpong,
            size: 8,
        };
        for kind in [SystemKind::ShmLine, SystemKind::ShmFloor] {
            let (sent, led) = slice(kind, pingpong);
            let count: u64 = led.round_trips.iter().map(|(_, count)| count).sum();
            assert!(count > 0 && count <= sent.operations, "{kind:?} {sent:?}");
        }
        let (sent, _) = slice(
            SystemKind::ShmFloor,
            Op {
                pattern: Pattern::Stream,
                size: 8,
            },
        );
        assert!(sent.operations >= WORDS && sent.messages_s > Some(0.0));
        let (sent, _) = slice(
            SystemKind::ShmCopy,
            Op {
                pattern: Pattern::Stream,
                size: 100_000,
            },
        );
        assert!(
            sent.operations > 0 && sent.messages_s > Some(0.0),
            "{sent:?}"
        );
        assert!(sent.note.unwrap().contains("KiB"));
    }
}
