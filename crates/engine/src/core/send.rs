//! Sending: by which lane, copied or lent, now or later.

use portolan_exchange::{BYTES_MAX, OpId, Source as ExchangeSource};
use portolan_proto as proto;
use portolan_proto::{Release, SourceId};
use portolan_wire::{ARGS_MAX, MessageNo, Priority};

use super::ports::PortState;
use super::{Arrival, ArrivalOutcome, CoreState};
use crate::lanes::Lane;
use crate::matched::{Gather, Matched, Onward, Part, Row};
use crate::outbound::{Outbound, STREAMED_MIN, ShmFailure, ShmOut, why};
use crate::values::{
    Charge, Death, Event, FIRST_FLOW, FLOWS_ALL, FLOWS_MAX, FlowOf, Meta, Misuse, PORTS_RESERVED,
    Payload, PortId, SendError, SendOptions, Source, SpaceId,
};
use crate::waiting::{Entry, Teller, Unsent};

/// Payloads up to this length fit one packet on any lane, bytes.
const SHORT: usize = 256;

impl CoreState {
    /// Sends a copy if there is credit. Here and below a flow is one on the wire, as returned
    /// by [`SpaceId::flow`].
    #[inline]
    pub fn send(
        &mut self,
        out: &mut Outbound<'_>,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        self.admits(port, o.flow)?;
        self.note_begun();
        let number = self.send_any(out, rank, port, o, payload)?;
        self.note_sent(rank, port, o, number, payload.len());
        Ok(number)
    }

    /// Checks whether the program may send to this port and flow.
    #[inline(always)]
    fn admits(&self, port: u16, flow: u16) -> Result<(), SendError> {
        if port >= PORTS_RESERVED {
            return Err(SendError::Misuse(Misuse::ReservedPort));
        }
        if self.is_over(SpaceId::of_flow(flow)) {
            return Err(SendError::Misuse(Misuse::Closed));
        }
        Ok(())
    }

