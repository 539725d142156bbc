//! Errors, one small enum for each kind of call.

use std::fmt;

use portolan_exchange::{Completion, RegisterRefused};
use portolan_ring::Refused;

/// The interface was used wrongly; nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The process is a forked child: the endpoint belongs to its parent.
    #[error(
        "a forked child has no part in its parent's endpoint: open one of its own, or call from \
         the parent"
    )]
    Forked,
    /// The endpoint is single-threaded, and the calling thread is not the first that called it.
    #[error(
        "the endpoint was opened for a single thread and this is another: open it with threads = \
         serialized or multiple"
    )]
    WrongThread,
    /// Another thread is in a call of a serialized endpoint.
    #[error(
        "another thread is in a call, and the endpoint was opened with threads = serialized: keep \
         the calls apart, or open it with threads = multiple"
    )]
    Concurrent,
    /// Called from one of the endpoint's own handlers: use the handler's [`crate::Context`]. Or
    /// called from a signal handler that interrupted a call in its thread.
    #[error(
        "called from within a handler (use the handler's context), or from a signal handler that \
         interrupted a call"
    )]
    InHandler,
    /// The endpoint is closed.
    #[error("the endpoint is closed")]
    Closed,
    /// No such rank.
    #[error("there is no such rank in the job")]
    BadRank,
    /// The endpoint was opened outside of a job: it has peers, and no group that all of
    /// them agree on.
    #[error(
        "the endpoint was opened without a launcher: it has peers that come and go, and neither \
         barriers, broadcasts nor groups"
    )]
    NoJob,
    /// The endpoint is in a job: peers cannot be added or removed.
    #[error("peers are added to endpoints outside of a job: open one with open_standalone")]
    InJob,
    /// Ports from [`crate::PORTS_RESERVED`] on are the engine's own.
    #[error("ports from 65,280 on are kept for Portolan itself")]
    ReservedPort,
    /// There is no such space.
    #[error("there is no such space: they are numbered 0 to {}", super::SPACES - 1)]
    NoSuchSpace,
    /// The space is open already.
    #[error("the space is open already: each is opened once in a process")]
    SpaceOpen,
    /// Flow number at or above [`crate::FLOWS_MAX`] or, in a space other than the program's
    /// own, above 0.
    #[error(
        "flows are numbered 0 to {}, and in another space than the program's there is but 0",
        super::FLOWS_MAX - 1
    )]
    BadFlow,
    /// More argument words than [`portolan_wire::ARGS_MAX`].
    #[error("at most {} argument words", portolan_wire::ARGS_MAX)]
    TooManyArgs,
    /// There is no such completion queue, or it was closed.
    #[error("there is no such completion queue, or it was closed")]
    NoSuchQueue,
    /// There is no such counter, or it was closed.
    #[error("there is no such counter, or it was closed")]
    NoSuchCounter,
    /// No such atomic operation on elements of this type or on this number of them, or the
    /// values have other lengths.
    #[error(
        "there is no such atomic operation on elements of this type, or not on so many, or the \
         values have other lengths"
    )]
    BadAtomic,
    /// There is no such claimed message, or it was received or discarded.
    #[error("no such message was claimed, or it was received or discarded already")]
    NoSuchMessage,
}

impl From<Refused> for Misuse {
    #[inline]
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Forked => Self::Forked,
            Refused::Inside => Self::InHandler,
            Refused::WrongThread => Self::WrongThread,
            Refused::Concurrent => Self::Concurrent,
        }
    }
}

/// Why a peer is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Death {
    /// The peer closed its endpoint.
    Closed,
    /// The process ended without closing; how is unknown.
    Ended,
    /// The process ended with this exit code, without closing.
    Exited(i32),
    /// This signal ended the process.
    Killed(i32),
    /// The process became another program (exec), without closing.
    Replaced,
    /// The host is gone.
    HostLost,
    /// The peer did not answer while an operation waited for it.
    Silent,
    /// The peer never answered.
    NoAnswer,
    /// A new life of the peer made contact.
    Restarted,
    /// The peer or this endpoint found the memory that they share corrupt.
    Corrupt,
    /// No link reaches the peer.
    Unreachable,
    /// The peer was not heard, because the kernel refuses packets here.
    CutOff(Failure),
    /// The peer has removed this endpoint: earlier operations do not go on.
    Removed,
    /// The number is unassigned: its last holder was removed here, or is gone.
    Nobody,
}

/// A network failure on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// Packets to the peer cannot be sent: errno.
    Send(i32),
    /// Packets cannot be received: errno.
    Receive(i32),
}

impl Failure {
    /// Returns the errno.
    #[must_use]
    pub const fn errno(self) -> i32 {
        match self {
            Self::Send(errno) | Self::Receive(errno) => errno,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = std::io::Error::from_raw_os_error(self.errno());
        match self {
            Self::Send(_) => write!(f, "packets to it cannot be sent: {error}"),
            Self::Receive(_) => write!(f, "packets cannot be received here: {error}"),
        }
    }
}

impl Death {
    /// Whether this endpoint gave the peer up without an outside report: the peer may be alive.
    pub const fn is_own_finding(self) -> bool {
        matches!(
            self,
            Self::Silent | Self::NoAnswer | Self::Corrupt | Self::CutOff(_)
        )
    }

