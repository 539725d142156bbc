//! How operations on matched messages and on others' memory begin.

use portolan_exchange::{
    CounterId, MessageId, Notify, OpId, QueueId, Selector, SendOptions as TaggedOptions,
    SendRefused,
};

use super::memory::{Gather, Scatter};
use super::{Exchange, Kind, MATCHED, options};
use crate::clock::Clock;
use crate::engine::Engine;
use crate::error::{Death, Misuse, SendError};
use crate::lanes::Lane;
use crate::network::Network;
use crate::shm::{ShmFailure, ShmLane};

impl<N: Network, C: Clock> Engine<N, C> {
    /// Sends a short message whole, by shared memory and at once. False: go
    /// the usual way, which also says what is wrong.
    #[inline(always)]
    pub fn push_now(&mut self, rank: u32, tag: u64, payload: &[u8]) -> bool {
        let Self {
            core,
            matched,
            shm: Some(ShmLane { link, tx, .. }),
            ..
        } = self
        else {
            return false;
        };
        let Some(Lane::Shm(to)) = core.lanes.get(rank) else {
            return false;
        };
        let bytes = payload.len() as u64;
        if core.closing
            || payload.len() > tx.inline_max(1)
            || !matched.exchange.may_push_whole(rank, bytes)
        {
            return false;
        }
        let port = MATCHED + Kind::Eager as u16;
        let sent = tx.send(
            &mut link.outlet(),
            to,
            port,
            &options(Kind::Eager, &[tag]),
            payload,
        );
        match sent {
            Ok(_) => {
                core.counters.sent += 1;
                core.counters.bytes_sent += bytes;
                true
            }
            Err(e) => {
                core.counters.no_credit += u64::from(e == ShmFailure::Full);
                matched.exchange.unpush(rank, bytes);
                false
            }
        }
    }

    /// Begins a send.
    pub fn post_tagged(
        &mut self,
        rank: u32,
        tag: u64,
        o: &TaggedOptions,
        from: Gather,
    ) -> Result<OpId, (SendError, Gather)> {
        // Of a closed endpoint that is told first.
        if !self.core.closing
            && let Err(m) = self.check_notify(o.notify)
        {
            return Err((m.into(), from));
        }
        let bytes = portolan_exchange::Source::len(&from);
        let posted = self.reach(rank, from, |x, from| x.post_send(rank, tag, o, from))?;
        self.core.counters.sent += 1;
        self.core.counters.bytes_sent += bytes;
        Ok(posted)
    }

    /// Begins an operation towards a rank.
    pub fn reach<M>(
        &mut self,
        rank: u32,
        memory: M,
        begin: impl FnOnce(&mut Exchange, M) -> Result<OpId, (SendRefused, M)>,
    ) -> Result<OpId, (SendError, M)> {
        if self.core.closing {
            return Err((Misuse::Closed.into(), memory));
        }
        if let Some(Lane::Dead(why)) = self.core.lanes.get(rank) {
            return Err((SendError::PeerDead { rank, why }, memory));
        }
        self.touch(rank);
        let begun = self.tell(|x| begin(x, memory));
        begun.map_err(|(e, memory)| {
            let e = match e {
                SendRefused::BadRank => Misuse::BadRank.into(),
                SendRefused::TooLong => SendError::TooLong,
                SendRefused::PeerDead => SendError::PeerDead {
                    rank,
                    why: self.core.lanes.dead(rank).unwrap_or(Death::Silent),
                },
            };
            (e, memory)
        })
    }

    /// Begins a receive that the caller waits for, where that is the only one.
    /// Gives the memory back where it is not, or cannot be begun.
    #[inline(always)]
    pub fn post_inline(&mut self, selector: &Selector, into: Scatter) -> Result<(), Scatter> {
        if self.core.closing {
            return Err(into);
        }
        self.matched.exchange.post_inline(selector, into)?;
        if let Some(rank) = selector.source
            && self.core.lanes.peer(rank).is_some()
        {
            self.touch(rank);
            self.tell(|_| {});
        }
        Ok(())
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_receive(
        &mut self,
        selector: &Selector,
        into: Scatter,
        notify: Notify,
    ) -> Result<OpId, Misuse> {
        if self.core.closing {
            return Err(Misuse::Closed);
        }
        self.check_notify(notify)?;
        if let Some(rank) = selector.source {
            self.core.lanes.get(rank).ok_or(Misuse::BadRank)?;
            self.touch(rank);
        }
        Ok(self.tell(|x| x.post_receive(selector, into, notify)))
    }

    /// # Errors
    /// [`Misuse::NoSuchQueue`].
    pub fn check_queue(&mut self, queue: QueueId) -> Result<(), Misuse> {
        let there = self.matched.exchange.has_queue(queue);
        there.then_some(()).ok_or(Misuse::NoSuchQueue)
    }

    /// # Errors
    /// [`Misuse::NoSuchCounter`].
    pub fn check_counter(&mut self, counter: CounterId) -> Result<(), Misuse> {
        let count = self.matched.exchange.count(counter);
        count.map(drop).ok_or(Misuse::NoSuchCounter)
    }

    /// The queue and the counter that are named must be there.
    pub fn check_notify(&mut self, notify: Notify) -> Result<(), Misuse> {
        if let Some(queue) = notify.queue {
            self.check_queue(queue)?;
        }
        match notify.counter {
            Some(counter) => self.check_counter(counter),
            None => Ok(()),
        }
    }

    /// # Errors
    /// [`Misuse::NoSuchMessage`], [`Misuse::Closed`].
    pub fn check_claimed(&mut self, message: &MessageId) -> Result<(), Misuse> {
        if self.core.closing {
            return Err(Misuse::Closed);
        }
        let claimed = self.matched.exchange.is_claimed(message);
        claimed.then_some(()).ok_or(Misuse::NoSuchMessage)
    }

    /// Tells the exchange something, and lets what it sends leave.
    pub fn with_exchange<R>(&mut self, act: impl FnOnce(&mut Exchange) -> R) -> R {
        self.touch_any();
        self.tell(act)
    }

    /// The same, where the clock was read if that is needed.
    #[inline]
    fn tell<R>(&mut self, act: impl FnOnce(&mut Exchange) -> R) -> R {
        let (core, matched, mut out) = self.parts();
        if core.has_news() {
            core.tell_news(matched);
        }
        let result = act(&mut matched.exchange);
        core.work(matched, &mut out);
        self.flush();
        result
    }
}
