//! The clock that the driver supplies.

/// Clock that the engine reads only where it needs to: shared memory alone needs none.
pub trait Clock {
    /// Returns the time of a monotonic clock, ns.
    fn now(&self) -> u64;

    /// Returns a counter that is cheap to read and has a constant, unknown rate.
    fn ticks(&self) -> u64;

    /// Returns the calling thread, and how long it was ready and waited for a core since it
    /// began, ns. `None`: unknown.
    fn waited_for_core(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Clock that counts its reads.
#[cfg(test)]
#[derive(Debug, Default)]
pub struct CountingClock(std::cell::Cell<u64>);

#[cfg(test)]
impl Clock for CountingClock {
    fn now(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    fn ticks(&self) -> u64 {
        self.now() << 20
    }
}
