//! Receives: posted before their message or after it; probes and claims.

use alloc::vec::Vec;

use portolan_matching::{Arrival, Post, ReceivePlace, Selector};

use super::Exchange;
use crate::state::{
    Body, LEAST, Many, Meeting, Message, Origin, Receive, ReceiveStage, SendStage, Waiting,
};
use crate::values::{
    Did, Kind, MessageId, NOBODY, Notify, OpError, OpId, Probed, Sink, Source, copy_source,
};

/// Largest number of spare vectors for messages, and largest capacity of one, bytes.
const SPARE_MAX: usize = 64;
const SPARE_BYTES: usize = 64 << 10;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Posts a receive for the first message that fits `selector`, of those that wait or will
    /// arrive.
    pub fn post_receive(&mut self, selector: &Selector, sink: K, notify: Notify) -> OpId {
        let stage = ReceiveStage::Posted(None);
        let id = self.new_receive(*selector, sink, notify, stage);
        self.post(id, selector);
        id
    }

    /// Posts a receive that takes the messages that fit `selector` one behind the other, without
    /// gaps, until less than `room_min` bytes are left, at least 1. A message longer than the room
    /// left is truncated, as in other receives.
    ///
    /// The end of each message is reported as that of a receive, by the same queue and counter.
    /// When all have ended the receive ends, by [`Action::ReceiveMany`](crate::Action), and its
    /// memory is returned. Without a queue, messages are not reported.
    pub fn post_receive_many(
        &mut self,
        selector: &Selector,
        sink: K,
        room_min: u64,
        notify: Notify,
    ) -> OpId {
        let stage = ReceiveStage::Many(Many {
            ticket: None,
            room_min: room_min.max(1),
            used: 0,
            open: 0,
            ending: None,
        });
        let id = self.new_receive(*selector, sink, notify, stage);
        while self.ops.has_room(id) {
            let Some((_, number)) = self.matcher.claim(selector) else {
                self.post(id, selector);
                return id;
            };
            let total = self.messages.get(number).map_or(0, |m| m.what.total);
            if let Some(one) = self.ops.begin_slice(id, total) {
                self.join(one, number);
            }
        }
        self.ops.end_posted(id, Ok(()));
        id
    }

    /// Has a receive take the first message that fits, or wait for it.
    fn post(&mut self, id: OpId, selector: &Selector) {
        let posted = self.matcher.post(*selector, id);
        if let Some(receive) = self.ops.receive(id) {
            receive.place = self.matcher.last_place();
        }
        let ticket = match posted {
            Post::Matched(met) => return self.join(id, met.message),
            Post::Posted(ticket) => ticket,
        };
        match self.ops.receive(id).map(|receive| &mut receive.stage) {
            Some(ReceiveStage::Many(many)) => {
                many.ticket = Some(ticket);
                self.ops.many += 1;
            }
            Some(stage) => *stage = ReceiveStage::Posted(Some(ticket)),
            None => {}
        }
        let hopeless = selector.source.is_some_and(|source| {
            // A dead sender sends nothing more.
            self.peers.get(source).is_none_or(|peer| peer.dead)
        });
        if hopeless {
            self.matcher.cancel(ticket);
            self.ops.end_posted(id, Err(OpError::PeerDead));
        } else {
            let source = selector.source.unwrap_or(NOBODY);
            self.ops.set_awaits(id, source);
        }
    }

    /// Posts receives from any source whose message was lost again, at their old places.
    pub(crate) fn stand_again(&mut self) {
        let again = core::mem::take(&mut self.again);
        let place = |id: OpId| Some((self.ops.receive(id)?.place, id));
        let mut again: Vec<_> = again.into_iter().filter_map(place).collect();
        again.sort_unstable();
        again.retain(|(_, id)| !self.meet_another(*id));
        for (place, id) in again.into_iter().rev() {
            let Some(selector) = self.ops.receive(id).map(|receive| receive.selector) else {
                continue;
            };
            let ticket = self.matcher.wait_again(place, &selector, id);
            if let Some(receive) = self.ops.receive(id) {
                receive.stage = ReceiveStage::Posted(Some(ticket));
            }
        }
    }

    /// Has a receive whose message was lost take another that waits; false: none fits.
    fn meet_another(&mut self, id: OpId) -> bool {
        let Some(receive) = self.ops.receive(id) else {
            return true;
        };
        receive.stage = ReceiveStage::Posted(None);
        let selector = receive.selector;
        self.ops.set_awaits(id, NOBODY);
        if let Some(op) = self.ops.get_mut(id) {
            (op.tag, op.data) = (selector.tag, None);
        }
        let claimed = self.matcher.claim(&selector);
        let is_met = claimed.is_some();
        if let Some((_, message)) = claimed {
            self.join(id, message);
        }
        is_met
    }

    pub(crate) fn new_receive(
        &mut self,
        selector: Selector,
        sink: K,
        notify: Notify,
        stage: ReceiveStage,
    ) -> OpId {
        let receive = Receive {
            sink: Some(sink),
            slice: None,
            selector,
            place: ReceivePlace::default(),
            stage,
        };
        (self.ops).insert(Body::Receive(receive), notify, selector.tag, None)
    }

    /// Whether an operation is a receive from any source that has met no message.
    #[must_use]
    pub fn is_from_anybody(&mut self, id: OpId) -> bool {
        self.ops.receive(id).is_some_and(|receive| {
            receive.selector.source.is_none() && !matches!(receive.stage, ReceiveStage::Met(_))
        })
    }

    /// The message that a receive with this selector would take.
    pub fn probe(&mut self, selector: &Selector) -> Option<Probed> {
        let (_, _, &number) = self.matcher.peek(selector)?;
        self.messages.get(number).map(|message| message.what)
    }

    /// Takes out the message that a receive with this selector would take: for
    /// [`Exchange::receive_claimed`] or [`Exchange::discard`].
    pub fn claim(&mut self, selector: &Selector) -> Option<(MessageId, Probed)> {
        let (_, number) = self.matcher.claim(selector)?;
        let message = self.messages.get_mut(number)?;
        message.claimed = true;
        Some((MessageId(number), message.what))
    }

    /// Whether `message` was claimed, and neither received nor discarded.
    #[must_use]
    pub fn is_claimed(&self, message: &MessageId) -> bool {
        let found = self.messages.get(message.0);
        found.is_some_and(|m| m.claimed && m.met.is_none())
    }

    /// Receives a claimed message.
    pub fn receive_claimed(&mut self, claimed: MessageId, sink: K, notify: Notify) -> OpId {
        let what = self
            .messages
            .get(claimed.0)
            .map(|m| (m.what.from, m.what.tag));
        let (from, tag) = what.unwrap_or((u32::MAX, 0));
        let stage = ReceiveStage::Posted(None);
        let id = self.new_receive(Selector::from(from, tag), sink, notify, stage);
        self.join(id, claimed.0);
        id
    }

    /// Discards a claimed message; to its sender it counts as received.
    pub fn discard(&mut self, claimed: MessageId, nothing: K) {
        // Received without memory: pushes in flight still have to arrive.
        let id = self.receive_claimed(claimed, nothing, Notify::default());
        self.forget_end(id);
    }

    /// Returns the receive that an arriving message meets. `None`: the caller must keep the
    /// message at once.
    pub(crate) fn first_receive(&mut self, what: &Probed) -> Option<OpId> {
        if let Some(id) = self.raise_for(what) {
            return Some(id);
        }
        if self.ops.many > 0
            && let Some((ticket, &id)) = self.matcher.peek_posted(&what.envelope())
            && let Some(one) = self.ops.begin_slice(id, what.total)
        {
            if !self.ops.has_room(id) {
                self.matcher.cancel(ticket);
                self.ops.end_posted(id, Ok(()));
            }
            return Some(one);
        }
        // If no receive fits, the matcher knows the message by the number it is kept under.
        match self.matcher.arrive(what.envelope(), self.messages.next()) {
            Arrival::Unexpected(_) => None,
            Arrival::Matched(met) => Some(met.receive),
        }
    }

    /// Keeps a message that [`Exchange::first_receive`] found none for; `pushes` of its pushes are
    /// missing.
    pub(crate) fn keep(
        &mut self,
        what: Probed,
        origin: Origin,
        body: Vec<u8>,
        charge: u64,
        pushes: u32,
        overlap: bool,
    ) -> u64 {
        if let Some(peer) = self.peers.get(what.from) {
            peer.offers += u32::from(matches!(origin, Origin::Offer { .. }));
            if origin == Origin::Eager && what.from == self.config.rank {
                peer.taken += charge;
            }
        }
        self.messages.insert(Message {
            what,
            origin,
            overlap,
            body,
            pushes,
            charge,
            met: None,
            claimed: false,
            lost: false,
            late: 0,
        })
    }

    /// Notes that a receive has met a message: `origin` is where the rest of it is, `pushed` the
    /// bytes that are pushed, of which `pushes` pushes are missing.
    pub(crate) fn meet(
        &mut self,
        id: OpId,
        what: &Probed,
        origin: Origin,
        pushed: u64,
        pushes: u32,
        overlap: bool,
    ) {
        let Some(receive) = self.ops.receive(id) else {
            return;
        };
        let mut meeting = Meeting::new(what, receive.room(), pushed, pushes);
        meeting.overlap = overlap;
        if let Origin::Offer {
            op,
            address,
            shares,
            ..
        } = origin
        {
            meeting.offer = Some(op);
            (meeting.address, meeting.shares) = (address, shares);
            meeting.begun = false;
        }
        self.ops.meet(id, what.tag, what.data, meeting);
    }

    /// Has a receive take a message that is kept.
    fn join(&mut self, id: OpId, number: u64) {
        let Some(message) = self.messages.get_mut(number) else {
            self.ops.end(id, Err(OpError::PeerDead));
            return;
        };
        let (what, origin, lost) = (message.what, message.origin, message.lost);
        let (pushes, overlap) = (message.pushes, message.overlap);
        // The body of a message that is being handed over comes in one piece.
        let pushed = match origin {
            Origin::Eager => what.total,
            _ => message.body.len() as u64,
        };
        message.met = Some(id);
        self.meet(id, &what, origin, pushed, pushes, overlap);
        if lost {
            self.release_message(number);
            self.ops.end(id, Err(OpError::PeerDead));
            return;
        }
        if let Origin::Local(op) = origin {
            self.release_message(number);
            self.copy_local(op, id);
        } else if pushes == 0 {
            self.move_body(number);
        } else {
            self.fetch_rest(id);
        }
        if matches!(origin, Origin::Offer { .. }) {
            self.pull_ahead(&what);
        }
    }

    /// Writes a kept message, whose pushes are all here, to the receive that it has met.
    pub(crate) fn move_body(&mut self, number: u64) {
        let Some(message) = self.messages.get_mut(number) else {
            return;
        };
        let Some(id) = message.met else { return };
        let body = core::mem::take(&mut message.body);
        self.write(id, 0, &body);
        if let Some(message) = self.messages.get_mut(number) {
            message.body = body;
        }
        if let Some(meeting) = self.ops.meeting(id) {
            meeting.pushes = 0;
        }
        self.fetch_rest(id);
        self.settle(id);
        self.release_message(number);
    }

    /// Removes a kept message and frees its room.
    pub(crate) fn release_message(&mut self, number: u64) {
        let Some(message) = self.messages.remove(number) else {
            return;
        };
        let from = message.what.from;
        if let Some(peer) = self.peers.get(from) {
            peer.offers -= u32::from(matches!(message.origin, Origin::Offer { .. }));
        }
        self.keep_vector(message.body);
        self.freed = true;
        self.free_pushed(from, message.charge);
        self.free_late(from, message.late);
    }

    /// Frees room for pushed bytes that are no longer kept.
    pub(crate) fn free_pushed(&mut self, from: u32, charge: u64) {
        let room = self.room_of(from);
        let Some(peer) = self.peers.get(from) else {
            return;
        };
        peer.freed += charge;
        if from != self.config.rank
            && !peer.dead
            && let Some(limit) = peer.limit_update(room)
        {
            self.say(from, Kind::Credit, [limit]);
        }
    }

    /// An empty vector with room for `bytes` bytes.
    pub(crate) fn vector(&mut self, bytes: u64) -> Vec<u8> {
        let mut vector = self.spare.pop().unwrap_or_default();
        vector.clear();
        vector.reserve_exact(bytes as usize);
        vector
    }

    pub(crate) fn keep_vector(&mut self, vector: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && (1..=SPARE_BYTES).contains(&vector.capacity()) {
            self.spare.push(vector);
        }
    }

    /// Writes bytes of a message to its receive's memory, as far as they fit.
    pub(crate) fn write(&mut self, id: OpId, at: u64, bytes: &[u8]) {
        if let Some((meeting, sink, start)) = self.ops.met(id) {
            let room = meeting.want.saturating_sub(at);
            let fits = room.min(bytes.len() as u64) as usize;
            if fits > 0 {
                sink.write(start + at, &bytes[..fits]);
            }
        }
    }

    /// Begins to get the bytes that are not pushed, once they may be requested.
    pub(crate) fn fetch_rest(&mut self, id: OpId) {
        let Some(meeting) = self.ops.meeting(id) else {
            return;
        };
        if meeting.begun || (meeting.pushes > 0 && !meeting.overlap) {
            return;
        }
        meeting.begun = true;
        let (from, address, bytes) = (meeting.from, meeting.address, meeting.end - meeting.asked);
        if bytes == 0 {
            return;
        }
        let both = meeting.shares && bytes >= self.config.share_min.max(LEAST);
        if address == 0 || address.checked_add(meeting.want).is_none() {
            self.pull_rest(id);
        } else if both {
            let key = self.regions.words.draw();
            (self.peers).push(from, Waiting::Publish { receive: id, key });
        } else {
            self.peers.push(from, Waiting::Fetch(id));
        }
    }

    /// Requests all missing bytes by messages.
    pub(crate) fn pull_rest(&mut self, id: OpId) {
        if let Some(from) = self.ops.asks(id) {
            if !self.terms(from).push.masking {
                self.peers.push(from, Waiting::Prepare(id));
            }
            self.pull(id);
        }
    }

    /// Handles the outcome of filling a receive's memory from the sender's.
    pub(crate) fn has_fetched(&mut self, id: OpId, did: Did) {
        let Some(meeting) = self.ops.meeting(id) else {
            return;
        };
        match did {
            Did::Done => {
                meeting.end = meeting.asked;
                self.settle(id);
            }
            // The sender's death ends the receive.
            Did::Dead => {}
            _ if meeting.published == 0 => self.pull_rest(id),
            _ => self.pull(id),
        }
    }

    /// Ends a receive that lacks nothing.
    pub(crate) fn settle(&mut self, id: OpId) {
        let Some(meeting) = self.ops.meeting(id) else {
            return;
        };
        let lacks = meeting.pushes > 0 || !meeting.begun || meeting.answered < meeting.end;
        if lacks || meeting.ending.is_some() {
            return;
        }
        let (from, offer) = (meeting.from, meeting.offer);
        let result = if meeting.total > meeting.want {
            Err(OpError::Truncated)
        } else {
            Ok(())
        };
        self.end_receive(id, result);
        if let Some(op) = offer {
            self.say(from, Kind::Done, [op]);
        }
    }

    /// Copies from a send to a receive of this process, and ends both.
    pub(crate) fn copy_local(&mut self, from: OpId, to: OpId) {
        let source = self.ops.send(from).and_then(|send| send.source.take());
        let (Some(source), Some((meeting, sink, start))) = (source, self.ops.met(to)) else {
            return;
        };
        let bytes = meeting.want;
        copy_source(&source, sink, start, bytes);
        let result = if source.len() > bytes {
            Err(OpError::Truncated)
        } else {
            Ok(())
        };
        if let Some(send) = self.ops.send(from) {
            send.source = Some(source);
            send.stage = SendStage::Answered;
        }
        self.ops.end(to, result);
        self.end_send(from);
    }
}
