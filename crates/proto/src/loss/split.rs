//! Frames that have become too big for their path are cut in two.

use portolan_seal::Seal;
use portolan_wire::{BODY_BYTES, Body, Chunk, Chunks, HEAD_BYTES, Head, Priority, TAG_BYTES};

use crate::base::{ConnIndex, FRAME_BYTES_MAX, FrameIndex, PACKET_BASE};
use crate::endpoint::{Endpoint, Need};
use crate::tables::{CHUNKS_AT, FrameMeta, Use};

impl<S: Seal> Endpoint<'_, S> {
    /// Splits a frame that has become too big for its path: bytes beyond `room`
    /// go on in other frames, behind it; or where none is free in the same
    /// frame, once the first part was acknowledged.
    pub(crate) fn fit(&mut self, conn: ConnIndex, frame: FrameIndex, room: usize) {
        while self.meta[frame].len as usize > room {
            let meta = self.meta[frame];
            let need = match meta.priority {
                Priority::Request => Need::RequestPart,
                Priority::Reply => Need::ReplyPart,
            };
            let other = match meta.rest {
                [0, 0] => self.take_frame(need, Use::Queued, conn),
                _ => None,
            };
            let Some(other) = other else {
                self.park_rest(frame);
                return;
            };
            let size = self.core.config.frame_bytes as usize;
            let (from, to) = (self.frame_at(frame), self.frame_at(other));
            self.frames.copy_within(from..from + size, to);
            let (low, high) = self.frames.split_at_mut(from.max(to));
            let (low, high) = (&mut low[from.min(to)..][..size], &mut high[..size]);
            let (old, new) = if from < to { (low, high) } else { (high, low) };
            let cut = split(
                &mut old[CHUNKS_AT..],
                &mut new[CHUNKS_AT..],
                meta.len as usize,
                room,
            );
            let Some(cut) = cut else {
                self.free_frame(other);
                return;
            };
            if meta.counted {
                self.core.counters.cut += cut.parts(meta.len as usize);
            }
            self.meta[frame].len = cut.kept as u32;
            self.meta[frame].chunks = cut.chunks;
            self.meta[other] = FrameMeta {
                in_link: false,
                len: cut.moved as u32,
                chunks: meta.chunks.saturating_sub(cut.chunks).max(1),
                ..meta
            };
            if meta.long.is_some() {
                self.longs[meta.long].frames += 1;
            }
            let c = &mut self.conns[conn];
            c.queued += 1;
            c.queued_replies += u32::from(meta.is_reply());
            c.resend.push_front(self.meta, other);
        }
    }

    /// Splits a frame without another: it keeps what every path takes, and the
    /// rest lies behind room for the tag until that is acknowledged. A full
    /// pool must not keep its own frames from leaving.
    #[cold]
    fn park_rest(&mut self, frame: FrameIndex) {
        let room = self.chunk_room(PACKET_BASE);
        let meta = self.meta[frame];
        let len = meta.len as usize;
        if len <= room || meta.rest[1] != 0 {
            return;
        }
        let mut copy = [0; FRAME_BYTES_MAX];
        let bytes = self.frame_mut(frame);
        let size = bytes.len();
        copy[..size].copy_from_slice(bytes);
        let (old, new) = (&mut bytes[CHUNKS_AT..], &mut copy[CHUNKS_AT..]);
        let Some(Ok(first)) = Chunks::new(&old[..len]).next() else {
            return;
        };
        let first = match first {
            Chunk::Head(h) => h.bytes(),
            Chunk::Body(_) => len,
            _ => return,
        };
        // Chunks behind one that is cut cannot share a packet with its rest.
        let (within, after) = if first > room {
            (first, len - first)
        } else {
            (len, 0)
        };
        if after != 0 && meta.rest[0] != 0 {
            return;
        }
        let parked = meta.rest[0] as usize;
        let last = after + parked;
        // Behind what is to be cut: chunks that follow, or what was parked.
        let last_at = if after != 0 { first } else { len + TAG_BYTES };
        if CHUNKS_AT + len + BODY_BYTES + TAG_BYTES + parked > size {
            return;
        }
        let mut tail = [0; FRAME_BYTES_MAX];
        tail[..last].copy_from_slice(&new[last_at..last_at + last]);
        let Some(cut) = split(old, new, within, room) else {
            return;
        };
        self.core.counters.cut += cut.parts(within);
        let bytes = self.frame_mut(frame);
        let old = &mut bytes[CHUNKS_AT..];
        let at = cut.kept + TAG_BYTES;
        old[at..at + cut.moved].copy_from_slice(&new[..cut.moved]);
        old[at + cut.moved..][..last].copy_from_slice(&tail[..last]);
        let meta = &mut self.meta[frame];
        meta.len = cut.kept as u32;
        meta.rest = [cut.moved as u16, last as u16];
    }

    /// The first part of a frame was acknowledged: the next one leaves, once
    /// the link has returned the frame.
    #[cold]
    pub(crate) fn go_on_with_rest(&mut self, conn: ConnIndex, frame: FrameIndex) {
        let meta = self.meta[frame];
        if meta.in_link {
            self.meta[frame].usage = Use::Parting;
            return;
        }
        let [next, last] = meta.rest.map(usize::from);
        let at = CHUNKS_AT + meta.len as usize + TAG_BYTES;
        let bytes = self.frame_mut(frame);
        bytes.copy_within(at..at + next, CHUNKS_AT);
        bytes.copy_within(at + next..at + next + last, CHUNKS_AT + next + TAG_BYTES);
        self.meta[frame] = FrameMeta {
            usage: Use::Queued,
            len: next as u32,
            rest: [last as u16, 0],
            ack_len: 0,
            // The frame may not have held this part yet.
            given_up: Default::default(),
            ..meta
        };
        self.conns[conn].resend.push_front(self.meta, frame);
        self.make_ready(conn);
    }
}

