//! Operations as the program knows them: their names, and how they end.

/// Names an operation until its completion was taken; not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// Names a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u32);

/// Rank number that stands for no rank.
pub(crate) const NOBODY: u32 = u32::MAX;

/// A queue that never exists: completions for it are dropped.
pub(crate) const NOWHERE: QueueId = QueueId(u32::MAX);

/// Names a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(pub u32);

/// How the end of an operation is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notify {
    /// Returned with the completion. Default 0.
    pub context: u64,
    /// Queue of the completion. `None`, the default: the completion waits until it is taken by the
    /// operation's number.
    pub queue: Option<QueueId>,
    /// Counter that counts the end. Default none.
    pub counter: Option<CounterId>,
    /// Only failures enter the queue; successes reach the counter alone. Default off; no effect
    /// without a queue.
    pub only_errors: bool,
}

impl Notify {
    /// The default: the completion waits until it is taken by the operation's number.
    pub const NONE: Self = Self {
        context: 0,
        queue: None,
        counter: None,
        only_errors: false,
    };
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Sends a message that is matched by a tag.
    Send,
    /// Receives a message that is matched by a tag.
    Receive,
    /// Receives many messages, each reported before: the memory is free again.
    ReceiveMany,
    /// Writes another rank's memory.
    Put,
    /// Reads another rank's memory.
    Get,
    /// Adds to 8 bytes of another rank's memory.
    FetchAdd,
    /// Replaces 8 bytes of another rank's memory if they are as expected.
    CompareSwap,
    /// Another atomic operation on another rank's memory.
    Atomic,
    /// Waits until earlier puts are visible at the target.
    Flush,
    /// Sends a message to a port.
    Message,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The peer died first; part of the bytes may be missing.
    #[error("the other side died")]
    PeerDead,
    /// The message was longer than its memory, which is full.
    #[error("the message was longer than the memory for it: only its beginning is there")]
    Truncated,
    /// The receiver refused the message: it had closed the port or its endpoint, or the
    /// message was too long for it.
    #[error("the receiver has closed the port")]
    Refused,
    /// The operation was cancelled.
    #[error("the operation was cancelled")]
    Cancelled,
    /// The endpoint was closed.
    #[error("the endpoint was closed")]
    Closed,
    /// The target has no such region, or no longer. The target reports this and the errors that
    /// follow before it touches its memory.
    #[error("the other side has no region under this key")]
    BadKey,
    /// The region's rights do not allow the access, or the target does not know this rank
    /// ([`crate::Config::regions_for_known`]).
    #[error("the other side does not permit this access to its memory")]
    NotPermitted,
    /// The access does not lie in the region. Or, in a whole address space, nothing is mapped
    /// there or it cannot be written: part of a put may have been written then.
    #[error("the access does not lie in the other side's region, or nothing is mapped there")]
    OutOfBounds,
    /// The offset of an atomic operation is no multiple of its element's size, or of half that for
    /// a complex number.
    #[error("the offset of an atomic operation must be a multiple of its element's size")]
    Unaligned,
    /// The target has no such port for the signal.
    #[error("the other side has no port for the signal")]
    NoPort,
    /// All one-sided access to the target is forbidden, by its program or by
    /// its host's settings.
    #[error("one-sided access is forbidden at the other side")]
    Forbidden,
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Completion {
    /// The operation. For one message of a receive of many: that receive.
    pub op: OpId,
    /// What the operation did.
    pub action: Action,
    /// Rank of the peer. `u32::MAX`: a receive from any source that met no message, or takes many.
    pub peer: u32,
    /// Tag of the message; for a receive that met none, its own; 0 for one-sided operations.
    pub tag: u64,
    /// Bytes that were sent, or written to the memory of receive, put or get.
    pub bytes: u64,
    /// Bytes of the message, or of the access.
    pub total: u64,
    /// Offset in the memory of one message of a receive of many, bytes. Else 0.
    pub at: u64,
    /// Word that the sender sent beside the tag. For an atomic operation that fetches one element
    /// of at most 8 bytes: the old value. For a message to a port: its number.
    pub data: Option<u64>,
    /// See [`Notify::context`].
    pub context: u64,
    /// Success, or why it failed.
    pub result: Result<(), OpError>,
}

/// Memory of an operation, returned with its completion.
#[derive(Debug)]
pub enum Memory<S, K> {
    /// Memory of a send or a put.
    Source(S),
    /// Memory of a receive or a get.
    Sink(K),
}

/// Value of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Count {
    /// Operations that succeeded, and counted accesses of others.
    pub done: u64,
    /// Operations that failed.
    pub failed: u64,
}
