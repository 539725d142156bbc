//! Beginning operations on matched messages and on others' memory.

use portolan_exchange::{
    CounterId, Kind, MessageId, Notify, OpId, QueueId, Selector, SendOptions as TaggedOptions,
    SendRefused,
};

use portolan_proto::Release;
use portolan_wire::MessageNo;

use super::{Engine, Io};
use crate::environment::{Clock, Network};
use crate::lanes::Lane;
use crate::matched::{Exchange, Gather, Scatter, options};
use crate::outbound::ShmFailure;
use crate::shm::ShmLane;
use crate::values::{Death, Misuse, PortId, SendError, SendOptions, SpaceId};

impl<N: Network, C: Clock> Engine<N, C> {
    /// Sends a short message whole, by shared memory and at once. False: take the usual path,
    /// which also reports errors.
    #[inline(always)]
    pub fn push_now(
        &mut self,
        space: SpaceId,
        rank: u32,
        tag: u64,
        data: Option<u64>,
        payload: &[u8],
    ) -> bool {
        let Self {
            core,
            io:
                Io {
                    matched,
                    shm: Some(ShmLane { link, tx, .. }),
                    ..
                },
            ..
        } = self
        else {
            return false;
        };
        let Some(Lane::Shm(to)) = core.lanes.get(rank) else {
            return false;
        };
        let bytes = payload.len() as u64;
        let args = [tag, data.unwrap_or(0)];
        let args = &args[..1 + usize::from(data.is_some())];
        let exchange = &mut matched.of(space).exchange;
        if core.is_over(space)
            || payload.len() > tx.inline_max(args.len())
            || !exchange.may_push_whole(rank, bytes)
        {
            return false;
        }
        let (port, o) = options(space, Kind::Eager, args);
        let sent = tx.send(&mut link.outlet(), to, port, &o, payload);
        match sent {
            Ok(_) => {
                core.count_sent(o.flow, bytes);
                true
            }
            Err(e) => {
                core.counters.no_credit += u64::from(e == ShmFailure::Full);
                exchange.unpush(rank, bytes);
                false
            }
        }
    }

    /// Begins to send a matched message.
    pub fn post_tagged(
        &mut self,
        space: SpaceId,
        rank: u32,
        tag: u64,
        o: &TaggedOptions,
        from: Gather,
    ) -> Result<OpId, (SendError, Gather)> {
        // `Closed` is reported before a bad queue.
        if !self.core.is_over(space)
            && let Err(m) = self.check_notify(space, o.notify)
        {
            return Err((m.into(), from));
        }
        let bytes = portolan_exchange::Source::len(&from);
        let posted = self.reach(space, rank, from, |x, from| x.post_send(rank, tag, o, from))?;
        self.core.count_sent(space.first_flow(), bytes);
        Ok(posted)
    }

    /// Begins to send a message to a port: see [`crate::CoreState::post_message`].
    ///
    /// # Errors
    /// [`SendError`], with the memory; nothing was queued.
    pub fn post_message(
        &mut self,
        to: (u32, PortId),
        o: &SendOptions<'_>,
        from: Gather,
        release: Release,
    ) -> Result<(OpId, MessageNo), (SendError, Gather)> {
        self.touch_any();
        let (core, mut on) = self.parts();
        let posted = core.post_message(&mut on, to, o, from, release);
        self.flush_or_gather();
        posted
    }

    /// Begins an operation towards a rank.
    pub fn reach<M>(
        &mut self,
        space: SpaceId,
        rank: u32,
        memory: M,
        begin: impl FnOnce(&mut Exchange, M) -> Result<OpId, (SendRefused, M)>,
    ) -> Result<OpId, (SendError, M)> {
        if self.core.is_over(space) {
            return Err((Misuse::Closed.into(), memory));
        }
        if let Some(Lane::Dead(why)) = self.core.lanes.get(rank) {
            return Err((SendError::PeerDead { rank, why }, memory));
        }
        self.update_clock(rank);
        let begun = self.tell(space, |x| begin(x, memory));
        begun.map_err(|(e, memory)| {
            let e = match e {
                SendRefused::BadRank => Misuse::BadRank.into(),
                SendRefused::TooLong => SendError::TooLong,
                SendRefused::BadAtomic => Misuse::BadAtomic.into(),
                SendRefused::PeerDead => SendError::PeerDead {
                    rank,
                    why: self.core.lanes.ended(rank, space).unwrap_or(Death::Silent),
                },
            };
            (e, memory)
        })
    }

