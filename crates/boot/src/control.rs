//! Queries and orders to a running job, from another process of the same user
//! on a host of the job.
//!
//! The process that watches a job's ranks on a host (the launcher, elsewhere an
//! agent) listens at an abstract unix socket, `portolan/UID/JOB`, whose name is
//! seen in `/proc/net/unix`. Any process can bind such a name, so both sides
//! check the peer's user (`SO_PEERCRED`).
//! Whichever is asked, the launcher answers: agents forward queries to it, and
//! it queries the other agents over its existing connections.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use portolan_sys::process::{is_our_user, peer};
use portolan_sys::tell::plain;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use serde::{Deserialize, Serialize};

use crate::Versions;
use crate::frame::{Frames, json};
use crate::message::How;

/// Where the kernel lists the sockets of this network namespace.
const SOCKETS_FILE: &str = "/proc/net/unix";

/// Longest answer of a job, bytes: also the most that is buffered for one client.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Delay before connecting again to a job whose listen queue is full.
const CALL_AGAIN: Duration = Duration::from_millis(10);

/// A query or an order to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Report the ranks: [`Answer::Host`] of each host that has some.
    Look(Look),
    /// End the ranks of a host; the job goes on without them.
    Exclude {
        /// The host's name, as the job's user knows it.
        host: String,
    },
}

/// How much to report of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// Where the rank runs.
    Places,
    /// Also its counters.
    Counters,
    /// Also its state: tables of several entries.
    State,
}

/// An answer of a job. [`Answer::End`] or [`Answer::Refused`] comes last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// The view of one host.
    Host(HostView),
    /// A host of the job has not answered in time, or is lost.
    Silent {
        /// The host's number.
        host_index: u16,
        /// The host's name, as the job's user knows it.
        name: String,
    },
    /// Nothing was done, for this reason.
    Refused(String),
    /// End of the answers.
    End,
}

impl Answer {
    /// Escapes what would steer a terminal in the texts.
    fn made_plain(mut self) -> Self {
        let escape = |text: &mut String| *text = plain(text).into_owned();
        match &mut self {
            Self::Host(view) => {
                escape(&mut view.name);
                let tables = view.ranks.iter_mut().flat_map(|rank| &mut rank.tables);
                for table in tables {
                    escape(&mut table.name);
                    table.fields.iter_mut().for_each(escape);
                }
            }
            Self::Silent { name: text, .. } | Self::Refused(text) => escape(text),
            Self::End => {}
        }
        self
    }
}

/// A host of a job, as seen at one time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// The host's number.
    pub host_index: u16,
    /// The host's name, as the job's user knows it.
    pub name: String,
    /// Time of the view, ns of the host's monotonic clock. Times in tables use
    /// the same clock.
    pub now_ns: u64,
    /// The host's ranks.
    pub ranks: Vec<RankView>,
}

/// A rank as the process that watches it sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankView {
    /// The rank's number.
    pub rank: u32,
    /// The process that opened the endpoint; until then the one that was
    /// started.
    pub pid: u32,
    /// The core that it is bound to.
    pub core: Option<u32>,
    /// Number of restarts.
    pub restarts: u32,
    /// Progress in the job.
    pub phase: Phase,
    /// State of the process, the kernel's letter: R runs, S sleeps, D waits for
    /// a device, T is stopped, Z has ended. None: the process is gone.
    pub process: Option<char>,
    /// Tables read from its memory; none before it has joined and after it has left.
    pub tables: Vec<TableView>,
    /// Why the tables could not be read.
    pub unread: Option<Unread>,
}

impl RankView {
    /// Returns `field` of the first entry of `table`: for tables of one entry.
    #[must_use]
    pub fn number(&self, table: &str, field: &str) -> Option<u64> {
        let table = self.table(table)?;
        let (_, row) = table.rows.first()?;
        row.get(table.fields.iter().position(|name| name == field)?)
            .copied()
    }

    /// Returns the table with this name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&TableView> {
        self.tables.iter().find(|table| table.name == name)
    }
}

/// A table in a rank's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableView {
    /// The table's name.
    pub name: String,
    /// Names of the numbers in an entry.
    pub fields: Vec<String>,
    /// Index and numbers of each entry that is not idle.
    pub rows: Vec<(u32, Vec<u64>)>,
    /// Number of such entries left out because there were too many.
    pub left_out: u32,
}

