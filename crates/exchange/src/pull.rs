//! Whose bytes are asked for next: of all messages that are being received and
//! all gets the one that lacks least, and only so much at once as the way to us can hold.
//! Several exchanges of an endpoint share one schedule: what they asked for meets in the
//! same queue before us.

use alloc::collections::BTreeMap;

use crate::exchange::Exchange;
use crate::kind::Kind;
use crate::lanes::LaneTerms;
use crate::memory::{Sink, Source};
use crate::ops::{Meeting, OpId, SendStage};
use crate::outbox::Waiting;

/// Where several ranks are asked at once, this part of the window is for all of
/// them: what one sends its own congestion control sees in time, but what many
/// send at once meets in one queue before us.
const CROWD: u64 = 8;

/// The receiver's side. Of several exchanges one at a time has it: whoever calls them
/// hands it on, by [`Exchange::swap_pulls`].
#[derive(Debug)]
pub(crate) struct Pulls {
    /// Receives and gets by the bytes that have not been asked for, with the number of
    /// their exchange; and whom they ask.
    waiting: BTreeMap<(u64, u8, OpId), u32>,
    /// Bytes that were asked for and have not arrived, by rank.
    outstanding: BTreeMap<u32, u64>,
    window: u64,
    /// Whose turn it is, if it is another's than that of the exchange that has it.
    turn: Option<u8>,
}

impl Pulls {
    pub const fn new(window: u64) -> Self {
        Self {
            waiting: BTreeMap::new(),
            outstanding: BTreeMap::new(),
            window,
            turn: None,
        }
    }

    /// From now on so much may be under way.
    pub const fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    pub fn outstanding(&self) -> u64 {
        self.outstanding.values().sum()
    }

    /// An operation of an exchange lacks so many bytes that a rank is to be asked for.
    pub fn wait(&mut self, exchange: u8, left: u64, id: OpId, rank: u32) {
        self.waiting.insert((left, exchange, id), rank);
    }

    /// They are not to be asked for.
    pub fn wait_no_more(&mut self, exchange: u8, left: u64, id: OpId) {
        self.waiting.remove(&(left, exchange, id));
    }

    /// The operation that is served next, of those towards ranks that may be asked, if it
    /// is one of this exchange.
    fn next(&mut self, exchange: u8) -> Option<OpId> {
        let window = match self.outstanding.len() {
            0 | 1 => self.window,
            _ => self.crowded(),
        };
        // Of each rank at most half: so a silent one does not stop the others.
        let counted: u64 = self
            .outstanding
            .values()
            .map(|due| (window / 2).min(*due))
            .sum();
        if counted >= window {
            return None;
        }
        let outstanding = &self.outstanding;
        let may_be_asked = |rank: &u32| outstanding.get(rank).is_none_or(|due| *due < window);
        let mut all = self.waiting.iter();
        let (&first, _) = all.find(|(_, rank)| may_be_asked(rank))?;
        let (_, of, id) = first;
        if of != exchange {
            self.turn = Some(of);
            return None;
        }
        self.waiting.remove(&first);
        Some(id)
    }

    fn crowded(&self) -> u64 {
        (self.window / CROWD).max(2)
    }

    /// What one request to this rank may ask for, of a `chunk`.
    fn share(&self, rank: u32, chunk: u64) -> u64 {
        if self.outstanding.keys().any(|other| *other != rank) {
            chunk.min(self.crowded() / 2)
        } else {
            chunk
        }
    }

    fn change(&mut self, rank: u32, by: impl FnOnce(u64) -> u64) {
        let due = self.outstanding.entry(rank).or_default();
        *due = by(*due);
        if *due == 0 {
            self.outstanding.remove(&rank);
        }
    }

    pub fn asked(&mut self, rank: u32, bytes: u64) {
        self.change(rank, |due| due + bytes);
    }

    /// Bytes that a rank was asked for are here, or will not come.
    pub fn came(&mut self, rank: u32, bytes: u64) {
        self.change(rank, |due| due - bytes);
    }

    /// A receive that is being pulled is given up.
    pub fn forget(&mut self, exchange: u8, id: OpId, meeting: &Meeting) {
        self.wait_no_more(exchange, meeting.end - meeting.asked, id);
        self.came(meeting.from, meeting.due());
    }

    /// Everything is given up.
    pub fn clear(&mut self) {
        *self = Self::new(self.window);
    }
}

impl Meeting {
    /// Bytes that were asked for and have not arrived, but for those that the
    /// sender writes to memory of ours: they take room in no queue, so a sender
    /// that does not come to it keeps none from the others.
    fn due(&self) -> u64 {
        let not_due = self.answered.max(self.published_end);
        self.asked.saturating_sub(not_due)
    }
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// The rest of a message is to be pulled.
    pub(crate) fn pull(&mut self, id: OpId) {
        if let Some(meeting) = self.ops.meeting(id) {
            let left = meeting.end - meeting.asked;
            self.pulls.wait(self.config.number, left, id, meeting.from);
            self.ask();
        }
    }

    /// Hands the schedule on to another exchange of the endpoint, or takes it back.
    pub fn swap_pulls(&mut self, other: &mut Self) {
        core::mem::swap(&mut self.pulls, &mut other.pulls);
    }

    /// Whose turn to ask it is, if it is another exchange's: that one is to have the schedule
    /// and then to be told, by [`Exchange::take_turn`].
    pub const fn next_turn(&mut self) -> Option<u8> {
        self.pulls.turn.take()
    }

    /// It is this exchange's turn to ask.
    pub fn take_turn(&mut self) {
        self.ask();
    }

    /// Asks for as much as may be under way.
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
            self.pulls.asked(from, bytes);
            if bytes < left {
                self.pulls.wait(self.config.number, left - bytes, id, from);
            }
            self.say(from, Kind::Pull, args);
            if push.masking {
                self.unready.push_back((id, at, bytes));
            }
        }
    }

    /// Asks for the next part of a get; false: it is none.
    fn ask_for_get(&mut self, id: OpId) -> bool {
        let Some(remote) = self.ops.remote(id) else {
            return false;
        };
        if let Some(bytes) = remote.next_ask() {
            let at = remote.asked;
            remote.asked += bytes;
            remote.asks += 1;
            let (from, left) = (remote.to, remote.total - remote.asked);
            self.pulls.asked(from, bytes);
            if left > 0 {
                self.pulls.wait(self.config.number, left, id, from);
            }
            self.peers.push(from, Waiting::Ask { op: id, at, bytes });
            if self.terms(from).push.masking {
                self.unready.push_back((id, at, bytes));
            }
        }
        true
    }

    /// Whether a receive has asked for these bytes, and they are the next;
    /// then they have begun to arrive.
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

    /// All of an answer has arrived.
    pub(crate) fn answer_ends(&mut self, id: OpId, bytes: u64) {
        if let Some(meeting) = self.ops.meeting(id) {
            let due = meeting.due();
            meeting.answered += bytes;
            self.pulls.came(meeting.from, due - meeting.due());
            self.settle(id);
            self.ask();
        }
    }

    /// The sender's side: somebody asks for a part of an offered message. What
    /// makes no sense is not answered.
    pub(crate) fn asked(&mut self, from: u32, [op, at, bytes, receive, key]: [u64; 5]) {
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
        send.due += bytes;
        if send.due > bytes {
            // What waits for room is answered at once with this: who asks for
            // little and takes nothing makes us keep no more.
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
