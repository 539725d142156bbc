//! What the exchange asks of the engine: to carry, to locate, to copy.

use std::io::IoSlice;

use portolan_exchange::{
    DirectError, FetchError, Host, Located, OpError, OpId, Outgoing, Place, Push, Refusal, Sent,
    Signal, SignalRefusal, Sink as _, Source as _,
};
use portolan_link::memory::{CopyError, populate};
use portolan_link::shm::OneSidedError;
use portolan_proto::Release;

use super::memory::{Gather, Row, Scatter};
use super::{MATCHED, options};
use crate::core::{Arrival, Core, Finding};
use crate::error::{Death, SendError};
use crate::lanes::Lane;
use crate::memory::read_pieces;
use crate::ops::Teller;
use crate::out::Out;
use crate::ports::{Budget, Charge, Meta, PORTS_RESERVED, PortState};

/// A request by shared memory asks for so much at least, bytes: there is no
/// queue on the way that it could overflow.
const SHM_CHUNK: u64 = 1 << 20;

/// The engine without the exchange.
pub struct Carrier<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) out: Out<'a>,
}

const fn refusal(e: SendError) -> Refusal {
    match e {
        SendError::NoCredit => Refusal::NoRoom,
        // The rest cannot be; whoever waits for it learns of the death.
        _ => Refusal::Dead,
    }
}

impl Carrier<'_> {
    /// Sends a message with a range of memory: copied where it leaves in one
    /// packet or frame, else read as there is room.
    fn send_range(
        &mut self,
        to: u32,
        m: &Outgoing<'_>,
        memory: &impl Row,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        let Self { core, out } = self;
        let (port, options) = (MATCHED + m.kind as u16, options(m.kind, m.args));
        // A message lies in memory, so its length fits that.
        let (at, bytes) = (at as usize, bytes as usize);
        if bytes > core.inline_max(out, to, m.args.len()) {
            let (lent, teller) = (memory.lend(at, bytes), Teller::Matched(op));
            let begun = core.begin(out, to, port, &options, lent, teller, 0, Release::Copied);
            return begun.map(|_| Sent::Lent).map_err(|(e, _)| refusal(e));
        }
        let sent = if let Some(slice) = memory.part(at, bytes) {
            core.send_any(out, to, port, &options, slice)
        } else {
            let mut scratch = std::mem::take(&mut core.matched.scratch);
            scratch.resize(bytes, 0);
            read_pieces(memory.slices(), at, &mut scratch);
            let sent = core.send_any(out, to, port, &options, &scratch);
            core.matched.scratch = scratch;
            sent
        };
        sent.map(|_| Sent::Copied).map_err(refusal)
    }
}

impl Carrier<'_> {
    /// Accesses memory of a process of this host, by its index there.
    fn directly(
        &mut self,
        rank: u32,
        access: impl FnOnce(&mut Out<'_>, u16) -> Result<(), OneSidedError>,
    ) -> Result<(), DirectError> {
        let Some(Lane::Shm(index)) = self.core.lanes.get(rank) else {
            return Err(DirectError::NotPossible);
        };
        let Err(why) = access(&mut self.out, index) else {
            return Ok(());
        };
        Err(match why {
            OneSidedError::NoKey => DirectError::Refused(OpError::BadKey),
            OneSidedError::Forbidden => DirectError::Refused(OpError::Forbidden),
            OneSidedError::Denied(_) => DirectError::Refused(OpError::NotPermitted),
            OneSidedError::OutOfBounds(_) => DirectError::Refused(OpError::OutOfBounds),
            // The lane tells how it ended.
            OneSidedError::Gone(_) => {
                self.core
                    .findings
                    .push(Finding::Suspect(rank, Death::Ended));
                DirectError::NotPossible
            }
            // The target can do what the kernel does not do for us.
            OneSidedError::NoPeer
            | OneSidedError::NotOpen
            | OneSidedError::Elsewhere
            | OneSidedError::NotPermitted
            | OneSidedError::Fault(_)
            | OneSidedError::Kernel(_) => DirectError::NotPossible,
        })
    }
}

