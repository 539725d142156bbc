//! Asking for another way between the same addresses.

use portolan_seal::Seal;

use crate::base::{Event, PathIndex, Reroute, WINDOW_SPAN};
use crate::congestion::AckSample;
use crate::endpoint::Endpoint;
use crate::path::Sight;

impl<S: Seal> Endpoint<'_, S> {
    /// Whether the link can change the way of packets: [`Event::Reroute`] asks
    /// for that. False until it is said.
    pub fn set_reroutes(&mut self, can: bool) {
        self.core.reroutes = can;
    }

    /// Looks at what an acknowledgement told of the way that a path takes.
    #[inline]
    pub(crate) fn watch_way(
        &mut self,
        now: u64,
        path: PathIndex,
        largest: u64,
        sample: &AckSample,
    ) {
        let p = &mut self.paths[path];
        if sample.acked_packets == 0 || p.rerouting.is_off(now, sample.app_limited) {
            return;
        }
        let window = p.congestion.window();
        let granted = p.packet_limit.saturating_sub(p.acked_to);
        let flight = p.flying + sample.acked_packets + sample.lost_packets;
        let sight = Sight {
            now,
            largest,
            next: p.next_number,
            acked: sample.acked_packets,
            idle: sample.app_limited,
            narrow: u64::from(window) < granted.min(WINDOW_SPAN as u64),
            full: flight >= window - window / 4,
        };
        let core = &mut *self.core;
        if let Some(how) = p.rerouting.see(&sight, || core.random()) {
            self.reroute(now, path, how);
        }
    }

    #[cold]
    fn reroute(&mut self, now: u64, path: PathIndex, how: Reroute) {
        let p = &self.paths[path];
        let peer = self.conns[p.conn].peer;
        // The caller knows ways of path 0 by the first network alone.
        let by_first = self.peers[peer].bits.network() == 0;
        let can = by_first && p.id == 0 && self.core.reroutes;
        if can && self.tell(Event::Reroute(peer, how)) {
            let p = &mut self.paths[path];
            p.rerouting.rerouted(p.next_number);
            self.core.counters.rerouted += 1;
        } else {
            self.paths[path].rerouting.cannot(now);
        }
    }
}
