//! The 65,536 ports of each space of an endpoint: a sparse table of two levels.

use std::collections::VecDeque;

use super::context::Context;
use crate::values::{Buffer, Charge, Event, Message, Meta, PortId, SpaceId};
use crate::waiting::Filled;

/// Called with each message of a port.
pub type Handler = Box<dyn FnMut(&mut Context<'_>, &Message<'_>) + Send>;
/// Called when something went wrong.
pub type ErrorHandler = Box<dyn FnMut(&mut Context<'_>, &Event) + Send>;

/// Says where a message's payload goes, before any of it is written.
pub type Placing = Box<dyn FnMut(&Message<'_>) -> Placement + Send>;

/// Where a message's payload goes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Placement {
    /// To this memory; what does not fit there is cut off and thrown away. The handler sees
    /// it there. Then the memory comes back by `take_buffer`: at once if the port has no
    /// handler, with length 0 if the sender has died; memory that is lent does not where a
    /// handler has seen it.
    Into(Buffer),
    /// Nowhere: the handler sees it where it arrived. A long one is put together in memory
    /// of the endpoint.
    Here,
    /// It cannot be taken yet. The port pauses until it is resumed: this message and all
    /// that come for the port wait, in their order. Other flows go on.
    Later,
}

/// What a port is bound to; everything may be left out.
#[derive(Default)]
pub struct Binding {
    /// Where messages are written. Without one the handler sees a message
    /// where it arrived; a long one is put together in memory of the endpoint.
    pub buffer: Option<Buffer>,
    /// Asked about each message instead; the buffer is not used. See [`Binding::placing`].
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
    /// A handler and no buffer.
    pub fn to(handler: impl FnMut(&mut Context<'_>, &Message<'_>) + Send + 'static) -> Self {
        Self {
            handler: Some(Box::new(handler)),
            ..Self::default()
        }
    }

    /// The same with a buffer.
    #[must_use]
    pub fn with_buffer(self, buffer: impl Into<Buffer>) -> Self {
        Self {
            buffer: Some(buffer.into()),
            ..self
        }
    }

    /// The same with a function that says where each message goes. It sees sender, argument
    /// words and [`Message::total`]; as payload the bytes that have come so far, which may be
    /// none. It is called within the same calls as the handler, and once for each message;
    /// again only where it said [`Placement::Later`], or where memory of the endpoint was
    /// wanted and there was none.
    #[must_use]
    pub fn placing(self, f: impl FnMut(&Message<'_>) -> Placement + Send + 'static) -> Self {
        Self {
            placing: Some(Box::new(f)),
            ..self
        }
    }

    /// The same with an error handler.
    #[must_use]
    pub fn on_error(self, f: impl FnMut(&mut Context<'_>, &Event) + Send + 'static) -> Self {
        Self {
            error_handler: Some(Box::new(f)),
            ..self
        }
    }

    /// The same, with handlers that the helper thread may run.
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
    /// Never bound: messages wait for that.
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
    /// Where it lies, if not in `body`.
    pub in_buffer: Option<Filled>,
    /// A placing function has said where it goes.
    pub placed: bool,
    pub charge: Charge,
    pub charged: usize,
}

#[derive(Default)]
pub struct Slot {
    /// A whole message may run its handler at once, where it lies.
    pub fast: bool,
    pub state: PortState,
    /// The buffer is with a message that is arriving or waits for its handler.
    pub busy: bool,
    /// In the list of ports with work.
    pub listed: bool,
    pub any_thread: bool,
    /// Nothing is taken until it is resumed.
    pub paused: bool,
    /// Counts bindings.
    pub generation: u32,
    pub placing: Option<Placing>,
    pub handler: Option<Handler>,
    pub error_handler: Option<ErrorHandler>,
    pub buffer: Option<Buffer>,
    /// Set while the buffer is out: what is to be bound in its place.
    pub replacement: Option<Option<Buffer>>,
    pub held: VecDeque<HeldMessage>,
    /// Buffers that were replaced after a message had been written to them.
    pub returned: VecDeque<(Buffer, usize)>,
    /// Messages delivered since the port was bound.
    pub arrived: u64,
}

impl Slot {
    /// Counts a message; gives the binding that it is of.
    #[inline(always)]
    pub const fn note_arrival(&mut self) -> u32 {
        self.arrived += 1;
        self.generation
    }

    /// Whether the message that waits first may be handed over, as far as the port says.
    pub fn may_hand_over(&self) -> bool {
        let first = self.held.front();
        !self.paused && first.is_some_and(|held| !self.busy || held.in_buffer.is_some())
    }

    pub fn update_fast(&mut self) {
        self.fast = self.state == PortState::Bound
            && self.handler.is_some()
            && self.buffer.is_none()
            && self.placing.is_none()
            && self.held.is_empty()
            && !self.busy;
    }

    /// Takes back the buffer of a message that is done with. `seen`: a handler
    /// saw it there; then whoever lent it knows where it is.
    pub fn put_back(&mut self, filled: Filled, seen: bool) {
        let Filled { buffer, bytes, .. } = filled;
        let to_tell = !(seen && buffer.is_lent());
        // If it was bound anew meanwhile, `busy` belongs to the new binding.
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
/// See [`PortId::index`].
const FIRST_OF_OTHERS: usize = 65_536;

const PAGES: usize = 65_536 / PAGE;

type Page = Option<Box<[Slot; PAGE]>>;

/// The table. A page of 64 ports exists once one of them was used.
pub struct Ports {
    /// Of the program's own space.
    own: Box<[Page; PAGES]>,
    /// Of the others, one after the other, as far as they were used.
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

    /// One of the program's own.
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

    /// Every bound port that has an error handler.
    pub fn with_error_handler(&self) -> Vec<PortId> {
        self.of_which(|slot| slot.state == PortState::Bound && slot.error_handler.is_some())
    }

    /// Every port of a space that was used, but for the engine's own.
    pub fn of_space(&self, space: SpaceId) -> Vec<PortId> {
        let mut used = self.of_which(|slot| slot.generation > 0 || !slot.held.is_empty());
        used.retain(|port| port.space == space && port.is_programs());
        used
    }

    /// Every port that holds messages.
    pub fn with_held(&self) -> Vec<PortId> {
        self.of_which(|slot| !slot.held.is_empty())
    }
}

/// Memory that arriving messages may take, as a whole and for each sender.
pub struct Budget {
    limit: usize,
    share: usize,
    pub used: usize,
    by_sender: Vec<usize>,
}

/// Counted for each waiting message beside its bytes.
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

    /// There are more senders from now on.
    pub fn grow(&mut self, senders: usize) {
        self.by_sender.resize(senders.max(self.by_sender.len()), 0);
    }

    /// What a message without bytes is charged.
    pub const EMPTY: usize = OVERHEAD;

    /// Takes memory for a message, if there is any; gives what was charged.
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

    /// Bytes that each sender's messages take.
    pub fn by_sender(&self) -> &[usize] {
        &self.by_sender
    }

    pub fn release(&mut self, from: u32, charged: usize) {
        self.used -= charged;
        self.by_sender[from as usize] -= charged;
    }

    /// Whether a message of that length could ever be charged.
    pub fn could_ever(&self, bytes: u64) -> bool {
        bytes.saturating_add(OVERHEAD as u64) <= self.share as u64
    }

    pub fn room(&self) -> u64 {
        (self.share.saturating_sub(OVERHEAD)) as u64
    }
}
