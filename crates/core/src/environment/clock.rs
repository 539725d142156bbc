//! Time, as whoever runs the engine lends it.

/// Clocks that the engine reads where it needs them, and no sooner: shared memory
/// alone needs none.
pub trait Clock {
    /// Nanoseconds of a clock that never goes back.
    fn now(&self) -> u64;

    /// A counter that is cheap to read and runs evenly, at a rate that is not known.
    fn ticks(&self) -> u64;

    /// The calling thread, and how long it was ready and waited for a core since it began, ns.
    /// `None`: unknown.
    fn waited_for_core(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Counts how often it was read.
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