/// Why a rank's memory was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unread {
    /// The kernel forbids it.
    #[error(
        "its memory may not be read: kernel.yama.ptrace_scope must be 0 or 1, the process \
         dumpable, or who watches it needs CAP_SYS_PTRACE"
    )]
    NotPermitted,
    /// The process is no longer there.
    #[error("it is ending")]
    Gone,
}

/// Progress of a rank in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// No endpoint is open yet.
    Started,
    /// Waits for the others to open their endpoints.
    Opening,
    /// The endpoint is open.
    Joined,
    /// The endpoint was closed in good order; the process still runs.
    Left,
    /// The process has ended.
    Ended(How),
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started => f.write_str("started"),
            Self::Opening => f.write_str("opening"),
            Self::Joined => f.write_str("joined"),
            Self::Left => f.write_str("left"),
            Self::Ended(how) => write!(f, "ended: {how}"),
        }
    }
}

/// A request as it is sent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub versions: Versions,
    /// Parsed once the versions are known to agree.
    pub request: serde_json::Value,
}

/// A job that runs on this host, according to the kernel's list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobName {
    /// The job's user.
    pub uid: u32,
    /// The job's id.
    pub id: u64,
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&id_text(self.id))
    }
}

/// Returns a job's id as text: 16 hexadecimal digits.
#[must_use]
pub fn id_text(id: u64) -> String {
    format!("{id:016x}")
}

impl JobName {
    /// Names a job of this process's user.
    #[must_use]
    pub fn own(id: u64) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self { uid, id }
    }

    /// Where the job listens.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(self.socket_name())
    }

    fn socket_name(&self) -> String {
        format!("portolan/{}/{self}", self.uid)
    }

    /// Whether the job is of this process's user.
    #[must_use]
    pub fn is_own(&self) -> bool {
        is_our_user(self.uid)
    }

    /// Connects to the job. Does not block: another process that has bound the
    /// name could make us wait.
    fn call(&self) -> Result<UnixStream, ControlError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let calling = || -> io::Result<_> {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            let name = self.socket_name();
            connect(
                &socket,
                &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
            )?;
            let who = peer(socket.as_fd()).map_err(io::Error::from)?.uid;
            Ok((UnixStream::from(socket), who))
        };
        let (stream, who) = calling()?;
        if who != self.uid {
            return Err(ControlError::Foreign(who));
        }
        stream.set_nonblocking(false)?;
        Ok(stream)
    }

    /// Whether the job's user listens at the name; true where that is not known.
    fn is_true(&self) -> bool {
        !matches!(
            self.call(),
            Err(ControlError::Foreign(_) | ControlError::Ended)
        )
    }

    /// Whether `text` names this job: a prefix of the id if the job is our own,
    /// else the whole id or `UID/ID`.
    fn is_meant(&self, text: &str) -> bool {
        let id = self.to_string();
        if self.is_own() {
            id.starts_with(text)
        } else {
            id == text || format!("{}/{id}", self.uid) == text
        }
    }

    /// Parses a line of `/proc/net/unix`.
    fn parse(line: &str) -> Option<Self> {
        let (_, name) = line.split_once(" @portolan/")?;
        let (uid, id) = name.split_once('/')?;
        let id = Some(id).filter(|id| id.len() == 16)?;
        Some(Self {
            uid: uid.parse().ok()?,
            id: u64::from_str_radix(id, 16).ok()?,
        })
    }
}

/// Why a job was not asked or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No job of this user runs on this host, or none whose id has this prefix.
    #[error(fmt = no_job)]
    NoJob(Option<String>),
    /// Several jobs match: these.
    #[error(fmt = several)]
    Several(Vec<JobName>),
    /// Another user listens under the job's name.
    #[error("another user ({0}) listens under the name of that job: not asked")]
    Foreign(u32),
    /// The job refused.
    #[error("{0}")]
    Refused(String),
    /// No answer within this time.
    #[error("the job's launcher does not answer within {} s: is it stopped?", .0.as_secs())]
    Silent(Duration),
    /// The job ended meanwhile.
    #[error("the job has ended")]
    Ended,
    /// The answer is longer than any launcher's.
    #[error(
        "the job answers more than {} MiB, which no launcher does: is it what it says?",
        ANSWER_BYTES_MAX >> 20
    )]
    Endless,
    /// The answer is not understood by this version.
    #[error(
        "the job answers what this version does not understand: use the `portolan` that started it"
    )]
    Garbled,
    /// The kernel refused something.
    #[error("asking the job: {0}")]
    Io(io::Error),
}

