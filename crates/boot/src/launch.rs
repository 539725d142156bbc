//! The launcher's side of a job: reaches its hosts, starts the ranks, sends
//! each its membership, and stays until all have ended.
//!
//! There are two parts. The *host's part* starts, watches and controls the
//! ranks of one host; for hosts of this machine it runs in the launcher, for
//! others in an agent ([`serve`]), which the launcher reaches through a program
//! of the user's (ssh). The *job's part* is the launcher's alone: the table of
//! addresses, what to do on a death, the exit code. The two exchange orders and
//! reports, within one process or over a connection.

mod agent;
mod agent_protocol;
mod connection;
mod control_socket;
mod cuts;
mod exchange;
mod exclude;
mod heartbeat;
mod host;
mod member;
mod output;
mod plan;
mod query;
mod rank;
mod reach;
mod remote;
mod remote_statistics;
mod respawn;
mod source;
mod start;
mod streams;
mod watch;

#[cfg(feature = "properties")]
pub(crate) use agent_protocol::frames_travel;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::host_port::HostPort;
use crate::message::{How, Lane};
use crate::partition::Reports;
use crate::silence::StallDetector;
use crate::{Congestion, LinkChoice, Refusal, Security, Suite};
pub use agent::{AgentError, Keeper, Prepared, serve};
pub use cuts::NOT_ARRIVING;
use exchange::Round;
use exclude::Excluded;
use member::Member;
pub use output::Chunk;
pub use plan::{Greeting, StartFailure, Task};
pub use remote::HostFailure;
use source::Source;
pub use start::DESCRIPTORS_PER_RANK;
use watch::{Ending, Side};

/// Most ranks that one launcher starts.
pub const RANKS_MAX: u32 = 4096;

/// What happens to the others when a rank ends abnormally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeath {
    /// The others are notified, then ended.
    #[default]
    End,
    /// The others are notified.
    Notify,
}

/// A job to start.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Number of ranks of each host; ranks are numbered in blocks.
    pub hosts: Vec<u32>,
    /// Most ranks that each host is meant to have, by host; a missing entry
    /// counts as 0. Used where ranks are started again.
    pub slots: Vec<u32>,
    /// The partition of each host, by host; empty: all are in one. Hosts of
    /// different partitions share no secret and cannot reach each other.
    pub partitions: Vec<u16>,
    /// The user's names of the hosts; one without a name is shown by its number.
    pub names: Vec<String>,
    /// Whether packets are sealed.
    pub security: Security,
    /// The cipher suite. Default none: AEGIS-128L if all hosts can, else ChaCha20-Poly1305.
    pub suite: Option<Suite>,
    /// Which link to use.
    pub link: LinkChoice,
    /// How to share the network.
    pub congestion: Congestion,
    /// The core of each rank, if it is bound to one, by rank. Agents choose for theirs.
    pub cores: Vec<Option<u32>>,
    /// Settings that are passed on to every rank.
    pub settings: BTreeMap<String, String>,
    /// Most connections that the launcher and each agent make: further hosts
    /// are reached through agents. Default 16.
    pub fan_out: u32,
    /// Timeout of an agent's greeting. Default 9 s.
    pub connect_timeout: Duration,
    /// Silence after which a remote host is lost, and its ranks with it. Its
    /// agent sends a heartbeat twice a second, and ends its ranks if it hears
    /// nothing of the launcher for eight times as long. Default 2.5 s.
    pub host_silence: Duration,
    /// How long a rank counts as alive while its process is stopped; then it is
    /// killed. None: until it ends. Default none.
    pub stopped_limit: Option<Duration>,
    /// The job is ended after this, with exit code 124; none: never.
    pub timeout: Option<Duration>,
    /// How long ranks that have joined wait for others that have not; none:
    /// for ever. Default 60 s: a program loads within seconds.
    pub join_timeout: Option<Duration>,
    /// Between the notice to ranks that the job ends and SIGTERM, for their own
    /// last output. Default 500 ms.
    pub notice_grace: Duration,
    /// Between SIGTERM and SIGKILL. Default 2 s.
    pub term_grace: Duration,
    /// What happens to the others when a rank ends abnormally.
    pub on_death: OnDeath,
    /// Most restarts of each rank, on another host, when its own is lost or
    /// excluded. Default 0. If it is not 0, hosts without ranks take part too.
    pub respawn: u32,
}

