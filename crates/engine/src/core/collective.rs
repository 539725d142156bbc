//! Messages between engines, on reserved ports: refusals of kept messages, barriers, broadcasts
//! along a tree, announcements of closing.

use portolan_exchange::Notify;
use portolan_proto::PeerId;
use portolan_wire::{MessageNo, Priority};

use super::ports::{HeldMessage, PortState};
use super::{Arrival, ArrivalOutcome, Core, CoreState, Finding};
use crate::groups::{Absence, Broadcast, Epoch, Group, ROUNDS, broadcast_meta};
use crate::lanes::Restarted;
use crate::matched::{FLOW_REQUESTS, Onward, request_flow};
use crate::outbound::Outbound;
use crate::values::{
    Charge, Death, Event, Meta, Misuse, PORTS_RESERVED, PortId, SPACES, SendError, SendOptions,
    SpaceId, WaitError,
};
use crate::waiting::Unsent;

/// A kept message was refused later: (priority and flow, number).
const REFUSED: u16 = PORTS_RESERVED;
/// A rank has reached a barrier: (group, round, epoch, 0, turn), or has found that it cannot
/// end: (group, round, epoch, word of an [`Absence`], turn). Trailing zeros may be omitted.
const BARRIER: u16 = PORTS_RESERVED + 1;
/// A broadcast: see [`Broadcast`].
pub const BROADCAST: u16 = PORTS_RESERVED + 2;
/// A rank has left a space: (its number). Sent behind all its messages in the space's flow, and
/// behind its barriers in theirs.
pub(crate) const LEFT: u16 = PORTS_RESERVED + 3;
/// A rank closes: (spaces in which it still holds messages, a bit for each; 1 if its whole
/// endpoint closes, 0 if spaces of it do).
pub(super) const CLOSING: u16 = PORTS_RESERVED + 4;

/// The dead rank and its cause of death, if any.
pub type DeadPeer = Option<(u32, Death)>;

/// What a member does next in a barrier.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Tells this member that we have reached a round, or which rank is dead.
    Say(u32, usize),
    /// Waits for this member's message of a round.
    Await(u32, usize),
}

/// How far a barrier has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Waits for this member.
    Awaits(u32),
    /// The barrier is over; in vain, if a rank is dead.
    Over(DeadPeer),
}

/// A barrier that this rank has reached. Across hosts by dissemination, ⌈log2 n⌉ rounds: in
/// round k each member tells the one 2^k places further. On one host the first member gathers
/// the others and releases them. That takes as long if each has a core; if they share one, each
/// runs twice instead of once for every round.
#[derive(Debug)]
pub struct BarrierCall {
    group: Group,
    /// Index of this rank in the group.
    at: usize,
    epoch: Epoch,
    gathers: bool,
    /// Number of steps done.
    done: usize,
    dead: DeadPeer,
    awaits: Option<usize>,
}

impl BarrierCall {
    fn step(&self) -> Option<Step> {
        let (ranks, at) = (self.group.ranks(), self.at);
        let n = ranks.len();
        let (half, second) = (self.done / 2, self.done % 2 == 1);
        if !self.gathers {
            let by = 1 << half;
            let step = match second {
                false => Step::Say(ranks[(at + by) % n], half),
                true => Step::Await(ranks[(at + n - by % n) % n], half),
            };
            return (by < n).then_some(step);
        }
        // Member k tells the first one in round k, which tells all in round 0.
        match (at, self.done) {
            (0, done) if done < n - 1 => Some(Step::Await(ranks[done + 1], done + 1)),
            (0, done) => ranks.get(done - (n - 1) + 1).map(|to| Step::Say(*to, 0)),
            (_, 0) => Some(Step::Say(ranks[0], at)),
            (_, 1) => Some(Step::Await(ranks[0], 0)),
            _ => None,
        }
    }

