//! Messages that are pulled before a receive asks for them. What a sender still holds when it
//! closes is handed over, so that a message that was accepted arrives though its receiver is
//! late. Of other senders, short messages that wait are pulled ahead, several at once, as long
//! as the program receives: each alone would cost it a round trip.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use portolan_matching::Selector;

use super::Exchange;
use crate::state::{Op, Origin, ReceiveStage};
use crate::values::{
    Kind, Memory, Notify, OVERHEAD, OpError, OpId, Probed, Sink, Source, UNWANTED,
};

/// A sender, and its messages that were not pulled yet, in matching order.
#[derive(Debug)]
pub(crate) struct Early {
    /// Bytes that may be here at once of a sender that does not close.
    ahead: Option<u64>,
    /// Nobody has added it.
    stranger: bool,
    messages: VecDeque<u64>,
    /// With so many, those that were received are taken out.
    swept_above: usize,
}

const SWEPT_ABOVE_MIN: usize = 64;

/// Bytes that are pulled ahead of one sender at first. They double with each message that is
/// received.
const AHEAD_MIN: u64 = 16 << 10;
/// With more senders of which messages were pulled early it stays at that (incast).
const AHEAD_SENDERS: usize = 16;

/// Senders that have a turn when room is free, at most.
const TURNS_MAX: usize = 64;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// The ranks for which this one holds messages or accesses that were accepted, and of
    /// whose end nobody hears: before the end each is told that this rank closes. It answers
    /// when it has the bytes, or does not want them.
    #[must_use]
    pub fn holds_for(&self) -> Vec<u32> {
        let held = self
            .ops
            .slab
            .iter()
            .filter_map(|(_, op)| op.unreported_to());
        let mut ranks: Vec<u32> = held.filter(|rank| *rank != self.config.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Whether there still is such a message or access.
    pub fn holds_any(&mut self) -> bool {
        let me = self.config.rank;
        let holds = |op: &Op<S, K>| op.unreported_to().is_some_and(|rank| rank != me);
        // Asked again and again: the one that was found last mostly still is one.
        if !(self.held.and_then(|id| self.ops.get(id))).is_some_and(holds) {
            let from = self.held.map_or(0, |id| id.0);
            self.held = self.ops.slab.find_from(from, holds).map(OpId);
        }
        self.held.is_some()
    }

    /// Begins to close: messages that are offered and that no receive has met are not wanted any
    /// more, and their senders need not wait.
    pub fn refuse_offers(&mut self) {
        self.is_refusing = true;
        self.hand_over_no_more(None);
        let waiting = self.matcher.unexpected();
        let waiting: Vec<_> = waiting
            .map(|(ticket, _, number)| (ticket, *number))
            .collect();
        for (ticket, number) in waiting {
            if self.refuse_message(number) {
                self.matcher.claim_ticket(ticket);
            }
        }
        let claimed = self.messages.iter().filter(|(_, message)| message.claimed);
        for number in claimed.map(|(number, _)| number).collect::<Vec<_>>() {
            self.refuse_message(number);
        }
    }

    fn refuse_message(&mut self, number: u64) -> bool {
        let Some(message) = self.messages.get(number) else {
            return false;
        };
        let (Origin::Offer { op, .. }, None) = (message.origin, message.met) else {
            return false;
        };
        let from = message.what.from;
        self.say(from, Kind::Done, [op, UNWANTED]);
        self.release_message(number);
        true
    }

    /// A rank closes, and holds messages that no receive has met: they are pulled as far as
    /// there is room. `stranger`: nobody has added it.
    pub fn peer_closes(&mut self, rank: u32, stranger: bool) {
        let lives = self.peers.get(rank).is_some_and(|peer| !peer.dead);
        let closes = (self.early.get(&rank)).is_some_and(|early| early.ahead.is_none());
        if !lives || self.is_over || self.is_refusing || closes {
            return;
        }
        self.pull_early(rank, stranger, None);
    }

    /// A receive has met an offer of `what`: further short messages of its sender, which wait
    /// only because it had no credit, are pulled ahead.
    pub(crate) fn pull_ahead(&mut self, what: &Probed) {
        if self.is_short(what) && !self.early.contains_key(&what.from) && !self.is_refusing {
            self.pull_early(what.from, true, Some(AHEAD_MIN));
        }
    }

    /// Whether a message would have been pushed whole, but for the credit.
    fn is_short(&self, what: &Probed) -> bool {
        what.total <= self.terms(what.from).push.whole
    }

    /// Begins to pull the messages of a rank that wait, and those that will.
    fn pull_early(&mut self, rank: u32, stranger: bool, ahead: Option<u64>) {
        let mut waiting: Vec<_> = (self.matcher.unexpected())
            .filter(|(_, envelope, _)| envelope.source == rank)
            .map(|(ticket, _, number)| (ticket, *number))
            .collect();
        waiting.sort_unstable();
        let claimed = self.messages.iter().filter(|(_, message)| message.claimed);
        let messages = (claimed.filter(|(_, message)| message.what.from == rank))
            .map(|(number, _)| number)
            .chain(waiting.into_iter().map(|(_, number)| number))
            .collect();
        let early = Early {
            ahead,
            stranger,
            messages,
            swept_above: SWEPT_ABOVE_MIN,
        };
        self.early.insert(rank, early);
        self.hand_over(rank);
    }

    /// A message is kept whose sender may be one of these.
    pub(crate) fn note_late(&mut self, from: u32, number: u64) {
        let Some(early) = self.early.get_mut(&from) else {
            return;
        };
        early.messages.push_back(number);
        // What was received meanwhile, behind one that still waits, is not to pile up.
        if early.messages.len() > early.swept_above {
            let messages = &self.messages;
            (early.messages).retain(|number| messages.get(*number).is_some());
            early.swept_above = 2 * early.messages.len() + SWEPT_ABOVE_MIN;
        }
        self.hand_over(from);
    }

    /// Has messages of such a sender pulled, as far as there is room.
    pub(crate) fn hand_over(&mut self, rank: u32) {
        // Out of the table meanwhile: what begins may end at once.
        let Some(mut early) = self.early.remove(&rank) else {
            return;
        };
        while let Some(&number) = early.messages.front()
            && self.fetch_early(rank, early.stranger, early.ahead, number)
        {
            early.messages.pop_front();
        }
        if early.messages.is_empty() {
            self.waiting.remove(&rank);
        } else {
            self.waiting.insert(rank);
        }
        self.early.insert(rank, early);
        self.note_waiting();
    }

    /// Whether any waits, for another exchange that frees room.
    pub(crate) fn note_waiting(&mut self) {
        let waits = !self.waiting.is_empty();
        self.pulls.late.set_waiting(self.config.number, waits);
    }

    /// Room that senders share is free again: those that wait have it in turns.
    pub(crate) fn hand_over_in_turns(&mut self) {
        for _ in 0..self.waiting.len().min(TURNS_MAX) {
            let next = self.waiting.range(self.next_waiting..).next();
            let Some(rank) = next.or_else(|| self.waiting.first()).copied() else {
                return;
            };
            self.next_waiting = rank.wrapping_add(1);
            self.hand_over(rank);
        }
    }

    /// Begins to pull a message into memory of the exchange's own; false: not now. What
    /// needs it no more counts as begun.
    fn fetch_early(&mut self, from: u32, stranger: bool, ahead: Option<u64>, number: u64) -> bool {
        let Some(message) = self.messages.get_mut(number) else {
            return true;
        };
        if message.met.is_some() || !matches!(message.origin, Origin::Offer { .. }) {
            return true;
        }
        let (what, overlap) = (message.what, message.overlap);
        let (origin, pushes) = (message.origin, message.pushes);
        let bytes = what.total.saturating_add(OVERHEAD);
        if bytes > self.pulls.late.share(stranger) {
            // It waits for its receive, and holds up nothing else.
            return true;
        }
        if let Some(most) = ahead {
            let asks = matches!(
                origin,
                Origin::Offer {
                    address: 0,
                    sync: false,
                    ..
                }
            );
            if !asks || !self.is_short(&what) {
                return true;
            }
            if self.pulls.late.held(from).saturating_add(bytes) > most {
                return false;
            }
        }
        if pushes > 0 || !self.pulls.late.take(from, stranger, bytes) {
            return false;
        }
        let Some(message) = self.messages.get_mut(number) else {
            return true;
        };
        let mut origin = core::mem::replace(&mut message.origin, Origin::Eager);
        if let Origin::Offer { shares, .. } = &mut origin {
            // The sender would write to memory that is not the program's, for as long as it likes.
            *shares = false;
        }
        let mut body = core::mem::take(&mut message.body);
        let pushed = body.len() as u64;
        body.resize(what.total as usize, 0);
        // To whoever receives it this is a push that is missing.
        (message.pushes, message.late) = (1, bytes);
        if let Some(peer) = self.peers.get(from) {
            peer.offers -= 1;
        }
        self.freed = true;
        let stage = ReceiveStage::Posted(None);
        let selector = Selector::from(from, what.tag);
        let id = self.new_receive(selector, K::owned(body), Notify::NONE, stage);
        self.handovers.insert(id, number);
        self.meet(id, &what, origin, pushed, 0, overlap);
        self.fetch_rest(id);
        self.settle(id);
        true
    }

    /// A receive that had met its message ends, or the handover of one.
    pub(crate) fn end_met(&mut self, id: OpId, result: Result<(), OpError>) {
        let handover = if self.handovers.is_empty() {
            None
        } else {
            self.handovers.remove(&id)
        };
        if result == Err(OpError::PeerDead)
            && !self.is_over
            && (self.ops.receive(id))
                .is_some_and(|it| it.selector.source.is_none() && it.slice.is_none())
        {
            self.again.push(id);
            return;
        }
        self.ops.end(id, result);
        let Some(number) = handover else { return };
        let Some((_, Some(Memory::Sink(sink)))) = self.take(id) else {
            return;
        };
        // One that was lost goes with its sender.
        if result.is_ok()
            && let Some(message) = self.messages.get_mut(number)
        {
            message.body = sink.into_owned();
            message.pushes = 0;
            self.move_body(number);
        }
    }

    /// Room for messages that are pulled early is free again.
    pub(crate) fn free_late(&mut self, from: u32, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let number = self.config.number;
        if let Some(other) = self.pulls.late.give_back(number, from, bytes) {
            self.pulls.turn.get_or_insert(other);
            self.freed = true;
        }
        if let Some(Early {
            ahead: Some(most), ..
        }) = self.early.get_mut(&from)
        {
            let is_incast = self.pulls.late.senders() > AHEAD_SENDERS;
            let share = self.pulls.late.share(true);
            *most = if is_incast { AHEAD_MIN } else { 2 * *most }.min(share);
        }
        self.hand_over(from);
        self.hand_over_in_turns();
    }

    /// Nothing of such a sender waits any more; `None`: of none.
    pub(crate) fn hand_over_no_more(&mut self, rank: Option<u32>) {
        match rank {
            Some(rank) => {
                self.early.remove(&rank);
                self.waiting.remove(&rank);
            }
            None => {
                self.early.clear();
                self.waiting.clear();
            }
        }
        self.note_waiting();
    }
}