    /// Begins a receive that the caller waits for, if it is the only one. Returns the memory if
    /// it is not, or cannot be begun.
    #[inline(always)]
    pub fn post_inline(
        &mut self,
        space: SpaceId,
        selector: &Selector,
        into: Scatter,
    ) -> Result<(), Scatter> {
        if self.core.is_over(space) {
            return Err(into);
        }
        self.exchange(space).post_inline(selector, into)?;
        if let Some(rank) = selector.source
            && self.core.lanes.peer(rank).is_some()
        {
            self.update_clock(rank);
            self.tell(space, |_| {});
        }
        Ok(())
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_receive(
        &mut self,
        space: SpaceId,
        selector: &Selector,
        into: Scatter,
        notify: Notify,
    ) -> Result<OpId, Misuse> {
        self.may_receive(space, selector, notify)?;
        Ok(self.tell(space, |x| x.post_receive(selector, into, notify)))
    }

    /// Posts a receive of many messages, whose completions go to a queue.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_receive_many(
        &mut self,
        space: SpaceId,
        selector: &Selector,
        into: Scatter,
        room_min: u64,
        notify: Notify,
    ) -> Result<OpId, Misuse> {
        self.may_receive(space, selector, notify)?;
        notify.queue.ok_or(Misuse::NoSuchQueue)?;
        Ok(self.tell(space, |x| {
            x.post_receive_many(selector, into, room_min, notify)
        }))
    }

    fn may_receive(
        &mut self,
        space: SpaceId,
        selector: &Selector,
        notify: Notify,
    ) -> Result<(), Misuse> {
        if self.core.is_over(space) {
            return Err(Misuse::Closed);
        }
        self.check_notify(space, notify)?;
        if let Some(rank) = selector.source {
            self.core.lanes.get(rank).ok_or(Misuse::BadRank)?;
            self.update_clock(rank);
        }
        Ok(())
    }

    /// # Errors
    /// [`Misuse::NoSuchQueue`].
    pub fn check_queue(&mut self, space: SpaceId, queue: QueueId) -> Result<(), Misuse> {
        let there = self.exchange(space).has_queue(queue);
        there.then_some(()).ok_or(Misuse::NoSuchQueue)
    }

    /// # Errors
    /// [`Misuse::NoSuchCounter`].
    pub fn check_counter(&mut self, space: SpaceId, counter: CounterId) -> Result<(), Misuse> {
        let count = self.exchange(space).count(counter);
        count.map(drop).ok_or(Misuse::NoSuchCounter)
    }

    /// Checks that the named queue and counter exist.
    ///
    /// # Errors
    /// As [`crate::Matched::check_notify`].
    pub fn check_notify(&mut self, space: SpaceId, notify: Notify) -> Result<(), Misuse> {
        self.io.matched.check_notify(space, notify)
    }

    /// # Errors
    /// [`Misuse::NoSuchMessage`], [`Misuse::Closed`].
    pub fn check_claimed(&mut self, space: SpaceId, message: &MessageId) -> Result<(), Misuse> {
        if self.core.is_over(space) {
            return Err(Misuse::Closed);
        }
        let claimed = self.exchange(space).is_claimed(message);
        claimed.then_some(()).ok_or(Misuse::NoSuchMessage)
    }

    /// Returns the exchange of an open space.
    #[inline(always)]
    pub fn exchange(&mut self, space: SpaceId) -> &mut Exchange {
        &mut self.io.matched.of(space).exchange
    }

    /// Runs `act` on the exchange of a space, and transmits what it sends.
    pub fn with_exchange<R>(&mut self, space: SpaceId, act: impl FnOnce(&mut Exchange) -> R) -> R {
        self.touch_any();
        self.tell(space, act)
    }

    /// Runs `act`; the caller has read the clock if needed.
    #[inline]
    fn tell<R>(&mut self, space: SpaceId, act: impl FnOnce(&mut Exchange) -> R) -> R {
        let (core, mut on) = self.parts();
        if core.has_news() {
            core.tell_news(on.matched);
        }
        let result = act(&mut on.matched.of(space).exchange);
        core.work(&mut on, space);
        self.flush_or_gather();
        result
    }
}
