//! What a process has inherited of signals, and hands on to a program that it becomes.
//!
//! Ignored signals and the mask pass through `exec`. A program that starts a command relies on
//! it, as `nohup` does with SIGHUP: what was ignored at the start stays ignored.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::raw::syscall;

#[cfg(target_arch = "x86_64")]
const RT_SIGACTION: usize = 13;
#[cfg(target_arch = "aarch64")]
const RT_SIGACTION: usize = 134;

/// Signals that glibc keeps for itself. Its `posix_spawn`, by which Rust's `Command` starts
/// programs, leaves them ignored; only the kernel can be asked to change that.
const OF_LIBC: [usize; 2] = [32, 33];

/// A program that this process becomes starts with SIGCHLD ignored.
static CHILDREN_IGNORED: AtomicBool = AtomicBool::new(false);

/// Whether this process ignores a signal.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: a valid action for the call to fill, which changes nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Gives a signal its default action.
pub fn set_default(signal: i32) {
    // SAFETY: no code of ours runs by that action.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Has children wait to be collected also where whoever started this process ignored SIGCHLD: the
/// kernel would collect them, and how they ended would be lost. What [`exec`] begins ignores it.
pub fn keep_children() {
    if is_ignored(libc::SIGCHLD) {
        set_default(libc::SIGCHLD);
        ignore_children_in_exec();
    }
}

/// Whether what [`exec`] begins ignores SIGCHLD.
#[must_use]
pub fn are_children_ignored_in_exec() -> bool {
    CHILDREN_IGNORED.load(Ordering::Relaxed)
}

/// As if SIGCHLD had been ignored at the start of this process.
pub fn ignore_children_in_exec() {
    CHILDREN_IGNORED.store(true, Ordering::Relaxed);
}

/// Replaces this process by a program, which ignores the signals that were ignored at the start
/// and no others; SIGPIPE has its default action. Returns only if that fails.
pub fn exec(command: &mut Command) -> io::Error {
    if are_children_ignored_in_exec() {
        // SAFETY: no code runs by that action.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    }
    for signal in OF_LIBC {
        // Handler, flags, restorer and mask of the kernel's structure: the default action.
        let action = [0_u64; 4];
        let args = [signal, action.as_ptr() as usize, 0, size_of::<u64>(), 0, 0];
        // SAFETY: the kernel reads the action, which outlives the call. It takes libc's handlers
        // away, which the call below does as well.
        let _ = unsafe { syscall(RT_SIGACTION, args) };
    }
    command.exec()
}
