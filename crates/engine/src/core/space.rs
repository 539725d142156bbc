//! The open spaces: what each of several interfaces has of its own on a shared endpoint.

use super::CoreState;
use super::ports::{Budget, ErrorHandler};
use crate::matched::Onward;
use crate::values::{Charge, Counters, Event, FIRST_FLOW, Misuse, SPACES, Settings, SpaceId};

/// Message counters of one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Messages accepted for sending.
    pub sent: u64,
    /// Payload bytes in messages accepted for sending.
    pub bytes_sent: u64,
    /// Messages handed to a handler, written to a buffer, or matched.
    pub received: u64,
    /// Payload bytes in messages received.
    pub bytes_received: u64,
    /// Sent messages that were refused.
    pub refused: u64,
}

/// State of an open space. Its ports are in the common table, its matched messages in
/// [`crate::Matched`].
pub struct Space {
    /// Memory for messages to ports that are not bound yet.
    pub unexpected: Budget,
    /// Memory for messages that wait for their handler.
    pub queued: Budget,
    /// Called for events that no port's own handler takes.
    pub error_handler: Option<ErrorHandler>,
    /// Message counters. The program's own space is counted in [`crate::Counters`] alone, with
    /// all others.
    pub traffic: Traffic,
    /// The space was closed: what comes to its ports is refused.
    pub closed: bool,
    /// After that: nothing of it is in flight.
    pub left: bool,
    /// An interface has opened it. Only the program's own space exists before.
    pub taken: bool,
}

impl Space {
    pub fn new(s: &Settings) -> Self {
        let senders = s.size as usize;
        Self {
            unexpected: Budget::new(s.unexpected_bytes, s.unexpected_share, senders),
            queued: Budget::new(s.queue_bytes, s.queue_share, senders),
            error_handler: None,
            traffic: Traffic::default(),
            closed: false,
            left: false,
            taken: true,
        }
    }

    /// Adds ranks, up to this number.
    fn grow(&mut self, size: usize) {
        self.unexpected.grow(size);
        self.queued.grow(size);
    }

    /// Whether the space's memory holds messages of a rank.
    fn holds_of(&self, rank: u32) -> bool {
        let of = |budget: &Budget| budget.by_sender().get(rank as usize) > Some(&0);
        of(&self.unexpected) || of(&self.queued)
    }

    const fn budget(&mut self, charge: Charge) -> &mut Budget {
        match charge {
            Charge::Unexpected => &mut self.unexpected,
            Charge::Queued => &mut self.queued,
        }
    }
}

/// All spaces but the program's own.
pub type Others = [Option<Box<Space>>; SPACES - 1];

impl CoreState {
    /// Returns a space, if it is open.
    pub fn space(&mut self, id: SpaceId) -> Option<&mut Space> {
        match id.index().checked_sub(1) {
            None => Some(&mut self.own),
            Some(at) => self.others.get_mut(at)?.as_deref_mut(),
        }
    }

    fn look_at(&self, id: SpaceId) -> Option<&Space> {
        match id.index().checked_sub(1) {
            None => Some(&self.own),
            Some(at) => self.others.get(at)?.as_deref(),
        }
    }

    /// Raises the number of ranks to `size`.
    pub(crate) fn grow(&mut self, size: u32) {
        self.size = size;
        self.settings.size = size;
        let others = self.others.iter_mut().flatten().map(|it| &mut **it);
        for space in std::iter::once(&mut self.own).chain(others) {
            space.grow(size as usize);
        }
    }

    /// Whether a message of a rank waits for the program.
    pub(crate) fn holds_of(&self, rank: u32) -> bool {
        let others = self.others.iter().flatten().map(|it| &**it);
        std::iter::once(&self.own)
            .chain(others)
            .any(|it| it.holds_of(rank))
    }

    /// Whether a space is open.
    #[inline]
    pub fn is_open(&self, id: SpaceId) -> bool {
        self.look_at(id).is_some()
    }

    /// Whether a space was closed.
    pub(crate) fn is_closed(&self, id: SpaceId) -> bool {
        self.look_at(id).is_some_and(|space| space.closed)
    }

    /// Opens a space: what has come for it is offered again.
    pub(crate) fn open_space(&mut self, id: SpaceId) -> Result<(), Misuse> {
        if self.closing {
            return Err(Misuse::Closed);
        }
        let Some(place) = id.index().checked_sub(1) else {
            let taken = std::mem::replace(&mut self.own.taken, true);
            return if taken {
                Err(Misuse::SpaceOpen)
            } else {
                Ok(())
            };
        };
        match self.others.get_mut(place) {
            None => Err(Misuse::NoSuchSpace),
            Some(Some(_)) => Err(Misuse::SpaceOpen),
            Some(space) => {
                *space = Some(Box::new(Space::new(&self.settings)));
                self.lanes.tell_space(id);
                self.note_freed();
                Ok(())
            }
        }
    }

