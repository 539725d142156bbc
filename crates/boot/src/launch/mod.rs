//! The launcher's side of a job: start the ranks, tell each who it is, and
//! stay until all have ended.

mod rank;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open, setrlimit};

use crate::job::fill_random;
use crate::message::{How, Lane, Membership};
use crate::{Congestion, JOB_VARIABLE, LinkChoice, Refusal, Security, Suite, socket};
use rank::{HostDescriptors, Rank};
pub use watch::Stop;

/// Most ranks that one launcher starts.
pub const RANKS_MAX: u32 = 4096;

/// Descriptors that the launcher holds for each rank: process, control
/// socket, two pipes, doorbell and a passing one.
const DESCRIPTORS_PER_RANK: u64 = 6;
/// And for itself.
const DESCRIPTORS_OWN: u64 = 64;

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
    /// Whether packets are sealed.
    pub security: Security,
    /// With which cipher suite.
    pub suite: Suite,
    /// Which link to use.
    pub link: LinkChoice,
    /// How to share the network.
    pub congestion: Congestion,
    /// The core of each rank, if it is bound to one, by rank.
    pub cores: Vec<Option<u32>>,
    /// Passed on to every rank.
    pub settings: BTreeMap<String, String>,
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
}

impl JobSpec {
    /// A job with `hosts[i]` ranks on host `i`, all else by default.
    #[must_use]
    pub fn new(hosts: Vec<u32>) -> Self {
        Self {
            hosts,
            security: Security::default(),
            suite: Suite::default(),
            link: LinkChoice::default(),
            congestion: Congestion::default(),
            cores: Vec::new(),
            settings: BTreeMap::new(),
            join_timeout: Some(Duration::from_secs(60)),
            notice_grace: Duration::from_millis(500),
            term_grace: Duration::from_secs(2),
            on_death: OnDeath::default(),
        }
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.hosts.iter().sum()
    }

    /// Whether the core that a rank is bound to has other ranks too. All hosts
    /// of a job are hosts of this machine.
    fn shares_core(&self, rank: u32) -> bool {
        let core = self.cores.get(rank as usize).copied().flatten();
        core.is_some() && self.cores.iter().filter(|c| **c == core).count() > 1
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
}

/// What the launcher's user provides.
pub trait Starter {
    /// Makes the shared segment of a host with `ranks` ranks. It is called for
    /// each host, unless the link is UDP only.
    ///
    /// # Errors
    /// As the kernel says, with a remedy; the job is then not started.
    fn segment(&mut self, host_index: u16, ranks: u32) -> io::Result<OwnedFd>;

    /// The command that becomes rank `place`. Its environment and process
    /// group are set afterwards; its standard streams stay as they are here.
    fn command(&mut self, place: &Place) -> Command;

    /// Rank `place` runs, as the leader of process group `pid`.
    fn started(&mut self, place: &Place, pid: u32);
}

/// Why a job was not started. Nothing of it is left.
#[derive(Debug)]
pub enum LaunchError {
    /// No ranks, or more than [`RANKS_MAX`].
    Size(u64),
    /// Ranks on several hosts, with a link that stays within one.
    ShmAcrossHosts,
    /// The limit of open files allows this many ranks.
    TooFewFiles {
        /// Ranks asked for.
        ranks: u32,
        /// Descriptors needed.
        needed: u64,
        /// The hard limit.
        limit: u64,
    },
    /// The shared segment could not be made.
    Segment(io::Error),
    /// A rank's process could not be started.
    Spawn {
        /// Which.
        rank: u32,
        /// Why.
        error: io::Error,
    },
    /// The kernel refused something else.
    Io(io::Error),
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size(0) => write!(f, "a job has at least one rank: give -n 1 or more"),
            Self::Size(n) => {
                write!(
                    f,
                    "cannot start {n} ranks: one launcher starts at most {RANKS_MAX}"
                )
            }
            Self::ShmAcrossHosts => write!(
                f,
                "shared memory does not reach other hosts: use --link auto or --link udp, \
                 or start all ranks on one host"
            ),
            Self::TooFewFiles {
                ranks,
                needed,
                limit,
            } => write!(
                f,
                "{ranks} ranks need {needed} open files and the limit is {limit}: \
                 raise it (ulimit -Hn) or start fewer ranks"
            ),
            Self::Segment(error) => write!(
                f,
                "cannot make the shared memory segment: {error} (--link udp does without)"
            ),
            Self::Spawn { rank, error } => write!(f, "cannot start rank {rank}: {error}"),
            Self::Io(error) => write!(f, "cannot start the job: {error}"),
        }
    }
}

impl std::error::Error for LaunchError {}

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

/// What happens in a job, for its user to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A rank ended. Those of its host that sleep at a doorbell are woken
    /// after this was told.
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
    ranks: Vec<Rank>,
    hosts: Vec<HostDescriptors>,
    secret: [u8; 32],
    job_id: u64,
}

