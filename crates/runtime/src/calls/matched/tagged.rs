//! The program's calls on matched messages.

use std::time::Duration;

use portolan_engine::{Buffer, Gather, Misuse, Scatter, SendError, SpaceId, WaitError};
use portolan_exchange::{
    BYTES_MAX, Completion, InlineReceive, Memory, MessageId, Notify, OpId, Probed, Selector,
    SendOptions as TaggedOptions,
};
use portolan_ring::LentMut;
use portolan_sys::clock::now_ns;

use super::completion::{Ended, check};
use crate::sleep::{ANYBODY, Call, Waiting};
use crate::space::{Guard, Space};
use crate::state::State;

impl State {
    fn take_both(
        &mut self,
        space: SpaceId,
        id: OpId,
    ) -> Option<(Completion, Option<Memory<Gather, Scatter>>)> {
        self.exchange(space).take(id)
    }

    /// Takes an ended operation without its memory: lent memory is not returned.
    #[inline]
    fn finish_end(&mut self, space: SpaceId, id: OpId) -> Option<(Completion, ())> {
        Some((self.exchange(space).finish(id)?, ()))
    }

    pub(in crate::calls) fn take_end(&mut self, space: SpaceId, id: OpId) -> Option<Ended> {
        let (completion, memory) = self.exchange(space).take(id)?;
        Some(Ended { completion, memory })
    }
}

impl Space {
    /// Sends a message to be matched by `tag`. Returns when the bytes are yours again: a short
    /// message has left, or a long one has arrived at its receiver. Makes progress and runs
    /// handlers meanwhile.
    ///
    /// # Errors
    /// [`WaitError::PeerDead`], [`WaitError::TooLong`],
    /// [`WaitError::Misuse`].
    #[inline]
    pub fn send_tagged(&self, rank: u32, tag: u64, payload: &[u8]) -> Result<(), WaitError> {
        let mut s = self.enter()?;
        if s.push_now(self.id, rank, tag, None, payload) {
            s.end();
            return Ok(());
        }
        self.send_tagged_waiting(s, rank, tag, &TaggedOptions::default(), payload)
    }

    /// As [`Space::send_tagged`], with options; only the result reports its end.
    ///
    /// # Errors
    /// As [`Space::send_tagged`].
    pub fn send_tagged_with(
        &self,
        rank: u32,
        tag: u64,
        options: &TaggedOptions,
        payload: &[u8],
    ) -> Result<(), WaitError> {
        let options = TaggedOptions {
            notify: Notify::default(),
            ..*options
        };
        self.send_tagged_waiting(self.enter()?, rank, tag, &options, payload)
    }

    #[cold]
    fn send_tagged_waiting(
        &self,
        s: Guard<'_>,
        rank: u32,
        tag: u64,
        options: &TaggedOptions,
        payload: &[u8],
    ) -> Result<(), WaitError> {
        // SAFETY: the operation has ended, and with it every use of this
        // memory, before this function returns or unwinds: the wait ends with
        // its end only, and a handler's panic waits for that as well.
        let from = unsafe { Gather::lent(payload.as_ptr(), payload.len()) };
        let (done, ()) = self.send_and_wait(s, rank, tag, options, from, State::finish_end)?;
        check(&done, self.enter()?.death(rank, self.id))
    }

    /// As [`Space::send_tagged_with`], from several pieces of memory; returns them, and how it
    /// ended.
    ///
    /// # Errors
    /// As [`Space::send_tagged_with`], if nothing was started.
    pub fn send_pieces(
        &self,
        rank: u32,
        tag: u64,
        options: &TaggedOptions,
        from: impl Into<Gather>,
    ) -> Result<Ended, WaitError> {
        let options = TaggedOptions {
            notify: Notify::default(),
            ..*options
        };
        let s = self.enter()?;
        let ended = self.send_and_wait(s, rank, tag, &options, from.into(), State::take_both);
        ended.map(|(completion, memory)| Ended { completion, memory })
    }

    /// `end`: takes an operation that has ended, with its memory or without.
    fn send_and_wait<M>(
        &self,
        mut s: Guard<'_>,
        rank: u32,
        tag: u64,
        options: &TaggedOptions,
        from: Gather,
        end: impl Fn(&mut State, SpaceId, OpId) -> Option<(Completion, M)>,
    ) -> Result<(Completion, M), WaitError> {
        let posted = s.post_tagged(self.id, rank, tag, options, from.waiting());
        let id = posted.map_err(|(e, _)| e)?;
        let why = Waiting::of(Call::Send, rank);
        // Without a deadline only misuse is left: the endpoint was closed, and
        // with it all operations.
        self.wait_loop(s, None, false, why, |s| end(s, self.id, id))
    }