impl JobSpec {
    /// A job with `hosts[i]` ranks on host `i`, all else by default.
    #[must_use]
    pub fn new(hosts: Vec<u32>) -> Self {
        Self {
            hosts,
            slots: Vec::new(),
            partitions: Vec::new(),
            names: Vec::new(),
            security: Security::default(),
            suite: None,
            link: LinkChoice::default(),
            congestion: Congestion::default(),
            cores: Vec::new(),
            settings: BTreeMap::new(),
            fan_out: 16,
            connect_timeout: Duration::from_secs(9),
            host_silence: Duration::from_millis(2_500),
            stopped_limit: None,
            timeout: None,
            join_timeout: Some(Duration::from_secs(60)),
            notice_grace: Duration::from_millis(500),
            term_grace: Duration::from_secs(2),
            on_death: OnDeath::default(),
            respawn: 0,
        }
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.hosts.iter().sum()
    }

    /// Spreads `ranks` over `hosts` in blocks whose sizes differ by at most
    /// one, the larger ones first.
    #[must_use]
    pub fn blocks(ranks: u32, hosts: u32) -> Vec<u32> {
        (0..hosts)
            .map(|host| ranks / hosts + u32::from(host < ranks % hosts))
            .collect()
    }
}

/// Where a rank runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPlace {
    /// The rank's number.
    pub rank: u32,
    /// Its host's number.
    pub host_index: u16,
    /// Its number on the host.
    pub local_index: u16,
    /// The core to bind it to.
    pub core: Option<u32>,
    /// Number of restarts, each on another host.
    pub restarts: u32,
}

/// The memory that the ranks of a host share.
pub struct SharedMemory {
    /// Descriptor of the memory, which each rank gets.
    pub descriptor: OwnedFd,
    /// Called with a rank's number on its host when it has ended, before its
    /// neighbours are woken.
    pub mark_dead: Box<dyn FnMut(u16)>,
}

/// How to reach a host that is not here.
pub struct Reach {
    /// Runs `portolan`'s agent there and carries its standard streams.
    pub command: Command,
    /// What the agent is to start.
    pub task: Task,
}

/// A host port that a rank is to have.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The rank.
    pub place: RankPlace,
    /// Number of ranks of its host at the start.
    pub ranks: u32,
    /// The address of the interface, if it is known.
    pub at: Option<IpAddr>,
}

/// Callbacks that the program of the launcher or an agent provides.
pub trait Starter {
    /// Makes the shared segment of a host with `ranks` ranks. Called for each
    /// host, unless the link is UDP or AF_XDP only.
    ///
    /// # Errors
    /// As the kernel says, with a remedy; the job is then not started.
    fn segment(&mut self, host_index: u16, ranks: u32) -> io::Result<SharedMemory>;

    /// Returns the address by which others reach a host whose ranks are started
    /// here; none: each finds its own.
    fn address(&mut self, _host_index: u16) -> Option<IpAddr> {
        None
    }

    /// Opens host ports, those of several hosts at the same time. Returns for
    /// each, in that order, the port or why there is none, for people to read.
    fn host_ports(&mut self, wanted: &[Wanted]) -> Vec<Result<HostPort, String>> {
        let none = |_: &Wanted| Err("whoever starts this job opens no host ports".to_owned());
        wanted.iter().map(none).collect()
    }

    /// Returns the command that becomes rank `place`. Its environment and
    /// process group are set afterwards; its standard streams stay as they are
    /// here. What is piped is collected as [`Event::Output`], a piped input is
    /// fed from [`Starter::input`] of the launcher.
    fn command(&mut self, place: &RankPlace) -> Command;

    /// Called when rank `place` runs, as the leader of process group `pid`.
    fn started(&mut self, place: &RankPlace, pid: u32);

    /// Returns the core for a rank that is started on a host after the others;
    /// none: it is not bound.
    fn spare_core(&mut self, _host_index: u16, _local_index: u16) -> Option<u32> {
        None
    }

    /// Returns how to reach a host; none: its ranks are started here.
    fn reach(&mut self, _host_index: u16) -> Option<Reach> {
        None
    }

    /// Called when the program that reaches a host runs, as leader of process group `pid`.
    fn reached(&mut self, _pid: u32) {}