    /// Advances as far as possible. `None`: nothing has changed, or there is no credit.
    ///
    /// # Errors
    /// Errors of a send.
    pub fn poll(
        &mut self,
        core: &mut Core,
        out: &mut Outbound<'_>,
    ) -> Result<Option<Progress>, SendError> {
        loop {
            match self.step() {
                None => return Ok(Some(Progress::Over(self.dead))),
                Some(Step::Say(to, round)) => {
                    if !self.say(core, out, to, round)? {
                        return Ok(None);
                    }
                }
                // The remaining members are told, so that none waits in vain.
                Some(Step::Await(..)) if self.dead.is_some() => {}
                Some(Step::Await(from, round)) => {
                    match core.barrier_met(&self.group, from, round, self.epoch) {
                        Some(met) => self.dead = met.err(),
                        None if self.awaits == Some(self.done) => return Ok(None),
                        None => {
                            self.awaits = Some(self.done);
                            return Ok(Some(Progress::Awaits(from)));
                        }
                    }
                }
            }
            self.done += 1;
        }
    }

    /// Sends this rank's message of a round. False: there is no credit.
    fn say(
        &self,
        core: &mut Core,
        out: &mut Outbound<'_>,
        to: u32,
        round: usize,
    ) -> Result<bool, SendError> {
        let failed = self.dead.map_or(0, |(rank, why)| {
            let left = why == Death::Closed;
            Absence { rank, left }.word()
        });
        let Epoch { turn, count } = self.epoch;
        let args = [
            self.group.id(),
            round as u64,
            count.into(),
            failed,
            turn.into(),
        ];
        let words = match (failed, turn) {
            (0, 0) => 3,
            (_, 0) => 4,
            _ => 5,
        };
        core.say_barrier(out, self.group.space(), to, &args[..words])
    }

    /// Probes the member that is waited for. If it died before it ever contacted us, only an
    /// unanswered message shows that. False: there is no credit.
    ///
    /// # Errors
    /// Errors of a send.
    pub fn knock(&self, core: &mut Core, out: &mut Outbound<'_>) -> Result<bool, SendError> {
        match self.step() {
            Some(Step::Await(from, _)) => {
                let args = [self.group.id(), ROUNDS as u64, self.epoch.count.into()];
                core.say_barrier(out, self.group.space(), from, &args)
            }
            _ => Ok(true),
        }
    }
}

impl CoreState {
    /// Enters a group's next barrier.
    ///
    /// # Errors
    /// [`WaitError::PeerDead`] for a member that has died and is back, if no call has reported
    /// its death; [`Misuse::BadRank`] if this rank is no member.
    pub fn begin_barrier(&mut self, group: &Group) -> Result<BarrierCall, WaitError> {
        let ranks = group.ranks();
        let at = ranks.iter().position(|r| *r == self.rank);
        let at = at.ok_or(Misuse::BadRank)?;
        if let Some((rank, why)) = self.lanes.returns.untold(ranks) {
            self.lanes.tell_all();
            return Err(WaitError::PeerDead { rank, why });
        }
        let turn = self.lanes.returns.turn_of(ranks);
        let epoch = self.barriers.begin(group.id(), turn);
        Ok(BarrierCall {
            group: group.clone(),
            at,
            epoch,
            gathers: (3..ROUNDS).contains(&ranks.len()) && self.lanes.all_near(ranks),
            done: 0,
            dead: None,
            awaits: None,
        })
    }

