//! Output of ranks, on its way to its reader.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Most of one host's output in flight, bytes: what is kept in memory if the
/// reader has stopped. Several pipes full.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

/// Window updates: how much the reader has taken.
#[derive(Debug)]
pub(super) struct Room {
    /// Bytes taken since the last call of `collect`, by host.
    taken: Vec<AtomicU64>,
    /// Readable when there are some.
    bell: OwnedFd,
}

impl Room {
    pub fn new(hosts: usize) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            taken: (0..hosts).map(|_| AtomicU64::new(0)).collect(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        }))
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Returns host and bytes of what was taken since the last call.
    pub fn collect(&self) -> Vec<(usize, u64)> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let taken = self.taken.iter().map(|t| t.swap(0, Ordering::Relaxed));
        taken.enumerate().filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// Bytes for which a piece counts in the window. The end of a stream counts
/// too: it may complete a last line.
pub(super) fn weight(bytes: &[u8]) -> u64 {
    bytes.len().max(1) as u64
}

/// A piece of what a rank wrote. Its host sends more when it is dropped, so
/// drop it when it is written.
#[derive(Debug)]
pub struct Chunk {
    /// The rank that wrote it.
    pub rank: u32,
    /// Whether it went to standard error, not output.
    pub is_error: bool,
    /// The rank's host then: one that is started again is on another.
    pub host: usize,
    /// The bytes; empty at the end of the stream.
    pub bytes: Vec<u8>,
    /// What it counts for in the window: `bytes` may be taken out.
    weight: u64,
    room: Arc<Room>,
}

impl Chunk {
    pub(super) fn new(
        (rank, is_error): (u32, bool),
        bytes: Vec<u8>,
        host: usize,
        room: &Arc<Room>,
    ) -> Self {
        Self {
            rank,
            is_error,
            weight: weight(&bytes),
            bytes,
            host,
            room: Arc::clone(room),
        }
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        self.room.taken[self.host].fetch_add(self.weight, Ordering::Relaxed);
        // Fails only if the counter is full, and then the bell is readable.
        let _ = rustix::io::write(&self.room.bell, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_room_again() {
        let room = Room::new(2).unwrap();
        let chunk = |host, text: &[u8]| Chunk::new((0, false), text.to_vec(), host, &room);
        let (a, mut b, c) = (chunk(0, b"1234"), chunk(1, b"12"), chunk(1, b""));
        assert_eq!(room.collect(), []);
        drop(a);
        assert_eq!(room.collect(), [(0, 4)]);
        b.bytes.clear();
        drop((b, c));
        assert_eq!(room.collect(), [(1, 3)]);
    }
}
