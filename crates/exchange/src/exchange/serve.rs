//! The target's side of one-sided memory: accesses are checked, executed, answered. Nothing that
//! the initiator says is trusted.

use alloc::vec::Vec;

use super::Exchange;
use super::onesided::GET_MAX;
use super::send::BYTES_MAX;
use crate::state::{
    Arriving, Dest, Part, RemoteStage, RmaOp, Served, Spot, Told, Waiting, to_status,
};
use crate::values::{
    Args, AtomicKind, AtomicOp, Did, FENCE, Incoming, IncomingOutcome, Kind, NOBODY, OpError, OpId,
    Outgoing, Payload, Place, Range, RemoteKey, Rights, SIGNAL, Signal, Sink, Source, Words, copy,
    copy_source,
};

/// Bit that marks the number under which a region's memory is lent. Operations never have it:
/// their index, in the lower half of the number, stays below.
const LENT_REGION: u64 = 1 << 31;

fn place_of(words: &Words<'_>) -> Place {
    let key = RemoteKey {
        key: words.or_zero(0),
        salt: words.or_zero(1),
    };
    let offset = words.or_zero(2);
    Place { key, offset }
}

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Whether another access of a rank is admitted now: not while too many are unanswered, nor,
    /// behind a fence, while puts are arriving or their signals wait.
    fn admits(&mut self, from: u32, fence: bool) -> bool {
        let Some(peer) = self.peers.get(from) else {
            return false;
        };
        let puts = peer.putting + peer.telling;
        let open = peer.lines.replies() + peer.serving + puts;
        let admits = open < self.config.accesses_max.max(1) && !(fence && puts > 0);
        self.held_up |= !admits;
        admits
    }

    /// Has accesses that were not admitted offered again.
    pub(crate) const fn hold_no_more(&mut self) {
        self.freed |= self.held_up;
        self.held_up = false;
    }

    /// Checks a rank's access to `bytes` bytes at a place, with these rights; returns where it
    /// goes.
    fn spot_for(
        &self,
        from: u32,
        place: &Place,
        bytes: u64,
        rights: Rights,
    ) -> Result<Spot, OpError> {
        if !self.may_reach(from) {
            return Err(OpError::NotPermitted);
        }
        (self.regions).check(place.key, place.offset, bytes, rights)
    }

    fn result(&mut self, to: u32, op: u64, result: Result<(), OpError>) {
        self.say(to, Kind::Result, [op, to_status(result)]);
    }

    pub(crate) fn arrive_put(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let words = Words(m.args);
        let (op, flags) = (words.or_zero(3), words.or_zero(4));
        if !self.admits(m.from, flags & FENCE != 0) {
            return IncomingOutcome::NotNow;
        }
        let bytes = m.total;
        let signal = (flags & SIGNAL != 0).then(|| Signal {
            port: u32::try_from(words.or_zero(5)).unwrap_or(u32::MAX),
            word: words.or_zero(6),
        });
        let spot = match self.spot_for(m.from, &place_of(&words), bytes, Rights::Put) {
            Err(why) => return self.refuse_put(m, op, why),
            Ok(_) if signal.is_some_and(|it| !self.has_port(it.port)) => {
                return self.refuse_put(m, op, OpError::NoPort);
            }
            Ok(spot) => spot,
        };
        let put = Arriving {
            from: m.from,
            spot,
            bytes,
            op,
            signal,
        };
        if !m.payload.is_empty()
            && let Some(memory) = self.regions.memory_mut(spot.region)
            && !memory.write(spot.at, m.payload)
        {
            return self.refuse_put(m, op, OpError::OutOfBounds);
        }
        if m.is_whole() {
            self.put_ends(&put, false);
            return IncomingOutcome::Whole;
        }
        self.regions.enter(spot.region);
        self.put_part(m.from, Dest::Put(put))
    }

    /// Refuses a put; its bytes are dropped.
    fn refuse_put(&mut self, m: &Incoming<'_>, op: u64, why: OpError) -> IncomingOutcome {
        self.result(m.from, op, Err(why));
        if m.is_whole() {
            IncomingOutcome::Whole
        } else {
            self.put_part(m.from, Dest::Nowhere)
        }
    }

    fn put_part(&mut self, from: u32, dest: Dest) -> IncomingOutcome {
        if let Some(peer) = self.peers.get(from) {
            peer.putting += 1;
        }
        self.rest(from, dest)
    }

    /// Ends a put whose bytes have all arrived; `None`: a refused one.
    pub(crate) fn put_part_ends(&mut self, from: u32, put: Option<(&Arriving, bool)>) {
        if let Some(peer) = self.peers.get(from) {
            peer.putting = peer.putting.saturating_sub(1);
        }
        if let Some((put, lacks)) = put {
            self.regions.leave(put.spot.region);
            self.put_ends(put, lacks);
        }
        self.hold_no_more();
    }

    /// `lacks`: some bytes had no memory to be written to.
    fn put_ends(&mut self, put: &Arriving, lacks: bool) {
        if lacks {
            return self.result(put.from, put.op, Err(OpError::OutOfBounds));
        }
        self.accessed(put.spot.region, Rights::Put);
        if let Some(signal) = put.signal {
            self.tell(put.from, signal, put.bytes, put.op);
        } else if put.op != 0 {
            self.result(put.from, put.op, Ok(()));
        }
    }

    /// Queues a put's signal for our program; the rank is answered after that.
    fn tell(&mut self, from: u32, signal: Signal, bytes: u64, op: u64) {
        if let Some(peer) = self.peers.get(from) {
            peer.telling += 1;
        }
        (self.peers).push(from, Waiting::Signal { signal, bytes, op });
    }

    pub(crate) fn has_told(&mut self, from: u32, op: u64) {
        if let Some(peer) = self.peers.get(from) {
            peer.telling -= 1;
        }
        if from == self.config.rank {
            self.end_remote(OpId(op), Ok(()));
        } else if op != 0 {
            self.result(from, op, Ok(()));
        }
        self.hold_no_more();
    }

    /// Drops partly arrived payloads that `of` selects: the rest of their bytes will not come.
    pub(crate) fn drop_parts(&mut self, of: impl Fn(&Part) -> bool) {
        for part in self.parts.take_where(of) {
            if let Dest::Put(put) = part.dest {
                self.regions.leave(put.spot.region);
            }
        }
    }

    pub(crate) fn arrive_get(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let words = Words(m.args);
        let [total, op, at, bytes] = [3, 4, 5, 6].map(|i| words.or_zero(i));
        let (fence, bytes) = (bytes & FENCE != 0, bytes & !FENCE);
        if bytes > BYTES_MAX || at.checked_add(bytes).is_none_or(|end| end > total) {
            return IncomingOutcome::Refused;
        }
        if !self.admits(m.from, fence) {
            return IncomingOutcome::NotNow;
        }
        match self.spot_for(m.from, &place_of(&words), total, Rights::Get) {
            Err(why) => self.result(m.from, op, Err(why)),
            Ok(mut spot) => {
                spot.at += at;
                let reads = (at + bytes == total).then_some(spot.region);
                match self.bytes_of(spot, bytes) {
                    Ok(told) => self.serve(m.from, Kind::Got, [op, at], told, reads),
                    Err(why) => self.result(m.from, op, Err(why)),
                }
            }
        }
        IncomingOutcome::Whole
    }

    /// Bytes of an answer: read when it leaves, or now if some may be missing.
    fn bytes_of(&mut self, spot: Spot, bytes: u64) -> Result<Told, OpError> {
        let memory = self.regions.memory(spot.region);
        if memory.is_none_or(|it| !it.may_lack()) {
            return Ok(Told::Region(spot, bytes));
        }
        if bytes > GET_MAX {
            return Err(OpError::OutOfBounds);
        }
        let mut all = self.vector(bytes);
        all.resize(bytes as usize, 0);
        let memory = self.regions.memory(spot.region);
        if memory.is_none_or(|it| !it.read(spot.at, &mut all)) {
            return Err(OpError::OutOfBounds);
        }
        Ok(Told::Bytes(all))
    }

    /// Queues an answer with bytes.
    fn serve(&mut self, to: u32, kind: Kind, [op, at]: [u64; 2], bytes: Told, reads: Option<u64>) {
        if let Some(peer) = self.peers.get(to) {
            peer.serving += 1;
        }
        if let Told::Region(spot, _) = &bytes {
            self.regions.enter(spot.region);
        }
        let number = self.served.insert(Served {
            from: to,
            kind,
            bytes,
            op,
            at,
            lent: false,
            reads,
        });
        self.peers.push(to, Waiting::Served(number));
    }

    /// Message of an answer with bytes, and the number that its memory is lent by.
    pub(crate) fn served_message(&mut self, number: u64) -> Option<Outgoing<'_, S, K>> {
        let served = self.served.get(number)?;
        let payload = match &served.bytes {
            Told::Region(spot, bytes) => {
                let memory = self.regions.memory(spot.region)?;
                Payload::Region(Range::new(memory, spot.at, *bytes))
            }
            Told::Bytes(bytes) => Payload::Bytes(bytes),
        };
        let args = Args::trimmed(&[served.op, served.at]);
        let lender = OpId(number | LENT_REGION);
        Some(Outgoing::new(served.kind, args, payload, lender))
    }

    pub(crate) fn has_served(&mut self, number: u64, did: Did) {
        match self.served.get_mut(number) {
            Some(served) if did == Did::Lent => served.lent = true,
            // A death is reported to the exchange separately.
            Some(_) if did == Did::Done => self.end_served(number),
            _ => {}
        }
    }

    fn end_served(&mut self, number: u64) {
        let Some(served) = self.served.remove(number) else {
            return;
        };
        if let Some(region) = served.reads {
            self.accessed(region, Rights::Get);
        }
        match served.bytes {
            Told::Region(spot, _) => self.regions.leave(spot.region),
            Told::Bytes(bytes) => self.keep_vector(bytes),
        }
        if served.from != NOBODY
            && let Some(peer) = self.peers.get(served.from)
        {
            peer.serving = peer.serving.saturating_sub(1);
        }
        self.hold_no_more();
    }

    /// Notes that memory lent under this number is not read any more; false: not a region's.
    pub(crate) fn region_released(&mut self, OpId(lender): OpId) -> bool {
        let number = lender & !LENT_REGION;
        if lender & LENT_REGION != 0 && self.served.get(number).is_some_and(|s| s.lent) {
            self.end_served(number);
        }
        lender & LENT_REGION != 0
    }

    /// Drops answers that have not left, to one rank or to all. Answers still read for a dead rank
    /// are charged to no rank.
    pub(crate) fn drop_served(&mut self, rank: Option<u32>) {
        let theirs: Vec<u64> = (self.served.iter())
            .filter(|(_, served)| rank.is_none_or(|rank| served.from == rank))
            .map(|(number, _)| number)
            .collect();
        for number in theirs {
            match self.served.get_mut(number) {
                Some(served) if served.lent => served.from = NOBODY,
                _ => self.end_served(number),
            }
        }
    }

    /// Keeps P13.13.
    pub(crate) fn arrive_atomic(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let words = Words(m.args);
        let [op, flags] = [3, 4].map(|i| words.or_zero(i));
        let Some(what) = AtomicKind::of_bits(flags) else {
            return IncomingOutcome::Refused;
        };
        if m.payload.len() != what.lengths().iter().sum() {
            return IncomingOutcome::Refused;
        }
        if !self.admits(m.from, flags & FENCE != 0) {
            return IncomingOutcome::NotNow;
        }
        match self.change(m.from, &place_of(&words), &what, m.payload) {
            Ok(found) if what.fetching => {
                self.serve(m.from, Kind::Result, [op, 0], Told::Bytes(found), None);
            }
            Ok(found) => {
                self.keep_vector(found);
                self.result(m.from, op, Ok(()));
            }
            Err(why) => self.result(m.from, op, Err(why)),
        }
        IncomingOutcome::Whole
    }

    /// Executes an atomic operation; returns the old values.
    fn change(
        &mut self,
        from: u32,
        place: &Place,
        what: &AtomicKind,
        values: &[u8],
    ) -> Result<Vec<u8>, OpError> {
        let bytes = what.bytes() as u64;
        let spot = self.spot_for(from, place, bytes, what.rights())?;
        let [mut found, mut new] = [(); 2].map(|()| self.vector(bytes));
        found.resize(what.bytes(), 0);
        let memory = (self.regions.memory_mut(spot.region)).ok_or(OpError::BadKey)?;
        let alignment = what.alignment();
        if !place.offset.is_multiple_of(alignment) && !memory.is_aligned(spot.at, alignment) {
            return Err(OpError::Unaligned);
        }
        if !memory.read(spot.at, &mut found) {
            return Err(OpError::OutOfBounds);
        }
        if what.op != AtomicOp::Read {
            new.extend_from_slice(&found);
            what.apply(&mut new, values);
            if !memory.write(spot.at, &new) {
                return Err(OpError::OutOfBounds);
            }
        }
        self.keep_vector(new);
        let did = match what.op {
            AtomicOp::Read => Rights::Get,
            _ if what.fetching => Rights::Both,
            _ => Rights::Put,
        };
        self.accessed(spot.region, did);
        Ok(found)
    }

    /// Keeps P13.14.
    pub(crate) fn arrive_flush(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        if !self.admits(m.from, true) {
            return IncomingOutcome::NotNow;
        }
        self.result(m.from, Words(m.args).or_zero(0), Ok(()));
        IncomingOutcome::Whole
    }

    /// Executes an operation on this rank's own memory.
    pub(crate) fn execute(&mut self, id: OpId) {
        let Some(remote) = self.ops.remote(id) else {
            return;
        };
        let (me, place, total, rma) = (remote.to, remote.place, remote.total, remote.rma);
        let result = match rma {
            RmaOp::Put { signal, .. } => {
                let spot = (self.regions).check(place.key, place.offset, total, Rights::Put);
                let no_port = signal.is_some_and(|it| !self.has_port(it.port));
                match spot {
                    Ok(_) if no_port => Err(OpError::NoPort),
                    Ok(spot) => {
                        let mut there = true;
                        if let (Some(remote), Some(memory)) =
                            (self.ops.remote(id), self.regions.memory_mut(spot.region))
                            && let Some(source) = &remote.source
                        {
                            there = copy_source(source, memory, spot.at, total);
                            remote.stage = RemoteStage::Left;
                        }
                        if there {
                            self.accessed(spot.region, Rights::Put);
                        }
                        match signal {
                            _ if !there => Err(OpError::OutOfBounds),
                            Some(signal) => return self.tell(me, signal, total, id.0),
                            None => Ok(()),
                        }
                    }
                    Err(why) => Err(why),
                }
            }
            RmaOp::Get => {
                let spot = (self.regions).check(place.key, place.offset, total, Rights::Get);
                let got = spot.and_then(|spot| {
                    if let (Some(sink), Some(memory)) =
                        (&mut remote.sink, self.regions.memory(spot.region))
                    {
                        let read = |at, into: &mut [u8]| memory.read(spot.at + at, into);
                        let there = copy(read, sink, 0, total);
                        return there.then_some(spot).ok_or(OpError::OutOfBounds);
                    }
                    Ok(spot)
                });
                got.map(|spot| self.accessed(spot.region, Rights::Get))
            }
            RmaOp::Flush(_) => Ok(()),
            RmaOp::Atomic(what, _) => {
                let values = core::mem::take(&mut remote.values);
                let found = self.change(me, &place, &what, &values);
                self.keep_vector(values);
                found.map(|found| {
                    if let Some(remote) = self.ops.remote(id).filter(|_| what.fetching) {
                        remote.take_found(&found);
                    }
                    self.keep_vector(found);
                })
            }
        };
        self.end_remote(id, result);
    }
}
