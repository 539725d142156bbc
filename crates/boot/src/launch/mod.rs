//! The launcher's side of a job: reach its hosts, start the ranks, tell each
//! who it is, and stay until all have ended.
//!
//! It has two parts. The *host's part* starts, watches and polices the ranks
//! of one host; for hosts of this machine it runs in the launcher, for others
//! in an agent ([`serve`]), which the launcher reaches through a program of
//! the user's (ssh). The *job's part* is the launcher's alone: the table of
//! addresses, what to do on a death, the exit code. They speak in orders and
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
    /// They are told, then ended.
    #[default]
    End,
    /// They are told.
    Notify,
}

/// A job to start.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// Ranks of each host; ranks are numbered in blocks.
    pub hosts: Vec<u32>,
    /// Ranks that each host is meant to have at most, by host; what is missing
    /// counts as none. It matters where ranks are started again.
    pub slots: Vec<u32>,
    /// The partition of each host, by host; empty: all are in one. Hosts of
    /// two partitions have no common secret and cannot reach each other.
    pub partitions: Vec<u16>,
    /// What the user knows the hosts by; one without a name is told by its
    /// number.
    pub names: Vec<String>,
    /// Whether packets are sealed.
    pub security: Security,
    /// With which cipher suite.
    pub suite: Suite,
    /// Which link to use.
    pub link: LinkChoice,
    /// How to share the network.
    pub congestion: Congestion,
    /// The core of each rank, if it is bound to one, by rank. Agents choose
    /// for theirs.
    pub cores: Vec<Option<u32>>,
    /// Passed on to every rank.
    pub settings: BTreeMap<String, String>,
    /// How many connections the launcher and each agent make: further hosts
    /// are reached through agents. Default 16.
    pub fan_out: u32,
    /// How long agents have to answer. Default 9 s.
    pub connect_timeout: Duration,
    /// A remote host of which nothing was heard for so long is lost, and its
    /// ranks with it. Its agent says a word twice a second, and ends its ranks
    /// if it hears nothing of the launcher for eight times as long. Default
    /// 2.5 s.
    pub host_silence: Duration,
    /// A rank whose process is stopped counts as alive for so long; none:
    /// until it ends. Then it is killed. Default none.
    pub stopped_limit: Option<Duration>,
    /// The job is ended after this, with exit code 124; none: never.
    pub timeout: Option<Duration>,
    /// How long ranks that have joined wait for others that have not; none:
    /// for ever. Default 60 s: a program loads within seconds.
    pub join_timeout: Option<Duration>,
    /// Between telling ranks that the job ends and SIGTERM. Default 500 ms,
    /// for their own last words.
    pub notice_grace: Duration,
    /// Between SIGTERM and SIGKILL. Default 2 s.
    pub term_grace: Duration,
    /// When a rank ends abnormally.
    pub on_death: OnDeath,
    /// How often each rank is started again, on another host, when its own is
    /// lost or excluded. Default 0. Otherwise hosts without ranks take part too.
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
            suite: Suite::default(),
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
pub struct Place {
    /// Its number.
    pub rank: u32,
    /// Its host's number.
    pub host_index: u16,
    /// Its number on the host.
    pub local_index: u16,
    /// The core to bind it to.
    pub core: Option<u32>,
    /// How often it was started before, on other hosts.
    pub restarts: u32,
}

/// The memory that the ranks of a host share.
pub struct SharedMemory {
    /// Each rank gets it.
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
    pub place: Place,
    /// How many its host was given at the start.
    pub ranks: u32,
    /// The address of the interface, if that is known.
    pub at: Option<IpAddr>,
}

/// What the launcher's or an agent's user provides.
pub trait Starter {
    /// Makes the shared segment of a host with `ranks` ranks. It is called for
    /// each host, unless the link is UDP only.
    ///
    /// # Errors
    /// As the kernel says, with a remedy; the job is then not started.
    fn segment(&mut self, host_index: u16, ranks: u32) -> io::Result<SharedMemory>;

    /// The address by which others reach a host whose ranks are started here; none:
    /// each finds its own.
    fn address(&mut self, _host_index: u16) -> Option<IpAddr> {
        None
    }

    /// Opens host ports, those of several hosts at the same time; gives of each,
    /// in that order, the port or why there is none, for people to read.
    fn host_ports(&mut self, wanted: &[Wanted]) -> Vec<Result<HostPort, String>> {
        let none = |_: &Wanted| Err("whoever starts this job opens no host ports".to_owned());
        wanted.iter().map(none).collect()
    }

    /// The command that becomes rank `place`. Its environment and process
    /// group are set afterwards; its standard streams stay as they are here.
    /// What is piped is collected as [`Event::Output`], a piped input is fed
    /// from [`Starter::input`] of the launcher.
    fn command(&mut self, place: &Place) -> Command;

    /// Rank `place` runs, as the leader of process group `pid`.
    fn started(&mut self, place: &Place, pid: u32);

    /// The core for a rank that is started on a host after the others; none:
    /// it is not bound.
    fn spare_core(&mut self, _host_index: u16, _local_index: u16) -> Option<u32> {
        None
    }

    /// How to reach a host; none: its ranks are started here.
    fn reach(&mut self, _host_index: u16) -> Option<Reach> {
        None
    }

