//! Queuing messages: small ones are copied into frames at once, long ones are
//! cut from the caller's memory as the window opens.

use portolan_seal::Seal;
use portolan_wire::{ARGS_MAX, Body, Chunk, HEAD_BYTES, Head, MessageNo, Priority};

use crate::base::{
    ConnIndex, FrameIndex, Message, PACKET_BASE, PeerId, Release, SendError, SourceId,
};
use crate::endpoint::Endpoint;
use crate::memory::{CHUNKS_AT, Long};
use crate::tables::PeerState;

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
        self.memory.chunk_room(packet) - HEAD_BYTES - 8 * args.min(ARGS_MAX)
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
        let most = self.core.config.queue_frames;
        if c.outbound.takes(m.priority, m.flow, most) {
            Ok(conn)
        } else {
            Err(SendError::NoCredit)
        }
    }

    /// Queues a message that fits one packet; its bytes are copied. It leaves
    /// with the next [`Endpoint::poll_transmit`], together with others that
    /// wait in its flow (P2.23).
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
        let bytes = HEAD_BYTES + 8 * m.args.len() + m.payload.len();
        let room = self.memory.chunk_room(self.packet_size(conn));
        if bytes > room {
            return Err(SendError::TooLong);
        }
        let outbound = &self.conns[conn].outbound;
        let frame = match outbound.tail(&self.memory, m.priority, m.flow, bytes, room) {
            Some(frame) => frame,
            None => self.queue_frame(conn, m).ok_or(SendError::NoCredit)?,
        };
        let message = self.next_message(conn, m);
        let at = self.memory.at(frame) + CHUNKS_AT + self.memory.meta[frame].len as usize;
        let out = &mut self.memory.bytes[at..at + bytes];
        write_head(out, m, message, m.payload.len() as u64);
        out[HEAD_BYTES + 8 * m.args.len()..].copy_from_slice(m.payload);
        let meta = &mut self.memory.meta[frame];
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
        let keep = match m.priority {
            Priority::Request => self.core.config.longs.div_ceil(8),
            Priority::Reply => 0,
        };
        let waiting = &self.conns[conn].outbound.tx[m.priority.index()][m.flow as usize];
        if !self.memory.pool.grants_long(keep.max(waiting.frames)) {
            self.note_lack();
            return Err(SendError::NoCredit);
        }
        let frame = self.queue_frame(conn, m).ok_or(SendError::NoCredit)?;
        let message = self.next_message(conn, m);
        let long = self.memory.take_long(Long {
            source,
            total,
            frames: 1,
            message,
            release,
            ..Long::default()
        });
        // The payload is filled in when the frame leaves: then the size of the
        // path's packets is known.
        let at = self.memory.at(frame) + CHUNKS_AT;
        let bytes = HEAD_BYTES + 8 * m.args.len();
        write_head(
            &mut self.memory.bytes[at..at + bytes],
            &Message { payload: &[], ..*m },
            message,
            total,
        );
        let meta = &mut self.memory.meta[frame];
        meta.long = long;
        meta.len = bytes as u32;
        meta.chunks = 1;
        self.queued(now, conn);
        Ok(message)
    }

    fn queue_frame(&mut self, conn: ConnIndex, m: &Message<'_>) -> Option<FrameIndex> {
        let outbound = &mut self.conns[conn].outbound;
        let frame = outbound.push(&mut self.memory, conn, m.priority, m.flow);
        if frame.is_none() {
            self.note_lack();
        }
        frame
    }

    fn next_message(&mut self, conn: ConnIndex, m: &Message<'_>) -> MessageNo {
        self.core.counters.messages_sent += 1;
        self.conns[conn].outbound.number(m.priority, m.flow)
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
        let outbound = &mut self.conns[conn].outbound;
        let Some(frame) = outbound.push_control(&mut self.memory, conn, chunk) else {
            self.note_lack();
            return None;
        };
        // The peer is waited for, even if its limits keep the chunk back.
        self.conns[conn].silence.wait(now);
        self.make_ready(conn);
        Some(frame)
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
