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
//! - `memory`: the pool of frames and long messages that all peers share.
//! - `received`: packets received by a path, and the acknowledgement owed for them.
//! - `handshake`: how far the making of a connection has come.
//! - `keys`: which key seals and opens a packet, and when the next begins.
//! - `silence`: how long a peer has been silent, and what is due for that.
//! - `way`: where a path leads, whether it is used, and when it is tried.
//! - `paths`: the paths of a pair, and by which the next packet leaves.
//! - `sent`: packets sent by a path: in flight, acknowledged, lost, probed.
//! - `outbound`: messages to a peer: which chunk leaves next, and what leaves again.
//! - `inbound`: messages from a peer: what is handed out, held or dropped; credit.
//! - `path`: the state of one path.
//! - `tables`: the memory that the caller provides: peers, connections, parked state.
//! - `endpoint`: the view over all tables. A file for each kind of event:
//!   `receive`, `acknowledge`, `transmit`, `networks`; for peers: `peers`,
//!   `connect`, `active`; `rx` hands out what was received, `check` is for tests.
//! - `describe`: places of fields, for monitors.
//!
//! `received` to `inbound` are values: plain data with methods of their own,
//! which know no endpoint, take the time and what else they need as arguments,
//! and return what came of it. Each has unit tests without packets.
//!
//! [`Endpoint`] chooses the peer whose turn it is, lays packets out, seals and
//! opens them, keeps timers and lists, and asks the values for the rest. A sender
//! to several receivers needs one `Outbound`, one `Sent`, and a `Confirms` that
//! says what all of them have: `inbound/tests/many.rs` is one.
#![no_std]
#![forbid(unsafe_code)]

mod base;
pub mod congestion;
mod describe;
mod endpoint;
mod handshake;
mod inbound;
mod keys;
mod memory;
mod outbound;
mod path;
mod paths;
mod received;
mod sent;
mod silence;
mod tables;
mod way;

pub use base::{
    Config, Counters, DeathReason, Delivery, Drops, Event, FIRST_PACKET_MAX, FLOWS_MAX, FrameIndex,
    Heard, Message, NetAddress, Outcome, PATHS_MAX, PeerEvent, PeerId, Release, SendError,
    SourceId, Sources, Transmit, Verdict, WINDOW_SPAN,
};
pub use describe::{CONN_FIELDS, COUNTER_FIELDS, Field, PATH_FIELDS, width};
pub use endpoint::{AddPeerError, Credit, Endpoint, Foreseen, One, Rx, Taken};
pub use inbound::Spare;
pub use keys::key_slots;
pub use memory::{Cargo, Flight, Long};
pub use path::Path;
pub use tables::{
    Conn, Core, Identity, Layout, LocalNetwork, NOT_PARKED, PathSnapshot, Peer, PeerSnapshot,
    PeerState, Tables,
};
