//! The state of an endpoint without its links. `arrive` handles messages that arrive,
//! `handlers` runs handlers.

mod arrive;
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
mod set_aside;
mod space;
mod tasks;
mod untaken;

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};

use portolan_proto::{Outcome, SourceId};
use portolan_wire::MessageNo;

pub use self::collective::{BROADCAST, BarrierCall, DeadPeer, Progress};
pub use self::context::Context;
pub use self::ports::{Binding, ErrorHandler, Handler, Placement, Placing};
use self::ports::{HandlerChanges, Handlers, Ports};
pub(crate) use self::send::message;
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
    /// Returns the message as handlers see it.
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

/// What became of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalOutcome {
    /// Taken; no further parts name it.
    Whole,
    /// Begun; further parts name this cookie (never 0).
    Part(u64),
    /// Not taken: offer it again when `resume` is set.
    NotNow,
    /// Refused: its sender must be told.
    Refused,
}

/// What an endpoint has found about another, for the driver to settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A rank of this host seems to be gone, and why: see [`crate::Engine::handle_peer_death`].
    Suspect(u32, Death),
    /// A rank was given up but may be alive, and why: the launcher must learn of it.
    GivenUp(u32, Death),
    /// A send found a rank of this host with which no memory is shared yet: see
    /// [`crate::Engine::meet`].
    Wanted(u32),
    /// A peer has introduced itself, and waits to be admitted: see [`crate::Engine::accept_stranger`].
    Come(u32),
    /// Nothing more arrives from a peer: see [`crate::Engine::has_departed`].
    Departed(u32),
    /// Numbers of departed peers may be released: see [`crate::Engine::evict_peers`].
    Due,
}

/// A peer as the event log names it: in a job behind our own rank, and outside of one, where
/// each endpoint is rank 0 to itself, alone.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    own: Option<u32>,
    rank: u32,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.own, self.rank) {
            (Some(own), rank) => write!(f, "rank {own}: rank {rank}"),
            (None, peer) => write!(f, "peer {peer}"),
        }
    }
}

/// The state of an endpoint without its links, and the handlers of its ports. A handler reaches
/// all but these while it runs: so it stays where it is, and what binds or closes its port takes
/// effect when it returns.
pub struct Core {
    handlers: Handlers,
    /// What handlers reach too.
    pub state: CoreState,
}

impl Deref for Core {
    type Target = CoreState;

    #[inline(always)]
    fn deref(&self) -> &CoreState {
        &self.state
    }
}

impl DerefMut for Core {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut CoreState {
        &mut self.state
    }
}

