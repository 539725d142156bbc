//! The shared pool of frames: who owns which, and lists of them.

use portolan_seal::Seal;
use portolan_wire::{ACK_BYTES, BITMAP_WORDS_MAX, HEADER_BYTES, MessageNo, Priority, TAG_BYTES};

use crate::conn::Conn;
use crate::endpoint::Endpoint;
use crate::send::Long;
use crate::tables::NONE;

/// Where the chunks of every frame start: room in front for the header, the
/// largest acknowledgement and a link's own headers (Ethernet, IPv6, UDP: 62).
pub(crate) const CHUNKS_AT: usize = 192;
const _: () = assert!(CHUNKS_AT >= 62 + HEADER_BYTES + ACK_BYTES + 8 * BITMAP_WORDS_MAX);

/// What a frame is in use for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Use {
    /// In the free list.
    #[default]
    Free,
    /// Plain chunks that wait to leave, for the first time or again.
    Queued,
    /// Sealed and sent, not yet acknowledged.
    Flying,
    /// Sealed and sent once; nobody waits for its acknowledgement.
    Passing,
    /// Received chunk that cannot be delivered yet.
    Held,
    /// Its first part was acknowledged, but the link still reads it.
    Parting,
    /// Not wanted any more, but the link still reads it.
    Leaving,
}

/// What is in a frame. Plain data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameMeta {
    pub(crate) next: u32,
    pub(crate) usage: Use,
    /// The link reads it: its bytes must not change.
    pub(crate) in_link: bool,
    pub(crate) priority: Priority,
    /// It says that a message is refused.
    pub(crate) refusal: bool,
    /// It says which flows are stopped.
    pub(crate) stops: bool,
    /// It says that this endpoint closes.
    pub(crate) close: bool,
    /// Already counted against the receiver's credit.
    pub(crate) counted: bool,
    /// Sent before, under another number.
    pub(crate) again: bool,
    pub(crate) flow: u16,
    /// Message chunks in it.
    pub(crate) chunks: u16,
    /// Connection that it belongs to; of a connect packet, the peer.
    pub(crate) conn: u32,
    /// Bytes of chunks, from [`CHUNKS_AT`] on.
    pub(crate) len: u32,
    /// Bytes of further parts that wait behind the tag until the present one
    /// was acknowledged.
    pub(crate) rest: [u16; 2],
    /// Long message that goes on after this frame, or whose part it is.
    pub(crate) long: u32,
    /// Bytes between header and chunks when it was sealed.
    pub(crate) ack_len: u16,
    /// Key phase that sealed it.
    pub(crate) phase: u32,
    /// Header that it was sealed with.
    pub(crate) header: [u8; HEADER_BYTES],
    /// Path that it was last sent by, and its number there.
    pub(crate) path: u32,
    pub(crate) number: u64,
    /// The first and the last time that it was given up, with at least the
    /// chunks that it has now.
    pub(crate) given_up: [GivenUp; 2],
    /// When it was last sent, ns.
    pub(crate) sent_at: u64,
    /// Held: its message.
    pub(crate) message: MessageNo,
    /// Held: 0 for a head, fragment + 1 for a body.
    pub(crate) part: u64,
}

/// As what a frame left that was given up, though it may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GivenUp {
    pub path: u32,
    pub number: u64,
    pub sent_at: u64,
}

impl GivenUp {
    /// It was not.
    pub const NEVER: Self = Self {
        path: NONE,
        number: 0,
        sent_at: 0,
    };
}

impl Default for FrameMeta {
    fn default() -> Self {
        Self {
            next: NONE,
            usage: Use::Free,
            in_link: false,
            priority: Priority::Request,
            refusal: false,
            stops: false,
            close: false,
            counted: false,
            again: false,
            flow: 0,
            chunks: 0,
            conn: NONE,
            len: 0,
            rest: [0; 2],
            long: NONE,
            ack_len: 0,
            phase: 0,
            header: [0; HEADER_BYTES],
            path: 0,
            number: 0,
            given_up: [GivenUp::NEVER; 2],
            sent_at: 0,
            message: MessageNo(0),
            part: 0,
        }
    }
}

/// Things that can stand in a [`List`].
pub(crate) trait Linked {
    fn next(&mut self) -> &mut u32;
}

impl Linked for FrameMeta {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl Linked for Long {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

impl Linked for Conn {
    fn next(&mut self) -> &mut u32 {
        &mut self.next
    }
}

/// A singly linked first-in first-out list of indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub const EMPTY: Self = Self {
        head: NONE,
        tail: NONE,
    };

    pub const fn is_empty(self) -> bool {
        self.head == NONE
    }

    pub fn push_back<T: Linked>(&mut self, all: &mut [T], i: u32) {
        *all[i as usize].next() = NONE;
        if self.head == NONE {
            self.head = i;
        } else {
            *all[self.tail as usize].next() = i;
        }
        self.tail = i;
    }

