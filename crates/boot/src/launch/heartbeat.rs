//! Heartbeats between launcher and agents, twice a second; what follows when a
//! host is silent or a rank dies.

use std::io;
use std::time::Instant;

use super::agent_protocol::{BEAT_EVERY, Order, ToHost};
use super::member::Member;
use super::remote::HostFailure;
use super::watch::{Side, index_of};
use super::{Event, Running};
use crate::message::How;

impl Running {
    /// When the next agent has been silent for too long, or heartbeats to the
    /// agents are due.
    pub(super) fn next_sign(&self) -> Option<Instant> {
        let heard = self.hosts.iter().filter_map(Side::heard_at).min()?;
        Some(self.beat_at.min(heard + self.spec.host_silence))
    }

    /// Gives up silent hosts, and sends heartbeats to the others.
    pub(super) fn handle_heartbeats(
        &mut self,
        now: Instant,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let limit = self.spec.host_silence;
        let late = self.stalls.late(now);
        for side in &mut self.hosts {
            if let Side::There(remote) = side {
                remote.heard_at = (remote.heard_at + late).min(now);
            }
        }
        for host in 0..self.hosts.len() {
            let heard_at = self.hosts[host].heard_at();
            if heard_at.is_some_and(|at| now >= at + limit) {
                self.handle_lost(host, HostFailure::Vanished(limit), tell)?;
            }
        }
        if now >= self.beat_at {
            self.beat_at = now + BEAT_EVERY;
            if self.hosts.iter().any(|side| side.heard_at().is_some()) {
                self.say_all(ToHost::Beat)?;
            }
        }
        Ok(())
    }

    /// Reports a rank's end to all hosts, once.
    pub(super) fn report_death(&mut self, rank: u32, how: How) -> io::Result<()> {
        if std::mem::replace(&mut self.members[rank as usize].death_reported, true) {
            return Ok(());
        }
        self.say_all(ToHost::Died { rank, how })
    }

    /// Handles the loss of a remote host, and of its ranks with it.
    pub(super) fn handle_lost(
        &mut self,
        host: usize,
        why: HostFailure,
        tell: &mut dyn FnMut(Event),
    ) -> io::Result<()> {
        let via = self.hosts[host].via();
        self.hosts[host] = Side::None;
        self.drained[host] = true;
        if let Some(via) = via {
            let host = index_of(host);
            self.transmit(via, Order::Said(ToHost::Cut { host }).encode());
        }
        let on_it = |m: &&Member| m.is_on(host) && m.ended.is_none();
        self.confirm_doubts(host);
        let ranks: Vec<(u32, bool)> = self
            .members
            .iter()
            .filter(on_it)
            .map(|m| (m.place.rank, m.joined))
            .collect();
        let code = match &why {
            HostFailure::Start { code, .. } => i32::from(*code),
            _ => 1,
        };
        let never_ran = matches!(why, HostFailure::Start { .. });
        let host_index = index_of(host);
        let via = via.map(index_of);
        let event = Event::HostLost {
            host_index,
            via,
            why,
        };
        // The loss of a host without ranks is reported if it was to take ranks of others.
        if !ranks.is_empty() || self.spec.hosts[host] == 0 {
            tell(event);
        }
        if never_ran {
            let why = "a host cannot start its ranks".to_owned();
            self.end(why, code, self.spec.notice_grace, tell)?;
        }
        for (rank, joined) in ranks {
            let how = How::Lost;
            if never_ran {
                self.members[rank as usize].ended = Some(how);
                self.alive -= 1;
            } else {
                let leader = self.members[rank as usize].leader;
                self.handle_ended(rank, how, !joined, leader, tell)?;
            }
        }
        for behind in 0..self.hosts.len() {
            if self.hosts[behind].via() == Some(host) {
                self.handle_lost(behind, HostFailure::WayLost, tell)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Versions;
    use crate::launch::output::Room;
    use crate::launch::remote::{AgentRoute, Remote};
    use crate::launch::{Greeting, JobSpec};
    use crate::silence::StallDetector;
    use rustix::event::epoll;

    #[test]
    fn a_launcher_that_did_not_run_takes_no_host_for_lost() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let room = Room::new(2).unwrap();
        let mut job = Running::new(JobSpec::new(vec![1, 1]), Vec::new(), epoll, room);
        let mut remote = Remote::new(AgentRoute::Via(0));
        remote.greeting = Some(Greeting {
            versions: Versions::ours(),
            aes: true,
            aegis: true,
            ip: None,
        });
        let mut now = remote.heard_at;
        job.stalls = StallDetector::new(BEAT_EVERY, now);
        job.hosts = vec![Side::None, Side::There(Box::new(remote))];
        let mut lost = |now| {
            job.handle_heartbeats(now, &mut |_| ()).unwrap();
            matches!(job.hosts[1], Side::None)
        };
        // The launcher was stopped, or its host too busy, three times: each costs a step.
        for seconds in [20, 3, 3600] {
            now += std::time::Duration::from_secs(seconds);
            assert!(!lost(now), "{seconds} s");
        }
        // The silence is five steps.
        now += BEAT_EVERY;
        assert!(!lost(now));
        assert!(lost(now + BEAT_EVERY));
    }
}
