//! What becomes of one packet, and lists of that as text.
//!
//! One line a packet, in the order in which they were sent: `FROM>TO` and
//! then what happens, nothing for plain delivery:
//!
//! ```text
//! # the second packet from 0 to 1 is lost, its resend comes twice and late
//! 0>1 deliver
//! 0>1 drop
//! 0>1 repeat 1 every 2000 delay 5000
//! 1>0 flip 77
//! ```
//!
//! `repeat N` gives N further copies, `every` their distance and `delay` the
//! extra time of the first, both in nanoseconds; `flip` inverts a bit, `cut`
//! shortens the packet to so many bytes.

use std::collections::VecDeque;
use std::fmt;

/// What becomes of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fate {
    /// It never arrives; the rest is then ignored.
    pub drop: bool,
    /// Further copies beside the first.
    pub repeat: u32,
    /// Distance of the copies, ns.
    pub every: u64,
    /// Added to the path's own delay, ns.
    pub delay: u64,
    /// A bit to invert, counted modulo the packet's length.
    pub flip: Option<u32>,
    /// Bytes to keep, if the packet is longer.
    pub cut: Option<u32>,
}

impl Fate {
    /// Arrives once, intact and in time.
    pub const DELIVER: Self = Self {
        drop: false,
        repeat: 0,
        every: 0,
        delay: 0,
        flip: None,
        cut: None,
    };
    /// Never arrives.
    pub const DROP: Self = Self {
        drop: true,
        ..Self::DELIVER
    };
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.drop {
            return f.write_str("drop");
        }
        if *self == Self::DELIVER {
            return f.write_str("deliver");
        }
        let mut words = Vec::new();
        if self.repeat > 0 {
            words.push(format!("repeat {} every {}", self.repeat, self.every));
        }
        if self.delay > 0 {
            words.push(format!("delay {}", self.delay));
        }
        if let Some(bit) = self.flip {
            words.push(format!("flip {bit}"));
        }
        if let Some(bytes) = self.cut {
            words.push(format!("cut {bytes}"));
        }
        f.write_str(&words.join(" "))
    }
}

/// Why a list of fates could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FateError {
    /// Line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// The fates of a run's packets, each directed pair in its own order. A
/// packet beyond the end of its pair's list is delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FateList {
    lines: VecDeque<(usize, usize, Fate)>,
}

impl FateList {
    /// Reads the text form.
    ///
    /// # Errors
    /// [`FateError`] names the first line that is not understood.
    pub fn parse(text: &str) -> Result<Self, FateError> {
        let mut list = Self::default();
        for (i, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            list.lines
                .push_back(parse_line(line).map_err(|what| FateError { line: i + 1, what })?);
        }
        Ok(list)
    }

    /// Adds the fate of a pair's next packet.
    pub fn push(&mut self, from: usize, to: usize, fate: Fate) {
        self.lines.push_back((from, to, fate));
    }

    /// Takes the fate of the next packet between two nodes.
    pub fn take(&mut self, from: usize, to: usize) -> Fate {
        let found = self
            .lines
            .iter()
            .position(|&(f, t, _)| (f, t) == (from, to));
        found
            .and_then(|at| self.lines.remove(at))
            .map_or(Fate::DELIVER, |(_, _, fate)| fate)
    }

    /// How many are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl fmt::Display for FateList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (from, to, fate) in &self.lines {
            writeln!(f, "{from}>{to} {fate}")?;
        }
        Ok(())
    }
}

fn parse_line(line: &str) -> Result<(usize, usize, Fate), String> {
    let mut words = line.split_whitespace();
    let pair = words.next().unwrap_or("");
    let (from, to) = pair
        .split_once('>')
        .and_then(|(f, t)| Some((f.parse().ok()?, t.parse().ok()?)))
        .ok_or_else(|| format!("expected FROM>TO, found `{pair}`"))?;
    let mut fate = Fate::DELIVER;
    while let Some(word) = words.next() {
        if word == "deliver" {
            continue;
        }
        if word == "drop" {
            fate.drop = true;
            continue;
        }
        let value: u64 = words
            .next()
            .and_then(|w| w.parse().ok())
            .ok_or_else(|| format!("`{word}` needs a number"))?;
        let small = || u32::try_from(value).map_err(|_| format!("`{word} {value}` is too large"));
        match word {
            "repeat" => fate.repeat = small()?,
            "every" => fate.every = value,
            "delay" => fate.delay = value,
            "flip" => fate.flip = Some(small()?),
            "cut" => fate.cut = Some(small()?),
            _ => return Err(format!("`{word}` is no fate")),
        }
    }
    Ok((from, to, fate))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let text = "0>1 deliver\n0>1 drop\n1>0 repeat 2 every 10 delay 5\n0>1 flip 3 cut 9\n";
        let list = FateList::parse(text).unwrap();
        assert_eq!(list.to_string(), text);
        assert_eq!(FateList::parse(&list.to_string()).unwrap(), list);
    }

    #[test]
    fn pairs_have_their_own_order() {
        let mut list = FateList::parse("0>1 drop\n1>0 delay 7 # late\n\n0>1 repeat 1").unwrap();
        assert_eq!(list.take(1, 0).delay, 7);
        assert!(list.take(0, 1).drop);
        assert_eq!(list.take(0, 1).repeat, 1);
        assert!(list.is_empty());
        assert_eq!(list.take(0, 1), Fate::DELIVER);
    }

    #[test]
    fn bad_lines_are_named() {
        for (text, line) in [
            ("0>1 drop\n0-1", 2),
            ("0>1 vanish 3", 1),
            ("0>1 delay", 1),
            ("0>1 repeat 99999999999", 1),
        ] {
            assert_eq!(FateList::parse(text).unwrap_err().line, line, "{text}");
        }
    }
}
