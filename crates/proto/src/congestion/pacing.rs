//! A token bucket that spreads packets over time.
//!
//! A packet may leave while the balance is above zero, and may overdraw it; so
//! at most one burst and one packet leave at once. The burst is 64 KiB or a
//! quarter of a millisecond at the rate, whichever is more: enough for one
//! segmentation offload and for a sender that the scheduler wakes late, and
//! within what the buffer of a small switch holds for one port.

/// Smallest burst, bytes.
const BURST_BYTES: u64 = 64 * 1024;

/// Smallest burst where many acknowledgements come at once, as in reordering,
/// bytes: a larger one each time would fill the buffer of a small switch.
const SMALL_BURST_BYTES: u64 = 16 * 1024;

/// Divisor of the rate, bytes/s: the burst at high rates, bytes.
const BURST_PER_SECOND: u64 = 4_000;

/// The balance counts billionths of a byte: bytes/s times ns, without division.
const UNIT: u64 = 1_000_000_000;

/// The highest rate kept, bytes/s: its burst still fits the balance.
const RATE_MAX: u64 = 1 << 44;

/// Token bucket of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pacer {
    /// Bytes/s; 0 = unpaced.
    rate: u64,
    /// Only small bursts.
    smooth: bool,
    /// Billionths of a byte that may leave, as of `at`; negative = overdrawn.
    balance: i64,
    at: u64,
}

impl Default for Pacer {
    fn default() -> Self {
        Self::new()
    }
}

impl Pacer {
    /// Unpaced, with a full bucket.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            rate: 0,
            smooth: false,
            balance: (BURST_BYTES * UNIT) as i64,
            at: 0,
        }
    }

    /// Sets the rate in bytes/s; 0 = unpaced. A debt in bytes stays and is
    /// paid at the new rate.
    #[inline]
    pub fn set_rate(&mut self, bytes_per_s: u64) {
        self.rate = bytes_per_s.min(RATE_MAX);
    }

    /// Sets whether bursts are to be small.
    #[inline]
    pub fn set_smooth(&mut self, smooth: bool) {
        self.smooth = smooth;
    }

    /// When the next packet may leave, ns; `now` or before it means now.
    #[inline]
    #[must_use]
    pub fn ready_at(&self, now: u64) -> u64 {
        if self.rate == 0 {
            return now;
        }
        let balance = self.balance_at(now);
        if balance > 0 {
            return now;
        }
        let missing = balance.unsigned_abs() + 1;
        now.saturating_add(missing.div_ceil(self.rate))
    }

    /// Counts a packet that left.
    #[inline]
    pub fn sent(&mut self, now: u64, bytes: u32) {
        if self.rate == 0 {
            // A burst that left unpaced is not granted a second time once a
            // rate is set.
            self.balance = 0;
        } else {
            let cost = (u64::from(bytes) * UNIT) as i64;
            self.balance = self.balance_at(now).saturating_sub(cost);
        }
        self.at = self.at.max(now);
    }

    fn balance_at(&self, now: u64) -> i64 {
        let least = if self.smooth {
            SMALL_BURST_BYTES
        } else {
            BURST_BYTES
        };
        let burst = least.max(self.rate / BURST_PER_SECOND) * UNIT;
        let earned = now.saturating_sub(self.at).saturating_mul(self.rate);
        self.balance
            .saturating_add_unsigned(earned)
            .min(burst as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets of `bytes` as early as allowed until `end`; returns their number.
    fn drive(pacer: &mut Pacer, mut now: u64, end: u64, bytes: u32) -> u64 {
        let mut packets = 0;
        loop {
            let at = pacer.ready_at(now);
            if at > now {
                now = at;
            }
            if now >= end {
                return packets;
            }
            pacer.sent(now, bytes);
            packets += 1;
        }
    }

    #[test]
    fn unpaced_is_always_ready() {
        let mut pacer = Pacer::new();
        for now in 0..1000 {
            assert_eq!(pacer.ready_at(now), now);
            pacer.sent(now, 9000);
        }
    }

    #[test]
    fn keeps_the_rate_exactly() {
        for rate in [1_000, 1_000_000, 25_000_000, 1_250_000_000, 12_500_000_000] {
            let mut pacer = Pacer::new();
            pacer.set_rate(rate);
            // Long enough that the burst is a small part.
            let seconds = if rate <= 1_000_000 { 1_000 } else { 1 };
            let bytes = if rate == 1_000 { 10_000 } else { 1_500 };
            let packets = drive(&mut pacer, 0, seconds * UNIT, bytes);
            let sent = packets * u64::from(bytes);
            let burst = BURST_BYTES.max(rate / BURST_PER_SECOND);
            let due = rate * seconds;
            assert!(sent >= due, "{rate}: {sent} of {due}");
            let most = due + burst + u64::from(bytes);
            assert!(sent <= most, "{rate}: {sent} beyond {most}");
        }
    }

    #[test]
    fn idling_earns_one_burst_at_most() {
        for (rate, smooth, burst) in [
            (25_000_000, false, BURST_BYTES),
            (25_000_000, true, SMALL_BURST_BYTES),
            (1_250_000_000, true, 312_500),
        ] {
            let mut pacer = Pacer::new();
            pacer.set_rate(rate);
            pacer.set_smooth(smooth);
            pacer.sent(0, 1);
            let now = 3_600 * UNIT;
            let mut at_once = 0;
            while pacer.ready_at(now) <= now {
                pacer.sent(now, 1_000);
                at_once += 1_000;
            }
            assert!(at_once >= burst);
            assert!(at_once < burst + 1_000, "{at_once}");
        }
    }

    #[test]
    fn tells_the_time_to_wait() {
        let mut pacer = Pacer::new();
        pacer.set_rate(1_000_000);
        pacer.sent(0, BURST_BYTES as u32 + 1_000);
        // 1,000 bytes overdrawn at a byte per microsecond.
        assert_eq!(pacer.ready_at(0), 1_000_001);
        assert_eq!(pacer.ready_at(400_000), 1_000_001);
        assert_eq!(pacer.ready_at(1_000_001), 1_000_001);
        // The debt is in bytes, so that a new rate shortens the wait.
        pacer.set_rate(1_000_000_000);
        assert_eq!(pacer.ready_at(0), 1_001);
    }

    #[test]
    fn starting_to_pace_grants_no_second_burst() {
        let mut pacer = Pacer::new();
        pacer.sent(1_000, 1_000_000);
        pacer.set_rate(1_000_000);
        assert_eq!(pacer.ready_at(1_000), 1_001);
        pacer.sent(1_001, 1_000);
        assert!(pacer.ready_at(1_001) >= 1_000_000);
    }

    #[test]
    fn odd_numbers_do_no_harm() {
        let mut pacer = Pacer::new();
        pacer.set_rate(u64::MAX);
        pacer.sent(u64::MAX, u32::MAX);
        assert!(pacer.ready_at(u64::MAX) == u64::MAX);
        // A clock that steps back earns nothing and takes nothing.
        pacer.sent(5, 10);
        pacer.set_rate(1);
        for _ in 0..10 {
            pacer.sent(u64::MAX, u32::MAX);
        }
        assert_eq!(pacer.ready_at(7), 7 + pacer.balance.unsigned_abs() + 1);
    }
}
