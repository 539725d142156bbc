//! The job's part: the table of addresses, the exchange of all ranks, what is
//! done on a death, and the end. The hosts' part is in [`host`](super::host).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;

use super::agent_protocol::{BEAT_EVERY, FromHost, Order, Report, ToHost};
use super::exclude::Excluded;
use super::host::Host;
use super::output::{Chunk, Room, weight};
use super::plan::Greeting;
use super::query::{self, Questions};
use super::remote::{AgentRoute, Heard, HostFailure, Remote};
use super::{Event, OnDeath, Running, Starter, Stop};
use crate::message::How;
use crate::ready::ready;
use crate::silence::StallDetector;

/// Timeout of an agent's report that its ranks have ended, after the order to kill them.
const DEAF_AFTER: Duration = Duration::from_secs(3);
/// Time after which a reader of the output that takes nothing has stopped.
const UNREAD_MAX: Duration = Duration::from_secs(2);
/// Timeout of an agent's end after its farewell.
const FAREWELL_WAIT: Duration = Duration::from_secs(2);
/// Exit code of a job that has timed out, as of `timeout(1)`.
const TIMEOUT_CODE: i32 = 124;

pub(super) struct Ending {
    term_at: Instant,
    kill_at: Instant,
    termed: bool,
    killed: bool,
    /// Whether the job's time is over or a signal ends it: then a reader of its
    /// output that takes nothing is not waited for.
    prompt: bool,
    /// When such a reader is given up, once all ranks have ended.
    unread_until: Option<Instant>,
}

/// A host as the job sees it.
pub(super) enum Side {
    /// Without ranks, or lost.
    None,
    /// Its part runs in this process.
    Here(Box<Host>),
    /// Its part is an agent's.
    There(Box<Remote>),
}

impl Side {
    /// Returns the host through which this one is reached.
    pub fn via(&self) -> Option<usize> {
        match self {
            Self::There(remote) => match remote.way {
                AgentRoute::Via(host) => Some(host),
                AgentRoute::Own(_) => None,
            },
            _ => None,
        }
    }

    /// Returns when an agent that has greeted was last heard.
    pub(super) fn heard_at(&self) -> Option<Instant> {
        match self {
            Self::There(remote) if remote.greeting.is_some() => Some(remote.heard_at),
            _ => None,
        }
    }

    pub fn greeting(&self) -> Option<&Greeting> {
        match self {
            Self::There(remote) => remote.greeting.as_ref(),
            _ => None,
        }
    }
}

/// Converts a host's index to its number in messages.
pub(super) fn index_of(host: usize) -> u16 {
    u16::try_from(host).expect("hosts are no more than ranks")
}

#[derive(Clone, Copy)]
pub(super) enum Token {
    Room,
    Source,
    ControlSocket,
    Stop(usize),
    Host(usize),
}

impl Token {
    pub fn data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::Room => 0,
            Self::Source => 1,
            Self::ControlSocket => u64::MAX,
            Self::Stop(i) => i as u64 * 2 + 2,
            Self::Host(i) => i as u64 * 2 + 3,
        })
    }

    fn from_word(word: u64) -> Self {
        let index = || usize::try_from(word / 2 - 1).expect("made from an index");
        match word {
            0 => Self::Room,
            1 => Self::Source,
            u64::MAX => Self::ControlSocket,
            _ if word.is_multiple_of(2) => Self::Stop(index()),
            _ => Self::Host(index()),
        }
    }
}

/// Waits for something to happen, until `deadline` if there is one.
pub(super) fn wait_until(epoll: &OwnedFd, deadline: Option<Instant>) -> io::Result<Vec<Token>> {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
    let words = ready(epoll, left)?.into_iter();
    Ok(words.map(|(word, _)| Token::from_word(word)).collect())
}

