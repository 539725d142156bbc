//! Memory that all peers of an endpoint share: frames, and entries of long messages.

mod flight;
mod frame;
mod long;
mod pool;
#[cfg(test)]
pub(crate) mod tests;

use portolan_wire::{Ack, HEADER_BYTES, TAG_BYTES};

use crate::base::{ConnIndex, FrameIndex, List, LongIndex, Outcome};

pub use flight::Flight;
pub(crate) use flight::GivenUp;
pub use frame::Cargo;
pub(crate) use frame::{CHUNKS_AT, CHUNKS_MAX, Use};
pub use long::Long;
pub(crate) use long::MemoryOwner;
pub(crate) use pool::{Need, Pool};

/// The tables of frames and long messages, and what is free of them.
#[derive(Debug)]
pub(crate) struct Memory<'m> {
    pub pool: &'m mut Pool,
    pub cargo: &'m mut [Cargo],
    pub flights: &'m mut [Flight],
    pub longs: &'m mut [Long],
    pub bytes: &'m mut [u8],
}

impl Memory<'_> {
    /// A view of the same tables.
    #[inline(always)]
    pub fn reborrow(&mut self) -> Memory<'_> {
        Memory {
            pool: self.pool,
            cargo: self.cargo,
            flights: self.flights,
            longs: self.longs,
            bytes: self.bytes,
        }
    }

    /// Takes a frame out of the pool.
    #[inline]
    pub fn take(&mut self, need: Need, usage: Use, conn: ConnIndex) -> Option<FrameIndex> {
        if !self.pool.grants(need, usage) {
            return None;
        }
        let frame = self.pool.free.pop_front(self.cargo)?;
        self.pool.free_count -= 1;
        self.pool.held_count += u32::from(usage == Use::Held);
        self.cargo[frame].begin(usage, conn);
        self.flights[frame].begin();
        Some(frame)
    }

    /// Frees a frame, now or when the link is done with it.
    #[inline]
    pub fn free(&mut self, frame: FrameIndex) {
        let cargo = &mut self.cargo[frame];
        debug_assert_ne!(cargo.usage, Use::Free);
        if cargo.usage == Use::Held {
            self.pool.held_count -= 1;
        }
        if self.flights[frame].in_link {
            cargo.usage = Use::Leaving;
            return;
        }
        cargo.usage = Use::Free;
        self.pool.free.push_front(self.cargo, frame);
        self.pool.free_count += 1;
    }

    /// Frees every frame of a list.
    pub fn free_list(&mut self, mut list: List<FrameIndex>) {
        while let Some(frame) = list.pop_front(self.cargo) {
            self.free(frame);
        }
    }

    /// Frees a frame whose peer is gone, and ends its part of a long message.
    pub fn drop_frame(&mut self, frame: FrameIndex) {
        let long = core::mem::replace(&mut self.cargo[frame].long, LongIndex::NONE);
        self.free(frame);
        if long.is_some() {
            self.long_frame_done(long, Outcome::PeerDead);
        }
    }

    /// As [`Self::drop_frame`], for every frame of a list.
    pub fn drop_list(&mut self, mut list: List<FrameIndex>) {
        while let Some(frame) = list.pop_front(self.cargo) {
            self.drop_frame(frame);
        }
    }

    /// Bytes of the packet that a frame was last sent as.
    #[inline]
    pub fn packet_bytes(&self, frame: FrameIndex) -> usize {
        let ack_len = self.flights[frame].ack_len as usize;
        HEADER_BYTES + ack_len + self.cargo[frame].len as usize + TAG_BYTES
    }

    /// Where that packet begins in the bytes of all frames.
    #[inline]
    pub fn packet_at(&self, frame: FrameIndex) -> usize {
        self.at(frame) + CHUNKS_AT - self.flights[frame].ack_len as usize - HEADER_BYTES
    }

    /// Start of a frame's bytes.
    #[inline]
    pub fn at(&self, frame: FrameIndex) -> usize {
        frame.index() * self.pool.frame_bytes as usize
    }

    /// All bytes of a frame.
    #[inline]
    pub fn frame(&mut self, frame: FrameIndex) -> &mut [u8] {
        let (at, len) = (self.at(frame), self.pool.frame_bytes as usize);
        &mut self.bytes[at..at + len]
    }

    /// Writes an acknowledgement before a frame's chunks; returns its length.
    #[inline]
    pub fn write_ack(&mut self, frame: FrameIndex, ack: &Ack) -> usize {
        let (len, end) = (ack.bytes(), self.at(frame) + CHUNKS_AT);
        ack.write(&mut self.bytes[end - len..end]);
        len
    }

    /// The bytes of a frame's chunks.
    #[inline]
    pub fn chunks(&self, frame: FrameIndex) -> &[u8] {
        let at = self.at(frame) + CHUNKS_AT;
        &self.bytes[at..at + self.cargo[frame].len as usize]
    }

    /// Maximum bytes of chunks in a frame and a packet of `packet` bytes.
    #[inline]
    pub const fn chunk_room(&self, packet: u16) -> usize {
        let by_packet = packet as usize - HEADER_BYTES - TAG_BYTES;
        let by_frame = self.pool.frame_bytes as usize - CHUNKS_AT - TAG_BYTES;
        if by_packet < by_frame {
            by_packet
        } else {
            by_frame
        }
    }

    /// Enters a long message, after [`Pool::grants_long`].
    pub fn take_long(&mut self, entry: Long) -> LongIndex {
        let long = self.pool.free_longs;
        self.pool.free_longs = self.longs[long].next;
        self.pool.free_long_count -= 1;
        self.longs[long] = entry;
        long
    }

    /// Notes that one frame with a part of a long message is done.
    pub fn long_frame_done(&mut self, long: LongIndex, outcome: Outcome) {
        let l = &mut self.longs[long];
        l.frames -= 1;
        if l.frames > 0 {
            return;
        }
        let finished = l.cut == l.total || outcome == Outcome::PeerDead;
        if finished {
            self.release_long(long, outcome);
            let l = &mut self.longs[long];
            l.ended = true;
            if l.memory == MemoryOwner::Back {
                self.free_long(long);
            }
        }
    }

    /// Releases a long message's memory to the caller, if that has not been done.
    pub fn release_long(&mut self, long: LongIndex, outcome: Outcome) {
        let l = &mut self.longs[long];
        if l.memory == MemoryOwner::Lent {
            l.memory = MemoryOwner::Untold;
            l.outcome = outcome;
            self.pool.released.push_back(self.longs, long);
        }
    }

    /// Frees the entry of a long message.
    pub fn free_long(&mut self, long: LongIndex) {
        self.longs[long].next = self.pool.free_longs;
        self.pool.free_longs = long;
        self.pool.free_long_count += 1;
    }
}
