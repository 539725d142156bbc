//! Queuing messages: small ones are copied into frames at once, long ones are
//! cut from the caller's memory as the window opens.

use portolan_seal::Seal;
use portolan_wire::{ARGS_MAX, Body, Chunk, HEAD_BYTES, Head, MessageNo, Priority};

use crate::base::{
    ConnIndex, FrameIndex, LongIndex, Message, Outcome, PACKET_BASE, PeerId, Release, SendError,
    SourceId,
};
use crate::endpoint::{Endpoint, Need};
use crate::tables::{CHUNKS_AT, CHUNKS_MAX, Long, MemoryOwner, PeerState, Use};

impl<S: Seal> Endpoint<'_, S> {
    /// Largest payload beside `args` words that [`Endpoint::send`] takes for a
    /// peer at present, bytes.
    #[inline]
    #[must_use]
    pub fn inline_max(&self, peer: PeerId, args: usize) -> usize {
        let conn = self
            .peers
            .get(peer.index())
            .map_or(ConnIndex::NONE, |p| p.conn);
        let packet = match conn {
            ConnIndex::NONE => PACKET_BASE,
            conn => self.packet_size(conn),
        };
        self.chunk_room(packet) - HEAD_BYTES - 8 * args.min(ARGS_MAX)
    }

    /// Checks that every send makes first; returns the peer's connection.
    #[inline]
    fn admit(&mut self, now: u64, peer: PeerId, m: &Message<'_>) -> Result<ConnIndex, SendError> {
        if peer.0 >= self.core.peer_count {
            return Err(SendError::BadPeer);
        }
        if m.flow >= self.core.config.flows {
            return Err(SendError::BadFlow);
        }
        if m.args.len() > ARGS_MAX {
            return Err(SendError::TooManyArgs);
        }
        let p = &self.peers[peer];
        let state = p.state;
        if matches!(state, PeerState::Dead(_)) || self.core.closing {
            return Err(SendError::PeerDead);
        }
        let conn = match p.conn {
            ConnIndex::NONE if state == PeerState::New && !self.may_connect() => {
                return Err(SendError::NoCredit);
            }
            ConnIndex::NONE => self.activate(now, peer).ok_or(SendError::NoCredit)?,
            conn => conn,
        };
        if state != PeerState::Up && self.saves_for_others() {
            // Connecting begins all the same.
            self.begin_connect(now, conn);
            return Err(SendError::NoCredit);
        }
        let c = &mut self.conns[conn];
        c.silence.used(now);
        let full = self.core.config.queue_frames;
        // Frames in stopped flows hold nothing else back.
        let [_, stopped_replies] = c.stops.frames;
        let queued = c.queued - c.stops.frames[0] - stopped_replies;
        let room = match m.priority {
            Priority::Request => queued < full,
            // Never blocked behind requests, however many frames those have
            // become: parts of long ones are cut beyond the limit.
            Priority::Reply => {
                queued < full || c.queued_replies - stopped_replies < (full / 4).max(1)
            }
        };
        if room && !c.stops.is_stopped(m.priority, m.flow) {
            Ok(conn)
        } else {
            Err(SendError::NoCredit)
        }
    }

    /// Queues a message that fits one packet; its bytes are copied. It leaves
    /// with the next [`Endpoint::poll_transmit`], together with others that
    /// wait in its flow.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued.
    #[inline]
    pub fn send(
        &mut self,
        now: u64,
        peer: PeerId,
        m: &Message<'_>,
    ) -> Result<MessageNo, SendError> {
        let conn = self.admit(now, peer, m)?;
        let (priority, flow) = (m.priority.index(), m.flow as usize);
        let bytes = HEAD_BYTES + 8 * m.args.len() + m.payload.len();
        let room = self.chunk_room(self.packet_size(conn));
        if bytes > room {
            return Err(SendError::TooLong);
        }
        // The last frame of the flow, if it still waits and has room.
        let tail = self.conns[conn].tx[priority][flow].queue.tail;
        let frame = if tail.is_some()
            && self.meta[tail].long.is_none()
            && u32::from(self.meta[tail].chunks) < CHUNKS_MAX
            && self.meta[tail].len as usize + bytes <= room
        {
            tail
        } else {
            let need = match m.priority {
                Priority::Request => Need::Request,
                Priority::Reply => Need::Reply,
            };
            self.queue_frame(conn, need, m).ok_or(SendError::NoCredit)?
        };
        let message = self.next_message(conn, m);
        let at = self.frame_at(frame) + CHUNKS_AT + self.meta[frame].len as usize;
        let out = &mut self.frames[at..at + bytes];
        write_head(out, m, message, m.payload.len() as u64);
        out[HEAD_BYTES + 8 * m.args.len()..].copy_from_slice(m.payload);
        let meta = &mut self.meta[frame];
        meta.len += bytes as u32;
        meta.chunks += 1;
        self.queued(now, conn);
        Ok(message)
    }

    /// Queues a message of any length. Its bytes are read from `source` by
    /// [`crate::Sources::read`] as the window opens; [`crate::Event::Released`]
    /// reports when the memory is the caller's again. `m.payload` is not used.
    ///
    /// # Errors
    /// [`SendError`]; nothing was queued, nothing will be released.
    pub fn send_long(
        &mut self,
        now: u64,
        peer: PeerId,
        m: &Message<'_>,
        total: u64,
        source: SourceId,
        release: Release,
    ) -> Result<MessageNo, SendError> {
        let conn = self.admit(now, peer, m)?;
        if total > Body::UNIT << 32 {
            return Err(SendError::TooLong);
        }
        let long = self.core.free_longs;
        let keep = match m.priority {
            Priority::Request => self.core.config.longs.div_ceil(8),
            Priority::Reply => 0,
        };
        let waiting = &self.conns[conn].tx[m.priority.index()][m.flow as usize];
        if self.core.free_long_count <= keep.max(waiting.frames) {
            self.fall_short();
            return Err(SendError::NoCredit);
        }
        let need = match m.priority {
            Priority::Request => Need::Request,
            Priority::Reply => Need::Reply,
        };
        let frame = self.queue_frame(conn, need, m).ok_or(SendError::NoCredit)?;
        let message = self.next_message(conn, m);
        self.core.free_longs = self.longs[long].next;
        self.core.free_long_count -= 1;
        self.longs[long] = Long {
            source,
            total,
            frames: 1,
            message,
            release,
            ..Long::default()
        };
        // The payload is filled in when the frame leaves: then the size of the
        // path's packets is known.
        let at = self.frame_at(frame) + CHUNKS_AT;
        let bytes = HEAD_BYTES + 8 * m.args.len();
        write_head(
            &mut self.frames[at..at + bytes],
            &Message { payload: &[], ..*m },
            message,
            total,
        );
        let meta = &mut self.meta[frame];
        meta.long = long;
        meta.len = bytes as u32;
        meta.chunks = 1;
        self.queued(now, conn);
        Ok(message)
    }

    fn queue_frame(&mut self, conn: ConnIndex, need: Need, m: &Message<'_>) -> Option<FrameIndex> {
        let (priority, flow) = (m.priority.index(), m.flow as usize);
        // A flow takes no more frames than it leaves: should it be stopped,
        // others go on.
        if self.conns[conn].tx[priority][flow].frames >= self.core.free_count {
            return None;
        }
        let frame = self.take_frame(need, Use::Queued, conn)?;
        self.meta[frame].priority = m.priority;
        self.meta[frame].flow = m.flow;
        let c = &mut self.conns[conn];
        c.tx[priority][flow].queue.push_back(self.meta, frame);
        c.tx[priority][flow].frames += 1;
        c.mark_pending(priority, flow);
        c.queued += 1;
        c.queued_replies += u32::from(m.priority == Priority::Reply);
        Some(frame)
    }

    fn next_message(&mut self, conn: ConnIndex, m: &Message<'_>) -> MessageNo {
        self.core.counters.messages_sent += 1;
        let c = &mut self.conns[conn];
        let next = &mut c.kept.next_out[m.priority.index()][m.flow as usize];
        let message = *next;
        *next = next.next();
        message
    }

    #[inline(always)]
    fn queued(&mut self, now: u64, conn: ConnIndex) {
        if self.peers[self.conns[conn].peer].state == PeerState::New {
            self.begin_connect(now, conn);
        }
        let c = &mut self.conns[conn];
        c.silence.wait(now);
        self.make_ready(conn);
    }

    /// Queues a chunk of the protocol's own towards a peer.
    pub(crate) fn queue_control(
        &mut self,
        now: u64,
        conn: ConnIndex,
        chunk: &Chunk<'_>,
    ) -> Option<FrameIndex> {
        let frame = self.take_frame(Need::Control, Use::Queued, conn)?;
        let at = self.frame_at(frame) + CHUNKS_AT;
        self.meta[frame].len = chunk.write(&mut self.frames[at..]) as u32;
        let c = &mut self.conns[conn];
        c.control.push_back(self.meta, frame);
        c.queued += 1;
        // The peer is waited for, even if its limits keep the chunk back.
        c.silence.wait(now);
        self.make_ready(conn);
        Some(frame)
    }

    /// Notes that one frame with a part of a long message is done.
    pub(crate) fn long_frame_done(&mut self, long: LongIndex, outcome: Outcome) {
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

    /// Frees the entry of a long message.
    pub(crate) fn free_long(&mut self, long: LongIndex) {
        self.longs[long].next = self.core.free_longs;
        self.core.free_longs = long;
        self.core.free_long_count += 1;
    }

    /// Releases a long message's memory to the caller, if that has not been done.
    pub(crate) fn release_long(&mut self, long: LongIndex, outcome: Outcome) {
        let l = &mut self.longs[long];
        if l.memory == MemoryOwner::Lent {
            l.memory = MemoryOwner::Untold;
            l.outcome = outcome;
            self.tell_released(long);
        }
    }
}

/// Writes a head chunk with its argument words; the payload is left to the caller.
fn write_head(out: &mut [u8], m: &Message<'_>, message: MessageNo, total: u64) {
    Head {
        priority: m.priority,
        flow: m.flow,
        message,
        port: m.port,
        total,
        args: &[],
        payload: m.payload,
    }
    .write_header(out);
    out[1] = m.args.len() as u8;
    for (i, arg) in m.args.iter().enumerate() {
        out[HEAD_BYTES + 8 * i..][..8].copy_from_slice(&arg.to_le_bytes());
    }
}
