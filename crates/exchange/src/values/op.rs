//! Operations as the program knows them: their names, and how they end.

/// Names an operation until its end was taken; never another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// Names a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueId(pub u32);

/// Who has no rank.
pub(crate) const NOBODY: u32 = u32::MAX;

/// A queue that there never is: what ends there is forgotten.
pub(crate) const NOWHERE: QueueId = QueueId(u32::MAX);

/// Names a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CounterId(pub u32);

/// How the end of an operation is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notify {
    /// Comes back with the completion. Default 0.
    pub context: u64,
    /// The queue that its completion is put in; `None`, the default: it waits
    /// until it is taken by its number.
    pub queue: Option<QueueId>,
    /// The counter that counts it. Default none.
    pub counter: Option<CounterId>,
    /// Only a bad end is put in the queue: of a good one nobody hears but the counter.
    /// Default off; nothing without a queue.
    pub only_errors: bool,
}

impl Notify {
    /// The default: it waits until it is taken by its number.
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
    /// Receives one.
    Receive,
    /// Has received many, each of which has ended before: its memory is free.
    ReceiveMany,
    /// Writes another rank's memory.
    Put,
    /// Reads it.
    Get,
    /// Adds to 8 bytes of it.
    FetchAdd,
    /// Replaces 8 bytes of it that are as expected.
    CompareSwap,
    /// Another atomic operation on it.
    Atomic,
    /// Waits until what was put there is visible.
    Flush,
    /// Sends a message to a port.
    Message,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// The other side died first; of what was received some may be missing.
    #[error("the other side died")]
    PeerDead,
    /// The message was longer than the memory for it; that is full.
    #[error("the message was longer than the memory for it: only its beginning is there")]
    Truncated,
    /// The receiver refused the message: it had closed the port or its endpoint, or the
    /// message was too long for it.
    #[error("the receiver has closed the port")]
    Refused,
    /// It was cancelled.
    #[error("the operation was cancelled")]
    Cancelled,
    /// The endpoint was closed.
    #[error("the endpoint was closed")]
    Closed,
    /// The target has no such region, or no longer. Like the errors that
    /// follow, the target said it of the access: nothing there was touched.
    #[error("the other side has no region under this key")]
    BadKey,
    /// The region's rights do not allow it.
    #[error("the other side does not permit this access to its memory")]
    NotPermitted,
    /// It does not lie in the region; or, of a whole address space, nothing is mapped there,
    /// or it cannot be written: of a put a part may have been written then.
    #[error("the access does not lie in the other side's region, or nothing is mapped there")]
    OutOfBounds,
    /// The offset of an atomic operation is no multiple of its element's size, of a complex
    /// number of half that.
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
    /// Which. Of one message of a receive of many it is that receive.
    pub op: OpId,
    /// What it did.
    pub action: Action,
    /// The other side. Of a receive from anybody that was cancelled:
    /// `u32::MAX`.
    pub peer: u32,
    /// Tag of the message; of a receive that got none, its own; of one-sided
    /// operations 0.
    pub tag: u64,
    /// Bytes that were sent, or written to the memory of receive, put or get.
    pub bytes: u64,
    /// Bytes of the message, or of the access.
    pub total: u64,
    /// Of one message of a receive of many: where in the memory it begins. Else 0.
    pub at: u64,
    /// What the sender sent beside the tag. Of an atomic operation that fetches one element
    /// of at most 8 bytes: what that held before it. Of a message to a port: its number.
    pub data: Option<u64>,
    /// See [`Notify::context`].
    pub context: u64,
    /// Whether all went well.
    pub result: Result<(), OpError>,
}

/// Memory of an operation, given back with its end.
#[derive(Debug)]
pub enum Memory<S, K> {
    /// Of a send or a put.
    Source(S),
    /// Of a receive or a get.
    Sink(K),
}

/// What has ended, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Count {
    /// Operations that ended well.
    pub done: u64,
    /// Others.
    pub failed: u64,
}
