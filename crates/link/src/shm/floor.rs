//! What shared memory itself can do, without any protocol: the floors that
//! benches measure beside us. Two processes, each pinned to its core, take
//! the two sides over one mapping; each spins, so a side whose partner is
//! gone never returns: whoever started the two ends them.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use portolan_ring::{CacheLine, LINE_BYTES};

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Begins: pings, sends.
    First,
    /// Answers: pongs, receives.
    Second,
}

const STOP: u64 = u64::MAX;

#[inline(always)]
fn wait_until(line: &CacheLine, wanted: impl Fn(u64) -> bool) -> u64 {
    loop {
        let now = line.word(0).load(Acquire);
        if wanted(now) {
            return now;
        }
    }
}

/// One cache line that two processes write in turn.
#[derive(Debug)]
pub struct Bounce<'m> {
    line: &'m CacheLine,
    count: u64,
}

impl<'m> Bounce<'m> {
    /// Lines that it works on, zero at first.
    pub const LINES: usize = 1;

    /// Takes one side; both are alike until one pings.
    ///
    /// # Panics
    /// If `lines` is too short.
    #[must_use]
    pub fn new(lines: &'m [CacheLine]) -> Self {
        Self {
            line: &lines[0],
            count: 0,
        }
    }

    /// First side: so many round trips.
    pub fn ping(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.line.word(0).store(self.count + 1, Release);
            self.count += 2;
            wait_until(self.line, |now| now == self.count);
        }
    }

    /// First side: lets the other return from [`Bounce::pong`].
    pub fn stop(&mut self) {
        self.line.word(0).store(STOP, Release);
        wait_until(self.line, |now| now == self.count);
    }

    /// Second side: answers until told to stop.
    pub fn pong(&mut self) {
        loop {
            if wait_until(self.line, |now| now == self.count + 1 || now == STOP) == STOP {
                self.line.word(0).store(self.count, Release);
                return;
            }
            self.count += 2;
            self.line.word(0).store(self.count, Release);
        }
    }
}

/// A ring of 64 lines each way, through which sequence words pass.
#[derive(Debug)]
pub struct Ring<'m> {
    tx: &'m [CacheLine],
    rx: &'m [CacheLine],
    /// How far the other has read what we sent: for [`Ring::send`].
    tx_read: &'m CacheLine,
    rx_read: &'m CacheLine,
    sent: u64,
    read: u64,
    seen: u64,
}

impl<'m> Ring<'m> {
    const SLOTS: usize = 64;
    /// Lines that it works on, zero at first.
    pub const LINES: usize = 2 * Self::SLOTS + 2;

    /// Takes one side.
    ///
    /// # Panics
    /// If `lines` is too short.
    #[must_use]
    pub fn new(lines: &'m [CacheLine], side: Side) -> Self {
        let (a, rest) = lines.split_at(Self::SLOTS);
        let (b, rest) = rest.split_at(Self::SLOTS);
        let (tx, rx, tx_read, rx_read) = match side {
            Side::First => (a, b, &rest[0], &rest[1]),
            Side::Second => (b, a, &rest[1], &rest[0]),
        };
        Self {
            tx,
            rx,
            tx_read,
            rx_read,
            sent: 0,
            read: 0,
            seen: 0,
        }
    }

    #[inline(always)]
    fn put(&mut self) {
        let slot = &self.tx[self.sent as usize % Self::SLOTS];
        self.sent += 1;
        slot.word(0).store(self.sent, Release);
    }

    /// False when the other side said stop.
    #[inline(always)]
    fn take(&mut self) -> bool {
        let slot = &self.rx[self.read as usize % Self::SLOTS];
        let next = self.read + 1;
        if wait_until(slot, |now| now == next || now == STOP) == STOP {
            // Others will find the slot as if nothing had been in it.
            slot.word(0).store(0, Release);
            return false;
        }
        self.read = next;
        true
    }

    /// First side: so many round trips. Do not mix with [`Ring::send`].
    pub fn ping(&mut self, rounds: u64) {
        for _ in 0..rounds {
            self.put();
            self.take();
        }
    }

    /// First side: lets the other return from [`Ring::pong`] or
    /// [`Ring::receive`].
    pub fn stop(&mut self) {
        // After pings every word has been answered, and `read` tells.
        while self.sent - self.seen.max(self.read) >= Self::SLOTS as u64 {
            self.seen = self.tx_read.word(0).load(Acquire);
        }
        let slot = &self.tx[self.sent as usize % Self::SLOTS];
        slot.word(0).store(STOP, Release);
        wait_until(slot, |now| now == 0);
    }

    /// Second side: answers until told to stop.
    pub fn pong(&mut self) {
        while self.take() {
            self.put();
        }
    }

    /// First side: so many words one way, as fast as they are read.
    pub fn send(&mut self, count: u64) {
        for _ in 0..count {
            while self.sent - self.seen >= Self::SLOTS as u64 {
                self.seen = self.tx_read.word(0).load(Acquire);
            }
            self.put();
        }
    }

    /// Second side: reads until told to stop; gives how many.
    pub fn receive(&mut self) -> u64 {
        let before = self.read;
        while self.take() {
            // Saying so each quarter ring keeps the line quiet.
            if self.read.is_multiple_of(Self::SLOTS as u64 / 4) {
                self.rx_read.word(0).store(self.read, Release);
            }
        }
        self.rx_read.word(0).store(self.read, Release);
        self.read - before
    }
}

/// Bytes copied into shared memory chunk by chunk by one process, and out of
/// it by the other at the same time.
#[derive(Debug)]
pub struct Copy<'m> {
    filled: &'m CacheLine,
    emptied: &'m CacheLine,
    chunks: &'m [CacheLine],
    chunk_lines: usize,
    /// Chunks gone by.
    count: u64,
    seen: u64,
}

