//! Quick ways for one small message: they end in the state in which the usual ways end, and are
//! taken only while nothing about the connection or the endpoint is unusual.

use portolan_seal::{Seal, Tag};
use portolan_wire::{
    ARGS_MAX, Ack, Flags, HEADER_BYTES, Head, Header, MessageNo, PacketType, TAG_BYTES,
};

use crate::base::{ConnIndex, Delivery, Heard, Message, NetAddress, PeerId, Transmit, Verdict};
use crate::congestion::AckSample;
use crate::endpoint::rx::first_part;
use crate::endpoint::transmit::chunk_bytes;
use crate::endpoint::{Endpoint, Rx};
use crate::inbound::Spare;
use crate::keys::{nonce, rx_slot};
use crate::memory::Need;
use crate::received::Contents;
use crate::tables::{Listed, PeerState};

impl<S: Seal> Endpoint<'_, S> {
    /// Seals a message that fits one packet as the next packet to send, as
    /// [`send`](Endpoint::send) and one [`poll_transmit`](Endpoint::poll_transmit) would. `None`:
    /// something is in its way, and nothing was done.
    #[inline]
    pub fn send_one(
        &mut self,
        now: u64,
        peer: PeerId,
        m: &Message<'_>,
    ) -> Option<(MessageNo, Transmit)> {
        let conn = self.clear_way(now, peer, m)?;
        let outbound = &mut self.conns[conn].outbound;
        let frame = outbound.bypass_queue(&mut self.memory, conn, m.priority, m.flow)?;
        let message = self.add_message(conn, frame, m);
        let c = &mut self.conns[conn];
        c.silence.used(now);
        if c.listed == Listed::Deferred {
            self.core.queues.deferred.remove(self.conns, conn);
        }
        // In no list, so that nothing below enters it.
        self.conns[conn].listed = Listed::Ready;
        self.memory.pool.refused_above = u32::MAX;
        let t = self.depart_data(now, conn.first_path(), frame);
        if !self.conns[conn].unusual.is_nothing() {
            self.conns[conn].unusual = self.find_unusual(conn);
        }
        if self.has_nothing(now, conn, false) {
            self.end_turn(conn);
        } else {
            self.core.queues.burst = 1;
            self.core.queues.ready.push_back(self.conns, conn);
        }
        Some((message, t))
    }

    /// The connection by which a message may leave at once.
    #[inline]
    fn clear_way(&self, now: u64, peer: PeerId, m: &Message<'_>) -> Option<ConnIndex> {
        let core = &*self.core;
        let p = self.peers.get(peer.index())?;
        if p.state != PeerState::Up
            || m.flow >= core.config.flows
            || m.args.len() > ARGS_MAX
            || core.closing
            || core.is_unusual()
        {
            return None;
        }
        let conn = p.conn;
        let c = self.conns.get(conn.index())?;
        let sent = &self.paths[conn.first_path()].sent;
        let is_clear = c.unusual.is_nothing()
            && !c.outbound.has_queue()
            && c.outbound
                .takes(m.priority, m.flow, core.config.queue_frames)
            && c.outbound.kept.has_credit(m.priority.index())
            && self.memory.pool.may_take(Need::message(m.priority))
            && chunk_bytes(m) <= self.memory.chunk_room(sent.mtu.current())
            && sent.is_open(0)
            && sent.ready_at(now) <= now;
        is_clear.then_some(conn)
    }
}

/// A packet that is as was to be expected: [`Endpoint::foresee`].
#[derive(Clone, Copy, Debug)]
pub struct Foreseen {
    header: Header,
    conn: ConnIndex,
    number: u64,
}

/// What came of such a packet.
#[derive(Debug)]
pub enum Taken<'p> {
    /// Nothing: it was dropped.
    Nothing,
    /// One whole message, the next of its flow. [`Endpoint::answer_one`] is due.
    One(One<'p>),
    /// Anything else; its acknowledgement was taken.
    Rest(Rx<'p>),
}

/// The one message of a packet.
#[derive(Debug)]
pub struct One<'p> {
    now: u64,
    heard: Heard,
    conn: ConnIndex,
    number: u64,
    ack_wanted: bool,
    /// Acknowledgement that is read once the message was answered.
    ack: Option<Ack>,
    head: Head<'p>,
    spare: &'p mut Spare,
}