    /// Receives the first message that matches `selector`, in `into`. Makes progress and runs
    /// handlers meanwhile.
    ///
    /// # Errors
    /// - [`WaitError::Truncated`]: the message was longer; its beginning is there.
    /// - [`WaitError::PeerDead`]: the sender died. A receive from any rank reports this once for
    ///   each peer whose process dies: call again to wait for others.
    /// - [`WaitError::Misuse`].
    #[inline]
    pub fn receive_tagged(
        &self,
        selector: &Selector,
        into: &mut [u8],
    ) -> Result<Completion, WaitError> {
        // SAFETY: as for sends, the operation has ended before this function
        // returns or unwinds; `into` is borrowed until then.
        let lent = Buffer::of(unsafe { LentMut::new(into.as_mut_ptr(), into.len()) });
        let mut s = self.enter()?;
        let done = match s.post_inline(self.id, selector, lent.into()) {
            Ok(()) => self.wait_standing(s, selector)?,
            Err(lent) => {
                self.receive_and_wait(s, selector, lent, State::finish_end)?
                    .0
            }
        };
        if done.result.is_ok() {
            return Ok(done);
        }
        check(&done, self.enter()?.death(done.peer, self.id)).map(|()| done)
    }

    /// As [`Space::receive_tagged`], in several pieces of memory; returns them, and how it ended,
    /// also for a message that was too long.
    ///
    /// # Errors
    /// - [`WaitError::PeerDead`]: for a receive from any rank, as in [`Space::receive_tagged`].
    /// - [`WaitError::Misuse`].
    #[inline]
    pub fn receive_pieces(
        &self,
        selector: &Selector,
        into: impl Into<Scatter>,
    ) -> Result<Ended, WaitError> {
        let s = self.enter()?;
        let ended = self.receive_and_wait(s, selector, into.into(), State::take_both);
        ended.map(|(completion, memory)| Ended { completion, memory })
    }

    /// Waits for the posted inline receive.
    #[inline]
    fn wait_standing(&self, s: Guard<'_>, selector: &Selector) -> Result<Completion, WaitError> {
        let why = Waiting::of(Call::Receive, selector.source.unwrap_or(ANYBODY));
        let mut became = None;
        self.wait_loop(s, None, false, why, |s| {
            let x = &mut s.exchange(self.id);
            match x.poll_inline() {
                Some(InlineReceive::Ended(done, _)) => return Some(Ok(done)),
                Some(InlineReceive::Became(op)) => became = Some(op),
                Some(InlineReceive::Waits(_)) | None => {}
            }
            if let Some(op) = became {
                return x.finish(op).map(Ok);
            }
            if selector.source.is_none()
                && s.core.lanes.has_reports()
                && let Some(died) = s.report(self.id)
            {
                s.exchange(self.id).withdraw_inline();
                return Some(Err(died));
            }
            None
        })?
    }

    /// `end`: takes an operation that has ended, with its memory or without.
    fn receive_and_wait<M>(
        &self,
        mut s: Guard<'_>,
        selector: &Selector,
        into: Scatter,
        end: impl Fn(&mut State, SpaceId, OpId) -> Option<(Completion, M)>,
    ) -> Result<(Completion, M), WaitError> {
        let id = s.post_receive(self.id, selector, into, Notify::default())?;
        let why = Waiting::of(Call::Receive, selector.source.unwrap_or(ANYBODY));
        let mut report = None;
        let ended = self.wait_loop(s, None, false, why, |s| {
            if let Some(ended) = end(s, self.id, id) {
                return Some(ended);
            }
            if selector.source.is_none()
                && report.is_none()
                && s.core.lanes.has_reports()
                && s.core.events.is_empty()
            {
                report = s.core.lanes.next_report(self.id);
                // A message that is arriving already is received.
                if report.is_some() && s.exchange(self.id).cancel(id) {
                    return end(s, self.id, id);
                }
            }
            None
        })?;
        if let (Some((rank, why)), Err(_)) = (report, ended.0.result) {
            return Err(WaitError::PeerDead { rank, why });
        }
        Ok(ended)
    }

    /// Starts to send a message to be matched by `tag`.
    ///
    /// # Errors
    /// [`SendError::PeerDead`], [`SendError::TooLong`], [`SendError::Misuse`], with the memory;
    /// nothing was started.
    pub fn post_send(
        &self,
        rank: u32,
        tag: u64,
        options: &TaggedOptions,
        from: impl Into<Gather>,
    ) -> Result<OpId, (SendError, Gather)> {
        let from = from.into();
        let mut s = match self.enter() {
            Ok(s) => s,
            Err(m) => return Err((m.into(), from)),
        };
        let posted = s.post_tagged(self.id, rank, tag, options, from);
        s.end();
        posted
    }

