//! Messages that are pulled before a receive asks for them. A closing sender hands over the
//! messages that it still holds, so that an accepted message arrives though its receiver is late.
//! Short messages of other senders that wait are pulled ahead, several at once, as long as the
//! program receives: each alone would cost a round trip.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use portolan_matching::Selector;

use super::Exchange;
use crate::state::{Op, Origin, ReceiveStage};
use crate::values::{
    Kind, Memory, Notify, OVERHEAD, OpError, OpId, Probed, Sink, Source, UNWANTED,
};

/// A sender's messages that were not pulled yet, in matching order.
#[derive(Debug)]
pub(crate) struct Early {
    /// Bytes that may be pulled ahead at once; `None`: the sender closes.
    ahead: Option<u64>,
    /// Held to a stranger's share: a sender that the program has not added, or that does not
    /// close.
    stranger: bool,
    messages: VecDeque<u64>,
    /// Length of `messages` above which received ones are taken out.
    swept_above: usize,
}

const SWEPT_ABOVE_MIN: usize = 64;

/// Bytes that are pulled ahead of one sender at first. They double with each message that is
/// received, up to a stranger's share.
const AHEAD_MIN: u64 = 16 << 10;
/// With messages of more senders pulled early, each is held to [`AHEAD_MIN`] (incast).
const AHEAD_SENDERS: usize = 16;

/// Largest number of senders that are served when room is free.
const TURNS_MAX: usize = 64;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Ranks for which this one holds accepted messages or accesses whose success is not reported:
    /// before the end each is told that this rank closes. A rank answers when it has the bytes, or
    /// does not want them.
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

    /// Whether [`Exchange::holds_for`] would return any rank.
    pub fn holds_any(&mut self) -> bool {
        let me = self.config.rank;
        let holds = |op: &Op<S, K>| op.unreported_to().is_some_and(|rank| rank != me);
        // Called repeatedly: the operation found last is mostly still held.
        if !(self.held.and_then(|id| self.ops.get(id))).is_some_and(holds) {
            let from = self.held.map_or(0, |id| id.0);
            self.held = self.ops.slab.find_from(from, holds).map(OpId);
        }
        self.held.is_some()
    }

    /// Begins to close: offered messages that no receive has met are refused, so that their
    /// senders need not wait (P13.9).
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

    /// Pulls the messages that a closing rank holds and that no receive has met, as far as there
    /// is room. `stranger`: the program has not added the rank.
    pub fn peer_closes(&mut self, rank: u32, stranger: bool) {
        let lives = self.peers.get(rank).is_some_and(|peer| !peer.dead);
        let closes = (self.early.get(&rank)).is_some_and(|early| early.ahead.is_none());
        if !lives || self.is_over || self.is_refusing || closes {
            return;
        }
        self.pull_early(rank, stranger, None);
    }

    /// Pulls ahead, when a receive has met an offer of `what`, further short messages of its
    /// sender, which wait only because it had no credit.
    pub(crate) fn pull_ahead(&mut self, what: &Probed) {
        if self.is_short(what) && !self.early.contains_key(&what.from) && !self.is_refusing {
            self.pull_early(what.from, true, Some(AHEAD_MIN));
        }
    }

    /// Whether a message would have been pushed whole, but for the credit.
    fn is_short(&self, what: &Probed) -> bool {
        what.total <= self.terms(what.from).push.whole
    }

    /// Begins to pull the waiting messages of a rank, and those to come.
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

    /// Adds a message that is kept, if its sender's messages are pulled early.
    pub(crate) fn note_late(&mut self, from: u32, number: u64) {
        let Some(early) = self.early.get_mut(&from) else {
            return;
        };
        early.messages.push_back(number);
        // Messages that were received meanwhile must not pile up behind one that still waits.
        if early.messages.len() > early.swept_above {
            let messages = &self.messages;
            (early.messages).retain(|number| messages.get(*number).is_some());
            early.swept_above = 2 * early.messages.len() + SWEPT_ABOVE_MIN;
        }
        self.hand_over(from);
    }

    /// Pulls waiting messages of a sender in `early`, as far as there is room.
    pub(crate) fn hand_over(&mut self, rank: u32) {
        // Out of the table meanwhile: a pull that begins may end at once.
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

    /// Records whether messages wait, for another exchange that frees room.
    pub(crate) fn note_waiting(&mut self) {
        let waits = !self.waiting.is_empty();
        self.pulls.late.set_waiting(self.config.number, waits);
    }

    /// Serves waiting senders in turns, when room that they share is free again.
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

    /// Begins to pull a message into memory of the exchange; false: not now. True also if the
    /// message is not to be pulled.
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
            // Too long: waits for its receive, and holds up nothing else.
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
            // Else the sender could write to memory of the exchange for as long as it likes.
            *shares = false;
        }
        let mut body = core::mem::take(&mut message.body);
        let pushed = body.len() as u64;
        body.resize(what.total as usize, 0);
        // To its receive, this is a push that is missing.
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

    /// Ends a receive that had met its message, or the handover of a message.
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
        // A lost message is released with its sender.
        if result.is_ok()
            && let Some(message) = self.messages.get_mut(number)
        {
            message.body = sink.into_owned();
            message.pushes = 0;
            self.move_body(number);
        }
    }

    /// Frees room for messages that are pulled early.
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

    /// Pulls no more messages of a rank early; `None`: of any rank.
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
