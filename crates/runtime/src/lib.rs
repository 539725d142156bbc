//! The endpoint of a process: the engine's core with its links, run by the program's calls and a
//! helper thread. Also opening, waiting, sleeping, and news of other processes' ends.
//!
//! Nothing here knows which interface sits on top, or who started the process.
//!
//! # Who calls what, and when
//!
//! - **Opening.** [`Opening::new`], or [`Opening::with_host_port`], opens the sockets.
//!   [`Opening::address`] goes to the other ranks, however they find each other.
//!   [`Opening::finish`] takes their addresses, the shared memory of the host, and a [`Watch`] that
//!   brings news of others; it returns the program's own [`Space`]. Further spaces of the same
//!   endpoint come from [`Space::space`] or an [`Opener`].
//! - **Calls that never wait.** [`Space::bind`], [`Space::try_send`], [`Space::post_message`],
//!   [`Space::post_receive`] and their like start an operation and return. They run no handler. A
//!   number identifies an operation in flight.
//! - **Calls that make progress.** [`Space::progress`] makes one pass: it receives what has
//!   arrived, runs handlers, sends what is due. Calls that wait ([`Space::send`], [`Space::wait`],
//!   [`Space::wait_until`], [`Space::barrier`], [`Space::receive_tagged`], ...) make passes until
//!   their condition holds: they spin, then yield the core, then sleep in the kernel.
//! - **Waiting elsewhere.** A program with an event loop of its own calls [`Space::arm`]
//!   before it sleeps on [`Space::fd`], and [`Space::progress`] after it. A task
//!   awaits [`Space::arrival`].
//! - **Closing.** [`Space::close`], or a drop, ends a space, and with the last one the
//!   endpoint.
//!
//! A call first enters the endpoint, which one thread holds at a time; [`Threads`] says what a
//! second one gets. While the program makes no calls, the helper thread makes the passes: it moves
//! data, and runs the handlers of ports that any thread may run. The engine polls its [`Watch`] now
//! and then, and whenever the watch's descriptor is readable.
//!
//! # Where things are
//!
//! A folder uses only those above it; files within a folder may use each other.
//!
//! | folder | holds |
//! | --- | --- |
//! | `config` | settings, which threads may call, why an endpoint cannot be opened |
//! | `neighbours` | how endpoints of one host, outside of a job, exchange their memory |
//! | `network` | the links of the network lane: a socket or a host port, and further networks |
//! | `sleep` | how long to spin and yield; which threads sleep, until when, and what wakes them |
//! | `state` | one pass of progress with all that belongs to it in a process; news of others |
//! | `observe` | for observers: tables of counters and state, a timeline |
//! | `space` | the endpoint and its spaces: opened, entered, waited in, closed; the helper thread |
//! | `calls` | what the program calls: ports, groups, matched messages and memory, futures |
//! | `open` | opening: the sockets, then the lanes to all ranks |

mod calls;
mod clock;
mod config;
mod neighbours;
mod network;
mod observe;
mod open;
mod sleep;
mod space;
mod state;

pub use calls::{AddPeerError, Arrival, Ended, Operation};
pub use config::{Agreement, Config, Notice, OpenError, PeerConfig, Threads, Watch};
pub use observe::Table;
pub use open::{MappedHostPort, Opening, OwnMemory, ShmAttachment};
pub use portolan_engine::{
    Binding, Buffer, Context, Counters, Death, DeregisterError, ErrorHandler, Event, FLOWS_MAX,
    Failure, Gather, Group, Handler, Message, Misuse, NewPeer, PORTS_RESERVED, Payload, Placement,
    Placing, RegisterError, Restarted, Scatter, Secrets, SendError, SendOptions, SpaceId,
    WaitError,
};
pub use portolan_exchange::{
    ATOMIC_BYTES, Action, Admission, Atomic, AtomicOp, AtomicType, BYTES_MAX as MESSAGE_BYTES_MAX,
    Completion, Config as ExchangeConfig, Count, CounterId, Memory, MessageId, Notify, OpError,
    OpId, PUSHED_MIN, Place, Probed, Push, PutEnd, PutOptions, QueueId, RegionId, RemoteKey,
    Rights, SHARE_MIN, Salt, Selector, SendOptions as TaggedOptions, Signal, Statistics,
};
pub use portolan_link::xdp::{
    HostPort, Sharing as HostPortSharing, Sizes as HostPortSizes,
    packet_max as host_port_packet_max,
};
pub use portolan_proto::congestion::Mode as Congestion;
pub use portolan_proto::{Field, NetAddress};
pub use portolan_ring::copy_beyond;
pub use portolan_seal::SuiteId;
pub use portolan_sys::doorbell::Doorbell;
pub use portolan_sys::memory::Hidden;
pub use portolan_wire::{
    ADDRESS_BYTES, ARGS_MAX, Address, EndpointId, KeyAddress, Life, MessageNo, Priority,
};
pub use sleep::{CALLS, Call};
pub use space::{Opener, Space};
pub use state::congestion_towards;