    /// Sends a barrier message to a member. Nothing is owed to a dead one: if it closed, it has
    /// been here, or its other neighbours tell. False: there is no credit.
    fn say_barrier(
        &mut self,
        out: &mut Outbound<'_>,
        space: SpaceId,
        to: u32,
        args: &[u64],
    ) -> Result<bool, SendError> {
        if self.is_over(space) {
            return Err(Misuse::Closed.into());
        }
        // Not in a flow of the program: that may be stopped.
        let o = SendOptions {
            flow: FLOW_REQUESTS,
            args,
            ..SendOptions::default()
        };
        match self.send_any(out, to, BARRIER, &o, &[]) {
            Ok(_) | Err(SendError::PeerDead { .. }) => Ok(true),
            Err(SendError::NoCredit) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Core {
    /// Handles a message on a reserved port.
    pub(crate) fn arrive_internal(
        &mut self,
        on: &mut Onward<'_>,
        a: &Arrival<'_>,
    ) -> ArrivalOutcome {
        match a.meta.port {
            // Both name ranks of a job.
            BROADCAST | BARRIER if self.standalone() => return ArrivalOutcome::Refused,
            BROADCAST if !a.is_whole() || self.is_ahead(a.payload) => {
                return self.keep(a, Charge::Queued);
            }
            BROADCAST => return self.broadcast(on, a.meta.space(), a.payload),
            _ if !a.is_whole() => return ArrivalOutcome::Refused,
            _ => {}
        }
        let word = |i: usize| {
            a.args.get(8 * i..8 * i + 8).map_or(0, |w| {
                u64::from_le_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]])
            })
        };
        let epoch = Epoch {
            turn: word(4) as u32,
            count: word(2) as u32,
        };
        match a.meta.port {
            REFUSED => {
                let priority = if word(0) & 1 == 0 {
                    Priority::Request
                } else {
                    Priority::Reply
                };
                let flow = (word(0) >> 16) as u16;
                self.refused(a.meta.from, priority, flow, MessageNo(word(1) as u32));
            }
            BARRIER => match Absence::from_word(word(3)) {
                Some(missing) => self.barriers.fail(word(0), epoch, missing),
                None => self.barriers.arrive(word(0), word(1) as usize, epoch),
            },
            LEFT => match u32::try_from(word(0)).map(SpaceId::new) {
                Ok(Ok(space)) => self.peer_left(on, a.meta.from, a.meta.flow, space),
                _ => return ArrivalOutcome::Refused,
            },
            CLOSING => self.peer_closes(on, a.meta.from, word(0), word(1) != 0),
            _ => return ArrivalOutcome::Refused,
        }
        ArrivalOutcome::Whole
    }

    /// Handles the return of a dead rank. Messages of its earlier life that no handler has
    /// taken are dropped: they would be taken for the new one's.
    pub(crate) fn rejoin(&mut self, on: &mut Onward<'_>, it: &Restarted, peer: PeerId) {
        let rank = it.rank;
        log::info!("rank {}: rank {rank} is back: {}", self.rank, it.reason);
        self.forget_life(on, rank);
        self.lanes.set_back(it, peer);
        self.emit_to_all(Event::PeerBack { rank }, 0);
        for space in (0..SPACES).map(SpaceId::at) {
            let number = BROADCAST;
            let slot = self.ports.get(PortId { space, number });
            for held in slot
                .map(|slot| std::mem::take(&mut slot.held))
                .unwrap_or_default()
            {
                self.internal_whole(on, held);
            }
        }
    }

    /// Handles a long message on a reserved port that is complete.
    pub(crate) fn internal_whole(&mut self, on: &mut Onward<'_>, held: HeldMessage) {
        if self.is_ahead(&held.body) {
            self.hold(held, false);
            return;
        }
        let took = self.broadcast(on, held.meta.space(), &held.body);
        if took == ArrivalOutcome::NotNow
            && let Some(b) = Broadcast::parse(&held.body)
        {
            // Already in our memory and charged: it waits at its port.
            let meta = broadcast_meta(&b);
            let local = HeldMessage {
                meta,
                args: b.args.to_vec(),
                body: b.payload.to_vec(),
                in_buffer: None,
                placed: false,
                charge: held.charge,
                charged: 0,
            };
            self.forward(&mut on.out, &b);
            self.hold(local, false);
        }
        self.release(held);
    }

