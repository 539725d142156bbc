//! Properties for fuzz targets: whatever other processes send is refused or taken, and touches
//! only registered areas and wanted results.

use std::ops::Range;

use portolan::{Gather, Scatter};

use crate::areas::{Area, Areas};
use crate::check::Checks;
use crate::exchange::{Arrived, Part, SuperstepExchange, Wanted, Wire};
use crate::failure::Failure;
use crate::head::{Common, Head};
use crate::heads::{Intake, heads};
use crate::log::{PIECE_MIN, Piece};
use crate::queue::Queue;

/// Length of the process's memory, bytes; and the fill where access is forbidden.
const MEMORY: usize = 768;
const CANARY: u8 = 0xcc;
/// Fill of areas when a superstep begins.
const OPEN: u8 = 0x11;
/// Registered areas, in the order of their slots; the slot behind them has NULL.
const AREAS: [Range<usize>; 3] = [64..88, 152..153, 217..517];
/// Memory for results of gets.
const RESULTS: Range<usize> = 581..645;
/// Longest part that is received, bytes.
const ROOM_MAX: u64 = 1 << 16;

/// Choices from the front; missing bytes are zero.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn short(&mut self) -> usize {
        u16::from_le_bytes([self.byte(), self.byte()]).into()
    }

    fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// Wire that records expected parts.
#[derive(Default)]
struct Link {
    expected: Vec<(u32, Part, Scatter)>,
}

