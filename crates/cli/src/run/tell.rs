//! What the user is told of a job.

use portolan_boot::control;
use portolan_boot::launch::{Event, Place};

/// Tells the user, on standard error.
#[derive(Default)]
pub struct Teller {
    /// By number; hosts without a name are told by it.
    pub hosts: Vec<String>,
    pub verbose: bool,
    pub bindings: bool,
}

impl Teller {
    fn name(&self, host: u16) -> String {
        let name = self.hosts.get(usize::from(host));
        name.cloned().unwrap_or_else(|| host.to_string())
    }

    /// Tells what happened, as far as the user wants to know.
    pub fn tell(&self, event: &Event) {
        match event {
            Event::Named { job_id } => {
                if self.verbose {
                    let id = control::id_text(*job_id);
                    say!("portolan: the job is {id} (portolan top {id})");
                }
            }
            Event::Started { place, pid } => self.started(place, *pid),
            Event::Ended {
                place,
                pid,
                how,
                orderly,
                expected,
            } => {
                let (rank, host) = (place.rank, self.name(place.host_index));
                let failed = how.code() != 0 && !expected;
                if failed || self.verbose {
                    let early = if *orderly {
                        ""
                    } else {
                        " without leaving the job"
                    };
                    say!("portolan: rank {rank} (process {pid}, host {host}) ended{early}: {how}");
                }
            }
            Event::Waiting { missing, waited } => say!(
                "portolan: waiting since {} s for ranks that have not joined: {missing:?}",
                waited.as_secs()
            ),
            Event::Refused { rank, why } => {
                say!("portolan: rank {rank} was not let in: {why}");
            }
            Event::HostSaid { host_index, line } if self.verbose => {
                say!("portolan: host {} says: {line}", self.name(*host_index));
            }
            Event::HostLost {
                host_index, why, ..
            } => {
                say!("portolan: host {}: {why}", self.name(*host_index));
            }
            Event::CutOff {
                host_index,
                unreached,
            } => {
                let names: Vec<String> = unreached.iter().map(|host| self.name(*host)).collect();
                let host = self.name(*host_index);
                say!(
                    "portolan: host {host} is cut off: packets between it and {} do not arrive \
                     (network, route or firewall); its ranks are dead",
                    names.join(", ")
                );
            }
            Event::GivenUp { rank, by } => say!(
                "portolan: rank {rank} does not answer rank {by} (is it stopped, or does it \
                 compute with helper=off?): it is killed"
            ),
            Event::Restarting {
                rank,
                host_index,
                restarts,
                crowded,
            } => {
                let host = self.name(*host_index);
                let crowded = if *crowded {
                    ", the least loaded: no slot is free"
                } else {
                    ""
                };
                say!(
                    "portolan: rank {rank} is started again on host {host}{crowded} (for the \
                     {restarts}. time)"
                );
            }
            Event::NotRestarted { rank, why } => {
                say!("portolan: rank {rank} is not started again: {why}");
            }
            Event::Ending { why } => say!("portolan: ending the job: {why}"),
            Event::Lanes { .. } | Event::Output(_) | Event::HostSaid { .. } => {}
        }
    }

    fn started(&self, place: &Place, pid: u32) {
        let (rank, host) = (place.rank, self.name(place.host_index));
        let core = place
            .core
            .map_or_else(|| "any core".to_owned(), |core| format!("core {core}"));
        if self.verbose {
            say!("portolan: rank {rank} is process {pid} on host {host}, {core}");
        } else if self.bindings {
            say!("portolan: rank {rank}: host {host}, {core}");
        }
    }
}