    /// Returns the input of rank 0 if that is not here: called if its host's
    /// task has `input`.
    ///
    /// # Errors
    /// As the kernel says; the job is then not started.
    fn input(&mut self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

/// Most bytes of the names and values of a job's settings: they share a message
/// with the rest of a membership.
const SETTINGS_BYTES_MAX: usize = 8 << 10;

/// Why a job was not started. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No ranks, or more than [`RANKS_MAX`].
    #[error(fmt = wrong_size)]
    Size(u64),
    /// Ranks on several hosts, with a link that stays within one.
    #[error(
        "shared memory does not reach other hosts: use --link auto or --link udp, or start all \
         ranks on one host"
    )]
    ShmAcrossHosts,
    /// The limit of open files is too low for this many ranks.
    #[error(
        "{ranks} ranks need {needed} open files and the limit is {limit}: raise it (ulimit -Hn) or \
         start fewer ranks"
    )]
    TooFewFiles {
        /// Ranks asked for.
        ranks: u32,
        /// Descriptors needed.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// The shared segment could not be made.
    #[error("cannot make the shared memory segment: {0} (--link udp does without)")]
    Segment(io::Error),
    /// A rank's process could not be started.
    #[error(
        "cannot start rank {rank}: {error}{}",
        match .error.kind() {
            io::ErrorKind::WouldBlock => "; raise the limit of processes (ulimit -u), or end some",
            _ => "",
        }
    )]
    Spawn {
        /// The rank.
        rank: u32,
        /// The cause.
        error: io::Error,
    },
    /// A host cannot take part.
    #[error("host {host_index}: {failure}")]
    Host {
        /// The host.
        host_index: u16,
        /// The host through which it is reached, if not from here.
        via: Option<u16>,
        /// The cause.
        failure: HostFailure,
    },
    /// The description for a host does not fit a message: its length, bytes.
    #[error(
        "the job's description has {0} bytes, too many for the agents: pass fewer or shorter \
         environment variables and arguments"
    )]
    TaskTooLarge(usize),
    /// The settings do not fit a message: their length, bytes.
    #[error(
        "the job's settings have {0} bytes, and a rank is told {SETTINGS_BYTES_MAX} at most: give \
         shorter ones"
    )]
    SettingsTooLarge(usize),
    /// A [`Stop`] came before all hosts had answered.
    #[error("{why}, before all hosts had answered")]
    Stopped {
        /// Exit code of the job.
        code: i32,
        /// Reason, for the user to read.
        why: String,
    },
    /// The kernel refused something else.
    #[error("cannot start the job: {0}")]
    Io(io::Error),
}

fn wrong_size(ranks: &u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match ranks {
        0 => f.write_str("a job has at least one rank: give -n 1 or more"),
        n => write!(
            f,
            "cannot start {n} ranks: one launcher starts at most {RANKS_MAX}, so give a smaller -n"
        ),
    }
}

impl From<rustix::io::Errno> for LaunchError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<io::Error> for LaunchError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A reason from outside to end the job: when `descriptor` becomes readable.
/// When it does again, ranks are killed at once.
#[derive(Debug)]
pub struct Stop {
    /// Readable when the job is to end.
    pub descriptor: OwnedFd,
    /// Exit code of the job.
    pub code: i32,
    /// Reason, for the user to read.
    pub why: String,
}

