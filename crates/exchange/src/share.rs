//! Long messages between processes that can reach into each other's memory: while
//! both sides wait each copies one half, at once.

use crate::arrive::Took;
use crate::exchange::Exchange;
use crate::host::{FetchError, Host, Sink, Source};
use crate::kind::Kind;
use crate::ops::{OpError, OpId, Receive, ReceiveStage};

/// Shortest rest of a message that both sides copy, bytes: half of a shorter one
/// takes no longer to copy than the words about it take to and fro.
pub const SHARE_MIN: u64 = 128 << 10;

/// The halves meet at a multiple of this, bytes: no cache line is of both.
const UNIT: u64 = 64;

/// Two of those are there to be shared.
pub(crate) const LEAST: u64 = 2 * UNIT;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Lets the sender write the first half of what is missing, and copies the
    /// other. False: it cannot be; nothing was done.
    pub(crate) fn share(&mut self, host: &mut impl Host<Source = S, Sink = K>, id: OpId) -> bool {
        let key = self.regions.salt();
        let Some(Receive {
            sink: Some(sink),
            stage: ReceiveStage::Met(meeting),
            ..
        }) = self.ops.receive(id)
        else {
            return false;
        };
        let (from, op, at) = (meeting.from, meeting.offer.unwrap_or(0), meeting.asked);
        let half = ((meeting.want - at) / 2).next_multiple_of(UNIT);
        let middle = at + half;
        let Some(address) = meeting.address.checked_add(middle) else {
            return false;
        };
        if !host.publish(from, key, sink, at, half) {
            return false;
        }
        (meeting.published, meeting.published_end) = (key, middle);
        meeting.asked = middle;
        host.await_peer(from);
        // Before our own half: the sender begins while we copy.
        self.say(host, from, Kind::Pull, [op, at, half, id.0, key]);
        let Some(Receive {
            sink: Some(sink),
            stage: ReceiveStage::Met(meeting),
            ..
        }) = self.ops.receive(id)
        else {
            return true;
        };
        match host.fetch(from, address, sink, middle, meeting.want - middle) {
            Ok(()) => meeting.end = middle,
            Err(FetchError::NotPermitted) => self.pull(host, id),
            // The host has it declared dead; that ends the receive.
            Err(FetchError::Gone) => {}
        }
        true
    }

    /// The sender's side: writes a part of a message to the receiver's memory.
    /// False: it is to be sent.
    pub(crate) fn write_part_of(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
        key: u64,
        at: u64,
        bytes: u64,
    ) -> bool {
        let Some(send) = self.ops.send(id) else {
            return false;
        };
        let Some(source) = &send.source else {
            return false;
        };
        host.write_shown(send.to, key, source, at, bytes).is_ok()
    }

    /// The sender says that it has written a part to memory of ours.
    pub(crate) fn was_written(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        from: u32,
        id: OpId,
        at: u64,
        bytes: u64,
    ) -> Took {
        let end = at.checked_add(bytes);
        let published = (self.ops.meeting(id))
            .is_some_and(|it| it.published != 0 && end.is_some_and(|end| end <= it.published_end));
        if !published || !self.was_asked(from, id, at, bytes) {
            return Took::Refused;
        }
        self.answer_ends(host, id, bytes);
        Took::Whole
    }

    /// Ends a receive, once nobody writes to its memory any more.
    pub(crate) fn end_receive(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
        result: Result<(), OpError>,
    ) {
        if let Some(Receive {
            sink: Some(sink),
            stage: ReceiveStage::Met(meeting),
            ..
        }) = self.ops.receive(id)
            && meeting.published != 0
            && !host.withdraw(meeting.published, sink)
        {
            meeting.ending = Some(result);
            // Nothing more of it is taken.
            meeting.asked = meeting.came;
            self.hiding.push(id);
            return;
        }
        self.ops.end(id, result);
    }

    /// Tries again to end receives; gives how many did.
    pub(crate) fn end_hidden(&mut self, host: &mut impl Host<Source = S, Sink = K>) -> usize {
        if self.hiding.is_empty() {
            return 0;
        }
        let waiting = core::mem::take(&mut self.hiding);
        let all = waiting.len();
        for id in waiting {
            if let Some(result) = self.ops.meeting(id).and_then(|meeting| meeting.ending) {
                self.end_receive(host, id, result);
            }
        }
        all - self.hiding.len()
    }
}