    /// Hands a broadcast to its port here and passes it on. On
    /// [`ArrivalOutcome::NotNow`] neither was done.
    fn broadcast(&mut self, on: &mut Onward<'_>, space: SpaceId, bytes: &[u8]) -> ArrivalOutcome {
        let Some(b) = Broadcast::parse(bytes) else {
            return ArrivalOutcome::Refused;
        };
        if b.port >= PORTS_RESERVED || b.root >= self.size || SpaceId::of_flow(b.flow) != space {
            return ArrivalOutcome::Refused;
        }
        let returns = &self.lanes.returns;
        if b.turn < returns.since(self.rank).max(returns.since(b.root)) {
            // Meant for our earlier life, or sent by an earlier life of its root.
            self.forward(&mut on.out, &b);
            return ArrivalOutcome::Whole;
        }
        let local = Arrival {
            meta: broadcast_meta(&b),
            args: b.args,
            total: b.payload.len() as u64,
            payload: b.payload,
        };
        match self.arrive_at_port(on, &local) {
            ArrivalOutcome::NotNow => return ArrivalOutcome::NotNow,
            ArrivalOutcome::Refused => self.refuse_kept(&mut on.out, &local.meta),
            ArrivalOutcome::Whole | ArrivalOutcome::Part(_) => {}
        }
        self.forward(&mut on.out, &b);
        ArrivalOutcome::Whole
    }
}

impl CoreState {
    /// Returns whether `from`'s message of a barrier round has come, or why it never will;
    /// `None`: not yet. A member that closes after it was here does no harm: what it sent
    /// before is read before its end is noticed.
    fn barrier_met(
        &mut self,
        group: &Group,
        from: u32,
        round: usize,
        epoch: Epoch,
    ) -> Option<Result<(), (u32, Death)>> {
        if let Some(outcome) = self.barriers.outcome(group.id(), round, epoch) {
            let reported = |Absence { rank, left }| {
                let said = if left { Death::Closed } else { Death::Ended };
                let lanes = &self.lanes;
                let known = lanes.dead(rank).or_else(|| lanes.returns.why(rank));
                (rank, known.unwrap_or(said))
            };
            return Some(outcome.map_err(reported));
        }
        let returns = &self.lanes.returns;
        if returns.turn_of(group.ranks()) > epoch.turn {
            // A member died and is back: its new life does not know of this barrier.
            return Some(Err(returns.latest(group.ranks())?));
        }
        if self.lanes.has_left_barriers(from, group.space()) {
            return Some(Err((from, Death::Closed)));
        }
        let hurts = |rank: &u32| match self.lanes.dead(*rank) {
            Some(Death::Closed) => *rank == from,
            other => other.is_some(),
        };
        let rank = group.ranks().iter().copied().find(hurts)?;
        Some(Err((rank, self.lanes.dead(rank)?)))
    }

    /// Tells all others that this rank has left a space.
    pub(crate) fn say_left(&mut self, out: &mut Outbound<'_>, space: SpaceId) {
        let flows = [FLOW_REQUESTS, request_flow(space)];
        let flows = if flows[0] == flows[1] {
            &flows[..1]
        } else {
            &flows
        };
        let me = self.rank;
        for rank in (0..self.size).filter(|rank| *rank != me) {
            for flow in flows {
                let args = [space.number().into()];
                self.say(out, rank, LEFT, *flow, Priority::Request, &args, Vec::new());
            }
        }
    }

    /// Handles the message that another rank has left a space: nothing more comes in this flow.
    fn peer_left(&mut self, on: &mut Onward<'_>, rank: u32, flow: u16, space: SpaceId) {
        if flow == FLOW_REQUESTS {
            self.lanes.leave_barriers(rank, space);
        }
        if flow == request_flow(space) && self.lanes.leave(rank, space) {
            if let Some(part) = on.matched.at(space) {
                part.exchange.peer_left(rank);
                self.work(on, space);
            }
            self.emit(space, Event::dead(rank, Death::Closed));
        }
    }

    /// Returns the messages, with their receivers, that pass a broadcast of this rank on to all
    /// of `ranks`, which must not contain this rank.
    #[must_use]
    pub fn broadcast_to(
        &self,
        ranks: &[u32],
        port: u16,
        o: &SendOptions<'_>,
        payload: &[u8],
    ) -> Vec<(u32, Vec<u8>)> {
        let args: Vec<u8> = o.args.iter().flat_map(|a| a.to_le_bytes()).collect();
        let ranks: Vec<u8> = ranks.iter().flat_map(|r| r.to_le_bytes()).collect();
        Broadcast {
            root: self.rank,
            turn: self.lanes.returns.turn(),
            port,
            flow: o.flow,
            priority: o.priority,
            number: MessageNo(0),
            args: &args,
            ranks: &ranks,
            payload,
        }
        .children()
    }

