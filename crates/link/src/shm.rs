//! Shared memory between the processes of one host: reliable, ordered, and
//! without protocol, seal or clock.
//!
//! A launcher makes one [`Segment`] and passes its descriptor, with a doorbell
//! for each endpoint, to every process; each attaches as a [`ShmPort`]. Each
//! endpoint has two inboxes, for requests and for replies, that all others
//! write. Who sends much to one peer at one priority takes a ring of its own
//! from a bounded pool: it announces that in the inbox, behind its messages
//! there, and the receiver reads the ring from that announcement on, so the
//! order is kept.
//!
//! When a pair goes back and forth, the receiver reads one cache line for each
//! message: the slot in which the next one will appear, of the ring that was
//! last active. The other rings and the inboxes are quiet lines in its own
//! cache.
//!
//! Long messages are better copied once, straight between the processes:
//! [`ShmPort::copy_from_peer`]. Where that is not permitted, frames through
//! the pair ring are a pipelined copy by both processes.
//!
//! Each endpoint can publish regions of its memory, by key, in a table that
//! the others read: they put and get there without its doing anything.

mod cma;
pub mod floor;
mod link;
mod onesided;
mod outlet;
mod port;
mod segment;
mod send;

pub use onesided::{Naming, OneSidedError, ShmPlace};
pub use outlet::Outlet;
pub use port::{Frame, HEAD_BYTES_MAX, PollError, ShmPort, ShortFrame, Slumbering};
pub use portolan_ring::{Exposed, Permission, PublishError, RegionId, Terms, WithdrawError};
pub use portolan_sys::shared_doorbell::{Ringer, SharedDoorbells};
pub use segment::{ENDPOINTS_MAX, PeerState, Segment, SegmentConfig, SegmentError, lines_of};
pub use send::{ShmError, Slot};