impl Running {
    /// Serves the job until its last rank has ended; returns its exit code:
    /// that of the first rank that ended abnormally, else 0. `starter` is the
    /// one that it was started with.
    ///
    /// # Errors
    /// The kernel refused to watch; the ranks are then killed.
    pub fn wait(
        mut self,
        starter: &mut dyn Starter,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<i32> {
        let limit = self.spec.timeout;
        self.limit_at = limit.and_then(|limit| Instant::now().checked_add(limit));
        tell(Event::Named {
            job_id: self.questions.job_id,
        });
        // Reports that are left from starting.
        for host in 0..self.hosts.len() {
            self.hear(host, tell)?;
        }
        while self.alive > 0 || !self.doubts.is_empty() || (!self.abandoned && self.has_output()) {
            let deadline = [self.next_deadline(), self.questions.deadline()];
            for token in wait_until(&self.epoll, deadline.into_iter().flatten().min())? {
                match token {
                    Token::Host(host) => {
                        if let Side::Here(part) = &mut self.hosts[host] {
                            part.pump()?;
                        } else if let Side::There(remote) = &mut self.hosts[host] {
                            remote.pump()?;
                        }
                        self.hear(host, tell)?;
                    }
                    Token::Stop(index) => self.handle_stop(index, tell)?,
                    Token::Room => self.handle_room(tell)?,
                    Token::Source => self.handle_source()?,
                    Token::ControlSocket => self.handle_control()?,
                }
            }
            self.handle_time(tell)?;
            self.restart_dead(starter, tell)?;
            self.end_late_questions();
        }
        self.tell_unsettled(tell);
        self.dismiss();
        Ok(self.code.unwrap_or(0))
    }

    fn has_output(&self) -> bool {
        self.under_way > 0 || self.drained.iter().any(|drained| !drained)
    }

    /// Sends the agents farewell and waits until they have ended.
    fn dismiss(&mut self) {
        let deadline = Instant::now() + FAREWELL_WAIT;
        // Agents behind others first: their farewell goes through these.
        for host in (0..self.hosts.len()).rev() {
            self.transmit(host, Order::Said(ToHost::Farewell).encode());
        }
        self.finish_connections(deadline);
    }

    /// Waits until our own connections have ended.
    fn finish_connections(&mut self, deadline: Instant) {
        for side in &mut self.hosts {
            if let Side::There(remote) = side
                && let AgentRoute::Own(connection) = &mut remote.way
            {
                connection.finish(deadline);
            }
        }
    }

    /// Handles what a host has reported.
    pub(super) fn hear(&mut self, host: usize, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        loop {
            let heard = match &mut self.hosts[host] {
                Side::None => None,
                Side::Here(part) => part.take_report().map(Heard::Report),
                Side::There(remote) => remote.take_heard(),
            };
            match heard {
                None => return Ok(()),
                Some(Heard::Report(report)) => self.handle_report(host, report, tell)?,
                Some(Heard::Line(line)) => {
                    let host_index = index_of(host);
                    tell(Event::HostSaid { host_index, line });
                }
                Some(Heard::Lost(why)) => self.handle_lost(host, why, tell)?,
            }
        }
    }

    /// Sends an order to one host.
    pub(super) fn order(&mut self, host: usize, order: &Order) -> io::Result<()> {
        match &mut self.hosts[host] {
            Side::None => Ok(()),
            Side::Here(part) => part.handle(order),
            Side::There(_) => {
                self.transmit(host, order.encode());
                Ok(())
            }
        }
    }

    /// Sends an order to all hosts. Agents pass it on to those behind them.
    pub(super) fn order_all(&mut self, order: &Order) -> io::Result<()> {
        // Without its length: it becomes the content of another frame.
        let frame = Order::All(order.encode().split_off(4)).encode();
        for side in &mut self.hosts {
            match side {
                Side::Here(part) => part.handle(order)?,
                Side::There(remote) => {
                    if let AgentRoute::Own(connection) = &mut remote.way {
                        connection.send(&frame);
                    }
                }
                Side::None => {}
            }
        }
        Ok(())
    }

    pub(super) fn say_all(&mut self, said: ToHost) -> io::Result<()> {
        self.order_all(&Order::Said(said))
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.next_step().into_iter().chain(self.next_sign()).min()
    }

    /// Returns when something is due that does not depend on agents.
    fn next_step(&self) -> Option<Instant> {
        if let Some(ending) = &self.ending {
            let next = match (ending.termed, ending.killed) {
                (false, _) => Some(ending.term_at),
                (true, false) => Some(ending.kill_at),
                (true, true) if self.deaf().is_some() || self.is_stuck() => {
                    Some(ending.kill_at + DEAF_AFTER)
                }
                (true, true) => None,
            };
            let limit = self.limit_at.filter(|_| !ending.prompt);
            return [next, ending.unread_until, limit]
                .into_iter()
                .flatten()
                .min();
        }
        let round = self.round.as_ref();
        let round = round.and_then(|round| round.deadline(self.spec.join_timeout));
        let excluded = self.excluded.deadline();
        let doubt = self.doubts.iter().map(|(_, until)| *until).min();
        let steps = [round, self.limit_at, excluded, doubt, self.reports.due()];
        steps.into_iter().flatten().min()
    }

    /// Whether all ranks have ended and no output is in flight, so that only a
    /// host's report that this was all is missing.
    fn is_stuck(&self) -> bool {
        self.alive == 0 && self.under_way == 0
    }

    /// Returns a remote host on which ranks run.
    fn deaf(&self) -> Option<usize> {
        let runs = |m: &&super::member::Member| m.ended.is_none();
        let mut hosts = self.members.iter().filter(runs);
        hosts
            .find(|m| matches!(self.hosts[usize::from(m.place.host_index)], Side::There(_)))
            .map(|m| m.place.host_index.into())
    }

    fn handle_time(&mut self, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        let now = Instant::now();
        self.handle_heartbeats(now, tell)?;
        if let Some(ending) = &mut self.ending {
            let kill_at = ending.kill_at;
            let was = (ending.termed, ending.killed);
            ending.termed |= now >= ending.term_at;
            ending.killed |= now >= kill_at;
            let is = (ending.termed, ending.killed);
            ending.prompt |= self.limit_at.is_some_and(|at| now >= at);
            if ending.prompt && self.alive == 0 {
                let until = *ending.unread_until.get_or_insert(now + UNREAD_MAX);
                self.abandoned |= now >= until;
            }
            if is.0 && !was.0 {
                self.say_all(ToHost::Terminate)?;
            }
            if is.1 && !was.1 {
                self.say_all(ToHost::Kill)?;
            }
            if is.1 && now >= kill_at + DEAF_AFTER {
                while let Some(host) = self.deaf() {
                    self.handle_lost(host, HostFailure::Deaf, tell)?;
                }
                self.abandoned |= self.is_stuck();
            }
            return Ok(());
        }
        if let (Some(at), Some(limit)) = (self.limit_at, self.spec.timeout)
            && now >= at
        {
            let why = format!("its time is over (--timeout {})", limit.as_secs());
            if self.ending.is_none() {
                // Replaces the code of a rank that was lost before, if the job went on.
                self.code = Some(TIMEOUT_CODE);
            }
            return self.end(why, TIMEOUT_CODE, Duration::ZERO, tell);
        }
        self.end_excluded(now)?;
        self.settle_cuts(now, tell)?;
        self.settle_doubts(now, tell)?;
        self.hurry_round(now, tell)
    }

    /// Begins to end the job, unless that has begun.
    pub(super) fn end(
        &mut self,
        why: String,
        code: i32,
        grace: Duration,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        if self.ending.is_some() {
            return Ok(());
        }
        self.code.get_or_insert(code);
        let term_at = Instant::now() + grace;
        let kill_at = term_at + self.spec.term_grace;
        self.doubts.clear();
        self.ending = Some(Ending {
            term_at,
            kill_at,
            termed: false,
            killed: false,
            prompt: false,
            unread_until: None,
        });
        self.say_all(ToHost::Abort { why: why.clone() })?;
        tell(Event::Ending { why });
        Ok(())
    }

    fn handle_stop(&mut self, index: usize, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        let Stop {
            descriptor,
            code,
            why,
        } = &self.stops[index];
        let mut bytes = [0; 8];
        let _ = rustix::io::read(descriptor, &mut bytes);
        let (why, code) = (why.clone(), *code);
        // Only output is waited for, and its reader has stopped.
        self.abandoned |= self.alive == 0;
        match &mut self.ending {
            Some(ending) if ending.termed => ending.kill_at = Instant::now(),
            Some(ending) => ending.term_at = Instant::now(),
            None => self.end(why, code, Duration::ZERO, tell)?,
        }
        if let Some(ending) = &mut self.ending {
            ending.prompt = true;
        }
        Ok(())
    }

    fn handle_room(&mut self, tell: &mut dyn FnMut(Event)) -> io::Result<()> {
        for (host, bytes) in self.room.collect() {
            self.under_way = self.under_way.saturating_sub(bytes);
            if let Some(until) = self.ending.as_mut().and_then(|it| it.unread_until.as_mut()) {
                *until = (*until).max(Instant::now() + UNREAD_MAX);
            }
            self.order(host, &Order::Said(ToHost::Taken { bytes }))?;
            self.hear(host, tell)?;
        }
        Ok(())
    }

    fn handle_report(
        &mut self,
        host: usize,
        report: Report,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let report = match self.take_relayed(host, report) {
            Ok(further) => return self.hear(further, tell),
            Err(report) => report,
        };
        // A rank that an agent names must be one of its own, or have been: its
        // last output may come late.
        let member = |rank: u32| self.members.get(rank as usize);
        let is_there = |rank: u32| member(rank).is_some_and(|m| m.is_on(host));
        let was_there = |rank: u32| member(rank).is_some_and(|m| m.was_on(host));
        let named = match &report {
            Report::Joined { rank, .. } | Report::Output { rank, .. } => Some(*rank),
            Report::Said(said) => said.rank(),
            Report::Relayed { .. } | Report::RelayErrors { .. } => None,
        };
        let late = named.is_some_and(was_there);
        if late && !matches!(report, Report::Output { .. }) {
            return Ok(());
        }
        if named.is_some_and(|rank| !is_there(rank) && !was_there(rank)) {
            let why = HostFailure::Garbled("the number of another host's rank".to_owned());
            return self.handle_lost(host, why, tell);
        }
        match report {
            Report::Joined { rank, pid, address } => self.handle_join(rank, pid, address, tell),
            Report::Output {
                rank,
                is_error,
                bytes,
            } => {
                self.under_way += weight(&bytes);
                let chunk = Chunk::new((rank, is_error), bytes, host, &self.room);
                tell(Event::Output(chunk));
                Ok(())
            }
            Report::Said(said) => self.handle_said(host, said, tell),
            Report::Relayed { .. } | Report::RelayErrors { .. } => {
                let why = HostFailure::Garbled("news of a host behind another".to_owned());
                self.handle_lost(host, why, tell)
            }
        }
    }

    fn handle_said(
        &mut self,
        host: usize,
        said: FromHost,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        match said {
            FromHost::Started {
                rank,
                pid,
                local_index,
                core,
            } => {
                let member = &mut self.members[rank as usize];
                (member.place.local_index, member.place.core) = (local_index, core);
                member.leader = pid;
                let place = member.place;
                tell(Event::Started { place, pid });
            }
            FromHost::NotStarted { rank, why } => {
                tell(Event::NotRestarted { rank, why });
                self.handle_ended(rank, How::Gone, true, 0, tell)?;
            }
            FromHost::Left { rank } => {
                self.members[rank as usize].left = true;
                if self.returns > 0 {
                    self.say_all(ToHost::Left { rank })?;
                }
            }
            FromHost::Lanes { rank, lanes } => tell(Event::Lanes { rank, lanes }),
            FromHost::Refused { rank, why } => {
                tell(Event::Refused { rank, why });
                let why = format!("rank {rank} was not let in");
                self.end(why, 1, self.spec.notice_grace, tell)?;
            }
            FromHost::AbortAsked { rank, code } => {
                let why = format!("rank {rank} asked for it, with exit code {code}");
                self.end(why, code.into(), Duration::ZERO, tell)?;
            }
            FromHost::Garbled { rank } => {
                let why = format!(
                    "rank {rank} sent what this version of Portolan does not understand; \
                     build program and launcher from one version"
                );
                self.end(why, 1, Duration::ZERO, tell)?;
            }
            FromHost::GaveUp { rank, ranks, why } => {
                log::info!("rank {rank} has given up ranks {ranks:?}: {why:?}");
                self.handle_gave_up(rank, &ranks, why, tell)?;
            }
            FromHost::Dying { rank, how } => {
                let is_gone = |(rank, _): (u32, How)| self.members[rank as usize].ended.is_some();
                if how.code() != 0 && self.first_dying.is_none_or(is_gone) {
                    self.first_dying = Some((rank, how));
                }
                self.report_death(rank, how)?;
            }
            FromHost::Overdue { rank } => self.handle_overdue(rank, tell)?,
            FromHost::Stopped { rank } => self.say_all(ToHost::Stopped { rank })?,
            FromHost::Ended {
                rank,
                pid,
                how,
                left,
            } => {
                let orderly = left || !self.members[rank as usize].joined;
                self.handle_ended(rank, how, orderly, pid, tell)?;
            }
            FromHost::InputTaken { bytes } => self.handle_input_taken(bytes)?,
            FromHost::Drained => self.drained[host] = true,
            FromHost::Seen { ticket, view } => self.handle_seen(host, ticket, view),
            FromHost::Asked { ticket, request } => {
                self.handle_asked(query::Asker::Host(host, ticket), &request)?;
            }
            // Handled at the connection.
            FromHost::Beat
            | FromHost::Hello(_)
            | FromHost::Failed { .. }
            | FromHost::RelayEnded { .. } => {}
        }
        Ok(())
    }

    pub(super) fn handle_ended(
        &mut self,
        rank: u32,
        how: How,
        orderly: bool,
        pid: u32,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let member = &mut self.members[rank as usize];
        if member.ended.replace(how).is_some() {
            return Ok(());
        }
        let place = member.place;
        self.alive -= 1;
        let again = self.is_to_return(rank, how, orderly);
        self.members[rank as usize].again = again;
        let leaves = again || self.excluded.contains(place.host_index.into());
        let is_blamed = self.blamed == Some(rank);
        let expected = self.ending.is_some() && !is_blamed || leaves;
        let abnormal = how.code() != 0;
        tell(Event::Ended {
            place,
            pid,
            how,
            orderly,
            expected,
        });
        if abnormal || !orderly {
            self.report_death(rank, how)?;
        }
        if again {
            return Ok(());
        }
        if abnormal && !expected && !is_blamed {
            if self.may_be_its_host(rank, how) {
                return Ok(());
            }
            self.blame(rank, how, tell)?;
        }
        self.check_round(tell)
    }

    /// Handles a rank that has failed by itself, or because of one that was seen to die before
    /// it: the kernel needs a while for a large process, and others may be gone sooner.
    pub(super) fn blame(
        &mut self,
        rank: u32,
        how: How,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let first = self.first_dying.filter(|&(first, _)| {
            let member = &self.members[first as usize];
            let host = usize::from(member.place.host_index);
            member.ended.is_none() && !self.respawns() && !self.excluded.contains(host)
        });
        self.blamed = first.map(|(first, _)| first).or(self.blamed);
        let (rank, how) = first.unwrap_or((rank, how));
        self.code.get_or_insert(how.code());
        if self.spec.on_death == OnDeath::End && self.alive > 0 {
            let why = format!("rank {rank} ended by {how}");
            self.end(why, how.code(), self.spec.notice_grace, tell)?;
        }
        Ok(())
    }

    pub(super) fn new(
        spec: super::JobSpec,
        stops: Vec<Stop>,
        epoll: OwnedFd,
        room: Arc<Room>,
    ) -> Self {
        let drained = spec.hosts.iter().map(|&ranks| ranks == 0).collect();
        Self {
            spec,
            stops,
            epoll,
            room,
            drained,
            further: Vec::new(),
            members: Vec::new(),
            hosts: Vec::new(),
            source: None,
            alive: 0,
            code: None,
            first_dying: None,
            blamed: None,
            ending: None,
            begun: false,
            returns: 0,
            doubts: Vec::new(),
            round: None,
            limit_at: None,
            under_way: 0,
            abandoned: false,
            excluded: Excluded::default(),
            reports: crate::partition::Reports::default(),
            starved: Vec::new(),
            beat_at: Instant::now(),
            stalls: StallDetector::new(BEAT_EVERY, Instant::now()),
            questions: Questions::default(),
        }
    }
}

impl Drop for Running {
    /// Ends the input of agents, which then kill their ranks. Connections to
    /// agents without ranks are cut.
    fn drop(&mut self) {
        for side in &mut self.hosts {
            match side {
                Side::There(remote) => match &mut remote.way {
                    AgentRoute::Own(connection) if remote.greeting.is_some() => connection.close(),
                    _ => *side = Side::None,
                },
                _ => *side = Side::None,
            }
        }
        self.finish_connections(Instant::now() + FAREWELL_WAIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_a_shells() {
        assert_eq!(How::Exited(3).code(), 3);
        assert_eq!(How::Killed(9).code(), 137);
        assert_eq!(How::Killed(11).to_string(), "signal 11 (SIGSEGV)");
    }
}