    /// Whether the process has ended, or was replaced.
    pub const fn is_end(self) -> bool {
        matches!(
            self,
            Self::Ended | Self::Exited(_) | Self::Killed(_) | Self::Replaced | Self::HostLost
        )
    }
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "it closed its endpoint",
            Self::Ended => "its process ended",
            Self::Exited(code) => return write!(f, "its process ended with exit code {code}"),
            Self::Killed(signal) => return write!(f, "signal {signal} ended its process"),
            Self::Replaced => "its process became another program (exec)",
            Self::HostLost => "its host is gone",
            Self::Silent => "it stopped answering",
            Self::NoAnswer => {
                "it never answered: check that its host is up, that UDP gets through (by the \
                 network that the setting interface names first), and that both have the same \
                 secret"
            }
            Self::Restarted => "it was restarted",
            Self::Corrupt => "the memory shared with it was scribbled over",
            Self::Unreachable => "no link reaches it",
            Self::CutOff(failure) => return failure.fmt(f),
            Self::Removed => "it has removed this endpoint: add it again to go on",
            Self::Nobody => "nobody has this number: its last holder was removed, or is gone",
        })
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No credit, window or memory now: make progress and try again.
    #[error("no credit now: make progress and try again")]
    NoCredit,
    /// The peer is dead; final.
    #[error("rank {rank} is dead: {why}")]
    PeerDead {
        /// Rank of the peer.
        rank: u32,
        /// Cause of death.
        why: Death,
    },
    /// Longer than any message can be. Or, to an unbound port of this rank itself, longer than
    /// the memory for queued messages can ever hold.
    #[error(
        "a message is at most 2^38 bytes long, and to oneself no longer than the memory for it \
         (queue_bytes)"
    )]
    TooLong,
    /// See [`Misuse`].
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

/// Why a blocking call, or a wait, failed.
///
/// The errors of the program's calls are one family:
///
/// | error | says |
/// | --- | --- |
/// | [`Misuse`] | The interface was used wrongly: nothing was done. All but [`OpError`] hold it. |
/// | [`SendError`] | Nothing was begun; memory passed with the call is returned. |
/// | [`RegisterError`], [`DeregisterError`] | Nothing was registered, or deregistered. |
/// | [`WaitError`] | An operation or a wait failed, or has not ended yet. |
/// | [`OpError`] | An operation failed. The [`Completion`] holds it; the wait itself succeeded. |
///
/// [`OpError`]: portolan_exchange::OpError
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// A peer that the call depends on is dead.
    #[error("rank {rank} is dead: {why}")]
    PeerDead {
        /// Rank of the peer.
        rank: u32,
        /// Cause of death.
        why: Death,
    },
    /// A non-blocking send found no credit, window or memory now.
    #[error("no credit now: make progress and try again")]
    NoCredit,
    /// The receiver refused the message: it closed the port or its endpoint.
    #[error("the receiver has closed the port")]
    Refused,
    /// The message was longer than the buffer, which holds its beginning.
    #[error(
        "the message has {} bytes and the buffer {}: probe for it first, or give it room",
        .0.total,
        .0.bytes
    )]
    Truncated(Completion),
    /// Longer than any message can be: nothing was begun.
    #[error("a message is at most 2^38 bytes long")]
    TooLong,
    /// There is no such operation, or its completion was taken already.
    #[error("there is no such operation, or its end was taken already")]
    NoSuchOperation,
    /// The timeout expired; the operation goes on.
    #[error("the time was up")]
    TimedOut,
    /// See [`Misuse`].
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl From<SendError> for WaitError {
    fn from(e: SendError) -> Self {
        match e {
            SendError::NoCredit => Self::NoCredit,
            SendError::PeerDead { rank, why } => Self::PeerDead { rank, why },
            SendError::TooLong => Self::TooLong,
            SendError::Misuse(m) => Self::Misuse(m),
        }
    }
}

/// Why memory was not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// One-sided access is forbidden here: by the program, or by the node's configuration.
    #[error(
        "one-sided access is forbidden here: by the program, or by no_one_sided in the host's \
         node.conf"
    )]
    Forbidden,
    /// The key names another region.
    #[error("the key names another region")]
    KeyTaken,
    /// The maximum number of regions is open: deregister one.
    #[error("no more regions can be registered")]
    Full,
    /// The kernel does not permit this process to copy from and to its own memory by address
    /// (`process_vm_readv`, `process_vm_writev`), or it is switched off (`cma`).
    #[error(
        "the address space cannot be registered: the kernel does not permit process_vm_readv and \
         process_vm_writev here, or PORTOLAN_DISABLE names cma"
    )]
    NotPossible,
    /// The part does not lie in the memory.
    #[error("the part does not lie in the memory")]
    OutOfBounds,
    /// The region whose memory was to be registered again is not open.
    #[error("there is no such region")]
    NoSuchRegion,
    /// See [`Misuse`].
    #[error(transparent)]
    Misuse(#[from] Misuse),
}

impl From<RegisterRefused> for RegisterError {
    fn from(refused: RegisterRefused) -> Self {
        match refused {
            RegisterRefused::Forbidden => Self::Forbidden,
            RegisterRefused::KeyTaken => Self::KeyTaken,
            RegisterRefused::Full => Self::Full,
            RegisterRefused::OutOfBounds => Self::OutOfBounds,
            RegisterRefused::NoSuchRegion => Self::NoSuchRegion,
        }
    }
}

/// Why a region was not deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum DeregisterError {
    /// There is no such region, or no longer.
    #[error("there is no such region")]
    NoSuchRegion,
    /// See [`Misuse`].
    #[error(transparent)]
    Misuse(#[from] Misuse),
}
