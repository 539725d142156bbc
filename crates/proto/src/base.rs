//! What every other folder uses: settings, types of the interface to the
//! caller, indices of the tables, and lists of them.

mod config;
mod counters;
mod index;
mod interface;
mod list;
mod unusual;

pub use config::{Config, FIRST_PACKET_MAX, FLOWS_MAX, PATHS_MAX, WINDOW_SPAN};
pub(crate) use config::{FRAME_BYTES_MAX, PACKET_BASE};
pub use counters::{Counters, Drops};
pub use index::FrameIndex;
pub(crate) use index::{ConnIndex, LongIndex, PathIndex, indexed};
pub use interface::{
    DeathReason, Delivery, Event, Heard, Message, NetAddress, Outcome, PeerEvent, PeerId, Release,
    SendError, SourceId, Sources, Transmit, Verdict,
};
pub(crate) use list::{Linked, List};
pub(crate) use unusual::Unusual;
