//! Reaches the hosts that are not here: in a tree, where an agent connects to
//! further agents and relays what passes between them and the launcher.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::event::epoll;
use zeroize::Zeroizing;

use super::agent_protocol::{FromHost, Order, Report, ToHost, relayed};
use super::connection::Came;
use super::remote::{AgentRoute, Heard, HostFailure, Remote};
use super::watch::{Side, Token, index_of, wait_until};
use super::{Event, LaunchError, Reach, Running, Starter, Stop, Task};

impl Running {
    /// Begins to connect to the hosts that are not here; returns the task of each.
    pub(super) fn reach(
        &mut self,
        starter: &mut dyn Starter,
    ) -> Result<Vec<Option<Task>>, LaunchError> {
        let mut reaches: Vec<Option<Reach>> = Vec::new();
        for host in 0..self.spec.hosts.len() {
            let has_ranks = self.spec.hosts[host] > 0 || self.spec.respawn > 0;
            let reach = has_ranks.then(|| starter.reach(index_of(host))).flatten();
            reaches.push(reach);
        }
        let there: Vec<usize> = (0..reaches.len())
            .filter(|&h| reaches[h].is_some())
            .collect();
        let mut ways = vec![None; reaches.len()];
        spread(&there, self.spec.fan_out.max(1) as usize, None, &mut ways);
        let mut tasks = Vec::new();
        for (host, reach) in reaches.into_iter().enumerate() {
            let (side, further, task) = match (reach, ways[host]) {
                (None, _) => (Side::None, None, None),
                (Some(Reach { command, task }), Some(via)) => {
                    let words = std::iter::once(command.get_program()).chain(command.get_args());
                    let words = words.map(OsStr::to_owned).collect();
                    let remote = Remote::new(AgentRoute::Via(via));
                    (Side::There(Box::new(remote)), Some(words), Some(task))
                }
                (Some(Reach { command, task }), None) => {
                    let remote = Remote::open(command);
                    let remote = remote.map_err(|failure| self.host_error(host, failure))?;
                    if let AgentRoute::Own(connection) = &remote.way {
                        starter.reached(connection.pid());
                        let data = Token::Host(host).data();
                        let flags = epoll::EventFlags::IN;
                        epoll::add(&self.epoll, connection.descriptor(), data, flags)?;
                    }
                    (Side::There(Box::new(remote)), None, Some(task))
                }
            };
            self.hosts.push(side);
            self.further.push(further);
            tasks.push(task);
        }
        Ok(tasks)
    }

    pub(super) fn host_error(&self, host: usize, failure: HostFailure) -> LaunchError {
        LaunchError::Host {
            host_index: index_of(host),
            via: self.hosts.get(host).and_then(Side::via).map(index_of),
            failure,
        }
    }

    /// Waits until all agents have greeted. The timeout of each counts from the
    /// beginning of its connection.
    pub(super) fn await_greetings(
        &mut self,
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), LaunchError> {
        let limit = self.spec.connect_timeout;
        while let Some((since, silent)) = self.first_silent() {
            for token in wait_until(&self.epoll, since.checked_add(limit))? {
                match token {
                    Token::Stop(index) => {
                        let Stop { code, why, .. } = &self.stops[index];
                        let (code, why) = (*code, why.clone());
                        return Err(LaunchError::Stopped { code, why });
                    }
                    Token::Host(host) => {
                        if let Side::There(remote) = &mut self.hosts[host] {
                            remote.pump()?;
                        }
                        self.hear_greeting(host, tell)?;
                    }
                    Token::Room | Token::Source | Token::ControlSocket => {}
                }
            }
            if self.first_silent() == Some((since, silent)) && since.elapsed() >= limit {
                return Err(self.host_error(silent, HostFailure::Silent(limit)));
            }
        }
        Ok(())
    }

    /// Returns the agent whose connection was begun first among those that have
    /// yet to greet, and when.
    fn first_silent(&self) -> Option<(Instant, usize)> {
        let since = |(host, side): (usize, &Side)| match side {
            Side::There(remote) if remote.greeting.is_none() && self.further[host].is_none() => {
                Some((remote.since, host))
            }
            _ => None,
        };
        self.hosts.iter().enumerate().filter_map(since).min()
    }

