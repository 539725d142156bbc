//! CUBIC (RFC 9438) in integers, with marks and losses as signals.
//!
//! Changes for this protocol: losses come from the receiver's gaps, so a timer
//! alone concludes nothing until it fired three times in a row; one
//! acknowledgement may cover half a window, so packets are paced.

use super::{AckSample, FRACTION, Rtt, WINDOW_MIN, fixed};

/// RFC 6928: ten packets before anything is known.
const INITIAL: u32 = 10;

/// Multiplicative decrease on loss, of 1024: 0.7 (RFC 9438, 4.6).
const BETA_LOSS: u64 = 717;

/// Multiplicative decrease on a congestion mark, of 1024: 0.85 (RFC 8511, 3.1).
const BETA_MARK: u64 = 870;

/// Added for each window acknowledged while a Reno flow of the same decrease
/// would be faster: 3 (1 - 0.7) / (1 + 0.7) packets (RFC 9438, 4.3).
const ALPHA: u64 = fixed(9) / 17;

/// A tick of the cubic's clock, 1/1024 s, in ns.
const TICK_NS: u64 = 976_562;

/// Ticks beyond which the cubic stays where it is: 17 minutes, and its cube
/// still fits 64 bits.
const TICKS_MAX: u64 = 1 << 20;

/// Probes without answer that mean persistent congestion (RFC 9002, 7.6).
const TIMEOUTS_MAX: u8 = 3;

/// State of one path; windows in 1/65,536 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cubic {
    window: u64,
    window_max: u64,
    slow_start_until: u64,
    /// Window before the last reduction.
    peak: u64,
    /// Window that a Reno flow of the same decrease would have.
    reno: u64,
    /// Window from which `reno` grows by a full packet a window again.
    prior: u64,
    /// Start of the cubic, ns; moved on by idle times.
    epoch: Option<u64>,
    /// Ticks from `epoch` to the plateau.
    plateau: u64,
    last: u64,
    rtt: Rtt,
    rate: u64,
    /// Packets sent before the last reduction that were neither acknowledged
    /// nor lost yet.
    recovery: u32,
    packet_bytes: u16,
    timeouts: u8,
    /// The last reduction for losses.
    regret: Option<Regret>,
}

/// State before a reduction, restored if all its losses were only late packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Regret {
    /// Lost packets that are not known to be late.
    lost: u32,
    window: u64,
    slow_start_until: u64,
    peak: u64,
    prior: u64,
}

impl Regret {
    const fn new(of: &Cubic, lost: u32) -> Self {
        Self {
            lost,
            window: of.window,
            slow_start_until: of.slow_start_until,
            peak: of.peak,
            prior: of.prior,
        }
    }
}

impl Cubic {
    pub(super) fn new(packet_bytes: u16, window_max: u32) -> Self {
        Self {
            window: fixed(INITIAL.min(window_max)),
            window_max: fixed(window_max),
            slow_start_until: u64::MAX,
            peak: 0,
            reno: 0,
            prior: 0,
            epoch: None,
            plateau: 0,
            last: 0,
            rtt: Rtt::new(),
            rate: 0,
            recovery: 0,
            packet_bytes,
            timeouts: 0,
            regret: None,
        }
    }

