//! Why a process could not join its job.

use std::io;

use portolan_sys::{calls, environment};
use serde::{Deserialize, Serialize};

use crate::JOB_VARIABLE;
use crate::guest::GuestError;
use crate::message::Versions;
use crate::pmi::PmiError;

/// Why a launcher did not let a process into the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Launcher and process were built from different versions.
    #[error(
        "mixed versions: the launcher is {launcher}, this program was built with {process}; build \
         the program again with the installed Portolan, or start it with the `portolan` command \
         that belongs to it"
    )]
    Version {
        /// Versions of the launcher.
        launcher: Versions,
        /// Versions of the process.
        process: Versions,
    },
    /// The process's key check differs from the launcher's: it uses another
    /// secret, job or cipher suite.
    #[error(
        "wrong key: rank {rank} does not use the job's secret and cipher suite; start all ranks \
         with one `portolan run`, and build them with one version"
    )]
    KeyCheck {
        /// The process's rank.
        rank: u32,
    },
}

/// Why a process could not join its job. Each is final for the process.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// `PORTOLAN_JOB` holds something else than `fd:` and a number.
    #[error(
        "{JOB_VARIABLE}={0:?} is not of the form fd:NUMBER; it is set by `portolan run`: unset it \
         to run alone"
    )]
    BadVariable(String),
    /// A launcher's variables are set, but this process ignores them: it has
    /// rights that its starter may lack.
    #[error(
        "the variables by which a launcher names the job do not count: {}; start it without a \
         launcher, or give the user what it needs (limits, ambient capabilities) instead of the \
         program",
        environment::WHY_IGNORED
    )]
    Untrusted,
    /// The descriptor that `PORTOLAN_JOB` names is not open, or no launcher's
    /// socket.
    #[error(
        "{JOB_VARIABLE} names descriptor {0}, which is not a launcher's socket here: a wrapper \
         closed it, or this is a child of a process that has joined the job; unset {JOB_VARIABLE} \
         to run alone"
    )]
    NoDescriptor(i32),
    /// The process has attached before, or opened the descriptor itself.
    #[error(
        "this process has joined its job before, which it can do only once, also after closing: \
         open the endpoint once, share it, and close it at the end"
    )]
    AlreadyAttached,
    /// The launcher refused the process.
    #[error("{0}")]
    Refused(Refusal),
    /// The launcher ended the job before all ranks had joined, for this reason.
    #[error("the job was ended: {0}")]
    Aborted(String),
    /// The launcher is gone.
    #[error("`portolan run` is gone, the job has ended")]
    LauncherGone,
    /// Bytes on the socket that no launcher of this version sends.
    #[error(
        "the launcher sent what this version does not understand; build program and launcher from \
         one version"
    )]
    Garbled,
    /// Another launcher's PMI server and this process do not understand each
    /// other.
    #[error("{0}")]
    Pmi(#[from] PmiError),
    /// The processes that another launcher started do not fit together.
    #[error("{0}")]
    Guest(#[from] GuestError),
    /// The kernel refused something.
    #[error("{doing}: {error}{}", remedy(.error))]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The kernel's error.
        #[source]
        error: io::Error,
    },
}

fn remedy(of: &io::Error) -> String {
    calls::remedy_of(of).map_or_else(String::new, |remedy| format!("; {remedy}"))
}

impl BootError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { doing, error }
    }
}
