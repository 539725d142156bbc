//! Receiver not ready, at the sender: packets that found no room wait until the peer reports some.
//!
//! A resend at once would find no room again, every round trip. So refused packets are kept, and
//! each is resent once with every probe: one of them may carry the message whose turn it is, which
//! needs no room, and which the chunks that the peer holds wait for.

use super::Outbound;
use crate::base::FrameIndex;
use crate::memory::{Cargo, Memory};

impl Outbound {
    /// Whether the peer has reported that it has no room.
    #[inline]
    pub fn is_refused(&self) -> bool {
        self.full != [false; 2]
    }

    /// Takes over the priorities for which the peer's latest packet reports no room. Returns
    /// whether there is room again for one of them.
    #[inline]
    pub fn set_full(&mut self, full: [bool; 2]) -> bool {
        let freed = (0..2).any(|p| self.full[p] && !full[p]);
        self.full = full;
        if !self.is_refused() {
            self.round = 0;
        }
        freed
    }

    /// Whether a packet sent again must wait until the peer has room.
    fn is_kept(full: [bool; 2], m: &Cargo) -> bool {
        m.chunks > 0 && full[m.priority.index()]
    }

    /// Whether packets to be sent again wait for room at the peer.
    pub fn waits_for_room(&self, memory: &Memory<'_>) -> bool {
        self.is_refused() && self.first(memory, true).is_some()
    }

    /// The first packet to be sent again that must wait for room, or that need not.
    fn first(&self, memory: &Memory<'_>, kept: bool) -> FrameIndex {
        let mut at = self.resend.head;
        while at.is_some() && Self::is_kept(self.full, &memory.cargo[at]) != kept {
            at = memory.cargo[at].next;
        }
        at
    }

    /// Lets each packet that now waits for room leave once.
    pub fn open_round(&mut self, memory: &Memory<'_>) {
        let (mut at, mut n) = (self.resend.head, 0);
        while at.is_some() {
            n += u32::from(Self::is_kept(self.full, &memory.cargo[at]));
            at = memory.cargo[at].next;
        }
        self.round = n;
    }

    /// Whether a packet may be sent again now.
    pub(super) fn may_resend(&self, memory: &Memory<'_>) -> bool {
        if !self.is_refused() || self.round > 0 {
            return !self.resend.is_empty();
        }
        self.first(memory, false).is_some()
    }

    /// Takes the packet to resend next; with `replies`, only packets of replies.
    pub(super) fn pick_again(
        &mut self,
        memory: &mut Memory<'_>,
        replies: bool,
    ) -> Option<FrameIndex> {
        let full = self.full;
        let fits = |m: &Cargo| !replies || m.is_reply();
        if !self.is_refused() {
            return if replies {
                self.resend.take_where(memory.cargo, fits)
            } else {
                self.resend.pop_front(memory.cargo)
            };
        }
        let may = |m: &Cargo| fits(m) && !Self::is_kept(full, m);
        if let Some(frame) = self.resend.take_where(memory.cargo, may) {
            return Some(frame);
        }
        if self.round == 0 {
            return None;
        }
        let frame = self.resend.take_where(memory.cargo, fits)?;
        self.round -= 1;
        Some(frame)
    }
}
