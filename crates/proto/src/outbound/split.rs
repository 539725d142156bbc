//! Frames that have become too big for their path are cut in two.

use portolan_wire::{BODY_BYTES, Body, Chunk, Chunks, HEAD_BYTES, Head, TAG_BYTES};

use super::Outbound;
use crate::base::{ConnIndex, FRAME_BYTES_MAX, FrameIndex, PACKET_BASE};
use crate::memory::{CHUNKS_AT, Cargo, Flight, Memory, Need, Use};

impl Outbound {
    /// Splits a frame that has become too big for its path: bytes beyond `room`
    /// go on in other frames, behind it; or where none is free in the same
    /// frame, once the first part was acknowledged. Returns the number of chunks cut in two that
    /// may have arrived as one.
    #[inline]
    pub(super) fn fit(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        frame: FrameIndex,
        room: usize,
    ) -> u32 {
        if memory.cargo[frame].len as usize > room {
            self.split(memory, conn, frame, room)
        } else {
            0
        }
    }

    #[cold]
    fn split(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        frame: FrameIndex,
        room: usize,
    ) -> u32 {
        let mut twice = 0;
        while memory.cargo[frame].len as usize > room {
            let cargo = memory.cargo[frame];
            let need = Need::part(cargo.priority);
            let other = match cargo.rest {
                [0, 0] => memory.take(need, Use::Queued, conn),
                _ => None,
            };
            let Some(other) = other else {
                return twice + park_rest(memory, frame);
            };
            let size = memory.pool.frame_bytes as usize;
            let (from, to) = (memory.at(frame), memory.at(other));
            memory.bytes.copy_within(from..from + size, to);
            let (low, high) = memory.bytes.split_at_mut(from.max(to));
            let (low, high) = (&mut low[from.min(to)..][..size], &mut high[..size]);
            let (old, new) = if from < to { (low, high) } else { (high, low) };
            let cut = split(
                &mut old[CHUNKS_AT..],
                &mut new[CHUNKS_AT..],
                cargo.len as usize,
                room,
            );
            let Some(cut) = cut else {
                memory.free(other);
                return twice;
            };
            if cargo.counted {
                twice += cut.parts(cargo.len as usize);
            }
            memory.cargo[frame].len = cut.kept as u32;
            memory.cargo[frame].chunks = cut.chunks;
            memory.flights[other] = Flight {
                in_link: false,
                ..memory.flights[frame]
            };
            memory.cargo[other] = Cargo {
                len: cut.moved as u32,
                chunks: cargo.chunks.saturating_sub(cut.chunks).max(1),
                ..cargo
            };
            if cargo.long.is_some() {
                memory.longs[cargo.long].frames += 1;
            }
            self.count_frame(cargo.is_reply());
            self.resend.push_front(memory.cargo, other);
        }
        twice
    }

    /// The first part of a frame was acknowledged: queues the next one. Returns false if the link
    /// still reads the frame: then once that is over.
    #[cold]
    pub fn go_on_with_rest(&mut self, memory: &mut Memory<'_>, frame: FrameIndex) -> bool {
        let cargo = memory.cargo[frame];
        if memory.flights[frame].in_link {
            memory.cargo[frame].usage = Use::Parting;
            return false;
        }
        let [next, last] = cargo.rest.map(usize::from);
        let at = CHUNKS_AT + cargo.len as usize + TAG_BYTES;
        let bytes = memory.frame(frame);
        bytes.copy_within(at..at + next, CHUNKS_AT);
        bytes.copy_within(at + next..at + next + last, CHUNKS_AT + next + TAG_BYTES);
        memory.cargo[frame] = Cargo {
            usage: Use::Queued,
            len: next as u32,
            rest: [last as u16, 0],
            ..cargo
        };
        // The frame may not have held this part yet.
        let flight = &mut memory.flights[frame];
        flight.given_up = Default::default();
        flight.ack_len = 0;
        self.resend.push_front(memory.cargo, frame);
        true
    }
}

/// Splits a frame without another: it keeps what every path takes, and the
/// rest lies behind room for the tag until that is acknowledged. A full
/// pool must not keep its own frames from leaving. Returns as [`Outbound::fit`].
#[cold]
fn park_rest(memory: &mut Memory<'_>, frame: FrameIndex) -> u32 {
    let room = memory.chunk_room(PACKET_BASE);
    let cargo = memory.cargo[frame];
    let len = cargo.len as usize;
    if len <= room || cargo.rest[1] != 0 {
        return 0;
    }
    let mut copy = [0; FRAME_BYTES_MAX];
    let bytes = memory.frame(frame);
    let size = bytes.len();
    copy[..size].copy_from_slice(bytes);
    let (old, new) = (&mut bytes[CHUNKS_AT..], &mut copy[CHUNKS_AT..]);
    let Some(Ok(first)) = Chunks::new(&old[..len]).next() else {
        return 0;
    };
    let first = match first {
        Chunk::Head(h) => h.bytes(),
        Chunk::Body(_) => len,
        _ => return 0,
    };
    // Chunks behind one that is cut cannot share a packet with its rest.
    let (within, after) = if first > room {
        (first, len - first)
    } else {
        (len, 0)
    };
    if after != 0 && cargo.rest[0] != 0 {
        return 0;
    }
    let parked = cargo.rest[0] as usize;
    let last = after + parked;
    // Behind what is to be cut: chunks that follow, or what was parked.
    let last_at = if after != 0 { first } else { len + TAG_BYTES };
    if CHUNKS_AT + len + BODY_BYTES + TAG_BYTES + parked > size {
        return 0;
    }
    let mut tail = [0; FRAME_BYTES_MAX];
    tail[..last].copy_from_slice(&new[last_at..last_at + last]);
    let Some(cut) = split(old, new, within, room) else {
        return 0;
    };
    let bytes = memory.frame(frame);
    let old = &mut bytes[CHUNKS_AT..];
    let at = cut.kept + TAG_BYTES;
    old[at..at + cut.moved].copy_from_slice(&new[..cut.moved]);
    old[at + cut.moved..][..last].copy_from_slice(&tail[..last]);
    let cargo = &mut memory.cargo[frame];
    cargo.len = cut.kept as u32;
    cargo.rest = [cut.moved as u16, last as u16];
    cut.parts(within)
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
    fn parts(&self, len: usize) -> u32 {
        u32::from(self.kept + self.moved > len)
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