impl<'m> Copy<'m> {
    /// Lines that it works on for a ring of `ring_bytes`, zero at first.
    #[must_use]
    pub const fn lines(ring_bytes: usize) -> usize {
        2 + ring_bytes / LINE_BYTES
    }

    /// Takes one side; both sides give the same sizes.
    ///
    /// # Panics
    /// If `lines` is not [`Copy::lines`], or the ring is not two or more
    /// whole chunks of whole lines.
    #[must_use]
    pub fn new(lines: &'m [CacheLine], chunk_bytes: usize, ring_bytes: usize) -> Self {
        assert!(lines.len() == Self::lines(ring_bytes));
        assert!(chunk_bytes > 0 && chunk_bytes.is_multiple_of(LINE_BYTES));
        assert!(ring_bytes.is_multiple_of(chunk_bytes) && ring_bytes >= 2 * chunk_bytes);
        Self {
            filled: &lines[0],
            emptied: &lines[1],
            chunks: &lines[2..],
            chunk_lines: chunk_bytes / LINE_BYTES,
            count: 0,
            seen: 0,
        }
    }

    fn chunk_bytes(&self) -> usize {
        self.chunk_lines * LINE_BYTES
    }

    fn ring_chunks(&self) -> u64 {
        (self.chunks.len() / self.chunk_lines) as u64
    }

    /// The chunk that comes next, whole.
    #[inline(always)]
    fn chunk(&self) -> *mut u8 {
        let at = (self.count % self.ring_chunks()) as usize * self.chunk_lines;
        portolan_ring::address_of(&self.chunks[at..][..self.chunk_lines])
    }

    /// First side: copies all of `from` in.
    pub fn send(&mut self, from: &[u8]) {
        for piece in from.chunks(self.chunk_bytes()) {
            while self.count - self.seen >= self.ring_chunks() {
                self.seen = self.emptied.word(0).load(Acquire);
            }
            // SAFETY: `chunk` has checked that the chunk lies within the
            // lines, and a piece is no longer than it; the other side does
            // not touch it until `filled` says so.
            unsafe {
                self.chunk()
                    .copy_from_nonoverlapping(piece.as_ptr(), piece.len());
            }
            self.count += 1;
            self.filled.word(0).store(self.count, Release);
        }
    }

    /// First side: lets [`Copy::receive`] return false.
    pub fn stop(&mut self) {
        wait_until(self.emptied, |now| now == self.count);
        self.filled.word(0).store(STOP, Release);
        wait_until(self.filled, |now| now != STOP);
    }

    /// Second side: fills `into` with what the other sends, which must be as
    /// long. False, without touching it, when told to stop.
    pub fn receive(&mut self, into: &mut [u8]) -> bool {
        let chunk_bytes = self.chunk_bytes();
        for piece in into.chunks_mut(chunk_bytes) {
            while self.seen <= self.count {
                self.seen = self.filled.word(0).load(Acquire);
            }
            if self.seen == STOP {
                self.seen = self.count;
                self.filled.word(0).store(self.count, Relaxed);
                return false;
            }
            // SAFETY: as in `send`; `filled` says that the chunk is ours.
            unsafe {
                self.chunk()
                    .copy_to_nonoverlapping(piece.as_mut_ptr(), piece.len());
            }
            self.count += 1;
            self.emptied.word(0).store(self.count, Release);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: usize) -> Vec<CacheLine> {
        std::iter::repeat_with(CacheLine::default)
            .take(count)
            .collect()
    }

    #[test]
    fn bounce_and_ring_go_round_and_stop() {
        let lines = lines(Bounce::LINES + Ring::LINES);
        let (line, ring) = lines.split_at(Bounce::LINES);
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut bounce = Bounce::new(line);
                bounce.pong();
                bounce.pong();
                let mut ring = Ring::new(ring, Side::Second);
                ring.pong();
                ring.pong();
            });
            let mut bounce = Bounce::new(line);
            for _ in 0..2 {
                bounce.ping(20);
                bounce.stop();
            }
            let mut ring = Ring::new(ring, Side::First);
            for rounds in [1, 100] {
                ring.ping(rounds);
                ring.stop();
            }
        });
    }

    #[test]
    fn words_pass_one_way() {
        let lines = lines(Ring::LINES);
        std::thread::scope(|s| {
            s.spawn(|| {
                let mut ring = Ring::new(&lines, Side::Second);
                assert_eq!(ring.receive(), 200);
                assert_eq!(ring.receive(), 64);
            });
            let mut ring = Ring::new(&lines, Side::First);
            ring.send(200);
            ring.stop();
            ring.send(64);
            ring.stop();
        });
    }

    #[test]
    fn a_pipelined_copy_is_a_copy() {
        const RING: usize = 1024;
        let lines = lines(Copy::lines(RING));
        let sent: Vec<u8> = (0..5000u32).map(|i| (i * 7) as u8).collect();
        std::thread::scope(|s| {
            let expected = &sent;
            let lines = &lines;
            s.spawn(move || {
                let mut copy = Copy::new(lines, 256, RING);
                for length in [1, 256, 5000] {
                    let mut got = vec![0; length];
                    assert!(copy.receive(&mut got));
                    assert_eq!(got, expected[..length]);
                }
                assert!(!copy.receive(&mut [0]));
                assert!(copy.receive(&mut [0]));
            });
            let mut copy = Copy::new(lines, 256, RING);
            for length in [1, 256, 5000] {
                copy.send(&sent[..length]);
            }
            copy.stop();
            copy.send(&[1]);
        });
    }
}
