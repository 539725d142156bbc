//! The core of an endpoint: ports and handlers, lanes to peers, matched messages, one pass
//! of progress.
//!
//! It is a state machine that owns its links. Nothing here sleeps, starts a thread, or
//! makes a system call but by its links, and time comes from a [`Clock`] that whoever runs
//! it lends. So the simulator runs the same code as a process. Nothing here knows which
//! interface sits on top, or who started the process.
//!
//! # Who calls what, and when
//!
//! An [`Engine`] is made of a [`Core`], a [`Matched`], the lanes that there are
//! ([`NetLane`], [`ShmLane`]) and a clock. Then its methods are called by one thread at a
//! time. They fall into five classes:
//!
//! - **What the program asks for.** [`Engine::try_send`] sends, and [`Engine::send_now`] is
//!   the short way through shared memory. [`Engine::take_part`] lends the core with the way
//!   out, for all else that sends: [`Core::post_message`], [`BarrierCall::poll`],
//!   [`Core::close_port`]. [`Core::bind`] sends nothing and needs none of them. Operations on
//!   matched messages begin with [`Engine::post_tagged`], [`Engine::post_receive`] and
//!   [`Engine::reach`]; memory is lent to others by [`Engine::register_region`].
//!   Whoever sends by [`Engine::split`] calls [`Engine::touch`] before, which reads the
//!   clock, and [`Engine::flush`] after, which lets what was queued leave; the others do
//!   both themselves.
//! - **Progress.** [`Engine::pass`] takes what has arrived, runs handlers, tries again what
//!   found no room, and sends what is due. It is called as often as it moves something, when
//!   a link has something, and at [`Engine::next_timeout`]. After a pause,
//!   [`Engine::look_at_all`] comes first. Handlers run within passes, and within
//!   [`Engine::gone`] and [`Engine::back`], which take what had come before: all of them
//!   while [`Core::run`] is set, otherwise those of ports for any thread. Each is given a
//!   [`Context`].
//! - **What others tell.** [`Engine::gone`], [`Engine::back`] and
//!   [`Engine::reset_silence_timer`] say how processes have ended, returned or stopped.
//! - **What comes out.** After a pass, [`Engine::next_finding`] gives what was found of other
//!   ranks until there is nothing; a [`Finding::Suspect`] is answered with
//!   [`Engine::gone`]. How an operation has ended the [`Exchange`] of its space tells
//!   ([`Engine::with_exchange`]). [`Engine::waits_for_room`] says that a pass is to
//!   come soon although nothing tells when.
//! - **The end.** [`Core::begin_close`]; passes until [`Engine::idle`]; [`Core::refuse_all`];
//!   passes until idle, and until [`Engine::withdraw_regions`] succeeds;
//!   [`Engine::close_lanes`]; passes until idle; [`Engine::end`]. Of one space while others
//!   go on: [`Engine::close_space`]; passes until [`Engine::space_has_left`];
//!   [`Core::set_left`].
//!
//! # Where things are
//!
//! Each folder uses those above it alone, never one below; within a folder files may use
//! each other.
//!
//! | folder | holds |
//! | --- | --- |
//! | `values` | errors, messages and events, memory, settings, counters, numbers of ports and spaces |
//! | `environment` | what whoever runs the engine lends: clock, networks, timeline |
//! | `groups` | groups of ranks; barriers and broadcasts as they travel |
//! | `lanes` | which link leads to each rank, and why; who has come back |
//! | `waiting` | what waits: to leave, to be acknowledged, for further parts, to be taken, for its port |
//! | `out` | the sending halves of both lanes |
//! | `matched` | the exchange of each space; memory in pieces; what others of the host see of regions |
//! | `core` | [`Core`]: what happens to a message that arrives, handlers, sends, spaces, barriers |
//! | `shm`, `net` | the lanes: what arrives is taken to the core |
//! | `engine` | [`Engine`]: one pass over all of it, and how operations begin |
//!
//! A message's way in: link, `net` or `shm`, `core`, where its handler runs, or it waits, or
//! is refused. Its way out: `core` picks the lane, `out` has its sending half.

mod core;
mod engine;
mod environment;
mod groups;
mod lanes;
mod matched;
mod net;
mod out;
mod shm;
mod values;
mod waiting;

pub use core::{
    BROADCAST, BarrierCall, Binding, Context, Core, DeadPeer, ErrorHandler, Finding, Handler,
    Placement, Placing, Progress,
};
pub use engine::{Engine, NotNear};
pub use environment::{Clock, Network, Tracer};
pub use groups::{Group, broadcast_head_bytes};
pub use lanes::{Lane, LaneCount, Lanes, Restarted};
pub use matched::{Exchange, Extent, Gather, Matched, Released, Scatter, address_space};
pub use net::{NetLane, PACKET_MIN};
pub use out::{Credentials, NetTx, NewPeer, Out, ProtoTables};
pub use shm::ShmLane;
pub use values::{
    Buffer, Counters, Death, DeregisterError, Event, FLOWS_MAX, Failure, Message, Meta, Misuse,
    PORTS_RESERVED, Payload, PortId, RegisterError, SPACES, Secrets, SendError, SendOptions,
    Settings, Source, SpaceId, WaitError,
};
pub use waiting::Row as UnboundRow;
