//! What a lab is impaired with: its numbers, and how they are checked.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// Longest burst of losses, packets.
const BURST_MAX: u64 = 64;
const BURST_MIN: u64 = 3;
/// Percent of packets in which a byte is changed, where any is.
const CORRUPT_PERCENT: (f64, f64) = (0.1, 30.0);
/// Most packets that may overtake one.
const OVERTAKERS_MAX: u32 = 256;
/// Longest delay and longest jitter.
const LATE_MAX: Duration = Duration::from_millis(10);

/// A share in parts of 2^32.
pub(super) const ALL: u64 = 1 << 32;

/// Which packets, by hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub from: Option<u32>,
    pub to: Option<u32>,
    /// One of the two suffices.
    #[serde(default)]
    pub either: bool,
}

impl Choice {
    /// As the programs have it (`struct choice` of `impair.h`).
    pub fn words(self) -> [u64; 3] {
        let byte = |host: Option<u32>| host.map_or(0, |host| u64::from(super::last_byte(host)));
        [byte(self.from), byte(self.to), u64::from(self.either)]
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self {
                from: Some(host),
                either: true,
                ..
            } => write!(f, "from and to h{host}"),
            Self { from, to, .. } => {
                let name = |host: Option<u32>| host.map_or("any".to_owned(), |h| format!("h{h}"));
                write!(f, "from {} to {}", name(from), name(to))
            }
        }
    }
}

/// Lengths of bursts, packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Shortest.
    pub min: u64,
    /// Longest.
    pub max: u64,
}

impl Burst {
    /// Each lost packet is lost alone.
    pub const SINGLE: Self = Self { min: 1, max: 1 };

    /// With which share of packets outside of bursts one begins, so that in
    /// the long run `share` of all are lost; parts of 2^32.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub(super) fn begins(self, share: u64) -> u64 {
        // A burst of length l and the packets before the next, (1 - q) / q of
        // them, are lost by l / (l + (1 - q) / q).
        let (lost, length) = (
            share as f64 / ALL as f64,
            (self.min + self.max) as f64 / 2.0,
        );
        let begins = lost / (lost + length * (1.0 - lost));
        // Within 0 to 2^32, so nothing is cut off.
        (begins * ALL as f64).round() as u64
    }
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (min, max) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.parse().ok();
        match (number(min), number(max)) {
            (Some(min), Some(max)) if BURST_MIN <= min && min <= max && max <= BURST_MAX => {
                Ok(Self { min, max })
            }
            _ => Err(format!(
                "give a length or two from {BURST_MIN} to {BURST_MAX} packets, for example 8 or \
                 3-64"
            )),
        }
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.min, self.max)
    }
}

/// Milliseconds as people write them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Late {
    pub us: u64,
}

impl FromStr for Late {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let max = LATE_MAX.as_secs_f64() * 1e3;
        match text.parse::<f64>() {
            Ok(ms) if (0.0..=max).contains(&ms) => {
                // Within 0 to 10,000, so nothing is cut off.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                Ok(Self {
                    us: (ms * 1e3).round() as u64,
                })
            }
            _ => Err(format!(
                "give milliseconds from 0 to {max}, for example 2.5"
            )),
        }
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.us as f64 / 1e3)
    }
}

/// What a lab is impaired with. Shares are percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Impairment {
    /// Packets of which hosts.
    #[serde(flatten)]
    pub choice: Choice,
    /// Under the same seed the n-th packet to a host has the same fate.
    pub seed: u64,
    /// Lost.
    pub loss: f64,
    /// Lengths of bursts of losses; without, singly.
    pub burst: Option<Burst>,
    /// Only packets that carry an acknowledgement and no message are lost or repeated.
    pub acks_only: bool,
    /// Coming twice.
    pub repeat: f64,
    /// With a byte changed.
    pub corrupt: f64,
    /// Overtaken by later ones.
    pub reorder: f64,
    /// Most packets that overtake one.
    pub overtakers: u32,
    /// So much later each comes.
    pub delay: Late,
    /// Drawn for each, so much later at most beyond that.
    pub jitter: Late,
}