    pub fn push_front<T: Linked>(&mut self, all: &mut [T], i: u32) {
        *all[i as usize].next() = self.head;
        if self.head == NONE {
            self.tail = i;
        }
        self.head = i;
    }

    pub fn pop_front<T: Linked>(&mut self, all: &mut [T]) -> Option<u32> {
        let i = self.head;
        if i == NONE {
            return None;
        }
        self.head = *all[i as usize].next();
        if self.head == NONE {
            self.tail = NONE;
        }
        *all[i as usize].next() = NONE;
        Some(i)
    }

    /// Puts `i` behind `before`, which is in the list.
    pub fn insert_after<T: Linked>(&mut self, all: &mut [T], before: u32, i: u32) {
        let next = *all[before as usize].next();
        *all[i as usize].next() = next;
        *all[before as usize].next() = i;
        if self.tail == before {
            self.tail = i;
        }
    }

    /// Takes out the first for which `wanted` holds.
    pub fn take_where(
        &mut self,
        all: &mut [FrameMeta],
        wanted: impl Fn(&FrameMeta) -> bool,
    ) -> Option<u32> {
        let mut at = self.head;
        while at != NONE && !wanted(&all[at as usize]) {
            at = all[at as usize].next;
        }
        (at != NONE && self.remove(all, at)).then_some(at)
    }

    /// Takes `i` out, wherever it stands; says whether it was there.
    pub fn remove<T: Linked>(&mut self, all: &mut [T], i: u32) -> bool {
        if self.head == i {
            self.pop_front(all);
            return true;
        }
        let mut at = self.head;
        while at != NONE {
            let next = *all[at as usize].next();
            if next == i {
                let after = *all[i as usize].next();
                *all[at as usize].next() = after;
                *all[i as usize].next() = NONE;
                if self.tail == i {
                    self.tail = at;
                }
                return true;
            }
            at = next;
        }
        false
    }
}

/// Who asks for a frame; the less urgent leave some to the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A received chunk of a request that must be held.
    Hold,
    /// The same of a reply.
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

    /// Frames of a pool of `all` that are left to the more urgent.
    const fn keep(self, all: u32, usage: Use) -> u32 {
        match self {
            Self::Hold | Self::Request => all / 8,
            Self::RequestPart => all / 8 - all / 32,
            Self::Reply | Self::HoldReply => all / 16,
            Self::ReplyPart => all / 32,
            // The last are for what the link gives back at once: without
            // acknowledgements nobody would free a frame again.
            Self::Control if matches!(usage, Use::Queued) => 1 + all / 64,
            Self::Control => 0,
        }
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// Whether so many received chunks of one priority could be held.
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
    pub(crate) fn take_frame(&mut self, need: Need, usage: Use, conn: u32) -> Option<u32> {
        let all = self.core.config.frames;
        if self.core.held_count >= need.held_max(all) {
            return None;
        }
        let keep = need.keep(all, usage);
        if self.core.free_count <= keep {
            self.core.refused_above = self.core.refused_above.min(keep);
            return None;
        }
        let i = self.core.free.pop_front(self.meta)?;
        self.core.free_count -= 1;
        self.core.held_count += u32::from(usage == Use::Held);
        let meta = &mut self.meta[i as usize];
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
        meta.long = NONE;
        meta.ack_len = 0;
        Some(i)
    }

    /// Gives a frame back, now or when the link is done with it.
    pub(crate) fn free_frame(&mut self, i: u32) {
        let meta = &mut self.meta[i as usize];
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

    /// Gives back every frame of a list.
    pub(crate) fn free_list(&mut self, mut list: List) -> u32 {
        let mut n = 0;
        while let Some(i) = list.pop_front(self.meta) {
            self.free_frame(i);
            n += 1;
        }
        n
    }

    /// The link is done with the frame of a [`crate::Transmit`]. To be called
    /// once for each, whether the link sent it or failed to.
    pub fn transmitted(&mut self, frame: u32) {
        let meta = &mut self.meta[frame as usize];
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
    pub(crate) fn frame_at(&self, i: u32) -> usize {
        i as usize * self.core.config.frame_bytes as usize
    }

    /// All bytes of a frame.
    #[inline]
    pub(crate) fn frame_mut(&mut self, i: u32) -> &mut [u8] {
        let (at, len) = (self.frame_at(i), self.core.config.frame_bytes as usize);
        &mut self.frames[at..at + len]
    }

    /// Most bytes of chunks that a frame and a packet of `packet` bytes take.
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
            // And what the link gives back at once finds the last.
            assert_eq!(Need::Control.keep(all, Use::Passing), 0);
            assert!(kept[4] > 0);
            // Received chunks leave half of the pool, an eighth of that more
            // to replies.
            assert_eq!(Need::Hold.held_max(all), all / 2);
            assert!(Need::HoldReply.held_max(all) > all / 2);
            assert!(Need::HoldReply.held_max(all) < all - kept[0]);
        }
    }
}
