//! The clocks of this host.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use portolan_engine::Clock;
use portolan_sys::clock::now_ns;
use portolan_sys::ticks::ticks;

/// The engine's clock.
#[derive(Debug)]
pub(crate) struct HostClock {
    /// The time in place of the kernel's, ns: a measurement goes on by it as it likes.
    given: Option<Arc<AtomicU64>>,
}

impl HostClock {
    pub const fn new(given: Option<Arc<AtomicU64>>) -> Self {
        Self { given }
    }
}

impl Clock for HostClock {
    #[inline(always)]
    fn now(&self) -> u64 {
        match &self.given {
            None => now_ns(),
            Some(given) => given.load(Ordering::Relaxed),
        }
    }

    #[inline(always)]
    fn ticks(&self) -> u64 {
        match &self.given {
            None => ticks(),
            Some(given) => given.load(Ordering::Relaxed),
        }
    }

    fn waited_for_core(&self) -> Option<(u64, u64)> {
        portolan_sys::process::waited_for_core()
    }
}
