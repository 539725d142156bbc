//! What the user is told of a job.

use portolan_boot::control;
use portolan_boot::launch::{Event, NOT_ARRIVING, RankPlace};

use crate::print::tell;

/// Tells the user, on standard error.
#[derive(Default)]
pub struct Teller {
    /// By number; hosts without a name are told by it.
    pub hosts: Vec<String>,
    /// Every start and end too, as of `run -v`.
    pub verbose: bool,
    /// The core of each rank, as of `run --report-bindings`.
    pub bindings: bool,
}

impl Teller {
    fn name(&self, host: u16) -> String {
        let name = self.hosts.get(usize::from(host));
        name.cloned().unwrap_or_else(|| host.to_string())
    }

    /// Tells what happened on standard error.
    pub fn tell(&self, event: &Event) {
        if let Some(line) = self.line(event) {
            tell(format_args!("{line}"));
        }
    }

    /// What happened, as far as the user wants to know.
    pub fn line(&self, event: &Event) -> Option<String> {
        let text = self.text(event)?;
        Some(format!("portolan: {text}"))
    }

    fn text(&self, event: &Event) -> Option<String> {
        let text = match event {
            Event::Named { job_id } if self.verbose => {
                let id = control::id_text(*job_id);
                format!("the job is {id} (portolan top {id})")
            }
            Event::Started { place, pid } => return self.started(place, *pid),
            Event::Ended {
                place,
                pid,
                how,
                orderly,
                expected,
            } => {
                let (rank, host) = (place.rank, self.name(place.host_index));
                let strange = how.code() != 0 || !orderly;
                if !self.verbose && (*expected || !strange) {
                    return None;
                }
                let early = if *orderly {
                    ""
                } else {
                    " without leaving the job"
                };
                format!("rank {rank} (process {pid}, host {host}) ended{early}: {how}")
            }
            Event::Waiting { missing, waited } => format!(
                "waiting since {} s for ranks that have not joined: {missing:?}",
                waited.as_secs()
            ),
            Event::Refused { rank, why } => format!("rank {rank} was not let in: {why}"),
            Event::HostSaid { host_index, line } if self.verbose => {
                format!("host {} says: {line}", self.name(*host_index))
            }
            Event::HostLost {
                host_index, why, ..
            } => format!("host {}: {why}", self.name(*host_index)),
            Event::CutOff {
                host_index,
                unreached,
                starved,
            } => {
                let names = |hosts: &[u16]| {
                    let names: Vec<String> = hosts.iter().map(|host| self.name(*host)).collect();
                    names.join(", ")
                };
                let busy = if starved.is_empty() {
                    String::new()
                } else {
                    let on = names(starved);
                    format!(", or ranks on {on} waited too long for a core (other programs there)")
                };
                format!(
                    "host {} is cut off: packets between it and {} {NOT_ARRIVING}{busy}; its ranks \
                     are dead",
                    self.name(*host_index),
                    names(unreached)
                )
            }
            Event::GivenUp { rank, by, starved } => {
                let busy = if *starved {
                    format!(", or did rank {by} wait too long for a core?")
                } else {
                    "?".to_owned()
                };
                format!(
                    "rank {rank} does not answer rank {by} (is it stopped, or does it compute with \
                     helper=off{busy}): it is killed"
                )
            }
            Event::Overdue { rank } => {
                format!("rank {rank} is stopped for longer than --stopped-limit: it is killed")
            }
            Event::NotReached { why } => why.clone(),
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
                format!("rank {rank} is started again on host {host}{crowded} (restart {restarts})")
            }
            Event::NotRestarted { rank, why } => {
                format!("rank {rank} is not started again: {why}")
            }
            Event::Ending { why } => format!("ending the job: {why}"),
            Event::Named { .. }
            | Event::Lanes { .. }
            | Event::Output(_)
            | Event::HostSaid { .. } => return None,
        };
        Some(text)
    }

    fn started(&self, place: &RankPlace, pid: u32) -> Option<String> {
        let (rank, host) = (place.rank, self.name(place.host_index));
        let core = place
            .core
            .map_or_else(|| "any core".to_owned(), |core| format!("core {core}"));
        if self.verbose {
            return Some(format!(
                "rank {rank} is process {pid} on host {host}, {core}"
            ));
        }
        self.bindings
            .then(|| format!("rank {rank}: host {host}, {core}"))
    }
}
