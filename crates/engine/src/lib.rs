//! The core of an endpoint: ports and handlers, lanes to peers, matched messages, one pass
//! of progress.
//!
//! A state machine that owns its links. Nothing here sleeps, starts a thread, or makes a system
//! call except through its links. Time comes from a [`Clock`] that the *driver* supplies: the
//! endpoint of a process, or the simulator. So both run the same code. Nothing here knows which
//! interface sits on top, or who started the process.
//!
//! # Who calls what, and when
//!
//! An [`Engine`] is made of a [`Core`], a [`Matched`], the available lanes ([`NetLane`],
//! [`ShmLane`]) and a clock. Its methods are called by one thread at a time, and fall into five
//! classes:
//!
//! - **Requests of the program.** [`Engine::try_send`] sends; [`Engine::send_now`] is its fast
//!   path, [`Engine::send_short`] the fastest. [`Engine::take_part`] lends the core with the sending halves
//!   for all else that sends: [`CoreState::post_message`], [`BarrierCall::poll`],
//!   [`Core::close_port`]. [`Core::bind`] sends nothing and needs none of them. Operations on
//!   matched messages begin with [`Engine::post_tagged`], [`Engine::post_receive`] and
//!   [`Engine::reach`]; memory is registered by [`Engine::register_region`]. A caller that
//!   sends by [`Engine::split`] calls [`Engine::update_clock`] before, which reads the clock, and
//!   [`Engine::flush`] after, which transmits what was queued; the other methods do both
//!   themselves.
//! - **Progress.** [`Engine::pass`] (or its two halves, [`Engine::pass_shm`] and
//!   [`Engine::pass_rest`]) takes what has arrived, runs handlers, retries what found
//!   no room, and sends what is due. Call it as long as it moves something, when a link has
//!   something, and at [`Engine::next_timeout`]. After a pause, call [`Engine::look_at_all`]
//!   first. Handlers run within passes, and within [`Engine::handle_peer_death`] and [`Engine::handle_peer_restart`], which
//!   take what arrived before: all handlers if
//!   [`CoreState::set_run`] says so, otherwise those of
//!   ports for any thread. Each receives a [`Context`].
//! - **Outside reports.** [`Engine::handle_peer_death`], [`Engine::handle_peer_restart`] and
//!   [`Engine::reset_silence_timer`] report that a process has ended, was restarted, or is
//!   alive though silent.
//! - **Results.** After a pass, [`Engine::next_finding`] returns what was found about other
//!   ranks, until it returns `None`; a [`Finding::Suspect`] is answered with [`Engine::handle_peer_death`].
//!   The [`Exchange`] of an operation's space reports how it ended ([`Engine::with_exchange`]).
//!   [`Engine::waits_for_room`] reports that a pass is needed soon although nothing signals
//!   when.
//! - **Closing.** [`CoreState::begin_close`]; passes until [`Engine::idle`]; [`CoreState::refuse_all`];
//!   passes until idle, and until [`Engine::withdraw_regions`] succeeds;
//!   [`Engine::close_lanes`]; passes until idle; [`Engine::end`]. To close one space while
//!   others go on: [`Engine::close_space`]; passes until [`Engine::space_has_left`];
//!   [`CoreState::set_left`].
//!
//! # Where things are
//!
//! A folder uses only those above it; files within one folder may use each other.
//!
//! | folder | holds |
//! | --- | --- |
//! | `values` | errors, messages and events, memory, settings, counters, numbers of ports and spaces |
//! | `environment` | what the driver supplies: clock, networks, timeline |
//! | `groups` | groups of ranks; barriers and broadcasts as they travel |
//! | `lanes` | which link leads to each rank, and why; restarted ranks |
//! | `waiting` | what waits to be sent, acknowledged, completed or taken, or for its port |
//! | `outbound` | the sending halves of both lanes |
//! | `matched` | the exchange of each space; memory in pieces; regions published on the host |
//! | `core` | [`Core`]: what happens to a message that arrives, handlers, sends, spaces, barriers |
//! | `shm`, `net` | the lanes: they hand what arrives to the core |
//! | `engine` | [`Engine`]: one pass over all of it, and how operations begin |
//!
//! Receive path: link, `net` or `shm`, `core`, where its handler runs, or the message waits or
//! is refused. Send path: `core` picks the lane, `outbound` has its sending half.

mod core;
mod engine;
mod environment;
mod groups;
mod lanes;
mod matched;
mod net;
mod outbound;
mod shm;
mod values;
mod waiting;

pub use core::{
    BROADCAST, BarrierCall, Binding, Context, Core, CoreState, DeadPeer, ErrorHandler, Finding,
    Handler, Placement, Placing, Progress,
};
pub use engine::{Engine, Io, LocalRefused};
pub use environment::{Clock, Network, Tracer};
pub use groups::{Group, broadcast_head_bytes};
pub use lanes::{Lane, LaneCount, Lanes, Restarted};
pub use matched::{Exchange, Extent, Gather, Matched, Released, Scatter, address_space};
pub use net::{NetLane, PACKET_MIN};
pub use outbound::{Credentials, NetTx, NewPeer, Outbound, ProtoTables};
pub use shm::ShmLane;
pub use values::{
    Buffer, Counters, Death, DeregisterError, Event, FLOWS_MAX, Failure, Message, Meta, Misuse,
    PORTS_RESERVED, Payload, PortId, RegisterError, SPACES, Secrets, SendError, SendOptions,
    Settings, Source, SpaceId, WaitError,
};
pub use waiting::Row as UnboundRow;
