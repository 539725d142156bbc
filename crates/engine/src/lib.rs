//! The endpoint of a process: the engine's core with its links, run by the program's calls
//! and a helper thread; opening, waiting, sleeping, hearing of other processes' ends.
//!
//! `space` opens and closes, and is what the program calls: `calls` for ports, `matched` for
//! matched messages and memory, `collect` for groups, `wait` and `future` for waiting.
//! `state` makes one pass of progress; `own` keeps out everybody but one thread; `wait` and
//! `sleep` spin, yield and sleep; `helper` steps in while the program is away.
//!
//! Nothing here knows which interface sits on top, or who started the process.

mod calls;
mod config;
mod network;
mod observe;
mod open;
mod sleep;
mod space;
mod state;

pub use calls::{Arrival, Ended, MatchError};
pub use config::{Agreement, Config, Notice, OpenError, PeerConfig, Threads, Watch};
pub use observe::Table;
pub use open::{MappedHostPort, Opening, ShmAttachment};
pub use portolan_core::{
    Binding, Buffer, Context, Counters, Death, ErrorHandler, Event, FLOWS_MAX, Failure, Gather,
    Group, Handler, Message, Misuse, Op, PORTS_RESERVED, Payload, Restarted, Scatter, SendError,
    SendOptions, SpaceId, WaitError,
};
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
pub use sleep::{CALLS, Call};
pub use space::{Opener, Space};