    /// Notes that a message of the program may leave from now on.
    #[inline(always)]
    fn note_begun(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.sends();
        }
    }

    /// Notes that a message of the program was accepted.
    #[inline(always)]
    fn note_sent(
        &mut self,
        to: u32,
        port: u16,
        o: &SendOptions<'_>,
        number: MessageNo,
        bytes: usize,
    ) {
        self.count_sent(o.flow, bytes as u64);
        if let Some(trace) = &mut self.trace {
            trace.sent(to, port, o, number, bytes, !self.run);
        }
    }

    /// Counts a message sent by the program.
    #[inline(always)]
    pub(crate) fn count_sent(&mut self, flow: u16, bytes: u64) {
        self.counters.sent += 1;
        self.counters.bytes_sent += bytes;
        self.count_other(flow, |traffic| {
            traffic.sent += 1;
            traffic.bytes_sent += bytes;
        });
    }

    /// As [`CoreState::send`], to any port and uncounted.
    #[inline]
    pub fn send_any(
        &mut self,
        out: &mut Outbound<'_>,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        if o.flow >= FLOWS_ALL {
            return Err(Misuse::BadFlow.into());
        }
        if o.args.len() > ARGS_MAX {
            return Err(Misuse::TooManyArgs.into());
        }
        match self.lanes.get(rank) {
            Some(Lane::Shm(to)) => match out.shm() {
                Ok(ShmOut { outlet, tx }) if payload.len() <= tx.inline_max(o.args.len()) => {
                    let sent = tx.send(outlet, to, port, o, payload);
                    sent.map_err(|e| self.map_shm(rank, e))
                }
                _ => self.send_copy(out, rank, port, o, payload),
            },
            Some(Lane::Net(peer)) => {
                let m = message(port, o, payload);
                match out.net().and_then(|net| net.send(peer, &m)) {
                    Err(proto::SendError::TooLong) => self.send_copy(out, rank, port, o, payload),
                    sent => sent.map_err(|e| self.map(rank, e)),
                }
            }
            None => Err(Misuse::BadRank.into()),
            // For shared memory and the network, `send_copy` checks this.
            Some(_) if payload.len() as u64 > BYTES_MAX => Err(SendError::TooLong),
            Some(Lane::Myself) => self.send_self(port, o, payload),
            Some(Lane::Unmet(_) | Lane::Meeting(_)) => Err(self.must_meet(rank)),
            Some(Lane::Dead(why)) => Err(SendError::PeerDead { rank, why }),
        }
    }

    /// Asks for memory to be shared with a rank of this host: until that is decided, nothing is
    /// sent.
    #[cold]
    fn must_meet(&mut self, rank: u32) -> SendError {
        if self.lanes.wants_to_meet(rank) {
            self.find(super::Finding::Wanted(rank));
        }
        SendError::NoCredit
    }

    /// Sends a long message from a copy of its bytes.
    fn send_copy(
        &mut self,
        out: &mut Outbound<'_>,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        let bytes = payload.len();
        if bytes as u64 > BYTES_MAX {
            return Err(SendError::TooLong);
        }
        if !self.ops.charge(o.flow_to(rank), bytes) {
            return Err(SendError::NoCredit);
        }
        let Some(copy) = copy_of(payload) else {
            self.ops.uncharge(o.flow_to(rank), bytes);
            return Err(SendError::NoCredit);
        };
        let source = Source::Given(Payload::Vec(copy));
        self.begin(
            out,
            rank,
            port,
            o,
            source,
            Teller::Nobody,
            bytes,
            Release::Copied,
        )
        .map(|(number, _)| number)
        .map_err(|(e, _)| e)
    }

    fn map(&self, rank: u32, e: proto::SendError) -> SendError {
        match e {
            proto::SendError::NoCredit => SendError::NoCredit,
            proto::SendError::PeerDead => {
                let why = self.lanes.dead(rank).unwrap_or(Death::Closed);
                SendError::PeerDead { rank, why }
            }
            proto::SendError::BadFlow => Misuse::BadFlow.into(),
            proto::SendError::TooManyArgs => Misuse::TooManyArgs.into(),
            proto::SendError::TooLong => SendError::TooLong,
            proto::SendError::BadPeer => Misuse::BadRank.into(),
        }
    }

    #[cold]
    fn map_shm(&mut self, rank: u32, e: ShmFailure) -> SendError {
        match e {
            ShmFailure::Full => SendError::NoCredit,
            ShmFailure::TooBig => SendError::TooLong,
            ShmFailure::NoPeer => Misuse::BadRank.into(),
            ShmFailure::Gone(state) => {
                let why = why(state);
                // What the peer still sent is read first; then it is marked dead.
                self.suspect(rank, why);
                SendError::PeerDead { rank, why }
            }
        }
    }

    /// Begins to send a long message; returns the source if that fails.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call site for each kind of send"
    )]
    pub(crate) fn begin(
        &mut self,
        out: &mut Outbound<'_>,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        source: Source,
        teller: Teller,
        charged: usize,
        release: Release,
    ) -> Result<(MessageNo, SourceId), (SendError, Option<Source>)> {
        let total = source.len() as u64;
        let id = self.ops.insert(Entry {
            source,
            to: rank,
            priority: o.priority,
            flow: o.flow,
            number: MessageNo(0),
            teller,
            charged,
            refused: false,
        });
        let sent = match self.lanes.get(rank) {
            Some(Lane::Net(peer)) => {
                let m = message(port, o, &[]);
                let sent = out
                    .net()
                    .and_then(|net| net.send_long(peer, &m, total, id, release));
                sent.map_err(|e| self.map(rank, e))
            }
            Some(Lane::Shm(to)) => {
                let clock = out.clock;
                let sent = match (out.shm(), self.ops.get_mut(id)) {
                    (Ok(ShmOut { outlet, tx }), Some(entry)) => {
                        tx.send_long(outlet, to, port, o, &entry.source, id, clock)
                    }
                    _ => Err(ShmFailure::NoPeer),
                };
                sent.map_err(|e| self.map_shm(rank, e))
            }
            Some(Lane::Unmet(_) | Lane::Meeting(_)) => Err(self.must_meet(rank)),
            Some(Lane::Dead(why)) => Err(SendError::PeerDead { rank, why }),
            Some(Lane::Myself) | None => Err(Misuse::BadRank.into()),
        };
        match sent {
            Ok(number) => {
                if let Some(entry) = self.ops.get_mut(id) {
                    entry.number = number;
                }
                Ok((number, id))
            }
            Err(e) => Err((e, self.ops.remove(id).map(|entry| entry.source))),
        }
    }

    /// Begins to send a message from memory that the operation keeps until it ends: when the
    /// receiver has the whole message or, with [`Release::Copied`], when the memory is no
    /// longer read. A message that is copied at once ends at once.
    ///
    /// # Errors
    /// [`SendError`], with the memory; nothing was queued.
    pub fn post_message(
        &mut self,
        on: &mut Onward<'_>,
        to: (u32, PortId),
        o: &SendOptions<'_>,
        from: Gather,
        release: Release,
    ) -> Result<(OpId, MessageNo), (SendError, Gather)> {
        let (rank, port) = to;
        if let Err(e) = self.may_post(on.matched, port, o, ExchangeSource::len(&from)) {
            return Err((e, from));
        }
        let Some(Part { exchange, .. }) = on.matched.part(port.space) else {
            return Err((Misuse::NoSuchSpace.into(), from));
        };
        self.note_begun();
        let bytes = ExchangeSource::len(&from) as usize;
        let (id, number) = if self.is_inline(&mut on.out, rank, o.args.len(), bytes) {
            let sent = match from.only() {
                Some(payload) => self.send_any(&mut on.out, rank, port.number, o, payload),
                None => {
                    let payload: Vec<u8> = from.slices().flatten().copied().collect();
                    self.send_any(&mut on.out, rank, port.number, o, &payload)
                }
            };
            let number = match sent {
                Ok(number) => number,
                Err(e) => return Err((e, from)),
            };
            let id = exchange.begin_message(rank, o.notify, from);
            exchange.end_message(id, number.0.into(), Ok(()));
            (id, number)
        } else {
            let lent = from.lend(0, bytes);
            let id = exchange.begin_message(rank, o.notify, from);
            let teller = Teller::Message(port.space, id);
            match self.begin(&mut on.out, rank, port.number, o, lent, teller, 0, release) {
                Ok((number, _)) => (id, number),
                Err((e, _)) => {
                    let from = exchange.undo_message(id);
                    return Err((e, from.unwrap_or_else(|| Vec::new().into())));
                }
            }
        };
        self.note_sent(rank, port.number, o, number, bytes);
        Ok((id, number))
    }

    /// Checks whether a message may be posted: queue and counter must exist.
    fn may_post(
        &self,
        matched: &mut Matched,
        port: PortId,
        o: &SendOptions<'_>,
        bytes: u64,
    ) -> Result<(), SendError> {
        self.may_wait(port.number, o, bytes)?;
        Ok(matched.check_notify(port.space, o.notify)?)
    }

    /// Checks whether a message may be accepted that is not sent at once.
    fn may_wait(&self, port: u16, o: &SendOptions<'_>, bytes: u64) -> Result<(), SendError> {
        self.admits(port, o.flow)?;
        if o.args.len() > ARGS_MAX {
            return Err(Misuse::TooManyArgs.into());
        }
        if bytes > BYTES_MAX {
            return Err(SendError::TooLong);
        }
        Ok(())
    }

    /// Whether a payload is copied at once rather than lent.
    #[inline]
    pub fn is_inline(&self, out: &mut Outbound<'_>, rank: u32, args: usize, bytes: usize) -> bool {
        bytes <= SHORT || bytes <= self.inline_max(out, rank, args)
    }

    /// Returns the longest payload that is copied at once, bytes.
    fn inline_max(&self, out: &mut Outbound<'_>, rank: u32, args: usize) -> usize {
        match self.lanes.get(rank) {
            Some(Lane::Net(peer)) => out.net().map_or(0, |net| net.inline_max(peer, args)),
            // Above that it is faster if the receiver copies while we do.
            Some(Lane::Shm(_)) => {
                let max = out.shm().map_or(0, |shm| shm.tx.inline_max(args));
                max.min(STREAMED_MIN)
            }
            _ => usize::MAX,
        }
    }

    /// Sends a message to this rank. It waits for the next pass: its handler never runs within
    /// the send.
    fn send_self(
        &mut self,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<MessageNo, SendError> {
        let number = self.self_number;
        let meta = Meta {
            from: self.rank,
            port,
            flow: o.flow,
            priority: o.priority,
            number,
            direct: true,
        };
        let mut words = [0; 8 * ARGS_MAX];
        for (to, arg) in words.chunks_exact_mut(8).zip(o.args) {
            to.copy_from_slice(&arg.to_le_bytes());
        }
        let a = Arrival {
            meta,
            args: &words[..8 * o.args.len()],
            total: payload.len() as u64,
            payload,
        };
        let charge = match self.ports.get_or_make(meta.port_id()).state {
            PortState::Closed => None,
            PortState::Unbound => Some(Charge::Unexpected),
            PortState::Bound => Some(Charge::Queued),
        };
        let took = charge.map_or(ArrivalOutcome::Refused, |charge| self.keep(&a, charge));
        if took == ArrivalOutcome::NotNow {
            let unbound = charge == Some(Charge::Unexpected);
            let budget = self.budget(meta.space(), Charge::Queued);
            // Would not fit even once the port is bound.
            if unbound && !budget.could_ever(a.total) {
                return Err(SendError::TooLong);
            }
            return Err(SendError::NoCredit);
        }
        self.self_number = number.next();
        if took == ArrivalOutcome::Refused {
            self.refused(self.rank, o.priority, o.flow, number);
        }
        Ok(number)
    }

    /// Sends a message, or keeps it for later if there is no credit.
    pub(crate) fn send_or_keep(
        &mut self,
        out: &mut Outbound<'_>,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<(), SendError> {
        if !self.outbox.has(o.flow_to(rank)) {
            match self.send(out, rank, port, o, payload) {
                Ok(_) => return Ok(()),
                Err(SendError::NoCredit) => {}
                Err(e) => return Err(e),
            }
        }
        self.may_wait(port, o, payload.len() as u64)?;
        let unsent = Unsent {
            rank,
            port,
            flow: o.flow,
            priority: o.priority,
            args: o.args.to_vec(),
            payload: copy_of(payload).ok_or(SendError::NoCredit)?,
        };
        self.note_work();
        self.outbox.push(unsent).map_err(|_| SendError::NoCredit)
    }

    /// Sends kept messages, as far as there is credit; returns their number.
    pub(crate) fn run_outbox(&mut self, out: &mut Outbound<'_>) -> usize {
        let mut blocked: Vec<FlowOf> = Vec::new();
        let mut sent = 0;
        for mut it in self.outbox.take() {
            if blocked.contains(&it.flow_of()) {
                self.outbox.force(it);
                continue;
            }
            let bytes = it.payload.len();
            self.note_begun();
            match self.send_kept(out, &mut it) {
                Err(SendError::NoCredit) => {
                    blocked.push(it.flow_of());
                    self.outbox.force(it);
                }
                Ok(number) => {
                    if it.port < PORTS_RESERVED {
                        self.note_sent(it.rank, it.port, &it.options(), number, bytes);
                    }
                    sent += 1;
                }
                // Nothing is owed to a dead peer.
                Err(_) => sent += 1,
            }
        }
        if sent > 0 {
            self.note_freed();
        }
        sent
    }

    /// Sends a kept message. A long one is not copied again: its charge moves from the outbox
    /// to the memory for copies, even beyond the limit, since others may wait until the outbox
    /// is empty.
    fn send_kept(
        &mut self,
        out: &mut Outbound<'_>,
        it: &mut Unsent,
    ) -> Result<MessageNo, SendError> {
        let (rank, port, bytes) = (it.rank, it.port, it.payload.len());
        if self.is_inline(out, rank, it.args.len(), bytes) {
            return self.send_any(out, rank, port, &it.options(), &it.payload);
        }
        self.ops.charge_beyond(it.flow_of(), bytes);
        let source = Source::Given(Payload::Vec(std::mem::take(&mut it.payload)));
        let (o, release) = (it.options(), Release::Copied);
        match self.begin(out, rank, port, &o, source, Teller::Nobody, bytes, release) {
            Ok((number, _)) => Ok(number),
            Err((e, source)) => {
                if let Some(Source::Given(Payload::Vec(payload))) = source {
                    it.payload = payload;
                }
                Err(e)
            }
        }
    }

    /// Handles the refusal of a message of ours.
    pub(crate) fn refused(&mut self, to: u32, priority: Priority, flow: u16, number: MessageNo) {
        self.counters.refused += 1;
        self.count_other(flow, |traffic| traffic.refused += 1);
        if (FLOWS_MAX..FIRST_FLOW).contains(&flow) {
            // One of the engine's own messages: the operation behind it ends by a death.
            log::debug!("{} refused a message", self.named(to));
            return;
        }
        if !self.ops.refuse(to, priority, flow, number) {
            self.tell_refused(to, priority, flow, number);
        }
    }

    /// Reports to the program that its message was refused.
    pub fn tell_refused(&mut self, to: u32, priority: Priority, flow: u16, number: MessageNo) {
        let event = Event::Refused {
            to,
            priority,
            flow: SpaceId::number_of(flow),
            number,
        };
        self.emit(SpaceId::of_flow(flow), event);
    }
}

/// Copies bytes, if there is memory for that.
fn copy_of(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len()).ok()?;
    copy.extend_from_slice(bytes);
    Some(copy)
}

pub(crate) const fn message<'a>(
    port: u16,
    o: &SendOptions<'a>,
    payload: &'a [u8],
) -> proto::Message<'a> {
    proto::Message {
        priority: o.priority,
        flow: o.flow,
        port,
        args: o.args,
        payload,
    }
}
