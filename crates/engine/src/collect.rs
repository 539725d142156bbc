//! Calls that several ranks make together.

use portolan_core::{
    BARRIER, BROADCAST, Broadcast, Death, Epoch, Group, Misuse, PORTS_RESERVED, ROUNDS, SendError,
    SendOptions, WaitError,
};
use portolan_sys::clock::now_ns;
use portolan_wire::{ARGS_MAX, MessageNo};

use crate::describe::{ANYBODY, Call, Waiting};
use crate::endpoint::Endpoint;
use crate::state::State;

/// Up to so many receivers the root sends to each itself; beyond, a tree is
/// faster whatever the message's length.
const LINEAR_MAX: usize = 3;

/// A barrier that has waited so long for a rank asks it for a sign of life, ns.
const KNOCK_AFTER_NS: u64 = 200_000_000;

/// Who is dead, and why, if anybody is.
type DeadPeer = Option<(u32, Death)>;

impl Endpoint {
    /// Waits until every rank of the job has come here.
    ///
    /// # Errors
    /// [`WaitError::PeerDead`] when one is dead.
    pub fn barrier(&self) -> Result<(), WaitError> {
        self.barrier_of(&Group::world(self.size()))
    }

    /// Waits until every member of a group, of which this rank is one, has
    /// come here. Across hosts by dissemination, ⌈log2 n⌉ rounds; on one host
    /// the first member gathers the others and lets them go: the same time
    /// where each has a core, and where they take turns on one, two turns of
    /// each instead of one for every round.
    ///
    /// A member that has died and come back counts: the barriers of its groups
    /// begin anew with it.
    ///
    /// # Errors
    /// [`WaitError::PeerDead`] when a member is dead; also when it is back, if
    /// neither a wait nor a barrier has told of its death before, for those who
    /// come here with us may have begun anew. [`Misuse::BadRank`] when this rank
    /// is no member.
    pub fn barrier_of(&self, group: &Group) -> Result<(), WaitError> {
        let ranks = group.ranks();
        let me = self.rank();
        let at = ranks.iter().position(|r| *r == me).ok_or(Misuse::BadRank)?;
        let mut s = self.enter()?;
        if let Some((rank, why)) = s.core.lanes.returns.untold(ranks) {
            s.core.lanes.returns.tell_all();
            return Err(WaitError::PeerDead { rank, why });
        }
        let turn = s.core.lanes.returns.turn_of(ranks);
        let epoch = s.core.barriers.begin(group.id(), turn);
        let gathers = (3..ROUNDS).contains(&ranks.len()) && s.core.lanes.all_near(ranks);
        drop(s);
        let dead = if gathers {
            self.gather(group, at, epoch)?
        } else {
            self.disseminate(group, at, epoch)?
        };
        if self.helper.is_none() && dead.is_none() {
            // Others still wait for what we said; should the program make no
            // further call, it would never leave (a connection may be under
            // way only).
            let why = Waiting::of(Call::Barrier, ANYBODY);
            self.wait_loop(self.enter()?, None, true, why, |s| {
                s.has_left().then_some(())
            })?;
        }
        match dead {
            None => Ok(()),
            Some((rank, why)) => {
                let mut s = self.enter()?;
                s.core.lanes.returns.tell_all();
                // Whoever tries until it succeeds must hear of it.
                s.begin();
                s.attend();
                s.end();
                s.rethrow();
                Err(WaitError::PeerDead { rank, why })
            }
        }
    }

    /// In round k each member tells the one 2^k places further. Gives who is
    /// dead, if that is why it cannot end.
    fn disseminate(&self, group: &Group, at: usize, epoch: Epoch) -> Result<DeadPeer, WaitError> {
        let ranks = group.ranks();
        let (mut step, mut round) = (1, 0);
        let mut dead = None;
        while step < ranks.len() {
            let to = ranks[(at + step) % ranks.len()];
            let from = ranks[(at + ranks.len() - step) % ranks.len()];
            self.say_round(group, to, round, epoch, dead)?;
            if dead.is_none() {
                // The rest is told, so that nobody waits in vain.
                dead = self.await_round(group, from, round, epoch)?.err();
            }
            step *= 2;
            round += 1;
        }
        Ok(dead)
    }

