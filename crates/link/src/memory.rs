//! What else the operating system does with memory for who moves messages.

pub use portolan_sys::memory::populate;
pub use portolan_sys::process::CopyError;
