//! The protocol: reliable, exactly once, ordered within a flow, as a pure
//! state machine. No socket, no clock, no allocation: `now`, randomness, keys
//! and memory are arguments, so a test replays any run from its seed.
//!
//! [`Endpoint`] is a view over plain tables that the caller owns
//! ([`Tables`]). It is made anew for each call; tables may move in between.
//!
//! One module each: `handshake` makes connections, `send` queues messages,
//! `transmit` turns queues into packets, `loss` reads acknowledgements and
//! resends, `reordering` how far out of order packets come, `split` cuts what has become too big, `receive` takes packets apart, `ack` remembers what arrived,
//! `path` holds what each path has of its own, `networks` makes further ones
//! and gives them up, `striping` chooses among them, `reroute` leaves the way of one that stays
//! congested,
//! `reassembly` orders and completes messages, `receiver_not_ready` deals with those that
//! cannot be held, `credit` and [`congestion`]
//! bound what is under way, `mtu` finds packet sizes, `timers` wakes all of
//! it up, `death` ends it.
#![no_std]
#![forbid(unsafe_code)]

mod ack;
mod check;
mod config;
pub mod congestion;
mod conn;
mod credit;
mod death;
mod describe;
mod endpoint;
mod handshake;
mod host;
mod kept;
mod keys;
mod loss;
mod mtu;
mod networks;
pub(crate) mod pacing;
mod path;
mod peer;
mod pool;
mod reassembly;
mod receive;
mod receiver_not_ready;
mod refusal;
mod reordering;
mod reroute;
pub(crate) mod rto;
mod send;
mod split;
mod striping;
mod tables;
mod timers;
mod transmit;

pub use check::Credit;
pub use config::{Config, FIRST_PACKET_MAX, FLOWS_MAX, PATHS_MAX, WINDOW_SPAN};
pub use conn::Conn;
pub use describe::{CONN_FIELDS, COUNTER_FIELDS, Field, PATH_FIELDS, width};
pub use endpoint::{AddPeerError, Endpoint};
pub use host::{
    DeathReason, Delivery, Heard, Host, Message, NetAddress, Outcome, PeerEvent, PeerId, Release,
    Reroute, SendError, SourceId, Transmit, Verdict,
};
pub use kept::{PathSnapshot, PeerSnapshot};
pub use keys::key_slots;
pub use networks::LocalNetwork;
pub use path::Path;
pub use peer::{Peer, PeerState};
pub use pool::FrameMeta;
pub use send::Long;
pub use tables::{Core, Counters, Drops, Identity, Layout, Tables};
