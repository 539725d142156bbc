//! Which threads may call an endpoint.

use portolan_ring::Callers;

/// Which threads may call an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// Only the first thread that calls it; calls of others return
    /// [`Misuse::WrongThread`](crate::Misuse::WrongThread).
    #[default]
    Single,
    /// Any thread, but the program ensures that no two call at once; otherwise the second gets
    /// [`Misuse::Concurrent`](crate::Misuse::Concurrent).
    Serialized,
    /// Any thread at any time; calls wait for each other.
    Multiple,
}

impl From<Threads> for Callers {
    fn from(threads: Threads) -> Self {
        match threads {
            Threads::Single => Self::First,
            Threads::Serialized => Self::OneAtATime,
            Threads::Multiple => Self::Any,
        }
    }
}
