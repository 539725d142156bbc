//! Completion queues and counters, and the settings that a program may change.

use std::time::Duration;

use portolan_engine::{Exchange, Misuse, SpaceId, WaitError};
use portolan_exchange::{Count, CounterId, Push, QueueId, Statistics};

use super::completion::Ended;
use super::tagged::deadline;
use crate::sleep::{ANYBODY, Call, Waiting};
use crate::space::Space;
use crate::state::State;

impl State {
    fn next_of(&mut self, space: SpaceId, queue: QueueId) -> Option<Ended> {
        let (completion, memory) = self.exchange(space).next_of(queue)?;
        Some(Ended { completion, memory })
    }
}

impl Space {
    /// Changes the exchange, and sends the messages that follow from it.
    fn tell(&self, act: impl FnOnce(&mut Exchange)) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        s.with_exchange(self.id, act);
        s.end();
        Ok(())
    }

    /// Creates a completion queue. It never drops a completion.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn open_queue(&self) -> Result<QueueId, Misuse> {
        Ok(self.enter()?.exchange(self.id).open_queue())
    }

    /// Closes a completion queue: completions that it holds, and later ones for it, are dropped.
    ///
    /// # Errors
    /// [`Misuse::NoSuchQueue`], and other [`Misuse`].
    pub fn close_queue(&self, queue: QueueId) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        s.check_queue(self.id, queue)?;
        s.exchange(self.id).close_queue(queue);
        Ok(())
    }

    /// Returns the oldest completion in a queue, after one pass of progress if it is empty.
    ///
    /// # Errors
    /// [`Misuse::NoSuchQueue`], and other [`Misuse`].
    pub fn next_completion(&self, queue: QueueId) -> Result<Option<Ended>, Misuse> {
        let next = self.after_a_pass(|s| match s.check_queue(self.id, queue) {
            Ok(()) => s.next_of(self.id, queue).map(Ok),
            Err(m) => Some(Err(m)),
        });
        next?.transpose()
    }

    /// Passes completions of a queue to `each`, the oldest first, after one pass of progress if it
    /// is empty: `most` at most, and until `each` returns false. Returns their number.
    ///
    /// # Errors
    /// As [`Space::next_completion`].
    pub fn each_completion(
        &self,
        queue: QueueId,
        most: usize,
        mut each: impl FnMut(Ended) -> bool,
    ) -> Result<usize, Misuse> {
        let mut s = self.enter()?;
        s.check_queue(self.id, queue)?;
        let mut take = |s: &mut State| {
            let mut taken = 0;
            while taken < most
                && let Some(ended) = s.next_of(self.id, queue)
            {
                taken += 1;
                if !each(ended) {
                    break;
                }
            }
            taken
        };
        let mut taken = take(&mut s);
        if taken == 0 {
            s.begin();
            s.pass();
            taken = take(&mut s);
            s.end();
            s.rethrow();
        }
        Ok(taken)
    }

    /// Whether a queue holds a completion, without making progress. A program checks this after
    /// [`Space::arm`], before it sleeps on [`Space::fd`]: the helper thread ends operations too.
    ///
    /// # Errors
    /// [`Misuse::NoSuchQueue`], and other [`Misuse`].
    pub fn has_completions(&self, queue: QueueId) -> Result<bool, Misuse> {
        let mut s = self.enter()?;
        s.check_queue(self.id, queue)?;
        Ok(s.exchange(self.id).has_completions(queue))
    }

    /// Waits for a completion in a queue, for `limit` at most, if there is one.
    ///
    /// # Errors
    /// [`WaitError::TimedOut`]; [`WaitError::PeerDead`] once for each peer
    /// whose process dies, for any operation may depend on it: call again to
    /// wait on; [`WaitError::Misuse`], [`Misuse::NoSuchQueue`] among it.
    pub fn wait_completion(
        &self,
        queue: QueueId,
        limit: Option<Duration>,
    ) -> Result<Ended, WaitError> {
        let mut s = self.enter()?;
        s.check_queue(self.id, queue)?;
        let why = Waiting::of(Call::Operation, ANYBODY);
        self.wait_loop(s, limit.map(deadline), true, why, |s| {
            if let Some(ended) = s.next_of(self.id, queue) {
                return Some(Ok(ended));
            }
            s.report(self.id).map(Err)
        })?
    }

    /// Creates a counter, at zero.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn open_counter(&self) -> Result<CounterId, Misuse> {
        Ok(self.enter()?.exchange(self.id).open_counter())
    }

    /// Closes a counter.
    ///
    /// # Errors
    /// [`Misuse::NoSuchCounter`], and other [`Misuse`].
    pub fn close_counter(&self, counter: CounterId) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        s.check_counter(self.id, counter)?;
        s.exchange(self.id).close_counter(counter);
        Ok(())
    }

    /// Returns what a counter has counted, after one pass of progress.
    ///
    /// # Errors
    /// [`Misuse::NoSuchCounter`], and other [`Misuse`].
    pub fn count(&self, counter: CounterId) -> Result<Count, Misuse> {
        self.counted(counter)?;
        self.progress()?;
        self.counted(counter)
    }

    /// As [`Space::count`], without a pass; checked after [`Space::arm`], as
    /// [`Space::has_completions`].
    ///
    /// # Errors
    /// As [`Space::count`].
    pub fn counted(&self, counter: CounterId) -> Result<Count, Misuse> {
        let count = self.enter()?.exchange(self.id).count(counter);
        count.ok_or(Misuse::NoSuchCounter)
    }

    /// Waits until a counter has counted `ended` operations in all, failed ones included, for
    /// `limit` at most, if there is one.
    ///
    /// # Errors
    /// As [`Space::wait_completion`], with [`Misuse::NoSuchCounter`].
    pub fn wait_count(
        &self,
        counter: CounterId,
        ended: u64,
        limit: Option<Duration>,
    ) -> Result<Count, WaitError> {
        let s = self.enter()?;
        let why = Waiting::of(Call::Operation, ANYBODY);
        self.wait_loop(s, limit.map(deadline), true, why, |s| {
            let Some(count) = s.exchange(self.id).count(counter) else {
                return Some(Err(Misuse::NoSuchCounter.into()));
            };
            if count.done.saturating_add(count.failed) >= ended {
                return Some(Ok(count));
            }
            s.report(self.id).map(Err)
        })?
    }

    /// Returns the push thresholds towards a rank: those of shared memory or of the network.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn push_to(&self, rank: u32) -> Result<Push, Misuse> {
        let mut s = self.enter()?;
        s.core.lanes.get(rank).ok_or(Misuse::BadRank)?;
        Ok(s.exchange(self.id).terms(rank).push)
    }

    /// Returns the push thresholds: by shared memory and to ourselves, and by the network.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn pushes(&self) -> Result<(Push, Push), Misuse> {
        let [shm, net] = self.enter()?.exchange(self.id).pushes();
        Ok((shm, net))
    }

    /// Sets the push thresholds from now on: by shared memory and to ourselves, and by the network.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn set_push(&self, shm: Push, net: Push) -> Result<(), Misuse> {
        self.tell(|x| x.set_pushes([shm, net]))
    }

    /// Sets the pushed buffer: the bytes that each sender may push here before a receive asks for
    /// them. `None`, the default: what one message pushes at most ([`Push::most`]), by this
    /// endpoint's own thresholds, plus an eighth; by the network the senders of the last long
    /// messages share that. At least [`portolan_exchange::PUSHED_MIN`], at most the sender's part
    /// of `pushed_bytes`; what was granted before stays granted until it is used.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn set_pushed_share(&self, bytes: Option<u64>) -> Result<(), Misuse> {
        self.tell(|x| x.set_pushed_share(bytes))
    }

    /// Returns how long messages are pulled: most bytes requested and not arrived, of all senders
    /// together, and bytes per request.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn pull_sizes(&self) -> Result<(u64, u64), Misuse> {
        Ok(self.enter()?.exchange(self.id).pull_sizes())
    }

    /// Sets what [`Space::pull_sizes`] returns, for later requests.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn set_pull_sizes(&self, window: u64, chunk: u64) -> Result<(), Misuse> {
        self.tell(|x| x.set_pull(window, chunk))
    }

    /// Returns the length from which both sides copy a message, bytes, between processes that can
    /// access each other's memory, if it is sent by a call that waits.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn share_min(&self) -> Result<u64, Misuse> {
        Ok(self.enter()?.exchange(self.id).share_min())
    }

    /// Sets that length, for messages that are sent or matched from now on. The sender's decides
    /// what is offered so, the receiver's what is copied so.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn set_share_min(&self, bytes: u64) -> Result<(), Misuse> {
        let mut s = self.enter()?;
        s.with_exchange(self.id, |x| x.set_share_min(bytes));
        Ok(())
    }

    /// Returns what the matched messages hold at this moment.
    ///
    /// # Errors
    /// [`Misuse`].
    pub fn statistics(&self) -> Result<Statistics, Misuse> {
        Ok(self.enter()?.exchange(self.id).statistics())
    }
}
