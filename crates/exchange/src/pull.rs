//! Whose bytes are asked for next: of all messages that are being received the
//! one that lacks least, and only so much at once as the way to us can hold.

use alloc::collections::BTreeSet;

use crate::exchange::{Exchange, Waiting};
use crate::host::{Host, Refusal, Sink, Source};
use crate::kind::Kind;
use crate::ops::{Meeting, OpId, SendStage};

/// The receiver's side.
#[derive(Debug)]
pub(crate) struct Pulls {
    /// Receives by the bytes that have not been asked for.
    waiting: BTreeSet<(u64, OpId)>,
    /// Bytes that were asked for and have not arrived.
    outstanding: u64,
}

impl Pulls {
    pub const fn new() -> Self {
        Self {
            waiting: BTreeSet::new(),
            outstanding: 0,
        }
    }

    pub const fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// A receive that is being pulled is given up.
    pub fn forget(&mut self, id: OpId, meeting: &Meeting) {
        self.waiting.remove(&(meeting.want - meeting.asked, id));
        self.outstanding -= meeting.asked - meeting.answered;
    }
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// The rest of a message is to be pulled.
    pub(crate) fn pull(&mut self, host: &mut impl Host<Source = S, Sink = K>, id: OpId) {
        if let Some(meeting) = self.ops.meeting(id) {
            host.await_peer(meeting.from);
            self.pulls
                .waiting
                .insert((meeting.want - meeting.asked, id));
            self.ask(host);
        }
    }

    /// Asks for as much as may be under way.
    pub(crate) fn ask(&mut self, host: &mut impl Host<Source = S, Sink = K>) {
        while self.pulls.outstanding < self.config.pull_window
            && let Some((_, id)) = self.pulls.waiting.pop_first()
        {
            let Some(meeting) = self.ops.meeting(id) else {
                continue;
            };
            let left = meeting.want - meeting.asked;
            let bytes = left.min(self.config.pull_chunk.max(1));
            let args = [meeting.offer.unwrap_or(0), meeting.asked, bytes, id.0];
            let (from, at) = (meeting.from, meeting.asked);
            meeting.asked += bytes;
            self.pulls.outstanding += bytes;
            if bytes < left {
                self.pulls.waiting.insert((left - bytes, id));
            }
            self.say(host, from, Kind::Pull, args);
            if host.push(from).masking
                && let Some(receive) = self.ops.receive(id)
                && let Some(sink) = &mut receive.sink
            {
                host.prepare(sink, at, bytes);
            }
        }
    }

    /// Whether a receive has asked for these bytes, and they are the next.
    pub(crate) fn was_asked(&mut self, from: u32, id: OpId, at: u64, bytes: u64) -> bool {
        self.ops.meeting(id).is_some_and(|meeting| {
            meeting.from == from
                && meeting.answered == at
                && bytes > 0
                && bytes <= meeting.asked - meeting.answered
        })
    }

    /// All of an answer has arrived.
    pub(crate) fn answer_ends(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
        bytes: u64,
    ) {
        if let Some(meeting) = self.ops.meeting(id) {
            meeting.answered += bytes;
            self.pulls.outstanding -= bytes;
            self.settle(host, id);
            self.ask(host);
        }
    }

    /// The sender's side: somebody asks for a part of an offered message. What
    /// makes no sense is not answered.
    pub(crate) fn asked(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        from: u32,
        [op, at, bytes, receive]: [u64; 4],
    ) {
        let op = OpId(op);
        let Some(send) = self.ops.send(op) else {
            return;
        };
        // In order and once: so a peer can ask for no more than the message.
        let fits = send.to == from
            && send.stage == SendStage::Offered
            && send.gone == at
            && bytes > 0
            && at.checked_add(bytes).is_some_and(|end| end <= send.total);
        if !fits {
            return;
        }
        send.gone += bytes;
        if self.waits_for(from, Kind::Pulled)
            || self.answer(host, op, receive, at, bytes) == Err(Refusal::NoRoom)
        {
            self.put_off(
                from,
                Waiting::Answer {
                    op,
                    receive,
                    at,
                    bytes,
                },
            );
        }
    }
}
