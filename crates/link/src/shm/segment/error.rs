//! What can be wrong with a segment.

use portolan_sys::memory::MemoryError;

use super::ENDPOINTS_MAX;

/// Why a segment cannot be made or joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// A setting is out of range: its name.
    #[error("shared memory setting {0} is out of range: see its description")]
    Setting(&'static str),
    /// The number of endpoints is 0 or beyond [`ENDPOINTS_MAX`].
    #[error(
        "{0} processes cannot share memory on one host: between 1 and {ENDPOINTS_MAX} can; use \
         more hosts or --link udp"
    )]
    Endpoints(u32),
    /// The memory itself.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The memory is no segment of this version.
    #[error(
        "the shared memory passed to this process is not of this version of Portolan: start the \
         job with the launcher of the same version"
    )]
    Foreign,
    /// There is no endpoint of this index in the segment.
    #[error("the shared memory has no endpoint {0}: start the job again")]
    NoIndex(u16),
    /// Somebody has opened this index before.
    #[error("endpoint {0} of the shared memory is taken: a process opens it once")]
    Taken(u16),
    /// Not one doorbell for each endpoint, and its end of one's own; or something else in the
    /// place of one. How many belong.
    #[error(
        "a doorbell is needed for each of the {0} endpoints: start the job again with the launcher \
         of the same version"
    )]
    Doorbells(u16),
    /// No descriptor is left for a doorbell.
    #[error("no descriptor is left for shared memory: raise `ulimit -n`")]
    Bell,
    /// The kernel refused this process the barrier that the launcher chose.
    #[error(
        "this process may not use membarrier though the launcher may: allow it in the seccomp \
         profile or set PORTOLAN_DISABLE=membarrier for the whole job"
    )]
    Barrier,
}