fn no_job(id: &Option<String>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match id {
        None => f.write_str(
            "no job of this user runs on this host: `portolan run` starts one, and `portolan \
             top` sees it from each of its hosts (in a container: within it)",
        ),
        Some(id) => write!(
            f,
            "no job of this user on this host has an id that begins with {id}: `portolan top \
             --list` lists them"
        ),
    }
}

fn several(jobs: &[JobName], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("several jobs could be meant; name one of")?;
    jobs.iter().try_for_each(|job| match job.is_own() {
        true => write!(f, " {job}"),
        false => write!(f, " {}/{job}", job.uid),
    })
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Ended,
            _ => Self::Io(error),
        }
    }
}

/// Returns the jobs of this user that run on this host (in this network
/// namespace); for root, those of all users. Names that another user has bound
/// are left out.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn jobs() -> io::Result<Vec<JobName>> {
    let is_root = rustix::process::geteuid().is_root();
    let list = std::fs::read_to_string(SOCKETS_FILE)?;
    let mut jobs: Vec<JobName> = list.lines().filter_map(JobName::parse).collect();
    jobs.retain(|job| is_root || job.is_own());
    // Each connection is listed under the name too.
    jobs.sort_unstable();
    jobs.dedup();
    jobs.retain(JobName::is_true);
    Ok(jobs)
}

/// Finds the job of this user whose id begins with `id`; without it, the only
/// one that runs. Root names another user's job by the whole id.
///
/// # Errors
/// [`ControlError::NoJob`], [`ControlError::Several`].
pub fn find(id: Option<&str>) -> Result<JobName, ControlError> {
    let mut jobs = jobs()?;
    jobs.retain(|job| id.map_or(job.is_own(), |id| job.is_meant(id)));
    if jobs.iter().any(JobName::is_own) {
        jobs.retain(JobName::is_own);
    }
    match jobs.len() {
        0 => Err(ControlError::NoJob(id.map(str::to_owned))),
        1 => Ok(jobs.remove(0)),
        _ => Err(ControlError::Several(jobs)),
    }
}

/// Sends a request to a job and returns its answers without the end. Waits at
/// most `limit`.
///
/// # Errors
/// [`ControlError`]. If the answer was lost, an order may have been carried
/// out.
pub fn ask(job: &JobName, request: &Request, limit: Duration) -> Result<Vec<Answer>, ControlError> {
    let deadline = Instant::now() + limit;
    let silent = || ControlError::Silent(limit);
    let mut stream = loop {
        match job.call() {
            Err(ControlError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {}
            called => break called?,
        }
        if Instant::now() >= deadline {
            return Err(silent());
        }
        std::thread::sleep(CALL_AGAIN);
    };
    let asked = Asked {
        versions: Versions::ours(),
        request: serde_json::to_value(request).expect("plain data in memory"),
    };
    stream.set_write_timeout(Some(limit))?;
    stream.write_all(&json(&asked))?;
    let mut frames = Frames::default();
    let mut answers = Vec::new();
    let mut bytes = vec![0; 64 << 10];
    let mut room = ANSWER_BYTES_MAX;
    loop {
        while let Some(content) = frames.next().map_err(|_| ControlError::Garbled)? {
            let body = content.get(1..).unwrap_or_default();
            let answer: Answer = serde_json::from_slice(body).map_err(|_| ControlError::Garbled)?;
            match answer.made_plain() {
                Answer::End => return Ok(answers),
                Answer::Refused(why) => return Err(ControlError::Refused(why)),
                answer => answers.push(answer),
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(silent());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err(ControlError::Ended),
            Ok(n) => {
                room = room.checked_sub(n).ok_or(ControlError::Endless)?;
                frames.feed(&bytes[..n]);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                _ => return Err(error.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read_from_the_kernels_list() {
        let line = |name: &str| format!("0000: 00000002 00000000 00010000 0001 01 17 {name}");
        let job = JobName {
            uid: 1000,
            id: 0x2a,
        };
        let name = "@portolan/1000/000000000000002a";
        assert_eq!(JobName::parse(&line(name)), Some(job));
        for name in [
            "@portolan/1000/2a",
            "@portolan/x/000000000000002a",
            "@portolan/1000/000000000000002a/more",
            "/tmp/portolan/1000/000000000000002a",
            "",
        ] {
            assert_eq!(JobName::parse(&line(name)), None, "{name}");
        }
    }
}
