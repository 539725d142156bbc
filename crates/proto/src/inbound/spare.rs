//! Room for a held chunk.

use portolan_wire::{Chunk, Chunks};

use crate::base::FRAME_BYTES_MAX;

/// Room for one held chunk while it is handed out: its frame may be used
/// meanwhile. One is enough for all endpoints of a thread.
#[derive(Clone, Debug)]
pub struct Spare {
    bytes: [u8; FRAME_BYTES_MAX],
    len: usize,
}

impl Default for Spare {
    fn default() -> Self {
        Self {
            bytes: [0; FRAME_BYTES_MAX],
            len: 0,
        }
    }
}

impl Spare {
    /// Copies a chunk here.
    pub(crate) fn set(&mut self, chunk: &[u8]) {
        self.len = chunk.len();
        self.bytes[..self.len].copy_from_slice(chunk);
    }

    pub(crate) fn chunk(&self) -> Option<Chunk<'_>> {
        Chunks::new(&self.bytes[..self.len]).next()?.ok()
    }
}
