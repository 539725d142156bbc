//! Receiver not ready: the receiver reports it, the sender waits.
//!
//! Credit bounds the chunks of one peer that are held here, but the pool is
//! shared: many peers together may send more than it holds. A chunk that then
//! comes before its turn is refused: its packet shows as missing in the bitmap,
//! and the header's flags say why. A resend at once would find no room again,
//! every round trip. So the sender keeps refused packets until the receiver
//! reports room, and resends each once with every probe: one of them may carry
//! the message whose turn it is, which needs no room, and which the held chunks
//! wait for.

use portolan_seal::Seal;
use portolan_wire::Priority;

use crate::base::{ConnIndex, FrameIndex};
use crate::endpoint::Endpoint;
use crate::tables::{CHUNKS_MAX, FrameMeta, Listed};

/// Divisor: room is reported once this fraction of the pool is free for it, so
/// that more than one packet follows.
const ANNOUNCE_PARTS: u32 = 32;

impl<S: Seal> Endpoint<'_, S> {
    /// Receiver: notes that a chunk was refused for want of room.
    pub(crate) fn note_full(&mut self, conn: ConnIndex, priority: Priority) {
        let full = &mut self.conns[conn].full[priority.index()];
        if !core::mem::replace(full, true) {
            self.core.full = true;
            self.owe_news(conn);
        }
    }

    /// Receiver: once there is room, reports it to peers whose chunks were refused.
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
            room[priority.index()] = self.can_hold(priority, frames);
        }
        if room == [false; 2] {
            return;
        }
        let most = self.hold_limit() + CHUNKS_MAX;
        self.core.full = false;
        for conn in (0..self.core.conns_used as usize).map(ConnIndex::new) {
            let c = &mut self.conns[conn];
            if c.listed == Listed::Free || c.full == [false; 2] {
                continue;
            }
            let mut told = false;
            for (p, &room) in room.iter().enumerate() {
                if c.full[p] && room && c.held[p] < most && c.intervals.has_room() {
                    c.full[p] = false;
                    told = true;
                }
            }
            self.core.full |= c.full != [false; 2];
            if told {
                self.owe_news(conn);
            }
        }
    }

    /// Sender: takes over the priorities for which the peer's latest packet
    /// reports no room.
    #[inline]
    pub(crate) fn peer_full(&mut self, now: u64, conn: ConnIndex, full: [bool; 2]) {
        let c = &mut self.conns[conn];
        if c.peer_full == full {
            return;
        }
        let freed = (0..2).any(|p| c.peer_full[p] && !full[p]);
        c.peer_full = full;
        if freed {
            for path in self.conns[conn].paths.iter() {
                self.path_mut(path).sent.probes.restart(now);
                self.arm_probe(now, path);
            }
            self.make_ready(conn);
        }
    }

    /// Sender: whether a packet sent again must wait until the peer has room.
    fn is_kept(full: [bool; 2], m: &FrameMeta) -> bool {
        m.chunks > 0 && full[m.priority.index()]
    }

    /// Sender: whether packets to be sent again wait for room at the peer.
    pub(crate) fn waits_for_room(&self, conn: ConnIndex) -> bool {
        let c = &self.conns[conn];
        c.peer_full != [false; 2] && self.first_kept(conn).is_some()
    }

    fn first_kept(&self, conn: ConnIndex) -> FrameIndex {
        let c = &self.conns[conn];
        let mut at = c.resend.head;
        while at.is_some() && !Self::is_kept(c.peer_full, &self.meta[at]) {
            at = self.meta[at].next;
        }
        at
    }

    /// Sender: lets each packet that now waits for room leave once.
    pub(crate) fn open_round(&mut self, conn: ConnIndex) {
        let c = &self.conns[conn];
        let (mut at, mut n) = (c.resend.head, 0);
        while at.is_some() {
            n += u32::from(Self::is_kept(c.peer_full, &self.meta[at]));
            at = self.meta[at].next;
        }
        self.conns[conn].round = n;
        self.make_ready(conn);
    }

    /// Sender: whether a packet may be sent again now.
    pub(crate) fn may_resend(&self, conn: ConnIndex) -> bool {
        let c = &self.conns[conn];
        let mut at = c.resend.head;
        if c.peer_full == [false; 2] || c.round > 0 {
            return at.is_some();
        }
        while at.is_some() && Self::is_kept(c.peer_full, &self.meta[at]) {
            at = self.meta[at].next;
        }
        at.is_some()
    }

    /// Sender: takes the packet to resend next; with `replies`, only packets of
    /// replies.
    pub(crate) fn pick_again(&mut self, conn: ConnIndex, replies: bool) -> Option<FrameIndex> {
        let c = &mut self.conns[conn];
        let full = c.peer_full;
        let fits = |m: &FrameMeta| !replies || m.is_reply();
        if full == [false; 2] {
            c.round = 0;
            return if replies {
                c.resend.take_where(self.meta, fits)
            } else {
                c.resend.pop_front(self.meta)
            };
        }
        let may = |m: &FrameMeta| fits(m) && !Self::is_kept(full, m);
        if let Some(frame) = c.resend.take_where(self.meta, may) {
            return Some(frame);
        }
        c.round = c.round.checked_sub(1)?;
        c.resend.take_where(self.meta, fits)
    }
}
