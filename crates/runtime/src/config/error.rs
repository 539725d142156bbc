//! What can go wrong while an endpoint opens.

use portolan_link::udp::BindError;
use portolan_sys::memory::MemoryError;

/// Why an endpoint was not opened. Each text names cause and remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The UDP socket cannot be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// Memory is not available, or not as needed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The host port cannot be used.
    #[error("host port: {0}")]
    HostPort(String),
    /// The shared segment cannot be used.
    #[error("{0}")]
    Shm(String),
    /// A setting has an impossible value: which setting, and what is possible.
    #[error("{0}")]
    Setting(String),
    /// A rank cannot be reached by the requested link: rank, and why.
    #[error("rank {0} cannot be reached: {1}")]
    Unreachable(u32, String),
    /// The helper thread cannot be started.
    #[error(
        "the helper thread cannot be started ({0}): raise `ulimit -u`, `ulimit -v` or the \
         container's limit of processes, or do without (the setting helper=off)"
    )]
    Thread(std::io::Error),
    /// The named system call failed, with this errno.
    #[error(
        "{} failed: {}; see whether a limit of the process (ulimit -n, -u) is hit",
        .0,
        std::io::Error::from_raw_os_error(*.1)
    )]
    System(&'static str, i32),
}
