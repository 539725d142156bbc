//! The core of an endpoint: ports, handlers, lanes to peers, matched messages, one pass
//! of progress.
//!
//! A message's way in: link -> protocol (`net`) or ring (`shm`) -> `core`, where
//! its handler runs, or it waits, or is refused. Its way out: `send` picks the
//! lane, `out` is the sending halves of both. `engine` makes one pass of progress over
//! all of it.
//!
//! Nothing here reads a clock of its own, sleeps, starts a thread, or makes a system call
//! but by its links: whoever runs it lends it a [`Clock`] and calls [`Engine::pass`]. So
//! the simulator runs the same code as a process. Nothing here knows which interface sits
//! on top, or who started the process.

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
    Progress,
};
pub use engine::Engine;
pub use environment::{Clock, Network, Tracer};
pub use groups::Group;
pub use lanes::{Lane, LaneCount, Lanes, Restarted};
pub use matched::{Exchange, Extent, Gather, Matched, Released, Scatter};
pub use net::{NetLane, PACKET_MIN};
pub use out::{Credentials, NetTx, Out, ProtoTables};
pub use shm::ShmLane;
pub use values::{
    Buffer, Counters, Death, Event, FLOWS_MAX, Failure, Message, Meta, Misuse, PORTS_RESERVED,
    Payload, PortId, SPACES, SendError, SendOptions, Settings, Source, SpaceId, WaitError,
};
pub use waiting::{Op, Row as UnboundRow};
