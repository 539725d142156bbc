//! A memory barrier that one process pays for in the place of all others.

use rustix::io::Errno;
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// Whether this kernel has the expedited global barrier (from Linux 4.16,
/// unless a seccomp profile hides it).
#[must_use]
pub fn available() -> bool {
    membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
}

/// Makes this process one that [`everywhere`] reaches, wherever it is called.
///
/// # Errors
/// `INVAL` or `NOSYS` where it is not [`available`].
pub fn register() -> Result<(), Errno> {
    membarrier(MembarrierCommand::RegisterGlobalExpedited)
}

/// On return every running thread of every registered process has passed a
/// full memory barrier. Some microseconds: it interrupts their cores.
///
/// # Errors
/// `INVAL` or `NOSYS` where it is not [`available`].
pub fn everywhere() -> Result<(), Errno> {
    membarrier(MembarrierCommand::GlobalExpedited)
}

/// Lets the threads of this process be reached by [`threads`].
///
/// # Errors
/// `INVAL` or `NOSYS` before Linux 4.14, or where a seccomp profile hides it.
pub fn register_threads() -> Result<(), Errno> {
    membarrier(MembarrierCommand::RegisterPrivateExpedited)
}

/// On return every running thread of this process has passed a full memory
/// barrier. About a microsecond: it interrupts their cores.
///
/// # Errors
/// `PERM` before [`register_threads`].
pub fn threads() -> Result<(), Errno> {
    membarrier(MembarrierCommand::PrivateExpedited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_works_where_it_is_said_to() {
        if available() {
            assert_eq!(register(), Ok(()));
            assert_eq!(everywhere(), Ok(()));
            assert_eq!(register_threads(), Ok(()));
            assert_eq!(threads(), Ok(()));
        }
    }
}