impl<'p> One<'p> {
    /// The message, which is its own first and last part.
    #[inline]
    #[must_use]
    pub fn delivery(&self) -> Delivery<'p> {
        first_part(self.heard.peer, &self.head)
    }
}

impl<S: Seal> Endpoint<'_, S> {
    /// Whether a packet is the next of a connection about which nothing is unusual, as far as its
    /// header tells: header prediction, as Van Jacobson had it for TCP. It came by no detour. Changes
    /// nothing.
    #[inline]
    #[must_use]
    pub fn foresee(&self, from: NetAddress, ce: bool, packet: &[u8]) -> Option<Foreseen> {
        let header = Header::parse(packet).ok()?;
        let peer = self.peer_numbered(header.connection)?;
        let p = &self.peers[peer];
        let conn = p.conn;
        let c = self.conns.get(conn.index())?;
        let path = &self.paths[conn.first_path()];
        let received = &path.received;
        let phase = c.kept.keys.receiving;
        let usual = Flags::NONE
            .with(Flags::ACK_WANTED, header.flags.has(Flags::ACK_WANTED))
            .with(Flags::HAS_ACK, header.flags.has(Flags::HAS_ACK))
            .with(Flags::KEY_PHASE, phase & 1 == 1);
        let is_foreseen = p.state == PeerState::Up
            && header.kind == PacketType::Data
            && header.path == 0
            && header.flags == usual
            && header.number == received.next as u32
            && received.is_whole()
            && packet.len() >= HEADER_BYTES + TAG_BYTES
            && !ce
            && from == p.to
            && c.unusual.is_nothing()
            && c.handshake.is_proven()
            && c.paths.is_straight()
            && path.phases.is_noted()
            && !c.busy
            && c.inbound.resumable().is_none();
        is_foreseen.then_some(Foreseen {
            header,
            conn,
            number: received.next,
        })
    }

    /// Takes a packet that was [foreseen](Endpoint::foresee), as
    /// [`handle_packet`](Endpoint::handle_packet) and [`Rx::next`] would.
    #[inline]
    pub fn take_foreseen<'p>(
        &mut self,
        now: u64,
        it: Foreseen,
        packet: &'p mut [u8],
        spare: &'p mut Spare,
    ) -> Taken<'p> {
        let Foreseen {
            header,
            conn,
            number,
        } = it;
        let length = packet.len();
        let path = conn.first_path();
        let c = &mut self.conns[conn];
        let slot = rx_slot(conn, c.kept.keys.receiving);
        let (clear, rest) = packet.split_at_mut(HEADER_BYTES);
        let (body, tag) = rest.split_at_mut(length - HEADER_BYTES - TAG_BYTES);
        let tag: &Tag = (&*tag).try_into().expect("the length was checked");
        let opened = self.seal.open(slot, nonce(0, number), clear, body, tag);
        if opened.is_err() {
            self.core.counters.drops.bad_tag += 1;
            return Taken::Nothing;
        }
        self.core.counters.packets_received += 1;
        self.core.counters.bytes_received += length as u64;
        c.silence.heard(now);
        c.silence.used(now);
        c.paths.heard(path);
        c.busy = true;
        let heard = Heard {
            peer: c.peer,
            path: 0,
            detour: false,
        };
        let (mut ack, mut at) = (None, 0);
        if header.flags.has(Flags::HAS_ACK) {
            let Ok((it, bytes)) = Ack::parse(body) else {
                self.core.counters.drops.malformed += 1;
                self.conns[conn].busy = false;
                return Taken::Nothing;
            };
            (ack, at) = (Some(it), bytes);
            self.settle_deferred_ack(conn);
        }
        let chunks = &body[at..];
        let ack_wanted = header.flags.has(Flags::ACK_WANTED);
        let c = &mut self.conns[conn];
        let may_wait = ack.is_none_or(|ack| ack.words == 0 && !c.outbound.has_queue());
        if let Some(head) = Head::whole(chunks)
            && head.flow < self.core.config.flows
            && c.inbound.expects(&head)
            && may_wait
            && c.unusual.is_nothing()
        {
            c.inbound.last_data_at = now.max(1);
            return Taken::One(One {
                now,
                heard,
                conn,
                number,
                ack_wanted,
                ack,
                head,
                spare,
            });
        }
        if let Some(ack) = ack {
            self.take_ack(now, conn, &ack);
            self.go_on_after_refusals(conn);
        }
        let place = (conn, path, number);
        Taken::Rest(Rx::of_packet(now, heard, place, ack_wanted, chunks, spare))
    }

    /// Answers the message of a packet. The packet then counts, unless there is more to do.
    #[inline]
    pub fn answer_one<'p>(&mut self, it: One<'p>, verdict: Verdict) -> Option<Rx<'p>> {
        let One {
            now, conn, head, ..
        } = it;
        let c = &self.conns[conn];
        let is_on = c.busy && c.peer == it.heard.peer;
        if !is_on || !matches!(verdict, Verdict::Take(_)) {
            let mut rx = self.leave_quick_way(it, is_on, Some(head));
            rx.answer(self, verdict);
            return Some(rx);
        }
        self.answered(conn, &head, verdict);
        self.note_taken(conn, head.priority, head.flow);
        self.advance(conn, head.priority, head.flow);
        if self.conns[conn].inbound.resumable().is_some() {
            return Some(self.leave_quick_way(it, true, None));
        }
        let place = (conn, conn.first_path(), it.number);
        self.count_packet(now, place, Contents::Taken, it.ack_wanted);
        self.conns[conn].busy = false;
        if let Some(ack) = &it.ack
            && !self.settle_one(now, conn, ack)
        {
            self.defer_ack(now, conn, ack);
        }
        None
    }

    /// What is left of a packet for the usual way: its message, unless that was taken, and what
    /// stands behind it. `is_on`: the connection is still the peer's.
    #[cold]
    fn leave_quick_way<'p>(&mut self, it: One<'p>, is_on: bool, head: Option<Head<'p>>) -> Rx<'p> {
        let place = (it.conn, it.conn.first_path(), it.number);
        if let Some(ack) = it.ack.filter(|_| is_on) {
            self.defer_ack(it.now, it.conn, &ack);
        }
        Rx::of_one(it.now, it.heard, place, it.ack_wanted, head, it.spare)
    }

    /// Reads an acknowledgement that names nothing that is missing, and settles one plain frame at
    /// most. Returns false if it says anything else: nothing was done.
    #[inline]
    fn settle_one(&mut self, now: u64, conn: ConnIndex, ack: &Ack) -> bool {
        let path = conn.first_path();
        let c = &mut self.conns[conn];
        let sent = &mut self.paths[path].sent;
        if ack.path != 0 || ack.words != 0 || c.outbound.has_queue() || !c.unusual.is_nothing() {
            return false;
        }
        let Some((largest, found)) = sent.settles_one(ack) else {
            return false;
        };
        if let Some((_, frame)) = found
            && (self.memory.flights[frame].again || !self.memory.cargo[frame].is_plain())
        {
            return false;
        }
        sent.read(ack);
        c.outbound.grant(ack.credit);
        let mut sample = AckSample {
            app_limited: true,
            ..AckSample::default()
        };
        if let Some((number, frame)) = found {
            let sent_at = self.memory.flights[frame].sent_at;
            sent.settle_one(now, number, self.memory.packet_bytes(frame), sent_at);
            sample.acked_packets = 1;
            sample.rtt_ns = (number == largest).then_some(now.saturating_sub(sent_at));
            c.outbound.settled(&mut self.memory, frame);
        }
        sent.advance();
        let search_at = sent.mtu.due();
        sent.end_report(largest);
        self.arm(search_at);
        self.adapt(now, path, ack, &mut sample, false, false);
        self.after_read(now, conn);
        true
    }
}
