//! The state of an endpoint but for its links, and what is done with all of it. What
//! happens to a message that arrives is in `arrive`, how handlers run in `handlers`.

mod arrive;
mod aside;
mod binding;
mod closing;
mod collective;
mod context;
mod exchanges;
mod handlers;
mod offer;
mod placing;
mod ports;
mod send;
mod space;
mod tasks;
mod unbound;

use std::any::Any;
use std::collections::VecDeque;

use portolan_proto::{Outcome, SourceId};
use portolan_wire::MessageNo;

pub use self::collective::{BROADCAST, BarrierCall, DeadPeer, Progress};
pub use self::context::Context;
use self::ports::Ports;
pub use self::ports::{Binding, ErrorHandler, Handler, Placement, Placing};
use self::space::{Others, Space};
use crate::environment::Tracer;
use crate::groups::Barriers;
use crate::lanes::{Lane, Lanes};
use crate::values::{Counters, Death, Event, Message, Meta, PortId, Settings, SpaceId};
use crate::waiting::{Aside, Dest, Incomings, News, Ops, Outbox, Unbound};

/// The first part of a message, or all of it.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    pub meta: Meta,
    pub args: &'a [u8],
    pub total: u64,
    pub payload: &'a [u8],
}

impl<'a> Arrival<'a> {
    /// As handlers see it.
    #[inline(always)]
    pub(crate) const fn message(&self) -> Message<'a> {
        let meta = &self.meta;
        Message {
            from: meta.from,
            port: meta.port,
            flow: SpaceId::number_of(meta.flow),
            priority: meta.priority,
            number: meta.number,
            payload: self.payload,
            total: self.total,
            args: self.args,
        }
    }

    #[inline(always)]
    pub const fn is_whole(&self) -> bool {
        self.payload.len() as u64 == self.total
    }
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Took {
    /// All of it.
    Whole,
    /// Further parts are to name this (never 0).
    Part(u64),
    /// Offer it again when `resume` is set.
    NotNow,
    /// Its sender is to be told.
    Refused,
}

/// What an endpoint has found of another, beyond messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// One of this host seems to be gone, and why: see [`crate::Engine::gone`].
    Suspect(u32, Death),
    /// One was given up and may live: whoever started us is to know.
    GivenUp(u32, Death),
    /// Something is to be sent to one of this host with which no memory is shared yet: see
    /// [`crate::Engine::meet`].
    Wanted(u32),
    /// One has introduced itself, and waits to be let in: see [`crate::Engine::let_in`].
    Come(u32),
    /// Nothing of one comes any more: see [`crate::Engine::has_departed`].
    Departed(u32),
    /// Numbers may be given back that were kept for a while: see
    /// [`crate::Engine::keep_places`].
    Due,
}

/// The state of an endpoint but for its links.
pub struct Core {
    /// This process's rank.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// Handlers that want the program's thread may run now.
    pub run: bool,
    /// There is something for the slow half of a pass.
    pub(crate) attention: bool,
    /// Something was left with its lane.
    pub starved: bool,
    pub(crate) resume: bool,
    /// A reply has found no memory here, or has to wait behind what is kept. Then that goes on
    /// though the outbox is full: two who keep each other's requests would wait for each other
    /// for ever.
    pub(crate) reply_waits: bool,
    /// Messages wait for a port's placing function, which the helper thread may not call.
    pub unasked: bool,
    /// Close has begun: nothing new is sent.
    pub closing: bool,
    /// It has, or whoever had the program's own space is done with it.
    pub(crate) own_is_over: bool,
    /// Close has gone on for so long that nothing is answered any more.
    pub leaving: bool,
    /// What ports are bound to, and hold.
    pub ports: Ports,
    /// The way to each rank.
    pub lanes: Lanes,
    /// What was done so far.
    pub counters: Counters,
    /// Messages of one-sided accesses that have arrived.
    pub(crate) accesses: u64,
    /// Where a timeline is recorded, if one is.
    pub trace: Option<Box<dyn Tracer>>,
    /// Who sent messages to ports that are not bound yet.
    pub unbound: Unbound,
    /// What spaces are opened with.
    pub(crate) settings: Settings,
    /// The program's own space.
    pub own: Space,
    /// Those that are open beside it.
    pub(crate) others: Others,
    pub(crate) incoming: Incomings,
    /// Messages that could not be taken when they came.
    pub(crate) aside: Aside,
    /// How often senders were told to stop a flow, and to go on.
    pub told: [u64; 2],
    /// Parts of long messages that have come by the network.
    pub long_parts: u64,
    pub(crate) ops: Ops,
    /// Ports with messages whose handlers can run.
    pub ready: VecDeque<PortId>,
    pub(crate) outbox: Outbox,
    pub(crate) barriers: Barriers,
    /// What error handlers are to be told, and of which space.
    pub events: VecDeque<(SpaceId, Event)>,
    /// What whoever runs the engine is to settle.
    pub findings: Vec<Finding>,
    /// Tells people what they would not hear otherwise.
    pub(crate) tell: fn(std::fmt::Arguments<'_>),
    /// What a handler panicked with: goes on when the call ends.
    pub panic: Option<Box<dyn Any + Send>>,
    /// Number of the next message to ourselves.
    pub(crate) self_number: MessageNo,
    /// Vectors to put messages together in, kept for the next.
    pub(crate) spare: Vec<Vec<u8>>,
}

/// Whether a message that arrives in parts is an exchange's, which gives no lower
/// numbers.
const fn is_matched(cookie: u64) -> bool {
    cookie >> 32 != 0
}

/// Vectors kept, at most.
const SPARE_MAX: usize = 4;

impl Core {
    /// With lanes to all ranks.
    #[must_use]
    pub fn new(settings: &Settings, lanes: Lanes) -> Self {
        Self {
            rank: settings.rank,
            size: settings.size,
            run: true,
            attention: false,
            starved: false,
            resume: false,
            reply_waits: false,
            unasked: false,
            closing: false,
            own_is_over: false,
            leaving: false,
            ports: Ports::new(),
            lanes,
            counters: Counters::default(),
            accesses: 0,
            trace: None,
            unbound: Unbound::default(),
            settings: settings.clone(),
            own: Space::new(settings),
            others: Others::default(),
            incoming: Incomings::default(),
            aside: Aside::default(),
            told: [0; 2],
            long_parts: 0,
            ops: Ops::new(settings.copy_bytes),
            ready: VecDeque::new(),
            outbox: Outbox::new(settings.reply_bytes),
            barriers: Barriers::default(),
            events: VecDeque::new(),
            findings: Vec::new(),
            tell: settings.tell,
            panic: None,
            self_number: MessageNo(0),
            spare: Vec::new(),
        }
    }

