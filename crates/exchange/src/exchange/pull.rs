//! Pulling: the order of requests, and their answers.

use super::Exchange;
use crate::state::{Meeting, SendStage, Waiting};
use crate::values::{Kind, LaneTerms, OpId, Sink, Source};

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Schedules the missing bytes of a message to be pulled.
    pub(crate) fn pull(&mut self, id: OpId) {
        if let Some(meeting) = self.ops.meeting(id) {
            let (left, from) = (meeting.end - meeting.asked, meeting.from);
            let known = self.knows(from);
            self.pulls.wait(self.config.number, left, id, (from, known));
            self.ask();
        }
    }

    /// Passes the schedule of pulls to another exchange of the endpoint, or takes it back.
    pub fn swap_pulls(&mut self, other: &mut Self) {
        core::mem::swap(&mut self.pulls, &mut other.pulls);
    }

    /// Returns the exchange whose turn to ask it is, if it is another. The caller passes the
    /// schedule to that one and calls its [`Exchange::take_turn`].
    pub const fn next_turn(&mut self) -> Option<u8> {
        self.pulls.turn.take()
    }

    /// Takes this exchange's turn to ask, or to use room that another has freed.
    pub fn take_turn(&mut self) {
        self.hand_over_in_turns();
        self.ask();
    }

    /// Requests as many bytes as may be in flight.
    pub(crate) fn ask(&mut self) {
        self.ask_for_own();
        self.freed |= self.pulls.turn.is_some();
    }

    fn ask_for_own(&mut self) {
        while let Some(id) = self.pulls.next(self.config.number) {
            if self.ask_for_get(id) {
                continue;
            }
            let Some(&mut Meeting { from, .. }) = self.ops.meeting(id) else {
                continue;
            };
            let known = self.knows(from);
            let LaneTerms { push, pull_min, .. } = *self.terms(from);
            let mut chunk = self.config.pull_chunk.max(pull_min);
            if chunk == self.config.pull_chunk {
                chunk = self.pulls.share(from, chunk);
            }
            let Some(meeting) = self.ops.meeting(id) else {
                continue;
            };
            let (at, left) = (meeting.asked, meeting.end - meeting.asked);
            let bytes = left.min(chunk.max(1));
            let args = [meeting.offer.unwrap_or(0), at, bytes, id.0];
            meeting.asked += bytes;
            self.pulls.asked((from, known), bytes);
            if bytes < left {
                let left = left - bytes;
                self.pulls.wait(self.config.number, left, id, (from, known));
            }
            self.say(from, Kind::Pull, args);
            if push.masking {
                self.unready.push_back((id, at, bytes));
            }
        }
    }

    /// Requests the next part of a get; false: the operation is no get.
    fn ask_for_get(&mut self, id: OpId) -> bool {
        let Some(remote) = self.ops.remote(id) else {
            return false;
        };
        if let Some(bytes) = remote.next_ask() {
            let at = remote.asked;
            remote.asked += bytes;
            remote.asks += 1;
            let (from, left) = (remote.to, remote.total - remote.asked);
            let whom = (from, self.knows(from));
            self.pulls.asked(whom, bytes);
            if left > 0 {
                self.pulls.wait(self.config.number, left, id, whom);
            }
            self.peers.push(from, Waiting::Ask { op: id, at, bytes });
            if self.terms(from).push.masking {
                self.unready.push_back((id, at, bytes));
            }
        }
        true
    }

    /// Whether a receive has requested these bytes next; then they have begun to arrive (P13.8).
    pub(crate) fn was_asked(&mut self, from: u32, id: OpId, at: u64, bytes: u64) -> bool {
        self.ops.meeting(id).is_some_and(|meeting| {
            let fits = meeting.from == from
                && meeting.came == at
                && bytes > 0
                && bytes <= meeting.asked - meeting.came;
            if fits {
                meeting.came += bytes;
            }
            fits
        })
    }

    /// Ends an answer that has arrived in full.
    pub(crate) fn answer_ends(&mut self, id: OpId, bytes: u64) {
        if let Some(meeting) = self.ops.meeting(id) {
            let due = meeting.due();
            meeting.answered += bytes;
            self.pulls.came(meeting.from, due - meeting.due());
            self.settle(id);
            self.ask();
        }
    }

    /// Handles, for the sender, a request for a part of an offered message. An invalid one is not
    /// answered (P13.7).
    pub(crate) fn asked(&mut self, from: u32, [op, at, bytes, receive, key]: [u64; 5]) {
        let op = OpId(op);
        let Some(send) = self.ops.send(op) else {
            return;
        };
        // In order and once: a peer can request no more than the message.
        let fits = send.to == from
            && send.stage == SendStage::Offered
            && send.gone == at
            && bytes > 0
            && at.checked_add(bytes).is_some_and(|end| end <= send.total);
        if !fits {
            return;
        }
        send.gone += bytes;
        send.due += bytes;
        if send.due > bytes {
            // Answered together with the part that waits for room: a peer that requests little and
            // takes nothing makes us keep no more.
            return;
        }
        let waits = (self.peers.get(from)).is_some_and(|peer| peer.lines.replies() > 0);
        let what = if key != 0 && !waits {
            Waiting::Write { op, receive, key }
        } else {
            Waiting::Answer { op, receive }
        };
        self.peers.push(from, what);
    }
}
