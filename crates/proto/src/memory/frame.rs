//! Metadata of the frames of the shared pool.

use portolan_wire::{ACK_BYTES, BITMAP_WORDS_MAX, HEADER_BYTES, MessageNo, Priority, TAG_BYTES};

use crate::base::{ConnIndex, FrameIndex, Linked, List, LongIndex, PathIndex, PeerId, indexed};

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

/// Metadata of a frame. Plain data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameMeta {
    pub(crate) next: FrameIndex,
    pub(crate) usage: Use,
    /// The link reads the frame: its bytes must not change.
    pub(crate) in_link: bool,
    pub(crate) priority: Priority,
    /// Carries refusals.
    pub(crate) refusal: bool,
    /// Carries the set of stopped flows.
    pub(crate) stops: bool,
    /// Carries a close.
    pub(crate) close: bool,
    /// Already counted against the receiver's credit.
    pub(crate) counted: bool,
    /// Sent before, under another number.
    pub(crate) again: bool,
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
    /// Bytes between header and chunks when the frame was sealed.
    pub(crate) ack_len: u16,
    /// Key phase in which the frame was sealed.
    pub(crate) phase: u32,
    /// Header that the frame was sealed with.
    pub(crate) header: [u8; HEADER_BYTES],
    /// Path of the last transmission, and the packet number there.
    pub(crate) path: PathIndex,
    pub(crate) number: u64,
    /// The first and the last transmission that was given up, with at least the
    /// present chunks.
    pub(crate) given_up: [GivenUp; 2],
    /// When the frame was last sent, ns.
    pub(crate) sent_at: u64,
    /// If held: number of the message.
    pub(crate) message: MessageNo,
    /// If held: 0 for a head, fragment + 1 for a body.
    pub(crate) part: u64,
}

/// A transmission that was given up, though it may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GivenUp {
    pub path: PathIndex,
    pub number: u64,
    pub sent_at: u64,
}

impl GivenUp {
    /// None was given up.
    pub const NEVER: Self = Self {
        path: PathIndex::NONE,
        number: 0,
        sent_at: 0,
    };
}

impl Default for GivenUp {
    fn default() -> Self {
        Self::NEVER
    }
}

impl FrameMeta {
    /// Takes the frame into use, without chunks. What `depart` writes stays as it was.
    #[inline]
    pub(crate) const fn begin(&mut self, usage: Use, conn: ConnIndex) {
        self.usage = usage;
        self.conn = conn;
        self.refusal = false;
        self.stops = false;
        self.close = false;
        self.counted = false;
        self.again = false;
        self.given_up = [GivenUp::NEVER; 2];
        self.chunks = 0;
        self.priority = Priority::Request;
        self.len = 0;
        self.rest = [0; 2];
        self.long = LongIndex::NONE;
        self.ack_len = 0;
    }

    /// Whether the frame carries refusals of this flow.
    pub(crate) fn refuses(&self, priority: Priority, flow: u16) -> bool {
        self.refusal && (self.priority, self.flow) == (priority, flow)
    }

    /// When the frame left as packet `number` of a path, if that was given up:
    /// once that packet has arrived, the frame need not leave again.
    pub(crate) fn left_as(&self, path: PathIndex, number: u64) -> Option<u64> {
        let mut given_up = self.given_up.iter();
        let it = given_up.find(|it| (it.path, it.number) == (path, number))?;
        Some(it.sent_at)
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

    /// Bytes of the packet that the frame was last sent as.
    pub(crate) const fn packet_bytes(&self) -> usize {
        HEADER_BYTES + self.ack_len as usize + self.len as usize + TAG_BYTES
    }
}

impl Linked for FrameMeta {
    type Index = FrameIndex;

    fn next(&mut self) -> &mut FrameIndex {
        &mut self.next
    }
}

impl List<FrameIndex> {
    /// Removes and returns the first frame for which `wanted` holds.
    pub fn take_where(
        &mut self,
        all: &mut [FrameMeta],
        wanted: impl Fn(&FrameMeta) -> bool,
    ) -> Option<FrameIndex> {
        let mut at = self.head;
        while at.is_some() && !wanted(&all[at]) {
            at = all[at].next;
        }
        (at.is_some() && self.remove(all, at)).then_some(at)
    }
}

indexed!(FrameMeta, FrameIndex);
