//! Excludes a host from a job that goes on.

use std::io;
use std::time::Instant;

use super::Running;
use super::agent_protocol::{Order, ToHost};
use super::watch::Side;

struct Leaver {
    host: usize,
    /// When its ranks that still run are killed.
    kill_at: Option<Instant>,
    /// The user excluded it; else not all other hosts reach it.
    wanted: bool,
}

/// Excluded hosts.
#[derive(Default)]
pub(super) struct Excluded(Vec<Leaver>);

impl Excluded {
    pub fn contains(&self, host: usize) -> bool {
        self.0.iter().any(|it| it.host == host)
    }

    /// Whether the user excluded a host.
    pub fn was_wanted(&self, host: usize) -> bool {
        self.0.iter().any(|it| it.host == host && it.wanted)
    }

    /// Excludes a host that others do not reach.
    pub fn cut_off(&mut self, host: usize) {
        if !self.contains(host) {
            self.0.push(Leaver {
                host,
                kill_at: None,
                wanted: false,
            });
        }
    }

    /// When the next ranks are to be killed.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.iter().filter_map(|it| it.kill_at).min()
    }
}

impl Running {
    /// Ends the ranks of the host that the user knows by this name; their
    /// deaths are reported to the others, and the job goes on. The inner error
    /// is for the user.
    ///
    /// # Errors
    /// As [`Running::order`].
    pub(super) fn exclude(&mut self, name: &str) -> io::Result<Result<(), String>> {
        let runs = |job: &Self, host: usize| {
            let on_it = |m: &&super::member::Member| m.is_on(host);
            job.members.iter().filter(on_it).any(|m| m.ended.is_none())
        };
        let hosts = 0..self.spec.hosts.len();
        // If ranks may be started on a host, it can be excluded before.
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
                self.excluded.0.push(Leaver {
                    host,
                    kill_at: Some(kill_at),
                    wanted: true,
                });
                self.order(host, &Order::Said(ToHost::Terminate))?;
            }
        }
        Ok(Ok(()))
    }

    /// Kills ranks of excluded hosts whose grace is over.
    ///
    /// # Errors
    /// As [`Running::order`].
    pub(super) fn end_excluded(&mut self, now: Instant) -> io::Result<()> {
        let mut hosts = Vec::new();
        for leaver in &mut self.excluded.0 {
            if leaver.kill_at.take_if(|at| *at <= now).is_some() {
                hosts.push(leaver.host);
            }
        }
        for host in hosts {
            self.order(host, &Order::Said(ToHost::Kill))?;
        }
        Ok(())
    }
}
