//! Hosts that reach the launcher and not each other: their ranks report that,
//! and the launcher decides which hosts leave.

use std::io;
use std::time::Instant;

use super::agent_protocol::{BEAT_EVERY, Order, ToHost};
use super::member::Member;
use super::watch::Side;

use super::{Event, OnDeath, Running};
use crate::message::{GaveUp, How};

impl Member {
    /// Whether the rank still takes part, as far as was reported to the others.
    fn takes_part(&self) -> bool {
        self.ended.is_none() && !self.left && !self.death_reported && !self.given_up
    }
}

/// The end of a sentence about packets between hosts: that they do not arrive, and why that may be.
pub const NOT_ARRIVING: &str = "do not arrive (network, route or firewall), or ranks on one of \
                                them got no core or computed with helper=off";

impl Running {
    /// Handles a rank's report of ranks that it has given up, each with its
    /// restarts. Those whose end is known by now are ignored.
    pub(super) fn handle_gave_up(
        &mut self,
        rank: u32,
        ranks: &[(u32, u32)],
        why: GaveUp,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        log::info!("rank {rank} has given up ranks {ranks:?}: {why:?}");
        if why == GaveUp::Corrupt {
            return self.handle_corrupt(rank, ranks, tell);
        }
        let starved = why == GaveUp::Starved;
        if why != GaveUp::Silent && !starved {
            return self.handle_refused(rank, ranks, why, tell);
        }
        let now = Instant::now();
        for &gone in ranks {
            if !self.is_news(rank, gone) {
                continue;
            }
            let other = gone.0;
            let [reporter, member] = [rank, other].map(|rank| &self.members[rank as usize]);
            let (from, about) = (reporter.place.host_index, member.place.host_index);
            if from == about {
                // Its host is not at fault.
                tell(Event::GivenUp {
                    rank: other,
                    by: rank,
                    starved,
                });
                self.kill(other)?;
            } else {
                let _ = self.reports.add(from, about, now);
                if starved && !self.starved.contains(&from) {
                    self.starved.push(from);
                }
            }
        }
        Ok(())
    }

    /// Kills a rank that is stopped for too long. Perhaps no peer waits for it
    /// by a link that notices.
    pub(super) fn handle_overdue(
        &mut self,
        rank: u32,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        if !self.members[rank as usize].takes_part() {
            return Ok(());
        }
        tell(Event::Overdue { rank });
        self.kill(rank)
    }

    /// Kills a single rank.
    fn kill(&mut self, rank: u32) -> io::Result<()> {
        let member = &mut self.members[rank as usize];
        member.given_up = true;
        let host = member.place.host_index.into();
        self.order(host, &Order::Said(ToHost::KillRank { rank }))
    }

    /// Handles ranks given up because the kernel refuses packets. They may live
    /// and answer, so none is killed for it. Between hosts it counts, like
    /// silence, as a cut. On one host it is not known which rank is to leave,
    /// and the job has failed.
    fn handle_refused(
        &mut self,
        rank: u32,
        ranks: &[(u32, u32)],
        why: GaveUp,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let from = self.members[rank as usize].place.host_index;
        for &gone in ranks {
            if !self.is_news(rank, gone) {
                continue;
            }
            let other = gone.0;
            let about = self.members[other as usize].place.host_index;
            let why = why.refused(rank, other).unwrap_or_default();
            if from != about {
                if self.reports.add(from, about, Instant::now()) {
                    tell(Event::NotReached { why });
                }
                continue;
            }
            self.code.get_or_insert(1);
            if self.spec.on_death == OnDeath::End {
                return self.end(why, 1, self.spec.notice_grace, tell);
            }
            tell(Event::NotReached { why });
        }
        Ok(())
    }

    /// Whether a rank that was given up, in its life with `restarts`, and the
    /// rank that gave it up still take part.
    fn is_news(&self, by: u32, (rank, restarts): (u32, u32)) -> bool {
        let member = |rank: u32| {
            let member = self.members.get(rank as usize);
            member.filter(|member| member.takes_part())
        };
        let is_same = |member: &Member| member.place.restarts == restarts;
        member(by).is_some() && member(rank).is_some_and(is_same)
    }

