//! What can go wrong, one small enum for each kind of call.

use std::fmt;

use portolan_link::udp::BindError;
use portolan_sys::memory::MemoryError;

/// The call is wrong where it stands; nothing was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Misuse {
    /// The process is a forked child: the endpoint belongs to its parent.
    Forked,
    /// Another thread than the first that called a [`crate::Threads::Single`]
    /// endpoint.
    WrongThread,
    /// Another thread is in a call of a [`crate::Threads::Serialized`] endpoint.
    Concurrent,
    /// From within one of the endpoint's own handlers: use the handler's
    /// [`crate::Context`].
    InHandler,
    /// The endpoint is closed.
    Closed,
    /// No such rank.
    BadRank,
    /// Ports from [`crate::PORTS_RESERVED`] on are the engine's own.
    ReservedPort,
    /// There is no such completion queue, or it was closed.
    NoSuchQueue,
    /// There is no such counter, or it was closed.
    NoSuchCounter,
    /// There is no such claimed message, or it was received or discarded.
    NoSuchMessage,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forked => {
                "a forked child has no part in its parent's endpoint: open one of its own, or \
                 call from the parent"
            }
            Self::WrongThread => {
                "the endpoint was opened for a single thread and this is another: open it with \
                 threads = serialized or multiple"
            }
            Self::Concurrent => {
                "another thread is in a call, and the endpoint was opened with threads = \
                 serialized: keep the calls apart, or open it with threads = multiple"
            }
            Self::InHandler => "called from within a handler: use the handler's context",
            Self::Closed => "the endpoint is closed",
            Self::BadRank => "there is no such rank in the job",
            Self::ReservedPort => "ports from 65,280 on are kept for Portolan itself",
            Self::NoSuchQueue => "there is no such completion queue, or it was closed",
            Self::NoSuchCounter => "there is no such counter, or it was closed",
            Self::NoSuchMessage => {
                "no such message was claimed, or it was received or discarded already"
            }
        })
    }
}

impl std::error::Error for Misuse {}

/// Why a peer is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Death {
    /// It closed its endpoint.
    Closed,
    /// Its process ended without closing, how is not known.
    Ended,
    /// Its process ended with this exit code, without closing.
    Exited(i32),
    /// This signal ended its process.
    Killed(i32),
    /// Its process became another program (exec), without closing.
    Replaced,
    /// Its host is gone.
    HostLost,
    /// It did not answer while an operation waited for it.
    Silent,
    /// It never answered.
    NoAnswer,
    /// Another life of it spoke up.
    Restarted,
    /// What stands in the memory shared with it makes no sense, as it or this
    /// endpoint has found.
    Corrupt,
    /// No link reaches it.
    Unreachable,
    /// It was not heard, for the kernel refuses packets here.
    CutOff(Failure),
}

/// What the kernel refuses on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// Packets to the peer cannot be sent: errno.
    Send(i32),
    /// Nothing that comes by the network can be received: errno.
    Receive(i32),
}

impl Failure {
    /// As the kernel named it.
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
    /// Whether nobody told of it: this endpoint has given the peer up, which
    /// may live.
    pub(crate) const fn is_own_finding(self) -> bool {
        matches!(
            self,
            Self::Silent | Self::NoAnswer | Self::Corrupt | Self::CutOff(_)
        )
    }

    /// Whether its process has ended, or is no longer what it was.
    pub(crate) const fn is_end(self) -> bool {
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
        })
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SendError {
    /// No credit, window or memory now: make progress and try again.
    NoCredit,
    /// The peer is dead; final.
    PeerDead {
        /// Which.
        rank: u32,
        /// Why.
        why: Death,
    },
    /// Flow number at or above [`crate::FLOWS_MAX`].
    BadFlow,
    /// More argument words than [`crate::ARGS_MAX`].
    TooManyArgs,
    /// Longer than any message can be.
    TooLong,
    /// See [`Misuse`].
    Misuse(Misuse),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCredit => f.write_str("no credit now: make progress and try again"),
            Self::PeerDead { rank, why } => write!(f, "rank {rank} is dead: {why}"),
            Self::BadFlow => write!(f, "flows are numbered 0 to {}", crate::FLOWS_MAX - 1),
            Self::TooManyArgs => write!(f, "at most {} argument words", crate::ARGS_MAX),
            Self::TooLong => f.write_str("a message is at most 2^38 bytes long"),
            Self::Misuse(m) => m.fmt(f),
        }
    }
}

impl std::error::Error for SendError {}

impl From<Misuse> for SendError {
    fn from(m: Misuse) -> Self {
        Self::Misuse(m)
    }
}

/// How a wait for others ended otherwise than well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitError {
    /// A peer that the wait depends on is dead.
    PeerDead {
        /// Which.
        rank: u32,
        /// Why.
        why: Death,
    },
    /// The receiver refused the message: it closed the port or its endpoint.
    Refused,
    /// The time was up.
    TimedOut,
    /// See [`Misuse`].
    Misuse(Misuse),
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerDead { rank, why } => write!(f, "rank {rank} is dead: {why}"),
            Self::Refused => f.write_str("the receiver has closed the port"),
            Self::TimedOut => f.write_str("the time was up"),
            Self::Misuse(m) => m.fmt(f),
        }
    }
}

impl std::error::Error for WaitError {}

impl From<Misuse> for WaitError {
    fn from(m: Misuse) -> Self {
        Self::Misuse(m)
    }
}

impl From<SendError> for WaitError {
    /// Of a blocking send, which has no "not now".
    fn from(e: SendError) -> Self {
        match e {
            SendError::PeerDead { rank, why } => Self::PeerDead { rank, why },
            SendError::Misuse(m) => Self::Misuse(m),
            _ => Self::Refused,
        }
    }
}

/// Why an endpoint was not opened. Each text names cause and remedy.
#[derive(Debug)]
pub enum OpenError {
    /// No UDP socket.
    Bind(BindError),
    /// No memory.
    Memory(MemoryError),
    /// The host port is not to be used.
    HostPort(String),
    /// The shared segment is not to be used.
    Shm(String),
    /// A setting has a value that is not possible: which, and what is.
    Setting(String),
    /// A rank cannot be reached by the link asked for: rank, and why.
    Unreachable(u32, String),
    /// The helper thread cannot be started.
    Thread(std::io::Error),
    /// The named system call failed.
    System(&'static str, i32),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind(e) => e.fmt(f),
            Self::Memory(e) => e.fmt(f),
            Self::HostPort(e) => write!(f, "host port: {e}"),
            Self::Shm(e) | Self::Setting(e) => f.write_str(e),
            Self::Unreachable(rank, why) => write!(f, "rank {rank} cannot be reached: {why}"),
            Self::Thread(error) => write!(
                f,
                "the helper thread cannot be started ({error}): raise `ulimit -u`, `ulimit -v` \
                 or the container's limit of processes, or do without (the setting helper=off)"
            ),
            Self::System(call, errno) => write!(
                f,
                "{call} failed: {}; see whether a limit of the process (ulimit -n, -u) is hit",
                std::io::Error::from_raw_os_error(*errno)
            ),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<BindError> for OpenError {
    fn from(e: BindError) -> Self {
        Self::Bind(e)
    }
}

impl From<MemoryError> for OpenError {
    fn from(e: MemoryError) -> Self {
        Self::Memory(e)
    }
}
