//! What can be wrong with a segment.

use std::fmt;

use portolan_sys::memory::MemoryError;

use super::ENDPOINTS_MAX;

/// Why a segment cannot be made or joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// A setting is out of range: its name.
    Setting(&'static str),
    /// The number of endpoints is 0 or beyond [`ENDPOINTS_MAX`].
    Endpoints(u32),
    /// The memory itself.
    Memory(MemoryError),
    /// The memory is no segment of this version.
    Foreign,
    /// There is no endpoint of this index in the segment.
    NoIndex(u16),
    /// Somebody has opened this index before.
    Taken(u16),
    /// Not one doorbell for each endpoint: how many belong.
    Doorbells(u16),
    /// The kernel refused this process the barrier that the launcher chose.
    Barrier,
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(name) => write!(
                f,
                "shared memory setting {name} is out of range: see its description"
            ),
            Self::Endpoints(n) => write!(
                f,
                "{n} processes cannot share memory on one host: between 1 and {ENDPOINTS_MAX} can; \
                 use more hosts or --link udp"
            ),
            Self::Memory(e) => e.fmt(f),
            Self::Foreign => f.write_str(
                "the shared memory passed to this process is not of this version of Portolan: \
                 start the job with the launcher of the same version",
            ),
            Self::NoIndex(i) => {
                write!(
                    f,
                    "the shared memory has no endpoint {i}: start the job again"
                )
            }
            Self::Taken(i) => write!(
                f,
                "endpoint {i} of the shared memory is taken: a process opens it once"
            ),
            Self::Doorbells(n) => write!(
                f,
                "a doorbell is needed for each of the {n} endpoints: start the job again with \
                 the launcher of the same version"
            ),
            Self::Barrier => f.write_str(
                "this process may not use membarrier though the launcher may: allow it in the \
                 seccomp profile or set PORTOLAN_DISABLE=membarrier for the whole job",
            ),
        }
    }
}

impl std::error::Error for SegmentError {}

impl From<MemoryError> for SegmentError {
    fn from(e: MemoryError) -> Self {
        Self::Memory(e)
    }
}
