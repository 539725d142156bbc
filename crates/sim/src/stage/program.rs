//! What a rank of the stage does of its own accord.

use portolan_engine::{
    BROADCAST, BarrierCall, Group, PortId, Progress, SendError, SendOptions, SpaceId,
};
use portolan_proto::Release;
use portolan_wire::Priority;

use super::book::{Draft, LifeId, Waits, port};
use super::ops::Kind;
use super::parting::Parting;
use super::rank::{Closing, Rank};

/// A barrier that has waited so long for a rank asks it for a sign of life, ns.
const KNOCK_NS: u64 = 200_000_000;

impl Rank {
    /// Does something of its own accord, and says what another is to do for it.
    pub fn act(&mut self) {
        if self.closing != Closing::No {
            return;
        }
        let ranks = self.engine.core.size as usize;
        let to = self.rng.index(ranks);
        match self.rng.below(16) {
            0 => self.bind(SpaceId::PROGRAM, port::LATE),
            1 => {
                let space = self.rng.pick(&self.spaces);
                self.bind(space, port::CHANGING);
                let number = port::CLOSING;
                let closed = (self.engine)
                    .take_part(|core, out| core.close_port(out, PortId { space, number }));
                closed.expect("it is the program's");
            }
            2 => self.broadcast(),
            3 | 4 => self.access(to),
            _ => self.send(to),
        }
    }

    /// Sends a few messages, now that its region is its own again: to a port that takes
    /// all.
    pub fn act_late(&mut self) {
        if self.closing != Closing::No {
            return;
        }
        for _ in 0..16 {
            let to = self.rng.index(self.engine.core.size as usize);
            let Some(life) = self.known(to) else { continue };
            let (request, at) = (Priority::Request, port::PLAIN);
            let draft = self.book.lock().draft(self.life, life, request, at);
            self.wants.push_back((to as u32, draft));
        }
    }

    fn send(&mut self, to: usize) {
        // Often there where the last went: some are still kept there when the next come.
        if let Some((to, last)) = self.last.take_if(|_| self.rng.one_in(2))
            && self.known(to as usize) == Some(last.to)
        {
            let draft = self.book.lock().draft_behind(self.life, &last);
            self.last = Some((to, draft.clone()));
            self.wants.push_back((to, draft));
            return;
        }
        let Some(life) = self.known(to) else { return };
        let priority = self
            .rng
            .pick(&[Priority::Request, Priority::Request, Priority::Reply]);
        let any = [
            port::PLAIN,
            port::PLAIN,
            port::SHORT,
            port::LONG,
            port::LATE,
            port::CLOSING,
            port::ANY_THREAD,
            port::CHANGING,
        ];
        let at = self.rng.pick(&any);
        let at = self.book.lock().placings.port_or(at);
        let draft = self.book.lock().draft(self.life, life, priority, at);
        self.last = Some((to as u32, draft.clone()));
        self.wants.push_back((to as u32, draft.clone()));
        let mut book = self.book.lock();
        for _ in 0..book.placings.followers(at) {
            let next = book.draft_behind(self.life, &draft);
            self.wants.push_back((to as u32, next));
        }
    }

    fn broadcast(&mut self) {
        if !self.relays.is_empty() {
            return;
        }
        let ranks = self.engine.core.size as usize;
        let to: Vec<u32> = (0..ranks)
            .filter(|it| *it != self.rank)
            .map(|it| it as u32)
            .collect();
        let lives: Vec<LifeId> = to
            .iter()
            .filter_map(|it| self.known(*it as usize))
            .collect();
        if lives.len() < ranks - 1 {
            return;
        }
        let draft = self.book.lock().broadcast(self.life, &lives);
        self.enter(draft.space);
        let o = draft
            .options()
            .within(draft.space)
            .expect("it has this flow");
        let core = &self.engine.core;
        self.relay_flow = o.flow;
        self.relays = core
            .broadcast_to(&to, draft.port, &o, &draft.payload())
            .into();
    }

    /// Goes on with ports that have paused, or were not bound, some time after; whether
    /// there were any.
    pub(super) fn resume_ports(&mut self, now: u64) -> bool {
        let mut book = self.book.lock();
        if !book.placings.any_waits(self.life) {
            self.resume_at = u64::MAX;
            return false;
        }
        if self.resume_at == u64::MAX {
            self.resume_at = now + book.placings.pause();
        }
        if self.resume_at > now {
            return false;
        }
        drop(book);
        self.resume_waiting()
    }

    /// Goes on with them now; whether there were any.
    pub(super) fn resume_waiting(&mut self) -> bool {
        let waiting = self.book.lock().placings.take_waiting(self.life);
        let any = !waiting.is_empty();
        let number = port::PLACING;
        for (space, waits) in waiting {
            match waits {
                Waits::ToBeBound => self.bind(space, number),
                Waits::ToBeResumed => {
                    (self.engine).take_part(|core, _| core.resume_port(PortId { space, number }))
                }
            }
        }
        any
    }

