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

mod aside;
mod binding;
mod clock;
mod collective;
mod context;
mod core;
mod counters;
mod engine;
mod error;
mod incoming;
mod lanes;
mod matched;
mod memory;
mod message;
mod net;
mod network;
mod ops;
mod out;
mod outbox;
mod placing;
mod poll_throttle;
mod ports;
mod returns;
mod send;
mod settings;
mod shm;
mod space;
mod tracer;
mod unbound;

pub use clock::Clock;
pub use collective::{BROADCAST, BarrierCall, DeadPeer, Group, Progress};
pub use context::Context;
pub use core::{Core, Finding};
pub use counters::Counters;
pub use engine::Engine;
pub use error::{Death, Failure, Misuse, SendError, WaitError};
pub use lanes::{Lane, LaneCount, Lanes};
pub use matched::{Exchange, Extent, Gather, Matched, Released, Scatter};
pub use memory::{Buffer, Payload, Source};
pub use message::{Event, Message, SendOptions};
pub use net::{Credentials, NetLane, NetTx, PACKET_MIN, ProtoTables};
pub use network::Network;
pub use ops::Op;
pub use out::Out;
pub use ports::{Binding, ErrorHandler, Handler, Meta, PORTS_RESERVED, Placement, Placing, PortId};
pub use returns::Restarted;
pub use send::FLOWS_MAX;
pub use settings::Settings;
pub use shm::ShmLane;
pub use space::{SPACES, SpaceId};
pub use tracer::Tracer;
pub use unbound::Row as UnboundRow;
