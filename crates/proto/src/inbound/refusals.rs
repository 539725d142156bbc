//! Refusals of one connection.

use portolan_wire::{MessageNo, Priority};

use super::{bit, flow_of};
use crate::base::FLOWS_MAX;

/// Refusals of one connection; a bit stands for a flow of a priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refusals {
    /// Not acknowledged yet.
    flying: u32,
    /// Acknowledged; messages that follow in the flow have not gone on yet.
    acked: u32,
    /// Waits for the refusal before, or for a frame.
    owed: u32,
    owed_message: [[MessageNo; FLOWS_MAX]; 2],
    /// When a frame is tried for again, ns; `u64::MAX`: never.
    pub retry_at: u64,
    /// Last refusal reported to the caller.
    told: [[MessageNo; FLOWS_MAX]; 2],
    /// Until when the peer may repeat its last refusal, ns; 0: it does not.
    pub repeats_until: u64,
}

impl Refusals {
    /// No refusal yet; any message before `next` may still be refused.
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

    /// Whether no refusal is pending in either direction.
    pub const fn is_quiet(&self) -> bool {
        self.flying | self.acked | self.owed == 0 && self.repeats_until == 0
    }

    /// Whether an acknowledgement may let a flow go on.
    pub const fn are_flying(&self) -> bool {
        self.flying != 0
    }

    /// Notes that the refusal of a message is to be sent.
    pub const fn owe(&mut self, priority: Priority, flow: u16, message: MessageNo) {
        self.owed |= bit(priority, flow);
        self.owed_message[priority.index()][flow as usize] = message;
    }

    /// Whether the refusal of a flow has yet to leave.
    #[inline]
    pub const fn is_owed(&self, priority: Priority, flow: u16) -> bool {
        self.owed & bit(priority, flow) != 0
    }

    /// Message whose refusal leaves next in a flow.
    pub const fn owed(&self, priority: Priority, flow: u16) -> MessageNo {
        self.owed_message[priority.index()][flow as usize]
    }

    /// Whether a refusal of the flow is in flight.
    pub const fn is_flying(&self, priority: Priority, flow: u16) -> bool {
        self.flying & bit(priority, flow) != 0
    }

    /// Notes that the refusal of a flow has a frame.
    pub const fn queued(&mut self, priority: Priority, flow: u16) {
        self.owed &= !bit(priority, flow);
        self.flying |= bit(priority, flow);
    }

    /// Lets flows go on whose refusal found no frame, to try again.
    pub const fn retry(&mut self) {
        self.retry_at = u64::MAX;
        self.acked |= self.owed & !self.flying;
    }

    /// Whether any flow may go on.
    #[inline]
    pub const fn has_acked(&self) -> bool {
        self.acked != 0
    }

    /// Removes and returns the first flow that may go on.
    pub const fn take_acked(&mut self) -> Option<(Priority, u16)> {
        let lowest = self.acked & self.acked.wrapping_neg();
        if lowest == 0 {
            return None;
        }
        self.acked &= !lowest;
        self.flying &= !lowest;
        Some(flow_of(lowest))
    }

    /// Last refusal of a flow that was reported to the caller; `None`: there is
    /// no such flow.
    pub fn told(&mut self, priority: Priority, flow: u16) -> Option<&mut MessageNo> {
        self.told[priority.index()].get_mut(flow as usize)
    }

    /// Drops all refusals, as the peer is gone; the flows may go on.
    pub const fn drop_all(&mut self) {
        self.acked |= self.flying | self.owed;
        (self.flying, self.owed) = (0, 0);
        self.retry_at = u64::MAX;
    }

    /// Notes that the frame with a flow's refusal was acknowledged.
    pub const fn acknowledged(&mut self, priority: Priority, flow: u16) {
        self.acked |= bit(priority, flow);
    }
}
