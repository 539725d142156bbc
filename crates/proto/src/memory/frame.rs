//! Metadata of the frames of the shared pool.

use portolan_wire::{ACK_BYTES, BITMAP_WORDS_MAX, HEADER_BYTES, MessageNo, Priority};

use crate::base::{ConnIndex, FrameIndex, Linked, List, LongIndex, PeerId, indexed};

/// Where the chunks of every frame start: room in front for the header, the
/// largest acknowledgement and a link's own headers (Ethernet, IPv6, UDP: 62).
pub(crate) const CHUNKS_AT: usize = 192;
const _: () = assert!(CHUNKS_AT >= 62 + HEADER_BYTES + ACK_BYTES + 8 * BITMAP_WORDS_MAX);

/// Maximum number of messages in one frame.
pub(crate) const CHUNKS_MAX: u32 = 32;

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
    /// Sealed and sent once, never resent; free when the link is done with it.
    Passing,
    /// Received chunk that cannot be delivered yet.
    Held,
    /// The first part was acknowledged, but the link still reads the frame.
    Parting,
    /// No longer needed, but the link still reads the frame.
    Leaving,
}

/// What a frame carries, and for whom. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cargo {
    pub(crate) next: FrameIndex,
    pub(crate) usage: Use,
    pub(crate) priority: Priority,
    /// Carries refusals.
    pub(crate) refusal: bool,
    /// Carries the set of stopped flows.
    pub(crate) stops: bool,
    /// Carries a close.
    pub(crate) close: bool,
    /// Already counted against the receiver's credit.
    pub(crate) counted: bool,
    pub(crate) flow: u16,
    /// Message chunks in it.
    pub(crate) chunks: u16,
    /// Connection that owns the frame; in a connect packet, the peer.
    pub(crate) conn: ConnIndex,
    /// Bytes of chunks, from [`CHUNKS_AT`] on.
    pub(crate) len: u32,
    /// Bytes of further parts that wait behind the tag until the present one
    /// was acknowledged.
    pub(crate) rest: [u16; 2],
    /// Long message of which the frame holds the head or a part.
    pub(crate) long: LongIndex,
    /// If held: number of the message.
    pub(crate) message: MessageNo,
    /// If held: 0 for a head, fragment + 1 for a body.
    pub(crate) part: u64,
}

impl Cargo {
    /// Takes the frame into use, without chunks.
    #[inline]
    pub(crate) const fn begin(&mut self, usage: Use, conn: ConnIndex) {
        self.usage = usage;
        self.conn = conn;
        self.refusal = false;
        self.stops = false;
        self.close = false;
        self.counted = false;
        self.chunks = 0;
        self.priority = Priority::Request;
        self.len = 0;
        self.rest = [0; 2];
        self.long = LongIndex::NONE;
    }

    /// Whether the frame carries refusals of this flow.
    pub(crate) fn refuses(&self, priority: Priority, flow: u16) -> bool {
        self.refusal && (self.priority, self.flow) == (priority, flow)
    }

    /// Whether nothing but messages is in it, all of them in the one packet that has left.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        !self.refusal && !self.stops && !self.close && self.rest[0] == 0
    }

    /// Sets the peer of a connect packet, which belongs to no connection.
    pub(crate) fn set_peer(&mut self, peer: PeerId) {
        self.conn = ConnIndex::new(peer.index());
    }

    /// Peer of a connect packet.
    pub(crate) const fn peer(&self) -> PeerId {
        PeerId(self.conn.index() as u32)
    }

    /// Whether the frame carries parts of replies.
    pub(crate) fn is_reply(&self) -> bool {
        self.chunks > 0 && self.priority == Priority::Reply
    }
}

impl Linked for Cargo {
    type Index = FrameIndex;

    fn next(&mut self) -> &mut FrameIndex {
        &mut self.next
    }
}

impl List<FrameIndex> {
    /// Removes and returns the first frame for which `wanted` holds.
    pub fn take_where(
        &mut self,
        all: &mut [Cargo],
        wanted: impl Fn(&Cargo) -> bool,
    ) -> Option<FrameIndex> {
        let mut at = self.head;
        while at.is_some() && !wanted(&all[at]) {
            at = all[at].next;
        }
        (at.is_some() && self.remove(all, at)).then_some(at)
    }
}

indexed!(Cargo, FrameIndex);
