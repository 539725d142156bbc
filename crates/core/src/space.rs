//! Spaces: what each of several interfaces has of its own on an endpoint that they share.
//!
//! On the wire a space is a flow. The program's own space has flows 0 to 5, and 6 and 7
//! for its matched messages; each other space has one, for both. So wildcards, order,
//! stops and losses keep apart by themselves.

use crate::core::Core;
use crate::counters::Counters;
use crate::error::{Misuse, SendError};
use crate::message::Event;
use crate::out::Out;
use crate::ports::{Budget, Charge, ErrorHandler};
use crate::send::FLOWS_MAX;
use crate::settings::Settings;

/// Names a space; 0 is the program's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(u8);

/// Spaces that there can be, the program's own included: each of the others has a flow.
pub const SPACES: usize = 9;

/// The flow of space 1; the others follow.
pub const FIRST_FLOW: u16 = 8;
const _: () = assert!(FIRST_FLOW as usize + SPACES - 1 == portolan_proto::FLOWS_MAX);

impl SpaceId {
    // All that somebody uses are named here.

    /// The program's own.
    pub const PROGRAM: Self = Self(0);
    /// ATOLL's interface.
    pub const ATOLL: Self = Self(1);
    /// Free for libraries that others write.
    pub const OTHERS: [Self; 2] = [Self(7), Self(8)];

    /// By its number, 0 to 8.
    ///
    /// # Errors
    /// [`Misuse::NoSuchSpace`].
    pub const fn new(number: u32) -> Result<Self, Misuse> {
        if number < SPACES as u32 {
            Ok(Self(number as u8))
        } else {
            Err(Misuse::NoSuchSpace)
        }
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// Whose flow this is; of one that there is not, a space that is never open.
    #[inline(always)]
    pub(crate) const fn of_flow(flow: u16) -> Self {
        let number = flow.saturating_sub(FIRST_FLOW - 1);
        Self(if number < 0xff { number as u8 } else { 0xff })
    }

    /// Its flow of this number; a space but the program's has flow 0 alone.
    ///
    /// # Errors
    /// [`SendError::BadFlow`].
    #[inline(always)]
    pub const fn flow(self, number: u16) -> Result<u16, SendError> {
        match self {
            Self(0) if number < FLOWS_MAX => Ok(number),
            Self(1..) if number == 0 => Ok(self.first_flow()),
            Self(_) => Err(SendError::BadFlow),
        }
    }

    /// The first of its flows.
    pub(crate) const fn first_flow(self) -> u16 {
        match self {
            Self(0) => 0,
            Self(space) => FIRST_FLOW - 1 + space as u16,
        }
    }

    /// The number that [`SpaceId::flow`] was given.
    #[inline(always)]
    pub(crate) const fn number_of(flow: u16) -> u16 {
        if flow < FIRST_FLOW { flow } else { 0 }
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Keeps apart what the spaces draw from the same random bits.
    pub(crate) const fn salt(self) -> u64 {
        (self.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    pub(crate) const fn at(index: usize) -> Self {
        Self(index as u8)
    }
}

impl std::fmt::Display for SpaceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::PROGRAM => f.write_str("the program"),
            Self::ATOLL => f.write_str("ATOLL"),
            Self(number) => write!(f, "space {number}"),
        }
    }
}

/// Messages of one space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Accepted for sending.
    pub sent: u64,
    /// Payload bytes in them.
    pub bytes_sent: u64,
    /// Handed to a handler or written to a buffer, or matched.
    pub received: u64,
    /// Payload bytes in them.
    pub bytes_received: u64,
    /// Messages of ours that were refused.
    pub refused: u64,
}

/// What a space has that is open. Its ports are in the table of all, its matched messages
/// in [`crate::Matched`].
pub struct Space {
    /// Memory for messages to ports that are not bound yet.
    pub unexpected: Budget,
    /// Memory for messages that wait for their handler.
    pub queued: Budget,
    /// Called where no port's own is.
    pub error_handler: Option<ErrorHandler>,
    /// Messages so far; those of the program's own space are in [`crate::Counters`] alone,
    /// with all others.
    pub traffic: Traffic,
    /// Whoever opened it is done with it: what comes to its ports is refused.
    pub closed: bool,
    /// Somebody has it. Only the program's own is there before.
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
            taken: true,
        }
    }

    const fn budget(&mut self, charge: Charge) -> &mut Budget {
        match charge {
            Charge::Unexpected => &mut self.unexpected,
            Charge::Queued => &mut self.queued,
        }
    }
}

/// Those but the program's.
pub type Others = [Option<Box<Space>>; SPACES - 1];

impl Core {
    /// An open space.
    pub fn space(&mut self, id: SpaceId) -> Option<&mut Space> {
        match id.index().checked_sub(1) {
            None => Some(&mut self.own),
            Some(at) => self.others.get_mut(at)?.as_deref_mut(),
        }
    }

    /// Whether a space is open.
    #[inline]
    pub fn is_open(&self, id: SpaceId) -> bool {
        match id.index().checked_sub(1) {
            None => true,
            Some(at) => self.others.get(at).is_some_and(Option::is_some),
        }
    }

    /// Whether whoever opened a space is done with it.
    pub(crate) fn is_closed(&self, id: SpaceId) -> bool {
        match id.index().checked_sub(1) {
            None => self.own.closed,
            Some(at) => {
                let space = self.others.get(at).and_then(Option::as_deref);
                space.is_some_and(|space| space.closed)
            }
        }
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

    /// The memory that a message is charged to.
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

    /// Messages that a space has received.
    pub fn received(&mut self, id: SpaceId) -> u64 {
        self.counters_of(id).received
    }

    /// The counters, with those of messages of one space.
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

    /// Close has begun.
    pub fn begin_close(&mut self) {
        (self.closing, self.own_is_over) = (true, true);
    }

    /// Whoever opened a space is done with it: all its ports are closed, also those that
    /// it never bound.
    pub fn close_space(&mut self, out: &mut Out<'_>, id: SpaceId) {
        self.own_is_over |= id == SpaceId::PROGRAM;
        let Some(space) = self.space(id) else {
            return;
        };
        space.closed = true;
        space.error_handler = None;
        for port in self.ports.of_space(id) {
            // Its number is one that a program may name.
            let _ = self.close_port(out, port);
        }
        self.note_freed();
    }

    /// Whether another space is in use.
    pub fn is_shared(&self, id: SpaceId) -> bool {
        let in_use = |space: SpaceId| self.is_open(space) && !self.is_closed(space);
        let own_in_use = self.own.taken && !self.own.closed;
        (1..SPACES)
            .map(SpaceId::at)
            .any(|other| other != id && in_use(other))
            || (id != SpaceId::PROGRAM && own_in_use)
    }

    /// Puts an event before a space's error handlers, at the end of this pass.
    pub fn emit(&mut self, space: SpaceId, event: Event) {
        self.events.push_back((space, event));
        self.attention = true;
    }

    /// The same, before those of all spaces that are open.
    pub(crate) fn emit_to_all(&mut self, event: Event) {
        for space in (0..SPACES).map(SpaceId::at) {
            if self.is_open(space) {
                self.emit(space, event);
            }
        }
    }
}
