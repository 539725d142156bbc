//! Contents of a packet, handed out part by part.
//!
//! A [`Delivery`] borrows the packet, or [`Spare`] for a chunk that was held,
//! and never the endpoint: the caller may send meanwhile.

use portolan_seal::Seal;
use portolan_wire::{Body, Chunk, Chunks, HEADER_BYTES, Head, Priority, TAG_BYTES};

use crate::base::{ConnIndex, Delivery, FrameIndex, Heard, PathIndex, PeerId, Verdict};
use crate::endpoint::Endpoint;
use crate::inbound::{ChunkOutcome, Meet, Piece, Placing, Spare};
use crate::received::Contents;

/// Contents of one packet, or of held chunks. Until [`Rx::next`] has returned
/// `None` the packet is not counted, nor acknowledged, and its connection is
/// kept for its peer. If this is dropped before, the peer sends the rest again.
#[derive(Debug)]
#[must_use = "a packet counts once `next` has returned `None`"]
pub struct Rx<'p> {
    now: u64,
    heard: Option<Heard>,
    /// The connection whose turn it is.
    conn: ConnIndex,
    peer: PeerId,
    /// If from a packet: its path, its number there, whether it asks for an
    /// acknowledgement.
    path: PathIndex,
    number: u64,
    ack_wanted: bool,
    /// The packet had some chunk.
    eliciting: bool,
    bytes: usize,
    chunks: Chunks<'p>,
    /// Without a packet: the connection that is examined next.
    next: u32,
    part: Part<'p>,
    spare: &'p mut Spare,
}

/// Part handed out last, and how far. The chunk of a held frame is in [`Spare`].
#[derive(Debug)]
enum Part<'p> {
    Nothing,
    Head(Head<'p>),
    Body(Body<'p>, Placing),
    HeldHead(FrameIndex),
    HeldBody(FrameIndex, Placing),
    /// There is no room to hold a head that was answered "not now".
    NoRoom(Priority),
}

/// Part to hand out next.
enum Found<'p> {
    Head(Head<'p>),
    Body(Body<'p>, Piece),
    /// In [`Spare`].
    Held(Piece),
}

#[inline]
pub(super) fn first_part<'a>(peer: PeerId, head: &Head<'a>) -> Delivery<'a> {
    Delivery {
        peer,
        priority: head.priority,
        flow: head.flow,
        message: head.message,
        port: head.port,
        args: head.args,
        total: head.total,
        offset: 0,
        payload: head.payload,
        last: head.payload.len() as u64 == head.total,
        cookie: 0,
    }
}

#[inline]
pub(super) fn further_part<'a>(peer: PeerId, body: &Body<'a>, piece: &Piece) -> Delivery<'a> {
    let start = u64::from(body.fragment) * Body::UNIT;
    let (from, to) = (piece.from - start, piece.to - start);
    Delivery {
        peer,
        priority: body.priority,
        flow: body.flow,
        message: body.message,
        port: piece.port,
        args: &[],
        total: piece.total,
        offset: piece.from,
        payload: &body.payload[from as usize..to as usize],
        last: piece.last,
        cookie: piece.cookie,
    }
}

impl<'p> Rx<'p> {
    /// Contents of an opened packet, with the chunks in it.
    #[inline]
    pub(super) fn of_packet(
        now: u64,
        heard: Heard,
        (conn, path, number): (ConnIndex, PathIndex, u64),
        ack_wanted: bool,
        chunks: &'p [u8],
        spare: &'p mut Spare,
    ) -> Self {
        Self {
            now,
            heard: Some(heard),
            conn,
            peer: heard.peer,
            path,
            number,
            ack_wanted,
            eliciting: false,
            bytes: HEADER_BYTES + chunks.len() + TAG_BYTES,
            chunks: Chunks::new(chunks),
            next: u32::MAX,
            part: Part::Nothing,
            spare,
        }
    }

    /// A packet whose one message was handed out: `head` if it awaits its answer, none if it was
    /// taken.
    pub(super) fn of_one(
        now: u64,
        heard: Heard,
        place: (ConnIndex, PathIndex, u64),
        ack_wanted: bool,
        head: Option<Head<'p>>,
        spare: &'p mut Spare,
    ) -> Self {
        Self {
            eliciting: true,
            part: head.map_or(Part::Nothing, Part::Head),
            ..Self::of_packet(now, heard, place, ack_wanted, &[], spare)
        }
    }

    /// Chunks that are held.
    pub(super) const fn of_held(now: u64, spare: &'p mut Spare) -> Self {
        Self {
            now,
            heard: None,
            conn: ConnIndex::NONE,
            peer: PeerId::NONE,
            path: PathIndex::NONE,
            number: 0,
            ack_wanted: false,
            eliciting: false,
            bytes: 0,
            chunks: Chunks::new(&[]),
            next: 0,
            part: Part::Nothing,
            spare,
        }
    }

    /// Sender of the packet; `None` if there is no packet.
    #[inline]
    #[must_use]
    pub const fn heard(&self) -> Option<Heard> {
        self.heard
    }

