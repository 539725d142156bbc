//! Waiting in the kernel for a 32-bit word to change.

use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec, WaitFlags, WaitPtr};

/// Who may wait on or wake a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Threads of this process only; cheaper.
    Process,
    /// Every process that maps the word's memory.
    Shared,
}

impl Scope {
    const fn flags(self) -> Flags {
        match self {
            Self::Process => Flags::PRIVATE,
            Self::Shared => Flags::empty(),
        }
    }
}

/// How a wait ended. Look at the word again in every case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Woken, or interrupted by a signal.
    Woken,
    /// The word had another value already.
    Changed,
    /// The time was up.
    TimedOut,
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

fn ended(result: Result<(), Errno>) -> Result<Waited, Errno> {
    match result {
        Ok(()) | Err(Errno::INTR) => Ok(Waited::Woken),
        Err(Errno::AGAIN) => Ok(Waited::Changed),
        Err(Errno::TIMEDOUT) => Ok(Waited::TimedOut),
        Err(e) => Err(e),
    }
}

/// Sleeps while `word` holds `expected`, for `timeout_ns` at most (`None`:
/// without limit).
///
/// # Errors
/// What the kernel answers beyond the three ordinary endings: our bug.
pub fn wait(
    word: &AtomicU32,
    expected: u32,
    timeout_ns: Option<u64>,
    scope: Scope,
) -> Result<Waited, Errno> {
    let timeout = timeout_ns.map(timespec);
    ended(futex::wait(word, scope.flags(), expected, timeout.as_ref()))
}

/// Wakes `count` sleepers at most; gives how many there were.
pub fn wake(word: &AtomicU32, count: u32, scope: Scope) -> usize {
    // The kernel takes a larger number for a negative one, and wakes one.
    let count = count.min(i32::MAX as u32);
    // It fails only for a word that is not mapped, which a reference excludes.
    futex::wake(word, scope.flags(), count).unwrap_or(0)
}

/// Whether this kernel has `futex_waitv` (from Linux 5.16).
#[must_use]
pub fn waitv_available() -> bool {
    // An empty list is refused by a kernel that knows the call.
    futex::waitv(
        &[],
        futex::WaitvFlags::empty(),
        None,
        futex::ClockId::Monotonic,
    ) != Err(Errno::NOSYS)
}

/// Words that one [`wait_any`] takes at most (`FUTEX_WAITV_MAX`).
pub const WAIT_ANY_MAX: usize = 128;

/// Sleeps while every word holds what is expected of it, until the monotonic
/// clock shows `deadline_ns` at most. Needs [`waitv_available`].
///
/// # Errors
/// `INVAL` for no word or more than [`WAIT_ANY_MAX`], `NOSYS` before Linux 5.16.
pub fn wait_any(
    words: &[(&AtomicU32, u32)],
    deadline_ns: Option<u64>,
    scope: Scope,
) -> Result<Waited, Errno> {
    if words.len() > WAIT_ANY_MAX {
        return Err(Errno::INVAL);
    }
    let mut list = [futex::Wait::new(); WAIT_ANY_MAX];
    for (entry, (word, expected)) in list.iter_mut().zip(words) {
        entry.val = u64::from(*expected);
        entry.uaddr = WaitPtr::new(word.as_ptr().cast());
        entry.flags = match scope {
            Scope::Process => WaitFlags::SIZE_U32 | WaitFlags::PRIVATE,
            Scope::Shared => WaitFlags::SIZE_U32,
        };
    }
    let deadline = deadline_ns.map(timespec);
    ended(
        futex::waitv(
            &list[..words.len()],
            futex::WaitvFlags::empty(),
            deadline.as_ref(),
            futex::ClockId::Monotonic,
        )
        .map(|_| ()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn the_three_endings() {
        let word = AtomicU32::new(1);
        for scope in [Scope::Process, Scope::Shared] {
            assert_eq!(wait(&word, 0, None, scope), Ok(Waited::Changed));
            assert_eq!(wait(&word, 1, Some(1000), scope), Ok(Waited::TimedOut));
            assert_eq!(wake(&word, u32::MAX, scope), 0);
        }
        std::thread::scope(|s| {
            s.spawn(|| {
                while word.load(SeqCst) == 1 {
                    wait(&word, 1, None, Scope::Shared).unwrap();
                }
            });
            word.store(2, SeqCst);
            wake(&word, 1, Scope::Shared);
        });
    }

    #[test]
    fn any_of_two_words_wakes() {
        let (a, b) = (AtomicU32::new(0), AtomicU32::new(0));
        if !waitv_available() {
            assert_eq!(
                wait_any(&[(&a, 0)], None, Scope::Process),
                Err(Errno::NOSYS)
            );
            return;
        }
        let words = [(&a, 0), (&b, 0)];
        assert_eq!(
            wait_any(&words, Some(1), Scope::Process),
            Ok(Waited::TimedOut)
        );
        assert_eq!(wait_any(&[], None, Scope::Process), Err(Errno::INVAL));
        std::thread::scope(|s| {
            s.spawn(|| {
                while b.load(SeqCst) == 0 {
                    wait_any(&words, None, Scope::Process).unwrap();
                }
            });
            b.store(1, SeqCst);
            wake(&b, 1, Scope::Process);
        });
    }
}
