//! What a process says to each other at the end of a superstep: a byte of flags, the
//! superstep, then what the flags name, as [numbers](crate::numbers). With a log that is
//! short enough behind it. Where nothing was called it takes three bytes or so, and with a
//! put or two it still fits a cache line.

use crate::areas::Changes;
use crate::heads::HEAD_MAX;
use crate::numbers;

/// Most bytes before the log.
const ROOM: usize = 64;

/// bsp_end was called.
const ENDS: u8 = 1;
/// There are gets in the log.
const GETS: u8 = 2;
/// Pushes, pops, and which areas were popped.
const CHANGES: u8 = 4;
/// The length of tags.
const TAGS: u8 = 8;
/// Bytes of calls and of what they carry.
const LOG: u8 = 16;

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
    pub fn numbers(&self) -> [(&'static str, u64); 3] {
        [
            ("number of bsp_push_reg", self.changes.pushes.into()),
            ("number of bsp_pop_reg", self.changes.pops.into()),
            ("size in bsp_set_tagsize", self.tag_bytes),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub common: Common,
    /// There are gets in the log.
    pub gets: bool,
    /// Bytes of the log, and those of them that are calls.
    pub log: u64,
    pub calls: u64,
}

impl Head {
    pub const fn of(common: Common, calls: &[u8], data: &[u8], gets: bool) -> Self {
        Self {
            common,
            gets,
            log: (calls.len() + data.len()) as u64,
            calls: calls.len() as u64,
        }
    }

    /// Whether the log stands behind it.
    pub const fn is_whole(&self) -> bool {
        self.log <= (HEAD_MAX - ROOM) as u64
    }

    pub fn write(&self, to: &mut Vec<u8>) {
        to.reserve(ROOM);
        let Common {
            step,
            changes,
            tag_bytes,
            ends,
        } = self.common;
        let flag = |on, flag| if on { flag } else { 0 };
        let flags = flag(ends, ENDS)
            | flag(self.gets, GETS)
            | flag(changes != Changes::default(), CHANGES)
            | flag(tag_bytes > 0, TAGS)
            | flag(self.log > 0, LOG);
        to.push(flags);
        numbers::push(to, step);
        if flags & CHANGES != 0 {
            numbers::push(to, changes.pushes.into());
            numbers::push(to, changes.pops.into());
            numbers::push(to, changes.popped);
        }
        if flags & TAGS != 0 {
            numbers::push(to, tag_bytes);
        }
        if flags & LOG != 0 {
            numbers::push(to, self.calls);
            numbers::push(to, self.log - self.calls);
        }
    }

    /// The head, and what stands behind it.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (flags, mut rest) = bytes.split_first()?;
        if *flags >= LOG << 1 {
            return None;
        }
        let has = |flag| flags & flag != 0;
        let rest = &mut rest;
        let mut common = Common {
            step: numbers::read(rest)?,
            ends: has(ENDS),
            ..Common::default()
        };
        if has(CHANGES) {
            let small = |number: u64| u32::try_from(number).ok();
            common.changes = Changes {
                pushes: small(numbers::read(rest)?)?,
                pops: small(numbers::read(rest)?)?,
                popped: numbers::read(rest)?,
            };
        }
        if has(TAGS) {
            common.tag_bytes = numbers::read(rest)?;
        }
        let (mut log, mut calls) = (0, 0);
        if has(LOG) {
            calls = numbers::read(rest)?;
            log = calls.checked_add(numbers::read(rest)?)?;
        }
        let it = Self {
            common,
            gets: has(GETS),
            log,
            calls,
        };
        Some((it, rest))
    }

    /// The superstep that a head is of, if it is one.
    #[inline]
    pub fn step(head: &[u8]) -> Option<u64> {
        numbers::read(&mut head.get(1..)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_short_and_is_read_as_it_was_written() {
        let none = Head::of(Common::default(), &[], &[], false);
        let all = Head {
            common: Common {
                step: u64::MAX,
                changes: Changes {
                    pushes: u32::MAX,
                    pops: u32::MAX,
                    popped: u64::MAX,
                },
                tag_bytes: u64::MAX,
                ends: true,
            },
            gets: true,
            log: u64::MAX,
            calls: 1 << 63,
        };
        for (head, bytes) in [(none, 2), (all, 60)] {
            let mut written = Vec::new();
            head.write(&mut written);
            assert_eq!(written.len(), bytes);
            assert_eq!(Head::step(&written), Some(head.common.step));
            for cut in 0..bytes {
                assert_eq!(Head::parse(&written[..cut]), None);
            }
            written.extend_from_slice(b"log");
            assert_eq!(Head::parse(&written), Some((head, &b"log"[..])));
            written[0] |= LOG << 1;
            assert_eq!(Head::parse(&written), None);
        }
    }
}