/// Where a frame was split.
struct Cut {
    /// Bytes that each frame has now.
    kept: usize,
    moved: usize,
    /// Chunks that stay in the old frame.
    chunks: u16,
}

impl Cut {
    /// Number of chunks by which the two frames exceed the one of `len` bytes.
    fn parts(&self, len: usize) -> u64 {
        u64::from(self.kept + self.moved > len)
    }
}

/// Splits chunks that stand in both `old` and `new` (`len` bytes) so that
/// `old` keeps at most `room`, or its first chunk alone. `None` if there is no
/// place to split at.
fn split(old: &mut [u8], new: &mut [u8], len: usize, room: usize) -> Option<Cut> {
    let unit = Body::UNIT as usize;
    let mut at = 0;
    let mut chunks = 0;
    for chunk in Chunks::new(&old[..len]) {
        let (bytes, fixed, part) = match chunk.ok()? {
            Chunk::Head(h) => {
                let body = Body {
                    priority: h.priority,
                    flow: h.flow,
                    message: h.message,
                    fragment: 0,
                    payload: &[],
                };
                (h.bytes(), HEAD_BYTES + h.args.len(), body)
            }
            Chunk::Body(b) => (
                BODY_BYTES + b.payload.len(),
                BODY_BYTES,
                Body { payload: &[], ..b },
            ),
            _ => return None,
        };
        if at + bytes <= room {
            at += bytes;
            chunks += 1;
            continue;
        }
        if at == 0 && bytes == len {
            // One chunk alone: cut its payload.
            let kept = room.checked_sub(fixed)? / unit * unit;
            let fragment = part.fragment + (kept / unit) as u32;
            let is_head = old[0] & 7 == 1;
            new.copy_within(fixed + kept..len, BODY_BYTES);
            Body { fragment, ..part }.write_header(new);
            if is_head {
                Head::set_length(old, kept as u16);
            }
            let (kept, moved) = (fixed + kept, BODY_BYTES + len - fixed - kept);
            return Some(Cut {
                kept,
                moved,
                chunks: 1,
            });
        }
        // Between two chunks.
        let kept = if at == 0 { bytes } else { at };
        new.copy_within(kept..len, 0);
        return Some(Cut {
            kept,
            moved: len - kept,
            chunks: chunks.max(1),
        });
    }
    None
}
