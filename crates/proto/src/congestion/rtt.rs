//! Round-trip time of a path and the backstop timer built on it (RFC 6298).
//!
//! The receiver finds losses; the timer only finds lost tails, so it asks for
//! an acknowledgement and concludes nothing by itself.

/// Wait before the first sample: ten times the round trip of a cluster link,
/// and below what a person notices where the guess is wrong.
const DEFAULT_NS: u64 = 500_000;

/// The longest wait between two probes, ns.
const CAP_NS: u64 = 500_000_000;

/// Longer samples count as this, so that sums cannot overflow.
const SAMPLE_MAX_NS: u64 = 60_000_000_000;

/// Smoothed round-trip time, and its variation, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rtt {
    /// Eight times the smoothed time; 0 before the first sample.
    srtt8: u64,
    /// Four times the mean deviation.
    var4: u64,
}

impl Default for Rtt {
    fn default() -> Self {
        Self::new()
    }
}

impl Rtt {
    /// State before the first sample.
    #[must_use]
    pub const fn new() -> Self {
        Self { srtt8: 0, var4: 0 }
    }

    /// Takes one sample in ns, the receiver's delay already subtracted.
    #[inline]
    pub fn sample(&mut self, rtt_ns: u64) {
        let rtt = rtt_ns.clamp(1, SAMPLE_MAX_NS);
        if self.srtt8 == 0 {
            self.srtt8 = rtt * 8;
            self.var4 = rtt * 2;
            return;
        }
        let deviation = (self.srtt8 / 8).abs_diff(rtt);
        self.var4 = self.var4 - self.var4 / 4 + deviation;
        self.srtt8 = self.srtt8 - self.srtt8 / 8 + rtt;
    }

    /// Smoothed round-trip time in ns, `None` before the first sample.
    #[inline]
    #[must_use]
    pub const fn smoothed(&self) -> Option<u64> {
        if self.srtt8 == 0 {
            None
        } else {
            Some(self.srtt8 / 8)
        }
    }

    /// Four times the mean deviation, ns.
    #[inline]
    #[must_use]
    pub const fn variation4(&self) -> u64 {
        self.var4
    }

    /// How long to wait for an answer before asking again, ns:
    /// SRTT + 4 RTTVAR + `slack_ns`, doubled `backoff` times, at most 500 ms.
    /// Before the first sample 500 us stand in for SRTT + 4 RTTVAR.
    #[inline]
    #[must_use]
    pub fn probe_after(&self, slack_ns: u64, backoff: u8) -> u64 {
        let measured = if self.srtt8 == 0 {
            DEFAULT_NS
        } else {
            self.srtt8 / 8 + self.var4
        };
        let once = measured.saturating_add(slack_ns).min(CAP_NS);
        // 2^29 ns are beyond the cap, so a larger shift changes nothing.
        (once << backoff.min(29)).min(CAP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_small() {
        assert!(size_of::<Rtt>() <= 32);
    }

    #[test]
    fn before_a_sample() {
        let rtt = Rtt::new();
        assert_eq!(rtt.smoothed(), None);
        assert_eq!(rtt.probe_after(30_000, 0), 530_000);
        assert_eq!(rtt.probe_after(30_000, 2), 2_120_000);
    }

    #[test]
    fn follows_rfc_6298() {
        let mut rtt = Rtt::new();
        rtt.sample(80_000);
        assert_eq!(rtt.smoothed(), Some(80_000));
        // RTTVAR starts at half the sample.
        assert_eq!(rtt.probe_after(0, 0), 80_000 + 4 * 40_000);
        rtt.sample(160_000);
        // SRTT = 7/8 80 + 1/8 160, RTTVAR = 3/4 40 + 1/4 80.
        assert_eq!(rtt.smoothed(), Some(90_000));
        assert_eq!(rtt.probe_after(0, 0), 90_000 + 4 * 50_000);
    }

    #[test]
    fn settles_on_a_steady_time() {
        let mut rtt = Rtt::new();
        rtt.sample(5_000_000);
        for _ in 0..200 {
            rtt.sample(20_000);
        }
        assert!(rtt.smoothed().unwrap().abs_diff(20_000) < 50);
        assert!(rtt.probe_after(30_000, 0) < 51_000);
    }

    #[test]
    fn is_capped_and_does_not_overflow() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.probe_after(u64::MAX, 255), CAP_NS);
        assert_eq!(rtt.probe_after(0, 255), CAP_NS);
        for _ in 0..100 {
            rtt.sample(u64::MAX);
        }
        assert_eq!(rtt.smoothed(), Some(SAMPLE_MAX_NS));
        assert_eq!(rtt.probe_after(u64::MAX, 3), CAP_NS);
        rtt.sample(0);
        // A shift by the whole range must not wrap to a short wait.
        let mut quick = Rtt::new();
        quick.sample(1);
        assert_eq!(quick.probe_after(0, 255), CAP_NS);
        assert_eq!(quick.probe_after(0, 29), CAP_NS);
    }

    #[test]
    fn doubles_for_each_backoff() {
        let mut rtt = Rtt::new();
        rtt.sample(10_000);
        let once = rtt.probe_after(30_000, 0);
        for backoff in 0..10 {
            assert_eq!(rtt.probe_after(30_000, backoff), once << backoff);
        }
    }
}