/// The state of an endpoint without its links and its handlers.
pub struct CoreState {
    /// This process's rank.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Handlers bound to the program's thread may run now.
    pub(crate) run: bool,
    /// Reasons for which a pass, or an arrival, is more than usual: [`WORK`], [`CARE`] and
    /// [`NETWORK`]. It has each reason that holds, and perhaps some that held before: those go
    /// once they have been looked at.
    pub(crate) unusual: u8,
    /// A message was left with its lane.
    pub starved: bool,
    pub(crate) resume: bool,
    /// A reply has found no memory here, or waits behind kept messages. Then kept messages run
    /// even if the outbox is full: two ranks that keep each other's requests would deadlock.
    pub(crate) reply_waits: bool,
    /// Messages wait for a port's placing function, which the helper thread may not call.
    pub unasked: bool,
    /// Close has begun: nothing new is sent.
    pub closing: bool,
    /// Close has begun, or the program's own space was closed.
    pub(crate) own_is_over: bool,
    /// Close has lasted so long that nothing is answered any more.
    pub leaving: bool,
    /// Bindings of ports, and the messages that they hold.
    pub ports: Ports,
    handler_changes: HandlerChanges,
    /// Lane to each rank.
    pub lanes: Lanes,
    /// Counters since the endpoint was opened.
    pub counters: Counters,
    /// Number of messages of one-sided accesses that have arrived.
    pub(crate) accesses: u64,
    /// Recorder of the timeline, if there is one.
    pub trace: Option<Box<dyn Tracer>>,
    /// Senders of messages to ports that are not bound yet.
    pub unbound: Unbound,
    /// Settings with which spaces are opened.
    pub(crate) settings: Settings,
    /// The program's own space.
    pub own: Space,
    /// The other open spaces.
    pub(crate) others: Others,
    pub(crate) incoming: Incomings,
    /// Messages that could not be taken on arrival.
    pub(crate) aside: Aside,
    /// Number of requests to senders to stop a flow, and to go on.
    pub told: [u64; 2],
    /// Number of parts of long messages received by the network.
    pub long_parts: u64,
    pub(crate) ops: Ops,
    /// Ports with messages whose handlers can run.
    pub ready: VecDeque<PortId>,
    pub(crate) outbox: Outbox,
    pub(crate) barriers: Barriers,
    /// Events for error handlers, each with its space.
    pub events: VecDeque<(SpaceId, Event)>,
    /// Findings for the driver to settle.
    pub findings: Vec<Finding>,
    /// Prints a diagnostic that is reported nowhere else.
    pub(crate) tell: fn(std::fmt::Arguments<'_>),
    /// Payload of a handler's panic; resumed when the call ends.
    pub panic: Option<Box<dyn Any + Send>>,
    /// Number of the next message to ourselves.
    pub(crate) self_number: MessageNo,
    /// Vectors to assemble messages in, kept for reuse.
    pub(crate) spare: Vec<Vec<u8>>,
}

/// Whether a cookie is one of an exchange, which uses no numbers below 2^32.
const fn is_matched(cookie: u64) -> bool {
    cookie >> 32 != 0
}

/// The slow half of a pass has work.
const WORK: u8 = 1;
/// Messages are not handed over by the shortest path, or a call has to look at more when it ends.
const CARE: u8 = 2;
/// There is a network lane, at which each pass looks.
pub(crate) const NETWORK: u8 = 4;

/// Maximum length of [`CoreState::spare`].
const SPARE_MAX: usize = 4;

impl Core {
    /// Makes the state, with lanes to all ranks.
    #[must_use]
    pub fn new(settings: &Settings, lanes: Lanes) -> Self {
        Self {
            handlers: Handlers::default(),
            state: CoreState::new(settings, lanes),
        }
    }
}

impl CoreState {
    fn new(settings: &Settings, lanes: Lanes) -> Self {
        Self {
            rank: settings.rank,
            size: settings.size,
            run: true,
            unusual: WORK,
            starved: false,
            resume: false,
            reply_waits: false,
            unasked: false,
            closing: false,
            own_is_over: false,
            leaving: false,
            ports: Ports::new(),
            handler_changes: HandlerChanges::default(),
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

    /// Whether there is a reason, beside a network, to look further after a look at shared memory.
    #[inline(always)]
    #[must_use]
    pub const fn is_unusual(&self) -> bool {
        self.unusual & (WORK | CARE) != 0
    }

    /// Whether the slow half of a pass has work.
    pub(crate) const fn has_work(&self) -> bool {
        self.unusual & WORK != 0
    }

    /// Notes that the slow half of a pass has work.
    pub const fn note_work(&mut self) {
        self.unusual |= WORK;
    }

    /// Notes which reasons still hold, after the slow half of a pass. `work`: it has more of it.
    pub(crate) fn note_reasons(&mut self, work: bool) {
        let care = !self.run
            || self.own_is_over
            || self.outbox.is_any_full()
            || self.aside.is_any()
            || self.trace.is_some()
            || !self.findings.is_empty()
            || self.panic.is_some();
        let network = self.unusual & NETWORK;
        self.unusual = network | (u8::from(work) * WORK) | (u8::from(care) * CARE);
    }

    /// Says whether handlers bound to the program's thread may run.
    pub const fn set_run(&mut self, run: bool) {
        self.run = run;
        self.note_work();
    }

    /// Whether the endpoint is outside of a job: peers come and go.
    #[inline]
    pub const fn standalone(&self) -> bool {
        self.settings.standalone
    }

    /// Returns how the event log names a peer.
    #[must_use]
    pub const fn named(&self, rank: u32) -> Named {
        let own = if self.standalone() {
            None
        } else {
            Some(self.rank)
        };
        Named { own, rank }
    }

    /// Returns what waits to be sent and what waits to be taken, for debug output.
    #[must_use]
    pub fn waiting(&self) -> [&dyn std::fmt::Debug; 2] {
        [&self.outbox, &self.aside]
    }

    /// Ends the operation of a message that its receiver has copied.
    pub(crate) fn finish_op(&mut self, id: SourceId) {
        self.ops.finish(id, Outcome::Done);
        self.note_news();
    }

    /// Ends the operation of a long message whose memory the protocol no longer reads.
    pub(crate) fn released(&mut self, id: SourceId, outcome: Outcome) {
        let to = self.ops.get_mut(id).map(|entry| entry.to);
        let why = to.and_then(|to| self.lanes.dead(to));
        // Else the protocol reports the death next, with its reason: that ends the operation.
        if outcome == Outcome::Done || why.is_some() {
            self.ops.finish(id, outcome);
            self.note_news();
        }
    }

    /// Reports that a peer seems to be gone: once, however many messages find that.
    #[cold]
    pub(crate) fn suspect(&mut self, rank: u32, why: Death) {
        if self.suspected(rank).is_none() {
            // Calls to the peer fail before its death is reported.
            log::info!("{} seems gone: {why}", self.named(rank));
            self.find(Finding::Suspect(rank, why));
        }
    }

    /// Keeps a finding for the driver to settle.
    pub fn find(&mut self, it: Finding) {
        self.findings.push(it);
        self.note_work();
    }

    /// Returns how a peer seems to be gone.
    pub(crate) fn suspected(&self, rank: u32) -> Option<Death> {
        self.findings.iter().find_map(|it| match it {
            Finding::Suspect(suspect, why) if *suspect == rank => Some(*why),
            _ => None,
        })
    }

    /// Marks a peer dead and tells error handlers: its incomplete messages are dropped, and
    /// ours to it fail.
    pub(crate) fn mark_dead(&mut self, rank: u32, why: Death) {
        if let Some(left) = self.set_dead(rank, why) {
            self.emit_to_all(Event::dead(rank, why), left);
        }
    }

    /// Marks a peer dead without telling error handlers. Returns the spaces that need not be
    /// told: a bit for each. `None`: no peer, or dead already.
    pub(crate) fn set_dead(&mut self, rank: u32, why: Death) -> Option<u16> {
        if rank == self.rank || matches!(self.lanes.get(rank), Some(Lane::Dead(_)) | None) {
            return None;
        }
        let state = if why == Death::Closed {
            "has left"
        } else {
            "is dead"
        };
        log::info!("{} {state}: {why}", self.named(rank));
        let left = self.lanes.set_dead(rank, why);
        if why.is_own_finding() && !self.standalone() {
            self.find(Finding::GivenUp(rank, why));
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
        self.note_work();
        self.counters.deaths += 1;
        Some(left)
    }
}
