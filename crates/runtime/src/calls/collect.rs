//! Collective calls.

use portolan_engine::{
    BROADCAST, BarrierCall, DeadPeer, Group, Misuse, PORTS_RESERVED, Progress, SendError,
    SendOptions, WaitError, broadcast_head_bytes,
};
use portolan_exchange::BYTES_MAX;
use portolan_sys::clock::now_ns;
use portolan_wire::ARGS_MAX;

use crate::sleep::{ANYBODY, Call, Waiting};
use crate::space::Space;

/// Number of receivers up to which the root sends to each itself; beyond, a tree is faster whatever
/// the message's length.
const LINEAR_MAX: usize = 3;

/// Wait for a rank after which a barrier asks it for a sign of life, ns.
const KNOCK_AFTER_NS: u64 = 200_000_000;

impl Space {
    /// Waits until every rank of the job has reached the barrier.
    ///
    /// # Errors
    /// [`WaitError::PeerDead`] when a rank is dead.
    pub fn barrier(&self) -> Result<(), WaitError> {
        self.barrier_of(&Group::world(self.size()))
    }

    /// Waits until every member of a group, of which this rank is one, has reached the barrier: see
    /// [`BarrierCall`].
    ///
    /// A member that has died and come back counts: the barriers of its groups
    /// begin anew with it.
    ///
    /// # Errors
    /// [`WaitError::PeerDead`] when a member is dead; also when it is back, if no wait or barrier
    /// has reported its death yet, for members that are here with us may have begun anew.
    /// [`Misuse::BadRank`] when this rank is no member.
    pub fn barrier_of(&self, group: &Group) -> Result<(), WaitError> {
        self.check_job()?;
        let mut call = self.enter()?.core.begin_barrier(&group.within(self.id))?;
        let dead = self.await_barrier(&mut call)?;
        if !self.inner.helped && dead.is_none() {
            // Others still wait for what we sent. If the program made no further call, it would
            // never leave (a connection may only be under way).
            let why = Waiting::of(Call::Barrier, ANYBODY);
            self.wait_loop(self.enter()?, None, true, why, |s| {
                s.has_left().then_some(())
            })?;
        }
        match dead {
            None => Ok(()),
            Some((rank, why)) => {
                let mut s = self.enter()?;
                let why = s.how_ended(rank, why);
                s.core.lanes.tell_all();
                // A caller that retries until it succeeds must learn that the rank is back.
                s.begin();
                s.poll_rare_events();
                s.end();
                s.rethrow();
                Err(WaitError::PeerDead { rank, why })
            }
        }
    }

    fn await_barrier(&self, call: &mut BarrierCall) -> Result<DeadPeer, WaitError> {
        let (mut from, mut knock_at) = (ANYBODY, None);
        loop {
            let why = Waiting::of(Call::Barrier, from);
            let polled = self.wait_loop(self.enter()?, knock_at, true, why, |s| {
                s.take_part(|core, out| call.poll(core, out)).transpose()
            });
            match polled {
                Ok(Ok(Progress::Over(dead))) => return Ok(dead),
                Ok(Ok(Progress::Awaits(rank))) => {
                    from = rank;
                    knock_at = Some(now_ns().saturating_add(KNOCK_AFTER_NS));
                }
                Ok(Err(e)) => return Err(e.into()),
                Err(WaitError::TimedOut) => {
                    let knocked = self.enter()?.take_part(|core, out| call.knock(core, out));
                    let again = || now_ns().saturating_add(KNOCK_AFTER_NS);
                    knock_at = (!knocked?).then(again);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends a message to the port of every rank in `to` (this one too, if it is among them), along
    /// a tree from four receivers on: ranks on the way forward it in their progress. Receivers see
    /// this rank as the sender. Broadcasts of one root to the same ranks and flow keep order among
    /// each other, but not with other messages.
    ///
    /// # Errors
    /// [`SendError`], never [`SendError::NoCredit`]. Ranks before the failure
    /// may have been reached.
    pub fn broadcast(
        &self,
        to: &[u32],
        port: u16,
        options: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<(), SendError> {
        self.check_job()?;
        if port >= PORTS_RESERVED {
            return Err(Misuse::ReservedPort.into());
        }
        if options.args.len() > ARGS_MAX {
            return Err(Misuse::TooManyArgs.into());
        }
        if to.iter().any(|r| *r >= self.size()) {
            return Err(Misuse::BadRank.into());
        }
        let others: Vec<u32> = to.iter().copied().filter(|r| *r != self.rank()).collect();
        let by_tree = others.len() > LINEAR_MAX;
        let head = if by_tree {
            broadcast_head_bytes(options.args.len(), others.len())
        } else {
            0
        };
        // Before any rank is reached.
        if payload.len() as u64 > BYTES_MAX - head as u64 {
            return Err(SendError::TooLong);
        }
        let within = options.within(self.id)?;
        let me = self.rank();
        if to.contains(&me) {
            self.send_with(me, port, options, payload)?;
        }
        if !by_tree {
            return others
                .iter()
                .try_for_each(|r| self.send_with(*r, port, options, payload).map(drop));
        }
        let children = self
            .enter()?
            .core
            .broadcast_to(&others, port, &within, payload);
        let o = SendOptions {
            flow: within.flow,
            priority: within.priority,
            ..SendOptions::default()
        };
        for (rank, bytes) in children {
            self.say(rank, BROADCAST, &o, &bytes)?;
        }
        Ok(())
    }

    /// Sends to a reserved port; waits for credit.
    fn say(
        &self,
        rank: u32,
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Result<(), SendError> {
        let s = self.enter()?;
        let why = Waiting::of(Call::Broadcast, rank);
        let sent = self.wait_loop(s, None, true, why, |s| {
            if s.core.closing {
                return Some(Err(Misuse::Closed.into()));
            }
            match s.take_part(|core, out| core.send_any(out, rank, port, o, payload)) {
                Err(SendError::NoCredit) => None,
                result => Some(result.map(drop)),
            }
        });
        match sent {
            Ok(result) => result,
            Err(WaitError::Misuse(m)) => Err(m.into()),
            Err(_) => Err(Misuse::Closed.into()),
        }
    }
}
