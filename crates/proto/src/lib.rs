//! The protocol: reliable, exactly once, ordered within a flow, as a pure
//! state machine. No socket, no clock, no allocation: `now`, randomness, keys
//! and memory are arguments, so a test replays any run from its seed.
//!
//! [`Endpoint`] is a view over plain tables that the caller owns
//! ([`Tables`]). It is made anew for each call; tables may move in between.
//! It calls nobody: messages are handed out by [`Rx`], a part at a time, and
//! what else happens by [`Endpoint::poll_event`].
//!
//! One module each: `handshake` makes connections, `send` queues messages,
//! `ready` keeps those that have something to send, `transmit` turns queues
//! into packets, `loss` reads acknowledgements and resends, `reordering` how
//! far out of order packets come, `split` cuts what has become too big,
//! `receive` opens packets, `rx` takes them apart, `ack` remembers what arrived,
//! `path` holds what each path has of its own, `networks` makes further ones
//! and gives them up, `striping` chooses among them, `reroute` leaves the way
//! of one that stays congested, `reassembly` orders and completes messages,
//! `receiver_not_ready` deals with those that cannot be held, `refusal` with
//! those that nobody wants, `stops` with flows of which nothing more is wanted
//! for now, `credit` and [`congestion`] bound what is under way, `mtu` finds
//! packet sizes, `timers` wakes all of it up, `death` ends it, and `events`
//! keeps what has yet to be told.
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
mod events;
mod handshake;
mod interface;
mod kept;
mod keys;
mod loss;
mod mtu;
mod networks;
pub(crate) mod pacing;
mod path;
mod peer;
mod pool;
mod ready;
mod reassembly;
mod receive;
mod receiver_not_ready;
mod refusal;
mod reordering;
mod reroute;
pub(crate) mod rto;
mod rx;
mod send;
mod split;
mod stops;
mod striping;
mod tables;
mod timers;
mod transmit;

pub use check::Credit;
pub use config::{Config, FIRST_PACKET_MAX, FLOWS_MAX, PATHS_MAX, WINDOW_SPAN};
pub use conn::Conn;
pub use describe::{CONN_FIELDS, COUNTER_FIELDS, Field, PATH_FIELDS, width};
pub use endpoint::{AddPeerError, Endpoint};
pub use interface::{
    DeathReason, Delivery, Event, Heard, Message, NetAddress, Outcome, PeerEvent, PeerId, Release,
    Reroute, SendError, SourceId, Sources, Transmit, Verdict,
};
pub use kept::{NOT_PARKED, PathSnapshot, PeerSnapshot};
pub use keys::key_slots;
pub use networks::LocalNetwork;
pub use path::Path;
pub use peer::{Peer, PeerState};
pub use pool::FrameMeta;
pub use rx::{Rx, Spare};
pub use send::Long;
pub use tables::{Core, Counters, Drops, Identity, Layout, Tables};
