//! How far out of order the packets of a path come, learnt from
//! acknowledgements: by how many numbers, and by how much time. Both are what
//! RACK (RFC 8985) calls the reordering window, in packets as in its section
//! 3.3.1 and in time.

/// Upper bound of `packets`: the rest of the window must hold what is sent meanwhile.
const PACKETS_MAX: u32 = 384;

/// Upper bound of `late_ns`.
const LATE_MAX_NS: u64 = 50_000_000;

/// Longer times count as this, so that the mean stays in range, ns.
const TOOK_MAX_NS: u64 = 60_000_000_000;

/// Length of a period, packet numbers: the bounds shrink after one with less
/// reordering.
const PERIOD: u64 = 2_048;

/// Packets over which the mean is taken: it should change less than single packets do.
const MEAN_OVER: u64 = 512;

/// Reordering of a path. Plain data; by default packets come in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Reordering {
    /// Missing packets are given up this many numbers behind the largest seen.
    packets: u32,
    /// The most packets that overtook one in this period.
    seen_packets: u32,
    /// Time by which packets may come later than those that overtook them, ns.
    late_ns: u64,
    seen_late_ns: u64,
    /// Mean round trip of packets, 1/512 ns.
    mean: u64,
    /// The number at which the period ends.
    until: u64,
}

impl Reordering {
    /// Numbers behind the largest seen beyond which a packet is lost.
    pub const fn packets(&self) -> u32 {
        self.packets
    }

    /// Time by which a packet may come later than those sent with it, ns.
    pub const fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// Mean round trip of all packets, ns; 0 where all come in order. Longer
    /// than the samples of [`Rtt`](crate::congestion::Rtt), which are of
    /// packets that none has overtaken.
    pub const fn mean_ns(&self) -> u64 {
        if self.late_ns == 0 {
            0
        } else {
            self.mean / MEAN_OVER
        }
    }

    /// A packet was acknowledged after this time, ns.
    #[inline]
    pub fn took(&mut self, ns: u64) {
        let ns = ns.min(TOOK_MAX_NS);
        self.mean = if self.mean == 0 {
            ns * MEAN_OVER
        } else {
            self.mean - self.mean / MEAN_OVER + ns
        };
    }

    /// A packet came after `packets` with higher numbers, `late_ns` later than
    /// they.
    pub fn came_late(&mut self, packets: u64, late_ns: u64) {
        self.see(packets, late_ns.min(LATE_MAX_NS));
    }

    /// A packet that was given up was only late: `packets` with higher numbers
    /// had come, or `late_ns` passed beyond the usual.
    pub fn given_up_too_early(&mut self, packets: u64, late_ns: u64) {
        if packets <= u64::from(self.packets) {
            self.see(packets, late_ns.min(LATE_MAX_NS));
        } else {
            let twice = (2 * self.packets + 1).min(PACKETS_MAX);
            self.see(packets, self.late_ns);
            self.packets = self.packets.max(twice);
        }
    }

    fn see(&mut self, packets: u64, late_ns: u64) {
        let packets = packets.min(u64::from(PACKETS_MAX)) as u32;
        self.seen_packets = self.seen_packets.max(packets);
        self.seen_late_ns = self.seen_late_ns.max(late_ns);
        // A little more: the next may come a little later.
        self.packets = self.packets.max(packets + packets / 4).min(PACKETS_MAX);
        self.late_ns = self.late_ns.max(late_ns + late_ns / 4).min(LATE_MAX_NS);
    }

    /// Acknowledgements have reached this number.
    pub fn advance(&mut self, largest: u64) {
        if largest >= self.until {
            let packets = self.seen_packets + self.seen_packets / 4;
            let late_ns = self.seen_late_ns + self.seen_late_ns / 4;
            self.packets = self.packets.min(packets.max(self.packets / 2));
            self.late_ns = self.late_ns.min(late_ns.max(self.late_ns / 2));
            (self.seen_packets, self.seen_late_ns) = (0, 0);
            self.until = largest + PERIOD;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_late_is_waited_for_a_quarter_longer() {
        let mut reordering = Reordering::default();
        reordering.came_late(40, 8_000);
        assert_eq!((reordering.packets(), reordering.late_ns()), (50, 10_000));
        // Less changes nothing.
        reordering.came_late(20, 4_000);
        assert_eq!((reordering.packets(), reordering.late_ns()), (50, 10_000));
        reordering.came_late(u64::MAX, u64::MAX);
        assert_eq!(
            (reordering.packets(), reordering.late_ns()),
            (PACKETS_MAX, LATE_MAX_NS)
        );
    }

    #[test]
    fn a_packet_given_up_in_vain_doubles_the_bound() {
        let mut reordering = Reordering::default();
        reordering.given_up_too_early(1, 0);
        assert_eq!(reordering.packets(), 1);
        reordering.given_up_too_early(2, 0);
        assert_eq!(reordering.packets(), 3);
        reordering.given_up_too_early(100, 40);
        assert_eq!((reordering.packets(), reordering.late_ns()), (125, 0));
        // The packet was not given up for their number.
        reordering.given_up_too_early(100, 40);
        assert_eq!((reordering.packets(), reordering.late_ns()), (125, 50));
    }

    #[test]
    fn without_reordering_the_bounds_halve_each_period() {
        let mut reordering = Reordering::default();
        reordering.advance(0);
        reordering.came_late(80, 16_000);
        let mut before = (100, 20_000);
        for (period, after) in (1..).zip([before, (50, 10_000), (25, 5_000), (12, 2_500)]) {
            reordering.advance(period * PERIOD - 1);
            assert_eq!((reordering.packets(), reordering.late_ns()), before);
            reordering.advance(period * PERIOD);
            assert_eq!((reordering.packets(), reordering.late_ns()), after);
            before = after;
        }
        // Bounds do not shrink below what is seen.
        reordering.came_late(8, 1_600);
        reordering.advance(5 * PERIOD);
        assert_eq!((reordering.packets(), reordering.late_ns()), (10, 2_000));
    }

    #[test]
    fn the_mean_counts_only_in_reordering() {
        let mut reordering = Reordering::default();
        reordering.took(1_000);
        assert_eq!(reordering.mean_ns(), 0);
        reordering.came_late(1, 100);
        assert_eq!(reordering.mean_ns(), 1_000);
        (0..2 * MEAN_OVER).for_each(|_| reordering.took(2_000));
        assert!((1_800..2_000).contains(&reordering.mean_ns()));
        (0..64).for_each(|_| reordering.took(u64::MAX));
    }
}
