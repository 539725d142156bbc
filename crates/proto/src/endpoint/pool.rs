//! The shared pool of frames: allocation by urgency, and release.

use portolan_seal::Seal;
use portolan_wire::{HEADER_BYTES, Priority, TAG_BYTES};

use super::Endpoint;
use crate::base::{ConnIndex, FrameIndex, List, LongIndex};
use crate::tables::{CHUNKS_AT, GivenUp, Use};

/// Use of a frame that is asked for; less urgent ones leave some to more urgent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A received chunk of a request that must be held.
    Hold,
    /// A received chunk of a reply that must be held.
    HoldReply,
    /// A request.
    Request,
    /// A further part of a long request: must find a frame when the queue
    /// behind it has taken all that requests may have.
    RequestPart,
    /// A reply.
    Reply,
    /// A further part of a long reply.
    ReplyPart,
    /// Acknowledgements, connects, control chunks.
    Control,
}

impl Need {
    /// Frames of a pool of `all` that received chunks may take together.
    const fn held_max(self, all: u32) -> u32 {
        match self {
            Self::Hold => all / 2,
            Self::HoldReply => all / 2 + all / 8,
            _ => u32::MAX,
        }
    }

    /// Frames of a pool of `all` that are reserved for more urgent uses.
    const fn keep(self, all: u32, usage: Use) -> u32 {
        match self {
            Self::Hold | Self::Request => all / 8,
            Self::RequestPart => all / 8 - all / 32,
            Self::Reply | Self::HoldReply => all / 16,
            Self::ReplyPart => all / 32,
            // The last are for packets that the link returns at once: without
            // acknowledgements no frame would become free again.
            Self::Control if matches!(usage, Use::Queued) => 1 + all / 64,
            Self::Control => 0,
        }
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// Whether `frames` more received chunks of one priority could be held.
    pub(crate) const fn can_hold(&self, priority: Priority, frames: u32) -> bool {
        let need = match priority {
            Priority::Request => Need::Hold,
            Priority::Reply => Need::HoldReply,
        };
        let all = self.core.config.frames;
        self.core.held_count + frames <= need.held_max(all)
            && self.core.free_count >= need.keep(all, Use::Held) + frames
    }

    /// Takes a frame out of the pool.
    #[inline]
    pub(crate) fn take_frame(
        &mut self,
        need: Need,
        usage: Use,
        conn: ConnIndex,
    ) -> Option<FrameIndex> {
        let all = self.core.config.frames;
        if self.core.held_count >= need.held_max(all) {
            return None;
        }
        let keep = need.keep(all, usage);
        if self.core.free_count <= keep {
            self.core.refused_above = self.core.refused_above.min(keep);
            self.fall_short();
            return None;
        }
        let i = self.core.free.pop_front(self.meta)?;
        self.core.free_count -= 1;
        self.core.held_count += u32::from(usage == Use::Held);
        let meta = &mut self.meta[i];
        meta.usage = usage;
        meta.conn = conn;
        meta.refusal = false;
        meta.stops = false;
        meta.close = false;
        meta.counted = false;
        meta.again = false;
        meta.given_up = [GivenUp::NEVER; 2];
        meta.chunks = 0;
        meta.priority = Priority::Request;
        meta.len = 0;
        meta.rest = [0; 2];
        meta.long = LongIndex::NONE;
        meta.ack_len = 0;
        Some(i)
    }

    /// Frees a frame, now or when the link is done with it.
    pub(crate) fn free_frame(&mut self, i: FrameIndex) {
        let meta = &mut self.meta[i];
        debug_assert_ne!(meta.usage, Use::Free);
        if meta.usage == Use::Held {
            self.core.held_count -= 1;
        }
        if meta.in_link {
            meta.usage = Use::Leaving;
            return;
        }
        meta.usage = Use::Free;
        self.core.free.push_front(self.meta, i);
        self.core.free_count += 1;
    }

    /// Frees every frame of a list; returns their number.
    pub(crate) fn free_list(&mut self, mut list: List<FrameIndex>) -> u32 {
        let mut n = 0;
        while let Some(i) = list.pop_front(self.meta) {
            self.free_frame(i);
            n += 1;
        }
        n
    }

    /// The link is done with the frame of a [`crate::Transmit`]. Call once for
    /// each, whether the link sent it or failed to.
    pub fn transmitted(&mut self, frame: FrameIndex) {
        let meta = &mut self.meta[frame];
        meta.in_link = false;
        match meta.usage {
            Use::Passing | Use::Leaving => self.free_frame(frame),
            Use::Parting => {
                let conn = meta.conn;
                self.go_on_with_rest(conn, frame);
            }
            _ => {}
        }
    }

    /// Start of a frame's bytes.
    #[inline]
    pub(crate) fn frame_at(&self, i: FrameIndex) -> usize {
        i.index() * self.core.config.frame_bytes as usize
    }

    /// All bytes of a frame.
    #[inline]
    pub(crate) fn frame_mut(&mut self, i: FrameIndex) -> &mut [u8] {
        let (at, len) = (self.frame_at(i), self.core.config.frame_bytes as usize);
        &mut self.frames[at..at + len]
    }

    /// Maximum bytes of chunks in a frame and a packet of `packet` bytes.
    #[inline]
    pub(crate) fn chunk_room(&self, packet: u16) -> usize {
        let by_packet = packet as usize - HEADER_BYTES - TAG_BYTES;
        by_packet.min(self.core.config.frame_bytes as usize - CHUNKS_AT - TAG_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_urgent_find_a_frame_when_the_less_urgent_have_taken_theirs() {
        let order = [
            Need::Request,
            Need::RequestPart,
            Need::Reply,
            Need::ReplyPart,
            Need::Control,
        ];
        for all in [32, 64, 100, 2_048, 1 << 20] {
            let kept = order.map(|n| n.keep(all, Use::Queued));
            assert!(kept[..4].is_sorted_by(|a, b| a > b), "{all}: {kept:?}");
            // A close or a refusal must not wait for long replies alone.
            assert!(kept[4] <= kept[3], "{all}: {kept:?}");
            // Packets that the link returns at once may take the last frame.
            assert_eq!(Need::Control.keep(all, Use::Passing), 0);
            assert!(kept[4] > 0);
            // Received requests take half of the pool at most, replies an
            // eighth of it more.
            assert_eq!(Need::Hold.held_max(all), all / 2);
            assert!(Need::HoldReply.held_max(all) > all / 2);
            assert!(Need::HoldReply.held_max(all) < all - kept[0]);
        }
    }
}