impl Wire for Link {
    fn send_head(&mut self, _to: u32, _head: &[u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn send(
        &mut self,
        _to: u32,
        part: Part,
        _step: u64,
        bytes: Gather,
        _lent: bool,
    ) -> Result<(), Failure> {
        if part == Part::Results {
            let all = bytes.into_vec();
            assert!(!all.contains(&CANARY), "a get reads what is no area");
        }
        Ok(())
    }

    fn expect(&mut self, from: u32, part: Part, _step: u64, room: Scatter) -> Result<(), Failure> {
        let known = self.expected.iter().any(|it| (it.0, it.1) == (from, part));
        assert!(!known, "each part comes once");
        self.expected.push((from, part, room));
        Ok(())
    }

    fn room(&mut self, from: u32, bytes: u64) -> Result<Vec<u8>, Failure> {
        if bytes > ROOM_MAX {
            return Err(Failure::NoMemory { who: from, bytes });
        }
        Ok(vec![0; bytes as usize])
    }

    fn keep(&mut self, _memory: Vec<u8>) {}
}

/// Process 0, to which others send.
struct Victim {
    memory: Vec<u8>,
    areas: Areas,
    queue: Queue,
    intake: Intake,
    exchange: SuperstepExchange,
    link: Link,
    step: u64,
    /// In the call that ends a superstep.
    ends: bool,
    /// A part of this superstep was shorter than expected.
    short: bool,
}

impl Victim {
    fn new(size: u32) -> Self {
        let mut memory = vec![CANARY; MEMORY];
        let mut areas = Areas::default();
        for range in AREAS {
            areas.push(Area {
                start: memory[range.clone()].as_mut_ptr().addr(),
                bytes: range.len() as u64,
            });
        }
        areas.push(Area { start: 0, bytes: 0 });
        let _ = areas.apply(&[]);
        let (intake, heads) = heads(size);
        Self {
            memory,
            areas,
            queue: Queue::default(),
            intake,
            exchange: SuperstepExchange::new(0, size, heads),
            link: Link::default(),
            step: 0,
            ends: false,
            short: false,
        }
    }

    /// Makes calls to each process, and begins to end a superstep with tags of two bytes.
    fn begin(&mut self, calls: u8) -> Result<(), Failure> {
        for range in AREAS {
            self.memory[range].fill(OPEN);
        }
        self.memory[RESULTS].fill(OPEN);
        self.exchange.checks = (calls & 16 != 0).then(Checks::default);
        let each = RESULTS.len() / self.exchange.logs.len();
        for who in 0..self.exchange.logs.len() {
            if calls & 1 != 0 {
                let into = self.memory[RESULTS][who * each..].as_mut_ptr();
                let bytes = each.min(AREAS[0].len());
                self.exchange.get(
                    who as u32,
                    0,
                    0,
                    Wanted {
                        into,
                        bytes,
                        hp: false,
                    },
                );
            }
            let log = &mut self.exchange.logs[who];
            if calls & 2 != 0 {
                log.put(2, 7, b"put", false);
            }
            if calls & 4 != 0 {
                log.message(b"ta", b"message");
            }
            if calls & 8 != 0 && who > 0 {
                log.piece(2, 0, Piece::Copied(vec![OPEN; PIECE_MIN]));
            }
        }
        (self.ends, self.short) = (true, false);
        // SAFETY: only this process uses its memory.
        unsafe { (self.exchange).begin(&self.common(), 2, &self.areas, &mut self.link) }
    }

    fn common(&self) -> Common {
        Common {
            step: self.step,
            tag_bytes: 2,
            ..Common::default()
        }
    }

    /// Delivers a head, maybe long before the process looks for it.
    fn head(&mut self, from: u32, head: &[u8]) -> Result<(), Failure> {
        self.intake.put(from, Head::step(head), head);
        if let Some(who) = self.exchange.heads().0.broken() {
            return Err(Failure::Malformed { who });
        }
        if self.ends {
            self.exchange.look(&self.areas, &mut self.link)?;
        }
        Ok(())
    }

    /// Delivers an expected part of `length` bytes, as far as there is room.
    fn part(&mut self, which: usize, bytes: &[u8], length: usize) -> Result<(), Failure> {
        let (from, part, room) = self.link.expected.swap_remove(which);
        let (mut left, mut got, mut missing) = (length, Vec::new(), false);
        for mut buffer in room.into_buffers() {
            let start = buffer.as_mut_ptr().addr();
            let now = left.min(buffer.len());
            (left, missing) = (left - now, missing || now < buffer.len());
            let inside = self.is_open(start, buffer.len());
            let given = bytes.iter().copied().chain(std::iter::repeat(0x77));
            for (to, byte) in buffer.as_mut_slice()[..now].iter_mut().zip(given) {
                *to = byte;
            }
            match buffer.into_vec() {
                Some(mut owned) => {
                    owned.truncate(now);
                    got = owned;
                }
                None => assert!(inside, "a piece lies in no area"),
            }
        }
        self.short |= missing;
        let arrived = Arrived {
            from,
            part,
            bytes: got,
            length: Some((length - left) as u64),
        };
        self.exchange.take(arrived, &self.areas, &mut self.link)
    }

    fn is_open(&self, start: usize, bytes: usize) -> bool {
        let at = start.wrapping_sub(self.memory.as_ptr().addr());
        let mut areas = AREAS.into_iter();
        areas.any(|area| at >= area.start && at.saturating_add(bytes) <= area.end)
    }

    /// Ends the superstep, if all has arrived.
    fn finish(&mut self) -> Result<(), Failure> {
        if !self.ends || !self.exchange.is_complete() {
            return Ok(());
        }
        let _ = self.exchange.volume();
        self.exchange.finish(&mut self.queue, &mut self.link)?;
        assert!(!self.short, "a part that is too short is taken");
        assert!(self.link.expected.is_empty(), "all has come");
        (self.ends, self.step) = (false, self.step + 1);
        let (count, bytes) = self.queue.size();
        let mut taken = (0, 0);
        while let Some((tag, payload)) = self.queue.peek() {
            assert_eq!(tag.len(), 2);
            taken = (taken.0 + 1, taken.1 + payload.len() as u64);
            self.queue.advance();
        }
        assert_eq!(taken, (count, bytes));
        Ok(())
    }

    /// Checks that nothing else was written.
    fn check(&self) {
        let free = |at: &usize| RESULTS.contains(at) || AREAS.iter().any(|it| it.contains(at));
        let kept = (0..MEMORY).filter(|at| !free(at));
        for at in kept {
            assert_eq!(self.memory[at], CANARY, "byte {at} is written");
        }
    }
}

/// Delivers any bytes as another process's head, and as its log if that is not in the head.
pub fn bsp_head(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut victim = Victim::new(2);
    let calls = input.byte();
    let length = input.byte() as usize | (input.byte() as usize & 0x1f) << 8;
    let head = input.bytes(length);
    let mut hear = || {
        victim.begin(calls)?;
        victim.head(1, head)?;
        while !victim.link.expected.is_empty() {
            victim.part(0, input.0, usize::from(u16::MAX))?;
        }
        victim.finish()
    };
    // The bytes may be refused or taken.
    let _ = hear();
    victim.check();
}

/// Delivers heads, logs and parts of two other processes in any order and length, in several
/// supersteps.
pub fn bsp_parts(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mut victim = Victim::new(3);
    while !input.0.is_empty() {
        if turn(&mut victim, &mut input).is_err() {
            break;
        }
        victim.check();
    }
    victim.check();
}

fn turn(victim: &mut Victim, input: &mut Input<'_>) -> Result<(), Failure> {
    let choice = input.byte();
    match choice % 4 {
        0 if !victim.ends => victim.begin(input.byte()),
        0 => victim.finish(),
        1 => {
            let from = 1 + u32::from(choice >> 2 & 1);
            let mut head = Vec::new();
            if choice & 0xf0 == 0xf0 {
                let length = input.byte();
                head.extend_from_slice(input.bytes(length.into()));
            } else {
                let mut common = victim.common();
                // One superstep ahead, or more than is allowed.
                common.step += u64::from(choice >> 4 & 3);
                let (calls, data) = (input.byte(), input.short());
                let it = Head {
                    gets: choice & 8 != 0,
                    calls: calls.into(),
                    data: data as u64,
                };
                it.write(&common, &mut head);
                if it.is_whole() {
                    let mut log = input.bytes(usize::from(calls) + data).to_vec();
                    // Any bytes for puts and messages.
                    log.resize(usize::from(calls) + data, 0x22);
                    head.extend_from_slice(&log);
                }
            }
            victim.head(from, &head)
        }
        2 if !victim.link.expected.is_empty() => {
            let which = usize::from(choice >> 2) % victim.link.expected.len();
            let length = match input.byte() {
                0xff => input.short(),
                _ => usize::MAX,
            };
            let given = input.byte();
            victim.part(which, input.bytes(given.into()), length)
        }
        _ => victim.finish(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(mut property: impl FnMut(&[u8])) {
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (state >> 33) as u8
            };
            let length = next() as usize;
            let bytes: Vec<u8> = (0..length).map(|_| next()).collect();
            property(&bytes);
        }
    }

    #[test]
    fn random_heads_and_logs_are_refused_or_taken() {
        random(bsp_head);
    }

    #[test]
    fn random_parts_are_refused_or_taken() {
        random(bsp_parts);
    }

    /// Announces a long put to slot 2 at offset 0, so that it is received in its place.
    fn piece(victim: &mut Victim, bytes: u64) -> Result<(), Failure> {
        victim.begin(0)?;
        let mut log = crate::log::Log::default();
        log.piece(2, 0, Piece::Copied(vec![1; bytes as usize]));
        let (calls, data) = log.end();
        let mut head = Vec::new();
        let it = Head {
            gets: false,
            calls: calls.len() as u64,
            data: data.len() as u64,
        };
        it.write(&victim.common(), &mut head);
        head.extend_from_slice(calls);
        victim.head(1, &head)
    }

    #[test]
    fn a_piece_that_is_too_short_is_refused() {
        for (length, taken) in [(300, true), (299, false), (0, false)] {
            let mut victim = Victim::new(2);
            piece(&mut victim, 300).unwrap();
            let heard = victim.part(0, &[], length);
            assert_eq!(heard.is_ok(), taken, "{length}");
            if !taken {
                assert_eq!(heard, Err(Failure::Malformed { who: 1 }));
                continue;
            }
            victim.finish().unwrap();
            assert!(
                victim.memory[AREAS[2].clone()]
                    .iter()
                    .all(|byte| *byte == 0x77)
            );
            victim.check();
        }
    }

    #[test]
    fn what_is_outside_of_areas_is_refused() {
        let mut victim = Victim::new(2);
        let heard = piece(&mut victim, 301);
        assert!(matches!(heard, Err(Failure::Outside { who: 1, .. })));
        victim.check();
    }
}
