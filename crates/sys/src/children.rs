//! Children of this process: those that it has started, and orphans that the kernel gave it.
//!
//! An orphan becomes a child of process 1 of its pid namespace, or of an ancestor that asked for
//! it (a subreaper). Where that is a launcher in a container, nobody else collects it.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, sleep};
use std::time::Duration;

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::process::own_pid;

/// Until another look where the child that ended first is not ours to collect, or there is none.
const PAUSE: Duration = Duration::from_millis(50);

/// Children that a [`Child`] holds. Some of them may be collected by now.
static HELD: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<u32>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts commands whose processes nobody takes for orphans.
pub trait Start {
    /// As `spawn` of the standard library.
    ///
    /// # Errors
    /// Those of `spawn`.
    fn start(&mut self) -> io::Result<Child>;

    /// As `output` of the standard library.
    ///
    /// # Errors
    /// Those of `output`.
    fn start_and_read(&mut self) -> io::Result<Output>;
}

impl Start for Command {
    fn start(&mut self) -> io::Result<Child> {
        if !is_given_orphans() {
            return self.spawn();
        }
        // Locked over the start: the process may have ended when that returns.
        let mut held = held();
        let child = self.spawn()?;
        held.insert(child.id());
        Ok(child)
    }

    fn start_and_read(&mut self) -> io::Result<Output> {
        let child = self.stdin(Stdio::null()).stdout(Stdio::piped());
        child.stderr(Stdio::piped()).start()?.wait_with_output()
    }
}

/// Whether orphans become children of this process.
fn is_given_orphans() -> bool {
    let mut subreaper: libc::c_int = 0;
    // SAFETY: the kernel writes one number, which is ours.
    let asked = unsafe { libc::prctl(libc::PR_GET_CHILD_SUBREAPER, &raw mut subreaper) };
    own_pid() == 1 || (asked == 0 && subreaper != 0)
}

/// From now on a thread collects orphans, where this process is given any. All children must be
/// begun by [`Start`].
///
/// # Errors
/// There can be no further thread.
pub fn collect_orphans() -> io::Result<()> {
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if is_given_orphans() && !BEGUN.swap(true, Ordering::Relaxed) {
        let collect = || {
            loop {
                if !collect_next() {
                    sleep(PAUSE);
                }
            }
        };
        thread::Builder::new()
            .name("orphans".to_owned())
            .spawn(collect)?;
    }
    Ok(())
}

/// Waits until a child has ended, and collects it if it is an orphan.
fn collect_next() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    // SAFETY: plain data, which the call fills.
    let ended = unsafe {
        let mut ended: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT;
        if libc::waitid(libc::P_ALL, 0, &raw mut ended, options) != 0 {
            return false;
        }
        ended.si_pid()
    };
    let mut held = held();
    // A number that was collected may be an orphan's by now.
    let is_child = |pid: u32| {
        let pid = Pid::from_raw(pid.cast_signed());
        pid.is_some_and(|pid| waitid(WaitId::Pid(pid), look).is_ok())
    };
    held.retain(|pid| is_child(*pid));
    let Some(pid) = Pid::from_raw(ended).filter(|_| !held.contains(&ended.cast_unsigned())) else {
        return false;
    };
    waitid(
        WaitId::Pid(pid),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
    )
    .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_is_held_is_left_to_its_holder() {
        const CHILD: &str = "PORTOLAN_TEST_SUBREAPER";
        const NAME: &str = "children::tests::a_child_that_is_held_is_left_to_its_holder";
        // In a process of its own: other tests have children too.
        if std::env::var_os(CHILD).is_none() {
            let mut again = Command::new(std::env::current_exe().unwrap());
            let status = again.args(["--exact", NAME]).env(CHILD, "1").status();
            assert!(status.unwrap().success());
            return;
        }
        assert!(!is_given_orphans());
        // SAFETY: it passes no memory.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
        assert!(is_given_orphans());
        let run = |script: &str| Command::new("sh").args(["-c", script]).start().unwrap();
        let mut held = run("exit 3");
        for _ in 0..2 {
            assert!(!collect_next());
        }
        assert_eq!(held.wait().unwrap().code(), Some(3));
        // Its child ends when it is nobody's any more.
        let mut parent = run("(while [ -e /proc/$$ ]; do sleep 0.01; done) & exit 4");
        assert_eq!(parent.wait().unwrap().code(), Some(4));
        assert!(collect_next());
        assert!(!collect_next());
        assert!(super::held().is_empty());
    }
}