    /// The program that reaches a host runs, as leader of process group `pid`.
    fn reached(&mut self, _pid: u32) {}

    /// What rank 0 reads where it is not here: asked for if its host's task
    /// has `input`.
    ///
    /// # Errors
    /// As the kernel says; the job is then not started.
    fn input(&mut self) -> io::Result<Option<OwnedFd>> {
        Ok(None)
    }
}

/// Longest names and values of a job's settings together, bytes: they go in one
/// message with what else a rank is told.
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
    /// The limit of open files allows this many ranks.
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
        /// Which.
        rank: u32,
        /// Why.
        error: io::Error,
    },
    /// A host cannot take part.
    #[error("host {host_index}: {failure}")]
    Host {
        /// Which.
        host_index: u16,
        /// The host through which it is reached, if not from here.
        via: Option<u16>,
        /// Why.
        failure: HostFailure,
    },
    /// What a host is to be told does not fit a message: its length, bytes.
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
        /// For the user to read.
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
    /// Readable when it is time.
    pub descriptor: OwnedFd,
    /// Exit code of the job.
    pub code: i32,
    /// For the user to read.
    pub why: String,
}

/// What happens in a job.
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
        place: Place,
        /// Its process.
        pid: u32,
    },
    /// A rank wrote something.
    Output(Chunk),
    /// The program that reaches a host wrote this line to standard error.
    HostSaid {
        /// Which host.
        host_index: u16,
        /// What.
        line: String,
    },
    /// A host can take no part any more; its ranks, if it had any, are dead.
    HostLost {
        /// Which.
        host_index: u16,
        /// The host through which it was reached, if not from here.
        via: Option<u16>,
        /// Why.
        why: HostFailure,
    },
    /// A rank ended; its neighbours on its host know.
    Ended {
        /// Where.
        place: Place,
        /// Its process.
        pid: u32,
        /// How.
        how: How,
        /// It said before that it leaves, or never joined.
        orderly: bool,
        /// The job was being ended already.
        expected: bool,
    },
    /// Not all hosts reach each other: this one leaves the job, its ranks are
    /// dead. Or the job ends, as [`JobSpec::on_death`] says.
    CutOff {
        /// Which.
        host_index: u16,
        /// The hosts that it does not reach, or that do not reach it.
        unreached: Vec<u16>,
        /// Hosts of ranks that got too little of their cores to hear others.
        starved: Vec<u16>,
    },
    /// A rank did not answer another, which has given it up, and it is not its
    /// host that is at fault: it is killed.
    GivenUp {
        /// Which.
        rank: u32,
        /// Who has given it up.
        by: u32,
        /// Whether `by` got too little of its cores to hear it.
        starved: bool,
    },
    /// A rank was stopped for longer than [`JobSpec::stopped_limit`]: it is
    /// killed.
    Overdue {
        /// Which.
        rank: u32,
    },
    /// The kernel refuses a rank packets to another, or those of all: the other
    /// is not killed. Between hosts it is decided who leaves.
    NotReached {
        /// Who met that, with whom, and the kernel's error.
        why: String,
    },
    /// A rank whose host has left the job is started again.
    Restarting {
        /// Which.
        rank: u32,
        /// Where.
        host_index: u16,
        /// How often it was started again, this time among them.
        restarts: u32,
        /// No host has a slot free; this one is the least loaded.
        crowded: bool,
    },
    /// A rank whose host has left the job stays dead.
    NotRestarted {
        /// Which.
        rank: u32,
        /// Why.
        why: String,
    },
    /// A rank says which link carries its messages to whom.
    Lanes {
        /// Which rank.
        rank: u32,
        /// To all others, by link and reason.
        lanes: Vec<Lane>,
    },
    /// Some ranks have joined and wait for these others.
    Waiting {
        /// Who is missing.
        missing: Vec<u32>,
        /// For how long.
        waited: Duration,
    },
    /// A process was not let in.
    Refused {
        /// Its rank.
        rank: u32,
        /// Why.
        why: Refusal,
    },
    /// The job is being ended.
    Ending {
        /// Why.
        why: String,
    },
}

/// A job that runs. Dropping it kills its ranks.
pub struct Running {
    spec: JobSpec,
    members: Vec<Member>,
    hosts: Vec<Side>,
    /// Hosts that are reached through others: the command that does.
    further: Vec<Option<Vec<OsString>>>,
    /// All output of the host was told.
    drained: Vec<bool>,
    room: Arc<output::Room>,
    /// Bytes of output that were told and are not written.
    under_way: u64,
    stops: Vec<Stop>,
    epoll: OwnedFd,
    source: Option<Source>,
    alive: usize,
    code: Option<i32>,
    ending: Option<Ending>,
    /// All ranks have joined.
    begun: bool,
    /// How many have come back.
    returns: u32,
    /// Ranks that a signal has ended, whose host may be about to be lost, and
    /// until when that is waited for.
    doubts: Vec<(u32, Instant)>,
    /// The exchange that is under way: some have given their address.
    round: Option<Round>,
    limit_at: Option<Instant>,
    /// Output is no longer waited for: its reader has stopped.
    abandoned: bool,
    excluded: Excluded,
    /// Hosts of which ranks say that they do not reach each other.
    reports: Reports,
    /// Hosts of ranks that have given others up and got too little of their cores.
    starved: Vec<u16>,
    /// When agents hear of us next.
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
