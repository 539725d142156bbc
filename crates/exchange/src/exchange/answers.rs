//! Answers of targets of one-sided operations. An answer that was not asked for is refused.

use super::Exchange;
use crate::state::{Dest, Remote, RemoteStage, RmaOp, of_status};
use crate::values::{Incoming, IncomingOutcome, OpError, OpId, PutEnd, Sink, Source, Words};

impl<S, K: Sink> Remote<S, K> {
    /// Stores the old values that an atomic operation found; empty if it fetches nothing.
    pub(crate) fn take_found(&mut self, found: &[u8]) {
        let RmaOp::Atomic(what, _) = self.rma else {
            return;
        };
        let mut word = [0; 8];
        if !found.is_empty() && what.count == 1 && found.len() <= word.len() {
            word[..found.len()].copy_from_slice(found);
            self.found = Some(u64::from_le_bytes(word));
        }
        if let Some(sink) = self.sink.as_mut().filter(|_| !found.is_empty()) {
            sink.write(0, found);
        }
    }

    /// Bytes of the next request of a get; `None`: no more requests.
    pub(crate) fn next_ask(&self) -> Option<u64> {
        let more = self.asked < self.total || (self.total == 0 && self.asks == 0);
        (more && self.fault.is_none()).then(|| (self.total - self.asked).min(self.chunk))
    }

    /// Bytes of the request of a get that is to be answered next, by `from`.
    fn next_answer(&self, from: u32) -> Option<u64> {
        let due = self.rma == RmaOp::Get
            && self.to == from
            && self.stage == RemoteStage::Left
            && self.asks > 0;
        due.then(|| (self.total - self.came).min(self.chunk))
    }
}

impl<S: Source, K: Sink> Exchange<S, K> {
    pub(crate) fn arrive_got(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let words = Words(m.args);
        let (id, at) = (OpId(words.or_zero(0)), words.or_zero(1));
        let Some(remote) = self.ops.remote(id) else {
            return IncomingOutcome::Refused;
        };
        if remote.next_answer(m.from) != Some(m.total) || at != remote.came {
            return IncomingOutcome::Refused;
        }
        remote.came += m.total;
        remote.asks -= 1;
        self.begin_part(m, Dest::Get(id), at, Some(m.total))
    }

    /// A request of a get was answered in full, or refused.
    pub(crate) fn got(&mut self, id: OpId, bytes: u64) {
        let Some(remote) = self.ops.remote(id) else {
            return;
        };
        remote.answered += bytes;
        let to = remote.to;
        self.pulls.came(to, bytes);
        let over = remote.fault.is_some() || remote.asked == remote.total;
        if over && remote.asks == 0 && remote.answered == remote.asked {
            let result = remote.fault.map_or(Ok(()), Err);
            self.end_remote(id, result);
            self.pass_fences(to);
        }
        self.ask();
    }

    pub(crate) fn arrive_result(&mut self, m: &Incoming<'_>) -> IncomingOutcome {
        let words = Words(m.args);
        let id = OpId(words.or_zero(0));
        let Some(result) = of_status(words.or_zero(1)) else {
            return IncomingOutcome::Refused;
        };
        let taken = match (id, result) {
            (OpId(0), Err(why)) if m.total == 0 => self.silent_failed(m.from, why),
            _ => self.take_result(m.from, id, result, m.payload),
        };
        if taken.is_some() {
            IncomingOutcome::Whole
        } else {
            IncomingOutcome::Refused
        }
    }

    /// Notes the failure of a put whose success is not reported.
    fn silent_failed(&mut self, from: u32, why: OpError) -> Option<()> {
        let target = self.targets.get_mut(&from)?;
        if target.silent == target.flushed {
            return None;
        }
        target.fault.get_or_insert(why);
        Some(())
    }

    fn take_result(
        &mut self,
        from: u32,
        id: OpId,
        result: Result<(), OpError>,
        found: &[u8],
    ) -> Option<()> {
        let remote = self.ops.remote(id)?;
        let due = match remote.rma {
            RmaOp::Atomic(what, _) if what.fetching && result.is_ok() => what.bytes(),
            _ => 0,
        };
        if remote.to != from || remote.stage != RemoteStage::Left || found.len() != due {
            return None;
        }
        match remote.rma {
            RmaOp::Put {
                end: PutEnd::Visible,
                ..
            } => remote.stage = RemoteStage::Answered(result),
            RmaOp::Atomic(..) => {
                remote.take_found(found);
                remote.stage = RemoteStage::Answered(result);
            }
            RmaOp::Flush(silent) => {
                result.ok()?;
                let target = self.targets.get_mut(&from)?;
                target.flushed = target.flushed.max(silent);
                let fault = target.fault.take();
                remote.stage = RemoteStage::Answered(fault.map_or(Ok(()), Err));
            }
            RmaOp::Get => {
                let bytes = remote.next_answer(from)?;
                let why = result.err()?;
                remote.came += bytes;
                remote.asks -= 1;
                remote.fault.get_or_insert(why);
                let left = remote.total - remote.asked;
                self.pulls.wait_no_more(self.config.number, left, id);
                self.got(id, bytes);
            }
            RmaOp::Put { .. } => return None,
        }
        self.end_answered(id);
        Some(())
    }
}
