//! The plan that a host of a job gets, and the greeting that it sends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Congestion, LinkChoice, Security, Suite, Versions};

/// One host's part of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostPlan {
    /// The host's number, and the number of hosts.
    pub host_index: u16,
    pub hosts: u16,
    /// Its first rank, its number of ranks, and the job's.
    pub first: u32,
    pub ranks: u32,
    pub size: u32,
    /// Number of other ranks that may be started here later, from hosts that leave.
    pub spare: u32,
    pub job_id: u64,
    /// The partition of each host; empty where all are in one.
    pub partitions: Vec<u16>,
    pub security: Security,
    pub suite: Suite,
    pub link: LinkChoice,
    pub congestion: Congestion,
    pub settings: BTreeMap<String, String>,
    /// Silence after which the job takes a host for lost.
    pub host_silence: Duration,
    /// How long a stopped rank counts as alive; none: as long as it is stopped.
    pub stopped_limit: Option<Duration>,
    /// Address by which the other hosts reach this one; none: each rank finds its own.
    pub ip: Option<IpAddr>,
}

impl HostPlan {
    /// Whether each rank is to have a host port, if there is one.
    pub fn wants_host_ports(&self) -> bool {
        match self.link {
            LinkChoice::Xdp => true,
            LinkChoice::Auto => self.hosts > 1,
            LinkChoice::Shm | LinkChoice::Udp => false,
        }
    }
}

/// A rank's core on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seat {
    /// The core that it is bound to.
    pub core: Option<u32>,
    /// Whether other ranks are bound to it too.
    pub shared: bool,
}

impl Seat {
    /// Returns the seat of each of `cores`; a core that stands there twice is shared.
    pub fn each(cores: &[Option<u32>]) -> Vec<Self> {
        let mut count = BTreeMap::new();
        for core in cores.iter().flatten() {
            *count.entry(*core).or_insert(0_u32) += 1;
        }
        let seat = |core: &Option<u32>| Self {
            core: *core,
            shared: core.is_some_and(|core| count[&core] > 1),
        };
        cores.iter().map(seat).collect()
    }
}

/// What the ranks of a remote host run, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Programs with their arguments, and how many ranks run each, in order.
    pub programs: Vec<(u32, Vec<OsString>)>,
    /// Programs of all ranks of the job, if some may be started here that began elsewhere.
    pub others: Vec<(u32, Vec<OsString>)>,
    /// The folder that they start in.
    pub folder: PathBuf,
    /// Variables that are set in their environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Whether each rank is bound to a core.
    pub bind: bool,
    /// Whether rank 0 is here and reads what the launcher reads.
    pub input: bool,
}

impl Task {
    /// Returns the program of the rank with number `local` on its host.
    #[must_use]
    pub fn program(&self, local: u16) -> Option<&[OsString]> {
        nth(&self.programs, local.into())
    }

    /// Returns the program of a rank of the job, wherever it began.
    #[must_use]
    pub fn program_of(&self, rank: u32) -> Option<&[OsString]> {
        nth(&self.others, rank)
    }
}

/// Returns the program of the rank that `before` others precede.
fn nth(programs: &[(u32, Vec<OsString>)], mut before: u32) -> Option<&[OsString]> {
    for (ranks, program) in programs {
        match before.checked_sub(*ranks) {
            Some(rest) => before = rest,
            None => return Some(program),
        }
    }
    None
}

/// An agent's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Versions that it was built from.
    pub versions: Versions,
    /// Whether its host has instructions for AES-128-GCM.
    pub aes: bool,
    /// Whether it has them for AEGIS-128L. Older agents do not say.
    #[serde(default)]
    pub aegis: bool,
    /// Its host's address, as the launcher's connection reached it.
    pub ip: Option<IpAddr>,
}

impl Greeting {
    /// Whether its host has instructions for a suite.
    pub(super) const fn can(&self, suite: Suite) -> bool {
        match suite {
            Suite::Aes128Gcm => self.aes,
            Suite::Aegis128L => self.aegis,
            Suite::ChaCha20Poly1305 => true,
        }
    }
}

/// Why a host could not start its ranks, found out before it started any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartFailure {
    /// Exit code for the job.
    pub code: u8,
    /// Cause and remedy.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_that_share_a_core_know_it() {
        let seats = Seat::each(&[Some(1), None, Some(2), Some(1)]);
        let shared: Vec<bool> = seats.iter().map(|s| s.shared).collect();
        assert_eq!(shared, [true, false, false, true]);
    }

    #[test]
    fn programs_follow_each_other() {
        let word = |w: &str| vec![OsString::from(w)];
        let task = Task {
            programs: vec![(2, word("a")), (1, word("b"))],
            ..Task::default()
        };
        let of = |local| task.program(local).map(<[_]>::to_vec);
        assert_eq!(
            [of(0), of(1), of(2), of(3)],
            [Some(word("a")), Some(word("a")), Some(word("b")), None]
        );
    }
}