    /// Whether a broadcast's root knows of a return that we have not heard of: the broadcast
    /// may come from that life, or have to be passed on to it.
    fn is_ahead(&self, bytes: &[u8]) -> bool {
        Broadcast::parse(bytes).is_some_and(|b| b.turn > self.lanes.returns.turn())
    }

    /// Returns how often a rank was restarted.
    pub fn restarts(&self, rank: u32) -> Result<u32, Misuse> {
        if rank >= self.size {
            return Err(Misuse::BadRank);
        }
        Ok(self.lanes.returns.restarts(rank))
    }

    /// Drops what a rank has sent until now and was not handed over.
    pub(crate) fn forget_life(&mut self, on: &mut Onward<'_>, rank: u32) {
        let of_it = |it: &Finding| matches!(it, Finding::Suspect(suspect, _) if *suspect == rank);
        self.findings.retain(|it| !of_it(it));
        self.unbound.forget(|row| row.from == rank);
        self.forget_aside(rank);
        let ports = self.ports.with_held().into_iter();
        // A broadcast belongs to its root, not to the rank that passed it on.
        for port in ports.filter(|port| port.is_programs()) {
            let slot = self.ports.get_or_make(port);
            let held = std::mem::take(&mut slot.held);
            let (gone, kept) = held.into_iter().partition(|held| held.meta.from == rank);
            slot.held = kept;
            for mut held in Vec::from(gone) {
                if let Some(mut filled) = held.in_buffer.take() {
                    filled.bytes = 0;
                    self.ports.get_or_make(port).put_back(filled, false);
                    // Messages behind it were set aside.
                    self.note_freed();
                }
                self.release(held);
            }
            self.ports.get_or_make(port).update_fast();
            self.list(port);
        }
        self.welcome_matched(on, rank);
    }

    fn forward(&mut self, out: &mut Outbound<'_>, b: &Broadcast<'_>) {
        for (rank, payload) in b.children() {
            self.say(out, rank, BROADCAST, b.flow, b.priority, &[], payload);
        }
    }

    /// Tells a sender that its message, which had been taken, is refused.
    pub(crate) fn refuse_kept(&mut self, out: &mut Outbound<'_>, meta: &Meta) {
        if meta.from == self.rank {
            self.refused(meta.from, meta.priority, meta.flow, meta.number);
            return;
        }
        let what = meta.priority as u64 | u64::from(meta.flow) << 16;
        let args = [what, u64::from(meta.number.0)];
        self.say(
            out,
            meta.from,
            REFUSED,
            0,
            Priority::Reply,
            &args,
            Vec::new(),
        );
    }

    /// Sends a message of the engine, now or as soon as there is credit.
    #[expect(clippy::too_many_arguments, reason = "the fields of a message")]
    pub(super) fn say(
        &mut self,
        out: &mut Outbound<'_>,
        rank: u32,
        port: u16,
        flow: u16,
        priority: Priority,
        args: &[u64],
        payload: Vec<u8>,
    ) {
        let o = SendOptions {
            flow,
            priority,
            args,
            notify: Notify::NONE,
        };
        if self.outbox.has(o.flow_to(rank)) || self.send_any(out, rank, port, &o, &payload).is_err()
        {
            self.outbox.force(Unsent {
                rank,
                port,
                flow,
                priority,
                args: args.to_vec(),
                payload,
            });
            self.note_work();
        }
    }

    /// Refuses every message that waits for a handler; returns their number.
    pub fn refuse_all(&mut self, out: &mut Outbound<'_>) -> usize {
        let mut n = self.refuse_aside(out);
        for port in self.ports.with_held() {
            let slot = self.ports.get_or_make(port);
            slot.state = PortState::Closed;
            for held in std::mem::take(&mut slot.held) {
                n += 1;
                self.refuse_kept(out, &held.meta);
                self.release(held);
            }
        }
        n
    }
}
