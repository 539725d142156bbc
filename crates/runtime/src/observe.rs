//! What observers see of an endpoint: its counters and state where they lie, and a timeline.

pub(crate) mod describe;
mod trace;

pub use self::describe::Table;
pub(crate) use self::trace::Trace;
