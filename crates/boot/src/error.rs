//! Why a process could not join its job.

use std::fmt;
use std::io;

use portolan_sys::calls;
use serde::{Deserialize, Serialize};

use crate::JOB_VARIABLE;
use crate::guest::GuestError;
use crate::message::Versions;
use crate::pmi::PmiError;

/// Why a launcher did not let a process into the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// The two were built from different versions.
    Version {
        /// The launcher's.
        launcher: Versions,
        /// The process's.
        process: Versions,
    },
    /// The process computed another key check than the launcher: it uses
    /// another secret, job or cipher suite.
    KeyCheck {
        /// The process's rank.
        rank: u32,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { launcher, process } => write!(
                f,
                "mixed versions: the launcher is {launcher}, this program was built with {process}; \
                 build the program again with the installed Portolan, or start it with the \
                 `portolan` command that belongs to it"
            ),
            Self::KeyCheck { rank } => write!(
                f,
                "wrong key: rank {rank} does not use the job's secret and cipher suite; \
                 start all ranks with one `portolan run`, and build them with one version"
            ),
        }
    }
}

/// Why a process could not join its job. Each is final for the process.
#[derive(Debug)]
pub enum BootError {
    /// `PORTOLAN_JOB` holds something else than `fd:` and a number.
    BadVariable(String),
    /// The descriptor that `PORTOLAN_JOB` names is not open, or no launcher's
    /// socket.
    NoDescriptor(i32),
    /// The process has attached before, or opened the descriptor itself.
    AlreadyAttached,
    /// The launcher said no.
    Refused(Refusal),
    /// The launcher ended the job before all ranks had joined: its reason.
    Aborted(String),
    /// The launcher is gone.
    LauncherGone,
    /// Bytes on the socket that no launcher of this version sends.
    Garbled,
    /// Another launcher's PMI server and this process do not understand each
    /// other.
    Pmi(PmiError),
    /// The processes that another launcher started do not fit together.
    Guest(GuestError),
    /// The kernel refused something.
    Io {
        /// What was being done.
        doing: &'static str,
        /// The kernel's answer.
        error: io::Error,
    },
}

impl From<PmiError> for BootError {
    fn from(error: PmiError) -> Self {
        Self::Pmi(error)
    }
}

impl From<GuestError> for BootError {
    fn from(error: GuestError) -> Self {
        Self::Guest(error)
    }
}

impl BootError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { doing, error }
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadVariable(value) => write!(
                f,
                "{JOB_VARIABLE}={value:?} is not of the form fd:NUMBER; it is set by `portolan run`: \
                 unset it to run alone"
            ),
            Self::NoDescriptor(number) => write!(
                f,
                "{JOB_VARIABLE} names descriptor {number}, which is not a launcher's socket here: \
                 a wrapper closed it, or this is a child of a process that has joined the job; \
                 unset {JOB_VARIABLE} to run alone"
            ),
            Self::AlreadyAttached => write!(
                f,
                "this process has joined its job before; join once and share the job"
            ),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Aborted(why) => write!(f, "the job was ended: {why}"),
            Self::LauncherGone => write!(f, "`portolan run` is gone, the job has ended"),
            Self::Garbled => write!(
                f,
                "the launcher sent what this version does not understand; \
                 build program and launcher from one version"
            ),
            Self::Pmi(error) => error.fmt(f),
            Self::Guest(error) => error.fmt(f),
            Self::Io { doing, error } => {
                write!(f, "{doing}: {error}")?;
                calls::remedy_of(error).map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
            }
        }
    }
}

impl std::error::Error for BootError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Pmi(error) => Some(error),
            Self::Guest(error) => Some(error),
            _ => None,
        }
    }
}