    pub(super) fn window(&self) -> u32 {
        (self.window >> FRACTION) as u32
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    pub(super) fn on_sent(&mut self, now: u64, in_flight_packets: u32) {
        if in_flight_packets <= 1 {
            self.skip(now);
        }
    }

    pub(super) fn on_ack(&mut self, now: u64, sample: &AckSample) {
        if let Some(rtt) = sample.rtt_ns {
            self.rtt.sample(rtt.max(sample.mean_ns));
        }
        let settled = sample.acked_packets.saturating_add(sample.lost_packets);
        let recovering = self.recovery > 0;
        self.recovery = self.recovery.saturating_sub(settled);
        if sample.acked_packets > 0 {
            self.timeouts = 0;
        }
        if sample.spurious_packets > 0 {
            self.repent(sample.spurious_packets);
        }
        if let Some(regret) = &mut self.regret {
            regret.lost = regret.lost.saturating_add(sample.lost_packets);
        }
        if !recovering && sample.lost_packets > 0 {
            self.regret = Some(Regret::new(self, sample.lost_packets));
            self.reduce(BETA_LOSS, sample.in_flight_packets);
        } else if !recovering && sample.ce_packets > 0 {
            self.reduce(BETA_MARK, sample.in_flight_packets);
        } else if sample.app_limited {
            self.skip(now);
        } else if !recovering {
            self.grow(now, sample.acked_packets);
        }
        self.last = now;
        self.pace();
    }

    pub(super) fn on_timeout(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
        if self.timeouts == TIMEOUTS_MAX {
            self.reduce(BETA_LOSS, 0);
            self.window = fixed(WINDOW_MIN);
            self.pace();
        }
    }

    /// Counts given-up packets that were only late. Once all were for which the
    /// window was reduced, the reduction is undone (RFC 4015).
    fn repent(&mut self, packets: u32) {
        let Some(regret) = &mut self.regret else {
            return;
        };
        regret.lost = regret.lost.saturating_sub(packets);
        if regret.lost == 0 {
            self.window = self.window.max(regret.window);
            self.slow_start_until = regret.slow_start_until;
            self.peak = regret.peak;
            self.prior = regret.prior;
            self.epoch = None;
            self.recovery = 0;
            self.regret = None;
        }
    }

    /// Leaves the time since the last acknowledgement out of the cubic
    /// (RFC 9438, 5.8).
    fn skip(&mut self, now: u64) {
        let idle = now.saturating_sub(self.last);
        self.epoch = self.epoch.map(|at| at.saturating_add(idle));
        self.last = now;
    }

    fn reduce(&mut self, beta: u64, in_flight_packets: u32) {
        // Fast convergence (RFC 9438, 4.7): below the last peak, others came,
        // so leave them more room.
        self.peak = if self.window < self.peak {
            (self.window * (1024 + beta)) >> 11
        } else {
            self.window
        };
        self.prior = self.window;
        self.window = ((self.window * beta) >> 10).max(fixed(WINDOW_MIN));
        self.slow_start_until = self.window;
        self.epoch = None;
        self.recovery = in_flight_packets;
    }

    fn grow(&mut self, now: u64, acked_packets: u32) {
        let acked = fixed(acked_packets);
        if self.window < self.slow_start_until {
            self.window = self.window.saturating_add(acked).min(self.slow_start_until);
        } else {
            self.avoid(now, acked);
        }
        self.window = self.window.min(self.window_max);
    }

    /// Congestion avoidance (RFC 9438, 4.2 to 4.5).
    fn avoid(&mut self, now: u64, acked: u64) {
        let epoch = match self.epoch {
            Some(at) => at,
            None => {
                self.peak = self.peak.max(self.window);
                // K = cbrt((peak - window) / 0.4) seconds, here in ticks.
                self.plateau = cube_root(((self.peak - self.window) * 5) << 13);
                self.reno = self.window;
                self.epoch = Some(now);
                now
            }
        };
        // An acknowledgement covers a window at most; more must not overshoot.
        let acked = acked.min(self.window);
        let alpha = if self.reno < self.prior {
            ALPHA
        } else {
            fixed(1)
        };
        self.reno = (self.reno + alpha * acked / self.window).min(self.window_max);
        let since = now.saturating_sub(epoch);
        let cubic = self.cubic(since);
        if cubic < self.reno {
            self.window = self.window.max(self.reno);
            return;
        }
        let ahead = self.cubic(since.saturating_add(self.rtt.smoothed().unwrap_or(0)));
        let target = ahead.clamp(self.window, self.window + self.window / 2);
        let share = (acked << 24) / self.window;
        self.window += ((target - self.window) * share) >> 24;
    }

    /// W_cubic `since` ns after the epoch: peak + 0.4 (t - K)^3 packets.
    fn cubic(&self, since: u64) -> u64 {
        let ticks = (since / TICK_NS).min(TICKS_MAX);
        let away = ticks.abs_diff(self.plateau).min(TICKS_MAX);
        let change = (away * away * away / 5) >> 13;
        if ticks < self.plateau {
            self.peak.saturating_sub(change)
        } else {
            self.peak + change
        }
    }

    /// 2 windows a round trip in slow start, 1.25 after it: above what the
    /// window lets through, so that only bursts are spread.
    fn pace(&mut self) {
        let Some(srtt) = self.rtt.smoothed() else {
            return;
        };
        let gain = if self.window < self.slow_start_until {
            8
        } else {
            5
        };
        let bytes = self.window * u64::from(self.packet_bytes) * gain;
        let per_second = u128::from(bytes) * 1_000_000_000 / u128::from(srtt.max(1));
        let rate = per_second >> (FRACTION + 2);
        self.rate = u64::try_from(rate).unwrap_or(u64::MAX).max(1);
    }
}

/// The largest integer below 2^21 whose cube is at most `value`.
fn cube_root(value: u64) -> u64 {
    let mut root: u64 = 0;
    for bit in (0..=20).rev() {
        let next = root | (1 << bit);
        if next * next * next <= value {
            root = next;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for root in [0_u64, 1, 2, 10, 999, 1_000_003, 2_097_151] {
            let cube = root * root * root;
            assert_eq!(cube_root(cube), root);
            assert_eq!(cube_root(cube + 1), root.max(1));
            if root > 1 {
                assert_eq!(cube_root(cube - 1), root - 1);
            }
        }
        assert_eq!(cube_root(u64::MAX), (1 << 21) - 1);
    }

    #[test]
    fn a_loss_below_the_last_peak_leaves_others_more_room() {
        let mut shared = Cubic::new(1_400, 512);
        shared.window = fixed(100);
        shared.reduce(BETA_LOSS, 0);
        assert_eq!(shared.peak, fixed(100));
        // Others came meanwhile: (1 + 0.7) / 2 of the window (RFC 9438, 4.7).
        shared.reduce(BETA_LOSS, 0);
        let window = (fixed(100) * BETA_LOSS) >> 10;
        assert_eq!(shared.peak, (window * (1024 + BETA_LOSS)) >> 11);
        // None came: the peak is the window.
        shared.window = shared.peak;
        shared.reduce(BETA_LOSS, 0);
        assert_eq!(shared.peak >> FRACTION, 59);
        shared.window = fixed(200);
        shared.reduce(BETA_MARK, 0);
        assert_eq!(shared.peak, fixed(200));
    }

    #[test]
    fn a_reduction_for_packets_that_were_only_late_is_taken_back() {
        let mut shared = Cubic::new(1_400, 512);
        shared.window = fixed(100);
        let before = shared;
        let sample = |lost_packets, spurious_packets| AckSample {
            lost_packets,
            spurious_packets,
            in_flight_packets: 90,
            app_limited: true,
            ..AckSample::default()
        };
        shared.on_ack(0, &sample(2, 0));
        // One more of the same flight.
        shared.on_ack(0, &sample(1, 0));
        shared.on_ack(0, &sample(0, 2));
        assert_eq!(shared.window(), 70);
        shared.on_ack(0, &sample(0, 1));
        let state = |s: &Cubic| (s.window, s.slow_start_until, s.peak, s.prior);
        assert_eq!(state(&shared), state(&before));
        // Late packets of an earlier reduction count no more.
        shared.on_ack(0, &sample(1, 0));
        shared.recovery = 0;
        shared.on_ack(0, &sample(2, 0));
        shared.on_ack(0, &sample(0, 1));
        assert!(shared.window() < 70);
    }

    #[test]
    fn the_cubic_grows_by_half_a_window_a_round_at_most() {
        let mut shared = Cubic {
            window: fixed(100),
            peak: fixed(100),
            reno: fixed(100),
            epoch: Some(0),
            ..Cubic::new(1_400, 512)
        };
        shared.avoid(100_000_000_000, fixed(100));
        assert_eq!(shared.window(), 150);
    }

    #[test]
    fn time_in_which_nothing_was_to_send_does_not_count() {
        const S: u64 = 1_000_000_000;
        let mut shared = Cubic {
            epoch: Some(S),
            last: 2 * S,
            ..Cubic::new(1_400, 512)
        };
        // The first packet in flight ends the idle time; further ones do not count.
        shared.on_sent(7 * S, 1);
        assert_eq!(shared.epoch, Some(6 * S));
        shared.on_sent(8 * S, 2);
        assert_eq!(shared.epoch, Some(6 * S));
    }

    #[test]
    fn paced_is_twice_the_window_in_slow_start_and_a_quarter_more_later() {
        let mut shared = Cubic::new(1_400, 512);
        shared.rtt.sample(1_000_000);
        shared.pace();
        assert_eq!(shared.rate(), 10 * 1_400 * 2 * 1_000);
        shared.slow_start_until = shared.window;
        shared.pace();
        assert_eq!(shared.rate(), 10 * 1_400 * 5 / 4 * 1_000);
    }
}
