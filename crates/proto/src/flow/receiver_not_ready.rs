//! Receiver not ready: the receiver reports it, the sender waits.
//!
//! Credit bounds the chunks of one peer that are held here, but the pool is
//! shared: many peers together may send more than it holds. A chunk that then
//! comes before its turn is refused: its packet shows as missing in the bitmap,
//! and the header's flags say why.

use portolan_seal::Seal;
use portolan_wire::Priority;

use crate::base::ConnIndex;
use crate::endpoint::Endpoint;
use crate::tables::Listed;

/// Divisor: room is reported once this fraction of the pool is free for it, so
/// that more than one packet follows.
const ANNOUNCE_PARTS: u32 = 32;

impl<S: Seal> Endpoint<'_, S> {
    /// Receiver: notes that a chunk was refused for want of room (P6.12).
    pub(crate) fn note_full(&mut self, conn: ConnIndex, priority: Priority) {
        if self.conns[conn].inbound.note_full(priority) {
            self.core.full = true;
            self.owe_news(conn);
        }
    }

    /// Receiver: once there is room, reports it to peers whose chunks were refused (P6.13).
    #[inline]
    pub(crate) fn tell_room(&mut self) {
        if self.core.full {
            self.announce_room();
        }
    }

    #[cold]
    fn announce_room(&mut self) {
        let frames = self.core.config.frames.div_ceil(ANNOUNCE_PARTS);
        let mut room = [false; 2];
        for priority in Priority::BY_URGENCY {
            room[priority.index()] = self.memory.pool.can_hold(priority, frames);
        }
        if room == [false; 2] {
            return;
        }
        let limit = self.hold_limit();
        self.core.full = false;
        for conn in (0..self.core.conns_used as usize).map(ConnIndex::new) {
            let c = &mut self.conns[conn];
            if c.listed == Listed::Free {
                continue;
            }
            let told = c.inbound.tell_room(room, limit);
            self.core.full |= c.inbound.full != [false; 2];
            if told {
                self.owe_news(conn);
            }
        }
    }

    /// Sender: takes over the priorities for which the peer's latest packet
    /// reports no room (P6.14).
    #[inline]
    pub(crate) fn peer_full(&mut self, now: u64, conn: ConnIndex, full: [bool; 2]) {
        if self.conns[conn].outbound.set_full(full) {
            for path in self.conns[conn].paths.iter() {
                self.path_mut(path).sent.probes.restart(now);
                self.arm_probe(now, path);
            }
            self.make_ready(conn);
        }
    }

    /// Sender: whether packets to be sent again wait for room at the peer.
    pub(crate) fn waits_for_room(&self, conn: ConnIndex) -> bool {
        self.conns[conn].outbound.waits_for_room(&self.memory)
    }

    /// Sender: lets each packet that now waits for room leave once.
    pub(crate) fn open_round(&mut self, conn: ConnIndex) {
        self.conns[conn].outbound.open_round(&self.memory);
        self.make_ready(conn);
    }
}
