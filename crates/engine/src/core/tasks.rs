//! Tasks of an exchange: messages, signals, copies.

use std::io::IoSlice;

use portolan_exchange::{
    Did, Located, OpError, OpId, Outgoing, Payload, Range, Signal, Sink as _, Source as _, Task,
    Where,
};
use portolan_link::memory::CopyError;
use portolan_link::shm::{OneSidedError, Outlet, ShmPlace};
use portolan_proto::Release;

use super::{Arrival, ArrivalOutcome, CoreState};
use crate::lanes::Lane;
use crate::matched::{Gather, Published, Row, Scatter, in_table, options, prepare};
use crate::outbound::Outbound;
use crate::values::{Charge, Death, Meta, PortId, SendError, SendOptions, SpaceId, read_pieces};
use crate::waiting::Teller;

const fn failed(e: SendError) -> Did {
    match e {
        SendError::NoCredit => Did::NoRoom,
        // Else the peer is dead: callers that wait for it learn that. The rest cannot occur.
        _ => Did::Dead,
    }
}

impl CoreState {
    /// Executes a task. `scratch`: for pieces that are assembled to leave in one packet.
    pub(super) fn act(
        &mut self,
        published: &mut Published,
        scratch: &mut Vec<u8>,
        out: &mut Outbound<'_>,
        space: SpaceId,
        task: Task<'_, Gather, Scatter>,
    ) -> Did {
        match task {
            Task::Locate(to, source) => {
                (self.locate(out, to, source)).map_or(Did::NotPossible, Did::Located)
            }
            Task::Send(to, m) => self.send_matched(scratch, out, space, to, &m),
            Task::Signal(from, signal, bytes) => self.signal(space, from, &signal, bytes),
            Task::Prepare(Range { of, at, bytes }) => {
                prepare(of, at, bytes);
                Did::Done
            }
            Task::Publish(to, key, Range { of, at, bytes }) => {
                // An endpoint that closes has withdrawn all its regions.
                let near = matches!(self.lanes.get(to), Some(Lane::Shm(_)));
                let memory = of
                    .slice(at, bytes as usize)
                    .filter(|_| near && !self.closing);
                if memory.is_some_and(|memory| published.publish_receive(out, key, memory)) {
                    Did::Done
                } else {
                    Did::NotPossible
                }
            }
            Task::Withdraw(key, _) if published.withdraw_receive(out, key) => Did::Done,
            Task::Withdraw(..) => Did::NoRoom,
            Task::CopyFrom(from, there, Range { of, at, bytes }) => match there {
                Where::Address(address) => self.fetch(out, from, address, of, at, bytes),
                Where::Region(place) => {
                    let key = in_table(space, &place.key);
                    let at = ShmPlace::Offset(place.offset);
                    self.reach(out, from, |outlet, index| {
                        of.with_slices(|into| outlet.get(index, key, at, into))
                    })
                }
                Where::Published(_) => Did::NotPossible,
            },
            Task::CopyTo(to, there, Range { of, at, bytes }) => match there {
                Where::Published(key) => {
                    let Some(part) = of.part(at as usize, bytes as usize) else {
                        return Did::NotPossible;
                    };
                    let part = &[IoSlice::new(part)];
                    let did = self.directly(out, to, |outlet, index| {
                        outlet.put(index, key, ShmPlace::Offset(0), part)
                    });
                    self.counters.shared += u64::from(did == Did::Done);
                    did
                }
                Where::Region(place) => {
                    let key = in_table(space, &place.key);
                    let at = ShmPlace::Offset(place.offset);
                    self.reach(out, to, |outlet, index| {
                        of.with_slices(|from| outlet.put(index, key, at, from))
                    })
                }
                Where::Address(_) => Did::NotPossible,
            },
        }
    }

    /// Returns where a send's memory lies, if the receiver is on this host and may copy from
    /// there.
    fn locate(&self, out: &mut Outbound<'_>, to: u32, source: &Gather) -> Option<Located> {
        let (Some(Lane::Shm(index)), Ok(shm)) = (self.lanes.get(to), out.shm()) else {
            return None;
        };
        let shares = source.waits();
        if shares && !shm.outlet.can_copy(index) {
            // Only the ring lets both cores copy: we cannot write to the receiver's memory.
            return None;
        }
        let address = source.part(0, source.len() as usize)?.as_ptr() as u64;
        let may = shm.tx.may_copy(&mut shm.outlet, index);
        may.then_some(Located { address, shares })
    }

