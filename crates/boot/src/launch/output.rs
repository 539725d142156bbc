//! What ranks write, on its way to whoever collects it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// Most bytes of one host's output that are under way, bytes: what a reader
/// who has stopped keeps in memory. Several pipes full.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

/// Who has collected how much.
#[derive(Debug)]
pub(super) struct Room {
    /// By host: bytes collected since the last look.
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

    /// Who has collected since the last call: host and bytes.
    pub fn collect(&self) -> Vec<(usize, u64)> {
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        let taken = self.taken.iter().map(|t| t.swap(0, Ordering::Relaxed));
        taken.enumerate().filter(|(_, bytes)| *bytes > 0).collect()
    }
}

/// What a piece counts for. The end of a stream counts too: it may bring a last
/// line to be written.
pub(super) fn weight(bytes: &[u8]) -> u64 {
    bytes.len().max(1) as u64
}

/// A piece of what a rank wrote. Its host goes on to send more when it is
/// dropped, so drop it when it is written.
#[derive(Debug)]
pub struct Chunk {
    /// Who wrote it.
    pub rank: u32,
    /// To its standard error, not its output.
    pub is_error: bool,
    /// On which host: a rank that is started again is on another.
    pub host: usize,
    /// What; empty at the end of the stream.
    pub bytes: Vec<u8>,
    /// What it counts for: the bytes may be taken out.
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
        // It can fail only with a full counter, and then the bell rings.
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
