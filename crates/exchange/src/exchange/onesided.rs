//! The initiator's side of one-sided memory: puts, gets, atomic operations, flushes, fences.
//!
//! Operations towards one rank may be executed in any order, but for atomic ones and short puts,
//! which are executed in the order in which they were begun. A long put arrives in parts, and a
//! long get is asked for in parts. A program that needs an order between two operations puts a
//! fence between them, or waits for the first one's end.
//!
//! The caller accesses the target's memory directly only if no earlier operation may be in flight
//! as a message, since direct access would overtake it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::Exchange;
use super::send::SendRefused;
use crate::state::{Body, Remote, RemoteStage, RmaOp, TargetState, Waiting};
use crate::values::{
    Action, Args, Atomic, AtomicKind, AtomicOp, AtomicType, Did, FENCE, Kind, Notify, OpError,
    OpId, Outgoing, Payload, Place, PutEnd, PutOptions, Range, SIGNAL, Signal, Sink, Source, Task,
    Where,
};

/// Largest request of a get, bytes: bytes that may be missing are copied before the answer.
pub(crate) const GET_MAX: u64 = 1 << 20;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Writes `source` to another rank's memory. The target checks key,
    /// rights and bounds before anything is written.
    ///
    /// # Errors
    /// [`SendRefused`], with the memory; nothing was begun.
    pub fn put(
        &mut self,
        to: u32,
        place: Place,
        source: S,
        options: &PutOptions,
    ) -> Result<OpId, (SendRefused, S)> {
        let total = source.len();
        if let Err(why) = self.may_begin(to, total) {
            return Err((why, source));
        }
        let rma = RmaOp::Put {
            end: options.end,
            signal: options.signal,
        };
        let memory = (Some(source), None, Vec::new());
        Ok(self.begin(to, place, total, rma, memory, options.notify))
    }

    /// Fills `sink` from another rank's memory. If the get fails, part of `sink` may have been
    /// written.
    ///
    /// # Errors
    /// [`SendRefused`], with the memory; nothing was begun.
    pub fn get(
        &mut self,
        from: u32,
        place: Place,
        sink: K,
        notify: Notify,
    ) -> Result<OpId, (SendRefused, K)> {
        let total = sink.len();
        if let Err(why) = self.may_begin(from, total) {
            return Err((why, sink));
        }
        let memory = (None, Some(sink), Vec::new());
        Ok(self.begin(from, place, total, RmaOp::Get, memory, notify))
    }

    /// Changes numbers at a place, each atomically with respect to other atomic operations, not to
    /// accesses by the target's own program. Old values are not returned. The offset is a multiple
    /// of an element's size, or of half that for a complex number.
    ///
    /// # Errors
    /// [`SendRefused`], [`SendRefused::BadAtomic`] too; nothing was begun.
    pub fn atomic(
        &mut self,
        to: u32,
        place: Place,
        what: &Atomic<'_>,
        notify: Notify,
    ) -> Result<OpId, SendRefused> {
        let kind = AtomicKind::new(what, false).ok_or(SendRefused::BadAtomic)?;
        self.may_begin(to, 0)?;
        let kind = (kind, Action::Atomic);
        Ok(self.begin_atomic(to, place, what, kind, None, notify))
    }

    /// As [`Exchange::atomic`], and fills `sink` with the old values. For one element of at most 8
    /// bytes the completion's `data` holds the old value too.
    ///
    /// # Errors
    /// As [`Exchange::atomic`], with the memory; `sink` must have just the length of the elements.
    pub fn fetch_atomic(
        &mut self,
        to: u32,
        place: Place,
        what: &Atomic<'_>,
        sink: K,
        notify: Notify,
    ) -> Result<OpId, (SendRefused, K)> {
        let kind = AtomicKind::new(what, true).filter(|it| it.bytes() as u64 == sink.len());
        let Some(kind) = kind else {
            return Err((SendRefused::BadAtomic, sink));
        };
        if let Err(why) = self.may_begin(to, 0) {
            return Err((why, sink));
        }
        let kind = (kind, Action::Atomic);
        Ok(self.begin_atomic(to, place, what, kind, Some(sink), notify))
    }

    /// Adds to the 64-bit number at a place; the sum wraps around. The completion's `data` is the
    /// old value. Else as [`Exchange::fetch_atomic`].
    ///
    /// # Errors
    /// [`SendRefused`]; nothing was begun.
    pub fn fetch_add(
        &mut self,
        to: u32,
        place: Place,
        add: u64,
        notify: Notify,
    ) -> Result<OpId, SendRefused> {
        let operands = &add.to_le_bytes();
        let action = Action::FetchAdd;
        self.fetch_word(to, place, AtomicOp::Sum, [operands, &[]], action, notify)
    }

    /// Replaces the 64-bit number at a place by `new` if it is `expected`. Else as
    /// [`Exchange::fetch_add`].
    ///
    /// # Errors
    /// [`SendRefused`]; nothing was begun.
    pub fn compare_swap(
        &mut self,
        to: u32,
        place: Place,
        expected: u64,
        new: u64,
        notify: Notify,
    ) -> Result<OpId, SendRefused> {
        let values = [&new.to_le_bytes()[..], &expected.to_le_bytes()];
        let action = Action::CompareSwap;
        self.fetch_word(to, place, AtomicOp::SwapIfEqual, values, action, notify)
    }

    fn fetch_word(
        &mut self,
        to: u32,
        place: Place,
        op: AtomicOp,
        [operands, compare]: [&[u8]; 2],
        action: Action,
        notify: Notify,
    ) -> Result<OpId, SendRefused> {
        let (of, count) = (AtomicType::U64, 1);
        let what = Atomic {
            op,
            of,
            count,
            operands,
            compare,
        };
        let kind = AtomicKind::new(&what, true).ok_or(SendRefused::BadAtomic)?;
        self.may_begin(to, 0)?;
        Ok(self.begin_atomic(to, place, &what, (kind, action), None, notify))
    }

    fn begin_atomic(
        &mut self,
        to: u32,
        place: Place,
        what: &Atomic<'_>,
        (kind, action): (AtomicKind, Action),
        sink: Option<K>,
        notify: Notify,
    ) -> OpId {
        let values = [what.operands, what.compare];
        let mut all = self.vector(values.iter().map(|it| it.len() as u64).sum());
        values.iter().for_each(|it| all.extend_from_slice(it));
        let (rma, total) = (RmaOp::Atomic(kind, action), kind.bytes() as u64);
        self.begin(to, place, total, rma, (None, sink, all), notify)
    }

    /// Ends when all puts and atomic operations towards a rank that were begun before it are
    /// visible there. Fails with the error of the first put with [`PutEnd::Local`] that failed and
    /// that no flush has reported.
    ///
    /// # Errors
    /// [`SendRefused`]; nothing was begun.
    pub fn flush(&mut self, to: u32, notify: Notify) -> Result<OpId, SendRefused> {
        self.may_begin(to, 0)?;
        let place = Place::default();
        let memory = (None, None, Vec::new());
        Ok(self.begin(to, place, 0, RmaOp::Flush(0), memory, notify))
    }

    /// Orders one-sided operations towards a rank: those begun later are executed after those
    /// begun before. Does not wait.
    pub fn fence(&mut self, to: u32) {
        if let Some(target) = self.targets.get_mut(&to) {
            target.epoch += 1;
        }
    }

    fn begin(
        &mut self,
        to: u32,
        place: Place,
        total: u64,
        rma: RmaOp,
        (source, sink, values): (Option<S>, Option<K>, Vec<u8>),
        notify: Notify,
    ) -> OpId {
        let itself = to == self.config.rank;
        let epoch = if itself {
            0
        } else {
            let target = self.targets.entry(to).or_default();
            target.open += 1;
            target.epoch
        };
        let remote = Remote {
            rma,
            source,
            sink,
            values,
            to,
            place,
            total,
            stage: RemoteStage::Waiting,
            counted: !itself,
            epoch,
            direct: false,
            lent: 0,
            chunk: self.config.pull_chunk.clamp(1, GET_MAX),
            asked: 0,
            came: 0,
            answered: 0,
            asks: 0,
            fault: None,
            found: None,
        };
        let id = self.ops.insert(Body::Remote(remote), notify, 0, None);
        if itself {
            self.in_turn(to, id);
        } else if let Some(target) = self.targets.get_mut(&to) {
            self.ops.set_awaits(id, to);
            if target.held.is_empty() && target.passes(epoch) {
                target.launched = epoch;
                self.launch(to, id);
            } else {
                target.held.push_back(id);
            }
        }
        id
    }

    /// Launches operations that no fence holds up any more.
    pub(crate) fn pass_fences(&mut self, to: u32) {
        while let Some(target) = self.targets.get_mut(&to)
            && let Some(&id) = target.held.front()
        {
            if let Some(remote) = self.ops.remote(id) {
                if !target.passes(remote.epoch) {
                    return;
                }
                target.launched = remote.epoch;
                target.held.pop_front();
                self.launch(to, id);
            } else {
                target.held.pop_front();
            }
        }
    }

    fn launch(&mut self, to: u32, id: OpId) {
        let direct = self.terms(to).direct;
        let (Some(remote), Some(target)) = (self.ops.remote(id), self.targets.get_mut(&to)) else {
            return;
        };
        // Direct access must overtake nothing. Operations behind a fence go by messages.
        let alone = direct && target.has_one() && target.epoch == 0;
        match &mut remote.rma {
            RmaOp::Get => {
                target.gets += 1;
                remote.stage = RemoteStage::Left;
                remote.direct = alone;
                if !alone {
                    self.ask_for_all(id);
                    return;
                }
            }
            // Only the target can check a signal's port, before any byte is written.
            RmaOp::Put { signal: None, .. } if alone => remote.direct = true,
            RmaOp::Put { end, .. } => target.silent += u64::from(*end == PutEnd::Local),
            RmaOp::Flush(silent) => {
                *silent = target.silent;
                if target.has_one() {
                    self.end_remote(id, Ok(()));
                    return;
                }
            }
            RmaOp::Atomic(..) => {}
        }
        self.in_turn(to, id);
    }

    /// Begins to request the bytes of a get by messages.
    fn ask_for_all(&mut self, id: OpId) {
        if let Some(remote) = self.ops.remote(id) {
            let (left, to) = (remote.total, remote.to);
            let known = self.knows(to);
            self.pulls.wait(self.config.number, left, id, (to, known));
            self.ask();
        }
    }

    /// Queues an operation, or executes one on this rank.
    fn in_turn(&mut self, to: u32, id: OpId) {
        if to == self.config.rank {
            self.execute(id);
        } else {
            self.peers.push(to, Waiting::Remote(id));
        }
    }

    /// Task of an operation: direct access, or its only message; a get's requests go by
    /// [`Self::ask_args`].
    pub(crate) fn remote_task(&mut self, id: OpId) -> Option<Task<'_, S, K>> {
        let remote = self.ops.remote(id)?;
        let (to, place) = (remote.to, remote.place);
        if remote.direct {
            let (there, bytes) = (Where::Region(place), remote.total);
            return Some(match (&remote.source, &mut remote.sink) {
                (Some(source), _) => Task::CopyTo(to, there, Range::new(source, 0, bytes)),
                (None, sink) => Task::CopyFrom(to, there, Range::new(sink.as_mut()?, 0, bytes)),
            });
        }
        let fence = fence(&self.targets, remote);
        let Place { key, offset } = place;
        let mut payload = Payload::Nothing;
        let (kind, args) = match (remote.rma, &remote.source) {
            (RmaOp::Put { end, signal }, Some(source)) => {
                payload = Payload::Source(Range::new(source, 0, remote.total));
                let op = if end == PutEnd::Local { 0 } else { id.0 };
                let flags = fence | if signal.is_some() { SIGNAL } else { 0 };
                let Signal { port, word } = signal.unwrap_or_default();
                (Kind::Put, [op, flags, u64::from(port), word])
            }
            (RmaOp::Atomic(what, _), _) => {
                payload = Payload::Bytes(&remote.values);
                (Kind::Atomic, [id.0, fence | what.to_bits(), 0, 0])
            }
            // A flush waits for earlier accesses anyway, without a fence.
            (RmaOp::Flush(_), _) => {
                let flush = Outgoing::new(Kind::Flush, Args::new(&[id.0]), payload, id);
                return Some(Task::Send(to, flush));
            }
            (RmaOp::Put { .. } | RmaOp::Get, _) => return None,
        };
        let [op, flags, a, b] = args;
        let args = Args::trimmed(&[key.key, key.salt, offset, op, flags, a, b]);
        Some(Task::Send(to, Outgoing::new(kind, args, payload, id)))
    }

    /// Handles the outcome of that task; returns the task to do in its place.
    pub(crate) fn remote_did(&mut self, to: u32, id: OpId, did: Did) -> Option<Waiting> {
        let remote = self.ops.remote(id)?;
        if core::mem::take(&mut remote.direct) {
            return self.direct_did(to, id, did);
        }
        // A death ends the operation.
        if matches!(did, Did::Done | Did::Lent) {
            remote.stage = match remote.rma {
                RmaOp::Put {
                    end: PutEnd::Local, ..
                } => RemoteStage::Answered(Ok(())),
                _ => RemoteStage::Left,
            };
            remote.lent += u32::from(did == Did::Lent);
            if did == Did::Done {
                let values = core::mem::take(&mut remote.values);
                self.keep_vector(values);
            }
            self.has_asked(to, id);
            self.end_answered(id);
        }
        None
    }

    fn direct_did(&mut self, to: u32, id: OpId, did: Did) -> Option<Waiting> {
        let (remote, target) = (self.ops.remote(id)?, self.targets.get_mut(&to)?);
        let get = remote.rma == RmaOp::Get;
        let local = matches!(
            remote.rma,
            RmaOp::Put {
                end: PutEnd::Local,
                ..
            }
        );
        let result = match did {
            Did::Done => Ok(()),
            // The next flush reports this, as for a put that went by a message.
            Did::Refused(why) if local => {
                target.silent += 1;
                target.fault.get_or_insert(why);
                Ok(())
            }
            Did::Refused(why) => Err(why),
            _ if get => {
                self.ask_for_all(id);
                return None;
            }
            _ => {
                target.silent += u64::from(local);
                return Some(Waiting::Remote(id));
            }
        };
        self.end_remote(id, result);
        if get {
            self.pass_fences(to);
        }
        None
    }

    /// Argument words of one request of a get.
    pub(crate) fn ask_args(&mut self, id: OpId, at: u64, bytes: u64) -> Option<Args> {
        let remote = self.ops.remote(id)?;
        let flags = fence(&self.targets, remote) | bytes;
        let Place { key, offset } = remote.place;
        let args = [key.key, key.salt, offset, remote.total, id.0, at, flags];
        Some(Args::trimmed(&args))
    }

    /// Notes that a message of an operation has left: only the first one behind a fence has the
    /// flag.
    pub(crate) fn has_asked(&mut self, to: u32, id: OpId) {
        if let (Some(remote), Some(target)) = (self.ops.remote(id), self.targets.get_mut(&to)) {
            target.sent = target.sent.max(remote.epoch);
        }
    }

    /// Ends an operation that was answered and whose memory is not read any more.
    pub(crate) fn end_answered(&mut self, id: OpId) {
        if let Some(remote) = self.ops.remote(id)
            && remote.lent == 0
            && let RemoteStage::Answered(result) = remote.stage
        {
            self.end_remote(id, result);
        }
    }

    pub(crate) fn end_remote(&mut self, id: OpId, result: Result<(), OpError>) {
        let Some(remote) = self.ops.remote(id) else {
            return;
        };
        let (to, counted) = (remote.to, remote.counted);
        let got = remote.rma == RmaOp::Get && remote.stage != RemoteStage::Waiting;
        self.ops.end(id, result);
        if counted && let Some(target) = self.targets.get_mut(&to) {
            target.open -= 1;
            target.gets -= u64::from(got);
            if target.is_quiet() {
                self.targets.remove(&to);
            }
        }
    }
}

/// [`FENCE`] if the next message towards the target is the first one behind a fence, else 0.
fn fence<S, K>(targets: &BTreeMap<u32, TargetState>, remote: &Remote<S, K>) -> u64 {
    match targets.get(&remote.to) {
        Some(target) if remote.epoch > target.sent => FENCE,
        _ => 0,
    }
}
