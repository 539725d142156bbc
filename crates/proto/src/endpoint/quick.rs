//! Quick ways for one small message: they end in the state in which the usual ways end, and are
//! taken only while nothing about the connection or the endpoint is unusual.

use portolan_seal::Seal;
use portolan_wire::{ARGS_MAX, MessageNo};

use crate::base::{ConnIndex, Message, PeerId, Transmit};
use crate::endpoint::Endpoint;
use crate::endpoint::transmit::chunk_bytes;
use crate::memory::Need;
use crate::tables::{Listed, PeerState};

impl<S: Seal> Endpoint<'_, S> {
    /// Seals a message that fits one packet as the next packet to send, as
    /// [`send`](Endpoint::send) and one [`poll_transmit`](Endpoint::poll_transmit) would. `None`:
    /// something is in its way, and nothing was done.
    #[inline]
    pub fn send_one(
        &mut self,
        now: u64,
        peer: PeerId,
        m: &Message<'_>,
    ) -> Option<(MessageNo, Transmit)> {
        let conn = self.clear_way(now, peer, m)?;
        let outbound = &mut self.conns[conn].outbound;
        let frame = outbound.pass(&mut self.memory, conn, m.priority, m.flow)?;
        let message = self.add_message(conn, frame, m);
        let c = &mut self.conns[conn];
        c.silence.used(now);
        if c.listed == Listed::Deferred {
            self.core.queues.deferred.remove(self.conns, conn);
        }
        // In no list, so that nothing below enters it.
        self.conns[conn].listed = Listed::Ready;
        self.memory.pool.refused_above = u32::MAX;
        let t = self.depart_data(now, conn.first_path(), frame);
        if !self.conns[conn].unusual.is_nothing() {
            self.conns[conn].unusual = self.find_unusual(conn);
        }
        if self.has_nothing(now, conn, false) {
            self.rest(conn);
        } else {
            self.core.queues.burst = 1;
            self.core.queues.ready.push_back(self.conns, conn);
        }
        Some((message, t))
    }

    /// The connection by which a message may leave at once.
    #[inline]
    fn clear_way(&self, now: u64, peer: PeerId, m: &Message<'_>) -> Option<ConnIndex> {
        let core = &*self.core;
        let p = self.peers.get(peer.index())?;
        if p.state != PeerState::Up
            || m.flow >= core.config.flows
            || m.args.len() > ARGS_MAX
            || core.closing
            || core.is_unusual()
        {
            return None;
        }
        let conn = p.conn;
        let c = self.conns.get(conn.index())?;
        let sent = &self.paths[conn.first_path()].sent;
        let is_clear = c.unusual.is_nothing()
            && !c.outbound.has_queue()
            && c.outbound
                .takes(m.priority, m.flow, core.config.queue_frames)
            && c.outbound.kept.has_credit(m.priority.index())
            && self.memory.pool.may_take(Need::message(m.priority))
            && chunk_bytes(m) <= self.memory.chunk_room(sent.mtu.current())
            && sent.is_open(0)
            && sent.ready_at(now) <= now;
        is_clear.then_some(conn)
    }
}