    /// Takes memory back that placed messages were in.
    pub(super) fn take_buffers(&mut self) {
        for space in &self.spaces {
            let at = PortId {
                space: *space,
                number: port::PLACING,
            };
            while let Some((buffer, filled)) = self.engine.core.take_buffer(at) {
                let lanes = &self.engine.core.lanes;
                let is_dead = |rank| lanes.dead(rank).is_some();
                let (mut book, bytes) = (self.book.lock(), buffer.as_slice());
                book.take_back(self.life, bytes, filled, is_dead);
            }
        }
    }

    /// Sends what has waited, as far as there is credit; whether anything has left.
    pub(super) fn send_waiting(&mut self) -> bool {
        let (before, mut stalled) = (self.wants.len() + self.relays.len(), Vec::new());
        for (to, draft) in std::mem::take(&mut self.wants) {
            let life = self.known(to as usize);
            if self.engine.core.closing || life != Some(draft.to) {
                self.book.lock().unsend(draft.id);
                continue;
            }
            let key = (to, draft.priority.index());
            if stalled.contains(&key) || !self.send_now(to, &draft) {
                stalled.push(key);
                self.wants.push_back((to, draft));
            }
        }
        while let Some((to, bytes)) = self.relays.front() {
            let o = SendOptions {
                flow: self.relay_flow,
                ..SendOptions::default()
            };
            let sent = self
                .engine
                .take_part(|core, out| core.send_any(out, *to, BROADCAST, &o, bytes));
            match sent {
                Err(SendError::NoCredit) => break,
                // Others may miss it.
                Ok(_) | Err(_) => self.relays.pop_front(),
            };
        }
        before > self.wants.len() + self.relays.len()
    }

    /// Sends a message in one way or another; false: no credit.
    fn send_now(&mut self, to: u32, draft: &Draft) -> bool {
        self.enter(draft.space);
        let o = draft
            .options()
            .within(draft.space)
            .expect("it has this flow");
        let payload = draft.payload();
        let sent = if self.rng.one_in(4) {
            let port = PortId {
                space: draft.space,
                number: draft.port,
            };
            let release = Release::Acknowledged;
            let given = (self.engine).post_message((to, port), &o, payload.into(), release);
            given
                .map_err(|(e, _)| e)
                .map(|(op, _)| self.ops.push((op, Kind::Gives(draft.clone()))))
        } else {
            let now = self.engine.send_now::<false>(to, draft.port, &o, &payload);
            let sent = now.unwrap_or_else(|| self.engine.try_send(to, draft.port, &o, &payload));
            sent.map(drop)
        };
        match sent {
            Ok(()) => self.note(|| {
                format!(
                    "sends #{} to {to}, port {}, {} bytes",
                    draft.id, draft.port, draft.bytes
                )
            }),
            Err(SendError::NoCredit) => return false,
            Err(SendError::PeerDead { .. }) => self.book.lock().unsend(draft.id),
            // No port of its own could ever take it.
            Err(SendError::TooLong) if to == self.engine.core.rank => {
                self.book.lock().unsend(draft.id);
            }
            Err(e) => panic!("message {} to {to}: {e:?}", draft.id),
        }
        true
    }

    /// Goes on with its barriers; whether one has come to its end.
    pub(super) fn go_on_with_barrier(&mut self, now: u64) -> bool {
        if self.barrier.is_none() && self.barriers_due > 0 && self.closing == Closing::No {
            self.barriers_due -= 1;
            let ranks: Vec<u32> = (0..self.engine.core.size).collect();
            // One that has died and is back ends it.
            self.barrier = self.engine.core.begin_barrier(&Group::new(&ranks)).ok();
        }
        let Some(mut call) = self.barrier.take() else {
            return false;
        };
        let over = self.poll_barrier(&mut call, now);
        self.barrier = (!over).then_some(call);
        over
    }

    /// Goes on with a barrier; whether it has come to its end.
    pub(super) fn poll_barrier(&mut self, call: &mut BarrierCall, now: u64) -> bool {
        let polled = self.engine.take_part(|core, out| call.poll(core, out));
        match polled.expect("it is open") {
            None if self.knock_at <= now => {
                let knocked = self.engine.take_part(|core, out| call.knock(core, out));
                let again = if knocked.expect("it is open") {
                    u64::MAX
                } else {
                    now + KNOCK_NS
                };
                self.knock_at = again;
                false
            }
            None => false,
            Some(Progress::Awaits(_)) => {
                self.knock_at = now + KNOCK_NS;
                false
            }
            Some(Progress::Over(dead)) => {
                if let Some((rank, _)) = dead {
                    self.engine.core.lanes.tell_all();
                    let book = self.book.lock();
                    let broken = book.lives.iter().any(|it| it.lost);
                    let broken = broken || book.silence_possible;
                    assert!(broken, "a barrier ends in vain: rank {rank}");
                }
                true
            }
        }
    }

    /// Barriers are of no use any more.
    pub fn leave_barriers(&mut self) {
        self.barrier = None;
        self.barriers_due = 0;
        if let Parting::Meets(_) = self.parting {
            self.parting = Parting::Waits;
        }
    }
}
