//! How long the scheduler lets a thread run at a time, and sleep.

use std::num::NonZeroU64;

use crate::raw::{Errno, number, syscall};

/// The kernel's `struct sched_attr` in its first version.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of an ordinary thread its slice, ns, from Linux 6.12 on; before 0, and ignored.
    runtime: u64,
    deadline: u64,
    period: u64,
}

const _: () = assert!(size_of::<SchedAttr>() == 48);

/// The policy of ordinary threads.
const SCHED_OTHER: u32 = 0;

/// The calling thread's attributes.
fn attributes() -> Result<SchedAttr, Errno> {
    let mut attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        ..SchedAttr::default()
    };
    let at = std::ptr::from_mut(&mut attr) as usize;
    // SAFETY: the kernel writes at most the given size of a value that outlives the call.
    unsafe { syscall(number::SCHED_GETATTR, [0, at, size_of_val(&attr), 0, 0, 0]) }?;
    Ok(attr)
}

/// How long the calling thread runs at a time beside others that want its core, ns; `None`
/// before Linux 6.12, which does not tell, and for other policies than the ordinary one. It ends
/// with a tick of the kernel's clock at the earliest (CONFIG_HZ).
#[must_use]
pub fn own() -> Option<u64> {
    let attr = attributes().ok()?;
    (attr.policy == SCHED_OTHER && attr.runtime > 0).then_some(attr.runtime)
}

/// Asks for slices of at most `ns` for the calling thread and those that it will
/// start, where it has the ordinary policy. It gets no more of a core than before,
/// but sooner after it was woken beside threads that never sleep. From Linux 6.12
/// on, which knows 100 us to 100 ms; older kernels ignore it.
///
/// # Errors
/// Where the calls are filtered.
pub fn shorten(ns: u64) -> Result<(), Errno> {
    let mut attr = attributes()?;
    if attr.policy != SCHED_OTHER || (1..=ns).contains(&attr.runtime) {
        return Ok(());
    }
    attr.runtime = ns;
    let at = std::ptr::from_mut(&mut attr) as usize;
    // SAFETY: the kernel reads as many bytes as `size` says, and may write that alone.
    unsafe { syscall(number::SCHED_SETATTR, [0, at, 0, 0, 0, 0]) }?;
    Ok(())
}

/// Has sleeps of the calling thread end when their time is up. By default the kernel may let
/// them last 50 us longer, so that it wakes several threads at once.
///
/// # Errors
/// Where the call is filtered.
pub fn end_sleeps_on_time() -> Result<(), Errno> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_shortens_its_slices_again_and_again() {
        std::thread::spawn(|| {
            let before = own();
            assert_eq!(shorten(100_000), Ok(()));
            assert_eq!(shorten(100_000), Ok(()));
            // Kernels that tell it also take it.
            assert_eq!(own(), before.map(|_| 100_000));
            assert_eq!(end_sleeps_on_time(), Ok(()));
        })
        .join()
        .unwrap();
    }
}
