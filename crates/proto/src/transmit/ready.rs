//! Connections that may have something to send.

use portolan_seal::Seal;

use crate::base::ConnIndex;
use crate::endpoint::Endpoint;
use crate::received::Owed;
use crate::tables::Listed;

impl<S: Seal> Endpoint<'_, S> {
    /// Puts a connection in the list of those that may have something to send.
    #[inline]
    pub(crate) fn make_ready(&mut self, conn: ConnIndex) {
        match self.conns[conn].listed {
            Listed::Ready => return,
            // Rare: few connections wait there, and only for one pass.
            Listed::Deferred => _ = self.core.deferred.remove(self.conns, conn),
            Listed::Starved => _ = self.core.starved.remove(self.conns, conn),
            Listed::None | Listed::Free => {}
        }
        self.conns[conn].listed = Listed::Ready;
        self.core.ready.push_back(self.conns, conn);
    }

    /// Whether a connection certainly has no packet now; false leaves that open.
    #[inline(always)]
    pub(crate) fn has_nothing(&self, now: u64, conn: ConnIndex, flush_delayed_acks: bool) -> bool {
        !self.conns[conn].outbound.has_queue() && self.owes_nothing(now, conn, flush_delayed_acks)
    }

    #[inline(never)]
    fn owes_nothing(&self, now: u64, conn: ConnIndex, flush_delayed_acks: bool) -> bool {
        let c = &self.conns[conn];
        let p = &self.paths[conn.first_path()];
        let limit = self.core.config.rekey_packets.min(self.seal.packets_max());
        let owed = p.received.owed();
        (owed == Owed::Nothing || owed == Owed::Delayed && !flush_delayed_acks)
            && (c.deferred_ack.is_none()
                || !flush_delayed_acks && self.window_open(conn.first_path(), 0))
            && !p.sent.probes.owes_ping()
            && p.way.is_usable()
            && now < p.sent.mtu.due()
            && !self.conns[conn].paths.has_more()
            && !c.paths.networks_owed
            && !c.inbound.stops.are_owed()
            && self.core.closes_owed == 0
            && c.kept.keys.over(limit).is_none()
    }

    /// Defers a connection that owes what may wait for an answer of the
    /// application, or for the next pass that sends no answer.
    #[inline]
    pub(crate) fn make_deferred(&mut self, conn: ConnIndex) {
        let c = &self.conns[conn];
        match c.listed {
            Listed::Deferred => {}
            Listed::None if !c.outbound.has_queue() => {
                self.conns[conn].listed = Listed::Deferred;
                self.core.deferred.push_back(self.conns, conn);
            }
            _ => self.make_ready(conn),
        }
    }

    /// Makes connections ready that found no frame, in the order in which they
    /// failed, once there are frames for one of them. Mostly another
    /// connection, or the link, has freed these.
    #[inline]
    pub(crate) fn wake_starved(&mut self) {
        if self.memory.pool.free_count <= self.core.starved_above || self.core.starved.is_empty() {
            return;
        }
        self.core.starved_above = u32::MAX;
        while let Some(conn) = self.core.starved.pop_front(self.conns) {
            self.conns[conn].listed = Listed::Ready;
            self.core.ready.push_back(self.conns, conn);
        }
    }
}