    /// Sends a message. A payload that leaves in one packet or frame is copied, a longer one is
    /// read as there is room.
    #[inline]
    fn send_matched(
        &mut self,
        scratch: &mut Vec<u8>,
        out: &mut Outbound<'_>,
        space: SpaceId,
        to: u32,
        m: &Outgoing<'_, Gather, Scatter>,
    ) -> Did {
        let (port, o) = options(space, m.kind, m.args());
        match &m.payload {
            Payload::Nothing => match self.send_any(out, to, port, &o, &[]) {
                Ok(_) => Did::Done,
                Err(e) => failed(e),
            },
            Payload::Source(range) => self.send_range(scratch, out, to, port, &o, range, m.op),
            Payload::Region(range) => self.send_range(scratch, out, to, port, &o, range, m.op),
            Payload::Bytes(bytes) => {
                let range = Range {
                    of: *bytes,
                    at: 0,
                    bytes: bytes.len() as u64,
                };
                self.send_range(scratch, out, to, port, &o, &range, m.op)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all that a message consists of")]
    fn send_range(
        &mut self,
        scratch: &mut Vec<u8>,
        out: &mut Outbound<'_>,
        to: u32,
        port: u16,
        o: &SendOptions<'_>,
        range: &Range<&(impl Row + ?Sized)>,
        op: OpId,
    ) -> Did {
        // A message lies in memory, so its length fits that.
        let (memory, at, bytes) = (range.of, range.at as usize, range.bytes as usize);
        if !self.is_inline(out, to, o.args.len(), bytes) {
            let teller = Teller::Matched(SpaceId::of_flow(o.flow), op);
            let lent = memory.lend(at, bytes);
            return match self.begin(out, to, port, o, lent, teller, 0, Release::Copied) {
                Ok(_) => Did::Lent,
                Err((e, _)) => failed(e),
            };
        }
        let payload = if let Some(slice) = memory.part(at, bytes) {
            slice
        } else {
            scratch.resize(bytes, 0);
            read_pieces(memory.slices(), at, scratch);
            scratch
        };
        match self.send_any(out, to, port, o, payload) {
            Ok(_) => Did::Done,
            Err(e) => failed(e),
        }
    }

    /// Queues a signal for the program: bytes of a put are visible.
    fn signal(&mut self, space: SpaceId, from: u32, signal: &Signal, bytes: u64) -> Did {
        let mut args = [0; 16];
        args[..8].copy_from_slice(&signal.word.to_le_bytes());
        args[8..].copy_from_slice(&bytes.to_le_bytes());
        // The exchange has checked the port, so it fits 16 bits.
        let port = PortId {
            space,
            number: signal.port as u16,
        };
        let arrival = Arrival {
            meta: Meta {
                from,
                ..self.own_meta(port)
            },
            args: &args,
            total: 0,
            payload: &[],
        };
        match self.keep(&arrival, Charge::Queued) {
            ArrivalOutcome::NotNow => Did::NoRoom,
            _ => Did::Done,
        }
    }

    /// Accesses a region of a process of this host. A process that has barred us from its
    /// regions is asked by a message, and decides when it handles that.
    fn reach<'a>(
        &mut self,
        out: &mut Outbound<'a>,
        rank: u32,
        access: impl FnOnce(&mut Outlet<'a>, u16) -> Result<(), OneSidedError>,
    ) -> Did {
        let did = self.directly(out, rank, |outlet, index| {
            if outlet.is_barred(index) {
                return Err(OneSidedError::Elsewhere);
            }
            access(outlet, index)
        });
        self.counters.direct += u64::from(did == Did::Done);
        did
    }

    /// Accesses memory of a process of this host, by its index there.
    fn directly<'a>(
        &mut self,
        out: &mut Outbound<'a>,
        rank: u32,
        access: impl FnOnce(&mut Outlet<'a>, u16) -> Result<(), OneSidedError>,
    ) -> Did {
        let (Some(Lane::Shm(index)), Ok(shm)) = (self.lanes.get(rank), out.shm()) else {
            return Did::NotPossible;
        };
        let Err(why) = access(&mut shm.outlet, index) else {
            return Did::Done;
        };
        match why {
            OneSidedError::NoKey => Did::Refused(OpError::BadKey),
            OneSidedError::Forbidden => Did::Refused(OpError::Forbidden),
            OneSidedError::Denied(_) => Did::Refused(OpError::NotPermitted),
            OneSidedError::OutOfBounds(_) => Did::Refused(OpError::OutOfBounds),
            // The lane reports how the process ended.
            OneSidedError::Gone(_) => self.has_gone(rank),
            // The target can do what the kernel refuses us.
            OneSidedError::NoPeer
            | OneSidedError::NotOpen
            | OneSidedError::Elsewhere
            | OneSidedError::NotPermitted
            | OneSidedError::Fault(_)
            | OneSidedError::Kernel(_) => Did::NotPossible,
        }
    }

    /// Copies from the memory of a process of this host.
    fn fetch(
        &mut self,
        out: &mut Outbound<'_>,
        from: u32,
        address: u64,
        into: &mut Scatter,
        at: u64,
        bytes: u64,
    ) -> Did {
        let (Some(Lane::Shm(index)), Ok(shm)) = (self.lanes.get(from), out.shm()) else {
            // An address in another host's memory is of no use here.
            return Did::NotPossible;
        };
        let mut next = address;
        for piece in into.pieces(at as usize, bytes as usize) {
            match shm.copy_from(index, next, piece) {
                Ok(()) => next += piece.len() as u64,
                Err(CopyError::NotPermitted) => return Did::NotPossible,
                // The peer closed or died, or lent us memory that it does not have.
                Err(_) => return self.has_gone(from),
            }
        }
        Did::Done
    }

    fn has_gone(&mut self, rank: u32) -> Did {
        self.suspect(rank, Death::Ended);
        Did::Dead
    }
}
