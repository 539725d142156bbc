//! Plain values: kinds of messages, memory as a trait, names, settings of lanes, errors, tasks,
//! completions.

mod atomic;
mod copy;
mod incoming;
mod kind;
mod lane;
mod memory;
mod message;
mod op;
mod place;
mod region;
mod task;

pub(crate) use self::atomic::AtomicKind;
pub use self::atomic::{ATOMIC_BYTES, Atomic, AtomicOp, AtomicType};
pub(crate) use self::copy::{copy, copy_source};
pub use self::incoming::{Incoming, IncomingOutcome};
pub(crate) use self::kind::{FENCE, OVERLAP, SECOND, SHARES, SIGNAL, SYNC, UNWANTED, Words};
pub use self::kind::{KINDS, Kind, Stream};
pub(crate) use self::lane::OVERHEAD;
pub use self::lane::{Lane, LaneTerms, PUSHED_MIN, Push};
pub use self::memory::{Located, Sink, Source};
pub use self::message::{MessageId, Probed};
pub use self::op::{Action, Completion, Count, CounterId, Memory, Notify, OpError, OpId, QueueId};
pub(crate) use self::op::{NOBODY, NOWHERE};
pub use self::place::{Place, PutEnd, PutOptions, Signal};
pub use self::region::{
    Admission, DeregisterRefused, Opened, RegionId, RegisterRefused, RemoteKey, Rights, Salt,
};
pub(crate) use self::task::Args;
pub use self::task::{Did, Outgoing, Payload, Range, Task, Where};
