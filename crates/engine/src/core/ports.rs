//! The 65,536 ports of each space of an endpoint: a sparse table of two levels.

use std::collections::VecDeque;
use std::num::NonZeroU32;

use super::context::Context;
use crate::values::{Buffer, Charge, Event, Message, Meta, PortId, SpaceId};
use crate::waiting::Filled;

/// Called with each message of a port.
pub type Handler = Box<dyn FnMut(&mut Context<'_>, &Message<'_>) + Send>;
/// Called when something went wrong.
pub type ErrorHandler = Box<dyn FnMut(&mut Context<'_>, &Event) + Send>;

/// Decides where a message's payload goes, before any of it is written.
pub type Placing = Box<dyn FnMut(&Message<'_>) -> Placement + Send>;

/// Where a message's payload goes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Placement {
    /// Into this memory; what does not fit is truncated. The handler sees the payload there.
    /// Then the memory comes back by `take_buffer`: at once if the port has no handler, with
    /// length 0 if the sender has died. Lent memory that a handler has seen does not come back.
    Into(Buffer),
    /// Not copied: the handler sees the payload where it arrived. A long one is assembled in
    /// memory of the endpoint.
    Here,
    /// Not yet: the port pauses until it is resumed. This message and all later ones for the
    /// port wait, in order. Other flows go on.
    Later,
}

/// What a port is bound to; every part is optional.
#[derive(Default)]
pub struct Binding {
    /// Where messages are written. Without one the handler sees a message where it arrived; a
    /// long one is assembled in memory of the endpoint.
    pub buffer: Option<Buffer>,
    /// Called for each message to choose its memory; then the buffer is not used. See
    /// [`Binding::placing`].
    pub placing: Option<Placing>,
    /// Called once for each message, one at a time, within the program's own
    /// calls. Without one, messages are only written to the buffer and counted.
    pub handler: Option<Handler>,
    /// Called with [`Event::TooLong`] of this port, [`Event::PeerDead`],
    /// [`Event::PeerBack`] and [`Event::PeerCome`].
    pub error_handler: Option<ErrorHandler>,
    /// Lets the helper thread run the handlers too, when the program makes no
    /// calls. Default off.
    pub any_thread: bool,
}

impl Binding {
    /// Makes a binding with a handler and no buffer.
    pub fn to(handler: impl FnMut(&mut Context<'_>, &Message<'_>) + Send + 'static) -> Self {
        Self {
            handler: Some(Box::new(handler)),
            ..Self::default()
        }
    }

    /// Adds a buffer.
    #[must_use]
    pub fn with_buffer(self, buffer: impl Into<Buffer>) -> Self {
        Self {
            buffer: Some(buffer.into()),
            ..self
        }
    }

    /// Adds a function that decides where each message goes. It sees sender, argument words,
    /// [`Message::total`] and, as payload, the bytes that have arrived, perhaps none. Called
    /// within the same calls as the handler, once for each message; again only after it
    /// returned [`Placement::Later`], or if the endpoint had no memory that was wanted.
    #[must_use]
    pub fn placing(self, f: impl FnMut(&Message<'_>) -> Placement + Send + 'static) -> Self {
        Self {
            placing: Some(Box::new(f)),
            ..self
        }
    }

    /// Adds an error handler.
    #[must_use]
    pub fn on_error(self, f: impl FnMut(&mut Context<'_>, &Event) + Send + 'static) -> Self {
        Self {
            error_handler: Some(Box::new(f)),
            ..self
        }
    }

    /// Lets the helper thread run the handlers too.
    #[must_use]
    pub fn any_thread(self) -> Self {
        Self {
            any_thread: true,
            ..self
        }
    }
}

impl std::fmt::Debug for Binding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Binding")
            .field("buffer", &self.buffer.as_ref().map(Buffer::len))
            .field("placing", &self.placing.is_some())
            .field("handler", &self.handler.is_some())
            .field("any_thread", &self.any_thread)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortState {
    /// Never bound: messages wait until it is.
    #[default]
    Unbound,
    Bound,
    /// Messages are refused.
    Closed,
}

/// A whole message that waits for its handler.
#[derive(Debug)]
pub struct HeldMessage {
    pub meta: Meta,
    pub args: Vec<u8>,
    pub body: Vec<u8>,
    /// Buffer that holds it, if not `body`.
    pub in_buffer: Option<Filled>,
    /// A placing function has decided where it goes.
    pub placed: bool,
    pub charge: Charge,
    pub charged: usize,
}

/// Number of a handler, which finds it in [`Handlers`].
#[derive(Clone, Copy, Debug)]
pub struct HandlerId(NonZeroU32);

/// The handlers of all ports.
#[derive(Default)]
pub struct Handlers(Vec<Option<Handler>>);

impl Handlers {
    #[inline(always)]
    pub fn get(&mut self, id: HandlerId) -> Option<&mut Handler> {
        self.0.get_mut(id.0.get() as usize)?.as_mut()
    }

    /// Takes in what came, and drops what went.
    pub fn update(&mut self, changes: &mut HandlerChanges) {
        self.0.resize_with(changes.most as usize + 1, || None);
        // What a handler holds may panic when it is dropped: the table is whole by then.
        let mut gone = Vec::with_capacity(changes.waiting.len());
        for (id, handler) in changes.waiting.drain(..) {
            if handler.is_none() {
                changes.free.push(id);
            }
            gone.push(std::mem::replace(&mut self.0[id.0.get() as usize], handler));
        }
    }
}

/// Changes of [`Handlers`] that wait until no handler runs.
#[derive(Default)]
pub struct HandlerChanges {
    /// Handlers that come, and numbers of those that go.
    waiting: Vec<(HandlerId, Option<Handler>)>,
    /// Numbers that are free again.
    free: Vec<HandlerId>,
    /// The highest number that was ever given.
    most: u32,
}

impl HandlerChanges {
    /// Replaces the handler with this number, if there is one; returns the number of the new one.
    pub fn replace(&mut self, old: Option<HandlerId>, new: Option<Handler>) -> Option<HandlerId> {
        self.waiting.extend(old.map(|id| (id, None)));
        let new = new?;
        let id = self.free.pop().or_else(|| {
            self.most += 1;
            NonZeroU32::new(self.most).map(HandlerId)
        })?;
        self.waiting.push((id, Some(new)));
        Some(id)
    }

    pub fn is_any(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[derive(Default)]
pub struct Slot {
    /// The handler, if a whole message may run it at once, in place.
    pub fast: Option<HandlerId>,
    pub state: PortState,
    /// The buffer holds a message that is arriving or waits for its handler.
    pub busy: bool,
    /// In the list of ports with work.
    pub listed: bool,
    pub any_thread: bool,
    /// Nothing is taken until the port is resumed.
    pub paused: bool,
    /// Counts bindings and closings.
    pub generation: u32,
    pub placing: Option<Placing>,
    pub handler: Option<HandlerId>,
    pub error_handler: Option<ErrorHandler>,
    pub buffer: Option<Buffer>,
    /// Set while the buffer is out: what takes its place.
    pub replacement: Option<Option<Buffer>>,
    pub held: VecDeque<HeldMessage>,
    /// Buffers that go back to the program after a message was written to them, with its
    /// length.
    pub returned: VecDeque<(Buffer, usize)>,
    /// Messages delivered since the port was bound.
    pub arrived: u64,
}

impl Slot {
    /// Whether the port allows its first waiting message to be handed over.
    pub fn may_hand_over(&self) -> bool {
        let first = self.held.front();
        !self.paused && first.is_some_and(|held| !self.busy || held.in_buffer.is_some())
    }

    pub fn update_fast(&mut self) {
        let fast = self.state == PortState::Bound
            && self.buffer.is_none()
            && self.placing.is_none()
            && self.held.is_empty()
            && !self.busy;
        self.fast = self.handler.filter(|_| fast);
    }

    /// Takes back the buffer of a message that is done. `seen`: a handler saw it there; then a
    /// lent buffer is not returned to the program, which knows where it is.
    pub fn put_back(&mut self, filled: Filled, seen: bool) {
        let Filled { buffer, bytes, .. } = filled;
        let to_tell = !(seen && buffer.is_lent());
        // If the port was bound anew meanwhile, `busy` belongs to the new binding.
        if filled.placed || self.generation != filled.generation {
            if to_tell {
                self.returned.push_back((buffer, bytes));
            }
            return;
        }
        self.busy = false;
        match self.replacement.take() {
            None => self.buffer = Some(buffer),
            Some(next) => {
                if to_tell {
                    self.returned.push_back((buffer, bytes));
                }
                self.buffer = next;
            }
        }
        self.update_fast();
    }
}

const PAGE: usize = 64;
/// First index of a port in another space: see [`PortId::index`].
const FIRST_OF_OTHERS: usize = 65_536;

const PAGES: usize = 65_536 / PAGE;

type Page = Option<Box<[Slot; PAGE]>>;

/// The table of ports. A page of 64 exists once one of them was used.
pub struct Ports {
    /// Pages of the program's own space.
    own: Box<[Page; PAGES]>,
    /// Pages of the other spaces, in order, up to the last that was used.
    others: Vec<Page>,
}

impl Ports {
    pub fn new() -> Self {
        Self {
            own: Box::new([const { None }; PAGES]),
            others: Vec::new(),
        }
    }

    #[inline(always)]
    pub fn get(&mut self, port: PortId) -> Option<&mut Slot> {
        if port.space == SpaceId::PROGRAM {
            return self.own(port.number);
        }
        let at = port.index() - FIRST_OF_OTHERS;
        let page = self.others.get_mut(at / PAGE)?.as_mut()?;
        Some(&mut page[at % PAGE])
    }

    /// Returns a port of the program's own space.
    #[inline(always)]
    pub fn own(&mut self, number: u16) -> Option<&mut Slot> {
        let number = usize::from(number);
        match &mut self.own[number / PAGE] {
            Some(page) => Some(&mut page[number % PAGE]),
            None => None,
        }
    }

    pub fn get_or_make(&mut self, port: PortId) -> &mut Slot {
        let page = if port.space == SpaceId::PROGRAM {
            &mut self.own[port.index() / PAGE]
        } else {
            let at = (port.index() - FIRST_OF_OTHERS) / PAGE;
            if at >= self.others.len() {
                self.others.resize_with(at + 1, || None);
            }
            &mut self.others[at]
        };
        let page = page.get_or_insert_with(|| Box::new(std::array::from_fn(|_| Slot::default())));
        &mut page[port.index() % PAGE]
    }

    fn of_which(&self, of: impl Fn(&Slot) -> bool) -> Vec<PortId> {
        let mut found = Vec::new();
        for (p, page) in self.own.iter().chain(&self.others).enumerate() {
            for (i, slot) in page.iter().flat_map(|page| page.iter().enumerate()) {
                if of(slot) {
                    found.push(PortId::at(p * PAGE + i));
                }
            }
        }
        found
    }

    /// Returns every bound port that has an error handler.
    pub fn with_error_handler(&self) -> Vec<PortId> {
        self.of_which(|slot| slot.state == PortState::Bound && slot.error_handler.is_some())
    }

    /// Returns every used port of a space, except the engine's own.
    pub fn of_space(&self, space: SpaceId) -> Vec<PortId> {
        let mut used = self.of_which(|slot| slot.generation > 0 || !slot.held.is_empty());
        used.retain(|port| port.space == space && port.is_programs());
        used
    }

    /// Returns every port that holds messages.
    pub fn with_held(&self) -> Vec<PortId> {
        self.of_which(|slot| !slot.held.is_empty())
    }
}

/// Limit on the memory that arriving messages may take, in total and for each sender.
pub struct Budget {
    limit: usize,
    share: usize,
    pub used: usize,
    by_sender: Vec<usize>,
}

/// Charged for each waiting message beside its bytes.
const OVERHEAD: usize = size_of::<HeldMessage>();

impl Budget {
    pub fn new(limit: usize, share: usize, senders: usize) -> Self {
        Self {
            limit,
            share: share.min(limit),
            used: 0,
            by_sender: vec![0; senders],
        }
    }

    /// Adds senders, up to this number.
    pub fn grow(&mut self, senders: usize) {
        self.by_sender.resize(senders.max(self.by_sender.len()), 0);
    }

    /// Charge for a message without bytes.
    pub const EMPTY: usize = OVERHEAD;

    /// Charges a message, if there is room; returns the bytes charged.
    pub fn charge(&mut self, from: u32, bytes: u64) -> Option<usize> {
        let bytes = usize::try_from(bytes).ok()?.checked_add(OVERHEAD)?;
        let mine = &mut self.by_sender[from as usize];
        let free = self.limit.saturating_sub(self.used);
        if bytes > free.min(self.share.saturating_sub(*mine)) {
            return None;
        }
        self.used += bytes;
        *mine += bytes;
        Some(bytes)
    }

    /// Returns the bytes charged to each sender.
    pub fn by_sender(&self) -> &[usize] {
        &self.by_sender
    }

    pub fn release(&mut self, from: u32, charged: usize) {
        self.used -= charged;
        self.by_sender[from as usize] -= charged;
    }

    /// Whether a message of this length could ever be charged.
    pub fn could_ever(&self, bytes: u64) -> bool {
        bytes.saturating_add(OVERHEAD as u64) <= self.share as u64
    }

    pub fn room(&self) -> u64 {
        (self.share.saturating_sub(OVERHEAD)) as u64
    }
}