impl Host for Carrier<'_> {
    type Source = Gather;
    type Sink = Scatter;

    #[inline]
    fn send(&mut self, to: u32, m: &Outgoing<'_>) -> Result<(), Refusal> {
        let port = MATCHED + m.kind as u16;
        let sent = (self.core).send_any(&mut self.out, to, port, &options(m.kind, m.args), &[]);
        sent.map(drop).map_err(refusal)
    }

    fn send_from(
        &mut self,
        to: u32,
        m: &Outgoing<'_>,
        source: &Gather,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        self.send_range(to, m, source, at, bytes, op)
    }

    fn send_region(
        &mut self,
        to: u32,
        m: &Outgoing<'_>,
        memory: &Scatter,
        at: u64,
        bytes: u64,
        op: OpId,
    ) -> Result<Sent, Refusal> {
        self.send_range(to, m, memory, at, bytes, op)
    }

    fn reserve_signal(&mut self, from: u32, port: u32) -> Result<(), SignalRefusal> {
        let port = u16::try_from(port)
            .ok()
            .filter(|port| *port < PORTS_RESERVED)
            .ok_or(SignalRefusal::NoPort)?;
        if self.core.ports.get_or_make(port).state == PortState::Closed {
            return Err(SignalRefusal::NoPort);
        }
        match self.core.queued.charge(from, 0, &mut self.core.beyond) {
            Some(_) => Ok(()),
            None => Err(SignalRefusal::NoRoom),
        }
    }

    fn signal(&mut self, from: u32, signal: &Signal, bytes: u64) {
        self.unreserve_signal(from, signal.port);
        let mut args = [0; 16];
        args[..8].copy_from_slice(&signal.word.to_le_bytes());
        args[8..].copy_from_slice(&bytes.to_le_bytes());
        let arrival = Arrival {
            meta: Meta {
                from,
                // It was looked at when the room was kept.
                port: signal.port as u16,
                ..self.core.own_meta(0)
            },
            args: &args,
            total: 0,
            payload: &[],
        };
        // There is room: it was given back just now.
        self.core.keep(&arrival, Charge::Queued);
    }

    fn unreserve_signal(&mut self, from: u32, _port: u32) {
        self.core.queued.release(from, Budget::EMPTY);
        self.core.note_freed();
    }

    fn push(&self, to: u32) -> Push {
        self.core.matched.push_to(self.core.lanes.get(to))
    }

    fn has_queues(&self, from: u32) -> bool {
        matches!(self.core.lanes.get(from), Some(Lane::Net(_)))
    }

    fn pull_chunk(&self, from: u32, usual: u64) -> u64 {
        match self.core.lanes.get(from) {
            Some(Lane::Shm(_)) => usual.max(SHM_CHUNK),
            _ => usual,
        }
    }

    fn locate(&mut self, to: u32, source: &Gather) -> Option<Located> {
        let Some(Lane::Shm(index)) = self.core.lanes.get(to) else {
            return None;
        };
        let shares = source.waits();
        if shares && !self.out.shm_can_copy(index) {
            // Two cores share the work by the ring.
            return None;
        }
        let bytes = usize::try_from(source.len()).ok()?;
        let whole = source.part(0, bytes)?;
        self.out.shm_may_copy(index).then_some(Located {
            address: whole.as_ptr() as u64,
            shares,
        })
    }

    fn publish(&mut self, to: u32, key: u64, sink: &mut Scatter, at: u64, bytes: u64) -> bool {
        let Self { core, out } = self;
        // Who closes has withdrawn all there was.
        if core.closing || !matches!(core.lanes.get(to), Some(Lane::Shm(_))) {
            return false;
        }
        match usize::try_from(bytes).map(|bytes| sink.slice(at, bytes)) {
            Ok(Some(memory)) => core.matched.published.publish_receive(out, key, memory),
            _ => false,
        }
    }

    fn withdraw(&mut self, key: u64, _sink: &mut Scatter) -> bool {
        self.core
            .matched
            .published
            .withdraw_receive(&mut self.out, key)
    }

    fn write_shown(
        &mut self,
        to: u32,
        key: u64,
        source: &Gather,
        at: u64,
        bytes: u64,
    ) -> Result<(), DirectError> {
        let part = source.part(at as usize, bytes as usize);
        let part = IoSlice::new(part.ok_or(DirectError::NotPossible)?);
        self.directly(to, |out, index| out.shm_put(index, key, 0, &[part]))?;
        self.core.counters.shared += 1;
        Ok(())
    }

    fn direct_put(&mut self, to: u32, place: &Place, source: &Gather) -> Result<(), DirectError> {
        let key = place.key.in_table().ok_or(DirectError::NotPossible)?;
        self.directly(to, |out, index| {
            source.with_slices(|from| out.shm_put(index, key, place.offset, from))
        })?;
        self.core.counters.direct += 1;
        Ok(())
    }

    fn direct_get(
        &mut self,
        from: u32,
        place: &Place,
        sink: &mut Scatter,
    ) -> Result<(), DirectError> {
        let key = place.key.in_table().ok_or(DirectError::NotPossible)?;
        self.directly(from, |out, index| {
            sink.with_slices(|into| out.shm_get(index, key, place.offset, into))
        })?;
        self.core.counters.direct += 1;
        Ok(())
    }

    fn await_peer(&mut self, rank: u32) {
        if let Some(Lane::Net(peer)) = self.core.lanes.get(rank) {
            self.out.net_await(peer);
        }
    }

    fn prepare(&mut self, sink: &mut Scatter, at: u64, bytes: u64) {
        for piece in sink.pieces(at as usize, bytes as usize) {
            populate(piece);
        }
    }

    fn fetch(
        &mut self,
        from: u32,
        address: u64,
        into: &mut Scatter,
        at: u64,
        bytes: u64,
    ) -> Result<(), FetchError> {
        let Some(Lane::Shm(index)) = self.core.lanes.get(from) else {
            // What another host says of its memory is of no use here.
            return Err(FetchError::NotPermitted);
        };
        let mut next = address;
        for piece in into.pieces(at as usize, bytes as usize) {
            match self.out.shm_copy_from(index, next, piece) {
                Ok(()) => next += piece.len() as u64,
                Err(CopyError::NotPermitted) => return Err(FetchError::NotPermitted),
                Err(_) => {
                    // It closed or died, or lent us memory that it does not have.
                    self.core
                        .findings
                        .push(Finding::Suspect(from, Death::Ended));
                    return Err(FetchError::Gone);
                }
            }
        }
        Ok(())
    }
}
