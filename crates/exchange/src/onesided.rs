//! The initiator's side of one-sided memory: puts, gets, atomic operations,
//! flushes, fences.
//!
//! What order there is: operations towards one rank may be executed in any,
//! but for atomic ones, which are executed in the order in which they were
//! begun. Short puts are too; a long one arrives in parts, and a long get is
//! asked for in parts. Who needs an order between two operations puts a fence
//! between them, or waits for the first one's end.
//!
//! What the host can do directly is done at once, and so only where nothing
//! begun before may still be under way by messages: it would be overtaken.

use crate::exchange::{Exchange, Waiting};
use crate::host::{DirectError, Host, Outgoing, Refusal, Sent, Sink, Source};
use crate::kind::{FENCE, Kind, SIGNAL, SWAP};
use crate::ops::{Body, Notify, OpError, OpId};
use crate::remote::{Place, PutEnd, PutOptions, Remote, RemoteStage, RmaOp};
use crate::send::SendRefused;

impl<S: Source, K: Sink> Exchange<S, K> {
    /// Writes `source` to another rank's memory. The target checks key,
    /// rights and bounds before anything is written.
    ///
    /// # Errors
    /// [`SendRefused`], with the memory; nothing was begun.
    pub fn put(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
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
        let memory = (Some(source), None);
        Ok(self.begin(host, to, place, total, rma, memory, options.notify))
    }

    /// Fills `sink` from another rank's memory. If it fails part of `sink` may
    /// have been written.
    ///
    /// # Errors
    /// [`SendRefused`], with the memory; nothing was begun.
    pub fn get(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        from: u32,
        place: Place,
        sink: K,
        notify: Notify,
    ) -> Result<OpId, (SendRefused, K)> {
        let total = sink.len();
        if let Err(why) = self.may_begin(from, total) {
            return Err((why, sink));
        }
        Ok(self.begin(
            host,
            from,
            place,
            total,
            RmaOp::Get,
            (None, Some(sink)),
            notify,
        ))
    }

    /// Adds to the 64-bit little-endian number at a place, without carry out
    /// of it. The offset is a multiple of 8; the completion's `data` is what
    /// was there before. It is atomic among operations of this kind and
    /// [`Exchange::compare_swap`]; accesses by the target's own program it
    /// does not know.
    ///
    /// # Errors
    /// [`SendRefused`]; nothing was begun.
    pub fn fetch_add(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        to: u32,
        place: Place,
        add: u64,
        notify: Notify,
    ) -> Result<OpId, SendRefused> {
        self.may_begin(to, 8)?;
        Ok(self.begin(
            host,
            to,
            place,
            8,
            RmaOp::FetchAdd(add),
            (None, None),
            notify,
        ))
    }

    /// Replaces the 64-bit little-endian number at a place by `new` if it is
    /// `expected`. Else as [`Exchange::fetch_add`].
    ///
    /// # Errors
    /// [`SendRefused`]; nothing was begun.
    pub fn compare_swap(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        to: u32,
        place: Place,
        expected: u64,
        new: u64,
        notify: Notify,
    ) -> Result<OpId, SendRefused> {
        self.may_begin(to, 8)?;
        let rma = RmaOp::CompareSwap { expected, new };
        Ok(self.begin(host, to, place, 8, rma, (None, None), notify))
    }

    /// Ends when all puts and atomic operations towards a rank that were begun
    /// before it are visible there. It fails as the first of those puts did
    /// that end by [`PutEnd::Local`] and that no flush has told of.
    ///
    /// # Errors
    /// [`SendRefused`]; nothing was begun.
    pub fn flush(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        to: u32,
        notify: Notify,
    ) -> Result<OpId, SendRefused> {
        self.may_begin(to, 0)?;
        let place = Place::default();
        Ok(self.begin(host, to, place, 0, RmaOp::Flush(0), (None, None), notify))
    }

