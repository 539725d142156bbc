//! Liveness of a host's ranks: finds those that are about to end, and those
//! that are stopped, and reports them.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use portolan_sys::process::Condition;
use portolan_sys::shared_doorbell::SharedDoorbells;
use rustix::event::epoll;

use super::super::agent_protocol::FromHost;
use super::super::rank::With;
use super::{Host, Token};
use crate::liveness::Liveness;
use crate::message::{How, ToRank};

impl Host {
    pub(super) fn begin_liveness(&mut self) -> io::Result<()> {
        if self.words() == 0 {
            return Ok(());
        }
        // Without memory for it, each end is noticed once the process is gone.
        let Ok(liveness) = Liveness::start(self.words()) else {
            return Ok(());
        };
        self.descriptors.lives = liveness.descriptor()?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&self.epoll, liveness.bell(), Token::Bell.data(), flags)?;
        epoll::add(&self.epoll, liveness.timer(), Token::Timer.data(), flags)?;
        self.liveness = Some(liveness);
        Ok(())
    }

    pub(super) fn is_here(&self, rank: u32) -> bool {
        self.ranks.iter().any(|r| r.place.rank == rank)
    }

    /// Looks for ranks that are about to end, or are stopped.
    pub(super) fn check_liveness(&mut self) -> io::Result<()> {
        let Some(liveness) = &mut self.liveness else {
            return Ok(());
        };
        let ranks = &self.ranks;
        let of_interest = |index: usize| {
            let rank = ranks.get(index)?;
            let over = rank.left || rank.cause.is_some() || rank.ended.is_some();
            rank.greeted.filter(|_| !over)
        };
        let dying = liveness.dying(of_interest)?;
        let due = liveness.due_since();
        for (index, how) in dying {
            // Its last message may be that it leaves.
            self.handle_control(index)?;
            if !self.ranks[index].left {
                self.report_death(index, how);
                let rank = self.ranks[index].place.rank;
                self.say(FromHost::Dying { rank, how });
            }
        }
        if let Some(late) = due {
            self.look_for_stopped(late);
        }
        Ok(())
    }

    /// Looks for stopped ranks. Time in which this process did not run itself,
    /// `late`, does not count.
    fn look_for_stopped(&mut self, late: Duration) {
        let (limit, now) = (self.plan.stopped_limit, Instant::now());
        for rank in &mut self.ranks {
            let pid = rank.greeted.filter(|_| rank.ended.is_none());
            let stopped = pid.and_then(Condition::of).is_some_and(|it| it.stopped);
            rank.stopped = stopped.then(|| rank.stopped.map_or(now, |since| since + late));
        }
        for index in 0..self.ranks.len() {
            let Some(since) = self.ranks[index].stopped else {
                continue;
            };
            let rank = self.ranks[index].place.rank;
            if limit.is_none_or(|limit| since.elapsed() < limit) {
                self.vouch(rank);
                self.say(FromHost::Stopped { rank });
            } else {
                self.say(FromHost::Overdue { rank });
            }
        }
    }

    /// Notifies the ranks here that a silent one is stopped. Repeated, so a
    /// rank without room is left out: nothing piles up.
    pub(super) fn vouch(&mut self, rank: u32) {
        let bytes: Rc<[u8]> = ToRank::Stopped { rank }.encode().into();
        for index in 0..self.ranks.len() {
            let to = &self.ranks[index];
            let hears = to.greeted.is_some() && to.stopped.is_none() && !to.is_behind();
            if hears && to.ended.is_none() && to.place.rank != rank {
                self.send(index, bytes.clone(), With::nothing());
            }
        }
    }

    /// Notifies the ranks on this host that `by` has given up: they share
    /// memory with it in which they would wait for it.
    pub(super) fn tell_given_up(&mut self, by: u32, ranks: &[(u32, u32)]) {
        let bytes: Rc<[u8]> = ToRank::GivenUp { by }.encode().into();
        for index in 0..self.ranks.len() {
            let to = &self.ranks[index];
            let is_meant = ranks.contains(&(to.place.rank, to.place.restarts));
            if is_meant && to.greeted.is_some() && to.ended.is_none() {
                self.send(index, bytes.clone(), With::nothing());
            }
        }
    }

    /// Reports a rank's end to its neighbours, once.
    pub(super) fn report_death(&mut self, index: usize, how: How) {
        if self.ranks[index].cause.replace(how).is_some() {
            return;
        }
        let (place, left) = (self.ranks[index].place, self.ranks[index].left);
        let rank = place.rank;
        // The cause comes before the mark in the segment.
        self.broadcast(&ToRank::Died { rank, how }, Some(index));
        self.mark_dead(place.local_index);
        if !left {
            self.descriptors
                .doorbells
                .iter()
                .for_each(SharedDoorbells::ring);
        }
    }

    /// Marks in the segment that a rank has ended.
    pub(super) fn mark_dead(&mut self, local_index: u16) {
        let has_part = u32::from(local_index) < self.plan.ranks;
        if let Some(memory) = self.descriptors.segment.as_mut().filter(|_| has_part) {
            (memory.mark_dead)(local_index);
        }
    }
}