/// An event of a job.
#[derive(Debug)]
pub enum Event {
    /// All ranks run.
    Named {
        /// The job's id, by which [`control`](crate::control) finds it.
        job_id: u64,
    },
    /// A rank runs.
    Started {
        /// Where, and on which core.
        place: RankPlace,
        /// Its process.
        pid: u32,
    },
    /// A rank wrote something.
    Output(Chunk),
    /// The program that reaches a host wrote this line to standard error.
    HostSaid {
        /// Which host.
        host_index: u16,
        /// The line.
        line: String,
    },
    /// A host can take no part any more; its ranks, if it had any, are dead.
    HostLost {
        /// The host.
        host_index: u16,
        /// The host through which it was reached, if not from here.
        via: Option<u16>,
        /// The cause.
        why: HostFailure,
    },
    /// A rank ended; its neighbours on its host were notified.
    Ended {
        /// The rank's place.
        place: RankPlace,
        /// Its process.
        pid: u32,
        /// How it ended.
        how: How,
        /// Whether it had reported that it leaves, or had never joined.
        orderly: bool,
        /// Whether the job was being ended already, or the rank's host leaves it.
        expected: bool,
    },
    /// Not all hosts reach each other: this one leaves the job, its ranks are
    /// dead. Or the job ends, as [`JobSpec::on_death`] says.
    CutOff {
        /// The host.
        host_index: u16,
        /// The hosts that it does not reach, or that do not reach it.
        unreached: Vec<u16>,
        /// Hosts of ranks that got too little of their cores to hear others.
        starved: Vec<u16>,
    },
    /// A rank is killed: it did not answer another, which has given it up, and
    /// its host is not at fault.
    GivenUp {
        /// The rank.
        rank: u32,
        /// The rank that has given it up.
        by: u32,
        /// Whether `by` got too little of its cores to hear it.
        starved: bool,
    },
    /// A rank was stopped for longer than [`JobSpec::stopped_limit`]: it is
    /// killed.
    Overdue {
        /// The rank.
        rank: u32,
    },
    /// The kernel refuses a rank packets to another, or from all: the other is
    /// not killed. Between hosts it is decided which leaves. Or hosts do not
    /// reach each other and none leaves, since ranks of one have ended.
    NotReached {
        /// The ranks concerned and the kernel's error, or the hosts.
        why: String,
    },
    /// A rank whose host has left the job is started again.
    Restarting {
        /// The rank.
        rank: u32,
        /// The host on which it is started.
        host_index: u16,
        /// Number of restarts, this one among them.
        restarts: u32,
        /// No host has a slot free; this one is the least loaded.
        crowded: bool,
    },
    /// A rank whose host has left the job stays dead.
    NotRestarted {
        /// The rank.
        rank: u32,
        /// The cause.
        why: String,
    },
    /// A rank reports which links carry its messages.
    Lanes {
        /// Which rank.
        rank: u32,
        /// Its lanes to all others, by link and reason.
        lanes: Vec<Lane>,
    },
    /// Some ranks have joined and wait for these others.
    Waiting {
        /// The missing ranks.
        missing: Vec<u32>,
        /// How long they have waited.
        waited: Duration,
    },
    /// A process was refused.
    Refused {
        /// The process's rank.
        rank: u32,
        /// The cause.
        why: Refusal,
    },
    /// The job is being ended.
    Ending {
        /// The cause.
        why: String,
    },
}

/// A job that runs. Dropping it kills its ranks.
pub struct Running {
    spec: JobSpec,
    members: Vec<Member>,
    hosts: Vec<Side>,
    /// Commands that reach hosts through others, by host.
    further: Vec<Option<Vec<OsString>>>,
    /// Whether all output of each host was reported.
    drained: Vec<bool>,
    room: Arc<output::Room>,
    /// Bytes of output that were reported and are not written yet.
    under_way: u64,
    stops: Vec<Stop>,
    epoll: OwnedFd,
    source: Option<Source>,
    alive: usize,
    code: Option<i32>,
    /// The rank that was seen to fail first, while its process is not gone yet.
    first_dying: Option<(u32, How)>,
    /// The rank that the job's end was blamed on before its process was gone.
    blamed: Option<u32>,
    ending: Option<Ending>,
    /// Whether all ranks have joined.
    begun: bool,
    /// Number of returns of ranks.
    returns: u32,
    /// Ranks that a signal has ended, whose host may be about to be lost, and
    /// until when that is awaited.
    doubts: Vec<(u32, Instant)>,
    /// The exchange in progress: some ranks have sent their address.
    round: Option<Round>,
    limit_at: Option<Instant>,
    /// Output is no longer waited for: its reader has stopped.
    abandoned: bool,
    excluded: Excluded,
    /// Reports of ranks that hosts do not reach each other.
    reports: Reports,
    /// Hosts of ranks that have given others up and got too little of their cores.
    starved: Vec<u16>,
    /// When the next heartbeat to agents is due.
    beat_at: Instant,
    stalls: StallDetector,
    questions: query::Questions,
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_sys::socket;
    use std::os::fd::AsFd;

    #[test]
    fn blocks_differ_by_at_most_one() {
        assert_eq!(JobSpec::blocks(4, 2), [2, 2]);
        assert_eq!(JobSpec::blocks(5, 3), [2, 2, 1]);
        assert_eq!(JobSpec::blocks(1, 3), [1, 0, 0]);
    }

    #[test]
    fn a_pair_is_recognised() {
        let (a, _b) = socket::pair().unwrap();
        assert!(socket::is_ours(a.as_fd()));
        assert!(!socket::is_ours(
            std::fs::File::open("/dev/null").unwrap().as_fd()
        ));
    }
}
