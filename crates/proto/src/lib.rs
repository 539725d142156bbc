//! The protocol: reliable, exactly once, ordered within a flow, as a pure
//! state machine. No socket, no clock, no allocation: `now`, randomness, keys
//! and memory are arguments, so a test replays any run from its seed.
//!
//! [`Endpoint`] is a view over plain tables ([`Tables`]), which the caller
//! owns; it is made anew for each call, and tables may move in between. There
//! are no callbacks: [`Rx`] hands out messages, a part at a time, and
//! [`Endpoint::poll_event`] everything else.
//!
//! # Methods
//!
//! - `handle_*` take input: a packet, a deadline that has passed.
//! - `poll_*` return output, one item a call: packets to send, events. Call
//!   them until they return `None`.
//! - `note_*`, `set_*` and the like say what the caller knows: an interface's
//!   packet size, the death of a peer.
//! - Plain verbs are the caller's requests: [`send`](Endpoint::send),
//!   [`resume`](Endpoint::resume), [`close`](Endpoint::close). Resulting
//!   packets leave with the next ones.
//!
//! # Order of calls
//!
//! One pass over an endpoint:
//!
//! 1. [`handle_packet`](Endpoint::handle_packet) for each packet received. The
//!    [`Rx`] that it returns hands out parts of messages. After each
//!    [`Rx::next`], call [`poll_event`](Endpoint::poll_event) for events before
//!    that part, then [`Rx::answer`] if the part is the first of its message.
//!    The packet counts as received once `next` has returned `None`.
//! 2. [`handle_timeouts`](Endpoint::handle_timeouts) once
//!    [`next_timeout`](Endpoint::next_timeout) has passed, then `poll_event`.
//! 3. [`resume`](Endpoint::resume) if [`is_resumable`](Endpoint::is_resumable),
//!    or once the caller can take what it deferred: an [`Rx`] as in 1.
//! 4. [`poll_transmit`](Endpoint::poll_transmit), for packets whose bytes are in
//!    [`frame`](Endpoint::frame), and [`transmitted`](Endpoint::transmitted) for
//!    each once the link is done with it; then `poll_event`.
//! 5. Nothing is due until `next_timeout`, unless a packet arrives or the
//!    caller makes a request. [`may_transmit`](Endpoint::may_transmit) says
//!    whether something waits to leave.
//!
//! The caller may send at any time, also while it has an [`Rx`]. After news of
//! a peer from outside, such as [`peer_died`](Endpoint::peer_died),
//! `poll_event` reports the effect.
//!
//! # Folders
//!
//! Each uses only those before it:
//!
//! - `congestion`: window, pacing and round trips of a path, as values.
//! - `base`: settings, types of the interface to the caller, indices, lists.
//! - `received`: packets received by a path, and the acknowledgement owed for them.
//! - `handshake`: how far the making of a connection has come.
//! - `keys`: which key seals and opens a packet, and when the next begins.
//! - `silence`: how long a peer has been silent, and what is due for that.
//! - `way`: where a path leads, whether it is used, and when it is tried.
//! - `paths`: the paths of a pair, and by which the next packet leaves.
//! - `sent`: packets sent by a path: in flight, acknowledged, lost, probed.
//! - `path`: the state of one path.
//! - `tables`: the memory that the caller provides: peers, connections, frames,
//!   long messages, parked state.
//! - `endpoint`: the view over all tables, the pool of frames, events.
//! - `connection`: adds and connects peers, derives keys, makes and parks
//!   active state, ends peers.
//! - `receive`: opens packets, orders and completes messages, hands them out.
//! - `networks`: makes further paths, drops failed ones, chooses among them,
//!   finds packet sizes.
//! - `flow`: credit, stopped flows, refused messages, receiver not ready.
//! - `loss`: reads and owes acknowledgements, resends, splits frames that are too big.
//! - `transmit`: queues messages, turns queues into packets.
//! - `timers`: deadlines; `describe` and `check`: for monitors and tests.
//!
//! `received` to `sent` are values: plain data with methods of their own, which
//! know no endpoint, take the time and what else they need as arguments, and
//! return what came of it. Each has unit tests without packets.
//!
//! Folders from `connection` on implement [`Endpoint`] and call each other's
//! methods; entries of tables know no endpoint.
#![no_std]
#![forbid(unsafe_code)]

mod base;
mod check;
pub mod congestion;
mod connection;
mod describe;
mod endpoint;
mod flow;
mod handshake;
mod inbound;
mod keys;
mod loss;
mod memory;
mod networks;
mod outbound;
mod path;
mod paths;
mod receive;
mod received;
mod sent;
mod silence;
mod tables;
mod timers;
mod transmit;
mod way;

pub use base::{
    Config, Counters, DeathReason, Delivery, Drops, Event, FIRST_PACKET_MAX, FLOWS_MAX, FrameIndex,
    Heard, Message, NetAddress, Outcome, PATHS_MAX, PeerEvent, PeerId, Release, SendError,
    SourceId, Sources, Transmit, Verdict, WINDOW_SPAN,
};
pub use check::Credit;
pub use connection::AddPeerError;
pub use describe::{CONN_FIELDS, COUNTER_FIELDS, Field, PATH_FIELDS, width};
pub use endpoint::Endpoint;
pub use inbound::Spare;
pub use keys::key_slots;
pub use memory::{FrameMeta, Long};
pub use path::Path;
pub use receive::Rx;
pub use tables::{
    Conn, Core, Identity, Layout, LocalNetwork, NOT_PARKED, PathSnapshot, Peer, PeerSnapshot,
    PeerState, Tables,
};
