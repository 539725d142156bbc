//! The processes that measure, and what they do.

pub mod asleep;
pub mod backoff;
pub mod drive;
pub mod flood;
pub mod matched;
pub mod portolan;
pub mod rank;
pub mod rma_regions;
pub mod standalone;
pub mod stream;
pub mod timeline;
