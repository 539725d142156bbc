//! A host leaves a job that goes on.

use std::io;
use std::time::Instant;

use super::Running;
use super::talk::{Order, ToHost};
use super::watch::Side;

/// Hosts that were told to leave, and when those of their ranks that are still
/// there are killed.
#[derive(Default)]
pub(super) struct Excluded(Vec<(usize, Option<Instant>)>);

impl Excluded {
    pub fn contains(&self, host: usize) -> bool {
        self.0.iter().any(|(excluded, _)| *excluded == host)
    }

    /// When the next ranks are to be killed.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|(_, at)| *at).min()
    }
}

impl Running {
    /// Ends the ranks of the host that the user knows by this name; the others
    /// are told of their deaths, and the job goes on.
    ///
    /// # Errors
    /// As [`Running::order`].
    pub(super) fn exclude(&mut self, name: &str) -> io::Result<Result<(), String>> {
        let runs = |job: &Self, host: usize| {
            let on_it = |m: &&super::member::Member| m.is_on(host);
            job.members.iter().filter(on_it).any(|m| m.ended.is_none())
        };
        let hosts = 0..self.spec.hosts.len();
        // Where ranks may come, a host is worth taking out before.
        let waits =
            |host| self.respawns() && matches!(self.hosts[host], Side::Here(_) | Side::There(_));
        let live: Vec<usize> = hosts
            .filter(|&host| !self.excluded.contains(host) || runs(self, host))
            .filter(|&host| runs(self, host) || waits(host))
            .collect();
        let named: Vec<usize> = live
            .iter()
            .copied()
            .filter(|&host| self.host_name(host) == name)
            .collect();
        if named.is_empty() {
            let names: Vec<String> = live.iter().map(|&host| self.host_name(host)).collect();
            return Ok(Err(format!(
                "no rank of the job runs on a host {name} (there are {})",
                names.join(", ")
            )));
        }
        let others = live.iter().filter(|host| !named.contains(host));
        let goes_on = others.clone().any(|&host| runs(self, host)) || self.can_move_from(&named);
        if !goes_on {
            return Ok(Err(format!(
                "{name} is the only host on which the job still runs; end the job with Ctrl-C"
            )));
        }
        let kill_at = Instant::now() + self.spec.term_grace;
        for host in named {
            if !self.excluded.contains(host) {
                self.excluded.0.push((host, Some(kill_at)));
                self.order(host, &Order::Said(ToHost::Terminate))?;
            }
        }
        Ok(Ok(()))
    }

    /// Kills ranks of excluded hosts that have had their time.
    ///
    /// # Errors
    /// As [`Running::order`].
    pub(super) fn end_excluded(&mut self, now: Instant) -> io::Result<()> {
        let due = |at: &Option<Instant>| at.is_some_and(|at| at <= now);
        let mut hosts = Vec::new();
        for (host, at) in self.excluded.0.iter_mut().filter(|(_, at)| due(at)) {
            *at = None;
            hosts.push(*host);
        }
        for host in hosts {
            self.order(host, &Order::Said(ToHost::Kill))?;
        }
        Ok(())
    }
}