    /// As [`Space::post_send`] of a copy: `payload` is yours again on return. For short messages;
    /// it never waits. Only [`Notify`] reports its end.
    ///
    /// # Errors
    /// As [`Space::post_send`].
    #[inline]
    pub fn inject_tagged(
        &self,
        rank: u32,
        tag: u64,
        options: &TaggedOptions,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let mut s = self.enter()?;
        let Notify {
            queue,
            counter,
            only_errors,
            ..
        } = options.notify;
        let nobody_hears = counter.is_none() && (queue.is_none() || only_errors);
        if nobody_hears && !options.sync && s.push_now(self.id, rank, tag, options.data, payload) {
            s.end();
            return Ok(());
        }
        if payload.len() as u64 > BYTES_MAX {
            return Err(SendError::TooLong);
        }
        let posted = s.post_tagged(self.id, rank, tag, options, payload.to_vec().into());
        let id = posted.map_err(|(e, _)| e)?;
        if queue.is_none() {
            s.exchange(self.id).forget_end(id);
        }
        s.end();
        Ok(())
    }

    /// Posts a receive: it takes the message that matches `selector` and arrived, or arrives,
    /// first.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn post_receive(
        &self,
        selector: &Selector,
        into: impl Into<Scatter>,
        notify: Notify,
    ) -> Result<OpId, Misuse> {
        let mut s = self.enter()?;
        let id = s.post_receive(self.id, selector, into.into(), notify)?;
        s.end();
        Ok(id)
    }

    /// Posts a receive that takes many messages: those that match `selector`, one behind the other
    /// without gaps, until less than `room_min` bytes are left, at least 1. A message longer than
    /// what is left is truncated.
    ///
    /// Each message has a completion as that of a receive, in the queue of `notify`, in the order
    /// in which they are complete: [`Completion::op`] is this receive, and [`Completion::at`] where
    /// in the memory the message begins. After all of them the receive itself ends, as
    /// [`Action::ReceiveMany`](crate::Action::ReceiveMany), and the memory is returned. After
    /// [`Space::cancel`] it takes no more.
    ///
    /// # Errors
    /// [`Misuse`]: [`Misuse::NoSuchQueue`] also where `notify` names none.
    pub fn post_receive_many(
        &self,
        selector: &Selector,
        into: impl Into<Scatter>,
        room_min: u64,
        notify: Notify,
    ) -> Result<OpId, Misuse> {
        let mut s = self.enter()?;
        let id = s.post_receive_many(self.id, selector, into.into(), room_min, notify)?;
        s.end();
        Ok(id)
    }

    /// Cancels a receive that no message has matched; it ends as cancelled. Returns false if one
    /// has, or if it is a send: then it goes on. A receive of many messages takes no more, and ends
    /// as cancelled when those that it has taken have ended.
    ///
    /// # Errors
    /// [`WaitError::NoSuchOperation`], [`WaitError::Misuse`].
    pub fn cancel(&self, op: OpId) -> Result<bool, WaitError> {
        let mut s = self.enter()?;
        let state = &mut s.exchange(self.id);
        if state.is_done(op).is_none() {
            return Err(WaitError::NoSuchOperation);
        }
        let cancelled = state.cancel(op);
        s.end();
        Ok(cancelled)
    }

    /// As [`Space::cancel`], for an unmatched receive whose [`Notify::context`] is `context`;
    /// returns false if there is none. Its time is linear in the number of operations.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn cancel_named(&self, context: u64) -> Result<bool, Misuse> {
        let mut s = self.enter()?;
        let cancelled = s.exchange(self.id).cancel_named(context);
        s.end();
        Ok(cancelled)
    }

    /// Returns how an operation ended, and its memory, after one pass of progress if need be;
    /// `None` while it has not ended. `op` is void once its end was returned.
    ///
    /// # Errors
    /// [`WaitError::NoSuchOperation`], [`WaitError::Misuse`].
    pub fn poll_op(&self, op: OpId) -> Result<Option<Ended>, WaitError> {
        let mut s = self.enter()?;
        match s.exchange(self.id).is_done(op) {
            None => return Err(WaitError::NoSuchOperation),
            Some(true) => return Ok(s.take_end(self.id, op)),
            Some(false) => {}
        }
        s.begin();
        s.pass();
        let ended = s.take_end(self.id, op);
        s.end();
        s.rethrow();
        Ok(ended)
    }

    /// Waits until an operation has ended, for `limit` at most, if there is
    /// one. Makes progress and runs handlers.
    ///
    /// # Errors
    /// [`WaitError::NoSuchOperation`], [`WaitError::TimedOut`], [`WaitError::Misuse`];
    /// [`WaitError::PeerDead`] once for each peer whose process dies while a receive from any rank
    /// is waited for: the receive goes on.
    pub fn wait_end(&self, op: OpId, limit: Option<Duration>) -> Result<Ended, WaitError> {
        let s = self.enter()?;
        let why = Waiting::of(Call::Operation, ANYBODY);
        self.wait_loop(s, limit.map(deadline), true, why, |s| {
            match s.exchange(self.id).is_done(op) {
                None => return Some(Err(WaitError::NoSuchOperation)),
                Some(true) => return s.take_end(self.id, op).map(Ok),
                Some(false) => {}
            }
            s.report_to(self.id, op).map(Err)
        })?
    }

    /// Waits until an operation has ended, as [`Space::wait_end`] without a limit, and returns an
    /// error if it failed. Its memory is then freed.
    ///
    /// # Errors
    /// As [`Space::wait_end`]; [`WaitError::PeerDead`], [`WaitError::Refused`] or
    /// [`WaitError::Truncated`] if it ended so.
    pub fn wait(&self, op: OpId) -> Result<Ended, WaitError> {
        let ended = self.wait_end(op, None)?;
        let peer = ended.completion.peer;
        check(&ended.completion, self.enter()?.death(peer, self.id))?;
        Ok(ended)
    }

    /// Whether an operation has ended, without making progress.
    ///
    /// # Errors
    /// [`WaitError::NoSuchOperation`], [`WaitError::Misuse`].
    pub fn has_ended(&self, op: OpId) -> Result<bool, WaitError> {
        let ended = self.enter()?.exchange(self.id).is_done(op);
        ended.ok_or(WaitError::NoSuchOperation)
    }

    /// Drops the result and the memory of an operation. One in flight stays known until it ends.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn forget(&self, op: OpId) -> Result<(), Misuse> {
        self.enter()?.exchange(self.id).forget_end(op);
        Ok(())
    }

    /// Returns the message that a receive with this selector would take, after one pass of progress
    /// if there is none yet. The message stays.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn probe(&self, selector: &Selector) -> Result<Option<Probed>, Misuse> {
        self.after_a_pass(|s| s.exchange(self.id).probe(selector))
    }

    /// Takes the message out that a receive with this selector would take, after one pass of
    /// progress if there is none yet: it then waits for [`Space::receive_claimed`] or
    /// [`Space::discard`], and no other receive sees it.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn claim(&self, selector: &Selector) -> Result<Option<(MessageId, Probed)>, Misuse> {
        self.after_a_pass(|s| s.exchange(self.id).claim(selector))
    }

    pub(super) fn after_a_pass<R>(
        &self,
        look: impl Fn(&mut State) -> Option<R>,
    ) -> Result<Option<R>, Misuse> {
        let mut s = self.enter()?;
        if let Some(found) = look(&mut s) {
            return Ok(Some(found));
        }
        s.begin();
        s.pass();
        let found = look(&mut s);
        s.end();
        s.rethrow();
        Ok(found)
    }

    /// Receives a claimed message.
    ///
    /// # Errors
    /// [`Misuse::NoSuchMessage`], and other [`Misuse`]: nothing was done, the
    /// message is still claimed.
    pub fn receive_claimed(
        &self,
        message: MessageId,
        into: impl Into<Scatter>,
        notify: Notify,
    ) -> Result<OpId, Misuse> {
        let mut s = self.enter()?;
        s.check_claimed(self.id, &message)?;
        s.check_notify(self.id, notify)?;
        let into = into.into();
        let id = s.with_exchange(self.id, |x| x.receive_claimed(message, into, notify));
        s.end();
        Ok(id)
    }

    /// Discards a claimed message.
    ///
    /// # Errors
    /// [`Misuse::NoSuchMessage`], and other [`Misuse`].
    pub fn discard(&self, message: MessageId) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        s.check_claimed(self.id, &message)?;
        s.with_exchange(self.id, |x| x.discard(message, Vec::new().into()));
        s.end();
        Ok(())
    }
}

pub(super) fn deadline(limit: Duration) -> u64 {
    now_ns().saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX))
}

impl State {
    /// Returns a death that ends waits which may depend on any rank.
    pub(super) fn report(&mut self, space: SpaceId) -> Option<WaitError> {
        // Error callbacks come first, so that they can say which rank it was.
        if !self.core.lanes.has_reports() || !self.core.events.is_empty() {
            return None;
        }
        let (rank, why) = self.core.lanes.next_report(space)?;
        Some(WaitError::PeerDead { rank, why })
    }

    /// As [`State::report`], if an operation is a receive from any rank.
    fn report_to(&mut self, space: SpaceId, op: OpId) -> Option<WaitError> {
        if self.exchange(space).is_from_anybody(op) {
            self.report(space)
        } else {
            None
        }
    }
}