impl FromStr for Impairment {
    type Err = String;

    /// Parts as the options of `lab impair`, with `+` between.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut harm = Self::NONE;
        for part in text.split('+') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let percent = || {
                value
                    .parse()
                    .map_err(|_| format!("{value:?} in {part:?} is no percentage"))
            };
            let named = |error: String| format!("{part:?}: {error}");
            match name {
                "loss" => harm.loss = percent()?,
                "burst" => harm.burst = Some(value.parse().map_err(named)?),
                "acks-only" if value.is_empty() => harm.acks_only = true,
                "repeat" => harm.repeat = percent()?,
                "corrupt" => harm.corrupt = percent()?,
                "reorder" => harm.reorder = percent()?,
                "reorder-by" => {
                    harm.overtakers = value
                        .parse()
                        .map_err(|_| format!("{value:?} in {part:?} is no number of packets"))?;
                }
                "delay" => harm.delay = value.parse().map_err(named)?,
                "jitter" => harm.jitter = value.parse().map_err(named)?,
                "seed" => {
                    harm.seed = value
                        .parse()
                        .map_err(|_| format!("{value:?} in {part:?} is no number"))?;
                }
                _ => {
                    return Err(format!(
                        "{part:?} is no harm: give parts like loss=1, burst=3-64, acks-only, \
                         repeat=50, corrupt=5, reorder=10, reorder-by=256, delay=1, jitter=10, \
                         seed=7 with + between"
                    ));
                }
            }
        }
        harm.check().map_err(|failure| failure.to_string())?;
        if harm.is_nothing() {
            return Err(format!("{text:?} does no harm: give it a share or a time"));
        }
        Ok(harm)
    }
}

impl Impairment {
    /// Packets come as they were sent.
    pub const NONE: Self = Self {
        choice: Choice {
            from: None,
            to: None,
            either: false,
        },
        seed: 1,
        loss: 0.0,
        burst: None,
        acks_only: false,
        repeat: 0.0,
        corrupt: 0.0,
        reorder: 0.0,
        overtakers: 16,
        delay: Late { us: 0 },
        jitter: Late { us: 0 },
    };

    /// The share of packets that do not come, or not as they were; 0 to 1.
    pub fn takes(&self) -> f64 {
        let lost = if self.acks_only { 0.0 } else { self.loss };
        1.0 - (1.0 - lost / 100.0) * (1.0 - self.corrupt / 100.0)
    }

    /// Checks its numbers.
    pub fn check(&self) -> Result<()> {
        for (name, percent) in [
            ("loss", self.loss),
            ("repeat", self.repeat),
            ("reorder", self.reorder),
        ] {
            threshold(name, percent)?;
        }
        let (least, most) = CORRUPT_PERCENT;
        if self.corrupt != 0.0 && !(least..=most).contains(&self.corrupt) {
            return Err(Failure::usage(format!(
                "{} percent of packets cannot be corrupted: give --corrupt {least} to {most}",
                self.corrupt
            )));
        }
        if !(1..=OVERTAKERS_MAX).contains(&self.overtakers) {
            return Err(Failure::usage(format!(
                "{} packets cannot overtake one: give --reorder-by 1 to {OVERTAKERS_MAX}",
                self.overtakers
            )));
        }
        Ok(())
    }

    /// Whether packets go as if there were none.
    pub fn is_nothing(&self) -> bool {
        self.loss == 0.0 && self.repeat == 0.0 && self.corrupt == 0.0 && !self.holds_back()
    }

    /// Whether it takes a process.
    pub fn needs_wire(&self) -> bool {
        self.corrupt > 0.0 || self.holds_back()
    }

    /// Whether packets are held back.
    pub fn holds_back(&self) -> bool {
        self.reorder > 0.0 || self.delay.us > 0 || self.jitter.us > 0
    }
}

