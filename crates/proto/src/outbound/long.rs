//! Long messages are cut from the caller's memory as the window opens.

use portolan_wire::{BODY_BYTES, Body, Head, Priority};

use super::Outbound;
use crate::base::{ConnIndex, FrameIndex, LongIndex, Outcome, Release, Sources};
use crate::memory::{CHUNKS_AT, Long, Memory, Need, Use};

impl Outbound {
    /// Reads the first bytes of a long message into its head.
    pub(super) fn fill_head(
        &mut self,
        memory: &mut Memory<'_>,
        priority: Priority,
        flow: usize,
        frame: FrameIndex,
        room: usize,
        sources: &impl Sources,
    ) {
        let long = memory.cargo[frame].long;
        let at = memory.cargo[frame].len as usize;
        let Long { source, total, .. } = memory.longs[long];
        let unit = Body::UNIT as usize;
        let free = room.saturating_sub(at);
        let bytes = if total <= free as u64 {
            total as usize
        } else {
            free / unit * unit
        };
        let chunk = &mut memory.frame(frame)[CHUNKS_AT..];
        sources.read(source, 0, &mut chunk[at..at + bytes]);
        Head::set_length(chunk, bytes as u16);
        memory.cargo[frame].len += bytes as u32;
        memory.longs[long].cut = bytes as u64;
        if bytes as u64 == total {
            cut_through(memory, long);
        } else {
            self.tx[priority.index()][flow].long = long;
        }
    }

    /// Cuts the next part of a flow's long message into a frame of its own (P2.20).
    pub(super) fn cut_body(
        &mut self,
        memory: &mut Memory<'_>,
        conn: ConnIndex,
        priority: Priority,
        flow: usize,
        room: usize,
        sources: &impl Sources,
    ) -> Option<FrameIndex> {
        let frame = memory.take(Need::part(priority), Use::Queued, conn)?;
        let long = self.tx[priority.index()][flow].long;
        let Long {
            source,
            total,
            cut,
            message,
            ..
        } = memory.longs[long];
        let unit = Body::UNIT as usize;
        let bytes = ((room - BODY_BYTES) / unit * unit).min((total - cut) as usize);
        let body = Body {
            priority,
            flow: flow as u16,
            message,
            fragment: (cut / Body::UNIT) as u32,
            payload: &[],
        };
        let chunk = &mut memory.frame(frame)[CHUNKS_AT..];
        body.write_header(chunk);
        sources.read(source, cut, &mut chunk[BODY_BYTES..BODY_BYTES + bytes]);
        let cargo = &mut memory.cargo[frame];
        cargo.len = (BODY_BYTES + bytes) as u32;
        cargo.chunks = 1;
        cargo.long = long;
        cargo.priority = priority;
        cargo.flow = flow as u16;
        let l = &mut memory.longs[long];
        l.cut += bytes as u64;
        l.frames += 1;
        self.count_frame(priority == Priority::Reply);
        if cut + bytes as u64 == total {
            self.tx[priority.index()][flow].long = LongIndex::NONE;
            cut_through(memory, long);
        }
        Some(frame)
    }
}

/// Notes that the last byte of a long message is in a frame.
fn cut_through(memory: &mut Memory<'_>, long: LongIndex) {
    if memory.longs[long].release == Release::Copied {
        memory.release_long(long, Outcome::Done);
    }
}