    /// One-sided operations towards a rank that are begun after this are
    /// executed after those that were begun before it. It does not wait.
    pub fn fence(&mut self, to: u32) {
        if let Some(target) = self.targets.get_mut(&to) {
            target.epoch += 1;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one place for all operations")]
    fn begin(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        to: u32,
        place: Place,
        total: u64,
        rma: RmaOp,
        (source, sink): (Option<S>, Option<K>),
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
            to,
            place,
            total,
            stage: RemoteStage::Waiting,
            counted: !itself,
            epoch,
            lent: 0,
            chunk: self.config.pull_chunk.max(1),
            asked: 0,
            came: 0,
            answered: 0,
            asks: 0,
            fault: None,
            found: None,
        };
        let id = self.ops.insert(Body::Remote(remote), notify, 0, None);
        if itself {
            self.in_turn(host, to, id);
        } else if let Some(target) = self.targets.get_mut(&to) {
            target.held.push_back(id);
            host.await_peer(to);
            self.pass_fences(host, to);
        }
        id
    }

    /// Launches what no fence holds up. A get's answer may be read from the
    /// target's memory late: only that it is here lets others past a fence.
    pub(crate) fn pass_fences(&mut self, host: &mut impl Host<Source = S, Sink = K>, to: u32) {
        while let Some(target) = self.targets.get_mut(&to)
            && let Some(&id) = target.held.front()
        {
            if let Some(remote) = self.ops.remote(id) {
                if remote.epoch > target.launched && target.gets > 0 {
                    return;
                }
                target.launched = remote.epoch;
                target.held.pop_front();
                self.launch(host, to, id);
            } else {
                target.held.pop_front();
            }
        }
    }

    fn launch(&mut self, host: &mut impl Host<Source = S, Sink = K>, to: u32, id: OpId) {
        // Nothing is overtaken. What waited behind a fence did so for messages.
        let target = self.targets.get(&to);
        let alone = target.is_some_and(|target| target.has_one() && target.epoch == 0);
        if alone && self.try_direct(host, id) {
            return;
        }
        let (Some(remote), Some(target)) = (self.ops.remote(id), self.targets.get_mut(&to)) else {
            return;
        };
        match &mut remote.rma {
            RmaOp::Get => {
                target.gets += 1;
                remote.stage = RemoteStage::Left;
                let total = remote.total;
                self.pulls.wait(total, id);
                self.ask(host);
                return;
            }
            RmaOp::Put { end, .. } => target.silent += u64::from(*end == PutEnd::Local),
            RmaOp::Flush(silent) => {
                *silent = target.silent;
                if target.has_one() {
                    self.end_remote(id, Ok(()));
                    return;
                }
            }
            RmaOp::FetchAdd(_) | RmaOp::CompareSwap { .. } => {}
        }
        self.in_turn(host, to, id);
    }

    /// Sends an operation, or executes one on this rank, after those that wait.
    fn in_turn(&mut self, host: &mut impl Host<Source = S, Sink = K>, to: u32, id: OpId) {
        if self.waits_for(to, Kind::Put) || self.send_remote(host, id) == Err(Refusal::NoRoom) {
            self.put_off(to, Waiting::Remote(id));
        }
    }

    /// Does it by the host's own hand, if that can. True if it has ended.
    fn try_direct(&mut self, host: &mut impl Host<Source = S, Sink = K>, id: OpId) -> bool {
        let Some(remote) = self.ops.remote(id) else {
            return true;
        };
        let (to, place) = (remote.to, remote.place);
        let done = match (remote.rma, &remote.source, &mut remote.sink) {
            // The target itself has to look for the port, before any byte is there.
            (
                RmaOp::Put {
                    signal: Some(_), ..
                },
                ..,
            ) => return false,
            (_, Some(source), _) => host.direct_put(to, &place, source),
            (_, None, Some(sink)) => host.direct_get(to, &place, sink),
            (_, None, None) => return false,
        };
        match done {
            Err(DirectError::NotPossible) => return false,
            Err(DirectError::Refused(why)) => {
                let local = matches!(
                    remote.rma,
                    RmaOp::Put {
                        end: PutEnd::Local,
                        ..
                    }
                );
                match self.targets.get_mut(&to).filter(|_| local) {
                    // The next flush tells, as of one that went by a message.
                    Some(target) => {
                        target.silent += 1;
                        target.fault.get_or_insert(why);
                        self.end_remote(id, Ok(()));
                    }
                    None => self.end_remote(id, Err(why)),
                }
            }
            Ok(()) => self.end_remote(id, Ok(())),
        }
        true
    }

    /// Sends the one message of an operation other than a get.
    pub(crate) fn send_remote(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
    ) -> Result<(), Refusal> {
        let Some(remote) = self.ops.remote(id) else {
            return Ok(());
        };
        let (to, epoch) = (remote.to, remote.epoch);
        if to == self.config.rank {
            return self.execute(host, id);
        }
        let fence = match self.targets.get(&to) {
            Some(target) if epoch > target.sent => FENCE,
            _ => 0,
        };
        let Place { key, offset } = remote.place;
        let mut sent = Sent::Copied;
        let mut stage = RemoteStage::Left;
        match (remote.rma, &remote.source) {
            (RmaOp::Put { end, signal }, Some(source)) => {
                let mut op = id.0;
                if end == PutEnd::Local {
                    stage = RemoteStage::Answered(Ok(()));
                    op = 0;
                }
                let told = signal.unwrap_or_default();
                let flags = fence | if signal.is_some() { SIGNAL } else { 0 };
                let bytes = remote.total;
                let port = u64::from(told.port);
                let args = [key.key, key.salt, offset, op, flags, port, told.word];
                let out = Outgoing {
                    kind: Kind::Put,
                    args: trimmed(&args),
                };
                sent = host.send_from(to, &out, source, 0, bytes, id)?;
            }
            (RmaOp::FetchAdd(add), _) => {
                let args = [key.key, key.salt, offset, id.0, fence, add];
                send_control(host, to, Kind::Atomic, &args)?;
            }
            (RmaOp::CompareSwap { expected, new }, _) => {
                let args = [key.key, key.salt, offset, id.0, fence | SWAP, new, expected];
                send_control(host, to, Kind::Atomic, &args)?;
            }
            // It waits for what is before it anyway.
            (RmaOp::Flush(_), _) => send_control(host, to, Kind::Flush, &[id.0])?,
            (RmaOp::Put { .. } | RmaOp::Get, _) => return Ok(()),
        }
        remote.stage = stage;
        remote.lent += u32::from(sent == Sent::Lent);
        self.has_left(to, epoch);
        self.end_answered(id);
        Ok(())
    }

    /// Sends one request of a get.
    pub(crate) fn send_ask(
        &mut self,
        host: &mut impl Host<Source = S, Sink = K>,
        id: OpId,
        at: u64,
        bytes: u64,
    ) -> Result<(), Refusal> {
        let Some(remote) = self.ops.remote(id) else {
            return Ok(());
        };
        let (to, epoch) = (remote.to, remote.epoch);
        let fence = match self.targets.get(&to) {
            Some(target) if epoch > target.sent => FENCE,
            _ => 0,
        };
        let Place { key, offset } = remote.place;
        let total = remote.total;
        let args = [key.key, key.salt, offset, total, id.0, at, fence | bytes];
        send_control(host, to, Kind::Get, &args)?;
        self.has_left(to, epoch);
        Ok(())
    }

    /// The first message behind a fence says so; others come after it.
    fn has_left(&mut self, to: u32, epoch: u64) {
        if let Some(target) = self.targets.get_mut(&to) {
            target.sent = target.sent.max(epoch);
        }
    }

    /// Ends an operation that was answered, and whose memory nobody reads.
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

/// Sends words without payload.
pub(crate) fn send_control(
    host: &mut impl Host,
    to: u32,
    kind: Kind,
    args: &[u64],
) -> Result<(), Refusal> {
    let args = trimmed(args);
    host.send(to, &Outgoing { kind, args })
}

/// Zeros at the end need not travel.
fn trimmed(args: &[u64]) -> &[u64] {
    let used = args.iter().rposition(|word| *word != 0);
    &args[..used.map_or(0, |last| last + 1)]
}
