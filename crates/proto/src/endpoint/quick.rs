//! Quick ways for one small message: they end in the state in which the usual ways end, and are
//! taken only while nothing about the connection or the endpoint is unusual.

use portolan_seal::{Seal, Tag};
use portolan_wire::{
    ACK_BYTES, ARGS_MAX, Ack, Body, Flags, HEADER_BYTES, Head, Header, MessageNo, PacketType,
    TAG_BYTES,
};

use crate::base::{
    ConnIndex, Delivery, FrameIndex, Heard, Message, NetAddress, PeerId, Transmit, Verdict,
};
use crate::endpoint::acknowledge::{ack_of, delay_of};
use crate::endpoint::rx::{first_part, further_part};
use crate::endpoint::transmit::{Place, chunk_bytes, seal_frame, write_message};
use crate::endpoint::{Endpoint, Rx};
use crate::inbound::Spare;
use crate::keys::{nonce, rx_slot};
use crate::memory::{Need, Use};
use crate::received::Owed;
use crate::sent::Left;
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
        let mut e = self.reborrow();
        let conn = e.clear_way(now, peer, m)?;
        let path = conn.first_path();
        let (hold, phase_limit) = (e.hold_limit(), e.phase_limit());
        let has_news = e.paths[path].received.has_news();
        if has_news && e.core.senders.is_due(now) {
            e.reborrow().count_senders(now);
        }
        let Endpoint {
            core,
            peers,
            conns,
            paths,
            memory,
            seal,
            ..
        } = &mut e;
        let (c, p) = (&mut conns[conn], &mut paths[path]);
        let frame = (c.outbound).bypass_queue(memory, conn, m.priority, m.flow)?;
        let message = c.outbound.number(m.priority, m.flow);
        write_message(memory, frame, m, message);
        memory.pool.refused_above = u32::MAX;
        c.silence.used(now);
        c.silence.wait(now);
        c.paths.count();
        c.outbound.asked();
        let runs = p.sent.count_one(now);
        let number = p.sent.next;
        p.sent.take_number(number);
        let mut ack_len = 0;
        if has_news {
            let ack = ack_of(core, now, &c.inbound, p, hold);
            let room = memory.chunk_room(p.sent.mtu.current());
            if chunk_bytes(m) + ack.bytes() <= room {
                ack_len = memory.write_ack(frame, &ack);
                p.received.acknowledged();
                c.inbound.advertised = ack.credit;
            }
        }
        let place = Place {
            conn,
            path,
            id: 0,
            number,
        };
        let flags = Flags::ACK_WANTED;
        seal_frame(*seal, memory, &mut c.kept, place, flags, frame, ack_len);
        let (start, len) = (memory.packet_at(frame), memory.packet_bytes(frame));
        memory.cargo[frame].usage = Use::Flying;
        memory.flights[frame].sent_at = now;
        p.sent.left(now, number, frame, len as u32);
        let (to, network) = {
            let peer = &peers[peer];
            (peer.to, peer.bits.network())
        };
        core.counters.messages_sent += 1;
        core.counters.packets_sent += 1;
        core.counters.data_packets_sent += 1;
        core.counters.bytes_sent += len as u64;
        if !runs {
            let slack = core.config.probe_slack_ns;
            let answer_after = |backoff| p.sent.answer_after(slack, backoff);
            let probes = &p.sent.probes;
            let at = probes.at(0, &core.config, false, answer_after, || false);
            core.arm(at.max(now));
        }
        c.unusual = c.kept.keys.unusual(phase_limit);
        let waits = c.deferred_ack.is_some();
        let is_done =
            c.unusual.is_nothing() && (!waits || p.sent.is_open(0)) && now < p.sent.mtu.due();
        if c.listed == Listed::Deferred {
            core.queues.deferred.remove(conns, conn);
        }
        if !is_done {
            e.reborrow().go_on(now, conn);
        } else if waits || p.received.owed() == Owed::Delayed {
            conns[conn].listed = Listed::Deferred;
            core.queues.deferred.push_back(conns, conn);
        } else {
            conns[conn].listed = Listed::None;
            core.arm(p.sent.mtu.due());
        }
        let t = Transmit {
            to,
            peer,
            path: 0,
            network,
            frame,
            start,
            len,
            ecn: true,
            connect: false,
        };
        Some((message, t))
    }

    /// Ends the turn of a connection, which is in no list, that may have more to send.
    #[cold]
    fn go_on(&mut self, now: u64, conn: ConnIndex) {
        if !self.conns[conn].unusual.is_nothing() {
            self.conns[conn].unusual = self.find_unusual(conn);
        }
        if self.has_nothing(now, conn, false) {
            self.end_turn(conn);
        } else {
            self.conns[conn].listed = Listed::Ready;
            self.core.queues.burst = 1;
            self.core.queues.ready.push_back(self.conns, conn);
        }
    }

    /// The link has taken the frame of a message that left at once, or failed to.
    #[inline]
    pub fn sent_one(&mut self, frame: FrameIndex) {
        self.memory.flights[frame].in_link = false;
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
            && sent.has_slot()
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
    /// The next message of its flow, whole, or the next part of one that was begun.
    /// [`Endpoint::answer_one`] is due.
    One(One<'p>),
    /// Anything else; its acknowledgement was taken.
    Rest(Rx<'p>),
}

/// The one chunk of a packet: a message, or a further part of one.
#[derive(Debug)]
pub struct One<'p> {
    now: u64,
    heard: Heard,
    conn: ConnIndex,
    number: u64,
    ack_wanted: bool,
    /// Acknowledgement, which is read once the message was answered.
    ack: Option<&'p [u8; ACK_BYTES]>,
    /// A whole message awaits its answer; further parts are taken.
    is_whole: bool,
    delivery: Delivery<'p>,
    spare: &'p mut Spare,
}

impl<'p> One<'p> {
    /// The message, which is its own first and last part, or the further part.
    #[inline]
    #[must_use]
    pub const fn delivery(&self) -> &Delivery<'p> {
        &self.delivery
    }

    /// The head of a whole message.
    #[inline]
    const fn head(&self) -> Head<'p> {
        let d = &self.delivery;
        Head {
            priority: d.priority,
            flow: d.flow,
            message: d.message,
            port: d.port,
            total: d.total,
            args: d.args,
            payload: d.payload,
        }
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
        let mut e = self.reborrow();
        let Foreseen {
            header,
            conn,
            number,
        } = it;
        let length = packet.len();
        let path = conn.first_path();
        let c = &mut e.conns[conn];
        let slot = rx_slot(conn, c.kept.keys.receiving);
        let (clear, rest) = packet.split_at_mut(HEADER_BYTES);
        let (body, tag) = rest.split_at_mut(length - HEADER_BYTES - TAG_BYTES);
        let tag: &Tag = (&*tag).try_into().expect("the length was checked");
        let opened = e.seal.open(slot, nonce(0, number), clear, body, tag);
        if opened.is_err() {
            e.core.counters.drops.bad_tag += 1;
            return Taken::Nothing;
        }
        e.core.counters.packets_received += 1;
        e.core.counters.bytes_received += length as u64;
        c.silence.heard(now);
        c.silence.used(now);
        c.paths.heard(path);
        c.busy = true;
        let heard = Heard {
            peer: c.peer,
            path: 0,
            detour: false,
        };
        let mut ack_len = 0;
        if header.flags.has(Flags::HAS_ACK) {
            let Ok(length) = Ack::length(body) else {
                e.core.counters.drops.malformed += 1;
                e.conns[conn].busy = false;
                return Taken::Nothing;
            };
            ack_len = length;
            if e.conns[conn].deferred_ack.is_some() {
                e.reborrow().settle_deferred_ack(conn);
            }
        }
        let (ack, chunks) = body.split_at(ack_len);
        let ack_wanted = header.flags.has(Flags::ACK_WANTED);
        let c = &mut e.conns[conn];
        let may_wait = ack_len == 0 || ack_len == ACK_BYTES && !c.outbound.has_queue();
        let flows = e.core.config.flows;
        let found = if !may_wait || !c.unusual.is_nothing() {
            None
        } else if let Some(head) = Head::whole(chunks) {
            let is_next = head.flow < flows && c.inbound.expects(&head);
            is_next.then(|| (true, first_part(heard.peer, &head)))
        } else {
            let body = Body::alone(chunks).filter(|body| body.flow < flows);
            body.and_then(|body| {
                let piece = c.inbound.take_next(&body, &mut e.core.counters)?;
                Some((false, further_part(heard.peer, &body, &piece)))
            })
        };
        if let Some((is_whole, delivery)) = found {
            c.inbound.last_data_at = now.max(1);
            return Taken::One(One {
                now,
                heard,
                conn,
                number,
                ack_wanted,
                ack: ack.first_chunk(),
                is_whole,
                delivery,
                spare,
            });
        }
        if let Ok((ack, _)) = Ack::parse(ack) {
            let mut e = e.reborrow();
            e.take_ack(now, conn, &ack);
            e.go_on_after_refusals(conn);
        }
        let place = (conn, path, number);
        Taken::Rest(Rx::of_packet(now, heard, place, ack_wanted, chunks, spare))
    }

    /// Answers the message of a packet; what a further part is answered does nothing. The packet
    /// then counts, unless there is more to do.
    #[inline]
    pub fn answer_one<'p>(&mut self, it: One<'p>, verdict: Verdict) -> Option<Rx<'p>> {
        let mut e = self.reborrow();
        let (now, conn, is_whole) = (it.now, it.conn, it.is_whole);
        let (priority, flow) = (it.delivery.priority, it.delivery.flow);
        let limit = e.hold_limit();
        let counters = &mut e.core.counters;
        let c = &mut e.conns[conn];
        let is_on = c.busy && c.peer == it.heard.peer;
        if !is_on || is_whole && !matches!(verdict, Verdict::Take(_)) {
            let mut e = e.reborrow();
            let head = is_whole.then(|| it.head());
            let mut rx = e.leave_quick_way(it, is_on, head);
            rx.answer(&mut e, verdict);
            return Some(rx);
        }
        if is_whole {
            c.inbound.answered(&it.head(), verdict, counters);
        }
        let has_news = c.inbound.note_taken(limit, priority, flow, counters);
        c.inbound.advance(priority, flow);
        if has_news {
            e.reborrow().owe_news(conn);
        }
        let (c, p) = (&mut e.conns[conn], &mut e.paths[conn.first_path()]);
        if c.inbound.resumable().is_some() {
            return Some(e.reborrow().leave_quick_way(it, true, None));
        }
        debug_assert!(p.received.is_whole() && p.received.next == it.number);
        c.busy = false;
        match p.received.note_next(now, it.ack_wanted) {
            Owed::Nothing => {}
            Owed::Delayed if c.listed == Listed::Deferred => {}
            Owed::Delayed if c.listed == Listed::None && !c.outbound.has_queue() => {
                c.listed = Listed::Deferred;
                e.core.queues.deferred.push_back(e.conns, conn);
            }
            owed => e.reborrow().schedule_ack(conn, owed),
        }
        if let Some(ack) = it.ack.map(Ack::without_bitmap)
            && !e.settle_one(now, conn, &ack)
        {
            e.reborrow().defer_ack(now, conn, &ack);
        }
        None
    }

    /// What is left of a packet for the usual way: its message, unless that was taken, and what
    /// stands behind it. `is_on`: the connection is still the peer's.
    #[cold]
    fn leave_quick_way<'p>(&mut self, it: One<'p>, is_on: bool, head: Option<Head<'p>>) -> Rx<'p> {
        let place = (it.conn, it.conn.first_path(), it.number);
        if let Some(ack) = it.ack.map(Ack::without_bitmap).filter(|_| is_on) {
            self.defer_ack(it.now, it.conn, &ack);
        }
        Rx::of_one(it.now, it.heard, place, it.ack_wanted, head, it.spare)
    }

    /// Reads an acknowledgement that names nothing that is missing, and settles one plain frame at
    /// most. Returns false if it says anything else: nothing was done.
    #[inline(always)]
    fn settle_one(&mut self, now: u64, conn: ConnIndex, ack: &Ack) -> bool {
        let path = conn.first_path();
        let c = &mut self.conns[conn];
        let p = &mut self.paths[path];
        if ack.path != 0 || ack.words != 0 || c.outbound.has_queue() || !c.unusual.is_nothing() {
            return false;
        }
        let Some((largest, found)) = p.sent.settles_one(ack) else {
            return false;
        };
        let mut packet = None;
        if let Some((number, frame)) = found {
            let flight = &self.memory.flights[frame];
            if flight.again || !self.memory.cargo[frame].is_plain() {
                return false;
            }
            packet = Some(Left {
                number,
                bytes: self.memory.packet_bytes(frame),
                at: flight.sent_at,
            });
            c.outbound.settled(&mut self.memory, frame);
        }
        p.sent.settle_one(now, ack, largest, packet);
        c.outbound.grant(ack.credit);
        let search_at = p.sent.mtu.due();
        let is_deferred = c.listed == Listed::Deferred;
        if let Some(it) = packet {
            let rtt = (it.number == largest).then_some(now.saturating_sub(it.at));
            let delay = delay_of(self.core, now, ack);
            let came = p.received.take_came();
            p.sent.adapt_one(now, rtt, delay, came);
            p.sent.probes.restart(now);
            if p.sent.flying == 0 {
                c.silence.wait_no_more();
            } else {
                c.silence.wait_anew(now);
                self.reborrow().arm_probe(now, path);
            }
        }
        self.core.arm(search_at);
        if !is_deferred {
            self.reborrow().after_read(now, conn);
        }
        true
    }
}
