//! Limits of what a peer may send: chunks by our pool, packets by our receive buffer.

use portolan_seal::Seal;

use crate::base::{PathIndex, WINDOW_SPAN};
use crate::endpoint::Endpoint;
use crate::tables::Listed;

/// Time without data after which a peer has no share of the receive buffer, ns.
const SENDER_QUIET_NS: u64 = 10_000_000;
/// Interval at which the current senders are counted, ns.
const COUNT_EVERY_NS: u64 = 1_000_000;
/// Smallest share of the receive buffer, packets.
const SHARE_MIN: u64 = 2;

impl<S: Seal> Endpoint<'_, S> {
    /// Chunks of one priority that one peer may have undelivered here.
    pub(crate) const fn hold_limit(&self) -> u32 {
        let (hold, quarter) = (self.core.config.hold_frames, self.core.config.frames / 4);
        if hold < quarter { hold } else { quarter }
    }

    /// Packets that each current sender may have in flight to us.
    pub(crate) fn share(&mut self, now: u64) -> u64 {
        if now.saturating_sub(self.core.senders_counted_at) >= COUNT_EVERY_NS {
            let senders = self.conns[..self.core.conns_used as usize]
                .iter()
                .filter(|c| {
                    c.listed != Listed::Free
                        && c.inbound.last_data_at != 0
                        && now.saturating_sub(c.inbound.last_data_at) < SENDER_QUIET_NS
                })
                .count();
            self.core.senders = (senders as u32).max(1);
            self.core.senders_counted_at = now;
        }
        let all = u64::from(self.core.config.receive_packets);
        (all / u64::from(self.core.senders)).clamp(SHARE_MIN, WINDOW_SPAN as u64)
    }

    /// Packets beyond the last received on a path that may be in flight. A lone
    /// sender whose packets come spread over time has twice its share.
    pub(crate) fn room(&mut self, now: u64, path: PathIndex) -> u64 {
        let share = self.share(now);
        let alone = self.core.senders == 1;
        let received = &mut self.path_mut(path).received;
        if received.is_spread(now, share) && alone {
            (2 * share).min(WINDOW_SPAN as u64)
        } else {
            share
        }
    }
}
