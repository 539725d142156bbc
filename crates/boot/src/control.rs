//! Questions to a running job, and orders: from another process of the same
//! user, on a host of the job.
//!
//! Who watches a job's ranks on a host (the launcher, elsewhere an agent)
//! listens at an abstract unix socket, `portolan/UID/JOB`, whose name is seen
//! in `/proc/net/unix`. Anybody can take such a name, so both sides look at who
//! the other is (`SO_PEERCRED`).
//! Whichever is asked, the launcher answers: agents pass questions on to it,
//! and it asks the other agents over the connections that it has.

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

/// Most bytes that a job answers: as many as one keeps for who asks.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// A job that has no room for one more who asks is called again after this.
const CALL_AGAIN: Duration = Duration::from_millis(10);

/// A question to a job, or an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Look at its ranks: [`Answer::Host`] of each host that has some.
    Look(Look),
    /// End the ranks of a host; the job goes on without them.
    Exclude {
        /// What the job's user knows it by.
        host: String,
    },
}

/// What to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// Where its ranks run.
    Places,
    /// And what they have done.
    Counters,
    /// And what goes on between them.
    State,
}

/// What a job answers. [`Answer::End`] or [`Answer::Refused`] comes last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// What was seen on one host.
    Host(HostView),
    /// A host of the job has not answered in time, or is lost.
    Silent {
        /// Its number.
        host_index: u16,
        /// What the job's user knows it by.
        name: String,
    },
    /// Nothing was done, and why not.
    Refused(String),
    /// That was all.
    End,
}

impl Answer {
    /// With nothing in its texts that would steer a terminal.
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

/// A host of a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    /// Its number.
    pub host_index: u16,
    /// What the job's user knows it by.
    pub name: String,
    /// When it was looked at, ns of the host's monotonic clock, to which the
    /// times in tables belong.
    pub now_ns: u64,
    /// Its ranks.
    pub ranks: Vec<RankView>,
}

/// A rank, as who watches it sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankView {
    /// Its number.
    pub rank: u32,
    /// The process that opened the endpoint; until then the one that was
    /// started.
    pub pid: u32,
    /// The core that it is bound to.
    pub core: Option<u32>,
    /// How often it was started again.
    pub restarts: u32,
    /// How far it is.
    pub phase: Phase,
    /// The kernel's letter for its process: R runs, S sleeps, D waits for a
    /// device, T is stopped, Z has ended. None: it is gone.
    pub process: Option<char>,
    /// What was read in its memory; nothing before it has joined and after it
    /// has left.
    pub tables: Vec<TableView>,
    /// Why that could not be read.
    pub unread: Option<Unread>,
}

impl RankView {
    /// A number of a table of one entry.
    #[must_use]
    pub fn number(&self, table: &str, field: &str) -> Option<u64> {
        let table = self.table(table)?;
        let (_, row) = table.rows.first()?;
        row.get(table.fields.iter().position(|name| name == field)?)
            .copied()
    }

    /// A table by its name.
    #[must_use]
    pub fn table(&self, name: &str) -> Option<&TableView> {
        self.tables.iter().find(|table| table.name == name)
    }
}

/// A table in a rank's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableView {
    /// What it holds.
    pub name: String,
    /// The names of its numbers.
    pub fields: Vec<String>,
    /// Index and numbers of each entry in which something goes on.
    pub rows: Vec<(u32, Vec<u64>)>,
    /// So many such entries are not told: there were too many.
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
    /// It is no longer there.
    #[error("it is ending")]
    Gone,
}

/// How far a rank is in its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It has not opened an endpoint.
    Started,
    /// It waits for the others to open theirs.
    Opening,
    /// Its endpoint is open.
    Joined,
    /// It closed its endpoint in good order and still runs.
    Left,
    /// Its process has ended.
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

/// A question as it travels.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub versions: Versions,
    /// Read once the versions are known to agree.
    pub request: serde_json::Value,
}

/// A job that runs on this host, as far as the kernel tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobName {
    /// The user whose it is.
    pub uid: u32,
    /// Its id.
    pub id: u64,
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&id_text(self.id))
    }
}

/// How a job's id is written.
#[must_use]
pub fn id_text(id: u64) -> String {
    format!("{id:016x}")
}

impl JobName {
    /// One of this process's user.
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

    /// Whether it is of this process's user.
    #[must_use]
    pub fn is_own(&self) -> bool {
        is_our_user(self.uid)
    }

    /// Calls the job. Does not wait: who has taken the name could let us.
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

    /// Whether the job's user listens there, as far as can be seen.
    fn is_true(&self) -> bool {
        !matches!(
            self.call(),
            Err(ControlError::Foreign(_) | ControlError::Ended)
        )
    }

    /// Whether a user means it by `text`: the beginning of the id of an own job,
    /// of another user's the whole id, or user and id.
    fn is_meant(&self, text: &str) -> bool {
        let id = self.to_string();
        if self.is_own() {
            id.starts_with(text)
        } else {
            id == text || format!("{}/{id}", self.uid) == text
        }
    }

    /// From a line of `/proc/net/unix`.
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

/// Why a job was not asked, or did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// No job of this user runs on this host, or none whose id begins so.
    #[error(fmt = no_job)]
    NoJob(Option<String>),
    /// Several could be meant: these.
    #[error(fmt = several)]
    Several(Vec<JobName>),
    /// Who listens there is another user.
    #[error("another user ({0}) listens under the name of that job: not asked")]
    Foreign(u32),
    /// It said no.
    #[error("{0}")]
    Refused(String),
    /// It did not answer within this time.
    #[error("the job's launcher does not answer within {} s: is it stopped?", .0.as_secs())]
    Silent(Duration),
    /// It ended meanwhile.
    #[error("the job has ended")]
    Ended,
    /// Its answer has no end.
    #[error(
        "the job answers more than {} MiB, which no launcher does: is it what it says?",
        ANSWER_BYTES_MAX >> 20
    )]
    Endless,
    /// It answered what this version does not understand.
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

/// The jobs of this user that run on this host (in this network namespace);
/// root sees everybody's. Names that another user has taken are left out.
///
/// # Errors
/// The kernel's list cannot be read.
pub fn jobs() -> io::Result<Vec<JobName>> {
    let is_root = rustix::process::geteuid().is_root();
    let list = std::fs::read_to_string(SOCKETS_FILE)?;
    let mut jobs: Vec<JobName> = list.lines().filter_map(JobName::parse).collect();
    jobs.retain(|job| is_root || job.is_own());
    // Each connection bears the name too.
    jobs.sort_unstable();
    jobs.dedup();
    jobs.retain(JobName::is_true);
    Ok(jobs)
}

/// The job of this user whose id begins with `id`; without it, the only one that
/// runs. Root means another user's by the whole id.
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

/// Asks a job; gives all that it answers but the end. Waits at most `limit`.
///
/// # Errors
/// [`ControlError`]; nothing was done.
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
