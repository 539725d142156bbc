//! Refusals of one connection.

use portolan_wire::{MessageNo, Priority};

use crate::base::FLOWS_MAX;

/// Refusals of one connection; a bit stands for a flow of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refusals {
    /// Not acknowledged yet.
    flying: u32,
    /// Acknowledged, what follows in the flow was not looked at yet.
    acked: u32,
    /// Must wait for the one before, or for a frame.
    owed: u32,
    owed_message: [[MessageNo; FLOWS_MAX]; 2],
    /// When a frame is looked for again.
    pub retry_at: u64,
    /// Last refusal that the caller was told of.
    told: [[MessageNo; FLOWS_MAX]; 2],
    /// Until then the peer may repeat the last one; 0: it does not.
    pub repeats_until: u64,
}

impl Refusals {
    /// None yet; of messages before `next`, any may still be refused.
    pub fn new(next: &[[MessageNo; FLOWS_MAX]; 2]) -> Self {
        let before = |m: MessageNo| MessageNo(m.0.wrapping_sub(1 << 30));
        Self {
            flying: 0,
            acked: 0,
            owed: 0,
            owed_message: [[MessageNo(0); FLOWS_MAX]; 2],
            retry_at: u64::MAX,
            told: next.map(|flows| flows.map(before)),
            repeats_until: 0,
        }
    }

    /// Whether nothing is under way.
    pub const fn is_quiet(&self) -> bool {
        self.flying | self.acked | self.owed == 0 && self.repeats_until == 0
    }

    /// Whether an acknowledgement may let a flow go on.
    pub const fn are_flying(&self) -> bool {
        self.flying != 0
    }

    /// A message was refused; its sender is to hear of it.
    pub const fn owe(&mut self, priority: Priority, flow: u16, message: MessageNo) {
        self.owed |= bit(priority, flow);
        self.owed_message[priority.index()][flow as usize] = message;
    }

    /// Whether the refusal of a flow has yet to leave.
    #[inline]
    pub const fn is_owed(&self, priority: Priority, flow: u16) -> bool {
        self.owed & bit(priority, flow) != 0
    }

    /// The message whose refusal of a flow leaves next.
    pub const fn owed(&self, priority: Priority, flow: u16) -> MessageNo {
        self.owed_message[priority.index()][flow as usize]
    }

    /// Whether the one before is under way.
    pub const fn is_flying(&self, priority: Priority, flow: u16) -> bool {
        self.flying & bit(priority, flow) != 0
    }

    /// The refusal of a flow has a frame.
    pub const fn queued(&mut self, priority: Priority, flow: u16) {
        self.owed &= !bit(priority, flow);
        self.flying |= bit(priority, flow);
    }

    /// Those that found no frame are looked at again.
    pub const fn retry(&mut self) {
        self.retry_at = u64::MAX;
        self.acked |= self.owed & !self.flying;
    }

    /// Whether a flow may go on.
    #[inline]
    pub const fn has_acked(&self) -> bool {
        self.acked != 0
    }

    /// The first flow that may go on.
    pub const fn take_acked(&mut self) -> Option<(Priority, u16)> {
        let lowest = self.acked & self.acked.wrapping_neg();
        if lowest == 0 {
            return None;
        }
        self.acked &= !lowest;
        self.flying &= !lowest;
        Some(flow_of(lowest))
    }

    /// The last refusal of a flow that the caller was told of, if there is such a
    /// flow.
    pub fn told(&mut self, priority: Priority, flow: u16) -> Option<&mut MessageNo> {
        self.told[priority.index()].get_mut(flow as usize)
    }

    /// Nobody is left to hear of refusals; the flows may go on.
    pub const fn drop_all(&mut self) {
        self.acked |= self.flying | self.owed;
        (self.flying, self.owed) = (0, 0);
        self.retry_at = u64::MAX;
    }

    /// The frame with the refusal of a flow was acknowledged.
    pub const fn acknowledged(&mut self, priority: Priority, flow: u16) {
        self.acked |= bit(priority, flow);
    }
}

/// The bit of a flow, in a set of those of both priorities.
pub(crate) const fn bit(priority: Priority, flow: u16) -> u32 {
    1 << (priority.index() * FLOWS_MAX + flow as usize)
}

/// The flow of the lowest bit that is set.
pub(crate) const fn flow_of(bits: u32) -> (Priority, u16) {
    let i = bits.trailing_zeros() as u16;
    if i >= FLOWS_MAX as u16 {
        (Priority::Reply, i - FLOWS_MAX as u16)
    } else {
        (Priority::Request, i)
    }
}
