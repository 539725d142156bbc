//! Long messages between processes that can reach into each other's memory: if both sides wait,
//! each copies one half at the same time.

use super::Exchange;
use crate::state::Waiting;
use crate::values::{Did, IncomingOutcome, Kind, OpError, OpId, Sink, Source};

/// Shortest rest of a message that both sides copy, bytes: half of a shorter one takes no longer
/// to copy than the round trip that arranges it.
pub const SHARE_MIN: u64 = 128 << 10;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Handles the outcome of publishing: the sender writes the first half of the missing bytes
    /// and we copy the other, or all are pulled.
    pub(crate) fn has_published(&mut self, id: OpId, key: u64, did: Did) {
        let Some(meeting) = self.ops.meeting(id) else {
            return;
        };
        if did != Did::Done {
            self.pull_rest(id);
            return;
        }
        let (from, op, at) = (meeting.from, meeting.offer.unwrap_or(0), meeting.asked);
        let half = meeting.half();
        meeting.asked += half;
        (meeting.published, meeting.published_end) = (key, meeting.asked);
        // Before our own half: the sender begins while we copy.
        self.say(from, Kind::Pull, [op, at, half, id.0, key]);
        self.peers.push(from, Waiting::Fetch(id));
    }

    /// Handles the sender's report that it has written a part to our memory.
    pub(crate) fn was_written(
        &mut self,
        from: u32,
        id: OpId,
        at: u64,
        bytes: u64,
    ) -> IncomingOutcome {
        let end = at.checked_add(bytes);
        let published = (self.ops.meeting(id))
            .is_some_and(|it| it.published != 0 && end.is_some_and(|end| end <= it.published_end));
        if !published || !self.was_asked(from, id, at, bytes) {
            return IncomingOutcome::Refused;
        }
        self.answer_ends(id, bytes);
        IncomingOutcome::Whole
    }

    /// Ends a receive, once its memory is not written any more.
    pub(crate) fn end_receive(&mut self, id: OpId, result: Result<(), OpError>) {
        let published = self.ops.meeting(id).filter(|it| it.published != 0);
        let Some(meeting) = published else {
            return self.end_met(id, result);
        };
        meeting.ending = Some(result);
        // No more bytes of the message are taken.
        meeting.asked = meeting.came;
        let from = meeting.from;
        self.peers.push(from, Waiting::Withdraw(id));
    }

    pub(crate) fn has_withdrawn(&mut self, id: OpId) {
        if let Some(result) = self.ops.meeting(id).and_then(|meeting| meeting.ending) {
            self.end_met(id, result);
            self.stand_again();
        }
    }

    /// Tries again to withdraw the memory of receives that end.
    pub(crate) fn end_hidden(&mut self) {
        for id in self.hiding.drain(..) {
            if let Some(meeting) = self.ops.meeting(id) {
                self.peers.push(meeting.from, Waiting::Withdraw(id));
            }
        }
    }
}