impl Running {
    /// Starts all ranks. The calling thread must stay alive as long as they
    /// do, if they ask to be killed when their parent is.
    ///
    /// # Errors
    /// [`LaunchError`]; ranks started until then are killed.
    pub fn start(spec: JobSpec, starter: &mut dyn Starter) -> Result<Self, LaunchError> {
        let size: u64 = spec.hosts.iter().map(|&n| u64::from(n)).sum();
        if size == 0 || size > u64::from(RANKS_MAX) {
            return Err(LaunchError::Size(size));
        }
        if spec.link == LinkChoice::Shm && spec.hosts.iter().filter(|&&n| n > 0).count() > 1 {
            return Err(LaunchError::ShmAcrossHosts);
        }
        make_room(spec.size())?;
        let mut random = [0; 40];
        fill_random(&mut random)?;
        let (secret, job_id) = random.split_first_chunk::<32>().expect("40 bytes");
        let mut running = Self {
            secret: *secret,
            job_id: u64::from_le_bytes(job_id.try_into().expect("8 bytes")),
            ranks: Vec::new(),
            hosts: Vec::new(),
            spec,
        };
        for host in 0..running.spec.hosts.len() {
            running.start_host(host, starter)?;
        }
        Ok(running)
    }

    fn start_host(&mut self, host: usize, starter: &mut dyn Starter) -> Result<(), LaunchError> {
        let ranks = self.spec.hosts[host];
        let index = u16::try_from(host).expect("hosts are fewer than ranks");
        let first = u32::try_from(self.ranks.len()).expect("at most RANKS_MAX");
        let mut descriptors = HostDescriptors {
            first,
            ranks,
            segment: None,
            doorbells: Vec::new(),
        };
        if ranks > 0 && self.spec.link != LinkChoice::Udp {
            let segment = starter.segment(index, ranks);
            descriptors.segment = Some(segment.map_err(LaunchError::Segment)?);
            for _ in 0..ranks {
                let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
                descriptors.doorbells.push(eventfd(0, flags)?);
            }
        }
        self.hosts.push(descriptors);
        for local in 0..ranks {
            let rank = first + local;
            let place = Place {
                rank,
                host_index: index,
                local_index: u16::try_from(local).expect("at most RANKS_MAX"),
                core: self.spec.cores.get(rank as usize).copied().flatten(),
            };
            let started = spawn(place, starter.command(&place))
                .map_err(|error| LaunchError::Spawn { rank, error })?;
            starter.started(&place, started.pid());
            self.ranks.push(started);
        }
        Ok(())
    }

    /// The ends of the pipes of ranks whose command had piped output, by
    /// rank. Only the first call gives them.
    pub fn take_outputs(&mut self) -> Vec<(u32, Option<ChildStdout>, Option<ChildStderr>)> {
        let streams = |r: &mut Rank| (r.place.rank, r.child.stdout.take(), r.child.stderr.take());
        self.ranks.iter_mut().map(streams).collect()
    }

    /// What rank `index` is told when it greets.
    fn welcome(&self, index: usize) -> Result<Membership, io::Error> {
        let place = self.ranks[index].place;
        let host = &self.hosts[usize::from(place.host_index)];
        let mut life = [0; 8];
        fill_random(&mut life)?;
        Ok(Membership {
            rank: place.rank,
            size: self.spec.size(),
            job_id: self.job_id,
            secret: self.secret,
            security: self.spec.security,
            suite: self.spec.suite,
            link: self.spec.link,
            congestion: self.spec.congestion,
            life: u64::from_le_bytes(life),
            host_index: place.host_index,
            hosts: u16::try_from(self.hosts.len()).expect("hosts are fewer than ranks"),
            local_index: place.local_index,
            local_ranks: (host.first..host.first + host.ranks).collect(),
            core: place.core,
            core_shared: self.spec.shares_core(place.rank),
            settings: self.spec.settings.clone(),
            shared: host.segment.is_some(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            if rank.ended.is_none() {
                rank.signal(rustix::process::Signal::KILL);
                let _ = rank.child.wait();
            }
        }
    }
}

/// Raises the soft limit of open files as far as `ranks` need.
fn make_room(ranks: u32) -> Result<(), LaunchError> {
    let needed = u64::from(ranks) * DESCRIPTORS_PER_RANK + DESCRIPTORS_OWN;
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|hard| hard < needed) {
        let limit = limit.maximum.unwrap_or_default();
        return Err(LaunchError::TooFewFiles {
            ranks,
            needed,
            limit,
        });
    }
    if limit.current.is_some_and(|soft| soft < needed) {
        limit.current = Some(needed);
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}

/// Starts one rank with its end of a control socket.
fn spawn(place: Place, mut command: Command) -> io::Result<Rank> {
    let (ours, theirs) = socket::pair()?;
    // It must outlive exec, also that of a wrapping script, until the program
    // attaches. Only this thread starts processes, so no other child gets it.
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let number = theirs.as_raw_fd();
    command
        .env(JOB_VARIABLE, format!("fd:{number}"))
        .process_group(0);
    let mut child = command.spawn()?;
    drop(theirs);
    match pidfd(&child) {
        Ok(process) => Ok(Rank::new(place, child, process, ours)),
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(Pid::from_child(child), PidfdFlags::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
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
