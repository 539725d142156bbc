//! Congestion control of one path: how many packets may be in flight, and at
//! which pace they leave.
//!
//! Two modes. [`Mode::Lan`] listens to queueing delay, delivery rate and
//! congestion marks, not to random loss. [`Mode::Shared`] is CUBIC, fair to
//! TCP as RFC 8085 asks. Both count in packets, with a binary fraction, and
//! know time only as an argument.

mod lan;
mod pacing;
mod rtt;
mod shared;

#[cfg(test)]
mod tests;

use lan::Lan;
pub(crate) use pacing::Pacer;
pub(crate) use rtt::Rtt;
use shared::Cubic;

/// No mode goes below this many packets: one more than a lost one, so that
/// the receiver still finds a gap.
const WINDOW_MIN: u32 = 2;

/// Upper bound of windows, packets; keeps products within 64 bits.
const WINDOW_LIMIT: u32 = 1 << 18;

/// Windows are kept in units of 1/65,536 packet: finer than what one packet
/// acknowledged adds to any window.
const FRACTION: u32 = 16;

/// `packets` as a fixed-point window.
const fn fixed(packets: u32) -> u64 {
    (packets as u64) << FRACTION
}

/// Which traffic a path shares its bottleneck with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// A directly connected subnet: random loss is no signal.
    Lan,
    /// A routed path: as aggressive as a TCP flow, and no more.
    Shared,
}

/// News of one acknowledgement or of several in a row, beyond the ones before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckSample {
    /// Packets newly acknowledged.
    pub acked_packets: u32,
    /// Round trip of the largest packet newly acknowledged, ns, the
    /// receiver's delay subtracted, and the shortest of several; `None` if none is known.
    pub rtt_ns: Option<u64>,
    /// Time by which a packet may come later than those sent with it, ns: no
    /// queue does that, so delays up to it are no sign of one.
    pub late_ns: u64,
    /// Mean round trip of all packets, ns; 0 where they come in order, and
    /// samples show it.
    pub mean_ns: u64,
    /// Packets newly known to have been given up needlessly.
    pub spurious_packets: u32,
    /// Packets newly reported as marked CE.
    pub ce_packets: u32,
    /// Packets newly known to be lost.
    pub lost_packets: u32,
    /// Packets with messages that came from the peer since the last
    /// news: a queue in which they stand delays our acknowledgements
    /// too.
    pub came_packets: u32,
    /// Packets in flight after this acknowledgement.
    pub in_flight_packets: u32,
    /// The flight was limited by the data to send, not by the window.
    pub app_limited: bool,
}

/// Congestion state of one path: plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Congestion(Control);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Control {
    Lan(Lan),
    Shared(Cubic),
}

const _: () = assert!(size_of::<Congestion>() <= 256);

impl Congestion {
    /// State of a path that nothing is known about. `packet_bytes` is the size
    /// of a full packet, `window_max` the most packets ever allowed in flight.
    #[must_use]
    pub fn new(mode: Mode, packet_bytes: u16, window_max: u32) -> Self {
        let window_max = window_max.clamp(WINDOW_MIN, WINDOW_LIMIT);
        let packet_bytes = packet_bytes.max(1);
        Self(match mode {
            Mode::Lan => Control::Lan(Lan::new(packet_bytes, window_max)),
            Mode::Shared => Control::Shared(Cubic::new(packet_bytes, window_max)),
        })
    }

    /// The mode given at the start.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        match self.0 {
            Control::Lan(_) => Mode::Lan,
            Control::Shared(_) => Mode::Shared,
        }
    }

    /// Packets allowed in flight, at least 2.
    #[inline]
    #[must_use]
    pub fn window(&self) -> u32 {
        match &self.0 {
            Control::Lan(lan) => lan.window(),
            Control::Shared(shared) => shared.window(),
        }
    }

    /// Bytes/s for the pacer; 0 = unpaced. Changes only in the calls below.
    #[inline]
    #[must_use]
    pub fn rate(&self) -> u64 {
        match &self.0 {
            Control::Lan(lan) => lan.rate(),
            Control::Shared(shared) => shared.rate(),
        }
    }

    /// A packet of `bytes` left; `in_flight_packets` counts it.
    #[inline]
    pub fn on_sent(&mut self, now: u64, _bytes: u32, in_flight_packets: u32) {
        match &mut self.0 {
            Control::Lan(lan) => lan.on_sent(in_flight_packets),
            Control::Shared(shared) => shared.on_sent(now, in_flight_packets),
        }
    }

    /// Acknowledgements reported something new: the window follows what was lost or marked
    /// (P8.1).
    #[inline]
    pub fn on_ack(&mut self, now: u64, sample: &AckSample) {
        match &mut self.0 {
            Control::Lan(lan) => lan.on_ack(now, sample),
            Control::Shared(shared) => shared.on_ack(now, sample),
        }
    }

    /// A probe timer fired: no answer for SRTT + 4 RTTVAR and slack.
    #[inline]
    pub fn on_timeout(&mut self, _now: u64) {
        match &mut self.0 {
            Control::Lan(lan) => lan.on_timeout(),
            Control::Shared(shared) => shared.on_timeout(),
        }
    }
}
