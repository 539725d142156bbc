//! A line with a rate and a finite queue.

/// One direction of a host's cable: a drop-tail queue before a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pipe {
    /// Bits a second; 0: instant.
    pub rate: u64,
    /// Bytes that may wait; what does not fit is dropped.
    pub buffer: u64,
    /// Waiting bytes from which on ECN-capable packets are marked.
    pub mark_at: u64,
    busy_until: u64,
    /// Packets dropped because the queue was full.
    pub overflows: u64,
}

impl Pipe {
    /// No limit at all.
    pub const FREE: Self = Self {
        rate: 0,
        buffer: u64::MAX,
        mark_at: u64::MAX,
        busy_until: 0,
        overflows: 0,
    };

    /// A rate in bits a second and a queue of so many bytes.
    #[must_use]
    pub const fn new(rate: u64, buffer: u64) -> Self {
        Self {
            rate,
            buffer,
            ..Self::FREE
        }
    }

    /// The same, marking from so many waiting bytes on.
    #[must_use]
    pub const fn marking(self, mark_at: u64) -> Self {
        Self { mark_at, ..self }
    }

    /// Bytes that wait at `now`.
    #[must_use]
    pub fn backlog(&self, now: u64) -> u64 {
        let ns = self.busy_until.saturating_sub(now);
        (ns as u128 * self.rate as u128 / 8_000_000_000) as u64
    }

    /// When `bytes` that come at `now` have left, and whether they were
    /// marked; `None` if the queue is full.
    pub(crate) fn pass(&mut self, now: u64, bytes: u64) -> Option<(u64, bool)> {
        if self.rate == 0 {
            return Some((now, false));
        }
        let waiting = self.backlog(now);
        if waiting + bytes > self.buffer {
            self.overflows += 1;
            return None;
        }
        let takes = (bytes as u128 * 8_000_000_000 / self.rate as u128) as u64;
        self.busy_until = self.busy_until.max(now) + takes;
        Some((self.busy_until, waiting >= self.mark_at))
    }
}
