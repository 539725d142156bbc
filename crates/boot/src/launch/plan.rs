//! What a host of a job is told, and what it says of itself.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Congestion, LinkChoice, Security, Suite, Versions};

/// The part of a job that one host has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct HostPlan {
    /// The host's number, and how many there are.
    pub host_index: u16,
    pub hosts: u16,
    /// Its first rank, its number of ranks, and the job's.
    pub first: u32,
    pub ranks: u32,
    pub size: u32,
    /// So many others may be started here later, ranks of hosts that leave.
    pub spare: u32,
    pub job_id: u64,
    /// The partition of each host; empty where all are in one.
    pub partitions: Vec<u16>,
    pub security: Security,
    pub suite: Suite,
    pub link: LinkChoice,
    pub congestion: Congestion,
    pub settings: BTreeMap<String, String>,
    /// How long the job waits for a silent host.
    pub host_silence: Duration,
    /// How long a stopped rank is answered for; none: as long as it is.
    pub stopped_limit: Option<Duration>,
    /// Where the other hosts reach this one; none: what each rank says.
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

/// Where a rank sits on its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seat {
    /// The core that it is bound to.
    pub core: Option<u32>,
    /// Others are bound to it too.
    pub shared: bool,
}

impl Seat {
    /// Of each of `cores`: whether it stands there twice.
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
    /// The same for all ranks of the job, where some may be started here that
    /// began elsewhere.
    pub others: Vec<(u32, Vec<OsString>)>,
    /// The folder that they start in.
    pub folder: PathBuf,
    /// Set in their environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Bind each rank to a core.
    pub bind: bool,
    /// Rank 0 is here and reads what the launcher reads.
    pub input: bool,
}

impl Task {
    /// What the rank with number `local` on its host runs.
    #[must_use]
    pub fn program(&self, local: u16) -> Option<&[OsString]> {
        nth(&self.programs, local.into())
    }

    /// What a rank of the job runs, wherever it began.
    #[must_use]
    pub fn program_of(&self, rank: u32) -> Option<&[OsString]> {
        nth(&self.others, rank)
    }
}

/// The program of the rank `before` which so many others stand.
fn nth(programs: &[(u32, Vec<OsString>)], mut before: u32) -> Option<&[OsString]> {
    for (ranks, program) in programs {
        match before.checked_sub(*ranks) {
            Some(rest) => before = rest,
            None => return Some(program),
        }
    }
    None
}

/// An agent's first words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// What it was built from.
    pub versions: Versions,
    /// Its host encrypts AES in hardware.
    pub aes: bool,
    /// Its host's address, as the launcher's connection reached it.
    pub ip: Option<IpAddr>,
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
