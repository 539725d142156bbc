//! A process's turns at the fill and completion ring of its queue, and how the
//! packet area of a queue is divided.

use std::ops::Range;
use std::time::Duration;

use portolan_ring::{
    BATCH, CacheLine, ChunkRing, LINE_BYTES, Offsets, QueueTurn, Share, queue_lines,
};
use portolan_sys::memory::SharedMemory;
use portolan_sys::process::{Pidfd, own_pid};
use portolan_sys::raw::Errno;
use portolan_sys::xdp::{Ring, Sizes};

/// Most processes that share a queue.
pub const SHARES_MAX: u32 = 64;

/// Chunks for receiving and for sending that a process brings along, and
/// entries of its receive ring: alone at its queue, and with others. With
/// others the ring holds less than was brought, so that a process that dies
/// takes nothing of what others live on.
const ALONE: [u32; 3] = [2_048, 512, 2_048];
const TOGETHER: [u32; 3] = [1_024, 256, 512];

/// So many chunks are kept before they are given back.
const DUE: usize = BATCH / 2;
/// Who holds the rings for longer, ns, is looked at: it may have ended.
const SUSPECT_NS: u64 = 1_000_000;
/// Who holds them for longer, ns, and lives is stopped: the others leave.
const PATIENCE_NS: u64 = 10_000_000;
/// Turns that are tried for when a process comes to the queue, and when it leaves.
const TRIES: u32 = 1_000;
/// Between two of them while somebody else holds the rings, ns.
const WAIT_NS: u64 = PATIENCE_NS / 100;

/// Which part of a queue a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Its number there.
    pub index: u32,
    /// How many have a part.
    pub count: u32,
}

/// How large the area and rings of a queue are that has chunks of so many
/// bytes (2,048 or 4,096) and is for so many processes: 5 MiB for one, 2.5 for
/// each of several, at 2,048.
#[must_use]
pub fn sizes(chunk: u32, count: u32) -> Sizes {
    let [rx_chunks, tx, rx] = if count > 1 { TOGETHER } else { ALONE };
    // Room for all that there is: neither ring is ever full.
    Sizes {
        chunk,
        chunks: count * (rx_chunks + tx),
        rx,
        tx,
        fill: (count * rx_chunks).next_power_of_two(),
        completion: (count * tx).next_power_of_two(),
    }
}

/// Bytes of the memory of a queue: its chunks, then the words about them. None
/// if the numbers make no sense.
#[must_use]
pub fn memory_bytes(sizes: &Sizes, sharing: Sharing) -> Option<usize> {
    let Sharing { index, count } = sharing;
    let chunks = sizes.area_bytes()?;
    let sensible = (1..=SHARES_MAX).contains(&count)
        && index < count
        && sizes.chunks.is_multiple_of(count)
        && sizes.chunks / count > sizes.tx
        && count * sizes.tx <= sizes.completion
        && sizes.chunks - count * sizes.tx <= sizes.fill;
    sensible.then(|| chunks + queue_lines(count * sizes.tx) * LINE_BYTES)
}

/// How a turn went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Done {
        /// The kernel has to be told of new chunks.
        wake: bool,
    },
    /// Somebody else has it.
    Later,
    /// Nobody will have one any more.
    Never,
}

#[derive(Debug)]
pub(super) struct QueueLock {
    share: Share<ChunkRing, ChunkRing>,
    /// The first of our chunks for receiving, and how many there are.
    rx: (u32, u32),
    /// Where in the memory the words begin, bytes; how many lines they are.
    words: (usize, usize),
    /// Since when somebody else has been seen to hold the rings; 0: nobody.
    held_since: u64,
    /// Since when no chunk has been seen to wait for what arrives; 0: some do.
    drained_since: u64,
}

impl QueueLock {
    /// `sizes` and `sharing` are those of [`memory_bytes`].
    pub fn new(fill: Ring, completion: Ring, sizes: &Sizes, sharing: Sharing) -> Self {
        let Sharing { index, count } = sharing;
        let all_tx = count * sizes.tx;
        let all_rx = sizes.chunks - all_tx;
        let each_rx = all_rx / count;
        let ring = |ring| ChunkRing::new(ring, sizes.chunk);
        Self {
            share: Share::new(
                ring(fill),
                ring(completion),
                own_pid(),
                (all_rx, all_tx),
                (all_rx + index * sizes.tx, sizes.tx),
            ),
            rx: (index * each_rx, each_rx),
            words: (
                sizes.chunk as usize * sizes.chunks as usize,
                queue_lines(all_tx),
            ),
            held_since: 0,
            drained_since: 0,
        }
    }