impl fmt::Display for Impairment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.loss > 0.0 || self.is_nothing() {
            let burst = self
                .burst
                .map_or(String::new(), |b| format!(" in bursts of {b}"));
            let which = if self.acks_only {
                " of acknowledgements"
            } else {
                ""
            };
            parts.push(format!("loss {} %{which}{burst}", self.loss));
        }
        for (name, percent) in [("repeat", self.repeat), ("corrupt", self.corrupt)] {
            if percent > 0.0 {
                parts.push(format!("{name} {percent} %"));
            }
        }
        if self.reorder > 0.0 {
            parts.push(format!(
                "reorder {} % by 1-{}",
                self.reorder, self.overtakers
            ));
        }
        for (name, late) in [("delay", self.delay), ("jitter", self.jitter)] {
            if late.us > 0 {
                parts.push(format!("{name} {late} ms"));
            }
        }
        if self.choice != Choice::default() {
            parts.push(self.choice.to_string());
        }
        write!(f, "{}, seed {}", parts.join(", "), self.seed)
    }
}

/// Percent in parts of 2^32.
pub(super) fn threshold(name: &str, percent: f64) -> Result<u64> {
    if !(0.0..=100.0).contains(&percent) {
        return Err(Failure::usage(format!(
            "a {name} of {percent} percent cannot be: give one from 0 to 100"
        )));
    }
    // Within 0 to 2^32, so nothing is cut off.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok((percent / 100.0 * ALL as f64).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_becomes_parts() {
        let parts = |percent| threshold("loss", percent);
        assert_eq!(parts(0.0).unwrap(), 0);
        assert_eq!(parts(50.0).unwrap(), 1 << 31);
        assert_eq!(parts(100.0).unwrap(), 1 << 32);
        for bad in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
            assert!(parts(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn harm_is_read_part_by_part() {
        let harm: Impairment = "loss=10+burst=3-64+corrupt=10+reorder=25+reorder-by=256+jitter=2.5"
            .parse()
            .unwrap();
        assert_eq!(
            harm,
            Impairment {
                loss: 10.0,
                burst: Some(Burst { min: 3, max: 64 }),
                corrupt: 10.0,
                reorder: 25.0,
                overtakers: 256,
                jitter: Late { us: 2_500 },
                ..Impairment::NONE
            }
        );
        assert!((harm.takes() - 0.19).abs() < 1e-9);
        let acks: Impairment = "loss=20+acks-only+seed=3".parse().unwrap();
        assert_eq!((acks.acks_only, acks.seed, acks.takes()), (true, 3, 0.0));
        for (bad, says) in [
            ("", "is no harm"),
            ("loss", "no percentage"),
            ("loss=x", "no percentage"),
            ("loss=101", "101"),
            ("corrupt=31", "--corrupt"),
            ("reorder=5+reorder-by=257", "256"),
            ("jitter=11+loss=1", "0 to 10"),
            ("acks-only=1+loss=1", "is no harm"),
            ("seed=2", "does no harm"),
        ] {
            let said = bad.parse::<Impairment>().unwrap_err();
            assert!(said.contains(says), "{bad}: {said}");
        }
    }

    #[test]
    fn bursts_lose_the_share_that_was_asked_for() {
        // Half of all in bursts of ten: ten pass between them.
        let burst = Burst { min: 5, max: 15 };
        let begins = burst.begins(ALL / 2) as f64 / ALL as f64;
        assert!((begins - 1.0 / 11.0).abs() < 1e-9, "{begins}");
        assert_eq!(Burst::SINGLE.begins(ALL / 4), ALL / 4);
        for share in [0, ALL] {
            assert_eq!(burst.begins(share), share);
        }
        assert_eq!("3-64".parse(), Ok(Burst { min: 3, max: 64 }));
        assert_eq!("8".parse(), Ok(Burst { min: 8, max: 8 }));
        for bad in ["2", "65", "9-8", "3-", "-8", "x"] {
            assert!(bad.parse::<Burst>().is_err(), "{bad}");
        }
    }

    #[test]
    fn delays_have_a_bound() {
        assert_eq!("2.5".parse(), Ok(Late { us: 2500 }));
        assert_eq!("10".parse(), Ok(Late { us: 10_000 }));
        for bad in ["10.1", "-1", "x", "NaN"] {
            assert!(bad.parse::<Late>().is_err(), "{bad}");
        }
    }
}
