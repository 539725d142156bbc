//! How fast a lab's lines are, and what the switch's ports hold.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// Bounds of a rate, bits per second: below, a packet takes a fifth of a
/// second; above, no lab on one machine follows.
const BITS_MIN: u64 = 64_000;
const BITS_MAX: u64 = 40_000_000_000;
/// Largest buffer of a port, bytes: no switch has more.
const BUFFER_MAX: u64 = 256 << 20;
/// Buffer of a port unless asked otherwise, bytes: that of a small switch.
pub(super) const BUFFER_DEFAULT: usize = 64 << 10;

/// Bytes that the kernel counts for a packet beside its MTU: Ethernet's.
const ETHERNET: u64 = 14;
/// How late the kernel's timer may be without the line losing rate,
/// microseconds.
const LATE_US: u64 = 100;

/// Bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(u64);

impl Rate {
    pub fn bits_per_s(self) -> u64 {
        self.0
    }

    /// How long `bytes` take, nanoseconds.
    pub fn ns(self, bytes: u64) -> u64 {
        bytes * 8_000_000_000 / self.0
    }

    fn bytes_in_us(self, us: u64) -> u64 {
        self.0 * us / 8_000_000
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let units = [
            ("kbit", 1_000),
            ("mbit", 1_000_000),
            ("gbit", 1_000_000_000),
        ];
        let number = units.iter().find_map(|(unit, times)| {
            let digits = lower.strip_suffix(unit)?;
            digits.parse::<u64>().ok()?.checked_mul(*times)
        });
        let rate =
            number.ok_or("give a rate with its unit, for example 64kbit, 200mbit or 1gbit")?;
        if !(BITS_MIN..=BITS_MAX).contains(&rate) {
            return Err(format!(
                "a line has a rate from {} to {}",
                Self(BITS_MIN),
                Self(BITS_MAX)
            ));
        }
        Ok(Self(rate))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n.is_multiple_of(1_000_000_000) => write!(f, "{}gbit", n / 1_000_000_000),
            n if n.is_multiple_of(1_000_000) => write!(f, "{}mbit", n / 1_000_000),
            n => write!(f, "{}kbit", n / 1_000),
        }
    }
}

/// Every host's line, in both directions, and the switch's port towards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabLink {
    pub rate: Rate,
    /// Bytes that a port holds, Ethernet headers included; more it drops.
    pub buffer: u64,
    /// Bytes in a port from which on it marks packets.
    pub ecn: Option<u64>,
}

impl LabLink {
    /// Checks the numbers that a lab with packets of `mtu` bytes is asked
    /// for with.
    ///
    /// # Errors
    /// Numbers that cannot be, or without the one that they need.
    pub(super) fn check(
        rate: Option<Rate>,
        buffer: Option<usize>,
        ecn: Option<usize>,
        mtu: u32,
    ) -> Result<Option<Self>> {
        let Some(rate) = rate else {
            return match (buffer, ecn) {
                (None, None) => Ok(None),
                _ => Err(Failure::usage(
                    "a port of a line without a rate never fills: give --rate too, \
                     for example --rate 200mbit",
                )),
            };
        };
        let buffer = buffer.unwrap_or(BUFFER_DEFAULT) as u64;
        let frame = u64::from(mtu) + ETHERNET;
        if !(frame..=BUFFER_MAX).contains(&buffer) {
            return Err(Failure::usage(format!(
                "a buffer of {buffer} bytes cannot be: give --buffer {frame} (one packet of \
                 the lab's MTU) to {BUFFER_MAX}"
            )));
        }
        let ecn = ecn.map(|bytes| bytes as u64);
        if ecn.is_some_and(|bytes| bytes == 0 || bytes >= buffer) {
            return Err(Failure::usage(format!(
                "packets cannot be marked from there on: give --ecn 1 to {}, less than \
                 the buffer of {buffer} bytes",
                buffer - 1
            )));
        }
        Ok(Some(Self { rate, buffer, ecn }))
    }

    /// The bucket of the switch's port, bytes: a packet, and what goes while a
    /// timer is late, or a second packet, which is there when one has gone.
    pub(super) fn burst(&self, mtu: u32) -> u64 {
        let packet = u64::from(mtu) + ETHERNET;
        packet + packet.max(self.late())
    }

    /// The bucket of a host's own line, bytes. Here several packets may come as one
    /// unit, of which the bucket must hold all before it goes: as much as the port's
    /// bucket holds ([`wires`](super::wires) cuts what is longer). What goes while a
    /// timer is late comes on top.
    pub(super) fn own_burst(&self, mtu: u32) -> u64 {
        self.burst(mtu) + self.late()
    }

    /// Bytes that go while a timer is late.
    fn late(&self) -> u64 {
        self.rate.bytes_in_us(LATE_US)
    }
}

impl fmt::Display for LabLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, buffer {} bytes", self.rate, self.buffer)?;
        match self.ecn {
            Some(bytes) => write!(f, ", ECN from {bytes} bytes"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_they_are_shown() {
        for (text, bits) in [
            ("64kbit", 64_000),
            ("200mbit", 200_000_000),
            ("1500kbit", 1_500_000),
            ("10gbit", 10_000_000_000),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.bits_per_s(), rate.to_string().as_str()), (bits, text));
        }
        assert_eq!("1GBIT".parse::<Rate>().unwrap().ns(125), 1000);
        for bad in [
            "",
            "200",
            "200mb",
            "-1mbit",
            "mbit",
            "63kbit",
            "41gbit",
            "9999999999999gbit",
        ] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_port_cannot_hold_is_refused() {
        let rate = Some("200mbit".parse().unwrap());
        let line = |buffer, ecn| LabLink::check(rate, buffer, ecn, 1500);
        assert_eq!(line(None, None).unwrap().unwrap().buffer, 65_536);
        assert!(line(Some(1513), None).is_err());
        assert!(line(Some(1514), None).is_ok());
        assert!(line(Some((256 << 20) + 1), None).is_err());
        for (ecn, good) in [(0, false), (1, true), (16_383, true), (16_384, false)] {
            assert_eq!(line(Some(16_384), Some(ecn)).is_ok(), good, "{ecn}");
        }
        assert_eq!(LabLink::check(None, None, None, 1500).unwrap(), None);
        for (buffer, ecn) in [(Some(65_536), None), (None, Some(1))] {
            let refused = LabLink::check(None, buffer, ecn, 1500).unwrap_err();
            assert!(refused.to_string().contains("--rate"), "{refused}");
        }
    }

    /// Both buckets of a line.
    fn bursts(rate: &str, mtu: u32) -> [u64; 2] {
        let line = LabLink {
            rate: rate.parse().unwrap(),
            buffer: 65_536,
            ecn: None,
        };
        [line.burst(mtu), line.own_burst(mtu)]
    }

    #[test]
    fn a_line_keeps_its_rate_when_a_timer_is_late() {
        assert_eq!(bursts("64kbit", 1500), [3_028, 3_028]);
        assert_eq!(bursts("200mbit", 1500), [4_014, 6_514]);
        assert_eq!(bursts("1gbit", 1500), [14_014, 26_514]);
        assert_eq!(bursts("1gbit", 9000), [21_514, 34_014]);
    }
}