    /// The words in the memory of the queue.
    #[inline]
    fn words<'a>(&self, memory: &'a SharedMemory) -> &'a [CacheLine] {
        let (at, lines) = self.words;
        assert!(at.is_multiple_of(LINE_BYTES) && at + lines * LINE_BYTES <= memory.bytes());
        // SAFETY: within the mapping, which is page-aligned, lives as long as
        // `memory` and cannot be truncated. A line is made of atomics, so every
        // content is valid and others may write it. No chunk lies there.
        unsafe { std::slice::from_raw_parts(memory.start().as_ptr().add(at).cast(), lines) }
    }

    /// Brings our chunks along, unless an earlier owner of our part has. What is not
    /// let in now comes later.
    pub fn begin(&mut self, memory: &SharedMemory) {
        let (first, count) = self.rx;
        let is_first = self.share.is_first(self.words(memory), first / count);
        if is_first {
            (first..first + count).for_each(|chunk| self.share.keep(chunk));
        }
        self.settle(memory);
        if !is_first {
            self.share.reclaim(self.words(memory));
        }
    }

    /// Gives back what was kept and takes back what was sent: all of it, unless
    /// somebody stands in the way.
    pub fn settle(&mut self, memory: &SharedMemory) {
        // A clock of its own, which stands still but for waits.
        let mut now = 1;
        self.held_since = 0;
        for _ in 0..TRIES {
            match self.take(memory, now) {
                Turn::Done { .. } if self.share.kept() == 0 && !self.share.has_sent() => break,
                Turn::Done { .. } => {}
                Turn::Later => {
                    now += WAIT_NS;
                    std::thread::sleep(Duration::from_nanos(WAIT_NS));
                }
                Turn::Never => break,
            }
        }
        self.held_since = 0;
    }

    /// Chunks for receiving that we brought along, but for those that are kept
    /// for the next turn.
    pub fn rx_chunks(&self) -> usize {
        self.rx.1 as usize - DUE
    }

    /// A chunk of ours that can be sent from.
    #[inline]
    pub fn chunk_to_send(&self, memory: &SharedMemory) -> Option<u32> {
        self.share.chunk_to_send(self.words(memory))
    }

    /// Several of them, as many as `found` takes; false if there are fewer.
    pub fn chunks_to_send(&self, memory: &SharedMemory, found: &mut [u32]) -> bool {
        self.share.chunks_to_send(self.words(memory), found)
    }

    /// All of our chunks that are sent from, if the kernel has none of them.
    pub fn all_to_send(&self, memory: &SharedMemory) -> Option<Range<u32>> {
        self.share.all_to_send(self.words(memory))
    }

    /// The kernel gets a chunk that [`Self::chunk_to_send`] or
    /// [`Self::chunks_to_send`] gave.
    #[inline]
    pub fn send(&mut self, memory: &SharedMemory, chunk: u32) {
        self.share.send(self.words(memory), chunk);
    }

    /// What arrived in a chunk was read.
    #[inline]
    pub fn keep(&mut self, chunk: u32) {
        self.share.keep(chunk);
    }

    /// Whether enough was kept for a turn.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.share.kept() >= DUE
    }

    /// Whether no chunk waits for what arrives.
    pub fn is_drained(&self) -> bool {
        let fill = self.share.fill();
        fill.producer() == fill.consumer()
    }

    /// Whether chunks wait again for what arrives, or may soon. A turn did not
    /// help if they do not: they went with those who left the queue.
    pub fn may_recover(&mut self, now: u64) -> bool {
        if !self.is_drained() {
            self.drained_since = 0;
        } else if self.drained_since == 0 {
            self.drained_since = now;
        }
        self.drained_since == 0 || now.saturating_sub(self.drained_since) < PATIENCE_NS
    }

    /// Takes a turn, if nobody else has it. `now`: ns of a monotonic clock.
    pub fn take(&mut self, memory: &SharedMemory, now: u64) -> Turn {
        let waited = match self.held_since {
            0 => 0,
            since => now.saturating_sub(since),
        };
        let is_dead = |process| waited >= SUSPECT_NS && has_ended(process);
        match self.share.exchange(self.words(memory), is_dead) {
            Ok(QueueTurn::Done) => {
                self.held_since = 0;
                let wake = self.share.fill().needs_wakeup();
                Turn::Done { wake }
            }
            Ok(QueueTurn::Held(_)) if waited >= PATIENCE_NS => Turn::Never,
            Ok(QueueTurn::Held(_)) => {
                if self.held_since == 0 {
                    self.held_since = now;
                }
                Turn::Later
            }
            Err(_) => Turn::Never,
        }
    }
}

/// Whether a process has ended: all of its threads.
fn has_ended(process: u32) -> bool {
    match Pidfd::open(process) {
        Ok(process) => process.has_exited(),
        Err(errno) => errno == Errno::SRCH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_divided_without_rest() {
        for count in 1..=SHARES_MAX {
            let sizes = sizes(2_048, count);
            let all = |index| memory_bytes(&sizes, Sharing { index, count });
            assert!(all(0).is_some() && all(0) == all(count - 1), "{count}");
            assert_eq!(all(count), None);
            let more = Sizes {
                chunks: sizes.chunks + 1,
                ..sizes
            };
            let less = Sizes {
                completion: sizes.completion / 2,
                ..sizes
            };
            let fill = Sizes {
                fill: sizes.fill / 2,
                ..sizes
            };
            let index = 0;
            let odd = |sizes| memory_bytes(&sizes, Sharing { index, count });
            // All counts divide by 1; then the ring is too small.
            assert_eq!([odd(more), odd(less), odd(fill)], [None; 3], "{count}");
        }
        let none = Sharing { index: 0, count: 0 };
        assert_eq!(memory_bytes(&sizes(2_048, 1), none), None);
        let most = SHARES_MAX + 1;
        let many = Sharing {
            index: 0,
            count: most,
        };
        assert_eq!(memory_bytes(&sizes(2_048, most), many), None);
    }

    #[test]
    fn who_has_ended_is_told_from_who_lives() {
        assert!(!has_ended(own_pid()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        // A zombie has ended too.
        while !has_ended(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(has_ended(child.id()));
    }
}
