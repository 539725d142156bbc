//! What peers say: anything, or answers to what they heard, whole or in parts.

use portolan_exchange::{AtomicOp, AtomicType, Incoming, IncomingOutcome, KINDS, Kind, Stream};

use super::Run;
use super::host::{Heard, mark};
use super::program::{PART_OF_REGION, REGION};

/// Bytes that a peer holds ready.
const PAYLOAD: usize = 4_096;
/// Bytes of a part, at most: of some that are refused more are announced than
/// there can be.
const PART: u64 = 64 << 10;

/// A payload that arrives in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub from: u32,
    number: u64,
    total: u64,
    at: u64,
}

impl Run<'_> {
    /// A word that may mean something.
    fn word(&mut self, from: u32) -> u64 {
        let choice = self.input.byte();
        let few = u64::from(choice & 31);
        match choice >> 5 {
            0 | 1 => u64::from(choice),
            2 => {
                let heard = &self.carrier.heard[from as usize];
                let at = usize::from(choice & 3);
                let message = heard.iter().rev().nth(at);
                message.map_or(0, |m| m.words[usize::from(choice >> 2 & 7) % 7])
            }
            3 => self.keys.get(few as usize).copied().unwrap_or(few * 64),
            4 => u64::MAX - few,
            // About the ends of regions.
            5 => [PART_OF_REGION, REGION as u64][usize::from(choice & 1)] + 4 - few / 2,
            6 => u64::from(self.input.short()),
            _ => self.input.word(),
        }
    }

    /// A message of any kind, with any words.
    pub(super) fn say_anything(&mut self, from: u32) {
        let kind = Kind::of(u16::from(self.input.byte()) % KINDS).expect("there is");
        let count = usize::from(self.input.byte() % 8);
        let words: Vec<u64> = (0..count).map(|_| self.word(from)).collect();
        let total = match kind {
            Kind::Pull | Kind::Done | Kind::Credit | Kind::Get => 0,
            Kind::Atomic => return self.say_atomic(from, words),
            Kind::Flush => 0,
            Kind::Result => u64::from(self.input.byte() % 4) * 8,
            _ => self.word(from),
        };
        // Where there must be none, and perhaps is.
        let total = if self.input.byte() == 0xff { 1 } else { total };
        self.say(from, kind, &words, total);
    }

    /// An atomic operation, mostly one that there is.
    fn say_atomic(&mut self, from: u32, mut words: Vec<u64>) {
        let [op, of, count, fetching] = [(); 4].map(|()| self.input.byte());
        let (op, of) = (op % 20, of % 13);
        let count = 1 + u64::from(count % 8);
        let flags = u64::from(op) | u64::from(of) << 8 | u64::from(fetching & 1) << 16;
        if words.len() > 4 {
            words[4] = flags | count << 32 | u64::from(fetching >> 7) << 63;
        }
        let bytes = AtomicType::of(of).map_or(3, AtomicType::bytes) as u64;
        let values = AtomicOp::of(op).map_or(1, |op| match op {
            AtomicOp::Read => 0,
            op => 1 + u64::from(op.compares()),
        });
        self.say(from, Kind::Atomic, &words, values * count * bytes);
    }

    /// The answer to something that was asked, perhaps with a word changed.
    pub(super) fn answer(&mut self, from: u32) {
        let back = self.input.byte();
        // Perhaps what the other peer was asked.
        let of = if back >= 0xe0 { 3 - from } else { from } as usize;
        let heard = self.carrier.heard[of]
            .iter()
            .rev()
            .nth(usize::from(back % 4));
        let Some(&Heard { kind, words }) = heard else {
            return;
        };
        let choice = self.input.byte();
        let (kind, mut words, total) = match kind {
            // Of its own key it has seen, so that it writes.
            Kind::Pull if choice & 3 == 0 => (Kind::Pulled, vec![words[3], words[1], words[2]], 0),
            Kind::Pull => (Kind::Pulled, vec![words[3], words[1]], words[2]),
            Kind::Get if choice & 3 == 0 => (Kind::Result, vec![words[4], 1], 0),
            Kind::Get => (Kind::Got, vec![words[4], words[5]], words[6] & !(1 << 63)),
            Kind::Put | Kind::Atomic => {
                let status = u64::from(choice >> 2 & 7) * u64::from(choice & 1);
                let found = if kind == Kind::Atomic { 8 } else { 0 };
                (Kind::Result, vec![words[3], status], found)
            }
            Kind::Flush => (Kind::Result, vec![words[0]], 0),
            Kind::Offer if choice & 3 == 0 => (Kind::Done, vec![words[2]], 0),
            Kind::Offer => {
                let (at, bytes) = (self.word(from), self.word(from));
                let key = u64::from(choice >> 2 & 1);
                (Kind::Pull, vec![words[2], at, bytes, 9, key], 0)
            }
            _ => return,
        };
        if choice >= 0xe0 {
            let at = usize::from(choice) % words.len();
            words[at] = self.word(from);
        }
        self.say(from, kind, &words, total);
    }

    fn say(&mut self, from: u32, kind: Kind, words: &[u64], total: u64) {
        let args: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let cut = self.input.byte();
        // Now and then the last word is not all there.
        let args = &args[..args.len() - usize::from(cut & 7 == 7 && !args.is_empty())];
        let first = match cut >> 3 & 3 {
            0 => total.min(u64::from(cut >> 5)),
            _ => total.min(PAYLOAD as u64),
        };
        let payload = [mark(from); PAYLOAD];
        let m = Incoming {
            from,
            kind,
            args,
            total,
            payload: &payload[..first as usize],
        };
        let others = self.others_than(from);
        let took = self.exchange.arrive(&m);
        match took {
            IncomingOutcome::Part(number) => {
                assert!(number != 0 && first < total, "{m:?}");
                let at = first;
                self.parts.push(Part {
                    from,
                    number,
                    total,
                    at,
                });
            }
            IncomingOutcome::Whole => {
                assert!(first == total, "{m:?}");
                // It says that it has written, whether or not.
                self.lied |= kind == Kind::Pulled && total == 0;
            }
            IncomingOutcome::NotNow => assert_eq!(kind.stream(), Stream::Requests, "{m:?}"),
            IncomingOutcome::Refused => {}
        }
        self.work();
        self.go_on_with(&others);
    }

    /// The next bytes of a payload come, as they should.
    fn go_on(&mut self, at: usize, bytes: u64) {
        let part = &mut self.parts[at];
        let bytes = bytes.min(part.total - part.at).min(PART);
        let (from, number, offset) = (part.from, part.number, part.at);
        part.at += bytes;
        let ends = part.at == part.total;
        self.write(from, number, offset, bytes);
        if ends {
            self.parts.remove(at);
            let others = self.others_than(from);
            self.exchange.arrived(number);
            self.work();
            self.go_on_with(&others);
        }
    }

    fn write(&mut self, from: u32, number: u64, offset: u64, bytes: u64) {
        let payload = vec![mark(from); bytes as usize];
        match self.exchange.room(number, offset, payload.len()) {
            Some(room) => room.copy_from_slice(&payload),
            None => self.exchange.write_part(number, offset, &payload),
        }
    }

    /// A part comes: mostly the next one, or any, also beyond the end.
    pub(super) fn part(&mut self) {
        let choice = self.input.byte();
        if self.parts.is_empty() {
            return;
        }
        let at = usize::from(choice & 0x3f) % self.parts.len();
        match choice >> 6 {
            0 | 1 => self.go_on(at, u64::MAX),
            2 => {
                let bytes = u64::from(self.input.byte()) * 8;
                self.go_on(at, bytes);
            }
            _ => {
                self.wild = true;
                let Part { from, number, .. } = self.parts[at];
                let (offset, bytes) = (self.word(from), u64::from(self.input.short() % 5_000));
                self.write(from, number, offset, bytes);
                if bytes % 2 == 1 {
                    self.parts.swap_remove(at);
                    self.exchange.arrived(number);
                }
            }
        }
    }
}
