//! What the exchange asks of the engine: to carry, to locate, to copy.

use portolan_exchange::{FetchError, Host, OpId, Outgoing, Push, Refusal, Sent, Source as _};
use portolan_proto::Release;
use portolan_sys::process::CopyError;

use super::memory::{Gather, Scatter};
use super::{MATCHED, options};
use crate::core::Core;
use crate::error::{Death, SendError};
use crate::lanes::Lane;
use crate::ops::Teller;
use crate::ways::Ways;

/// The engine without the exchange.
pub(crate) struct Carrier<'a> {
    pub core: &'a mut Core,
    pub ways: &'a mut dyn Ways,
}

const fn refusal(e: SendError) -> Refusal {
    match e {
        SendError::NoCredit => Refusal::NoRoom,
        // The rest cannot be; whoever waits for it learns of the death.
        _ => Refusal::Dead,
    }
}

impl Host for Carrier<'_> {
    type Source = Gather;
    type Sink = Scatter;

    #[inline]
    fn send(&mut self, to: u32, m: &Outgoing<'_>) -> Result<(), Refusal> {
        let port = MATCHED + m.kind as u16;
        let sent = (self.core).send_any(self.ways, to, port, &options(m.kind, m.args), &[]);
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
        let Self { core, ways } = self;
        let port = MATCHED + m.kind as u16;
        let options = options(m.kind, m.args);
        // A message lies in memory, so its length fits that.
        let (from, len) = (at as usize, bytes as usize);
        if len <= core.inline_max(*ways, to, m.args.len()) {
            let sent = if let Some(slice) = source.slice(from, len) {
                core.send_any(*ways, to, port, &options, slice)
            } else {
                let mut scratch = std::mem::take(&mut core.matched.scratch);
                scratch.resize(len, 0);
                source.read(at, &mut scratch);
                let sent = core.send_any(*ways, to, port, &options, &scratch);
                core.matched.scratch = scratch;
                sent
            };
            return sent.map(|_| Sent::Copied).map_err(refusal);
        }
        let lent = source.lend(from, len);
        let teller = Teller::Matched(op);
        let release = Release::Copied;
        let begun = core.begin(*ways, to, port, &options, lent, teller, 0, release);
        begun.map(|_| Sent::Lent).map_err(|(e, _)| refusal(e))
    }

    fn push(&self, to: u32) -> Push {
        self.core.matched.push_to(self.core.lanes.get(to))
    }

    fn locate(&mut self, to: u32, source: &Gather) -> Option<u64> {
        let Some(Lane::Shm(index)) = self.core.lanes.get(to) else {
            return None;
        };
        let bytes = usize::try_from(source.len()).ok()?;
        let whole = source.slice(0, bytes)?;
        self.ways
            .shm_may_copy(index)
            .then_some(whole.as_ptr() as u64)
    }

    fn await_peer(&mut self, rank: u32) {
        if let Some(Lane::Net(peer)) = self.core.lanes.get(rank) {
            self.ways.net_await(peer);
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
            return Err(FetchError::Gone);
        };
        let mut next = address;
        for piece in into.pieces(at as usize, bytes as usize) {
            match self.ways.shm_copy_from(index, next, piece) {
                Ok(()) => next += piece.len() as u64,
                Err(CopyError::NotPermitted) => return Err(FetchError::NotPermitted),
                Err(_) => {
                    // It closed or died, or lent us memory that it does not have.
                    self.core.suspects.push((from, Death::Ended));
                    self.core.attention = true;
                    return Err(FetchError::Gone);
                }
            }
        }
        Ok(())
    }
}
