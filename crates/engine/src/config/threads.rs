//! Which threads may call an endpoint.

use portolan_ring::Callers;

/// Which threads may call an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Threads {
    /// Only the first that calls it; calls of others give
    /// [`Misuse::WrongThread`].
    #[default]
    Single,
    /// Any, but the program sees to it that no two call at once; where they
    /// do, the second gets [`Misuse::Concurrent`].
    Serialized,
    /// Any at any time; calls wait for each other.
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
