//! Acknowledgements that are owed, and those that leave.

use portolan_seal::Seal;
use portolan_wire::Ack;

use crate::base::{ConnIndex, FrameIndex, PathIndex};
use crate::endpoint::Endpoint;
use crate::received::Owed;

impl<S: Seal> Endpoint<'_, S> {
    /// Notes that an acknowledgement must leave in this pass.
    pub(crate) fn owe_now(&mut self, path: PathIndex) {
        let p = self.path_mut(path);
        p.received.owe(Owed::Now);
        let conn = p.conn;
        self.make_ready(conn);
    }

    /// Notes that news of credit or room must leave in this pass: by the path
    /// that the peer uses, for others may lead nowhere.
    pub(crate) fn owe_news(&mut self, conn: ConnIndex) {
        self.owe_now(self.conns[conn].paths.heard_by());
    }

    /// Makes the acknowledgement that leaves now, and records what it grants.
    pub(crate) fn make_ack(&mut self, now: u64, path: PathIndex) -> Ack {
        let room = self.room(now, path);
        let is_starved = now < self.core.starved_until;
        let p = self.path_mut(path);
        let (conn, id) = (p.conn, p.way.id);
        let mut ack = p.received.ack(now, room);
        if is_starved {
            ack.delay = u16::MAX;
        }
        ack.path = id;
        ack.credit = self.conns[conn].inbound.credit(self.hold_limit());
        ack
    }

    /// Notes that an acknowledgement with this credit has left with a packet.
    pub(crate) fn ack_left(&mut self, path: PathIndex, credit: [u32; 2]) {
        let p = self.path_mut(path);
        p.received.acknowledged();
        let conn = p.conn;
        self.conns[conn].inbound.advertised = credit;
    }

    /// The first part of a frame was acknowledged: the next one leaves, once
    /// the link has returned the frame.
    #[cold]
    pub(crate) fn go_on_with_rest(&mut self, conn: ConnIndex, frame: FrameIndex) {
        let outbound = &mut self.conns[conn].outbound;
        if outbound.go_on_with_rest(&mut self.memory, frame) {
            self.make_ready(conn);
        }
    }
}