    /// Returns the memory that a message is charged to.
    pub(crate) fn budget(&mut self, space: SpaceId, charge: Charge) -> &mut Budget {
        let others = &mut self.others;
        let place = space.index().checked_sub(1);
        let other = place.and_then(|at| others.get_mut(at)?.as_deref_mut());
        other.unwrap_or(&mut self.own).budget(charge)
    }

    /// Counts in the space of a flow, if it is not the program's own.
    #[inline(always)]
    pub(crate) fn count_other(&mut self, flow: u16, count: impl FnOnce(&mut Traffic)) {
        if flow >= FIRST_FLOW {
            self.count_in(SpaceId::of_flow(flow), count);
        }
    }

    #[cold]
    fn count_in(&mut self, space: SpaceId, count: impl FnOnce(&mut Traffic)) {
        if let Some(space) = self.space(space) {
            count(&mut space.traffic);
        }
    }

    /// Returns the number of messages that a space has received.
    pub fn received(&mut self, id: SpaceId) -> u64 {
        self.counters_of(id).received
    }

    /// Returns the counters, with the message counts of one space.
    pub fn counters_of(&mut self, id: SpaceId) -> Counters {
        let mut c = self.counters;
        if id != SpaceId::PROGRAM {
            let own = self.space(id).map(|it| it.traffic).unwrap_or_default();
            (c.sent, c.bytes_sent) = (own.sent, own.bytes_sent);
            (c.received, c.bytes_received) = (own.received, own.bytes_received);
            c.refused = own.refused;
            return c;
        }
        for it in self.others.iter().flatten().map(|space| &space.traffic) {
            c.sent -= it.sent;
            c.bytes_sent -= it.bytes_sent;
            c.received -= it.received;
            c.bytes_received -= it.bytes_received;
            c.refused -= it.refused;
        }
        c
    }

    /// Whether nothing new is sent in a space.
    pub fn is_over(&self, id: SpaceId) -> bool {
        if id == SpaceId::PROGRAM {
            self.own_is_over
        } else {
            self.closing || self.is_closed(id)
        }
    }

    /// Begins to close the endpoint.
    pub fn begin_close(&mut self) {
        (self.closing, self.own_is_over) = (true, true);
        self.note_work();
    }

    /// Begins to close a space: nothing new is sent in it, and what comes to its ports is refused.
    pub fn refuse_space(&mut self, id: SpaceId) {
        self.own_is_over |= id == SpaceId::PROGRAM;
        self.note_work();
        if let Some(space) = self.space(id) {
            space.closed = true;
        }
    }

    /// Closes a space: closes all its ports, also those that were never bound, and tells
    /// others, behind all that it has sent. Sends in progress go on until
    /// [`crate::Engine::space_has_left`] says that none is left.
    pub(crate) fn close_space(&mut self, on: &mut Onward<'_>, id: SpaceId) {
        self.refuse_space(id);
        if let Some(space) = self.space(id) {
            space.error_handler = None;
        }
        for port in self.ports.of_space(id) {
            // Cannot fail: `of_space` returns only ports that a program may use.
            let _ = self.close_port(&mut on.out, port);
        }
        for meta in self.incoming.let_go(id) {
            self.refuse_kept(&mut on.out, &meta);
        }
        self.note_freed();
        self.tell_news(on.matched);
        if let Some(part) = on.matched.at(id) {
            part.exchange.close();
            self.work(on, id);
        }
        self.say_left(&mut on.out, id);
    }

    /// Whether a space is closed with nothing in flight: no call waits in it.
    pub fn has_left(&self, id: SpaceId) -> bool {
        self.look_at(id).is_some_and(|space| space.left)
    }

    /// Notes that nothing of a space is in flight any more, or that it is not waited for.
    pub fn set_left(&mut self, id: SpaceId) {
        if let Some(space) = self.space(id) {
            space.left = true;
        }
    }

    /// Whether no message of a space waits to be sent, or is read from its memory.
    pub(crate) fn has_sent_all(&self, id: SpaceId) -> bool {
        !self.outbox.is_of(id) && !self.ops.is_of(id)
    }

    /// Whether a space other than `id` is in use.
    pub fn is_shared(&self, id: SpaceId) -> bool {
        let in_use = |space: SpaceId| self.is_open(space) && !self.is_closed(space);
        let own_in_use = self.own.taken && !self.own.closed;
        (1..SPACES)
            .map(SpaceId::at)
            .any(|other| other != id && in_use(other))
            || (id != SpaceId::PROGRAM && own_in_use)
    }

    /// Queues an event for a space's error handlers, which run at the end of this pass.
    pub fn emit(&mut self, space: SpaceId, event: Event) {
        self.events.push_back((space, event));
        self.note_work();
    }

    /// Queues an event for the error handlers of all open spaces but those in `except`: a bit
    /// for each.
    pub(crate) fn emit_to_all(&mut self, event: Event, except: u16) {
        for space in (0..SPACES).map(SpaceId::at) {
            if self.is_open(space) && except & space.bit() == 0 {
                self.emit(space, event);
            }
        }
    }
}
