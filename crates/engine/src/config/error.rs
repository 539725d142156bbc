//! What can go wrong while an endpoint opens.

use portolan_link::udp::BindError;
use portolan_sys::memory::MemoryError;

/// Why an endpoint was not opened. Each text names cause and remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No UDP socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// No memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The host port is not to be used.
    #[error("host port: {0}")]
    HostPort(String),
    /// The shared segment is not to be used.
    #[error("{0}")]
    Shm(String),
    /// A setting has a value that is not possible: which, and what is.
    #[error("{0}")]
    Setting(String),
    /// A rank cannot be reached by the link asked for: rank, and why.
    #[error("rank {0} cannot be reached: {1}")]
    Unreachable(u32, String),
    /// The helper thread cannot be started.
    #[error(
        "the helper thread cannot be started ({0}): raise `ulimit -u`, `ulimit -v` or the \
         container's limit of processes, or do without (the setting helper=off)"
    )]
    Thread(std::io::Error),
    /// The named system call failed.
    #[error(
        "{} failed: {}; see whether a limit of the process (ulimit -n, -u) is hit",
        .0,
        std::io::Error::from_raw_os_error(*.1)
    )]
    System(&'static str, i32),
}
