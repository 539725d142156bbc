//! The protocol: reliable, exactly once, ordered within a flow, as a pure
//! state machine. No socket, no clock, no allocation: `now`, randomness, keys
//! and memory are arguments, so a test replays any run from its seed.
//!
//! [`Endpoint`] is a view over plain tables that the caller owns
//! ([`Tables`]). It is made anew for each call; tables may move in between.
//! It calls nobody: messages are handed out by [`Rx`], a part at a time, and
//! what else happens by [`Endpoint::poll_event`].
//!
//! Folders, each of which uses only those before it:
//!
//! - `congestion`: window, pacing and round trips of a path, as values.
//! - `base`: settings, what passes between protocol and caller, lists.
//! - `path`: the state of one path: what has arrived by it, reordering, packet
//!   size, whether it takes the right way.
//! - `tables`: the memory that the caller gives: peers, connections, frames,
//!   long messages, and what of them is kept.
//! - `endpoint`: the view over all tables, the pool of frames, events.
//! - `connection`: peers are added, connect, get keys and active state, and die.
//! - `receive`: opens packets, orders and completes messages, hands them out.
//! - `networks`: makes further paths and gives them up, chooses among them,
//!   finds packet sizes, asks for other ways.
//! - `flow`: credit, stopped flows, refused messages, receiver not ready.
//! - `loss`: reads and owes acknowledgements, resends, cuts what is too big.
//! - `transmit`: queues messages, turns queues into packets.
//! - `timers` wakes all of it up; `describe` and `check` are for who watches.
#![no_std]
#![forbid(unsafe_code)]

mod base;
mod check;
pub mod congestion;
mod connection;
mod describe;
mod endpoint;
mod flow;
mod loss;
mod networks;
mod path;
mod receive;
mod tables;
mod timers;
mod transmit;

pub use base::{
    Config, DeathReason, Delivery, Event, FIRST_PACKET_MAX, FLOWS_MAX, FrameIndex, Heard, Message,
    NetAddress, Outcome, PATHS_MAX, PeerEvent, PeerId, Release, Reroute, SendError, SourceId,
    Sources, Transmit, Verdict, WINDOW_SPAN,
};
pub use check::Credit;
pub use connection::{AddPeerError, key_slots};
pub use describe::{CONN_FIELDS, COUNTER_FIELDS, Field, PATH_FIELDS, width};
pub use endpoint::Endpoint;
pub use path::Path;
pub use receive::{Rx, Spare};
pub use tables::{
    Conn, Core, Counters, Drops, FrameMeta, Identity, Layout, LocalNetwork, Long, NOT_PARKED,
    PathSnapshot, Peer, PeerSnapshot, PeerState, Tables,
};
