//! What a peer may send: chunks by our pool, packets by our receive buffer.

use portolan_seal::Seal;

use crate::conn::Listed;
use crate::endpoint::Endpoint;

/// A peer that sent no data for this long does not share the receive buffer, ns.
const SENDER_QUIET_NS: u64 = 10_000_000;
/// How often the sharing peers are counted, ns.
const COUNT_EVERY_NS: u64 = 1_000_000;
/// Least share of the receive buffer, packets.
const SHARE_MIN: u64 = 2;

/// The rate of a path is looked at over so long, ns.
const PERIOD_NS: u64 = 10_000_000;
/// So many of these in a row must be alike before the rate counts as steady.
const PERIODS: u8 = 4;
/// So long a receiver that reads may be kept from it, ns.
const ABSENCE_NS: u64 = 4_000_000;

/// How steadily packets come by a path. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Inflow {
    /// When the period began, ns, and what number was next then.
    began: u64,
    from: u64,
    /// Periods alike.
    alike: u8,
}

impl Inflow {
    /// Looks at the numbers that have come until now. True if they come so
    /// slowly that `share` packets of buffer last through an absence, and yet
    /// are not few: then more than that can be on the way at once, for what
    /// takes long is the way.
    fn is_spread(&mut self, now: u64, next: u64, share: u64) -> bool {
        let ns = now.saturating_sub(self.began);
        if ns >= PERIOD_NS {
            let came = next.saturating_sub(self.from);
            let few = came.saturating_mul(4 * PERIOD_NS) < share.saturating_mul(ns);
            let fits = came.saturating_mul(ABSENCE_NS) <= share.saturating_mul(ns);
            self.alike = if fits && !few {
                (self.alike + 1).min(PERIODS)
            } else {
                0
            };
            (self.began, self.from) = (now, next);
        }
        self.alike == PERIODS
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// Chunks of one priority that one peer may have undelivered here.
    pub(crate) const fn hold_limit(&self) -> u32 {
        let (hold, quarter) = (self.core.config.hold_frames, self.core.config.frames / 4);
        if hold < quarter { hold } else { quarter }
    }

    /// Packets that one of the peers that now send may have on the way to us.
    pub(crate) fn share(&mut self, now: u64) -> u64 {
        if now.saturating_sub(self.core.senders_counted_at) >= COUNT_EVERY_NS {
            let senders = self.conns[..self.core.conns_used as usize]
                .iter()
                .filter(|c| {
                    c.listed != Listed::Free
                        && c.last_data_at != 0
                        && now.saturating_sub(c.last_data_at) < SENDER_QUIET_NS
                })
                .count();
            self.core.senders = (senders as u32).max(1);
            self.core.senders_counted_at = now;
        }
        let all = u64::from(self.core.config.receive_packets);
        (all / u64::from(self.core.senders)).clamp(SHARE_MIN, crate::WINDOW_SPAN as u64)
    }

    /// Packets beyond the last that came by a path that may be on the way there.
    pub(crate) fn room(&mut self, now: u64, path: u32) -> u64 {
        let share = self.share(now);
        let alone = self.core.senders == 1;
        let p = self.path_mut(path);
        let next = p.rx_next;
        if p.inflow.is_spread(now, next, share) && alone {
            (2 * share).min(crate::WINDOW_SPAN as u64)
        } else {
            share
        }
    }

    /// The credit to advertise to a peer: absolute, by priority.
    pub(crate) fn credit(&self, conn: u32) -> [u32; 2] {
        let limit = self.hold_limit();
        let taken = self.conns[conn as usize].kept.taken;
        taken.map(|t| t.wrapping_add(limit))
    }

    /// So many chunks of the peer were taken for good. Where the peer has used up
    /// what it was told of, it must hear of the room now.
    #[inline]
    pub(crate) fn give_credit(&mut self, conn: u32, priority: usize, chunks: u32) {
        let taken = &mut self.conns[conn as usize].kept.taken[priority];
        *taken = taken.wrapping_add(chunks);
        let half = self.hold_limit() / 2;
        let credit = self.credit(conn)[priority];
        let c = &self.conns[conn as usize];
        let waits = c.held[priority] + c.stops.all_withheld[priority];
        let arrived = c.kept.taken[priority].wrapping_add(waits);
        let left = c.advertised[priority].wrapping_sub(arrived) as i32;
        let new = credit.wrapping_sub(c.advertised[priority]);
        if left <= half as i32 && new >= half {
            self.owe_news(conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a steady flow of so many packets in 10 ms is spread, period by
    /// period.
    fn periods(per_period: u64, share: u64) -> [bool; 6] {
        let mut inflow = Inflow::default();
        let mut spread = [false; 6];
        for (period, spread) in (1..).zip(&mut spread) {
            *spread = inflow.is_spread(period * PERIOD_NS, period * per_period, share);
        }
        spread
    }

    #[test]
    fn what_comes_slowly_for_a_while_is_spread() {
        let late = [false, false, false, true, true, true];
        // Of 184, a quarter in a period is not few; 460 are 184 in 4 ms.
        for (per_period, expected) in [(45, [false; 6]), (46, late), (460, late), (461, [false; 6])]
        {
            assert_eq!(periods(per_period, 184), expected, "{per_period}");
        }
    }

    #[test]
    fn a_rush_or_a_silence_ends_it() {
        let mut inflow = Inflow::default();
        let mut next = 0;
        let mut after = |ms: u64, packets: u64| {
            next += packets;
            inflow.is_spread(ms * 1_000_000, next, 184)
        };
        assert_eq!(
            [10, 20, 30, 40].map(|ms| after(ms, 100)),
            [false, false, false, true]
        );
        // Nothing is concluded before a period is over.
        assert!(after(45, 1_000));
        assert!(!after(50, 0));
        assert_eq!(
            [60, 70, 80, 90].map(|ms| after(ms, 100)),
            [false, false, false, true]
        );
        assert!(!after(1_000, 100));
    }
}
