//! The endpoint: ports, handlers, lanes to peers, progress, waiting.
//!
//! A message's way in: link → protocol (`net`) or ring (`shm`) → `core`, where
//! its handler runs, or it waits, or is refused. Its way out: `send` picks the
//! lane. `state` makes one pass of progress over all of it; `own` keeps out
//! everybody but one thread; `helper` steps in while the program is away.
//!
//! Nothing here knows which interface sits on top, or who started the process.

mod backoff;
mod binding;
mod collect;
mod collective;
mod config;
mod context;
mod core;
mod counters;
mod describe;
mod endpoint;
mod error;
mod future;
mod helper;
mod idle;
mod incoming;
mod lanes;
mod matched;
mod memory;
mod message;
mod net;
mod network;
mod open;
mod ops;
mod outbox;
mod own;
mod poll_throttle;
mod ports;
mod returns;
mod send;
mod shm;
mod sleep;
mod state;
mod trace;
mod unbound;
mod wait;
mod ways;

pub use collective::Group;
pub use config::{Agreement, Config, Notice, PeerConfig, Restarted, Watch};
pub use context::Context;
pub use counters::Counters;
pub use describe::{CALLS, Call, Table};
pub use endpoint::Endpoint;
pub use error::{Death, Failure, Misuse, OpenError, SendError, WaitError};
pub use future::Arrival;
pub use matched::{Ended, Gather, MatchError, Scatter};
pub use memory::{Buffer, Payload};
pub use message::{Event, Message, SendOptions};
pub use open::{MappedHostPort, Opening, ShmAttachment};
pub use ops::Op;
pub use own::Threads;
pub use portolan_exchange::{
    Action, Completion, Config as ExchangeConfig, Count, CounterId, DeregisterError, Memory,
    MessageId, Notify, OpError, OpId, PUSHED_MIN, Place, Probed, Push, PutEnd, PutOptions, QueueId,
    RegionId, RegisterError, RemoteKey, Rights, SHARE_MIN, Selector, SendOptions as TaggedOptions,
    Signal, Statistics,
};
pub use portolan_link::xdp::{
    HostPort, Sharing as HostPortSharing, Sizes as HostPortSizes,
    packet_max as host_port_packet_max,
};
pub use portolan_proto::Field;
pub use portolan_proto::congestion::Mode as Congestion;
pub use portolan_seal::SuiteId;
pub use portolan_sys::memory::Hidden;
pub use portolan_wire::{ARGS_MAX, Address, EndpointId, KeyAddress, Life, MessageNo, Priority};
pub use ports::{Binding, ErrorHandler, Handler, PORTS_RESERVED};
pub use send::FLOWS_MAX;