    fn hear_greeting(
        &mut self,
        host: usize,
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), LaunchError> {
        while let Side::There(remote) = &mut self.hosts[host]
            && let Some(heard) = remote.take_heard()
        {
            match heard {
                Heard::Line(line) => {
                    let host_index = index_of(host);
                    tell(Event::HostSaid { host_index, line });
                }
                Heard::Lost(failure) => return Err(self.host_error(host, failure)),
                Heard::Report(report) => match self.take_relayed(host, report) {
                    Ok(further) => self.hear_greeting(further, tell)?,
                    Err(_) => {
                        let failure = HostFailure::Garbled("more than a greeting".to_owned());
                        return Err(self.host_error(host, failure));
                    }
                },
            }
        }
        if self.hosts[host].greeting().is_some() {
            self.reach_further(host);
        }
        Ok(())
    }

    /// Has an agent that has greeted reach those behind it.
    fn reach_further(&mut self, through: usize) {
        for host in 0..self.hosts.len() {
            if self.hosts[host].via() != Some(through) {
                continue;
            }
            if let Some(command) = self.further[host].take() {
                if let Side::There(remote) = &mut self.hosts[host] {
                    remote.since = Instant::now();
                }
                let host = index_of(host);
                let order = Order::Said(ToHost::Reach { host, command });
                self.transmit(through, order.encode());
            }
        }
    }

    /// Passes on what an agent relayed for another. Returns that one's host, or
    /// the report if it is not a relayed one.
    pub(super) fn take_relayed(&mut self, from: usize, report: Report) -> Result<usize, Report> {
        let host = match &report {
            Report::Relayed { host, .. }
            | Report::RelayErrors { host, .. }
            | Report::Said(FromHost::RelayEnded { host, .. }) => usize::from(*host),
            _ => return Err(report),
        };
        match self.hosts.get_mut(host) {
            Some(Side::There(remote)) if matches!(remote.way, AgentRoute::Via(via) if via == from) =>
            {
                remote.take(match report {
                    Report::Relayed { bytes, .. } => Came::Bytes(bytes),
                    Report::RelayErrors { bytes, .. } => Came::Errors(bytes),
                    Report::Said(FromHost::RelayEnded { status, .. }) => {
                        Came::End(status.map(ExitStatus::from_raw))
                    }
                    other => return Err(other),
                });
                Ok(host)
            }
            // The host was lost meanwhile.
            Some(Side::None) => Ok(host),
            _ => Err(report),
        }
    }

    /// Sends a frame to the agent of a host, directly or through others.
    pub(super) fn transmit(&mut self, mut host: usize, frame: Vec<u8>) {
        // Erased: a frame may hold the job's secret.
        let mut frame = Zeroizing::new(frame);
        while let Some(Side::There(remote)) = self.hosts.get_mut(host) {
            match &mut remote.way {
                AgentRoute::Own(connection) => return connection.send(&frame),
                AgentRoute::Via(via) => {
                    frame = Zeroizing::new(relayed(index_of(host), &frame));
                    host = *via;
                }
            }
        }
    }
}

/// Sets for each of `hosts` through which other it is reached, or none for our
/// own connections, of which there are at most `fan_out`. The first of each
/// part reaches the rest of it, and so on: a host stands before those that it
/// reaches.
fn spread(hosts: &[usize], fan_out: usize, via: Option<usize>, ways: &mut [Option<usize>]) {
    let parts = fan_out.min(hosts.len());
    let mut rest = hosts;
    for part in 0..parts {
        let size = rest.len().div_ceil(parts - part);
        let (these, others) = rest.split_at(size);
        rest = others;
        if let Some((&head, behind)) = these.split_first() {
            ways[head] = via;
            spread(behind, fan_out, Some(head), ways);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_no_wider_than_asked_and_no_deeper_than_needed() {
        for (count, fan_out, depth) in [
            (3, 16, 1),
            (16, 16, 1),
            (17, 16, 2),
            (272, 16, 2),
            (3, 1, 3),
        ] {
            let hosts: Vec<usize> = (5..5 + count).collect();
            let mut ways = vec![None; 5 + count];
            spread(&hosts, fan_out, None, &mut ways);
            let mut deepest = 0;
            for &host in &hosts {
                let (mut at, mut steps) = (host, 1);
                while let Some(via) = ways[at] {
                    assert!(via < at && via >= 5, "{ways:?}");
                    (at, steps) = (via, steps + 1);
                }
                deepest = deepest.max(steps);
                let children = |of| hosts.iter().filter(|&&h| ways[h] == of).count();
                assert!(children(Some(host)) <= fan_out && children(None) <= fan_out);
            }
            assert_eq!(deepest, depth, "{count} {fan_out}");
        }
    }
}
