//! Both sides, and what happens where they meet.

use alloc::vec::Vec;

use crate::envelope::{Envelope, Selector};
use crate::posted::Posted;
use crate::ticket::{MessageTicket, ReceivePlace, ReceiveTicket};
use crate::unexpected::Unexpected;

/// A receive and the message that it took. Both are the caller's again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match<R, M> {
    /// The receive.
    pub receive: R,
    /// The message.
    pub message: M,
    /// Where the message came from, and with what tag.
    pub envelope: Envelope,
}

/// What became of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Post<R, M> {
    /// It took an unexpected message.
    Matched(Match<R, M>),
    /// It waits for one.
    Posted(ReceiveTicket),
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival<R, M> {
    /// A posted receive took it.
    Matched(Match<R, M>),
    /// It waits for one.
    Unexpected(MessageTicket),
}

/// What was held for a source, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgotten<R, M> {
    /// Receives that only its messages fitted.
    pub receives: Vec<R>,
    /// Its messages.
    pub messages: Vec<M>,
}

/// Posted receives and unexpected messages. `R` and `M` are the caller's
/// handles: they are held, and given back once.
#[derive(Debug)]
pub struct Matcher<R, M> {
    posted: Posted<R>,
    unexpected: Unexpected<M>,
    /// The number of the next entry.
    next: u64,
}

impl<R, M> Matcher<R, M> {
    /// Without entries; takes no memory yet. `secret` keys the hash: random,
    /// and unknown to peers. No result depends on it.
    #[must_use]
    pub const fn new(secret: [u64; 2]) -> Self {
        Self {
            posted: Posted::new(secret),
            unexpected: Unexpected::new(secret),
            next: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// A receive: it takes the message that arrived first of those that fit,
    /// or waits.
    pub fn post(&mut self, selector: Selector, receive: R) -> Post<R, M> {
        let number = self.number();
        match self.claim(&selector) {
            Some((envelope, message)) => Post::Matched(Match {
                receive,
                message,
                envelope,
            }),
            None => Post::Posted(ReceiveTicket(self.posted.add(number, &selector, receive))),
        }
    }

    /// The place among all others of the receive that was posted last.
    #[inline]
    #[must_use]
    pub const fn last_place(&self) -> ReceivePlace {
        ReceivePlace(self.next)
    }

    /// A receive that had matched waits again at its place, before those that were posted after
    /// it; the caller has seen that no message fits. Of several the one that was posted last
    /// comes first: then none is in another's way.
    pub fn wait_again(
        &mut self,
        place: ReceivePlace,
        selector: &Selector,
        receive: R,
    ) -> ReceiveTicket {
        ReceiveTicket(self.posted.insert(place.0, selector, receive))
    }

    /// A message: the receive that was posted first of those that it fits
    /// takes it, or it waits. Memory grows by 4 bytes for each source up to the
    /// largest of those that wait: ranks are counted from 0.
    pub fn arrive(&mut self, envelope: Envelope, message: M) -> Arrival<R, M> {
        if let Some(receive) = self.posted.take_first(&envelope) {
            return Arrival::Matched(Match {
                receive,
                message,
                envelope,
            });
        }
        let number = self.number();
        let ticket = self.unexpected.add(number, &envelope, message);
        Arrival::Unexpected(MessageTicket(ticket))
    }

    /// Takes a receive back. `None`: it has been matched, cancelled or
    /// forgotten.
    pub fn cancel(&mut self, ticket: ReceiveTicket) -> Option<R> {
        self.posted.take(ticket.0)
    }

    /// The receive that would take a message with this envelope. It stays: a
    /// buffer for many messages is used where it is, in its turn, and
    /// [`cancel`](Self::cancel)led when it is full. Such a buffer first
    /// [`claim`](Self::claim)s what waits, then is posted.
    #[must_use]
    pub fn peek_posted(&self, envelope: &Envelope) -> Option<(ReceiveTicket, &R)> {
        let (ticket, receive) = self.posted.first(envelope)?;
        Some((ReceiveTicket(ticket), receive))
    }

    /// The message that a receive with this selector would take (a probe). It
    /// stays, and so does its turn; only the first question of a shape makes an
    /// index.
    #[must_use]
    pub fn peek(&mut self, selector: &Selector) -> Option<(MessageTicket, Envelope, &M)> {
        let (ticket, envelope, message) = self.unexpected.first(selector)?;
        Some((MessageTicket(ticket), envelope, message))
    }

    /// Takes the message out that a receive with this selector would take (a
    /// matched probe): no later receive sees it. To discard it, drop it.
    pub fn claim(&mut self, selector: &Selector) -> Option<(Envelope, M)> {
        self.unexpected.take_first(selector)
    }

    /// Likewise the message of a ticket. `None`: it has been matched, claimed
    /// or forgotten.
    pub fn claim_ticket(&mut self, ticket: MessageTicket) -> Option<(Envelope, M)> {
        self.unexpected.take(ticket.0)
    }

    /// Gives back all that is held for a source that died: its messages, and
    /// the receives that only they fit, for which all posted ones are looked
    /// at. Receives from any source stay.
    #[must_use]
    pub fn forget(&mut self, source: u32) -> Forgotten<R, M> {
        Forgotten {
            receives: self.posted.forget(source),
            messages: self.unexpected.forget(source),
        }
    }

    /// Receives that wait.
    #[must_use]
    pub fn posted_len(&self) -> usize {
        self.posted.len()
    }

    /// Messages that wait.
    #[must_use]
    pub fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    /// Messages of one source that wait.
    #[must_use]
    pub fn unexpected_from(&self, source: u32) -> usize {
        self.unexpected.len_of(source)
    }

    /// The receives that wait, in no order; their tickets have one. Bits that
    /// are ignored are 0 in their tags.
    pub fn posted(&self) -> impl Iterator<Item = (ReceiveTicket, Selector, &R)> {
        let of_each = self.posted.iter();
        of_each.map(|(ticket, selector, receive)| (ReceiveTicket(ticket), selector, receive))
    }

    /// The messages that wait, in no order; their tickets have one.
    pub fn unexpected(&self) -> impl Iterator<Item = (MessageTicket, Envelope, &M)> {
        let of_each = self.unexpected.iter();
        of_each.map(|(ticket, envelope, message)| (MessageTicket(ticket), envelope, message))
    }
}
