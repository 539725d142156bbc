//! The helper thread: keeps the network going while the program makes no
//! calls. It moves data only; handlers run in the program's calls, but for
//! those of ports that were opened for any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use portolan_sys::futex::{Scope, wait, wake};
use portolan_sys::lives::Pulse;

use crate::OpenError;
use crate::endpoint::Inner;
use crate::nap::Woken;

/// Longest pause between two looks at a busy program, ns: a thousand looks a
/// second cost under one percent of a core.
const PERIOD_MAX_NS: u64 = 1_000_000;

/// The thread; it ends when this is dropped.
pub(crate) struct Helper {
    stop: Arc<AtomicU32>,
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Starts it; `pulse` says as long as it runs that this process lives.
    pub fn start(inner: &Arc<Inner>, pulse: Option<Pulse>) -> Result<Self, OpenError> {
        let stop = Arc::new(AtomicU32::new(0));
        let (theirs, stopped) = (Arc::clone(inner), Arc::clone(&stop));
        let watched = pulse.is_some();
        let (holds, held) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("portolan-helper".to_owned())
            .stack_size(256 << 10)
            .spawn(move || {
                // Without it the process's descriptor still tells of its end.
                let _held = pulse.as_ref().and_then(|pulse| pulse.hold().ok());
                drop(holds);
                run(&theirs, &stopped);
            })
            .map_err(|e| OpenError::System("pthread_create", e.raw_os_error().unwrap_or(0)))?;
        if watched {
            // A process that ends from now on is missed at once. Nothing is
            // ever sent: the channel closes.
            let _ = held.recv();
        }
        Ok(Self {
            stop,
            inner: Arc::clone(inner),
            thread: Some(thread),
        })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop.store(1, Ordering::Release);
        wake(&self.stop, 1, Scope::Process);
        self.inner.beds.ring_helper();
        if let Some(thread) = self.thread.take() {
            // Its panic would be a bug of ours, reported by the thread itself.
            let _ = thread.join();
        }
    }
}

fn run(inner: &Inner, stop: &AtomicU32) {
    let stopped = || stop.load(Ordering::Acquire) != 0;
    let mut period = inner.takeover_ns;
    let mut calls = inner.state.calls();
    while !stopped() {
        // Every ending leads to another look.
        let _ = wait(stop, 0, Some(period), Scope::Process);
        let mut helped = false;
        while !stopped() && inner.state.calls() == calls && help(inner) {
            helped = true;
        }
        let most = PERIOD_MAX_NS.max(inner.takeover_ns);
        let guarded = period >= most && inner.state.calls() == calls && inner.beds.guard();
        calls = inner.state.calls();
        period = if helped || guarded {
            inner.takeover_ns
        } else {
            (period * 2).clamp(1, most)
        };
    }
}

/// Moves what there is, then sleeps until there is more; false if the program
/// does that itself.
fn help(inner: &Inner) -> bool {
    let Some(mut s) = inner.state.try_help() else {
        return false;
    };
    if s.rest.is_led() {
        return false;
    }
    s.core.run = false;
    let mut wanted = false;
    while !wanted && s.pass() > 0 {
        s.core.counters.helped += 1;
        wanted = s.is_wanted();
    }
    let nap = if wanted { None } else { s.prepare(None) };
    s.core.run = true;
    let Some(nap) = nap else {
        return !wanted;
    };
    s.rest.helper_sleeps(nap.due);
    drop(s);
    // An error would be ours; then the next look comes after a pause.
    let slept = inner.beds.help(nap.timeout);
    let Some(mut s) = inner.state.try_help() else {
        return false;
    };
    s.rest.helper_is_up();
    if s.rest.is_led() {
        return false;
    }
    s.awake(&Woken::from(&inner.beds.events, Some(0)));
    slept.is_ok()
}