    /// Whether there is no job: peers come and go.
    #[inline]
    pub const fn standalone(&self) -> bool {
        self.settings.standalone
    }

    /// What waits to be sent, and what to be taken, for people to read.
    #[must_use]
    pub fn waiting(&self) -> [&dyn std::fmt::Debug; 2] {
        [&self.outbox, &self.aside]
    }

    /// A receiver has copied a message of ours.
    pub(crate) fn finish_op(&mut self, id: SourceId) {
        self.ops.finish(id, Outcome::Done);
    }

    /// The protocol is done with a long message's memory.
    pub(crate) fn released(&mut self, id: SourceId, outcome: Outcome) {
        let to = self.ops.get_mut(id).map(|entry| entry.to);
        let why = to.and_then(|to| self.lanes.dead(to));
        // Of a death it tells next, with the reason: that ends the operation.
        if outcome == Outcome::Done || why.is_some() {
            self.ops.finish(id, outcome);
        }
    }

    /// A peer seems to be gone. However many messages find that, it is settled once.
    #[cold]
    pub(crate) fn suspect(&mut self, rank: u32, why: Death) {
        if self.suspected(rank).is_none() {
            // Calls to it fail before its death is told.
            log::info!("rank {}: rank {rank} seems gone: {why}", self.rank);
            self.findings.push(Finding::Suspect(rank, why));
        }
    }

    /// How a peer seems to be gone.
    pub(crate) fn suspected(&self, rank: u32) -> Option<Death> {
        self.findings.iter().find_map(|it| match it {
            Finding::Suspect(suspect, why) if *suspect == rank => Some(*why),
            _ => None,
        })
    }

    /// A peer is dead: its messages that are not complete go, ours to it fail.
    pub(crate) fn mark_dead(&mut self, rank: u32, why: Death) {
        if let Some(left) = self.set_dead(rank, why) {
            self.emit_to_all(Event::dead(rank, why), left);
        }
    }

    /// The same, and no error handler hears of it; gives those spaces that need not. `None`: it
    /// is dead, or none.
    pub(crate) fn set_dead(&mut self, rank: u32, why: Death) -> Option<u16> {
        if rank == self.rank || matches!(self.lanes.get(rank), Some(Lane::Dead(_)) | None) {
            return None;
        }
        log::info!("rank {}: rank {rank} is dead: {why}", self.rank);
        let left = self.lanes.set_dead(rank, why);
        if why.is_own_finding() && !self.standalone() {
            self.findings.push(Finding::GivenUp(rank, why));
        }
        self.ops.peer_died(rank);
        self.outbox.drop_for(rank);
        self.note_freed();
        for incoming in self.incoming.drop_from(rank) {
            match incoming.dest {
                Dest::Bound(filled) => {
                    let port = incoming.meta.port_id();
                    self.ports.get_or_make(port).put_back(filled, false);
                    self.list(port);
                }
                Dest::Own {
                    charge, charged, ..
                } => {
                    let budget = self.budget(incoming.meta.space(), charge);
                    budget.release(rank, charged);
                }
                Dest::Aside(_) | Dest::Passed(_) => {}
            }
        }
        let incoming = &mut self.incoming;
        (self.aside).died(rank, |cookie| incoming.get(cookie).map(|it| it.bytes()));
        self.ops.news.push(News::Died(rank));
        self.counters.deaths += 1;
        Some(left)
    }
}