    /// Handles two ranks of one host that have given each other up. Which of
    /// them, or which other process, wrote into their common memory is not
    /// known: so neither is killed for it, and the job has failed.
    fn handle_corrupt(
        &mut self,
        rank: u32,
        ranks: &[(u32, u32)],
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let Some(&(other, _)) = ranks.iter().find(|gone| self.is_news(rank, **gone)) else {
            return Ok(());
        };
        self.code.get_or_insert(1);
        if self.spec.on_death == OnDeath::Notify {
            return Ok(());
        }
        let why = format!(
            "what lies in the memory that ranks {rank} and {other} share makes no sense: one of \
             them, or another process of their user, wrote where it should not"
        );
        self.end(why, 1, self.spec.notice_grace, tell)
    }

    /// Decides which hosts leave, once reports have had the time to come.
    ///
    /// # Errors
    /// As [`Running::order`].
    pub(super) fn settle_cuts(
        &mut self,
        now: Instant,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let runs = |host: u16| {
            let mut there = self.members.iter().filter(|m| m.is_on(host.into()));
            there.any(Member::takes_part)
        };
        let is_silent = |host: u16| {
            let heard_at = self.hosts[usize::from(host)].heard_at();
            heard_at.is_some_and(|at| now >= at + 3 * BEAT_EVERY)
        };
        let leavers = self.reports.decide(now, runs, is_silent);
        if leavers.is_empty() {
            return self.handle_unsettled(tell);
        }
        let names: Vec<String> = leavers
            .iter()
            .map(|(host, _)| self.host_name(usize::from(*host)))
            .collect();
        for (host_index, unreached) in &leavers {
            let (host_index, unreached) = (*host_index, unreached.clone());
            tell(Event::CutOff {
                host_index,
                unreached,
                starved: self.starved.clone(),
            });
        }
        if self.spec.on_death == OnDeath::End && !self.respawns() {
            let why = format!("not all hosts reach each other ({})", names.join(", "));
            return self.end(why, 1, self.spec.notice_grace, tell);
        }
        if !self.respawns() {
            self.code.get_or_insert(1);
        }
        for (host, _) in leavers {
            self.take_out(host.into())?;
        }
        Ok(())
    }

    /// Returns, once, why the job cannot end well although no host has to leave.
    fn take_unsettled(&mut self) -> Option<String> {
        let (from, about) = self.reports.take_unsettled()?;
        // A host that was lost explains the reports, and was told of.
        let is_gone = |host: u16| {
            let host = usize::from(host);
            self.excluded.contains(host) || matches!(self.hosts[host], Side::None)
        };
        if is_gone(from) || is_gone(about) {
            return None;
        }
        let [from, about] = [from, about].map(|host| self.host_name(host.into()));
        Some(format!(
            "packets between hosts {from} and {about} {NOT_ARRIVING}; the ranks of one have ended \
             without the others"
        ))
    }

    /// Ends a job whose remaining ranks may wait for others for ever, or says
    /// why it fails if it goes on.
    fn handle_unsettled(&mut self, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        if self.respawns() || self.ending.is_some() || self.reports.due().is_some() {
            return Ok(());
        }
        let Some(why) = self.take_unsettled() else {
            return Ok(());
        };
        if self.spec.on_death == OnDeath::End {
            return self.end(why, 1, self.spec.notice_grace, tell);
        }
        self.code.get_or_insert(1);
        tell(Event::NotReached { why });
        Ok(())
    }

    /// Marks a job as failed whose ranks gave each other up and ended before it
    /// was decided which host leaves.
    pub(super) fn tell_unsettled(&mut self, tell: &mut dyn FnMut(Event)) {
        if self.code.is_some() || self.respawns() {
            return;
        }
        if let Some(why) = self.take_unsettled() {
            tell(Event::NotReached { why });
            self.code = Some(1);
        }
    }

    /// Excludes a host: its ranks are reported dead to all others, and killed.
    fn take_out(&mut self, host: usize) -> io::Result<()> {
        self.excluded.cut_off(host);
        let runs = |m: &&Member| m.is_on(host) && m.ended.is_none() && !m.left;
        let ranks: Vec<u32> = self
            .members
            .iter()
            .filter(runs)
            .map(|m| m.place.rank)
            .collect();
        for rank in ranks {
            self.report_death(rank, How::Lost)?;
        }
        self.order(host, &Order::Said(ToHost::Kill))
    }
}