    /// Returns the next part of a message. One with `offset` 0 and no
    /// [cookie](Delivery::cookie) is the first of its message: an
    /// [answer](Rx::answer) to it is due before the next (P2.21).
    ///
    /// The endpoint may be used to send, and [`Endpoint::poll_event`] for
    /// events before this part.
    #[inline]
    pub fn next<S: Seal>(&mut self, proto: &mut Endpoint<'_, S>) -> Option<Delivery<'_>> {
        match self.find(proto)? {
            Found::Head(head) => Some(first_part(self.peer, &head)),
            Found::Body(body, piece) => Some(further_part(self.peer, &body, &piece)),
            Found::Held(piece) => match self.spare.chunk()? {
                Chunk::Head(head) => Some(first_part(self.peer, &head)),
                Chunk::Body(body) => Some(further_part(self.peer, &body, &piece)),
                _ => None,
            },
        }
    }

    /// Whether the connection is still that of the peer.
    #[inline]
    fn is_on<S: Seal>(&self, proto: &Endpoint<'_, S>) -> bool {
        let conn = proto.conns.get(self.conn.index());
        conn.is_some_and(|c| c.busy && c.peer == self.peer)
    }

    #[inline]
    fn find<S: Seal>(&mut self, proto: &mut Endpoint<'_, S>) -> Option<Found<'p>> {
        loop {
            if !self.is_on(proto) {
                // All is done, or the peer was given up meanwhile.
                if !self.go_on(proto) {
                    return None;
                }
            }
            let conn = self.conn;
            match core::mem::replace(&mut self.part, Part::Nothing) {
                Part::Nothing => {}
                Part::Body(body, mut at) => match place(proto, conn, &body, &mut at) {
                    Ok(Some(piece)) => {
                        self.part = Part::Body(body, at);
                        return Some(Found::Body(body, piece));
                    }
                    Ok(None) => proto.placed(conn, &body, &at),
                    Err(took) => {
                        if self.took(proto, took) {
                            return None;
                        }
                    }
                },
                Part::NoRoom(priority) => {
                    self.took(proto, ChunkOutcome::NoRoom(priority));
                    return None;
                }
                Part::HeldBody(frame, at) => {
                    if let Some(found) = self.go_on_with_held(proto, frame, at) {
                        return Some(found);
                    }
                    continue;
                }
                head @ (Part::Head(_) | Part::HeldHead(_)) => {
                    self.part = head;
                    self.answer(proto, Verdict::NotNow);
                    continue;
                }
            }
            if let Some((priority, flow)) = proto.conns[conn].inbound.resumable() {
                if let Some(found) = self.find_held(proto, priority, flow) {
                    return Some(found);
                }
                continue;
            }
            if self.path.is_none() {
                self.leave(proto);
                continue;
            }
            let Some(chunk) = self.chunks.next() else {
                self.settle(proto, true);
                return None;
            };
            self.eliciting = true;
            let took = match chunk {
                Ok(Chunk::Head(head)) => {
                    proto.conns[conn].inbound.last_data_at = self.now.max(1);
                    match proto.meet_head(conn, &head) {
                        Meet::Offer => {
                            self.part = Part::Head(head);
                            return Some(Found::Head(head));
                        }
                        Meet::Place(body, at) => {
                            self.part = Part::Body(body, at);
                            continue;
                        }
                        Meet::Hold => proto.hold(conn, Chunk::Head(head)),
                        Meet::Took(took) => took,
                    }
                }
                Ok(Chunk::Body(body)) => {
                    proto.conns[conn].inbound.last_data_at = self.now.max(1);
                    match proto.meet_body(conn, &body) {
                        Ok(at) => {
                            self.part = Part::Body(body, at);
                            continue;
                        }
                        Err(took) => took,
                    }
                }
                Ok(chunk) => proto.handle_control(self.now, self.path, self.bytes, &chunk),
                Err(_) => ChunkOutcome::Bad,
            };
            if self.took(proto, took) {
                return None;
            }
        }
    }

    /// Applies the outcome of a chunk of the packet; returns whether reading
    /// ends: a malformed chunk is the last that is read, and a packet of which
    /// a chunk found no room counts as lost (P2.25, P6.11).
    #[inline]
    fn took<S: Seal>(&mut self, proto: &mut Endpoint<'_, S>, took: ChunkOutcome) -> bool {
        match took {
            ChunkOutcome::Yes => false,
            ChunkOutcome::Bad => {
                proto.core.counters.drops.malformed += 1;
                self.settle(proto, true);
                true
            }
            ChunkOutcome::NoRoom(priority) => {
                proto.core.counters.drops.no_room += 1;
                proto.note_full(self.conn, priority);
                self.settle(proto, false);
                true
            }
        }
    }

    /// Ends the reading of a packet: counts it, and schedules its acknowledgement.
    #[inline]
    fn settle<S: Seal>(&mut self, proto: &mut Endpoint<'_, S>, taken: bool) {
        let contents = match (taken, self.eliciting) {
            (false, _) => Contents::Refused,
            (true, false) => Contents::Empty,
            (true, true) => Contents::Taken,
        };
        let place = (self.conn, self.path, self.number);
        proto.count_packet(self.now, place, contents, self.ack_wanted);
        self.leave(proto);
    }

    /// Ends the work on the connection.
    #[inline]
    fn leave<S: Seal>(&mut self, proto: &mut Endpoint<'_, S>) {
        proto.conns[self.conn].busy = false;
        self.conn = ConnIndex::NONE;
    }

    /// Goes on to the next connection with resumable flows; returns false if
    /// there is none, as always for a packet.
    #[cold]
    fn go_on<S: Seal>(&mut self, proto: &mut Endpoint<'_, S>) -> bool {
        self.part = Part::Nothing;
        while self.next < proto.core.places.conns_used {
            self.conn = ConnIndex::new(self.next as usize);
            self.next += 1;
            if let Some(peer) = proto.begin_resume(self.now, self.conn) {
                self.peer = peer;
                return true;
            }
        }
        self.conn = ConnIndex::NONE;
        false
    }

    /// The next held chunk whose turn has come.
    #[cold]
    fn find_held<S: Seal>(
        &mut self,
        proto: &mut Endpoint<'_, S>,
        priority: Priority,
        flow: u16,
    ) -> Option<Found<'p>> {
        match proto.next_held(self.conn, priority, flow, self.spare) {
            None => {
                proto.conns[self.conn].inbound.pause(priority, flow);
                None
            }
            Some((frame, None)) => {
                self.part = Part::HeldHead(frame);
                Some(Found::Held(Piece::FIRST))
            }
            Some((frame, Some(at))) => self.go_on_with_held(proto, frame, at),
        }
    }

    #[cold]
    fn go_on_with_held<S: Seal>(
        &mut self,
        proto: &mut Endpoint<'_, S>,
        frame: FrameIndex,
        mut at: Placing,
    ) -> Option<Found<'p>> {
        let Some(Chunk::Body(body)) = self.spare.chunk() else {
            return None;
        };
        match place(proto, self.conn, &body, &mut at) {
            Ok(Some(piece)) => {
                self.part = Part::HeldBody(frame, at);
                return Some(Found::Held(piece));
            }
            Ok(None) => {
                if drop_held(proto, self.conn, body.priority, body.flow, frame) {
                    proto.placed(self.conn, &body, &at);
                }
            }
            Err(ChunkOutcome::NoRoom(_)) => {
                (proto.conns[self.conn].inbound).pause(body.priority, body.flow);
            }
            Err(_) => _ = drop_held(proto, self.conn, body.priority, body.flow, frame),
        }
        None
    }

