//! The protocol: reliable, exactly once, ordered within a flow, as a pure
//! state machine. No socket, no clock, no allocation: `now`, randomness, keys
//! and memory are arguments, so a test replays any run from its seed.
//!
//! [`Endpoint`] is a view over plain tables that the caller owns
//! ([`Tables`]). It is made anew for each call; tables may move in between.
//! It calls nobody back: messages are handed out by [`Rx`], a part at a time,
//! and what else happens by [`Endpoint::poll_event`].
//!
//! # Methods
//!
//! - `handle_*` take in what has come: a packet, a deadline that has passed.
//! - `poll_*` hand out what is to be done, one thing at a time: packets to
//!   send, events. They are called until they return `None`.
//! - `note_*`, `set_*` and the like say what the caller knows: the size of
//!   packets that an interface takes, that a peer has died.
//! - Plain verbs are what the caller wants: [`send`](Endpoint::send),
//!   [`resume`](Endpoint::resume), [`close`](Endpoint::close). What comes of
//!   them leaves with the next packets.
//!
//! # Order of calls
//!
//! One pass over an endpoint:
//!
//! 1. [`handle_packet`](Endpoint::handle_packet) for each packet that has come.
//!    The [`Rx`] that it returns hands out parts of messages. Each
//!    [`Rx::next`] is followed by [`poll_event`](Endpoint::poll_event), for what
//!    happened before the part came, and if it is the first of its message by
//!    [`Rx::answer`]. Once `next` has returned `None` the packet counts.
//! 2. [`handle_timeouts`](Endpoint::handle_timeouts) once
//!    [`next_timeout`](Endpoint::next_timeout) has passed, then `poll_event`.
//! 3. [`resume`](Endpoint::resume) if [`is_resumable`](Endpoint::is_resumable),
//!    or if the caller can take what it could not: an [`Rx`] as in 1.
//! 4. [`poll_transmit`](Endpoint::poll_transmit), for packets whose bytes are in
//!    [`frame`](Endpoint::frame), and [`transmitted`](Endpoint::transmitted) for
//!    each once the link is done with it; then `poll_event`.
//! 5. Until `next_timeout` nothing is due, unless a packet comes or the caller
//!    wants something. [`may_transmit`](Endpoint::may_transmit) tells whether
//!    something waits to leave.
//!
//! The caller may send at any time, also while it has an [`Rx`]. After news of
//! a peer from outside, such as [`peer_died`](Endpoint::peer_died), `poll_event`
//! tells what became of it.
//!
//! # Folders
//!
//! Each uses only those before it:
//!
//! - `congestion`: window, pacing and round trips of a path, as values.
//! - `base`: settings, what passes between protocol and caller, indices, lists.
//! - `path`: the state of one path: what has arrived by it, reordering, packet
//!   size, whether it takes the right way.
//! - `tables`: the memory that the caller gives: peers, connections, frames,
//!   long messages, and what of them is kept.
//! - `endpoint`: the view over all tables, the pool of frames, events.
//! - `connection`: peers are added, connect, get keys and active state, and die.
//! - `receive`: opens packets, orders and completes messages, hands them out.
//! - `networks`: makes further paths and gives them up, chooses among them,
//!   finds packet sizes.
//! - `flow`: credit, stopped flows, refused messages, receiver not ready.
//! - `loss`: reads and owes acknowledgements, resends, cuts what is too big.
//! - `transmit`: queues messages, turns queues into packets.
//! - `timers` wakes all of it up; `describe` and `check` are for who watches.
//!
//! From `connection` on they are parts of [`Endpoint`], which call each other's
//! methods; what stands in the tables are values that know of no endpoint.
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
    NetAddress, Outcome, PATHS_MAX, PeerEvent, PeerId, Release, SendError, SourceId, Sources,
    Transmit, Verdict, WINDOW_SPAN,
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
