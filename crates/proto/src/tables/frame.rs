//! What is in each frame of the shared pool.

use portolan_wire::{ACK_BYTES, BITMAP_WORDS_MAX, HEADER_BYTES, MessageNo, Priority, TAG_BYTES};

use crate::base::{ConnIndex, FrameIndex, Linked, List, LongIndex, PathIndex, PeerId, indexed};

/// Where the chunks of every frame start: room in front for the header, the
/// largest acknowledgement and a link's own headers (Ethernet, IPv6, UDP: 62).
pub(crate) const CHUNKS_AT: usize = 192;
const _: () = assert!(CHUNKS_AT >= 62 + HEADER_BYTES + ACK_BYTES + 8 * BITMAP_WORDS_MAX);

/// Messages that share one frame, at most.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FrameMeta {
    pub(crate) next: FrameIndex,
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
    pub(crate) conn: ConnIndex,
    /// Bytes of chunks, from [`CHUNKS_AT`] on.
    pub(crate) len: u32,
    /// Bytes of further parts that wait behind the tag until the present one
    /// was acknowledged.
    pub(crate) rest: [u16; 2],
    /// Long message that goes on after this frame, or whose part it is.
    pub(crate) long: LongIndex,
    /// Bytes between header and chunks when it was sealed.
    pub(crate) ack_len: u16,
    /// Key phase that sealed it.
    pub(crate) phase: u32,
    /// Header that it was sealed with.
    pub(crate) header: [u8; HEADER_BYTES],
    /// Path that it was last sent by, and its number there.
    pub(crate) path: PathIndex,
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
    pub path: PathIndex,
    pub number: u64,
    pub sent_at: u64,
}

impl GivenUp {
    /// It was not.
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
    /// Whether it has refusals of this flow.
    pub(crate) fn refuses(&self, priority: Priority, flow: u16) -> bool {
        self.refusal && (self.priority, self.flow) == (priority, flow)
    }

    /// When it left as the packet `number` of a path, if it did so and was
    /// given up: now that this has arrived, it need not leave again.
    pub(crate) fn left_as(&self, path: PathIndex, number: u64) -> Option<u64> {
        let mut given_up = self.given_up.iter();
        let it = given_up.find(|it| (it.path, it.number) == (path, number))?;
        Some(it.sent_at)
    }

    /// A connect packet is for this peer: it belongs to no connection.
    pub(crate) fn set_peer(&mut self, peer: PeerId) {
        self.conn = ConnIndex::new(peer.index());
    }

    /// Whom a connect packet is for.
    pub(crate) const fn peer(&self) -> PeerId {
        PeerId(self.conn.index() as u32)
    }

    /// Whether it carries parts of replies.
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
    /// Takes out the first for which `wanted` holds.
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