    /// Member k tells the first one in round k, which tells all in round 0.
    fn gather(&self, group: &Group, at: usize, epoch: Epoch) -> Result<DeadPeer, WaitError> {
        let (first, others) = group.ranks().split_first().expect("three or more");
        if at > 0 {
            self.say_round(group, *first, at, epoch, None)?;
            return Ok(self.await_round(group, *first, 0, epoch)?.err());
        }
        let mut dead = None;
        for (from, round) in others.iter().zip(1..) {
            if dead.is_none() {
                dead = self.await_round(group, *from, round, epoch)?.err();
            }
        }
        for to in others {
            self.say_round(group, *to, 0, epoch, dead)?;
        }
        Ok(dead)
    }

    /// Tells a member that this rank has come to a round, or who is dead.
    fn say_round(
        &self,
        group: &Group,
        to: u32,
        round: usize,
        epoch: Epoch,
        dead: DeadPeer,
    ) -> Result<(), WaitError> {
        let failed = dead.map_or(0, |(rank, _)| u64::from(rank) + 1);
        let Epoch { turn, count } = epoch;
        let args = [group.id(), round as u64, count.into(), failed, turn.into()];
        let words = match (failed, turn) {
            (0, 0) => 3,
            (_, 0) => 4,
            _ => 5,
        };
        self.say_barrier(to, &args[..words])
    }

    fn await_round(
        &self,
        group: &Group,
        from: u32,
        round: usize,
        epoch: Epoch,
    ) -> Result<Result<(), (u32, Death)>, WaitError> {
        let met = |s: &mut State| s.core.barrier_met(group, from, round, epoch);
        let deadline = now_ns().saturating_add(KNOCK_AFTER_NS);
        let why = Waiting::of(Call::Barrier, from);
        match self.wait_loop(self.enter()?, Some(deadline), true, why, met) {
            Err(WaitError::TimedOut) => {}
            result => return result,
        }
        // If it is gone and never spoke to us, nothing else would tell: a
        // message to it fails when nobody answers.
        self.say_barrier(from, &[group.id(), ROUNDS as u64, epoch.count.into()])?;
        self.wait_loop(self.enter()?, None, true, why, met)
    }

    /// Tells a member something of a barrier. Nothing is owed to the dead:
    /// whoever has closed has been there, or its other neighbours tell.
    fn say_barrier(&self, to: u32, args: &[u64]) -> Result<(), WaitError> {
        let o = SendOptions {
            args,
            ..SendOptions::default()
        };
        match self.say(to, BARRIER, &o, &[]) {
            Ok(()) | Err(SendError::PeerDead { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Sends a message to the port of every rank in `to` (this one too, if it
    /// is among them), along a tree from four receivers on: ranks on the way
    /// pass it on within their progress. Its sender is this rank everywhere.
    /// Broadcasts of one root to the same ranks and flow keep order among each
    /// other, but not with other messages.
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
        if port >= PORTS_RESERVED {
            return Err(Misuse::ReservedPort.into());
        }
        if options.args.len() > ARGS_MAX {
            return Err(SendError::TooManyArgs);
        }
        if to.iter().any(|r| *r >= self.size()) {
            return Err(Misuse::BadRank.into());
        }
        let me = self.rank();
        if to.contains(&me) {
            self.send_with(me, port, options, payload)?;
        }
        let others: Vec<u32> = to.iter().copied().filter(|r| *r != me).collect();
        if others.len() <= LINEAR_MAX {
            return others
                .iter()
                .try_for_each(|r| self.send_with(*r, port, options, payload).map(drop));
        }
        let args: Vec<u8> = options.args.iter().flat_map(|a| a.to_le_bytes()).collect();
        let ranks: Vec<u8> = others.iter().flat_map(|r| r.to_le_bytes()).collect();
        let turn = self.enter()?.core.lanes.returns.turn();
        let children = Broadcast {
            root: me,
            turn,
            port,
            flow: options.flow,
            priority: options.priority,
            number: MessageNo(0),
            args: &args,
            ranks: &ranks,
            payload,
        }
        .children();
        let o = SendOptions {
            flow: options.flow,
            priority: options.priority,
            args: &[],
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
            s.touch_any();
            let (core, mut out) = s.split();
            if core.closing {
                return Some(Err(Misuse::Closed.into()));
            }
            let sent = core.send_any(&mut out, rank, port, o, payload);
            s.flush();
            match sent {
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