    /// Answers the first part of a message. Call before the next part is asked
    /// for; otherwise the answer is [`Verdict::NotNow`]. Other parts need no
    /// answer, and one to them does nothing.
    #[inline]
    pub fn answer<S: Seal>(&mut self, proto: &mut Endpoint<'_, S>, verdict: Verdict) {
        match self.part {
            Part::Head(head) => {
                self.part = Part::Nothing;
                if !self.is_on(proto) {
                    return;
                }
                if proto.answered(self.conn, &head, verdict) {
                    proto.note_taken(self.conn, head.priority, head.flow);
                    proto.advance(self.conn, head.priority, head.flow);
                } else if let ChunkOutcome::NoRoom(priority) =
                    proto.hold(self.conn, Chunk::Head(head))
                {
                    self.part = Part::NoRoom(priority);
                }
            }
            Part::HeldHead(frame) => self.answer_held(proto, frame, verdict),
            _ => {}
        }
    }

    #[cold]
    fn answer_held<S: Seal>(
        &mut self,
        proto: &mut Endpoint<'_, S>,
        frame: FrameIndex,
        verdict: Verdict,
    ) {
        self.part = Part::Nothing;
        let conn = self.conn;
        let Some(Chunk::Head(head)) = self.spare.chunk().filter(|_| self.is_on(proto)) else {
            return;
        };
        if !proto.answered(conn, &head, verdict) {
            (proto.conns[conn].inbound).pause(head.priority, head.flow);
        } else if drop_held(proto, conn, head.priority, head.flow, frame) {
            proto.note_taken(conn, head.priority, head.flow);
        }
    }
}

/// Returns the next new range of a part of the active message.
#[inline]
fn place<S: Seal>(
    proto: &mut Endpoint<'_, S>,
    conn: ConnIndex,
    body: &Body<'_>,
    at: &mut Placing,
) -> Result<Option<Piece>, ChunkOutcome> {
    let inbound = &mut proto.conns[conn].inbound;
    inbound.place(body, at, &mut proto.core.counters)
}

/// Frees a held chunk. Returns false if it is no longer there.
fn drop_held<S: Seal>(
    proto: &mut Endpoint<'_, S>,
    conn: ConnIndex,
    priority: Priority,
    flow: u16,
    frame: FrameIndex,
) -> bool {
    let inbound = &mut proto.conns[conn].inbound;
    inbound.drop_held(&mut proto.memory, priority, flow, frame)
}
