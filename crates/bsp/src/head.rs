//! Head, sent to each other process at the end of a superstep: a byte of flags, the superstep,
//! then what the flags name, as [numbers](crate::numbers), and the log if that is short
//! enough. Without calls a head takes about three bytes; with a put or two it still fits a
//! cache line.

use crate::areas::Changes;
use crate::heads::HEAD_MAX;
use crate::numbers;

/// Most bytes before the log.
const ROOM: usize = 64;

/// bsp_end was called.
const ENDS: u8 = 1;
/// There are gets in the log.
const GETS: u8 = 2;
/// Numbers of pushes and pops follow.
const CHANGES: u8 = 4;
/// Length of tags follows.
const TAGS: u8 = 8;
/// Bytes of calls, and of the data they carry, follow.
const LOG: u8 = 16;

/// Values that must be alike in all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Common {
    pub step: u64,
    pub changes: Changes,
    /// Length of tags in messages sent in the next superstep.
    pub tag_bytes: u64,
    /// bsp_end was called.
    pub ends: bool,
}

impl Common {
    /// Values that must be alike, with names for messages.
    pub fn numbers(&self) -> [(&'static str, u64); 3] {
        [
            ("number of bsp_push_reg", self.changes.pushes.into()),
            ("number of bsp_pop_reg", self.changes.pops.into()),
            ("size in bsp_set_tagsize", self.tag_bytes),
        ]
    }
}

/// Values that may differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// There are gets in the log.
    pub gets: bool,
    /// Bytes of calls, and of the data they carry.
    pub calls: u64,
    pub data: u64,
}

impl Head {
    /// Returns the head for a log.
    pub const fn of((calls, data): (&[u8], &[u8]), gets: bool) -> Self {
        Self {
            gets,
            calls: calls.len() as u64,
            data: data.len() as u64,
        }
    }

    /// Bytes of the log; parsing has checked the sum.
    pub const fn log(&self) -> u64 {
        self.calls + self.data
    }

    /// Whether the log follows the head.
    pub const fn is_whole(&self) -> bool {
        self.log() <= (HEAD_MAX - ROOM) as u64
    }

    pub fn write(&self, common: &Common, to: &mut Vec<u8>) {
        to.reserve(ROOM);
        let Common { changes, .. } = common;
        let flag = |on, flag| if on { flag } else { 0 };
        let flags = flag(common.ends, ENDS)
            | flag(self.gets, GETS)
            | flag(changes.pushes | changes.pops > 0, CHANGES)
            | flag(common.tag_bytes > 0, TAGS)
            | flag(self.log() > 0, LOG);
        to.push(flags);
        numbers::push(to, common.step);
        if flags & CHANGES != 0 {
            numbers::push(to, changes.pushes.into());
            numbers::push(to, changes.pops.into());
        }
        if flags & TAGS != 0 {
            numbers::push(to, common.tag_bytes);
        }
        if flags & LOG != 0 {
            numbers::push(to, self.calls);
            numbers::push(to, self.data);
        }
    }

    /// Parses a head; returns it with the bytes behind it.
    pub fn parse(bytes: &[u8]) -> Option<(Common, Self, &[u8])> {
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
            };
        }
        if has(TAGS) {
            common.tag_bytes = numbers::read(rest)?;
        }
        let mut head = Self {
            gets: has(GETS),
            ..Self::default()
        };
        if has(LOG) {
            head.calls = numbers::read(rest)?;
            head.data = numbers::read(rest)?;
            head.calls.checked_add(head.data)?;
        }
        Some((common, head, rest))
    }

    /// Returns the superstep of a head, if the bytes can be one.
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
        let all = Common {
            step: u64::MAX,
            changes: Changes {
                pushes: u32::MAX,
                pops: u32::MAX,
            },
            tag_bytes: u64::MAX,
            ends: true,
        };
        let long = Head {
            gets: true,
            calls: 1 << 63,
            data: (1 << 63) - 1,
        };
        let none = (Common::default(), Head::default());
        for ((common, head), bytes) in [(none, 2), ((all, long), 50)] {
            let mut written = Vec::new();
            head.write(&common, &mut written);
            assert_eq!(written.len(), bytes);
            assert_eq!(Head::step(&written), Some(common.step));
            for cut in 0..bytes {
                assert_eq!(Head::parse(&written[..cut]), None);
            }
            written.extend_from_slice(b"log");
            assert_eq!(Head::parse(&written), Some((common, head, &b"log"[..])));
            written[0] |= LOG << 1;
            assert_eq!(Head::parse(&written), None);
        }
        // A log longer than any can be.
        let mut written = vec![LOG];
        for number in [0, 1 << 63, 1 << 63] {
            numbers::push(&mut written, number);
        }
        assert_eq!(Head::parse(&written), None);
    }
}
