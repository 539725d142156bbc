//! Memory shared between processes, or between the threads of one: rings,
//! the many-producer inbox, sleeping and waking, ownership, plain tables,
//! tables of memory regions.
//!
//! Nothing here holds a pointer in shared memory, and nothing believes an
//! index, a length or a counter that it reads there: other processes may have
//! scribbled over it. Such a value is read once into a local, checked in
//! every build, and answered with [`Corrupt`].
//!
//! Under `--cfg loom` the atomics are loom's, for `tests/loom.rs`.

mod atomic;
#[cfg(not(loom))]
mod beyond;
mod holder;
mod inbox;
#[cfg(not(loom))]
mod kernel;
#[cfg(not(loom))]
mod lent;
mod line;
#[cfg(not(loom))]
mod owned;
mod ownership;
mod queue;
mod regions;
mod sleep;
mod spsc;
mod table;
#[cfg(not(loom))]
mod wiped;

#[cfg(not(loom))]
pub use beyond::copy_beyond;
pub use holder::Holder;
pub use inbox::{InboxConsumer, InboxLayout, InboxProducer, InboxSlot, SKIP_WINDOW};
#[cfg(not(loom))]
pub use kernel::{ChunkRing, Descriptor, KernelConsumer, KernelProducer};
#[cfg(not(loom))]
pub use lent::{Exposed, Lent, LentMut};
#[cfg(not(loom))]
pub use line::address_of;
pub use line::{CacheLine, INLINE_BYTES, LINE_BYTES, RingMessage, Short};
#[cfg(not(loom))]
pub use owned::{Callers, HelperGuard, Owned, OwnerGuard, Refused};
pub use ownership::Ownership;
pub use portolan_sys::memory::MemoryError;
#[cfg(not(loom))]
pub use queue::queue_lines;
pub use queue::{BATCH, Offsets, QueueTurn, Share, Words};
pub use regions::{
    Permission, PublishError, Region, RegionId, RegionKey, RegionOwner, RegionTable, RegionUse,
    RegionsLayout, Terms, UseWord, WithdrawError,
};
pub use sleep::{Fence, SleepWord, Slumber};
pub use spsc::{Consumer, Position, Producer, RingLayout, RingSlot};
pub use table::{ForkMark, Plain, Table};
#[cfg(not(loom))]
pub use wiped::Wiped;

/// Shared memory holds a value that no well-behaved process writes there.
/// The ring or inbox is of no use any more; treat its other end as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another process has overwritten shared memory: restart the job")]
pub struct Corrupt;

/// Why a slot cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// No room now; the other end must read first.
    #[error("the ring is full: make progress and try again")]
    Full,
    /// It can never hold so many bytes.
    #[error("the frame is longer than any slot")]
    TooBig,
    /// See [`Corrupt`].
    #[error("{Corrupt}")]
    Corrupt,
}

impl From<Corrupt> for ReserveError {
    fn from(_: Corrupt) -> Self {
        Self::Corrupt
    }
}
